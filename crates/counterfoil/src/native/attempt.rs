//! What the function of a tool that changes the world is given.

use super::handles::{self, Handles};
use super::input::{Answer, InputRequest};
use super::methods::Methods;
use super::reply::Reply;
use super::step::{self, Step, StepError};
use super::tool::ToolError;
use ledger::{OperationId, Performed};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// How an effect is known inside its operation: a name, and where a tool has several of one kind, what tells them apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EffectName {
    pub(super) name: String,
    pub(super) discriminator: String,
}

impl From<&str> for EffectName {
    fn from(name: &str) -> EffectName {
        EffectName { name: name.to_owned(), discriminator: String::new() }
    }
}

impl<D: Into<String>> From<(&str, D)> for EffectName {
    fn from((name, discriminator): (&str, D)) -> EffectName {
        EffectName { name: name.to_owned(), discriminator: discriminator.into() }
    }
}

/// The longest name of an effect, and the longest discriminator, in bytes.
const MAX_NAME: usize = 128;
/// The name of the one effect of a method that is itself a tool.
const TAKEN: &str = "request";

impl EffectName {
    /// Why it can't be used, if it can't.
    pub(super) fn flaw(&self) -> Option<String> {
        let fits = |text: &str| text.len() <= MAX_NAME && !text.chars().any(char::is_control);
        if self.name.is_empty() || !fits(&self.name) || !fits(&self.discriminator) {
            return Some(format!("an effect's name has 1 to {MAX_NAME} bytes and no control characters"));
        }
        (self.name == TAKEN).then(|| format!("{TAKEN:?} is the name of another effect; choose another"))
    }

    /// For people.
    pub(super) fn shown(&self) -> String {
        if self.discriminator.is_empty() {
            self.name.clone()
        } else {
            format!("{} {}", self.name, self.discriminator)
        }
    }
}

/// One wish of the function.
pub(super) struct Wish {
    /// Of what is recorded: its name. No two of one attempt are the same.
    pub name: Option<EffectName>,
    pub want: Want,
}

type Said<T> = oneshot::Sender<Result<T, ToolError>>;

/// What is wished, and where the answer goes.
pub(super) enum Want {
    Call { method: String, arguments: Value, answer: Said<Reply> },
    Step { wanted: step::Wanted, answer: Said<Performed> },
    Ask { requests: Vec<InputRequest>, answer: Said<Vec<Answer>> },
    Handle(handles::Wanted),
}

impl Want {
    /// Says that it is not done. What was recorded stays.
    pub fn refuse(self, why: String) {
        // Who dropped the call does not hear of it.
        match self {
            Want::Call { answer, .. } => drop(answer.send(Err(ToolError::Failed(why)))),
            Want::Step { answer, .. } => drop(answer.send(Err(ToolError::Failed(why)))),
            Want::Ask { answer, .. } => drop(answer.send(Err(ToolError::Failed(why)))),
            Want::Handle(wanted) => wanted.refuse(why),
        }
    }
}

/// How far the function is.
pub(super) struct Told {
    pub done: f64,
    pub total: Option<f64>,
    pub message: String,
}

/// One try at an operation. Effects are caused only through it.
///
/// The function may run again for the same operation: after a crash, a lost answer, a restart. What the ledger recorded
/// then counts: an effect that happened answers with its receipt, at once and without a send; one whose outcome is not
/// known goes on by its method's recovery strategy; one that was never asked for is begun. So the function must
///
/// - ask for the same effects under the same names with the same arguments each time, in any order: arguments of an
///   effect come from the tool's arguments and from what earlier effects answered, never from a clock, a random number,
///   or something read that may have changed. Asking for another request under a recorded name stops the operation, in
///   doubt, and sends nothing;
/// - change nothing by any other way than [`Attempt::call`], [`Attempt::effect`] and [`Attempt::handles`].
///
/// If the ledger stops the attempt (another took over, an outcome is in doubt, a person must say, a question has no
/// answer yet), the function is dropped at the call that it waits for. Nothing that it does can hide an open effect.
#[derive(Clone)]
pub struct Attempt {
    pub(super) wishes: mpsc::Sender<Wish>,
    pub(super) told: mpsc::Sender<Told>,
    pub(super) methods: Methods,
    pub(super) operation: OperationId,
    pub(super) number: u32,
    pub(super) principal: Arc<str>,
    pub(super) mode: Arc<str>,
}

impl Attempt {
    /// Causes an effect by calling a configured method, and tells what the provider said, be it yes or no
    /// ([`Reply::applied`]). `method` is a canonical id that the tool names in its `calls`, `arguments` a JSON object. A
    /// call whose future is dropped goes on all the same. Effects are caused one after another.
    ///
    /// # Errors
    /// [`ToolError::Failed`]: nothing was sent for it, and it is known: no such method, arguments from which no request
    /// can be made, two effects of one name, or a provider that can't be reached.
    pub async fn call(
        &self,
        effect: impl Into<EffectName>,
        method: &str,
        arguments: Value,
    ) -> Result<Reply, ToolError> {
        let (answer, answered) = oneshot::channel();
        let want = Want::Call { method: method.to_owned(), arguments, answer };
        self.wish(Some(effect.into()), want).await?;
        answered.await.map_err(|_| ended())?
    }

    /// Causes an effect of the tool's own: `run` is run under a recorded intent, with the key of the effect, and what it
    /// answers is kept. When the function runs again, a step that happened answers with that, at once; one whose outcome
    /// is not known goes on as `step` says. `given` is what identifies it: it has to be the same each time. `run` may
    /// be called several times, also in later attempts; what it needs beside the key comes from `given`, the tool's
    /// arguments and what earlier effects answered.
    ///
    /// ```
    /// use counterfoil::native::{Attempt, Step, StepError, ToolError};
    ///
    /// async fn lock(attempt: &Attempt, door: String) -> Result<String, ToolError> {
    ///     attempt
    ///         .effect("lock", Step::natural(), &door.clone(), move |_key| {
    ///             let door = door.clone();
    ///             async move { Ok::<_, StepError>(format!("{door} is locked")) }
    ///         })
    ///         .await
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ToolError::Failed`]: it was refused; or nothing was done, and that is certain; or it is done, and its answer is
    /// not known.
    pub async fn effect<T, F, W>(
        &self,
        name: impl Into<EffectName>,
        step: Step,
        given: &impl Serialize,
        run: F,
    ) -> Result<T, ToolError>
    where
        T: Serialize + DeserializeOwned,
        F: Fn(String) -> W + Send + Sync + 'static,
        W: Future<Output = Result<T, StepError>> + Send + 'static,
    {
        let name = name.into();
        let shown = name.shown();
        let wanted = step::Wanted { step, given: step::given(given)?, work: step::work(run) };
        let (answer, answered) = oneshot::channel();
        self.wish(Some(name), Want::Step { wanted, answer }).await?;
        step::read(&shown, &answered.await.map_err(|_| ended())??)
    }

    /// Asks the client, and gives its answers in the order of the questions. Questions and answers are kept with the
    /// operation: without the answers the function is dropped here, and runs again from its beginning when the last one
    /// has come, whoever brings it. It has to ask the same under the same keys then.
    ///
    /// # Errors
    /// [`ToolError::Failed`]: nothing was asked: another question was asked under a key before, or there are too many.
    pub async fn ask(&self, requests: &[InputRequest]) -> Result<Vec<Answer>, ToolError> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let (answer, answered) = oneshot::channel();
        self.wish(None, Want::Ask { requests: requests.to_vec(), answer }).await?;
        answered.await.map_err(|_| ended())?
    }

    /// The caller's handles: state that lives longer than a call.
    #[must_use]
    pub fn handles(&self) -> Handles {
        Handles { attempt: self.clone() }
    }

    pub(super) async fn wish(&self, name: Option<EffectName>, want: Want) -> Result<(), ToolError> {
        self.wishes.send(Wish { name, want }).await.map_err(|_| ended())
    }

    /// Asks a configured method that only reads. What it says may differ when the function runs again, so no effect's
    /// name or arguments may depend on it.
    ///
    /// # Errors
    /// As [`Methods::read`].
    pub async fn read(&self, method: &str, arguments: Value) -> Result<Reply, ToolError> {
        self.methods.read(method, arguments).await
    }

    /// Tells the caller how far it is. `done` must increase. Sends are told by the ledger, and counted beside this.
    pub fn progress(&self, done: f64, total: Option<f64>, message: impl Into<String>) {
        // Of a function that tells more than can be passed on, some is not heard.
        let _ = self.told.try_send(Told { done, total, message: message.into() });
    }

    /// The operation, the same each time that the function runs for it.
    #[must_use]
    pub fn operation(&self) -> String {
        self.operation.to_string()
    }

    /// The number of this try, from 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Who called.
    #[must_use]
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// `sandbox` or `production`.
    #[must_use]
    pub fn mode(&self) -> &str {
        &self.mode
    }
}

fn ended() -> ToolError {
    ToolError::failed("The attempt has ended, so nothing more is sent.")
}
