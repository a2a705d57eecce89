//! What the function of a tool that changes the world is given.

use super::methods::Methods;
use super::reply::Reply;
use super::tool::ToolError;
use ledger::OperationId;
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

/// One wish of the function, and where its answer goes.
pub(super) struct Wish {
    pub effect: EffectName,
    pub method: String,
    pub arguments: Value,
    pub answer: oneshot::Sender<Result<Reply, ToolError>>,
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
/// - change nothing by any other way than [`Attempt::call`].
///
/// If the ledger stops the attempt (another took over, an outcome is in doubt, a person must say), the function is
/// dropped at the call that it waits for. Nothing that it does can hide an open effect.
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
        let wish = Wish { effect: effect.into(), method: method.to_owned(), arguments, answer };
        let ended = || ToolError::failed("The attempt has ended, so nothing more is sent.");
        self.wishes.send(wish).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
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
