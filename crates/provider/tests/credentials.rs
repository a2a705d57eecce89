//! Secrets: resolved once, sent, and nowhere else.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
use common::integration;
use counterfoil_provider::{ConfigCredentials, Credentials};
use ledger::{Recovery, Strategy};

const CANARY: &str = "sk_test_CANARY_8812";

fn one(auth: &str) -> (counterfoil_provider::Integration, ConfigCredentials) {
    let i = integration("preset = \"stripe\"", &format!("[auth]\n{auth}\n[methods.m]\nhttp = \"POST /a\""));
    let c = ConfigCredentials::load_with(std::slice::from_ref(&i), |name| {
        (name == "K").then(|| format!(" {CANARY}\n"))
    })
    .unwrap();
    (i, c)
}

#[test]
fn each_kind() {
    let header = |auth: &str| {
        let proof = one(auth).1.proof("p", "sandbox").unwrap();
        let (name, value) = proof.headers().next().unwrap();
        (name.clone(), value.clone())
    };
    let (n, v) = header("kind = \"bearer\"\nsecret = \"${env:K}\"");
    assert_eq!((n.as_str(), v.to_str().unwrap()), ("authorization", &*format!("Bearer {CANARY}")));
    assert!(v.is_sensitive());
    let (n, v) = header("kind = \"basic\"\nusername = \"org\"\nsecret = \"${env:K}\"");
    assert_eq!(
        (n.as_str(), v.to_str().unwrap()),
        ("authorization", "Basic b3JnOnNrX3Rlc3RfQ0FOQVJZXzg4MTI=")
    );
    let (n, v) = header("kind = \"header\"\nheader = \"X-Api-Key\"\nsecret = \"${env:K}\"");
    assert_eq!((n.as_str(), v.to_str().unwrap()), ("x-api-key", CANARY));
    assert!(one("kind = \"none\"").1.proof("p", "sandbox").unwrap().is_none());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{CANARY}\n")).unwrap();
    let (_, v) = header(&format!("kind = \"bearer\"\nsecret = \"${{file:{}}}\"", file.path().display()));
    assert_eq!(v.to_str().unwrap(), format!("Bearer {CANARY}"));
}

#[test]
fn nothing_shows_it() {
    let (i, c) = one("kind = \"bearer\"\nsecret = \"${env:K}\"");
    let header = c.proof("p", "sandbox").unwrap();
    let intent = i.method("m").unwrap().intent(r#"{"a":1}"#, &Recovery::new(Strategy::Key)).unwrap();
    let all = format!(
        "{i:?} {c:?} {header:?} {intent:?} {} {}",
        intent.summary,
        String::from_utf8_lossy(&intent.body)
    );
    assert!(!all.contains("CANARY"), "{all}");
}

#[test]
fn a_missing_one_is_named_but_stops_nothing_else() {
    for auth in
        ["kind = \"bearer\"\nsecret = \"${env:NO}\"", "kind = \"bearer\"\nsecret = \"${file:/no/such}\""]
    {
        let (_, c) = one(auth);
        assert_eq!(c.missing().len(), 1);
        let e = c.proof("p", "sandbox").unwrap_err().to_string();
        assert!(e.contains("nothing was sent") && !e.contains("/no/such"), "{e}");
    }
    let (_, c) = one("kind = \"none\"");
    assert!(
        c.proof("other", "sandbox").is_err()
            && c.proof("p", "production").is_err()
            && c.proof("p", "x").is_err()
    );
}

#[test]
fn one_account_has_one_credential() {
    let a = integration(
        "account = \"x\"",
        "[auth]\nkind = \"bearer\"\nsecret = \"${env:A}\"\n[methods.m]\nhttp = \"GET /a\"",
    );
    let b = integration(
        "account = \"x\"",
        "[auth]\nkind = \"bearer\"\nsecret = \"${env:B}\"\n[methods.m]\nhttp = \"GET /a\"",
    );
    assert!(ConfigCredentials::load_with(&[a.clone(), b], |_| None).unwrap_err().message.contains("account"));
    assert!(ConfigCredentials::load_with(&[a.clone(), a], |_| None).is_ok());
}
