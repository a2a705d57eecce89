//! Bad input, by the table in `counterfoil_tests::bad_input`: every row against the real binary, then what the
//! ledger and the provider counted; and every row against the book.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use counterfoil_tests::bad_input::{
    Answer, Ask, Body, CONFIG, MIRRORED, NOT_BY_INPUT, ROWS, Row, STRICT, Server, TOOL, manifest,
};
use counterfoil_tests::http::{self, Reply};
use counterfoil_tests::process::project;
use counterfoil_tests::stand::{Gateway, Project, Sandbox};
use counterfoil_tests::wire::{META_ERROR, META_OPERATION, Members, VERSION};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(20);

/// What placeholders stand for.
struct Words(BTreeMap<&'static str, String>);

impl Words {
    fn fill(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// Remembers what an answer gave.
    fn learn(&mut self, value: &Value) {
        let error = &value["result"]["_meta"][META_ERROR];
        let mut take = |name, value: &Value| {
            if let Some(text) = value.as_str() {
                self.0.insert(name, text.to_owned());
            }
        };
        take("$RETRY", &error["retryKey"]);
        take("$NEW", &error["newKey"]);
        take("$OPERATION", &value["result"]["_meta"][META_OPERATION]["id"]);
        if let Some(new) = error["newKey"].as_str() {
            let (head, last) = new.split_at(new.len() - 1);
            self.0.insert("$FORGED", format!("{head}{}", if last == "0" { "1" } else { "0" }));
        }
    }
}

/// The headers that are proper for a body.
fn proper(body: &Body) -> Vec<(&'static str, String)> {
    let mut headers = vec![
        ("Host", "$ADDR".to_owned()),
        ("Content-Type", "application/json".to_owned()),
        ("Accept", "application/json, text/event-stream".to_owned()),
        ("MCP-Protocol-Version", VERSION.to_owned()),
    ];
    match body {
        Body::Request(method, params, _) => {
            headers.push(("Mcp-Method", (*method).to_owned()));
            let members: Value =
                serde_json::from_str(&format!("{{{}}}", params.trim_end_matches(','))).unwrap_or_default();
            if let Some(name) = members["name"].as_str() {
                headers.push(("Mcp-Name", name.to_owned()));
            }
        }
        Body::Call(tool, ..) => {
            headers.push(("Mcp-Method", "tools/call".to_owned()));
            headers.push(("Mcp-Name", (*tool).to_owned()));
        }
        _ => {}
    }
    headers
}

fn body(body: &Body, words: &Words) -> Vec<u8> {
    let request = |method: &str, params: &str, meta: &str| {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":$ID,"method":"{method}","params":{{{params}"_meta":{meta}}}}}"#
        );
        words.fill(&text).into_bytes()
    };
    match body {
        Body::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => words.fill(text).into_bytes(),
            Err(_) => bytes.to_vec(),
        },
        Body::Filled(n) => [b"\"", vec![b'x'; n - 2].as_slice(), b"\""].concat(),
        Body::Nested(n) => [vec![b'['; *n], vec![b']'; *n]].concat(),
        Body::Request(method, params, meta) => request(method, params, meta),
        Body::Call(tool, arguments, params, meta) => {
            let params = format!(r#""name":"{tool}","arguments":{arguments},{params}"#);
            request("tools/call", &params, meta)
        }
    }
}

fn bytes(ask: &Ask, words: &Words) -> Vec<u8> {
    let mut headers = proper(&ask.body);
    let is = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    headers.retain(|(n, _)| !ask.without.iter().any(|w| is(w, n)) && !ask.set.iter().any(|(s, _)| is(s, n)));
    headers.extend(ask.set.iter().chain(ask.add).map(|(n, v)| (*n, (*v).to_owned())));
    let filled: Vec<_> = headers.iter().map(|(n, v)| (*n, words.fill(v))).collect();
    let headers: Vec<_> = filled.iter().map(|(n, v)| (*n, v.as_str())).collect();
    http::request(ask.verb, "/mcp", &headers, &body(&ask.body, words))
}

/// Whether a text is what a template says: `{…}` is anything but nothing, all else is literal.
fn fits(template: &str, text: &str) -> bool {
    let hole = template.find('{').and_then(|open| Some((open, open + template[open..].find('}')?)));
    let Some((open, close)) = hole else { return template == text };
    let (Some(rest), after) = (text.strip_prefix(&template[..open]), &template[close + 1..]) else {
        return false;
    };
    (1..=rest.len()).any(|n| rest.is_char_boundary(n) && fits(after, &rest[n..]))
}

/// What of an answer is not as the row says.
fn judge(row: &Row, id: &str, reply: &Reply) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut must = |good: bool, what: String| {
        if !good {
            wrong.push(what);
        }
    };
    must(reply.status == row.status, format!("status {}, not {}", reply.status, row.status));
    let message = reply.message();
    if row.answer == Answer::Nothing {
        must(message.is_empty(), format!("a body: {message}"));
        return wrong;
    }
    let value: Value = serde_json::from_str(&message).unwrap_or_default();
    // The id as it was written, not as it is read: it is echoed byte for byte.
    let members = serde_json::from_str::<Members>(&message).map(|m| m.0).unwrap_or_default();
    let echoed = members.iter().find(|(n, _)| n == "id").map(|(_, raw)| raw.get());
    must(echoed == row.echo.then_some(id), format!("id {echoed:?}"));
    must(value["jsonrpc"] == "2.0", "no JSON-RPC".into());
    let sole = members.iter().filter(|(n, _)| n == "result" || n == "error").count() == 1;
    must(sole, "neither result nor error, or both".into());
    let result = &value["result"];
    let text = match row.answer {
        Answer::Rpc(code) => {
            must(
                value["error"]["code"] == json!(code),
                format!("code {}, not {code}", value["error"]["code"]),
            );
            &value["error"]["message"]
        }
        Answer::Kind(kind, keys) => {
            let error = &result["_meta"][META_ERROR];
            must(error["kind"] == kind, format!("kind {}, not {kind}", error["kind"]));
            must(result["isError"] == true, "not isError".into());
            let has: BTreeSet<_> = error.as_object().into_iter().flatten().map(|(n, _)| n.as_str()).collect();
            let has: BTreeSet<_> =
                has.difference(&["kind", "advice", "operationId"].into()).copied().collect();
            must(has == keys.iter().copied().collect(), format!("members {has:?}, not {keys:?}"));
            must(error["advice"].is_string(), "no advice".into());
            must(result["structuredContent"]["error"] == *error, "structuredContent differs".into());
            &result["content"][0]["text"]
        }
        Answer::Result(joined) => {
            let operation = &result["_meta"][META_OPERATION];
            must(result["isError"] != true, format!("a refusal: {}", result["content"]));
            must(operation["joinedBy"] == json!(joined), format!("joined by {}", operation["joinedBy"]));
            must(operation["replayed"] == json!(joined.is_some()), "replayed".into());
            &Value::Null
        }
        Answer::Nothing => &Value::Null,
    };
    let text = text.as_str().unwrap_or_default();
    must(fits(row.text, text), format!("text\n     got {text}\n    want {}", row.text));
    for (at, want) in row.also {
        if at.starts_with('/') {
            let want: Value = serde_json::from_str(want).unwrap();
            must(value.pointer(at) == Some(&want), format!("{at}: {:?}", value.pointer(at)));
        } else {
            must(reply.header(at) == Some(want), format!("{at}: {:?}", reply.header(at)));
        }
    }
    wrong
}

/// A gateway with the table's tools, its folder and its API keys.
struct Stand {
    project: Project,
    gateway: Gateway,
    words: Words,
}

impl Stand {
    fn start(sandbox: SocketAddr, more: &str) -> Stand {
        let mut project = Project::with_classes_and(sandbox, &format!("{CONFIG}{more}")).unwrap();
        std::fs::write(project.path().join("integrations/lab.toml"), manifest(sandbox)).unwrap();
        let gateway = project.gateway(None).unwrap();
        let words = Words(BTreeMap::from([
            ("$ADDR", gateway.addr.to_string()),
            ("$FULL", "k".repeat(255)),
            ("$LONG", "k".repeat(256)),
            (
                "$META",
                format!(
                    r#""io.modelcontextprotocol/protocolVersion":"{VERSION}","io.modelcontextprotocol/clientCapabilities":{{}}"#
                ),
            ),
        ]));
        Stand { project, gateway, words }
    }

    fn api_key(&mut self, word: &'static str, principal: &str) -> String {
        let (code, made) = self.project.ask(&["api-keys", "create", "--principal", principal]).unwrap();
        assert_eq!(code, 0, "{made}");
        let key = made["key"].as_str().expect("the key itself").to_owned();
        assert!(key.starts_with("cfk_"), "{made}");
        self.words.0.insert(word, key);
        made["id"].as_str().expect("its id").to_owned()
    }

    fn send(&mut self, number: usize, row: &Row) -> Vec<String> {
        // Every second id is a text, with what a careless server would write otherwise.
        let id =
            if number.is_multiple_of(2) { format!("{number}") } else { format!(r#""\u0072ow/{number}""#) };
        self.words.0.insert("$ID", id.clone());
        match http::once(self.gateway.addr, TIMEOUT, &bytes(&row.ask, &self.words)) {
            Ok(reply) => {
                self.words.learn(&serde_json::from_str(&reply.message()).unwrap_or_default());
                judge(row, &id, &reply)
            }
            Err(e) => vec![format!("no answer: {e}")],
        }
    }

    /// Every operation of the ledger: tool and caller's key, the ledger's own keys as `(minted)`.
    fn operations(&self) -> Vec<(String, Option<String>)> {
        let (code, listed) = self.project.ask(&["ops", "list", "--limit", "1000"]).unwrap();
        assert_eq!(code, 0, "{listed}");
        let operations = listed["operations"].as_array().unwrap();
        for operation in operations {
            assert_eq!(operation["state"], "completed", "{operation}");
        }
        let key = |o: &Value| {
            o["key"].as_str().map(|k| if k.starts_with("nk_") { "(minted)".into() } else { k.to_owned() })
        };
        let mut all: Vec<_> =
            operations.iter().map(|o| (o["tool"].as_str().unwrap().to_owned(), key(o))).collect();
        all.sort();
        all
    }
}

/// The business object of a call, from the text of its arguments.
fn order(ask: &Ask) -> String {
    let Body::Call(_, arguments, ..) = ask.body else { panic!("only calls open operations") };
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    arguments["order_id"].as_str().unwrap().to_owned()
}

/// The key that a row's call has, as [`Stand::operations`] shows it.
fn key(ask: &Ask) -> Option<String> {
    let Body::Call(_, arguments, params, _) = ask.body else { panic!("only calls open operations") };
    let params: Value = serde_json::from_str(&format!("{{{}}}", params.trim_end_matches(','))).unwrap();
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    let key = params["idempotencyKey"].as_str().or(arguments["idempotency_key"].as_str())?;
    Some(key.replace("$FULL", &"k".repeat(255)).replace("$NEW", "(minted)"))
}

#[test]
fn every_row_is_answered_as_the_table_says_and_nothing_else_happens() {
    let folder = tempfile::tempdir().unwrap();
    let sandbox =
        Sandbox::start(&folder.path().join("sandbox"), &folder.path().join("sandbox.log"), "127.0.0.1:0")
            .unwrap();
    let mut open = Stand::start(sandbox.addr, "");
    let mut locked = Stand::start(sandbox.addr, "\n[auth]\nmode = \"api-key\"\n");
    locked.api_key("$ALICE", "alice");
    locked.api_key("$BOB", "bob");
    let revoked = locked.api_key("$REVOKED", "carol");
    let (code, answer) = locked.project.ask(&["api-keys", "revoke", &revoked]).unwrap();
    assert_eq!(code, 0, "{answer}");

    let mut failures = Vec::new();
    for (number, row) in ROWS.iter().enumerate() {
        let stand = if row.server == Server::Open { &mut open } else { &mut locked };
        let wrong = stand.send(number, row);
        if !wrong.is_empty() {
            failures.push(format!("{}:\n  {}", row.name, wrong.join("\n  ")));
        }
    }
    assert!(failures.is_empty(), "{} of {} rows:\n{}", failures.len(), ROWS.len(), failures.join("\n"));

    // The ledgers hold the proper calls, and the provider has applied each of them once, and nothing else.
    let proper: Vec<&Row> = ROWS.iter().filter(|r| r.answer == Answer::Result(None)).collect();
    for (stand, server) in [(&open, Server::Open), (&locked, Server::Locked)] {
        let calls = proper.iter().filter(|r| r.server == server);
        let mut expected: Vec<_> = calls.map(|r| ("lab.refunds.create".to_owned(), key(&r.ask))).collect();
        expected.sort();
        assert_eq!(stand.operations(), expected, "{server:?}");
    }
    let mut expected = BTreeMap::<String, u64>::new();
    for row in &proper {
        *expected.entry(order(&row.ask)).or_default() += 1;
    }
    let effects = sandbox.effects("").unwrap();
    assert_eq!(effects["total"], json!(proper.len()), "{effects}");
    assert_eq!(effects["byObject"], json!(expected), "{effects}");
    let payment = http::json(sandbox.addr, "GET", "/v1/payments/pay_demo_never", None).unwrap();
    assert_eq!(payment.json()["refunded"], json!(0), "{}", payment.text());

    // Both still serve.
    for stand in [&open, &locked] {
        assert_eq!(http::json(stand.gateway.addr, "GET", "/readyz", None).unwrap().status, 200);
    }
}

#[test]
fn a_body_that_ends_early_is_answered_and_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let sandbox =
        Sandbox::start(&folder.path().join("sandbox"), &folder.path().join("sandbox.log"), "127.0.0.1:0")
            .unwrap();
    let stand = Stand::start(sandbox.addr, "");
    let row = ROWS.iter().find(|r| r.answer == Answer::Result(None)).unwrap();
    let whole = bytes(&row.ask, &stand.words);
    let mut stream = TcpStream::connect_timeout(&stand.gateway.addr, TIMEOUT).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    // All of it but the closing brace, then the end: what has arrived must not be taken for the whole.
    stream.write_all(&whole[..whole.len() - 1]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let entry = &book()["body ended early"];
    assert_eq!(head.get(9..12).and_then(|s| s.parse().ok()), entry.status(), "{answer}");
    let body: Value = serde_json::from_str(body).unwrap();
    let error = json!({ "code": -32600, "message": entry.text() });
    assert_eq!(body, json!({ "jsonrpc": "2.0", "error": error }));
    assert_eq!(entry.get("code"), "-32600");
    assert!(stand.operations().is_empty());
    assert_eq!(sandbox.effects("").unwrap()["total"], 0);
}

/// A row of a table in the book, by the heads of its columns.
struct Entry {
    columns: BTreeMap<String, String>,
    /// The status that the section's text states for all its rows.
    status: Option<u16>,
}

impl Entry {
    fn get(&self, column: &str) -> &str {
        self.columns.get(column).map_or("", String::as_str)
    }

    fn status(&self) -> Option<u16> {
        self.get("HTTP").get(..3).and_then(|s| s.parse().ok()).or(self.status)
    }

    /// The literal text, without the marks of code around it.
    fn text(&self) -> &str {
        self.get("text").trim_matches('`').trim()
    }
}

/// The tables of `docs/reference/errors.md` that have causes and texts, by cause.
fn book() -> BTreeMap<String, Entry> {
    let path = project().join("docs/reference/errors.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut all = BTreeMap::new();
    let (mut heads, mut status) = (Vec::new(), None);
    for line in text.lines() {
        if line.starts_with("## ") {
            status = None;
        }
        let Some(cells) = line.strip_prefix('|').and_then(|l| l.strip_suffix('|')) else {
            heads.clear();
            status = status
                .or_else(|| line.starts_with("All 400").then_some(400))
                .or_else(|| line.starts_with("HTTP 200").then_some(200));
            continue;
        };
        let cells: Vec<&str> = cells.split(" | ").map(str::trim).collect();
        if heads.is_empty() {
            heads = cells;
        } else if !line.starts_with("| ---") && heads.contains(&"cause") && heads.contains(&"text") {
            assert_eq!(cells.len(), heads.len(), "{line}");
            let columns: BTreeMap<_, _> =
                heads.iter().zip(cells).map(|(h, c)| ((*h).to_owned(), c.to_owned())).collect();
            let cause = columns["cause"].clone();
            assert!(all.insert(cause.clone(), Entry { columns, status }).is_none(), "twice: {cause}");
        }
    }
    assert!(all.len() > 60, "{} rows were read from {}", all.len(), path.display());
    all
}

/// What a row and its entry in the book say differently.
fn differs(row: &Row, entry: &Entry) -> Vec<String> {
    let mut wrong = Vec::new();
    if entry.status() != Some(row.status) {
        wrong.push(format!("status {:?} in the book, {} here", entry.status(), row.status));
    }
    let mut said = row.text;
    match row.answer {
        Answer::Rpc(code) => {
            let column = format!("{}{}", entry.get("code"), entry.get("answer"));
            let first = column.split([',', ' ']).next().unwrap_or_default();
            if first != code.to_string() {
                wrong.push(format!("code {column:?} in the book, {code} here"));
            }
            for (at, _) in row.also.iter().filter(|(at, _)| at.starts_with("/error/data")) {
                let member = at.trim_start_matches("/error/").replace('/', ".");
                // The section's text tells of `data.offset`, the rows of the rest.
                if member != "data.offset" && !column.contains(&member) {
                    wrong.push(format!("{member} is not in the book"));
                }
            }
        }
        Answer::Kind(kind, keys) => {
            let place = format!("{} {}", entry.get("kind"), entry.get("answer"));
            if !place.contains(&format!("`{kind}`")) {
                wrong.push(format!("kind {place:?} in the book, {kind} here"));
            }
            let column = entry.get("keys");
            for name in ["retryKey", "newKey", "retryAfterMs"] {
                if column.contains(&format!("`{name}`")) != keys.contains(&name) {
                    wrong.push(format!("{name}: keys {column:?} in the book, {keys:?} here"));
                }
            }
            // The keys follow the text, as the book says above its table.
            for (name, mark) in [("newKey", " newKey: {key}"), ("retryKey", " retryKey: {key}")] {
                let rest = said.strip_suffix(mark);
                if rest.is_some() != keys.contains(&name) {
                    wrong.push(format!("{name} is not said at the end of the text"));
                }
                said = rest.unwrap_or(said);
            }
        }
        Answer::Result(_) | Answer::Nothing => wrong.push("is no refusal".into()),
    }
    for (header, value) in row.also.iter().filter(|(at, _)| !at.starts_with('/')) {
        let told = entry.get("HTTP").to_ascii_lowercase();
        if !told.contains(&format!("{header}: {value}").to_ascii_lowercase()) {
            wrong.push(format!("{header}: {value} is not in the book"));
        }
    }
    // An ellipsis at the end: the text goes on as that of a row above.
    let template = entry.text();
    let template = match template.strip_suffix('…') {
        Some(head) => format!("{head}{{rest}}"),
        None => template.to_owned(),
    };
    if !fits(&template, said) {
        wrong.push(format!("text\n    book {}\n    here {said}", entry.text()));
    }
    wrong
}

#[test]
fn the_book_says_what_the_table_says() {
    let book = book();
    let mut failures = Vec::new();
    for row in ROWS.iter().filter(|r| !matches!(r.answer, Answer::Result(_) | Answer::Nothing)) {
        let wrong = match book.get(row.cause) {
            Some(entry) => differs(row, entry),
            None => vec![format!("no cause {:?} in the book", row.cause)],
        };
        if !wrong.is_empty() {
            failures.push(format!("{}:\n  {}", row.name, wrong.join("\n  ")));
        }
    }
    let tried: BTreeSet<&str> = ROWS.iter().map(|r| r.cause).chain(NOT_BY_INPUT.iter().copied()).collect();
    for cause in book.keys().filter(|c| !tried.contains(c.as_str())) {
        failures.push(format!("no row tries {cause:?}"));
    }
    for cause in NOT_BY_INPUT.iter().filter(|c| !book.contains_key(**c)) {
        failures.push(format!("the book has no cause {cause:?}"));
    }
    assert!(failures.is_empty(), "{}:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn the_table_can_be_read() {
    let names: BTreeSet<_> = ROWS.iter().map(|r| r.name).collect();
    assert_eq!(names.len(), ROWS.len(), "two rows have one name");
    for row in ROWS {
        let refusal = !matches!(row.answer, Answer::Result(_) | Answer::Nothing);
        assert_eq!(refusal, !row.cause.is_empty(), "{}", row.name);
        assert_eq!(refusal, !row.text.is_empty(), "{}", row.name);
    }
    let tools = [TOOL, STRICT, MIRRORED];
    assert!(
        tools.iter().all(|t| ROWS.iter().any(|r| matches!(r.ask.body, Body::Call(tool, ..) if tool == *t)))
    );
    // The reading of templates itself: a hole is never empty, and what is literal counts to the end.
    assert!(fits("a {x} c{y}", "a b b cd") && fits("plain", "plain"));
    assert!(!fits("a {x} c", "a  c") && !fits("a {x}", "a ") && !fits("a {x} c", "a b c d"));
}
