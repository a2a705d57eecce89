//! What machines ask: whether the process answers, whether it takes calls, and its figures.

use crate::service::Shared;
use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::get;
use http::StatusCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// Its routes: they need no credential, and no `Host`.
pub(crate) fn router(shared: &Arc<Shared>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(shared.clone())
}

async fn readyz(State(s): State<Arc<Shared>>) -> (StatusCode, String) {
    match unready(&s).await {
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        None => {
            let mut text = "ready\n".to_owned();
            for warning in s.warnings.read().unwrap_or_else(PoisonError::into_inner).iter() {
                text.push_str(&format!("warning: {warning}\n"));
            }
            (StatusCode::OK, text)
        }
    }
}

async fn unready(s: &Shared) -> Option<&'static str> {
    if s.draining.load(Ordering::Acquire) {
        return Some("draining");
    }
    if !s.ready.load(Ordering::Acquire) {
        return Some("taking up what an earlier run left behind");
    }
    let store = s.ledger.store();
    if store.next_attention().await.is_err() {
        return Some("the ledger can't be used");
    }
    if store.is_held() {
        return Some("restored from a backup: new operations wait for a release");
    }
    if store.stats().disk_low {
        return Some("the disk is nearly full: new operations are refused");
    }
    None
}

async fn metrics(State(s): State<Arc<Shared>>) -> impl IntoResponse {
    let counts = s.ledger.counts().await.ok();
    let catalog = s.catalog();
    let breakers = catalog.entries().filter_map(|e| e.settings.limits.breaker.as_deref());
    let breakers = breakers.map(|b| (b.of(), b.is_open())).collect();
    let text = s.metrics.text(counts.as_ref(), &s.ledger.store().stats(), &breakers);
    ([(http::header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}
