//! Bad input, by the table in `counterfoil_tests::bad_input`: every row against the real binary, then what the
//! ledger and the provider counted; and every row against the book.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use counterfoil_tests::bad_input::ask::{Words, bytes};
use counterfoil_tests::bad_input::book::{book, differs, fits, misquotes};
use counterfoil_tests::bad_input::lines::{LINES, Line, Served};
use counterfoil_tests::bad_input::{
    Answer, Ask, Body, CONFIG, MIRRORED, NOT_BY_INPUT, Row, SERVERS, STRICT, Server, TOOL, manifest, rows,
};
use counterfoil_tests::http::{self, Reply};
use counterfoil_tests::native::Fixture;
use counterfoil_tests::stand::{Gateway, Project, Sandbox};
use counterfoil_tests::stdio::{End, talk};
use counterfoil_tests::wire::{META_ERROR, META_OPERATION, Members, VERSION};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(20);

/// What of an answer is not as the row says.
fn judge(row: &Row, id: &str, reply: &Reply) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut must = |good: bool, what: String| {
        if !good {
            wrong.push(what);
        }
    };
    must(reply.status == row.status, format!("status {}, not {}", reply.status, row.status));
    if row.answer == Answer::Stream {
        let kind = reply.header("content-type");
        must(kind == Some("text/event-stream"), format!("content type {kind:?}"));
        return wrong;
    }
    let mut message = reply.message();
    if row.answer == Answer::Nothing {
        must(message.is_empty(), format!("a body: {message}"));
        return wrong;
    }
    let whole: Value = serde_json::from_str(&message).unwrap_or_default();
    if let Some((nth, of)) = row.of_batch {
        let all: Vec<Box<RawValue>> = serde_json::from_str(&message).unwrap_or_default();
        must(all.len() == of, format!("{} answers, not {of}: {message}", all.len()));
        message = all.get(nth).map(|m| m.get().to_owned()).unwrap_or_default();
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
        Answer::Plain => {
            must(result.is_object() && result["isError"] != true, format!("no proper result: {value}"));
            must(result["_meta"].get(META_OPERATION).is_none(), "an operation".into());
            // What only one of the eras has.
            let modern = result.get("resultType").is_some();
            must(modern != row.ask.is_old(), format!("a result of the other era: {result}"));
            &Value::Null
        }
        Answer::Nothing | Answer::Stream => &Value::Null,
    };
    let text = text.as_str().unwrap_or_default();
    must(fits(row.text, text), format!("text\n     got {text}\n    want {}", row.text));
    for (at, want) in row.also {
        if at.starts_with('/') {
            let want: Value = serde_json::from_str(want).unwrap();
            must(whole.pointer(at) == Some(&want), format!("{at}: {:?}", whole.pointer(at)));
        } else {
            must(reply.header(at) == Some(want), format!("{at}: {:?}", reply.header(at)));
        }
    }
    wrong
}

/// What an answer begins with: a stream is not read to its end, which does not come.
fn head(addr: SocketAddr, bytes: &[u8]) -> std::io::Result<Reply> {
    let mut stream = TcpStream::connect_timeout(&addr, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(bytes)?;
    let (mut all, mut byte) = (Vec::new(), [0]);
    while !all.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        all.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&all).into_owned();
    let status = text.get(9..12).and_then(|s| s.parse().ok()).unwrap_or_default();
    let headers = text.lines().filter_map(|l| l.split_once(": "));
    let headers = headers.map(|(n, v)| (n.to_ascii_lowercase(), v.to_owned())).collect();
    Ok(Reply { status, headers, body: Vec::new() })
}

/// A server of the table, with what it needs to run and what it has said so far.
struct Stand {
    addr: SocketAddr,
    words: Words,
    /// A gateway with the table's tools, in its folder; the fixture server has none.
    project: Option<Project>,
    _processes: (Option<Gateway>, Option<Fixture>),
}

/// A project folder with the table's tools.
fn folder(sandbox: SocketAddr, server: &str, more: &str) -> Project {
    let project = Project::with_classes_and(sandbox, &format!("{CONFIG}{more}")).unwrap();
    std::fs::write(project.path().join("integrations/lab.toml"), manifest(sandbox)).unwrap();
    let file = project.path().join("counterfoil.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, config.replacen("[server]\n", &format!("[server]\n{server}"), 1)).unwrap();
    project
}

fn meta() -> String {
    format!(
        r#""io.modelcontextprotocol/protocolVersion":"{VERSION}","io.modelcontextprotocol/clientCapabilities":{{}}"#
    )
}

impl Stand {
    fn of(addr: SocketAddr, project: Option<Project>) -> Stand {
        let uris: Vec<_> = (0..257).map(|n| format!("a:{n}")).collect();
        let answers = (0..65).map(|n| (format!("a{n}"), json!({}))).collect();
        let words = Words(BTreeMap::from([
            ("$ADDR", addr.to_string()),
            ("$PORT", addr.port().to_string()),
            ("$FULL", "k".repeat(255)),
            ("$LONG", "k".repeat(256)),
            ("$WIDE", "w".repeat(17_000)),
            ("$URIS", json!(uris).to_string()),
            ("$ANSWERS", Value::Object(answers).to_string()),
            ("$META", meta()),
        ]));
        Stand { addr, words, project, _processes: (None, None) }
    }

    fn start(sandbox: SocketAddr, server: &str, more: &str) -> Stand {
        let mut project = folder(sandbox, server, more);
        let gateway = project.gateway(None).unwrap();
        let mut stand = Stand::of(gateway.addr, Some(project));
        stand._processes.0 = Some(gateway);
        stand
    }

    fn native() -> Stand {
        let fixture = Fixture::start().unwrap();
        let mut stand = Stand::of(fixture.addr, None);
        stand._processes.1 = Some(fixture);
        stand
    }

    fn project(&self) -> &Project {
        self.project.as_ref().expect("a gateway's folder")
    }

    fn api_key(&mut self, word: &'static str, principal: &str) -> String {
        let (code, made) = self.project().ask(&["api-keys", "create", "--principal", principal]).unwrap();
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
        let bytes = bytes(&row.ask, &self.words);
        let reply = if row.answer == Answer::Stream {
            head(self.addr, &bytes)
        } else {
            http::once(self.addr, TIMEOUT, &bytes)
        };
        match reply {
            Ok(reply) => {
                if let Some(id) = reply.header("mcp-session-id") {
                    self.words.0.insert("$SESSION", id.to_owned());
                }
                self.words.learn(&serde_json::from_str(&reply.message()).unwrap_or_default());
                judge(row, &id, &reply)
            }
            Err(e) => vec![format!("no answer: {e}")],
        }
    }

    /// Every operation of the ledger: tool and caller's key, the ledger's own keys as `(minted)`.
    fn operations(&self) -> Vec<(String, Option<String>)> {
        let (code, listed) = self.project().ask(&["ops", "list", "--limit", "1000"]).unwrap();
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
    let (Body::Call(_, arguments, ..) | Body::OldCall(_, arguments, _)) = ask.body else {
        panic!("only calls open operations")
    };
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    arguments["order_id"].as_str().unwrap().to_owned()
}

/// The key that a row's call has, as [`Stand::operations`] shows it.
fn key(ask: &Ask) -> Option<String> {
    let (Body::Call(_, arguments, params, _) | Body::OldCall(_, arguments, params)) = ask.body else {
        panic!("only calls open operations")
    };
    let params: Value = serde_json::from_str(&format!("{{{}}}", params.trim_matches(','))).unwrap();
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
    let rows = rows();
    let start = |(server, settings, more)| (server, Stand::start(sandbox.addr, settings, more));
    let mut stands: BTreeMap<Server, Stand> = SERVERS.into_iter().map(start).collect();
    let locked = stands.get_mut(&Server::Locked).unwrap();
    locked.api_key("$ALICE", "alice");
    locked.api_key("$BOB", "bob");
    let revoked = locked.api_key("$REVOKED", "carol");
    let (code, answer) = locked.project().ask(&["api-keys", "revoke", &revoked]).unwrap();
    assert_eq!(code, 0, "{answer}");
    stands.insert(Server::Native, Stand::native());

    let mut failures = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let wrong = stands.get_mut(&row.server).unwrap().send(number, row);
        if !wrong.is_empty() {
            failures.push(format!("{}:\n  {}", row.name, wrong.join("\n  ")));
        }
    }
    assert!(failures.is_empty(), "{} of {} rows:\n{}", failures.len(), rows.len(), failures.join("\n"));

    // The ledgers hold the proper calls, and the provider has applied each of them once, and nothing else.
    let proper: Vec<&Row> = rows.iter().filter(|r| r.answer == Answer::Result(None)).collect();
    for (server, stand) in stands.iter().filter(|(_, s)| s.project.is_some()) {
        let calls = proper.iter().filter(|r| r.server == *server);
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

    // All still serve.
    for stand in stands.values() {
        assert_eq!(http::json(stand.addr, "GET", "/readyz", None).unwrap().status, 200);
    }
}

#[test]
fn a_body_that_ends_early_is_answered_and_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let sandbox =
        Sandbox::start(&folder.path().join("sandbox"), &folder.path().join("sandbox.log"), "127.0.0.1:0")
            .unwrap();
    let stand = Stand::start(sandbox.addr, "", "");
    let all = rows();
    let row = all.iter().find(|r| r.answer == Answer::Result(None)).unwrap();
    let whole = bytes(&row.ask, &stand.words);
    let mut stream = TcpStream::connect_timeout(&stand.addr, TIMEOUT).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    // All of it but the closing brace, then the end: what has arrived must not be taken for the whole.
    stream.write_all(&whole[..whole.len() - 1]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let entry = &book().unwrap()["body ended early"];
    assert_eq!(head.get(9..12).and_then(|s| s.parse().ok()), entry.status(), "{answer}");
    let body: Value = serde_json::from_str(body).unwrap();
    let error = json!({ "code": -32600, "message": entry.text() });
    assert_eq!(body, json!({ "jsonrpc": "2.0", "error": error }));
    assert_eq!(entry.get("code"), "-32600");
    assert!(stand.operations().is_empty());
    assert_eq!(sandbox.effects("").unwrap()["total"], 0);
}

#[test]
fn the_book_says_what_the_table_says() {
    let book = book().unwrap();
    let mut failures = Vec::new();
    let rows = rows();
    for row in rows.iter().filter(|r| r.answer.refuses()) {
        let wrong = match book.get(row.cause) {
            Some(entry) => differs(row, entry),
            None => vec![format!("no cause {:?} in the book", row.cause)],
        };
        if !wrong.is_empty() {
            failures.push(format!("{}:\n  {}", row.name, wrong.join("\n  ")));
        }
    }
    for line in LINES {
        let wrong = match book.get(line.cause) {
            Some(entry) => {
                let column = format!("{}{}", entry.get("code"), entry.get("answer"));
                let code = column.split(',').next().unwrap_or_default();
                let differs = (code != line.code.to_string()).then(|| format!("code {code:?} in the book"));
                differs.into_iter().chain(misquotes(entry, line.text)).collect()
            }
            None => vec![format!("no cause {:?} in the book", line.cause)],
        };
        if !wrong.is_empty() {
            failures.push(format!("over lines, {}:\n  {}", line.name, wrong.join("\n  ")));
        }
    }
    let tried = rows.iter().map(|r| r.cause).chain(LINES.iter().map(|l| l.cause));
    let tried: BTreeSet<&str> = tried.chain(NOT_BY_INPUT.iter().copied()).collect();
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
    let rows = rows();
    let names: BTreeSet<_> = rows.iter().map(|r| r.name).collect();
    assert_eq!(names.len(), rows.len(), "two rows have one name");
    for row in &rows {
        assert_eq!(row.answer.refuses(), !row.cause.is_empty(), "{}", row.name);
        assert_eq!(row.answer.refuses(), !row.text.is_empty(), "{}", row.name);
    }
    let tools = [TOOL, STRICT, MIRRORED];
    assert!(
        tools.iter().all(|t| rows.iter().any(|r| matches!(r.ask.body, Body::Call(tool, ..) if tool == *t)))
    );
    let servers: BTreeSet<_> = rows.iter().map(|r| r.server).collect();
    assert_eq!(servers.len(), SERVERS.len() + 1, "a server that no row asks");
    let names: BTreeSet<_> = LINES.iter().map(|l| l.name).collect();
    assert_eq!(names.len(), LINES.len(), "two lines have one name");
    // The reading of templates itself: a hole is never empty, and what is literal counts to the end.
    assert!(fits("a {x} c{y}", "a b b cd") && fits("plain", "plain"));
    assert!(!fits("a {x} c", "a  c") && !fits("a {x}", "a ") && !fits("a {x} c", "a b c d"));
}

/// The lines that bring a row about, the last being the row's own.
fn lines_of(row: &Line) -> Vec<String> {
    let fill = |text: &str| {
        let text = text.replace("$ID", "1000").replace("$META", &meta());
        text.replace("$HUGE", &"h".repeat(4 << 20))
    };
    let open = row.session.map(|revision| {
        let params = json!({ "protocolVersion": revision, "capabilities": {} });
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string()
    });
    let streams = (0..row.streams).map(|n| {
        let listen = r#"{"jsonrpc":"2.0","id":N,"method":"subscriptions/listen","params":{"notifications":{},"_meta":{$META}}}"#;
        fill(listen).replace(r#""id":N"#, &format!(r#""id":{}"#, 1000 + n))
    });
    open.into_iter().chain(streams).chain([fill(row.line)]).collect()
}

#[test]
fn every_line_is_answered_as_its_table_says_and_nothing_else_happens() {
    let files = tempfile::tempdir().unwrap();
    let sandbox =
        Sandbox::start(&files.path().join("sandbox"), &files.path().join("sandbox.log"), "127.0.0.1:0")
            .unwrap();
    let mut failures = Vec::new();
    let stands = [
        (Served::Both, ""),
        (Served::Modern, "eras = \"modern\"\n"),
        (Served::Legacy, "eras = \"legacy\"\n"),
    ];
    for (served, settings) in stands {
        let project = folder(sandbox.addr, settings, "");
        for row in LINES.iter().filter(|l| l.served == served) {
            let lines = lines_of(row);
            let said = talk(project.path(), &project.data(), &lines, End::Refused).unwrap();
            // The answer to a batch is an array.
            let each = said.iter().flat_map(|v| v.as_array().cloned().unwrap_or_else(|| vec![v.clone()]));
            let errors: Vec<Value> = each.filter(|v| v.get("error").is_some()).collect();
            let asked: Value = serde_json::from_str(lines.last().unwrap()).unwrap_or_default();
            let id = asked.get(0).unwrap_or(&asked)["id"].clone();
            let [answer] = &errors[..] else {
                failures.push(format!("{}: {} errors: {said:?}", row.name, errors.len()));
                continue;
            };
            let echoed = answer.get("id") == row.echo.then_some(&id);
            let (code, text) = (&answer["error"]["code"], &answer["error"]["message"]);
            if !echoed || *code != json!(row.code) || *text != json!(row.text) {
                failures
                    .push(format!("{}:\n     got {answer}\n    want {} {}", row.name, row.code, row.text));
            }
        }
        let (code, listed) = project.ask(&["ops", "list"]).unwrap();
        assert_eq!((code, &listed["operations"]), (0, &json!([])), "{served:?}");
    }
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), LINES.len(), failures.join("\n"));
    assert_eq!(sandbox.effects("").unwrap()["total"], 0);
}
