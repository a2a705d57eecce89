//! `counterfoil auth`: credentials that principals gave of their own. Never the credential.

use super::fail::Done;
use super::out::Out;
use super::place::Place;
use crate::run::Use;
use clap::Subcommand;
use serde_json::{Value, json};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Show who has given which credential, and since when
    Status(Status),
    /// Forget a principal's credential: its next call asks for one again
    Forget(Forget),
}

#[derive(Debug, clap::Args)]
pub(super) struct Status {
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
pub(super) struct Forget {
    #[command(flatten)]
    place: Place,
    /// The account: the integration's name, unless its manifest says another
    #[arg(value_name = "NAME")]
    account: String,
    /// Whose
    #[arg(long, value_name = "NAME")]
    principal: String,
}

pub(super) async fn run(command: Command, out: &Out) -> Done {
    match command {
        Command::Status(args) => {
            let session = args.place.open(Use::Read).await?;
            let answer = session.get("/v1/credentials").await;
            session.close().await?;
            show(&answer?, out);
        }
        Command::Forget(args) => {
            let session = args.place.open(Use::Write).await?;
            let body = json!({ "account": args.account, "principal": args.principal });
            let answer = session.post("/v1/credentials/forget", &body).await;
            session.close().await?;
            let answer = answer?;
            out.document(&answer);
            out.say(if answer["forgotten"] == true {
                "forgotten; withdraw it at the provider, too, if others may know it"
            } else {
                "there was none"
            });
        }
    }
    Ok(0)
}

fn show(answer: &Value, out: &Out) {
    out.document(answer);
    let all = answer["credentials"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |c: &Value| {
        ["account", "mode", "origin", "principal", "since"]
            .map(|name| c[name].as_str().unwrap_or("-").to_owned())
            .to_vec()
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    out.table(&["ACCOUNT", "MODE", "SENT TO", "PRINCIPAL", "SINCE"], &rows);
}
