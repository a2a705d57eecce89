//! What this project does with the state of one round, alone on one core: the arguments' fingerprint is taken, what came
//! back is opened for exactly this request, and the next is sealed.
//!
//! usage: `seal_rate SECONDS STATE ARGUMENTS`. Prints `{"per_second": …}`.

use anyhow::{Context as _, Result, bail, ensure};
use ledger::canonical::canonicalise_arguments;
use ledger::{Fingerprint, Millis, SystemEnv};
use ledger_sqlite::{Config, SqliteStore};
use seal::{Keeper, MasterKey, MasterPlace, OnLedger, Settings};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rounds between two looks at the clock.
const STEP: u32 = 100;
const TOOL: &str = "orders.refund";

async fn round(keeper: &Keeper, token: Option<&str>, state: &str, arguments: &str) -> Result<String> {
    let fingerprint = Fingerprint::of(TOOL, &canonicalise_arguments(Some(arguments), None)?).digest;
    let context = keeper.context("state", "ann", "tools/call", TOOL, &fingerprint);
    if let Some(token) = token {
        ensure!(
            keeper.open(token, &context).await? == state.as_bytes(),
            "the state came back as something else"
        );
    }
    Ok(keeper.seal(state.as_bytes(), &context, None).await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [seconds, state, arguments] = &args[..] else { bail!("usage: seal_rate SECONDS STATE ARGUMENTS") };
    let lasting = Duration::from_secs_f64(seconds.parse::<f64>().context("SECONDS")?.clamp(0.1, 60.0));
    let folder = tempfile::tempdir()?;
    let config = Config { ballast: 0, ..Config::new(folder.path().join("ledger.db"), "bench") };
    let store = SqliteStore::open(config, Arc::new(SystemEnv), Arc::new(|why| eprintln!("{why}")))?;
    let settings = Settings { audience: "bench".into(), state_ttl: Millis::secs(600), alone: true };
    let place = MasterPlace::Given(MasterKey::new()?);
    let keeper = Keeper::start(Arc::new(OnLedger(store.clone())), place, settings).await?;
    let mut token = round(&keeper, None, state, arguments).await?;
    let (mut done, began) = (0_u32, Instant::now());
    while began.elapsed() < lasting {
        for _ in 0..STEP {
            token = round(&keeper, Some(&token), state, arguments).await?;
        }
        done += STEP;
    }
    let took = began.elapsed().as_secs_f64();
    store.close().await?;
    println!("{}", serde_json::json!({ "per_second": f64::from(done) / took }));
    Ok(())
}
