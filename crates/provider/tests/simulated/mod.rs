//! A provider that answers as its published API says, with a clock, pages and faults, and a ledger that calls it.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, missing_docs)]

pub mod github;
pub mod gmail;
pub mod slack;

use async_trait::async_trait;
use counterfoil_provider::{ConfigCredentials, Format, HttpExecutor, Integration, Mode};
use ledger::memory::MemoryStore;
use ledger::store::{Attention, Query};
use ledger::*;
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub query: HashMap<String, String>,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Asked {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// An answer on its way.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    pub fn of(status: u16, body: &Value) -> Reply {
        Reply { status, headers: Vec::new(), body: body.to_string() }
    }
    pub fn with(mut self, name: &str, value: &str) -> Reply {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// What happens to the next requests that create something.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It is carried out, and the connection breaks.
    LostReply,
    /// The connection breaks, and nothing is carried out.
    LostRequest,
    /// It is answered so, and nothing is carried out.
    Instead(Reply),
}

/// What a simulated provider does.
pub trait Behaviour: Send + Sync + 'static {
    /// Whether a request creates something, so that faults are for it.
    fn creates(&self, asked: &Asked) -> bool;
    /// Carries it out. `now`: the provider's clock, in milliseconds.
    fn answer(&self, asked: &Asked, now: i64) -> Reply;
}

/// One that runs.
pub struct Simulated<B> {
    pub base: String,
    pub does: Arc<B>,
    pub faults: Arc<Mutex<VecDeque<Fault>>>,
    /// Its clock, ahead of ours by this many milliseconds.
    pub ahead: Arc<Mutex<i64>>,
    /// Without the `Date` header.
    pub dateless: Arc<Mutex<bool>>,
    pub seen: Arc<Mutex<Vec<Asked>>>,
}

pub fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

impl<B: Behaviour> Simulated<B> {
    pub async fn start(does: B) -> Simulated<B> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let s = Simulated {
            base: format!("http://{}", listener.local_addr().unwrap()),
            does: Arc::new(does),
            faults: Arc::default(),
            ahead: Arc::default(),
            dateless: Arc::default(),
            seen: Arc::default(),
        };
        let (does, faults, ahead, dateless, seen) =
            (s.does.clone(), s.faults.clone(), s.ahead.clone(), s.dateless.clone(), s.seen.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let one = (does.clone(), faults.clone(), ahead.clone(), dateless.clone(), seen.clone());
                tokio::spawn(async move {
                    let mut stream = stream;
                    while let Some(asked) = request(&mut stream).await {
                        let (does, faults, ahead, dateless, seen) = &one;
                        seen.lock().unwrap().push(asked.clone());
                        let fault =
                            if does.creates(&asked) { faults.lock().unwrap().pop_front() } else { None };
                        let clock = now() + *ahead.lock().unwrap();
                        let reply = match fault {
                            Some(Fault::LostReply) => {
                                does.answer(&asked, clock);
                                return;
                            }
                            Some(Fault::LostRequest) => return,
                            Some(Fault::Instead(reply)) => reply,
                            None => does.answer(&asked, clock),
                        };
                        let date = if *dateless.lock().unwrap() { None } else { Some(clock) };
                        if stream.write_all(written(&reply, date).as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        s
    }

    pub fn next(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().unwrap().extend(faults);
    }

    pub fn creations(&self) -> usize {
        self.seen.lock().unwrap().iter().filter(|a| self.does.creates(a)).count()
    }
}

fn written(reply: &Reply, date: Option<i64>) -> String {
    let mut head = format!(
        "HTTP/1.1 {} X\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: {}\r\n",
        reply.status,
        reply.body.len()
    );
    if let Some(at) = date {
        let at = time::OffsetDateTime::from_unix_timestamp(at / 1000).unwrap();
        let form = time::format_description::well_known::Rfc2822;
        let date = at.format(&form).unwrap().replace("+0000", "GMT");
        head.push_str(&format!("date: {date}\r\n"));
    }
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    format!("{head}\r\n{}", reply.body)
}

async fn request(stream: &mut TcpStream) -> Option<Asked> {
    let mut all = Vec::new();
    loop {
        if let Some(end) = all.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&all[..end]).into_owned();
            let mut lines = head.lines();
            let first: Vec<String> = lines.next()?.split(' ').map(str::to_owned).collect();
            let headers: HashMap<String, String> = lines
                .filter_map(|l| l.split_once(": "))
                .map(|(n, v)| (n.to_ascii_lowercase(), v.to_owned()))
                .collect();
            let length: usize = headers.get("content-length").map_or(0, |l| l.parse().unwrap());
            if all.len() >= end + 4 + length {
                let url = url::Url::parse(&format!("http://h{}", first[1])).unwrap();
                return Some(Asked {
                    method: first[0].clone(),
                    path: url.path().to_owned(),
                    query: url.query_pairs().into_owned().collect(),
                    headers,
                    body: all[end + 4..end + 4 + length].to_vec(),
                });
            }
        }
        let mut buffer = [0; 8192];
        match stream.read(&mut buffer).await {
            Ok(n) if n > 0 => all.extend_from_slice(&buffer[..n]),
            _ => return None,
        }
    }
}

/// The manifest of a recipe, word for word but for the place and the waits.
pub fn recipe(page: &str, host: &str, base: &str) -> Integration {
    changed(page, host, base, |text| text)
}

pub fn changed(page: &str, host: &str, base: &str, change: impl Fn(String) -> String) -> Integration {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipes").join(page);
    let page = std::fs::read_to_string(file).unwrap();
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (manifest, _) = rest.split_once("```").unwrap();
    let quick = "[execution_policy.retries]\ninitial_backoff = \"5ms\"\nmax_backoff = \"40ms\"\n\n[methods.";
    let mut text = manifest.replace(host, base).replacen("[methods.", quick, 1);
    for wait in ["visibility_lag", "processing_bound"] {
        let lines = text
            .lines()
            .map(|l| if l.starts_with(wait) { format!("{wait} = \"60ms\"") } else { l.to_owned() });
        text = lines.collect::<Vec<_>>().join("\n");
    }
    let text = change(text);
    Integration::parse("recipe.toml", &text, Format::Toml, Mode::Sandbox)
        .unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Sends and asks, and keeps why questions had no answer.
struct Watched {
    line: HttpExecutor,
    whys: Mutex<Vec<String>>,
}

#[async_trait]
impl Executor for Watched {
    async fn send(&self, intent: &Intent, key: &EffectKey, replay: bool, timeout: Millis) -> Sent {
        self.line.send(intent, key, replay, timeout).await
    }
    async fn look_up(&self, _: &Intent, _: &EffectKey, _: Millis) -> Looked {
        panic!("the ledger says since when")
    }
    async fn look_up_since(
        &self,
        intent: &Intent,
        key: &EffectKey,
        timeout: Millis,
        asked: ledger::Asked,
    ) -> Looked {
        let looked = self.line.look_up_since(intent, key, timeout, asked).await;
        if let Looked::Unknown { why } = &looked {
            self.whys.lock().unwrap().push(why.clone());
        }
        looked
    }
}

/// Each call has a key of its own.
static CALLS: AtomicUsize = AtomicUsize::new(0);

struct Tool(Arc<Watched>);

#[async_trait]
impl Runner for Tool {
    async fn run(&self, attempt: &Attempt) -> Result<ToolResult, RunError> {
        let done = attempt.resume(0, &*self.0).await?;
        let shown = counterfoil_provider::render(&done.receipt.0);
        Ok(ToolResult { result: shown.result, is_error: shown.is_error })
    }
    fn account(&self, _: &Operation, why: &str) -> ToolResult {
        ToolResult { result: why.into(), is_error: true }
    }
}

/// What became of a call.
#[derive(Debug)]
pub struct Outcome {
    /// `result`, `refused`, or the kind of the error.
    pub word: String,
    pub text: String,
    /// Why questions had no answer.
    pub why: String,
    pub several: bool,
    pub sends: u32,
}

/// A call of a method, until it has a result or it is given up.
pub async fn call(i: &Integration, method: &str, args: &Value) -> Outcome {
    call_while(i, method, args, std::future::ready(())).await
}

/// The same, while something else happens.
pub async fn call_while(
    i: &Integration,
    method: &str,
    args: &Value,
    meanwhile: impl Future<Output = ()>,
) -> Outcome {
    let env = |_: &str| Some("token".to_owned());
    let credentials = ConfigCredentials::load_with(std::slice::from_ref(i), env).unwrap();
    let m = i.method(method).unwrap();
    let intent = m.intent(&args.to_string(), &m.recovery(None).unwrap()).unwrap();
    let env = Arc::new(SystemEnv);
    let store = Arc::new(MemoryStore::new(env.clone(), Time(now()), Attention::default()));
    let settings = Settings { max_rest: Millis(50), sweep: Millis(50), ..Settings::default() };
    let ledger = Ledger::new(store, env, settings, Arc::new(Silent));
    let watched =
        Arc::new(Watched { line: HttpExecutor::new(Arc::new(credentials)), whys: Mutex::default() });
    ledger.set_runner(Arc::new(Tool(watched.clone())));
    let number = CALLS.fetch_add(1, Ordering::SeqCst);
    let call = Call {
        scope: Scope { principal: "u".into(), tool: m.canonical_id().into(), mode: "sandbox".into() },
        fingerprint: Fingerprint::of(
            m.canonical_id(),
            &canonical::canonicalise_arguments(Some(&args.to_string()), None).unwrap(),
        ),
        key: Some(CallerKey { key: Key::new(&format!("k{number}")).unwrap(), carrier: Carrier::Program }),
        unkeyed: Unkeyed::Guard,
        guard_window: Millis::secs(300),
        wait: Millis(20_000),
        named: None,
        answers: Vec::new(),
        lease_of_caller: Millis(0),
        hears_progress: false,
    };
    let policy = OperationPolicy { timeout: Millis(700), attempt_cap: 2, ..OperationPolicy::default() };
    let creation = Creation {
        policy,
        intent: Some(intent),
        arguments: None,
        asks: Vec::new(),
        allowances: Vec::new(),
        gate: None,
    };
    let tending = tokio::spawn({
        let ledger = ledger.clone();
        async move { ledger.tend().await }
    });
    let create = move || Ok(creation.clone());
    let asked = ledger.call::<()>(&call, &create, std::future::pending(), |_| {});
    let (answer, ()) = tokio::join!(asked, meanwhile);
    tending.abort();
    let (word, text) = match answer.unwrap() {
        Answer::Result { result, operation, .. } => {
            let word = if operation.is_error { "refused" } else { "result" };
            (word.to_owned(), String::from_utf8_lossy(&result).into_owned())
        }
        Answer::Error(e) => (e.kind.word().to_owned(), e.sentence.to_string()),
        other => (format!("{other:?}"), String::new()),
    };
    let op = ledger.list(&Query { limit: 1, ..Query::default() }).await.unwrap().remove(0);
    let e = &op.effects[0];
    let why = watched.whys.lock().unwrap().join("; ");
    Outcome { word, text, why, several: e.several, sends: e.sends }
}

pub async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
