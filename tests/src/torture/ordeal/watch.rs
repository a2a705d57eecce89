//! Whether a process that serves for long grows: its memory, open files and threads, from Linux's `/proc`.

use super::books::{Breach, Sheet};
use anyhow::{Context, Result};
use serde::Serialize;

/// One look at a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Resident memory, in MB (10⁶ bytes).
    pub rss_mb: f64,
    /// Open files, sockets among them.
    pub fds: u64,
    /// Threads.
    pub threads: u64,
}

impl Sample {
    /// Looks at a process.
    ///
    /// # Errors
    /// There is no such process, or no `/proc`.
    pub fn of(pid: u32) -> Result<Sample> {
        let status =
            std::fs::read_to_string(format!("/proc/{pid}/status")).context("this needs Linux's /proc")?;
        let number = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name))?;
            line.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok()
        };
        let kib = number("VmRSS").context("VmRSS")?;
        Ok(Sample {
            rss_mb: (kib as f64 * 10.24).round() / 10_000.0,
            fds: std::fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64,
            threads: number("Threads").context("Threads")?,
        })
    }
}

/// The first and the last look, and the most in between.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Growth {
    /// How often it was looked.
    pub samples: u64,
    /// Resident memory at first, in MB.
    pub rss_first_mb: f64,
    /// At last.
    pub rss_last_mb: f64,
    /// At most.
    pub rss_most_mb: f64,
    /// Open files at first.
    pub fds_first: u64,
    /// At last.
    pub fds_last: u64,
    /// Threads at first.
    pub threads_first: u64,
    /// At last.
    pub threads_last: u64,
}

/// Samples of one process that lives on.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    samples: Vec<Sample>,
}

impl Watch {
    /// Adds a look.
    pub fn add(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// What there is to say.
    #[must_use]
    pub fn growth(&self) -> Growth {
        let (Some(first), Some(last)) = (self.samples.first(), self.samples.last()) else {
            return Growth::default();
        };
        Growth {
            samples: self.samples.len() as u64,
            rss_first_mb: first.rss_mb,
            rss_last_mb: last.rss_mb,
            rss_most_mb: self.samples.iter().map(|s| s.rss_mb).fold(0.0, f64::max),
            fds_first: first.fds,
            fds_last: last.fds,
            threads_first: first.threads,
            threads_last: last.threads,
        }
    }

    /// Holds it against its bounds. Memory may grow by a half and 32 MB (caches and the allocator's pools fill at first),
    /// open files by 32 (connections that clients keep), threads by 16 (those that block, and go after a while). The
    /// least of the last quarter counts, not one bad moment.
    pub fn judge(&self, sheet: &mut Sheet) {
        let Some(first) = self.samples.first() else {
            return sheet.check(false, Breach::Service, || "no server was watched".into());
        };
        let quarter = &self.samples[self.samples.len() - self.samples.len().div_ceil(4)..];
        let least = |of: fn(&Sample) -> f64| quarter.iter().map(of).fold(f64::INFINITY, f64::min);
        let mut bound = |what: &str, before: f64, most: f64, now: f64| {
            sheet.check(now <= most, Breach::Service, || {
                format!("the server's {what} grew from {before} to {now}, beyond {most}")
            });
        };
        let (rss, fds, threads) = (first.rss_mb, first.fds as f64, first.threads as f64);
        bound("memory (MB)", rss, rss * 1.5 + 32.0, least(|s| s.rss_mb));
        bound("open files", fds, fds + 32.0, least(|s| s.fds as f64));
        bound("threads", threads, threads + 16.0, least(|s| s.threads as f64));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn violations(samples: impl IntoIterator<Item = (f64, u64, u64)>) -> usize {
        let samples = samples.into_iter().map(|(rss_mb, fds, threads)| Sample { rss_mb, fds, threads });
        let watch = Watch { samples: samples.collect() };
        let mut sheet = Sheet::default();
        watch.judge(&mut sheet);
        sheet.violations.len()
    }

    #[test]
    fn growth_is_seen_and_a_bad_moment_is_not_growth() {
        let steady = (0..100).map(|n| (40.0 + f64::from(n % 7), 30 + n as u64 % 9, 12));
        assert_eq!(violations(steady.clone()), 0);
        let peaks = steady.clone().chain([(400.0, 500, 90)]);
        assert_eq!(violations(peaks), 0);
        assert_eq!(violations((0..100).map(|n| (40.0 + f64::from(n), 30, 12))), 1, "memory");
        assert_eq!(violations((0..100).map(|n| (40.0, 30 + n as u64, 12))), 1, "open files");
        assert_eq!(violations((0..100).map(|n| (40.0, 30, 12 + n as u64))), 1, "threads");
        assert_eq!(violations([]), 1, "nothing was watched");
    }

    #[test]
    fn this_process_can_be_looked_at() {
        let sample = Sample::of(std::process::id()).unwrap();
        assert!(sample.rss_mb > 0.5 && sample.fds >= 3 && sample.threads >= 1, "{sample:?}");
        let mut watch = Watch::default();
        watch.add(sample);
        assert_eq!(watch.growth().fds_first, sample.fds);
        assert!(Sample::of(u32::MAX - 1).is_err());
    }
}
