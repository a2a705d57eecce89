//! The server: a thread for each connection, so a caller that leaves ends nothing.

use super::point::pass;
use super::store::{Claim, Store};
use super::wire::{self, Message};
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The one tool.
const TOOL: &str = "key_refunds_create";
/// Where it is at the provider. The provider would honour a key there; it is not sent one.
const PATH: &str = "/v1/refunds";
/// Where a caller's key is in `_meta`, and the key again in a result's.
const META_KEY: &str = "dev.counterfoil/idempotency-key";
const META_OPERATION: &str = "dev.counterfoil/operation";
/// How long a retry waits for a run that is in progress, and how often it looks.
const WAIT: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);
/// How long a caller may take to send its request.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);

/// What to serve, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The provider.
    pub provider: SocketAddr,
    /// The file of the records.
    pub file: PathBuf,
    /// How long the provider may take for each step of an answer.
    pub timeout: Duration,
    /// How long after its claim a run is taken for dead.
    pub in_progress: Duration,
}

struct Server {
    settings: Settings,
    store: Store,
}

/// Serves until it is killed; the first line on standard output says where.
///
/// # Errors
/// The address can't be bound, or the file not opened.
pub fn serve(settings: Settings) -> Result<()> {
    let store = Store::open(&settings.file, settings.in_progress)?;
    // It recovers nothing: whether something is run again is decided by the retry. It only tidies up.
    pass("recover.before");
    store.sweep()?;
    pass("recover.after");
    let listener = TcpListener::bind(settings.listen).context("the control's address")?;
    println!("{}", json!({ "listen": listener.local_addr()?.to_string() }));
    let server = Arc::new(Server { settings, store });
    for stream in listener.incoming().flatten() {
        let server = server.clone();
        thread::spawn(move || {
            if let Err(e) = server.exchange(&stream) {
                eprintln!("a connection ended: {e:#}");
            }
        });
    }
    Ok(())
}

/// What a call is told.
enum Answer {
    /// A result, as it was stored, of this key.
    Result(String, String),
    /// A JSON-RPC error under an HTTP status.
    Error(&'static str, i64, String),
}

impl Server {
    fn exchange(&self, stream: &TcpStream) -> Result<()> {
        stream.set_read_timeout(Some(REQUEST_WITHIN))?;
        let message = Message::read(stream)?;
        let request: Value = serde_json::from_slice(&message.body).unwrap_or_default();
        let answer = match (request["method"].as_str(), request["params"]["name"].as_str()) {
            (Some("tools/call"), Some(TOOL)) => self.call(&message, &request["params"])?,
            (Some("tools/call"), _) => Answer::Error("200 OK", -32602, "there is no such tool".into()),
            _ => Answer::Error("404 Not Found", -32601, "this is not served".into()),
        };
        let (status, body) = match answer {
            Answer::Result(key, stored) => {
                let mut result: Map<String, Value> = serde_json::from_str(&stored)?;
                result.insert("resultType".into(), json!("complete"));
                result.insert("_meta".into(), json!({ META_OPERATION: { "id": key } }));
                ("200 OK", json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
            }
            Answer::Error(status, code, message) => {
                let error = json!({ "code": code, "message": message });
                (status, json!({ "jsonrpc": "2.0", "id": request["id"], "error": error }))
            }
        };
        pass("reply.before");
        wire::reply(stream, status, &body)?;
        pass("deliver.before");
        Ok(())
    }

    fn call(&self, message: &Message, params: &Value) -> Result<Answer> {
        let mut arguments = params["arguments"].clone();
        let named = arguments.as_object_mut().and_then(|a| a.remove("idempotency_key"));
        let payload = format!("{TOOL} {arguments}");
        let key = [&params["_meta"][META_KEY], &params["idempotencyKey"], &named.unwrap_or_default()]
            .into_iter()
            .find_map(|key| key.as_str().map(str::to_owned))
            .or_else(|| message.header("idempotency-key").map(|key| key.trim_matches('"').to_owned()))
            .unwrap_or_else(|| payload.clone());
        pass("open.before");
        let until = Instant::now() + WAIT;
        loop {
            match self.store.claim(&key, &payload)? {
                Claim::Run => return self.run(key, &arguments),
                Claim::Completed(stored) => return Ok(Answer::Result(key, stored)),
                Claim::Mismatch => {
                    let what = "this key was used with other arguments; nothing ran";
                    return Ok(Answer::Error("200 OK", -32602, what.into()));
                }
                Claim::InProgress if Instant::now() < until => thread::sleep(LOOK),
                Claim::InProgress => {
                    let what = "this call is in progress; repeat it later";
                    return Ok(Answer::Error("409 Conflict", -32603, what.into()));
                }
            }
        }
    }

    fn run(&self, key: String, arguments: &Value) -> Result<Answer> {
        pass("open.after");
        pass("send.before");
        pass("send.late");
        let sent = wire::post(self.settings.provider, PATH, arguments, self.settings.timeout);
        pass("send.after");
        let (status, body) = match sent {
            Ok((status, body)) if status < 500 => (status, body),
            failed => {
                self.store.delete(&key)?;
                let what = match failed {
                    Ok((status, _)) => format!("the provider answered {status}"),
                    Err(e) => format!("the provider did not answer: {e}"),
                };
                return Ok(Answer::Error("200 OK", -32603, what));
            }
        };
        let content = json!([{ "type": "text", "text": body.to_string() }]);
        let stored = json!({ "content": content, "isError": status >= 400 }).to_string();
        pass("receipt.after");
        pass("close.before");
        self.store.complete(&key, &stored)?;
        pass("close.after");
        Ok(Answer::Result(key, stored))
    }
}
