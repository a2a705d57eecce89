//! Has requests of imported methods judged by Prism: `prism [--seed N] [--only NAME]`, closing with `N passed, M failed`.

use anyhow::{Result, ensure};
use clap::Parser;
use counterfoil_tests::prism::{PROVIDERS, run};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

#[derive(Parser)]
#[command(name = "prism", about = "Have the requests of imported methods judged by an independent validator")]
struct Cli {
    /// Which methods are called, and with what.
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Only the provider of this name.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let chosen: Vec<_> = PROVIDERS.iter().filter(|p| cli.only.as_ref().is_none_or(|o| o == p.name)).collect();
    ensure!(!chosen.is_empty(), "there is no such provider");
    let begun = Instant::now();
    let (next, done) = (Mutex::new(chosen.iter()), Mutex::new((0, 0)));
    // Two at once: while one reads its description the other answers.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(provider) = next.lock().ok().and_then(|mut n| n.next()) {
                    let judged = run(provider, cli.seed);
                    let Ok(mut counts) = done.lock() else { return };
                    let (passed, failed) = match judged {
                        Ok(judged) => {
                            println!("{}", judged.lines(provider));
                            judged.counts()
                        }
                        Err(e) => {
                            println!("{}: FAILED: {e:#}", provider.name);
                            (0, 1)
                        }
                    };
                    *counts = (counts.0 + passed, counts.1 + failed);
                }
            });
        }
    });
    let (passed, failed) = done.into_inner().unwrap_or((0, 1));
    println!("requests judged with seed {} in {:.0} s", cli.seed, begun.elapsed().as_secs_f64());
    println!("{passed} passed, {failed} failed");
    Ok(ExitCode::from(u8::from(failed > 0)))
}
