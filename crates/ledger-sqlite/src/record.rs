//! A record as a row: the columns that are searched, and back.

use crate::MAX_PAYLOAD;
use ledger::codes;
use ledger::handle::{self, HandleChange};
use ledger::operation::{Operation, Unreadable};
use ledger::store::{Attention, Blob, Counts, SlotWrite, StoreError, Write, key_hash_of, slot_hash_of};
use ledger::words::OperationId;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How many records are in each state. Kept with the records, in the same transactions, so that nobody ever
/// has to count a million rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counters {
    execution: [i64; 7],
    delivery: [i64; 5],
}

fn bump(counters: &mut [i64], code: i64, by: i64) {
    if let Some(n) = usize::try_from(code - 1).ok().and_then(|i| counters.get_mut(i)) {
        *n += by;
    }
}

impl Counters {
    pub fn add(&mut self, state: i64, delivery: i64, by: i64) {
        bump(&mut self.execution, state, by);
        bump(&mut self.delivery, delivery, by);
    }
    pub fn text(&self) -> String {
        // Twelve numbers: this can't fail.
        serde_json::to_string(self).unwrap_or_default()
    }
    pub fn parse(text: &str) -> Option<Counters> {
        serde_json::from_str(text).ok()
    }
    pub fn counts(&self) -> Counts {
        let named = |words: &[(i16, &str)], counters: &[i64]| {
            let of = words.iter().zip(counters).filter(|(_, n)| **n > 0);
            of.map(|((_, w), n)| ((*w).to_owned(), n.unsigned_abs())).collect()
        };
        Counts {
            execution: named(&codes::EXECUTION, &self.execution),
            delivery: named(&codes::DELIVERY, &self.delivery),
        }
    }
}

/// An id as it is stored: big-endian, so that bytes sort as ids do.
pub(crate) fn id_bytes(id: OperationId) -> [u8; 16] {
    id.0.to_be_bytes()
}

/// The columns of a record.
pub(crate) struct Row {
    pub id: [u8; 16],
    /// Of a creation only, as is the next.
    pub key_hash: Option<[u8; 16]>,
    pub slot_hash: [u8; 16],
    pub principal: Arc<str>,
    pub tool: Arc<str>,
    pub state: i64,
    pub delivery: i64,
    pub version: i64,
    pub owner: i64,
    pub caller: i64,
    pub attention: Option<i64>,
    pub expires_at: Option<i64>,
    pub record: String,
}

/// A write, ready for the writer: hashes and JSON are made by whoever asks for it, on its own thread.
pub(crate) struct Change {
    pub row: Row,
    pub kind: Kind,
    pub blobs: Vec<Blob>,
    pub handles: Vec<HandleChange>,
}

pub(crate) enum Kind {
    Create(SlotWrite),
    Update { stamp: i64 },
}

impl Change {
    pub fn new(write: Write, attention: Attention) -> Result<Change, StoreError> {
        let (op, blobs, handles, kind) = match write {
            Write::Create { operation, slot, blobs } => (operation, blobs, Vec::new(), Kind::Create(slot)),
            Write::Update { operation, stamp, blobs, handles } => {
                handle::bounded(&handles)?;
                (operation, blobs, handles, Kind::Update { stamp: stamp.cast_signed() })
            }
        };
        let record = text(&op)
            .ok_or_else(|| StoreError::Unavailable(format!("the record of {} has no JSON form", op.id)))?;
        if record.len() > MAX_PAYLOAD || blobs.iter().any(|b| b.data.len() > MAX_PAYLOAD) {
            let limit = MAX_PAYLOAD >> 20;
            return Err(StoreError::Unavailable(format!(
                "a payload of {} is larger than {limit} MiB; make it smaller",
                op.id
            )));
        }
        // Neither ever changes, so an update needs none.
        let (key_hash, slot_hash) = match kind {
            Kind::Create(_) => (key_hash_of(&op).map(|k| k.0), slot_hash_of(&op).0),
            Kind::Update { .. } => (None, [0; 16]),
        };
        let row = Row {
            id: id_bytes(op.id),
            key_hash,
            slot_hash,
            state: i64::from(codes::execution(&op.execution)),
            delivery: i64::from(codes::delivery(op.delivery.state)),
            version: op.version.cast_signed(),
            owner: op.owner.0.cast_signed(),
            caller: op.caller.epoch.0.cast_signed(),
            attention: op.attention(attention.grace, attention.alert_after).map(|t| t.0),
            expires_at: op.expires_at().map(|t| t.0),
            principal: op.scope.principal,
            tool: op.scope.tool,
            record,
        };
        Ok(Change { row, kind, blobs, handles })
    }

    pub fn bytes(&self) -> usize {
        let handles = self.handles.len() * ledger::handle::MAX_HANDLE_VALUE;
        self.row.record.len() + self.blobs.iter().map(|b| b.data.len()).sum::<usize>() + handles
    }
}

/// The record as JSON, in a text with room for most from the beginning.
fn text(op: &Operation) -> Option<String> {
    let mut text = Vec::with_capacity(2048);
    serde_json::to_writer(&mut text, op).ok()?;
    String::from_utf8(text).ok()
}

/// A record from its columns.
pub(crate) fn decode(id: [u8; 16], version: i64, record: &[u8]) -> Result<Operation, Unreadable> {
    let mut op = Operation::from_record(record)?;
    op.version = version.cast_unsigned();
    if id_bytes(op.id) == id { Ok(op) } else { Err(Unreadable::Damaged) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_keep_themselves() {
        let mut c = Counters::default();
        c.add(2, 1, 1);
        c.add(2, 1, 1);
        c.add(2, 1, -1);
        assert_eq!(Counters::parse(&c.text()), Some(c.clone()));
        assert_eq!(c.counts().execution.into_iter().collect::<Vec<_>>(), [("running".to_owned(), 1)]);
    }
}
