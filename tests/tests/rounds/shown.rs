//! What a person is shown before a yes is what the provider gets, field for field, though every replica ended in between.

use crate::stage::Stage;
use anyhow::{Context, Result, ensure};
use counterfoil_tests::http;
use counterfoil_tests::stand::Project;
use counterfoil_tests::wire::{self, META_KEY};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
const TOOL: &str = "shop_orders_create";

/// A request as the provider got it: its first line, its `Host` and its body.
struct Got {
    line: String,
    host: String,
    body: String,
}

/// A provider that agrees to everything, and tells what it got.
fn provider() -> Result<(SocketAddr, Receiver<Got>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut line, mut host, mut length) = (String::new(), String::new(), 0);
            reader.read_line(&mut line).unwrap();
            loop {
                let mut header = String::new();
                reader.read_line(&mut header).unwrap();
                let Some((name, value)) = header.trim().split_once(':') else { break };
                match name.to_lowercase().as_str() {
                    "host" => value.trim().clone_into(&mut host),
                    "content-length" => length = value.trim().parse().unwrap(),
                    _ => {}
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\nConnection: close\r\n\r\n{\"ok\":true}";
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
            let body = String::from_utf8(body).unwrap();
            if tell.send(Got { line: line.trim().to_owned(), host, body }).is_err() {
                return;
            }
        }
    });
    Ok((addr, told))
}

/// Its manifest, in a folder of its own, and what the configuration says of it.
fn manifest(folder: &Project, at: SocketAddr) -> Result<String> {
    let file = folder.path().join("shop.toml");
    let text = format!(
        "name = \"shop\"\nbase_url = \"http://{at}\"\npreset = \"none\"\n\n[methods.\"orders.create\"]\n\
         http = \"POST /orders\"\ndescription = \"Order something.\"\neffect = \"mutating\"\nrecovery = \"none\"\n\
         input = '''{{\"type\":\"object\",\"properties\":{{\"note\":{{\"type\":\"string\"}},\"amount\":{{\"type\":\"number\"}},\
         \"to\":{{\"type\":\"object\"}},\"tags\":{{\"type\":\"array\"}}}}}}'''\n"
    );
    std::fs::write(&file, text)?;
    Ok(format!(
        "\n[[integration]]\nname = \"shop\"\nmanifest = \"{}\"\n\n[tools.\"shop.orders.create\"]\napproval = \"always\"\n",
        file.display()
    ))
}

/// A call whose user can be asked, and its result. The arguments are sent as they are written.
fn call(front: SocketAddr, arguments: &str, more: &Value) -> Result<Value> {
    let about =
        json!({ META_KEY: "shown", "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} } });
    let mut params = json!({ "name": TOOL, "arguments": "ARGUMENTS", "_meta": wire::meta(&about) });
    for (name, value) in more.as_object().into_iter().flatten() {
        params[name] = value.clone();
    }
    let whole = params.to_string().replace("\"ARGUMENTS\"", arguments);
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{whole}}}"#);
    let host = front.to_string();
    let headers = [
        ("Host", host.as_str()),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", wire::VERSION),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", TOOL),
    ];
    let reply = http::once(front, LIMIT, &http::request("POST", "/mcp", &headers, body.as_bytes()))?;
    let message: Value = serde_json::from_str(&reply.message()).with_context(|| reply.text())?;
    ensure!(message["result"].is_object(), "{message}");
    Ok(message["result"].clone())
}

type Members = BTreeMap<String, Box<RawValue>>;

/// Its fields by their paths, each value as it came.
fn fields(path: &str, body: &str) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for (name, value) in serde_json::from_str::<Members>(body)? {
        let path = if path.is_empty() { name } else { format!("{path}.{name}") };
        if value.get().starts_with('{') {
            all.extend(fields(&path, value.get())?);
        } else {
            all.push(format!("{path}: {}", value.get()));
        }
    }
    all.sort();
    Ok(all)
}

#[test]
fn what_was_shown_is_what_is_sent_after_every_replica_was_restarted() -> Result<()> {
    let home = Project::empty()?;
    let (at, got) = provider()?;
    let stage = Stage::open(false, &manifest(&home, at)?)?;
    let arguments = r#"{"amount":12345678901234567890.10,"note":"x\namount: 1","to":{"iban":"DE1","total":3},"tags":[1,"b"]}"#;
    let asked = call(stage.front, arguments, &json!({}))?;
    let message = asked["inputRequests"]["approval"]["params"]["message"].as_str();
    let message = message.with_context(|| asked.to_string())?;
    let state = asked["requestState"].clone();

    for n in 0..3 {
        stage.cluster().kill(n);
    }
    for n in 0..3 {
        stage.cluster().revive(&stage.project, n)?;
    }
    stage.cluster().all_ready(LIMIT)?;
    ensure!(
        matches!(got.recv_timeout(Duration::from_millis(500)), Err(RecvTimeoutError::Timeout)),
        "it was sent before the yes"
    );
    let yes = json!({ "approval": { "action": "accept", "content": { "approve": true } } });
    let more = json!({ "requestState": state, "inputResponses": yes });
    let done = call(stage.front, arguments, &more)?;
    ensure!(done["resultType"] == "complete" && done["isError"] == json!(false), "{done}");
    let sent = got.recv_timeout(LIMIT).context("nothing was sent")?;

    let mut lines = message.lines().skip(2);
    let head = lines.next().unwrap_or_default();
    let path = sent.line.split(' ').nth(1).unwrap_or_default();
    ensure!(head == format!("POST http://{}{path}", sent.host), "{head:?} and {:?}", sent.line);
    let mut shown: Vec<&str> = lines.filter(|line| !line.starts_with("header ")).collect();
    shown.sort_unstable();
    let received = fields("", &sent.body)?;
    ensure!(shown == received, "shown: {shown:?}\nsent: {received:?}");
    ensure!(received.contains(&"amount: 12345678901234567890.10".to_owned()), "{received:?}");
    // The yes again sends nothing again.
    let again = call(stage.front, arguments, &more)?;
    ensure!(again["content"] == done["content"], "{again}");
    ensure!(got.recv_timeout(Duration::from_millis(500)).is_err(), "it was sent twice");
    Ok(())
}
