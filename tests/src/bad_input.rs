//! The table of bad input: what is sent, and the exact status, code or kind, id and text that answer it.
//!
//! The rows go out in order. Between malformed requests stand a few proper calls: they set up what later rows
//! run into (a key in use, a twin, somebody else's operation or session), and they are all that may ever reach the
//! provider. Each cause is a row of `docs/reference/errors.md`.
//!
//! Bodies, headers, keys and texts of answers may hold: `$ID` the request's id, `$ADDR` and `$PORT` of the gateway,
//! `$META` the required members of `_meta`, `$LONG` and `$FULL` keys of 256 and 255 characters, `$URIS` a list of 257
//! URIs, `$ANSWERS` 65 of them, `$WIDE` 17,000 characters, `$OPERATION`, `$RETRY` and `$NEW` the last operation id, `retryKey` and `newKey`
//! that were answered, `$FORGED` that `newKey` with its last character changed, `$SESSION` the last session id,
//! `$ALICE`, `$BOB` and `$REVOKED` API keys.

pub mod ask;
pub mod book;
mod eras;
mod keys;
mod legacy;
pub mod lines;
mod message;
mod modern;
mod native;
mod sessions;

/// Which gateway is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    /// Both eras, without authentication; nothing there needs a session, so none is kept.
    Open,
    /// With API keys, and a session for each legacy client.
    Locked,
    /// The modern era only.
    Modern,
    /// The legacy era only.
    Legacy,
    /// The modern era as `127.0.0.1`, the legacy era as `localhost`.
    ByHost,
    /// Both eras, and never a session.
    Never,
    /// Behind a platform that mints the ids of sessions.
    Platform,
    /// The fixture server: resources, prompts, completion, and tools that are no integration's.
    Native,
}

/// All of them, with what they have in `[server]` and what follows the rest of their configuration.
pub const SERVERS: [(Server, &str, &str); 7] = [
    (Server::Open, "", ""),
    (Server::Locked, "legacy_sessions = \"always\"\n", "\n[auth]\nmode = \"api-key\"\n"),
    (Server::Modern, "eras = \"modern\"\n", ""),
    (Server::Legacy, "eras = \"legacy\"\n", ""),
    (Server::ByHost, "eras_by_host = { \"127.0.0.1\" = \"modern\", localhost = \"legacy\" }\n", ""),
    (Server::Never, "legacy_sessions = \"never\"\n", ""),
    (Server::Platform, "legacy_sessions = \"platform\"\n", ""),
];

/// A body.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// These bytes, placeholders filled in if they are UTF-8.
    Bytes(&'static [u8]),
    /// A string of so many bytes.
    Filled(usize),
    /// So many arrays in each other.
    Nested(usize),
    /// A batch of so many notifications.
    Many(usize),
    /// A request: method, members of `params` before `_meta`, `_meta`.
    Request(&'static str, &'static str, &'static str),
    /// A `tools/call`: tool, `arguments`, members of `params` before `_meta`, `_meta`.
    Call(&'static str, &'static str, &'static str, &'static str),
    /// Any message of the legacy era.
    Old(&'static str),
    /// A `tools/call` of the legacy era: tool, `arguments`, further members of `params`.
    OldCall(&'static str, &'static str, &'static str),
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

    /// Whether it is written as a client of the legacy era does.
    #[must_use]
    pub fn is_old(&self) -> bool {
        matches!(self.body, Body::Old(_) | Body::OldCall(..) | Body::Many(_))
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
    /// A result that no operation stands behind.
    Plain,
    /// A stream that stays open.
    Stream,
    /// Nothing: a notification.
    Nothing,
}

impl Answer {
    /// Whether something is wrong with what was asked.
    #[must_use]
    pub fn refuses(self) -> bool {
        matches!(self, Answer::Rpc(_) | Answer::Kind(..))
    }
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
    /// Which message of an answer to a batch this is about, and how many there are.
    pub of_batch: Option<(usize, usize)>,
}

impl Row {
    const fn also(self, also: Headers) -> Row {
        Row { also, ..self }
    }
    const fn at(self, server: Server) -> Row {
        Row { server, ..self }
    }
    const fn locked(self) -> Row {
        self.at(Server::Locked)
    }
    const fn of_batch(self, nth: usize, of: usize) -> Row {
        Row { of_batch: Some((nth, of)), ..self }
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
    Row { name, cause, server: Server::Open, ask, status, answer, echo, text, also: &[], of_batch: None }
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

/// A proper request without an operation.
const fn plain(name: &'static str, ask: Ask) -> Row {
    row(name, "", ask, 200, Answer::Plain, true, "")
}

/// What has no answer, and how it is taken.
const fn taken(name: &'static str, status: u16, ask: Ask) -> Row {
    row(name, "", ask, status, Answer::Nothing, false, "")
}

/// A proper call that gets an earlier one's result.
const fn joins(name: &'static str, by: &'static str, ask: Ask) -> Row {
    row(name, "", ask, 200, Answer::Result(Some(by)), true, "")
}

const fn text(body: &'static str) -> Ask {
    Ask::of(Body::Bytes(body.as_bytes()))
}

/// A message of the legacy era.
const fn old(body: &'static str) -> Ask {
    Ask::of(Body::Old(body))
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
/// The same of the legacy era.
const fn old_call(arguments: &'static str) -> Ask {
    Ask::of(Body::OldCall(TOOL, arguments, ""))
}
/// With further members of `params`.
const fn old_with(arguments: &'static str, params: &'static str) -> Ask {
    Ask::of(Body::OldCall(TOOL, arguments, params))
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
const NO_BATCHES: &str =
    "Invalid request: batches are not part of this protocol; send one message per POST. Nothing ran.";
const BAD_PARAMS: &str = "Invalid params: params must be an object. Nothing ran.";
const BAD_ARGUMENTS: &str = "Invalid params: params.arguments must be an object. Nothing ran.";
const FOREIGN_CURSOR: &str =
    "Invalid params: this cursor was not issued for this list; list again without a cursor.";
const NO_RESPONSES: &str = "Invalid request: clients send no responses in this revision. Nothing ran.";
const CONFLICT: &str = "This idempotency key was given with other arguments before, so nothing ran. To repeat the earlier call, send exactly its arguments. For these arguments, use a new key, or `newKey`. newKey: {key}";
const TWIN: &str = "The same call was made a moment ago and its result was delivered (operation {id}); nothing ran again. For the answer of that call, call again with `retryKey` as the idempotency key. If a second one is really meant, call with `newKey`. retryKey: {key} newKey: {key}";

const OTHER_METHOD: &str = "another HTTP method, or GET and DELETE without the legacy era";
const SCHEMA: &str = "arguments against the schema";
const OTHER_ARGUMENTS: &str = "the key was used with other arguments, or was minted for others";
const DELIVERED: &str = "the same call without a key, its result delivered a moment ago";

const MODERN_ONLY: Headers = &[("allow", "POST")];
const SUPPORTED: Headers = &[("/error/data/supported", r#"["2026-07-28"]"#)];
const BEARER: Headers = &[("www-authenticate", "Bearer realm=\"counterfoil\"")];
const NEW: &[&str] = &["newKey"];
const BOTH: &[&str] = &["retryKey", "newKey"];

/// The table.
#[must_use]
pub fn rows() -> Vec<Row> {
    [message::ROWS, modern::ROWS, keys::ROWS, legacy::ROWS, sessions::ROWS, eras::ROWS, native::ROWS].concat()
}

/// Causes in `docs/reference/errors.md` that no row of the table brings about: they need a ledger, a provider, a
/// clock or a peer in a certain condition.
pub const NOT_BY_INPUT: &[&str] = &[
    "API keys can't be read",
    "body not received in time",
    "body ended early",
    "the same call without a key, its result not yet delivered after the wait",
    "the same call without a key, still being worked on after the wait",
    "the same call without a key, over without an effect while this one waited",
    "no result within a [`leg`](../configuration.md#defaults), and nothing that lets the client come again by itself or gives it a task",
    "no safe automatic step is left",
    "the provider is being asked, longer than the call waits",
    "`confirm`: only a person can tell",
    "the ledger can't be used, or its disk is nearly full",
    "the ledger was restored from a backup and not released yet",
    "overload: too many operations are running",
    "the operation failed without an effect",
    "the ledger did not confirm that it opened the operation",
    "the ledger can't be used, and the operation is known to it",
    "the ledger can't be used, and the call brought back a `requestState` that can't be opened without it",
    "the operation waits for a person's yes, and this client can't be asked",
    "another answer was given to the same question before",
    "the operation waits for an answer that this client can't give",
    "the tool acts under a credential of the caller's own, there is none yet, and this client can't be sent to a page (or said no)",
    "the same, where no page is served",
    "it can't be known whether the caller has a credential of its own",
    "a tool that acts under the caller's own credential, called without one by a client of revision 2025-11-25 that opens pages",
    "the operation was cancelled, and called again by its key, or without one within the guard window",
    "a tool was given a handle that is unknown, another caller's, destroyed, or expired for more than a day",
    "a tool was given a handle of the caller that has expired",
    "a rate is used up",
    "as many run at a time as may",
    "a budget of the caller's own has not so much left",
    "a budget that callers share has not so much left",
    "a budget of the caller's own has nothing left",
    "a call asks for more than a limit is in all",
    "a rule of `[limits]` is against its arguments",
    "a budget is kept of an argument that is no whole number, or is not there",
    "a budget is kept by an argument that is no text, or is not there",
    "the provider does not answer, and the breaker is open",
    "the limits can't be looked at",
    "an answer that can't be put on the wire",
    "a failure while answering from memory",
    "a failure before an answer",
    "a client's answer that can't be kept at the moment",
    "a failure over a notification, GET or DELETE",
    "the session can't be looked up, for a notification, a response, a batch, GET or DELETE",
    "the session can't be looked up, for a request",
    "GET with too many streams open, of this caller or of all",
    "`subscriptions/listen` with too many streams open, of this caller or of all",
    "overload: too many operations are running, for `resources/read`, `prompts/get` or `completion/complete`",
    "the ledger can't keep a session",
    "a subscription too many",
    "the session ended while the request was on its way",
    "the client cancelled the request (legacy era, HTTP)",
    "native code refuses",
    "native code fails, or takes too long",
    "too many clients, over lines",
    "no process holds the ledger for 30 s",
    "the server can't start, over lines",
    "the ledger failed for good",
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
