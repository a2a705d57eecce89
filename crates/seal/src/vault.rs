//! The vault: what the ledger keeps for long that is somebody's secret, encrypted under keys that lie beside the ring's.
//!
//! Promises: what was put away opens only under exactly what it was put away for, by who holds the ring; the newest key
//! closes, the older ones only open. A new one is made when a master key is forbidden and when all keys of the ring are let
//! go of at once: whoever had kept the older ones opens nothing that is put away from then on.

use crate::context::assertion;
use crate::error::{Reject, SealError};
use crate::key::Key;
use crate::token;
use ledger::Time;
use zeroize::Zeroizing;

/// The most keys of a vault; what the oldest beyond them closed can't be opened any more.
pub const MAX_VAULT_KEYS: usize = 16;
/// The largest secret that is put away, in bytes.
pub const MAX_SECRET: usize = 8 << 10;

const DOMAIN: &[u8] = b"counterfoil vault v1";
/// It is kept until it is replaced.
const END: Time = Time(i64::MAX);

/// See the module.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Vault {
    /// Oldest first.
    pub keys: Vec<Key>,
}

impl Vault {
    /// One with a new key.
    pub fn new() -> Result<Vault, getrandom::Error> {
        Ok(Vault { keys: vec![Key::new()?] })
    }

    /// Closes with a new key from now on.
    pub fn renew(&mut self) -> Result<(), getrandom::Error> {
        self.keys.push(Key::new()?);
        let more = self.keys.len().saturating_sub(MAX_VAULT_KEYS);
        self.keys.drain(..more);
        Ok(())
    }

    /// Closes a secret.
    pub fn close(&self, secret: &[u8], about: &[&[u8]]) -> Result<String, SealError> {
        if secret.len() > MAX_SECRET {
            return Err(SealError::TooLarge);
        }
        let key = self.keys.last().ok_or_else(|| SealError::Unavailable("the vault has no key".into()))?;
        token::seal(key, secret, &bound(about), END)
    }

    /// Opens what was closed for exactly this.
    pub fn open(&self, text: &str, about: &[&[u8]]) -> Result<Zeroizing<Vec<u8>>, Reject> {
        let unproved = token::parse(text)?;
        let key = self.keys.iter().find(|key| key.id() == unproved.kid).ok_or(Reject::UnknownKey)?;
        unproved.open(key, &bound(about), Time(0)).map(Zeroizing::new)
    }
}

fn bound(about: &[&[u8]]) -> Vec<u8> {
    let parts: Vec<&[u8]> = std::iter::once(DOMAIN).chain(about.iter().copied()).collect();
    assertion(&parts)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_only_for_what_it_was_put_away_for() {
        let mut vault = Vault::new().unwrap();
        let about: [&[u8]; 2] = [b"ledger", b"alice"];
        let closed = vault.close(b"CANARY", &about).unwrap();
        assert!(!closed.contains("CANARY"));
        assert_eq!(*vault.open(&closed, &about).unwrap(), b"CANARY");
        for other in [vec![b"ledger".as_slice(), b"bob"], vec![b"ledgera", b"lice"], vec![b"ledger"], vec![]]
        {
            assert_eq!(vault.open(&closed, &other).unwrap_err(), Reject::Forged);
        }
        assert_eq!(Vault::new().unwrap().open(&closed, &about).unwrap_err(), Reject::UnknownKey);
        let before = vault.clone();
        vault.renew().unwrap();
        assert_eq!(*vault.open(&closed, &about).unwrap(), b"CANARY");
        let later = vault.close(b"CANARY", &about).unwrap();
        assert_eq!(before.open(&later, &about).unwrap_err(), Reject::UnknownKey);
        assert!(vault.close(&[0; MAX_SECRET + 1], &about).is_err());
        for _ in 0..MAX_VAULT_KEYS {
            vault.renew().unwrap();
        }
        assert_eq!(vault.keys.len(), MAX_VAULT_KEYS);
        assert_eq!(vault.open(&later, &about).unwrap_err(), Reject::UnknownKey);
    }
}
