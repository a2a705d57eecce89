//! The words of the contract as types: ids, keys, scopes, times.
//!
//! Each type can hold only values that make sense; what arrives from outside goes through a constructor that
//! says what is wrong.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A moment in the ledger's time: milliseconds since the Unix epoch, monotone per ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub i64);

/// A length of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub i64);

impl Time {
    /// The time `d` later; saturates.
    #[must_use]
    pub fn plus(self, d: Millis) -> Time {
        Time(self.0.saturating_add(d.0))
    }
    /// How long ago `earlier` was (negative if it lies ahead).
    #[must_use]
    pub fn since(self, earlier: Time) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Millis {
    /// From whole seconds.
    #[must_use]
    pub const fn secs(s: i64) -> Millis {
        Millis(s * 1000)
    }
    /// As a standard duration; negative lengths are zero.
    #[must_use]
    pub fn duration(self) -> std::time::Duration {
        std::time::Duration::from_millis(u64::try_from(self.0).unwrap_or(0))
    }
}

impl From<std::time::Duration> for Millis {
    fn from(d: std::time::Duration) -> Self {
        Millis(i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
    }
}

/// One boot of one replica. Later boots have larger numbers; 0 means nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// An operation's name: `op_` and a 26-character ULID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u128);

impl OperationId {
    /// The prefix that is reserved for operation ids among keys.
    pub const PREFIX: &'static str = "op_";

    /// A new id from a time and 80 random bits.
    #[must_use]
    pub fn new(now: Time, random: u128) -> Self {
        OperationId(ulid::Ulid::from_parts(u64::try_from(now.0).unwrap_or(0), random).0)
    }

    /// The time that it was made from. (Whoever invents an id invents this, too.)
    #[must_use]
    pub fn made_at(self) -> Time {
        Time(i64::try_from(ulid::Ulid(self.0).timestamp_ms()).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op_{}", ulid::Ulid(self.0))
    }
}
impl fmt::Debug for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not an operation id.
#[derive(Debug, thiserror::Error)]
#[error("not an operation id: it is `op_` followed by 26 characters")]
pub struct NotAnOperationId;

impl FromStr for OperationId {
    type Err = NotAnOperationId;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let rest = s.strip_prefix(Self::PREFIX).ok_or(NotAnOperationId)?;
        let id = ulid::Ulid::from_string(rest).map_err(|_| NotAnOperationId)?;
        // One spelling per id, or two keys could name one operation.
        if id.to_string() == rest { Ok(OperationId(id.0)) } else { Err(NotAnOperationId) }
    }
}

impl Serialize for OperationId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for OperationId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let s = std::borrow::Cow::<'de, str>::deserialize(d)?;
        s.parse().map_err(serde::de::Error::custom)
    }
}

/// (principal, canonical tool id, mode): the room in which keys, fingerprints and handles live.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// Who is calling, from the verified credential.
    pub principal: Arc<str>,
    /// The tool's canonical id, which survives renames.
    pub tool: Arc<str>,
    /// `sandbox` or `production`.
    pub mode: Arc<str>,
}

/// Identifies (scope, key): the first 128 bits of a SHA-256 over both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub [u8; 16]);

/// Identifies (scope, fingerprint): the first 128 bits of a SHA-256 over both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotHash(pub [u8; 16]);

/// Feeds parts to SHA-256 with their lengths, so that no two part lists collide by concatenation.
pub(crate) fn digest(domain: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut h = Sha256::new();
    h.update(domain.as_bytes());
    for p in parts {
        h.update((p.len() as u64).to_be_bytes());
        h.update(p);
    }
    h.finalize().into()
}

fn first16(d: [u8; 32]) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(&d[..16]);
    out
}

impl Scope {
    /// The hash under which `key` is found in this scope.
    #[must_use]
    pub fn key_hash(&self, key: &Key) -> KeyHash {
        KeyHash(first16(digest(
            "counterfoil/key/1",
            &[self.principal.as_bytes(), self.tool.as_bytes(), self.mode.as_bytes(), key.0.as_bytes()],
        )))
    }
    /// The slot of `fingerprint` in this scope.
    #[must_use]
    pub fn slot_hash(&self, fingerprint: &crate::Fingerprint) -> SlotHash {
        SlotHash(first16(digest(
            "counterfoil/slot/1",
            &[
                self.principal.as_bytes(),
                self.tool.as_bytes(),
                self.mode.as_bytes(),
                &[fingerprint.version],
                &fingerprint.digest,
            ],
        )))
    }
}

/// A caller's name for an operation inside its scope: 1 to 255 visible ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Key(pub(crate) Arc<str>);

/// Why some text can't be an idempotency key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadKey {
    /// Empty.
    #[error("the idempotency key is empty; leave it out or give 1 to 255 characters")]
    Empty,
    /// Too long.
    #[error("the idempotency key has {0} characters; at most 255 are allowed")]
    Long(usize),
    /// A blank, a control or a character outside ASCII.
    #[error("the idempotency key has a character outside visible ASCII (0x21 to 0x7E)")]
    Character,
    /// It claims to be an operation id and is none.
    #[error(
        "keys that begin with `op_` are operation ids, and this is not one; use the `retryKey` exactly as it was given"
    )]
    Reserved,
}

impl Key {
    /// Checks length and alphabet, and that the reserved prefix is only used by real operation ids.
    ///
    /// # Errors
    /// [`BadKey`] says which rule is broken.
    pub fn new(text: &str) -> Result<Key, BadKey> {
        if text.is_empty() {
            return Err(BadKey::Empty);
        }
        if !text.bytes().all(|b| (0x21..=0x7e).contains(&b)) {
            return Err(BadKey::Character);
        }
        if text.len() > 255 {
            return Err(BadKey::Long(text.len()));
        }
        if text.starts_with(OperationId::PREFIX) && text.parse::<OperationId>().is_err() {
            return Err(BadKey::Reserved);
        }
        Ok(Key(text.into()))
    }
    /// The key's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// The operation this key names, if it is an operation id.
    #[must_use]
    pub fn operation_id(&self) -> Option<OperationId> {
        self.0.parse().ok()
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let s = String::deserialize(d)?;
        Key::new(&s).map_err(serde::de::Error::custom)
    }
}

/// The name an effect goes by at the provider: 36 characters, UUID-shaped (RFC 9562 version 8).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EffectKey(Arc<str>);

impl EffectKey {
    /// Derives the key. It depends on (ledger name, scope, key, fingerprint, effect) where the caller gave a
    /// key, else on (ledger name, operation id, effect); never on attempts or the order of calls.
    #[must_use]
    pub fn derive(
        ledger_name: &str,
        scope: &Scope,
        id: OperationId,
        key: Option<&Key>,
        fingerprint: &crate::Fingerprint,
        name: &str,
        discriminator: &str,
    ) -> EffectKey {
        let d = match key {
            Some(k) => digest(
                "counterfoil/effect/keyed/1",
                &[
                    ledger_name.as_bytes(),
                    scope.principal.as_bytes(),
                    scope.tool.as_bytes(),
                    scope.mode.as_bytes(),
                    k.0.as_bytes(),
                    &[fingerprint.version],
                    &fingerprint.digest,
                    name.as_bytes(),
                    discriminator.as_bytes(),
                ],
            ),
            None => digest(
                "counterfoil/effect/operation/1",
                &[ledger_name.as_bytes(), &id.0.to_be_bytes(), name.as_bytes(), discriminator.as_bytes()],
            ),
        };
        let mut b = first16(d);
        b[6] = (b[6] & 0x0f) | 0x80;
        b[8] = (b[8] & 0x3f) | 0x80;
        let hex = crate::effect::hex(&b);
        EffectKey(
            format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]).into(),
        )
    }
    /// The key's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
