//! Questions that an operation asks on its way, and their answers.
//!
//! An answer belongs to the operation: the first valid one of each key counts, durably; the same again changes nothing,
//! another is refused. What is asked and answered is kept beside the record, byte for byte; the record keeps digests.

use crate::operation::Operation;
use crate::words::{Time, digest};
use serde::{Deserialize, Serialize};

/// The most questions that an operation may ask in its life: bounds its record.
pub const MAX_INPUTS: usize = 64;
/// The longest key of a question, in bytes.
pub const MAX_INPUT_KEY: usize = 64;
/// The longest question, in bytes.
pub const MAX_REQUEST: usize = 256 << 10;
/// The longest answer, in bytes.
pub const MAX_ANSWER: usize = 256 << 10;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// Something of the client: a form, an address to visit, a model's words, its roots.
    Client,
    /// A person's yes to what will be sent.
    Approval,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Its name inside the operation: 1 to [`MAX_INPUT_KEY`] of `A-Z a-z 0-9 _ . -`.
    pub key: String,
    /// What it is for.
    pub kind: InputKind,
    /// The request as the client gets it: JSON, a method and its parameters. Opaque to the ledger.
    pub request: Vec<u8>,
}

/// Identifies a question or an answer: the first 128 bits of a SHA-256 over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InputDigest(pub [u8; 16]);

impl Serialize for InputDigest {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&crate::effect::hex(&self.0))
    }
}
impl<'de> Deserialize<'de> for InputDigest {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let s = String::deserialize(d)?;
        let wrong = || serde::de::Error::custom("32 hexadecimal digits expected");
        if s.len() != 32 || !s.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        u128::from_str_radix(&s, 16).map(|n| InputDigest(n.to_be_bytes())).map_err(|_| wrong())
    }
}

fn first16(full: [u8; 32]) -> InputDigest {
    let mut out = [0; 16];
    out.copy_from_slice(&full[..16]);
    InputDigest(out)
}

impl Ask {
    /// Identifies what is asked: kind and request.
    #[must_use]
    pub fn digest(&self) -> InputDigest {
        let kind: &[u8] = match self.kind {
            InputKind::Client => b"client",
            InputKind::Approval => b"approval",
        };
        first16(digest("counterfoil/ask/1", &[kind, &self.request]))
    }
    /// Whether it is within its bounds.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        is_key(&self.key) && !self.request.is_empty() && self.request.len() <= MAX_REQUEST
    }
}

/// Whether this may name a question.
#[must_use]
pub fn is_key(key: &str) -> bool {
    (1..=MAX_INPUT_KEY).contains(&key.len())
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// Identifies an answer.
#[must_use]
pub fn answer_digest(answer: &[u8]) -> InputDigest {
    first16(digest("counterfoil/answer/1", &[answer]))
}

/// A question in an operation's record. What is asked is kept beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Its name inside the operation.
    pub key: String,
    /// What it is for.
    pub kind: InputKind,
    /// In which round it was asked first, from 1 on.
    pub round: u32,
    /// Identifies what is asked.
    pub digest: InputDigest,
    /// When it was asked first.
    pub asked_at: Time,
    /// The answer that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answered>,
}

/// The answer that counts: what was said is kept beside the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answered {
    /// Identifies it.
    pub digest: InputDigest,
    /// When it came.
    pub at: Time,
    /// Who gave it.
    pub by: String,
}

/// How answers lie to what is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// Another answer is recorded for one of them.
    Conflict,
    /// At least one is the first to its question.
    New,
    /// Each is the recorded one, or answers no question of this operation.
    Known,
}

/// Compares answers with what is recorded. Keys that name no question count for nothing.
#[must_use]
pub fn compare(op: &Operation, answers: &[(String, Vec<u8>)]) -> Given {
    let mut given = Given::Known;
    for (key, answer) in answers {
        let Some(input) = op.input(key) else { continue };
        match &op.inputs[input].answer {
            Some(a) if a.digest != answer_digest(answer) => return Given::Conflict,
            Some(_) => {}
            None => given = Given::New,
        }
    }
    given
}
