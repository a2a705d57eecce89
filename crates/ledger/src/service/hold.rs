//! Claims on allowances: made before an operation is written or tried anew, given back when it needs them no more.
//!
//! The order is what makes them safe. A claim is durable before the record that needs it, and what is given back is given
//! back after the record says that it is not needed, so whatever is cut off in between is held for nothing until it ends by
//! itself. Turns keep late hands off: what one state of a record gives back, a later attempt may have claimed again.

use super::{CallError, Kind, Ledger};
use crate::claims::{self, Allowance, Claim, Claimed, Term};
use crate::env::Env;
use crate::operation::{Execution, Operation};
use crate::planted;
use crate::store::{Store, StoreError};
use crate::words::{Millis, OperationId, Time};
use std::sync::Arc;

/// How often a claim is made again whose acknowledgement was lost.
const TRIES: u32 = 3;

impl Ledger {
    /// Claims what these allow, all or nothing.
    ///
    /// # Errors
    /// What a caller is told: nothing ran, and why.
    pub(super) async fn hold(
        &self,
        id: OperationId,
        turn: u64,
        allowances: &[Allowance],
    ) -> Result<(), Box<CallError>> {
        if allowances.is_empty() || planted!(NothingClaimed) {
            return Ok(());
        }
        let now = self.store.now();
        let claims: Vec<Claim> = allowances.iter().map(|a| a.claim(now)).collect();
        match self.claim(id, turn, &claims).await {
            Ok(Claimed::Granted) => Ok(()),
            Ok(Claimed::Full { which, used, next }) => Err(Box::new(match allowances.get(which) {
                Some(a) => full(a, used, next, now),
                None => not_claimed(&StoreError::Unavailable("a claim that was not made is full".into())),
            })),
            Err(e) => Err(Box::new(not_claimed(&e))),
        }
    }

    /// Claims for one that goes on whatever others hold, so that they see it. That it fails stops nobody.
    pub(super) async fn hold_anyway(&self, op: &Operation) {
        let now = self.store.now();
        let again = op.allowances.iter().filter(|a| !matches!(a.term, Term::Rate(_)));
        let claims: Vec<Claim> = again.map(|a| a.claim_anyway(now)).collect();
        if claims.is_empty() {
            return;
        }
        if let Err(e) = self.claim(op.id, op.version, &claims).await {
            tracing::warn!(operation = %op.id, error = %e, "an attempt goes on, and its limits could not be told of it");
        }
    }

    /// What an operation that is called again has to claim first: it gave some back, and runs anew.
    pub(super) async fn hold_again(&self, op: &Operation) -> Result<(), Box<CallError>> {
        let anew = match op.execution {
            Execution::Accepted => true,
            Execution::Failed { .. } => op.task.is_none() && !op.may_have_effect(),
            _ => false,
        };
        if anew { self.hold(op.id, op.version + 1, &op.allowances).await } else { Ok(()) }
    }

    async fn claim(&self, id: OperationId, turn: u64, claims: &[Claim]) -> Result<Claimed, StoreError> {
        let mut tries = 0;
        loop {
            match self.store.claim(id, turn, claims).await {
                Err(StoreError::Uncertain(_)) if tries < TRIES => {
                    tries += 1;
                    self.env.sleep(Millis(20 << tries)).await;
                }
                other => return other,
            }
        }
    }

    /// Gives back what this record holds for nothing. Whoever is told of the record afterwards finds it free.
    pub(super) async fn give_back(&self, op: &Operation) {
        if !op.allowances.is_empty() {
            release(&*self.store, op.id, op.version, &claims::given_back(op)).await;
        }
    }

    /// Gives back what an operation claimed that was not written.
    pub(super) async fn not_opened(&self, id: OperationId, allowances: &[Allowance]) {
        let buckets: Vec<String> = allowances.iter().map(|a| a.bucket.clone()).collect();
        release(&*self.store, id, 1, &buckets).await;
    }

    /// Claims what these allow for something that has no record: a read.
    ///
    /// # Errors
    /// What the caller is told: nothing was read, and why.
    pub async fn hold_for_read(&self, allowances: &[Allowance]) -> Result<ReadHold, Box<CallError>> {
        let id = OperationId::new(self.store.now(), self.env.random_u128());
        self.hold(id, 1, allowances).await.map_err(|e| Box::new(self.answered(*e)))?;
        let places = allowances.iter().filter(|a| matches!(a.term, Term::Place(_)));
        let buckets = places.map(|a| a.bucket.clone()).collect();
        Ok(ReadHold { store: self.store.clone(), env: self.env.clone(), id, buckets })
    }
}

/// Held while something is read.
pub struct ReadHold {
    store: Arc<dyn Store>,
    env: Arc<dyn Env>,
    id: OperationId,
    buckets: Vec<String>,
}

impl ReadHold {
    /// It was read.
    pub async fn end(mut self) {
        release(&*self.store, self.id, 1, &std::mem::take(&mut self.buckets)).await;
    }
}

impl Drop for ReadHold {
    fn drop(&mut self) {
        let (buckets, id, store) = (std::mem::take(&mut self.buckets), self.id, self.store.clone());
        if !buckets.is_empty() {
            self.env.spawn(Box::pin(async move { release(&*store, id, 1, &buckets).await }));
        }
    }
}

async fn release(store: &dyn Store, id: OperationId, turn: u64, buckets: &[String]) {
    if buckets.is_empty() {
        return;
    }
    if let Err(e) = store.release_claims(id, turn, buckets).await {
        tracing::debug!(operation = %id, error = %e, "claims could not be given back; they end by themselves");
    }
}

/// Nothing of the operation was written, so whatever became of the claims, nothing ran.
fn not_claimed(e: &StoreError) -> CallError {
    tracing::warn!(error = %e, "limits could not be looked at");
    CallError {
        retry_after: Some(Millis::secs(1)),
        ..CallError::plain(
            Kind::Unavailable,
            "The limits of this call could not be looked at, so nothing ran.",
            "Call again a little later; it is safe. Give the same key if you gave one.",
        )
    }
}

fn full(a: &Allowance, used: u64, next: Option<Time>, now: Time) -> CallError {
    let left = a.cap.saturating_sub(used);
    let how = match a.term {
        Term::Rate(_) => format!("{used} began in that time"),
        Term::Place(_) => format!("{used} are running"),
        Term::Budget(_) => format!("{used} are used, {left} are left, and this call asks for {}", a.amount),
    };
    let again = "the same arguments, and the same key if you gave one, after `retryAfterMs`";
    let advice = match (a.term, next) {
        (_, None) => format!("No waiting helps: one call may ask for at most {}.", a.cap),
        (Term::Budget(_), Some(_)) if left > 0 => {
            format!("Ask for at most {left}, or call again with {again}; both are safe.")
        }
        (_, Some(_)) => format!("Call again with {again}; it is safe."),
    };
    CallError {
        retry_after: next.map(|t| Millis(t.since(now).0.max(1))),
        ..CallError::plain(
            // What never fits is no matter of when.
            if next.is_some() { Kind::Limited } else { Kind::Denied },
            format!("This call would go over a limit, so nothing ran. {a}; {how}."),
            advice,
        )
    }
}
