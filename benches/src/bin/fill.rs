//! Prepares ledgers, through the store and nothing else: `fill stored PATH N` makes one with N operations that ended and
//! were delivered, spread evenly over the last day and written in that order; `fill open PATH N` takes an open operation
//! that a gateway left in the ledger at PATH and opens it N times more, each with a key of its own. Prints
//! `{"operations": …}`.

use anyhow::{Context, Result, bail};
use ledger::decide::{Event, Fence, Opening, Outcome, decide, open};
use ledger::executor::Receipt;
use ledger::store::{BlobKind, Committed, Query, SlotWrite, Store, Write};
use ledger::words::{EffectKey, Epoch, Key, OperationId, Scope, Time};
use ledger::{
    DeliveryState, Env, Fingerprint, Intent, Operation, OperationPolicy, Recovery, Strategy, SystemEnv,
};
use ledger_sqlite::{Config, SqliteStore};
use std::path::Path;
use std::sync::Arc;

/// How many write at once: the writer puts what waits into one transaction.
const AT_ONCE: usize = 1024;
/// The time that what is stored lies back, milliseconds: less than any retention, and nearly all of it more than any window.
const DAY: i64 = 86_400_000;
/// The most that is made.
const MOST: usize = 2_000_000;

fn new_key(n: usize) -> Result<Key> {
    Key::new(&format!("order-{n}-{:x}", SystemEnv.random_u128())).map_err(|e| anyhow::anyhow!("{e}"))
}

/// What a creation writes of an operation that is over: about as large as a refund of the sandbox.
fn stored(epoch: Epoch, now: Time, n: usize) -> Result<Write> {
    let id = OperationId::new(now, SystemEnv.random_u128());
    let scope =
        Scope { principal: "local".into(), tool: "payments.refunds.create".into(), mode: "sandbox".into() };
    let key = new_key(n)?;
    let arguments = ledger::canonical::canonicalise_arguments(
        Some(&format!("{{\"amount\":100,\"payment\":\"pay_{}\"}}", key.as_str())),
        None,
    )?;
    let fingerprint = Fingerprint::of(&scope.tool, &arguments);
    let effect = EffectKey::derive("bench", &scope, id, Some(&key), &fingerprint, "call", "");
    let intent = Intent {
        name: "call".into(),
        discriminator: String::new(),
        recovery: Recovery::new(Strategy::Key),
        summary: "POST http://127.0.0.1/v1/refunds".into(),
        body: vec![b'x'; 400],
    };
    let opened = open(
        Opening {
            id,
            scope,
            key: Some(key),
            fingerprint,
            policy: OperationPolicy::default(),
            epoch,
            intent: Some((intent, effect)),
            arguments: None,
            asks: Vec::new(),
        },
        now,
    );
    let fence = Fence { attempt: 1, epoch };
    let outcome = Outcome::Applied(Receipt(vec![b'r'; 200]));
    let received = decide(&opened.next, Event::Receive { fence, effect: 0, outcome }, now)?;
    let close = Event::Close { fence, result: vec![b'y'; 400], is_error: false, caller_gone: false };
    let closed = decide(&received.next, close, now)?;
    let written = decide(&closed.next, Event::Deliver(DeliveryState::Written), now)?;
    Ok(Write::Create {
        operation: Box::new(Operation { version: 1, ..written.next }),
        slot: SlotWrite::CompareAndSet(None),
        blobs: [opened.blobs, received.blobs, closed.blobs].concat(),
    })
}

/// The same call again, under another key.
fn again(epoch: Epoch, now: Time, n: usize, op: &Operation, body: &[u8], name: &str) -> Result<Write> {
    let id = OperationId::new(now, SystemEnv.random_u128());
    let key = new_key(n)?;
    let effect = op.effects.first().context("an operation without an effect")?;
    let own = EffectKey::derive(
        name,
        &op.scope,
        id,
        Some(&key),
        &op.fingerprint,
        &effect.name,
        &effect.discriminator,
    );
    let intent = Intent {
        name: effect.name.clone(),
        discriminator: effect.discriminator.clone(),
        recovery: effect.recovery.clone(),
        summary: effect.summary.clone(),
        body: body.to_vec(),
    };
    let opened = open(
        Opening {
            id,
            scope: op.scope.clone(),
            key: Some(key),
            fingerprint: op.fingerprint,
            policy: op.policy.clone(),
            epoch,
            intent: Some((intent, own)),
            arguments: None,
            asks: Vec::new(),
        },
        now,
    );
    Ok(Write::Create { operation: Box::new(opened.next), slot: SlotWrite::Set, blobs: opened.blobs })
}

async fn write_all(
    store: &Arc<SqliteStore>,
    count: usize,
    make: impl Fn(usize) -> Result<Write> + Send + Sync + 'static,
) -> Result<()> {
    let make = Arc::new(make);
    let tasks: Vec<_> = (0..AT_ONCE)
        .map(|first| {
            let (store, make) = (store.clone(), make.clone());
            tokio::spawn(async move {
                for n in (first..count).step_by(AT_ONCE) {
                    if store.write(make(n)?).await? != Committed::Done {
                        bail!("a write was refused");
                    }
                }
                Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, path, count] = &args[..] else { bail!("usage: fill stored|open PATH COUNT") };
    let count = count.parse::<usize>()?.min(MOST);
    let config = Config { ballast: 0, ..Config::new(Path::new(path), "bench") };
    let store = SqliteStore::open(config, Arc::new(SystemEnv), Arc::new(|why| eprintln!("{why}")))?;
    let (epoch, now) = (store.epoch(), store.now());
    match what.as_str() {
        "stored" => {
            let at = move |n: usize| Time(now.0 - DAY + DAY * n as i64 / count.max(1) as i64);
            write_all(&store, count, move |n| stored(epoch, at(n), n)).await?;
        }
        "open" => {
            let query = Query { state: Some("running".into()), limit: 1, ..Query::default() };
            let op = store.list(&query).await?.pop().context("the ledger holds no open operation")?;
            let body = store.blob(op.id, BlobKind::Intent(0)).await?.context("its intent is missing")?;
            let name = store.identity().name.clone();
            write_all(&store, count, move |n| again(epoch, now, n, &op, &body, &name)).await?;
        }
        _ => bail!("usage: fill stored|open PATH COUNT"),
    }
    store.close().await?;
    println!("{}", serde_json::json!({ "operations": count }));
    Ok(())
}
