//! `serve --stdio`: lines in, messages out, and an end of input at a chosen moment.

use crate::process::binary;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long an answer is waited for before the input ends without it.
const PATIENCE: Duration = Duration::from_secs(20);

/// When the input ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// So long after the last line.
    After(Duration),
    /// When a request with this id has its answer.
    Answered(u64),
    /// When anything is answered with an error.
    Refused,
}

impl End {
    fn is_here(self, said: &Value) -> bool {
        match self {
            End::After(_) => false,
            End::Answered(id) => said["id"] == id,
            End::Refused => said.get("error").or(said[0].get("error")).is_some(),
        }
    }
}

/// What a process on a ledger's folder says to some lines, until it ends by itself because its input did.
///
/// # Errors
/// It says something that is no message, or does not end well within a minute; holds what it said on standard error.
pub fn talk(folder: &Path, data: &Path, lines: &[String], end: End) -> Result<Vec<Value>> {
    let log = folder.join("stdio.log");
    // Whatever happens, it is over in a minute.
    let mut command = Command::new("timeout");
    command.arg("60").arg(binary()?).args(["serve", "--stdio", "--data"]).arg(data).current_dir(folder);
    command.env("NO_COLOR", "1").env_remove("COUNTERFOIL_FAILPOINT").env_remove("RUST_LOG");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log)?);
    let mut child = command.spawn()?;
    let mut input = child.stdin.take().context("no standard input")?;
    let output = child.stdout.take().context("no standard output")?;
    let text = lines.join("\n") + "\n";
    let (go_on, waiting) = mpsc::channel();
    // It may answer while it is still being written to.
    let writing = thread::spawn(move || {
        input.write_all(text.as_bytes())?;
        input.flush()?;
        let _ = waiting.recv_timeout(match end {
            End::After(pause) => pause,
            End::Answered(_) | End::Refused => PATIENCE,
        });
        Ok::<(), std::io::Error>(())
    });
    let mut all = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line?;
        let said = serde_json::from_str(&line).with_context(|| format!("no message: {line}"))?;
        if end.is_here(&said) {
            let _ = go_on.send(());
        }
        all.push(said);
    }
    let wrote = writing.join();
    let ended = child.wait()?;
    let said = std::fs::read_to_string(&log)?;
    ensure!(ended.success() && matches!(wrote, Ok(Ok(()))), "{ended}, {wrote:?}\n{said}");
    Ok(all)
}
