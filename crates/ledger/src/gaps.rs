//! Stretches of the ledger's time in which nothing watched it pass.
//!
//! While a ledger runs, its clock can't be set. From the last moment that one run recorded to the first of the next
//! there is only what the wall clock says, and that may have been set ahead: less time may really have passed than it
//! looks. What grows safer with time (a look-up's *not found*, the guard window's end, the removal of old records) does
//! not count these stretches. What grows less safe with time (a replay under a key) does.

use crate::words::{Millis, Time};
use serde::{Deserialize, Serialize};

/// The most that are kept; of more, the two oldest become one, which covers what lay between them. So many that a week
/// holds fewer even where every start of a restless ledger follows time that was not watched: what covers nearly all of a
/// ledger's past would hold up the removal of old records for good.
const MOST: usize = 1024;

/// One such stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The last moment that was recorded before it.
    pub from: Time,
    /// The first moment after it.
    pub to: Time,
}

/// All that are known, in their order. They don't overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Gaps(Vec<Gap>);

/// For a clock that is always watched.
pub static NONE: Gaps = Gaps(Vec::new());

impl Gaps {
    /// Adds one that ends after all others; an empty one is none.
    pub fn add(&mut self, gap: Gap) {
        let from = self.0.last().map_or(gap.from, |last| gap.from.max(last.to));
        if gap.to <= from {
            return;
        }
        self.0.push(Gap { from, to: gap.to });
        while self.0.len() > MOST {
            let oldest = self.0.remove(0);
            self.0[0].from = oldest.from;
        }
    }

    /// When `wait` has really passed since `since`, as far as that is known.
    #[must_use]
    pub fn end_of(&self, since: Time, wait: Millis) -> Time {
        let mut end = since.plus(wait);
        for gap in self.after(since) {
            if gap.from >= end {
                break;
            }
            end = end.plus(gap.to.since(gap.from.max(since)));
        }
        end
    }

    /// The other way round: the latest moment since which `wait` has really passed, as far as that is known, by `now`,
    /// before which all of them ended.
    #[must_use]
    pub fn start_of(&self, now: Time, wait: Millis) -> Time {
        let mut start = now.plus(Millis(wait.0.saturating_neg()));
        for gap in self.0.iter().rev() {
            if gap.to <= start {
                break;
            }
            start = start.plus(Millis(gap.to.since(gap.from).0.saturating_neg()));
        }
        start
    }

    /// How long those that ended after `since` were, together.
    #[must_use]
    pub fn ended_since(&self, since: Time) -> Millis {
        let lengths = self.after(since).iter().map(|g| g.to.since(g.from).0);
        Millis(lengths.fold(0, i64::saturating_add))
    }

    /// Those that ended after this moment.
    fn after(&self, since: Time) -> &[Gap] {
        &self.0[self.0.partition_point(|g| g.to <= since)..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(all: &[(i64, i64)]) -> Gaps {
        let mut gaps = Gaps::default();
        for (from, to) in all {
            gaps.add(Gap { from: Time(*from), to: Time(*to) });
        }
        gaps
    }

    #[test]
    fn a_wait_counts_only_what_was_watched() {
        let g = gaps(&[(100, 1000), (1010, 2000)]);
        for (since, wait, end) in [
            // Over before the first.
            (0, 100, 100),
            // Five are left after it.
            (50, 55, 1005),
            // Over both.
            (50, 80, 2020),
            // From the middle of one.
            (500, 10, 1010),
            (500, 11, 2001),
            // None lies in between.
            (2000, 7, 2007),
            (3000, 7, 3007),
            (100, 0, 100),
        ] {
            assert_eq!(g.end_of(Time(since), Millis(wait)), Time(end), "{wait} from {since}");
            assert_eq!(NONE.end_of(Time(since), Millis(wait)), Time(since + wait));
        }
        for (now, wait, start) in [
            // Within what was watched since the newest.
            (2007, 7, 2000),
            // Into the newest, through it, and through both.
            (2007, 8, 1009),
            (2005, 5, 2000),
            (2020, 80, 50),
        ] {
            assert_eq!(g.start_of(Time(now), Millis(wait)), Time(start), "{wait} before {now}");
            assert!(g.end_of(Time(start), Millis(wait)) <= Time(now));
            assert!(g.end_of(Time(start + 1), Millis(wait)) > Time(now));
            assert_eq!(NONE.start_of(Time(now), Millis(wait)), Time(now - wait));
        }
        assert_eq!(g.ended_since(Time(0)), Millis(1890));
        assert_eq!(g.ended_since(Time(1000)), Millis(990));
        assert_eq!(g.ended_since(Time(1500)), Millis(990));
        assert_eq!(g.ended_since(Time(2000)), Millis(0));
    }

    #[test]
    fn hourly_starts_after_unwatched_time_hold_nothing_up_for_good() {
        const HOUR: i64 = 3_600_000;
        let mut g = Gaps::default();
        for n in 0..20_000 {
            g.add(Gap { from: Time(n * HOUR - 60_000), to: Time(n * HOUR) });
        }
        let now = Time(20_000 * HOUR);
        let week = Millis(7 * 24 * HOUR);
        // A minute of each hour of the week.
        let lately = g.ended_since(g.start_of(now, week));
        assert!(lately < Millis(4 * HOUR), "{lately:?}");
    }

    #[test]
    fn many_become_fewer_and_never_shorter() {
        let mut g = Gaps::default();
        for n in 0..3000 {
            let before = g.end_of(Time(0), Millis(5));
            g.add(Gap { from: Time(n * 10 + 9), to: Time(n * 10 + 10) });
            // Empty, or before what is known: nothing new.
            g.add(Gap { from: Time(n * 10 + 10), to: Time(n * 10 + 10) });
            g.add(Gap { from: Time(0), to: Time(n) });
            assert!(g.end_of(Time(0), Millis(5)) >= before);
        }
        assert_eq!(g.0.len(), MOST);
        assert!(g.0.windows(2).all(|w| w[0].to <= w[1].from));
        // The newest are exact.
        assert_eq!(g.end_of(Time(29_985), Millis(5)), Time(29_991));
    }
}
