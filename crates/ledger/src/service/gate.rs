//! Whether a new operation may be opened just now, whatever it asks for: the question of a circuit breaker.
//!
//! One that is let through while the provider is tried costs others their turn, so that is asked for last: of what is
//! refused for another reason, and of what waits for a person, nobody is let through. Who was let through has a [`Pass`]
//! until its first attempt is over, however that ends, and in whatever way nothing came of it.

use super::{CallError, Ledger};
use crate::claims::Allowance;
use crate::words::OperationId;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Lets new operations through, or not.
pub trait Admission: fmt::Debug + Send + Sync + 'static {
    /// Whether one would be let through now. Changes nothing: whoever asks may not come.
    ///
    /// # Errors
    /// What the caller is told: nothing ran, and why.
    fn look(&self) -> Result<(), Box<CallError>>;
    /// Lets one through.
    ///
    /// # Errors
    /// What the caller is told: nothing ran, and why.
    fn pass(self: Arc<Self>) -> Result<Pass, Box<CallError>>;
}

/// Held by the operation that was let through, as long as its first attempt lasts. What it means that this is over, the
/// gate knows: by then it has seen the sends that were made.
pub struct Pass(#[expect(dead_code, reason = "it is there to be dropped")] Option<Box<dyn Any + Send>>);

impl Pass {
    /// One that nobody waits for.
    #[must_use]
    pub fn free() -> Pass {
        Pass(None)
    }
    /// One that drops this when it is over.
    #[must_use]
    pub fn holding(what: impl Any + Send) -> Pass {
        Pass(Some(Box::new(what)))
    }
}

/// What a new operation asks for before it is written.
pub(super) struct Wanted<'a> {
    pub id: OperationId,
    pub turn: u64,
    pub allowances: &'a [Allowance],
    pub gate: Option<Arc<dyn Admission>>,
    /// It waits for a person and sends nothing yet.
    pub waits: bool,
}

impl Ledger {
    /// Claims what a new operation needs and has it let through. Where the gate is shut, nothing is claimed; where there is
    /// no room, nobody is let through.
    ///
    /// # Errors
    /// What the caller is told: nothing ran, and why.
    pub(super) async fn admit(&self, wanted: Wanted<'_>) -> Result<Option<Pass>, Box<CallError>> {
        let Wanted { id, turn, allowances, gate, waits } = wanted;
        if let Some(gate) = &gate {
            gate.look()?;
        }
        self.hold_new(id, turn, allowances).await?;
        match gate.filter(|_| !waits).map(Admission::pass).transpose() {
            Ok(pass) => Ok(pass),
            Err(e) => {
                self.not_opened(id, allowances).await;
                Err(e)
            }
        }
    }
}
