//! A record as a row: the columns that are searched, and back.

use crate::MAX_PAYLOAD;
use crate::rows::Columns;
use bytes::BytesMut;
use ledger::codes;
use ledger::operation::{Operation, Unreadable};
use ledger::store::{Attention, Blob, Counts, SlotWrite, StoreError, Write, key_hash_of, slot_hash_of};
use ledger::words::{Epoch, OperationId};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// The end of time: where what waits for a person has its place.
const NEVER: i64 = i64::MAX;

type Boxed = Box<dyn std::error::Error + Sync + Send>;

/// 128 bits: an id or a hash, kept as uuid. Bytes sort as ids do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Bits(pub [u8; 16]);

impl Bits {
    pub fn id(id: OperationId) -> Bits {
        Bits(id.0.to_be_bytes())
    }
    pub fn operation(self) -> OperationId {
        OperationId(u128::from_be_bytes(self.0))
    }
}

impl ToSql for Bits {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }
    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Bits {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Bits, Boxed> {
        Ok(Bits(raw.try_into()?))
    }
    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }
}

/// Sums of states from how many records have each code.
pub(crate) fn counts(codes: impl Iterator<Item = (i16, i64)>) -> Counts {
    let mut all = Counts::default();
    for (code, n) in codes.filter(|(_, n)| *n > 0) {
        let word =
            |words: &[(i16, &str)], c| words.iter().find(|(n, _)| *n == c).map(|(_, w)| (*w).to_owned());
        if let (Some(e), Some(d)) = (word(&codes::EXECUTION, code / 8), word(&codes::DELIVERY, code % 8)) {
            *all.execution.entry(e).or_default() += n.unsigned_abs();
            *all.delivery.entry(d).or_default() += n.unsigned_abs();
        }
    }
    all
}

/// What a creation claims.
pub(crate) struct Claims {
    pub slot: Bits,
    /// Whom it takes the slot from, and whether it cares.
    pub before: Option<Bits>,
    pub forced: bool,
    pub key: Option<Bits>,
}

/// The columns of a record that changes.
pub(crate) struct Row {
    pub id: Bits,
    pub code: i16,
    pub version: i64,
    pub owner: i64,
    pub caller: i64,
    pub attention: Option<i64>,
    /// Its place among what wants attention or waits for a person.
    pub low: Option<i64>,
    pub expires_at: Option<i64>,
    /// All of a creation or an update as the writer's statement takes it, the record at its end.
    pub binary: Vec<u8>,
    record_at: usize,
}

impl Row {
    pub fn record(&self) -> &str {
        std::str::from_utf8(&self.binary[self.record_at..]).unwrap_or_default()
    }
}

/// A write, ready for the writer: hashes and JSON are made by whoever asks for it, on its own thread.
pub(crate) struct Change {
    pub row: Row,
    pub kind: Kind,
    pub blobs: Vec<Blob>,
    /// The boot that asks for it: it is made under no other.
    pub by: Epoch,
}

pub(crate) enum Kind {
    Create(Claims),
    Update { stamp: i64 },
}

impl Change {
    pub fn new(write: Write, attention: Attention, by: Epoch) -> Result<Change, StoreError> {
        let (op, blobs, what) = match write {
            Write::Create { operation, slot, blobs } => (operation, blobs, Ok(slot)),
            Write::Update { operation, stamp, blobs, .. } => (operation, blobs, Err(stamp.cast_signed())),
        };
        #[cfg(feature = "failpoints")]
        let op = crate::newer::marked(op);
        if op.scope.principal.contains('\0') || op.scope.tool.contains('\0') {
            return Err(StoreError::Unavailable(format!("a name of {} has a zero character", op.id)));
        }
        let wants = op.attention(attention.grace, attention.alert_after).map(|t| t.0);
        let (e, d) = (codes::execution(&op.execution), codes::delivery(op.delivery.state));
        let waits = e == 3 || e == 7 || d == 3;
        let mut row = Row {
            id: Bits::id(op.id),
            code: e * 8 + d,
            version: op.version.cast_signed(),
            owner: op.owner.0.cast_signed(),
            caller: op.caller.epoch.0.cast_signed(),
            attention: wants,
            low: wants.or(waits.then_some(NEVER)),
            expires_at: op.expires_at().map(|t| t.0),
            binary: Vec::new(),
            record_at: 0,
        };
        let (columns, kind) = match what {
            Ok(slot) => {
                let claims = Claims {
                    slot: Bits(slot_hash_of(&op).0),
                    before: match slot {
                        SlotWrite::Set | SlotWrite::CompareAndSet(None) => None,
                        SlotWrite::CompareAndSet(Some(id)) => Some(Bits::id(id)),
                    },
                    forced: slot == SlotWrite::Set,
                    key: key_hash_of(&op).map(|k| Bits(k.0)),
                };
                (creation(&row, &op, &claims), Kind::Create(claims))
            }
            Err(stamp) => (update(&row, stamp), Kind::Update { stamp }),
        };
        let Some((binary, record_at)) = columns.record(&op) else {
            return Err(StoreError::Unavailable(format!("the record of {} has no JSON form", op.id)));
        };
        if binary.len() - record_at > MAX_PAYLOAD || blobs.iter().any(|b| b.data.len() > MAX_PAYLOAD) {
            let limit = MAX_PAYLOAD >> 20;
            return Err(StoreError::Unavailable(format!(
                "a payload of {} is larger than {limit} MiB; make it smaller",
                op.id
            )));
        }
        (row.binary, row.record_at) = (binary, record_at);
        Ok(Change { row, kind, blobs, by })
    }

    /// An update of some record, without contents.
    #[cfg(test)]
    pub fn of_test(n: u8) -> Change {
        let id = Bits([n; 16]);
        let row = Row {
            id,
            code: 0,
            version: 2,
            owner: 0,
            caller: 0,
            attention: None,
            low: None,
            expires_at: None,
            binary: Vec::new(),
            record_at: 0,
        };
        Change { row, kind: Kind::Update { stamp: 0 }, blobs: Vec::new(), by: Epoch(1) }
    }

    /// What a creation claims.
    pub fn claims(&self) -> Option<&Claims> {
        match &self.kind {
            Kind::Create(claims) => Some(claims),
            Kind::Update { .. } => None,
        }
    }

    pub fn bytes(&self) -> usize {
        self.row.binary.len() + self.blobs.iter().map(|b| b.data.len()).sum::<usize>()
    }
}

/// The columns of the type `write_3_creation`, but for the last.
fn creation(row: &Row, op: &Operation, claims: &Claims) -> Columns {
    Columns::new(14)
        .bits(Some(row.id))
        .bits(claims.key)
        .bits(Some(claims.slot))
        .text(&op.scope.principal)
        .text(&op.scope.tool)
        .number(Some(op.created_at.plus(op.policy.retention).0))
        .number(row.expires_at)
        .number(row.attention)
        .number(row.low)
        .number(Some(row.version))
        .number(Some(row.owner))
        .number(Some(row.caller))
        .small(row.code)
}

/// Those of `write_2_update`, likewise.
fn update(row: &Row, stamp: i64) -> Columns {
    Columns::new(10)
        .bits(Some(row.id))
        .number(Some(row.version))
        .number(Some(stamp))
        .small(row.code)
        .number(Some(row.owner))
        .number(Some(row.caller))
        .number(row.attention)
        .number(row.low)
        .number(row.expires_at)
}

/// A record from its columns.
pub(crate) fn decode(id: Bits, version: i64, record: &str) -> Result<Operation, Unreadable> {
    let mut op = Operation::from_record(record.as_bytes())?;
    op.version = version.cast_unsigned();
    if op.id == id.operation() { Ok(op) } else { Err(Unreadable::Damaged) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums() {
        let c = counts([(34, 2), (35, 1), (17, 0), (0, 77)].into_iter());
        assert_eq!(c.execution.into_iter().collect::<Vec<_>>(), [("completed".to_owned(), 3)]);
        assert_eq!(
            c.delivery.into_iter().collect::<Vec<_>>(),
            [("ready".to_owned(), 2), ("undelivered".to_owned(), 1)]
        );
    }
}
