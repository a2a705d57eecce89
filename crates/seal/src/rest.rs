//! Secrets at rest outside a ledger: closed under a master key, each for exactly what it is about.

use crate::context::assertion;
use crate::error::{Reject, SealError};
use crate::key::Key;
use crate::master::MasterKey;
use crate::token;
use ledger::Time;
use zeroize::Zeroizing;

const DOMAIN: &[u8] = b"counterfoil seal rest v1";
/// It is kept until it is replaced.
const END: Time = Time(i64::MAX);

fn bound(about: &[&[u8]]) -> Vec<u8> {
    let parts: Vec<&[u8]> = std::iter::once(DOMAIN).chain(about.iter().copied()).collect();
    assertion(&parts)
}

fn key(master: &MasterKey) -> Key {
    master.derived("counterfoil seal rest v1")
}

/// Closes a secret.
///
/// # Errors
/// It is too large, or the system gives no random numbers.
pub fn close(master: &MasterKey, secret: &[u8], about: &[&[u8]]) -> Result<String, SealError> {
    token::seal(&key(master), secret, &bound(about), END)
}

/// Opens what was closed under this key, for exactly this.
///
/// # Errors
/// [`Reject`]: it was not.
pub fn open(master: &MasterKey, text: &str, about: &[&[u8]]) -> Result<Zeroizing<Vec<u8>>, Reject> {
    let (unproved, key) = (token::parse(text)?, key(master));
    if unproved.kid != key.id() {
        return Err(Reject::UnknownKey);
    }
    unproved.open(&key, &bound(about), Time(0)).map(Zeroizing::new)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_under_its_key_for_what_it_is_about_only() {
        let (mine, other) = (MasterKey::new().unwrap(), MasterKey::new().unwrap());
        let about: [&[u8]; 2] = [b"account", b"sandbox"];
        let closed = close(&mine, b"CANARY", &about).unwrap();
        assert!(!closed.contains("CANARY"));
        assert_eq!(*open(&mine, &closed, &about).unwrap(), b"CANARY");
        assert_eq!(open(&other, &closed, &about).unwrap_err(), Reject::UnknownKey);
        for another in [vec![b"account".as_slice(), b"production"], vec![b"accounts", b"andbox"], vec![]] {
            assert_eq!(open(&mine, &closed, &another).unwrap_err(), Reject::Forged);
        }
        assert_eq!(open(&mine, "v4.local.AAAA", &about).unwrap_err(), Reject::Malformed);
    }
}
