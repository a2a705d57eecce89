//! Keys, their names, and what is derived from them.

use hmac::{Hmac, KeyInit as _, Mac as _};
use pasetors::keys::SymmetricKey;
use pasetors::version4::V4;
use sha2::Sha256;
use std::fmt;
use zeroize::Zeroizing;

/// 256 bits that nobody else knows; wiped when they are let go, and never printed.
#[derive(Clone)]
pub struct Key {
    secret: Zeroizing<[u8; 32]>,
    paseto: SymmetricKey<V4>,
    id: KeyId,
}

/// A key's name: derived from it, so that it names no other, and tells nothing of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId([u8; KeyId::LENGTH]);

impl KeyId {
    /// Its length in characters: 80 bits in base 32.
    pub const LENGTH: usize = 16;

    /// Reads one; `None` if it is not spelt as names are.
    pub(crate) fn read(text: &[u8]) -> Option<KeyId> {
        let id: [u8; KeyId::LENGTH] = text.try_into().ok()?;
        id.iter().all(|b| DIGITS.contains(b)).then_some(KeyId(id))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// RFC 4648 base 32, lower case.
const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// 80 bits as 16 characters.
pub(crate) fn name(bytes: &[u8; 32]) -> [u8; KeyId::LENGTH] {
    let mut out = [0; KeyId::LENGTH];
    for (five, eight) in bytes[..10].chunks_exact(5).zip(out.chunks_exact_mut(8)) {
        let bits = five.iter().fold(0u64, |bits, b| bits << 8 | u64::from(*b));
        for (i, c) in eight.iter_mut().enumerate() {
            *c = DIGITS[(bits >> (35 - 5 * i) & 31) as usize];
        }
    }
    out
}

/// HKDF-Expand of one block (RFC 5869, section 2.3): `secret` is uniform already, so there is nothing to extract.
pub(crate) fn derive(secret: &[u8; 32], label: &str) -> Zeroizing<[u8; 32]> {
    let mut out = Zeroizing::new([0; 32]);
    // A key of any length is accepted by HMAC (RFC 2104), so this can't fail.
    if let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) {
        mac.update(label.as_bytes());
        mac.update(&[1]);
        out.copy_from_slice(&mac.finalize().into_bytes());
    }
    out
}

/// Random bytes from the operating system.
pub(crate) fn random() -> Result<Zeroizing<[u8; 32]>, getrandom::Error> {
    let mut out = Zeroizing::new([0; 32]);
    getrandom::fill(out.as_mut_slice())?;
    Ok(out)
}

impl Key {
    /// A new one, from the operating system.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn new() -> Result<Key, getrandom::Error> {
        Ok(Key::from_bytes(random()?))
    }

    /// The one with these bytes, which must be random.
    #[must_use]
    pub fn from_bytes(secret: Zeroizing<[u8; 32]>) -> Key {
        let id = KeyId(name(&derive(&secret, "counterfoil seal key id v1")));
        // 32 bytes are what it asks for.
        #[allow(clippy::expect_used)]
        let paseto = SymmetricKey::from(secret.as_slice()).expect("a key of 32 bytes");
        Key { secret, paseto, id }
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    pub(crate) fn paseto(&self) -> &SymmetricKey<V4> {
        &self.paseto
    }
}

impl PartialEq for Key {
    /// In constant time.
    fn eq(&self, other: &Key) -> bool {
        self.paseto == other.paseto
    }
}
impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.id)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// RFC 5869, appendix A.1: its pseudorandom key, a label of ours in place of its info; the value was computed with
    /// another implementation (Python's `hmac`).
    #[test]
    fn derivation_is_hkdf_expand() {
        let prk: [u8; 32] = [
            0x07, 0x77, 0x09, 0x36, 0x2c, 0x2e, 0x32, 0xdf, 0x0d, 0xdc, 0x3f, 0x0d, 0xc4, 0x7b, 0xba, 0x63,
            0x90, 0xb6, 0xc7, 0x3b, 0xb5, 0x0f, 0x9c, 0x31, 0x22, 0xec, 0x84, 0x4a, 0xd7, 0xc2, 0xb3, 0xe5,
        ];
        let hex: String = derive(&prk, "counterfoil").iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "f0593cbc9d81411093d2c9adbe831aeac494625eff858c7abbdda1224695a070");
    }

    #[test]
    fn names_are_base_32_of_what_only_the_key_gives() {
        let mut bytes = [0xff; 32];
        bytes[..5].copy_from_slice(b"fooba");
        // RFC 4648, section 10: "fooba" is MZXW6YTB.
        assert_eq!(&name(&bytes)[..8], b"mzxw6ytb");
        let key = Key::from_bytes(Zeroizing::new([7; 32]));
        assert_eq!(key.id(), Key::from_bytes(Zeroizing::new([7; 32])).id());
        assert_ne!(key.id(), Key::from_bytes(Zeroizing::new([8; 32])).id());
        assert_eq!(KeyId::read(key.id().as_str().as_bytes()), Some(key.id()));
        assert_eq!(KeyId::read(b"ABCDEFGHIJKLMNOP"), None);
        assert_eq!(KeyId::read(b"abc"), None);
        assert_eq!(format!("{key:?}"), format!("Key({})", key.id()));
    }
}
