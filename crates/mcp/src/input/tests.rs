#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
use proptest::prelude::*;

use super::*;
use crate::message::{self, Message};
use crate::revision::Revision;
use crate::server::WireResult;

fn raw(value: impl ToString) -> Raw {
    Raw::parse(value.to_string(), &Limits::default()).unwrap()
}

fn asks(value: Value) -> Result<InputRequest, Invalid> {
    InputRequest::parse("k", &raw(value))
}

fn form(schema: Value) -> InputRequest {
    asks(json!({"method": "elicitation/create", "params": {"message": "m", "requestedSchema": schema}}))
        .unwrap()
}

#[test]
fn the_examples_of_the_specification_are_read_and_written_back() {
    for request in [
        json!({"method": "elicitation/create", "params": {"mode": "form", "message": "Please provide your GitHub username",
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}}),
        json!({"method": "elicitation/create", "params": {"mode": "url", "message": "Please provide your API key to continue.",
            "url": "https://mcp.example.com/ui/set_api_key"}}),
        json!({"method": "sampling/createMessage", "params": {
            "messages": [{"role": "user", "content": {"type": "text", "text": "What is the capital of France?"}}],
            "modelPreferences": {"hints": [{"name": "claude-3-sonnet"}], "costPriority": 0.3, "speedPriority": 0.5},
            "temperature": 0.1, "systemPrompt": "You are a helpful assistant.", "includeContext": "thisServer", "maxTokens": 100}}),
        json!({"method": "roots/list"}),
    ] {
        let read = asks(request.clone()).unwrap();
        assert_eq!(read.to_raw().read::<Value>().unwrap(), request);
        assert_eq!(InputRequest::parse("k", &read.to_raw()).unwrap(), read);
        assert!(!read.summary().is_empty());
    }
}

#[test]
fn builders_make_what_is_read() {
    let choice = Property {
        name: "colour".into(),
        title: Some("Colour".into()),
        description: None,
        field: Field::choice(["red", "green"]),
        required: false,
    };
    let made = Form::new().require("name", Field::text()).unwrap().with(choice).unwrap();
    for request in [
        InputRequest::form("a", "Who?", made).unwrap(),
        InputRequest::form("a", "Sure?", Form::new()).unwrap(),
        InputRequest::page("a.b-c_1", "Pay", "http://127.0.0.1:8080/pay?x=1").unwrap(),
        InputRequest::roots("r").unwrap(),
        InputRequest::sampling(
            "s",
            Sampling::text("Hi", 10)
                .unwrap()
                .system("Be brief")
                .unwrap()
                .tools(json!([{"name": "t", "inputSchema": {"type": "object"}}]), ToolChoice::Required)
                .unwrap(),
        )
        .unwrap(),
    ] {
        assert_eq!(InputRequest::parse(request.key(), &request.to_raw()).unwrap(), request);
    }
    assert!(Form::new().require("a", Field::text()).unwrap().require("a", Field::flag()).is_err());
    assert!(Form::new().require("", Field::text()).is_err());
}

#[test]
fn what_may_not_be_asked_is_refused() {
    let text = json!({"role": "user", "content": {"type": "text", "text": "x"}});
    let used =
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "t", "input": {}}]});
    let result = |id: &str| json!({"type": "tool_result", "toolUseId": id, "content": []});
    let sampling = |messages: Value, more: Value| {
        let mut params = json!({"messages": messages, "maxTokens": 1});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"method": "sampling/createMessage", "params": params})
    };
    let elicit = |params: Value| json!({"method": "elicitation/create", "params": params});
    let schema = |schema: Value| elicit(json!({"message": "m", "requestedSchema": schema}));
    for request in [
        json!({"method": "tools/call", "params": {}}),
        json!({"method": "roots/list", "params": {"x": 1}}),
        json!({"method": "roots/list", "id": 1}),
        json!({"method": "roots/list", "params": null}),
        json!({"method": "elicitation/create"}),
        elicit(json!({"message": "m"})),
        elicit(json!({"message": "", "requestedSchema": {"type": "object", "properties": {}}})),
        elicit(
            json!({"message": "x".repeat(MAX_MESSAGE + 1), "requestedSchema": {"type": "object", "properties": {}}}),
        ),
        elicit(json!({"mode": "mail", "message": "m"})),
        elicit(json!({"mode": 1, "message": "m", "requestedSchema": {"type": "object", "properties": {}}})),
        elicit(json!({"mode": "url", "message": "m", "url": "https://a.b", "requestedSchema": {}})),
        schema(json!({"type": "array", "properties": {}})),
        schema(json!({"type": "object"})),
        schema(json!({"type": "object", "properties": {}, "additionalProperties": false})),
        schema(json!({"type": "object", "properties": {"a": {"type": "object", "properties": {}}}})),
        schema(json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]})),
        schema(json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "a"]})),
        schema(json!({"type": "object", "properties": {"a": {"type": "string", "title": 1}}})),
        sampling(json!([]), json!({})),
        sampling(json!([text]), json!({"maxTokens": 0})),
        sampling(json!([text]), json!({"temperature": "hot"})),
        sampling(json!([text]), json!({"includeContext": "all"})),
        sampling(json!([text]), json!({"stopSequences": [1]})),
        sampling(json!([text]), json!({"modelPreferences": {"costPriority": 2}})),
        sampling(json!([text]), json!({"tools": [{"name": "t"}]})),
        sampling(json!([text]), json!({"toolChoice": {"mode": "any"}})),
        sampling(json!([text]), json!({"task": {}})),
        sampling(json!([{"role": "system", "content": {"type": "text", "text": "x"}}]), json!({})),
        sampling(json!([{"role": "user", "content": []}]), json!({})),
        sampling(
            json!([{"role": "user", "content": {"type": "image", "data": "?", "mimeType": "image/png"}}]),
            json!({}),
        ),
        sampling(json!([{"role": "user", "content": {"type": "video"}}]), json!({})),
        sampling(json!([text, used]), json!({})),
        sampling(json!([text, used, text]), json!({})),
        sampling(json!([text, used, {"role": "user", "content": result("2")}]), json!({})),
        sampling(json!([text, used, {"role": "user", "content": [result("1"), text["content"]]}]), json!({})),
        sampling(json!([text, {"role": "user", "content": result("1")}]), json!({})),
    ] {
        assert!(asks(request.clone()).is_err(), "{request}");
    }
    let whole = sampling(json!([text, used, {"role": "user", "content": result("1")}]), json!({}));
    assert!(asks(whole).is_ok());
    for key in ["", "a b", "ä", &"k".repeat(MAX_KEY + 1)] {
        assert!(InputRequest::roots(key).is_err(), "{key}");
    }
    let large = Sampling::text(&"x".repeat(MAX_BYTES), 1).unwrap();
    assert!(InputRequest::sampling("k", large).is_err());
    let deep = format!(r#"{{"a":{}1{}}}"#, "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
    let deep =
        Sampling::text("x", 1).unwrap().with("metadata", serde_json::from_str(&deep).unwrap()).unwrap();
    assert!(InputRequest::sampling("k", deep).is_err());
}

#[test]
fn pages_are_https_without_credentials() {
    for (url, ok) in [
        ("https://mcp.example.com/connect?state=x", true),
        ("HTTPS://example.com", true),
        ("http://localhost:3000/x", true),
        ("http://[::1]/x", true),
        ("http://127.0.0.2/x", true),
        ("http://example.com/", false),
        ("http://localhost.example.com/", false),
        ("http://127.0.0.1.example.com/", false),
        ("https://user@example.com/", false),
        ("https://user:pass@example.com/", false),
        ("https://:pass@example.com/", false),
        ("https:///x", true), // to a browser its host is x
        ("javascript:alert(1)", false),
        ("file:///etc/passwd", false),
        ("ftp://example.com", false),
        ("example.com", false),
        ("https://exa mple.com", false),
        ("https://example.com/\n", false),
        ("https://bücher.example", false),
        ("", false),
    ] {
        assert_eq!(InputRequest::page("k", "m", url).is_ok(), ok, "{url}");
    }
    assert!(InputRequest::page("k", "m", &format!("https://a.b/{}", "x".repeat(5000))).is_err());
}

#[test]
fn a_client_is_asked_only_what_it_declared() {
    let page = InputRequest::page("p", "m", "https://a.b").unwrap();
    let form = InputRequest::form("f", "m", Form::new()).unwrap();
    let roots = InputRequest::roots("r").unwrap();
    let plain = InputRequest::sampling("s", Sampling::text("x", 1).unwrap()).unwrap();
    let tools = Sampling::text("x", 1).unwrap().tools(json!([]), ToolChoice::Auto).unwrap();
    let tools = InputRequest::sampling("t", tools).unwrap();
    let context = Sampling::text("x", 1).unwrap().with("includeContext", json!("allServers")).unwrap();
    let context = InputRequest::sampling("c", context).unwrap();
    let (modern, mid, old) = (Revision::V2026_07_28, Revision::V2025_11_25, Revision::V2025_06_18);
    for (request, declared, revision, ok) in [
        (&form, json!({}), modern, false),
        (&form, json!({"elicitation": {}}), modern, true),
        (&form, json!({"elicitation": {"form": {}}}), modern, true),
        (&form, json!({"elicitation": {"url": {}}}), modern, false),
        (&form, json!({"elicitation": {"url": {}}}), old, true),
        (&form, json!({"elicitation": null}), modern, false),
        (&form, json!({"elicitation": true}), old, false),
        (&page, json!({"elicitation": {}}), modern, false),
        (&page, json!({"elicitation": {"form": {}}}), mid, false),
        (&page, json!({"elicitation": {"form": {}, "url": {}}}), mid, true),
        (&page, json!({"elicitation": {"url": null}}), mid, false),
        (&roots, json!({"roots": {"listChanged": true}}), old, true),
        (&roots, json!({"sampling": {}}), old, false),
        (&plain, json!({"sampling": {}}), modern, true),
        (&plain, json!({"sampling": []}), modern, false),
        (&tools, json!({"sampling": {}}), modern, false),
        (&tools, json!({"sampling": {"tools": {}}}), mid, true),
        (&context, json!({"sampling": {}}), modern, false),
        (&context, json!({"sampling": {"context": {}}}), modern, true),
        (&context, json!({"sampling": {}}), old, true),
    ] {
        let checked = check([request], &raw(&declared), revision);
        assert_eq!(checked.is_ok(), ok, "{request:?} {declared} {revision}");
        if let Err(error) = checked {
            assert_eq!((error.code, error.http_status.as_u16()), (-32021, 400));
            assert_eq!(error.data.unwrap()["requiredCapabilities"], needs(request, revision));
        }
    }
    let error = check([&page, &roots, &form, &tools], &raw(r#"{"roots":{}}"#), modern).unwrap_err();
    let required = json!({"elicitation": {"url": {}, "form": {}}, "roots": {}, "sampling": {"tools": {}}});
    assert_eq!(error.data.unwrap()["requiredCapabilities"], required);
}

#[test]
fn answers_to_forms_are_held_against_the_schema() {
    let request = form(json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "minLength": 2}, "age": {"type": "integer", "minimum": 18}}}));
    for (answer, want) in [
        (
            json!({"action": "accept", "content": {"name": "Al", "age": 30}}),
            Ok(r#"{"action":"accept","content":{"name":"Al","age":30}}"#),
        ),
        (
            json!({"action": "accept", "content": {"x": {"deep": [1]}, "age": 18.0, "name": "Al"}, "y": 1}),
            Ok(r#"{"action":"accept","content":{"name":"Al","age":18.0}}"#),
        ),
        (json!({"action": "decline"}), Ok(r#"{"action":"decline"}"#)),
        (json!({"action": "decline", "content": {"name": 1}}), Ok(r#"{"action":"decline"}"#)),
        (json!({"action": "cancel", "content": null}), Ok(r#"{"action":"cancel"}"#)),
        (json!({"action": "accept"}), Err("content.name is missing")),
        (json!({"action": "accept", "content": null}), Err("content must be an object")),
        (json!({"action": "accept", "content": {}}), Err("content.name is missing")),
        (
            json!({"action": "accept", "content": {"name": "hunter2-secret", "age": 3}}),
            Err("content.age must be 18 or more"),
        ),
        (json!({"action": "accept", "content": {"name": 5}}), Err("content.name must be a string")),
        (json!({"action": "accept", "content": {"name": null}}), Err("content.name must be a string")),
        (json!({"action": "yes"}), Err("action must be accept, decline or cancel")),
        (json!({}), Err("action must be accept, decline or cancel")),
        (json!([]), Err("an answer must be an object")),
        (json!(null), Err("an answer must be an object")),
    ] {
        let read = Answer::read(&request, &raw(&answer)).map(|answer| answer.to_raw().to_string());
        assert_eq!(read, want.map(str::to_owned).map_err(str::to_owned), "{answer}");
    }
    let huge = r#"{"action":"accept","content":{"name":"Al","age":1e999}}"#;
    assert!(fits(&request, &raw(huge)).is_err());
    let twice =
        Raw::parse(r#"{"action":"accept","action":"decline"}"#, &Limits { depth: 9, unique_members: false });
    assert!(fits(&request, &twice.unwrap()).is_err());
    let deep = format!(r#"{{"action":"cancel","x":{}{}}}"#, "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
    assert_eq!(fits(&request, &raw(deep)).unwrap_err(), "an answer is nested 32 levels at most");
    let long = json!({"action": "cancel", "x": "x".repeat(MAX_BYTES)});
    assert_eq!(fits(&request, &raw(long)).unwrap_err(), "an answer has 262144 bytes at most");
    let page = InputRequest::page("p", "m", "https://a.b").unwrap();
    let accepted = Answer::read(&page, &raw(json!({"action": "accept", "content": {"x": 1}}))).unwrap();
    assert_eq!(accepted, Answer::Accepted(Vec::new()));
    assert_eq!(accepted.content().unwrap().as_str(), "{}");
}

#[test]
fn messages_and_roots_are_held_against_their_request() {
    let plain = InputRequest::sampling("s", Sampling::text("x", 1).unwrap()).unwrap();
    let tools = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
    let tools = Sampling::text("x", 1).unwrap().tools(tools, ToolChoice::Auto).unwrap();
    let tools = InputRequest::sampling("t", tools).unwrap();
    let roots = InputRequest::roots("r").unwrap();
    let text = json!({"type": "text", "text": "Paris"});
    let used = json!([{"type": "tool_use", "id": "1", "name": "t", "input": {}}]);
    for (request, answer, ok) in [
        (&plain, json!({"role": "assistant", "content": text, "model": "m", "stopReason": "endTurn"}), true),
        (&plain, json!({"role": "assistant", "content": [text, text], "model": "m"}), true),
        (&plain, json!({"role": "assistant", "content": text}), false),
        (&plain, json!({"role": "system", "content": text, "model": "m"}), false),
        (&plain, json!({"role": "assistant", "content": "Paris", "model": "m"}), false),
        (&plain, json!({"role": "assistant", "content": text, "model": "m", "stopReason": 1}), false),
        (&plain, json!({"role": "assistant", "content": used, "model": "m"}), false),
        (&plain, json!({"action": "decline"}), false),
        (&tools, json!({"role": "assistant", "content": used, "model": "m", "stopReason": "toolUse"}), true),
        (
            &tools,
            json!({"role": "assistant", "content": {"type": "tool_result", "toolUseId": "1", "content": []}, "model": "m"}),
            false,
        ),
        (&roots, json!({"roots": []}), true),
        (&roots, json!({"roots": [{"uri": "file:///home/u/a%20b", "name": "A"}], "_meta": {}}), true),
        (&roots, json!({"roots": [{"uri": "https://a.b"}]}), false),
        (&roots, json!({"roots": [{"uri": "file:///a b"}]}), false),
        (&roots, json!({"roots": [{"uri": "file:///a", "name": 1}]}), false),
        (&roots, json!({"roots": ["file:///a"]}), false),
        (&roots, json!({}), false),
    ] {
        let read = Answer::read(request, &raw(&answer));
        assert_eq!(read.is_ok(), ok, "{answer} {read:?}");
        if let Ok(read) = read {
            assert_eq!(Answer::read(request, &read.to_raw()).unwrap(), read);
        }
    }
    assert_eq!(Answer::kept(&plain, &Answer::Declined.to_raw()), Ok(Answer::Declined));
    assert!(Answer::kept(&plain, &raw(r#"{"action":"accept"}"#)).is_err());
}

#[test]
fn earlier_revisions_are_asked_in_their_own_words() {
    let (mid, old, oldest) = (Revision::V2025_11_25, Revision::V2025_06_18, Revision::V2025_03_26);
    let params = |request: &InputRequest, revision| {
        request.legacy_params(revision, "id-1").map(|p| p.unwrap().read::<Value>().unwrap())
    };
    let plain = form(json!({"type": "object", "properties": {
        "c": {"type": "string", "oneOf": [{"const": "1", "title": "One"}], "default": "1"},
        "n": {"type": "number", "default": 4}, "b": {"type": "boolean", "default": true}}, "required": ["b"]}));
    assert_eq!(params(&plain, mid).unwrap(), plain.params().unwrap().read::<Value>().unwrap());
    assert_eq!(
        params(&plain, old).unwrap(),
        json!({"message": "m", "requestedSchema": {"type": "object", "properties": {
            "c": {"type": "string", "enum": ["1"], "enumNames": ["One"]},
            "n": {"type": "number"}, "b": {"type": "boolean", "default": true}}, "required": ["b"]}})
    );
    assert!(params(&plain, oldest).is_err());
    let several = form(
        json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string", "enum": ["x"]}}}}),
    );
    assert!(params(&several, mid).is_ok());
    assert!(params(&several, old).unwrap_err().to_string().contains("a takes several values"));
    let page = InputRequest::page("p", "m", "https://a.b").unwrap();
    assert_eq!(params(&page, mid).unwrap()["elicitationId"], "id-1");
    assert!(params(&page, old).is_err());
    let blocks = |n: usize| {
        let block = json!({"type": "text", "text": "x"});
        let messages = json!([{"role": "user", "content": vec![block; n]}]);
        InputRequest::sampling("s", Sampling::text("x", 1).unwrap().with("messages", messages).unwrap())
            .unwrap()
    };
    assert!(params(&blocks(2), mid).is_ok() && params(&blocks(2), old).is_err());
    assert!(params(&blocks(1), oldest).unwrap()["messages"][0]["content"].is_object());
    let tools = Sampling::text("x", 1).unwrap().tools(json!([]), ToolChoice::None).unwrap();
    assert!(params(&InputRequest::sampling("s", tools).unwrap(), old).is_err());
    assert_eq!(InputRequest::roots("r").unwrap().legacy_params(oldest, "id"), Ok(None));
}

fn request(method: &str, params: Value) -> message::Request {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    match message::parse(&body.into(), &Limits::default()) {
        Ok(Message::Request(request)) => request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn answers_and_state_come_with_three_requests_only() {
    let params = json!({"inputResponses": {"a": {"action": "accept"}, "b": {}}, "requestState": "s\u{e9}"});
    for method in ["tools/call", "resources/read", "prompts/get"] {
        let given = Given::of(&request(method, params.clone())).unwrap();
        assert_eq!(given.state.as_deref(), Some("s\u{e9}"));
        let keys: Vec<_> = given.responses.iter().map(|(key, one)| (key.as_str(), one.as_str())).collect();
        assert_eq!(keys, [("a", r#"{"action":"accept"}"#), ("b", "{}")]);
        assert!(Given::of(&request(method, json!({}))).unwrap().is_empty());
        let many: serde_json::Map<_, _> = (0..65).map(|n| (n.to_string(), json!({}))).collect();
        for wrong in [
            json!({"inputResponses": null}),
            json!({"inputResponses": []}),
            json!({"inputResponses": "x"}),
            json!({"inputResponses": {"a": null}}),
            json!({"inputResponses": {"a": "accept"}}),
            json!({"inputResponses": many}),
            json!({"requestState": null}),
            json!({"requestState": 1}),
            json!({"requestState": {}}),
        ] {
            let error = Given::of(&request(method, wrong.clone())).unwrap_err();
            assert_eq!((error.code, error.http_status.as_u16()), (-32602, 400), "{wrong}");
        }
    }
    for method in ["tools/list", "server/discover", "completion/complete", "resources/list"] {
        assert_eq!(Asker::of(method), None);
        assert!(Given::of(&request(method, json!({"inputResponses": null}))).unwrap().is_empty());
    }
}

#[test]
fn results_that_ask_have_something_to_ask() {
    let roots = InputRequest::roots("r").unwrap();
    let page = InputRequest::page("p", "m", "https://a.b").unwrap();
    let of = |requests: &[InputRequest], state| {
        WireResult::input_required(Asker::PromptsGet, requests, state, &[("x", "1")])
    };
    let text = |requests: &[InputRequest], state| of(requests, state).unwrap().raw().to_string();
    assert_eq!(
        text(std::slice::from_ref(&roots), Some("s\"")),
        r#"{"inputRequests":{"r":{"method":"roots/list"}},"requestState":"s\"","resultType":"input_required","_meta":{"x":1}}"#
    );
    assert_eq!(text(&[], Some("")), r#"{"requestState":"","resultType":"input_required","_meta":{"x":1}}"#);
    let both = text(&[roots.clone(), page], None);
    let both: Value = serde_json::from_str(&both).unwrap();
    assert_eq!(both["inputRequests"].as_object().unwrap().len(), 2);
    assert!(both.get("requestState").is_none());
    assert_eq!(of(&[], None).unwrap_err(), Unasked::Nothing);
    assert_eq!(of(&[roots.clone(), roots.clone()], None).unwrap_err(), Unasked::DoubleKey);
    let many: Vec<_> = (0..65).map(|n| InputRequest::roots(&n.to_string()).unwrap()).collect();
    assert_eq!(of(&many, None).unwrap_err(), Unasked::TooMany);
}

#[test]
fn only_a_tool_call_ends_in_a_task() {
    let task =
        json!({"taskId": "t", "status": "working", "createdAt": "x", "lastUpdatedAt": "y", "ttlMs": null});
    let object = |task: &Value| raw(task).object().unwrap();
    let made = WireResult::task(Asker::ToolsCall, &object(&task), &[]).unwrap();
    let made: Value = made.raw().read().unwrap();
    assert_eq!((&made["resultType"], &made["ttlMs"]), (&json!("task"), &Value::Null));
    assert!(WireResult::task(Asker::ResourcesRead, &object(&task), &[]).is_err());
    for member in ["taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs"] {
        let mut less = task.clone();
        less.as_object_mut().unwrap().remove(member);
        assert!(WireResult::task(Asker::ToolsCall, &object(&less), &[]).is_err(), "{member}");
    }
}

fn field() -> impl Strategy<Value = Field> {
    let options = prop::collection::btree_map(".{1,6}", ".{0,6}", 1..6);
    let choices = (options, any::<bool>()).prop_map(|(all, titled)| {
        let choice = |(value, title): (String, String)| Choice { value, title: titled.then_some(title) };
        all.into_iter().map(choice).collect::<Vec<_>>()
    });
    // Such as are read back exactly: others may be read as their neighbours.
    let float = any::<i32>().prop_map(|n| serde_json::Number::from_f64(f64::from(n) / 1000.0).unwrap());
    let number = prop_oneof![any::<i64>().prop_map(Into::into), any::<u64>().prop_map(Into::into), float];
    let format = prop::option::of(prop::sample::select(Format::ALL.to_vec()));
    prop_oneof![
        (prop::option::of(0u64..9), prop::option::of(9u64..99), format)
            .prop_map(|(min, max, format)| Field::Text { min, max, format, default: None }),
        (any::<bool>(), prop::option::of(number.clone()), number).prop_map(|(lowest, min, other)| {
            let (min, max) = if lowest { (min, None) } else { (None, Some(other)) };
            Field::Number { integer: false, min, max, default: None }
        }),
        prop::option::of(any::<bool>()).prop_map(|default| Field::Flag { default }),
        (choices.clone(), any::<bool>()).prop_map(|(options, first)| {
            let default = first.then(|| options[0].value.clone());
            Field::Choice { options, names: false, default }
        }),
        (choices, prop::option::of(Just(1u64))).prop_map(|(options, min)| {
            let default = Some(vec![options[0].value.clone()]);
            Field::Choices { options, min, max: None, default }
        }),
    ]
}

fn forms() -> impl Strategy<Value = Form> {
    let property =
        (".{1,12}", prop::option::of(".{0,9}"), prop::option::of(".{0,9}"), field(), any::<bool>());
    prop::collection::vec(property, 0..6).prop_map(|all| {
        all.into_iter().fold(Form::new(), |form, (name, title, description, field, required)| {
            let property = Property { name, title, description, field, required };
            form.clone().with(property).unwrap_or(form)
        })
    })
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec![
            "accept",
            "decline",
            "cancel",
            "assistant",
            "text",
            "file:///x",
            "a",
            "form"
        ])
        .prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    let names = prop_oneof![
        prop::sample::select(vec![
            "action",
            "content",
            "role",
            "model",
            "roots",
            "uri",
            "type",
            "text",
            "messages",
            "maxTokens",
            "method",
            "params",
            "message",
            "requestedSchema",
            "properties",
            "required",
            "enum",
            "items",
            "url",
            "mode"
        ])
        .prop_map(str::to_owned),
        ".{0,4}",
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(names.clone(), inner, 0..6)
                .prop_map(|all| Value::Object(all.into_iter().collect())),
        ]
    })
}

/// A value that fits a field, if one is easily found.
fn answer_to(field: &Field) -> Option<Value> {
    Some(match field {
        Field::Text { min, format: None, .. } => json!("ä".repeat(min.unwrap_or(0) as usize)),
        Field::Text { .. } => return None,
        Field::Number { min, max, .. } => Value::Number(min.clone().or(max.clone())?),
        Field::Flag { .. } => json!(true),
        Field::Choice { options, .. } => json!(options[0].value),
        Field::Choices { options, .. } => json!([options[0].value]),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_built_is_read_back_the_same(form in forms(), message in ".{1,40}", key in "[A-Za-z0-9_.-]{1,64}") {
        let request = InputRequest::form(&key, &message, form.clone()).unwrap();
        prop_assert_eq!(&InputRequest::parse(&key, &request.to_raw()).unwrap(), &request);
        prop_assert_eq!(Form::parse(&form.to_value()).unwrap(), form.clone());
        // What an earlier revision is told can be read as well, with less in it.
        if let Ok(Some(params)) = request.legacy_params(Revision::V2025_06_18, "id") {
            let schema = params.read::<Value>().unwrap()["requestedSchema"].take();
            prop_assert_eq!(Form::parse(&schema).unwrap().properties().len(), form.properties().len());
        }
    }

    #[test]
    fn an_answer_that_fits_stays_the_same(form in forms()) {
        let filled: serde_json::Map<_, _> = form.properties().iter()
            .filter_map(|p| Some((p.name.clone(), answer_to(&p.field)?))).collect();
        let whole = form.properties().iter().all(|p| !p.required || filled.contains_key(&p.name));
        let request = InputRequest::form("k", "m", form).unwrap();
        let text = raw(json!({"action": "accept", "content": filled, "more": 1}));
        let read = Answer::read(&request, &text);
        prop_assert_eq!(read.is_ok(), whole, "{:?}", read);
        if let Ok(read) = read {
            let kept = read.to_raw();
            prop_assert_eq!(Answer::read(&request, &kept).unwrap(), read.clone());
            prop_assert_eq!(Answer::kept(&request, &kept).unwrap().to_raw(), kept);
        }
    }

    #[test]
    fn no_json_is_too_odd(value in json_value(), form in forms()) {
        let text = raw(&value);
        for request in [
            InputRequest::form("k", "m", form).unwrap(),
            InputRequest::page("k", "m", "https://a.b").unwrap(),
            InputRequest::sampling("k", Sampling::text("x", 1).unwrap()).unwrap(),
            InputRequest::roots("k").unwrap(),
        ] {
            match Answer::read(&request, &text) {
                Ok(answer) => prop_assert_eq!(Answer::read(&request, &answer.to_raw()), Ok(answer)),
                Err(why) => prop_assert!(!why.is_empty() && why.len() < 600),
            }
        }
        if let Ok(request) = InputRequest::parse("k", &text) {
            prop_assert_eq!(InputRequest::parse("k", &request.to_raw()).unwrap(), request);
        }
    }
}
