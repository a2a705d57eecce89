//! The ledger's time: the wall clock once, at the start, and from then on a clock that only goes forward.
//!
//! It never goes behind a moment that was recorded (the high-water mark in the database). A wall clock that
//! jumps is not followed, but remembered: it means that real time and ledger time no longer agree.

use ledger::Env;
use ledger::words::{Millis, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The two clocks a store needs.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch; may be set at any time.
    fn wall(&self) -> i64;
    /// Milliseconds from an arbitrary start; never goes back and counts time asleep.
    fn elapsed(&self) -> i64;
}

/// The operating system's clocks.
pub struct SystemClock(
    /// Gives the monotonic clock where the system has none that counts time asleep.
    pub Arc<dyn Env>,
);

impl Clock for SystemClock {
    fn wall(&self) -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Millis::from(since).0
    }
    #[cfg(target_os = "linux")]
    fn elapsed(&self) -> i64 {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        t.tv_sec * 1000 + t.tv_nsec / 1_000_000
    }
    #[cfg(not(target_os = "linux"))]
    fn elapsed(&self) -> i64 {
        self.0.monotonic()
    }
}

const NO_STEP: i64 = i64::MIN;

pub(crate) struct LedgerClock {
    clock: Arc<dyn Clock>,
    base: i64,
    started: i64,
    margin: i64,
    /// Wall minus elapsed time when they were last found to agree.
    skew: AtomicI64,
    step: AtomicI64,
}

impl LedgerClock {
    /// Starts at the later of the wall clock and the mark; a wall clock far behind the mark is a step.
    pub fn start(clock: Arc<dyn Clock>, high_water: Time, step: Option<Time>, margin: Millis) -> LedgerClock {
        let (wall, started) = (clock.wall(), clock.elapsed());
        let base = wall.max(high_water.0);
        let step = if wall < base.saturating_sub(margin.0) { base } else { step.map_or(NO_STEP, |t| t.0) };
        LedgerClock {
            base,
            started,
            margin: margin.0,
            skew: AtomicI64::new(wall.saturating_sub(started)),
            step: AtomicI64::new(step),
            clock,
        }
    }

    pub fn now(&self) -> Time {
        Time(self.base.saturating_add(self.clock.elapsed() - self.started))
    }

    pub fn step(&self) -> Option<Time> {
        let t = self.step.load(Ordering::Acquire);
        (t != NO_STEP).then_some(Time(t))
    }

    /// Whether the wall clock jumped since the last look. Forward counts too: a machine that was paused looks
    /// like that, and then intents are older than they look.
    pub fn check(&self) -> bool {
        let skew = self.clock.wall().saturating_sub(self.clock.elapsed());
        if skew.abs_diff(self.skew.load(Ordering::Relaxed)) <= self.margin.unsigned_abs() {
            return false;
        }
        self.skew.store(skew, Ordering::Relaxed);
        self.step.store(self.now().0, Ordering::Release);
        true
    }
}
