//! The legacy era: the handshake, methods and parameters, batches, responses, keys.

use super::*;

const NO_VERSION: &str = "Invalid params: params.protocolVersion must be a string. Nothing ran.";
const BAD_CLAIMS: &str = "Invalid params: params.capabilities must be an object. Nothing ran.";
const NOT_SERVED: &str = "unknown method, legacy era";
const BAD_LEVEL: &str = "Invalid params: params.level must be a string. Nothing ran.";
const NO_TOOL: &str = "Invalid params: params.name must be a string. Nothing ran.";
const BAD_KEY: &str = "Invalid params: params.idempotencyKey: the idempotency key is empty; leave it out or give 1 to 255 characters. Nothing ran.";
const DISAGREE: &str = "Invalid params: Idempotency-Key: two carriers of the idempotency key disagree; send one, or the same in all. Nothing ran.";

/// With the revision that has batches.
const FIRST: Headers = &[("MCP-Protocol-Version", "2025-03-26")];
const SECOND: Headers = &[("MCP-Protocol-Version", "2025-06-18")];
const NEWEST: Headers = &[("/result/protocolVersion", "\"2025-11-25\"")];

const MIXED: &str = r#"[{"jsonrpc":"2.0","id":$ID,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"},{"id":$ID,"method":"ping"},{"jsonrpc":"2.0","id":$ID,"result":{}},7,{"jsonrpc":"2.0","id":$ID,"method":"tools/call","params":{"name":"nope"}},[]]"#;

const ONE_KEY: &str = "Invalid params: Idempotency-Key: one header can't be the key of several calls in a batch; give each call its own in its params. Nothing ran.";
const TWO_CALLS: &str = r#"[{"jsonrpc":"2.0","id":$ID,"method":"tools/call","params":{"name":"lab_refunds_create","arguments":{"payment":"pay_demo_never","amount":1,"order_id":"never"}}},{"jsonrpc":"2.0","id":8,"method":"ping"},{"jsonrpc":"2.0","id":$ID,"method":"tools/call","params":{"name":"lab_refunds_create","arguments":{"payment":"pay_demo_never","amount":1,"order_id":"never"}}}]"#;

/// A batch.
const fn batch(body: &'static str) -> Ask {
    old(body).set(FIRST)
}

/// The rows.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    // The handshake.
    rpc("initialize without params", "`initialize` without a revision", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize"}"#).without(&["MCP-Protocol-Version"]), 200, -32602, NO_VERSION),
    rpc("initialize without a revision", "`initialize` without a revision", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"capabilities":{}}}"#).without(&["MCP-Protocol-Version"]), 200, -32602, NO_VERSION),
    rpc("initialize with a number for a revision", "`initialize` without a revision", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"protocolVersion":20251125,"capabilities":{}}}"#), 200, -32602, NO_VERSION),
    rpc("initialize with params as an array", "wrong type of `params`", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":["2025-11-25"]}"#), 400, -32602, BAD_PARAMS),
    rpc("initialize with capabilities as an array", "wrong type of `capabilities`", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":[]}}"#), 200, -32602, BAD_CLAIMS),
    rpc("initialize with capabilities null", "wrong type of `capabilities`", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":null}}"#), 200, -32602, BAD_CLAIMS),
    rpc("initialize with 17 kB of capabilities", "`capabilities` too large", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"x":"$WIDE"}}}"#), 200, -32602, "Invalid params: params.capabilities has more than 16 KiB. Nothing ran."),
    plain("initialize", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}"#).without(&["MCP-Protocol-Version"])).also(&[("/result/protocolVersion", "\"2025-06-18\"")]),
    plain("initialize for a revision that nobody knows", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"protocolVersion":"2030-01-01","capabilities":{}}}"#)).also(NEWEST),
    plain("initialize for a revision before Streamable HTTP", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{}}}"#)).also(NEWEST),
    plain("initialize for the modern revision", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"protocolVersion":"2026-07-28","capabilities":{}}}"#)).also(NEWEST),
    plain("initialize with a number for clientInfo", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":7}}"#)).also(&[("/result/protocolVersion", "\"2025-03-26\"")]),

    // Methods.
    rpc("server/discover, legacy", NOT_SERVED, old(r#"{"jsonrpc":"2.0","id":$ID,"method":"server/discover"}"#), 200, -32601, "Method not found: server/discover. Nothing ran; initialize told what is served."),
    rpc("subscriptions/listen, legacy", NOT_SERVED, old(r#"{"jsonrpc":"2.0","id":$ID,"method":"subscriptions/listen","params":{"notifications":{}}}"#), 200, -32601, "Method not found: subscriptions/listen. Nothing ran; initialize told what is served."),
    rpc("a legacy method that nobody knows", NOT_SERVED, old(r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/destroy"}"#).without(&["MCP-Protocol-Version"]), 200, -32601, "Method not found: tools/destroy. Nothing ran; initialize told what is served."),
    rpc("resources/list where there are none", NOT_SERVED, old(r#"{"jsonrpc":"2.0","id":$ID,"method":"resources/list"}"#), 200, -32601, "Method not found: resources/list. Nothing ran; initialize told what is served."),
    rpc("resources/templates/list where there are none", NOT_SERVED, old(r#"{"jsonrpc":"2.0","id":$ID,"method":"resources/templates/list"}"#), 200, -32601, "Method not found: resources/templates/list. Nothing ran; initialize told what is served."),
    rpc("resources/read where there are none", NOT_SERVED, old(r#"{"jsonrpc":"2.0","id":$ID,"method":"resources/read","params":{"uri":"x"}}"#), 200, -32601, "Method not found: resources/read. Nothing ran; initialize told what is served."),
    rpc("resources/subscribe where there are none", NOT_SERVED, old(r#"{"jsonrpc":"2.0","id":$ID,"method":"resources/subscribe","params":{"uri":"x"}}"#), 200, -32601, "Method not found: resources/subscribe. Nothing ran; initialize told what is served."),
    rpc("resources/unsubscribe where there are none", NOT_SERVED, old(r#"{"jsonrpc":"2.0","id":$ID,"method":"resources/unsubscribe","params":{"uri":"x"}}"#), 200, -32601, "Method not found: resources/unsubscribe. Nothing ran; initialize told what is served."),
    rpc("prompts/list where there are none", NOT_SERVED, old(r#"{"jsonrpc":"2.0","id":$ID,"method":"prompts/list"}"#), 200, -32601, "Method not found: prompts/list. Nothing ran; initialize told what is served."),
    rpc("prompts/get where there are none", NOT_SERVED, old(r#"{"jsonrpc":"2.0","id":$ID,"method":"prompts/get","params":{"name":"x"}}"#), 200, -32601, "Method not found: prompts/get. Nothing ran; initialize told what is served."),
    rpc("completion/complete where there is none", NOT_SERVED, old(r#"{"jsonrpc":"2.0","id":$ID,"method":"completion/complete"}"#), 200, -32601, "Method not found: completion/complete. Nothing ran; initialize told what is served."),

    // Parameters.
    rpc("legacy _meta as a number", "wrong type of `_meta`, legacy era", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/list","params":{"_meta":5}}"#), 200, -32602, "Invalid params: _meta must be an object. Nothing ran."),
    rpc("legacy progressToken as an object", "wrong type of `progressToken`, legacy era", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/list","params":{"_meta":{"progressToken":{}}}}"#), 200, -32602, "Invalid params: progressToken must be a string or an integer. Nothing ran."),
    rpc("a legacy cursor of nobody", "a foreign cursor", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/list","params":{"cursor":"x"}}"#), 200, -32602, FOREIGN_CURSOR),
    rpc("a legacy cursor as a number", "wrong type of `cursor`", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/list","params":{"cursor":1}}"#), 200, -32602, "Invalid params: cursor must be a string. Nothing ran."),
    rpc("setLevel without a level", "wrong type of `level`", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"logging/setLevel"}"#), 200, -32602, BAD_LEVEL),
    rpc("setLevel with a number", "wrong type of `level`", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"logging/setLevel","params":{"level":3}}"#), 200, -32602, BAD_LEVEL),
    rpc("setLevel with a level that is none", "an unknown `level`", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"logging/setLevel","params":{"level":"INFO"}}"#), 200, -32602, "Invalid params: params.level is not a known log level."),
    plain("setLevel without a session", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"logging/setLevel","params":{"level":"info"}}"#)).also(&[("/result", "{}")]),
    rpc("a legacy call of no tool", "no tool name", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/call"}"#), 200, -32602, NO_TOOL),
    rpc("a legacy call of a number", "no tool name", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/call","params":{"name":5}}"#), 200, -32602, NO_TOOL),
    rpc("a legacy call with arguments as an array", "wrong type of `arguments`", old_call("[1]"), 200, -32602, BAD_ARGUMENTS),
    rpc("a legacy call of an unknown tool", "unknown tool", Ask::of(Body::OldCall("nope", "{}", "")), 200, -32602, "Invalid params: unknown tool \"nope\"; nothing ran. tools/list tells what there is."),
    taken("a legacy call without id is a notification", 202, old(r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"lab_refunds_create","arguments":{"payment":"pay_demo_never","amount":1}}}"#)),
    kind("a legacy string for an integer", SCHEMA, old_call(r#"{"payment":"pay_demo_never","amount":"1"}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: at /amount: \"1\" is not of type \"integer\". Correct the arguments and call again."),

    // Notifications and responses of clients.
    taken("initialized, without a session", 202, old(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)),
    taken("cancelled: a request that is not there", 202, old(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4711}}"#)),
    taken("cancelled: no request", 202, old(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#)),
    taken("cancelled: an object", 202, old(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}"#)),
    taken("cancelled, modern", 202, text(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4711,"_meta":{$META}}}"#)),
    taken("a notification that nobody knows", 202, old(r#"{"jsonrpc":"2.0","method":"notifications/nobody"}"#)),
    taken("a legacy response to nothing", 202, old(r#"{"jsonrpc":"2.0","id":4711,"result":{}}"#)),
    taken("a legacy error to nothing", 202, old(r#"{"jsonrpc":"2.0","id":4711,"error":{"code":-1,"message":"no"}}"#)),
    bare("a response without id", "a response without `id`", old(r#"{"jsonrpc":"2.0","result":{}}"#), 400, -32600, "Invalid request: a response needs the request's id. Nothing ran."),
    bare("a response that is both", "a response with `result` and `error`", old(r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#), 400, -32600, "Invalid request: a response has either a result or an error. Nothing ran."),

    // Batches.
    bare("a batch in a later revision", "a batch", old(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#).set(SECOND), 400, -32600, NO_BATCHES),
    bare("a batch in the last legacy revision", "a batch", old(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#), 400, -32600, NO_BATCHES),
    bare("a batch of nothing", "an empty batch", batch("[]"), 400, -32600, "Invalid request: a batch must hold at least one message. Nothing ran."),
    bare("a batch of nothing, no header", "an empty batch", old(" [ ] ").without(&["MCP-Protocol-Version"]), 400, -32600, "Invalid request: a batch must hold at least one message. Nothing ran."),
    bare("a batch of 33", "a batch too large", Ask::of(Body::Many(33)).set(FIRST), 400, -32600, "Invalid request: a batch may hold 32 messages at most. Nothing ran."),
    taken("a batch of 32 notifications", 202, Ask::of(Body::Many(32)).set(FIRST)),
    bare("a broken batch", "truncated JSON", batch(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},"#), 400, -32700, "Parse error: the JSON ends too early (at byte {n}). Nothing ran."),
    bare("a duplicate inside a batch", "duplicate members", batch(r#"[{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}]"#), 400, -32700, "Parse error: an object has two members of this name (at byte {n}). Nothing ran."),
    plain("a batch of one", batch(r#"[{"jsonrpc":"2.0","id":$ID,"method":"ping"}]"#)).of_batch(0, 1).also(&[("/0/result", "{}")]),
    row("a mixed batch: what is good", "", batch(MIXED), 200, Answer::Plain, true, "").of_batch(0, 5),
    rpc("a mixed batch: no jsonrpc", "wrong `jsonrpc`", batch(MIXED), 200, -32600, "Invalid request: jsonrpc must be \"2.0\". Nothing ran.").of_batch(1, 5),
    bare("a mixed batch: a number", "no object", batch(MIXED), 200, -32600, "Invalid request: the body must be one JSON object. Nothing ran.").of_batch(2, 5),
    bare("a mixed batch: a batch", "a batch", batch(MIXED), 200, -32600, NO_BATCHES).of_batch(3, 5),
    rpc("a mixed batch: an unknown tool", "unknown tool", batch(MIXED), 200, -32602, "Invalid params: unknown tool \"nope\"; nothing ran. tools/list tells what there is.").of_batch(4, 5),
    rpc("initialize in a batch", "`initialize` in a batch", batch(r#"[{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{}}}]"#), 200, -32600, "Invalid request: initialize must not be part of a batch. Nothing ran.").of_batch(0, 1),
    rpc("a modern request in a batch", "a modern request in a batch", batch(r#"[{"jsonrpc":"2.0","id":$ID,"method":"tools/list","params":{"_meta":{$META}}}]"#), 200, -32600, "Invalid request: revisions later than 2025-03-26 have no batches. Nothing ran.").of_batch(0, 1),
    rpc("a method that nobody knows in a batch", NOT_SERVED, batch(r#"[{"jsonrpc":"2.0","id":$ID,"method":"server/discover"}]"#), 200, -32601, "Method not found: server/discover. Nothing ran; initialize told what is served.").of_batch(0, 1),

    // Keys.
    rpc("legacy, one header for two calls", "one header for several calls in a batch", batch(TWO_CALLS).add(&[("Idempotency-Key", "never")]), 200, -32602, ONE_KEY).of_batch(1, 3),
    rpc("legacy, one header for two calls, the other", "one header for several calls in a batch", batch(TWO_CALLS).add(&[("Idempotency-Key", "never")]), 200, -32602, ONE_KEY).of_batch(2, 3),
    rpc("legacy, params: empty", "key empty, by a program", old_with(GOOD, r#","idempotencyKey":"""#), 200, -32602, BAD_KEY),
    rpc("legacy, params: a number", "key of a wrong type, by a program", old_with(GOOD, r#","idempotencyKey":5"#), 200, -32602, "Invalid params: params.idempotencyKey: must be a string. Nothing ran."),
    rpc("legacy, _meta: too long", "key too long, by a program", old_with(GOOD, r#","_meta":{"dev.counterfoil/idempotency-key":"$LONG"}"#), 200, -32602, "Invalid params: dev.counterfoil/idempotency-key: the idempotency key has 256 characters; at most 255 are allowed. Nothing ran."),
    rpc("legacy, header: a blank", "key with blanks, controls or beyond ASCII, by a program", old_call(GOOD).add(&[("Idempotency-Key", "a b")]), 200, -32602, "Invalid params: Idempotency-Key: the idempotency key has a character outside visible ASCII (0x21 to 0x7E). Nothing ran."),
    rpc("legacy, header: no end", "header value that is no key", old_call(GOOD).add(&[("Idempotency-Key", "\"abc")]), 200, -32602, "Invalid params: Idempotency-Key: must be one RFC 8941 string, or a bare value of visible ASCII. Nothing ran."),
    rpc("legacy, params: op_", "key that claims to be an operation id, by a program", old_with(GOOD, r#","idempotencyKey":"op_mine""#), 200, -32602, "Invalid params: params.idempotencyKey: keys that begin with `op_` are operation ids, and this is not one; use the `retryKey` exactly as it was given. Nothing ran."),
    kind("legacy, argument: a number", "key of a wrong type in the argument", old_call(r#"{"payment":"pay_demo_never","amount":1,"idempotency_key":5}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: idempotency_key must be a string; leave it out unless an earlier answer gave you a value. Correct the arguments and call again."),
    rpc("legacy, params against the header", "carriers that disagree", old_with(GOOD, r#","idempotencyKey":"a""#).add(&[("Idempotency-Key", "b")]), 200, -32602, DISAGREE),
    rpc("legacy, _meta against the header", "carriers that disagree", old_with(GOOD, r#","_meta":{"dev.counterfoil/idempotency-key":"a"}"#).add(&[("Idempotency-Key", "b")]), 200, -32602, DISAGREE),
    kind("legacy, the header against the argument", "argument and carrier disagree", old_call(r#"{"payment":"pay_demo_never","amount":1,"idempotency_key":"b"}"#).add(&[("Idempotency-Key", "a")]), "bad_arguments", &[], "The arguments don't fit, so nothing ran: idempotency_key differs from the idempotency key that came with the request; leave it out. Correct the arguments and call again."),
    kind("legacy: no key where one is needed", "`unkeyed = \"reject\"` and no key", Ask::of(Body::OldCall(STRICT, GOOD, "")), "key_required", NEW, "This tool needs an idempotency key, so nothing ran. Call again with a key of your own that stays the same for every repetition of this call, or with `newKey`. newKey: {key}"),
    opens("a legacy key's first call", old_with(r#"{"payment":"pay_demo_old","amount":1,"order_id":"old"}"#, r#","idempotencyKey":"old""#)),
    joins("legacy, by the header", "key", old_call(r#"{"payment":"pay_demo_old","amount":1.0,"order_id":"old"}"#).add(&[("Idempotency-Key", "\"old\"")])),
    joins("legacy, by _meta, without a revision", "key", old_with(r#"{"payment":"pay_demo_old","amount":1,"order_id":"old"}"#, r#","_meta":{"dev.counterfoil/idempotency-key":"old"}"#).without(&["MCP-Protocol-Version"])),
    joins("legacy, by the argument, in the first revision", "key", old_call(r#"{"payment":"pay_demo_old","amount":1,"order_id":"old","idempotency_key":"old"}"#).set(FIRST)),
    joins("the same key in the modern era", "key", with(r#"{"payment":"pay_demo_old","amount":1,"order_id":"old"}"#, r#""idempotencyKey":"old","#)),
    joins("a modern key in the legacy era", "key", old_with(r#"{"payment":"pay_demo_one","amount":1,"order_id":"one"}"#, r#","idempotencyKey":"one""#)),
    kind("legacy: other arguments, by params", OTHER_ARGUMENTS, old_with(r#"{"payment":"pay_demo_old","amount":2,"order_id":"old"}"#, r#","idempotencyKey":"old""#), "key_conflict", NEW, CONFLICT),
    kind("legacy: other arguments, by _meta", OTHER_ARGUMENTS, old_with(r#"{"payment":"pay_demo_old","amount":3,"order_id":"old"}"#, r#","_meta":{"dev.counterfoil/idempotency-key":"old"}"#), "key_conflict", NEW, CONFLICT),
    kind("legacy: other arguments, by the header", OTHER_ARGUMENTS, old_call(r#"{"payment":"pay_demo_old","amount":4,"order_id":"old"}"#).add(&[("Idempotency-Key", "old")]), "key_conflict", NEW, CONFLICT),
    kind("legacy: other arguments, by the argument", OTHER_ARGUMENTS, old_call(r#"{"payment":"pay_demo_old","amount":5,"order_id":"old","idempotency_key":"old"}"#), "key_conflict", NEW, CONFLICT),
    opens("a legacy call without a key", old_call(r#"{"payment":"pay_demo_oldtwin","amount":1,"order_id":"oldtwin"}"#)),
    kind("its legacy twin", DELIVERED, old_call(r#"{"payment":"pay_demo_oldtwin","amount":1,"order_id":"oldtwin"}"#), "twin", BOTH, TWIN),
    kind("its modern twin", DELIVERED, call(r#"{"payment":"pay_demo_oldtwin","amount":1,"order_id":"oldtwin"}"#), "twin", BOTH, TWIN),
    joins("legacy: retryKey as the argument", "operation", old_call(r#"{"payment":"pay_demo_oldtwin","amount":1,"order_id":"oldtwin","idempotency_key":"$RETRY"}"#)),
    opens("legacy: newKey as the argument", old_call(r#"{"payment":"pay_demo_oldtwin","amount":1,"order_id":"oldtwin","idempotency_key":"$NEW"}"#)),
];
