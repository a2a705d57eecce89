//! Resources, templates and completion in the modern era, and lists of both.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::{build, offer, raw, resource, settings, template, world};
use counterfoil_gateway as gateway;
use gateway::{CatalogError, Offer};
use serde_json::{Value, json};

#[tokio::test]
async fn what_is_there_is_declared_and_listed() {
    let w = world(offer(), settings(), false).await;
    let d = w.modern("server/discover", json!({})).await;
    let c = &d.last()["result"]["capabilities"];
    assert_eq!(c["resources"], json!({ "listChanged": true }));
    assert_eq!((&c["completions"], &c["logging"]), (&json!({}), &json!({})));
    assert_eq!(c["prompts"], json!({ "listChanged": true }));
    let list = w.modern("resources/list", json!({})).await;
    let result = &list.last()["result"];
    assert_eq!((&result["resultType"], &result["ttlMs"]), (&json!("complete"), &json!(300_000)));
    assert_eq!(result["cacheScope"], "public");
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "test");
    assert_eq!(
        result["resources"][0],
        json!({ "uri": "test://shelf/text", "name": "text", "title": "A title", "description": "What it holds.",
            "mimeType": "text/plain", "annotations": { "audience": ["user"], "priority": 0.5 }, "size": 7,
            "icons": [{ "src": "https://example.com/i.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark" }] })
    );
    let list = w.modern("resources/templates/list", json!({})).await;
    let templates = &list.last()["result"]["resourceTemplates"];
    assert_eq!(
        templates[0],
        json!({ "uriTemplate": "test://item/{id}/data", "name": "item", "description": "An item.", "mimeType": "text/plain" })
    );
    let list = w.modern("tools/list", json!({})).await;
    let tool = &list.last()["result"]["tools"][0];
    assert_eq!(
        tool["annotations"],
        json!({ "readOnlyHint": true, "openWorldHint": true, "idempotentHint": true })
    );
    assert_eq!(tool["icons"][0]["theme"], "dark");
}

#[tokio::test]
async fn what_is_not_there_is_not_served() {
    let nothing = Offer { tools: offer().tools, ..Offer::default() };
    let w = world(nothing, settings(), false).await;
    let d = w.modern("server/discover", json!({})).await;
    let c = &d.last()["result"]["capabilities"];
    assert!(c["resources"].is_null() && c["prompts"].is_null() && c["completions"].is_null(), "{c}");
    let (uri, name) = (json!({ "uri": "test://x" }), json!({ "name": "x" }));
    for (method, params) in [
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", uri),
        ("prompts/list", json!({})),
        ("prompts/get", name),
        ("completion/complete", json!({})),
    ] {
        let r = w.modern(method, params).await;
        assert_eq!((r.status, r.code()), (404, -32601), "{method}");
    }
    // What a reload brings is served at once.
    w.gateway.reload(common::catalog(offer()));
    assert_eq!(w.modern("prompts/list", json!({})).await.status, 200);
    let d = w.modern("server/discover", json!({})).await;
    assert!(d.last()["result"]["capabilities"]["prompts"].is_object());
}

#[tokio::test]
async fn methods_of_the_legacy_era_are_not_found() {
    let w = world(common::watched(), settings(), false).await;
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"] {
        let r = w.modern(method, json!({ "uri": "test://watched", "level": "info" })).await;
        assert_eq!((r.status, r.code()), (404, -32601), "{method}");
    }
}

#[tokio::test]
async fn resources_are_read() {
    let w = world(offer(), settings(), false).await;
    let read = async |uri: &str| w.modern("resources/read", json!({ "uri": uri })).await;
    let r = read("test://shelf/text").await;
    let result = &r.last()["result"];
    assert_eq!(result["contents"][0]["text"], "anonymous {} \u{2028}\n\"");
    assert_eq!(result["contents"][0]["mimeType"], "text/plain");
    assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(0), &json!("private")));
    assert_eq!(result["resultType"], "complete");
    let r = read("test://shelf/binary").await;
    assert_eq!(r.last()["result"]["contents"], json!([{ "uri": "test://shelf/binary", "blob": "AP8H" }]));
    // Templates are tried in their order.
    let r = read("test://item/a%20b/data").await;
    assert!(r.last()["result"]["contents"][0]["text"].as_str().unwrap().contains(r#"{"id": "a b"}"#));
    let r = read("test://item/7/rest").await;
    let text = r.last()["result"]["contents"][0]["text"].as_str().unwrap().to_owned();
    assert!(text.contains(r#"{"id": "7", "part": "rest"}"#), "{text}");
}

#[tokio::test]
async fn what_can_not_be_read_says_why() {
    let w = world(offer(), settings(), false).await;
    let read = async |uri: Value| w.modern("resources/read", json!({ "uri": uri })).await;
    for unknown in ["test://nothing", "test://shelf/none", "test://item/1", "test://item/1/2/3"] {
        let r = read(json!(unknown)).await;
        assert_eq!((r.status, r.code()), (200, -32602), "{unknown}");
        assert_eq!(r.last()["error"]["data"]["uri"], unknown);
    }
    let r = read(json!("test://shelf/bad")).await;
    assert_eq!((r.status, r.code()), (200, -32602));
    assert!(r.last()["error"]["message"].as_str().unwrap().contains("that way"));
    let r = read(json!("test://shelf/failed")).await;
    assert_eq!(r.code(), -32603);
    assert!(r.last()["error"]["message"].as_str().unwrap().contains("locked"));
    let r = read(json!("test://shelf/panics")).await;
    assert_eq!(r.code(), -32603);
    assert!(!r.last().to_string().contains("a resource that panics"));
    let long = format!("test://item/{}/data", "x".repeat(9000));
    for bad in [json!(7), json!(null), json!({}), json!(long)] {
        let r = read(bad.clone()).await;
        assert_eq!((r.status, r.code()), (400, -32602), "{bad}");
    }
}

#[tokio::test]
async fn lists_come_in_pages_and_cursors_belong_to_their_list() {
    let mut big = Offer { tools: offer().tools, ..Offer::default() };
    for i in 0..250 {
        big.resources.push(resource(&format!("test://shelf/{i}"), false));
        big.templates.push(template(&format!("test://t{i}/{{id}}"), false));
        big.prompts.push(common::prompt(&format!("p{i}")));
    }
    let w = world(big, settings(), false).await;
    let mut cursors = Vec::new();
    for (method, member) in [
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
        ("prompts/list", "prompts"),
    ] {
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let params = cursor.map_or(json!({}), |c: Value| json!({ "cursor": c }));
            let r = w.modern(method, params).await;
            let result = r.last()["result"].clone();
            let page = result[member].as_array().unwrap().clone();
            assert!(page.len() <= 100);
            seen.extend(page);
            match result.get("nextCursor") {
                Some(c) => {
                    cursors.push((method, c.clone()));
                    cursor = Some(c.clone());
                }
                None => break,
            }
        }
        assert_eq!(seen.len(), 250, "{method}");
        let last = &seen[249];
        assert!(last.to_string().contains("249"), "{last}");
    }
    assert_eq!(cursors.len(), 6);
    for (method, bad) in [
        ("prompts/list", cursors[0].1.clone()),
        ("resources/list", json!("no cursor")),
        ("resources/list", json!(7)),
        ("resources/list", json!(mcp::paging::encode("resources", "test://shelf/3"))),
    ] {
        assert_eq!(w.modern(method, json!({ "cursor": bad })).await.code(), -32602, "{method}");
    }
}

#[tokio::test]
async fn arguments_and_variables_are_completed() {
    let w = world(offer(), settings(), false).await;
    let complete = async |r: Value, a: Value, c: Value| {
        let mut params = json!({ "ref": r, "argument": a });
        if !c.is_null() {
            params["context"] = c;
        }
        w.modern("completion/complete", params).await
    };
    let template = json!({ "type": "ref/resource", "uri": "test://item/{id}/{part}" });
    let prompt = json!({ "type": "ref/prompt", "name": "greet" });
    let known = json!({ "arguments": { "id": "1" } });
    let r = complete(template.clone(), json!({ "name": "part", "value": "a" }), known).await;
    let c = &r.last()["result"]["completion"];
    assert_eq!(c["values"].as_array().unwrap().len(), 100);
    assert_eq!((&c["values"][3], &c["total"], &c["hasMore"]), (&json!("a31"), &json!(1000), &json!(true)));
    assert_eq!(r.last()["result"]["resultType"], "complete");
    let r = complete(prompt.clone(), json!({ "name": "tone", "value": "s" }), json!({})).await;
    assert_eq!(r.last()["result"]["completion"], json!({ "values": ["s-{}"], "hasMore": false }));
    let a = json!({ "name": "id", "value": "" });
    for (reference, argument, context) in [
        (json!({ "type": "ref/resource", "uri": "test://other/{id}" }), a.clone(), Value::Null),
        (json!({ "type": "ref/resource", "uri": "test://shelf/text" }), a.clone(), Value::Null),
        (json!({ "type": "ref/prompt", "name": "nobody" }), a.clone(), Value::Null),
        (json!({ "type": "ref/tool", "name": "greet" }), a.clone(), Value::Null),
        (json!({ "type": "ref/prompt" }), a.clone(), Value::Null),
        (json!({ "type": "ref/resource" }), a.clone(), Value::Null),
        (json!({ "name": "greet" }), a.clone(), Value::Null),
        (json!("ref/prompt"), a.clone(), Value::Null),
        (Value::Null, a.clone(), Value::Null),
        (prompt.clone(), a.clone(), Value::Null),
        (template.clone(), json!({ "name": "other", "value": "" }), Value::Null),
        (template.clone(), json!({ "name": "id" }), Value::Null),
        (template.clone(), json!({ "value": "" }), Value::Null),
        (template.clone(), json!({ "name": "id", "value": 7 }), Value::Null),
        (template.clone(), json!({ "name": "id", "value": "x".repeat(9000) }), Value::Null),
        (template.clone(), Value::Null, Value::Null),
        (template.clone(), a.clone(), json!([])),
        (template.clone(), a.clone(), json!({ "arguments": [] })),
        (template.clone(), a.clone(), json!({ "arguments": { "id": 1 } })),
    ] {
        let r = complete(reference.clone(), argument.clone(), context.clone()).await;
        assert_eq!(r.code(), -32602, "{reference} {argument} {context}");
    }
    let r = complete(template, json!({ "name": "id", "value": "panic" }), Value::Null).await;
    assert_eq!(r.code(), -32603);
}

#[tokio::test]
async fn messages_and_progress_go_to_who_asked() {
    let w = world(offer(), settings(), false).await;
    let r = w.modern("resources/read", json!({ "uri": "test://shelf/logs" })).await;
    assert_eq!(r.messages.len(), 1);
    let meta = json!({ common::META_LEVEL: "info" });
    let r = w.modern_with("resources/read", json!({ "uri": "test://shelf/logs" }), meta, &[]).await;
    assert_eq!(r.messages.len(), 2);
    assert_eq!(r.messages[0]["params"], json!({ "level": "warning", "logger": "shelf", "data": "dusty" }));
    let meta = json!({ common::META_LEVEL: "warning", "progressToken": 7 });
    let r = w.modern_with("tools/call", json!({ "name": "echo", "arguments": {} }), meta, &[]).await;
    let methods: Vec<&str> = r.messages.iter().filter_map(|m| m["method"].as_str()).collect();
    assert_eq!(methods, ["notifications/progress", "notifications/message"]);
    assert_eq!(r.last()["result"]["structuredContent"]["revision"], "2026-07-28");
    let r = w.modern("tools/call", json!({ "name": "echo", "arguments": { "panic": 1 } })).await;
    assert_eq!(r.code(), -32603);
}

#[tokio::test]
async fn what_can_not_be_served_is_refused_when_it_is_offered() {
    let with = |change: &dyn Fn(&mut Offer)| {
        let mut o = offer();
        change(&mut o);
        build(o).err().map(|e| (e.tool().map(str::to_owned), e.to_string(), e))
    };
    assert!(with(&|_| {}).is_none());
    let same = |o: &mut Offer| o.resources.push(resource("test://shelf/text", false));
    assert!(matches!(with(&same), Some((None, _, CatalogError::SameUri(_)))));
    for bad in ["", "nothing", "7a:b", "a b:c", "test:", "test://a b", "test://a\n", "test://{id}"] {
        let e = with(&|o| o.resources.push(resource(bad, false)));
        assert!(matches!(e, Some((None, _, CatalogError::BadUri(_)))), "{bad}");
    }
    for bad in ["test://{+id}", "test://{a}{b}", "test://{a", "test://x", "{a}"] {
        let e = with(&|o| o.templates.push(template(bad, false)));
        assert!(matches!(e, Some((None, _, CatalogError::Template(..)))), "{bad}");
    }
    let e = with(&|o| o.templates.push(template("test://item/{id}/data", false)));
    assert!(matches!(e, Some((_, _, CatalogError::SameUri(_)))));
    let e = with(&|o| o.prompts.push(common::prompt("greet")));
    assert!(matches!(e, Some((_, _, CatalogError::SamePrompt(_)))));
    let e = with(&|o| o.prompts.push(common::prompt("")));
    assert!(matches!(e, Some((_, _, CatalogError::PromptName(_)))));
    let e = with(&|o| {
        let (mut spec, body) = common::prompt("other");
        spec.arguments[1].name = "name".into();
        o.prompts.push((spec, body));
    });
    assert!(matches!(e, Some((_, _, CatalogError::PromptArgument(..)))));
    let e = with(&|o| o.resources[0].0.annotations = Some(raw(&json!([]))));
    assert!(matches!(e, Some((_, _, CatalogError::ResourceAnnotations(_)))));
    let e = with(&|o| o.tools[0].0.annotations = Some(raw(&json!("x"))));
    assert!(matches!(&e, Some((Some(id), _, CatalogError::ToolObject(..))) if id == "native.echo"));
    let e = with(&|o| o.tools[0].0.requires = Some(raw(&json!({ "sampling": 1 }))));
    assert!(matches!(&e, Some((Some(_), _, CatalogError::ToolObject(..)))));
    for bad in ["ftp://x", "javascript:1", ""] {
        let e = with(&|o| o.resources[0].0.icons[0].src = bad.into());
        assert!(matches!(e, Some((_, _, CatalogError::Icon(..)))), "{bad}");
    }
    let e = with(&|o| o.prompts[0].0.icons[0].theme = Some("blue".into()));
    assert!(matches!(e, Some((_, _, CatalogError::Icon(..)))));
}
