//! From what a row asks to the bytes that are sent.

use super::{Ask, Body};
use crate::http;
use crate::wire::{LEGACY, META_ERROR, META_OPERATION, VERSION};
use serde_json::Value;
use std::collections::BTreeMap;

/// What placeholders stand for, by their names with the `$`.
pub struct Words(pub BTreeMap<&'static str, String>);

impl Words {
    /// A text with its placeholders filled in.
    #[must_use]
    pub fn fill(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// Remembers what an answer gave.
    pub fn learn(&mut self, value: &Value) {
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
    ];
    let old = matches!(body, Body::Old(_) | Body::OldCall(..) | Body::Many(_));
    headers.push(("MCP-Protocol-Version", if old { LEGACY } else { VERSION }.to_owned()));
    match body {
        Body::Request(method, params, _) => {
            headers.push(("Mcp-Method", (*method).to_owned()));
            let members: Value =
                serde_json::from_str(&format!("{{{}}}", params.trim_end_matches(','))).unwrap_or_default();
            let source = if *method == "resources/read" { "uri" } else { "name" };
            if let Some(name) = members[source].as_str() {
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
        Body::Filled(n) => [b"\"", vec![b'x'; n.saturating_sub(2)].as_slice(), b"\""].concat(),
        Body::Nested(n) => [vec![b'['; *n], vec![b']'; *n]].concat(),
        Body::Many(n) => {
            let all = vec![r#"{"jsonrpc":"2.0","method":"notifications/nobody"}"#; *n];
            format!("[{}]", all.join(",")).into_bytes()
        }
        Body::Old(text) => words.fill(text).into_bytes(),
        Body::OldCall(tool, arguments, params) => {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":$ID,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}{params}}}}}"#
            );
            words.fill(&text).into_bytes()
        }
        Body::Request(method, params, meta) => request(method, params, meta),
        Body::Call(tool, arguments, params, meta) => {
            let params = format!(r#""name":"{tool}","arguments":{arguments},{params}"#);
            request("tools/call", &params, meta)
        }
    }
}

/// The bytes of a request.
#[must_use]
pub fn bytes(ask: &Ask, words: &Words) -> Vec<u8> {
    let mut headers = proper(&ask.body);
    let is = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    headers.retain(|(n, _)| !ask.without.iter().any(|w| is(w, n)) && !ask.set.iter().any(|(s, _)| is(s, n)));
    headers.extend(ask.set.iter().chain(ask.add).map(|(n, v)| (*n, (*v).to_owned())));
    let filled: Vec<_> = headers.iter().map(|(n, v)| (*n, words.fill(v))).collect();
    let headers: Vec<_> = filled.iter().map(|(n, v)| (*n, v.as_str())).collect();
    http::request(ask.verb, "/mcp", &headers, &body(&ask.body, words))
}
