//! A provider that counts effects by key and does with each send what a script says.

use super::gated::Gate;
use super::pause;
use async_trait::async_trait;
use counterfoil_ledger::*;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// How the provider treats one send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Applies it and says so.
    Apply,
    /// Provably nothing left.
    NotSent,
    /// Applies it; the answer is lost.
    ApplyAndLose,
    /// The request is lost, and nobody knows.
    Lose,
    /// Not sent, because it would reach somebody else now.
    Withhold,
    /// Refuses it for good.
    Refuse,
    /// 429: not applied, wait.
    Busy,
    /// 429 with a pause of many years.
    BusyForYears,
    /// Not applied, and every replay gets the same failure.
    StoredFailure,
    /// Applies it and never answers.
    ApplyAndHang,
}

/// What the provider remembers and counts.
pub struct Provider {
    /// Whether a second send under the same key has no second effect.
    pub dedupes: bool,
    script: Mutex<VecDeque<Act>>,
    pub otherwise: Mutex<Act>,
    effects: Mutex<HashMap<String, u32>>,
    pub sends: Mutex<Vec<(String, Vec<u8>, bool)>>,
    /// What each send was allowed, in milliseconds.
    pub timeouts: Mutex<Vec<i64>>,
    /// How long each send takes.
    pub latency: std::sync::atomic::AtomicI64,
    pub looks: AtomicUsize,
    /// The next look-ups see nothing.
    pub blind: AtomicUsize,
    /// The next look-ups are not answered.
    pub deaf: AtomicUsize,
    /// Look-ups see nothing before this many sends.
    pub blind_before_sends: AtomicUsize,
}

impl Provider {
    pub fn new(dedupes: bool, script: &[Act]) -> Arc<Provider> {
        Arc::new(Provider {
            dedupes,
            script: Mutex::new(script.iter().copied().collect()),
            otherwise: Mutex::new(Act::Apply),
            effects: Mutex::default(),
            sends: Mutex::default(),
            timeouts: Mutex::default(),
            latency: 0.into(),
            looks: AtomicUsize::new(0),
            blind: AtomicUsize::new(0),
            deaf: AtomicUsize::new(0),
            blind_before_sends: AtomicUsize::new(0),
        })
    }
    pub fn effects(&self) -> u32 {
        self.effects.lock().unwrap().values().sum()
    }
    pub fn send_count(&self) -> usize {
        self.sends.lock().unwrap().len()
    }
    /// Every send so far went out under one key with the same bytes.
    pub fn assert_one_key(&self) {
        let sends = self.sends.lock().unwrap();
        for s in sends.iter() {
            assert_eq!((&s.0, &s.1), (&sends[0].0, &sends[0].1), "another key or other bytes went out");
        }
    }
    fn apply(&self, key: &str) -> Receipt {
        let mut effects = self.effects.lock().unwrap();
        let n = effects.entry(key.to_owned()).or_default();
        if *n == 0 || !self.dedupes {
            *n += 1;
        }
        Receipt(format!("receipt of {key}").into_bytes())
    }
}

/// One boot's way to the provider.
pub struct Line {
    pub provider: Arc<Provider>,
    pub gate: Arc<Gate>,
}

#[async_trait]
impl Executor for Line {
    async fn send(&self, intent: &Intent, key: &EffectKey, replay: bool, timeout: Millis) -> Sent {
        self.gate.pass("before a send").await;
        let p = &self.provider;
        p.timeouts.lock().unwrap().push(timeout.0);
        if p.latency.load(SeqCst) > 0 {
            pause(p.latency.load(SeqCst)).await;
        }
        let act = {
            p.sends.lock().unwrap().push((key.as_str().into(), intent.body.clone(), replay));
            let next = p.script.lock().unwrap().pop_front();
            next.unwrap_or(*p.otherwise.lock().unwrap())
        };
        let known = p.effects.lock().unwrap().get(key.as_str()).copied().unwrap_or(0) > 0;
        let unknown = |stored| Sent::Unknown { why: format!("{act:?}"), retry_after: None, stored };
        let sent = match act {
            // A provider that honours the key answers a replay of what it did with the first answer.
            _ if p.dedupes
                && known
                && !matches!(
                    act,
                    Act::NotSent | Act::Withhold | Act::Lose | Act::Refuse | Act::StoredFailure
                ) =>
            {
                Sent::Applied(p.apply(key.as_str()))
            }
            Act::Apply => Sent::Applied(p.apply(key.as_str())),
            Act::NotSent => Sent::NotSent { why: "connection refused".into() },
            Act::Withhold => Sent::Withheld { why: "the account is another one now".into() },
            Act::ApplyAndLose => {
                p.apply(key.as_str());
                unknown(false)
            }
            Act::Lose => unknown(false),
            Act::Refuse => Sent::Refused(Receipt(b"refused".to_vec())),
            Act::Busy => Sent::NotApplied { why: "429".into(), retry_after: Some(Millis(700)) },
            Act::BusyForYears => {
                Sent::NotApplied { why: "429".into(), retry_after: Some(Millis(i64::MAX / 2)) }
            }
            Act::StoredFailure => unknown(true),
            Act::ApplyAndHang => {
                p.apply(key.as_str());
                tokio::time::sleep(timeout.duration()).await;
                unknown(false)
            }
        };
        self.gate.pass("after a send").await;
        sent
    }

    async fn look_up(&self, _: &Intent, key: &EffectKey, _: Millis) -> Looked {
        self.gate.pass("before a look-up").await;
        let p = &self.provider;
        p.looks.fetch_add(1, SeqCst);
        let take = |n: &AtomicUsize| n.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok();
        let looked = if take(&p.deaf) {
            Looked::Unknown { why: "no answer".into() }
        } else if take(&p.blind) || p.send_count() < p.blind_before_sends.load(SeqCst) {
            Looked::NotFound
        } else {
            let receipt = Receipt(format!("receipt of {key}").into_bytes());
            match p.effects.lock().unwrap().get(key.as_str()).copied().unwrap_or(0) {
                0 => Looked::NotFound,
                1 => Looked::Found(receipt),
                _ => Looked::Several(receipt),
            }
        };
        self.gate.pass("after a look-up").await;
        looked
    }
}
