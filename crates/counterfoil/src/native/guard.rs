//! Work that may not take the server with it: bounded in time, its panics caught.

use futures_util::FutureExt as _;
use ledger::Millis;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;
use tokio::time::Instant;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broke {
    /// It panicked. What a panic says may hold anything, so nobody outside hears it.
    Panicked,
    /// It took longer than this.
    Late(Millis),
}

impl Broke {
    /// In words for clients; `what` is "the tool", "the resource" and so on.
    pub fn sentence(self, what: &str) -> String {
        match self {
            Broke::Panicked => format!("{what} failed unexpectedly"),
            Broke::Late(limit) => {
                format!("{what} took longer than its limit of {}", crate::config::show_duration(limit))
            }
        }
    }
}

/// Runs it to its end, to its panic, or to the limit.
pub(super) async fn guarded<T>(limit: Millis, work: impl Future<Output = T>) -> Result<T, Broke> {
    let began = Instant::now();
    let mut work = pin!(AssertUnwindSafe(work).catch_unwind());
    // Much of it ends without waiting for anything, and then needs no alarm.
    let ended = match poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
        Poll::Ready(ended) => Ok(ended),
        Poll::Pending => tokio::time::timeout(limit.duration().saturating_sub(began.elapsed()), work).await,
    };
    match ended {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(_)) => Err(Broke::Panicked),
        Err(_) => Err(Broke::Late(limit)),
    }
}
