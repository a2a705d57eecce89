//! A replay goes to the same account at the same place, or not at all; and a look-up turns one page.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::{KEY, key, parse};
use counterfoil_provider::{ConfigCredentials, HttpExecutor, Integration};
use ledger::{Executor, Intent, Looked, Millis, Sent};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// A server that answers each request by its first line, and remembers them.
async fn server(
    answer: impl Fn(&str) -> String + Send + Sync + 'static,
) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = seen.clone();
    let at = common::server(move |head| {
        let line = head.lines().next().unwrap_or_default().to_owned();
        let body = answer(&line);
        all.lock().unwrap().push(line);
        (200, body)
    });
    (at.await, seen)
}

const CARRIERS: [&str; 3] = [
    "preset = \"square\"\nexecution_policy.idempotency.mode = \"dynamic\"",
    "preset = \"adyen\"",
    "preset = \"aws\"\nexecution_policy.idempotency.mode = \"dynamic\"\n[execution_policy.retries]\nmax_sends = 2",
];
const ASKED: &str = "lookup = { http = \"GET /m\", items = \"/data\", match = { \"/k\" = \"{key}\" } }";

fn api(base: &str, head: &str, auth: &str) -> Integration {
    parse(&format!(
        "name = \"p\"\naccount = \"acme\"\nbase_url = \"{base}\"\n{head}\n[auth]\nkind = \"bearer\"\nsecret = \"${{env:K}}\"\n{auth}\n[methods.m]\nhttp = \"POST /m\"\n{ASKED}"
    ))
    .unwrap()
}
/// The same without a credential.
fn bare(base: &str, head: &str) -> Integration {
    parse(&format!(
        "name = \"p\"\naccount = \"acme\"\nbase_url = \"{base}\"\n{head}\n[methods.m]\nhttp = \"POST /m\"\n{ASKED}"
    ))
    .unwrap()
}
/// An executor that has read `secret` as the account's credential.
fn executor(all: &[Integration], secret: &str) -> HttpExecutor {
    let env = |_: &str| Some(secret.to_owned());
    HttpExecutor::new(Arc::new(ConfigCredentials::load_with(all, env).unwrap()))
}
fn intent(i: &Integration) -> Intent {
    let m = i.method("m").unwrap();
    m.intent("{}", &m.recovery(None).unwrap()).unwrap()
}
async fn send(e: &HttpExecutor, intent: &Intent, replay: bool) -> Sent {
    e.send(intent, &key(), replay, Millis(3000)).await
}
/// Nothing goes out: the effect stays in doubt, whatever is asked.
async fn stopped(e: &HttpExecutor, intent: &Intent, why: &str) {
    match send(e, intent, true).await {
        // Not a failure that the provider repeats: put back, it may go out.
        Sent::Withheld { why: told } => assert!(told.contains(why), "{told}"),
        other => panic!("{other:?}"),
    }
    match send(e, intent, false).await {
        Sent::NotSent { why: told } => assert!(told.contains(why), "{told}"),
        other => panic!("{other:?}"),
    }
    match e.look_up(intent, &key(), Millis(3000)).await {
        Looked::Unknown { why: told } => assert!(told.contains(why), "{told}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_bears_the_key_in_one_of_two_places_is_never_as_nothing() {
    for (note, found) in [(format!("for {KEY}"), true), ("edited since".to_owned(), false)] {
        let (at, _) =
            server(move |_| format!("{{\"data\":[{{\"k\":\"{KEY}\",\"note\":\"{note}\"}}]}}")).await;
        let i = parse(&format!(
            "name = \"p\"\naccount = \"acme\"\nbase_url = \"http://{at}\"\npreset = \"square\"\nexecution_policy.idempotency.mode = \"dynamic\"\n[methods.m]\nhttp = \"POST /m\"\nlookup = {{ http = \"GET /m\", items = \"/data\", match = {{ \"/k\" = \"{{key}}\", \"/note\" = {{ contains = \"{{key}}\" }} }} }}"
        ))
        .unwrap();
        let e = executor(std::slice::from_ref(&i), "one");
        match e.look_up(&intent(&i), &key(), Millis(3000)).await {
            Looked::Found(_) if found => {}
            Looked::Unknown { why } if !found => assert!(why.contains("differs"), "{why}"),
            other => panic!("{found}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn another_base_url_stops_a_replay() {
    for head in CARRIERS {
        let (old, at_old) = server(|_| "{}".into()).await;
        let (new, at_new) = server(|_| "{}".into()).await;
        let before = api(&format!("http://{old}/v1"), head, "");
        let first = executor(std::slice::from_ref(&before), "one");
        let recorded = intent(&before);
        assert!(matches!(send(&first, &recorded, false).await, Sent::Applied(_)));
        assert!(matches!(send(&first, &recorded, true).await, Sent::Applied(_)));
        assert_eq!(at_old.lock().unwrap().len(), 2);
        // The same account elsewhere: another region, another host, another prefix.
        for base in [format!("http://{new}/v1"), format!("http://{old}/v2"), format!("http://{old}/v1/x")] {
            let after = executor(&[api(&base, head, "")], "one");
            stopped(&after, &recorded, "base URL of account \"acme\" has been changed").await;
        }
        assert_eq!((at_old.lock().unwrap().len(), at_new.lock().unwrap().len()), (2, 0), "{head}");
        // Two integrations may share an account, each at its own place.
        let both = [api(&format!("http://{new}/v1"), head, ""), before.clone()];
        let both = executor(&both, "one");
        assert!(matches!(send(&both, &recorded, true).await, Sent::Applied(_)));
    }
}

#[tokio::test]
async fn another_credential_stops_a_replay_unless_it_rotates() {
    for head in CARRIERS {
        let (at, seen) = server(|_| "{}".into()).await;
        let base = format!("http://{at}");
        let i = api(&base, head, "");
        let first = executor(std::slice::from_ref(&i), "one");
        let recorded = intent(&i);
        let text = String::from_utf8(recorded.body.clone()).unwrap();
        assert!(text.contains("\"credential\":\"") && !text.contains("Bearer"), "{text}");
        assert!(matches!(send(&first, &recorded, false).await, Sent::Applied(_)));
        // A restart with the same one changes nothing.
        let again = executor(&[api(&base, head, "")], "one");
        assert!(matches!(send(&again, &recorded, true).await, Sent::Applied(_)));
        let other = executor(&[api(&base, head, "")], "two");
        stopped(&other, &recorded, "credential of account \"acme\" has been changed").await;
        assert_eq!(seen.lock().unwrap().len(), 2, "{head}");
        // An account that authenticates no more, or at last, is another one too.
        let open = |i: &Integration| executor(std::slice::from_ref(i), "one");
        let bare = bare(&base, head);
        stopped(&open(&bare), &recorded, "has been changed").await;
        stopped(&open(&api(&base, head, "")), &intent(&bare), "has been changed").await;
        assert_eq!(seen.lock().unwrap().len(), 2, "{head}");
        // The operator's word that any of them is the same account.
        let i = api(&base, head, "rotates = true");
        let first = executor(std::slice::from_ref(&i), "one");
        let recorded = intent(&i);
        assert!(matches!(send(&first, &recorded, false).await, Sent::Applied(_)));
        let other = executor(&[api(&base, head, "rotates = true")], "two");
        assert!(matches!(send(&other, &recorded, true).await, Sent::Applied(_)));
    }
    // Where keys belong to an API key there is no such word.
    let e = parse("name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\npreset = \"modern_treasury\"\n[auth]\nkind = \"bearer\"\nsecret = \"${env:K}\"\nrotates = true\n[methods.m]\nhttp = \"POST /m\"").unwrap_err();
    assert!(e.message.contains("scoped by API key"), "{e}");
}

#[tokio::test]
async fn a_request_recorded_without_a_credential_is_begun_under_any_and_repeated_under_none() {
    let (at, seen) = server(|_| "{\"data\":[]}".into()).await;
    let i = api(&format!("http://{at}"), CARRIERS[0], "");
    let none = HttpExecutor::new(Arc::new(
        ConfigCredentials::load_with(std::slice::from_ref(&i), |_| None).unwrap(),
    ));
    let recorded = intent(&i);
    for replay in [false, true] {
        let sent = send(&none, &recorded, replay).await;
        assert!(matches!(&sent, Sent::NotSent { why } if why.contains("is not set")), "{sent:?}");
    }
    let now = executor(std::slice::from_ref(&i), "one");
    assert!(matches!(send(&now, &recorded, false).await, Sent::Applied(_)));
    // It went out under this one, or under one before it: nothing says which.
    let sent = send(&now, &recorded, true).await;
    assert!(matches!(&sent, Sent::Withheld { why } if why.contains("credential")), "{sent:?}");
    assert_eq!(seen.lock().unwrap().len(), 1);
    // The provider may be asked: no answer permits a replay.
    assert!(matches!(now.look_up(&recorded, &key(), Millis(3000)).await, Looked::NotFound));
    // A credential that can't be read for a while is no other one.
    let recorded = intent(&i);
    let none = HttpExecutor::new(Arc::new(
        ConfigCredentials::load_with(&[api(&format!("http://{at}"), CARRIERS[0], "")], |_| None).unwrap(),
    ));
    assert!(matches!(send(&none, &recorded, true).await, Sent::NotSent { .. }));
    let back = executor(&[api(&format!("http://{at}"), CARRIERS[0], "")], "one");
    assert!(matches!(send(&back, &recorded, true).await, Sent::Applied(_)));
}

#[tokio::test]
async fn a_provider_at_any_port_is_found_at_the_one_it_has() {
    let (old, at_old) = server(|_| "{\"data\":[]}".into()).await;
    let (new, at_new) = server(|_| "{\"data\":[]}".into()).await;
    let there = |at: SocketAddr, path: &str| bare(&format!("http://{at}{path}"), CARRIERS[0]).at_any_port();
    let before = there(old, "/v1");
    executor(std::slice::from_ref(&before), "one");
    let recorded = intent(&before);
    let after = executor(&[there(new, "/v1")], "one");
    assert!(matches!(send(&after, &recorded, true).await, Sent::Applied(_)));
    assert!(matches!(after.look_up(&recorded, &key(), Millis(3000)).await, Looked::NotFound));
    assert_eq!(*at_new.lock().unwrap(), ["POST /v1/m HTTP/1.1", "GET /v1/m HTTP/1.1"]);
    // Nothing but the port.
    let elsewhere = executor(&[there(new, "/v2")], "one");
    stopped(&elsewhere, &recorded, "base URL of account \"acme\" has been changed").await;
    let fixed = executor(&[bare(&format!("http://{new}/v1"), CARRIERS[0])], "one");
    stopped(&fixed, &recorded, "base URL of account \"acme\" has been changed").await;
    assert_eq!((at_old.lock().unwrap().len(), at_new.lock().unwrap().len()), (0, 2));
}

#[tokio::test]
async fn a_look_up_turns_one_page() {
    let mine = format!("{{\"k\":\"{KEY}\"}}");
    let other = "{\"k\":\"x\"}";
    let page = |items: &str, cursor: &str| format!("{{\"data\":[{items}],\"cursor\":{cursor}}}");
    // First page, second page, what is known, requests.
    for (first, second, want, asked) in [
        (page(&mine, "\"c 2\""), String::new(), "found", 1),
        (page(other, "null"), String::new(), "not found", 1),
        (page(other, "\"c 2\""), page(&mine, "\"c3\""), "found", 2),
        (page(other, "\"c 2\""), page(other, "null"), "not found", 2),
        (page(other, "\"c 2\""), page(other, "\"c3\""), "unknown", 2),
        (page(other, "\"c 2\""), "<html>".into(), "unknown", 2),
    ] {
        let (a, b) = (first.clone(), second.clone());
        let (at, seen) =
            server(move |head| if head.contains("cursor=c%202") { b.clone() } else { a.clone() }).await;
        let i = parse(&format!(
            "name = \"p\"\nbase_url = \"http://{at}\"\npreset = \"square\"\nexecution_policy.idempotency.mode = \"dynamic\"\n[methods.m]\nhttp = \"POST /m\"\nlookup = {{ query = {{ limit = \"1\" }}, items = \"/data\", match = {{ \"/k\" = \"{{key}}\" }}, next = {{ at = \"/cursor\", query = \"cursor\" }} }}"
        ))
        .unwrap();
        let e = executor(std::slice::from_ref(&i), "one");
        let looked = e.look_up(&intent(&i), &key(), Millis(3000)).await;
        let got = match &looked {
            Looked::Found(_) => "found",
            Looked::NotFound => "not found",
            Looked::Several(_) => "several",
            Looked::Unknown { .. } => "unknown",
        };
        assert_eq!(got, want, "{first} {second}: {looked:?}");
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), asked, "{seen:?}");
        assert!(
            seen[0].starts_with("GET /m?limit=1 ")
                && (asked == 1 || seen[1].starts_with("GET /m?limit=1&cursor=c%202 "))
        );
    }
}
