//! What a manifest that has something for one mode only is in the other, and what stays of it for operators.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use counterfoil_provider::{ConfigCredentials, ConfigError, Format, Integration, Mode};
use credentials::{Live, Store};

fn parse(base: &str, auth: &str, mode: Mode) -> Result<Integration, ConfigError> {
    let text = format!("name = \"p\"\nbase_url = {base}\n[auth]\n{auth}\n[methods.m]\nhttp = \"POST /a\"");
    Integration::parse("p.toml", &text, Format::Toml, mode)
}

const ONE: &str = "\"https://api.example\"";
const BOTH: &str = "{ sandbox = \"https://sb.example\", production = \"https://api.example\" }";
const SANDBOX: &str = "{ sandbox = \"https://sb.example\" }";
const LOGIN: &str = "kind = \"oauth\"\nissuer = \"https://login.example\"";

#[test]
fn what_is_only_for_sandbox_mode_keeps_no_server_from_starting() {
    let id = format!("{LOGIN}\nclient_id = {{ sandbox = \"x\" }}");
    let secret = "kind = \"bearer\"\nsecret = { sandbox = \"${env:K}\" }";
    let also =
        format!("{secret}\nalso = [{{ header = \"X-App\", secret = {{ sandbox = \"${{env:A}}\" }} }}]");
    for (base, auth) in [(BOTH, id.as_str()), (ONE, &id), (ONE, secret), (ONE, &also)] {
        let i = parse(base, auth, Mode::Sandbox).unwrap();
        assert!(i.closed().is_some() && !i.authenticates(), "{base} {auth}");
        // It is a mistake on the day that it counts.
        parse(base, auth, Mode::Production).unwrap_err();
    }
    // What can be used in neither mode is one already.
    let neither = format!("{LOGIN}\nclient_id = {{ sandbox = \"x\" }}\nclient_secret = \"plain\"");
    let e = parse(BOTH, &neither, Mode::Sandbox).unwrap_err().to_string();
    assert!(e.contains("never written here"), "{e}");
    let e = parse(ONE, "kind = \"bearer\"\nsecret = { sandbox = \"plain\" }", Mode::Sandbox).unwrap_err();
    assert!(e.to_string().contains("never written here"), "{e}");
}

#[test]
fn what_has_no_production_has_nothing_of_productions() {
    let auth = format!("{LOGIN}\nclient_id = {{ sandbox = \"x\" }}");
    let i = parse(SANDBOX, &auth, Mode::Sandbox).unwrap();
    assert!(i.closed().is_none() && i.stored().is_some());
    let e = parse(SANDBOX, &auth, Mode::Production).unwrap_err().to_string();
    assert!(e.contains("no base_url for production"), "{e}");
    // What says that it is production's is so here, too.
    let named = "kind = \"oauth\"\nissuer = { production = \"https://login.example\" }\nclient_id = \"x\"";
    assert!(parse(SANDBOX, named, Mode::Sandbox).unwrap().closed().is_some());
}

#[test]
fn what_principals_gave_is_known_to_operators_where_nothing_is_sent() {
    let own = format!("{LOGIN}\nclient_id = \"x\"\nper = \"principal\"");
    let key = "kind = \"header\"\nheader = \"X-Key\"\nper = \"principal\"";
    for (base, auth, origin, kind) in [
        (BOTH, own.as_str(), "https://sb.example", "bearer"),
        (ONE, &own, "https://api.example", "bearer"),
        (ONE, key, "https://api.example", "header"),
        ("{ production = \"https://api.example\" }", key, "https://api.example", "header"),
    ] {
        let i = parse(base, auth, Mode::Sandbox).unwrap();
        let m = i.method("m").unwrap();
        assert!(m.own_account().is_none() && !i.is_per_principal(), "{base} {auth}");
        let kept = m.kept_account().unwrap();
        assert_eq!((kept.origin.as_str(), kept.account.as_str(), kept.mode), (origin, "p", Mode::Sandbox));
        assert!(kept.is_withheld() && kept.kind().contains(kind), "{kept:?}");
        // Neither the authorization server nor the client is in it.
        assert!(kept.identity().is_none() && kept.client().unwrap().is_none(), "{kept:?}");
        assert!(!format!("{i:?}").contains("login.example"), "{i:?}");
        // Where it is sent, it is the one that is used.
        let m = parse(base, auth, Mode::Production).unwrap().method("m").unwrap().clone();
        assert_eq!(m.kept_account(), m.own_account());
        assert!(!m.kept_account().unwrap().is_withheld());
    }
    // Somewhere else there is nothing of it.
    let i = parse(ONE, key, Mode::Sandbox).unwrap().with_base_url("http://127.0.0.1:1").unwrap();
    assert!(i.method("m").unwrap().kept_account().is_none());
}

#[test]
fn what_is_missing_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let told = |auth: &str| {
        let i = parse("\"http://127.0.0.1:1\"", auth, Mode::Sandbox).unwrap();
        let live = Live::shared(Ok(Store::at(folder.path().join("store"))));
        let all = ConfigCredentials::load_with(&[i], |_| None).unwrap().with_store(&live);
        all.missing()[0].to_string()
    };
    let kept = told("kind = \"bearer\"");
    assert!(
        kept.contains("run `counterfoil auth connect p`; nothing was sent. Nothing has to be reloaded"),
        "{kept}"
    );
    assert!(!kept.contains("Set it"), "{kept}");
    let client =
        "kind = \"oauth\"\nissuer = \"http://127.0.0.1:2\"\nclient_id = \"x\"\nclient_secret = \"${env:S}\"";
    for named in ["kind = \"bearer\"\nsecret = \"${env:S}\"", client] {
        let told = told(named);
        assert!(told.contains("variable S is not set") && told.ends_with("Set it and reload"), "{told}");
    }
    let keyring = "kind = \"bearer\"\nsecret = \"${keyring:crm}\"";
    let e = parse("\"http://127.0.0.1:1\"", keyring, Mode::Sandbox).unwrap_err().to_string();
    assert!(e.contains("secret = \"store\"") && e.contains("auth connect") && !e.contains("crm"), "{e}");
}
