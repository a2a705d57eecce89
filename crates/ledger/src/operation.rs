//! The operation's record: three independent states and what is needed to go on from them.

use crate::canonical::Fingerprint;
use crate::claims::Allowance;
use crate::effect::{Effect, EffectState, IntentDigest};
use crate::input::{Input, InputKind};
use crate::words::{Epoch, Key, Millis, OperationId, Scope, Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The newest form of records that this program acts on. What a record of a later form says, it could do the wrong thing
/// about; so such records are left to newer programs. A new field that an older program may disregard needs no new form:
/// on the top level of a record it keeps what it doesn't know. Below that it refuses.
///
/// - 0: the first;
/// - 1: it asked for input, or was handed out as a task. Who doesn't know that would abandon the task.
/// - 2: it holds claims on allowances. Who doesn't know that would run it again without them.
pub const FORM: u32 = 2;

/// Whether the operation produced a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case", deny_unknown_fields)]
pub enum Execution {
    /// Known and unclaimed: nothing has happened yet.
    Accepted,
    /// An attempt owns it, or it waits for the recovery loop to claim it.
    Running,
    /// It waits for answers to its open inputs; without any, a person must say whether the effect happened.
    InputRequired {
        /// What is asked.
        question: String,
    },
    /// There is a result.
    Completed,
    /// No effect happened, and it is known. The next call of it is its next attempt.
    Failed {
        /// Why, for people.
        reason: String,
    },
    /// Over without an effect.
    Cancelled {
        /// Somebody asked for it (final), as opposed to an abandoned operation that nobody called again.
        explicit: bool,
    },
    /// An effect may or may not have happened and no safe automatic step is left.
    InDoubt {
        /// Why, for people.
        reason: String,
        /// When it came to this.
        since: Time,
    },
}

impl Execution {
    /// The word in records and metrics.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Execution::Accepted => "accepted",
            Execution::Running => "running",
            Execution::InputRequired { .. } => "input_required",
            Execution::Completed => "completed",
            Execution::Failed { .. } => "failed",
            Execution::Cancelled { .. } => "cancelled",
            Execution::InDoubt { .. } => "in_doubt",
        }
    }
    /// Every word, in the order of a life.
    pub const WORDS: [&'static str; 7] =
        ["accepted", "running", "input_required", "completed", "failed", "cancelled", "in_doubt"];
    /// No attempt will change it by itself any more.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self, Execution::Completed | Execution::Failed { .. } | Execution::Cancelled { .. })
    }
    /// Ended, or waiting for a decision: a call can be answered at once.
    #[must_use]
    pub fn is_answerable(&self) -> bool {
        self.is_ended() || matches!(self, Execution::InDoubt { .. } | Execution::InputRequired { .. })
    }
}

/// Whether the result crossed the last boundary; the furthest any call reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// There is no result yet.
    NotReady,
    /// There is a result and nobody is known to have it.
    Ready,
    /// The caller's stream was gone first.
    Undelivered,
    /// The last byte went to a healthy connection.
    Written,
    /// The consumer proved that it has it.
    Acknowledged,
}

impl DeliveryState {
    /// The word in records and metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            DeliveryState::NotReady => "not_ready",
            DeliveryState::Ready => "ready",
            DeliveryState::Undelivered => "undelivered",
            DeliveryState::Written => "written",
            DeliveryState::Acknowledged => "acknowledged",
        }
    }
    /// Every word, in order.
    pub const WORDS: [&'static str; 5] = ["not_ready", "ready", "undelivered", "written", "acknowledged"];
}

/// Delivery and when it last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delivery {
    /// How far the result got.
    pub state: DeliveryState,
    /// Since when.
    pub at: Time,
    /// The alert about an undelivered result was raised.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alerted: bool,
}

/// Whether somebody waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caller {
    /// The boot of the replica that holds the caller's stream.
    pub epoch: Epoch,
    /// The stream is known to be closed.
    pub gone: bool,
}

/// What happens to a call without a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unkeyed {
    /// One slot per (scope, fingerprint): twins are joined or refused inside the guard window.
    #[default]
    Guard,
    /// Every call is a new operation.
    New,
    /// A key is required.
    Reject,
    /// As `guard`; but where a new operation would be created, the caller gets a key for it first, and creates it with
    /// that.
    Reserve,
}

/// Limits that an operation opens with and keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationPolicy {
    /// How long after its delivery or end an operation is a twin of the same call without a key.
    pub guard_window: Millis,
    /// The longest one attempt may take.
    pub timeout: Millis,
    /// How long the record is kept after its end.
    pub retention: Millis,
    /// How many attempts recovery makes before it gives up.
    pub attempt_cap: u32,
    /// How long an abandoned operation waits for its next call.
    pub abandoned_for: Millis,
}

impl Default for OperationPolicy {
    fn default() -> Self {
        OperationPolicy {
            guard_window: Millis::secs(300),
            timeout: Millis::secs(60),
            retention: Millis::secs(7 * 86_400),
            attempt_cap: 12,
            abandoned_for: Millis::secs(86_400),
        }
    }
}

/// Something decided outside the automatic course, kept for ever with the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// When.
    pub at: Time,
    /// Who.
    pub by: String,
    /// What.
    pub what: String,
}

/// A handle to the operation that a client holds: from then on it runs on by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskOut {
    /// When it was handed out.
    pub at: Time,
    /// For how long it was promised from then on; `None`: for as long as the record is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Millis>,
}

fn is_zero<T: Default + PartialEq>(n: &T) -> bool {
    *n == T::default()
}

/// Why a stored record can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// A newer program wrote it, in a form that this one doesn't act on. It is whole.
    Newer,
    /// It is no record.
    Damaged,
}

/// One operation: what the caller means.
///
/// In JSON, what nearly every write changes comes first and what stays comes last: of a changed row PostgreSQL logs only
/// what lies between the ends that are as before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Counts the writes of the record; each write is conditional on it.
    #[serde(skip)]
    pub version: u64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// Whether it produced a result.
    pub execution: Execution,
    /// The result reports an error of the tool or provider.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// The replica that owns the attempt; nobody (0) while it waits to be claimed.
    pub owner: Epoch,
    /// Names the newest write of an attempt. After a lost acknowledgement it tells that the write was made, whatever
    /// others wrote since: an answer that is counted twice would make a send that left look like none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spoken: u64,
    /// How far the result got.
    pub delivery: Delivery,
    /// What was changed outside.
    pub effects: Vec<Effect>,
    /// The number of the newest attempt: the fencing token.
    pub attempt: u32,
    /// The first attempt that counts against the cap; a call of a failed operation begins a new count.
    pub counted_from: u32,
    /// When the attempt is over by itself.
    pub deadline: Time,
    /// Not to be claimed by recovery before this.
    pub not_before: Time,
    /// Whether somebody waits.
    pub caller: Caller,
    /// How many further calls joined it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub joined: u32,
    /// Somebody asked to cancel between two effects; a tool may read it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancel_requested: bool,
    /// Every effect is known and an operator ended it: its next attempt only gives an account.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conclude: bool,
    /// Decisions of operators, reconciliations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
    /// What it asked on its way, in the order of asking.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Input>,
    /// Identifies the intent that waits for the last answer, kept beside the record. It is no effect before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<IntentDigest>,
    /// A client holds a handle to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskOut>,
    /// What it may do only as far as others left something of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowances: Vec<Allowance>,
    /// What a program must know to act on it: see [`FORM`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub form: u32,
    /// Its name.
    pub id: OperationId,
    /// Where it lives.
    pub scope: Scope,
    /// The caller's name for it, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// What was asked.
    pub fingerprint: Fingerprint,
    /// The limits it opened with.
    pub policy: OperationPolicy,
    /// When it was last begun anew: abandoned or failed, it was called again, or an operator had it tried again; or nothing of
    /// it was done yet, and the last answer that it waited for came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_at: Option<Time>,
    /// When it was opened.
    pub created_at: Time,
    /// What a newer program wrote beside all this: kept as it is.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

impl Operation {
    /// From its stored JSON.
    ///
    /// # Errors
    /// [`Unreadable`]: nothing may be written in its place.
    pub fn from_record(json: &[u8]) -> Result<Operation, Unreadable> {
        #[derive(Deserialize)]
        struct Form {
            #[serde(default)]
            form: u32,
        }
        match serde_json::from_slice::<Operation>(json) {
            Ok(op) if op.form <= FORM => Ok(op),
            Ok(_) => Err(Unreadable::Newer),
            Err(_) => match serde_json::from_slice::<Form>(json) {
                Ok(Form { form }) if form > FORM => Err(Unreadable::Newer),
                _ => Err(Unreadable::Damaged),
            },
        }
    }
    /// It holds claims on these from now on.
    pub(crate) fn hold(&mut self, allowances: Vec<Allowance>) {
        if !allowances.is_empty() {
            self.allowances = allowances;
            self.form = self.form.max(2);
        }
    }
    /// When it was begun, or begun anew. Whatever goes on by itself begins nothing.
    #[must_use]
    pub fn begun(&self) -> Time {
        self.begun_at.unwrap_or(self.created_at)
    }
    /// Whether anything may have left: an effect's intent is durable. The point of no return.
    #[must_use]
    pub fn is_past_no_return(&self) -> bool {
        !self.effects.is_empty()
    }
    /// Whether every effect is known to have happened, or known not to.
    #[must_use]
    pub fn effects_settled(&self) -> bool {
        self.effects.iter().all(Effect::is_settled)
    }
    /// Whether some effect happened or may have.
    #[must_use]
    pub fn may_have_effect(&self) -> bool {
        self.effects.iter().any(|e| {
            e.state != EffectState::Rejected && !(e.state == EffectState::Intended && e.unresolved == 0)
        })
    }
    /// The effect of that name.
    #[must_use]
    pub fn effect(&self, name: &str, discriminator: &str) -> Option<usize> {
        self.effects.iter().position(|e| e.name == name && e.discriminator == discriminator)
    }
    /// The input of that key.
    #[must_use]
    pub fn input(&self, key: &str) -> Option<usize> {
        self.inputs.iter().position(|i| i.key == key)
    }
    /// The inputs without an answer, by their indices.
    pub fn open_inputs(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.inputs.len()).filter(|&i| self.inputs[i].answer.is_none())
    }
    /// Whether it waits for answers.
    #[must_use]
    pub fn waits_for_input(&self) -> bool {
        matches!(self.execution, Execution::InputRequired { .. }) && self.open_inputs().next().is_some()
    }
    /// Whether it waits for a person's yes to what will be sent.
    #[must_use]
    pub fn waits_for_approval(&self) -> bool {
        self.waits_for_input() && self.open_inputs().any(|i| self.inputs[i].kind == InputKind::Approval)
    }
    /// When nobody is expected to answer any more: so long after the newest question.
    #[must_use]
    pub fn input_expires_at(&self) -> Option<Time> {
        let last = self.open_inputs().map(|i| self.inputs[i].asked_at).max();
        last.filter(|_| self.waits_for_input()).map(|t| t.plus(self.policy.abandoned_for))
    }
    /// When recovery or delivery should next look at it, if ever. `grace` is how long a `ready` result may
    /// wait for its stream before it counts as undelivered, `alert_after` how long undelivered before an alert.
    #[must_use]
    pub fn attention(&self, grace: Millis, alert_after: Millis) -> Option<Time> {
        match &self.execution {
            Execution::Accepted => Some(self.not_before),
            Execution::Running => Some(if self.owner == Epoch(0) { self.not_before } else { self.deadline }),
            Execution::InputRequired { .. } => self.input_expires_at(),
            Execution::InDoubt { .. } => None,
            Execution::Failed { .. } | Execution::Cancelled { .. } => None,
            Execution::Completed => match self.delivery.state {
                DeliveryState::Ready => Some(self.delivery.at.plus(grace)),
                DeliveryState::Undelivered if !self.delivery.alerted => {
                    Some(self.delivery.at.plus(alert_after))
                }
                _ => None,
            },
        }
    }
    /// When the record may be pruned, if ever: an open intent or a doubt never is.
    #[must_use]
    pub fn expires_at(&self) -> Option<Time> {
        let kept = self.ended_at.map(|t| t.plus(self.policy.retention));
        // What was promised to the holder of a task may be longer.
        let promised = self.task.and_then(|t| t.ttl.map(|ttl| t.at.plus(ttl)));
        kept.filter(|_| self.execution.is_ended()).map(|t| promised.map_or(t, |p| t.max(p)))
    }
}
