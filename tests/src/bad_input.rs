//! The table of bad input: what is sent, and the exact status, code or kind, id and text that answer it.
//!
//! The rows go out in order. Between malformed requests stand a few proper calls: they set up what later rows
//! run into (a key in use, a twin, somebody else's operation), and they are all that may ever reach the provider.
//! Each cause is a row of `docs/reference/errors.md`.
//!
//! Bodies, headers and keys may hold: `$ID` the request's id, `$ADDR` the gateway's address, `$META` the required
//! members of `_meta`, `$LONG` and `$FULL` keys of 256 and 255 characters, `$OPERATION`, `$RETRY` and `$NEW` the
//! last operation id, `retryKey` and `newKey` that were answered, `$FORGED` that `newKey` with its last character
//! changed, `$ALICE`, `$BOB` and `$REVOKED` API keys.

/// Which gateway is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    /// Without authentication.
    Open,
    /// With API keys.
    Locked,
}

/// A body.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// These bytes, placeholders filled in if they are UTF-8.
    Bytes(&'static [u8]),
    /// A string of so many bytes.
    Filled(usize),
    /// So many arrays in each other.
    Nested(usize),
    /// A request: method, members of `params` before `_meta`, `_meta`.
    Request(&'static str, &'static str, &'static str),
    /// A `tools/call`: tool, `arguments`, members of `params` before `_meta`, `_meta`.
    Call(&'static str, &'static str, &'static str, &'static str),
}

/// Headers by name and value.
pub type Headers = &'static [(&'static str, &'static str)];

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// HTTP method.
    pub verb: &'static str,
    /// The body; the headers that mirror it come from it.
    pub body: Body,
    /// Headers in place of the proper ones.
    pub set: Headers,
    /// Headers besides.
    pub add: Headers,
    /// Headers that are left out.
    pub without: &'static [&'static str],
}

impl Ask {
    const fn of(body: Body) -> Ask {
        Ask { verb: "POST", body, set: &[], add: &[], without: &[] }
    }
    const fn verb(self, verb: &'static str) -> Ask {
        Ask { verb, ..self }
    }
    const fn set(self, set: Headers) -> Ask {
        Ask { set, ..self }
    }
    const fn add(self, add: Headers) -> Ask {
        Ask { add, ..self }
    }
    const fn without(self, without: &'static [&'static str]) -> Ask {
        Ask { without, ..self }
    }
}

/// What answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A JSON-RPC error of this code.
    Rpc(i64),
    /// A result with `isError`: its kind, and which of `retryKey`, `newKey`, `retryAfterMs` it has.
    Kind(&'static str, &'static [&'static str]),
    /// The stored result of an operation: a new one, or one that was joined by this.
    Result(Option<&'static str>),
    /// Nothing: a notification.
    Nothing,
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What is wrong.
    pub name: &'static str,
    /// The cause as `docs/reference/errors.md` words it; empty where nothing is wrong.
    pub cause: &'static str,
    /// Who is asked.
    pub server: Server,
    /// What is sent.
    pub ask: Ask,
    /// HTTP status.
    pub status: u16,
    /// What answers.
    pub answer: Answer,
    /// The id is echoed; else there is none.
    pub echo: bool,
    /// The whole text; `{…}` stands for ids and keys that vary.
    pub text: &'static str,
    /// More that must be: a JSON pointer into the body and its JSON, or a header's name and value.
    pub also: Headers,
}

impl Row {
    const fn also(self, also: Headers) -> Row {
        Row { also, ..self }
    }
    const fn locked(self) -> Row {
        Row { server: Server::Locked, ..self }
    }
}

const fn row(
    name: &'static str,
    cause: &'static str,
    ask: Ask,
    status: u16,
    answer: Answer,
    echo: bool,
    text: &'static str,
) -> Row {
    Row { name, cause, server: Server::Open, ask, status, answer, echo, text, also: &[] }
}

/// A refusal without an id.
const fn bare(
    name: &'static str,
    cause: &'static str,
    ask: Ask,
    status: u16,
    code: i64,
    text: &'static str,
) -> Row {
    row(name, cause, ask, status, Answer::Rpc(code), false, text)
}

/// A JSON-RPC error with the id.
const fn rpc(
    name: &'static str,
    cause: &'static str,
    ask: Ask,
    status: u16,
    code: i64,
    text: &'static str,
) -> Row {
    row(name, cause, ask, status, Answer::Rpc(code), true, text)
}

/// An error that a model can act on.
const fn kind(
    name: &'static str,
    cause: &'static str,
    ask: Ask,
    kind: &'static str,
    keys: &'static [&'static str],
    text: &'static str,
) -> Row {
    row(name, cause, ask, 200, Answer::Kind(kind, keys), true, text)
}

/// A proper call that opens an operation and has one effect.
const fn opens(name: &'static str, ask: Ask) -> Row {
    row(name, "", ask, 200, Answer::Result(None), true, "")
}

/// A proper call that gets an earlier one's result.
const fn joins(name: &'static str, by: &'static str, ask: Ask) -> Row {
    row(name, "", ask, 200, Answer::Result(Some(by)), true, "")
}

const fn text(body: &'static str) -> Ask {
    Ask::of(Body::Bytes(body.as_bytes()))
}

const META: &str = "{$META}";

/// `tools/list` with this `_meta`.
const fn list(meta: &'static str) -> Ask {
    Ask::of(Body::Request("tools/list", "", meta))
}

/// A method with these members of `params`.
const fn ask(method: &'static str, params: &'static str) -> Ask {
    Ask::of(Body::Request(method, params, META))
}

/// The tool of the table: refunds at a provider that honours keys.
pub const TOOL: &str = "lab_refunds_create";
/// The same where a call needs a key.
pub const STRICT: &str = "lab_refunds_strict";
/// The same with an argument that is mirrored in a header.
pub const MIRRORED: &str = "lab_refunds_mirrored";

/// Arguments that nothing is wrong with.
const GOOD: &str = r#"{"payment":"pay_demo_never","amount":1,"order_id":"never"}"#;

const fn call(arguments: &'static str) -> Ask {
    Ask::of(Body::Call(TOOL, arguments, "", META))
}
const fn tool(tool: &'static str, arguments: &'static str) -> Ask {
    Ask::of(Body::Call(tool, arguments, "", META))
}
/// With further members of `params`.
const fn with(arguments: &'static str, params: &'static str) -> Ask {
    Ask::of(Body::Call(TOOL, arguments, params, META))
}
/// With this `_meta`.
const fn meta(arguments: &'static str, meta: &'static str) -> Ask {
    Ask::of(Body::Call(TOOL, arguments, "", meta))
}
/// With the header `Idempotency-Key`.
const fn header(arguments: &'static str, headers: Headers) -> Ask {
    call(arguments).add(headers)
}

const POST_ONLY: &str = "Refused: this endpoint takes POST only; sessions and resumable streams belong to earlier revisions. Nothing ran.";
const BAD_HOST: &str =
    "Refused: the Host header names neither this machine nor a host in server.allowed_hosts. Nothing ran.";
const BAD_ORIGIN: &str = "Refused: the Origin header is not in server.allowed_origins. Nothing ran.";
const NOT_JSON: &str = "Refused: the body must be application/json. Nothing ran.";
const NO_API_KEY: &str =
    "Refused: this server needs an API key: send it as `Authorization: Bearer cfk_…`. Nothing ran.";
const BAD_API_KEY: &str = "Refused: this API key is not known here, or was revoked. Nothing ran.";
const BAD_ID: &str = "Invalid request: id must be a string or an integer. Nothing ran.";
const BAD_METHOD: &str = "Invalid request: method must be a non-empty string. Nothing ran.";
const BAD_PARAMS: &str = "Invalid params: params must be an object. Nothing ran.";
const NO_META: &str = "Invalid params: params._meta with io.modelcontextprotocol/protocolVersion is required (this server speaks 2026-07-28). Nothing ran.";
const NO_REVISION: &str = "Invalid params: _meta needs io.modelcontextprotocol/protocolVersion as a string (this server speaks 2026-07-28). Nothing ran.";
const NO_CAPABILITIES: &str = "Invalid params: _meta needs io.modelcontextprotocol/clientCapabilities as an object (this server speaks 2026-07-28). Nothing ran.";
const UNSUPPORTED: &str = "Unsupported protocol version. Nothing ran; served: 2026-07-28.";
const BAD_ARGUMENTS: &str = "Invalid params: params.arguments must be an object. Nothing ran.";
const CONFLICT: &str = "This idempotency key was given with other arguments before, so nothing ran. To repeat the earlier call, send exactly its arguments. For these arguments, use a new key, or `newKey`. newKey: {key}";
const EXPIRED: &str = "This key names an operation that is not, or no longer, kept here, so nothing ran. Find out by other means whether the earlier call had its effect; if a new one is wanted, call with `newKey`. newKey: {key}";
const BAD_HEADER_KEY: &str = "Invalid params: Idempotency-Key: must be one RFC 8941 string, or a bare value of visible ASCII. Nothing ran.";

const REFUSED_HOST: &str = "`Host` not allowed";
const REFUSED_ORIGIN: &str = "`Origin` not allowed";
const UNKNOWN_API_KEY: &str = "an unknown or revoked API key";
const MISMATCH: &str = "header mismatch";
const EMPTY: &str = "key empty, by a program";
const TOO_LONG: &str = "key too long, by a program";
const INVISIBLE: &str = "key with blanks, controls or beyond ASCII, by a program";
const CLAIMS: &str = "key that claims to be an operation id, by a program";
const NO_KEY_HEADER: &str = "header value that is no key";
const DISAGREE: &str = "carriers that disagree";
const IN_ARGUMENT: &str = "bad key in the argument";
const SCHEMA: &str = "arguments against the schema";
const OTHER_ARGUMENTS: &str = "the key was used with other arguments, or was minted for others";
const NOT_KEPT: &str = "the key's operation is not, or no longer, kept; or it is somebody else's";
const DELIVERED: &str = "the same call without a key, its result delivered a moment ago";

const SUPPORTED: Headers = &[("/error/data/supported", r#"["2026-07-28"]"#)];
const BEARER: Headers = &[("www-authenticate", "Bearer realm=\"counterfoil\"")];
const NEW: &[&str] = &["newKey"];
const BOTH: &[&str] = &["retryKey", "newKey"];

/// The table.
#[rustfmt::skip]
pub const ROWS: &[Row] = &[
    // HTTP.
    bare("a foreign host", REFUSED_HOST, call(GOOD).set(&[("Host", "evil.example")]), 403, -32600, BAD_HOST),
    bare("another port of this machine", REFUSED_HOST, call(GOOD).set(&[("Host", "127.0.0.1:1")]), 403, -32600, BAD_HOST),
    bare("two hosts", REFUSED_HOST, call(GOOD).add(&[("Host", "$ADDR")]), 403, -32600, BAD_HOST),
    bare("a foreign origin", REFUSED_ORIGIN, call(GOOD).add(&[("Origin", "https://evil.example")]), 403, -32600, BAD_ORIGIN),
    bare("the origin null", REFUSED_ORIGIN, call(GOOD).add(&[("Origin", "null")]), 403, -32600, BAD_ORIGIN),
    bare("two origins", REFUSED_ORIGIN, call(GOOD).add(&[("Origin", "http://$ADDR"), ("Origin", "http://$ADDR")]), 403, -32600, BAD_ORIGIN),
    bare("GET", "any method but POST", text("").verb("GET"), 405, -32600, POST_ONLY).also(&[("allow", "POST")]),
    bare("DELETE", "any method but POST", text("").verb("DELETE"), 405, -32600, POST_ONLY).also(&[("allow", "POST")]),
    bare("PUT of a call", "any method but POST", call(GOOD).verb("PUT"), 405, -32600, POST_ONLY).also(&[("allow", "POST")]),
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
    bare("a batch", "a batch", text(r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]"#), 400, -32600, "Invalid request: batches are not part of this protocol; send one message per POST. Nothing ran."),
    bare("an empty batch", "a batch", text("[]"), 400, -32600, "Invalid request: batches are not part of this protocol; send one message per POST. Nothing ran."),
    bare("a number", "no object", text("1"), 400, -32600, "Invalid request: the body must be one JSON object. Nothing ran."),
    rpc("JSON-RPC 1.0", "wrong `jsonrpc`", text(r#"{"jsonrpc":"1.0","id":$ID,"method":"x"}"#), 400, -32600, "Invalid request: jsonrpc must be \"2.0\". Nothing ran."),
    rpc("jsonrpc as a number", "wrong `jsonrpc`", text(r#"{"jsonrpc":2.0,"id":$ID,"method":"x"}"#), 400, -32600, "Invalid request: jsonrpc must be \"2.0\". Nothing ran."),
    bare("id null", "wrong type of `id`", text(r#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#), 400, -32600, BAD_ID),
    bare("id with a fraction", "wrong type of `id`", text(r#"{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}"#), 400, -32600, BAD_ID),
    bare("id as an object", "wrong type of `id`", text(r#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#), 400, -32600, BAD_ID),
    rpc("method as a number", "wrong type of `method`", text(r#"{"jsonrpc":"2.0","id":$ID,"method":5}"#), 400, -32600, BAD_METHOD),
    rpc("method empty", "wrong type of `method`", text(r#"{"jsonrpc":"2.0","id":$ID,"method":""}"#), 400, -32600, BAD_METHOD),
    rpc("no method", "no `method`", text(r#"{"jsonrpc":"2.0","id":$ID}"#), 400, -32600, "Invalid request: method is missing. Nothing ran."),
    bare("a response", "a response", text(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), 400, -32600, "Invalid request: clients send no responses in this revision. Nothing ran."),
    rpc("params as an array", "wrong type of `params`", text(r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/list","params":[]}"#), 400, -32602, BAD_PARAMS),
    rpc("params null", "wrong type of `params`", text(r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/list","params":null}"#), 400, -32602, BAD_PARAMS),
    row("a call without id is a notification", "", text(r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"lab_refunds_create","arguments":{"payment":"pay_demo_never","amount":1},"_meta":{$META}}}"#)
        .add(&[("Mcp-Method", "tools/call"), ("Mcp-Name", TOOL)]), 202, Answer::Nothing, false, ""),

    // Metadata, headers, revision.
    rpc("initialize", "`initialize` of an earlier revision", text(r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}"#)
        .without(&["MCP-Protocol-Version"]), 400, -32022, UNSUPPORTED).also(&[("/error/data", r#"{"supported":["2026-07-28"],"requested":"2025-11-25"}"#)]),
    rpc("no params", "missing `_meta`", text(r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/list"}"#), 400, -32602, NO_META).also(SUPPORTED),
    rpc("no _meta", "missing `_meta`", text(r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/list","params":{}}"#), 400, -32602, NO_META).also(SUPPORTED),
    rpc("_meta empty", "no revision in `_meta`", list("{}"), 400, -32602, NO_REVISION).also(SUPPORTED),
    rpc("revision as a number", "no revision in `_meta`", list(r#"{"io.modelcontextprotocol/protocolVersion":20260728,"io.modelcontextprotocol/clientCapabilities":{}}"#), 400, -32602, NO_REVISION).also(SUPPORTED),
    rpc("no capabilities", "no capabilities in `_meta`", list(r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#), 400, -32602, NO_CAPABILITIES).also(SUPPORTED),
    rpc("capabilities as an array", "no capabilities in `_meta`", list(r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":[]}"#), 400, -32602, NO_CAPABILITIES).also(SUPPORTED),
    rpc("clientInfo as a number", "wrong type of `clientInfo`", list(r#"{$META,"io.modelcontextprotocol/clientInfo":1}"#), 400, -32602, "Invalid params: io.modelcontextprotocol/clientInfo must be an object (this server speaks 2026-07-28). Nothing ran.").also(SUPPORTED),
    rpc("progressToken as an object", "wrong type of `progressToken`", list(r#"{$META,"progressToken":{}}"#), 400, -32602, "Invalid params: progressToken must be a string or an integer (this server speaks 2026-07-28). Nothing ran.").also(SUPPORTED),
    rpc("a log level that is none", "unknown log level", list(r#"{$META,"io.modelcontextprotocol/logLevel":"loud"}"#), 400, -32602, "Invalid params: io.modelcontextprotocol/logLevel is not a known log level (this server speaks 2026-07-28). Nothing ran.").also(SUPPORTED),
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
    rpc("a method that is not served", "unknown method", ask("prompts/list", ""), 404, -32601, "Method not found: prompts/list. Nothing ran; server/discover tells what is served."),
    rpc("ping", "unknown method", ask("ping", ""), 404, -32601, "Method not found: ping. Nothing ran; server/discover tells what is served."),

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
    rpc("a cursor of nobody", "a foreign cursor", ask("tools/list", r#""cursor":"x","#), 200, -32602, "Invalid params: this cursor was not issued for this list; list again without a cursor."),
    rpc("a cursor after a tool that is gone", "a stale cursor", ask("tools/list", r#""cursor":"YzEKdG9vbHMKZ29uZQ","#), 200, -32602, "Invalid params: this cursor is of a list that has changed; list again without a cursor."),
    rpc("cursor as a number", "wrong type of `cursor`", ask("tools/list", r#""cursor":1,"#), 400, -32602, "Invalid params: cursor must be a string. Nothing ran."),
    rpc("listen to nothing", "`subscriptions/listen` without `notifications`", ask("subscriptions/listen", ""), 400, -32602, "Invalid params: params.notifications must be an object. Nothing ran."),
    rpc("listen to a number", "wrong type in `notifications`", ask("subscriptions/listen", r#""notifications":{"toolsListChanged":1},"#), 400, -32602, "Invalid params: params.notifications.toolsListChanged must be a boolean. Nothing ran."),
    rpc("listen without a stream", "`subscriptions/listen` by a client that takes no stream", ask("subscriptions/listen", r#""notifications":{},"#).set(&[("Accept", "application/json")]), 406, -32600, "Refused: Accept must include text/event-stream for this method. Nothing ran."),

    // Keys, carrier by carrier.
    rpc("params: empty", EMPTY, with(GOOD, r#""idempotencyKey":"","#), 400, -32602, "Invalid params: params.idempotencyKey: the idempotency key is empty; leave it out or give 1 to 255 characters. Nothing ran."),
    rpc("params: too long", TOO_LONG, with(GOOD, r#""idempotencyKey":"$LONG","#), 400, -32602, "Invalid params: params.idempotencyKey: the idempotency key has 256 characters; at most 255 are allowed. Nothing ran."),
    rpc("params: a control", INVISIBLE, with(GOOD, r#""idempotencyKey":"a\u0001b","#), 400, -32602, "Invalid params: params.idempotencyKey: the idempotency key has a character outside visible ASCII (0x21 to 0x7E). Nothing ran."),
    rpc("params: a blank", INVISIBLE, with(GOOD, r#""idempotencyKey":"a b","#), 400, -32602, "Invalid params: params.idempotencyKey: the idempotency key has a character outside visible ASCII (0x21 to 0x7E). Nothing ran."),
    rpc("params: beyond ASCII", INVISIBLE, with(GOOD, r#""idempotencyKey":"é","#), 400, -32602, "Invalid params: params.idempotencyKey: the idempotency key has a character outside visible ASCII (0x21 to 0x7E). Nothing ran."),
    rpc("params: op_", CLAIMS, with(GOOD, r#""idempotencyKey":"op_mine","#), 400, -32602, "Invalid params: params.idempotencyKey: keys that begin with `op_` are operation ids, and this is not one; use the `retryKey` exactly as it was given. Nothing ran."),
    rpc("params: a number", "key of a wrong type, by a program", with(GOOD, r#""idempotencyKey":5,"#), 400, -32602, "Invalid params: params.idempotencyKey: must be a string. Nothing ran."),
    rpc("params: null", "key of a wrong type, by a program", with(GOOD, r#""idempotencyKey":null,"#), 400, -32602, "Invalid params: params.idempotencyKey: must be a string. Nothing ran."),
    rpc("_meta: empty", EMPTY, meta(GOOD, r#"{$META,"dev.counterfoil/idempotency-key":""}"#), 400, -32602, "Invalid params: dev.counterfoil/idempotency-key: the idempotency key is empty; leave it out or give 1 to 255 characters. Nothing ran."),
    rpc("_meta: too long", TOO_LONG, meta(GOOD, r#"{$META,"dev.counterfoil/idempotency-key":"$LONG"}"#), 400, -32602, "Invalid params: dev.counterfoil/idempotency-key: the idempotency key has 256 characters; at most 255 are allowed. Nothing ran."),
    rpc("_meta: a control", INVISIBLE, meta(GOOD, r#"{$META,"dev.counterfoil/idempotency-key":"a\nb"}"#), 400, -32602, "Invalid params: dev.counterfoil/idempotency-key: the idempotency key has a character outside visible ASCII (0x21 to 0x7E). Nothing ran."),
    rpc("_meta: op_", CLAIMS, meta(GOOD, r#"{$META,"dev.counterfoil/idempotency-key":"op_01ARZ3NDEKTSV4RRFFQ69G5FA"}"#), 400, -32602, "Invalid params: dev.counterfoil/idempotency-key: keys that begin with `op_` are operation ids, and this is not one; use the `retryKey` exactly as it was given. Nothing ran."),
    rpc("_meta: an array", "key of a wrong type, by a program", meta(GOOD, r#"{$META,"dev.counterfoil/idempotency-key":["a"]}"#), 400, -32602, "Invalid params: dev.counterfoil/idempotency-key: must be a string. Nothing ran."),
    rpc("header: empty", EMPTY, header(GOOD, &[("Idempotency-Key", "")]), 400, -32602, "Invalid params: Idempotency-Key: the idempotency key is empty; leave it out or give 1 to 255 characters. Nothing ran."),
    rpc("header, quoted: empty", EMPTY, header(GOOD, &[("Idempotency-Key", "\"\"")]), 400, -32602, "Invalid params: Idempotency-Key: the idempotency key is empty; leave it out or give 1 to 255 characters. Nothing ran."),
    rpc("header: too long", TOO_LONG, header(GOOD, &[("Idempotency-Key", "$LONG")]), 400, -32602, "Invalid params: Idempotency-Key: the idempotency key has 256 characters; at most 255 are allowed. Nothing ran."),
    rpc("header, quoted: too long", TOO_LONG, header(GOOD, &[("Idempotency-Key", "\"$LONG\"")]), 400, -32602, "Invalid params: Idempotency-Key: the idempotency key has 256 characters; at most 255 are allowed. Nothing ran."),
    rpc("header: a blank", INVISIBLE, header(GOOD, &[("Idempotency-Key", "a b")]), 400, -32602, "Invalid params: Idempotency-Key: the idempotency key has a character outside visible ASCII (0x21 to 0x7E). Nothing ran."),
    rpc("header, quoted: a blank", INVISIBLE, header(GOOD, &[("Idempotency-Key", "\"a b\"")]), 400, -32602, "Invalid params: Idempotency-Key: the idempotency key has a character outside visible ASCII (0x21 to 0x7E). Nothing ran."),
    rpc("header: a tab", INVISIBLE, header(GOOD, &[("Idempotency-Key", "a\tb")]), 400, -32602, "Invalid params: Idempotency-Key: the idempotency key has a character outside visible ASCII (0x21 to 0x7E). Nothing ran."),
    rpc("header: beyond ASCII", NO_KEY_HEADER, header(GOOD, &[("Idempotency-Key", "é")]), 400, -32602, BAD_HEADER_KEY),
    rpc("header, quoted: no end", NO_KEY_HEADER, header(GOOD, &[("Idempotency-Key", "\"abc")]), 400, -32602, BAD_HEADER_KEY),
    rpc("header, quoted: an unknown escape", NO_KEY_HEADER, header(GOOD, &[("Idempotency-Key", "\"a\\x\"")]), 400, -32602, BAD_HEADER_KEY),
    rpc("header: op_", CLAIMS, header(GOOD, &[("Idempotency-Key", "op_")]), 400, -32602, "Invalid params: Idempotency-Key: keys that begin with `op_` are operation ids, and this is not one; use the `retryKey` exactly as it was given. Nothing ran."),
    rpc("header, quoted: op_", CLAIMS, header(GOOD, &[("Idempotency-Key", "\"op_\"")]), 400, -32602, "Invalid params: Idempotency-Key: keys that begin with `op_` are operation ids, and this is not one; use the `retryKey` exactly as it was given. Nothing ran."),
    kind("argument: empty", IN_ARGUMENT, call(r#"{"payment":"pay_demo_never","amount":1,"idempotency_key":""}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: idempotency_key: the idempotency key is empty; leave it out or give 1 to 255 characters. Correct the arguments and call again."),
    kind("argument: too long", IN_ARGUMENT, call(r#"{"payment":"pay_demo_never","amount":1,"idempotency_key":"$LONG"}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: idempotency_key: the idempotency key has 256 characters; at most 255 are allowed. Correct the arguments and call again."),
    kind("argument: a control", IN_ARGUMENT, call(r#"{"payment":"pay_demo_never","amount":1,"idempotency_key":"a\u007fb"}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: idempotency_key: the idempotency key has a character outside visible ASCII (0x21 to 0x7E). Correct the arguments and call again."),
    kind("argument: op_", IN_ARGUMENT, call(r#"{"payment":"pay_demo_never","amount":1,"idempotency_key":"op_x"}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: idempotency_key: keys that begin with `op_` are operation ids, and this is not one; use the `retryKey` exactly as it was given. Correct the arguments and call again."),
    kind("argument: a number", "key of a wrong type in the argument", call(r#"{"payment":"pay_demo_never","amount":1,"idempotency_key":5}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: idempotency_key must be a string; leave it out unless an earlier answer gave you a value. Correct the arguments and call again."),

    // Carriers that disagree.
    rpc("params against _meta", DISAGREE, Ask::of(Body::Call(TOOL, GOOD, r#""idempotencyKey":"a","#, r#"{$META,"dev.counterfoil/idempotency-key":"b"}"#)), 400, -32602, "Invalid params: dev.counterfoil/idempotency-key: two carriers of the idempotency key disagree; send one, or the same in all. Nothing ran."),
    rpc("params against the header", DISAGREE, with(GOOD, r#""idempotencyKey":"a","#).add(&[("Idempotency-Key", "b")]), 400, -32602, "Invalid params: Idempotency-Key: two carriers of the idempotency key disagree; send one, or the same in all. Nothing ran."),
    rpc("_meta against the quoted header", DISAGREE, meta(GOOD, r#"{$META,"dev.counterfoil/idempotency-key":"a"}"#).add(&[("Idempotency-Key", "\"A\"")]), 400, -32602, "Invalid params: Idempotency-Key: two carriers of the idempotency key disagree; send one, or the same in all. Nothing ran."),
    rpc("two headers", DISAGREE, header(GOOD, &[("Idempotency-Key", "a"), ("Idempotency-Key", "b")]), 400, -32602, "Invalid params: Idempotency-Key: two carriers of the idempotency key disagree; send one, or the same in all. Nothing ran."),
    kind("params against the argument", "argument and carrier disagree", with(r#"{"payment":"pay_demo_never","amount":1,"idempotency_key":"b"}"#, r#""idempotencyKey":"a","#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: idempotency_key differs from the idempotency key that came with the request; leave it out. Correct the arguments and call again."),
    kind("the header against the argument", "argument and carrier disagree", header(r#"{"payment":"pay_demo_never","amount":1,"idempotency_key":"b"}"#, &[("Idempotency-Key", "\"a\"")]), "bad_arguments", &[], "The arguments don't fit, so nothing ran: idempotency_key differs from the idempotency key that came with the request; leave it out. Correct the arguments and call again."),

    // Arguments.
    kind("no arguments", SCHEMA, ask("tools/call", r#""name":"lab_refunds_create","#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: \"payment\" is a required property; \"amount\" is a required property. Correct the arguments and call again."),
    kind("arguments that lack one", SCHEMA, call(r#"{"amount":1}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: \"payment\" is a required property. Correct the arguments and call again."),
    kind("a string for an integer", SCHEMA, call(r#"{"payment":"pay_demo_never","amount":"1"}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: at /amount: \"1\" is not of type \"integer\". Correct the arguments and call again."),
    kind("a fraction for an integer", SCHEMA, call(r#"{"payment":"pay_demo_never","amount":1.5}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: at /amount: 1.5 is not of type \"integer\". Correct the arguments and call again."),
    kind("below the minimum", SCHEMA, call(r#"{"payment":"pay_demo_never","amount":0}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: at /amount: 0 is less than the minimum of 1. Correct the arguments and call again."),
    kind("an argument too many, under a key", SCHEMA, with(r#"{"payment":"pay_demo_never","amount":1,"surprise":1}"#, r#""idempotencyKey":"bad-arguments","#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: Additional properties are not allowed ('surprise' was unexpected). Correct the arguments and call again."),
    kind("an exponent without end", "arguments without a canonical form (an exponent beyond 100,000)", call(r#"{"payment":"pay_demo_never","amount":1e999999}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: a number's exponent is beyond 100000. Correct the arguments and call again."),
    kind("no key where one is needed", "`unkeyed = \"reject\"` and no key", tool(STRICT, GOOD), "key_required", NEW, "This tool needs an idempotency key, so nothing ran. Call again with a key of your own that stays the same for every repetition of this call, or with `newKey`. newKey: {key}"),

    // One key, other arguments.
    opens("a key's first call", with(r#"{"payment":"pay_demo_one","amount":1,"order_id":"one"}"#, r#""idempotencyKey":"one","#)),
    joins("1.0 is 1", "key", with(r#"{"payment":"pay_demo_one","amount":1.0,"order_id":"one"}"#, r#""idempotencyKey":"one","#)),
    joins("another order and spelling, by the quoted header", "key", header(r#"{"order_id":"one","amount":10e-1,"payment":"\u0070ay_demo_one"}"#, &[("Idempotency-Key", "\"one\"")])),
    joins("all carriers, one key", "key", Ask::of(Body::Call(TOOL, r#"{"payment":"pay_demo_one","amount":1,"order_id":"one","idempotency_key":"one"}"#, r#""idempotencyKey":"one","#, r#"{$META,"dev.counterfoil/idempotency-key":"one"}"#)).add(&[("Idempotency-Key", "one")])),
    kind("other arguments", OTHER_ARGUMENTS, with(r#"{"payment":"pay_demo_one","amount":2,"order_id":"one"}"#, r#""idempotencyKey":"one","#), "key_conflict", NEW, CONFLICT),
    kind("an argument fewer", OTHER_ARGUMENTS, with(r#"{"payment":"pay_demo_one","amount":1}"#, r#""idempotencyKey":"one","#), "key_conflict", NEW, CONFLICT),
    kind("other arguments, by _meta", OTHER_ARGUMENTS, meta(r#"{"payment":"pay_demo_one","amount":3,"order_id":"one"}"#, r#"{$META,"dev.counterfoil/idempotency-key":"one"}"#), "key_conflict", NEW, CONFLICT),
    kind("other arguments, by the header", OTHER_ARGUMENTS, header(r#"{"payment":"pay_demo_one","amount":4,"order_id":"one"}"#, &[("Idempotency-Key", "one")]), "key_conflict", NEW, CONFLICT),
    kind("other arguments, by the argument", OTHER_ARGUMENTS, call(r#"{"payment":"pay_demo_one","amount":5,"order_id":"one","idempotency_key":"one"}"#), "key_conflict", NEW, CONFLICT),
    kind("arguments that break the schema, under a key in use", OTHER_ARGUMENTS, with(r#"{"payment":"pay_demo_one","amount":"1"}"#, r#""idempotencyKey":"one","#), "key_conflict", NEW, CONFLICT),
    opens("a key of 255 characters", with(r#"{"payment":"pay_demo_full","amount":1,"order_id":"full"}"#, r#""idempotencyKey":"$FULL","#)),
    opens("2^53", with(r#"{"payment":"pay_demo_wide","amount":1,"order_id":"wide","metadata":{"serial":9007199254740992}}"#, r#""idempotencyKey":"wide","#)),
    kind("2^53 + 1", OTHER_ARGUMENTS, with(r#"{"payment":"pay_demo_wide","amount":1,"order_id":"wide","metadata":{"serial":9007199254740993}}"#, r#""idempotencyKey":"wide","#), "key_conflict", NEW, CONFLICT),
    joins("2^53 again", "key", with(r#"{"payment":"pay_demo_wide","amount":1,"order_id":"wide","metadata":{"serial":9007199254740992.0}}"#, r#""idempotencyKey":"wide","#)),

    // Keys that the ledger gave.
    opens("a call without a key", call(r#"{"payment":"pay_demo_twin","amount":1,"order_id":"twin"}"#)),
    kind("its twin", DELIVERED, call(r#"{"payment":"pay_demo_twin","amount":1.00,"order_id":"twin"}"#), "twin", BOTH, "The same call was made a moment ago and its result was delivered (operation {id}); nothing ran again. For the answer of that call, call again with `retryKey` as the idempotency key. If a second one is really meant, call with `newKey`. retryKey: {key} newKey: {key}"),
    joins("retryKey as the argument", "operation", call(r#"{"payment":"pay_demo_twin","amount":1,"order_id":"twin","idempotency_key":"$RETRY"}"#)),
    joins("retryKey as the header", "operation", header(r#"{"payment":"pay_demo_twin","amount":1,"order_id":"twin"}"#, &[("Idempotency-Key", "$RETRY")])),
    kind("retryKey with other arguments", OTHER_ARGUMENTS, call(r#"{"payment":"pay_demo_twin","amount":2,"order_id":"twin","idempotency_key":"$RETRY"}"#), "key_conflict", NEW, CONFLICT),
    kind("its twin again", DELIVERED, call(r#"{"payment":"pay_demo_twin","amount":1,"order_id":"twin"}"#), "twin", BOTH, "The same call was made a moment ago and its result was delivered (operation {id}); nothing ran again. For the answer of that call, call again with `retryKey` as the idempotency key. If a second one is really meant, call with `newKey`. retryKey: {key} newKey: {key}"),
    opens("newKey as the argument", call(r#"{"payment":"pay_demo_twin","amount":1,"order_id":"twin","idempotency_key":"$NEW"}"#)),
    joins("newKey again", "key", call(r#"{"payment":"pay_demo_twin","amount":1,"order_id":"twin","idempotency_key":"$NEW"}"#)),
    kind("retryKey at another tool", NOT_KEPT, Ask::of(Body::Call(STRICT, r#"{"payment":"pay_demo_twin","amount":1,"order_id":"twin"}"#, r#""idempotencyKey":"$OPERATION","#, META)), "key_expired", NEW, EXPIRED),
    kind("an operation that never was", NOT_KEPT, with(GOOD, r#""idempotencyKey":"op_01ARZ3NDEKTSV4RRFFQ69G5FAV","#), "key_expired", NEW, EXPIRED),
    kind("newKey, forged", OTHER_ARGUMENTS, with(GOOD, r#""idempotencyKey":"$FORGED","#), "key_conflict", NEW, CONFLICT),
    kind("newKey, for other arguments", OTHER_ARGUMENTS, call(r#"{"payment":"pay_demo_never","amount":2,"order_id":"never","idempotency_key":"$NEW"}"#), "key_conflict", NEW, CONFLICT),
    kind("newKey, at another tool", OTHER_ARGUMENTS, Ask::of(Body::Call(STRICT, r#"{"payment":"pay_demo_never","amount":2,"order_id":"never"}"#, r#""idempotencyKey":"$NEW","#, META)), "key_conflict", NEW, CONFLICT),

    // Who calls.
    bare("no API key", "no API key", call(GOOD), 401, -32600, NO_API_KEY).also(BEARER).locked(),
    bare("a token that is none", "no API key", call(GOOD).add(&[("Authorization", "Bearer hunter2")]), 401, -32600, NO_API_KEY).also(BEARER).locked(),
    bare("another scheme", "no API key", call(GOOD).add(&[("Authorization", "Basic $ALICE")]), 401, -32600, NO_API_KEY).also(BEARER).locked(),
    bare("two API keys", "no API key", call(GOOD).add(&[("Authorization", "Bearer $ALICE"), ("Authorization", "Bearer $BOB")]), 401, -32600, NO_API_KEY).also(BEARER).locked(),
    bare("an unknown API key", UNKNOWN_API_KEY, call(GOOD).add(&[("Authorization", "Bearer cfk_nobody")]), 401, -32600, BAD_API_KEY).also(BEARER).locked(),
    bare("a revoked API key", UNKNOWN_API_KEY, call(GOOD).add(&[("Authorization", "Bearer $REVOKED")]), 401, -32600, BAD_API_KEY).also(BEARER).locked(),
    bare("bad JSON without an API key: who calls comes first", "no API key", text("{"), 401, -32600, NO_API_KEY).also(BEARER).locked(),
    opens("Alice's call", with(r#"{"payment":"pay_demo_alice","amount":1,"order_id":"alice"}"#, r#""idempotencyKey":"shared","#).add(&[("Authorization", "Bearer $ALICE")])).locked(),
    kind("Bob with Alice's operation", NOT_KEPT, with(r#"{"payment":"pay_demo_alice","amount":1,"order_id":"alice"}"#, r#""idempotencyKey":"$OPERATION","#).add(&[("Authorization", "Bearer $BOB")]), "key_expired", NEW, EXPIRED).locked(),
    opens("Bob's own under the same key", with(r#"{"payment":"pay_demo_bob","amount":1,"order_id":"bob"}"#, r#""idempotencyKey":"shared","#).add(&[("Authorization", "Bearer $BOB")])).locked(),
    joins("Alice's again", "key", with(r#"{"payment":"pay_demo_alice","amount":1,"order_id":"alice"}"#, r#""idempotencyKey":"shared","#).add(&[("Authorization", "Bearer $ALICE")])).locked(),
];

/// Causes in `docs/reference/errors.md` that no row of the table brings about: they need a ledger, a provider, a
/// clock or a peer in a certain condition.
pub const NOT_BY_INPUT: &[&str] = &[
    "API keys can't be read",
    "body not received in time",
    "body ended early",
    "the same call without a key, its result not yet delivered after the wait",
    "the same call without a key, still being worked on after the wait",
    "the same call without a key, over without an effect while this one waited",
    "no result within `inline_limit`",
    "no safe automatic step is left",
    "the provider is being asked, longer than the call waits",
    "`confirm`: only a person can tell",
    "the ledger can't be used, or its disk is nearly full",
    "the ledger was restored from a backup and not released yet",
    "overload: too many operations are running",
    "the operation failed without an effect",
    "the ledger did not confirm that it opened the operation",
    "the ledger can't be used, and the operation is known to it",
    "the operation was cancelled, and called again by its key, or without one within the guard window",
    "an answer that can't be put on the wire",
    "a failure while answering from memory",
    "a failure before an answer",
];

/// The integration of the table's tools.
#[must_use]
pub fn manifest(sandbox: std::net::SocketAddr) -> String {
    let method = |name: &str, mirrored: &str| {
        format!(
            r#"
[methods."{name}"]
http = "POST /v1/refunds"
[methods."{name}".input]
type = "object"
required = ["payment", "amount"]
additionalProperties = false
[methods."{name}".input.properties]
payment = {{ type = "string"{mirrored} }}
amount = {{ type = "integer", minimum = 1 }}
order_id = {{ type = "string" }}
metadata = {{ type = "object", properties = {{ serial = {{ type = "integer" }} }} }}
"#
        )
    };
    let mut all = format!("name = \"lab\"\nbase_url = \"http://{sandbox}\"\npreset = \"stripe\"\n");
    all.push_str(&method("refunds.create", ""));
    all.push_str(&method("refunds.strict", ""));
    all.push_str(&method("refunds.mirrored", ", x-mcp-header = \"Payment\""));
    all
}

/// What mounts it.
pub const CONFIG: &str = "
[[integration]]
name = \"lab\"
manifest = \"integrations/lab.toml\"

[tools.\"lab.refunds.strict\"]
unkeyed = \"reject\"
";
