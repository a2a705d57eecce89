//! Providers, one class a strategy: what happens is counted apart from what is answered.

use crate::lab::Lab;
use crate::plan::ToolPlan;
use crate::rng::Rng;
use crate::world::OUTSIDE;
use ledger::words::{Millis, OperationId};
use ledger::{EffectKey, Execution, Looked, Receipt, Sent, Strategy};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// What a provider knows under a key.
#[derive(Default)]
struct Entry {
    /// A request under this key is being worked on.
    busy: bool,
    /// The kept answer, and since when.
    kept: Option<(Sent, i64)>,
    /// When each object becomes visible to whoever asks.
    objects: Vec<i64>,
}

pub(crate) struct Provider {
    entries: HashMap<String, Entry>,
    pub rng: Rng,
}

impl Provider {
    pub fn new(rng: Rng) -> Provider {
        Provider { entries: HashMap::new(), rng }
    }

    fn entry(&mut self, key: &str) -> &mut Entry {
        self.entries.entry(key.to_owned()).or_default()
    }

    /// What can be seen now.
    pub fn look(&mut self, key: &EffectKey, now: i64) -> Looked {
        let seen = self.entry(key.as_str()).objects.iter().filter(|t| **t <= now).count();
        let receipt = Receipt(format!("object {key}").into_bytes());
        match seen {
            0 => Looked::NotFound,
            1 => Looked::Found(receipt),
            _ => Looked::Several(receipt),
        }
    }
}

/// A request on its way.
pub(crate) struct Request {
    pub tool: usize,
    pub op: OperationId,
    pub effect: String,
    pub key: EffectKey,
    pub replay: bool,
    /// In virtual time.
    pub deadline: i64,
}

fn unknown(why: &str, stored: bool) -> Sent {
    Sent::Unknown { why: why.into(), retry_after: None, stored }
}

/// What the provider does with a request that it has taken up.
enum Turn {
    Answer(Sent),
    /// Works on it for a while.
    Work(i64),
}

impl Lab {
    /// Carries a request to the provider and the answer back. It lives outside of every replica: a packet goes on
    /// when its sender dies.
    pub fn carry(self: &Arc<Self>, request: Request, reply: oneshot::Sender<Sent>) {
        let lab = self.clone();
        self.state().fact(request.op, &request.effect).in_flight += 1;
        self.world.spawn(
            OUTSIDE,
            Box::pin(async move {
                let sent = lab.handle(&request).await;
                {
                    let mut s = lab.state();
                    s.fact(request.op, &request.effect).in_flight -= 1;
                }
                let (lost, ms) = {
                    let mut s = lab.state();
                    let r = &mut s.providers[request.tool].rng;
                    (lab.hits(r, lab.plan.rates.answer_lost), r.range(1, 15))
                };
                lab.world.sleep(ms).await;
                if lost || sent.is_none() {
                    // A connection that is reset, or one that stays silent.
                    if ms % 2 == 0 {
                        lab.world.sleep(request.deadline + 5 - lab.world.now()).await;
                    }
                    return;
                }
                if let Some(sent) = sent {
                    let _ = reply.send(sent);
                }
            }),
        );
    }

    async fn handle(&self, q: &Request) -> Option<Sent> {
        let tool = &self.plan.tools[q.tool];
        let left = (q.deadline - self.world.now()).max(1);
        let (ms, lost) = {
            let mut s = self.state();
            let r = &mut s.providers[q.tool].rng;
            let rates = &self.plan.rates;
            let stalls = self.hits(r, rates.stalls);
            let ms = if stalls {
                left + r.range(500, 8000)
            } else if self.hits(r, rates.slow) {
                r.range(0, left - 1)
            } else {
                r.range(0, 10).min(left - 1)
            };
            let lost = self.hits(r, rates.request_lost);
            if stalls {
                s.coverage.fault("packet held up");
                s.fact(q.op, &q.effect).stalled = true;
            }
            (ms, lost)
        };
        self.world.sleep(ms).await;
        if lost {
            self.say(format_args!("the request for `{}` of {} is lost", q.effect, q.op));
            return None;
        }
        let late = tool.recovery.processing_bound.0;
        match self.arrive(q, tool) {
            Turn::Answer(sent) => Some(sent),
            Turn::Work(ms) => {
                self.world.sleep(ms.min(late)).await;
                Some(self.finish(q, tool))
            }
        }
    }

    fn arrive(&self, q: &Request, tool: &ToolPlan) -> Turn {
        let now = self.world.now();
        let mut guard = self.state();
        let s = &mut *guard;
        let rates = &self.plan.rates;
        let fact = s.fact(q.op, &q.effect);
        let (stalled, intended) = (fact.stalled, fact.intended);
        let horizon = tool.recovery.replay_for.filter(|_| tool.recovery.strategy == Strategy::Natural);
        if let Some(h) = horizon
            && !stalled
            && let Some(r) = s.records.get(&q.op)
            // A person may order one more.
            && r.op.decisions.is_empty()
            && let Some(e) = r.op.effects.iter().find(|e| e.name == q.effect)
            && !e.has_receipt
            // What provably never left may still be sent.
            && q.replay
            && now > intended + h.0 + 1 + self.lag()
        {
            let what = format!("`{}` of {} was repeated past its horizon", q.effect, q.op);
            self.fail(s, "horizon", what);
        }
        let p = &mut s.providers[q.tool];
        let refused = q.replay && !tool.keeps_failures && self.hits(&mut p.rng, rates.replay_refused);
        let work = if self.hits(&mut p.rng, rates.slow) { p.rng.range(0, 1990) } else { p.rng.range(0, 20) };
        let entry = p.entry(q.key.as_str());
        let keyed = matches!(tool.recovery.strategy, Strategy::Key | Strategy::Unique);
        if !keyed {
            if refused {
                return Turn::Answer(Sent::Refused(Receipt(b"401".to_vec())));
            }
            return Turn::Work(work);
        }
        if let Some((kept, at)) = &entry.kept
            && tool.retention.is_none_or(|r| now - at <= r)
        {
            // Credentials that expired meanwhile, say: about this request, not about the first.
            return Turn::Answer(if refused {
                Sent::Refused(Receipt(b"401".to_vec()))
            } else {
                kept.clone()
            });
        }
        if entry.busy {
            return Turn::Answer(if work % 2 == 0 {
                Sent::NotApplied { why: "another is being worked on".into(), retry_after: Some(Millis(200)) }
            } else {
                unknown("409", false)
            });
        }
        entry.busy = true;
        entry.kept = None;
        Turn::Work(work)
    }

    fn finish(&self, q: &Request, tool: &ToolPlan) -> Sent {
        let now = self.world.now();
        let rates = &self.plan.rates;
        let mut guard = self.state();
        let s = &mut *guard;
        let r = &mut s.providers[q.tool].rng;
        let lag = if r.mille(300) { r.range(0, tool.recovery.visibility_lag.0) } else { 0 };
        let receipt = Receipt(format!("{} {} {:x}", q.op, q.effect, r.next() & 0xffff).into_bytes());
        let applied = Sent::Applied(receipt);
        let failed = |stored| unknown("500", stored && tool.keeps_failures);
        // What happens, what is answered, what is kept.
        let (happens, answer, kept) = if self.hits(r, rates.refuses) {
            let refused = Sent::Refused(Receipt(b"402 declined".to_vec()));
            (false, refused.clone(), tool.keeps_failures.then_some(refused))
        } else if self.hits(r, rates.busy) {
            let why = "429".to_owned();
            (false, Sent::NotApplied { why, retry_after: Some(Millis(r.range(10, 900))) }, None)
        } else if self.hits(r, rates.fails) {
            let happens = r.mille(500);
            let kept = if tool.keeps_failures { Some(failed(true)) } else { happens.then_some(applied) };
            (happens, failed(true), kept)
        } else {
            (true, applied.clone(), Some(applied))
        };
        let entry = s.providers[q.tool].entry(q.key.as_str());
        entry.busy = false;
        if let Some(kept) = kept {
            entry.kept = Some((kept, now));
        }
        if happens {
            entry.objects.push(now + lag);
            self.happened(s, q, tool);
        }
        answer
    }

    /// An effect happens: as often as its strategy promises, and not after anybody was told that it won't.
    fn happened(&self, s: &mut crate::lab::State, q: &Request, tool: &ToolPlan) {
        self.say(format_args!("`{}` of {} happens", q.effect, q.op));
        self.world.trace.mark(12, q.op.0 as u64);
        let fact = s.fact(q.op, &q.effect);
        fact.applied += 1;
        let (n, excused) = (fact.applied, fact.stalled || fact.word);
        if n > 1 && !excused && tool.recovery.strategy != Strategy::Natural {
            let what = format!(
                "`{}` of {} happened {n} times; `{}` promises: {}",
                q.effect,
                q.op,
                tool.recovery.strategy.word(),
                tool.recovery.strategy.promise()
            );
            self.fail(s, "effects", what);
        }
        if let Some(r) = s.records.get(&q.op)
            && !excused
        {
            let rejected =
                r.op.effects
                    .iter()
                    .any(|e| e.name == q.effect && e.state == ledger::EffectState::Rejected && n == 1);
            let ended = matches!(r.op.execution, Execution::Failed { .. } | Execution::Cancelled { .. });
            if rejected || ended {
                let what =
                    format!("`{}` of {} happened after it was recorded that it would not", q.effect, q.op);
                self.fail(s, "nothing_happened", what);
            }
        }
    }
}
