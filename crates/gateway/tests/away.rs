//! Calls that come again while the ledger is away: one that belongs to an operation is never told that nothing ran.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::counted::Counted;
use common::replicas::*;
use common::*;

use counterfoil_gateway as gateway;
use gateway::Offer;
use ledger::memory::MemoryStore;
use ledger::store::Attention;
use ledger::{Millis, SystemEnv, Time, Unkeyed};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;

struct Stage {
    w: World,
    store: Arc<Counted>,
    tool: Arc<Works>,
}

/// A tool without a guard: the same call without a key is another one.
async fn stage() -> Stage {
    let inner =
        Arc::new(MemoryStore::new(Arc::new(SystemEnv), Time(1_700_000_000_000), Attention::default()));
    let store = Arc::new(Counted::of(inner.clone()));
    let sealing = seal::Settings { audience: "test".into(), state_ttl: STATE_TTL, alone: true };
    let place = seal::MasterPlace::Given(seal::MasterKey::new().unwrap());
    let shelf = Arc::new(seal::OnLedger(store.clone()));
    let keeper = Some(seal::Keeper::start(shelf, place, sealing).await.unwrap());
    let tool = Arc::new(Works::default());
    let tools = vec![works("works", &tool, |s| (s.unkeyed, s.wait) = (Unkeyed::New, Millis(80)))];
    let offer = Offer { tools, ..Offer::default() };
    let (env, settings) = (Arc::new(SystemEnv), settings());
    let parts = Parts { store: inner, env, offer, settings, auth: true, keeper, poll: Millis(40) };
    Stage { w: serve_on(store.clone(), parts).await, store, tool }
}

impl Stage {
    async fn call(&self, key: Option<&str>, params: Value) -> Reply {
        let auth = bearer("ann");
        let mut headers = vec![("Authorization", auth.as_str())];
        headers.extend(key.map(|key| ("Idempotency-Key", key)));
        self.w.modern_with("tools/call", params, asked(), &headers).await
    }

    async fn while_away(&self, key: Option<&str>, params: Value) -> Reply {
        self.store.away.store(true, Ordering::SeqCst);
        let reply = self.call(key, params).await;
        self.store.away.store(false, Ordering::SeqCst);
        reply
    }
}

/// What is told of an operation that may be running: its text and its `retryKey`.
#[track_caller]
fn unknown(reply: &Reply) -> (String, Option<String>) {
    assert_eq!(kind(reply), "admission_unknown", "{:?}", reply.messages);
    let text = said(reply);
    assert!(!text.contains("nothing ran") && !text.contains("it is safe"), "{text}");
    let key = &result(reply)["_meta"]["dev.counterfoil/error"]["retryKey"];
    (text, key.as_str().map(str::to_owned))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leg_and_an_answer_are_told_whose_they_are() {
    for (arguments, answer) in [
        (json!({ "send": "key", "hold": "after" }), None),
        (json!({ "ask": [["who"]], "send": "key" }), Some(json!({ "who": accept(json!({ "who": "me" })) }))),
    ] {
        let s = stage().await;
        let first = s.call(None, call("works", arguments.clone(), None, None)).await;
        let (id, token) = (operation_of(&first), state(&first));
        let again = call("works", arguments.clone(), Some(&token), answer.clone());
        let (text, key) = unknown(&s.while_away(None, again.clone()).await);
        assert!(text.contains("with `retryKey` as the idempotency key"), "{text}");
        assert_eq!(key.as_deref(), Some(id.as_str()));
        s.tool.open();
        // With its state it goes on, as does the model with the key that it was told.
        let done = s.call(None, again).await;
        assert_eq!((said(&done).contains("done"), operation_of(&done)), (true, id.clone()));
        let done = s.call(key.as_deref(), call("works", arguments, None, None)).await;
        assert_eq!((operation_of(&done), s.tool.sent()), (id, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_can_not_be_opened_may_be_of_one_that_runs() {
    let s = stage().await;
    let elsewhere = stage().await;
    let arguments = json!({ "ask": [["who"]] });
    // Its key isn't known here yet, so the ledger is asked for it.
    let token = state(&elsewhere.call(None, call("works", arguments.clone(), None, None)).await);
    for key in [None, Some("k-1")] {
        let reply = s.while_away(key, call("works", arguments.clone(), Some(&token), None)).await;
        let (text, told) = unknown(&reply);
        assert_eq!(told.as_deref(), key);
        for words in ["with the same `requestState`", "same idempotency key", "look first"] {
            assert!(text.contains(words), "{text}");
        }
    }
    assert_eq!(s.tool.ran(), 0);
}
