//! Whether results arrived. Deliveries never touch execution.

use super::{ApplyError, Ledger, Note};
use crate::decide::{self, Event};
use crate::keys;
use crate::operation::{DeliveryState, Operation};
use crate::store::Write;

impl Ledger {
    /// A delivery of this operation's result ended so: written, or gone first. Batched, not waited for: a
    /// crash that loses it makes a retry inside the window join instead of being told of a twin.
    pub fn delivered(&self, operation: &Operation, state: DeliveryState) {
        if let Ok(t) = decide::decide(operation, Event::Deliver(state), self.store.now()) {
            self.observer.note(Note::Transition { from: operation.execution.word(), to: &t.next });
            self.store.write_lazily(Write::Update { operation: Box::new(t.next), stamp: self.stamp(), blobs: t.blobs });
            self.live.ring(operation.id);
        }
    }

    /// The consumer sent back this nonce: it has the result. Unknown and foreign nonces are ignored alike.
    pub async fn acknowledge(&self, principal: &str, nonce: &str) {
        let Some(id) = keys::acknowledged(&self.store.identity().secret, principal, nonce) else { return };
        // What is still on its way to the store comes first, or it would undo nothing but be lost.
        let _ = self.store.flush().await;
        if let Ok(Some(op)) = self.read(id).await
            && *op.scope.principal == *principal
        {
            match self.apply(&op, |_| vec![Event::Deliver(DeliveryState::Acknowledged)]).await {
                Ok(_) | Err(ApplyError::Refused(_) | ApplyError::Gone) => {}
                Err(ApplyError::Store(e)) => tracing::warn!(operation = %id, error = %e, "an acknowledgement could not be recorded"),
            }
        }
    }
}
