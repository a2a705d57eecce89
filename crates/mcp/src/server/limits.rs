//! Time limits, and the wait for a stop, that cost next to nothing where they are kept. Almost every body is there, and almost every call ended, by
//! the time that anybody looks twice; setting and clearing an alarm of the runtime for each takes two turns at a lock that
//! all threads share.
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Waits for `work`, but no longer than `limit`; `None` if it took longer. The clock starts when the work has been looked
/// at twice in vain, the second time as soon as everybody else had a turn.
pub(super) async fn within<F: Future>(limit: Duration, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut again = true;
    let early = poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if again => {
            again = false;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        Poll::Pending => Poll::Ready(None),
    });
    match early.await {
        Some(output) => Some(output),
        // Boxed, since it is needed so seldom.
        None => Box::pin(tokio::time::timeout(limit, work)).await.ok(),
    }
}

/// The timer of one HTTP/1 connection, on which hyper limits the time of each request's head, one after the other: each
/// limit is later than the one before. So one alarm serves all of them; it stays set, and rings at most once in the time
/// of a limit too early, when it is set anew for the limit that then counts.
#[derive(Clone, Default)]
pub(super) struct HeadTimer(Arc<Mutex<Option<Pin<Box<tokio::time::Sleep>>>>>);

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Limit { deadline: deadline.into(), alarm: self.clone() })
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into()
    }
}

/// One limit. Only the newest of a connection may be waited for.
struct Limit {
    deadline: tokio::time::Instant,
    alarm: HeadTimer,
}

impl Sleep for Limit {}

impl Future for Limit {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut alarm = self.alarm.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alarm = alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(self.deadline)));
        if alarm.deadline() > self.deadline {
            alarm.as_mut().reset(self.deadline);
        }
        loop {
            std::task::ready!(alarm.as_mut().poll(cx));
            if alarm.deadline() >= self.deadline {
                return Poll::Ready(());
            }
            alarm.as_mut().reset(self.deadline);
        }
    }
}

/// Something that is announced once, to many who look for it often.
#[derive(Clone, Default)]
pub(super) struct Signal {
    given: Arc<AtomicBool>,
    wake: CancellationToken,
}

impl Signal {
    pub fn give(&self) {
        // In this order: who is woken finds it given.
        self.given.store(true, Ordering::Release);
        self.wake.cancel();
    }

    pub fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    pub fn awaited(&self) -> Awaited {
        Awaited { given: self.given.clone(), woken: Box::pin(self.wake.clone().cancelled_owned()), by: None }
    }
}

/// One who looks.
pub(super) struct Awaited {
    given: Arc<AtomicBool>,
    woken: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Who is woken, so that only another needs to be entered, at a lock that all share.
    by: Option<Waker>,
}

impl Awaited {
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.given.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        if self.by.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        self.by = Some(cx.waker().clone());
        self.woken.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(60);

    #[tokio::test]
    async fn work_is_waited_for_within_its_limit() {
        let long = Duration::from_secs(60);
        assert_eq!(within(Duration::ZERO, async { 1 }).await, Some(1));
        assert_eq!(within(Duration::ZERO, tokio::task::yield_now()).await, Some(()));
        assert_eq!(within(long, tokio::time::sleep(LIMIT)).await, Some(()));
        let began = Instant::now();
        assert_eq!(within(LIMIT, tokio::time::sleep(long)).await, None);
        assert!(began.elapsed() >= LIMIT && began.elapsed() < long);
    }

    #[tokio::test]
    async fn a_signal_reaches_who_looked_and_who_looks_later() {
        let signal = Signal::default();
        let mut early = signal.awaited();
        assert!(poll_fn(|cx| Poll::Ready(early.poll(cx).is_pending())).await);
        let mut moved = signal.awaited();
        assert!(poll_fn(|cx| Poll::Ready(moved.poll(cx).is_pending())).await);
        // Looked for from another task than before.
        let moved = tokio::spawn(async move { poll_fn(|cx| moved.poll(cx)).await });
        tokio::task::yield_now().await;
        signal.give();
        poll_fn(|cx| early.poll(cx)).await;
        assert!(moved.await.is_ok());
        let mut late = signal.awaited();
        poll_fn(|cx| late.poll(cx)).await;
    }

    async fn is_over(limit: &mut Pin<Box<dyn Sleep>>) -> bool {
        poll_fn(|cx| Poll::Ready(limit.as_mut().poll(cx).is_ready())).await
    }

    #[tokio::test]
    async fn each_head_has_its_whole_time_and_no_more() {
        let timer = HeadTimer::default();
        // Each head comes in time, though the alarm of the first rings before the last has its own.
        for _ in 0..5 {
            let mut limit = timer.sleep(LIMIT);
            assert!(!is_over(&mut limit).await);
            tokio::time::sleep(LIMIT / 2).await;
            assert!(!is_over(&mut limit).await);
        }
        for limit in [LIMIT, LIMIT / 2] {
            let began = Instant::now();
            timer.sleep(limit).await;
            assert!(began.elapsed() >= limit, "{limit:?}");
        }
        // An alarm that is set for later delays nothing.
        let mut late = timer.sleep(Duration::from_secs(60));
        assert!(!is_over(&mut late).await);
        drop(late);
        let began = Instant::now();
        timer.sleep(LIMIT).await;
        assert!(began.elapsed() >= LIMIT && began.elapsed() < Duration::from_secs(30));
    }
}
