//! Which operation a call belongs to: a state that names it, a key, the slot of its arguments.

use super::refuse::key_required;
use super::{Call, CallError, JoinedBy, Ledger};
use crate::keys::{self, Carrier, KeyKind};
use crate::operation::{Operation, Unkeyed};
use crate::planted;
use crate::store::{Found, SlotWrite, StoreError};
use crate::twin::{self, Twin};
use crate::words::{Key, Millis, OperationId};

/// How a call found its operation, or that there is none.
pub(super) enum Place {
    /// It belongs to this one.
    Known(Box<Operation>, JoinedBy),
    /// A new one is to be created.
    New { key: Option<Key>, slot: SlotWrite },
    /// The newest operation of the slot may be this call's; wait to know.
    Wait(Box<Operation>),
    /// It is answered with this.
    Error(Box<CallError>),
}

/// How long a write may be on its way whose acknowledgement was lost, with much to spare: longer than a store waits for its
/// database, its locks and a lease together.
const ON_ITS_WAY: Millis = Millis::secs(60);

impl Ledger {
    /// The key of a call that is most likely its first: the look-up order would end in a new operation, unless the key is
    /// taken, which its creation says as well.
    pub(super) fn unmet(&self, call: &Call) -> Option<Key> {
        let k = call.key.as_ref().filter(|_| call.named.is_none())?;
        // The twin of one that a model may have invented is looked for first.
        let alone =
            k.carrier != Carrier::Argument || !matches!(call.unkeyed, Unkeyed::Guard | Unkeyed::Reserve);
        let kind = keys::kind(&self.store.identity().secret, &call.scope, &call.fingerprint, &k.key);
        let new = alone
            && matches!(kind, KeyKind::Minted | KeyKind::Own)
            && !self.met.meet(&call.scope.key_hash(&k.key));
        new.then(|| k.key.clone())
    }

    /// The key of a call that was reserved for it.
    pub(super) fn reserved<'a>(&self, call: &'a Call) -> Option<&'a Key> {
        let key = &call.key.as_ref()?.key;
        let secret = &self.store.identity().secret;
        (keys::kind(secret, &call.scope, &call.fingerprint, key) == KeyKind::Minted).then_some(key)
    }

    /// The look-up order: a state decides before a key, and a key before the slot does.
    pub(super) async fn place(&self, call: &Call) -> Result<Place, StoreError> {
        if let Some(id) = call.named {
            return self.place_by_name(call, id).await;
        }
        let secret = &self.store.identity().secret;
        let Some(k) = &call.key else {
            return match call.unkeyed {
                Unkeyed::Reject => {
                    Ok(Place::Error(Box::new(CallError { new_key: Some(self.mint(call)), ..key_required() })))
                }
                Unkeyed::New => Ok(Place::New { key: None, slot: SlotWrite::Set }),
                Unkeyed::Guard | Unkeyed::Reserve => self.place_by_slot(call, None).await,
            };
        };
        match keys::kind(secret, &call.scope, &call.fingerprint, &k.key) {
            KeyKind::Operation(id) => Ok(match self.callers(call, id).await? {
                Some(op) => self.fits(call, op, JoinedBy::Operation),
                None => Place::Error(Box::new(self.not_here(call, id))),
            }),
            KeyKind::MintedForAnother => Ok(Place::Error(Box::new(self.conflict(call, None)))),
            kind @ (KeyKind::Minted | KeyKind::Own) => {
                match self.store.by_key(&call.scope.key_hash(&k.key)).await? {
                    Some(Found::Operation(op)) => Ok(self.fits(call, *op, JoinedBy::Key)),
                    Some(Found::Tombstone(_)) => Ok(Place::Error(Box::new(self.expired(call)))),
                    // A model may have invented it for its retry: its twin is looked for first.
                    None if kind == KeyKind::Own
                        && k.carrier == Carrier::Argument
                        && matches!(call.unkeyed, Unkeyed::Guard | Unkeyed::Reserve) =>
                    {
                        self.place_by_slot(call, Some(k.key.clone())).await
                    }
                    None => Ok(Place::New { key: Some(k.key.clone()), slot: SlotWrite::Set }),
                }
            }
        }
    }

    /// The operation of this id, if this call can belong to it: a foreign one looks like an unknown one.
    async fn callers(&self, call: &Call, id: OperationId) -> Result<Option<Operation>, StoreError> {
        if planted!(ForeignOperation) {
            return self.read(id).await;
        }
        let op = self.store.owned(&call.scope.principal, id).await?;
        Ok(op.filter(|op| op.scope == call.scope))
    }

    /// A sealed state names it. A key beside it has to mean the same.
    async fn place_by_name(&self, call: &Call, id: OperationId) -> Result<Place, StoreError> {
        let Some(op) = self.callers(call, id).await? else {
            return Ok(Place::Error(Box::new(self.not_here(call, id))));
        };
        if let Some(k) = &call.key
            && op.key.as_ref() != Some(&k.key)
            && k.key.operation_id() != Some(id)
        {
            // One that a model invented was passed over when its call joined this operation as its twin.
            let passed_over = k.carrier == Carrier::Argument
                && keys::kind(&self.store.identity().secret, &call.scope, &call.fingerprint, &k.key)
                    == KeyKind::Own
                && self.store.by_key(&call.scope.key_hash(&k.key)).await?.is_none();
            if !passed_over {
                return Ok(Place::Error(Box::new(self.conflict(call, Some(id)))));
            }
        }
        Ok(self.fits(call, op, JoinedBy::State))
    }

    /// An operation of this id is not here, or not this caller's, which looks the same. A young one whose opening was not
    /// confirmed may still be on its way into the ledger: *nothing ran* would be too early.
    fn not_here(&self, call: &Call, id: OperationId) -> CallError {
        let (now, made) = (self.store.now(), id.made_at());
        // Time that a step of the clock put in between did not pass, nor may what nobody watched.
        let since = self.store.clock_step().filter(|step| made <= *step).unwrap_or(made);
        if now > self.store.gaps().end_of(since, ON_ITS_WAY) || made.since(now) > ON_ITS_WAY {
            return self.expired(call);
        }
        CallError { retry_after: Some(Millis::secs(5)), ..CallError::unconfirmed(id.to_string()) }
    }

    fn fits(&self, call: &Call, op: Operation, by: JoinedBy) -> Place {
        if op.fingerprint == call.fingerprint || planted!(KeyWithoutFingerprint) {
            Place::Known(Box::new(op), by)
        } else {
            Place::Error(Box::new(self.conflict(call, Some(op.id))))
        }
    }

    /// What the newest operation of its slot is to a call without a key.
    pub(super) fn twin_of(&self, call: &Call, op: &Operation) -> Twin {
        let (now, gaps) = (self.store.now(), self.store.gaps());
        twin::classify(op, now, call.guard_window, gaps, self.caller_gone(op))
    }

    async fn place_by_slot(&self, call: &Call, key: Option<Key>) -> Result<Place, StoreError> {
        let Some(op) = self.store.by_slot(&call.scope.slot_hash(&call.fingerprint)).await? else {
            if planted!(SlotWithoutCompareAndSet) {
                return Ok(Place::New { key, slot: SlotWrite::Set });
            }
            return Ok(Place::New { key, slot: SlotWrite::CompareAndSet(None) });
        };
        // Deliveries are written lazily: what is on its way counts.
        let op = self.outbox.newest(op);
        Ok(match self.twin_of(call, &op) {
            Twin::History if planted!(SlotWithoutCompareAndSet) => Place::New { key, slot: SlotWrite::Set },
            Twin::History => Place::New { key, slot: SlotWrite::CompareAndSet(Some(op.id)) },
            Twin::Join => Place::Known(Box::new(op), JoinedBy::Fingerprint),
            Twin::Wait => Place::Wait(Box::new(op)),
            Twin::Delivered => Place::Error(Box::new(self.twin(call, &op))),
        })
    }
}
