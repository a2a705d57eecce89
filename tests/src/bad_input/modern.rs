//! The modern era: metadata, headers, revision, parameters.

use super::*;

const NO_META: &str = "Invalid params: params._meta with io.modelcontextprotocol/protocolVersion is required (this server speaks 2026-07-28; 2025-11-25, 2025-06-18, 2025-03-26 (by initialize)). Nothing ran.";
const NO_REVISION: &str = "Invalid params: _meta needs io.modelcontextprotocol/protocolVersion as a string (this server speaks 2026-07-28; 2025-11-25, 2025-06-18, 2025-03-26 (by initialize)). Nothing ran.";
const NO_CAPABILITIES: &str = "Invalid params: _meta needs io.modelcontextprotocol/clientCapabilities as an object (this server speaks 2026-07-28; 2025-11-25, 2025-06-18, 2025-03-26 (by initialize)). Nothing ran.";
const MISMATCH: &str = "header mismatch";
const BAD_RESPONSES: &str =
    "Invalid params: params.inputResponses must be an object of objects. Nothing ran.";
const UNSUPPORTED: &str = "Unsupported protocol version. Nothing ran; served: 2026-07-28; 2025-11-25, 2025-06-18, 2025-03-26 (by initialize).";

/// The rows.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    // Metadata, headers, revision.
    rpc("no params", "missing `_meta`", text(r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/list"}"#), 400, -32602, NO_META).also(SUPPORTED),
    rpc("no _meta", "missing `_meta`", text(r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/list","params":{}}"#), 400, -32602, NO_META).also(SUPPORTED),
    rpc("initialize under a header of the modern era", "unsupported version", text(r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}"#), 400, -32022, UNSUPPORTED).also(&[("/error/data", r#"{"supported":["2026-07-28"],"requested":"2025-11-25"}"#)]),
    rpc("initialize under a header that nobody knows", "unsupported version", text(r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"protocolVersion":"2024-11-05"}}"#)
        .set(&[("MCP-Protocol-Version", "2024-11-05")]), 400, -32022, UNSUPPORTED).also(&[("/error/data", r#"{"supported":["2026-07-28"],"requested":"2024-11-05"}"#)]),
    rpc("_meta empty", "no revision in `_meta`", list("{}"), 400, -32602, NO_REVISION).also(SUPPORTED),
    rpc("revision as a number", "no revision in `_meta`", list(r#"{"io.modelcontextprotocol/protocolVersion":20260728,"io.modelcontextprotocol/clientCapabilities":{}}"#), 400, -32602, NO_REVISION).also(SUPPORTED),
    rpc("no capabilities", "no capabilities in `_meta`", list(r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#), 400, -32602, NO_CAPABILITIES).also(SUPPORTED),
    rpc("capabilities as an array", "no capabilities in `_meta`", list(r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":[]}"#), 400, -32602, NO_CAPABILITIES).also(SUPPORTED),
    rpc("clientInfo as a number", "wrong type of `clientInfo`", list(r#"{$META,"io.modelcontextprotocol/clientInfo":1}"#), 400, -32602, "Invalid params: io.modelcontextprotocol/clientInfo must be an object (this server speaks 2026-07-28; 2025-11-25, 2025-06-18, 2025-03-26 (by initialize)). Nothing ran.").also(SUPPORTED),
    rpc("progressToken as an object", "wrong type of `progressToken`", list(r#"{$META,"progressToken":{}}"#), 400, -32602, "Invalid params: progressToken must be a string or an integer (this server speaks 2026-07-28; 2025-11-25, 2025-06-18, 2025-03-26 (by initialize)). Nothing ran.").also(SUPPORTED),
    rpc("a log level that is none", "unknown log level", list(r#"{$META,"io.modelcontextprotocol/logLevel":"loud"}"#), 400, -32602, "Invalid params: io.modelcontextprotocol/logLevel is not a known log level (this server speaks 2026-07-28; 2025-11-25, 2025-06-18, 2025-03-26 (by initialize)). Nothing ran.").also(SUPPORTED),
    rpc("no version header", "a header is missing", call(GOOD).without(&["MCP-Protocol-Version"]), 400, -32020, "Header mismatch: the mcp-protocol-version header is required. Nothing ran."),
    rpc("no method header", "a header is missing", call(GOOD).without(&["Mcp-Method"]), 400, -32020, "Header mismatch: the mcp-method header is required. Nothing ran."),
    rpc("no name header", "a header is missing", call(GOOD).without(&["Mcp-Name"]), 400, -32020, "Header mismatch: the mcp-name header is required. Nothing ran."),
    rpc("two version headers", "a header is sent twice", call(GOOD).add(&[("MCP-Protocol-Version", "2026-07-28")]), 400, -32020, "Header mismatch: mcp-protocol-version is sent more than once. Nothing ran."),
    rpc("two method headers", "a header is sent twice", call(GOOD).add(&[("Mcp-Method", "tools/list")]), 400, -32020, "Header mismatch: mcp-method is sent more than once. Nothing ran."),
    rpc("two name headers", "a header is sent twice", call(GOOD).add(&[("Mcp-Name", TOOL)]), 400, -32020, "Header mismatch: mcp-name is sent more than once. Nothing ran."),
    rpc("another version in the header", MISMATCH, call(GOOD).set(&[("MCP-Protocol-Version", "2025-11-25")]), 400, -32020, "Header mismatch: mcp-protocol-version header value '2025-11-25' does not match body value '2026-07-28'. Nothing ran."),
    rpc("another method in the header", MISMATCH, call(GOOD).set(&[("Mcp-Method", "tools/list")]), 400, -32020, "Header mismatch: mcp-method header value 'tools/list' does not match body value 'tools/call'. Nothing ran."),
    rpc("another case of the method in the header", MISMATCH, call(GOOD).set(&[("Mcp-Method", "Tools/Call")]), 400, -32020, "Header mismatch: mcp-method header value 'Tools/Call' does not match body value 'tools/call'. Nothing ran."),
    rpc("another name in the header", MISMATCH, call(GOOD).set(&[("Mcp-Name", "operation_status")]), 400, -32020, "Header mismatch: mcp-name header value 'operation_status' does not match body value 'lab_refunds_create'. Nothing ran."),
    rpc("broken Base64 in the header", "a malformed header value", call(GOOD).set(&[("Mcp-Name", "=?base64?!!!?=")]), 400, -32020, "Header mismatch: mcp-name holds invalid characters or broken Base64. Nothing ran."),
    rpc("a header beyond ASCII", "a malformed header value", call(GOOD).set(&[("Mcp-Name", "lab_réfunds")]), 400, -32020, "Header mismatch: mcp-name holds invalid characters or broken Base64. Nothing ran."),
    rpc("a later revision", "unsupported version", list(r#"{"io.modelcontextprotocol/protocolVersion":"2030-01-01","io.modelcontextprotocol/clientCapabilities":{}}"#)
        .set(&[("MCP-Protocol-Version", "2030-01-01")]), 400, -32022, UNSUPPORTED).also(&[("/error/data", r#"{"supported":["2026-07-28"],"requested":"2030-01-01"}"#)]),
    rpc("an earlier revision", "unsupported version", list(r#"{"io.modelcontextprotocol/protocolVersion":"2025-06-18","io.modelcontextprotocol/clientCapabilities":{}}"#)
        .set(&[("MCP-Protocol-Version", "2025-06-18")]), 400, -32022, UNSUPPORTED).also(&[("/error/data", r#"{"supported":["2026-07-28"],"requested":"2025-06-18"}"#)]),
    rpc("initialize with modern metadata", "unknown method", ask("initialize", r#""protocolVersion":"2025-11-25","#), 404, -32601, "Method not found: initialize. Nothing ran; server/discover tells what is served."),
    rpc("ping", "unknown method", ask("ping", ""), 404, -32601, "Method not found: ping. Nothing ran; server/discover tells what is served."),
    rpc("setLevel, modern", "unknown method", ask("logging/setLevel", r#""level":"info","#), 404, -32601, "Method not found: logging/setLevel. Nothing ran; server/discover tells what is served."),
    rpc("resources/subscribe, modern", "unknown method", ask("resources/subscribe", r#""uri":"x","#), 404, -32601, "Method not found: resources/subscribe. Nothing ran; server/discover tells what is served."),
    rpc("prompts where there are none", "unknown method", ask("prompts/list", ""), 404, -32601, "Method not found: prompts/list. Nothing ran; server/discover tells what is served."),
    rpc("a prompt where there are none", "unknown method", ask("prompts/get", r#""name":"x","#), 404, -32601, "Method not found: prompts/get. Nothing ran; server/discover tells what is served."),
    rpc("resources where there are none", "unknown method", ask("resources/list", ""), 404, -32601, "Method not found: resources/list. Nothing ran; server/discover tells what is served."),
    rpc("templates where there are none", "unknown method", ask("resources/templates/list", ""), 404, -32601, "Method not found: resources/templates/list. Nothing ran; server/discover tells what is served."),
    rpc("a resource where there are none", "unknown method", ask("resources/read", r#""uri":"x","#), 404, -32601, "Method not found: resources/read. Nothing ran; server/discover tells what is served."),
    rpc("completion where there is none", "unknown method", ask("completion/complete", ""), 404, -32601, "Method not found: completion/complete. Nothing ran; server/discover tells what is served."),
    rpc("a method that nobody knows", "unknown method", ask("tools/destroy", ""), 404, -32601, "Method not found: tools/destroy. Nothing ran; server/discover tells what is served."),

    // Parameters.
    rpc("no tool name", "no tool name", ask("tools/call", r#""arguments":{},"#), 400, -32602, "Invalid params: params.name must be a string. Nothing ran."),
    rpc("tool name as a number", "no tool name", ask("tools/call", r#""name":5,"arguments":{},"#), 400, -32602, "Invalid params: params.name must be a string. Nothing ran."),
    rpc("arguments as an array", "wrong type of `arguments`", call("[1]"), 400, -32602, BAD_ARGUMENTS),
    rpc("arguments as a string", "wrong type of `arguments`", call(r#""{}""#), 400, -32602, BAD_ARGUMENTS),
    rpc("an unknown tool", "unknown tool", tool("nope", "{}"), 200, -32602, "Invalid params: unknown tool \"nope\"; nothing ran. tools/list tells what there is."),
    rpc("the canonical id in place of the tool's name", "unknown tool", tool("lab.refunds.create", GOOD), 200, -32602, "Invalid params: unknown tool \"lab.refunds.create\"; nothing ran. tools/list tells what there is."),
    rpc("a mirrored argument without its header", "a mirrored argument without its header", tool(MIRRORED, GOOD), 400, -32020, "Header mismatch: the mcp-param-payment header is required, since argument 'payment' has a value; list tools again. Nothing ran."),
    rpc("a mirrored header without its argument", "a mirrored header without its argument", tool(MIRRORED, r#"{"amount":1}"#).add(&[("Mcp-Param-Payment", "x")]), 400, -32020, "Header mismatch: mcp-param-payment is sent, but argument 'payment' has no value. Nothing ran."),
    rpc("a mirrored argument that differs", "a mirrored argument differs", tool(MIRRORED, GOOD).add(&[("Mcp-Param-Payment", "pay_demo_other")]), 400, -32020, "Header mismatch: mcp-param-payment does not match argument 'payment'. Nothing ran."),
    rpc("a mirrored header sent twice", "a header is sent twice", tool(MIRRORED, GOOD).add(&[("Mcp-Param-Payment", "pay_demo_never"), ("Mcp-Param-Payment", "pay_demo_never")]), 400, -32020, "Header mismatch: mcp-param-payment is sent more than once. Nothing ran."),
    rpc("answers that are null", "wrong shape of `inputResponses`", with(GOOD, r#""inputResponses":null,"#), 400, -32602, BAD_RESPONSES),
    rpc("answers as an array", "wrong shape of `inputResponses`", ask("resources/read", r#""uri":"a:b","inputResponses":[],"#), 400, -32602, BAD_RESPONSES),
    rpc("an answer that is no object", "wrong shape of `inputResponses`", ask("prompts/get", r#""name":"x","inputResponses":{"a":"accept"},"#), 400, -32602, BAD_RESPONSES),
    rpc("65 answers", "too many `inputResponses`", with(GOOD, r#""inputResponses":$ANSWERS,"#), 400, -32602, "Invalid params: params.inputResponses has more than 64 members. Nothing ran."),
    rpc("a state that is null", "wrong type of `requestState`", with(GOOD, r#""requestState":null,"#), 400, -32602, "Invalid params: params.requestState must be a string. Nothing ran."),
    rpc("a state as an object", "wrong type of `requestState`", with(GOOD, r#""requestState":{},"#), 400, -32602, "Invalid params: params.requestState must be a string. Nothing ran."),
    rpc("a task without its id", "no task id", ask("tasks/get", ""), 400, -32602, "Invalid params: params.taskId must be a string. Nothing ran."),
    rpc("a task's id as a number", "no task id", ask("tasks/cancel", r#""taskId":1,"#), 400, -32602, "Invalid params: params.taskId must be a string. Nothing ran."),
    rpc("a task's id that differs from its header", MISMATCH, ask("tasks/update", r#""taskId":"task_a","inputResponses":{},"#).add(&[("Mcp-Name", "task_b")]), 400, -32020, "Header mismatch: mcp-name header value 'task_b' does not match body value 'task_a'. Nothing ran."),
    rpc("a cursor of nobody", "a foreign cursor", ask("tools/list", r#""cursor":"x","#), 200, -32602, FOREIGN_CURSOR),
    rpc("a cursor after a tool that is gone", "a stale cursor", ask("tools/list", r#""cursor":"YzEKdG9vbHMKZ29uZQ","#), 200, -32602, "Invalid params: this cursor is of a list that has changed; list again without a cursor."),
    rpc("cursor as a number", "wrong type of `cursor`", ask("tools/list", r#""cursor":1,"#), 400, -32602, "Invalid params: cursor must be a string. Nothing ran."),
    rpc("listen to nothing", "`subscriptions/listen` without `notifications`", ask("subscriptions/listen", ""), 400, -32602, "Invalid params: params.notifications must be an object. Nothing ran."),
    rpc("listen to a number", "wrong type in `notifications`", ask("subscriptions/listen", r#""notifications":{"toolsListChanged":1},"#), 400, -32602, "Invalid params: params.notifications.toolsListChanged must be a boolean. Nothing ran."),
    rpc("listen to prompts by a text", "wrong type in `notifications`", ask("subscriptions/listen", r#""notifications":{"promptsListChanged":"yes"},"#), 400, -32602, "Invalid params: params.notifications.promptsListChanged must be a boolean. Nothing ran."),
    rpc("listen to resources by null", "wrong type in `notifications`", ask("subscriptions/listen", r#""notifications":{"resourcesListChanged":null},"#), 400, -32602, "Invalid params: params.notifications.resourcesListChanged must be a boolean. Nothing ran."),
    rpc("notifications as an array", "`subscriptions/listen` without `notifications`", ask("subscriptions/listen", r#""notifications":[],"#), 400, -32602, "Invalid params: params.notifications must be an object. Nothing ran."),
    rpc("listen to one URI", "wrong type of `resourceSubscriptions`", ask("subscriptions/listen", r#""notifications":{"resourceSubscriptions":"a:b"},"#), 400, -32602, "Invalid params: params.notifications.resourceSubscriptions must be an array of strings. Nothing ran."),
    rpc("listen to numbers", "wrong type of `resourceSubscriptions`", ask("subscriptions/listen", r#""notifications":{"resourceSubscriptions":["a:b",1]},"#), 400, -32602, "Invalid params: params.notifications.resourceSubscriptions must be an array of strings. Nothing ran."),
    rpc("listen to 257 URIs", "too many `resourceSubscriptions`", ask("subscriptions/listen", r#""notifications":{"resourceSubscriptions":$URIS},"#), 400, -32602, "Invalid params: params.notifications.resourceSubscriptions has more than 256 URIs; open another stream for the rest. Nothing ran."),
    rpc("listen to a long URI", "a URI too long in `resourceSubscriptions`", ask("subscriptions/listen", r#""notifications":{"resourceSubscriptions":["a:$WIDE"]},"#), 400, -32602, "Invalid params: params.notifications.resourceSubscriptions has a URI of more than 8 KiB. Nothing ran."),
    rpc("listen without a stream", "`subscriptions/listen` by a client that takes no stream", ask("subscriptions/listen", r#""notifications":{},"#).set(&[("Accept", "application/json")]), 406, -32600, "Refused: Accept must include text/event-stream for this method. Nothing ran."),
];
