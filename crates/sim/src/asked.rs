//! What callers do with questions and with tasks: answer in time, late, twice, in part, differently, elsewhere or not at
//! all; look, answer and cancel whatever moment it is.

use crate::caller::{Brings, Caller, MOST_TRIES, Next};
use crate::plan::Wish;
use ledger::{Ask, BlobKind, Execution, InputKind, Ledger, Operation, OperationId};
use std::future::Future;
use std::sync::Arc;
use tokio::sync::oneshot;

/// What a look at a task tells.
enum Seen {
    Runs,
    Doubt,
    Asks(OperationId, Vec<Ask>),
    Ended(Option<String>),
    /// It isn't there.
    Gone,
    Unknown,
}

fn answer(ask: &Ask, dice: u64) -> (String, Vec<u8>) {
    let text =
        if ask.kind == InputKind::Approval { format!("accept {dice}") } else { format!("answer {dice}") };
    (ask.key.clone(), text.into_bytes())
}

impl Caller {
    /// Has something done at some replica; `None`: nothing was heard of it.
    pub async fn at_some<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &mut self,
        what: impl FnOnce(Arc<Ledger>) -> F,
    ) -> Option<T> {
        let lab = self.lab();
        let boot = self.fleet.get(self.rng.index(lab.plan.replicas));
        let (tx, rx) = oneshot::channel();
        let doing = what(boot.ledger.clone());
        lab.world.spawn(
            boot.home,
            Box::pin(async move {
                let _ = tx.send(doing.await);
            }),
        );
        tokio::select! {
            biased;
            done = rx => done.ok(),
            () = lab.world.sleep(3000) => None,
        }
    }

    /// What a caller does that was asked.
    pub async fn answer(
        &mut self,
        wish: &Wish,
        arguments: usize,
        op: OperationId,
        open: Vec<Ask>,
        state: String,
    ) -> Next {
        let lab = self.lab();
        let is_approval = open.iter().any(|a| a.kind == InputKind::Approval);
        let back = |answers| Brings { key: None, named: Some(op), state: Some(state.clone()), answers };
        let all: Vec<_> = open.iter().map(|a| answer(a, 0)).collect();
        if lab.hits(&mut self.rng, wish.quits) {
            lab.state().coverage.travel("left unanswered");
            return Next::Done;
        }
        if is_approval && lab.hits(&mut self.rng, wish.denies) {
            lab.state().coverage.travel("said no");
            let by = self.plan.principal;
            let denied = self.at_some(move |l| async move { l.deny(op, by).await.ok() }).await;
            if let Some(Some(now)) = denied
                && !matches!(now.execution, Execution::Cancelled { explicit: true })
            {
                let what = format!("{op} was denied and is {}", now.execution.word());
                lab.fail(&mut lab.state(), "denied", what);
            }
            return Next::Call(back(Vec::new()), self.rng.range(1, 500));
        }
        if is_approval {
            lab.state().books.said_yes.insert(op);
        }
        if !lab.hits(&mut self.rng, wish.fickle) {
            return Next::Call(back(all), self.rng.range(1, 300));
        }
        match self.rng.below(6) {
            0 => {
                lab.state().coverage.travel("answered in part");
                Next::Call(back(all[..1].to_vec()), 10)
            }
            1 => {
                lab.state().coverage.travel("answered late");
                Next::Call(back(all), self.rng.range(500, 6000))
            }
            dice @ (2 | 3) => {
                // The same from two sides, or another answer.
                let other: Vec<_> = open.iter().map(|a| answer(a, dice - 2)).collect();
                lab.state().coverage.travel(if dice == 2 {
                    "answered twice"
                } else {
                    "answered differently"
                });
                let (_, stay) = self.place(wish, arguments, back(other), false);
                let world = lab.world.clone();
                let ms = self.rng.range(0, 3000);
                lab.world.spawn(
                    crate::world::OUTSIDE,
                    Box::pin(async move {
                        world.sleep(ms).await;
                        drop(stay);
                    }),
                );
                Next::Call(back(all), self.rng.range(0, 3))
            }
            4 => {
                lab.state().coverage.travel("answered elsewhere");
                let by = self.plan.principal;
                self.at_some(move |l| async move { l.answer(op, by, &all).await.is_ok() }).await;
                Next::Call(back(Vec::new()), self.rng.range(0, 50))
            }
            _ if is_approval => {
                // Somebody says no while somebody says yes.
                lab.state().coverage.travel("yes against no");
                let boot = self.fleet.get(self.rng.index(lab.plan.replicas));
                let (by, ms) = (self.plan.principal, self.rng.range(0, 8));
                let world = lab.world.clone();
                lab.world.spawn(
                    boot.home,
                    Box::pin(async move {
                        world.sleep(ms).await;
                        let _ = boot.ledger.deny(op, by).await;
                    }),
                );
                Next::Call(back(all), 0)
            }
            _ => Next::Call(back(Vec::new()), self.rng.range(1, 800)),
        }
    }

    /// Says something else after the end: the answer that counted still does.
    pub async fn answer_again(
        &mut self,
        wish: &Wish,
        arguments: usize,
        op: OperationId,
        given: &[(String, Vec<u8>)],
    ) {
        let lab = self.lab();
        if given.is_empty() || !lab.hits(&mut self.rng, wish.fickle) {
            return;
        }
        lab.state().coverage.travel("answered after the end");
        let mut answers = given.to_vec();
        if self.rng.mille(500) {
            answers[0].1.push(b'!');
        }
        self.call(wish, arguments, Brings { named: Some(op), answers, ..Brings::default() }).await;
    }

    /// Looks after a task until it ends.
    pub async fn follow(&mut self, wish: &Wish, text: &str) {
        let lab = self.lab();
        let (mut tries_in_calm, mut doubts) = (0, 0);
        loop {
            lab.world.sleep(self.rng.range(50, 900)).await;
            if lab.is_calm() {
                tries_in_calm += 1;
                if tries_in_calm > MOST_TRIES {
                    let what = format!("caller {} sees no end of its task {text}", self.plan.number);
                    return lab.fail(&mut lab.state(), "liveness", what);
                }
            }
            let (name, principal) = (text.to_owned(), self.plan.principal);
            if lab.hits(&mut self.rng, wish.cancels) {
                lab.state().coverage.travel("task cancelled");
                let name = name.clone();
                self.at_some(move |l| async move {
                    let Some(id) = l.task(&name) else { return };
                    let _ = l.cancel(id, principal.to_owned()).await;
                })
                .await;
            }
            let seen = self.at_some(move |l| look(l, name, principal)).await.unwrap_or(Seen::Unknown);
            match seen {
                Seen::Runs | Seen::Unknown => {}
                Seen::Doubt => {
                    doubts += 1;
                    if doubts > 3 {
                        return;
                    }
                }
                Seen::Asks(op, open) => {
                    if lab.hits(&mut self.rng, wish.quits) {
                        return;
                    }
                    if open.iter().any(|a| a.kind == InputKind::Approval) {
                        lab.state().books.said_yes.insert(op);
                    }
                    let dice = if lab.hits(&mut self.rng, wish.fickle) { self.rng.below(2) } else { 0 };
                    let mut answers: Vec<_> = open.iter().map(|a| answer(a, dice)).collect();
                    if lab.hits(&mut self.rng, wish.fickle) {
                        answers.truncate(1);
                    }
                    lab.state().coverage.travel("task answered");
                    self.at_some(move |l| async move { l.answer(op, principal, &answers).await.is_ok() })
                        .await;
                }
                Seen::Gone => {
                    let what = format!("the task {text} is gone");
                    let mut s = lab.state();
                    let pruned = s.books.tasks.iter().find(|(_, t)| *t == text).map(|(id, _)| *id);
                    if !pruned.is_some_and(|id| s.graves.contains_key(&id)) {
                        lab.fail(&mut s, "task_lost", what);
                    }
                    return;
                }
                Seen::Ended(nonce) => {
                    if let Some(nonce) = nonce
                        && self.rng.mille(wish.acknowledges)
                    {
                        self.acknowledge(nonce).await;
                    }
                    return;
                }
            }
        }
    }
}

async fn look(ledger: Arc<Ledger>, text: String, principal: &'static str) -> Seen {
    let Some(id) = ledger.task(&text) else { return Seen::Gone };
    let op: Operation = match ledger.status(principal, id).await {
        Err(_) => return Seen::Unknown,
        Ok(None) => return Seen::Gone,
        Ok(Some(op)) => op,
    };
    match &op.execution {
        Execution::Running | Execution::Accepted => Seen::Runs,
        Execution::Failed { .. } | Execution::Cancelled { .. } => Seen::Ended(None),
        Execution::InDoubt { .. } => Seen::Doubt,
        Execution::InputRequired { .. } => match ledger.asked(&op).await {
            Err(_) => Seen::Unknown,
            Ok(open) if open.is_empty() => Seen::Doubt,
            Ok(open) => Seen::Asks(id, open),
        },
        Execution::Completed => match ledger.store().blob(id, BlobKind::Result).await {
            Ok(Some(_)) => Seen::Ended(Some(ledger.ack_nonce(principal, id))),
            _ => Seen::Unknown,
        },
    }
}
