//! Prompts in the modern era.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::{offer, settings, world};
use counterfoil_gateway as gateway;
use gateway::Context;
use gateway::prompt::{Made, Prompt};
use gateway::resource::Failure;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

#[tokio::test]
async fn prompts_are_listed_with_their_arguments() {
    let w = world(offer(), settings(), false).await;
    let list = w.modern("prompts/list", json!({})).await;
    let result = &list.last()["result"];
    let icon = json!({ "src": "https://example.com/i.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark" });
    let argument = |name: &str, required: bool| json!({ "name": name, "title": "Title", "description": "What it means.", "required": required });
    assert_eq!(
        result["prompts"],
        json!([{ "name": "greet", "title": "Greeting", "description": "Greets somebody.",
            "arguments": [argument("name", true), argument("tone", false)], "icons": [icon] }])
    );
    assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(300_000), &json!("public")));
}

#[tokio::test]
async fn a_prompt_is_made() {
    let w = world(offer(), settings(), false).await;
    let r = w.modern("prompts/get", json!({ "name": "greet", "arguments": { "name": "Ada \"\n" } })).await;
    let result = &r.last()["result"];
    assert_eq!(result["description"], "A greeting");
    assert_eq!(result["messages"][0]["role"], "user");
    let text = result["messages"][0]["content"]["text"].as_str().unwrap();
    assert_eq!(text, "Greet Ada \"\n Some(\"2026-07-28\")");
    assert_eq!(result["resultType"], "complete");
    assert!(result["ttlMs"].is_null());
}

#[tokio::test]
async fn what_does_not_fit_is_refused() {
    let w = world(offer(), settings(), false).await;
    for params in [
        json!({ "name": "nobody" }),
        json!({ "name": 7 }),
        json!({}),
        json!({ "name": "greet" }),
        json!({ "name": "greet", "arguments": {} }),
        json!({ "name": "greet", "arguments": { "tone": "warm" } }),
        json!({ "name": "greet", "arguments": { "name": "Ada", "colour": "red" } }),
        json!({ "name": "greet", "arguments": { "name": 7 } }),
        json!({ "name": "greet", "arguments": { "name": null } }),
        json!({ "name": "greet", "arguments": ["Ada"] }),
        json!({ "name": "greet", "arguments": "Ada" }),
        json!({ "name": "greet", "arguments": { "name": "Ada", "tone": "bad" } }),
    ] {
        let r = w.modern("prompts/get", params.clone()).await;
        assert_eq!(r.code(), -32602, "{params}");
    }
    for (tone, words) in [("failed", "mood"), ("broken", "could not be made"), ("panic", "Internal error")] {
        let params = json!({ "name": "greet", "arguments": { "name": "Ada", "tone": tone } });
        let r = w.modern("prompts/get", params).await;
        assert_eq!(r.code(), -32603, "{tone}");
        let message: &Value = &r.last()["error"]["message"];
        assert!(message.as_str().unwrap().contains(words), "{message}");
    }
}

/// Waits until it is let go.
struct Waits(Arc<tokio::sync::Semaphore>, Arc<tokio::sync::Semaphore>);

#[async_trait::async_trait]
impl Prompt for Waits {
    async fn get(&self, _context: Context, _arguments: BTreeMap<String, String>) -> Result<Made, Failure> {
        self.0.add_permits(1);
        self.1.acquire().await.unwrap().forget();
        Ok(Made { description: None, messages: Vec::new() })
    }
}

#[tokio::test]
async fn what_is_read_at_a_time_is_bounded() {
    let (begun, go) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let mut o = offer();
    let (mut spec, _) = common::prompt("waits");
    spec.arguments.clear();
    o.prompts.push((spec, Arc::new(Waits(begun.clone(), go.clone()))));
    let w = world(o, gateway::GatewaySettings { max_in_flight: 1, ..settings() }, false).await;
    let waits = w.modern("prompts/get", json!({ "name": "waits" }));
    let others = async {
        begun.acquire().await.unwrap().forget();
        let greet = json!({ "name": "greet", "arguments": { "name": "Ada" } });
        let complete = json!({ "ref": { "type": "ref/prompt", "name": "greet" }, "argument": { "name": "tone", "value": "" } });
        let read = json!({ "uri": "test://shelf/text" });
        for (method, params) in
            [("prompts/get", greet), ("completion/complete", complete), ("resources/read", read)]
        {
            for r in [w.modern(method, params.clone()).await, w.legacy(None, method, params.clone()).await] {
                assert_eq!((r.status, r.code()), (200, -32603), "{method}");
                let error = &r.last()["error"];
                assert_eq!(error["data"]["kind"], "unavailable", "{method}");
                assert_eq!(
                    error["message"],
                    "Too many operations are running at the moment, so nothing ran. Call again a little later; it is safe."
                );
            }
        }
        // Tools that read share the bound; lists are answered from memory.
        let echo = w.modern("tools/call", json!({ "name": "echo" })).await;
        assert_eq!(echo.last()["result"]["isError"], true);
        assert_eq!(w.modern("prompts/list", json!({})).await.status, 200);
        go.add_permits(1);
    };
    let (made, ()) = tokio::join!(waits, others);
    assert_eq!(made.last()["result"]["messages"], json!([]));
    assert_eq!(w.modern("resources/read", json!({ "uri": "test://shelf/text" })).await.status, 200);
    let again = w.modern("resources/read", json!({ "uri": "test://shelf/text" })).await;
    assert!(again.last()["result"]["contents"].is_array(), "the place is given back");
}
