//! `auth status`: what is connected, what is missing, and how long it is valid. Never the credential.

use super::auth_connect::told;
use super::fail::Fail;
use super::out::Out;
use super::place::Place;
use crate::config::Config;
use crate::run::{Operator, Use, credentials as kept, load};
use credentials::{Listing, Store, unix_now};
use provider::{CredentialError, StoredAccount};
use serde_json::{Value, json};

pub(super) async fn run(place: &Place, out: &Out) -> Result<u8, Fail> {
    let config = place.load()?;
    let store = kept::store().map_err(Fail::from)?;
    let listing = store.look().map_err(Fail::from)?;
    let connected: Vec<Value> = listing.iter().flat_map(|l| entries(&store, l)).collect();
    let missing = missing(&config);
    let own = principals(place, &config).await;
    let key = listing.as_ref().map(
        |l| json!({ "id": l.key_id, "at": l.key_at, "place": l.key_at.shown(store.folder(), &l.key_id) }),
    );
    out.document(&json!({
        "store": store.file().display().to_string(),
        "key": key,
        "connected": connected,
        "missing": missing.as_ref().ok().map(|all| {
            let told = |e: &CredentialError| json!({ "account": e.account, "mode": e.mode, "what": e.what });
            all.iter().map(told).collect::<Vec<_>>()
        }),
        "credentials": own.as_ref().ok(),
    }));
    show(&connected, key.as_ref(), &store, out);
    for e in missing.iter().flatten() {
        out.say(format!("{} {}: {}", out.bad("missing"), e.account, e.what));
    }
    own.iter().for_each(|own| show_own(own, out));
    // What could be told is told.
    let mut code = 0;
    for (what, failed) in
        [("what manifests want", missing.err()), ("what principals gave of their own", own.err())]
    {
        if let Some(e) = failed {
            eprintln!("counterfoil: {what} can't be told: {}", e.message);
            code = e.code;
        }
    }
    Ok(code)
}

/// Each entry, and whether it can be used.
fn entries(store: &Store, listing: &Listing) -> Vec<Value> {
    let one = |e: &credentials::Entry| {
        let mut value = told(&e.about);
        value["state"] = json!(match (store.open(listing, e), &e.about.refused, e.about.expires) {
            (Err(_), ..) => "does not open",
            (Ok(_), Some(_), _) => "refused",
            (Ok(_), None, Some(at)) if at <= unix_now() && !e.about.renewable => "expired",
            (Ok(_), None, Some(at)) if at <= unix_now() => "renewed at the next use",
            _ => "valid",
        });
        value
    };
    listing.entries.iter().map(one).collect()
}

/// What the manifests want and is not there.
fn missing(config: &Config) -> Result<Vec<CredentialError>, Fail> {
    let loaded = load(config, config.sandbox)?;
    let stored: Vec<StoredAccount> = loaded.integrations.iter().filter_map(|i| i.stored()).collect();
    let of_store = |e: &CredentialError| stored.iter().any(|s| s.account == e.account);
    Ok(loaded.missing.into_iter().filter(of_store).collect())
}

/// What principals gave of their own, where there is a ledger that could have it.
async fn principals(place: &Place, config: &Config) -> Result<Value, Fail> {
    let absent = config.ledger.file().is_some_and(|f| !f.exists());
    if absent && Operator::find(config.ledger.directory()).await.is_none() {
        return Ok(json!([]));
    }
    let session = place.open(Use::Read).await?;
    let answer = session.get("/v1/credentials").await;
    session.close().await?;
    Ok(answer?["credentials"].clone())
}

fn show(connected: &[Value], key: Option<&Value>, store: &Store, out: &Out) {
    let Some(key) = key else {
        out.say(format!("nothing is kept in {} yet", store.file().display()));
        return;
    };
    let row = |c: &Value| {
        let text = |name: &str| c[name].as_str().unwrap_or("-").to_owned();
        let list = |name: &str| {
            let all: Vec<&str> = c[name].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            if all.is_empty() { "-".to_owned() } else { all.join(" ") }
        };
        vec![
            text("account"),
            text("mode"),
            text("kind"),
            text("state"),
            text("expires"),
            list("scopes"),
            text("issuer"),
            list("sentTo"),
            text("since"),
        ]
    };
    let rows: Vec<Vec<String>> = connected.iter().map(row).collect();
    out.table(
        &["ACCOUNT", "MODE", "KIND", "STATE", "EXPIRES", "SCOPES", "ISSUER", "SENT TO", "SINCE"],
        &rows,
    );
    out.say(out.dim(&format!(
        "in {}, under {}",
        store.file().display(),
        key["place"].as_str().unwrap_or("-")
    )));
}

fn show_own(own: &Value, out: &Out) {
    let all = own.as_array().map(Vec::as_slice).unwrap_or_default();
    if all.is_empty() {
        return;
    }
    let row = |c: &Value| {
        ["account", "mode", "kind", "state", "expires", "origin", "principal", "since"]
            .map(|name| c[name].as_str().unwrap_or("-").to_owned())
            .to_vec()
    };
    out.say("");
    out.say("given by principals of their own:");
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    out.table(&["ACCOUNT", "MODE", "KIND", "STATE", "EXPIRES", "SENT TO", "PRINCIPAL", "SINCE"], &rows);
}
