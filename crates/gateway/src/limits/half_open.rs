//! The breaker under a ledger, on a clock of its own: who is refused for something else, or waits for a person, takes nobody's
//! turn to try the provider.
#![allow(clippy::unwrap_used)]

use super::{Breaker, BreakerSettings};
use async_trait::async_trait;
use ledger::memory::MemoryStore;
use ledger::store::Attention;
use ledger::{
    Admission, Allowance, Answer, Ask, Attempt, Call, CallerKey, Carrier, Creation, Fingerprint, InputKind,
    Key, Ledger, Millis, Operation, Period, RunError, Runner, Scope, Settings, Silent, SystemEnv, Term, Time,
    ToolResult, Unkeyed,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const PAUSE: Millis = Millis::secs(15);

/// Sends once, and is answered.
struct Tool(Arc<Breaker>, AtomicUsize);

#[async_trait]
impl Runner for Tool {
    async fn run(&self, _: &Attempt) -> Result<ToolResult, RunError> {
        self.1.fetch_add(1, SeqCst);
        self.0.seen(true);
        Ok(ToolResult { result: b"{}".to_vec(), is_error: false })
    }
    fn account(&self, _: &Operation, why: &str) -> ToolResult {
        ToolResult { result: why.into(), is_error: true }
    }
}

struct World {
    ledger: Arc<Ledger>,
    breaker: Arc<Breaker>,
    tool: Arc<Tool>,
}

impl World {
    /// Its provider did not answer, and does again from now on.
    fn new() -> World {
        let settings = BreakerSettings { failures: 1, window: Millis::secs(30), pause: PAUSE };
        let breaker = Arc::new(Breaker::new("pay", settings));
        let env = Arc::new(SystemEnv);
        let store = Arc::new(MemoryStore::new(env.clone(), Time(1_700_000_000_000), Attention::default()));
        let ledger = Ledger::new(store, env, Settings::default(), Arc::new(Silent));
        let tool = Arc::new(Tool(breaker.clone(), AtomicUsize::new(0)));
        ledger.set_runner(tool.clone());
        breaker.seen(false);
        World { ledger, breaker, tool }
    }

    /// A call of a principal that may spend so much in a day; what it is answered.
    async fn call(&self, who: &str, n: u32, most: u64, asks: &[Ask]) -> &'static str {
        let scope = Scope { principal: who.into(), tool: "pay.refund".into(), mode: "production".into() };
        let arguments =
            ledger::canonical::canonicalise_arguments(Some(&format!("{{\"n\":{n}}}")), None).unwrap();
        let call = Call {
            scope,
            fingerprint: Fingerprint::of("pay.refund", &arguments),
            key: Some(CallerKey { key: Key::new(&format!("k{n}")).unwrap(), carrier: Carrier::Program }),
            unkeyed: Unkeyed::Guard,
            guard_window: Millis::secs(300),
            wait: Millis::secs(5),
            named: None,
            answers: Vec::new(),
            lease_of_caller: Millis(0),
            hears_progress: false,
        };
        let allowance = Allowance {
            bucket: format!("budget-{who}"),
            of: "refunds".into(),
            amount: 1,
            cap: most,
            term: Term::Budget(Period::Day),
            own: true,
        };
        let creation = Creation {
            policy: ledger::OperationPolicy::default(),
            intent: None,
            arguments: Some(b"{}".to_vec()),
            asks: asks.to_vec(),
            allowances: vec![allowance],
            gate: Some(self.breaker.clone() as Arc<dyn Admission>),
        };
        let create = move || Ok::<_, ()>(creation.clone());
        match self.ledger.call(&call, &create, std::future::pending(), |_| {}).await.unwrap() {
            Answer::Result { .. } => "result",
            Answer::Input { .. } => "asked",
            Answer::Error(e) => e.kind.word(),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_used_up_its_own_keeps_nobody_out() {
    let w = World::new();
    for second in 0..15 {
        assert_eq!(w.call("ann", 100 + second, 0, &[]).await, "unavailable");
        assert_eq!(w.call("bob", 1, 9, &[]).await, "unavailable");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // Whoever polls comes first each time, and is told what is in its way.
    for n in 0..3 {
        assert_eq!(w.call("ann", 200 + n, 0, &[]).await, "denied");
    }
    assert!(w.breaker.is_open());
    assert_eq!((w.call("bob", 1, 9, &[]).await, w.breaker.is_open()), ("result", false));
    assert_eq!(w.tool.1.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_yes_keeps_nobody_out() {
    let w = World::new();
    tokio::time::sleep(PAUSE.duration()).await;
    let ask = Ask { key: "approval".into(), kind: InputKind::Approval, request: b"POST /refunds?".to_vec() };
    for n in 0..3 {
        assert_eq!(w.call("ann", n, 9, std::slice::from_ref(&ask)).await, "asked");
    }
    assert_eq!((w.call("bob", 1, 9, &[]).await, w.breaker.is_open()), ("result", false));
}
