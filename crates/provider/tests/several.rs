//! Keys in the query, and several secrets at once: where they go, what shows them, and when they are another account.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::{key, parse};
use counterfoil_provider::{
    ConfigCredentials, Credentials as _, HttpExecutor, Integration, Own, OwnCredentials, ReadOutcome, Whose,
    owned,
};
use credentials::{About, Client, KeyAt, Live, Secret, Store, unix_now};
use ledger::{Executor, Intent, Millis, Sent};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use zeroize::Zeroizing;

const SOON: Millis = Millis(5000);

/// A provider that keeps the head of each request; the first page of a list leads to itself, key and all.
async fn server() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = seen.clone();
    let at = common::server(move |head| {
        all.lock().unwrap().push(head.to_owned());
        (200, r#"{"data":[]}"#.to_owned())
    });
    (at.await, seen)
}

fn api(at: SocketAddr, auth: &str) -> Integration {
    parse(&format!(
        "name = \"p\"\naccount = \"acme\"\nbase_url = \"http://{at}\"\npreset = \"stripe\"\n[auth]\n{auth}\n[methods.m]\nhttp = \"POST /m\"\n[methods.r]\nhttp = \"GET /r\"\nparams = {{ q = \"query\" }}\nstyles = {{ q = \"members\" }}"
    ))
    .unwrap()
}

fn loaded(i: &Integration, env: &'static [(&'static str, &'static str)]) -> ConfigCredentials {
    let env = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    ConfigCredentials::load_with(std::slice::from_ref(i), env).unwrap()
}

fn intent(i: &Integration) -> Intent {
    let m = i.method("m").unwrap();
    m.intent(r#"{"a":1}"#, &m.recovery(None).unwrap()).unwrap()
}

async fn send(credentials: ConfigCredentials, intent: &Intent, replay: bool) -> Sent {
    HttpExecutor::new(Arc::new(credentials)).send(intent, &key(), replay, SOON).await
}

const QUERY: &str = "kind = \"query\"\nquery = \"api key\"\nsecret = \"${env:K}\"";
const TWO: &str = "kind = \"header\"\nheader = \"DD-API-KEY\"\nsecret = \"${env:K}\"\nalso = [{ header = \"DD-APPLICATION-KEY\", secret = \"${env:APP}\" }, { query = \"site\", secret = \"${env:SITE}\" }]";
const ENV: &[(&str, &str)] = &[("K", "CANARY/k &1"), ("APP", "CANARY-app"), ("SITE", "CANARY-site")];

#[tokio::test]
async fn a_key_in_the_query_is_put_in_last_and_is_nowhere_else() {
    let (at, seen) = server().await;
    let i = api(at, QUERY);
    let executor = HttpExecutor::new(Arc::new(loaded(&i, ENV)));
    let recorded = intent(&i);
    assert!(matches!(executor.send(&recorded, &key(), false, SOON).await, Sent::Applied(_)));
    let read = executor.read(i.method("r").unwrap(), r#"{"q":{"a":"1"}}"#, SOON).await.unwrap();
    assert!(matches!(read, ReadOutcome::Answered(_)));
    let lines: Vec<String> =
        seen.lock().unwrap().iter().map(|h| h.lines().next().unwrap_or_default().to_owned()).collect();
    assert_eq!(
        lines,
        ["POST /m?api%20key=CANARY%2Fk%20%261 HTTP/1.1", "GET /r?a=1&api%20key=CANARY%2Fk%20%261 HTTP/1.1"]
    );
    let all = format!("{i:?} {recorded:?} {}", String::from_utf8_lossy(&recorded.body));
    assert!(!all.contains("CANARY"), "{all}");
    let masked = i.method("m").unwrap().masked_credentials();
    assert_eq!(
        (masked[0].place, masked[0].name.as_str(), masked[0].value.as_str()),
        ("query", "api key", "****")
    );
    // No argument can stand in its place.
    let e = executor.read(i.method("r").unwrap(), r#"{"q":{"api key":"x"}}"#, SOON).await.unwrap_err();
    assert!(e.to_string().contains("filled by the gateway"), "{e}");
    assert_eq!(seen.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn several_go_together_and_all_make_the_account() {
    let (at, seen) = server().await;
    let i = api(at, TWO);
    let before = loaded(&i, ENV);
    let recorded = intent(&i);
    assert!(matches!(send(before, &recorded, false).await, Sent::Applied(_)));
    {
        let heads = seen.lock().unwrap();
        for part in ["/m?site=CANARY-site ", "dd-api-key: CANARY/k &1", "dd-application-key: CANARY-app"] {
            assert!(heads[0].contains(part), "{part}: {}", heads[0]);
        }
    }
    let masked: Vec<&str> =
        i.method("m").unwrap().masked_credentials().iter().map(|m| m.name.as_str()).collect();
    assert_eq!(masked, ["dd-api-key", "dd-application-key", "site"]);
    // What goes along is of the account, too: another one is another account, a missing one is none.
    const OTHER: &[(&str, &str)] = &[("K", "CANARY/k &1"), ("APP", "another"), ("SITE", "CANARY-site")];
    assert!(matches!(send(loaded(&i, OTHER), &recorded, true).await, Sent::Withheld { .. }));
    let short = loaded(&i, &[("K", "CANARY/k &1"), ("APP", "CANARY-app")]);
    let missing = short.missing();
    assert!(missing.len() == 1 && missing[0].what.contains("SITE"), "{missing:?}");
    assert!(short.proof("acme", "sandbox").is_err());
    assert!(matches!(send(short, &recorded, true).await, Sent::NotSent { .. }));
    assert!(matches!(send(loaded(&i, ENV), &recorded, true).await, Sent::Applied(_)));
    assert_eq!(seen.lock().unwrap().len(), 2);
    // Where it rotates, nobody asks.
    let rotating = api(at, &format!("{TWO}\nrotates = true"));
    let all = loaded(&rotating, ENV);
    let recorded = intent(&rotating);
    drop(all);
    assert!(matches!(send(loaded(&rotating, OTHER), &recorded, true).await, Sent::Applied(_)));
}

#[tokio::test]
async fn they_go_along_with_what_is_in_the_store() {
    let (at, _) = server().await;
    let home = tempfile::tempdir().unwrap();
    let store = Store::at(home.path().join("credentials"));
    let also = "also = [{ header = \"X-App\", secret = \"${env:APP}\" }]";
    let i = api(at, &format!("kind = \"bearer\"\n{also}"));
    let account = i.stored().unwrap();
    let about = About {
        account: "acme".into(),
        mode: "sandbox".into(),
        kind: account.kind(),
        origins: vec![account.origin.clone()],
        issuer: None,
        client: None,
        mark: account.mark("sk-one").unwrap(),
        since: unix_now(),
        renewed: None,
        expires: None,
        renewable: false,
        scopes: vec![],
        refused: None,
    };
    let secret = Secret { secret: Some(Zeroizing::new("sk-one".into())), ..Secret::default() };
    store.connect(about, &secret, KeyAt::File).unwrap();
    let with = |env| loaded(&i, env).with_store(&Live::new(Ok(store.clone())));
    // Recorded while what goes along was missing: nothing was sent, and whichever comes is right for the first send.
    let none = with(&[]);
    assert!(none.missing()[0].what.contains("APP"), "{:?}", none.missing());
    let early = intent(&i);
    assert!(matches!(send(none, &early, false).await, Sent::NotSent { .. }));
    assert!(matches!(send(with(&[("APP", "one")]), &early, false).await, Sent::Applied(_)));
    assert!(matches!(send(with(&[("APP", "one")]), &early, true).await, Sent::Withheld { .. }));
    let one = with(&[("APP", "one")]);
    let recorded = intent(&i);
    assert!(matches!(send(one, &recorded, true).await, Sent::Applied(_)));
    assert!(matches!(send(with(&[("APP", "two")]), &recorded, true).await, Sent::Withheld { .. }));
    // The same from a variable is the same account.
    let named = api(at, &format!("kind = \"bearer\"\nsecret = \"${{env:K}}\"\n{also}"));
    let moved = loaded(&named, &[("K", "sk-one"), ("APP", "one")]);
    assert!(matches!(send(moved, &recorded, true).await, Sent::Applied(_)));
}

/// What one principal has given.
struct Given(Integration);

#[async_trait::async_trait]
impl OwnCredentials for Given {
    async fn find(&self, _: &Whose<'_>, _: Option<&Client>) -> Result<Option<Own>, String> {
        let mark = self.0.own_account().unwrap().mark("hers").unwrap();
        Ok(Some(Own { mark, secret: Zeroizing::new("hers".to_owned()), ticket: None }))
    }
}

#[tokio::test]
async fn they_go_along_with_a_principals_own() {
    let (at, seen) = server().await;
    let i = api(
        at,
        "kind = \"query\"\nquery = \"token\"\nper = \"principal\"\nalso = [{ query = \"key\", secret = \"${env:APP}\" }]",
    );
    let with = |env| loaded(&i, env).with_own(Arc::new(Given(i.clone())));
    let mark = i.own_account().unwrap().mark("hers").unwrap();
    let one = with(&[("APP", "one")]);
    let recorded = owned(intent(&i), "ada", &mark).unwrap();
    assert!(matches!(send(one, &recorded, false).await, Sent::Applied(_)));
    assert!(seen.lock().unwrap()[0].starts_with("POST /m?token=hers&key=one HTTP"));
    assert!(matches!(send(with(&[("APP", "two")]), &recorded, true).await, Sent::Withheld { .. }));
    assert!(matches!(send(with(&[("APP", "one")]), &recorded, true).await, Sent::Applied(_)));
    let none = with(&[]);
    let early = owned(intent(&i), "ada", &mark).unwrap();
    assert!(matches!(send(none, &early, false).await, Sent::NotSent { .. }));
    assert!(matches!(send(with(&[("APP", "two")]), &early, false).await, Sent::Applied(_)));
}

#[test]
fn what_does_not_go_together_is_refused() {
    let with = |auth: &str, method: &str| {
        parse(&format!(
            "name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\n[auth]\n{auth}\n[methods.m]\n{method}\n"
        ))
        .map(|_| ())
    };
    let query = "kind = \"query\"\nquery = \"k\"";
    let key = "idempotency = { mode = \"dynamic\"";
    for (auth, method, why) in [
        ("kind = \"query\"", "http = \"GET /a\"", "needs `query"),
        ("kind = \"query\"\nquery = \"\"", "http = \"GET /a\"", "name of a query parameter"),
        ("kind = \"bearer\"\nquery = \"k\"", "http = \"GET /a\"", "`query` belongs to"),
        ("kind = \"none\"\nquery = \"k\"", "http = \"GET /a\"", "takes nothing else"),
        (
            "also = [{ query = \"k\", secret = \"${env:S}\" }]\nkind = \"none\"",
            "http = \"GET /a\"",
            "there is none",
        ),
        (
            &format!("{query}\nalso = [{{ query = \"k\", secret = \"${{env:S}}\" }}]"),
            "http = \"GET /a\"",
            "has a secret already",
        ),
        (
            "kind = \"bearer\"\nalso = [{ header = \"authorization\", secret = \"${env:S}\" }]",
            "http = \"GET /a\"",
            "has a secret already",
        ),
        (
            &format!("{query}\nalso = [{{ header = \"X\", secret = \"store\" }}]"),
            "http = \"GET /a\"",
            "can't be in the store",
        ),
        (
            &format!("{query}\nalso = [{{ header = \"X\", secret = \"hunter2\" }}]"),
            "http = \"GET /a\"",
            "never written here",
        ),
        (
            &format!("{query}\nalso = [{{ secret = \"${{env:S}}\" }}]"),
            "http = \"GET /a\"",
            "needs `header` or `query`",
        ),
        (query, "http = \"GET /a\"\nparams = { x = \"query:k\" }", "carries the credential"),
        (query, "http = \"GET /a\"\nquery = { k = \"v\" }", "carries the credential"),
        (
            query,
            "http = \"GET /a\"\ninput = '{\"type\":\"object\",\"properties\":{\"k\":{}}}'",
            "carries the credential",
        ),
        (
            query,
            &format!("http = \"POST /a\"\n{key}, carrier = \"query\", name = \"k\" }}"),
            "carries the credential",
        ),
        (
            "kind = \"header\"\nheader = \"X-Key\"",
            &format!("http = \"POST /a\"\n{key}, header_name = \"x-key\" }}"),
            "carries the credential",
        ),
    ] {
        let e = with(auth, method).unwrap_err().to_string();
        assert!(e.contains(why) && !e.contains("hunter2"), "{auth} {method}: {e}");
    }
    // In a body it is another thing.
    with(query, "http = \"POST /a\"\nparams = { k = \"body\" }").unwrap();
}

#[test]
fn what_looks_like_a_credential_is_told() {
    let i = parse(
        "name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\nheaders = { \"DD-APPLICATION-KEY\" = \"abc\", \"X-Version\" = \"2\" }\n[methods.m]\nhttp = \"POST /a\"\nquery = { access_token = \"x\", limit = \"5\" }\nfields = { password = \"p\", token = 5 }\n[methods.n]\nhttp = \"GET /a\"\nquery = { access_token = \"x\" }",
    )
    .unwrap();
    assert_eq!(
        i.looks_secret(),
        ["the header DD-APPLICATION-KEY", "the query parameter access_token", "the field password"]
    );
    assert!(!i.looks_secret().concat().contains("abc"));
}
