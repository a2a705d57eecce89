//! `POST /v1/backup`: a copy of an SQLite ledger, made by the process that holds it.

use super::opened::Opened;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use http::StatusCode;
use ledger_sqlite::{BackupError, SqliteStore};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// Absolute: the asking process may be somewhere else.
    to: PathBuf,
}

/// See the module.
pub(crate) fn router(opened: &Opened) -> Router {
    let store = match opened {
        Opened::Sqlite(store) => Some(store.clone()),
        Opened::Memory(_) | Opened::Postgres(_) => None,
    };
    Router::new().route("/v1/backup", post(copy)).with_state(store)
}

async fn copy(
    State(store): State<Option<Arc<SqliteStore>>>,
    Json(asked): Json<Asked>,
) -> (StatusCode, Json<Value>) {
    let refused = |status, code: &str, message: String| {
        (status, Json(json!({ "error": { "code": code, "message": message } })))
    };
    let Some(store) = store else {
        return refused(
            StatusCode::CONFLICT,
            "refused",
            "the ledger is in PostgreSQL, which makes its own backups; `counterfoil backup` says how".into(),
        );
    };
    if !asked.to.is_absolute() {
        return refused(StatusCode::BAD_REQUEST, "usage", "`to` must be an absolute path".into());
    }
    match store.backup(asked.to).await {
        Ok(done) => {
            (StatusCode::OK, Json(json!({ "bytes": done.bytes, "at": gateway::view::rfc3339(done.at) })))
        }
        Err(e @ BackupError::Exists) => refused(StatusCode::BAD_REQUEST, "usage", e.to_string()),
        Err(e) => refused(StatusCode::SERVICE_UNAVAILABLE, "unavailable", e.to_string()),
    }
}
