//! `call` where an earlier send may have been carried out: what the last one was told is not told of all of them, and the exit
//! code says what the very same command would be.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Dir, Ran};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What a server does with a call of a tool.
#[derive(Clone)]
enum Act {
    /// It is read, and never answered.
    Cut,
    /// An HTTP status.
    Status(u16),
    /// An error that a model can act on.
    Kind(Value),
    /// It runs, and is to be asked for again.
    Leg,
    /// Nobody listens any more.
    Gone,
}

/// The keys of the calls that came.
type Keys = Arc<Mutex<Vec<String>>>;

/// A server that takes keys and does this with calls of its tool, one after another.
fn server(acts: Vec<Act>, read_only: bool) -> (String, Keys) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let keys = Keys::default();
    let (seen, mut acts) = (keys.clone(), acts.into_iter().peekable());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Some(asked) = request(&stream) else { continue };
            let told = |result: Value| json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result });
            let (status, body) = match asked["method"].as_str().unwrap() {
                "tools/list" => {
                    let hints = json!({ "readOnlyHint": read_only });
                    let tool =
                        json!({ "name": "t", "inputSchema": { "type": "object" }, "annotations": hints });
                    (200, told(json!({ "resultType": "complete", "tools": [tool] })))
                }
                "tools/call" => {
                    let key = &asked["params"]["_meta"]["dev.counterfoil/idempotency-key"];
                    seen.lock().unwrap().push(key.as_str().unwrap().to_owned());
                    match acts.next().unwrap() {
                        Act::Cut => continue,
                        Act::Gone => return,
                        Act::Leg => {
                            (200, told(json!({ "resultType": "input_required", "requestState": "s-1" })))
                        }
                        Act::Status(status) => (status, json!({ "error": "no" })),
                        Act::Kind(error) => {
                            let content = [json!({ "type": "text", "text": "It was told." })];
                            let meta = json!({ "dev.counterfoil/error": error });
                            (
                                200,
                                told(
                                    json!({ "resultType": "complete", "content": content, "isError": true, "_meta": meta }),
                                ),
                            )
                        }
                    }
                }
                _ => {
                    let extensions = json!({ "dev.counterfoil/idempotency": {} });
                    let capabilities = json!({ "tools": {}, "extensions": extensions });
                    let about = json!({ "name": "s", "version": "1" });
                    (
                        200,
                        told(
                            json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities, "serverInfo": about }),
                        ),
                    )
                }
            };
            let body = body.to_string();
            let head = "content-type: application/json\r\nconnection: close";
            let _ = write!(
                &stream,
                "HTTP/1.1 {status} S\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            if matches!(acts.peek(), Some(Act::Gone)) {
                return;
            }
        }
    });
    (url, keys)
}

/// The message of a request.
fn request(stream: &TcpStream) -> Option<Value> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? < 3 {
            break;
        }
        if let Some((_, n)) = line.to_ascii_lowercase().split_once("content-length:") {
            length = n.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

/// Calls a server that does this, without a key and with one; what came of both.
fn called_of(acts: &[Act], read_only: bool) -> [Ran; 2] {
    [&[][..], &["--key", "k-1"]].map(|key| {
        let (url, keys) = server(acts.to_vec(), read_only);
        // A leg is no failure.
        let retries =
            acts.iter().filter(|act| !matches!(act, Act::Leg)).count().saturating_sub(1).to_string();
        let ran = Dir::new().run(&[&["call", &url, "t", "--json", "--retries", &retries], key].concat());
        let keys = keys.lock().unwrap();
        let heard = acts.iter().filter(|act| !matches!(act, Act::Gone)).count();
        assert_eq!(keys.len(), heard, "{ran:?}");
        assert!(keys.iter().all(|k| *k == keys[0]), "{keys:?}");
        if ran.json()["error"]["kind"] == "unknown" {
            // The key with which it is the same operation, whoever made it.
            assert_eq!(ran.json()["error"]["detail"]["key"], keys[0], "{ran:?}");
            assert!(ran.stderr.contains(&format!("--key {}, and only with that", keys[0])), "{ran:?}");
        }
        ran
    })
}

fn called(acts: &[Act]) -> [Ran; 2] {
    called_of(acts, false)
}

#[test]
fn an_open_end_is_safe_to_repeat_only_under_a_key_of_the_command() {
    let running = json!({ "kind": "still_running", "operationId": "op_1", "retryAfterMs": 1 });
    let unknown = json!({ "kind": "admission_unknown", "retryAfterMs": 1 });
    for acts in [vec![Act::Cut], vec![Act::Kind(running)], vec![Act::Cut, Act::Kind(unknown)]] {
        let [bare, keyed] = called(&acts);
        assert_eq!((bare.code, keyed.code), (3, 5), "{bare:?} {keyed:?}");
    }
}

#[test]
fn what_the_last_send_is_told_is_not_told_of_all() {
    let unavailable = json!({ "kind": "unavailable", "retryAfterMs": 1 });
    let limited = json!({ "kind": "limited", "retryAfterMs": 3_600_000 });
    let lasts = [Act::Kind(unavailable.clone()), Act::Kind(limited), Act::Status(401), Act::Status(404)];
    // After a leg it is there and runs, whoever answers next or doesn't.
    let legs = lasts.clone().map(|last| vec![Act::Leg, last]);
    let more = [vec![Act::Leg, Act::Gone], vec![Act::Leg; 10]];
    for acts in lasts.map(|last| vec![Act::Cut, last]).into_iter().chain(legs).chain(more) {
        let [bare, keyed] = called(&acts);
        assert_eq!((bare.code, keyed.code), (3, 5), "{bare:?} {keyed:?}");
        for ran in [bare, keyed] {
            assert_eq!(ran.json()["error"]["kind"], "unknown", "{ran:?}");
            assert!(ran.stderr.contains("It may have been carried out"), "{ran:?}");
        }
    }
    // Where nothing was open before, or it is about the operation, it is as it says.
    for (acts, code) in [
        (vec![Act::Kind(unavailable.clone())], 5),
        (vec![Act::Cut, Act::Kind(json!({ "kind": "unavailable", "operationId": "op_1" }))], 5),
        (vec![Act::Cut, Act::Kind(json!({ "kind": "in_doubt", "operationId": "op_1" }))], 3),
        (vec![Act::Status(401)], 2),
    ] {
        for ran in called(&acts) {
            assert_eq!(ran.code, code, "{ran:?}");
            assert_ne!(ran.json()["error"]["kind"], "unknown", "{ran:?}");
        }
    }
}

#[test]
fn what_only_reads_may_come_again_whatever_became_of_it() {
    let unavailable = Act::Kind(json!({ "kind": "unavailable", "retryAfterMs": 1 }));
    for acts in [vec![Act::Cut], vec![Act::Cut, Act::Cut], vec![Act::Leg, Act::Gone], vec![Act::Leg; 10]] {
        for ran in called_of(&acts, true) {
            assert_eq!(ran.code, 5, "{ran:?}");
            assert_ne!(ran.json()["error"]["kind"], "unknown", "{ran:?}");
            assert!(!ran.stderr.contains("may have been carried out"), "{ran:?}");
        }
    }
    let lost = called_of(&[Act::Cut], true);
    assert!(lost.iter().all(|ran| ran.stderr.contains("It only reads")), "{lost:?}");
    // Every answer is its own.
    for (acts, code) in [(vec![Act::Cut, unavailable], 5), (vec![Act::Cut, Act::Status(401)], 2)] {
        for ran in called_of(&acts, true) {
            assert_eq!(ran.code, code, "{ran:?}");
        }
    }
}
