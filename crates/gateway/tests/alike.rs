//! What is unknown, forged or another's costs the ledger the same questions: so that how long a refusal takes tells no more
//! than its words. Counted, not timed: a clock on a busy machine proves nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::replicas::*;
use common::*;

use async_trait::async_trait;
use counterfoil_gateway as gateway;
use gateway::tool::Mode;
use gateway::{BadArguments, Body, Offer, Tool};
use ledger::claims::{Claim, Claimed};
use ledger::gaps::Gaps;
use ledger::handle::id_hash;
use ledger::memory::MemoryStore;
use ledger::store::*;
use ledger::{
    Attempt, BlobKind, Epoch, Handle, HandleChange, Intent, KeyHash, Millis, Operation, OperationId,
    RunError, SlotHash, Time, ToolResult, Unkeyed,
};
use mcp::json::RawObject;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// A store that notes what it is asked about operations, their parts and handles; not what the ledger does by itself.
struct Counted {
    inner: Arc<MemoryStore>,
    asked: Mutex<Vec<&'static str>>,
}

impl Counted {
    fn note(&self, what: &'static str) {
        self.asked.lock().unwrap().push(what);
    }
    fn taken(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

#[async_trait]
impl Store for Counted {
    fn now(&self) -> Time {
        self.inner.now()
    }
    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }
    fn is_live(&self, epoch: Epoch) -> bool {
        self.inner.is_live(epoch)
    }
    fn clock_step(&self) -> Option<Time> {
        self.inner.clock_step()
    }
    fn gaps(&self) -> &Gaps {
        self.inner.gaps()
    }
    fn identity(&self) -> &Identity {
        self.inner.identity()
    }
    async fn write(&self, write: Write) -> Result<Committed, StoreError> {
        self.note("write");
        self.inner.write(write).await
    }
    fn write_lazily(&self, write: Write) {
        self.inner.write_lazily(write);
    }
    async fn flush(&self) -> Result<(), StoreError> {
        self.inner.flush().await
    }
    async fn by_id(&self, id: OperationId) -> Result<Option<Found>, StoreError> {
        self.note("by_id");
        self.inner.by_id(id).await
    }
    async fn owned(&self, who: &str, id: OperationId) -> Result<Option<Operation>, StoreError> {
        self.note("owned");
        self.inner.owned(who, id).await
    }
    async fn by_key(&self, key: &KeyHash) -> Result<Option<Found>, StoreError> {
        self.note("by_key");
        self.inner.by_key(key).await
    }
    async fn by_slot(&self, slot: &SlotHash) -> Result<Option<Operation>, StoreError> {
        self.note("by_slot");
        self.inner.by_slot(slot).await
    }
    async fn blob(&self, id: OperationId, kind: BlobKind) -> Result<Option<Vec<u8>>, StoreError> {
        self.note("blob");
        self.inner.blob(id, kind).await
    }
    async fn due(&self, now: Time, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.inner.due(now, limit).await
    }
    async fn orphans(&self, after: Option<OperationId>, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.inner.orphans(after, limit).await
    }
    async fn next_attention(&self) -> Result<Option<Time>, StoreError> {
        self.inner.next_attention().await
    }
    async fn list(&self, query: &Query) -> Result<Vec<Operation>, StoreError> {
        self.note("list");
        self.inner.list(query).await
    }
    async fn counts(&self) -> Result<Counts, StoreError> {
        self.inner.counts().await
    }
    async fn prune(&self, now: Time, tombstones_for: Millis, limit: usize) -> Result<usize, StoreError> {
        self.inner.prune(now, tombstones_for, limit).await
    }
    async fn claim(&self, holder: OperationId, turn: u64, claims: &[Claim]) -> Result<Claimed, StoreError> {
        self.note("claim");
        self.inner.claim(holder, turn, claims).await
    }
    async fn release_claims(&self, who: OperationId, turn: u64, b: &[String]) -> Result<(), StoreError> {
        self.inner.release_claims(who, turn, b).await
    }
    async fn prune_claims(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        self.inner.prune_claims(now, limit).await
    }
    async fn put_api_key(&self, key: ApiKey) -> Result<(), StoreError> {
        self.inner.put_api_key(key).await
    }
    async fn api_keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        self.inner.api_keys().await
    }
    async fn open_session(&self, session: Session) -> Result<Vec<String>, StoreError> {
        self.inner.open_session(session).await
    }
    async fn session(&self, id: &str) -> Result<Option<Session>, StoreError> {
        self.note("session");
        self.inner.session(id).await
    }
    async fn change_session(&self, id: &str, change: SessionChange) -> Result<Option<Session>, StoreError> {
        self.note("change_session");
        self.inner.change_session(id, change).await
    }
    async fn end_session(&self, id: &str) -> Result<bool, StoreError> {
        self.note("end_session");
        self.inner.end_session(id).await
    }
    async fn prune_sessions(&self, unused_since: Time, limit: usize) -> Result<usize, StoreError> {
        self.inner.prune_sessions(unused_since, limit).await
    }
    async fn handle(&self, id: &[u8; 32], who: &str, now: Time) -> Result<Option<Handle>, StoreError> {
        self.note("handle");
        self.inner.handle(id, who, now).await
    }
    async fn handles(
        &self,
        who: &str,
        kind: Option<&str>,
        after: Option<[u8; 32]>,
        limit: usize,
        now: Time,
    ) -> Result<Vec<Handle>, StoreError> {
        self.note("handles");
        self.inner.handles(who, kind, after, limit, now).await
    }
    async fn touch_handle(&self, id: &[u8; 32], who: &str, at: Time) -> Result<(), StoreError> {
        self.note("touch_handle");
        self.inner.touch_handle(id, who, at).await
    }
    async fn prune_handles(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        self.inner.prune_handles(now, limit).await
    }
    async fn shelved(&self, name: &str) -> Result<Option<Shelved>, StoreError> {
        // The key ring is looked for by itself, now and then.
        if name != seal::NAME {
            self.note("shelved");
        }
        self.inner.shelved(name).await
    }
    async fn shelve(
        &self,
        name: &str,
        ver: u64,
        data: Vec<u8>,
        until: Option<Time>,
    ) -> Result<bool, StoreError> {
        self.inner.shelve(name, ver, data, until).await
    }
    async fn prune_shelf(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        self.inner.prune_shelf(now, limit).await
    }
    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }
}

/// Makes a handle, or looks whether one is there; changes it, or ends it.
struct Opens;

#[async_trait]
impl Tool for Opens {
    fn plan(&self, _: &RawObject) -> Result<Option<Intent>, BadArguments> {
        Ok(None)
    }
    async fn run(&self, attempt: &Attempt) -> Result<ToolResult, RunError> {
        let told: Value = serde_json::from_slice(attempt.arguments().unwrap_or(b"{}")).unwrap();
        let text = told["handle"].as_str().unwrap_or_default();
        let principal = attempt.operation().scope.principal.clone();
        let hash = id_hash(text);
        let at = attempt.now();
        let said = match told["do"].as_str().unwrap() {
            "make" => {
                let text = attempt.handle_id("make", "");
                let life = Millis::secs(3600);
                let made = Handle {
                    id_hash: id_hash(&text),
                    principal,
                    kind: "basket".into(),
                    value: b"{}".to_vec(),
                    version: 1,
                    created_at: at,
                    used_at: at,
                    idle: life,
                    absolute: life,
                };
                attempt
                    .handle_change("make", HandleChange::Create(made), ledger::Receipt(vec![]))
                    .await?
                    .unwrap();
                text
            }
            "get" => match attempt.handle(text).await.map_err(ledger::Stopped::from)?.there() {
                Some(_) => "there".into(),
                None => "not there".into(),
            },
            word => {
                let change = match word {
                    "update" => HandleChange::Update {
                        id_hash: hash,
                        principal,
                        expected: 1,
                        value: b"{}".to_vec(),
                        at,
                    },
                    _ => HandleChange::Destroy { id_hash: hash, principal, expected: None, at },
                };
                match attempt.handle_change(word, change, ledger::Receipt(vec![])).await? {
                    Ok(_) => "changed".into(),
                    Err(why) => format!("{why:?}"),
                }
            }
        };
        let body = json!({ "content": [{ "type": "text", "text": said }], "isError": false });
        Ok(ToolResult { result: body.to_string().into_bytes(), is_error: false })
    }
    fn safety(&self) -> Value {
        json!({ "effect": "mutating" })
    }
}

struct Watched {
    w: World,
    store: Arc<Counted>,
}

async fn watched() -> Watched {
    let clock = Arc::new(Clock::default());
    let inner = Arc::new(MemoryStore::new(clock.clone(), Time(1_700_000_000_000), Attention::default()));
    let store = Arc::new(Counted { inner: inner.clone(), asked: Mutex::default() });
    let sealing = seal::Settings { audience: "test".into(), state_ttl: STATE_TTL, alone: true };
    let place = seal::MasterPlace::Given(seal::MasterKey::new().unwrap());
    let shelf = Arc::new(seal::OnLedger(inner.clone()));
    let keeper = Some(seal::Keeper::start(shelf, place, sealing).await.unwrap());
    let tool = Arc::new(Works::default());
    let mut opens = common::tool("opens", None, Body::Mutating(Arc::new(Opens)));
    (opens.1.unkeyed, opens.1.wait) = (Unkeyed::New, Millis::secs(5));
    let offer = Offer {
        tools: vec![works("works", &tool, |_| {}), works("task", &tool, |s| s.mode = Mode::Task), opens],
        ..Offer::default()
    };
    let settings =
        gateway::GatewaySettings { legacy_sessions: gateway::LegacySessions::Always, ..settings() };
    // Longer than the test: nothing is looked for by itself.
    let poll = Millis::secs(3600);
    let parts = Parts { store: inner, env: clock, offer, settings, auth: true, keeper, poll };
    Watched { w: serve_on(store.clone(), parts).await, store }
}

impl Watched {
    async fn ask(&self, who: &str, method: &str, params: Value) -> Reply {
        self.w.modern_with(method, params, tasked(), &[("Authorization", &bearer(who))]).await
    }

    /// What is asked of the store for this, and the answer but for what is its own.
    async fn cost(&self, who: &str, method: &str, params: Value, own: &str) -> (Vec<&'static str>, String) {
        // What was begun before is over.
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        self.store.taken();
        let reply = self.ask(who, method, params).await;
        let mut last = reply.last().clone();
        if let Some(result) = last["result"].as_object_mut() {
            // Each call is an operation of its own.
            result.remove("_meta");
        }
        (self.store.taken(), format!("{} {last}", reply.status).replace(own, "IT"))
    }
}

/// The same for all of these.
#[track_caller]
fn alike(what: &str, all: &[(Vec<&'static str>, String)]) -> Vec<&'static str> {
    let seen: BTreeSet<_> = all.iter().collect();
    assert_eq!(seen.len(), 1, "{what}: {seen:#?}");
    all[0].0.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_that_are_not_ones_own_cost_the_same_as_none() {
    let w = watched().await;
    let made = w.ask("ann", "tools/call", call("task", json!({ "ask": [["who"]] }), None, None)).await;
    let id = result(&made)["taskId"].as_str().unwrap().to_owned();
    let other = w.w.gateway.ledger().task_id(OperationId::new(w.store.now(), 7));
    let forged = format!("{}{}", &id[..id.len() - 1], if id.ends_with('0') { '1' } else { '0' });
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let mut all = Vec::new();
        for id in [&id, &other, &forged, "x"] {
            let told = json!({ "who": accept(json!({ "who": "ben" })) });
            let params = json!({ "taskId": id, "inputResponses": told });
            all.push(w.cost("ben", method, params, id).await);
        }
        assert_eq!(alike(method, &all), ["owned"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_that_are_not_ones_own_cost_the_same_as_none() {
    let w = watched().await;
    let arguments = json!({ "ask": [["who"]] });
    let made = w.ask("ann", "tools/call", call("works", arguments.clone(), None, None)).await;
    let id = operation_of(&made);
    // Of the same moment.
    let never = OperationId(id.parse::<OperationId>().unwrap().0 ^ 0xffff).to_string();
    let mut all = Vec::new();
    for id in [&id, &never] {
        let mut params = call("works", arguments.clone(), None, None);
        params["idempotencyKey"] = json!(id);
        all.push(w.cost("ben", "tools/call", params, id).await);
    }
    assert_eq!(alike("operations", &all), ["owned"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_that_are_not_ones_own_cost_the_same_as_none() {
    let w = watched().await;
    let made = w.ask("ann", "tools/call", call("opens", json!({ "do": "make" }), None, None)).await;
    let there = said(&made);
    let never = there.replace(&there[10..12], if &there[10..12] == "77" { "88" } else { "77" });
    for word in ["get", "update", "destroy"] {
        let mut all = Vec::new();
        for handle in [&there, &never] {
            let params = call("opens", json!({ "do": word, "handle": handle }), None, None);
            all.push(w.cost("ben", "tools/call", params, handle).await);
        }
        let asked = alike(word, &all);
        assert!(asked.contains(&"handle"), "{asked:?}");
        assert!(!all[0].1.contains("\"there\"") && !all[0].1.contains("changed"), "{all:?}");
    }
    let still =
        w.ask("ann", "tools/call", call("opens", json!({ "do": "get", "handle": there }), None, None));
    assert_eq!(said(&still.await), "there");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_are_not_ones_own_cost_the_same_as_none() {
    let w = watched().await;
    let auth = bearer("ann");
    let (_, session) = w.w.initialize(json!({}), &[("Authorization", &auth)]).await;
    let (session, never) = (session.unwrap(), "0".repeat(64));
    let mut all = Vec::new();
    for id in [&session, &never] {
        w.store.taken();
        let headers = [("Authorization", bearer("ben"))];
        let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let reply = w.w.legacy_with(Some(id), "tools/list", json!({}), &headers).await;
        assert_eq!(reply.status, 404);
        all.push((w.store.taken(), format!("{:?}", reply.messages)));
    }
    assert_eq!(alike("sessions", &all).len(), 1);
}

/// A state that doesn't open is refused before anything is looked for.
#[tokio::test(flavor = "multi_thread")]
async fn states_that_do_not_open_cost_nothing() {
    let w = watched().await;
    let arguments = json!({ "ask": [["who"]] });
    let good = state(&w.ask("ann", "tools/call", call("works", arguments.clone(), None, None)).await);
    let flipped = good.replacen(&good[20..21], if &good[20..21] == "A" { "B" } else { "A" }, 1);
    let mut all = Vec::new();
    for (who, token) in [("ben", good.as_str()), ("ann", &flipped), ("ann", &good[..60]), ("ann", "x")] {
        let told = json!({ "who": accept(json!({ "who": "me" })) });
        all.push(
            w.cost(who, "tools/call", call("works", arguments.clone(), Some(token), Some(told)), token).await,
        );
    }
    assert!(alike("states", &all).is_empty(), "{all:?}");
}
