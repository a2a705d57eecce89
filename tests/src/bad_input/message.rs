//! What is wrong with the HTTP request, its JSON or its envelope, before it matters which era it is of.

use super::*;

const BAD_HOST: &str =
    "Refused: the Host header names neither this machine nor a host in server.allowed_hosts. Nothing ran.";
const BAD_ORIGIN: &str = "Refused: the Origin header is not in server.allowed_origins. Nothing ran.";
const NOT_JSON: &str = "Refused: the body must be application/json. Nothing ran.";
const BAD_ID: &str = "Invalid request: id must be a string or an integer. Nothing ran.";
const BAD_METHOD: &str = "Invalid request: method must be a non-empty string. Nothing ran.";
const REFUSED_HOST: &str = "`Host` not allowed";
const REFUSED_ORIGIN: &str = "`Origin` not allowed";

/// The rows.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    // HTTP.
    bare("a foreign host", REFUSED_HOST, call(GOOD).set(&[("Host", "evil.example")]), 403, -32600, BAD_HOST),
    bare("another port of this machine", REFUSED_HOST, call(GOOD).set(&[("Host", "127.0.0.1:1")]), 403, -32600, BAD_HOST),
    bare("two hosts", REFUSED_HOST, call(GOOD).add(&[("Host", "$ADDR")]), 403, -32600, BAD_HOST),
    bare("a foreign origin", REFUSED_ORIGIN, call(GOOD).add(&[("Origin", "https://evil.example")]), 403, -32600, BAD_ORIGIN),
    bare("the origin null", REFUSED_ORIGIN, call(GOOD).add(&[("Origin", "null")]), 403, -32600, BAD_ORIGIN),
    bare("two origins", REFUSED_ORIGIN, call(GOOD).add(&[("Origin", "http://$ADDR"), ("Origin", "http://$ADDR")]), 403, -32600, BAD_ORIGIN),
    bare("GET, modern", OTHER_METHOD, text("").verb("GET"), 405, -32600, POST_ONLY).also(MODERN_ONLY),
    bare("DELETE, modern", OTHER_METHOD, text("").verb("DELETE"), 405, -32600, POST_ONLY).also(MODERN_ONLY),
    bare("PUT of a call", "another HTTP method where the legacy era is served", call(GOOD).verb("PUT"), 405, -32600, "Refused: this endpoint takes POST, and GET and DELETE of the revisions with sessions. Nothing ran.").also(&[("allow", "GET, POST, DELETE")]),
    bare("OPTIONS", "another HTTP method where the legacy era is served", text("").verb("OPTIONS"), 405, -32600, "Refused: this endpoint takes POST, and GET and DELETE of the revisions with sessions. Nothing ran.").also(&[("allow", "GET, POST, DELETE")]),
    bare("PATCH, legacy", "another HTTP method where the legacy era is served", old("{}").verb("PATCH"), 405, -32600, "Refused: this endpoint takes POST, and GET and DELETE of the revisions with sessions. Nothing ran.").also(&[("allow", "GET, POST, DELETE")]),
    bare("content type text", "content type is not JSON", call(GOOD).set(&[("Content-Type", "text/plain")]), 415, -32600, NOT_JSON),
    bare("content type form", "content type is not JSON", call(GOOD).set(&[("Content-Type", "application/x-www-form-urlencoded")]), 415, -32600, NOT_JSON),
    bare("no content type", "content type is not JSON", call(GOOD).without(&["Content-Type"]), 415, -32600, NOT_JSON),
    bare("accepts HTML only", "`Accept` excludes JSON", call(GOOD).set(&[("Accept", "text/html")]), 406, -32600, "Refused: Accept must include application/json. Nothing ran."),
    bare("accepts streams only", "`Accept` excludes JSON", call(GOOD).set(&[("Accept", "text/event-stream")]), 406, -32600, "Refused: Accept must include application/json. Nothing ran."),
    bare("5 MB", "body too large", Ask::of(Body::Filled(5_000_000)), 413, -32600, "Refused: the body is larger than 4194304 bytes. Nothing ran.").also(&[("connection", "close")]),

    // JSON.
    bare("a broken word", "malformed JSON", text(r#"{"a":tru}"#), 400, -32700, "Parse error: this is not JSON (at byte 8). Nothing ran."),
    bare("a number with a leading zero", "malformed JSON", text(r#"{"a":01}"#), 400, -32700, "Parse error: this is not JSON (at byte 6). Nothing ran."),
    bare("single quotes", "malformed JSON", text("{'a':1}"), 400, -32700, "Parse error: this is not JSON (at byte 1). Nothing ran.").also(&[("/error/data/offset", "1")]),
    bare("an end too early", "truncated JSON", text(r#"{"a":1"#), 400, -32700, "Parse error: the JSON ends too early (at byte 6). Nothing ran.").also(&[("/error/data/offset", "6")]),
    bare("an empty body", "truncated JSON", text(""), 400, -32700, "Parse error: the JSON ends too early (at byte 0). Nothing ran."),
    bare("two values", "something after the JSON value", text("{} {}"), 400, -32700, "Parse error: something follows the JSON value (at byte 3). Nothing ran."),
    bare("not UTF-8", "non-UTF-8", Ask::of(Body::Bytes(b"{\"a\":\"\xff\"}")), 400, -32700, "Parse error: the text is not valid UTF-8 (at byte 6). Nothing ran."),
    bare("an overlong form", "non-UTF-8", Ask::of(Body::Bytes(b"{\"a\":\"\xc0\xaf\"}")), 400, -32700, "Parse error: the text is not valid UTF-8 (at byte 6). Nothing ran."),
    bare("duplicate members", "duplicate members", text(r#"{"a":1,"a":2}"#), 400, -32700, "Parse error: an object has two members of this name (at byte 7). Nothing ran."),
    bare("duplicate members, one escaped", "duplicate members", text(r#"{"a":1,"\u0061":2}"#), 400, -32700, "Parse error: an object has two members of this name (at byte 7). Nothing ran."),
    bare("duplicate arguments", "duplicate members", call(r#"{"payment":"pay_demo_never","amount":1,"amount":2}"#), 400, -32700, "Parse error: an object has two members of this name (at byte {n}). Nothing ran."),
    bare("200 deep", "nested too deeply", Ask::of(Body::Nested(200)), 400, -32700, "Parse error: the JSON is nested deeper than 64 levels (at byte 64). Nothing ran."),
    bare("a lone surrogate", "a lone surrogate", text(r#"{"a":"\ud800"}"#), 400, -32700, r"Parse error: a \u escape names half a surrogate pair (at byte 6). Nothing ran."),
    bare("a lone surrogate in an argument", "a lone surrogate", call(r#"{"payment":"\udc00","amount":1}"#), 400, -32700, r"Parse error: a \u escape names half a surrogate pair (at byte {n}). Nothing ran."),
    bare("a bare control character", "a control character in a string", text("{\"a\":\"\u{1}\"}"), 400, -32700, "Parse error: a control character inside a string must be escaped (at byte 6). Nothing ran."),

    // The envelope.
    bare("a batch", "a batch", text(r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]"#), 400, -32600, NO_BATCHES),
    bare("an empty batch", "a batch", text("[]"), 400, -32600, NO_BATCHES),
    bare("a number", "no object", text("1"), 400, -32600, "Invalid request: the body must be one JSON object. Nothing ran."),
    rpc("JSON-RPC 1.0", "wrong `jsonrpc`", text(r#"{"jsonrpc":"1.0","id":$ID,"method":"x"}"#), 400, -32600, "Invalid request: jsonrpc must be \"2.0\". Nothing ran."),
    rpc("jsonrpc as a number", "wrong `jsonrpc`", text(r#"{"jsonrpc":2.0,"id":$ID,"method":"x"}"#), 400, -32600, "Invalid request: jsonrpc must be \"2.0\". Nothing ran."),
    bare("id null", "wrong type of `id`", text(r#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#), 400, -32600, BAD_ID),
    bare("id with a fraction", "wrong type of `id`", text(r#"{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}"#), 400, -32600, BAD_ID),
    bare("id as an object", "wrong type of `id`", text(r#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#), 400, -32600, BAD_ID),
    rpc("method as a number", "wrong type of `method`", text(r#"{"jsonrpc":"2.0","id":$ID,"method":5}"#), 400, -32600, BAD_METHOD),
    rpc("method empty", "wrong type of `method`", text(r#"{"jsonrpc":"2.0","id":$ID,"method":""}"#), 400, -32600, BAD_METHOD),
    rpc("no method", "no `method`", text(r#"{"jsonrpc":"2.0","id":$ID}"#), 400, -32600, "Invalid request: method is missing. Nothing ran."),
    bare("a response", "a response", text(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), 400, -32600, NO_RESPONSES),
    rpc("params as an array", "wrong type of `params`", text(r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/list","params":[]}"#), 400, -32602, BAD_PARAMS),
    rpc("params null", "wrong type of `params`", text(r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/list","params":null}"#), 400, -32602, BAD_PARAMS),
    row("a call without id is a notification", "", text(r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"lab_refunds_create","arguments":{"payment":"pay_demo_never","amount":1},"_meta":{$META}}}"#)
        .add(&[("Mcp-Method", "tools/call"), ("Mcp-Name", TOOL)]), 202, Answer::Nothing, false, ""),
];
