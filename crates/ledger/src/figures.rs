//! Figures about a store's commits, for its [`StoreStats`].

use crate::store::StoreStats;
use std::time::Duration;

/// Upper bounds of the histogram of commits, microseconds.
const BUCKETS: [u64; 11] = [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 102_400];

/// See the module.
#[derive(Default)]
pub struct Figures {
    commits: u64,
    writes: u64,
    us: u64,
    max_us: u64,
    buckets: [u64; BUCKETS.len()],
}

impl Figures {
    /// A commit of so many writes took so long.
    pub fn commit(&mut self, took: Duration, writes: u64) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.commits += 1;
        self.writes += writes;
        self.us += us;
        self.max_us = self.max_us.max(us);
        for (n, bound) in self.buckets.iter_mut().zip(BUCKETS) {
            *n += u64::from(us <= bound);
        }
    }
    /// What is known of commits; everything else is left at its default.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        StoreStats {
            commits: self.commits,
            writes: self.writes,
            commit_us: self.us,
            commit_max_us: self.max_us,
            commit_buckets: BUCKETS.into_iter().zip(self.buckets).collect(),
            ..StoreStats::default()
        }
    }
}
