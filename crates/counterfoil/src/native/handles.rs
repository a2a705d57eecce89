//! State of a tool that lives longer than a call: a basket, a draft, a session elsewhere. The caller gets its handle, a
//! name that can't be guessed and works for nobody else; the state stays here.
//!
//! What changes a handle belongs to the operation that changes it, is written together with its record, and is not made
//! again when the function runs again.

use super::attempt::{Attempt, EffectName, Want};
use super::tool::ToolError;
use gateway::handles::MAX_LIST;
use gateway::{HandleError, Held};
use ledger::handle::MAX_HANDLE_VALUE;
use ledger::{Handle, HandleChange, HandleConflict, Millis, Receipt, Stopped, StoreError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// The longest that a handle of a caller without a name lives.
const ANONYMOUS: Millis = Millis::secs(3600);

/// A kind of handles, as a tool declares it.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub name: String,
    pub idle: Duration,
    pub absolute: Duration,
}

impl Kind {
    fn millis(d: Duration) -> Millis {
        Millis(i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
    }

    /// How long one may lie unused, and live at all.
    fn lives(&self, principal: &str) -> (Millis, Millis) {
        let mut absolute = Kind::millis(self.absolute);
        if principal == gateway::principal::ANONYMOUS {
            absolute = absolute.min(ANONYMOUS);
        }
        (Kind::millis(self.idle).min(absolute), absolute)
    }

    /// For models, at the end of a description.
    pub fn sentence(&self) -> String {
        let shown = |d| crate::config::show_duration(Kind::millis(d));
        let less = if Kind::millis(self.absolute) > ANONYMOUS {
            format!(" ({} for callers without a name)", crate::config::show_duration(ANONYMOUS))
        } else {
            String::new()
        };
        format!(
            "A {} handle ends when it was not used for {}, and {}{less} after it was made; then begin a new one.",
            self.name,
            shown(self.idle),
            shown(self.absolute)
        )
    }
}

type Said<T> = oneshot::Sender<Result<T, ToolErrorOr>>;

/// A conflict is the tool's to handle; all else ends it.
#[derive(Debug)]
pub(super) enum ToolErrorOr {
    Handle(HandleError),
    Tool(ToolError),
}

impl From<HandleError> for ToolErrorOr {
    fn from(e: HandleError) -> ToolErrorOr {
        ToolErrorOr::Handle(e)
    }
}

/// What the function wishes of handles.
pub(super) enum Wanted {
    /// One more; its text is answered.
    Create { kind: String, value: Vec<u8>, answer: Said<String> },
    /// One that is there. `keep`: as it was when it was first read.
    Get { kind: String, text: String, keep: bool, answer: Said<Held<Box<RawValue>>> },
    /// Those that are there.
    List { kind: String, answer: Said<Vec<Held<Box<RawValue>>>> },
    /// Another value.
    Update { held: Held<()>, value: Vec<u8>, answer: Said<Held<Box<RawValue>>> },
    /// Away with it.
    Destroy { kind: String, text: String, answer: Said<()> },
}

impl Wanted {
    /// Says that it is not done.
    pub fn refuse(self, why: String) {
        let e = || ToolErrorOr::Tool(ToolError::Failed(why));
        // Who dropped the call does not hear of it.
        match self {
            Wanted::Create { answer, .. } => drop(answer.send(Err(e()))),
            Wanted::Get { answer, .. } | Wanted::Update { answer, .. } => drop(answer.send(Err(e()))),
            Wanted::List { answer, .. } => drop(answer.send(Err(e()))),
            Wanted::Destroy { answer, .. } => drop(answer.send(Err(e()))),
        }
    }
}

/// The caller's handles. Their values are JSON.
#[derive(Clone)]
pub struct Handles {
    pub(super) attempt: Attempt,
}

impl Handles {
    /// Makes one of a kind that the tool declares, and gives its text: pass it on to the caller. `name` is that of the
    /// step, as of an effect: the function that runs again gets the same handle for it.
    ///
    /// # Errors
    /// [`HandleError::Full`], [`HandleError::Wrong`].
    pub async fn create(
        &self,
        name: impl Into<EffectName>,
        kind: &str,
        value: &impl Serialize,
    ) -> Result<String, HandleError> {
        let value = written(value)?;
        self.want(Some(name.into()), |answer| Wanted::Create { kind: kind.to_owned(), value, answer }).await
    }

    /// One as it is now; being read is a use of it. When the function runs again it may read something else, so no
    /// effect may depend on it; see [`Handles::fixed`].
    ///
    /// # Errors
    /// [`HandleError::Unknown`], [`HandleError::Expired`]; [`HandleError::Wrong`] if it is not of this type.
    pub async fn get<T: DeserializeOwned>(&self, kind: &str, handle: &str) -> Result<Held<T>, HandleError> {
        let (kind, text) = (kind.to_owned(), handle.to_owned());
        let held = self.want(None, |answer| Wanted::Get { kind, text, keep: false, answer }).await?;
        held.typed()
    }

    /// As [`Handles::get`]; what it read is kept with the operation under `name`, and when the function runs again it is
    /// the same, whatever became of the handle: for what effects depend on.
    ///
    /// # Errors
    /// As [`Handles::get`].
    pub async fn fixed<T: DeserializeOwned>(
        &self,
        name: impl Into<EffectName>,
        kind: &str,
        handle: &str,
    ) -> Result<Held<T>, HandleError> {
        let (kind, text) = (kind.to_owned(), handle.to_owned());
        let name = Some(name.into());
        let held = self.want(name, |answer| Wanted::Get { kind, text, keep: true, answer }).await?;
        held.typed()
    }

    /// The caller's handles of a kind, 100 at most, in no order that says anything. Their texts are known to the caller
    /// alone.
    ///
    /// # Errors
    /// [`HandleError::Wrong`]: one is not of this type.
    pub async fn list<T: DeserializeOwned>(&self, kind: &str) -> Result<Vec<Held<T>>, HandleError> {
        let all = self.want(None, |answer| Wanted::List { kind: kind.to_owned(), answer }).await?;
        all.into_iter().map(Held::typed).collect()
    }

    /// Replaces its value, if nobody did since it was read; gives what is there then. When the function runs again
    /// nothing is replaced, and what was there then is given: go on with that.
    ///
    /// # Errors
    /// [`HandleError::Moved`], [`HandleError::Unknown`], [`HandleError::Expired`], [`HandleError::Wrong`]. Nothing was
    /// changed, and the name may be used again.
    pub async fn update<T: Serialize + DeserializeOwned>(
        &self,
        name: impl Into<EffectName>,
        held: &Held<T>,
    ) -> Result<Held<T>, HandleError> {
        let value = written(&held.value)?;
        let held = held.with(());
        let held = self.want(Some(name.into()), |answer| Wanted::Update { held, value, answer }).await?;
        held.typed()
    }

    /// Ends it, whatever its value is by now.
    ///
    /// # Errors
    /// [`HandleError::Unknown`], [`HandleError::Expired`].
    pub async fn destroy(
        &self,
        name: impl Into<EffectName>,
        kind: &str,
        handle: &str,
    ) -> Result<(), HandleError> {
        let (kind, text) = (kind.to_owned(), handle.to_owned());
        self.want(Some(name.into()), |answer| Wanted::Destroy { kind, text, answer }).await
    }

    async fn want<T>(
        &self,
        name: Option<EffectName>,
        wanted: impl FnOnce(Said<T>) -> Wanted,
    ) -> Result<T, HandleError> {
        // The ledger knows it by one text.
        let name = name.map(|n| EffectName { name: n.shown(), discriminator: String::new() });
        let (answer, answered) = oneshot::channel();
        let gone = || HandleError::Wrong("The attempt has ended, so nothing more is done.".into());
        self.attempt.wish(name, Want::Handle(wanted(answer))).await.map_err(|_| gone())?;
        match answered.await.map_err(|_| gone())? {
            Ok(told) => Ok(told),
            Err(ToolErrorOr::Handle(e)) => Err(e),
            Err(ToolErrorOr::Tool(e)) => Err(HandleError::Wrong(e.to_string())),
        }
    }
}

fn written(value: &impl Serialize) -> Result<Vec<u8>, HandleError> {
    let wrong = |why: &str| HandleError::Wrong(format!("The tool's handle can't be kept: {why}."));
    let text = serde_json::to_vec(value).map_err(|_| wrong("its value is no JSON"))?;
    if text.len() > MAX_HANDLE_VALUE {
        return Err(wrong("its value is longer than 64 KiB"));
    }
    Ok(text)
}

/// What is kept of a step with a handle.
#[derive(Serialize, Deserialize)]
struct Kept {
    version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Box<RawValue>>,
}

impl Kept {
    fn of(version: u64, value: Option<&[u8]>) -> Receipt {
        let value = value.and_then(|v| serde_json::from_slice(v).ok());
        Receipt(serde_json::to_vec(&Kept { version, value }).unwrap_or_default())
    }
    fn held(receipt: &Receipt, kind: String, id_hash: [u8; 32]) -> Result<Held<Box<RawValue>>, Stopped> {
        let damaged = || Stopped::Store(StoreError::Damaged("what a handle was can't be read".into()));
        let kept: Kept = serde_json::from_slice(&receipt.0).map_err(|_| damaged())?;
        Ok(Held::new(kept.value.ok_or_else(damaged)?, kind, kept.version, id_hash))
    }
}

fn conflict(kind: &str, c: HandleConflict) -> HandleError {
    match c {
        HandleConflict::Moved { .. } => HandleError::Moved,
        HandleConflict::Expired => HandleError::Expired(kind.to_owned()),
        HandleConflict::Gone => HandleError::Unknown(kind.to_owned()),
        HandleConflict::Taken => HandleError::Wrong("The tool made this handle before.".into()),
        HandleConflict::Full => HandleError::Full,
    }
}

/// Does what is wished. `Ok(false)`: nothing was recorded, so the step's name may be used again.
///
/// # Errors
/// The ledger stopped the attempt.
pub(super) async fn grant(
    attempt: &ledger::Attempt,
    kinds: &[Kind],
    name: &str,
    wanted: Wanted,
) -> Result<bool, Stopped> {
    let principal = attempt.operation().scope.principal.clone();
    match wanted {
        Wanted::Create { kind, value, answer } => {
            let Some(declared) = kinds.iter().find(|k| k.name == kind) else {
                let why = format!("The tool does not declare handles of the kind {kind:?}.");
                return Ok(tell(answer, Err(HandleError::Wrong(why).into())));
            };
            let text = attempt.handle_id(name, "");
            let (idle, absolute) = declared.lives(&principal);
            let now = attempt.now();
            let made = Handle {
                id_hash: ledger::handle::id_hash(&text),
                principal,
                kind: kind.clone(),
                value,
                version: 1,
                created_at: now,
                used_at: now,
                idle,
                absolute,
            };
            let done = change(attempt, name, &kind, HandleChange::Create(made), Kept::of(1, None)).await?;
            Ok(tell(answer, done.map(|_| text)))
        }
        Wanted::Get { kind, text, keep, answer } => {
            let id_hash = ledger::handle::id_hash(&text);
            let now = if keep && attempt.operation().effect(name, "").is_some() {
                // What was read then counts.
                Receipt(Vec::new())
            } else {
                match Held::found(attempt.handle(&text).await?, &kind) {
                    Ok(h) if keep => Kept::of(h.version(), Some(h.value.get().as_bytes())),
                    found => return Ok(tell(answer, found.map_err(Into::into))),
                }
            };
            let what = [kind.as_bytes(), b" ", &id_hash[..]].concat();
            let done = match attempt.local(name, "", &what, now).await {
                Ok(receipt) => Ok(Kept::held(&receipt, kind, id_hash)?),
                Err(Stopped::NeverSent(why)) => Err(never(&why)),
                Err(stopped) => return Err(stopped),
            };
            Ok(tell(answer, done))
        }
        Wanted::List { kind, answer } => {
            let all = attempt.handles(Some(&kind), None, MAX_LIST).await?;
            Ok(tell(answer, Ok(all.into_iter().filter_map(Held::of).collect())))
        }
        Wanted::Update { held, value, answer } => {
            let (kind, version, id_hash) = (held.kind().to_owned(), held.version(), held.id_hash());
            let receipt = Kept::of(version + 1, Some(&value));
            let at = attempt.now();
            let update = HandleChange::Update { id_hash, principal, expected: version, value, at };
            match change(attempt, name, &kind, update, receipt).await? {
                Ok(receipt) => Ok(tell(answer, Ok(Kept::held(&receipt, kind, id_hash)?))),
                Err(e) => Ok(tell(answer, Err(e))),
            }
        }
        Wanted::Destroy { kind, text, answer } => {
            let id_hash = ledger::handle::id_hash(&text);
            if attempt.operation().effect(name, "").is_none()
                && let Err(e) = Held::found(attempt.handle(&text).await?, &kind)
            {
                return Ok(tell(answer, Err(e.into())));
            }
            let destroy = HandleChange::Destroy { id_hash, principal, expected: None, at: attempt.now() };
            let done = change(attempt, name, &kind, destroy, Kept::of(0, None)).await?;
            Ok(tell(answer, done.map(drop)))
        }
    }
}

fn never(why: &str) -> ToolErrorOr {
    ToolErrorOr::Tool(ToolError::failed(format!("Nothing was changed: {why}.")))
}

/// Whether something was recorded.
fn tell<T>(answer: Said<T>, told: Result<T, ToolErrorOr>) -> bool {
    let done = told.is_ok();
    // Who dropped the call does not hear of it.
    let _ = answer.send(told);
    done
}

async fn change(
    attempt: &ledger::Attempt,
    name: &str,
    kind: &str,
    change: HandleChange,
    receipt: Receipt,
) -> Result<Result<Receipt, ToolErrorOr>, Stopped> {
    match attempt.handle_change(name, change, receipt).await {
        Ok(done) => Ok(done.map_err(|c| conflict(kind, c).into())),
        Err(Stopped::NeverSent(why)) => Ok(Err(never(&why))),
        Err(stopped) => Err(stopped),
    }
}

/// The kinds of a tool.
pub(super) type Kinds = Arc<[Kind]>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_without_a_name_have_handles_for_an_hour() {
        let days = |n: u64| Duration::from_secs(n * 86_400);
        let kind = |idle, absolute| Kind { name: "basket".into(), idle, absolute };
        let long = kind(days(2), days(30));
        assert_eq!(long.lives("key:ada"), (Millis::secs(2 * 86_400), Millis::secs(30 * 86_400)));
        assert_eq!(long.lives(gateway::principal::ANONYMOUS), (ANONYMOUS, ANONYMOUS));
        assert!(long.sentence().contains("callers without a name"), "{}", long.sentence());
        let short = kind(Duration::from_secs(60), Duration::from_secs(600));
        assert_eq!(short.lives(gateway::principal::ANONYMOUS), short.lives("key:ada"));
        assert!(!short.sentence().contains("without a name"), "{}", short.sentence());
    }
}
