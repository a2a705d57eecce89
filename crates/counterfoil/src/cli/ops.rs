//! `ops`: operations, their attempts, effects and deliveries; and the decisions that only a person can take.

use super::fail::{Done, Fail, IN_DOUBT, REFUSED, UNAVAILABLE};
use super::ops_show;
use super::out::Out;
use super::place::{Place, Session, encode};
use crate::run::Use;
use gateway::view::OperationView;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List operations, newest first
    List(List),
    /// Show one operation with its requests, receipts and result
    Show(One),
    /// Follow operations as they change (one, or all)
    Watch(Watch),
    /// Decide an operation in doubt: say what happened
    Resolve(Resolve),
    /// Ask the provider again about one in doubt, or let one go on now
    Retry(Act),
    /// Cancel an operation: final before anything was sent, a request to stop after
    Cancel(Act),
    /// Say yes to what waits for it: exactly what `ops show` shows is done, once
    Approve(Act),
    /// Say no to what waits for a yes: nothing of it is done, for good
    Deny(Act),
    /// Let new operations in again after a restore from a backup, once nothing is open
    Release(Release),
}

#[derive(Debug, clap::Args)]
pub(super) struct Release {
    #[command(flatten)]
    place: Place,
    /// Who decides
    #[arg(long, value_name = "NAME")]
    by: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct Filter {
    /// Only in this state: accepted, running, input_required, completed, failed, cancelled, in_doubt
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only in this delivery state: not_ready, ready, undelivered, written, acknowledged
    #[arg(long, value_name = "STATE")]
    delivery: Option<String>,
    /// Only of this tool (canonical id)
    #[arg(long, value_name = "ID")]
    tool: Option<String>,
    /// Only of this principal
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(super) struct List {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    filter: Filter,
    /// Only those older than this operation, for the next page
    #[arg(long, value_name = "ID")]
    before: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 20)]
    limit: usize,
}

#[derive(Debug, clap::Args)]
pub(super) struct One {
    #[command(flatten)]
    place: Place,
    /// The operation (op_…)
    id: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct Watch {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    filter: Filter,
    /// One operation: ends when it has ended or waits for a decision
    id: Option<String>,
    /// End after this long (for example 30s)
    #[arg(long = "for", value_name = "TIME", value_parser = super::sandbox::time)]
    most: Option<Duration>,
}

#[derive(Debug, clap::Args)]
#[group(id = "verdict", required = true, multiple = false)]
pub(super) struct Verdict {
    /// It happened: the operation completes
    #[arg(long)]
    applied: bool,
    /// It did not happen and will not: the operation fails, and may be called again
    #[arg(long)]
    not_applied: bool,
    /// Send the recorded request once more, whatever may follow
    #[arg(long)]
    send_again: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct Resolve {
    #[command(flatten)]
    place: Place,
    /// The operation (op_…)
    id: String,
    #[command(flatten)]
    verdict: Verdict,
    /// What the provider shows of it, as JSON: kept as its receipt
    #[arg(long, value_name = "JSON", requires = "applied")]
    receipt: Option<String>,
    /// Who decides: recorded
    #[arg(long, value_name = "NAME")]
    by: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct Act {
    #[command(flatten)]
    place: Place,
    /// The operation (op_…)
    id: String,
    /// Who asks: recorded [default: the user's name]
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true, default_value = "operator")]
    by: String,
}

pub(super) async fn run(command: Command, out: &Out) -> Done {
    match command {
        Command::List(args) => list(args, out).await,
        Command::Show(args) => show(args, out).await,
        Command::Watch(args) => watch(args, out).await,
        Command::Resolve(args) => resolve(args, out).await,
        Command::Retry(args) => act(args, "retry", out).await,
        Command::Cancel(args) => act(args, "cancel", out).await,
        Command::Approve(args) => act(args, "approve", out).await,
        Command::Deny(args) => act(args, "deny", out).await,
        Command::Release(args) => release(args, out).await,
    }
}

fn query(f: &Filter, before: Option<&str>, limit: usize) -> String {
    let mut q = format!("/v1/ops?limit={limit}");
    let given =
        [("state", &f.state), ("delivery", &f.delivery), ("tool", &f.tool), ("principal", &f.principal)];
    for (name, value) in given {
        if let Some(v) = value {
            q.push_str(&format!("&{name}={}", encode(v)));
        }
    }
    if let Some(b) = before {
        q.push_str(&format!("&before={}", encode(b)));
    }
    q
}

fn views(answer: &Value) -> Result<Vec<OperationView>, Fail> {
    serde_json::from_value(answer["operations"].clone()).map_err(|e| {
        Fail::unavailable(format!(
            "the answer can't be read ({e}); is the running process of another version?"
        ))
    })
}

async fn list(args: List, out: &Out) -> Done {
    let session = args.place.open(Use::Read).await?;
    let answer = session.get(&query(&args.filter, args.before.as_deref(), args.limit)).await;
    session.close().await?;
    let answer = answer?;
    out.document(&answer);
    let ops = views(&answer)?;
    if ops.is_empty() {
        out.say("no operations");
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = ops.iter().map(ops_show::row).collect();
    out.table(&ops_show::HEAD, &rows);
    if ops.len() == args.limit
        && let Some(last) = ops.last()
    {
        out.say(out.dim(&format!("more with --before {}", last.id)));
    }
    Ok(0)
}

async fn show(args: One, out: &Out) -> Done {
    let session = args.place.open(Use::Read).await?;
    let answer = session.get(&format!("/v1/ops/{}", encode(&args.id))).await;
    session.close().await?;
    let answer = answer?;
    out.document(&answer);
    if !out.is_json() {
        let op: OperationView = serde_json::from_value(answer)
            .map_err(|e| Fail::unavailable(format!("the answer can't be read ({e})")))?;
        ops_show::whole(out, &op);
    }
    Ok(0)
}

/// Polls: what is watched may belong to another process, and the ledger is the only truth.
async fn watch(args: Watch, out: &Out) -> Done {
    const PAUSE: Duration = Duration::from_millis(300);
    let session = args.place.open(Use::Read).await?;
    let begun = std::time::Instant::now();
    let mut seen: HashMap<String, String> = HashMap::new();
    let mut last = None;
    let over = |begun: std::time::Instant| args.most.is_some_and(|m| begun.elapsed() >= m);
    let done = loop {
        let ops = match one_round(&session, &args).await {
            Ok(ops) => ops,
            Err(e) => break Err(e),
        };
        for op in ops.iter().rev() {
            let now = format!(
                "{} {} {} {} {}",
                op.state,
                op.waits_for.as_deref().unwrap_or_default(),
                op.attempt,
                op.delivery,
                op.effects.iter().map(|e| format!("{}{}", e.state, e.sends)).collect::<String>()
            );
            if seen.insert(op.id.clone(), now.clone()).is_none_or(|before| before != now) {
                if out.is_json() {
                    last = Some(json!(op));
                } else {
                    out.say(ops_show::line(out, op));
                }
            }
        }
        if args.id.is_some()
            && let Some(op) = ops.first()
        {
            let code = match op.state.as_str() {
                "completed" if op.is_error => Some(REFUSED),
                "completed" => Some(0),
                "failed" | "cancelled" => Some(REFUSED),
                "in_doubt" | "input_required" => Some(IN_DOUBT),
                _ => None,
            };
            if let Some(code) = code {
                break Ok(code);
            }
        }
        if over(begun) {
            break Ok(if args.id.is_some() { UNAVAILABLE } else { 0 });
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            _ = tokio::signal::ctrl_c() => break Ok(0),
        }
    };
    session.close().await?;
    if let Some(last) = last {
        out.document(&last);
    }
    done
}

async fn one_round(session: &Session, args: &Watch) -> Result<Vec<OperationView>, Fail> {
    match &args.id {
        Some(id) => {
            let answer = session.get(&format!("/v1/ops/{}", encode(id))).await?;
            views(&json!({ "operations": [answer] }))
        }
        None => views(&session.get(&query(&args.filter, None, 50)).await?),
    }
}

async fn resolve(args: Resolve, out: &Out) -> Done {
    let v = &args.verdict;
    let verdict = if v.applied {
        "applied"
    } else if v.not_applied {
        "not_applied"
    } else {
        "send_again"
    };
    let receipt: Option<Value> = match &args.receipt {
        None => None,
        Some(text) => Some(
            serde_json::from_str(text).map_err(|e| Fail::usage(format!("the receipt is not JSON: {e}")))?,
        ),
    };
    let body = json!({ "by": args.by, "verdict": verdict, "receipt": receipt });
    change(&args.place, &args.id, "resolve", &body, out).await
}

async fn release(args: Release, out: &Out) -> Done {
    let session = args.place.open(Use::Work).await?;
    let answer = session.post("/v1/release", &json!({ "by": args.by })).await;
    session.close().await?;
    let answer = answer?;
    out.document(&answer);
    if !out.is_json() {
        let was_held = answer["released"] == true;
        out.say(if was_held {
            "released: new operations are opened again"
        } else {
            "it was not held: new operations are opened"
        });
    }
    Ok(0)
}

async fn act(args: Act, what: &str, out: &Out) -> Done {
    change(&args.place, &args.id, what, &json!({ "by": args.by }), out).await
}

/// Asks for a change, waits a little for what it set going, and shows where it came to.
async fn change(place: &Place, id: &str, what: &str, body: &Value, out: &Out) -> Done {
    let session = place.open(Use::Work).await?;
    let path = format!("/v1/ops/{}", encode(id));
    let changed = async {
        let mut op = session.post(&format!("{path}/{what}"), body).await?;
        for _ in 0..100 {
            if op["state"] != "running" && op["state"] != "accepted" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            op = session.get(&path).await?;
        }
        Ok::<_, Fail>(op)
    }
    .await;
    session.close().await?;
    let op = changed?;
    out.document(&op);
    if !out.is_json() {
        let view: OperationView = serde_json::from_value(op.clone())
            .map_err(|e| Fail::unavailable(format!("the answer can't be read ({e})")))?;
        out.say(ops_show::line(out, &view));
    }
    Ok(match op["state"].as_str() {
        Some("in_doubt") => IN_DOUBT,
        // It was granted and asks its client something else now.
        Some("input_required") if what != "approve" => IN_DOUBT,
        // Granting is done; what came of it may not be a success.
        Some("failed" | "cancelled") if what == "approve" => REFUSED,
        Some("completed") if what == "approve" && op["isError"] == true => REFUSED,
        Some("running" | "accepted") if what == "approve" => UNAVAILABLE,
        _ => 0,
    })
}
