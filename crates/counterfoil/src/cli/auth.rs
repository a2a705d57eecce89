//! `counterfoil auth`: the credentials of this user, kept encrypted outside the project, and those that principals gave of
//! their own. Never the credential.

use super::auth_connect::{self, Connect};
use super::auth_forget::{self, Forget};
use super::auth_status;
use super::fail::{Done, Fail, USAGE};
use super::out::Out;
use super::place::Place;
use crate::run::credentials as kept;
use clap::Subcommand;
use credentials::KeyAt;
use serde_json::json;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Give the credential of an integration: it is kept encrypted, outside the project
    Connect(Connect),
    /// Show what is connected and how long it is valid, and which principals have given a credential of their own
    Status(Status),
    /// Forget a credential
    Forget(Forget),
    /// Encrypt what is kept under a new key
    Key(Key),
}

#[derive(Debug, clap::Args)]
pub(super) struct Status {
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
pub(super) struct Key {
    /// In the session's keyring
    #[arg(long, conflicts_with = "file", required_unless_present = "file")]
    keyring: bool,
    /// In a file beside the store (0600)
    #[arg(long)]
    file: bool,
}

pub(super) async fn run(command: Command, out: &Out) -> Done {
    match command {
        Command::Connect(args) => auth_connect::run(args, out).await,
        Command::Status(args) => auth_status::run(&args.place, out).await,
        Command::Forget(args) => auth_forget::run(&args, out).await,
        Command::Key(args) => key(&args, out),
    }
}

fn key(args: &Key, out: &Out) -> Done {
    let at = if args.keyring { KeyAt::Keyring } else { KeyAt::File };
    let store = kept::store().map_err(Fail::from)?;
    let Some(listing) = store.rekey(at).map_err(Fail::from)? else {
        return Err(Fail::usage(
            "nothing is kept yet; `counterfoil auth connect NAME --keyring` makes the key there",
        ));
    };
    let shown = listing.key_at.shown(store.folder(), &listing.key_id);
    out.document(&json!({ "id": listing.key_id, "at": listing.key_at, "place": shown }));
    out.say(format!(
        "{} credentials are encrypted under {shown} now; the old key is gone",
        listing.entries.len()
    ));
    Ok(0)
}

impl From<credentials::Error> for Fail {
    fn from(e: credentials::Error) -> Fail {
        if e.is_configuration() {
            Fail { code: USAGE, kind: "credentials".into(), message: e.to_string(), detail: None }
        } else {
            Fail::unavailable(e.to_string())
        }
    }
}
