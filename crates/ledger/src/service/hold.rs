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
use tokio::sync::oneshot;

/// How often a claim is made again whose acknowledgement was lost.
const TRIES: u32 = 3;

impl Ledger {
    /// Claims what these allow, all or nothing. What took so long that it was over when it was made counted for nobody, so it is
    /// no claim: it is made again, from then on.
    pub(super) async fn hold(
        &self,
        id: OperationId,
        turn: u64,
        allowances: &[Allowance],
    ) -> Result<(), Unheld> {
        if allowances.is_empty() || planted!(NothingClaimed) {
            return Ok(());
        }
        let late = || StoreError::Unavailable("it takes longer than what is limited lasts".into());
        for made in 0..TRIES {
            let now = self.store.now();
            let claims: Vec<Claim> = allowances.iter().map(|a| a.claim(now)).collect();
            let why = match self.claim(id, turn, &claims).await {
                Ok(Claimed::Granted) => {
                    let then = self.store.now();
                    if claims.iter().all(|c| then < c.until) || planted!(OverWhenClaimed) {
                        return Ok(());
                    }
                    continue;
                }
                Ok(Claimed::Full { which, used, next }) => match allowances.get(which) {
                    Some(a) => return Err(Unheld { why: full(a, used, next, now), some: made > 0 }),
                    None => StoreError::Unavailable("a claim that was not made is full".into()),
                },
                Err(e) => e,
            };
            return Err(Unheld { why: not_claimed(&why), some: true });
        }
        Err(Unheld { why: not_claimed(&late()), some: true })
    }

    /// Claims for one that goes on whatever others hold, so that they see it. That it fails stops nobody. Others may end it
    /// while it claims, and have given back what they knew of: so it is looked at once more afterwards, whatever becomes of
    /// the attempt meanwhile.
    pub(super) async fn hold_anyway(self: &Arc<Self>, op: &Arc<Operation>) {
        let (claimed, told) = oneshot::channel();
        let (me, op) = (self.clone(), op.clone());
        self.env.spawn(Box::pin(async move {
            me.claim_anyway(&op).await;
            // Whoever waits for it may be gone.
            let _ = claimed.send(());
            if let Ok(Some(now)) = me.read(op.id).await
                && now.version != op.version
            {
                me.give_back(&now).await;
            }
        }));
        let _ = told.await;
    }

    async fn claim_anyway(&self, op: &Operation) {
        let now = self.store.now();
        let claims: Vec<Claim> =
            op.allowances.iter().filter_map(|a| a.claim_to_go_on(op.begun(), now)).collect();
        if claims.is_empty() || planted!(GoesOnUncounted) {
            return;
        }
        match self.claim(op.id, op.version, &claims).await {
            Ok(Claimed::Granted) => {}
            Ok(Claimed::Full { which, .. }) => {
                let bucket = claims.get(which).map(|c| c.bucket.as_str());
                tracing::warn!(operation = %op.id, bucket, "an attempt goes on, and more is held than its limit can tell");
            }
            Err(e) => {
                tracing::warn!(operation = %op.id, error = %e, "an attempt goes on, and its limits could not be told of it");
            }
        }
    }

    /// The same under an id of which nothing is recorded and that nobody else claims for: what may have been claimed before
    /// it failed is given back.
    pub(super) async fn hold_new(
        &self,
        id: OperationId,
        turn: u64,
        allowances: &[Allowance],
    ) -> Result<(), Box<CallError>> {
        match self.hold(id, turn, allowances).await {
            Ok(()) => Ok(()),
            Err(Unheld { why, some }) => {
                if some {
                    self.not_opened(id, allowances).await;
                }
                Err(Box::new(why))
            }
        }
    }

    /// What an operation that is called again has to claim first: it gave some back, and runs anew. `None`: it is no such
    /// operation, and nothing was claimed.
    ///
    /// # Errors
    /// What a caller is told: nothing ran, and why.
    pub(super) async fn hold_again(&self, op: &Operation) -> Result<Option<Again>, Box<CallError>> {
        if op.allowances.is_empty() || !runs_anew(op) {
            return Ok(None);
        }
        let (rates, rest): (Vec<Allowance>, Vec<Allowance>) = op
            .allowances
            .iter()
            .cloned()
            .partition(|a| matches!(a.term, Term::Rate(_)) && !planted!(BegunOnce));
        // Each beginning counts in a rate, and what one holder claims again would only take the place of what it had.
        let begun = OperationId::new(self.store.now(), self.env.random_u128());
        self.hold_new(begun, 1, &rates).await?;
        if let Err(e) = self.hold(op.id, op.version + 1, &rest).await {
            if !planted!(RefusedKept) {
                self.not_opened(begun, &rates).await;
            }
            return Err(Box::new(e.why));
        }
        Ok(Some(Again { begun, rates }))
    }

    /// It claimed to run anew, and did not begin.
    pub(super) async fn not_begun(&self, again: Option<Again>) {
        if let Some(Again { begun, rates }) = again {
            self.not_opened(begun, &rates).await;
        }
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

    /// The buckets of which this record holds something for nothing.
    pub(super) fn holds_for_nothing(&self, op: &Operation) -> Vec<String> {
        if op.allowances.is_empty() || planted!(NotGivenBack) { Vec::new() } else { claims::given_back(op) }
    }

    /// Gives that back. Whoever is told of the record afterwards finds it free.
    pub(super) async fn give_back(&self, op: &Operation) {
        release(&*self.store, op.id, op.version, &self.holds_for_nothing(op)).await;
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
        let places = allowances.iter().filter(|a| matches!(a.term, Term::Place(_)));
        let buckets = places.map(|a| a.bucket.clone()).collect();
        // There before anything is claimed: whoever waits for the claim may be gone before it is granted.
        let mut hold = ReadHold { store: self.store.clone(), env: self.env.clone(), id, buckets };
        match self.hold_new(id, 1, allowances).await {
            Ok(()) => Ok(hold),
            Err(e) => {
                hold.buckets.clear();
                Err(Box::new(self.answered(*e)))
            }
        }
    }
}

/// Not all of it could be claimed.
pub(super) struct Unheld {
    /// What a caller is told: nothing ran, and why.
    why: CallError,
    /// Something may be held all the same.
    some: bool,
}

/// What was claimed for an operation that is to run anew, besides what it holds itself.
pub(super) struct Again {
    /// Who holds the rates.
    begun: OperationId,
    rates: Vec<Allowance>,
}

/// Whether a call of this operation begins it anew, so that it has to claim what it gave back.
pub(super) fn runs_anew(op: &Operation) -> bool {
    match op.execution {
        Execution::Accepted => true,
        Execution::Failed { .. } => op.task.is_none() && !op.may_have_effect(),
        _ => false,
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

pub(super) async fn release(store: &dyn Store, id: OperationId, turn: u64, buckets: &[String]) {
    if buckets.is_empty() {
        return;
    }
    let turn = if planted!(GivenBackLater) { u64::MAX >> 1 } else { turn };
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

/// How much others used of what they share is not said: it would tell what they do.
fn full(a: &Allowance, used: u64, next: Option<Time>, now: Time) -> CallError {
    let left = a.cap.saturating_sub(used);
    let how = match (a.term, a.own) {
        (Term::Rate(_), true) => format!("{used} began in that time"),
        (Term::Rate(_), false) => "as many began in that time".to_owned(),
        (Term::Place(_), true) => format!("{used} are running"),
        (Term::Place(_), false) => "as many are running".to_owned(),
        (Term::Budget(_), true) => {
            format!("{used} are used, {left} are left, and this call asks for {}", a.amount)
        }
        (Term::Budget(_), false) => format!("not so much is left: this call asks for {}", a.amount),
    };
    let again = "the same arguments, and the same key if you gave one, after `retryAfterMs`";
    let advice = match (a.term, next) {
        (_, None) => format!("No waiting helps: one call may ask for at most {}.", a.cap),
        (Term::Budget(_), Some(_)) if !a.own => {
            format!("Ask for less, or call again with {again}; both are safe.")
        }
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
