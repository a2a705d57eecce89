//! What a GraphQL answer means: a 200 is a success only if its body says so.
//!
//! The specification tells two kinds of errors apart. A *request error* comes before execution, and the answer has no
//! member `data`; an error during execution leaves `data` there, with null where something is missing. Servers are not
//! all that exact, so the absence of `data` alone settles nothing:
//!
//! - errors and a value at the field that was asked for: a part failed, and what else was done is *unknown*;
//! - errors and no such value: a refusal if each error is known to be one (its code is among the provider's definite
//!   ones), or if `data` is absent and each error points into the document and at nothing that was executed, as those
//!   of parsing and validation do; all else is *unknown*.

use super::{Answer, Judged, Policy, has_code, mismatched, unknown};
use crate::policy::{GraphqlAnswers, Sign};
use ledger::Sent;
use serde_json::Value;

/// Where an error's code stands, if the provider does not say.
const USUAL_CODE: &str = "/extensions/code";

/// The errors of an answer. `None`: it is not a GraphQL answer.
fn errors(answer: &Value) -> Option<&[Value]> {
    match answer.as_object()?.get("errors") {
        None | Some(Value::Null) => Some(&[]),
        Some(Value::Array(all)) => Some(all),
        Some(_) => None,
    }
}

/// Whether an answer to a reading method is none, or has errors beside what it tells.
pub(crate) fn fails(answer: &Answer) -> bool {
    let Ok(json) = serde_json::from_slice::<Value>(&answer.body) else { return true };
    errors(&json).is_none_or(|errors| !errors.is_empty()) || !json["data"].is_object()
}

/// Whether an answer that is no success has a value of the effect all the same.
pub(super) fn has_value(read: &GraphqlAnswers, json: Option<&Value>) -> bool {
    json.and_then(|j| j.get("data")?.get(&read.field)).is_some_and(|v| !v.is_null())
}

/// Judges an answer with a 2xx status. `replay`: an earlier send is unresolved, and the answer is not marked as its.
pub(super) fn success(policy: &Policy, read: &GraphqlAnswers, replay: bool, a: &Answer) -> Judged {
    let undecided =
        |why: String, stored: bool| Judged::Sent(Sent::Unknown { why, retry_after: a.retry_after(), stored });
    let status = a.status;
    let Ok(json) = serde_json::from_slice::<Value>(&a.body) else {
        return undecided(format!("answered {status} with a body that is not JSON"), false);
    };
    let data = json.get("data");
    let Some(errors) = errors(&json).filter(|e| !e.is_empty() || data.is_some_and(Value::is_object)) else {
        return undecided(format!("answered {status} with a body that is no GraphQL answer"), false);
    };
    let is = |signs: &[Sign]| {
        signs.iter().any(|s| s.status == status && s.code.is_some() && has_code(policy, s, Some(&json)))
    };
    if is(&policy.in_flight) {
        return undecided(
            format!("answered {status}: an earlier send under this key is still in progress"),
            false,
        );
    }
    if is(&policy.conflict) {
        return undecided(
            format!("answered {status}: it exists already, and there is no way to fetch it"),
            true,
        );
    }
    if is(&policy.mismatch) {
        return mismatched(replay, a);
    }
    let refused_there = |at: &String| match json.pointer(at) {
        Some(Value::Array(all)) => !all.is_empty(),
        Some(Value::Null) | None => false,
        Some(_) => true,
    };
    if errors.is_empty() {
        if data.is_none_or(|d| d.get(&read.field).is_none()) {
            return undecided(format!("answered {status} without the field `{}`", read.field), false);
        }
        return match (read.errors_at.iter().any(refused_there), replay) {
            (false, _) => Judged::Sent(Sent::Applied(a.receipt().keep())),
            (true, false) => Judged::Sent(Sent::Refused(a.receipt().refused().keep())),
            (true, true) => undecided(
                format!(
                    "a replay was answered {status} and refused, which says nothing about the first send"
                ),
                true,
            ),
        };
    }
    let shown = code(policy, &errors[0]).map(|c| format!(" ({c})")).unwrap_or_default();
    if has_value(read, Some(&json)) {
        return undecided(
            format!("answered {status} with errors{shown} beside its answer: it may have been done in part"),
            false,
        );
    }
    let among = |codes: &[String], error: &Value| {
        code(policy, error).is_some_and(|c| codes.iter().any(|known| known == c))
    };
    if errors.iter().all(|e| among(&read.not_applied_codes, e)) {
        return Judged::Sent(Sent::NotApplied {
            why: format!("answered {status} with errors{shown}: not applied, and asked to wait"),
            retry_after: a.retry_after(),
        });
    }
    let before = |e: &Value| {
        data.is_none()
            && e.get("path").is_none()
            && e.get("locations").and_then(Value::as_array).is_some_and(|l| !l.is_empty())
    };
    if errors.iter().all(|e| among(&read.definite_codes, e) || before(e)) {
        return if replay {
            undecided(
                format!(
                    "a replay was answered {status} with errors{shown}, which say nothing about the first send"
                ),
                false,
            )
        } else {
            Judged::Sent(Sent::Refused(a.receipt().refused().keep()))
        };
    }
    Judged::Sent(
        match unknown(format!("answered {status} with errors{shown}, which do not tell whether it was done"))
        {
            Sent::Unknown { why, stored, .. } => Sent::Unknown { why, retry_after: a.retry_after(), stored },
            other => other,
        },
    )
}

/// An error's code.
fn code<'a>(policy: &Policy, error: &'a Value) -> Option<&'a str> {
    let mut at = policy.code_at.iter().filter_map(|at| at.strip_prefix("/errors/0")).peekable();
    if at.peek().is_none() {
        return error.pointer(USUAL_CODE)?.as_str();
    }
    at.find_map(|at| error.pointer(at)?.as_str())
}
