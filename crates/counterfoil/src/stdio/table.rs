//! What a client is owed: its requests without an answer, and the legacy session that they belong to. Decides which
//! lines pass, and what a new backend is told.

mod fail;

use super::MAX_PENDING;
use bytes::Bytes;
use gateway::META_CALL;
use mcp::constants::{meta, method};
use mcp::json::{Limits, Raw, RawObject, quote};
use mcp::message::{self, Id, MAX_BATCH, Message, Notification, Request};
use mcp::{Revision, RpcError};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap, HashSet};
use tokio::time::Instant;

/// Subscriptions of a session that are restored.
const MAX_SUBSCRIPTIONS: usize = 256;
const INITIALIZED: &str = "notifications/initialized";

/// What becomes of a client's line.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// It goes to the backend, and is remembered here.
    Forward(Bytes),
    /// It goes to the backend. Without one it waits for it, see [`Table::hold`].
    Pass(Bytes),
    /// It goes to the backend that is there; it means nothing to the next.
    Now(Bytes),
    /// It is answered here.
    Answer(Bytes),
}

/// A request, or a batch, without an answer.
struct Entry {
    line: Bytes,
    /// Those of its requests that have no answer yet.
    ids: Vec<Id>,
    kind: Kind,
    since: Instant,
    progress: Option<(Raw, f64)>,
}

enum Kind {
    Plain,
    Initialize,
    /// Nothing that could be answered here: it waits for a backend.
    Held,
    /// With whether it was acknowledged.
    Listen(bool),
    /// A request that changes the session if it succeeds.
    State(State),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Level,
    Subscribed(String),
    Unsubscribed(String),
}

/// The legacy session as a new backend must know it.
struct Session {
    initialize: Bytes,
    initialized: Option<Bytes>,
    revision: Option<Revision>,
    state: BTreeMap<State, Bytes>,
}

/// See the module.
pub(super) struct Table {
    limits: Limits,
    entries: BTreeMap<u64, Entry>,
    by_id: HashMap<Id, u64>,
    /// Bytes of all entries' lines.
    size: usize,
    max_size: usize,
    session: Option<Session>,
    /// What follows an `initialize` that has no answer yet.
    early: Option<Bytes>,
    /// Ids of requests that the front made itself: their answers are nobody's.
    own: HashSet<Id>,
    /// Names calls, unlike any other front's.
    name: String,
    names: u64,
    count: u64,
}

impl Table {
    /// `name`: unlike any other front's. `max_size`: bytes of requests above which there is no room for more.
    pub fn new(name: String, depth: usize, max_size: usize) -> Table {
        Table {
            limits: Limits { depth, unique_members: true },
            entries: BTreeMap::new(),
            by_id: HashMap::new(),
            size: 0,
            max_size,
            session: None,
            early: None,
            own: HashSet::new(),
            name,
            names: 0,
            count: 0,
        }
    }

    /// Whether one more request can be remembered.
    pub fn has_room(&self) -> bool {
        self.by_id.len().max(self.entries.len()) < MAX_PENDING && self.size < self.max_size
    }

    /// Whether somebody waits for an answer that is to come; a listen stream doesn't.
    pub fn is_owed(&self) -> bool {
        self.entries.values().any(|e| !matches!(e.kind, Kind::Listen(_)))
    }

    /// Takes a line of the client.
    pub fn asked(&mut self, line: Bytes, now: Instant) -> Verdict {
        match message::parse(&line, &self.limits) {
            Ok(Message::Request(request)) => self.request(line, &request, now),
            Ok(Message::Notification(notification)) => self.notification(line, &notification),
            Ok(Message::Response(_)) => Verdict::Now(line),
            Err(_) => self.batch(line, now),
        }
    }

    /// Keeps a line that is to be passed until there is a backend, in its place among the requests.
    pub fn hold(&mut self, line: Bytes, now: Instant) {
        self.enter(Entry { line, ids: Vec::new(), kind: Kind::Held, since: now, progress: None });
    }

    fn request(&mut self, line: Bytes, request: &Request, now: Instant) -> Verdict {
        let id = &request.id;
        if self.by_id.contains_key(id) {
            return Verdict::Answer(used().to_message(Some(id)));
        }
        let params = request.params.as_ref();
        let of_request = params.and_then(|p| p.get("_meta")).and_then(|m| m.object());
        let modern = of_request.as_ref().is_some_and(|m| m.get(meta::PROTOCOL_VERSION).is_some());
        let uri = || params.and_then(|p| p.get("uri")).and_then(|u| u.as_string().map(|u| u.into_owned()));
        let kind = match request.method.as_str() {
            method::LISTEN if modern => Kind::Listen(false),
            method::INITIALIZE if !modern => Kind::Initialize,
            "logging/setLevel" if !modern => Kind::State(State::Level),
            "resources/subscribe" if !modern => {
                uri().map_or(Kind::Plain, |u| Kind::State(State::Subscribed(u)))
            }
            "resources/unsubscribe" if !modern => {
                uri().map_or(Kind::Plain, |u| Kind::State(State::Unsubscribed(u)))
            }
            _ => Kind::Plain,
        };
        let line = if request.method == method::TOOLS_CALL { self.named(line, params) } else { line };
        let token = of_request.and_then(|m| m.get(meta::PROGRESS_TOKEN));
        let progress = token.map(|token| (token, f64::NEG_INFINITY));
        let entry = Entry { line: line.clone(), ids: vec![id.clone()], kind, since: now, progress };
        self.enter(entry);
        Verdict::Forward(line)
    }

    fn enter(&mut self, entry: Entry) {
        self.count += 1;
        self.size += entry.line.len();
        for id in &entry.ids {
            self.by_id.insert(id.clone(), self.count);
        }
        self.entries.insert(self.count, entry);
    }

    /// The call with its name in `_meta`. A client's own would be another front's, or no name: names are believed.
    fn named(&mut self, line: Bytes, params: Option<&RawObject>) -> Bytes {
        let Some(params) = params else { return line };
        let broken = params.get("_meta").is_some_and(|m| m.object().is_none());
        let Ok(root) = RawObject::parse(line.clone(), &self.limits) else { return line };
        if broken {
            return line;
        }
        self.names += 1;
        let name = quote(&format!("{}-{}", self.name, self.names));
        let params = params.with_meta(&[(META_CALL, &name)], &[]);
        root.with(&[("params", params.as_str())]).bytes().clone()
    }

    fn notification(&mut self, line: Bytes, notification: &Notification) -> Verdict {
        match notification.method.as_str() {
            method::CANCELLED => {
                let id = notification.params.as_ref().and_then(|p| p.get("requestId")).and_then(Id::new);
                if let Some(id) = id
                    && !self.entry_of(&id).is_some_and(|e| matches!(e.kind, Kind::Initialize))
                {
                    self.take(&id);
                }
                return Verdict::Now(line);
            }
            INITIALIZED => {
                if let Some(session) = &mut self.session {
                    session.initialized = Some(line.clone());
                    return Verdict::Forward(line);
                }
                if self.is_opening() {
                    self.early = Some(line.clone());
                    return Verdict::Forward(line);
                }
            }
            _ => {}
        }
        Verdict::Pass(line)
    }

    /// Whether a session is being opened.
    fn is_opening(&self) -> bool {
        self.session.is_none() && self.entries.values().any(|e| matches!(e.kind, Kind::Initialize))
    }

    fn entry_of(&mut self, id: &Id) -> Option<&mut Entry> {
        self.entries.get_mut(self.by_id.get(id)?)
    }

    /// Ends a request. Gives its entry, if nothing of that is left.
    fn take(&mut self, id: &Id) -> Option<Entry> {
        let at = self.by_id.remove(id)?;
        let entry = self.entries.get_mut(&at)?;
        entry.ids.retain(|one| one != id);
        if !entry.ids.is_empty() {
            return None;
        }
        let entry = self.entries.remove(&at)?;
        self.size = self.size.saturating_sub(entry.line.len());
        Some(entry)
    }

    /// A batch, where the session's revision has them, or may have them once it is known. What is none is the backend's
    /// to refuse.
    fn batch(&mut self, line: Bytes, now: Instant) -> Verdict {
        let has_batches = match &self.session {
            Some(session) => session.has_batches(),
            None => self.is_opening(),
        };
        let apart = if has_batches { self.taken_apart(&line) } else { None };
        let Some((ids, line)) = apart else { return Verdict::Pass(line) };
        if ids.iter().any(|id| self.by_id.contains_key(id)) {
            return Verdict::Answer(used().to_message(None));
        }
        if ids.is_empty() {
            return Verdict::Pass(line);
        }
        let entry = Entry { line: line.clone(), ids, kind: Kind::Plain, since: now, progress: None };
        self.enter(entry);
        Verdict::Forward(line)
    }

    /// Batches that came while it was not known that the session has none: they are refused without a name.
    fn forget_batches(&mut self) {
        let batches = self.entries.values().filter(|e| e.line.trim_ascii_start().starts_with(b"["));
        let refused: Vec<Id> = batches.flat_map(|e| e.ids.iter().cloned()).collect();
        for id in &refused {
            self.take(id);
        }
    }

    /// The ids of a batch's requests, and the batch with its calls named; `None` if it is refused as a whole.
    fn taken_apart(&mut self, line: &Bytes) -> Option<(Vec<Id>, Bytes)> {
        let limits = Limits { depth: self.limits.depth + 1, ..self.limits.clone() };
        let all = Raw::parse(line.clone(), &limits).ok()?;
        let items =
            all.read::<Vec<&RawValue>>().ok().filter(|items| (1..=MAX_BATCH).contains(&items.len()))?;
        let (mut ids, mut text) = (Vec::new(), Vec::with_capacity(line.len()));
        for item in items {
            let mut item = line.slice_ref(item.get().as_bytes());
            if let Ok(Message::Request(request)) = message::parse(&item, &self.limits) {
                if request.method == method::TOOLS_CALL {
                    item = self.named(item, request.params.as_ref());
                }
                if !ids.contains(&request.id) {
                    ids.push(request.id);
                }
            }
            text.push(if text.is_empty() { b'[' } else { b',' });
            text.extend_from_slice(&item);
        }
        text.push(b']');
        Some((ids, text.into()))
    }

    /// Takes a line of the backend; says whether it goes to the client.
    pub fn said(&mut self, line: &Bytes) -> bool {
        let limits = Limits { depth: 512, unique_members: false };
        match message::parse(line, &limits) {
            Ok(Message::Response(response)) => {
                self.answered(&response.id, response.outcome.as_ref().ok(), response.outcome.is_err())
            }
            Ok(Message::Notification(notification)) => self.news(&notification),
            Ok(Message::Request(_)) => true,
            Err(_) => {
                let items = Raw::parse(line.clone(), &limits).ok();
                let items = items.as_ref().and_then(|all| all.read::<Vec<&RawValue>>().ok());
                for item in items.unwrap_or_default() {
                    if let Ok(Message::Response(one)) =
                        message::parse(&line.slice_ref(item.get().as_bytes()), &limits)
                    {
                        self.take(&one.id);
                    }
                }
                true
            }
        }
    }

    fn answered(&mut self, id: &Id, result: Option<&Raw>, refused: bool) -> bool {
        if self.own.remove(id) {
            return false;
        }
        let known = self.by_id.contains_key(id);
        let Some(entry) = self.take(id) else {
            // A refusal of what could not be read as a request here; never a late result.
            return known || refused;
        };
        match (entry.kind, result) {
            (Kind::Initialize, Some(result)) => {
                let revision = result.object().and_then(|r| r.get("protocolVersion"));
                let revision = revision.and_then(|v| v.as_string().and_then(|v| Revision::parse(&v)));
                let initialized = self.early.take();
                let session =
                    Session { initialize: entry.line, initialized, revision, state: BTreeMap::new() };
                if !session.has_batches() {
                    self.forget_batches();
                }
                self.session = Some(session);
            }
            (Kind::Initialize, None) => {
                self.early = None;
                if self.session.is_none() {
                    self.forget_batches();
                }
            }
            (Kind::State(state), Some(_)) => {
                if let Some(session) = &mut self.session {
                    session.change(state, entry.line);
                }
            }
            _ => {}
        }
        true
    }

    fn news(&mut self, notification: &Notification) -> bool {
        let params = notification.params.as_ref();
        match notification.method.as_str() {
            method::ACKNOWLEDGED => {
                let id = params.and_then(|p| p.get("_meta")).and_then(|m| m.object());
                let id = id.and_then(|m| m.get(meta::SUBSCRIPTION_ID)).and_then(Id::new);
                match id.and_then(|id| self.entry_of(&id)).map(|e| &mut e.kind) {
                    Some(Kind::Listen(acknowledged)) => !std::mem::replace(acknowledged, true),
                    _ => true,
                }
            }
            method::PROGRESS => {
                let token = params.and_then(|p| p.get("progressToken"));
                let value = params.and_then(|p| p.get("progress")).and_then(|v| v.read::<f64>().ok());
                let (Some(token), Some(value)) = (token, value) else { return true };
                let mut all = self.entries.values_mut().filter_map(|e| e.progress.as_mut());
                match all.find(|(of, _)| *of == token) {
                    // A call that was sent again begins again; progress only ever increases.
                    Some((_, before)) if value <= *before => false,
                    Some((_, before)) => {
                        *before = value;
                        true
                    }
                    None => true,
                }
            }
            _ => true,
        }
    }

    /// What a new backend is told: the session as it was, then what has no answer yet.
    pub fn resume(&mut self) -> Vec<Bytes> {
        self.own.clear();
        let mut out = Vec::new();
        if let Some(session) = &self.session {
            let mut again = |line: &Bytes, out: &mut Vec<Bytes>| {
                let id = quote(&format!("{}-own-{}", self.name, self.own.len()));
                let Ok(root) = RawObject::parse(line.clone(), &self.limits) else { return };
                let own = root.with(&[("id", &id)]).bytes().clone();
                if let Some(id) = Raw::parse(id, &self.limits).ok().and_then(Id::new) {
                    self.own.insert(id);
                    out.push(own);
                }
            };
            again(&session.initialize, &mut out);
            out.extend(session.initialized.clone());
            for line in session.state.values() {
                again(line, &mut out);
            }
        }
        for entry in self.entries.values() {
            out.push(self.owed(entry));
            if matches!(entry.kind, Kind::Initialize) {
                out.extend(self.early.clone());
            }
        }
        // What is told once is told now.
        let held = |e: &Entry| matches!(e.kind, Kind::Held);
        let told: usize = self.entries.values().filter(|e| held(e)).map(|e| e.line.len()).sum();
        self.size = self.size.saturating_sub(told);
        self.entries.retain(|_, e| !held(e));
        out
    }

    /// What of a request or a batch has no answer yet and was not cancelled.
    fn owed(&self, entry: &Entry) -> Bytes {
        let line = &entry.line;
        let limits = Limits { depth: self.limits.depth + 1, ..self.limits.clone() };
        let all = Raw::parse(line.clone(), &limits).ok();
        let items = all.as_ref().and_then(|all| all.read::<Vec<&RawValue>>().ok());
        let Some(items) = items.filter(|_| !entry.ids.is_empty()) else { return line.clone() };
        let owed = |item: &&str| match message::parse(&line.slice_ref(item.as_bytes()), &self.limits) {
            Ok(Message::Request(request)) => entry.ids.contains(&request.id),
            _ => false,
        };
        let owed: Vec<&str> = items.iter().map(|item| item.get()).filter(owed).collect();
        format!("[{}]", owed.join(",")).into()
    }
}

impl Session {
    fn has_batches(&self) -> bool {
        self.revision == Some(Revision::V2025_03_26)
    }

    fn change(&mut self, state: State, line: Bytes) {
        match state {
            State::Unsubscribed(uri) => {
                self.state.remove(&State::Subscribed(uri));
            }
            State::Subscribed(_) if self.state.len() > MAX_SUBSCRIPTIONS => {}
            state => {
                self.state.insert(state, line);
            }
        }
    }
}

fn used() -> RpcError {
    RpcError::invalid_request(
        "a request of this id has no answer yet; use each id once. The earlier request goes on",
    )
}

#[cfg(test)]
mod tests;
