//! Keys of callers and of the ledger: carriers, minted keys, delivery nonces.

use crate::canonical::Fingerprint;
use crate::words::{Key, OperationId, Scope};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

/// The ledger's secret: 256 random bits, made with the ledger and kept in it.
#[derive(Clone)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How a key came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// From a program: a header, `_meta`, `params`, or derived by `key_from`.
    Program,
    /// From the tool argument: a model may have invented it.
    Argument,
}

/// A key and how it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerKey {
    /// The key.
    pub key: Key,
    /// How it came.
    pub carrier: Carrier,
}

const MINTED: &str = "nk_";
const ACK: &str = "ak_";
const TASK: &str = "task_";
const HANDLE: &str = "hd_";

/// What a key says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// It names an operation.
    Operation(OperationId),
    /// The ledger minted it for this scope and fingerprint.
    Minted,
    /// It looks minted, but not for this scope and fingerprint.
    MintedForAnother,
    /// The caller's own.
    Own,
}

fn tag(secret: &Secret, domain: &str, parts: &[&[u8]]) -> [u8; 16] {
    // A key of any length is accepted by HMAC (RFC 2104), so this can't fail.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&secret.0) else { return [0; 16] };
    mac.update(domain.as_bytes());
    for p in parts {
        mac.update(&(p.len() as u64).to_be_bytes());
        mac.update(p);
    }
    let full = mac.finalize().into_bytes();
    let mut out = [0; 16];
    out.copy_from_slice(&full[..16]);
    out
}

fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |d, (x, y)| d | (x ^ y)) == 0
}

fn text(bytes: [u8; 16]) -> String {
    ulid::Ulid(u128::from_be_bytes(bytes)).to_string()
}

fn bytes(text: &str) -> Option<[u8; 16]> {
    let u = ulid::Ulid::from_string(text).ok()?;
    (u.to_string() == text).then(|| u.0.to_be_bytes())
}

fn scope_parts<'a>(scope: &'a Scope, fingerprint: &'a Fingerprint) -> [&'a [u8]; 5] {
    [
        scope.principal.as_bytes(),
        scope.tool.as_bytes(),
        scope.mode.as_bytes(),
        std::slice::from_ref(&fingerprint.version),
        &fingerprint.digest,
    ]
}

/// Mints a key for one more operation with these arguments in this scope (`newKey`).
#[must_use]
pub fn mint(secret: &Secret, scope: &Scope, fingerprint: &Fingerprint, random: u128) -> String {
    let r = random.to_be_bytes();
    let p = scope_parts(scope, fingerprint);
    let t = tag(secret, "counterfoil/minted/1", &[p[0], p[1], p[2], p[3], p[4], &r]);
    format!("{MINTED}{}{}", text(r), text(t))
}

/// What `key` is in this scope, for this fingerprint.
#[must_use]
pub fn kind(secret: &Secret, scope: &Scope, fingerprint: &Fingerprint, key: &Key) -> KeyKind {
    if let Some(id) = key.operation_id() {
        return KeyKind::Operation(id);
    }
    let Some(rest) = key.as_str().strip_prefix(MINTED) else { return KeyKind::Own };
    let (Some(r), Some(t)) = (rest.get(..26).and_then(bytes), rest.get(26..).and_then(bytes)) else {
        return KeyKind::Own;
    };
    let p = scope_parts(scope, fingerprint);
    if same(&tag(secret, "counterfoil/minted/1", &[p[0], p[1], p[2], p[3], p[4], &r]), &t) {
        KeyKind::Minted
    } else {
        KeyKind::MintedForAnother
    }
}

/// The id under which a client holds an operation as a task: always the same, and not to be guessed.
#[must_use]
pub fn task(secret: &Secret, id: OperationId) -> String {
    let raw = id.0.to_be_bytes();
    format!("{TASK}{}_{}", text(raw), text(tag(secret, "counterfoil/task/1", &[&raw])))
}

/// The operation that a task id names; nothing is read for it.
#[must_use]
pub fn task_of(secret: &Secret, id: &str) -> Option<OperationId> {
    let (raw, t) = id.strip_prefix(TASK)?.split_once('_')?;
    let (raw, t) = (bytes(raw)?, bytes(t)?);
    let op = OperationId(u128::from_be_bytes(raw));
    same(&tag(secret, "counterfoil/task/1", &[&raw]), &t).then_some(op)
}

/// The text of a handle that this step of an operation makes: the same whenever it is run again, and not to be guessed.
#[must_use]
pub fn handle(secret: &Secret, id: OperationId, name: &str, discriminator: &str) -> String {
    let raw = id.0.to_be_bytes();
    let parts: [&[u8]; 3] = [&raw, name.as_bytes(), discriminator.as_bytes()];
    format!("{HANDLE}{}", text(tag(secret, "counterfoil/handle/1", &parts)))
}

/// The nonce that goes out with a delivery; sent back, it proves that the consumer has the result.
#[must_use]
pub fn ack(secret: &Secret, principal: &str, id: OperationId) -> String {
    let raw = id.0.to_be_bytes();
    let t = tag(secret, "counterfoil/ack/1", &[principal.as_bytes(), &raw]);
    format!("{ACK}{}{}", text(raw), text(t))
}

/// The operation that a nonce acknowledges, if this principal may.
#[must_use]
pub fn acknowledged(secret: &Secret, principal: &str, nonce: &str) -> Option<OperationId> {
    let rest = nonce.strip_prefix(ACK)?;
    let raw = rest.get(..26).and_then(bytes)?;
    let t = rest.get(26..).and_then(bytes)?;
    same(&tag(secret, "counterfoil/ack/1", &[principal.as_bytes(), &raw]), &t)
        .then(|| OperationId(u128::from_be_bytes(raw)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::canonical::canonicalise_arguments;

    fn scope(p: &str) -> Scope {
        Scope { principal: p.into(), tool: "t".into(), mode: "sandbox".into() }
    }

    #[test]
    fn minted_keys_are_bound_to_scope_and_fingerprint() {
        let s = Secret([7; 32]);
        let f = Fingerprint::of("t", &canonicalise_arguments(Some("{\"a\":1}"), None).unwrap());
        let g = Fingerprint::of("t", &canonicalise_arguments(Some("{\"a\":2}"), None).unwrap());
        let k = Key::new(&mint(&s, &scope("p"), &f, 42)).unwrap();
        assert_eq!(kind(&s, &scope("p"), &f, &k), KeyKind::Minted);
        assert_eq!(kind(&s, &scope("p"), &g, &k), KeyKind::MintedForAnother);
        assert_eq!(kind(&s, &scope("q"), &f, &k), KeyKind::MintedForAnother);
        assert_eq!(kind(&Secret([8; 32]), &scope("p"), &f, &k), KeyKind::MintedForAnother);
        assert_eq!(kind(&s, &scope("p"), &f, &Key::new("nk_mine").unwrap()), KeyKind::Own);
    }

    #[test]
    fn nonces_are_bound_to_the_principal() {
        let s = Secret([7; 32]);
        let id = OperationId(123_456);
        let n = ack(&s, "p", id);
        assert_eq!(acknowledged(&s, "p", &n), Some(id));
        assert_eq!(acknowledged(&s, "q", &n), None);
        assert_eq!(acknowledged(&s, "p", &n[..n.len() - 1]), None);
        assert_eq!(acknowledged(&s, "p", "ak_"), None);
        assert_eq!(acknowledged(&s, "p", "ak_é"), None);
    }

    #[test]
    fn keys_follow_their_rules() {
        assert!(Key::new("").is_err());
        assert!(Key::new(&"x".repeat(256)).is_err());
        assert!(Key::new("a b").is_err());
        assert!(Key::new("é").is_err());
        assert!(Key::new("op_nonsense").is_err());
        let id = OperationId(5);
        assert_eq!(Key::new(&id.to_string()).unwrap().operation_id(), Some(id));
    }
}
