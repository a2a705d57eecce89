//! A provider that repeats the credential that it was sent: it is in nothing that comes of the exchange.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::{key, parse, word};
use counterfoil_provider::{ConfigCredentials, HttpExecutor, Integration, ReadOutcome, render};
use ledger::{Executor, Looked, Millis, Sent};
use std::sync::{Arc, Mutex};

const SECRET: &str = "sk+live/CANARY=7";

fn api(at: std::net::SocketAddr, auth: &str, methods: &str) -> (Integration, HttpExecutor) {
    let i = parse(&format!(
        "name = \"p\"\nbase_url = {{ sandbox = \"http://{at}\", production = \"http://{at}\" }}\npreset = \"stripe\"\n[auth]\n{auth}\nsecret = \"${{env:K}}\"\n{methods}"
    ))
    .unwrap();
    let env = |_: &str| Some(SECRET.to_owned());
    let x = HttpExecutor::new(Arc::new(ConfigCredentials::load_with(std::slice::from_ref(&i), env).unwrap()));
    (i, x)
}

const METHODS: &str = "[methods.m]\nhttp = \"POST /m\"\nlookup = { http = \"GET /m\", items = \"/data\", match = { \"/k\" = \"{key}\" } }\n[methods.get]\nhttp = \"GET /m\"";
const KINDS: [&str; 5] = [
    "kind = \"bearer\"",
    "kind = \"basic\"\nusername = \"org\"",
    "kind = \"basic\"",
    "kind = \"header\"\nheader = \"X-Key\"",
    "kind = \"query\"\nquery = \"api key\"",
];

/// What a request was authenticated with, as a server reads it and as it came.
fn told(head: &str) -> String {
    let line = head.lines().next().unwrap();
    let lines = head.lines().filter(|l| {
        let l = l.to_ascii_lowercase();
        l.starts_with("authorization") || l.starts_with("x-key")
    });
    let all: Vec<&str> = std::iter::once(line).chain(lines).collect();
    let pair = head.split("Basic ").nth(1).and_then(|rest| {
        use base64::Engine as _;
        let pair = rest.lines().next()?.trim();
        String::from_utf8(base64::engine::general_purpose::STANDARD.decode(pair).ok()?).ok()
    });
    format!("{} {}", all.join(" | "), pair.unwrap_or_default())
}

fn clean(what: &str, said: &str) {
    let pair = "b3JnOnNrK2xpdmUvQ0FOQVJZPTc";
    assert!(!said.contains("CANARY") && !said.contains(pair) && said.contains("****"), "{what}: {said}");
}

#[tokio::test]
async fn answers_of_every_kind_are_kept_without_it() {
    for auth in KINDS {
        for status in [200, 401, 402, 409, 429, 500] {
            let at = common::server(move |head| {
                let told = told(head);
                (status, serde_json::json!({ "k": "x", "said": told, "data": [{ "k": told }] }).to_string())
            });
            let (i, x) = api(at.await, auth, METHODS);
            let m = i.method("m").unwrap();
            let intent = m.intent("{}", &m.recovery(None).unwrap()).unwrap();
            for replay in [false, true] {
                let sent = x.send(&intent, &key(), replay, Millis(3000)).await;
                let said = match &sent {
                    Sent::Applied(r) | Sent::Refused(r) => {
                        let shown = render(&r.0);
                        clean(auth, &String::from_utf8(shown.result).unwrap());
                        String::from_utf8(r.0.clone()).unwrap()
                    }
                    other => format!("{other:?} ****"),
                };
                clean(&format!("{auth} {status} {}", word(&sent)), &said);
            }
            let get = i.method("get").unwrap();
            let ReadOutcome::Answered(read) = x.read(get, "{}", Millis(3000)).await.unwrap() else {
                panic!()
            };
            clean(auth, &format!("{read:?} {}", String::from_utf8(read.keep().0).unwrap()));
        }
    }
}

#[tokio::test]
async fn what_is_found_is_kept_without_it() {
    for auth in KINDS {
        let at = common::server(|head| {
            let key = key();
            let one = serde_json::json!({ "k": key.as_str(), "said": told(head) });
            (200, serde_json::json!({ "data": [one] }).to_string())
        });
        let (i, x) = api(at.await, auth, METHODS);
        let m = i.method("m").unwrap();
        let intent = m.intent("{}", &m.recovery(None).unwrap()).unwrap();
        match x.look_up(&intent, &key(), Millis(3000)).await {
            Looked::Found(r) => clean(auth, &String::from_utf8(r.0).unwrap()),
            other => panic!("{auth}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn codes_and_words_of_refusals_are_told_without_it() {
    let at =
        common::server(|head| (200, serde_json::json!({ "ok": false, "error": told(head) }).to_string()));
    let rest =
        format!("[execution_policy.idempotency]\nok = {{ at = \"/ok\" }}\ncode_at = \"/error\"\n{METHODS}");
    let (i, x) = api(at.await, "kind = \"bearer\"", &rest);
    let m = i.method("m").unwrap();
    let intent = m.intent("{}", &m.recovery(None).unwrap()).unwrap();
    match x.send(&intent, &key(), true, Millis(3000)).await {
        Sent::Unknown { why, .. } => clean("a code", &why),
        other => panic!("{other:?}"),
    }
    match x.look_up(&intent, &key(), Millis(3000)).await {
        Looked::Unknown { why } => clean("a look-up's code", &why),
        other => panic!("{other:?}"),
    }
}

/// A server whose first answers lead to others that `way` makes of the path that was asked for; the paths.
async fn leading(way: fn(&str) -> String) -> (std::net::SocketAddr, Arc<Mutex<Vec<String>>>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (at, paths) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let seen = paths.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut some = vec![0; 16 << 10];
            let n = stream.read(&mut some).await.unwrap();
            let head = String::from_utf8_lossy(&some[..n]).into_owned();
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let head = if path.contains("page=2") { "HTTP/1.1 200 X\r\n".into() } else { way(&path) };
            seen.lock().unwrap().push(path);
            let body = r#"{"data":[]}"#;
            let all = format!("{head}connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(all.as_bytes()).await.unwrap();
        }
    });
    (at, paths)
}

/// A credential in the query comes back in links and redirects; where they lead is asked for with it, once.
#[tokio::test]
async fn links_and_redirects_lead_on() {
    let once = |paths: &Mutex<Vec<String>>| {
        let paths = paths.lock().unwrap();
        assert_eq!(paths.len(), 2, "{paths:?}");
        for path in paths.iter() {
            assert!(path.matches("CANARY").count() == 1 && !path.contains("****"), "{path}");
        }
    };
    let auth = "kind = \"query\"\nquery = \"key\"";
    let methods = "[methods.m]\nhttp = \"POST /m\"\nlookup = { http = \"GET /m\", query = { k = \"{key}\" }, items = \"/data\", match = { \"/k\" = \"{key}\" }, next = { link = \"next\" } }\n[methods.get]\nhttp = \"GET /m\"";
    let (at, paths) =
        leading(|path| format!("HTTP/1.1 200 X\r\nlink: <{path}&page=2>; rel=\"next\"\r\n")).await;
    let (i, x) = api(at, auth, methods);
    let m = i.method("m").unwrap();
    let intent = m.intent("{}", &m.recovery(None).unwrap()).unwrap();
    let looked = x.look_up(&intent, &key(), Millis(3000)).await;
    assert!(matches!(looked, Looked::NotFound), "{looked:?}");
    once(&paths);
    let (at, paths) = leading(|path| format!("HTTP/1.1 302 X\r\nlocation: {path}&page=2\r\n")).await;
    let (i, x) = api(at, auth, methods);
    let read = x.read(i.method("get").unwrap(), "{}", Millis(3000)).await.unwrap();
    assert!(matches!(&read, ReadOutcome::Answered(r) if r.status == 200), "{read:?}");
    once(&paths);
}
