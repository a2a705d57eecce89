//! What is unknown, forged or another's costs the ledger the same questions: so that how long a refusal takes tells no more
//! than its words. Counted, not timed: a clock on a busy machine proves nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::counted::Counted;
use common::replicas::*;
use common::*;

use async_trait::async_trait;
use counterfoil_gateway as gateway;
use gateway::tool::Mode;
use gateway::{BadArguments, Body, Offer, Tool};
use ledger::handle::id_hash;
use ledger::memory::MemoryStore;
use ledger::store::Attention;
use ledger::{
    Attempt, Handle, HandleChange, Intent, Millis, OperationId, RunError, Store as _, Time, ToolResult,
    Unkeyed,
};
use mcp::json::RawObject;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

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
    let store = Arc::new(Counted::of(inner.clone()));
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
