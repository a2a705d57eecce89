//! Through the ledger: after a lost answer a changed account ends in doubt, with the effect counted once and nothing
//! more sent; an unchanged one gets its result.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use async_trait::async_trait;
use common::parse;
use counterfoil_provider::{ConfigCredentials, HttpExecutor, Integration};
use ledger::memory::MemoryStore;
use ledger::store::Attention;
use ledger::*;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// The first send goes out as the account was, all others as it is now.
struct Line {
    before: HttpExecutor,
    after: HttpExecutor,
    sends: AtomicUsize,
}

#[async_trait]
impl Executor for Line {
    async fn send(&self, intent: &Intent, key: &EffectKey, replay: bool, timeout: Millis) -> Sent {
        let first = self.sends.fetch_add(1, SeqCst) == 0;
        let line = if first { &self.before } else { &self.after };
        line.send(intent, key, replay, timeout).await
    }
    async fn look_up(&self, intent: &Intent, key: &EffectKey, timeout: Millis) -> Looked {
        self.after.look_up(intent, key, timeout).await
    }
}

struct Tool(Arc<Line>);

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

fn api(base: &str, auth: &str) -> Integration {
    parse(&format!(
        "name = \"p\"\naccount = \"acme\"\nbase_url = \"{base}\"\npreset = \"square\"\nexecution_policy.idempotency.mode = \"dynamic\"\n{auth}\n[execution_policy.retries]\ninitial_backoff = \"1ms\"\nmax_backoff = \"2ms\"\n[methods.m]\nhttp = \"POST /m\""
    ))
    .unwrap()
}
const AUTH: &str = "[auth]\nkind = \"bearer\"\nsecret = \"${env:K}\"";

fn executor(i: &Integration, secret: &str) -> HttpExecutor {
    let env = |_: &str| Some(secret.to_owned());
    HttpExecutor::new(Arc::new(ConfigCredentials::load_with(std::slice::from_ref(i), env).unwrap()))
}

/// What a call is answered, and how many requests arrived.
async fn ends(after: impl Fn(&str) -> (Integration, &'static str)) -> (String, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(0));
    let count = requests.clone();
    // The first request is cut off, which is the lost answer; all others are answered.
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut some = vec![0; 16 << 10];
            let _ = stream.read(&mut some).await;
            let n = {
                let mut count = count.lock().unwrap();
                *count += 1;
                *count
            };
            if n > 1 {
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
                    .await;
            }
        }
    });
    let i = api(&base, AUTH);
    let before = executor(&i, "one");
    let m = i.method("m").unwrap();
    let intent = m.intent("{}", &m.recovery(None).unwrap()).unwrap();
    let (now, secret) = after(&base);
    let line = Line { before, after: executor(&now, secret), sends: AtomicUsize::new(0) };

    let env = Arc::new(SystemEnv);
    let store = Arc::new(MemoryStore::new(env.clone(), Time(1_000_000), Attention::default()));
    let ledger = Ledger::new(store, env, Settings::default(), Arc::new(Silent));
    ledger.set_runner(Arc::new(Tool(Arc::new(line))));
    let call = Call {
        scope: Scope { principal: "u".into(), tool: "p.m".into(), mode: "sandbox".into() },
        fingerprint: Fingerprint::of("p.m", &canonical::canonicalise_arguments(Some("{}"), None).unwrap()),
        key: Some(CallerKey { key: Key::new("k").unwrap(), carrier: Carrier::Program }),
        unkeyed: Unkeyed::Guard,
        guard_window: Millis::secs(300),
        wait: Millis(10_000),
        named: None,
        answers: Vec::new(),
        lease_of_caller: Millis(0),
        hears_progress: false,
    };
    let policy = OperationPolicy::default();
    let creation = Creation {
        policy,
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
    let requests = *requests.lock().unwrap();
    (word, requests)
}

#[tokio::test]
async fn only_the_same_account_at_the_same_place_gets_a_replay() {
    assert_eq!(ends(|base| (api(base, AUTH), "one")).await, ("result".into(), 2));
    assert_eq!(ends(|base| (api(base, AUTH), "two")).await, ("in_doubt".into(), 1));
    assert_eq!(ends(|base| (api(&format!("{base}/eu"), AUTH), "one")).await, ("in_doubt".into(), 1));
    assert_eq!(ends(|base| (api(base, ""), "one")).await, ("in_doubt".into(), 1));
}
