//! The legacy era over HTTP: the handshake, the choice of the era, sessions, and panics in every hook.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
extern crate counterfoil_mcp as mcp;

mod common;
use common::{ASK, EVENTS, Seen, Server, call, legacy, legacy_call, message};
use mcp::Eras;
use mcp::server::ServeLimits;
use serde_json::{Value, json};

async fn with_eras(eras: Eras) -> Server {
    Server::with(|c| c.eras = eras, ServeLimits::default()).await
}

#[tokio::test]
async fn the_handshake_agrees_on_a_revision() {
    let server = Server::start().await;
    for (asked, agreed) in [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("x", "2025-11-25"),
    ] {
        let answer = server.legacy(&ASK.replace("2025-11-25", asked), &[]).await;
        assert_eq!(answer.status, 200, "{asked}");
        assert!(!answer.head.contains("mcp-session-id"), "no session unless the service opens one");
        assert_eq!(
            answer.body,
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"result":{{"protocolVersion":"{agreed}","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"t","version":"1"}},"_meta":{{"info":{{"name":"c","version":"1"}},"capabilities":{{"roots":{{}}}}}}}}}}"#
            )
        );
    }
    let opened = server.legacy(ASK, &[("X-Open", "s-1"), ("MCP-Protocol-Version", "2025-06-18")]).await;
    assert!(opened.head.contains("mcp-session-id: s-1"), "{opened:?}");
    let stale = server.legacy(ASK, &[("Mcp-Session-Id", "long-gone")]).await;
    assert_eq!(stale.status, 200, "who opens anew has given the old session up");
    for id in ["two words", "\u{e9}", &"x".repeat(256)] {
        let answer = server.legacy(ASK, &[("X-Open", id)]).await;
        assert_eq!(answer.refusal(), (200, -32603, Some(json!(7))), "{id}");
    }

    for params in [
        "",
        r#""protocolVersion":1,"capabilities":{}"#,
        r#""capabilities":{}"#,
        r#""protocolVersion":"2025-11-25","capabilities":[]"#,
    ] {
        let answer = server.legacy(&legacy("7", "initialize", params), &[]).await;
        assert_eq!(answer.refusal(), (200, -32602, Some(json!(7))), "{params}");
    }
    let lenient = server.legacy(&legacy("7", "initialize", r#""protocolVersion":"2025-11-25""#), &[]).await;
    assert_eq!(lenient.json()["result"]["_meta"], json!({"info": null, "capabilities": {}}));
    let refused = server.legacy(ASK, &[("X-Refuse", "initialize")]).await;
    assert_eq!(refused.refusal(), (200, 7002, Some(json!(7))));
}

#[tokio::test]
async fn header_and_metadata_choose_the_era() {
    let server = Server::start().await;
    let bare = |id: &str, method: &str| legacy(id, method, "");
    let id = Some(json!(1));

    // Legacy: no header, or one that names a legacy revision.
    for (header, revision) in [
        (None, "2025-03-26"),
        (Some("2025-03-26"), "2025-03-26"),
        (Some("2025-06-18"), "2025-06-18"),
        (Some("2025-11-25"), "2025-11-25"),
    ] {
        let change: Vec<_> = header.iter().map(|h| ("MCP-Protocol-Version", *h)).collect();
        let answer = server.legacy(&bare("1", "test/mood"), &change).await;
        assert_eq!(
            answer.json()["result"],
            json!({"revision": revision, "session": null, "version": revision, "capabilities": {},
                "level": null, "token": null})
        );
        let ping = server.legacy(&bare("1", "ping"), &change).await;
        assert_eq!(ping.body, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        let list = server.legacy(&bare("1", "tools/list"), &change).await;
        assert!(list.json()["result"]["tools"].is_array() && !list.body.contains("resultType"), "{list:?}");
        let called = server.legacy(&legacy_call("\"a\\u0062\"", "echo", r#"{"n":1.0}"#), &change).await;
        assert!(called.body.starts_with(r#"{"jsonrpc":"2.0","id":"a\u0062","result":{"content":[]"#));
        assert!(called.body.contains(r#""echo" : {"n":1.0}"#) && !called.body.contains("resultType"));
        // An error of an admitted request travels with 200.
        for method in ["unknown/method", "server/discover", "subscriptions/listen"] {
            let answer = server.legacy(&bare("1", method), &change).await;
            assert_eq!(answer.refusal(), (200, -32601, id.clone()), "{method}");
        }
    }
    let token = server.legacy(&legacy("1", "test/mood", r#""_meta":{"progressToken":"t"}"#), &[]).await;
    assert_eq!(token.json()["result"]["token"], "t");
    for meta in ["[]", "7", r#"{"progressToken":{}}"#] {
        let body = legacy("1", "test/mood", &format!(r#""_meta":{meta}"#));
        assert_eq!(server.legacy(&body, &[]).await.refusal(), (200, -32602, id.clone()), "{meta}");
    }

    // Modern: metadata that says so, or a header that isn't a legacy revision; the method doesn't matter.
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"] {
        let answer = server.post(&message("1", method, ""), &[]).await;
        assert_eq!(answer.refusal(), (404, -32601, id.clone()), "{method}");
    }
    for header in ["2026-07-28", "v999.0.0", "2024-11-05", "2025-11-25|2025-11-25"] {
        let change = [("MCP-Protocol-Version", header)];
        for method in ["ping", "server/discover"] {
            let answer = server.legacy(&bare("1", method), &change).await;
            assert_eq!(answer.refusal(), (400, -32602, id.clone()), "{header} {method}");
            assert_eq!(answer.json()["error"]["data"], json!({"supported": ["2026-07-28"]}));
        }
        let answer = server.legacy(&bare("1", "initialize"), &change).await;
        assert_eq!(answer.refusal(), (400, -32022, id.clone()), "{header}");
        assert!(answer.body.contains("2025-11-25, 2025-06-18, 2025-03-26 (by initialize)"), "{answer:?}");
    }
    let modern = message("1", "server/discover", "");
    for header in [None, Some("2025-11-25")] {
        let answer = server.post(&modern, &[("MCP-Protocol-Version", header)]).await;
        assert_eq!(answer.refusal(), (400, -32020, id.clone()), "metadata decides: {header:?}");
    }
    let named = modern.replace("2026-07-28", "2025-11-25");
    let answer = server.post(&named, &[("MCP-Protocol-Version", Some("2025-11-25"))]).await;
    assert_eq!(answer.refusal(), (400, -32022, id.clone()), "a legacy revision is opened, not named");
    assert_eq!(
        answer.json()["error"]["data"],
        json!({"supported": ["2026-07-28"], "requested": "2025-11-25"})
    );

    // What is refused before any era is the same for both.
    assert_eq!(server.legacy("{", &[]).await.refusal(), (400, -32700, None));
    assert_eq!(server.legacy(ASK, &[("Origin", "http://evil.example.com")]).await.status, 403);
    assert_eq!(server.legacy(ASK, &[("Content-Type", "text/plain")]).await.status, 415);
    assert_eq!(server.legacy(ASK, &[("Accept", "text/html")]).await.status, 406);
    assert_eq!(server.legacy(ASK, &[("Accept", "application/json")]).await.status, 200);
}

#[tokio::test]
async fn eras_are_served_as_set_and_by_host() {
    let list = legacy("1", "tools/list", "");
    let id = Some(json!(1));

    let server = with_eras(Eras::Modern).await;
    let answer = server.legacy(ASK, &[]).await;
    assert_eq!(answer.refusal(), (400, -32022, Some(json!(7))));
    assert!(!answer.body.contains("2025-06-18"), "only what is served is named: {answer:?}");
    assert_eq!(server.legacy(&list, &[]).await.refusal(), (400, -32602, id.clone()));
    assert_eq!(server.post(&message("1", "tools/list", ""), &[]).await.status, 200);
    for method in ["GET", "DELETE", "PUT"] {
        let answer = server.send(&server.bare(method, &[EVENTS, ("Mcp-Session-Id", "x")])).await;
        assert_eq!(answer.refusal(), (405, -32600, None));
        assert!(answer.head.contains("allow: post\r\n"), "{method} {answer:?}");
    }
    assert_eq!(server.legacy(&format!("[{list}]"), &[]).await.refusal(), (400, -32600, None));
    assert_eq!(server.legacy(&common::cancel("1"), &[]).await.status, 202);
    let response = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    assert_eq!(server.legacy(response, &[]).await.refusal(), (400, -32600, None));

    let server = with_eras(Eras::Legacy).await;
    assert_eq!(server.legacy(ASK, &[]).await.status, 200);
    assert_eq!(server.legacy(&list, &[]).await.status, 200);
    for body in [message("1", "tools/list", ""), message("1", "initialize", "")] {
        let answer = server.post(&body, &[]).await;
        assert_eq!(answer.refusal(), (400, -32600, id.clone()));
        assert!(answer.body.contains("2025-11-25") && !answer.body.contains("2026-07-28"), "{answer:?}");
    }
    let unknown = server.legacy(ASK, &[("MCP-Protocol-Version", "v999.0.0")]).await;
    assert_eq!(unknown.refusal(), (400, -32600, Some(json!(7))));
    for body in [common::cancel("1"), response.to_owned()] {
        let answer = server.legacy(&body, &[("MCP-Protocol-Version", "2026-07-28")]).await;
        assert_eq!(answer.refusal(), (400, -32600, None));
    }
    let get = server.send(&server.bare("GET", &[EVENTS, ("MCP-Protocol-Version", "2026-07-28")])).await;
    assert_eq!(get.status, 405);

    let server = Server::with(
        |c| {
            c.allowed_hosts = vec!["old.example.com".into(), "new.example.com".into()];
            c.eras_by_host =
                vec![("old.example.com".into(), Eras::Legacy), ("new.example.com".into(), Eras::Modern)];
        },
        ServeLimits::default(),
    )
    .await;
    let modern = message("1", "tools/list", "");
    for (host, modern_status, legacy_status) in [
        (server.addr.to_string(), 200, 200),
        ("OLD.example.com:444".into(), 400, 200),
        ("old.example.com".into(), 400, 200),
        ("new.example.com".into(), 200, 400),
    ] {
        let answer = server.post(&modern, &[("Host", Some(&host))]).await;
        assert_eq!(answer.status, modern_status, "{host}");
        assert_eq!(server.legacy(&list, &[("Host", &host)]).await.status, legacy_status, "{host}");
    }
    let get = server.bare("GET", &[EVENTS, ("Host", "new.example.com")]);
    assert_eq!(server.send(&get).await.status, 405);
}

#[tokio::test]
async fn sessions_are_looked_up_owned_and_ended() {
    let mut server = Server::start().await;
    server.legacy(ASK, &[("X-Open", "s-1"), ("X-Who", "ann")]).await;
    let ann = [("X-Who", "ann"), ("Mcp-Session-Id", "s-1"), ("MCP-Protocol-Version", "2025-11-25")];
    let mood = legacy("1", "test/mood", "");
    let known = server.legacy(&mood, &ann).await;
    assert_eq!(
        known.json()["result"],
        json!({"revision": "2025-11-25", "session": "s-1", "version": "2025-11-25",
            "capabilities": {"roots": {}}, "level": "error", "token": null})
    );
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let accepted = server.legacy(initialized, &ann).await;
    assert_eq!((accepted.status, accepted.body.as_str()), (202, ""));
    assert_eq!(server.next().await, Seen::Notified("notifications/initialized".into()));
    let response = r#"{"jsonrpc":"2.0","id":"srv-1","result":{"roots":[]}}"#;
    assert_eq!(server.legacy(response, &ann).await.status, 202);
    assert_eq!(server.legacy(&response.replace("result", "error"), &ann).await.status, 202);
    for wrong in [r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, r#"{"jsonrpc":"2.0","result":{}}"#] {
        assert_eq!(server.legacy(wrong, &ann).await.refusal(), (400, -32600, None));
    }

    let foreign = [("X-Who", "bob"), ("Mcp-Session-Id", "s-1")];
    let unknown = [("X-Who", "ann"), ("Mcp-Session-Id", "s-2")];
    let busy = [("Mcp-Session-Id", "busy")];
    for (who, status) in [(&foreign[..], 404), (&unknown[..], 404), (&busy[..], 503)] {
        let get = server.bare("GET", &[who, &[EVENTS]].concat());
        for (answer, id) in [
            (server.legacy(&mood, who).await, Some(json!(1))),
            (server.legacy(&legacy("1", "ping", ""), who).await, Some(json!(1))),
            (server.legacy(initialized, who).await, None),
            (server.legacy(&common::cancel("1"), who).await, None),
            (server.legacy(response, who).await, None),
            (server.legacy(&format!("[{mood}]"), who).await, None),
            (server.send(&get).await, None),
            (server.send(&server.bare("DELETE", who)).await, None),
        ] {
            // Clients give a connection up over a 503, so a request gets a response that tells.
            let told = status == 503 && id.is_some();
            let expected = if told { (200, -32603, id) } else { (status, -32600, id) };
            assert_eq!(answer.refusal(), expected, "{who:?}");
            assert_eq!(answer.head.contains("retry-after: 1"), status == 503 && !told);
            if told {
                assert_eq!(answer.json()["error"]["data"]["kind"], "unavailable");
            }
        }
    }
    for id in ["two words", "", &"x".repeat(256), "a|b"] {
        let answer = server.legacy(&mood, &[("Mcp-Session-Id", id)]).await;
        assert_eq!(answer.refusal(), (400, -32600, Some(json!(1))), "{id:?}");
    }
    let long = server.legacy(&mood, &[("Mcp-Session-Id", &"x".repeat(255))]).await;
    assert_eq!(long.status, 404, "well-formed and unknown");

    assert_eq!(server.send(&server.bare("DELETE", &[])).await.refusal(), (400, -32600, None));
    let unkept = server.legacy(&mood, &[("Mcp-Session-Id", "none")]).await;
    assert_eq!(unkept.refusal(), (404, -32600, Some(json!(1))), "where none are kept, none is known");
    let none = server.send(&server.bare("DELETE", &[("Mcp-Session-Id", "none")])).await;
    assert_eq!(none.refusal(), (405, -32600, None));
    assert!(none.head.contains("allow: get, post\r\n"), "{none:?}");
    let modern = server.bare("DELETE", &[("Mcp-Session-Id", "s-1"), ("MCP-Protocol-Version", "2026-07-28")]);
    assert_eq!(server.send(&modern).await.refusal(), (405, -32600, None));
    let ended = server.send(&server.bare("DELETE", &ann)).await;
    assert_eq!((ended.status, ended.body.as_str()), (204, ""));
    assert_eq!(server.send(&server.bare("DELETE", &ann)).await.status, 404);
    assert_eq!(server.legacy(&mood, &ann).await.status, 404, "a session deleted is gone");
    let put = server.send(&server.bare("PUT", &[])).await;
    assert_eq!(put.status, 405);
    assert!(put.head.contains("allow: get, post, delete"));
}

#[tokio::test]
async fn ids_that_are_not_ours_are_taken_or_ignored() {
    let platform = Server::with(|c| c.platform_sessions = true, ServeLimits::default()).await;
    let minted = [("Mcp-Session-Id", "from-the-platform")];
    let mood = platform.legacy(&legacy("1", "test/mood", ""), &minted).await;
    assert_eq!(mood.json()["result"]["session"], Value::Null, "{mood:?}");
    assert!(!mood.head.contains("mcp-session-id"));
    let wrong = platform.legacy(&legacy("1", "ping", ""), &[("Mcp-Session-Id", "two words")]).await;
    assert_eq!(wrong.refusal(), (400, -32600, Some(json!(1))));
    let end = platform.send(&platform.bare("DELETE", &minted)).await;
    assert_eq!(end.refusal(), (405, -32600, None), "the platform ends what it minted");

    let server = Server::start().await;
    for id in ["foreign", "two words"] {
        let answer = server.post(&call("echo", "{}"), &[("Mcp-Session-Id", Some(id))]).await;
        assert_eq!(answer.status, 200, "a modern request has no session");
        assert!(!answer.head.contains("session"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_panic_in_any_hook_is_answered() {
    let mut server = Server::start().await;
    server.legacy(ASK, &[("X-Open", "s")]).await;
    let ping = legacy("1", "ping", "");
    let note = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
    let id = Some(json!(1));
    let at = |place: &'static str| [("X-Panic", place), ("Mcp-Session-Id", "s"), EVENTS];

    let opening = server.legacy(ASK, &[("X-Panic", "initialize")]).await;
    assert_eq!(opening.refusal(), (200, -32603, Some(json!(7))));
    assert_eq!(server.legacy(&ping, &at("client")[..2]).await.refusal(), (200, -32603, id.clone()));
    assert_eq!(server.legacy(note, &at("client")[..2]).await.refusal(), (500, -32603, None));
    assert_eq!(server.legacy(note, &at("notified")[..2]).await.refusal(), (500, -32603, None));
    let called = server.legacy(&legacy_call("1", "echo", "{}"), &at("identity")[..2]).await;
    assert_eq!(called.refusal(), (200, -32603, id.clone()));
    assert_eq!(server.legacy(&common::cancel("1"), &at("identity")[..2]).await.status, 500);
    let batch = server.legacy(&format!("[{note},{ping}]"), &at("notified")[..2]).await;
    assert_eq!(batch.json(), json!([{"jsonrpc": "2.0", "id": 1, "result": {}}]));
    for place in ["client", "stream"] {
        assert_eq!(server.send(&server.bare("GET", &at(place))).await.refusal(), (500, -32603, None));
    }
    let late = server.send(&server.bare("GET", &at("stream_late"))).await;
    assert_eq!((late.status, late.events().len()), (200, 0));
    let end = server.send(&server.bare("DELETE", &at("end_session")[..2])).await;
    assert_eq!(end.refusal(), (500, -32603, None));
    for tool in ["panic", "forget"] {
        let answer = server.legacy(&legacy_call("1", tool, "{}"), &[]).await;
        assert_eq!(answer.refusal(), (200, -32603, id.clone()), "{tool}");
    }
    let answer = server.legacy(&legacy("1", "test/panic_ready", ""), &[]).await;
    assert_eq!(answer.refusal(), (200, -32603, id));
    let late = server.legacy(&legacy_call("1", "panic_late", "{}"), &[]).await.events();
    assert_eq!(late[0]["error"]["code"], -32603);
    assert_eq!(server.legacy(note, &[]).await.status, 202);
    assert_eq!(server.next().await, Seen::Notified("notifications/x".into()), "the server lives");
}

#[tokio::test]
async fn what_names_no_revision_is_of_its_sessions() {
    let server = Server::start().await;
    server.legacy(ASK, &[("X-Open", "s-1")]).await;
    let mood = legacy("1", "test/mood", "");
    let session = ("Mcp-Session-Id", "s-1");
    let agreed = ("X-Agreed", "2025-06-18");
    for (headers, revision) in [
        (&[session, agreed][..], "2025-06-18"),
        (&[session, agreed, ("MCP-Protocol-Version", "2025-11-25")], "2025-11-25"),
        (&[agreed], "2025-03-26"),
        (&[session], "2025-03-26"),
        // No session has a modern one.
        (&[session, ("X-Agreed", "2026-07-28")], "2025-03-26"),
    ] {
        let answer = server.legacy(&mood, headers).await;
        assert_eq!(answer.json()["result"]["revision"], revision, "{headers:?}");
    }
    // So there are no batches in a session of a revision without them.
    let batch = format!("[{}]", legacy("1", "ping", ""));
    assert_eq!(server.legacy(&batch, &[session, agreed]).await.refusal(), (400, -32600, None));
    assert_eq!(server.legacy(&batch, &[session, ("X-Agreed", "2025-03-26")]).await.status, 200);
}

#[tokio::test]
async fn a_message_knows_how_many_calls_its_batch_has() {
    let server = Server::start().await;
    let (known, call) = (legacy("1", "test/batched", ""), legacy_call("2", "echo", "{}"));
    assert_eq!(server.legacy(&known, &[]).await.json()["result"], json!({ "calls": null }));
    for (batch, calls) in
        [(format!("[{known}]"), 0), (format!("[{known},{call}]"), 1), (format!("[{call},{known},{call}]"), 2)]
    {
        let answer = server.legacy(&batch, &[]).await.json();
        let told = answer.as_array().unwrap().iter().find(|m| m["id"] == 1).unwrap();
        assert_eq!(told["result"], json!({ "calls": calls }), "{batch}");
    }
}
