//! `backup`: a copy of the ledger while it is in use, or how its database makes one.

use super::fail::{Done, Fail, USAGE};
use super::out::Out;
use super::place::Place;
use crate::config::{Config, Postgres, show_size};
use crate::run::Use;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// The new file (SQLite); nothing is overwritten. Without it, a ledger in PostgreSQL is checked for what its backups need
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(super) async fn run(args: Args, out: &Out) -> Done {
    let config = args.place.load()?;
    match (config.ledger.postgres(), &args.file) {
        (Some(place), None) => postgres(&args, place, out).await,
        (Some(place), Some(_)) => Err(Fail::usage(format!(
            "nothing was copied: the ledger is in PostgreSQL, which makes its own backups. Run `{}`, or keep base backups and the log for a restore to a point in time; `counterfoil backup` without FILE checks what they need",
            dump(place)
        ))),
        (None, None) => Err(Fail::usage("name the new file: counterfoil backup FILE")),
        (None, Some(file)) => sqlite(&args, &config, file, out).await,
    }
}

async fn sqlite(args: &Args, config: &Config, file: &Path, out: &Out) -> Done {
    let wrong = |why: &str| Fail::usage(format!("{} can't be the new file: {why}", file.display()));
    // The process that holds the ledger makes the copy, wherever it was started.
    let to = std::path::absolute(file).map_err(|e| wrong(&e.to_string()))?;
    let to = to.to_str().ok_or_else(|| wrong("its name is not UTF-8"))?;
    let session = args.place.open(Use::Read).await?;
    let answer = session.post("/v1/backup", &json!({ "to": to })).await;
    session.close().await?;
    let answer = answer?;
    let (bytes, at) = (answer["bytes"].as_u64().unwrap_or(0), answer["at"].as_str().unwrap_or("?"));
    let key = master_file(config);
    out.document(&json!({ "file": to, "bytes": bytes, "at": at, "masterKey": key }));
    out.say(format!("copied to {to}: {}, as of {at}", show_size(bytes)));
    if let Some(key) = &key {
        out.say(format!(
            "Keep {} too, at another place: the copy's key ring opens with it only.",
            key.display()
        ));
    }
    out.say(out.dim(
        "restored, it opens no new operation until `counterfoil ops release`: what was called since is unknown to it",
    ));
    Ok(0)
}

/// Where the master key is, if it is a file of the ledger's own.
fn master_file(config: &Config) -> Option<PathBuf> {
    let file = config.ledger.directory().join(seal::FILE);
    (config.seal.master.is_none() && file.exists()).then_some(file)
}

/// A logical copy, without the password.
fn dump(place: &Postgres) -> String {
    format!("pg_dump --format=custom --schema={} --file=ledger.dump '{}'", place.schema, place.url.shown())
}

async fn postgres(args: &Args, place: &Postgres, out: &Out) -> Done {
    let session = args.place.open(Use::Read).await?;
    let told = session.get("/v1/replicas").await;
    session.close().await?;
    let told = told?;
    let checks = told["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let wanted = ["server_version", "wal_level", "archive_mode", "fsync", "full_page_writes"];
    let checks: Vec<&Value> = checks.iter().filter(|c| wanted.iter().any(|w| c["what"] == *w)).collect();
    // What only a restore to a point in time needs is a warning.
    let fit = checks.iter().all(|c| c["level"] != "error");
    out.document(&json!({ "copied": false, "command": dump(place), "checks": checks, "fit": fit }));
    out.say("Nothing was copied: PostgreSQL makes its own backups.");
    out.say("");
    out.say("A copy of this ledger at one moment (user and password as for the ledger):");
    out.say(format!("  {}", dump(place)));
    out.say("Everything up to a point in time (the whole server; needs an archive of its log):");
    out.say("  pg_basebackup --pgdata=DIR --wal-method=stream --checkpoint=fast, and archive_command");
    out.say("");
    for c in &checks {
        let (what, found) = (c["what"].as_str().unwrap_or("?"), c["found"].as_str().unwrap_or("?"));
        let word = match c["level"].as_str() {
            Some("ok") => out.good("ok     "),
            Some("warning") => out.bold("warning"),
            _ => out.bad("error  "),
        };
        out.say(format!("{word}  {what} = {found}"));
        if let Some(mend) = c["mend"].as_str().filter(|m| !m.is_empty()) {
            out.say(format!("         {}", out.dim(mend)));
        }
    }
    out.say("");
    out.say("Restored, say so once: `counterfoil serve --restored`. It opens no new operation until `counterfoil ops release`.");
    Ok(if fit { 0 } else { USAGE })
}
