//! Prompts in the modern era.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::{offer, settings, world};
use serde_json::{Value, json};

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
