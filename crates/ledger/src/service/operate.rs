//! What operators see and decide.

use super::run::Given;
use super::{ApplyError, Ledger};
use crate::decide::{Event, Refusal, Verdict};
use crate::executor::Receipt;
use crate::operation::{Execution, Operation};
use crate::store::{BlobKind, Counts, Found, Query, StoreError, Tombstone};
use crate::words::{Epoch, OperationId};
use std::sync::Arc;

/// One operation with its payloads.
#[derive(Clone, Debug)]
pub struct Detail {
    /// The record.
    pub operation: Operation,
    /// Its effects' payloads, in their order.
    pub effects: Vec<EffectDetail>,
    /// Arguments, where they were kept.
    pub arguments: Option<Vec<u8>>,
    /// The stored result.
    pub result: Option<Vec<u8>>,
}

/// An effect's payloads.
#[derive(Clone, Debug)]
pub struct EffectDetail {
    /// The recorded request.
    pub intent: Option<Vec<u8>>,
    /// The provider's answer.
    pub receipt: Option<Vec<u8>>,
}

/// Why an operator's wish can't be granted.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    /// No such operation.
    #[error("there is no operation of that id")]
    Unknown,
    /// It was pruned.
    #[error("the operation was pruned; it ended as {}", .0.outcome)]
    Pruned(Tombstone),
    /// Its state does not allow it.
    #[error("the operation is {state}: {refusal}")]
    Refused {
        /// Its state.
        state: &'static str,
        /// Why not.
        refusal: Refusal,
    },
    /// The ledger can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Ledger {
    /// Records by filter, newest first.
    ///
    /// # Errors
    /// [`StoreError`]: the ledger can't be read.
    pub async fn list(&self, query: &Query) -> Result<Vec<Operation>, StoreError> {
        self.store.list(query).await
    }

    /// How many in each state.
    ///
    /// # Errors
    /// [`StoreError`]: the ledger can't be read.
    pub async fn counts(&self) -> Result<Counts, StoreError> {
        self.store.counts().await
    }

    /// One operation with its payloads.
    ///
    /// # Errors
    /// [`OperateError`].
    pub async fn detail(&self, id: OperationId) -> Result<Detail, OperateError> {
        let operation = self.find(id).await?;
        let mut effects = Vec::new();
        for i in 0..u16::try_from(operation.effects.len()).unwrap_or(u16::MAX) {
            effects.push(EffectDetail {
                intent: self.store.blob(id, BlobKind::Intent(i)).await?,
                receipt: self.store.blob(id, BlobKind::Receipt(i)).await?,
            });
        }
        Ok(Detail {
            effects,
            arguments: self.store.blob(id, BlobKind::Arguments).await?,
            result: self.store.blob(id, BlobKind::Result).await?,
            operation,
        })
    }

    pub(super) async fn find(&self, id: OperationId) -> Result<Operation, OperateError> {
        match self.store.by_id(id).await? {
            Some(Found::Operation(op)) => Ok(*op),
            Some(Found::Tombstone(t)) => Err(OperateError::Pruned(t)),
            None => Err(OperateError::Unknown),
        }
    }

    /// Applies the event that `make` gives for the record as it is.
    pub(super) async fn operate(
        &self,
        id: OperationId,
        make: impl Fn(&Operation) -> Result<Event, Refusal>,
    ) -> Result<Operation, OperateError> {
        let op = self.find(id).await?;
        let mut state = op.execution.word();
        let applied = self.apply(&op, |now| {
            state = now.execution.word();
            Ok(vec![make(now)?])
        });
        match applied.await {
            Ok(next) => Ok(next),
            Err(ApplyError::Refused(refusal)) => Err(OperateError::Refused { state, refusal }),
            Err(ApplyError::Gone | ApplyError::Handle { .. }) => Err(OperateError::Unknown),
            Err(ApplyError::Store(e)) => Err(e.into()),
        }
    }

    /// Decides an operation that waits for a word: it happened, with this receipt.
    ///
    /// # Errors
    /// [`OperateError`].
    pub async fn resolve_applied(
        self: &Arc<Self>,
        id: OperationId,
        by: String,
        receipt: Vec<u8>,
    ) -> Result<Operation, OperateError> {
        self.decide(id, by, Verdict::Applied(Receipt(receipt))).await
    }

    /// Decides an operation that waits for a word. It goes on at once.
    ///
    /// # Errors
    /// [`OperateError`].
    pub async fn decide(
        self: &Arc<Self>,
        id: OperationId,
        by: String,
        verdict: Verdict,
    ) -> Result<Operation, OperateError> {
        self.decided(id, None, by, verdict).await
    }

    /// The same, said about what became of the effect of one attempt: once there was another, it is no word about that.
    ///
    /// # Errors
    /// [`OperateError`].
    pub async fn decide_about(
        self: &Arc<Self>,
        id: OperationId,
        attempt: u32,
        by: String,
        verdict: Verdict,
    ) -> Result<Operation, OperateError> {
        self.decided(id, Some(attempt), by, verdict).await
    }

    async fn decided(
        self: &Arc<Self>,
        id: OperationId,
        about: Option<u32>,
        by: String,
        verdict: Verdict,
    ) -> Result<Operation, OperateError> {
        let make = |now: &Operation| {
            if about.is_some_and(|attempt| attempt != now.attempt) {
                return Err(Refusal::State);
            }
            Ok(Event::Decide { by: by.clone(), verdict: verdict.clone() })
        };
        let op = self.operate(id, make).await?;
        // An attempt that was asking the provider has nothing to say any more.
        self.live.stop(id, op.attempt);
        self.tend_once().await?;
        Ok(op)
    }

    /// Cancels an operation, or asks it to stop between two effects.
    ///
    /// # Errors
    /// [`OperateError`].
    pub async fn cancel(&self, id: OperationId, by: String) -> Result<Operation, OperateError> {
        let op = self.operate(id, |_| Ok(Event::Cancel { by: by.clone() })).await?;
        if op.execution.is_ended() {
            self.live.stop(id, op.attempt);
        }
        Ok(op)
    }

    /// Asks the provider again about an operation in doubt; lets recovery of a running one go on now; lets a
    /// failed or abandoned one run again.
    ///
    /// # Errors
    /// [`OperateError`].
    pub async fn retry(self: &Arc<Self>, id: OperationId, by: String) -> Result<Operation, OperateError> {
        let make = |now: &Operation| {
            let epoch = self.store.epoch();
            let owner_dead = now.owner != Epoch(0) && !self.store.is_live(now.owner);
            Ok(match now.execution {
                Execution::InDoubt { .. } => Event::Reconcile { epoch, by: by.clone(), owner_dead },
                _ => Event::Claim { epoch, by_call: true, owner_dead },
            })
        };
        let claimed = self.operate(id, make).await?;
        self.launch(claimed.clone(), Given::default());
        Ok(claimed)
    }

    /// An operation of this principal, or nothing: unknown, pruned and foreign ones look alike.
    ///
    /// # Errors
    /// [`StoreError`]: the ledger can't be read.
    pub async fn status(&self, principal: &str, id: OperationId) -> Result<Option<Operation>, StoreError> {
        self.store.owned(principal, id).await
    }
}
