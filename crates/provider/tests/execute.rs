//! The executor against servers that misbehave on purpose.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
use common::{KEY, key, parse};
use counterfoil_provider::{ConfigCredentials, HttpExecutor, Integration, ReadOutcome, Receipt};
use ledger::{Executor, Intent, Looked, Millis, Sent, Strategy};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a server does with a request.
#[derive(Clone)]
enum Do {
    /// These bytes, then keep the connection.
    Say(String),
    /// These bytes, then close.
    SayClose(String),
    /// These bytes, then keep the connection, but drop it at its next request.
    SayOnce(String),
    /// Close without a byte.
    Cut,
    /// Nothing, for long.
    Hang,
}

struct Server {
    at: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// The n-th request is treated by the n-th of `script`; the last one goes on.
    async fn start(script: Vec<Do>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connection(stream, script.clone(), seen.clone()));
            }
        });
        Server { at, requests }
    }
    fn seen(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn connection(mut stream: TcpStream, script: Vec<Do>, seen: Arc<Mutex<Vec<String>>>) {
    while let Some(request) = read_request(&mut stream).await {
        let n = {
            let mut all = seen.lock().unwrap();
            all.push(request);
            all.len() - 1
        };
        match script[n.min(script.len() - 1)].clone() {
            Do::Say(bytes) => stream.write_all(bytes.as_bytes()).await.unwrap_or(()),
            Do::SayClose(bytes) => {
                let _ = stream.write_all(bytes.as_bytes()).await;
                return;
            }
            Do::SayOnce(bytes) => {
                let _ = stream.write_all(bytes.as_bytes()).await;
                let _ = read_request(&mut stream).await;
                return;
            }
            Do::Cut => return,
            Do::Hang => tokio::time::sleep(Duration::from_secs(60)).await,
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut all = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&all).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|l| {
                    l.to_ascii_lowercase().strip_prefix("content-length: ").map(|n| n.parse().unwrap())
                })
                .unwrap_or(0usize);
            if body.len() >= length {
                return Some(text);
            }
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer).await {
            Ok(n) if n > 0 => all.extend_from_slice(&buffer[..n]),
            _ => return None,
        }
    }
}

fn ok(body: &str) -> String {
    with(200, "", body)
}
fn with(status: u16, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn api(base: &str, rest: &str) -> Integration {
    // For both modes, since one address alone counts as production's.
    let bases = format!("{{ sandbox = \"{base}\", production = \"{base}\" }}");
    parse(&format!("name = \"p\"\nbase_url = {bases}\n{rest}")).unwrap()
}
const STRIPE: &str = "preset = \"stripe\"\n[methods.m]\nhttp = \"POST /m\"";

fn executor(i: &Integration) -> HttpExecutor {
    let env = |name: &str| (name == "K").then(|| "CANARY".to_owned());
    HttpExecutor::new(Arc::new(ConfigCredentials::load_with(std::slice::from_ref(i), env).unwrap()))
}
fn intent(i: &Integration, strategy: Option<Strategy>, args: &str) -> Intent {
    let m = i.method("m").unwrap();
    m.intent(args, &m.recovery(strategy).unwrap()).unwrap()
}
async fn send(i: &Integration, ms: i64) -> Sent {
    executor(i).send(&intent(i, None, r#"{"amount":5}"#), &key(), false, Millis(ms)).await
}
/// One send of a Stripe-like POST to a server with one behaviour, and how many requests arrived.
async fn against(what: Do, ms: i64) -> (Sent, usize) {
    let server = Server::start(vec![what]).await;
    let sent = send(&api(&format!("http://{}", server.at), STRIPE), ms).await;
    (sent, server.seen().len())
}

#[tokio::test]
async fn a_request_arrives_as_pinned_and_its_answer_is_the_receipt() {
    let server = Server::start(vec![Do::Say(ok("{\"id\": 1.0}"))]).await;
    let i = api(
        &format!("http://{}/base", server.at),
        &format!("{STRIPE}\n[auth]\nkind = \"bearer\"\nsecret = \"${{env:K}}\""),
    );
    let Sent::Applied(receipt) = send(&i, 2000).await else { panic!("not applied") };
    let receipt: Receipt = serde_json::from_slice(&receipt.0).unwrap();
    assert_eq!((receipt.status, receipt.json.unwrap().get()), (200, "{\"id\": 1.0}"));
    let seen = server.seen();
    assert_eq!(seen.len(), 1);
    let text = seen[0].to_lowercase();
    for line in [
        "post /base/m http/1.1",
        &format!("idempotency-key: {KEY}"),
        "authorization: bearer canary",
        "content-type: application/json",
        "accept-encoding: identity",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(seen[0].ends_with("\r\n\r\n{\"amount\":5}"));
}

#[tokio::test]
async fn provably_not_sent() {
    let closed = { TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap() };
    let cases = [
        ("refused", format!("http://{closed}")),
        (
            "TLS refused",
            format!("https://{}", Server::start(vec![Do::SayClose("no TLS here".into())]).await.at),
        ),
        ("no such name", "https://no-such-name.invalid".to_owned()),
    ];
    for (what, base) in cases {
        let sent = send(&api(&base, STRIPE), 3000).await;
        assert!(matches!(sent, Sent::NotSent { .. }), "{what}: {sent:?}");
    }
    // TLS that never gets anywhere: the deadline passes before there is a connection.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://{}", silent.local_addr().unwrap());
    let began = Instant::now();
    let sent = send(&api(&base, STRIPE), 300).await;
    assert!(matches!(&sent, Sent::NotSent { why } if why.contains("within the time")), "{sent:?}");
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn no_credential_nothing_sent() {
    let server = Server::start(vec![Do::Say(ok("{}"))]).await;
    let i = api(
        &format!("http://{}", server.at),
        &format!("{STRIPE}\n[auth]\nkind = \"bearer\"\nsecret = \"${{env:MISSING}}\""),
    );
    let sent = send(&i, 1000).await;
    assert!(matches!(&sent, Sent::NotSent { why } if why.contains("MISSING")), "{sent:?}");
    let mut damaged = intent(&i, None, "{}");
    damaged.body = b"{}".to_vec();
    assert!(matches!(executor(&i).send(&damaged, &key(), false, Millis(1000)).await, Sent::NotSent { .. }));
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test]
async fn whatever_may_have_left_is_unknown_and_sent_once() {
    let cases = [
        ("cut", Do::Cut),
        ("torn head", Do::SayClose("HTTP/1.1 200 OK\r\ncontent-le".into())),
        ("torn body", Do::SayClose("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"id\":".into())),
        (
            "torn chunks",
            Do::SayClose("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n".into()),
        ),
        ("torn refusal", Do::SayClose("HTTP/1.1 402 X\r\ncontent-length: 100\r\n\r\n{\"id\":".into())),
        ("garbage", Do::SayClose("SSH-2.0-OpenSSH\r\n".into())),
        ("a page", Do::Say(ok("<html>hello</html>"))),
        ("hang", Do::Hang),
        ("hang in the body", Do::Say("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".into())),
        ("huge, announced", Do::SayClose(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 10 << 20))),
        ("huge", Do::SayClose(format!("HTTP/1.1 200 OK\r\n\r\n\"{}\"", "x".repeat(2 << 20)))),
        ("bad gateway", Do::Say(with(502, "", "<html>"))),
        ("redirect", Do::Say(with(307, "location: /elsewhere\r\n", ""))),
        ("redirect to GET", Do::Say(with(303, "location: /elsewhere\r\n", ""))),
    ];
    for (what, behaviour) in cases {
        let began = Instant::now();
        let (sent, requests) = against(behaviour, 400).await;
        assert!(matches!(sent, Sent::Unknown { stored: false, .. }), "{what}: {sent:?}");
        assert_eq!(requests, 1, "{what}");
        assert!(began.elapsed() < Duration::from_secs(3), "{what}");
    }
}

#[tokio::test]
async fn definite_answers() {
    assert!(matches!(against(Do::Say(with(402, "", "{}")), 1000).await.0, Sent::Refused(_)));
    let (sent, _) = against(Do::Say(with(429, "retry-after: 2\r\n", "{}")), 1000).await;
    assert!(matches!(sent, Sent::NotApplied { retry_after: Some(Millis(2000)), .. }), "{sent:?}");
    let (sent, _) = against(Do::Say(with(500, "idempotent-replayed: true\r\n", "{}")), 1000).await;
    assert!(matches!(sent, Sent::Unknown { stored: true, .. }), "{sent:?}");
}

#[tokio::test]
async fn a_kept_connection_that_dies_raises_doubt_only_where_a_replay_is_safe() {
    let server = Server::start(vec![Do::SayOnce(ok("{}"))]).await;
    let i = api(&format!("http://{}", server.at), STRIPE);
    let key = key();
    let (x, kept) = (executor(&i), intent(&i, Some(Strategy::Key), "{}"));
    let send = |replay| x.send(&kept, &key, replay, Millis(1000));
    assert!(matches!(send(false).await, Sent::Applied(_)));
    assert!(matches!(send(false).await, Sent::Unknown { .. }));
    assert_eq!(server.seen().len(), 1, "the client tried again by itself");
    assert!(matches!(send(true).await, Sent::Applied(_)));
    // What can't be replayed has a connection of its own for each send.
    for strategy in [Strategy::None, Strategy::Confirm] {
        let (x, fresh) = (executor(&i), intent(&i, Some(strategy), "{}"));
        for _ in 0..5 {
            let sent = x.send(&fresh, &key, false, Millis(1000)).await;
            assert!(matches!(sent, Sent::Applied(_)), "{strategy:?}: {sent:?}");
        }
    }
}

const LOOKUP: &str = "[methods.m]\nhttp = \"POST /m\"\nmarker = { field = \"marker\" }\nlookup = { query = { marker = \"{marker}\", payment = \"{args.payment}\" }, items = \"/data\", match = { \"/marker\" = \"{marker}\", \"/payment\" = \"{args.payment}\" } }";

#[tokio::test]
async fn look_ups() {
    let mine = format!(r#"{{"marker":"{KEY}","payment":"pay 1","n":1.0}}"#);
    let other = r#"{"marker":"x","payment":"pay 1"}"#;
    let differs = format!(r#"{{"marker":"{KEY}","payment":"pay 2"}}"#);
    let cases: Vec<(String, &str)> = vec![
        (ok(&format!("{{\"data\": [{other}, {mine}]}}")), "found"),
        (ok(&format!("{{\"data\": [{mine}], \"has_more\": true}}")), "found"),
        (ok(&format!("{{\"data\": [{mine}, {other}, {mine}]}}")), "several"),
        (ok(&format!("{{\"data\": [{other}], \"has_more\": false}}")), "not found"),
        (ok("{\"data\": []}"), "not found"),
        (ok(&format!("{{\"data\": [{other}], \"has_more\": true}}")), "unknown"),
        (ok(&format!("{{\"data\": [{differs}]}}")), "unknown"),
        (ok("{\"data\": null}"), "unknown"),
        (ok("{\"items\": []}"), "unknown"),
        (ok("[]"), "unknown"),
        (ok("<html>"), "unknown"),
        (ok("{\"data\": ["), "unknown"),
        (with(404, "", "{}"), "unknown"),
        (with(401, "", "{}"), "unknown"),
        (with(500, "", "{\"data\": []}"), "unknown"),
        (with(206, "", "{\"data\": []}"), "unknown"),
    ];
    for (answer, want) in cases {
        let server = Server::start(vec![Do::Say(answer.clone())]).await;
        let i = api(&format!("http://{}", server.at), LOOKUP);
        let looked =
            executor(&i).look_up(&intent(&i, None, r#"{"payment":"pay 1"}"#), &key(), Millis(1000)).await;
        let got = match &looked {
            Looked::Found(_) => "found",
            Looked::Several(_) => "several",
            Looked::NotFound => "not found",
            Looked::Unknown { .. } => "unknown",
        };
        assert_eq!(got, want, "{answer}: {looked:?}");
        let seen = server.seen();
        assert!(
            seen[0].starts_with(&format!("GET /m?marker={KEY}&payment=pay%201 HTTP/1.1\r\n")),
            "{}",
            seen[0]
        );
        if let Looked::Found(r) | Looked::Several(r) = looked {
            assert_eq!(serde_json::from_slice::<Receipt>(&r.0).unwrap().json.unwrap().get(), mine);
        }
    }
    for behaviour in [Do::Cut, Do::Hang] {
        let server = Server::start(vec![behaviour]).await;
        let i = api(&format!("http://{}", server.at), LOOKUP);
        assert!(matches!(
            executor(&i).look_up(&intent(&i, None, "{}"), &key(), Millis(300)).await,
            Looked::Unknown { .. }
        ));
    }
}

#[tokio::test]
async fn a_look_up_of_one_object() {
    let rest = "[methods.m]\nhttp = \"PUT /m/{$key}\"\nrecovery = \"lookup\"\nlookup = { http = \"GET /m/{key}\", match = { \"/ref\" = \"{key}\" } }";
    for (answer, want) in [
        (ok(&format!("{{\"ref\":\"{KEY}\"}}")), 0),
        (with(404, "", "{}"), 1),
        (ok("{\"ref\":\"x\"}"), 2),
        (ok("{}"), 2),
    ] {
        let server = Server::start(vec![Do::Say(answer)]).await;
        let i = api(&format!("http://{}", server.at), rest);
        let looked = executor(&i).look_up(&intent(&i, None, "{}"), &key(), Millis(1000)).await;
        let got = match looked {
            Looked::Found(_) => 0,
            Looked::NotFound => 1,
            _ => 2,
        };
        assert_eq!(got, want);
        assert!(server.seen()[0].starts_with(&format!("GET /m/{KEY} ")));
    }
    // No way to ask.
    let i = api("http://127.0.0.1:1", STRIPE);
    assert!(matches!(
        executor(&i).look_up(&intent(&i, None, "{}"), &key(), Millis(300)).await,
        Looked::Unknown { .. }
    ));
}

#[tokio::test]
async fn a_conflict_leads_to_the_object() {
    let unique = "[methods.m]\nhttp = \"POST /m\"\nunique = { field = \"/reference\", resource_id = \"/error/resource_id\", fetch = \"GET /objects/{resource_id}/x\" }";
    let conflict = Do::Say(with(409, "", r#"{"error":{"resource_id":"re/1"}}"#));
    let mine = Do::Say(ok(&format!(r#"{{"id":"re/1","reference":"{KEY}"}}"#)));
    let theirs = Do::Say(ok(r#"{"reference":"order 7"}"#));
    let word = |s: &Sent| match s {
        Sent::Applied(_) => "applied",
        Sent::Refused(_) => "refused",
        Sent::Unknown { .. } => "unknown",
        _ => "other",
    };
    for (fetched, first, again) in [
        (mine, "applied", "applied"),
        (theirs, "refused", "unknown"),
        (Do::Say(ok("{}")), "unknown", "unknown"),
        (Do::Say(ok("<html>")), "unknown", "unknown"),
        (Do::Say(with(404, "", "{}")), "unknown", "unknown"),
        (Do::Cut, "unknown", "unknown"),
        (Do::Hang, "unknown", "unknown"),
    ] {
        for (replay, want) in [(false, first), (true, again)] {
            let server = Server::start(vec![conflict.clone(), fetched.clone()]).await;
            let i = api(&format!("http://{}", server.at), unique);
            let sent = executor(&i).send(&intent(&i, None, "{}"), &key(), replay, Millis(500)).await;
            assert_eq!(word(&sent), want, "{sent:?}");
            let seen = server.seen();
            assert!(seen[0].ends_with(&format!("{{\"reference\":\"{KEY}\"}}")));
            assert!(seen[1].starts_with("GET /objects/re%2F1/x HTTP/1.1"), "{}", seen[1]);
        }
    }
    // By the preset: the object's own path, and the key it shows.
    let server = Server::start(vec![
        Do::Say(with(409, "", r#"{"type":"idempotency_key_already_used_error","resource_id":"t_1"}"#)),
        Do::Say(ok(&format!(r#"{{"idempotency_key":"{KEY}"}}"#))),
    ])
    .await;
    let i = api(
        &format!("http://{}", server.at),
        "preset = \"increase\"\n[methods.m]\nhttp = \"POST /transfers\"",
    );
    let sent = executor(&i).send(&intent(&i, None, "{}"), &key(), true, Millis(500)).await;
    assert!(matches!(sent, Sent::Applied(_)), "{sent:?}");
    assert!(server.seen()[1].starts_with("GET /transfers/t_1 "));
}

#[tokio::test]
async fn reads() {
    let read = |i: Integration, ms: i64| async move {
        executor(&i).read(i.method("r").unwrap(), r#"{"q":"a b"}"#, Millis(ms)).await.unwrap()
    };
    let get = "[methods.r]\nhttp = \"GET /r\"";
    let server =
        Server::start(vec![Do::Say(with(302, "location: /next?x=1\r\n", "")), Do::Say(ok("{\"a\":1}"))])
            .await;
    let ReadOutcome::Answered(r) = read(api(&format!("http://{}", server.at), get), 1000).await else {
        panic!("no answer")
    };
    assert_eq!(r.json.unwrap().get(), "{\"a\":1}");
    assert!(
        server.seen()[0].starts_with("GET /r?q=a%20b ") && server.seen()[1].starts_with("GET /next?x=1 ")
    );

    let away = Server::start(vec![Do::Say(ok("{}"))]).await;
    for (location, requests) in
        [(format!("http://{}/", away.at), 1), ("http://a b/".to_owned(), 1), ("/again".to_owned(), 4)]
    {
        let server = Server::start(vec![Do::Say(with(302, &format!("location: {location}\r\n"), ""))]).await;
        assert!(
            matches!(
                read(api(&format!("http://{}", server.at), get), 1000).await,
                ReadOutcome::Unavailable { .. }
            ),
            "{location}"
        );
        assert_eq!((server.seen().len(), away.seen().len()), (requests, 0), "{location}");
    }
    for behaviour in [Do::Cut, Do::Hang] {
        let server = Server::start(vec![behaviour]).await;
        assert!(matches!(
            read(api(&format!("http://{}", server.at), get), 300).await,
            ReadOutcome::Unavailable { .. }
        ));
        assert_eq!(server.seen().len(), 1);
    }
    let server = Server::start(vec![Do::Say(with(404, "", "{}"))]).await;
    assert!(
        matches!(read(api(&format!("http://{}", server.at), get), 1000).await, ReadOutcome::Answered(r) if r.status == 404)
    );
}
