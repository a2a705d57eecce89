//! Credentials of principals as operators see them: who has which, since when; never the credential.

use super::{Answered, Ctx, Failure, OPERATOR};
use crate::connect::{self, whose};
use crate::principal::ANONYMOUS;
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use provider::OwnAccount;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeSet;

fn unavailable(why: String) -> Failure {
    Failure(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why)
}

/// The accounts under which each principal has a credential of its own, and by which integrations' names.
fn accounts(c: &Ctx) -> Vec<(OwnAccount, BTreeSet<String>)> {
    let mut all: Vec<(OwnAccount, BTreeSet<String>)> = Vec::new();
    let catalog = c.shared.catalog();
    for (entry, account) in catalog.entries().filter_map(|e| Some((e, e.body.kept_account()?))) {
        // An integration's name has no dot, and its methods' ids begin with it.
        let integration = entry.spec.canonical.split('.').next().unwrap_or_default().to_owned();
        let same =
            |(a, _): &&mut (OwnAccount, _)| (&a.account, &a.origin) == (&account.account, &account.origin);
        match all.iter_mut().find(same) {
            Some((there, integrations)) => {
                integrations.insert(integration);
                // The one that is used tells whose tokens count.
                if there.is_withheld() {
                    *there = account;
                }
            }
            None => all.push((account, BTreeSet::from([integration]))),
        }
    }
    all
}

/// Those who have or had an API key, and those who need none.
pub(super) async fn list(State(c): State<Ctx>) -> Answered {
    let store = c.shared.ledger.store();
    let mut principals: BTreeSet<String> = store.api_keys().await?.into_iter().map(|k| k.principal).collect();
    principals.extend([ANONYMOUS.to_owned(), OPERATOR.to_owned()]);
    let mut all = Vec::new();
    for (account, _) in accounts(&c) {
        for principal in &principals {
            let given = connect::given(&**store, &account, principal).await.map_err(unavailable)?;
            let Some(given) = given else { continue };
            let kind = if given.grant.is_some() { "oauth".to_owned() } else { account.kind() };
            let mut one = json!({
                "account": account.account,
                "provider": account.provider,
                "mode": account.mode.as_str(),
                "origin": account.origin,
                "principal": principal,
                "kind": kind,
                "since": crate::view::rfc3339(given.since),
                "state": given.state(store.now()),
            });
            if let Some(grant) = given.grant {
                one["issuer"] = json!(grant.issuer);
                one["scopes"] = json!(grant.scopes);
                one["expires"] = json!(grant.ends.map(crate::view::rfc3339));
                one["renewed"] = json!((grant.got > given.since).then(|| crate::view::rfc3339(grant.got)));
            }
            all.push(one);
        }
    }
    Ok(Json(json!({ "credentials": all })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Forget {
    /// The account, or an integration that acts under it.
    account: String,
    principal: String,
    /// `account` is the account's name, also where an integration is called like that.
    #[serde(default)]
    exact: bool,
}

/// The account that is meant. A name that says two is refused.
fn meant<'a>(all: &'a [(OwnAccount, BTreeSet<String>)], asked: &'a Forget) -> Result<&'a str, Failure> {
    let name = asked.account.as_str();
    let of_integration = all.iter().find(|(_, i)| i.contains(name) && !asked.exact);
    let Some((other, _)) = of_integration.filter(|(a, _)| a.account != name) else { return Ok(name) };
    if !all.iter().any(|(a, _)| a.account == name) {
        return Ok(&other.account);
    }
    let why = format!(
        "{name:?} is an account, and an integration whose account is {:?}; nothing was forgotten. Name the account: \
         {name:?} or {:?} with --account (\"exact\": true)",
        other.account, other.account
    );
    Err(Failure(StatusCode::CONFLICT, "ambiguous", why))
}

pub(super) async fn forget(State(c): State<Ctx>, Json(asked): Json<Forget>) -> Answered {
    let store = c.shared.ledger.store();
    let all = accounts(&c);
    let name = meant(&all, &asked)?;
    let (mut known, mut forgotten) = (false, false);
    for (account, _) in all.iter().filter(|(a, _)| a.account == name) {
        known = true;
        let of = whose(account, &asked.principal);
        forgotten |= connect::forget(&**store, &of).await.map_err(unavailable)?;
    }
    if !known {
        let why = format!(
            "there is no integration and no account {:?} under which each principal has a credential of its own",
            asked.account
        );
        return Err(Failure(StatusCode::NOT_FOUND, "unknown", why));
    }
    Ok(Json(json!({ "account": name, "principal": asked.principal, "forgotten": forgotten })))
}
