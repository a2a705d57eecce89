//! A shelf in memory whose clock and whose failures are the test's.
#![allow(dead_code)]

use async_trait::async_trait;
use ledger::Time;
use seal::{Kept, Shelf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::SeqCst};

#[derive(Default)]
pub struct Memory {
    pub value: Mutex<Option<Kept>>,
    pub clock: AtomicI64,
    pub away: AtomicBool,
    pub reads: AtomicUsize,
    /// The next write is made, and its acknowledgement lost.
    pub lose: AtomicBool,
}

impl Memory {
    pub fn advance(&self, ms: i64) {
        self.clock.fetch_add(ms, SeqCst);
    }
    pub fn bytes(&self) -> Vec<u8> {
        self.value.lock().unwrap().clone().unwrap().data
    }
    pub fn put(&self, data: Vec<u8>) {
        let mut value = self.value.lock().unwrap();
        let version = value.as_ref().map_or(0, |v| v.version) + 1;
        *value = Some(Kept { version, data });
    }
}

#[async_trait]
impl Shelf for Memory {
    fn now(&self) -> Time {
        Time(self.clock.load(SeqCst))
    }
    async fn kept(&self, _name: &str) -> Result<Option<Kept>, String> {
        self.reads.fetch_add(1, SeqCst);
        tokio::task::yield_now().await;
        if self.away.load(SeqCst) {
            return Err("the database is away".into());
        }
        Ok(self.value.lock().unwrap().clone())
    }
    async fn keep(&self, _name: &str, expected: u64, data: Vec<u8>) -> Result<bool, String> {
        tokio::task::yield_now().await;
        if self.away.load(SeqCst) {
            return Err("the database is away".into());
        }
        let mut value = self.value.lock().unwrap();
        if value.as_ref().map_or(0, |v| v.version) != expected {
            return Ok(false);
        }
        *value = Some(Kept { version: expected + 1, data });
        if self.lose.swap(false, SeqCst) { Err("no answer".into()) } else { Ok(true) }
    }
}
