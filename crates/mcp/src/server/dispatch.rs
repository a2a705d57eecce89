//! From an admitted request to the service, whatever carried it: answers from memory, running calls, and panics, which
//! are answered wherever they happen.
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures_util::FutureExt;
use http::StatusCode;
use tokio_util::task::TaskTracker;

use super::{Caller, Exchange, Outcome, Service};
use crate::error::RpcError;

/// What is answered where the service panicked before anything could have run.
pub(super) fn failed() -> RpcError {
    RpcError::internal("Internal error: the server failed. Nothing ran.")
}

/// Who is asking.
///
/// # Errors
/// -32603 if the service panics.
pub(super) fn identity<S: Service>(service: &S, caller: &Caller) -> Result<Arc<str>, RpcError> {
    catch_unwind(AssertUnwindSafe(|| service.identity(caller))).map_err(|_| failed())
}

/// The answer that the service has in memory, as a message.
pub(super) fn ready<S: Service>(service: &S, exchange: &Exchange) -> Option<(Bytes, StatusCode)> {
    let outcome = match catch_unwind(AssertUnwindSafe(|| service.ready(exchange))) {
        Ok(outcome) => outcome?,
        Err(_) => failed().into(),
    };
    Some(message(exchange, &outcome))
}

/// An outcome as the message that answers the request.
pub(super) fn message(exchange: &Exchange, outcome: &Outcome) -> (Bytes, StatusCode) {
    let (message, status) = outcome.to_message(Some(&exchange.request.id));
    #[cfg(feature = "wire-log")]
    crate::wire_log::server(Some(exchange.caller.revision), Some(&exchange.request.method), &message);
    (message, status)
}

/// Runs a call: its first stretch right here, since many end without waiting; the rest in a task of its own, which a
/// disconnect doesn't touch. A panic drops the call's responder, which answers; `Err` if that was here.
pub(super) async fn start<F>(tasks: &TaskTracker, mut call: Pin<Box<F>>) -> Result<(), Panicked>
where
    F: Future<Output = ()> + Send + 'static,
{
    let polled = poll_fn(|cx| Poll::Ready(catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx))))).await;
    match polled {
        Ok(Poll::Ready(())) => Ok(()),
        Ok(Poll::Pending) => {
            tasks.spawn(call);
            Ok(())
        }
        Err(_) => Err(Panicked),
    }
}

/// The call's first stretch panicked.
pub(super) struct Panicked;

/// Waits for one of the service's hooks; -32603 if it panics.
pub(super) async fn guarded<T>(hook: impl Future<Output = T>) -> Result<T, RpcError> {
    AssertUnwindSafe(hook).catch_unwind().await.map_err(|_| failed())
}
