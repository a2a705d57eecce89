//! How a new operation is created: claimed for, let through, written, and its first attempt begun.

use super::gate::Wanted;
use super::live::Watch;
use super::run::Given;
use super::{Call, CallError, Creation, Kind, Ledger, Note};
use crate::claims::{self, Allowance};
use crate::decide::{self, Opening};
use crate::failpoint;
use crate::operation::Operation;
use crate::planted;
use crate::store::{Committed, SlotWrite, StoreError, Write};
use crate::words::{Key, Millis, OperationId};
use std::sync::Arc;

impl Ledger {
    /// Creates the operation and starts its first attempt. `None`: something came first; look again.
    pub(super) async fn create(
        self: &Arc<Self>,
        call: &Call,
        creation: Creation,
        key: Option<Key>,
        slot: SlotWrite,
    ) -> Result<Option<(Arc<Operation>, Watch)>, Box<CallError>> {
        if self.store.is_held() {
            return Err(Box::new(CallError::plain(
                Kind::Unavailable,
                "This ledger was restored from a backup and may not know what was done since, so nothing ran.",
                "Call again after an operator has looked through its open operations and released it.",
            )));
        }
        if let Err(refusal) = decide::may_begin_with(&creation.asks) {
            return Err(Box::new(CallError::plain(
                Kind::BadArguments,
                format!("What this call would ask can't be asked, so nothing ran: {refusal}."),
                "Call with other arguments; if that does not help, the tool has to ask otherwise.",
            )));
        }
        let now = self.store.now();
        let id = OperationId::new(now, self.env.random_u128());
        // What it begins belongs to the boot that writes it.
        let epoch = self.store.epoch();
        let mut opening = Opening {
            id,
            scope: call.scope.clone(),
            key,
            fingerprint: call.fingerprint,
            policy: creation.policy,
            epoch,
            intent: None,
            arguments: creation.arguments.clone(),
            asks: creation.asks,
        };
        let allowances = creation.allowances;
        let planned = creation.intent.map(Arc::new);
        opening.intent = planned.as_deref().map(|i| {
            let key = crate::EffectKey::derive(
                &self.store.identity().name,
                &opening.scope,
                id,
                opening.key.as_ref(),
                &opening.fingerprint,
                &i.name,
                &i.discriminator,
            );
            (i.clone(), key)
        });
        let mut t = decide::open(opening, now);
        t.next.hold(allowances);
        // What waits for a person takes no place yet.
        let idle = claims::given_back(&t.next);
        let held: Vec<Allowance> =
            t.next.allowances.iter().filter(|a| !idle.contains(&a.bucket)).cloned().collect();
        let (gate, waits) = (creation.gate, t.next.waits_for_input());
        let wanted = Wanted { id, turn: t.next.version, allowances: &held, gate, waits };
        let pass = self.admit(wanted).await?;
        failpoint!("claim.after");
        // Somebody waits from the moment the record can be seen.
        let watch = self.live.watch(id, true);
        failpoint!("open.before");
        let write = Write::Create { operation: Box::new(t.next.clone()), slot, blobs: t.blobs };
        let committed = self.store.write_under(epoch, write).await;
        failpoint!("open.after");
        let committed = match committed {
            Ok(c) => c,
            Err(StoreError::Uncertain(_)) if planted!(NothingRanAfterUncertain) => {
                return Err(Box::new(CallError::store()));
            }
            Err(StoreError::Uncertain(_)) => {
                // A lost acknowledgement: a record under this fresh id can only be this one.
                self.env.sleep(Millis(50)).await;
                match self.read(id).await {
                    Ok(Some(found)) if found == t.next => Committed::Done,
                    _ => {
                        let retry_key =
                            t.next.key.as_ref().map_or_else(|| id.to_string(), |k| k.as_str().to_owned());
                        return Err(Box::new(CallError {
                            operation: Some(id),
                            ..CallError::unconfirmed(retry_key)
                        }));
                    }
                }
            }
            Err(_) => {
                self.not_opened(id, &held).await;
                return Err(Box::new(CallError::store()));
            }
        };
        match committed {
            Committed::Done => {
                let op = Arc::new(t.next);
                self.observer.note(Note::Opened(&op));
                if op.waits_for_input() {
                    return Ok(Some((op, watch)));
                }
                let given =
                    Given { arguments: creation.arguments.map(Arc::from), planned, pass, ..Given::default() };
                self.launch(op.clone(), given);
                Ok(Some((op, watch)))
            }
            _ => {
                self.not_opened(id, &held).await;
                Ok(None)
            }
        }
    }
}
