//! The ledger's time: the database's clock as this replica last read it, carried on by the machine's own.
//!
//! It is conservative: never ahead of the database (a reading counts as made when its answer arrived), and never goes
//! back. A clock of the database that is set is not followed, but remembered: all replicas share what has to be added.

use ledger::words::{Millis, Time};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Milliseconds from an arbitrary start; never goes back, and counts time asleep where the system can.
pub(crate) fn elapsed() -> i64 {
    #[cfg(target_os = "linux")]
    {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        t.tv_sec * 1000 + t.tv_nsec / 1_000_000
    }
    #[cfg(not(target_os = "linux"))]
    {
        static START: std::sync::LazyLock<std::time::Instant> =
            std::sync::LazyLock::new(std::time::Instant::now);
        Millis::from(START.elapsed()).0
    }
}

const NO_STEP: i64 = i64::MIN;
/// Readings of which the best counts.
const KEPT: usize = 8;

/// A reading of the database's clock, and this machine's before it was asked for and after it was there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub sent: i64,
    pub arrived: i64,
    pub clock: i64,
}

pub(crate) struct LedgerClock {
    /// Ledger time minus this machine's.
    offset: AtomicI64,
    latest: AtomicI64,
    step: AtomicI64,
    margin: i64,
    /// What is added to the database's clock.
    shift: AtomicI64,
    recent: Mutex<VecDeque<i64>>,
}

/// How a clock was set: by how much it jumped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Jump(pub i64);

impl LedgerClock {
    pub fn start(reading: Reading, shift: i64, step: Option<Time>, margin: Millis) -> LedgerClock {
        LedgerClock {
            offset: AtomicI64::new(reading.clock + shift - reading.arrived),
            latest: AtomicI64::new(i64::MIN),
            step: AtomicI64::new(step.map_or(NO_STEP, |t| t.0)),
            margin: margin.0.max(1),
            shift: AtomicI64::new(shift),
            recent: Mutex::default(),
        }
    }

    pub fn now(&self) -> Time {
        let now = elapsed().saturating_add(self.offset.load(Ordering::Acquire));
        Time(self.latest.fetch_max(now, Ordering::AcqRel).max(now))
    }

    /// Holds it until the clock has come this far.
    pub fn at_least(&self, t: Time) {
        self.latest.fetch_max(t.0, Ordering::AcqRel);
    }

    pub fn step(&self) -> Option<Time> {
        let t = self.step.load(Ordering::Acquire);
        (t != NO_STEP).then_some(Time(t))
    }

    pub fn shift(&self) -> i64 {
        self.shift.load(Ordering::Acquire)
    }

    /// What the database knows of steps and shifts, by whichever replica.
    pub fn heard(&self, shift: i64, step: Option<Time>) {
        if self.shift.swap(shift, Ordering::AcqRel) != shift {
            self.recent().clear();
        }
        self.step.fetch_max(step.map_or(NO_STEP, |t| t.0), Ordering::AcqRel);
    }

    fn recent(&self) -> std::sync::MutexGuard<'_, VecDeque<i64>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a reading in. `Err`: the database's clock was set since the last one, and nothing was taken.
    pub fn take(&self, r: Reading) -> Result<(), Jump> {
        let (offset, shift) = (self.offset.load(Ordering::Acquire), self.shift());
        // The true difference lies between these two.
        let (least, most) = (r.clock + shift - r.arrived, r.clock + shift - r.sent);
        if least > offset + self.margin {
            return Err(Jump(least - offset));
        }
        if most < offset - self.margin {
            return Err(Jump(most - offset));
        }
        let mut recent = self.recent();
        recent.push_back(least);
        if recent.len() > KEPT {
            recent.pop_front();
        }
        // The reading that travelled fastest is the closest.
        if let Some(best) = recent.iter().max() {
            self.offset.store(*best, Ordering::Release);
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn reading(clock: i64, way: i64) -> Reading {
        let at = elapsed();
        Reading { sent: at - way, arrived: at, clock }
    }

    #[test]
    fn goes_on_and_never_back() {
        let clock = LedgerClock::start(reading(1_000_000, 10), 0, None, Millis(1000));
        let first = clock.now();
        assert!(first >= Time(1_000_000) && first < Time(1_000_500));
        clock.take(reading(999_700, 0)).unwrap();
        assert!(clock.now() >= first, "a slower clock holds it, and does not turn it back");
        assert_eq!(clock.step(), None);
    }

    #[test]
    fn a_clock_that_is_set_is_noticed() {
        let clock = LedgerClock::start(reading(1_000_000, 0), 0, None, Millis(1000));
        let before = clock.now();
        let Err(Jump(by)) = clock.take(reading(4_600_000, 0)) else { panic!("an hour ahead is a step") };
        assert!((3_599_000..3_601_000).contains(&by));
        let Err(Jump(back)) = clock.take(reading(1_000_000 - 3_600_000, 0)) else {
            panic!("an hour back is a step")
        };
        assert!((-3_601_000..-3_599_000).contains(&back));
        assert!(clock.now().since(before).0 < 1000, "it is not followed");
        clock.heard(-by, Some(before));
        clock.take(reading(4_600_000, 0)).unwrap();
        assert!(clock.now().since(before).0 < 1000);
        assert_eq!(clock.step(), Some(before));
    }
}
