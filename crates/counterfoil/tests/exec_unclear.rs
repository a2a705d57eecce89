//! `exec` from the shell where its end is unclear or its result is odd: what it says, and that nothing is lost.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::ask::{REFUND, refund};
use common::{Dir, Ran};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixListener;

/// A process that holds the ledger, takes whatever it is asked, and never answers.
fn silent(dir: &Dir) {
    let data = dir.path().join(".counterfoil");
    std::fs::DirBuilder::new().mode(0o700).create(&data).unwrap();
    let listener = UnixListener::bind(data.join("control.sock")).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            // The first part of the request, or the end of who only looked whether somebody is there.
            let _ = stream.read(&mut [0; 4096]);
        }
    });
}

fn exec(dir: &Dir, more: &[&str]) -> Ran {
    let body = refund("x").to_string();
    dir.run(&[&["exec", REFUND, "--json", "--body", &body], more].concat())
}

#[test]
fn without_a_key_a_lost_answer_is_in_doubt() {
    let dir = Dir::new();
    silent(&dir);
    let lost = exec(&dir, &[]).expect(3);
    assert_eq!(lost.json()["error"]["kind"], "unknown", "{lost:?}");
    for words in ["It may have been carried out", "without --key", "`counterfoil ops list` first"] {
        assert!(lost.stderr.contains(words), "{lost:?}");
    }
    assert!(!format!("{lost:?}").contains("nothing was changed"), "{lost:?}");
    // Under its key the same again is safe; a dry run does nothing.
    let (by_key, dry) = ("With the same --key", "Nothing is sent by a dry run");
    for (more, says, not) in [
        (&["--key", "k-1"][..], by_key, dry),
        (&["--dry-run"], dry, by_key),
        (&["--dry-run", "--key", "k-1"], dry, by_key),
    ] {
        let lost = exec(&dir, more).expect(5);
        assert!(lost.stderr.contains(says) && !lost.stderr.contains(not), "{lost:?}");
        assert_eq!(lost.json()["error"]["kind"], "unavailable", "{lost:?}");
        assert!(!format!("{lost:?}").contains("nothing was changed"), "{lost:?}");
    }
}

/// A provider that answers each request with this body.
fn provider(body: String) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut length = 0;
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) < 3 {
                    break;
                }
                if let Some((_, n)) = line.to_ascii_lowercase().split_once("content-length:") {
                    length = n.trim().parse().unwrap();
                }
            }
            let _ = reader.read_exact(&mut vec![0; length]);
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = reader.get_mut().write_all(answer.as_bytes());
        }
    });
    at
}

fn things(dir: &Dir, at: std::net::SocketAddr, auth: &str) {
    dir.write(
        "things.toml",
        &format!(
            "name = \"things\"\nbase_url = {{ sandbox = \"http://{at}\" }}\n{auth}[methods.make]\nhttp = \"POST /things\"\n"
        ),
    );
    dir.write(
        "counterfoil.toml",
        "[server]\nmode = \"sandbox\"\nlisten = \"127.0.0.1:0\"\n[[integration]]\nname = \"things\"\nmanifest = \"things.toml\"\n",
    );
}

#[test]
fn a_result_keeps_every_digit() {
    let dir = Dir::new();
    things(&dir, provider(r#"{"id":12345678901234567890123,"big":1e400,"price":1.10}"#.into()), "");
    for replayed in [false, true] {
        let ran = dir.run(&["exec", "things.make", "--key", "k-1", "--json"]).expect(0);
        for number in ["12345678901234567890123", "1e400", "1.10"] {
            assert!(ran.stdout.contains(number), "{number}: {ran:?}");
        }
        assert!(ran.stdout.contains(&format!(r#""replayed":{replayed}"#)), "{ran:?}");
        assert!(
            ran.stdout.contains(r#""result":{"#) && ran.stdout.trim_end().lines().count() == 1,
            "{ran:?}"
        );
    }
    let told = dir.run(&["exec", "things.make", "--key", "k-1"]).expect(0).stdout;
    assert!(
        told.contains("12345678901234567890123") && told.contains("1e400") && told.contains("1.10"),
        "{told}"
    );
}

#[test]
fn what_is_known_is_answered_without_the_credential_of_its_principal() {
    let dir = Dir::new();
    let at = provider(r#"{"id":"thing-1"}"#.into());
    let make = |key: &str| dir.run(&["exec", "things.make", "--key", key, "--principal", "ann", "--json"]);
    things(&dir, at, "");
    let first = make("k-1").expect(0).json();
    // From now on each principal gives its own, and nobody did.
    things(&dir, at, "[auth]\nkind = \"bearer\"\nper = \"principal\"\n");
    let served = dir.serve(&[]);
    let again = make("k-1").expect(0).json();
    assert_eq!(again["operation"]["id"], first["operation"]["id"], "{again}");
    assert_eq!(
        (&again["operation"]["replayed"], &again["result"]),
        (&serde_json::json!(true), &first["result"])
    );
    let fresh = make("k-2").expect(1).json();
    assert_eq!(fresh["error"]["kind"], "credential_required", "{fresh}");
    assert_eq!(served.stop(), 0);
}

#[test]
fn a_number_in_the_place_of_text_is_told_how_to_be_text() {
    let dir = Dir::new();
    let get = |id: &str| dir.run(&["exec", "payments.payments.get", "--param", id]);
    let told = get("id=5").expect(2).stderr;
    assert!(told.contains(r#"--param 'id="5"'"#), "{told}");
    // As told, it fits: only there is no such payment.
    let fits = get(r#"id="5""#);
    assert!(fits.code != 2 && !fits.stderr.contains("--param"), "{fits:?}");
}
