//! `auth forget`: takes a credential out of the user's store, or one that a principal gave out of the ledger. What it can't
//! tell whose it is, it does not call gone.

use super::fail::{Done, Fail};
use super::out::Out;
use super::place::Place;
use crate::config::{Config, Problem};
use crate::run::{Use, credentials as kept, integration, load};
use credentials::{About, Store};
use serde_json::json;
use std::collections::BTreeSet;

#[derive(Debug, clap::Args)]
pub(super) struct Forget {
    #[command(flatten)]
    place: Place,
    /// The integration, or the account that its manifest names
    name: String,
    /// NAME is the account, also where an integration has that name
    #[arg(long)]
    account: bool,
    /// The mode [default: the configuration's]
    #[arg(long, value_name = "MODE", conflicts_with = "principal")]
    mode: Option<provider::Mode>,
    /// Forget the one that this principal gave of its own: its next call asks for one again
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
}

pub(super) async fn run(args: &Forget, out: &Out) -> Done {
    match &args.principal {
        Some(principal) => of_principal(args, principal, out).await,
        None => of_user(args, out),
    }
}

async fn of_principal(args: &Forget, principal: &str, out: &Out) -> Done {
    let session = args.place.open(Use::Write).await?;
    let mut body = json!({ "account": args.name, "principal": principal });
    if args.account {
        body["exact"] = json!(true);
    }
    let answer = session.post("/v1/credentials/forget", &body).await;
    session.close().await?;
    let answer = answer?;
    out.document(&answer);
    let whose = format!("{principal:?} for account {}", answer["account"]);
    out.say(if answer["forgotten"] == true {
        forgotten(&whose)
    } else {
        format!("there was none of {whose}")
    });
    Ok(0)
}

fn forgotten(whose: &str) -> String {
    format!("forgotten: that of {whose}; withdraw it at the provider, too, if others may know it")
}

fn of_user(args: &Forget, out: &Out) -> Done {
    let config = args.place.load()?;
    let mode = args.mode.unwrap_or(config.mode).as_str();
    let store = kept::store().map_err(Fail::from)?;
    let of_manifest = if args.account { Ok(None) } else { account_of(&config, &args.name) };
    if let Ok(Some(account)) = &of_manifest {
        is_one(&config, &args.name, account, mode, &store)?;
    }
    if let Err(problem) = &of_manifest {
        let kept = others(&store)?;
        is_own(&config, &args.name, mode, &kept).map_err(|why| {
            let why =
                format!("its manifest can't be read, so its account is not known ({problem}), and {why}");
            nothing(&args.name, &why, &kept)
        })?;
    }
    let is_guess = of_manifest.is_err();
    let named = of_manifest.ok().flatten();
    let account = named.clone().unwrap_or_else(|| args.name.clone());
    let gone = store.forget(&account, mode).map_err(Fail::from)?;
    if gone == 0 {
        let others = others(&store)?;
        let elsewhere: Vec<&About> = others.iter().filter(|a| a.account == account).collect();
        // Gone before, or never there: but only where it is known whose it would have been.
        if named.is_none() && elsewhere.is_empty() {
            is_account(&config, &account).map_err(|why| nothing(&args.name, &why, &others))?;
        }
        let modes: Vec<&str> = elsewhere.iter().map(|a| a.mode.as_str()).collect();
        out.say(match modes.first() {
            Some(other) => {
                format!(
                    "there was none of account {account:?} for {mode}; one for {} is kept (--mode {other})",
                    modes.join(", ")
                )
            }
            None => format!("there was none of account {account:?}"),
        });
    } else {
        out.say(forgotten(&format!("account {account:?}")));
        if is_guess {
            out.say(format!(
                "the manifest of {:?} can't be read: if that names another account, what is kept of that one is left",
                args.name
            ));
        }
    }
    out.document(&json!({ "account": account, "mode": mode, "forgotten": gone > 0 }));
    Ok(0)
}

/// The account of the integration of this name; `None`: there is no such integration. The others' manifests may be broken.
fn account_of(config: &Config, name: &str) -> Result<Option<String>, Problem> {
    let named = config.integrations.iter().find(|i| i.name == name);
    named.map(|r| integration(config, r).map(|i| i.account().to_owned())).transpose()
}

/// Refuses the name of an integration where that is another account, too: one that another integration has, or that
/// something is kept of in this mode.
fn is_one(config: &Config, name: &str, account: &str, mode: &str, store: &Store) -> Result<(), Fail> {
    if account == name {
        return Ok(());
    }
    let others_of = config.integrations.iter().filter(|r| r.name != name);
    let mut accounts = others_of.filter_map(|r| integration(config, r).ok());
    let is_account = accounts.any(|i| i.account() == name)
        || others(store)?.iter().any(|a| a.account == name && a.mode == mode);
    if !is_account {
        return Ok(());
    }
    Err(Fail::usage(format!(
        "{name:?} is an account, and an integration whose account is {account:?}; nothing was forgotten. Name the account: \
         {name:?} or {account:?} with --account"
    )))
}

/// Whether what is kept under the name of an integration, whose manifest can't be read, can be nobody else's, and nothing
/// else can be its own.
fn is_own(config: &Config, name: &str, mode: &str, kept: &[About]) -> Result<(), String> {
    let mut accounts = Vec::new();
    for r in config.integrations.iter().filter(|r| r.name != name) {
        let other = integration(config, r).map_err(|e| format!("not all others can, either ({e})"))?;
        accounts.push(other.account().to_owned());
    }
    let here = kept.iter().filter(|a| a.mode == mode && !accounts.contains(&a.account));
    let free: BTreeSet<&str> = here.map(|a| a.account.as_str()).collect();
    if free == BTreeSet::from([name]) {
        Ok(())
    } else if accounts.iter().any(|a| a == name) {
        Err(format!("account {name:?} is another integration's"))
    } else {
        Err("what is kept can be another's".into())
    }
}

/// Whether an integration has this account.
fn is_account(config: &Config, name: &str) -> Result<(), String> {
    match load(config, config.sandbox) {
        Ok(loaded) if loaded.integrations.iter().any(|i| i.account() == name) => Ok(()),
        Ok(_) => Err("no integration and no account has that name".into()),
        Err(e) => Err(format!("not all manifests can be read, so it is not known whose that is ({e})")),
    }
}

/// What is told of all that is kept.
fn others(store: &Store) -> Result<Vec<About>, Fail> {
    let listing = store.look().map_err(Fail::from)?;
    Ok(listing.into_iter().flat_map(|l| l.entries).map(|e| e.about).collect())
}

fn nothing(name: &str, why: &str, kept: &[About]) -> Fail {
    let all: Vec<String> = kept
        .iter()
        .map(|a| format!("{} for {} (sent to {})", a.account, a.mode, a.origins.join(", ")))
        .collect();
    let all = match all.as_slice() {
        [] => "Nothing is kept".to_owned(),
        all => format!("Kept are: {}; name one of these accounts, with --account", all.join("; ")),
    };
    Fail::usage(format!("nothing was forgotten of {name:?}: {why}. {all}"))
}
