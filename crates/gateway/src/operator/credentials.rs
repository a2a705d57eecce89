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

/// The accounts under which each principal has a credential of its own.
fn accounts(c: &Ctx) -> Vec<OwnAccount> {
    let mut all: Vec<OwnAccount> = Vec::new();
    for account in c.shared.catalog().entries().filter_map(|e| e.body.own_account()) {
        if all.iter().all(|a| (&a.account, &a.origin) != (&account.account, &account.origin)) {
            all.push(account);
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
    for account in accounts(&c) {
        for principal in &principals {
            let given = connect::given(&**store, &account, principal).await.map_err(unavailable)?;
            let Some(given) = given else { continue };
            let mut one = json!({
                "account": account.account,
                "provider": account.provider,
                "mode": account.mode.as_str(),
                "origin": account.origin,
                "principal": principal,
                "kind": account.kind(),
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
    account: String,
    principal: String,
}

pub(super) async fn forget(State(c): State<Ctx>, Json(asked): Json<Forget>) -> Answered {
    let store = c.shared.ledger.store();
    let (mut known, mut forgotten) = (false, false);
    for account in accounts(&c).iter().filter(|a| a.account == asked.account) {
        known = true;
        let of = whose(account, &asked.principal);
        forgotten |= connect::forget(&**store, &of).await.map_err(unavailable)?;
    }
    if !known {
        let why = format!(
            "there is no account {:?} under which each principal has a credential of its own",
            asked.account
        );
        return Err(Failure(StatusCode::NOT_FOUND, "unknown", why));
    }
    Ok(Json(json!({ "account": asked.account, "principal": asked.principal, "forgotten": forgotten })))
}
