//! Every message that the tests sent, against the schema of its revision: reads the logs that builds with the feature
//! `wire-log` wrote, and closes with `N passed, M failed`: N kinds of messages were seen, M messages did not fit.
//!
//! It can't pass by seeing nothing: samples that are known to be good and bad are judged first, and kinds that the
//! tests bring about must be there.

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use counterfoil_tests::process;
use counterfoil_tests::schema::{Entry, Kind, Schemas, Sender};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// How many messages that don't fit are shown, and of one kind.
const SHOWN: usize = 20;
const SHOWN_OF_A_KIND: u64 = 3;

/// How many characters of them.
const CUT: usize = 500;

#[derive(Parser)]
#[command(name = "wire_check", about = "Check logged messages against the protocol's schemas")]
struct Cli {
    /// The folder of logs.
    folder: PathBuf,
    /// The folder of schemas; by default that of `cargo xtask install`.
    #[arg(long)]
    schemas: Option<PathBuf>,
    /// Which kinds must have been seen.
    #[arg(long, value_enum, default_value_t = Required::All)]
    require: Required,
}

/// What a run must have brought about.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Required {
    /// What a complete `cargo xtask test` does.
    All,
    /// What a run of the conformance suite does.
    Conformance,
    /// Anything.
    Some,
}

impl Required {
    fn kinds(self) -> Vec<(&'static str, &'static str, &'static str)> {
        const MODERN: &str = "2026-07-28";
        const LEGACY: &str = "2025-11-25";
        let lists = ["tools/list", "resources/list", "prompts/list"];
        let uses = ["tools/call", "resources/read", "prompts/get", "completion/complete"];
        let mut all = Vec::new();
        if self == Required::Some {
            return all;
        }
        for revision in [MODERN, LEGACY] {
            all.extend(lists.into_iter().chain(uses).map(|m| (revision, m, "result")));
            all.push((revision, "notifications/progress", "notification"));
        }
        all.extend(["initialize", "ping", "logging/setLevel"].map(|m| (LEGACY, m, "result")));
        all.extend(["resources/subscribe", "resources/unsubscribe"].map(|m| (LEGACY, m, "result")));
        all.push((LEGACY, "notifications/message", "notification"));
        all.extend(["server/discover", "resources/templates/list"].map(|m| (MODERN, m, "result")));
        all.push((MODERN, "server/discover", "error"));
        all.push((MODERN, "resources/read", "error"));
        all.extend([MODERN, LEGACY].map(|revision| (revision, "tools/call", "error")));
        let streamed = [
            "notifications/subscriptions/acknowledged",
            "notifications/tools/list_changed",
            "notifications/prompts/list_changed",
        ];
        all.extend(streamed.map(|m| (MODERN, m, "notification")));
        if self == Required::All {
            for revision in ["2025-06-18", "2025-03-26"] {
                all.extend(["initialize", "tools/list", "tools/call"].map(|m| (revision, m, "result")));
            }
            for revision in [MODERN, LEGACY] {
                all.push((revision, "notifications/resources/updated", "notification"));
                all.push((revision, "notifications/resources/list_changed", "notification"));
            }
            all.push((LEGACY, "resources/templates/list", "result"));
            all.push((MODERN, "notifications/message", "notification"));
            all.push((MODERN, "subscriptions/listen", "result"));
            all.extend(["server/discover", "tools/list", "tools/call"].map(|m| (MODERN, m, "request")));
        }
        all
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("wire_check: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> Result<bool> {
    let folder = match &cli.schemas {
        Some(folder) => folder.clone(),
        None => process::build_dir()?.join("schema"),
    };
    let schemas = Schemas::load(&folder)?;
    self_check(&schemas)?;
    let mut seen = Seen::default();
    for file in logs(&cli.folder)? {
        let read = BufReader::new(File::open(&file)?);
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        seen.take(&schemas, &name, read).with_context(|| file.display().to_string())?;
    }
    let missing = seen.missing(&cli.require.kinds());
    print!("{}", seen.text(&missing));
    let failed = seen.failed + missing.len() as u64;
    println!("{} passed, {failed} failed", seen.kinds.len());
    Ok(failed == 0 && !seen.kinds.is_empty())
}

/// A line with 0 for each number that is too large for the reader, such as 1e999: the protocol carries any, and to a
/// schema it is a number like others.
fn without_huge_numbers(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    let (mut at, mut quoted) = (0, false);
    while let Some(&b) = line.get(at) {
        let number = |b: &u8| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E');
        let length = line[at..].iter().take_while(|b| number(b)).count();
        if !quoted && length > 0 && (b == b'-' || b.is_ascii_digit()) {
            let token = &line[at..at + length];
            let value = std::str::from_utf8(token).ok().and_then(|t| t.parse::<f64>().ok());
            out.extend_from_slice(if value.is_some_and(f64::is_infinite) { b"0" } else { token });
            at += length;
            continue;
        }
        out.push(b);
        at += 1;
        if quoted && b == b'\\' {
            out.extend(line.get(at));
            at += 1;
        } else if b == b'"' {
            quoted = !quoted;
        }
    }
    out
}

/// The logs of a folder, by name.
fn logs(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("{} can't be read", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "jsonl") {
            files.push(path);
        }
    }
    if files.is_empty() {
        bail!("there is no log in {}", folder.display());
    }
    files.sort();
    Ok(files)
}

/// What was seen of a kind.
#[derive(Default)]
struct Count {
    messages: u64,
    failed: u64,
    undefined: bool,
}

#[derive(Default)]
struct Seen {
    kinds: BTreeMap<Kind, Count>,
    failed: u64,
    files: u64,
    torn: u64,
    problems: Vec<String>,
}

impl Seen {
    /// Reads a log. Its last line may be torn, because its writer may have been killed; no other may.
    fn take(&mut self, schemas: &Schemas, name: &str, log: impl BufRead) -> Result<()> {
        self.files += 1;
        let mut lines = log.split(b'\n').enumerate().peekable();
        while let Some((n, line)) = lines.next() {
            let line = line?;
            if line.is_empty() {
                continue;
            }
            let read = serde_json::from_slice(&line);
            let read = read.or_else(|_| serde_json::from_slice(&without_huge_numbers(&line)));
            let entry: Entry = match read {
                Ok(entry) => entry,
                Err(_) if lines.peek().is_none() => {
                    self.torn += 1;
                    break;
                }
                Err(e) => {
                    let shown = String::from_utf8_lossy(&line).into_owned();
                    let what = format!("{name}:{}: it is no entry of a wire log: {e}", n + 1);
                    self.problem(&what, &shown, false);
                    continue;
                }
            };
            for verdict in schemas.judge(&entry) {
                let count = self.kinds.entry(verdict.kind.clone()).or_default();
                count.messages += 1;
                count.undefined |= !verdict.defined;
                let Some(problem) = verdict.problem else { continue };
                count.failed += 1;
                let what = format!("{name}:{}: {}: {problem}", n + 1, verdict.kind);
                let again = count.failed > SHOWN_OF_A_KIND;
                self.problem(&what, &entry.message.to_string(), again);
            }
        }
        Ok(())
    }

    fn problem(&mut self, what: &str, message: &str, again: bool) {
        self.failed += 1;
        if self.problems.len() < SHOWN && !again {
            let cut = |text: &str| text.chars().take(CUT).collect::<String>();
            self.problems.push(format!("{}\n    {}", cut(what), cut(message)));
        }
    }

    fn missing(&self, required: &[(&str, &str, &str)]) -> Vec<String> {
        // Requests are what our client sends.
        let sent = |kind: &&Kind| (kind.from == Sender::Client) == (kind.what == "request");
        let has = |(revision, method, what): &(&str, &str, &str)| {
            let mut kinds = self.kinds.keys().filter(sent);
            kinds.any(|k| k.revision == *revision && k.method == *method && k.what == *what)
        };
        let missing = required.iter().filter(|r| !has(r));
        missing.map(|(revision, method, what)| format!("{revision} {method} {what}")).collect()
    }

    fn text(&self, missing: &[String]) -> String {
        let mut text = String::new();
        let mut line = |l: String| text.push_str(&(l + "\n"));
        let messages: u64 = self.kinds.values().map(|c| c.messages).sum();
        for (kind, count) in &self.kinds {
            let failed =
                if count.failed > 0 { format!(", {} DON'T FIT", count.failed) } else { String::new() };
            let note = if count.undefined { ", no definition of its own: only the envelope" } else { "" };
            line(format!("{:8}  {kind}{failed}{note}", count.messages));
        }
        line(format!("{messages} messages in {} logs, {} with a torn last line", self.files, self.torn));
        for problem in &self.problems {
            line(format!("FAILED: {problem}"));
        }
        if self.failed > self.problems.len() as u64 {
            line(format!("and {} more", self.failed - self.problems.len() as u64));
        }
        for kind in missing {
            line(format!("FAILED: no message of this kind was seen: {kind}"));
        }
        text
    }
}

/// A guard that never cries guards nothing: samples whose verdict is known, against the schemas that are used.
fn self_check(schemas: &Schemas) -> Result<()> {
    let modern = "2026-07-28";
    let tool = json!({"name": "t", "inputSchema": {"type": "object"}});
    let text = json!([{"type": "text", "text": "x"}]);
    let cached = json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": [tool]});
    let good = [
        (modern, "tools/call", json!({"result": {"resultType": "complete", "content": text}})),
        (modern, "tools/list", json!({"result": cached})),
        (modern, "tools/call", json!({"error": {"code": -32602, "message": "x"}})),
        ("2025-11-25", "ping", json!({"result": {}})),
        ("2025-11-25", "tools/call", json!({"result": {"content": text}})),
        ("2025-06-18", "tools/list", json!({"result": {"tools": [tool]}})),
        ("2025-03-26", "tools/call", json!({"result": {"content": text, "isError": true}})),
    ];
    let bad = [
        (modern, "tools/call", json!({"result": {"content": text}})),
        (modern, "tools/list", json!({"result": {"resultType": "complete", "tools": [tool]}})),
        (modern, "tools/call", json!({"error": {"code": -32022, "message": "x", "data": {}}})),
        (modern, "tools/call", json!({"error": {"code": "x", "message": "x"}})),
        (modern, "tools/list", json!({"result": {"resultType": "input_required", "requestState": "s"}})),
        ("2025-11-25", "tools/call", json!({"result": {}})),
        ("2025-06-18", "tools/list", json!({"result": {"tools": [{"name": "t"}]}})),
        ("2025-03-26", "tools/call", json!({"result": {"content": [{"type": "audio"}]}})),
        ("2025-03-26", "resources/read", json!({"result": {"contents": [{"uri": "a:b", "blob": "?"}]}})),
        (
            "2025-06-18",
            "initialize",
            json!({"result": {"protocolVersion": "2025-06-18", "capabilities": {}}}),
        ),
    ];
    for (fits, samples) in [(true, good.as_slice()), (false, bad.as_slice())] {
        for (revision, about, rest) in samples {
            let mut message = json!({"jsonrpc": "2.0", "id": 1});
            for (name, value) in rest.as_object().into_iter().flatten() {
                message[name] = value.clone();
            }
            let (revision, about) = (Some((*revision).to_owned()), Some((*about).to_owned()));
            let entry = Entry { from: Sender::Server, revision, about, message };
            if schemas.judge(&entry).iter().all(|v| v.problem.is_none()) != fits {
                bail!(
                    "this sample {} pass, and it is not so: {entry:?}",
                    if fits { "must" } else { "must not" }
                );
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
    use super::*;

    fn schemas() -> Schemas {
        let id = json!({"type": "integer"});
        let envelope = |member: &str| json!({"required": ["id", member], "properties": {"id": id}});
        Schemas::of(
            "2025-11-25",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {
                "ClientRequest": {"properties": {"method": {"const": "ping"}}},
                "ServerNotification": {},
                "EmptyResult": {"type": "object"},
                "JSONRPCResponse": envelope("result"),
                "JSONRPCError": envelope("error"),
            }}),
        )
        .unwrap()
    }

    fn line(id: &str) -> String {
        format!(
            r#"{{"from":"server","revision":"2025-11-25","about":"ping","message":{{"jsonrpc":"2.0","id":{id},"result":{{}}}}}}"#
        )
    }

    fn take(log: &str) -> Result<Seen> {
        let mut seen = Seen::default();
        seen.take(&schemas(), "1.jsonl", log.as_bytes()).map(|()| seen)
    }

    #[test]
    fn messages_are_counted_by_kind_and_failures_are_shown() {
        let seen = take(&format!("{}\n{}\n{}\n", line("1"), line("2"), line("null"))).unwrap();
        assert_eq!((seen.kinds.len(), seen.failed, seen.torn), (1, 1, 0));
        let text = seen.text(&[]);
        assert!(text.contains("3  2025-11-25 ping result, 1 DON'T FIT"), "{text}");
        assert!(text.contains("FAILED: 1.jsonl:3: 2025-11-25 ping result: no JSONRPCResponse"), "{text}");
    }

    #[test]
    fn only_the_last_line_may_be_torn() {
        let torn = &line("1")[..30];
        let seen = take(&format!("{}\n{torn}", line("1"))).unwrap();
        assert_eq!((seen.failed, seen.torn), (0, 1));
        let seen = take(&format!("{torn}\n{}\n", line("1"))).unwrap();
        assert_eq!((seen.failed, seen.torn, seen.kinds.len()), (1, 0, 1));
        assert!(take(&format!("{torn}\n")).is_ok_and(|s| s.torn == 1));
    }

    #[test]
    fn numbers_of_any_size_are_numbers() {
        let huge = r#"{"a":[1e999,-2E+400 , 1.5,12],"1e999":"-1e999\"1e999","b":true}"#;
        let read = r#"{"a":[0,0 , 1.5,12],"1e999":"-1e999\"1e999","b":true}"#;
        assert_eq!(String::from_utf8(without_huge_numbers(huge.as_bytes())).unwrap(), read);
        let seen = take(&line("1").replace("{}", r#"{"x":1e999}"#)).unwrap();
        assert_eq!((seen.kinds.len(), seen.failed, seen.torn), (1, 0, 0));
    }

    #[test]
    fn what_must_be_seen_and_is_not_fails() {
        let seen = take(&line("1")).unwrap();
        let required = [("2025-11-25", "ping", "result"), ("2025-11-25", "tools/list", "result")];
        assert_eq!(seen.missing(&required), ["2025-11-25 tools/list result"]);
        let all = Required::All.kinds();
        assert!(all.len() > Required::Conformance.kinds().len());
        assert_eq!(Seen::default().missing(&all).len(), all.len());
    }
}
