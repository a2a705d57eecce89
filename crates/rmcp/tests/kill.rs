//! A server over stdio is killed while its tool is at the provider, and started again.
//!
//! The server is this program itself, as the example `charge`: so it has a `main` of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[allow(dead_code)]
#[path = "../examples/charge.rs"]
mod charge;

use rmcp::RoleClient;
use rmcp::model::{CallToolRequest, CallToolRequestParams, CallToolResult, RequestMetaObject, ServerResult};
use rmcp::service::{PeerRequestOptions, RunningService, ServiceError, ServiceExt};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

struct Shop {
    child: Child,
    client: RunningService<RoleClient, ()>,
}

/// Set in the environment of a server.
const SERVES: &str = "COUNTERFOIL_RMCP_TEST_SERVES";

impl Shop {
    async fn open(folder: &Path, options: &[&str]) -> Shop {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(SERVES, "1")
            .arg(folder)
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let pipes = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
        let client = ().serve(pipes).await.unwrap();
        Shop { child, client }
    }

    async fn charge(&self, key: Option<&str>) -> Result<CallToolResult, ServiceError> {
        let Value::Object(arguments) = json!({ "amount": 500 }) else { unreachable!() };
        let mut meta = RequestMetaObject::new();
        if let Some(key) = key {
            meta.insert("dev.counterfoil/idempotency-key".into(), key.into());
        }
        let request = CallToolRequest::new(CallToolRequestParams::new("charge").with_arguments(arguments));
        let options = PeerRequestOptions::no_options().with_meta(meta);
        let handle = self.client.send_request_with_option(request.into(), options).await?;
        match handle.await_response().await? {
            ServerResult::CallToolResult(result) => Ok(result),
            other => panic!("{other:?}"),
        }
    }

    /// Kills it with SIGKILL as soon as the provider was asked, the answer still to come.
    async fn killed_at_the_provider(mut self, folder: &Path, key: Option<&str>) {
        let kill = async {
            let begun = Instant::now();
            while charges(folder) == 0 {
                assert!(begun.elapsed() < Duration::from_secs(20), "the provider was never asked");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            answer = self.charge(key) => panic!("it was not to answer: {answer:?}"),
            () = kill => {}
        }
        self.child.start_kill().unwrap();
        self.child.wait().await.unwrap();
    }

    async fn close(mut self) {
        self.client.close().await.unwrap();
        self.child.wait().await.unwrap();
    }
}

/// Charges that really happened.
fn charges(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("till")).map_or(0, Iterator::count)
}

/// Requests that reached the provider, by key.
fn asked(folder: &Path) -> Vec<String> {
    std::fs::read_to_string(folder.join("asked.txt")).unwrap().lines().map(str::to_owned).collect()
}

fn meta<'a>(result: &'a CallToolResult, name: &str) -> &'a Value {
    result.meta.as_ref().and_then(|m| m.get(name)).unwrap_or_else(|| panic!("no {name}: {result:?}"))
}

const SLOW: [&str; 2] = ["--answer-after", "60000"];

async fn with_nothing_known_of_it_a_killed_call_is_in_doubt_and_never_made_again() {
    for key in [Some("k-1"), None] {
        let folder = tempfile::tempdir().unwrap();
        let first = Shop::open(folder.path(), &[&SLOW[..], &["--no-recovery"]].concat()).await;
        first.killed_at_the_provider(folder.path(), key).await;
        let second = Shop::open(folder.path(), &["--no-recovery"]).await;
        for _ in 0..2 {
            let told = second.charge(key).await.unwrap();
            assert_eq!(told.is_error, Some(true));
            assert_eq!(meta(&told, "dev.counterfoil/error")["kind"], "in_doubt", "{told:?}");
        }
        second.close().await;
        assert_eq!((charges(folder.path()), asked(folder.path()).len()), (1, 1));
    }
}

async fn with_a_key_at_the_provider_a_killed_call_happens_once_and_has_its_result() {
    for key in [Some("k-1"), None] {
        let folder = tempfile::tempdir().unwrap();
        let first = Shop::open(folder.path(), &SLOW).await;
        first.killed_at_the_provider(folder.path(), key).await;
        let second = Shop::open(folder.path(), &[]).await;
        let result = second.charge(key).await.unwrap();
        let again =
            second.charge(Some(meta(&result, "dev.counterfoil/operation")["id"].as_str().unwrap())).await;
        second.close().await;
        let asked = asked(folder.path());
        assert_eq!(charges(folder.path()), 1);
        assert_eq!(asked.len(), 2, "{asked:?}");
        assert_eq!(asked[0], asked[1]);
        let text = result.content[0].as_text().unwrap();
        assert_eq!(text.text, format!("ch_{} 500", asked[0]));
        assert_eq!(again.unwrap().content, result.content);
    }
}

async fn recovery_needs_no_further_call() {
    let folder = tempfile::tempdir().unwrap();
    let first = Shop::open(folder.path(), &SLOW).await;
    first.killed_at_the_provider(folder.path(), Some("k-1")).await;
    let second = Shop::open(folder.path(), &[]).await;
    let begun = Instant::now();
    while asked(folder.path()).len() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing took it up");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let result = second.charge(Some("k-1")).await.unwrap();
    // It found what recovery had taken up, and was not the one to begin it.
    assert_eq!(meta(&result, "dev.counterfoil/operation")["joinedBy"], "key");
    second.close().await;
    assert_eq!((charges(folder.path()), asked(folder.path()).len()), (1, 2));
}

fn main() {
    if std::env::var_os(SERVES).is_some() {
        charge::main().unwrap();
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // A failed one panics, which ends the program with an error.
    runtime.block_on(async {
        with_nothing_known_of_it_a_killed_call_is_in_doubt_and_never_made_again().await;
        with_a_key_at_the_provider_a_killed_call_happens_once_and_has_its_result().await;
        recovery_needs_no_further_call().await;
    });
    println!("killed and recovered: ok");
}
