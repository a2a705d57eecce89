//! `counterfoil auth`: the credentials of this user, kept encrypted outside the project, and those that principals gave of
//! their own. Never the credential.

use super::auth_connect::{self, Connect};
use super::auth_status;
use super::fail::{Done, Fail, USAGE};
use super::out::Out;
use super::place::Place;
use crate::run::{Use, credentials as kept};
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
pub(super) struct Forget {
    #[command(flatten)]
    place: Place,
    /// The integration, or the account that its manifest names
    #[arg(value_name = "NAME")]
    account: String,
    /// The mode [default: the configuration's]
    #[arg(long, value_name = "MODE", conflicts_with = "principal")]
    mode: Option<provider::Mode>,
    /// Forget the one that this principal gave of its own: its next call asks for one again
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
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
        Command::Forget(args) => match &args.principal {
            Some(principal) => forget_own(&args, principal, out).await,
            None => forget(&args, out),
        },
        Command::Key(args) => key(&args, out),
    }
}

async fn forget_own(args: &Forget, principal: &str, out: &Out) -> Done {
    let session = args.place.open(Use::Write).await?;
    let body = json!({ "account": args.account, "principal": principal });
    let answer = session.post("/v1/credentials/forget", &body).await;
    session.close().await?;
    let answer = answer?;
    out.document(&answer);
    told(answer["forgotten"] == true, out);
    Ok(0)
}

fn told(forgotten: bool, out: &Out) {
    out.say(if forgotten {
        "forgotten; withdraw it at the provider, too, if others may know it"
    } else {
        "there was none"
    });
}

fn forget(args: &Forget, out: &Out) -> Done {
    let config = args.place.load()?;
    let mode = args.mode.unwrap_or(config.mode);
    // A manifest that can't be read any more must not keep a credential from being forgotten.
    let named = crate::run::load(&config, config.sandbox).ok();
    let named = named.and_then(|l| {
        l.integrations.iter().find(|i| i.name() == args.account).map(|i| i.account().to_owned())
    });
    let account = named.unwrap_or_else(|| args.account.clone());
    let gone = kept::store().and_then(|s| s.forget(&account, mode.as_str())).map_err(Fail::from)?;
    out.document(&json!({ "account": account, "mode": mode.as_str(), "forgotten": gone > 0 }));
    told(gone > 0, out);
    Ok(0)
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
