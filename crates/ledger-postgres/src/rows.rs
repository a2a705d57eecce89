//! Rows as PostgreSQL takes them in its binary format: a row is made once, by whoever asks for a write, and a batch is a
//! few arrays of such rows.

use crate::record::Bits;
use bytes::{BufMut as _, BytesMut};
use ledger::operation::Operation;
use tokio_postgres::types::{IsNull, Kind, ToSql, Type, to_sql_checked};

type Boxed = Box<dyn std::error::Error + Sync + Send>;

/// A row in the making: its columns in the order of its type.
pub(crate) struct Columns(Vec<u8>);

impl Columns {
    /// So many columns follow.
    pub fn new(columns: i32) -> Columns {
        let mut row = Vec::with_capacity(2048);
        row.extend_from_slice(&columns.to_be_bytes());
        Columns(row)
    }

    fn put(mut self, ty: &Type, value: Option<&[u8]>) -> Columns {
        self.0.extend_from_slice(&ty.oid().to_be_bytes());
        let length = value.map_or(-1, |v| i32::try_from(v.len()).unwrap_or(i32::MAX));
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(value.unwrap_or_default());
        self
    }
    pub fn bits(self, value: Option<Bits>) -> Columns {
        self.put(&Type::UUID, value.as_ref().map(|b| b.0.as_slice()))
    }
    pub fn number(self, value: Option<i64>) -> Columns {
        self.put(&Type::INT8, value.map(i64::to_be_bytes).as_ref().map(<[u8; 8]>::as_slice))
    }
    pub fn small(self, value: i16) -> Columns {
        self.put(&Type::INT2, Some(&value.to_be_bytes()))
    }
    pub fn text(self, value: &str) -> Columns {
        self.put(&Type::TEXT, Some(value.as_bytes()))
    }

    /// The last column, a record as JSON, which is written where it belongs; and where it begins. `None`: it has no JSON
    /// form, or is larger than any column.
    pub fn record(mut self, record: &Operation) -> Option<(Vec<u8>, usize)> {
        self.0.extend_from_slice(&Type::TEXT.oid().to_be_bytes());
        self.0.extend_from_slice(&[0; 4]);
        let at = self.0.len();
        serde_json::to_writer(&mut self.0, record).ok()?;
        let length = i32::try_from(self.0.len() - at).ok()?;
        self.0[at - 4..at].copy_from_slice(&length.to_be_bytes());
        Some((self.0, at))
    }
}

/// What is put into an array, as the binary format wants an element.
pub(crate) trait Element: std::fmt::Debug + Sync {
    fn length(&self) -> usize;
    fn write(&self, out: &mut BytesMut);
}

/// A row that was made before.
impl Element for &[u8] {
    fn length(&self) -> usize {
        self.len()
    }
    fn write(&self, out: &mut BytesMut) {
        out.extend_from_slice(self);
    }
}

/// Type and length before each column of a row.
const HEAD: usize = 8;

fn column(out: &mut BytesMut, ty: &Type, value: Option<&[u8]>) {
    out.put_u32(ty.oid());
    out.put_i32(value.map_or(-1, |v| i32::try_from(v.len()).unwrap_or(i32::MAX)));
    out.extend_from_slice(value.unwrap_or_default());
}

/// A key and the operation that takes it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyClaim {
    pub key: Bits,
    pub id: Bits,
}

impl Element for KeyClaim {
    fn length(&self) -> usize {
        4 + 2 * (HEAD + 16)
    }
    fn write(&self, out: &mut BytesMut) {
        out.put_i32(2);
        column(out, &Type::UUID, Some(&self.key.0));
        column(out, &Type::UUID, Some(&self.id.0));
    }
}

/// A slot and the operation that takes it, with that one's place among what wants attention: the type `write_3_claim`.
#[derive(Debug)]
pub(crate) struct SlotClaim {
    pub slot: Bits,
    pub id: Bits,
    pub before: Option<Bits>,
    pub forced: bool,
    pub low: Option<i64>,
}

impl Element for SlotClaim {
    fn length(&self) -> usize {
        let (before, low) = (self.before.map_or(0, |_| 16), self.low.map_or(0, |_| 8));
        4 + 5 * HEAD + 16 + 16 + before + 1 + low
    }
    fn write(&self, out: &mut BytesMut) {
        out.put_i32(5);
        column(out, &Type::UUID, Some(&self.slot.0));
        column(out, &Type::UUID, Some(&self.id.0));
        column(out, &Type::UUID, self.before.as_ref().map(|b| b.0.as_slice()));
        column(out, &Type::BOOL, Some(&[u8::from(self.forced)]));
        column(out, &Type::INT8, self.low.map(i64::to_be_bytes).as_ref().map(<[u8; 8]>::as_slice));
    }
}

/// A payload of the `n`-th write of its batch.
#[derive(Debug)]
pub(crate) struct Payload<'a> {
    pub n: i32,
    pub id: Bits,
    pub kind: i32,
    pub data: &'a [u8],
}

impl Element for Payload<'_> {
    fn length(&self) -> usize {
        4 + 4 * HEAD + 4 + 16 + 4 + self.data.len()
    }
    fn write(&self, out: &mut BytesMut) {
        out.put_i32(4);
        column(out, &Type::INT4, Some(&self.n.to_be_bytes()));
        column(out, &Type::UUID, Some(&self.id.0));
        column(out, &Type::INT4, Some(&self.kind.to_be_bytes()));
        column(out, &Type::BYTEA, Some(self.data));
    }
}

/// An array of rows.
#[derive(Debug)]
pub(crate) struct Rows<T>(pub Vec<T>);

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Rows(Vec::new())
    }
}

impl<T: Element> ToSql for Rows<T> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        let Kind::Array(element) = ty.kind() else { return Err("no array".into()) };
        out.reserve(20 + self.0.iter().map(|e| e.length() + 4).sum::<usize>());
        // One dimension, or none of an empty one; no nulls.
        out.put_i32(i32::from(!self.0.is_empty()));
        out.put_i32(0);
        out.put_u32(element.oid());
        if !self.0.is_empty() {
            out.put_i32(i32::try_from(self.0.len())?);
            out.put_i32(1);
        }
        for e in &self.0 {
            out.put_i32(i32::try_from(e.length())?);
            e.write(out);
        }
        Ok(IsNull::No)
    }
    fn accepts(ty: &Type) -> bool {
        matches!(ty.kind(), Kind::Array(e) if matches!(e.kind(), Kind::Composite(_)))
    }
    to_sql_checked!();
}
