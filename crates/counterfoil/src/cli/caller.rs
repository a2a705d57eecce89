//! A client that retries safely: what `call` and `demo` call tools with.

use super::exec::text_of;
use mcp::Error;
use mcp::client::{CallOptions, ClientConfig, McpClient, Reply};
use mcp::constants::{method, result_type};
use mcp::json::{Limits, Raw, RawObject};
use serde_json::Value;
use std::time::Duration;

const EXTENSION: &str = "dev.counterfoil/idempotency";
const META_KEY: &str = "dev.counterfoil/idempotency-key";
const META_ACK: &str = "dev.counterfoil/ack";
/// Pauses between sends: they double from the first to the longest, with full jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Rounds of `input_required` that only say "call again", as official clients make.
const ROUNDS: u32 = 10;

/// An answer.
#[derive(Debug)]
pub(super) struct Called {
    /// The result object.
    pub result: Value,
    /// How often it was sent.
    pub sends: u32,
    /// A key went with it.
    pub keyed: bool,
    /// The tool is listed as one that only reads.
    pub read_only: bool,
}

/// No answer.
#[derive(Debug)]
pub(super) enum Problem {
    /// Nothing ever left.
    Unreached(String),
    /// It may have been carried out, and only reads.
    Unread(String),
    /// It may have been carried out.
    Unknown { why: String, keyed: bool },
    /// The server refused the request itself.
    Refused { why: String, usage: bool },
    /// It wants input.
    NeedsInput,
}

/// A key like a UUID (RFC 9562, version 4).
pub(super) fn new_key() -> Result<String, String> {
    let mut b = [0u8; 16];
    getrandom::fill(&mut b).map_err(|e| format!("the operating system gives no random numbers ({e})"))?;
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    let hex = ledger::effect::hex(&b);
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

/// What is said on the way.
type Say<'a> = &'a (dyn Fn(&str) + Sync);

/// See the module.
pub(super) struct Caller {
    client: McpClient,
    headers: http::HeaderMap,
    retries: u32,
}

/// What came of one send.
enum Once {
    Answer(Reply),
    /// Send again after the pause, if it is safe: `left`, the request may have been carried out.
    Again {
        why: String,
        after: Option<Duration>,
        left: bool,
    },
    /// Nothing ran; tools must be listed again first.
    ListAgain(String),
    Refused {
        why: String,
        usage: bool,
    },
}

/// An answer that asks to come back after a pause. `left`: it leaves open what becomes of this send.
struct Later {
    why: String,
    after: Duration,
    left: bool,
}

/// Whether a result is an error that tells of no operation: nothing was begun by its send.
fn says_nothing_ran(result: &Value) -> bool {
    let error = &result["_meta"]["dev.counterfoil/error"];
    let kind = error["kind"].as_str();
    // These two are about the key's operation whether they name it or not.
    error["operationId"].is_null()
        && kind.is_some_and(|k| !["admission_unknown", "key_conflict"].contains(&k))
}

impl Caller {
    pub fn new(
        url: &str,
        api_key: Option<String>,
        headers: http::HeaderMap,
        timeout: Duration,
        retries: u32,
    ) -> Result<Caller, String> {
        let mut config = ClientConfig::new(url, "counterfoil-call", env!("CARGO_PKG_VERSION"));
        config.bearer = api_key;
        config.timeout = timeout;
        let client = McpClient::new(config).map_err(|e| e.to_string())?;
        Ok(Caller { client, headers, retries })
    }

    fn options(&self) -> CallOptions<'static> {
        CallOptions { headers: self.headers.clone(), ..CallOptions::default() }
    }

    /// Calls a tool; `arguments` is the text of a JSON object.
    pub async fn call(
        &self,
        tool: &str,
        arguments: &str,
        key: &str,
        say: Say<'_>,
    ) -> Result<Called, Problem> {
        let arguments = RawObject::parse(arguments.to_owned(), &Limits::default()).map_err(|e| {
            Problem::Refused { why: format!("the arguments are not acceptable JSON: {e}"), usage: true }
        })?;
        let mut left_tries = self.retries;
        let keyed = self.announces_keys(&mut left_tries, say).await?;
        let mut read_only = self.lists_as_read_only(tool).await;
        let mut sends = 0;
        // A send of something that changes the world may have been carried out, or be so still.
        let mut unresolved = false;
        let mut left_once = false;
        let mut state: Option<Raw> = None;
        let mut rounds = 0;
        loop {
            sends += 1;
            let again = match self.once(tool, &arguments, keyed.then_some(key), state.as_ref()).await {
                Once::Answer(reply) if reply.result_type == result_type::INPUT_REQUIRED => {
                    rounds += 1;
                    let asks = reply
                        .result
                        .get("inputRequests")
                        .is_some_and(|r| r.object().is_none_or(|o| o.iter().next().is_some()));
                    state = reply.result.get("requestState");
                    if asks || state.is_none() {
                        return Err(Problem::NeedsInput);
                    }
                    // It is there and goes on.
                    left_once = true;
                    unresolved |= !read_only;
                    if rounds >= ROUNDS {
                        let why = format!("it asked {rounds} times to be asked again");
                        return Err(ended(why, unresolved, left_once, keyed));
                    }
                    continue;
                }
                Once::Answer(reply) => match self.answer(&reply, keyed, left_tries).await {
                    // True of this send alone.
                    Ok(result) if unresolved && says_nothing_ran(&result) => {
                        let why = format!("the last send was told: {}", text_of(&result));
                        return Err(Problem::Unknown { why, keyed });
                    }
                    Ok(result) => return Ok(Called { result, sends, keyed, read_only }),
                    Err(Later { why, after, left }) => (why, Some(after), left),
                },
                Once::Refused { why, .. } if unresolved => {
                    let why = format!("the last send was refused: {why}");
                    return Err(Problem::Unknown { why, keyed });
                }
                Once::Refused { why, usage } => return Err(Problem::Refused { why, usage }),
                Once::ListAgain(why) => {
                    read_only = self.lists_as_read_only(tool).await;
                    (why, Some(Duration::ZERO), false)
                }
                Once::Again { why, after, left } => (why, after, left),
            };
            let (why, after, left) = again;
            left_once |= left;
            unresolved |= left && !read_only;
            if left_tries == 0 || (left && !keyed && !read_only) {
                return Err(ended(why, unresolved, left_once, keyed));
            }
            left_tries -= 1;
            let pause = after.unwrap_or_else(|| pause(self.retries - left_tries));
            say(&format!("{why}; asking again{}", if keyed { " with the same key" } else { "" }));
            tokio::time::sleep(pause).await;
        }
    }

    /// Whether the server takes idempotency keys. Asking is harmless, so it is repeated like everything else.
    async fn announces_keys(&self, left_tries: &mut u32, say: Say<'_>) -> Result<bool, Problem> {
        loop {
            let why = match self.client.request(method::DISCOVER, &[], self.options()).await {
                Ok(reply) => {
                    let extensions = reply
                        .result
                        .get("capabilities")
                        .and_then(|c| c.object())
                        .and_then(|c| c.get("extensions"))
                        .and_then(|e| e.object());
                    return Ok(extensions.is_some_and(|e| e.get(EXTENSION).is_some()));
                }
                Err(Error::NotSent(why) | Error::Unknown(why)) => why,
                Err(Error::Http { status, .. } | Error::Rpc { status, .. }) if is_passing(status) => {
                    format!("HTTP {status}")
                }
                Err(Error::Rpc { status, message, .. }) => {
                    return Err(Problem::Refused { why: message, usage: is_credential(status) });
                }
                Err(Error::Http { status, body, .. }) => {
                    let why = format!("the server answered HTTP {status} to server/discover: {body}");
                    return Err(Problem::Refused { why, usage: is_credential(status) });
                }
                Err(e) => return Err(Problem::Refused { why: e.to_string(), usage: false }),
            };
            if *left_tries == 0 {
                return Err(Problem::Unreached(why));
            }
            *left_tries -= 1;
            say(&format!("the server does not answer yet ({why}); asking again"));
            tokio::time::sleep(pause(self.retries - *left_tries)).await;
        }
    }

    /// Lists the tools, which also tells which arguments are mirrored in headers.
    async fn lists_as_read_only(&self, tool: &str) -> bool {
        let Ok(tools) = self.client.list_tools().await else { return false };
        let Some(found) = tools.into_iter().find(|t| t.name == tool) else { return false };
        let hints = found.definition.get("annotations").and_then(|a| a.object());
        hints.and_then(|h| h.get("readOnlyHint")).and_then(|h| h.as_bool()).unwrap_or(false)
    }

    async fn once(&self, tool: &str, arguments: &RawObject, key: Option<&str>, state: Option<&Raw>) -> Once {
        let mut options = self.options();
        if let Some(key) = key {
            options.meta.push((META_KEY.into(), Raw::string(key)));
            // Visible ASCII, checked before.
            if let Ok(value) = http::HeaderValue::from_str(key) {
                options.headers.insert("idempotency-key", value);
            }
        }
        if let Some(state) = state {
            options.params.push(("requestState".into(), state.clone()));
        }
        match self.client.call_tool(tool, Some(arguments), options).await {
            Ok(reply) => Once::Answer(reply),
            Err(Error::NotSent(why)) => {
                Once::Again { why: format!("not sent: {why}"), after: None, left: false }
            }
            Err(Error::Unknown(why)) => {
                Once::Again { why: format!("the answer was lost: {why}"), after: None, left: true }
            }
            Err(Error::Protocol(why)) => {
                Once::Again { why: format!("the answer can't be read: {why}"), after: None, left: true }
            }
            Err(Error::Http { status, headers, .. }) if is_passing(status) => {
                let after = headers
                    .get(http::header::RETRY_AFTER)
                    .and_then(|v| v.to_str().ok())
                    .and_then(|v| v.parse().ok());
                let after = after.map(|s: u64| Duration::from_secs(s.min(60)));
                Once::Again { why: format!("HTTP {status}"), after, left: true }
            }
            Err(Error::Http { status, body, .. }) => Once::Refused {
                why: format!("the server answered HTTP {status}: {body}"),
                usage: is_credential(status),
            },
            Err(Error::Rpc { status, .. }) if is_passing(status) => {
                Once::Again { why: format!("HTTP {status}"), after: None, left: true }
            }
            Err(Error::Rpc { code, message, .. }) if code == mcp::error::HEADER_MISMATCH => {
                Once::ListAgain(message)
            }
            Err(Error::Rpc { status, code, message, .. }) => Once::Refused {
                why: message,
                usage: code == mcp::error::INVALID_PARAMS || is_credential(status),
            },
            Err(e) => Once::Refused { why: e.to_string(), usage: true },
        }
    }

    /// Takes a final answer and acknowledges it; one that asks to come back is given back with its pause.
    async fn answer(&self, reply: &Reply, keyed: bool, left_tries: u32) -> Result<Value, Later> {
        let result: Value = serde_json::from_str(reply.result.raw().as_str()).unwrap_or_default();
        let error = &result["_meta"]["dev.counterfoil/error"];
        let kind = error["kind"].as_str().unwrap_or_default();
        if keyed && left_tries > 0 && matches!(kind, "still_running" | "unavailable" | "admission_unknown") {
            let after = error["retryAfterMs"]
                .as_u64()
                .map_or(Duration::from_secs(1), |ms| Duration::from_millis(ms.min(60_000)));
            return Err(Later { why: kind.replace('_', " "), after, left: kind != "unavailable" });
        }
        if let Some(ack) = result["_meta"]["dev.counterfoil/operation"]["ack"].as_str() {
            let mut options = self.options();
            options.timeout = Some(Duration::from_secs(5));
            options.meta.push((
                META_ACK.into(),
                mcp::json::Raw::parse(serde_json::json!([ack]).to_string(), &Limits::default())
                    .unwrap_or_else(|_| Raw::string("")),
            ));
            // A courtesy: it tells the ledger that nobody needs to come for this result again.
            let _ = self.client.request(method::DISCOVER, &[], options).await;
        }
        Ok(result)
    }
}

/// What there is to say where it is not sent again. `left`: a send may have been carried out; `unresolved`: and have changed
/// something.
fn ended(why: String, unresolved: bool, left: bool, keyed: bool) -> Problem {
    match (unresolved, left) {
        (true, _) => Problem::Unknown { why, keyed },
        (false, true) => Problem::Unread(why),
        (false, false) => Problem::Unreached(why),
    }
}

/// A status that says "not now".
fn is_passing(status: http::StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 429) || status.is_server_error()
}

/// A status that says "not you": the key given on the command line, or its absence.
fn is_credential(status: http::StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 403)
}

/// The pause before the n-th repetition.
fn pause(n: u32) -> Duration {
    let most = FIRST_PAUSE.saturating_mul(1 << n.saturating_sub(1).min(10)).min(LONGEST_PAUSE);
    let mut b = [0u8; 4];
    // Without randomness the longest pause will do.
    if getrandom::fill(&mut b).is_err() {
        return most;
    }
    most.mul_f64(0.5 + f64::from(u32::from_le_bytes(b)) / f64::from(u32::MAX) / 2.0)
}
