//! A step of a tool's own: a closure under a recorded intent, which the ledger runs, and does not run again once it is
//! known to have happened.

use super::tool::ToolError;
use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ledger::canonical::canonicalise;
use ledger::{EffectKey, Executor, Intent, Looked, Millis, Performed, Receipt, Recovery, Sent, Strategy};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// The longest answer that is kept, in bytes.
const MAX_ANSWER: usize = 1 << 20;
/// The longest intent, in bytes.
const MAX_GIVEN: usize = 1 << 20;
/// For how long a step that sets a state is repeated.
const HORIZON: Millis = Millis::secs(3600);

/// How a step recovers when it is not known whether it happened: what its author knows of whoever carries it out.
#[derive(Clone, Debug)]
pub struct Step(Recovery);

impl Step {
    /// Nothing is known: it is never run twice. If it is interrupted, a person has to say what became of it.
    #[must_use]
    pub fn none() -> Step {
        Step(Recovery::new(Strategy::None))
    }

    /// Whoever carries it out takes the key that the closure is given, and does nothing again under a key that it did
    /// something under before, for as long as it keeps keys: `kept`.
    #[must_use]
    pub fn key(kept: Duration) -> Step {
        let mut recovery = Recovery::new(Strategy::Key);
        let kept = millis(kept);
        // Clocks differ, and a send takes its time.
        let margin = Millis((kept.0 / 24).max(recovery.send_timeout.0));
        recovery.replay_for = Some(Millis((kept.0 - margin.0).max(0)));
        Step(recovery)
    }

    /// The key becomes a unique name of what is made, so that a second can't be. The closure answers with what is there
    /// if it is told that the name is taken.
    #[must_use]
    pub fn unique() -> Step {
        Step(Recovery::new(Strategy::Unique))
    }

    /// Running it again changes nothing: it sets a state. It is run again for an hour at most, since another writer may
    /// have set another one by then.
    #[must_use]
    pub fn natural() -> Step {
        Step(Recovery { replay_for: Some(HORIZON), ..Recovery::new(Strategy::Natural) })
    }

    /// The longest that one run may take; 10 s if nothing is said. What takes longer counts as not known.
    #[must_use]
    pub fn timeout(mut self, most: Duration) -> Step {
        self.0.send_timeout = millis(most);
        self
    }
}

impl Default for Step {
    fn default() -> Step {
        Step::none()
    }
}

/// Why a step has no answer. The difference decides what may be done next, so choose with care.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// Provably nothing was done, and it may be tried again.
    #[error("{0}")]
    NotSent(String),
    /// It was definitely refused; it is not tried again.
    #[error("{0}")]
    Refused(String),
    /// It may have happened or not.
    #[error("{0}")]
    Unknown(String),
}

pub(super) type Work =
    Arc<dyn Fn(String) -> BoxFuture<'static, Result<Box<RawValue>, StepError>> + Send + Sync>;

/// What is asked for.
pub(super) struct Wanted {
    pub step: Step,
    /// What identifies it: if the function runs again, it has to be the same.
    pub given: String,
    pub work: Work,
}

/// What became of a step, as it is kept.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Kept<'a> {
    /// The answer.
    #[serde(borrow)]
    Value(&'a RawValue),
    /// Why it was refused.
    Refused(String),
}

/// The closure with its answer as text.
pub(super) fn work<T, F, W>(run: F) -> Work
where
    T: Serialize,
    F: Fn(String) -> W + Send + Sync + 'static,
    W: Future<Output = Result<T, StepError>> + Send + 'static,
{
    Arc::new(move |key| {
        let run = run(key);
        Box::pin(async move {
            let value = serde_json::value::to_raw_value(&run.await?).ok();
            let value = value.filter(|v| v.get().len() <= MAX_ANSWER);
            // It happened, whatever becomes of its answer.
            Ok(value.unwrap_or_else(|| RawValue::NULL.to_owned()))
        })
    })
}

/// What a step is given, in one spelling.
///
/// # Errors
/// It is no JSON, or too long.
pub(super) fn given(given: &impl Serialize) -> Result<String, ToolError> {
    let text = serde_json::to_string(given).ok();
    let text = text.and_then(|t| Some(canonicalise(&t).ok()?.as_str().to_owned()));
    text.filter(|t| t.len() <= MAX_GIVEN).ok_or_else(|| {
        ToolError::failed("The tool gives a step what can't be recorded, so nothing was done.")
    })
}

/// The intent of a step.
pub(super) fn intent(name: &str, discriminator: &str, wanted: &Wanted, tool: &str) -> Intent {
    Intent {
        name: name.to_owned(),
        discriminator: discriminator.to_owned(),
        recovery: wanted.step.0.clone(),
        summary: format!("{tool}: {name}"),
        body: format!(r#"{{"step":{}}}"#, wanted.given).into_bytes(),
    }
}

/// What is read from what was kept.
///
/// # Errors
/// It was refused; or it happened, and its answer is not known or not of this type.
pub(super) fn read<T: DeserializeOwned>(shown: &str, done: &Performed) -> Result<T, ToolError> {
    match (serde_json::from_slice(&done.receipt.0), done.applied) {
        (Ok(Kept::Refused(why)), _) => Err(ToolError::failed(format!("{shown:?} was refused: {why}."))),
        (Ok(Kept::Value(value)), true) => serde_json::from_str(value.get()).map_err(|_| {
            ToolError::failed(format!("{shown:?} is done, and its answer is not of the form that is read."))
        }),
        (_, true) => Err(ToolError::failed(format!(
            "{shown:?} is done, as an operator recorded; what it answered is not known."
        ))),
        (_, false) => Err(ToolError::failed(format!("{shown:?} was refused."))),
    }
}

/// Runs the closure.
pub(super) struct Closure(pub Work);

#[async_trait]
impl Executor for Closure {
    async fn send(&self, _: &Intent, key: &EffectKey, _: bool, timeout: Millis) -> Sent {
        let (work, key) = (self.0.clone(), key.to_string());
        // Not even making the future may take the attempt along.
        let run = AssertUnwindSafe(async move { work(key).await }).catch_unwind();
        let unknown = |why: String| Sent::Unknown { why, retry_after: None, stored: false };
        let kept = |k: &Kept<'_>| Receipt(serde_json::to_vec(k).unwrap_or_default());
        match tokio::time::timeout(timeout.duration(), run).await {
            Ok(Ok(Ok(value))) => Sent::Applied(kept(&Kept::Value(&value))),
            Ok(Ok(Err(StepError::NotSent(why)))) => Sent::NotSent { why },
            Ok(Ok(Err(StepError::Refused(why)))) => Sent::Refused(kept(&Kept::Refused(why))),
            Ok(Ok(Err(StepError::Unknown(why)))) => unknown(why),
            Ok(Err(_)) => unknown("the step failed unexpectedly".into()),
            Err(_) => unknown("the step took longer than its limit".into()),
        }
    }

    async fn look_up(&self, _: &Intent, _: &EffectKey, _: Millis) -> Looked {
        Looked::Unknown { why: "a step can't be looked up".into() }
    }
}

fn millis(d: Duration) -> Millis {
    Millis(i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_used_for_less_long_than_it_is_kept() {
        let replay = |kept| Step::key(Duration::from_secs(kept)).0.replay_for.unwrap();
        assert_eq!(replay(24 * 3600), Millis::secs(23 * 3600));
        assert_eq!(replay(30), Millis::secs(20));
        assert_eq!(replay(5), Millis(0));
        assert!(Step::default().0.strategy == Strategy::None && !Strategy::None.replays());
    }

    #[test]
    fn what_was_kept_is_read_back() {
        let done = |applied, text: &str| Performed { applied, receipt: Receipt(text.as_bytes().to_vec()) };
        assert_eq!(read::<u8>("s", &done(true, r#"{"value":7}"#)).unwrap(), 7);
        let wrong = |d: &Performed| read::<u8>("s", d).unwrap_err().to_string();
        assert_eq!(
            wrong(&done(false, r#"{"refused":"no seat is left"}"#)),
            "\"s\" was refused: no seat is left."
        );
        assert!(wrong(&done(true, r#"{"value":"x"}"#)).contains("not of the form"));
        assert!(wrong(&done(true, r#"{"operator":"ada","note":"seen"}"#)).contains("operator"));
    }

    #[test]
    fn what_is_given_has_one_spelling() {
        let one = given(&serde_json::json!({ "b": 1, "a": 1.0 })).unwrap();
        assert_eq!(one, given(&serde_json::json!({ "a": 1, "b": 1.0 })).unwrap());
        assert!(given(&"x".repeat(MAX_GIVEN)).is_err());
    }
}
