//! Stretches of the ledger's time in which nothing watched it pass.
//!
//! While a ledger runs, its clock can't be set. From the last moment that one run recorded to the first of the next
//! there is only what the wall clock says, and that may have been set ahead: less time may really have passed than it
//! looks. What grows safer with time (a look-up's *not found*, the guard window's end, the removal of old records) does
//! not count these stretches. What grows less safe with time (a replay under a key) does.

use crate::words::{Millis, Time};
use serde::{Deserialize, Serialize};

/// The most that are kept; of more, the two oldest become one, which covers what lay between them.
const MOST: usize = 32;

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
        for gap in self.0.iter().filter(|g| g.to > since) {
            if gap.from >= end {
                break;
            }
            end = end.plus(gap.to.since(gap.from.max(since)));
        }
        end
    }

    /// How long those that ended after `since` were, together.
    #[must_use]
    pub fn ended_since(&self, since: Time) -> Millis {
        let lengths = self.0.iter().filter(|g| g.to > since).map(|g| g.to.since(g.from).0);
        Millis(lengths.fold(0, i64::saturating_add))
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
        assert_eq!(g.ended_since(Time(0)), Millis(1890));
        assert_eq!(g.ended_since(Time(1000)), Millis(990));
        assert_eq!(g.ended_since(Time(1500)), Millis(990));
        assert_eq!(g.ended_since(Time(2000)), Millis(0));
    }

    #[test]
    fn many_become_fewer_and_never_shorter() {
        let mut g = Gaps::default();
        for n in 0..1000 {
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
        assert_eq!(g.end_of(Time(9985), Millis(5)), Time(9991));
    }
}
