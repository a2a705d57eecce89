//! A small world to run the ledger in: Tokio's paused time, seeded randomness, a provider that counts effects
//! by key, a tool, and a gate that stops a boot at any of its awaits, as a crash would.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

pub mod gated;
pub mod limited;
pub mod provider;

pub use gated::*;
pub use provider::*;

use async_trait::async_trait;
use counterfoil_ledger::env::Abort;
use counterfoil_ledger::memory::MemoryStore;
use counterfoil_ledger::operation::OperationPolicy;
use counterfoil_ledger::store::{Attention, Found, Query, Store as _};
use counterfoil_ledger::*;
use futures_util::future::BoxFuture;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

pub const BASE: Time = Time(1_000_000);

/// Tokio's (paused) time, seeded randomness, tasks that can all be killed at once.
pub struct TestEnv {
    start: Instant,
    seed: Mutex<u64>,
    tasks: Mutex<Vec<tokio::task::AbortHandle>>,
}

impl TestEnv {
    pub fn new(seed: u64) -> Arc<TestEnv> {
        Arc::new(TestEnv { start: Instant::now(), seed: Mutex::new(seed), tasks: Mutex::default() })
    }
    /// Tasks that have not ended.
    pub fn alive(&self) -> usize {
        self.tasks.lock().unwrap().iter().filter(|t| !t.is_finished()).count()
    }
    pub fn kill(&self) {
        for t in self.tasks.lock().unwrap().drain(..) {
            t.abort();
        }
    }
}

impl Env for TestEnv {
    fn random(&self, buf: &mut [u8]) {
        let mut s = self.seed.lock().unwrap();
        for b in buf {
            // SplitMix64
            *s = s.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = *s;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            *b = (z ^ (z >> 31)) as u8;
        }
    }
    fn sleep(&self, d: Millis) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(d.duration()))
    }
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Abort {
        let handle = tokio::spawn(task).abort_handle();
        self.tasks.lock().unwrap().push(handle.clone());
        Abort::new(move || handle.abort())
    }
    fn monotonic(&self) -> i64 {
        self.start.elapsed().as_millis() as i64
    }
}

/// What the tool does besides its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Plain,
    PanicBefore,
    PanicAfter,
    SleepBefore(i64),
    HangAfter,
    FailAfter,
    OtherIntent,
    /// Swallows what the ledger says and asks again, then claims success.
    Stubborn,
    /// Two effects, one after the other.
    Two,
    /// Two effects at once.
    TwoAtOnce,
    /// Causes no effect.
    NoEffect,
    /// Asks `name`, then `size`, then has its effect.
    Asks,
    /// Asks something else under `name`.
    AsksOtherwise,
    /// Has its effect, then asks.
    AsksAfter,
    /// Makes a handle, then changes it, then has its effect; hangs behind the first so many steps.
    Handles(usize),
}

pub struct Tool {
    pub line: Line,
    pub mood: Mutex<Mood>,
    pub recovery: Recovery,
    pub runs: AtomicUsize,
    /// The answers that it got.
    pub told: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
    of: std::sync::OnceLock<std::sync::Weak<Ledger>>,
}

/// A question of the tool.
pub fn ask(key: &str) -> Ask {
    Ask { key: key.into(), kind: InputKind::Client, request: format!("{key}?").into_bytes() }
}

/// A person's yes.
pub fn approval() -> Ask {
    Ask { key: "approval".into(), kind: InputKind::Approval, request: b"POST /refunds amount=5?".to_vec() }
}

pub fn intent(recovery: &Recovery, name: &str) -> Intent {
    Intent {
        name: name.into(),
        discriminator: String::new(),
        recovery: recovery.clone(),
        summary: "POST /refunds".into(),
        body: format!("{name}: amount=5").into_bytes(),
    }
}

#[async_trait]
impl Runner for Tool {
    async fn run(&self, attempt: &Attempt) -> Result<ToolResult, RunError> {
        self.runs.fetch_add(1, SeqCst);
        let mood = *self.mood.lock().unwrap();
        match mood {
            Mood::PanicBefore => panic!("before"),
            Mood::SleepBefore(ms) => tokio::time::sleep(Millis(ms).duration()).await,
            Mood::NoEffect => return Ok(ToolResult { result: b"nothing to do".to_vec(), is_error: false }),
            Mood::OtherIntent => {
                let other = Intent { body: b"amount=500".to_vec(), ..intent(&self.recovery, "refund") };
                attempt.effect(other, &self.line).await?;
            }
            Mood::Stubborn => {
                for _ in 0..3 {
                    let _ = attempt.effect(intent(&self.recovery, "refund"), &self.line).await;
                }
                return Ok(ToolResult { result: b"all is well".to_vec(), is_error: false });
            }
            Mood::Asks => {
                let name = attempt.ask(vec![ask("name")]).await?.remove(0);
                let size = attempt.ask(vec![ask("size")]).await?.remove(0);
                self.told.lock().unwrap().push((name, size));
            }
            Mood::AsksOtherwise => {
                attempt.ask(vec![Ask { request: b"another".to_vec(), ..ask("name") }]).await?;
            }
            Mood::AsksAfter => {
                attempt.effect(intent(&self.recovery, "refund"), &self.line).await?;
                let answers = attempt.ask(vec![ask("name"), ask("size")]).await?;
                return Ok(ToolResult { result: answers.concat(), is_error: false });
            }
            Mood::Handles(hangs) => return self.handles(attempt, hangs).await,
            _ => {}
        }
        let done = match attempt.recorded_intent(0).await? {
            Some(_) => attempt.resume(0, &self.line).await?,
            None if mood == Mood::TwoAtOnce => {
                let (a, b) = tokio::join!(
                    attempt.effect(intent(&self.recovery, "refund"), &self.line),
                    attempt.effect(intent(&self.recovery, "mail"), &self.line)
                );
                b?;
                a?
            }
            None => attempt.effect(intent(&self.recovery, "refund"), &self.line).await?,
        };
        match mood {
            Mood::PanicAfter => panic!("after"),
            Mood::HangAfter => std::future::pending::<()>().await,
            Mood::FailAfter => return Err(RunError::Tool("lost its head".into())),
            Mood::Two | Mood::TwoAtOnce => {
                attempt.effect(intent(&self.recovery, "mail"), &self.line).await?;
            }
            _ => {}
        }
        Ok(ToolResult { result: done.receipt.0, is_error: !done.applied })
    }
    fn account(&self, op: &Operation, why: &str) -> ToolResult {
        ToolResult {
            result: format!("account of {} effects: {why}", op.effects.len()).into_bytes(),
            is_error: true,
        }
    }
}

impl Tool {
    async fn handles(&self, attempt: &Attempt, hangs: usize) -> Result<ToolResult, RunError> {
        let hang = async |step| {
            if step == hangs {
                std::future::pending::<()>().await;
            }
        };
        let text = attempt.handle_id("basket", "");
        let id_hash = handle::id_hash(&text);
        let principal = attempt.operation().scope.principal.clone();
        let new = Handle {
            id_hash,
            principal: principal.clone(),
            kind: "basket".into(),
            value: b"0".to_vec(),
            version: 1,
            created_at: Time(0),
            used_at: Time(0),
            idle: Millis::secs(3600),
            absolute: Millis::secs(7200),
        };
        let made = attempt
            .handle_change("basket", HandleChange::Create(new), Receipt(text.clone().into_bytes()))
            .await?;
        hang(1).await;
        let there = self.ledger().handle(&principal, &text).await.map_err(Stopped::Store)?;
        let Some(there) = there.there() else { return Err(RunError::Tool("it is gone".into())) };
        // What it adds depends on what is there: done twice, it would show.
        let value = format!("{}+1", String::from_utf8_lossy(&there.value)).into_bytes();
        let change = HandleChange::Update {
            id_hash,
            principal,
            expected: there.version,
            value: value.clone(),
            at: Time(0),
        };
        let changed = attempt.handle_change("add", change, Receipt(value)).await?;
        hang(2).await;
        let told = match (made, changed) {
            (Ok(a), Ok(b)) => [a.0, b" ".to_vec(), b.0].concat(),
            (a, b) => format!("{a:?} {b:?}").into_bytes(),
        };
        Ok(ToolResult { result: told, is_error: false })
    }
    fn ledger(&self) -> Arc<Ledger> {
        self.of.get().and_then(std::sync::Weak::upgrade).unwrap()
    }
}

/// Counts what is told.
#[derive(Default)]
pub struct Notes(pub Mutex<Vec<String>>);

impl Observer for Notes {
    fn note(&self, note: Note<'_>) {
        let text = match note {
            Note::Alert { what, .. } => format!("alert {what}"),
            Note::Window(w) => format!("window {w}"),
            Note::Answered(k) => format!("answered {}", k.word()),
            _ => return,
        };
        self.0.lock().unwrap().push(text);
    }
}

impl Notes {
    pub fn count(&self, text: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|t| *t == text).count()
    }
}

/// One boot of the ledger.
pub struct Boot {
    pub env: Arc<TestEnv>,
    pub memory: Arc<MemoryStore>,
    pub store: Arc<Gated>,
    pub ledger: Arc<Ledger>,
    pub tool: Arc<Tool>,
    pub provider: Arc<Provider>,
    pub notes: Arc<Notes>,
    pub gate: Arc<Gate>,
    pub policy: OperationPolicy,
    /// Whether operations are opened with their intent.
    pub single: bool,
    /// What operations begin with.
    pub asks: Vec<Ask>,
    pub allowances: Vec<Allowance>,
    /// What they are let through by.
    pub door: Option<Arc<dyn Admission>>,
}

pub fn recovery(strategy: Strategy) -> Recovery {
    Recovery {
        processing_bound: Millis(2000),
        visibility_lag: Millis(500),
        send_timeout: Millis(1000),
        initial_backoff: Millis(50),
        max_backoff: Millis(400),
        max_sends: 3,
        ..Recovery::new(strategy)
    }
}

pub fn policy() -> OperationPolicy {
    OperationPolicy { timeout: Millis(5000), attempt_cap: 6, ..OperationPolicy::default() }
}

impl Boot {
    pub fn first(provider: Arc<Provider>, recovery: Recovery, gate: Arc<Gate>) -> Boot {
        let env = TestEnv::new(7);
        let memory = Arc::new(MemoryStore::new(env.clone(), BASE, Attention::default()));
        Boot::on(env, memory, provider, recovery, gate)
    }

    pub fn plain(strategy: Strategy, script: &[Act]) -> Boot {
        Boot::first(Provider::new(dedupes(strategy), script), recovery(strategy), Arc::default())
    }

    fn on(
        env: Arc<TestEnv>,
        memory: Arc<MemoryStore>,
        provider: Arc<Provider>,
        recovery: Recovery,
        gate: Arc<Gate>,
    ) -> Boot {
        let store = Gated::new(memory.clone(), gate.clone());
        let notes = Arc::new(Notes::default());
        let settings = Settings { max_rest: Millis(4000), ..Settings::default() };
        let ledger = Ledger::new(store.clone(), env.clone(), settings, notes.clone());
        let tool = Arc::new(Tool {
            line: Line { provider: provider.clone(), gate: gate.clone() },
            mood: Mutex::new(Mood::Plain),
            recovery,
            runs: AtomicUsize::new(0),
            told: Mutex::default(),
            of: Arc::downgrade(&ledger).into(),
        });
        ledger.set_runner(tool.clone());
        Boot {
            env,
            memory,
            store,
            ledger,
            tool,
            provider,
            notes,
            gate,
            policy: policy(),
            single: true,
            asks: Vec::new(),
            allowances: Vec::new(),
            door: None,
        }
    }

    /// The next boot on the same records. The earlier one is left as it is: kill it, or let it be a zombie.
    pub fn next(&self, gate: Arc<Gate>) -> Boot {
        let env = Arc::new(TestEnv {
            start: self.env.start,
            seed: Mutex::new(self.env.random_u128() as u64),
            tasks: Mutex::default(),
        });
        let memory = Arc::new(self.memory.restart());
        let mut b = Boot::on(env, memory, self.provider.clone(), self.tool.recovery.clone(), gate);
        b.policy = self.policy.clone();
        b.single = self.single;
        (b.asks, b.allowances) = (self.asks.clone(), self.allowances.clone());
        b
    }

    /// Another replica on the same records, as alive as this one.
    pub fn beside(&self) -> Boot {
        let env = Arc::new(TestEnv {
            start: self.env.start,
            seed: Mutex::new(self.env.random_u128() as u64),
            tasks: Mutex::default(),
        });
        let (memory, recovery) = (self.memory.clone(), self.tool.recovery.clone());
        let mut b = Boot::on(env, memory, self.provider.clone(), recovery, Arc::default());
        (b.policy, b.single, b.asks) = (self.policy.clone(), self.single, self.asks.clone());
        b.allowances.clone_from(&self.allowances);
        b
    }

    /// Starts recovery.
    pub fn start(&self) {
        let l = self.ledger.clone();
        self.env.spawn(Box::pin(async move {
            l.recover_orphans().await.unwrap();
            l.tend().await;
        }));
    }

    pub fn mood(&self, mood: Mood) {
        *self.tool.mood.lock().unwrap() = mood;
    }

    pub fn creation(&self) -> Creation {
        if self.single {
            Creation {
                policy: self.policy.clone(),
                intent: Some(intent(&self.tool.recovery, "refund")),
                arguments: None,
                asks: self.asks.clone(),
                allowances: self.allowances.clone(),
                gate: self.door.clone(),
            }
        } else {
            Creation {
                policy: self.policy.clone(),
                intent: None,
                arguments: Some(b"{}".to_vec()),
                asks: self.asks.clone(),
                allowances: self.allowances.clone(),
                gate: self.door.clone(),
            }
        }
    }

    /// A call that stays till it is answered.
    pub async fn call(&self, call: &Call) -> Answer {
        self.call_until(call, std::future::pending()).await
    }

    /// What a caller that can only take errors is told.
    pub async fn call_until(&self, call: &Call, gone: impl Future<Output = ()> + Send) -> Answer {
        let a = self.asked_until(call, gone).await;
        self.ledger.or_error(call, a)
    }

    /// What the ledger answers.
    pub async fn asked(&self, call: &Call) -> Answer {
        self.asked_until(call, std::future::pending()).await
    }

    pub async fn asked_until(&self, call: &Call, gone: impl Future<Output = ()> + Send) -> Answer {
        let creation = self.creation();
        let a = self.ledger.call::<()>(call, &move || Ok(creation.clone()), gone, |_| {}).await;
        a.unwrap()
    }

    /// A call whose stream closes after a while.
    pub async fn call_for(&self, call: &Call, ms: i64) -> Answer {
        self.call_until(call, tokio::time::sleep(Millis(ms).duration())).await
    }

    pub fn spawn_call(&self, call: &Call) -> tokio::task::JoinHandle<Answer> {
        let (ledger, call, creation) = (self.ledger.clone(), call.clone(), self.creation());
        let h = tokio::spawn(async move {
            let a =
                ledger.call::<()>(&call, &move || Ok(creation.clone()), std::future::pending(), |_| {}).await;
            ledger.or_error(&call, a.unwrap())
        });
        self.env.tasks.lock().unwrap().push(h.abort_handle());
        h
    }

    /// Tells the ledger that the answer was written, as the gateway does.
    pub fn written(&self, a: &Answer) {
        if let Answer::Result { operation, .. } = a {
            self.ledger.delivered(operation, DeliveryState::Written);
        }
    }

    pub async fn only(&self) -> Operation {
        let mut all = self.memory.list(&Query { limit: 10, ..Query::default() }).await.unwrap();
        assert_eq!(all.len(), 1, "one operation expected: {all:#?}");
        all.remove(0)
    }

    pub async fn count(&self) -> usize {
        self.memory.list(&Query { limit: 1000, ..Query::default() }).await.unwrap().len()
    }

    pub async fn get(&self, id: OperationId) -> Operation {
        match self.memory.by_id(id).await.unwrap() {
            Some(Found::Operation(op)) => *op,
            other => panic!("{other:?}"),
        }
    }
}

pub fn dedupes(strategy: Strategy) -> bool {
    matches!(strategy, Strategy::Key | Strategy::Unique | Strategy::Natural | Strategy::Local)
}

pub fn scope(principal: &str) -> Scope {
    Scope { principal: principal.into(), tool: "refund".into(), mode: "sandbox".into() }
}

pub fn fingerprint(arguments: &str) -> Fingerprint {
    Fingerprint::of("refund", &canonical::canonicalise_arguments(Some(arguments), None).unwrap())
}

pub fn unkeyed() -> Call {
    Call {
        scope: scope("p"),
        fingerprint: fingerprint("{\"amount\":5}"),
        key: None,
        unkeyed: Unkeyed::Guard,
        guard_window: Millis::secs(300),
        wait: Millis::secs(45),
        named: None,
        answers: Vec::new(),
        lease_of_caller: Millis(0),
        hears_progress: true,
    }
}

pub fn keyed(key: &str) -> Call {
    Call { key: Some(CallerKey { key: Key::new(key).unwrap(), carrier: Carrier::Program }), ..unkeyed() }
}

pub fn in_argument(key: &str) -> Call {
    Call { key: Some(CallerKey { key: Key::new(key).unwrap(), carrier: Carrier::Argument }), ..unkeyed() }
}

#[track_caller]
pub fn result(a: &Answer) -> (Operation, Vec<u8>, bool, Option<JoinedBy>) {
    match a {
        Answer::Result { operation, result, replayed, joined_by } => {
            ((**operation).clone(), result.to_vec(), *replayed, *joined_by)
        }
        other => panic!("a result expected: {other:?}"),
    }
}

#[track_caller]
pub fn refused(a: &Answer, kind: Kind) -> CallError {
    match a {
        Answer::Error(e) if e.kind == kind => (**e).clone(),
        other => panic!("{kind:?} expected: {other:?}"),
    }
}

pub async fn pause(ms: i64) {
    tokio::time::sleep(Millis(ms).duration()).await;
}
