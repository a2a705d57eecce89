//! What happened, as a number that tells two runs apart and, where wanted, as text for people.

use crate::world::lock;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Default)]
pub(crate) struct Trace {
    hash: AtomicU64,
    lines: Option<Mutex<Vec<String>>>,
}

impl Trace {
    pub fn new(recording: bool) -> Trace {
        Trace { hash: AtomicU64::new(0), lines: recording.then(Mutex::default) }
    }
    /// Something happened.
    pub fn mark(&self, what: u64, value: u64) {
        let h = self.hash.load(Relaxed).rotate_left(5) ^ what ^ value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.hash.store(h.wrapping_mul(0xbf58_476d_1ce4_e5b9), Relaxed);
    }
    pub fn is_recording(&self) -> bool {
        self.lines.is_some()
    }
    /// A line for people; `at` in virtual milliseconds.
    pub fn line(&self, at: i64, text: fmt::Arguments<'_>) {
        if let Some(lines) = &self.lines {
            let line = format!("{at:>8} ms  {text}");
            for c in line.as_bytes() {
                self.mark(3, u64::from(*c));
            }
            lock(lines).push(line);
        }
    }
    pub fn hash(&self) -> u64 {
        self.hash.load(Relaxed)
    }
    pub fn take(&self) -> Vec<String> {
        self.lines.as_ref().map(|l| std::mem::take(&mut *lock(l))).unwrap_or_default()
    }
}
