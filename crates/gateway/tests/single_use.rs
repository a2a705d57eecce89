//! States that may be brought back once: of requests that only read, since what changes something is kept once by its
//! operation.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::replicas::*;
use common::*;

use async_trait::async_trait;
use counterfoil_gateway as gateway;
use gateway::prompt::{Made, Prompt};
use gateway::resource::Failure;
use gateway::{BadArguments, Body, Context, GatewaySettings, Offer, ReadTool};
use ledger::{Millis, ToolResult};
use mcp::input::Field;
use mcp::json::RawObject;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Asks for two things, one after the other, and counts how often it heard the second.
#[derive(Default)]
struct Asking(AtomicUsize);

impl Asking {
    async fn hear(&self, context: &Context) -> Result<String, gateway::Unanswered> {
        let who = context.ask(&[form("who", Field::choice(["me", "you"]))]).await?;
        let why = context.ask(&[form("why", Field::choice(["yes", "no"]))]).await?;
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(format!("{who:?} {why:?}"))
    }
}

#[async_trait]
impl ReadTool for Asking {
    async fn read(&self, context: Context, _: RawObject) -> Result<ToolResult, BadArguments> {
        let text = self.hear(&context).await?;
        let body = json!({ "content": [{ "type": "text", "text": text }] });
        Ok(ToolResult { result: body.to_string().into_bytes(), is_error: false })
    }
}

#[async_trait]
impl Prompt for Asking {
    async fn get(&self, context: Context, _: BTreeMap<String, String>) -> Result<Made, Failure> {
        let text = self.hear(&context).await?;
        Ok(Made { description: Some(text), messages: Vec::new() })
    }
}

fn offer(asking: &Arc<Asking>) -> Offer {
    let (mut spec, _) = prompt("asking");
    spec.arguments.clear();
    Offer {
        tools: vec![
            tool("asking", None, Body::Read(asking.clone())),
            works("works", &Arc::new(Works::default()), |_| {}),
        ],
        prompts: vec![(spec, asking.clone())],
        ..Offer::default()
    }
}

async fn worlds(single_use: bool) -> (Pair, Arc<Asking>) {
    let asking = Arc::new(Asking::default());
    let settings = GatewaySettings { single_use, ..settings() };
    (pair_with(|| offer(&asking), false, STATE_TTL, settings).await, asking)
}

async fn ask(w: &World, method: &str, state: Option<&str>, responses: Value) -> Reply {
    let mut params = json!({ "name": "asking" });
    if let Some(state) = state {
        (params["requestState"], params["inputResponses"]) = (json!(state), responses);
    }
    w.modern_with(method, params, asked(), &[]).await
}

fn who() -> Value {
    json!({ "who": accept(json!({ "who": "me" })) })
}

fn why(said: &str) -> Value {
    json!({ "why": accept(json!({ "why": said })) })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_of_a_reading_request_is_let_through_once_at_whichever_replica() {
    for method in ["tools/call", "prompts/get"] {
        let (p, asking) = worlds(true).await;
        let first = state(&ask(&p.a, method, None, Value::Null).await);
        let second = state(&ask(&p.b, method, Some(&first), who()).await);
        // The first is spent, whoever brings it and whatever it comes with.
        for w in [&p.a, &p.b] {
            assert_eq!(ask(w, method, Some(&first), who()).await.code(), -32602);
        }
        // Two replicas get the second at the same time.
        let (one, other) = (why("yes"), why("no"));
        let (one, other) =
            tokio::join!(ask(&p.a, method, Some(&second), one), ask(&p.b, method, Some(&second), other));
        let codes = [one, other].map(|r| r.last()["error"]["code"].clone());
        assert!(codes.contains(&Value::Null) && codes.contains(&json!(-32602)), "{method}: {codes:?}");
        assert_eq!(asking.0.load(Ordering::SeqCst), 1, "{method}");
        let rejected = rejections(&p.a, "used").await + rejections(&p.b, "used").await;
        assert_eq!(rejected, 3, "{method}");
        // A state that is refused says the same as any other bad one.
        let used = ask(&p.a, method, Some(&first), who()).await;
        let forged = ask(&p.a, method, Some("nothing"), who()).await;
        assert_eq!(used.last()["error"]["message"], forged.last()["error"]["message"]);
        // Made anew it goes through.
        let first = state(&ask(&p.a, method, None, Value::Null).await);
        assert_eq!(questions(&ask(&p.a, method, Some(&first), who()).await), ["why"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_setting_a_state_may_come_again() {
    let (p, asking) = worlds(false).await;
    let first = state(&ask(&p.a, "prompts/get", None, Value::Null).await);
    for n in 1..=2 {
        let second = state(&ask(&p.b, "prompts/get", Some(&first), who()).await);
        assert!(result(&ask(&p.a, "prompts/get", Some(&second), why("yes")).await)["messages"].is_array());
        assert_eq!(asking.0.load(Ordering::SeqCst), n);
    }
    // A state that was sealed without it is none where it is wanted.
    let (store, env, keeper) = (p.store.clone(), p.clock.clone(), Some(p.keeper.clone()));
    let settings = GatewaySettings { single_use: true, ..settings() };
    let poll = Millis(40);
    let strict =
        serve(Parts { store, env, offer: offer(&asking), settings, auth: false, keeper, poll }).await;
    assert_eq!(ask(&strict, "prompts/get", Some(&first), who()).await.code(), -32602);
    assert_eq!(rejections(&strict, "used").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_of_an_operation_may_be_repeated_and_gets_its_answer() {
    let (p, _) = worlds(true).await;
    let arguments = json!({ "ask": [["who"]], "send": "key" });
    let send = async |w: &World, state: Option<&str>, responses: Option<Value>| {
        w.modern_with("tools/call", call("works", arguments.clone(), state, responses), asked(), &[]).await
    };
    let first = state(&send(&p.a, None, None).await);
    let told = |name: &str| Some(json!({ "who": accept(json!({ "who": name })) }));
    let done = said(&send(&p.b, Some(&first), told("me")).await);
    for w in [&p.a, &p.b] {
        assert_eq!(
            said(&send(w, Some(&first), told("me")).await),
            done,
            "the reply was lost, so it comes again"
        );
    }
    assert_eq!(kind(&send(&p.a, Some(&first), told("you")).await), "answer_conflict");
    assert_eq!(p.operations().await, 1);
}
