//! What an attempt asks, and what it changes in the ledger's own database.

use super::attempt::{Attempt, Stopped, stopped};
use super::{ApplyError, Performed};
use crate::decide::{Event, Refusal};
use crate::effect::{Intent, Recovery, Strategy};
use crate::executor::Receipt;
use crate::failpoint;
use crate::handle::{Handle, HandleChange, HandleConflict, HandleFound, bounded, lately};
use crate::input::Ask;
use crate::keys;
use crate::operation::Execution;
use crate::planted;
use crate::store::{BlobKind, StoreError};
use crate::words::Time;

/// A step in the ledger's own database: what tells it apart from others of its operation.
struct Step<'a> {
    name: &'a str,
    discriminator: &'a str,
    /// What is done, without what may differ when it is run again.
    what: Vec<u8>,
    summary: String,
}

impl Attempt {
    /// The ledger's time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.ledger.store.now()
    }

    /// Asks, and gives the answers in their order once all of them are there. Until then the attempt ends here, whatever
    /// came before is kept, and the tool runs again from its beginning when the last answer comes; it has to ask the same
    /// then.
    ///
    /// # Errors
    /// [`Stopped`]: pass it on. [`Stopped::Asked`]: it was asked. Another question under a key that was used before is
    /// the tool's mistake: nothing is asked.
    pub async fn ask(&self, asks: Vec<Ask>) -> Result<Vec<Vec<u8>>, Stopped> {
        let op = self.operation();
        let mut found = Vec::with_capacity(asks.len());
        for a in &asks {
            match op.input(&a.key) {
                Some(i) if op.inputs[i].digest != a.digest() && !planted!(OtherQuestionAnswered) => {
                    let reason = "input_mismatch: the tool now asks another question under the same key; nothing was asked";
                    if op.may_have_effect() {
                        return Err(self.doubt(reason.into()).await);
                    }
                    return Err(Stopped::NeverSent(reason.into()));
                }
                Some(i) if op.inputs[i].answer.is_some() => found.push(i),
                _ => {}
            }
        }
        if found.len() < asks.len() {
            if let Execution::InDoubt { reason, .. } = &op.execution {
                // Reconciliation asks the provider, and nobody else.
                return Err(self.doubt(reason.clone()).await);
            }
            // What has an answer is not asked again.
            let open = |a: &Ask| op.input(&a.key).is_none_or(|i| op.inputs[i].answer.is_none());
            let asks = asks.into_iter().filter(open).collect();
            failpoint!("ask.before");
            self.apply(Event::Require { fence: self.fence, asks }).await?;
            failpoint!("ask.after");
            return Err(Stopped::Asked);
        }
        let mut answers = Vec::with_capacity(found.len());
        for i in found {
            let kind = BlobKind::Answer(u16::try_from(i).unwrap_or(u16::MAX));
            let answer = self.ledger.store.blob(op.id, kind).await?;
            answers.push(answer.ok_or_else(|| StoreError::Damaged(format!("{} lacks an answer", op.id)))?);
        }
        Ok(answers)
    }

    /// The text of the handle that the step `name` of this operation makes. It is the same whenever the step is run
    /// again, and can't be guessed (128 bits).
    #[must_use]
    pub fn handle_id(&self, name: &str, discriminator: &str) -> String {
        keys::handle(&self.ledger.store.identity().secret, self.operation().id, name, discriminator)
    }

    /// A step in the ledger's own database (strategy `local`): `receipt` is kept with the record in one write. When the
    /// operation did this step before, the receipt of that time is given back.
    ///
    /// # Errors
    /// [`Stopped`]: pass it on.
    pub async fn local(
        &self,
        name: &str,
        discriminator: &str,
        what: &[u8],
        receipt: Receipt,
    ) -> Result<Receipt, Stopped> {
        let step = Step { name, discriminator, what: what.to_vec(), summary: format!("recorded: {name}") };
        match self.step(step, receipt, None).await? {
            Ok(receipt) => Ok(receipt),
            Err(_) => Err(Stopped::Fenced),
        }
    }

    /// A handle of the caller, by its text; being read is a use of it.
    ///
    /// # Errors
    /// [`StoreError`]: the ledger can't be read.
    pub async fn handle(&self, text: &str) -> Result<HandleFound, StoreError> {
        self.ledger.handle(&self.operation().scope.principal, text).await
    }

    /// The caller's handles, of one kind or of all, in the order of their hashes, after `after`.
    ///
    /// # Errors
    /// [`StoreError`]: the ledger can't be read.
    pub async fn handles(
        &self,
        kind: Option<&str>,
        after: Option<[u8; 32]>,
        limit: usize,
    ) -> Result<Vec<Handle>, StoreError> {
        let principal = self.operation().scope.principal.clone();
        self.ledger.store.handles(&principal, kind, after, limit, self.now()).await
    }

    /// Changes a handle, as the step `name` of this operation: the change and its `receipt` are made in one write, once.
    /// When the operation did this step before, nothing is changed, and the receipt of that time is given back: what the
    /// tool goes on with should come from it. The handle has to be the caller's own.
    ///
    /// A [`HandleConflict`] is told to the tool and recorded nowhere.
    ///
    /// # Errors
    /// [`Stopped`]: pass it on.
    pub async fn handle_change(
        &self,
        name: &str,
        change: HandleChange,
        receipt: Receipt,
    ) -> Result<Result<Receipt, HandleConflict>, Stopped> {
        if *change.principal() != self.operation().scope.principal {
            return Ok(Err(HandleConflict::Gone));
        }
        if let Err(StoreError::Unavailable(why)) = bounded(std::slice::from_ref(&change)) {
            // The tool's mistake, and no fault of the store.
            return Err(Stopped::NeverSent(why));
        }
        // Values and versions differ when it is run again after the change was made; what it is about does not.
        let (word, about) = match &change {
            HandleChange::Create(h) => ("made", h.kind.as_bytes().to_vec()),
            HandleChange::Update { id_hash, .. } => ("changed", id_hash.to_vec()),
            HandleChange::Destroy { id_hash, .. } => ("destroyed", id_hash.to_vec()),
        };
        let what = [word.as_bytes(), b" ", &about].concat();
        let step = Step { name, discriminator: "", what, summary: format!("a handle is {word}") };
        self.step(step, receipt, Some(change.made_at(self.now()))).await
    }

    async fn step(
        &self,
        step: Step<'_>,
        receipt: Receipt,
        change: Option<HandleChange>,
    ) -> Result<Result<Receipt, HandleConflict>, Stopped> {
        let op = self.operation();
        let intent = Intent {
            name: step.name.to_owned(),
            discriminator: step.discriminator.to_owned(),
            recovery: Recovery::new(Strategy::Local),
            summary: step.summary,
            body: step.what,
        };
        if let Some(i) = op.effect(&intent.name, &intent.discriminator) {
            if op.effects[i].digest != intent.digest() {
                let reason =
                    "intent_mismatch: the tool now does something else in the same step; nothing was done";
                return Err(self.doubt(reason.into()).await);
            }
            if !planted!(HandleChangedTwice) {
                let Performed { receipt, .. } = self.performed(&op, i).await?;
                return Ok(Ok(receipt));
            }
        }
        if let Execution::InDoubt { reason, .. } = &op.execution {
            // Reconciliation does nothing new.
            return Err(self.doubt(reason.clone()).await);
        }
        let key = self.ledger.effect_key(&op, &intent);
        #[cfg(feature = "planted")]
        let intent = match op.effect(&intent.name, &intent.discriminator) {
            Some(_) => Intent { discriminator: self.fence.attempt.to_string(), ..intent },
            None => intent,
        };
        let (name, discriminator) = (intent.name.clone(), intent.discriminator.clone());
        let event =
            Event::Local { fence: self.fence, intent: Box::new(intent), key, receipt: receipt.clone() };
        failpoint!("handle.before");
        let written = self.write(Some(event), change.as_slice(), None).await;
        failpoint!("handle.after");
        match written {
            Ok(next) => {
                if let Some(i) = next.effect(&name, &discriminator) {
                    self.state().receipts.insert(i, receipt.clone());
                }
                Ok(Ok(receipt))
            }
            Err(ApplyError::Handle { full: true }) => Ok(Err(HandleConflict::Full)),
            Err(ApplyError::Handle { full: false }) => {
                let Some(change) = change else { return Err(Stopped::Fenced) };
                Ok(Err(self.why_not(&change).await?))
            }
            Err(ApplyError::Refused(Refusal::Unsettled)) => Err(Stopped::Fenced),
            Err(e) => Err(stopped(e)),
        }
    }

    async fn why_not(&self, change: &HandleChange) -> Result<HandleConflict, StoreError> {
        let (store, now) = (&self.ledger.store, self.now());
        let there = store.handle(change.id_hash(), change.principal(), lately(now)).await?;
        Ok(match (HandleFound::of(there, now), change) {
            (_, HandleChange::Create(_)) => HandleConflict::Taken,
            (HandleFound::There(h), _) => HandleConflict::Moved { version: h.version },
            (HandleFound::Expired { .. }, _) => HandleConflict::Expired,
            (HandleFound::Unknown, _) => HandleConflict::Gone,
        })
    }
}
