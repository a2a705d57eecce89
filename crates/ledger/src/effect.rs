//! Effects: changes outside the ledger's own database, their intents and how they recover.

use crate::words::{EffectKey, Millis, Time};
use serde::{Deserialize, Serialize};

/// What makes it safe (or not) to go on after an ambiguous outcome. Chosen per tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// The provider honours an idempotency key: replay the recorded bytes with the same key.
    Key,
    /// The provider refuses a second by a field that we fill; the refusal leads to the object.
    Unique,
    /// The effect commits in the ledger's own database.
    Local,
    /// Repeating changes nothing.
    Natural,
    /// The provider can be asked.
    Lookup,
    /// Only a person can tell.
    Confirm,
    /// Nothing is known: never replay.
    None,
}

impl Strategy {
    /// The word in configuration and records.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Strategy::Key => "key",
            Strategy::Unique => "unique",
            Strategy::Local => "local",
            Strategy::Natural => "natural",
            Strategy::Lookup => "lookup",
            Strategy::Confirm => "confirm",
            Strategy::None => "none",
        }
    }
    /// What is promised to callers, in one sentence.
    #[must_use]
    pub fn promise(self) -> &'static str {
        match self {
            Strategy::Key | Strategy::Unique | Strategy::Local => "exactly one effect",
            Strategy::Natural => "the same end state, unless another writer intervened",
            Strategy::Lookup => {
                "exactly one effect, unless a process or packet stalls longer than the provider's processing bound"
            }
            Strategy::Confirm => "a person's word, recorded",
            Strategy::None => "at most one effect, and never hidden",
        }
    }
    /// Whether a second send of the same bytes is harmless.
    #[must_use]
    pub fn replays(self) -> bool {
        matches!(self, Strategy::Key | Strategy::Unique | Strategy::Local | Strategy::Natural)
    }
}

/// How an effect recovers: pinned in its intent, so that a later reload changes nothing about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recovery {
    /// Which way.
    pub strategy: Strategy,
    /// How long after the intent a replay under the same key (or, for `natural`, at all) is safe, margin
    /// already taken off. `None`: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_for: Option<Millis>,
    /// `lookup`: the longest a provider works on a request after it has arrived.
    pub processing_bound: Millis,
    /// `lookup`: how long an applied effect may stay invisible to a look-up.
    pub visibility_lag: Millis,
    /// The provider can be asked for the effect by key or marker.
    pub can_look_up: bool,
    /// Ask once before the first send.
    pub precheck: bool,
    /// A replay is answered with the provider's first answer, so a refusal of a replay settles the effect.
    pub replays_first_answer: bool,
    /// The longest one send may take.
    pub send_timeout: Millis,
    /// How many sends one attempt may make.
    pub max_sends: u32,
    /// The first pause between sends; doubles, with full jitter.
    pub initial_backoff: Millis,
    /// The longest pause between sends.
    pub max_backoff: Millis,
}

impl Recovery {
    /// Sensible limits around a strategy: 10 s a send, 5 sends, 250 ms to 20 s between them.
    #[must_use]
    pub fn new(strategy: Strategy) -> Recovery {
        Recovery {
            strategy,
            replay_for: None,
            processing_bound: Millis::secs(30),
            visibility_lag: Millis::secs(5),
            can_look_up: strategy == Strategy::Lookup,
            precheck: false,
            replays_first_answer: false,
            send_timeout: Millis::secs(10),
            max_sends: 5,
            initial_backoff: Millis(250),
            max_backoff: Millis::secs(20),
        }
    }
}

/// Everything needed to send an effect again, byte for byte, under the same account and policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The effect's name inside its operation.
    pub name: String,
    /// Tells several effects of one name apart; empty where there is one.
    pub discriminator: String,
    /// How it recovers.
    pub recovery: Recovery,
    /// A line for people: method, target. Never a secret.
    pub summary: String,
    /// The recorded request, opaque to the ledger; its executor understands it. Never a secret.
    pub body: Vec<u8>,
}

impl Intent {
    /// Identifies the intent's content, to tell whether a re-execution asks for the same.
    #[must_use]
    pub fn digest(&self) -> IntentDigest {
        IntentDigest(crate::words::digest(
            "counterfoil/intent/1",
            &[self.name.as_bytes(), self.discriminator.as_bytes(), &self.body],
        ))
    }
}

/// All of an intent but its body.
#[derive(Serialize, Deserialize)]
struct Head<'a> {
    name: std::borrow::Cow<'a, str>,
    discriminator: std::borrow::Cow<'a, str>,
    recovery: std::borrow::Cow<'a, Recovery>,
    summary: std::borrow::Cow<'a, str>,
}

impl Intent {
    /// The whole intent in one piece, for an operation that waits for a yes: a line of JSON, then the body.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        let head = Head {
            name: self.name.as_str().into(),
            discriminator: self.discriminator.as_str().into(),
            recovery: std::borrow::Cow::Borrowed(&self.recovery),
            summary: self.summary.as_str().into(),
        };
        // Texts and numbers: this can't fail, and JSON has no line break of its own.
        let mut packed = serde_json::to_vec(&head).unwrap_or_default();
        packed.push(b'\n');
        packed.extend_from_slice(&self.body);
        packed
    }

    /// The other way round. `None`: it is none.
    #[must_use]
    pub fn unpack(packed: &[u8]) -> Option<Intent> {
        let line = packed.iter().position(|b| *b == b'\n')?;
        let head: Head<'_> = serde_json::from_slice(&packed[..line]).ok()?;
        Some(Intent {
            name: head.name.into_owned(),
            discriminator: head.discriminator.into_owned(),
            recovery: head.recovery.into_owned(),
            summary: head.summary.into_owned(),
            body: packed[line + 1..].to_vec(),
        })
    }
}

/// SHA-256 over an intent's name, discriminator and body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntentDigest(pub [u8; 32]);

impl Serialize for IntentDigest {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&hex(&self.0))
    }
}
impl<'de> Deserialize<'de> for IntentDigest {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let s = String::deserialize(d)?;
        unhex32(&s)
            .map(IntentDigest)
            .ok_or_else(|| serde::de::Error::custom("64 hexadecimal digits expected"))
    }
}

/// Bytes as lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for b in bytes {
        for digit in [b >> 4, b & 15] {
            text.push(char::from(DIGITS[usize::from(digit)]));
        }
    }
    text
}

pub(crate) fn unhex32(s: &str) -> Option<[u8; 32]> {
    if s.len() != 64 || !s.is_ascii() {
        return None;
    }
    let mut out = [0; 32];
    for (i, o) in out.iter_mut().enumerate() {
        *o = u8::from_str_radix(&s[i * 2..i * 2 + 2], 16).ok()?;
    }
    Some(out)
}

/// What is known of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectState {
    /// The intent is durable; a send may be under way.
    Intended,
    /// It happened; the receipt is kept.
    Applied,
    /// It did not happen and will not: refused, or never sent.
    Rejected,
    /// It may or may not have happened; its strategy decides.
    Unknown,
}

impl EffectState {
    /// The word in records.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            EffectState::Intended => "intended",
            EffectState::Applied => "applied",
            EffectState::Rejected => "rejected",
            EffectState::Unknown => "unknown",
        }
    }
}

/// A change outside the ledger's own database, as the operation's record keeps it. The intent's body and
/// the receipt are kept beside the record. What changes comes first, as in [`Operation`](crate::Operation).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    /// What is known.
    pub state: EffectState,
    /// Sends of which it is not known that nothing left or what came of them.
    pub unresolved: u32,
    /// The provider's answer is kept as its receipt.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_receipt: bool,
    /// Why it is unknown or rejected, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Sends begun so far, over all attempts.
    pub sends: u32,
    /// Sends begun by the current attempt.
    pub attempt_sends: u32,
    /// The latest absolute deadline of any send.
    pub send_deadline: Time,
    /// The number of the attempt that sent last.
    pub sent_by: u32,
    /// When the attempt that sent last was fenced off, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fenced_at: Option<Time>,
    /// Not to be sent or asked for again before this.
    pub not_before: Time,
    /// Look-ups made so far.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub looks: u32,
    /// A look-up after the quarantine found nothing, so one more send is permitted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub absent: bool,
    /// The provider answers every replay with a stored failure: replaying is of no use.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stored_failure: bool,
    /// An operator ordered one more send of the recorded bytes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub forced: bool,
    /// More than one matching object was found: somebody must look.
    #[serde(default, skip_serializing_if = "is_false")]
    pub several: bool,
    /// Its name inside the operation.
    pub name: String,
    /// Tells several effects of one name apart.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub discriminator: String,
    /// Its name at the provider; never changes.
    pub key: EffectKey,
    /// How it recovers.
    pub recovery: Recovery,
    /// A line for people.
    pub summary: String,
    /// Identifies the recorded intent.
    pub digest: IntentDigest,
    /// When the intent became durable.
    pub intended_at: Time,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(b: &bool) -> bool {
    !*b
}

impl Effect {
    /// Whether it is known to have happened, or known not to.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        matches!(self.state, EffectState::Applied | EffectState::Rejected)
    }
    /// From when on nothing of it can leave any more, so that its quarantine runs.
    #[must_use]
    pub fn quarantine_from(&self) -> Time {
        self.fenced_at.map_or(self.send_deadline, |f| f.max(self.send_deadline))
    }
    /// From when on a look-up's *not found* counts, if all time since was watched; see
    /// [`counts_from`](crate::step::counts_from).
    #[must_use]
    pub fn quarantine_until(&self) -> Time {
        self.quarantine_from().plus(self.recovery.processing_bound).plus(self.recovery.visibility_lag)
    }
    /// When replaying stops being safe.
    #[must_use]
    pub fn replay_until(&self) -> Option<Time> {
        self.recovery.replay_for.map(|d| self.intended_at.plus(d))
    }
}
