//! Servers of one era, and one that goes by the name that the client used.

use super::*;

const NOT_MODERN: &str = "a modern message where the modern era isn't served";
const LEGACY_ONLY: &str = "Invalid request: this endpoint serves 2025-11-25, 2025-06-18, 2025-03-26 (by initialize); open with initialize. Nothing ran.";
const NO_META: &str = "Invalid params: params._meta with io.modelcontextprotocol/protocolVersion is required (this server speaks 2026-07-28). Nothing ran.";
const UNSUPPORTED: &str = "Unsupported protocol version. Nothing ran; served: 2026-07-28.";
const OPEN: &str = r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/list"}"#;
const ASKED: Headers = &[("/error/data", r#"{"supported":["2026-07-28"],"requested":"2025-11-25"}"#)];

/// Under the name of the legacy era.
const BY_NAME: Headers = &[("Host", "localhost:$PORT")];

/// The rows.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    // The modern era only.
    rpc("modern only: initialize", "`initialize` where the legacy era isn't served", old(OPEN).without(&["MCP-Protocol-Version"]), 400, -32022, UNSUPPORTED).also(ASKED).at(Server::Modern),
    rpc("modern only: initialize with its header", "`initialize` where the legacy era isn't served", old(OPEN), 400, -32022, UNSUPPORTED).also(ASKED).at(Server::Modern),
    rpc("modern only: a legacy list", "missing `_meta`", old(LIST), 400, -32602, NO_META).also(SUPPORTED).at(Server::Modern),
    rpc("modern only: a legacy call", "missing `_meta`", old_call(GOOD), 400, -32602, NO_META).also(SUPPORTED).at(Server::Modern),
    rpc("modern only: ping", "missing `_meta`", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"ping"}"#), 400, -32602, NO_META).also(SUPPORTED).at(Server::Modern),
    rpc("modern only: an unknown revision", "unsupported version", list(r#"{"io.modelcontextprotocol/protocolVersion":"2025-06-18","io.modelcontextprotocol/clientCapabilities":{}}"#)
        .set(&[("MCP-Protocol-Version", "2025-06-18")]), 400, -32022, UNSUPPORTED).also(&[("/error/data", r#"{"supported":["2026-07-28"],"requested":"2025-06-18"}"#)]).at(Server::Modern),
    bare("modern only: GET", OTHER_METHOD, old("").verb("GET"), 405, -32600, POST_ONLY).also(MODERN_ONLY).at(Server::Modern),
    bare("modern only: DELETE", OTHER_METHOD, old("").verb("DELETE").add(&[("Mcp-Session-Id", "a b")]), 405, -32600, POST_ONLY).also(MODERN_ONLY).at(Server::Modern),
    bare("modern only: PUT", OTHER_METHOD, call(GOOD).verb("PUT"), 405, -32600, POST_ONLY).also(MODERN_ONLY).at(Server::Modern),
    bare("modern only: a batch", "a batch", old(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#).set(&[("MCP-Protocol-Version", "2025-03-26")]), 400, -32600, NO_BATCHES).at(Server::Modern),
    bare("modern only: a response", "a response", old(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), 400, -32600, NO_RESPONSES).at(Server::Modern),
    taken("modern only: a notification", 202, old(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)).at(Server::Modern),
    plain("modern only: a modern list", list(META)).at(Server::Modern),

    // The legacy era only.
    rpc("legacy only: a modern list", NOT_MODERN, list(META), 400, -32600, LEGACY_ONLY).at(Server::Legacy),
    rpc("legacy only: a modern call", NOT_MODERN, call(GOOD), 400, -32600, LEGACY_ONLY).at(Server::Legacy),
    rpc("legacy only: discover", NOT_MODERN, ask("server/discover", ""), 400, -32600, LEGACY_ONLY).at(Server::Legacy),
    rpc("legacy only: an unknown revision in the header", NOT_MODERN, old(LIST).set(&[("MCP-Protocol-Version", "2030-01-01")]), 400, -32600, LEGACY_ONLY).at(Server::Legacy),
    rpc("legacy only: a modern initialize", NOT_MODERN, ask("initialize", r#""protocolVersion":"2026-07-28","#), 400, -32600, LEGACY_ONLY).at(Server::Legacy),
    bare("legacy only: a modern notification", NOT_MODERN, text(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#), 400, -32600, LEGACY_ONLY).at(Server::Legacy),
    bare("legacy only: a modern response", NOT_MODERN, text(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), 400, -32600, LEGACY_ONLY).at(Server::Legacy),
    bare("legacy only: GET, modern", OTHER_METHOD, text("").verb("GET"), 405, -32600, POST_ONLY).also(MODERN_ONLY).at(Server::Legacy),
    bare("legacy only: a broken body", "truncated JSON", text("{"), 400, -32700, "Parse error: the JSON ends too early (at byte 1). Nothing ran.").at(Server::Legacy),
    plain("legacy only: initialize", old(OPEN)).at(Server::Legacy),
    plain("legacy only: a legacy list", old(LIST).without(&["MCP-Protocol-Version"])).at(Server::Legacy),

    // By name.
    rpc("by address: initialize", "`initialize` where the legacy era isn't served", old(OPEN), 400, -32022, UNSUPPORTED).also(ASKED).at(Server::ByHost),
    plain("by address: a modern list", list(META)).at(Server::ByHost),
    bare("by address: GET", OTHER_METHOD, old("").verb("GET"), 405, -32600, POST_ONLY).also(MODERN_ONLY).at(Server::ByHost),
    plain("by name: initialize", old(OPEN).set(BY_NAME)).at(Server::ByHost),
    rpc("by name: a modern list", NOT_MODERN, list(META).set(BY_NAME), 400, -32600, LEGACY_ONLY).at(Server::ByHost),
    row("by name: GET", "", old("").verb("GET").set(BY_NAME), 200, Answer::Stream, false, "").at(Server::ByHost),
    bare("by another name", "`Host` not allowed", old(OPEN).set(&[("Host", "evil.example")]), 403, -32600, "Refused: the Host header names neither this machine nor a host in server.allowed_hosts. Nothing ran.").at(Server::ByHost),
];
