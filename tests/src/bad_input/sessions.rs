//! `Mcp-Session-Id`, GET and DELETE, where no sessions are kept, where they are, and behind a platform.

use super::*;

const MALFORMED: &str = "malformed `Mcp-Session-Id`";
const BAD_SESSION: &str =
    "Invalid request: Mcp-Session-Id must be one value of 1 to 255 visible ASCII characters. Nothing ran.";
const GONE: &str = "the session does not exist or has ended; or it is somebody else's";
const NO_SESSION: &str =
    "Refused: this session does not exist or has ended; open a new one with initialize. Nothing ran.";
const NONE_KEPT: &str = "DELETE where no sessions are kept";
const KEEPS_NONE: &str = "Refused: no sessions are kept here, so none can be ended. Nothing ran.";
const NOTHING_TO_END: &str = "Invalid request: DELETE needs the Mcp-Session-Id that it ends. Nothing ran.";
const NO_STREAM: &str = "Refused: Accept must include text/event-stream for GET. Nothing ran.";
const NO_KEY: &str =
    "Refused: this server needs an API key: send it as `Authorization: Bearer cfk_…`. Nothing ran.";

const LIST: &str = r#"{"jsonrpc":"2.0","id":$ID,"method":"tools/list"}"#;
const OPEN: &str = r#"{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
const TOLD: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const ANSWERED: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

/// An id that could have been minted here, and wasn't.
const FOREIGN: Headers =
    &[("Mcp-Session-Id", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff")];
const ODD: Headers = &[("Mcp-Session-Id", "never-was")];
const BLANK: Headers = &[("Mcp-Session-Id", "a b")];
const ALICE: Headers = &[("Authorization", "Bearer $ALICE")];
const ALICES: Headers = &[("Authorization", "Bearer $ALICE"), ("Mcp-Session-Id", "$SESSION")];
const BOBS: Headers = &[("Authorization", "Bearer $BOB"), ("Mcp-Session-Id", "$SESSION")];
const NOBODYS: Headers = &[("Mcp-Session-Id", "$SESSION")];
const ALLOWED: Headers = &[("allow", "GET, POST")];

const fn get() -> Ask {
    old("").verb("GET").without(&["Content-Type"])
}
const fn delete() -> Ask {
    old("").verb("DELETE").without(&["Content-Type"])
}
const fn gone(name: &'static str, ask: Ask) -> Row {
    bare(name, GONE, ask, 404, -32600, NO_SESSION)
}
const fn opens_stream(name: &'static str, ask: Ask) -> Row {
    row(name, "", ask, 200, Answer::Stream, false, "")
}

/// The rows.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    // No sessions are kept.
    rpc("a session id with a blank", MALFORMED, old(LIST).add(BLANK), 400, -32600, BAD_SESSION),
    rpc("a session id that is empty", MALFORMED, old(LIST).add(&[("Mcp-Session-Id", "")]), 400, -32600, BAD_SESSION),
    rpc("a session id of 256 characters", MALFORMED, old(LIST).add(&[("Mcp-Session-Id", "$LONG")]), 400, -32600, BAD_SESSION),
    rpc("a session id beyond ASCII", MALFORMED, old(LIST).add(&[("Mcp-Session-Id", "é")]), 400, -32600, BAD_SESSION),
    rpc("two session ids", MALFORMED, old(LIST).add(&[("Mcp-Session-Id", "a"), ("Mcp-Session-Id", "a")]), 400, -32600, BAD_SESSION),
    rpc("a call with a malformed session id", MALFORMED, old_call(GOOD).add(BLANK), 400, -32600, BAD_SESSION),
    bare("a notification with a malformed session id", MALFORMED, old(TOLD).add(BLANK), 400, -32600, BAD_SESSION),
    bare("a response with a malformed session id", MALFORMED, old(ANSWERED).add(BLANK), 400, -32600, BAD_SESSION),
    bare("a batch with a malformed session id", MALFORMED, old(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#).set(&[("MCP-Protocol-Version", "2025-03-26")]).add(BLANK), 400, -32600, BAD_SESSION),
    bare("GET with a malformed session id", MALFORMED, get().add(BLANK), 400, -32600, BAD_SESSION),
    bare("DELETE with a malformed session id", MALFORMED, delete().add(BLANK), 400, -32600, BAD_SESSION),
    rpc("a session that never was", GONE, old(LIST).add(ODD), 404, -32600, NO_SESSION),
    rpc("a session that looks right", GONE, old(LIST).add(FOREIGN), 404, -32600, NO_SESSION),
    rpc("ping in a session that never was", GONE, old(r#"{"jsonrpc":"2.0","id":$ID,"method":"ping"}"#).add(ODD), 404, -32600, NO_SESSION),
    rpc("a call in a session that never was", GONE, old_call(GOOD).add(FOREIGN), 404, -32600, NO_SESSION),
    gone("a notification in a session that never was", old(TOLD).add(ODD)),
    gone("a response in a session that never was", old(ANSWERED).add(FOREIGN)),
    gone("a batch in a session that never was", old(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#).set(&[("MCP-Protocol-Version", "2025-03-26")]).add(ODD)),
    gone("GET in a session that never was", get().add(FOREIGN)),
    plain("initialize in a session that never was", old(OPEN).add(FOREIGN)),
    plain("a modern request with a session id", list(META).add(FOREIGN)),
    plain("a modern request with a malformed session id", list(META).add(BLANK)),
    bare("DELETE of nothing", "DELETE without `Mcp-Session-Id`", delete(), 400, -32600, NOTHING_TO_END),
    bare("DELETE of what never was", NONE_KEPT, delete().add(FOREIGN), 405, -32600, KEEPS_NONE).also(ALLOWED),
    bare("DELETE of what looks odd", NONE_KEPT, delete().add(ODD), 405, -32600, KEEPS_NONE).also(ALLOWED),
    bare("GET that takes JSON only", "GET that takes no stream", get().set(&[("Accept", "application/json")]), 406, -32600, NO_STREAM),
    bare("GET that takes HTML", "GET that takes no stream", get().set(&[("Accept", "text/html")]), 406, -32600, NO_STREAM),
    bare("GET that refuses streams", "GET that takes no stream", get().set(&[("Accept", "text/event-stream;q=0, */*;q=0")]), 406, -32600, NO_STREAM),
    opens_stream("GET", get()),
    opens_stream("GET that lists nothing", get().without(&["Accept", "MCP-Protocol-Version"])),
    opens_stream("GET with an event id of nobody", get().add(&[("Last-Event-ID", "4711")])),
    bare("GET of an unknown revision", OTHER_METHOD, get().set(&[("MCP-Protocol-Version", "2024-11-05")]), 405, -32600, POST_ONLY).also(MODERN_ONLY),
    bare("DELETE of an unknown revision", OTHER_METHOD, delete().set(&[("MCP-Protocol-Version", "2024-11-05")]).add(ODD), 405, -32600, POST_ONLY).also(MODERN_ONLY),
    bare("GET of two revisions", OTHER_METHOD, get().add(&[("MCP-Protocol-Version", "2025-11-25")]), 405, -32600, POST_ONLY).also(MODERN_ONLY),
    bare("GET from elsewhere", "`Origin` not allowed", get().add(&[("Origin", "https://evil.example")]), 403, -32600, "Refused: the Origin header is not in server.allowed_origins. Nothing ran."),

    // Sessions are kept, each for whom it is.
    bare("initialize without an API key", "no API key", old(OPEN), 401, -32600, NO_KEY).also(BEARER).locked(),
    bare("GET without an API key", "no API key", get(), 401, -32600, NO_KEY).also(BEARER).locked(),
    plain("Alice opens a session that she leaves alone", old(OPEN).add(ALICE)).locked(),
    plain("Alice initializes twice", old(OPEN).add(ALICES)).locked(),
    plain("Alice in her session", old(LIST).add(ALICES)).locked(),
    plain("Alice in her session, by another revision", old(LIST).set(&[("MCP-Protocol-Version", "2025-06-18")]).add(ALICES)).locked(),
    plain("Alice without a session", old(LIST).add(ALICE)).locked(),
    plain("Alice sets her level", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"logging/setLevel","params":{"level":"error"}}"#).add(ALICES)).also(&[("/result", "{}")]).locked(),
    rpc("Bob in Alice's session", GONE, old(LIST).add(BOBS), 404, -32600, NO_SESSION).locked(),
    rpc("Bob calls in Alice's session", GONE, old_call(GOOD).add(BOBS), 404, -32600, NO_SESSION).locked(),
    rpc("Bob sets Alice's level", GONE, old(r#"{"jsonrpc":"2.0","id":$ID,"method":"logging/setLevel","params":{"level":"debug"}}"#).add(BOBS), 404, -32600, NO_SESSION).locked(),
    gone("Bob listens in Alice's session", get().add(BOBS)).locked(),
    gone("Bob ends Alice's session", delete().add(BOBS)).locked(),
    gone("Bob notifies in Alice's session", old(TOLD).add(BOBS)).locked(),
    bare("nobody in Alice's session", "no API key", old(LIST).add(NOBODYS), 401, -32600, NO_KEY).also(BEARER).locked(),
    bare("nobody ends Alice's session", "no API key", delete().add(NOBODYS), 401, -32600, NO_KEY).also(BEARER).locked(),
    opens_stream("Alice listens", get().add(ALICES)).locked(),
    bare("Alice listens for JSON", "GET that takes no stream", get().set(&[("Accept", "application/json")]).add(ALICES), 406, -32600, NO_STREAM).locked(),
    bare("Alice ends nothing", "DELETE without `Mcp-Session-Id`", delete().add(ALICE), 400, -32600, NOTHING_TO_END).locked(),
    gone("Alice ends what never was", delete().add(&[("Authorization", "Bearer $ALICE"), ("Mcp-Session-Id", "never-was")])).locked(),
    plain("Alice's session is still there", old(LIST).add(ALICES)).locked(),
    taken("Alice ends her session", 204, delete().add(ALICES)).locked(),
    gone("Alice ends it again", delete().add(ALICES)).locked(),
    rpc("Alice in the session that she ended", GONE, old(LIST).add(ALICES), 404, -32600, NO_SESSION).locked(),
    rpc("Alice calls in the session that she ended", GONE, old_call(GOOD).add(ALICES), 404, -32600, NO_SESSION).locked(),
    gone("Alice listens in the session that she ended", get().add(ALICES)).locked(),
    gone("Alice notifies in the session that she ended", old(TOLD).add(ALICES)).locked(),

    // Never.
    plain("never a session: initialize", old(OPEN)).at(Server::Never),
    plain("never a session: a list without one", old(LIST)).at(Server::Never),
    rpc("never a session: a list in one", GONE, old(LIST).add(FOREIGN), 404, -32600, NO_SESSION).at(Server::Never),
    gone("never a session: GET in one", get().add(FOREIGN)).at(Server::Never),
    opens_stream("never a session: GET", get()).at(Server::Never),
    bare("never a session: DELETE", NONE_KEPT, delete().add(FOREIGN), 405, -32600, KEEPS_NONE).also(ALLOWED).at(Server::Never),

    // A platform's.
    plain("a platform's session", old(LIST).add(ODD)).at(Server::Platform),
    plain("a level in a platform's session", old(r#"{"jsonrpc":"2.0","id":$ID,"method":"logging/setLevel","params":{"level":"info"}}"#).add(ODD)).also(&[("/result", "{}")]).at(Server::Platform),
    opens_stream("GET in a platform's session", get().add(ODD)).at(Server::Platform),
    rpc("a platform's session with a blank", MALFORMED, old(LIST).add(BLANK), 400, -32600, BAD_SESSION).at(Server::Platform),
    bare("DELETE of a platform's session", NONE_KEPT, delete().add(ODD), 405, -32600, KEEPS_NONE).also(ALLOWED).at(Server::Platform),
    bare("DELETE of nothing behind a platform", "DELETE without `Mcp-Session-Id`", delete(), 400, -32600, NOTHING_TO_END).at(Server::Platform),
];
