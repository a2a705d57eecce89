//! The control socket: how another process of the same user asks the one that holds the ledger.
//!
//! The operators' routes are served on `control.sock` in the ledger's directory (0600, in a directory that is
//! 0700), or asked in process by a command that opened the ledger itself: one code path for both.

use super::socket;
use crate::Error;
use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tower::ServiceExt as _;

const NAME: &str = "control.sock";
/// The largest answer that is taken, in bytes.
const MAX_ANSWER: usize = 256 << 20;

/// Serves `router` on the directory's control socket until `shutdown`. The caller holds the ledger's lock, so a
/// socket that is there already is a dead process's.
///
/// # Errors
/// [`Error::File`]: the socket can't be made.
pub(crate) fn serve(
    dir: &Path,
    router: Router,
    shutdown: CancellationToken,
) -> Result<AbortOnDropHandle<()>, Error> {
    let fail = |source| Error::File { what: "the control socket", source };
    let (listener, place) = socket::listen(dir, NAME).map_err(fail)?;
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        let ended = shutdown.clone();
        let serving =
            axum::serve(listener, router).with_graceful_shutdown(async move { ended.cancelled().await });
        let late = async {
            shutdown.cancelled().await;
            tokio::time::sleep(Duration::from_secs(5)).await;
        };
        tokio::select! {
            r = serving => if let Err(e) = r { tracing::warn!(error = %e, "the control socket ended early"); },
            () = late => {}
        }
        place.remove();
    })))
}

/// How the operators' routes are reached.
#[derive(Clone)]
pub enum Operator {
    /// In this process, which holds the ledger.
    Here(Router),
    /// In the process that holds it.
    There(PathBuf),
}

impl Operator {
    /// The process that serves this directory's control socket, if one answers.
    pub async fn find(dir: &Path) -> Option<Operator> {
        let there = Operator::There(dir.to_owned());
        tokio::time::timeout(Duration::from_secs(5), socket::connect(dir, NAME)).await.ok()?.ok()?;
        Some(there)
    }

    /// Whether another process does the work.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        matches!(self, Operator::There(_))
    }

    /// `GET`.
    ///
    /// # Errors
    /// As [`Operator::ask`].
    pub async fn get(&self, path: &str) -> Result<(StatusCode, Value), Error> {
        self.ask(Method::GET, path, None).await
    }

    /// `POST` with a JSON body.
    ///
    /// # Errors
    /// As [`Operator::ask`].
    pub async fn post(&self, path: &str, body: &Value) -> Result<(StatusCode, Value), Error> {
        self.ask(Method::POST, path, Some(body.to_string().into())).await
    }

    /// One request; the answer's status and JSON body.
    ///
    /// # Errors
    /// [`Error::Control`]: it could not be asked. [`Error::Unanswered`]: no answer, or none that is JSON.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<(StatusCode, Value), Error> {
        let (status, bytes) = self.ask_text(method, path, body).await?;
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok((status, value)),
            Err(_) if status.is_success() => Err(Error::Unanswered("its answer is not JSON".into())),
            Err(_) => {
                // Axum's own refusals (a body that doesn't fit a route) are plain text.
                let text = String::from_utf8_lossy(&bytes).into_owned();
                Ok((status, serde_json::json!({ "error": { "code": "usage", "message": text } })))
            }
        }
    }

    /// One request; the answer's status and its body as it is.
    ///
    /// # Errors
    /// [`Error::Control`]: it could not be asked. [`Error::Unanswered`]: its answer did not come.
    pub(crate) async fn ask_text(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<(StatusCode, Bytes), Error> {
        let fail = |e: &dyn std::fmt::Display| Error::Control(e.to_string());
        let unanswered = |e: &dyn std::fmt::Display| Error::Unanswered(e.to_string());
        let mut request = Request::builder().method(method).uri(path).header(http::header::HOST, "control");
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = body.unwrap_or_default();
        match self {
            Operator::Here(router) => {
                let request = request.body(Body::from(body)).map_err(|e| fail(&e))?;
                let response = router.clone().oneshot(request).await.unwrap_or_else(|e| match e {});
                let (head, body) = response.into_parts();
                let bytes =
                    Limited::new(body, MAX_ANSWER).collect().await.map_err(|e| unanswered(&e))?.to_bytes();
                Ok((head.status, bytes))
            }
            Operator::There(dir) => {
                let stream = socket::connect(dir, NAME).await.map_err(|e| fail(&e))?;
                let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
                    .await
                    .map_err(|e| fail(&e))?;
                let driver = tokio::spawn(connection);
                let request = request.body(Full::new(body)).map_err(|e| fail(&e))?;
                let response = sender.send_request(request).await.map_err(|e| unanswered(&e))?;
                let (head, body) = response.into_parts();
                let bytes =
                    Limited::new(body, MAX_ANSWER).collect().await.map_err(|e| unanswered(&e))?.to_bytes();
                driver.abort();
                Ok((head.status, bytes))
            }
        }
    }
}
