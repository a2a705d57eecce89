//! Records as operators and callers see them: stable field names, times in RFC 3339, no secrets.

use ledger::input::{Input, InputKind};
use ledger::{DeliveryState, Execution, Operation};
use serde::{Deserialize, Serialize};

pub use calls::answer::rfc3339;

/// An effect.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectView {
    /// Its name inside the operation.
    pub name: String,
    /// Its key at the provider.
    pub key: String,
    /// `intended`, `applied`, `rejected` or `unknown`.
    pub state: String,
    /// How it recovers.
    pub strategy: String,
    /// What is promised.
    pub promise: String,
    /// Method and target.
    pub summary: String,
    /// When its intent became durable.
    pub intended_at: String,
    /// Sends begun.
    pub sends: u32,
    /// Sends whose outcome is not known.
    pub unresolved: u32,
    /// Look-ups made.
    pub looks: u32,
    /// The last automatic replay, if replays end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay_until: Option<String>,
    /// Several matches were found.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub several: bool,
    /// Why it is not applied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The recorded request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<serde_json::Value>,
    /// The provider's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<serde_json::Value>,
}

/// A decision.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DecisionView {
    /// When.
    pub at: String,
    /// Who.
    pub by: String,
    /// What.
    pub what: String,
}

/// A question that it asked on its way.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputView {
    /// Its name inside the operation.
    pub key: String,
    /// `client`: asked of the client. `approval`: a person's yes to what will be sent.
    pub kind: String,
    /// When it was asked.
    pub asked_at: String,
    /// When the answer that counts came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<String>,
    /// Who gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// What was asked and answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<InputDetail>,
}

/// What was asked and answered, word for word.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputDetail {
    /// The request as a client gets it: a method and its parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<serde_json::Value>,
    /// The answer that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<serde_json::Value>,
}

/// An operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationView {
    /// Its id.
    pub id: String,
    /// Who called.
    pub principal: String,
    /// The tool's canonical id.
    pub tool: String,
    /// `sandbox` or `production`.
    pub mode: String,
    /// The caller's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The execution state.
    pub state: String,
    /// Why it failed or is in doubt, or what a person is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it waits for: `approval`, a person's yes; `answers` of its client; `decision`, whether an effect happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// The newest attempt's number.
    pub attempt: u32,
    /// An attempt is running now.
    pub running: bool,
    /// The result reports an error.
    pub is_error: bool,
    /// When it was opened.
    pub created_at: String,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Its effects.
    pub effects: Vec<EffectView>,
    /// What it asked on its way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputView>,
    /// The request that will be sent after a yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<serde_json::Value>,
    /// How far its result got.
    pub delivery: String,
    /// Since when.
    pub delivery_at: String,
    /// Further calls that joined it.
    pub joined: u32,
    /// The caller's stream is known to be closed.
    pub caller_gone: bool,
    /// Decisions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<DecisionView>,
    /// Arguments, where they were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<serde_json::Value>,
    /// The stored result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
}

impl From<&Operation> for OperationView {
    fn from(op: &Operation) -> Self {
        let reason = match &op.execution {
            Execution::Failed { reason } | Execution::InDoubt { reason, .. } => Some(reason.clone()),
            Execution::InputRequired { question } => Some(question.clone()),
            _ => None,
        };
        OperationView {
            id: op.id.to_string(),
            principal: op.scope.principal.to_string(),
            tool: op.scope.tool.to_string(),
            mode: op.scope.mode.to_string(),
            key: op.key.as_ref().map(|k| k.as_str().to_owned()),
            state: op.execution.word().into(),
            reason,
            waits_for: waits_for(op).map(str::to_owned),
            attempt: op.attempt,
            running: op.owner != ledger::Epoch(0),
            is_error: op.is_error,
            created_at: rfc3339(op.created_at),
            ended_at: op.ended_at.map(rfc3339),
            effects: op
                .effects
                .iter()
                .map(|e| EffectView {
                    name: e.name.clone(),
                    key: e.key.to_string(),
                    state: e.state.word().into(),
                    strategy: e.recovery.strategy.word().into(),
                    promise: e.recovery.strategy.promise().into(),
                    summary: e.summary.clone(),
                    intended_at: rfc3339(e.intended_at),
                    sends: e.sends,
                    unresolved: e.unresolved,
                    looks: e.looks,
                    replay_until: e.replay_until().map(rfc3339),
                    several: e.several,
                    why: e.why.clone(),
                    intent: None,
                    receipt: None,
                })
                .collect(),
            inputs: op.inputs.iter().map(InputView::from).collect(),
            planned: None,
            delivery: op.delivery.state.word().into(),
            delivery_at: rfc3339(op.delivery.at),
            joined: op.joined,
            caller_gone: op.caller.gone,
            decisions: op
                .decisions
                .iter()
                .map(|d| DecisionView { at: rfc3339(d.at), by: d.by.clone(), what: d.what.clone() })
                .collect(),
            arguments: None,
            result: None,
        }
    }
}

impl From<&Input> for InputView {
    fn from(input: &Input) -> Self {
        let kind = match input.kind {
            InputKind::Client => "client",
            InputKind::Approval => "approval",
        };
        InputView {
            key: input.key.clone(),
            kind: kind.into(),
            asked_at: rfc3339(input.asked_at),
            answered_at: input.answer.as_ref().map(|a| rfc3339(a.at)),
            answered_by: input.answer.as_ref().map(|a| a.by.clone()),
            detail: None,
        }
    }
}

fn waits_for(op: &Operation) -> Option<&'static str> {
    match op.execution {
        Execution::InputRequired { .. } if op.waits_for_approval() => Some("approval"),
        Execution::InputRequired { .. } if op.waits_for_input() => Some("answers"),
        Execution::InputRequired { .. } | Execution::InDoubt { .. } => Some("decision"),
        _ => None,
    }
}

/// A payload as JSON where it is JSON, else as text.
#[must_use]
pub fn payload(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into())
}

/// What a caller may know of its operation.
#[must_use]
pub fn status(op: &Operation) -> serde_json::Value {
    let landed = match op.execution {
        Execution::Completed if !op.is_error => "yes",
        Execution::Completed => "completed with an error result",
        Execution::Failed { .. } | Execution::Cancelled { .. } => "no",
        Execution::InputRequired { .. } if op.waits_for_approval() && !op.may_have_effect() => {
            "not yet: it waits for a person's yes, and nothing of it was done"
        }
        Execution::InputRequired { .. } if op.waits_for_input() && !op.may_have_effect() => {
            "not yet: it waits for answers, and nothing of it was done"
        }
        Execution::InDoubt { .. } | Execution::InputRequired { .. } => "not known",
        Execution::Accepted => {
            "not yet: it was abandoned before anything was sent, and goes on when it is called again"
        }
        Execution::Running => "it is running",
    };
    let mut v = serde_json::json!({
        "id": op.id.to_string(),
        "tool": &*op.scope.tool,
        "state": op.execution.word(),
        "landed": landed,
        "createdAt": rfc3339(op.created_at),
        "delivered": matches!(op.delivery.state, DeliveryState::Written | DeliveryState::Acknowledged),
        "retryKey": op.id.to_string(),
    });
    if let Some(t) = op.ended_at {
        v["endedAt"] = rfc3339(t).into();
    }
    v
}
