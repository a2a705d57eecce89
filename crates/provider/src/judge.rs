//! What an outcome means. Pure, and the one place where that is decided.
//!
//! The rule: everything after the first request byte may have left is *unknown*, unless a whole answer says
//! otherwise and the policy knows that answer. A refusal of a replay is about the replay, unless the provider
//! marks it as its first answer, or can only have given it from behind its key check.

pub use crate::policy::{Policy, ReplayMarker, Sign};
use crate::receipt::Receipt;
use ledger::{Millis, Sent};
use serde_json::Value;

/// The longest wait that a provider is granted; more is a mistake or an attack.
const MAX_RETRY_AFTER: Millis = Millis::secs(24 * 3600);
/// Refusals that are about access or the moment, not about the request: a later replay may fare better.
const PASSING: [u16; 6] = [401, 403, 407, 408, 425, 429];

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// Its headers.
    pub headers: http::HeaderMap,
    /// Its whole body.
    pub body: bytes::Bytes,
}

impl Answer {
    /// A header's value as text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }
    /// As it is kept.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        Receipt::new(self.status, self.header("content-type"), &self.body)
    }
    /// How long the provider asks to wait: seconds, or a date less the answer's own date (RFC 9110 section
    /// 10.2.3), so that no clock but the provider's is asked.
    #[must_use]
    pub fn retry_after(&self) -> Option<Millis> {
        let text = self.header("retry-after")?.trim();
        let wait = match text.parse::<u32>() {
            Ok(seconds) => Millis::secs(i64::from(seconds)),
            Err(_) => {
                let date = |t: &str| {
                    time::OffsetDateTime::parse(t, &time::format_description::well_known::Rfc2822).ok()
                };
                let wait = date(text)? - date(self.header("date")?)?;
                Millis::secs(wait.whole_seconds().max(0))
            }
        };
        Some(wait.min(MAX_RETRY_AFTER))
    }
}

/// What was seen of one exchange.
#[derive(Clone, Debug)]
pub enum Observation {
    /// Provably no byte of the request left.
    NotSent(String),
    /// The connection ended without an answer's head.
    ConnectionLost(String),
    /// The deadline passed after the request may have left.
    Timeout,
    /// The answer broke off.
    Torn(String),
    /// The answer is larger than the cap, in bytes.
    TooLarge(u64),
    /// A whole answer.
    Answer(Answer),
}

/// What an observation means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged {
    /// For the ledger.
    Sent(Sent),
    /// The object exists already under this name: fetch it, it is the receipt.
    Existing {
        /// Its id, as the answer gives it.
        resource_id: String,
    },
}

/// Judges one send. `replay`: an earlier send of the same effect is unresolved.
#[must_use]
pub fn judge(policy: &Policy, replay: bool, seen: &Observation) -> Judged {
    Judged::Sent(match seen {
        Observation::NotSent(why) => Sent::NotSent { why: why.clone() },
        Observation::ConnectionLost(why) => {
            unknown(format!("the connection was lost before an answer: {why}"))
        }
        Observation::Timeout => unknown("no answer within the time allowed"),
        Observation::Torn(why) => unknown(format!("the answer broke off: {why}")),
        Observation::TooLarge(cap) => unknown(format!("the answer is larger than {cap} bytes")),
        Observation::Answer(answer) => return whole(policy, replay, answer),
    })
}

fn unknown(why: impl Into<String>) -> Sent {
    Sent::Unknown { why: why.into(), retry_after: None, stored: false }
}

fn whole(policy: &Policy, replay: bool, a: &Answer) -> Judged {
    let status = a.status;
    let marked = policy
        .replay_marker
        .as_ref()
        .is_some_and(|m| a.header(&m.header).is_some_and(|v| v.trim().eq_ignore_ascii_case(&m.value)));
    let undecided =
        |why: String, stored: bool| Judged::Sent(Sent::Unknown { why, retry_after: a.retry_after(), stored });
    if (200..300).contains(&status) {
        let body = a.body.trim_ascii();
        if policy.json && !body.is_empty() && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_err() {
            // A success that this provider can't have written may be a proxy's.
            return undecided(format!("answered {status} with a body that is not JSON"), false);
        }
        return Judged::Sent(Sent::Applied(a.receipt().keep()));
    }
    let json: Option<Value> = serde_json::from_slice(&a.body).ok();
    let is = |signs: &[Sign]| signs.iter().any(|s| s.status == status && has_code(policy, s, json.as_ref()));
    if is(&policy.in_flight) {
        return undecided(
            format!("answered {status}: an earlier send under this key is still in progress"),
            false,
        );
    }
    if is(&policy.conflict) {
        let id = policy.conflict_resource.as_deref().and_then(|p| json.as_ref()?.pointer(p)).and_then(plain);
        return match id {
            Some(resource_id) => Judged::Existing { resource_id },
            None => undecided(
                format!("answered {status}: it exists already, but the answer does not name it"),
                true,
            ),
        };
    }
    if is(&policy.mismatch) {
        return if replay {
            undecided(format!("answered {status}: this key was used with another request"), true)
        } else {
            Judged::Sent(Sent::Refused(a.receipt().keep()))
        };
    }
    if policy.not_applied.contains(&status) && !marked && (status != 503 || a.header("retry-after").is_some())
    {
        return Judged::Sent(Sent::NotApplied {
            why: format!("answered {status}: not applied, and asked to wait"),
            retry_after: a.retry_after(),
        });
    }
    if policy.gone_is_done && replay && matches!(status, 404 | 410) {
        let note = format!("The repeat was answered {status}: it is gone already.");
        return Judged::Sent(Sent::Applied(Receipt::new(204, None, b"").noted(&note).keep()));
    }
    if policy.definite.contains(&status) {
        if !replay || marked || policy.replay_definite.contains(&status) {
            return Judged::Sent(Sent::Refused(a.receipt().keep()));
        }
        let why = format!("a replay was answered {status}, which says nothing about the first send");
        return undecided(why, !PASSING.contains(&status));
    }
    // An unmarked failure may come from a proxy in front; only a marked one is what every replay will get.
    let stored = marked && policy.caches_all;
    let what = match status {
        300..400 => "a redirect, which is not followed",
        500.. => "a failure of the provider or of something in front of it",
        _ => "which does not tell whether it was applied",
    };
    undecided(
        format!("answered {status}, {what}{}", if stored { ", and will repeat it" } else { "" }),
        stored,
    )
}

fn has_code(policy: &Policy, sign: &Sign, json: Option<&Value>) -> bool {
    let Some(code) = &sign.code else { return true };
    json.is_some_and(|j| {
        let at = |p: &String| j.pointer(p).and_then(Value::as_str);
        // AWS's JSON protocols put a namespace and `#` before the code.
        policy
            .code_at
            .iter()
            .filter_map(at)
            .any(|have| have.rsplit('#').next() == Some(code.as_str()) || have == code)
    })
}

/// A text or number as text.
pub(crate) fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(s) if !s.is_empty() => Some(s.clone()),
        Value::Number(n) => Some(n.to_string()),
        _ => None,
    }
}
