//! Plain HTTP to the gateway, as a handler asks for an execution.

use super::{Dir, Served};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// A method that changes something.
pub const REFUND: &str = "payments.refunds.create";

/// A gateway on free ports.
pub fn serve(dir: &Dir) -> Served {
    dir.serve(&["--listen", "127.0.0.1:0", "--sandbox-listen", "127.0.0.1:0"])
}

/// Host and port of the gateway.
pub fn at(served: &Served) -> String {
    served.endpoint().strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned()
}

/// An answer.
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {} {}", self.status, self.body))
    }
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|l| {
            let (n, v) = l.split_once(':')?;
            n.eq_ignore_ascii_case(name).then_some(v.trim())
        })
    }
    /// The kind of an outcome, or the code of a refusal.
    pub fn word(&self) -> String {
        let error = &self.json()["error"];
        error["kind"].as_str().or(error["code"].as_str()).unwrap_or_default().to_owned()
    }
}

/// One request with these headers, `Host` and the length apart.
pub fn ask(at: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut s = TcpStream::connect(at).unwrap();
    s.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(n, _)| *n == "host") {
        head.push_str(&format!("host: {at}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    // Who refuses a body that is too large closes while it is still written.
    let _ = write!(s, "{head}content-length: {}\r\n\r\n{body}", body.len());
    let mut text = Vec::new();
    let _ = s.read_to_end(&mut text);
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

pub const JSON: (&str, &str) = ("content-type", "application/json");

pub fn exec(at: &str, body: &Value) -> Answer {
    ask(at, "POST", "/api/v1/exec", &[JSON], &body.to_string())
}

pub fn refund(order: &str) -> Value {
    json!({ "payment": format!("pay_demo_{order}"), "amount": 200, "order_id": order })
}
