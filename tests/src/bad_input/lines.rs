//! Bad input over lines: what `serve --stdio` is told on one connection, and the error that answers it. What is not here
//! is answered as over HTTP, without a status.

/// Which eras are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// Both.
    Both,
    /// The modern era.
    Modern,
    /// The legacy era.
    Legacy,
}

/// A row. Lines may hold `$ID` and `$META` as elsewhere, and `$HUGE`, 4 MiB.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// What is wrong.
    pub name: &'static str,
    /// The cause as `docs/reference/errors.md` words it.
    pub cause: &'static str,
    /// What is served.
    pub served: Served,
    /// The revision of an `initialize` before everything else.
    pub session: Option<&'static str>,
    /// How many streams are opened before; the first has the id `$ID`.
    pub streams: usize,
    /// The line.
    pub line: &'static str,
    /// The code.
    pub code: i64,
    /// The id is echoed; else there is none.
    pub echo: bool,
    /// The whole text.
    pub text: &'static str,
}

const fn row(
    name: &'static str,
    cause: &'static str,
    session: Option<&'static str>,
    line: &'static str,
    code: i64,
    echo: bool,
    text: &'static str,
) -> Line {
    Line { name, cause, served: Served::Both, session, streams: 0, line, code, echo, text }
}

impl Line {
    const fn at(self, served: Served) -> Line {
        Line { served, ..self }
    }
    const fn after(self, streams: usize) -> Line {
        Line { streams, ..self }
    }
}

const LIST: &str = r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/list"}"#;
const MODERN: &str = r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/list","params":{"_meta":{$META}}}"#;
const OPEN: &str = r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
const PINGS: &str = r#"[{"jsonrpc":"2.0","id":$ID,"method":"ping"}]"#;

const FIRST: Option<&str> = Some("2025-03-26");
const LAST: Option<&str> = Some("2025-11-25");
const UNOPENED: &str = "a legacy request before `initialize`, over lines";
const NO_SESSION: &str = "a batch outside of a session of revision 2025-03-26, over lines";
const NO_BATCH: &str = "Invalid request: batches belong to a session of revision 2025-03-26; send one message a line. Nothing ran.";
const MODERN_BATCH: &str = "a modern request in a batch, over lines";
const NOT_MODERN: &str = "Invalid request: revisions later than 2025-03-26 have no batches. Nothing ran.";
const IN_USE: &str = "Invalid request: a request of this id has no answer yet; use each id once. The earlier request goes on. Nothing ran.";

/// The table.
#[rustfmt::skip]
pub const LINES: &[Line] = &[
    row("no JSON", "malformed JSON", None, "hello", -32700, false, "Parse error: this is not JSON (at byte 0). Nothing ran."),
    row("an end too early", "truncated JSON", LAST, r#"{"jsonrpc":"2.0""#, -32700, false, "Parse error: the JSON ends too early (at byte 16). Nothing ran."),
    row("JSON-RPC 1.0", "wrong `jsonrpc`", None, r#"{"jsonrpc":"1.0","id":$ID,"method":"ping"}"#, -32600, true, "Invalid request: jsonrpc must be \"2.0\". Nothing ran."),
    row("id null", "wrong type of `id`", LAST, r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600, false, "Invalid request: id must be a string or an integer. Nothing ran."),
    row("a list before initialize", UNOPENED, None, LIST, -32600, true, "Invalid request: open with initialize first, or name the revision of each request in its _meta as io.modelcontextprotocol/protocolVersion; served: 2026-07-28; 2025-11-25, 2025-06-18, 2025-03-26 (by initialize). Nothing ran."),
    row("a list before initialize, legacy only", UNOPENED, None, LIST, -32600, true, "Invalid request: open with initialize first; served: 2025-11-25, 2025-06-18, 2025-03-26 (by initialize). Nothing ran.").at(Served::Legacy),
    row("a modern list, legacy only", "a modern message where the modern era isn't served", None, MODERN, -32600, true, "Invalid request: this endpoint serves 2025-11-25, 2025-06-18, 2025-03-26 (by initialize); open with initialize. Nothing ran.").at(Served::Legacy),
    row("initialize, modern only", "`initialize` where the legacy era isn't served", None, OPEN, -32022, true, "Unsupported protocol version. Nothing ran; served: 2026-07-28.").at(Served::Modern),
    row("a list without metadata, modern only", "missing `_meta`", None, LIST, -32602, true, "Invalid params: params._meta with io.modelcontextprotocol/protocolVersion is required (this server speaks 2026-07-28). Nothing ran.").at(Served::Modern),
    row("no capabilities", "no capabilities in `_meta`", LAST, r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#, -32602, true, "Invalid params: _meta needs io.modelcontextprotocol/clientCapabilities as an object (this server speaks 2026-07-28; 2025-11-25, 2025-06-18, 2025-03-26 (by initialize)). Nothing ran."),
    row("an unknown revision", "unsupported version", LAST, r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2030-01-01","io.modelcontextprotocol/clientCapabilities":{}}}}"#, -32022, true, "Unsupported protocol version. Nothing ran; served: 2026-07-28; 2025-11-25, 2025-06-18, 2025-03-26 (by initialize)."),
    row("initialize without a revision", "`initialize` without a revision", None, r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{}}"#, -32602, true, "Invalid params: params.protocolVersion must be a string. Nothing ran."),
    row("initialize twice", "`initialize` twice, over lines", LAST, OPEN, -32600, true, "Invalid request: this connection is initialized already; open another one. Nothing ran."),
    row("a modern method in a session", "unknown method, legacy era", LAST, r#"{"jsonrpc":"2.0","id":$ID,"method":"server/discover"}"#, -32601, true, "Method not found: server/discover. Nothing ran; initialize told what is served."),
    row("a legacy method with modern metadata", "unknown method", LAST, r#"{"jsonrpc":"2.0","id":$ID,"method":"ping","params":{"_meta":{$META}}}"#, -32601, true, "Method not found: ping. Nothing ran; server/discover tells what is served."),
    row("a key that is empty", "key empty, by a program", LAST, r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/call","params":{"name":"lab_refunds_create","arguments":{"payment":"pay_demo_never","amount":1},"idempotencyKey":""}}"#, -32602, true, "Invalid params: params.idempotencyKey: the idempotency key is empty; leave it out or give 1 to 255 characters. Nothing ran."),
    row("an id in use", "an id in use, over lines", None, MODERN, -32600, true, IN_USE).after(1),
    row("an id in use, in a session", "an id in use, over lines", LAST, LIST, -32600, true, IN_USE).after(1),
    row("the 65th stream", "too many listen streams, over lines", None, r#"{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{"notifications":{},"_meta":{$META}}}"#, -32600, true, "Refused: 64 listen streams are open on this connection; cancel one first. Nothing ran.").after(64),
    row("a batch before initialize", NO_SESSION, None, PINGS, -32600, false, NO_BATCH),
    row("a batch in a later revision", NO_SESSION, LAST, PINGS, -32600, false, NO_BATCH),
    row("an empty batch", "an empty batch", FIRST, "[]", -32600, false, "Invalid request: a batch must hold at least one message. Nothing ran."),
    row("initialize in a batch", "`initialize` in a batch, over lines", FIRST, r#"[{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{}}}]"#, -32600, true, "Invalid request: initialize can't be part of a batch. Nothing ran."),
    row("a modern stream in a batch", MODERN_BATCH, FIRST, r#"[{"jsonrpc":"2.0","id":$ID,"method":"subscriptions/listen","params":{"notifications":{},"_meta":{$META}}}]"#, -32600, true, NOT_MODERN),
    row("a modern list in a batch", MODERN_BATCH, FIRST, r#"[{"jsonrpc":"2.0","id":$ID,"method":"tools/list","params":{"_meta":{$META}}}]"#, -32600, true, NOT_MODERN),
    row("a line of 4 MiB", "a line too long", None, r#"{"jsonrpc":"2.0","id":$ID,"method":"$HUGE"}"#, -32600, false, "Invalid request: the line is longer than 4194304 bytes. Nothing ran."),
];
