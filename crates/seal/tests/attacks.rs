//! What a stranger, another user or another server can do with a token: nothing, and all of it looks the same.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ledger::{Millis, Time};
use proptest::prelude::*;
use seal::{Change, Context, Key, MAX_PAYLOAD, MAX_TOKEN, Reject, Ring, SPREAD, SealError};

const NOW: Time = Time(1_800_000_000_000);
const TTL: Millis = Millis::secs(600);
const PAYLOAD: &[u8] = br#"{"o":"op_01","r":2}"#;
const CONTEXT: Context<'_> = Context {
    purpose: "state",
    audience: "billing",
    principal: "ann",
    method: "tools/call",
    name: "payments.refunds.create",
    fingerprint: b"\x01\x02\x03",
};

fn ring() -> Ring {
    Ring::new(Key::new().unwrap(), NOW, TTL).unwrap()
}

fn token(ring: &Ring) -> String {
    ring.seal(PAYLOAD, &CONTEXT, NOW, TTL).unwrap()
}

#[test]
fn what_was_sealed_is_opened_for_the_same_and_before_its_end() {
    let ring = ring();
    let token = token(&ring);
    assert!(token.starts_with("v4.local.") && !token.contains("op_01"), "{token}");
    assert_eq!(ring.open(&token, &CONTEXT, NOW).unwrap(), PAYLOAD);
    let last = NOW.plus(Millis(TTL.0 - 1));
    assert_eq!(ring.open(&token, &CONTEXT, last).unwrap(), PAYLOAD);
    assert_eq!(ring.open(&token, &CONTEXT, NOW.plus(TTL)), Err(Reject::Expired));
    // It may be opened again: single use is the ledger's.
    assert_eq!(ring.open(&token, &CONTEXT, NOW).unwrap(), PAYLOAD);
    // The same is never sealed to the same.
    assert_ne!(token, self::token(&ring));
    // No lifetime is longer than the ring's.
    let long = ring.seal(PAYLOAD, &CONTEXT, NOW, Millis(TTL.0 * 2)).unwrap();
    assert_eq!(ring.open(&long, &CONTEXT, NOW.plus(TTL)), Err(Reject::Expired));
}

#[test]
fn payloads_keep_their_bytes() {
    let ring = ring();
    for payload in [
        &b""[..],
        b"null",
        b" {} ",
        b"{\"a\": 1.0e5, \"a\" : \"\\u00e9\"}",
        b"\xff\x00\xfe",
        b"{\"a\":1}{}",
        "\u{e9}".as_bytes(),
        b"true",
    ] {
        let token = ring.seal(payload, &CONTEXT, NOW, TTL).unwrap();
        assert_eq!(ring.open(&token, &CONTEXT, NOW).unwrap(), payload);
    }
}

#[test]
fn every_bit_counts() {
    let ring = ring();
    let token = token(&ring);
    for at in 0..token.len() {
        for bit in 0..8 {
            let mut bytes = token.clone().into_bytes();
            bytes[at] ^= 1 << bit;
            let Ok(text) = String::from_utf8(bytes) else { continue };
            assert!(ring.open(&text, &CONTEXT, NOW).is_err(), "byte {at}, bit {bit}");
        }
    }
    // Each bit of what the text stands for, too.
    let parts: Vec<&str> = token.split('.').collect();
    for part in [2, 3] {
        let raw = URL_SAFE_NO_PAD.decode(parts[part]).unwrap();
        for at in 0..raw.len() * 8 {
            let mut raw = raw.clone();
            raw[at / 8] ^= 1 << (at % 8);
            let mut parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
            parts[part] = URL_SAFE_NO_PAD.encode(&raw);
            let refused = ring.open(&parts.join("."), &CONTEXT, NOW).unwrap_err();
            let wanted: &[Reject] =
                if part == 2 { &[Reject::Forged] } else { &[Reject::UnknownKey, Reject::Malformed] };
            assert!(wanted.contains(&refused), "part {part}, bit {at}: {refused:?}");
        }
    }
}

#[test]
fn every_length_counts() {
    let ring = ring();
    let token = token(&ring);
    for at in 0..token.len() {
        assert!(ring.open(&token[..at], &CONTEXT, NOW).is_err(), "the first {at}");
        assert!(ring.open(&token[at + 1..], &CONTEXT, NOW).is_err(), "without the first {}", at + 1);
        let mut without = token.clone();
        without.remove(at);
        assert!(ring.open(&without, &CONTEXT, NOW).is_err(), "without {at}");
        for c in ['A', '.', '=', ' ', '\n', '\0', '\u{e9}'] {
            let mut with = token.clone();
            with.insert(at, c);
            assert!(ring.open(&with, &CONTEXT, NOW).is_err(), "{c:?} before {at}");
        }
    }
    for more in ["A", ".", "=", " ", "\n", ".e30"] {
        assert!(ring.open(&format!("{token}{more}"), &CONTEXT, NOW).is_err(), "{more:?} behind it");
        assert!(ring.open(&format!("{more}{token}"), &CONTEXT, NOW).is_err(), "{more:?} before it");
    }
    assert!(ring.open(&format!("{token}{token}"), &CONTEXT, NOW).is_err());
}

/// Every field for itself, and fields whose texts run into each other the same way.
#[test]
fn a_token_is_good_for_its_context_only() {
    let ring = ring();
    let token = token(&ring);
    let others = [
        Context { purpose: "connect", ..CONTEXT },
        Context { audience: "shop", ..CONTEXT },
        Context { principal: "bob", ..CONTEXT },
        Context { principal: "", ..CONTEXT },
        Context { principal: "Ann", ..CONTEXT },
        Context { method: "prompts/get", ..CONTEXT },
        Context { name: "payments.refunds.read", ..CONTEXT },
        Context { fingerprint: b"\x01\x02", ..CONTEXT },
        Context { fingerprint: b"", ..CONTEXT },
        Context { audience: "ann", principal: "billing", ..CONTEXT },
        Context { audience: "billinga", principal: "nn", ..CONTEXT },
        Context { audience: "billin", principal: "gann", ..CONTEXT },
        Context { audience: "billingann", principal: "", ..CONTEXT },
        Context { method: "", name: "tools/callpayments.refunds.create", ..CONTEXT },
        Context { name: "payments.refunds.create\u{1}", fingerprint: b"\x02\x03", ..CONTEXT },
        Context { purpose: "statebilling", audience: "", ..CONTEXT },
    ];
    for other in others {
        assert_eq!(ring.open(&token, &other, NOW), Err(Reject::Forged), "{other:?}");
        // And the other way round.
        let theirs = ring.seal(PAYLOAD, &other, NOW, TTL).unwrap();
        assert_eq!(ring.open(&theirs, &CONTEXT, NOW), Err(Reject::Forged), "{other:?}");
    }
    assert_eq!(ring.open(&token, &CONTEXT, NOW).unwrap(), PAYLOAD);
}

#[test]
fn another_ring_opens_nothing() {
    let (ours, theirs) = (ring(), ring());
    let foreign = token(&theirs);
    assert_eq!(ours.open(&foreign, &CONTEXT, NOW), Err(Reject::UnknownKey));
    // Under our key's name it is a forgery.
    let (body, _) = foreign.rsplit_once('.').unwrap();
    let own = token(&ours);
    let (own_body, footer) = own.rsplit_once('.').unwrap();
    assert_eq!(ours.open(&format!("{body}.{footer}"), &CONTEXT, NOW), Err(Reject::Forged));
    let (_, foreign_footer) = foreign.rsplit_once('.').unwrap();
    assert_eq!(ours.open(&format!("{own_body}.{foreign_footer}"), &CONTEXT, NOW), Err(Reject::UnknownKey));
}

/// A footer of this ring's other key, too: the name of the key is authenticated.
#[test]
fn footers_are_not_exchanged() {
    let old = ring();
    let token = token(&old);
    let new = old.decide(Change::Rotate(Key::new().unwrap()), NOW).unwrap().unwrap();
    let later = NOW.plus(SPREAD);
    let young = new.seal(PAYLOAD, &CONTEXT, later, TTL).unwrap();
    let (a, a_foot) = token.rsplit_once('.').unwrap();
    let (b, b_foot) = young.rsplit_once('.').unwrap();
    assert_ne!(a_foot, b_foot);
    for (text, good) in [
        (format!("{a}.{a_foot}"), true),
        (format!("{b}.{b_foot}"), true),
        (format!("{a}.{b_foot}"), false),
        (format!("{b}.{a_foot}"), false),
    ] {
        assert_eq!(new.open(&text, &CONTEXT, later).is_ok(), good, "{text}");
    }
    for foot in ["", "e30", &URL_SAFE_NO_PAD.encode(r#"{"kid":"../../etc/passwd"}"#)] {
        assert_eq!(new.open(&format!("{a}.{foot}"), &CONTEXT, NOW), Err(Reject::Malformed), "{foot}");
    }
    // The same name in another spelling is another footer.
    let kid = String::from_utf8(URL_SAFE_NO_PAD.decode(a_foot).unwrap()).unwrap();
    for spelt in [kid.replace(':', ": "), kid.to_uppercase(), kid.replace("kid", "k\\u0069d")] {
        let text = format!("{a}.{}", URL_SAFE_NO_PAD.encode(&spelt));
        assert_eq!(new.open(&text, &CONTEXT, NOW), Err(Reject::Malformed), "{spelt}");
    }
}

#[test]
fn other_versions_and_purposes_are_refused() {
    let ring = ring();
    let token = token(&ring);
    let rest = token.strip_prefix("v4.local.").unwrap();
    for header in [
        "v4.public.",
        "v3.local.",
        "v2.local.",
        "v1.local.",
        "v4.local",
        "V4.local.",
        "v4.Local.",
        "v4..",
        "",
        "v4.local..",
        ".v4.local.",
        "k4.local.",
        "v4.local.v4.local.",
    ] {
        let text = format!("{header}{rest}");
        assert_eq!(ring.open(&text, &CONTEXT, NOW), Err(Reject::Malformed), "{header}");
    }
    // What other tokens look like.
    for text in ["", "null", "{}", "eyJhbGciOiJub25lIn0.e30.", "nk_01", "op_01", "v4.local.AAAA.e30"] {
        assert_eq!(ring.open(text, &CONTEXT, NOW), Err(Reject::Malformed), "{text}");
    }
}

#[test]
fn a_key_that_is_gone_opens_nothing() {
    let old = ring();
    let token = old.seal(PAYLOAD, &CONTEXT, NOW, TTL).unwrap();
    // At once, where that is asked for, though its end has not come.
    let replaced = old.decide(Change::Replace(Key::new().unwrap()), NOW).unwrap().unwrap();
    assert_eq!(replaced.open(&token, &CONTEXT, NOW), Err(Reject::UnknownKey));
    // In its time, where it turned.
    let turned = old.decide(Change::Rotate(Key::new().unwrap()), NOW).unwrap().unwrap();
    let until = turned.keys(NOW)[0].opens_until.unwrap();
    assert_eq!(turned.open(&token, &CONTEXT, NOW).unwrap(), PAYLOAD);
    assert_eq!(turned.open(&token, &CONTEXT, Time(until.0 - 1)), Err(Reject::Expired));
    assert_eq!(turned.open(&token, &CONTEXT, until), Err(Reject::UnknownKey));
    let tidied = turned.decide(Change::Tidy, until).unwrap().unwrap();
    assert_eq!(tidied.keys(until).len(), 1);
    assert_eq!(tidied.open(&token, &CONTEXT, NOW), Err(Reject::UnknownKey));
}

#[test]
fn what_is_too_long_is_not_looked_at() {
    let ring = ring();
    let mut text = token(&ring);
    text.push_str(&"A".repeat(MAX_TOKEN + 1 - text.len()));
    assert_eq!(ring.open(&text, &CONTEXT, NOW), Err(Reject::TooLong));
    text.pop();
    assert_eq!(ring.open(&text, &CONTEXT, NOW), Err(Reject::Malformed));
    let bytes = vec![0xff; MAX_PAYLOAD];
    let token = ring.seal(&bytes, &CONTEXT, NOW, TTL).unwrap();
    assert!(token.len() <= MAX_TOKEN);
    assert_eq!(ring.open(&token, &CONTEXT, NOW).unwrap(), bytes);
    for more in [12 << 10, 16 << 10, 1 << 20] {
        assert_eq!(ring.seal(&vec![0xff; more], &CONTEXT, NOW, TTL), Err(SealError::TooLarge));
    }
}

#[test]
fn all_refusals_say_the_same() {
    let texts: Vec<String> = Reject::ALL.iter().map(ToString::to_string).collect();
    assert!(texts.iter().all(|t| *t == texts[0]), "{texts:?}");
    let mut words: Vec<&str> = Reject::ALL.iter().map(|r| r.word()).collect();
    words.dedup();
    assert_eq!(words.len(), Reject::ALL.len());
}

/// A forger who knows everything but the key: the name, the form, the context.
#[test]
fn a_well_formed_forgery_is_refused() {
    let ring = ring();
    let token = token(&ring);
    let footer = token.rsplit('.').next().unwrap();
    for body in [vec![0; 65], vec![0xff; 200], (0..=255).collect(), vec![0; 64], vec![]] {
        let text = format!("v4.local.{}.{footer}", URL_SAFE_NO_PAD.encode(&body));
        let refused = ring.open(&text, &CONTEXT, NOW).unwrap_err();
        assert_eq!(refused, if body.len() > 64 { Reject::Forged } else { Reject::Malformed });
    }
}

proptest! {
    #[test]
    fn anything_is_opened_to_what_it_was(
        payload in proptest::collection::vec(any::<u8>(), 0..2000),
        purpose in "[a-z]{0,8}", audience in ".{0,16}", principal in ".{0,16}", method in ".{0,16}",
        name in ".{0,40}", fingerprint in proptest::collection::vec(any::<u8>(), 0..40),
        now in 0i64..4_000_000_000_000, ttl in 1i64..600_000,
    ) {
        let ring = Ring::new(Key::new().unwrap(), Time(now), TTL).unwrap();
        let context = Context {
            purpose: &purpose, audience: &audience, principal: &principal, method: &method, name: &name,
            fingerprint: &fingerprint,
        };
        let token = ring.seal(&payload, &context, Time(now), Millis(ttl)).unwrap();
        prop_assert_eq!(ring.open(&token, &context, Time(now)).unwrap(), payload.clone());
        prop_assert_eq!(ring.open(&token, &context, Time(now + ttl - 1)).unwrap(), payload);
        prop_assert_eq!(ring.open(&token, &context, Time(now + ttl)), Err(Reject::Expired));
        prop_assert_eq!(ring.open(&token, &Context { principal: "someone else entirely", ..context }, Time(now)),
            Err(Reject::Forged));
    }

    #[test]
    fn what_nobody_sealed_is_refused(text in "(v4\\.local\\.)?[A-Za-z0-9_-]{0,200}(\\.[A-Za-z0-9_-]{0,60})?") {
        prop_assert!(ring().open(&text, &CONTEXT, NOW).is_err());
    }
}
