//! The ledger's time: the wall clock once, at the start, and from then on a clock that only goes forward.
//!
//! It never goes behind a moment that was recorded (the high-water mark in the database). A wall clock that
//! jumps is not followed, but remembered: it means that real time and ledger time no longer agree.
//!
//! Between two runs on a machine that stayed up, its clock that can't be set says how much time passed, if the wall
//! clock agrees. Otherwise there is only the wall clock: what lies between the mark and the start is then a
//! [`Gap`], of which nobody knows how much of it really passed.

use ledger::Env;
use ledger::gaps::Gap;
use ledger::words::{Millis, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The two clocks a store needs.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch; may be set at any time.
    fn wall(&self) -> i64;
    /// Milliseconds from an arbitrary start; never goes back and counts time asleep.
    fn elapsed(&self) -> i64;
    /// Names the start that `elapsed` counts from, the same for every process of it; `None`: it is this process's own.
    fn boot(&self) -> Option<String> {
        None
    }
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
    #[cfg(target_os = "linux")]
    fn boot(&self) -> Option<String> {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(id.trim().to_owned()).filter(|id| !id.is_empty())
    }
    #[cfg(not(target_os = "linux"))]
    fn elapsed(&self) -> i64 {
        self.0.monotonic()
    }
}

/// What is kept of the clocks with the newest recorded moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mark {
    /// The ledger's time.
    pub high_water: Time,
    /// See [`ledger::Store::clock_step`].
    pub step: Option<Time>,
    /// See [`Clock::boot`].
    pub boot: Option<String>,
    /// [`Clock::elapsed`] then.
    pub elapsed: i64,
    /// Wall less elapsed time when they were last found to agree.
    pub skew: i64,
}

const NO_STEP: i64 = i64::MIN;

pub(crate) struct LedgerClock {
    clock: Arc<dyn Clock>,
    boot: Option<String>,
    base: i64,
    started: i64,
    margin: i64,
    /// Wall minus elapsed time when they were last found to agree.
    skew: AtomicI64,
    step: AtomicI64,
}

impl LedgerClock {
    /// Starts at the later of the wall clock and the moment that the mark leads to. A wall clock far behind the mark is
    /// a step, and so is one that was set while nothing ran, where that can be known. Also gives what was not watched of
    /// the time since the mark.
    pub fn start(clock: Arc<dyn Clock>, mark: &Mark, margin: Millis) -> (LedgerClock, Gap) {
        let (wall, started, boot) = (clock.wall(), clock.elapsed(), clock.boot());
        let margin = margin.0;
        let skew = wall.saturating_sub(started);
        let same_boot = boot.is_some() && boot == mark.boot;
        // A machine that was set back to an earlier state of itself has lived through less than it was seen to.
        let set_back = same_boot && started < mark.elapsed;
        let stayed_up = same_boot && !set_back;
        let agree = skew.abs_diff(mark.skew) <= margin.unsigned_abs();
        let watched = stayed_up && agree;
        let known = mark.high_water.0.saturating_add(if watched { started - mark.elapsed } else { 0 });
        // A small difference is the wall clock's own.
        let base = if watched && wall.saturating_sub(known) <= margin { known } else { wall.max(known) };
        let set = set_back || (stayed_up && !agree) || (!watched && wall < base.saturating_sub(margin));
        let step = if set { base } else { mark.step.map_or(NO_STEP, |t| t.0) };
        let clock = LedgerClock {
            base,
            boot,
            started,
            margin,
            skew: AtomicI64::new(skew),
            step: AtomicI64::new(step),
            clock,
        };
        (clock, Gap { from: Time(known), to: Time(base) })
    }

    pub fn now(&self) -> Time {
        self.at(self.clock.elapsed())
    }

    fn at(&self, elapsed: i64) -> Time {
        Time(self.base.saturating_add(elapsed - self.started))
    }

    /// What is kept with this moment.
    pub fn mark(&self) -> Mark {
        let elapsed = self.clock.elapsed();
        Mark {
            high_water: self.at(elapsed),
            step: self.step(),
            boot: self.boot.clone(),
            elapsed,
            skew: self.skew.load(Ordering::Relaxed),
        }
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
