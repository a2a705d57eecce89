//! A deployment that a person says yes to, and that is a task where the client knows tasks.
//!
//! `cargo run -p counterfoil --example deployment` serves it at <http://127.0.0.1:8600/mcp>, with its ledger in `.deployment/` and
//! the machines as files beside it.
//!
//! A client that can ask its user shows what is asked; of any other the call waits for `counterfoil ops approve`. What
//! takes longer than two seconds becomes a task, if the client knows tasks; else the call waits. A server that is killed in
//! between goes on where it was: a machine that has the release is not touched again.

use counterfoil::config::Config;
use counterfoil::native::{
    Attempt, CallResult, Context, Native, NoArguments, Step, StepError, Tool, ToolError,
};
use counterfoil::run::Server;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

/// The machines of the demonstration.
const MACHINES: [&str; 3] = ["north", "south", "west"];

/// Where releases go. In earnest these are machines; here each is a file that holds its release.
pub struct Fleet {
    folder: PathBuf,
    /// How long one machine takes.
    pub takes: Duration,
}

impl Fleet {
    /// In this folder.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(folder: &Path) -> io::Result<Fleet> {
        fs::create_dir_all(folder)?;
        Ok(Fleet { folder: folder.to_owned(), takes: Duration::from_secs(2) })
    }

    /// Sets the release of a machine. Doing it again changes nothing.
    async fn set(&self, machine: &str, release: &str) -> Result<(), StepError> {
        tokio::time::sleep(self.takes).await;
        let file = self.folder.join(machine);
        fs::write(file, release).map_err(|e| StepError::Unknown(format!("{machine}: {}", e.kind())))
    }

    /// What each has.
    pub fn releases(&self) -> Vec<(&'static str, String)> {
        let read = |m| fs::read_to_string(self.folder.join(m)).unwrap_or_else(|_| "nothing".into());
        MACHINES.into_iter().map(|m| (m, read(m))).collect()
    }
}

#[derive(Deserialize, JsonSchema)]
struct Deploy {
    /// The release, for example 2.4.1.
    #[schemars(regex(pattern = r"^[0-9A-Za-z.-]{1,40}$"))]
    release: String,
}

async fn deploy(attempt: Attempt, fleet: Arc<Fleet>, asked: Deploy) -> Result<CallResult, ToolError> {
    let all = MACHINES.len() as f64;
    for (n, machine) in MACHINES.into_iter().enumerate() {
        attempt.progress(n as f64, Some(all), format!("{machine} gets {}", asked.release));
        let (to, release) = (fleet.clone(), asked.release.clone());
        let given = json!({ "machine": machine, "release": asked.release });
        // One effect for each machine, told apart by its name.
        attempt
            .effect(("set", machine), Step::natural().timeout(Duration::from_secs(60)), &given, move |_| {
                let (to, release) = (to.clone(), release.clone());
                async move { to.set(machine, &release).await }
            })
            .await?;
    }
    attempt.progress(all, Some(all), "done");
    CallResult::structured(&json!({ "release": asked.release, "machines": MACHINES }))
}

/// What the server offers.
pub fn native(fleet: Arc<Fleet>) -> Native {
    let seen = fleet.clone();
    Native::new()
        .tool(
            Tool::changing(
                "deployment.start",
                "Puts a release on every machine",
                [""; 0],
                move |attempt, asked: Deploy| deploy(attempt, fleet.clone(), asked),
            )
            .approval()
            .key_from(["release"])
            .timeout(Duration::from_secs(300))
            .task_after(Duration::from_secs(2)),
        )
        .tool(Tool::reading(
            "deployment.show",
            "Tells which machine has which release",
            move |_: Context, _: NoArguments| {
                let all = seen.releases();
                async move { Ok(all.into_iter().map(|(m, r)| format!("{m}: {r}")).collect::<Vec<_>>().join("\n")) }
            },
        ))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(".deployment");
    let fleet = Arc::new(Fleet::open(&folder.join("fleet"))?);
    let running = Server::start_with(Config::native("deployment", folder), native(fleet)).await?;
    println!("{}", running.endpoint());
    tokio::signal::ctrl_c().await?;
    running.shutdown().await?;
    Ok(())
}
