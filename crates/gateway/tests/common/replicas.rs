//! Two gateways on one ledger and one key ring, and tools that ask, wait and change something.

use super::*;
use futures_util::future::BoxFuture;
use ledger::env::Abort;
use ledger::store::Found;
use ledger::{
    Ask, EffectKey, Execution, Executor, InputKind, Looked, Operation, OperationId, Receipt, Recovery, Sent,
    Strategy,
};
use mcp::input::{Field, Form, InputRequest};
use std::sync::atomic::AtomicI64;
use tokio::sync::Semaphore;

/// Real time that a test may put forward. The pause that a caller has between two legs is short, and puts it forward by the
/// rest.
#[derive(Default)]
pub struct Clock(Arc<AtomicI64>);

/// What the pause between two legs is in real time.
pub const PAUSE: Duration = Duration::from_millis(700);

impl Clock {
    pub fn forward(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Env for Clock {
    fn random(&self, buf: &mut [u8]) {
        SystemEnv.random(buf);
    }
    fn sleep(&self, d: Millis) -> BoxFuture<'static, ()> {
        // The pause, or what is left of it when somebody looks again.
        if !(Millis::secs(14)..=Millis::secs(15)).contains(&d) {
            return SystemEnv.sleep(d);
        }
        let (ahead, short) = (self.0.clone(), i64::try_from(PAUSE.as_millis()).unwrap());
        Box::pin(async move {
            SystemEnv.sleep(Millis(short)).await;
            ahead.fetch_add(d.0 - short, Ordering::SeqCst);
        })
    }
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Abort {
        SystemEnv.spawn(task)
    }
    fn monotonic(&self) -> i64 {
        SystemEnv.monotonic() + self.0.load(Ordering::SeqCst)
    }
}

/// Two gateways that share what replicas share.
pub struct Pair {
    pub a: World,
    pub b: World,
    pub clock: Arc<Clock>,
    pub store: Arc<MemoryStore>,
    pub place: seal::MasterPlace,
    pub sealing: seal::Settings,
    pub keeper: seal::Keeper,
}

pub const STATE_TTL: Millis = Millis::secs(600);

pub async fn pair(offer: impl Fn() -> Offer, auth: bool) -> Pair {
    pair_for(offer, auth, STATE_TTL).await
}

pub async fn pair_for(offer: impl Fn() -> Offer, auth: bool, state_ttl: Millis) -> Pair {
    pair_with(offer, auth, state_ttl, settings()).await
}

pub async fn pair_with(
    offer: impl Fn() -> Offer,
    auth: bool,
    state_ttl: Millis,
    settings: GatewaySettings,
) -> Pair {
    let clock = Arc::new(Clock::default());
    let store = Arc::new(MemoryStore::new(clock.clone(), Time(1_700_000_000_000), Attention::default()));
    let place = seal::MasterPlace::Given(seal::MasterKey::new().unwrap());
    let sealing = seal::Settings { audience: "test".into(), state_ttl, alone: true };
    let shelf = Arc::new(seal::OnLedger(store.clone()));
    let keeper = seal::Keeper::start(shelf, place.clone(), sealing.clone()).await.unwrap();
    let one = || {
        let settings = GatewaySettings { legacy_sessions: LegacySessions::Always, ..settings.clone() };
        let (store, env, keeper) = (store.clone(), clock.clone(), Some(keeper.clone()));
        serve(Parts { store, env, offer: offer(), settings, auth, keeper, poll: Millis(40) })
    };
    let (a, b) = (one().await, one().await);
    Pair { a, b, clock, store, place, sealing, keeper }
}

impl Pair {
    pub async fn operation(&self, id: &str) -> Operation {
        let id: OperationId = id.parse().unwrap();
        match self.store.by_id(id).await.unwrap() {
            Some(Found::Operation(op)) => *op,
            other => panic!("no operation: {other:?}"),
        }
    }

    pub async fn operations(&self) -> usize {
        self.a
            .gateway
            .ledger()
            .list(&ledger::store::Query { limit: 100, ..Default::default() })
            .await
            .unwrap()
            .len()
    }

    /// Waits until the operation is in this state.
    pub async fn becomes(&self, id: &str, word: &str) -> Operation {
        for _ in 0..200 {
            let op = self.operation(id).await;
            if op.execution.word() == word {
                return op;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("it stays {:?}", self.operation(id).await.execution);
    }
}

/// What a client declares that can be asked.
pub fn asked() -> Value {
    json!({ META_CAPABILITIES: { "elicitation": {} } })
}

/// What a client declares that can be asked and knows tasks.
pub fn tasked() -> Value {
    json!({ META_CAPABILITIES: {
        "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } } })
}

pub fn accept(content: Value) -> Value {
    json!({ "action": "accept", "content": content })
}

pub fn bearer(who: &str) -> String {
    format!("Bearer cfk_{who}")
}

/// Params of a call, with what the client brings back.
pub fn call(name: &str, arguments: Value, state: Option<&str>, responses: Option<Value>) -> Value {
    let mut params = json!({ "name": name, "arguments": arguments });
    if let Some(state) = state {
        params["requestState"] = json!(state);
    }
    if let Some(responses) = responses {
        params["inputResponses"] = responses;
    }
    params
}

/// The result of an answer.
#[track_caller]
pub fn result(reply: &Reply) -> &Value {
    let result = &reply.last()["result"];
    assert!(result.is_object(), "no result: {:?}", reply.messages);
    result
}

#[track_caller]
pub fn state(reply: &Reply) -> String {
    let result = result(reply);
    assert_eq!(result["resultType"], "input_required", "{result}");
    result["requestState"].as_str().unwrap_or_else(|| panic!("no state: {result}")).to_owned()
}

/// The keys of what is asked, in alphabetical order.
#[track_caller]
pub fn questions(reply: &Reply) -> Vec<String> {
    let result = result(reply);
    assert_eq!(result["resultType"], "input_required", "{result}");
    let mut keys: Vec<String> =
        result["inputRequests"].as_object().into_iter().flatten().map(|(k, _)| k.clone()).collect();
    keys.sort();
    keys
}

/// The text of a complete result.
#[track_caller]
pub fn said(reply: &Reply) -> String {
    let result = result(reply);
    assert_eq!(result["resultType"], "complete", "{result}");
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

/// The kind of an error of the ledger.
#[track_caller]
pub fn kind(reply: &Reply) -> String {
    let error = &result(reply)["_meta"]["dev.counterfoil/error"];
    error["kind"].as_str().unwrap_or_else(|| panic!("no error: {:?}", reply.messages)).to_owned()
}

/// The operation that a result belongs to.
#[track_caller]
pub fn operation_of(reply: &Reply) -> String {
    let id = &result(reply)["_meta"]["dev.counterfoil/operation"]["id"];
    id.as_str().unwrap_or_else(|| panic!("no operation: {:?}", reply.messages)).to_owned()
}

pub fn form(key: &str, field: Field) -> InputRequest {
    InputRequest::form(key, &format!("What is {key}?"), Form::new().require(key, field).unwrap()).unwrap()
}

fn ask_of(request: &InputRequest, kind: InputKind) -> Ask {
    Ask { key: request.key().to_owned(), kind, request: request.to_raw().as_str().as_bytes().to_vec() }
}

/// A tool that changes the world: what it does is told by its arguments.
///
/// - `ask`: lists of names; each list is a round of questions, `n…` are whole numbers;
/// - `approval`: asks for a yes;
/// - `send`: causes its effect, recovered by this strategy; the provider says nothing if it is `confirm` or `none`;
/// - `hold`: `before` or `after` the effect it waits for [`Works::gate`];
/// - `fail`: gives up by itself.
#[derive(Default)]
pub struct Works {
    pub runs: AtomicUsize,
    pub sends: AtomicUsize,
    pub gate: Gate,
}

pub struct Gate(pub Semaphore);

impl Default for Gate {
    fn default() -> Gate {
        Gate(Semaphore::new(0))
    }
}

impl Works {
    pub fn ran(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
    pub fn sent(&self) -> usize {
        self.sends.load(Ordering::SeqCst)
    }
    /// Lets everything go on that waits, now and later.
    pub fn open(&self) {
        self.gate.0.add_permits(1000);
    }
    async fn held(&self) {
        self.gate.0.acquire().await.unwrap().forget();
    }
}

struct Provider<'a>(&'a Works, bool);

#[async_trait]
impl Executor for Provider<'_> {
    async fn send(&self, _: &Intent, _: &EffectKey, _: bool, _: Millis) -> Sent {
        self.0.sends.fetch_add(1, Ordering::SeqCst);
        if self.1 {
            Sent::Applied(Receipt(b"done".to_vec()))
        } else {
            Sent::Unknown { why: "no answer came".into(), retry_after: None, stored: false }
        }
    }
    async fn look_up(&self, _: &Intent, _: &EffectKey, _: Millis) -> Looked {
        Looked::NotFound
    }
}

#[async_trait]
impl Tool for Works {
    fn plan(&self, _: &RawObject) -> Result<Option<Intent>, BadArguments> {
        Ok(None)
    }

    async fn run(&self, attempt: &Attempt) -> Result<ToolResult, RunError> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        let told: Value = serde_json::from_slice(attempt.arguments().unwrap_or(b"{}")).unwrap();
        let mut answers = Vec::new();
        for round in told["ask"].as_array().into_iter().flatten() {
            let asks = round.as_array().unwrap().iter().map(|name| {
                let name = name.as_str().unwrap();
                let field = if name.starts_with('n') { Field::integer() } else { Field::text() };
                ask_of(&form(name, field), InputKind::Client)
            });
            for answer in attempt.ask(asks.collect()).await? {
                answers.push(String::from_utf8(answer).unwrap());
            }
        }
        if told["approval"] == true {
            attempt.ask(vec![ask_of(&form("approve", Field::flag()), InputKind::Approval)]).await?;
        }
        if told["hold"] == "before" {
            self.held().await;
        }
        if told["fail"] == true {
            return Err(RunError::Tool("it gave up".into()));
        }
        if let Some(strategy) = told["send"].as_str() {
            let strategy: Strategy = serde_json::from_value(json!(strategy)).unwrap();
            let known = !matches!(strategy, Strategy::Confirm | Strategy::None);
            let intent = Intent {
                name: "effect".into(),
                discriminator: String::new(),
                recovery: Recovery { max_sends: 1, ..Recovery::new(strategy) },
                summary: "ring the bell".into(),
                body: b"ring".to_vec(),
            };
            let done = attempt.effect(intent, &Provider(self, known)).await?;
            answers.push(String::from_utf8(done.receipt.0).unwrap());
        }
        if told["hold"] == "after" {
            self.held().await;
        }
        let body = json!({ "content": [{ "type": "text", "text": answers.join(" ") }], "isError": false });
        Ok(ToolResult { result: body.to_string().into_bytes(), is_error: false })
    }

    fn safety(&self) -> Value {
        json!({ "effect": "mutating" })
    }
}

/// The tool in an offer, under this name.
pub fn works(
    name: &str,
    tool: &Arc<Works>,
    tune: impl FnOnce(&mut ToolSettings),
) -> (ToolSpec, ToolSettings, Body) {
    let (spec, mut settings, body) = super::tool(name, None, Body::Mutating(tool.clone()));
    settings.unkeyed = Unkeyed::Guard;
    settings.wait = Millis::secs(5);
    tune(&mut settings);
    (spec, settings, body)
}

/// Whether it still runs or waits.
pub fn is_ended(op: &Operation) -> bool {
    matches!(op.execution, Execution::Completed | Execution::Failed { .. } | Execution::Cancelled { .. })
}

/// The value of a counter of refused states.
pub async fn rejections(w: &World, why: &str) -> u64 {
    let all = w.metrics().await;
    let name = format!("state_rejected_total{{why=\"{why}\"}}");
    all.lines().find(|l| l.contains(&name)).map_or(0, |l| l.rsplit(' ').next().unwrap().parse().unwrap())
}
