//! API keys as operators see them: never the key, only whose it is. Keys are made by the command, which sends the hash.

use super::{Answered, Ctx, Failure, usage};
use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use ledger::store::ApiKey;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewApiKey {
    id: String,
    principal: String,
    hash: String,
    #[serde(default)]
    note: String,
}

fn view(k: &ApiKey) -> Value {
    json!({
        "id": k.id,
        "principal": k.principal,
        "note": k.note,
        "createdAt": crate::view::rfc3339(k.created_at),
        "revokedAt": k.revoked_at.map(crate::view::rfc3339),
    })
}

pub(super) async fn list(State(c): State<Ctx>) -> Answered {
    let keys = c.shared.ledger.store().api_keys().await?;
    Ok(Json(json!({ "keys": keys.iter().map(view).collect::<Vec<_>>() })))
}

pub(super) async fn create(State(c): State<Ctx>, Json(n): Json<NewApiKey>) -> Answered {
    if n.principal.is_empty() || n.principal.len() > 128 || n.principal == crate::principal::ANONYMOUS {
        return Err(usage("the principal has 1 to 128 characters and is not `anonymous`"));
    }
    if n.hash.len() != 64
        || !n.hash.bytes().all(|b| b.is_ascii_hexdigit())
        || n.id.is_empty()
        || n.id.len() > 64
    {
        return Err(usage("id and hash are made by `counterfoil api-keys create`"));
    }
    let store = c.shared.ledger.store();
    if store.api_keys().await?.iter().any(|k| k.id == n.id) {
        return Err(Failure(StatusCode::CONFLICT, "exists", "there is an API key of that id".into()));
    }
    let key = ApiKey {
        id: n.id,
        principal: n.principal,
        hash: n.hash,
        created_at: store.now(),
        revoked_at: None,
        note: n.note,
    };
    store.put_api_key(key.clone()).await?;
    c.api_keys.forget();
    Ok(Json(view(&key)))
}

pub(super) async fn revoke(State(c): State<Ctx>, Path(id): Path<String>) -> Answered {
    let store = c.shared.ledger.store();
    let Some(mut key) = store.api_keys().await?.into_iter().find(|k| k.id == id) else {
        return Err(Failure(StatusCode::NOT_FOUND, "unknown", "there is no API key of that id".into()));
    };
    key.revoked_at.get_or_insert(store.now());
    store.put_api_key(key.clone()).await?;
    c.api_keys.forget();
    Ok(Json(view(&key)))
}
