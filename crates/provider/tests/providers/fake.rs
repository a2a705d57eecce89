//! A provider that does with keys what its facts say, and counts its effects. It knows nothing of presets.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Where the provider looks for the key.
#[derive(Clone, Copy, Debug)]
pub enum At {
    Header(&'static str),
    /// JSON pointer into the body.
    Body(&'static str),
    Query(&'static str),
    /// An argument of a GraphQL directive, in the document or as a variable.
    Directive(&'static str),
}

/// What a repeat gets.
#[derive(Clone, Copy, Debug)]
pub enum Repeat {
    /// The first answer.
    First,
    /// The object as it is now.
    Now,
    /// 409, which names the object.
    Named(fn(&str) -> Value),
    /// 409, which does not.
    Nameless,
}

/// What is compared with the first request under a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Compares {
    Whole,
    Nothing,
    Amount,
}

/// An error answer: status and body.
pub type Wrong = (u16, fn() -> Value);

/// The facts of one provider.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    pub key: At,
    /// Without a key a request is refused.
    pub required: bool,
    pub lengths: (usize, usize),
    /// Failures are kept and repeated too.
    pub keeps_all: bool,
    pub repeat: Repeat,
    pub compares: Compares,
    pub mismatch: Wrong,
    pub in_flight: Wrong,
    pub marker: Option<(&'static str, &'static str)>,
    /// A header by which it says that the endpoint does not honour keys, which it then does not.
    pub ignores: Option<(&'static str, &'static str)>,
    /// The field that a GraphQL provider answers with.
    pub graphql: Option<&'static str>,
}

/// What happens to the next request that would have an effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Carried out, and the answer is lost.
    LoseAnswer,
    /// Lost before anything was done.
    LoseRequest,
    /// Nothing is done, and it answers 500.
    Fail,
    /// It is refused with this status.
    Refuse(u16),
    /// It is refused with this status, and the answer is lost.
    LoseRefusal(u16),
    /// It takes its time.
    Slow,
}

struct Kept {
    request: Value,
    /// `None`: in flight.
    answer: Option<(u16, Value)>,
    object: Option<usize>,
}

#[derive(Default)]
struct State {
    objects: Vec<Value>,
    kept: HashMap<String, Kept>,
    faults: Vec<Fault>,
    /// The keys that came, in order.
    keys: Vec<Option<String>>,
    requests: usize,
    ignoring: bool,
}

#[derive(Clone)]
pub struct Fake {
    pub at: SocketAddr,
    facts: Facts,
    state: Arc<Mutex<State>>,
}

struct Request {
    verb: String,
    path: String,
    query: String,
    headers: Vec<(String, String)>,
    body: Value,
}

impl Fake {
    pub async fn new(facts: Facts) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Fake { at: listener.local_addr().unwrap(), facts, state: Arc::default() };
        let own = fake.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(own.clone().serve(stream));
            }
        });
        fake
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub fn next(&self, fault: Fault) {
        self.state().faults.push(fault);
    }
    pub fn effects(&self) -> usize {
        self.state().objects.len()
    }
    /// Requests that would have an effect.
    pub fn requests(&self) -> usize {
        self.state().requests
    }
    pub fn keys(&self) -> Vec<Option<String>> {
        self.state().keys.clone()
    }
    /// The retention is over.
    pub fn forget(&self) {
        self.state().kept.clear();
    }
    /// The endpoint does not honour keys from now on.
    pub fn ignore(&self) {
        self.state().ignoring = true;
    }
    /// Something happens to all objects.
    pub fn touch(&self) {
        for object in &mut self.state().objects {
            object["state"] = json!("later");
        }
    }

    async fn serve(self, mut stream: TcpStream) {
        let Some(request) = read(&mut stream).await else { return };
        let Some((status, headers, body)) = self.answer(request).await else { return };
        let mut text =
            format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        let body = if body.is_null() { String::new() } else { body.to_string() };
        text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        let _ = stream.write_all(text.as_bytes()).await;
    }

    fn shown(&self, id: usize) -> Value {
        let object = self.state().objects[id].clone();
        match self.facts.graphql {
            Some(field) => json!({ "data": { field: { "object": object, "userErrors": [] } } }),
            None => object,
        }
    }

    /// An answer, or none: the connection is cut.
    async fn answer(&self, r: Request) -> Option<(u16, Vec<(String, String)>, Value)> {
        let pair = |(n, v): (&str, &str)| vec![(n.to_owned(), v.to_owned())];
        if r.verb == "GET" {
            return Some(self.asked(&r.path));
        }
        let facts = self.facts;
        let key = self.key_of(&r);
        let fault = {
            let mut state = self.state();
            state.requests += 1;
            state.keys.push(key.clone());
            if state.faults.is_empty() { None } else { Some(state.faults.remove(0)) }
        };
        if fault == Some(Fault::LoseRequest) {
            return None;
        }
        let ignoring = self.state().ignoring;
        match &key {
            None if facts.required => return Some((400, vec![], json!({ "error": "a key is required" }))),
            Some(k) if !(facts.lengths.0..=facts.lengths.1).contains(&k.len()) => {
                return Some((400, vec![], json!({ "error": "the key's length" })));
            }
            _ => {}
        }
        let ident = match (&key, facts.compares) {
            (Some(k), Compares::Amount) => Some(format!("{k}/{}", r.body["amount"])),
            (k, _) => k.clone(),
        };
        let asked = json!([r.path, r.body]);
        if let Some(ident) = ident.as_ref().filter(|_| !ignoring) {
            let found =
                self.state().kept.get(ident).map(|k| (k.request == asked, k.answer.clone(), k.object));
            if let Some((same, answer, object)) = found {
                let marked = facts.marker.map(pair).unwrap_or_default();
                if facts.compares == Compares::Whole && !same {
                    return Some((facts.mismatch.0, vec![], (facts.mismatch.1)()));
                }
                let Some(answer) = answer else {
                    return Some((facts.in_flight.0, vec![], (facts.in_flight.1)()));
                };
                return Some(match (facts.repeat, object) {
                    (Repeat::Now, Some(id)) => (200, marked, self.shown(id)),
                    (Repeat::Named(body), Some(id)) => (409, vec![], body(&id.to_string())),
                    (Repeat::Nameless, _) => (409, vec![], json!({ "Message": "used before" })),
                    _ => (answer.0, marked, answer.1),
                });
            }
            let kept = Kept { request: asked, answer: None, object: None };
            self.state().kept.insert(ident.clone(), kept);
        }
        if fault == Some(Fault::Slow) {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let (answer, object) = match fault {
            Some(Fault::Fail) => ((500, json!({ "error": "broken" })), None),
            Some(Fault::Refuse(status) | Fault::LoseRefusal(status)) => {
                ((status, json!({ "error": "refused" })), None)
            }
            _ => {
                let id = self.made(&r, key.as_deref());
                ((200, self.shown(id)), Some(id))
            }
        };
        if let Some(ident) = ident.filter(|_| !ignoring) {
            let mut state = self.state();
            if object.is_some() || facts.keeps_all {
                let kept = state.kept.get_mut(&ident).unwrap();
                (kept.answer, kept.object) = (Some(answer.clone()), object);
            } else {
                state.kept.remove(&ident);
            }
        }
        if matches!(fault, Some(Fault::LoseAnswer | Fault::LoseRefusal(_))) {
            return None;
        }
        let headers = facts.ignores.filter(|_| ignoring).map(pair).unwrap_or_default();
        Some((answer.0, headers, answer.1))
    }

    fn made(&self, r: &Request, key: Option<&str>) -> usize {
        let mut state = self.state();
        let id = state.objects.len();
        let amount = ["/amount", "/variables/amount", "/variables/input/amount"];
        let amount = amount.iter().find_map(|at| r.body.pointer(at)).cloned();
        // Some providers show which key an object was made under.
        let object =
            json!({ "id": id.to_string(), "amount": amount, "state": "new", "idempotency_key": key });
        state.objects.push(object);
        id
    }

    /// What is asked for by GET: an object, the first answer under a key, or a list narrowed to a key.
    fn asked(&self, path: &str) -> (u16, Vec<(String, String)>, Value) {
        let last = path.rsplit('/').next().unwrap_or_default().to_owned();
        if path.contains("/responses/") {
            return match self.state().kept.get(&last).and_then(|k| k.answer.clone()) {
                Some((status, body)) => {
                    (200, vec![], json!({ "StatusCode": status.to_string(), "Resource": body }))
                }
                None => (404, vec![], json!({ "Message": "unknown" })),
            };
        }
        match last.parse::<usize>().ok().filter(|id| *id < self.effects()) {
            Some(id) => (200, vec![], self.shown(id)),
            None => (404, vec![], json!({})),
        }
    }

    fn key_of(&self, r: &Request) -> Option<String> {
        match self.facts.key {
            At::Header(name) => {
                r.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.clone())
            }
            At::Body(pointer) => r.body.pointer(pointer).and_then(Value::as_str).map(str::to_owned),
            At::Query(name) => {
                r.query.split('&').find_map(|p| p.strip_prefix(&format!("{name}="))).map(str::to_owned)
            }
            At::Directive(head) => {
                let document = r.body["query"].as_str()?;
                let given = document.split_once(head)?.1.split(')').next()?.trim();
                match given.strip_prefix('$') {
                    Some(variable) => r.body["variables"][variable].as_str().map(str::to_owned),
                    None => Some(given.trim_matches('"').to_owned()),
                }
            }
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut seen = Vec::new();
    let mut some = [0; 8192];
    loop {
        let n = stream.read(&mut some).await.ok().filter(|n| *n > 0)?;
        seen.extend_from_slice(&some[..n]);
        let text = String::from_utf8(seen.clone()).ok()?;
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let mut lines = head.lines();
        let mut first = lines.next()?.split(' ');
        let (verb, target) = (first.next()?.to_owned(), first.next()?.to_owned());
        let headers: Vec<(String, String)> =
            lines.filter_map(|l| l.split_once(": ")).map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        let length =
            headers.iter().find(|(n, _)| n == "content-length").map_or(0, |(_, v)| v.parse().unwrap());
        if body.len() < length {
            continue;
        }
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let body = serde_json::from_str(body).unwrap_or(Value::Null);
        return Some(Request { verb, path: path.to_owned(), query: query.to_owned(), headers, body });
    }
}
