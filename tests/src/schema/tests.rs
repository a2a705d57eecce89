//! Messages that fit and that don't, against a schema small enough to be read.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
use super::*;

/// A schema of the protocol's shape, small enough to be read.
fn small() -> Schemas {
    let id = json!({"type": ["string", "integer"]});
    let request = |method: &str| {
        json!({"type": "object", "required": ["id", "method"],
            "properties": {"method": {"const": method}, "params": {"type": "object"}}})
    };
    let envelope = |member: &str| {
        json!({"type": "object", "required": ["jsonrpc", "id", member],
        "properties": {"jsonrpc": {"const": "2.0"}, "id": id}})
    };
    let any = |names: &[&str]| json!({"anyOf": names.iter().map(|n| json!({"$ref": format!("#/$defs/{n}")})).collect::<Vec<_>>()});
    let schema = json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": {
        "ClientRequest": any(&["CallToolRequest", "PingRequest", "ReadRequest"]),
        "CallToolRequest": request("tools/call"),
        "ReadRequest": request("read"),
        "PingRequest": request("ping"),
        "CallToolResult": {"type": "object", "required": ["content"]},
        "ReadResult": {"type": "object", "properties": {"blob": {"type": "string", "format": "byte"}}},
        "CallToolResultResponse": {"properties":
            {"result": any(&["InputRequiredResult", "CallToolResult"])}},
        "InputRequiredResult": {"type": "object", "required": ["resultType"]},
        "EmptyResult": {"type": "object"},
        "ServerNotification": any(&["ChangedNotification"]),
        "ChangedNotification": {"properties": {"method": {"const": "changed"}, "params": {"required": ["uri"]}}},
        "ClientNotification": {"properties": {"method": {"const": "cancelled"}}},
        "JSONRPCRequest": envelope("method"),
        "JSONRPCNotification": {"required": ["jsonrpc", "method"]},
        "JSONRPCResultResponse": envelope("result"),
        "JSONRPCErrorResponse": envelope("error"),
        "VersionError": {"properties": {"error": {"allOf": [{"properties":
            {"code": {"const": -32022}, "data": {"required": ["supported"]}}, "required": ["data"]}]}}},
        "ParseError": {"properties": {"code": {"const": -32700}, "message": {"type": "string"}},
            "required": ["message"]},
        "Error": {"type": "object"},
    }});
    Schemas::of("2026-07-28", schema).unwrap()
}

fn judged(from: Sender, about: Option<&str>, message: Value) -> Verdict {
    let about = about.map(str::to_owned);
    let entry = Entry { from, revision: Some("2026-07-28".into()), about, message };
    small().judge(&entry).pop().unwrap()
}

fn answer(about: &str, rest: Value) -> Verdict {
    let mut message = json!({"jsonrpc": "2.0", "id": 1});
    for (name, value) in rest.as_object().unwrap() {
        message[name] = value.clone();
    }
    judged(Sender::Server, Some(about), message)
}

#[test]
fn what_fits_passes_under_its_kind() {
    let good = [
        (answer("tools/call", json!({"result": {"content": []}})), "2026-07-28 tools/call result", true),
        (answer("ping", json!({"result": {}})), "2026-07-28 ping result", true),
        (answer("read", json!({"result": {"blob": "aGk="}})), "2026-07-28 read result", true),
        (
            answer("tools/call", json!({"result": {"resultType": "input_required", "requestState": "s"}})),
            "2026-07-28 tools/call input_required",
            true,
        ),
        (answer("own/method", json!({"result": {}})), "2026-07-28 (other) result", false),
        (
            answer("own/method", json!({"error": {"code": -32601, "message": "no"}})),
            "2026-07-28 (other) error",
            true,
        ),
        (
            judged(
                Sender::Server,
                None,
                json!({"jsonrpc": "2.0", "method": "changed", "params": {"uri": "x"}}),
            ),
            "2026-07-28 changed notification",
            true,
        ),
        (
            judged(Sender::Client, None, json!({"jsonrpc": "2.0", "id": "a", "method": "tools/call"})),
            "2026-07-28 tools/call request by the client",
            true,
        ),
    ];
    for (verdict, kind, defined) in good {
        assert_eq!(verdict.problem, None, "{kind}");
        assert_eq!((verdict.kind.to_string().as_str(), verdict.defined), (kind, defined));
    }
}

#[test]
fn what_does_not_fit_is_told() {
    let server = |message| judged(Sender::Server, None, message);
    let bad = [
        (answer("tools/call", json!({"result": {}})), "content"),
        (answer("read", json!({"result": {"blob": "a"}})), "byte"),
        (
            answer("read", json!({"result": {"resultType": "input_required", "requestState": "s"}})),
            "ask back",
        ),
        (answer("tools/call", json!({"result": {"resultType": "input_required"}})), "without inputRequests"),
        (answer("tools/call", json!({"id": null, "result": {"content": []}})), "JSONRPCResultResponse"),
        (answer("tools/call", json!({"result": {}, "error": {}})), "a result and an error"),
        (answer("ping", json!({"error": {"code": -32022, "message": "", "data": {}}})), "VersionError"),
        (answer("ping", json!({"error": {"code": -32700}})), "ParseError"),
        (server(json!({"jsonrpc": "2.0", "method": "changed", "params": {}})), "ChangedNotification"),
        (server(json!({"jsonrpc": "2.0", "method": "cancelled"})), "no such notification"),
        (server(json!({"jsonrpc": "2.0", "id": 1, "result": {}})), "which request"),
        (server(json!({"jsonrpc": "2.0", "id": 1})), "neither"),
        (server(json!([{"jsonrpc": "2.0", "id": 1, "result": {}}])), "neither"),
    ];
    for (verdict, part) in bad {
        let problem = verdict.problem.unwrap_or_else(|| panic!("{part}: passed"));
        assert!(problem.contains(part), "{problem}");
    }
}

#[test]
fn a_revision_that_nobody_knows_fails_and_none_means_any() {
    let message = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": ""}});
    let entry = |revision: Option<&str>| Entry {
        from: Sender::Server,
        revision: revision.map(str::to_owned),
        about: None,
        message: message.clone(),
    };
    assert!(small().judge(&entry(Some("2024-11-05")))[0].problem.is_some());
    let verdict = small().judge(&entry(None)).pop().unwrap();
    assert_eq!((verdict.problem, verdict.kind.to_string().as_str()), (None, "any (other) error"));
}

fn task(status: &str, more: Value) -> Value {
    let mut task = json!({"taskId": "t", "status": status, "createdAt": "2026-07-28T09:30:00Z",
        "lastUpdatedAt": "2026-07-28T09:30:01.5Z", "ttlMs": null});
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    task
}

#[test]
fn tasks_have_what_belongs_to_their_status() {
    let get = |task: Value| answer("tasks/get", json!({ "result": task }));
    for (status, more) in [
        ("working", json!({"pollIntervalMs": 1000, "statusMessage": "x"})),
        ("completed", json!({"result": {}})),
        ("failed", json!({"error": {}})),
        ("cancelled", json!({"ttlMs": 5})),
    ] {
        let mut whole = task(status, more);
        whole["resultType"] = json!("complete");
        let verdict = get(whole.clone());
        assert!(verdict.problem.is_none() && verdict.defined, "{verdict:?}");
        assert_eq!(verdict.kind.to_string(), "2026-07-28 tasks/get result");
        whole["resultType"] = json!("task");
        assert!(get(whole).problem.is_some());
    }
    for (status, more) in [
        ("working", json!({"result": {}})),
        ("completed", json!({})),
        ("failed", json!({"result": {}})),
        ("input_required", json!({})),
        ("done", json!({})),
        ("working", json!({"ttlMs": "1"})),
        ("working", json!({"createdAt": "soon"})),
    ] {
        let mut wrong = task(status, more);
        wrong["resultType"] = json!("complete");
        assert!(get(wrong.clone()).problem.is_some(), "{wrong}");
    }
    let acknowledged = answer("tasks/cancel", json!({"result": {"resultType": "complete"}}));
    assert!(acknowledged.problem.is_none());
    assert!(answer("tasks/update", json!({"result": {}})).problem.is_some());
    let created =
        |about: &str| answer(about, json!({"result": task("working", json!({"resultType": "task"}))}));
    assert_eq!(created("tools/call").kind.to_string(), "2026-07-28 tools/call task");
    assert!(created("tools/call").problem.is_none() && created("read").problem.is_some());
    let told = |from, method: &str| {
        judged(from, None, json!({"jsonrpc": "2.0", "method": method, "params": task("working", json!({}))}))
    };
    assert!(told(Sender::Server, "notifications/tasks").problem.is_none());
    assert!(told(Sender::Client, "notifications/tasks").problem.is_some());
    let asked = |method: &str, params: Value| {
        judged(Sender::Client, None, json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
    };
    assert!(asked("tasks/get", json!({"taskId": "t"})).problem.is_none());
    assert!(asked("tasks/get", json!({})).problem.is_some());
    assert!(asked("tasks/get", json!({"taskId": "t", "inputResponses": {}})).problem.is_some());
    assert!(asked("tasks/update", json!({"taskId": "t", "inputResponses": {"a": {}}})).problem.is_none());
    assert!(asked("tasks/update", json!({"taskId": "t"})).problem.is_some());
}

#[test]
fn a_server_asks_only_what_its_revision_has() {
    let asked = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
    let verdict = judged(Sender::Server, None, asked);
    assert!(verdict.problem.unwrap().contains("no such request by the server"));
}
