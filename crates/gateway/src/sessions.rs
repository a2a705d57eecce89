//! Sessions of legacy clients: what a client said once, its log level and its subscriptions. Over HTTP they are rows in
//! the ledger, so that any replica serves them; over lines one lives in memory as long as its connection.
//!
//! Promises: a session is its principal's alone, and nobody else can tell that it is there; one that was not used for the
//! idle time is gone; a request that names no session never reads the ledger for one. A session proves nothing: the
//! principal is checked with every request.

use crate::bridge::{SESSION_CHANGED, SESSION_ENDED};
use crate::feeds::{Feed, Feeds};
use crate::metrics::Metrics;
use ledger::bus::{Bus, Note};
use ledger::store::{MAX_SUBSCRIPTIONS, Session, SessionChange};
use ledger::{Env, Millis, Store, StoreError, SystemEnv};
use mcp::Revision;
use mcp::error::RpcError;
use mcp::json::{Limits, Raw, RawObject};
use mcp::meta::LogLevel;
use mcp::server::{AtPath, Caller, Client, Opening, SessionRefusal, Transport};
use serde_json::json;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

/// Whether `initialize` over HTTP opens a session (`Mcp-Session-Id`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LegacySessions {
    /// Only if something that is served needs one: a tool that asks the client, or a resource that can be subscribed to.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never: every request stands alone.
    Never,
    /// A platform in front mints ids of its own; they are taken as they are and name no session here.
    Platform,
}

impl LegacySessions {
    const ALL: [LegacySessions; 4] =
        [LegacySessions::Auto, LegacySessions::Always, LegacySessions::Never, LegacySessions::Platform];

    /// The name in configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            LegacySessions::Auto => "auto",
            LegacySessions::Always => "always",
            LegacySessions::Never => "never",
            LegacySessions::Platform => "platform",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<LegacySessions> {
        LegacySessions::ALL.into_iter().find(|s| s.as_str() == name)
    }
}

/// How long a session may go unused, unless configured.
pub const SESSION_IDLE: Millis = Millis::secs(24 * 60 * 60);

/// The level of log messages for who asked for none (spec 2025-11-25: server/utilities/logging: the server may decide).
const LEVEL: LogLevel = LogLevel::Info;
/// The largest `capabilities` of a client, in bytes.
const MAX_CAPABILITIES: usize = 16 << 10;
/// `clientInfo` beyond this many bytes is kept by its name and version alone.
const MAX_INFO: usize = 2 << 10;
/// The most connections over lines.
const MAX_LINES: usize = 1024;
/// The most sessions that are being marked as used at a time.
const MAX_MARKING: usize = 1024;
/// A session is marked as used at most this many times in its idle time, or as often as this if that is more: of a
/// principal with too many sessions the one that was used least recently ends, and that must not be one in use.
const MARKS: i64 = 16;
const MARK_EVERY: Millis = Millis::secs(60);
/// Pause between two removals of sessions that are over.
const PRUNE_EVERY: Millis = Millis::secs(300);
/// Sessions removed at a time, and how often in a row.
const PRUNED: (usize, usize) = (500, 20);
/// Ends that a stream may fall behind before it looks for itself.
const ROOM: usize = 256;

struct Line {
    info: Option<Raw>,
    capabilities: Raw,
    log_level: LogLevel,
    subscriptions: BTreeSet<String>,
}

/// See the module.
pub(crate) struct Sessions {
    store: Arc<dyn Store>,
    bus: Arc<dyn Bus>,
    metrics: Arc<Metrics>,
    kind: LegacySessions,
    idle: Millis,
    lines: Mutex<HashMap<Arc<str>, Line>>,
    marking: Arc<Mutex<HashSet<Arc<str>>>>,
    pruned_at: AtomicI64,
    /// Which ended; `None`: some may have.
    ended: broadcast::Sender<Option<Arc<str>>>,
    /// Sessions with open streams.
    fed: Arc<Feeds>,
}

fn unavailable(_: StoreError) -> RpcError {
    RpcError::internal(
        "Internal error: the ledger can't be used at the moment, so nothing changed. Try again a little later.",
    )
}

fn over() -> RpcError {
    RpcError::invalid_params("the session has ended, so nothing changed; open a new one with initialize")
}

fn new_id() -> Arc<str> {
    let mut random = [0; 32];
    SystemEnv.random(&mut random);
    ledger::effect::hex(&random).into()
}

impl Sessions {
    pub fn new(
        store: Arc<dyn Store>,
        bus: Arc<dyn Bus>,
        metrics: Arc<Metrics>,
        kind: LegacySessions,
        idle: Millis,
    ) -> Sessions {
        Sessions {
            fed: Arc::new(Feeds::new(store.clone(), bus.clone())),
            store,
            bus,
            metrics,
            kind,
            idle,
            lines: Mutex::default(),
            marking: Arc::default(),
            pruned_at: AtomicI64::new(i64::MIN),
            ended: broadcast::Sender::new(ROOM),
        }
    }

    /// How long a session may go unused.
    pub fn idle(&self) -> Millis {
        self.idle
    }

    /// The ids of sessions that end from now on; `None`: some may have ended.
    pub fn ends(&self) -> broadcast::Receiver<Option<Arc<str>>> {
        self.ended.subscribe()
    }

    /// Sessions with open streams.
    pub fn feeds(&self) -> &Arc<Feeds> {
        &self.fed
    }

    /// A session ended at another replica; `None`: some may have.
    pub fn heard_end(&self, id: Option<Arc<str>>) {
        let _ = self.ended.send(id);
    }

    /// A session over HTTP ended: its streams end, wherever they are.
    fn tell_end(&self, id: Arc<str>) {
        self.bus.tell(Note { topic: SESSION_ENDED.into(), body: id.to_string() });
        self.heard_end(Some(id));
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Arc<str>, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session, if one is to be opened: `mints` is asked over HTTP only.
    pub async fn open(
        &self,
        caller: &Caller,
        principal: &str,
        opening: Opening,
        mints: bool,
    ) -> Result<Option<String>, RpcError> {
        if !opening.capabilities.is_object() {
            return Err(RpcError::malformed("params.capabilities must be an object"));
        }
        if opening.capabilities.as_str().len() > MAX_CAPABILITIES {
            return Err(RpcError::malformed("params.capabilities has more than 16 KiB"));
        }
        let info = opening.client_info.map(short);
        if caller.transport == Transport::Lines {
            let mut lines = self.lines();
            if lines.len() >= MAX_LINES {
                return Err(RpcError::internal(
                    "Internal error: too many clients are connected. Nothing ran; connect again later.",
                ));
            }
            let id = new_id();
            let line = Line {
                info,
                capabilities: opening.capabilities,
                log_level: LEVEL,
                subscriptions: BTreeSet::new(),
            };
            lines.insert(id.clone(), line);
            self.metrics.sessions_opened.inc();
            return Ok(Some(id.to_string()));
        }
        self.prune();
        if !mints {
            return Ok(None);
        }
        let id = new_id().to_string();
        let now = self.store.now();
        let mut client = json!({ "info": info, "capabilities": opening.capabilities });
        if let Some(path) = caller.extensions.get::<AtPath>() {
            client["path"] = json!(path.0);
        }
        let client = client.to_string();
        let session = Session {
            id: id.clone(),
            principal: principal.to_owned(),
            revision: caller.revision.as_str().to_owned(),
            client,
            log_level: None,
            subscriptions: Vec::new(),
            opened_at: now,
            used_at: now,
        };
        let ended = self.store.open_session(session).await.map_err(unavailable)?;
        self.metrics.sessions_opened.inc();
        self.metrics.sessions_ended.inc_by(ended.len() as u64);
        for id in ended {
            self.tell_end(id.into());
        }
        Ok(Some(id))
    }

    /// What is known of a client; its session counts as used.
    pub async fn client(&self, caller: &Caller, principal: &str) -> Result<Client, SessionRefusal> {
        let nothing = || Client { log_level: Some(LEVEL), ..Client::default() };
        let Some(id) = &caller.session else { return Ok(nothing()) };
        if caller.transport == Transport::Lines {
            let lines = self.lines();
            let line = lines.get(id).ok_or(SessionRefusal::Unknown)?;
            return Ok(Client {
                info: line.info.clone(),
                capabilities: line.capabilities.clone(),
                log_level: Some(line.log_level),
                revision: None,
            });
        }
        match self.kind {
            LegacySessions::Platform => return Ok(nothing()),
            LegacySessions::Never => return Err(SessionRefusal::Unknown),
            LegacySessions::Auto | LegacySessions::Always => {}
        }
        let session = self.stored(id, caller, principal).await?;
        // The first use counts at once: what was never used is the first to end where there are too many.
        if session.used_at == session.opened_at
            || self.store.now().since(session.used_at).0 > MARK_EVERY.0.min(self.idle.0 / MARKS)
        {
            self.mark(id);
        }
        Ok(read(&session))
    }

    /// The session in the ledger, if it is this principal's, was opened at this path and is not over.
    async fn stored(
        &self,
        id: &Arc<str>,
        caller: &Caller,
        principal: &str,
    ) -> Result<Session, SessionRefusal> {
        // What was never minted here need not be looked for.
        if id.len() != 64 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(SessionRefusal::Unknown);
        }
        let found = self.store.session(id).await.map_err(|_| SessionRefusal::Unavailable)?;
        let path = caller.extensions.get::<AtPath>().map(|p| &*p.0);
        let own = |s: &Session| s.principal == principal && path_of(s).as_deref() == path;
        let session = found.filter(own).ok_or(SessionRefusal::Unknown)?;
        // Time that nobody watched may not have passed.
        if self.store.now() > self.store.gaps().end_of(session.used_at, self.idle) {
            self.remove(id).await?;
            return Err(SessionRefusal::Unknown);
        }
        Ok(session)
    }

    async fn remove(&self, id: &Arc<str>) -> Result<bool, SessionRefusal> {
        let was = self.store.end_session(id).await.map_err(|_| SessionRefusal::Unavailable)?;
        if was {
            self.metrics.sessions_ended.inc();
        }
        self.tell_end(id.clone());
        Ok(was)
    }

    /// Marks a session as used, in the background and once at a time. A mark that is lost costs nothing but the next.
    fn mark(&self, id: &Arc<str>) {
        {
            let mut marking = self.marking.lock().unwrap_or_else(PoisonError::into_inner);
            if marking.len() >= MAX_MARKING || !marking.insert(id.clone()) {
                return;
            }
        }
        let (store, marking, id) = (self.store.clone(), self.marking.clone(), id.clone());
        tokio::spawn(async move {
            if let Err(e) = store.change_session(&id, SessionChange::Used).await {
                tracing::warn!(error = %e, "a session could not be marked as used");
            }
            marking.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        });
    }

    /// Ends the caller's session.
    pub async fn end(&self, caller: &Caller, principal: &str, mints: bool) -> Result<(), SessionRefusal> {
        let none = if mints { SessionRefusal::Unknown } else { SessionRefusal::None };
        let Some(id) = &caller.session else { return Err(none) };
        if caller.transport == Transport::Lines {
            let was = self.lines().remove(id);
            if was.is_some() {
                self.metrics.sessions_ended.inc();
            }
            self.heard_end(Some(id.clone()));
            return was.map(|_| ()).ok_or(SessionRefusal::Unknown);
        }
        if matches!(self.kind, LegacySessions::Never | LegacySessions::Platform) {
            return Err(SessionRefusal::None);
        }
        match self.stored(id, caller, principal).await {
            Ok(_) if self.remove(id).await? => Ok(()),
            Ok(_) | Err(SessionRefusal::Unknown) => Err(none),
            Err(e) => Err(e),
        }
    }

    /// Whether the caller's session keeps anything: a platform's id names none here.
    fn keeps(&self, caller: &Caller) -> Option<Arc<str>> {
        let lines = caller.transport == Transport::Lines;
        let kept = lines || matches!(self.kind, LegacySessions::Auto | LegacySessions::Always);
        caller.session.clone().filter(|_| kept)
    }

    /// The lowest level of log messages from now on. Without a session there is nothing to keep it in.
    pub async fn set_level(&self, caller: &Caller, level: LogLevel) -> Result<(), RpcError> {
        let Some(id) = self.keeps(caller) else { return Ok(()) };
        if caller.transport == Transport::Lines {
            return self.lines().get_mut(&id).map(|line| line.log_level = level).ok_or_else(over);
        }
        let change = SessionChange::LogLevel(level.as_str().to_owned());
        self.store.change_session(&id, change).await.map_err(unavailable)?.map(|_| ()).ok_or_else(over)
    }

    /// Begins or ends a subscription.
    pub async fn subscribe(&self, caller: &Caller, uri: String, on: bool) -> Result<(), RpcError> {
        let Some(id) = self.keeps(caller) else {
            return Err(RpcError::invalid_params(
                "a subscription needs a session; open one with initialize and send its Mcp-Session-Id",
            ));
        };
        let full = || {
            RpcError::invalid_params(format!(
                "a session holds at most {MAX_SUBSCRIPTIONS} subscriptions; unsubscribe from one first"
            ))
        };
        if caller.transport == Transport::Lines {
            let mut lines = self.lines();
            let line = lines.get_mut(&id).ok_or_else(over)?;
            if !on {
                line.subscriptions.remove(&uri);
            } else if line.subscriptions.len() >= MAX_SUBSCRIPTIONS && !line.subscriptions.contains(&uri) {
                return Err(full());
            } else {
                line.subscriptions.insert(uri);
            }
            drop(lines);
            self.fed.changed(&id);
            return Ok(());
        }
        let change =
            if on { SessionChange::Subscribe(uri.clone()) } else { SessionChange::Unsubscribe(uri.clone()) };
        let changed = self.store.change_session(&id, change).await;
        // Even if it failed: it may have been made.
        self.fed.changed(&id);
        self.bus.tell(Note { topic: SESSION_CHANGED.into(), body: id.to_string() });
        let now = changed.map_err(unavailable)?.ok_or_else(over)?;
        if on && !now.subscriptions.contains(&uri) { Err(full()) } else { Ok(()) }
    }

    /// The subscriptions of the caller's session; `None` if it is over.
    pub async fn subscriptions(&self, caller: &Caller) -> Result<Option<BTreeSet<String>>, StoreError> {
        let Some(id) = self.keeps(caller) else { return Ok(Some(BTreeSet::new())) };
        if caller.transport == Transport::Lines {
            return Ok(self.lines().get(&id).map(|line| line.subscriptions.clone()));
        }
        Ok(self.store.session(&id).await?.map(|s| s.subscriptions.into_iter().collect()))
    }

    /// A stream begins that the caller's session is told by; `None` without one.
    pub fn feed(&self, caller: &Caller) -> Option<Feed> {
        let shared = caller.transport != Transport::Lines;
        caller.session.clone().map(|id| Feeds::enter(&self.fed, id, shared))
    }

    /// Removes sessions that are over, now and then.
    fn prune(&self) {
        let now = self.store.now();
        let last = self.pruned_at.load(Ordering::Acquire);
        if now.0.saturating_sub(last) < PRUNE_EVERY.0
            || self.pruned_at.compare_exchange(last, now.0, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            return;
        }
        let (store, metrics) = (self.store.clone(), self.metrics.clone());
        let unused_since = self.store.gaps().start_of(now, self.idle);
        tokio::spawn(async move {
            let (most, times) = PRUNED;
            for _ in 0..times {
                match store.prune_sessions(unused_since, most).await {
                    Ok(went) => {
                        metrics.sessions_ended.inc_by(went as u64);
                        if went < most {
                            break;
                        }
                    }
                    Err(e) => {
                        tracing::warn!(error = %e, "sessions that are over could not be removed");
                        break;
                    }
                }
            }
        });
    }
}

/// `clientInfo` may hold whole images; what is shown of it is short.
fn short(info: Raw) -> Raw {
    if info.as_str().len() <= MAX_INFO {
        return info;
    }
    let object = info.object().unwrap_or_else(RawObject::empty);
    let text = |name: &str| {
        let value = object.get(name).and_then(|v| v.as_string().map(|s| s.into_owned())).unwrap_or_default();
        value.chars().take(256).collect::<String>()
    };
    crate::answer::raw(&json!({ "name": text("name"), "version": text("version") }))
}

fn kept(session: &Session) -> RawObject {
    let kept = RawObject::parse(session.client.clone(), &Limits { depth: 128, ..Limits::default() });
    kept.unwrap_or_else(|_| RawObject::empty())
}

/// The view's path that a session was opened at; none at the endpoint's own.
fn path_of(session: &Session) -> Option<String> {
    // Most were opened at the endpoint's own path: what they keep needs no reading for that.
    session.client.contains(r#""path""#).then(|| kept(session).string("path").map(|p| p.into_owned()))?
}

fn read(session: &Session) -> Client {
    let kept = kept(session);
    let member = |name: &str| kept.get(name).filter(Raw::is_object);
    Client {
        info: member("info"),
        capabilities: member("capabilities").unwrap_or_else(|| RawObject::empty().raw()),
        log_level: Some(session.log_level.as_deref().and_then(LogLevel::parse).unwrap_or(LEVEL)),
        revision: Revision::parse(&session.revision).filter(|r| r.is_legacy()),
    }
}
