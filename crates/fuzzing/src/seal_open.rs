//! Sealed tokens.

use crate::input::parts;
use ledger::{Millis, Time};
use seal::{Context, Key, MAX_TOKEN, Reject, Ring, SealError};
use std::sync::OnceLock;

const NOW: Time = Time(1_800_000_000_000);
const TTL: Millis = Millis::secs(600);

fn ring() -> &'static Ring {
    static RING: OnceLock<Ring> = OnceLock::new();
    RING.get_or_init(|| Ring::new(Key::new().expect("random bytes"), NOW, TTL).expect("random bytes"))
}

/// The value of a digit of base64url (RFC 4648, section 5).
fn digit(c: u8) -> Option<u32> {
    let at =
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".iter().position(|d| *d == c)?;
    u32::try_from(at).ok()
}

/// What base64url without padding stands for, in its one spelling.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut bits = Vec::new();
    for c in text {
        let value = digit(*c)?;
        bits.extend((0..6).rev().map(|i| value >> i & 1 == 1));
    }
    let whole = bits.len() / 8 * 8;
    // Left over is less than a digit, and nothing but zeros.
    if bits.len() - whole >= 6 || bits[whole..].contains(&true) {
        return None;
    }
    let byte = |eight: &[bool]| eight.iter().fold(0u8, |byte, bit| byte << 1 | u8::from(*bit));
    Some(bits[..whole].chunks(8).map(byte).collect())
}

/// Whether a text is spelt as a token is: four parts, the footer a key's name and nothing else.
fn is_spelt(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    let [version, purpose, body, footer] = parts[..] else { return false };
    let Some(footer) = decoded(footer.as_bytes()) else { return false };
    let name = |c: &u8| matches!(c, b'a'..=b'z' | b'2'..=b'7');
    let named = footer.len() == 26
        && footer.starts_with(b"{\"kid\":\"")
        && footer.ends_with(b"\"}")
        && footer[8..24].iter().all(name);
    // A nonce, a tag, and at least a byte between them.
    version == "v4" && purpose == "local" && named && decoded(body.as_bytes()).is_some_and(|b| b.len() > 64)
}

/// What was not sealed here is refused, for the reason that a slower reading of it gives; what was sealed is opened to
/// the same bytes for the same context, and to nothing after a change of the token or of a part of the context. Parts:
/// a text that is also a list of changes (place, place, bits), a payload, and the six parts of a context.
///
/// # Panics
/// A promise is broken.
pub fn seal_open(data: &[u8]) {
    let [text, payload, purpose, audience, principal, method, name, fingerprint] = parts(data);
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let [purpose, audience, principal, method, name] =
        [purpose, audience, principal, method, name].map(lossy);
    let context = Context {
        purpose: &purpose,
        audience: &audience,
        principal: &principal,
        method: &method,
        name: &name,
        fingerprint,
    };
    let ring = ring();

    // Nobody but the ring makes a token.
    if let Ok(text) = std::str::from_utf8(text) {
        let refused = ring.open(text, &context, NOW).expect_err("nobody sealed it");
        let wanted = if text.len() > MAX_TOKEN {
            Reject::TooLong
        } else if is_spelt(text) {
            Reject::UnknownKey
        } else {
            Reject::Malformed
        };
        assert_eq!(refused, wanted, "{text:?}");
    }

    let token = match ring.seal(payload, &context, NOW, TTL) {
        Ok(token) => token,
        Err(SealError::TooLarge) => {
            assert!(payload.len() > seal::MAX_PAYLOAD, "{} bytes don't fit", payload.len());
            return;
        }
        Err(e) => panic!("{e}"),
    };
    assert!(token.len() <= MAX_TOKEN && is_spelt(&token), "{token}");
    assert_eq!(ring.open(&token, &context, NOW).as_deref(), Ok(payload));
    assert_eq!(ring.open(&token, &context, NOW.plus(TTL)), Err(Reject::Expired));

    let mut changed = token.clone().into_bytes();
    for change in text.chunks_exact(3) {
        let at = usize::from(u16::from_be_bytes([change[0], change[1]])) % changed.len();
        changed[at] ^= change[2];
    }
    if let Ok(changed) = String::from_utf8(changed) {
        let opened = ring.open(&changed, &context, NOW);
        assert_eq!(opened.is_ok(), changed == token, "{changed}");
    }

    // The same bytes over other borders, and each part changed.
    let joined = format!("{purpose}{audience}");
    let others = [
        Context { purpose: &joined, audience: "", ..context },
        Context { purpose: "", audience: &joined, ..context },
        Context { audience: &principal, principal: &audience, ..context },
        Context { method: &name, name: &method, ..context },
        Context { name: "", ..context },
        Context { fingerprint: &[], ..context },
        Context { fingerprint: text, ..context },
    ];
    for other in others {
        let opened = ring.open(&token, &other, NOW);
        assert_eq!(opened.is_ok(), other == context, "{other:?} for {context:?}");
    }
}
