//! `keys`: the ring that seals what clients carry. No key is ever shown.

use super::fail::{Done, Fail};
use super::out::Out;
use super::place::Place;
use crate::config::named_master;
use crate::run::Use;
use serde_json::{Value, json};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List the keys and what each is good for now; never their values
    List(Plain),
    /// Make a new key: it seals as soon as all replicas know it, and the old one opens until its last token has ended
    Rotate(Rotate),
    /// Let another master key open the ring too, so that replicas can go over to it one by one
    Allow(Allow),
    /// Let a master key open the ring no longer
    Forbid(Forbid),
    /// Give the ring the configured server name, before all replicas are started under it
    Rename(Plain),
    /// Make a new ring in place of one that can't be opened; refused while it can
    Reset(Plain),
}

#[derive(Debug, clap::Args)]
pub(super) struct Plain {
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
pub(super) struct Rotate {
    #[command(flatten)]
    place: Place,
    /// At once, and let go of all other keys: what was sealed before is refused. For a key that others know
    #[arg(long)]
    now: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct Allow {
    #[command(flatten)]
    place: Place,
    /// Where the other one is: '${env:NAME}', '${file:PATH}' or '${keyring:NAME}'
    #[arg(value_name = "MASTER")]
    master: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct Forbid {
    #[command(flatten)]
    place: Place,
    /// Its name, from `keys list`
    #[arg(value_name = "ID")]
    id: String,
}

pub(super) async fn run(command: Command, out: &Out) -> Done {
    match command {
        Command::List(args) => {
            let session = args.place.open(Use::Read).await?;
            let answer = session.get("/v1/keys").await;
            session.close().await?;
            show(&answer?, out);
            Ok(0)
        }
        Command::Rotate(args) => {
            let said = if args.now {
                "what was sealed before is refused from now on: those calls have to be made again"
            } else {
                "nothing that is in flight is refused"
            };
            change(&args.place, "rotate", &json!({ "now": args.now }), said, out).await
        }
        Command::Allow(args) => {
            let usage = |why| Fail::usage(format!("the master key: {why}"));
            let text = named_master(&args.master).map_err(usage)?;
            let said = "both master keys open the ring; go over to the new one, then forbid the old one";
            change(&args.place, "allow", &json!({ "master": text }), said, out).await
        }
        Command::Forbid(args) => {
            let said = "it opens the ring no longer; if others know it, `keys rotate --now` too, because a copy of the ledger may hold the keys as they are";
            change(&args.place, "forbid", &json!({ "id": args.id }), said, out).await
        }
        Command::Rename(args) => {
            change(&args.place, "rename", &json!({}), "start all replicas under this name", out).await
        }
        Command::Reset(args) => {
            let said = "a new ring: calls that waited for an answer have to be made again";
            change(&args.place, "reset", &json!({}), said, out).await
        }
    }
}

async fn change(place: &Place, change: &str, body: &Value, said: &str, out: &Out) -> Done {
    let session = place.open(Use::Write).await?;
    let answer = session.post(&format!("/v1/keys/{change}"), body).await;
    session.close().await?;
    show(&answer?, out);
    out.say(out.dim(said));
    Ok(0)
}

fn show(answer: &Value, out: &Out) {
    out.document(answer);
    let text = |v: &Value| v.as_str().unwrap_or("-").to_owned();
    let keys = answer["keys"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |k: &Value| {
        vec![
            text(&k["id"]),
            text(&k["stage"]),
            text(&k["madeAt"]),
            text(&k["sealsFrom"]),
            text(&k["opensUntil"]),
        ]
    };
    let rows: Vec<Vec<String>> = keys.iter().map(row).collect();
    out.table(&["KEY", "STAGE", "MADE", "SEALS FROM", "OPENS UNTIL"], &rows);
    let masters = answer["masters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let masters: Vec<String> = masters.iter().map(text).collect();
    out.say(out.dim(&format!(
        "for the server name {}; opened by the master key {} ({} is this process's, {})",
        text(&answer["serverName"]),
        masters.join(" or "),
        text(&answer["master"]),
        text(&answer["masterFrom"]),
    )));
}
