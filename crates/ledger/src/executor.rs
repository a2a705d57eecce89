//! Whoever carries effects out: sends a recorded intent, or asks the provider about it.

use crate::effect::Intent;
use crate::words::{EffectKey, Millis, Time};
use async_trait::async_trait;

/// The provider's answer, as it is kept. Opaque to the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt(pub Vec<u8>);

/// What came of one send. The difference between *not sent* and *unknown* is the whole product: everything
/// after the first request byte may have left is [`Sent::Unknown`] unless an answer says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Provably nothing left: name not resolved, connection refused, TLS not established, not serialised.
    NotSent {
        /// For people and logs.
        why: String,
    },
    /// It happened.
    Applied(Receipt),
    /// The provider definitely refused this send.
    Refused(Receipt),
    /// The provider says that it was not applied and asks to wait.
    NotApplied {
        /// For people and logs.
        why: String,
        /// How long the provider asks to wait.
        retry_after: Option<Millis>,
    },
    /// Provably nothing left, because a replay must not go out as things are: whoever would get it may not know the key.
    /// What earlier sends did stays open; a person puts things right, or says what happened.
    Withheld {
        /// For people and logs.
        why: String,
    },
    /// It may or may not have happened.
    Unknown {
        /// For people and logs.
        why: String,
        /// How long the provider asks to wait.
        retry_after: Option<Millis>,
        /// The provider will answer every replay with this same failure.
        stored: bool,
    },
}

/// What a look-up said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// Exactly one matching object: it is the receipt.
    Found(Receipt),
    /// More than one matching object; the first is taken as the receipt and an alert is raised.
    Several(Receipt),
    /// None is visible now.
    NotFound,
    /// The question was not answered.
    Unknown {
        /// For people and logs.
        why: String,
    },
}

/// When a look-up is asked, and since when there is something to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The ledger's time when the intent became durable.
    pub intended_at: Time,
    /// The ledger's time now.
    pub now: Time,
    /// All the time between was watched, and the clock was not set: as much passed as the two say. Otherwise a question
    /// that is limited to what is newer than the intent may miss it, so finding nothing proves nothing.
    pub steady: bool,
}

/// Carries effects out. Implementations never retry by themselves: every send is the ledger's.
#[async_trait]
pub trait Executor: Send + Sync {
    /// Sends the recorded intent once, within `timeout`. `replay` tells whether an earlier send is unresolved.
    async fn send(&self, intent: &Intent, key: &EffectKey, replay: bool, timeout: Millis) -> Sent;
    /// Asks whether the effect exists.
    async fn look_up(&self, intent: &Intent, key: &EffectKey, timeout: Millis) -> Looked;
    /// The same, for whoever asks only for what is newer than the intent.
    async fn look_up_since(
        &self,
        intent: &Intent,
        key: &EffectKey,
        timeout: Millis,
        _asked: Asked,
    ) -> Looked {
        self.look_up(intent, key, timeout).await
    }
}
