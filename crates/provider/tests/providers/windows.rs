//! Through the ledger: inside the window a lost answer is repeated; past it nothing more is sent and the effect is in doubt.

use crate::fake::Fault;
use crate::table::{self, Provider};
use crate::{Api, arguments};
use async_trait::async_trait;
use counterfoil_provider::HttpExecutor;
use futures_util::future::BoxFuture;
use ledger::env::Abort;
use ledger::memory::MemoryStore;
use ledger::store::Attention;
use ledger::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};

/// The real world with a clock that can be put ahead.
#[derive(Clone, Default)]
struct Ahead(Arc<AtomicI64>);

impl Env for Ahead {
    fn random(&self, buf: &mut [u8]) {
        SystemEnv.random(buf);
    }
    fn sleep(&self, d: Millis) -> BoxFuture<'static, ()> {
        SystemEnv.sleep(d)
    }
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Abort {
        SystemEnv.spawn(task)
    }
    fn monotonic(&self) -> i64 {
        SystemEnv.monotonic() + self.0.load(SeqCst)
    }
}

/// After the first send some time passes.
struct Later {
    line: HttpExecutor,
    sends: AtomicUsize,
    clock: Ahead,
    by: Millis,
}

#[async_trait]
impl Executor for Later {
    async fn send(&self, intent: &Intent, key: &EffectKey, replay: bool, timeout: Millis) -> Sent {
        let sent = self.line.send(intent, key, replay, timeout).await;
        if self.sends.fetch_add(1, SeqCst) == 0 {
            self.clock.0.fetch_add(self.by.0, SeqCst);
        }
        sent
    }
    async fn look_up(&self, intent: &Intent, key: &EffectKey, timeout: Millis) -> Looked {
        self.line.look_up(intent, key, timeout).await
    }
}

struct Tool(Arc<Later>);

#[async_trait]
impl Runner for Tool {
    async fn run(&self, attempt: &Attempt) -> Result<ToolResult, RunError> {
        let done = attempt.resume(0, self.0.as_ref()).await?;
        Ok(ToolResult { result: done.receipt.0, is_error: !done.applied })
    }
    fn account(&self, _: &Operation, why: &str) -> ToolResult {
        ToolResult { result: why.into(), is_error: true }
    }
}

/// How a call ends whose first answer is lost, and after which this much time passes: a word, requests, effects.
async fn ends(p: &Provider, fault: Fault, by: Millis) -> (String, usize, usize) {
    let api = Api::of(p).await;
    api.fake.next(fault);
    end(p, api, by).await
}

async fn end(p: &Provider, api: Api, by: Millis) -> (String, usize, usize) {
    let mut intent = api.intent(p, 500);
    // A wait that is no wait in the test.
    (intent.recovery.initial_backoff, intent.recovery.max_backoff) = (Millis(1), Millis(2));
    // Nor is the time after which *not found* counts.
    (intent.recovery.processing_bound, intent.recovery.visibility_lag) = (Millis(20), Millis(20));
    intent.recovery.send_timeout = Millis(2000);
    let clock = Ahead::default();
    let line = Later { line: api.executor.clone(), sends: AtomicUsize::new(0), clock: clock.clone(), by };
    let env = Arc::new(clock);
    let store = Arc::new(MemoryStore::new(env.clone(), Time(1_000_000), Attention::default()));
    let ledger = Ledger::new(store, env, Settings::default(), Arc::new(Silent));
    ledger.set_runner(Arc::new(Tool(Arc::new(line))));
    let arguments = arguments(p, 500);
    let canonical = canonical::canonicalise_arguments(Some(&arguments), None).unwrap();
    let call = Call {
        scope: Scope { principal: "u".into(), tool: "p.m".into(), mode: "sandbox".into() },
        fingerprint: Fingerprint::of("p.m", &canonical),
        key: Some(CallerKey { key: Key::new("k").unwrap(), carrier: Carrier::Program }),
        unkeyed: Unkeyed::Guard,
        guard_window: Millis::secs(300),
        wait: Millis::secs(399 * 86_400),
        named: None,
        answers: Vec::new(),
        lease_of_caller: Millis(0),
        hears_progress: false,
    };
    let creation = Creation {
        // The attempt's own deadline is not what is tried here.
        policy: OperationPolicy { timeout: Millis::secs(400 * 86_400), ..OperationPolicy::default() },
        intent: Some(intent),
        arguments: None,
        asks: Vec::new(),
        allowances: Vec::new(),
        gate: None,
    };
    let answer = ledger
        .call::<()>(&call, &move || Ok(creation.clone()), std::future::pending(), |_| {})
        .await
        .unwrap();
    let word = match answer {
        Answer::Result { .. } => "result".to_owned(),
        Answer::Error(e) => e.kind.word().to_owned(),
        other => format!("{other:?}"),
    };
    (word, api.fake.requests(), api.fake.effects())
}

#[tokio::test]
async fn past_the_window_nothing_is_sent_again() {
    for p in table::all().iter().filter(|p| p.expect.window > 0) {
        let past = Millis::secs(p.expect.window * 60);
        let ends = ends(p, Fault::LoseAnswer, past).await;
        // One that can be asked by key shows what it has kept.
        let word = if p.preset == "mangopay" { "result" } else { "in_doubt" };
        assert_eq!(ends, (word.into(), 1, 1), "{}", p.preset);
    }
}

#[tokio::test]
async fn inside_the_window_a_lost_answer_is_repeated_and_one_effect_is_made() {
    for p in &table::all() {
        let inside =
            Millis::secs(if p.expect.window == 0 { 400 * 86_400 / 2 } else { p.expect.window * 60 - 60 });
        let (word, requests, effects) = ends(p, Fault::LoseAnswer, inside).await;
        // A provider that neither repeats nor tells leaves it in doubt, and is not asked twice.
        let want = if p.preset == "moov" { "in_doubt" } else { "result" };
        assert_eq!((word.as_str(), requests, effects), (want, 2, 1), "{}", p.preset);
        let ends = ends(p, Fault::LoseRequest, inside).await;
        assert_eq!(ends, ("result".into(), 2, 1), "{}", p.preset);
    }
}

#[tokio::test]
async fn a_repeat_for_which_the_key_did_not_count_ends_in_doubt() {
    let p = table::all().into_iter().find(|p| p.preset == "solidgate").unwrap();
    for (fault, requests, effects) in [
        // Told by the first answer: nothing more is sent.
        (Fault::Fail, 1, 0),
        // Told by the second, which nobody could know before; it is not hidden.
        (Fault::LoseAnswer, 2, 2),
    ] {
        let api = Api::of(&p).await;
        api.fake.ignore();
        api.fake.next(fault);
        assert_eq!(end(&p, api, Millis(0)).await, ("in_doubt".into(), requests, effects), "{fault:?}");
    }
}

#[tokio::test]
async fn a_lost_refusal_is_never_taken_for_an_effect() {
    for p in &table::all() {
        let (word, requests, effects) = ends(p, Fault::LoseRefusal(400), Millis(0)).await;
        // Where nothing is kept of it the repeat is carried out. What is kept and repeated proves nothing unmarked,
        // and what is only asked for by key shows no effect.
        let marked = p.preset == "stripe";
        let word_wanted = if p.facts.keeps_all && !marked { "in_doubt" } else { "result" };
        assert_eq!((word.as_str(), requests), (word_wanted, 2), "{}", p.preset);
        assert_eq!(effects, usize::from(!p.facts.keeps_all), "{}", p.preset);
    }
}
