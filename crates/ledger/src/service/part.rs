//! What a call does with an operation that is there: it joins its attempt, begins the next one, or asks the provider again.

use super::admit::ROUNDS;
use super::hold::runs_anew;
use super::run::Given;
use super::{ApplyError, CallError, Ledger};
use crate::decide::{Event, Refusal};
use crate::operation::{Execution, Operation};
use crate::planted;
use crate::store::StoreError;
use crate::words::Epoch;
use std::borrow::Cow;
use std::sync::Arc;

/// Why a call took no part.
pub(super) enum Untaken {
    /// It would have to begin anew, and what that needs is used up: what the caller is told.
    Limited(Box<CallError>),
    Apply(ApplyError),
}

impl From<StoreError> for Untaken {
    fn from(e: StoreError) -> Self {
        Untaken::Apply(e.into())
    }
}

impl Ledger {
    /// What a call that waits for an operation does with it, by the state it is in when that is written: it
    /// joins a live attempt, begins the next one where there is none, or asks the provider again. What begins anew claims
    /// first, for the record as it is.
    pub(super) async fn take_part(self: &Arc<Self>, op: &Operation) -> Result<Operation, Untaken> {
        let mut op = Cow::Borrowed(op);
        for _ in 0..ROUNDS {
            let again = match self.hold_again(&op).await {
                Ok(again) => again,
                Err(e) => {
                    // What is used up may be so by another call of it, which runs it by now.
                    if let Ok(Some(now)) = self.read(op.id).await
                        && !runs_anew(&now)
                    {
                        self.give_back(&now).await;
                        op = Cow::Owned(now);
                        continue;
                    }
                    let (operation, retry_key) = (Some(op.id), Some(op.id.to_string()));
                    return Err(Untaken::Limited(Box::new(CallError { operation, retry_key, ..*e })));
                }
            };
            let (mut joined, mut moved) = (false, false);
            let taken = self.apply_or_not(&op, |now| {
                // It ended meanwhile and gave back what it held; what was claimed for an earlier state is no claim for
                // this one.
                moved = now.version != op.version && !now.allowances.is_empty() && runs_anew(now);
                if moved && !planted!(ClaimedForEarlier) {
                    return Err(Refusal::Nothing);
                }
                // An attempt belongs to the boot that writes its claim, however long that takes.
                let epoch = self.store.epoch();
                let owner_dead = now.owner != Epoch(0) && !self.store.is_live(now.owner);
                joined = now.execution == Execution::Running && !owner_dead;
                Ok(vec![match &now.execution {
                    Execution::Running if !owner_dead => Event::Join { epoch },
                    Execution::InDoubt { .. } => {
                        Event::Reconcile { epoch, by: "a call of it".into(), owner_dead }
                    }
                    // Refused unless it is running, failed or abandoned.
                    _ => Event::Claim { epoch, by_call: true, owner_dead },
                }])
            });
            let (taken, unsure) = taken.await;
            let claimed = again.is_some();
            // It may be this call that began what it finds: then that counts.
            let unused = again.filter(|_| !unsure);
            match taken {
                Ok(next) if joined => {
                    self.not_begun(unused).await;
                    return Ok(next);
                }
                Ok(next) => {
                    self.launch(next.clone(), Given::default());
                    return Ok(next);
                }
                // Unless it may have begun all the same: then that counts, too.
                Err(e @ ApplyError::Store(_)) => {
                    self.not_begun(unused).await;
                    return Err(Untaken::Apply(e));
                }
                Err(e) => {
                    self.not_begun(unused).await;
                    if !claimed && !moved {
                        return Err(Untaken::Apply(e));
                    }
                    let Some(now) = self.read(op.id).await? else {
                        return Err(Untaken::Apply(ApplyError::Gone));
                    };
                    // What was claimed after another call ran it to its end is held for nothing.
                    self.give_back(&now).await;
                    if !moved {
                        return Err(Untaken::Apply(e));
                    }
                    op = Cow::Owned(now);
                }
            }
        }
        // Each round another call came first.
        Err(Untaken::Apply(ApplyError::Refused(Refusal::Nothing)))
    }
}
