//! Change notifications: `subscriptions/listen` of the modern era, and the legacy era's stream beside requests.
//!
//! Promises: a change is passed on at once; whoever falls behind is told of everything that it asked for, so that nothing
//! is missed silently; nothing is sent that was not asked for. What a session follows is kept with its stream, and read
//! from the ledger again only when a resource changes and it may be out of date: at once after a change that is known of
//! here, within half a minute after one made elsewhere that nobody told of. A stream ends within a minute after its caller's API key was
//! revoked.

use crate::catalog::{Catalog, MAX_URI};
use crate::changes::Change;
use crate::feeds::Feed;
use crate::followed::{self, Tasks};
use crate::methods;
use crate::metrics::Counted;
use crate::principal::{Principal, Proof, principal_of};
use crate::service::Shared;
use ledger::StoreError;
use mcp::constants::meta;
use mcp::error::RpcError;
use mcp::json::{Raw, RawObject};
use mcp::server::{AtPath, Caller, Exchange, Responder, SessionRefusal, Subscription};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, Interval, interval_at};

const TOOLS: &str = "notifications/tools/list_changed";
const PROMPTS: &str = "notifications/prompts/list_changed";
const RESOURCES: &str = "notifications/resources/list_changed";
const TASKS: &str = "notifications/tasks";
const UPDATED: &str = "notifications/resources/updated";

/// The most resources that one stream follows.
const MAX_URIS: usize = 256;
/// Notifications sent in a row, and the pause after them; well below what a stream's queue holds.
const PIECE: u32 = 32;
const BREATH: Duration = Duration::from_millis(5);
/// Pause before a session's subscriptions are read again after that failed.
const PAUSE: Duration = Duration::from_millis(100);
/// How long they count without being read again: a change of them made elsewhere counts after that.
const STALE: Duration = Duration::from_secs(30);
/// How often the caller's API key is looked at again.
const PROVE_EVERY: Duration = Duration::from_secs(30);
/// Changed resources that may wait for the next look.
const MAX_PENDING: usize = 1024;

/// A stream that is not flooded: a burst of changes goes out in pieces that its queue has room for, so that only a reader
/// that is really too slow loses it.
struct Out {
    stream: Subscription,
    sent: AtomicU32,
}

impl Out {
    fn new(stream: Subscription) -> Out {
        Out { stream, sent: AtomicU32::new(0) }
    }

    /// `false`: the stream has ended.
    async fn send(&self, method: &str, params: Option<&RawObject>) -> bool {
        if self.sent.fetch_add(1, Ordering::Relaxed) % PIECE == PIECE - 1 {
            Box::pin(tokio::time::sleep(BREATH)).await;
        }
        self.stream.notify(method, params)
    }

    async fn updated(&self, uri: &str) -> bool {
        let params = crate::answer::raw(&json!({ "uri": uri }));
        self.send(UPDATED, Some(&params.object().unwrap_or_else(RawObject::empty))).await
    }

    async fn all_updated<'a>(&self, uris: impl Iterator<Item = &'a String>) -> bool {
        for uri in uris {
            if !self.updated(uri).await {
                return false;
            }
        }
        true
    }

    async fn all_tasks(&self, news: &[RawObject]) -> bool {
        for task in news {
            if !self.send(TASKS, Some(task)).await {
                return false;
            }
        }
        true
    }

    /// Tells every list whose changes are declared to be told.
    async fn all_lists(&self, catalog: &Catalog) -> bool {
        self.send(TOOLS, None).await
            && (!catalog.has_prompts() || self.send(PROMPTS, None).await)
            && (!catalog.has_resources() || self.send(RESOURCES, None).await)
    }
}

/// Where a listener is, which says what it sees of the tools.
struct Place {
    shared: Arc<Shared>,
    path: Option<AtPath>,
    principal: Option<Principal>,
}

impl Place {
    fn of(shared: &Arc<Shared>, caller: &Caller) -> Place {
        let extensions = &caller.extensions;
        Place {
            shared: shared.clone(),
            path: extensions.get().cloned(),
            principal: extensions.get().cloned(),
        }
    }

    /// Whether a change of the tools in this view is one to it.
    fn sees(&self, view: &str) -> bool {
        let path = self.path.as_ref().map(|p| &*p.0);
        self.shared.views().concerns(view, path, self.principal.as_ref().map(|p| &*p.0))
    }
}

/// What a listener asked for and gets.
#[derive(Default)]
struct Wanted {
    tools: bool,
    prompts: bool,
    resources: bool,
    uris: BTreeSet<String>,
}

impl Wanted {
    /// The part of a filter that can be honoured.
    fn of(filter: &RawObject, catalog: &Catalog) -> Result<Wanted, RpcError> {
        let flag = |name: &str| match filter.get(name) {
            None => Ok(false),
            Some(v) => v
                .as_bool()
                .ok_or_else(|| RpcError::malformed(format!("params.notifications.{name} must be a boolean"))),
        };
        let told = |uri: &str| catalog.resource(uri).is_some_and(|f| f.reader.tells_changes());
        let mut uris = uris(filter.get("resourceSubscriptions").as_ref())?;
        uris.retain(|uri| told(uri));
        Ok(Wanted {
            tools: flag("toolsListChanged")?,
            prompts: flag("promptsListChanged")? && catalog.has_prompts(),
            resources: flag("resourcesListChanged")? && catalog.has_resources(),
            uris,
        })
    }

    fn acknowledged(&self, tasks: &[&str]) -> Raw {
        let mut all = Map::new();
        if !tasks.is_empty() {
            all.insert("taskIds".into(), json!(tasks));
        }
        for (name, on) in [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ] {
            if on {
                all.insert(name.into(), json!(true));
            }
        }
        if !self.uris.is_empty() {
            all.insert("resourceSubscriptions".into(), json!(self.uris));
        }
        crate::answer::raw(&Value::Object(all))
    }

    /// Passes a change on, if it was asked for; `false`: the stream has ended.
    async fn tell(&self, out: &Out, place: &Place, change: &Change) -> bool {
        let (wanted, list) = match change {
            Change::Tools => (self.tools, TOOLS),
            Change::ToolsIn(view) => (self.tools && place.sees(view), TOOLS),
            Change::Prompts => (self.prompts, PROMPTS),
            Change::Resources => (self.resources, RESOURCES),
            Change::Resource(uri) => return !self.uris.contains(&**uri) || out.updated(uri).await,
            Change::Any => return Box::pin(self.tell_all(out, place)).await,
        };
        !wanted || out.send(list, None).await
    }

    /// Changes were missed: all that was asked for may have changed.
    async fn tell_all(&self, out: &Out, place: &Place) -> bool {
        for change in [Change::Tools, Change::Prompts, Change::Resources] {
            if !self.tell(out, place, &change).await {
                return false;
            }
        }
        out.all_updated(self.uris.iter()).await
    }
}

fn uris(given: Option<&Raw>) -> Result<BTreeSet<String>, RpcError> {
    let Some(given) = given else { return Ok(BTreeSet::new()) };
    let wrong = |why: &str| RpcError::malformed(format!("params.notifications.resourceSubscriptions {why}"));
    let given: Vec<String> = given.read().map_err(|_| wrong("must be an array of strings"))?;
    if given.len() > MAX_URIS {
        return Err(wrong("has more than 256 URIs; open another stream for the rest"));
    }
    if given.iter().any(|uri| uri.len() > MAX_URI) {
        return Err(wrong("has a URI of more than 8 KiB"));
    }
    Ok(given.into_iter().collect())
}

/// Opens `subscriptions/listen`, and serves it until its stream ends (spec: basic/patterns/subscriptions). What is given
/// back holds no more than that needs: not the request, nor what it came with.
pub(crate) fn listen(
    shared: &Arc<Shared>,
    exchange: &Exchange,
    responder: Responder,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let filter =
        exchange.request.params.as_ref().and_then(|p| p.get("notifications")).and_then(|n| n.object());
    let wanted = match &filter {
        Some(f) => Wanted::of(f, &shared.catalog()).and_then(|w| Ok((w, followed::ids(f)?))),
        None => Err(RpcError::malformed("params.notifications must be an object")),
    };
    let wanted = wanted.and_then(|(wanted, tasks)| {
        if tasks.is_empty() || methods::tasks::known(exchange) {
            Ok((wanted, tasks))
        } else {
            Err(methods::tasks::required())
        }
    });
    let (wanted, tasks) = match wanted {
        Ok(w) => w,
        Err(e) => {
            responder.answer(e);
            return Box::pin(std::future::ready(()));
        }
    };
    let standing = Standing::of(&exchange.caller);
    let place = Place::of(shared, &exchange.caller);
    if tasks.is_empty() {
        return Box::pin(Listening::open(shared, wanted, None, place, standing, responder).serve());
    }
    let principal = principal_of(&exchange.caller.extensions);
    let declared = exchange.meta.client_capabilities().clone();
    let shared = shared.clone();
    Box::pin(async move {
        match Tasks::of(&shared, principal, declared, tasks).await {
            Ok(tasks) => {
                let tasks = Some(Box::new(tasks));
                Listening::open(&shared, wanted, tasks, place, standing, responder).serve().await;
            }
            Err(e) => responder.answer(e),
        }
    })
}

/// An open stream of the modern era.
struct Listening {
    wanted: Wanted,
    /// Boxed, since most streams follow none.
    tasks: Option<Box<Tasks>>,
    changes: Receiver<Change>,
    place: Place,
    standing: Standing,
    out: Out,
    _counted: Counted,
}

impl Listening {
    fn open(
        shared: &Shared,
        wanted: Wanted,
        tasks: Option<Box<Tasks>>,
        place: Place,
        standing: Standing,
        responder: Responder,
    ) -> Listening {
        // From before the acknowledgement, so that nothing is missed behind it.
        let changes = shared.changes.listen();
        let acknowledged = wanted.acknowledged(&tasks.as_ref().map_or_else(Vec::new, |tasks| tasks.ids()));
        let info = shared.server_info.as_str();
        let out = Out::new(responder.listen(&acknowledged, &[(meta::SERVER_INFO, info)]));
        let _counted = Counted::new(&shared.metrics.listeners);
        Listening { wanted, tasks, changes, place, standing, out, _counted }
    }

    async fn serve(mut self) {
        let Listening { wanted, tasks, changes, place, standing, out, .. } = &mut self;
        loop {
            let open = tokio::select! {
                () = out.stream.ended() => false,
                () = standing.lost() => false,
                heard = changes.recv() => match heard {
                    Ok(change) => wanted.tell(out, place, &change).await,
                    Err(RecvError::Lagged(_)) => wanted.tell_all(out, place).await,
                    Err(RecvError::Closed) => false,
                },
                news = next_of(tasks) => Box::pin(out.all_tasks(&news)).await,
            };
            if !open {
                return;
            }
        }
    }
}

/// What is news of the tasks that a stream follows; never, if it follows none.
async fn next_of(tasks: &mut Option<Box<Tasks>>) -> Vec<RawObject> {
    match tasks {
        // Boxed, or every stream would carry what this takes.
        Some(tasks) => Box::pin(tasks.next()).await,
        None => std::future::pending().await,
    }
}

/// Serves a legacy client's stream until it ends or its session does.
pub(crate) async fn stream(shared: &Arc<Shared>, caller: &Caller, stream: Subscription) {
    let sessions = &shared.sessions;
    let out = Out::new(stream);
    let (mut changes, mut ends) = (shared.changes.listen(), sessions.ends());
    let _counted = Counted::new(&shared.metrics.legacy_streams);
    let principal = principal_of(&caller.extensions);
    let feed = sessions.feed(caller);
    let has_session = feed.is_some();
    let place = Place::of(shared, caller);
    // Of a session's streams only the newest is fed; without a session each is.
    let fed = || feed.as_ref().is_none_or(Feed::is_newest);
    // An open stream is a use of its session; this is also how an end in another process is noticed.
    let pause = (sessions.idle().duration() / 16).clamp(Duration::from_secs(1), Duration::from_secs(300));
    let mut using = interval_at(Instant::now() + pause, pause);
    let mut pending = Pending::default();
    let mut followed = Followed::default();
    let mut standing = Standing::of(caller);
    let mut next_look = Instant::now();
    loop {
        let open = tokio::select! {
            () = out.stream.ended() => false,
            () = standing.lost() => false,
            heard = changes.recv() => match heard {
                Ok(_) | Err(RecvError::Lagged(_)) if !fed() => true,
                Ok(Change::Tools) => out.send(TOOLS, None).await,
                Ok(Change::ToolsIn(view)) => !place.sees(&view) || out.send(TOOLS, None).await,
                Ok(Change::Prompts) => out.send(PROMPTS, None).await,
                Ok(Change::Resources) => out.send(RESOURCES, None).await,
                Ok(Change::Resource(uri)) => {
                    if has_session {
                        pending.add(uri);
                    }
                    true
                }
                Ok(Change::Any) | Err(RecvError::Lagged(_)) => {
                    pending.all = has_session;
                    out.all_lists(&shared.catalog()).await
                }
                Err(RecvError::Closed) => false,
            },
            ended = ends.recv(), if has_session => match ended {
                Ok(Some(id)) => Some(&id) != caller.session.as_ref(),
                Ok(None) | Err(_) => is_there(shared, caller, &principal).await,
            },
            () = tokio::time::sleep_until(next_look), if pending.any() => {
                match followed.now(shared, caller, feed.as_ref()).await {
                    // Nothing is told by two streams, even if a newer one began meanwhile.
                    Ok(Some(_)) if !fed() => {
                        pending = Pending::default();
                        true
                    }
                    Ok(Some(subscribed)) => out.all_updated(pending.take(subscribed).iter()).await,
                    Ok(None) => false,
                    Err(_) => {
                        next_look = Instant::now() + PAUSE;
                        true
                    }
                }
            }
            _ = using.tick(), if has_session => is_there(shared, caller, &principal).await,
        };
        if !open {
            return;
        }
    }
}

/// Whether the stream's session goes on; one that can't be looked up at the moment does.
async fn is_there(shared: &Shared, caller: &Caller, principal: &str) -> bool {
    !matches!(shared.sessions.client(caller, principal).await, Err(SessionRefusal::Unknown))
}

/// Whether the caller's API key still counts; nothing to lose without one.
struct Standing(Option<Box<(Proof, Interval)>>);

impl Standing {
    fn of(caller: &Caller) -> Standing {
        let proof = caller.extensions.get::<Proof>().cloned();
        Standing(proof.map(|p| Box::new((p, interval_at(Instant::now() + PROVE_EVERY, PROVE_EVERY)))))
    }

    /// Resolves when it counts no longer. May be dropped and called again.
    async fn lost(&mut self) {
        let Some((proof, every)) = self.0.as_deref_mut() else { return std::future::pending().await };
        loop {
            every.tick().await;
            // Boxed, since it is asked so seldom.
            if !Box::pin(proof.holds()).await {
                return;
            }
        }
    }
}

/// What a session follows, as it was read.
#[derive(Default)]
struct Followed {
    uris: BTreeSet<String>,
    /// When, and after how many changes that this process made.
    read: Option<(Instant, u64)>,
}

impl Followed {
    /// What it follows now; `None` if it is over.
    async fn now(
        &mut self,
        shared: &Shared,
        caller: &Caller,
        feed: Option<&Feed>,
    ) -> Result<Option<&BTreeSet<String>>, StoreError> {
        let changes = feed.map_or(0, Feed::changes);
        if !self.read.is_some_and(|(at, then)| then == changes && at.elapsed() < STALE) {
            let Some(uris) = shared.sessions.subscriptions(caller).await? else { return Ok(None) };
            (self.uris, self.read) = (uris, Some((Instant::now(), changes)));
        }
        Ok(Some(&self.uris))
    }
}

/// Resources that changed and were not told yet.
#[derive(Default)]
struct Pending {
    uris: BTreeSet<Arc<str>>,
    /// Too many to remember, or some were missed.
    all: bool,
}

impl Pending {
    fn add(&mut self, uri: Arc<str>) {
        if self.uris.len() >= MAX_PENDING {
            self.all = true;
        } else {
            self.uris.insert(uri);
        }
    }

    fn any(&self) -> bool {
        self.all || !self.uris.is_empty()
    }

    /// Those that are subscribed to.
    fn take(&mut self, subscribed: &BTreeSet<String>) -> Vec<String> {
        let Pending { uris, all } = std::mem::take(self);
        if all {
            return subscribed.iter().cloned().collect();
        }
        uris.iter().filter_map(|uri| subscribed.get(&**uri)).cloned().collect()
    }
}
