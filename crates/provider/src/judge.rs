//! What an outcome means. Pure, and the one place where that is decided.
//!
//! The rule: everything after the first request byte may have left is *unknown*, unless a whole answer says
//! otherwise and the policy knows that answer. A refusal of a replay is about the replay, unless the provider
//! marks it as its first answer, or can only have given it from behind its key check.

pub(crate) mod graphql;

use crate::policy::Word;
pub use crate::policy::{GraphqlAnswers, OkAt, Policy, ReplayMarker, Sign};
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
                let wait = date(text)? - date(self.header("date")?)?;
                Millis::secs(wait.whole_seconds().max(0))
            }
        };
        Some(wait.min(MAX_RETRY_AFTER))
    }
}

/// An HTTP date.
pub(crate) fn date(text: &str) -> Option<time::OffsetDateTime> {
    time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc2822).ok()
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

fn bears(a: &Answer, marker: Option<&ReplayMarker>) -> bool {
    marker.is_some_and(|m| a.header(&m.header).is_some_and(|v| m.is(v)))
}

/// An answer for which the key did not count: it means what it would mean without one, and nothing may follow it that
/// only the key would make safe. On a repeat nobody can tell whether the earlier send was carried out, too.
fn unprotected(policy: &Policy, replay: bool, a: &Answer) -> Judged {
    if replay {
        let why = format!(
            "answered {}, and that the key does not count there: if an earlier send arrived, it was done twice",
            a.status
        );
        return Judged::Sent(Sent::Unknown { why, retry_after: a.retry_after(), stored: true });
    }
    let bare = Policy {
        ignored_marker: None,
        replay_marker: None,
        in_flight: Vec::new(),
        conflict: Vec::new(),
        mismatch: Vec::new(),
        ..policy.clone()
    };
    match whole(&bare, false, a) {
        Judged::Sent(Sent::Unknown { why, retry_after, .. }) => {
            let why = format!("{why}; the provider says that the key does not count there");
            Judged::Sent(Sent::Unknown { why, retry_after, stored: true })
        }
        other => other,
    }
}

/// The key was used with another request. Only a replay can't tell by it what became of the first send.
fn mismatched(replay: bool, a: &Answer) -> Judged {
    if !replay {
        let receipt = a.receipt();
        let receipt = if a.status < 400 { receipt.refused() } else { receipt };
        return Judged::Sent(Sent::Refused(receipt.keep()));
    }
    let why = format!("answered {}: this key was used with another request", a.status);
    Judged::Sent(Sent::Unknown { why, retry_after: a.retry_after(), stored: true })
}

fn whole(policy: &Policy, replay: bool, a: &Answer) -> Judged {
    let status = a.status;
    if bears(a, policy.ignored_marker.as_ref()) {
        return unprotected(policy, replay, a);
    }
    let marked = bears(a, policy.replay_marker.as_ref());
    let undecided =
        |why: String, stored: bool| Judged::Sent(Sent::Unknown { why, retry_after: a.retry_after(), stored });
    if let (200..300, Some(read)) = (status, &policy.graphql) {
        return graphql::success(policy, read, replay && !marked, a);
    }
    if (200..300).contains(&status) {
        let body = a.body.trim_ascii();
        if policy.json && !body.is_empty() && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_err() {
            // A success that this provider can't have written may be a proxy's.
            return undecided(format!("answered {status} with a body that is not JSON"), false);
        }
        return match policy.word_of(body) {
            None | Some(Word::Success) => Judged::Sent(Sent::Applied(a.receipt().keep())),
            Some(Word::Refusal(code)) => refused_inside(policy, replay && !marked, a, &code),
            Some(Word::Nothing) => undecided(
                format!("answered {status} with a body that does not say whether it was done"),
                false,
            ),
        };
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
        return mismatched(replay, a);
    }
    // These two mean other things, too.
    let waits = !matches!(status, 403 | 503) || a.header("retry-after").is_some();
    if policy.not_applied.contains(&status) && !marked && waits {
        return Judged::Sent(Sent::NotApplied {
            why: format!("answered {status}: not applied, and asked to wait"),
            retry_after: a.retry_after(),
        });
    }
    if policy.gone_is_done && replay && matches!(status, 404 | 410) {
        let note = format!("The repeat was answered {status}: it is gone already.");
        return Judged::Sent(Sent::Applied(Receipt::new(204, None, b"").noted(&note).keep()));
    }
    // A part was answered, so a part was done.
    let partial = policy.graphql.as_ref().is_some_and(|read| graphql::has_value(read, json.as_ref()));
    if policy.definite.contains(&status) && !partial {
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

/// A success whose body says that it is none.
fn refused_inside(policy: &Policy, replay: bool, a: &Answer, code: &str) -> Judged {
    let among = |of: fn(&OkAt) -> &Vec<String>| {
        policy.ok.as_ref().is_some_and(|ok| of(ok).iter().any(|known| known == code))
    };
    let shown = if code.is_empty() { "without a code" } else { code };
    Judged::Sent(if among(|ok| &ok.not_applied) {
        let why = format!("answered {}, refused ({shown}): not applied, and asked to wait", a.status);
        Sent::NotApplied { why, retry_after: a.retry_after() }
    } else if among(|ok| &ok.unclear) || replay || code.is_empty() {
        let of = if replay { ", which says nothing about the first send" } else { "" };
        let why = format!("answered {}, refused ({shown}){of}", a.status);
        Sent::Unknown { why, retry_after: a.retry_after(), stored: false }
    } else {
        Sent::Refused(a.receipt().refused().keep())
    })
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
