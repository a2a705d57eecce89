//! What a request brings to a tool that reads, a resource or a prompt: who asks, in which revision, with which
//! capabilities, and the ways to speak while it is worked on.

use crate::asks::{Asks, Unanswered};
use crate::changes::Changes;
use crate::handles::ReadHandles;
use ledger::{Ledger, Millis};
use mcp::Revision;
use mcp::input::{Answer, InputRequest};
use mcp::json::{Raw, RawObject};
use mcp::meta::LogLevel;
use mcp::server::Notifier;
use std::sync::Arc;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// Who asks.
    pub principal: Arc<str>,
    /// `sandbox` or `production`.
    pub mode: Arc<str>,
    /// How long it may take.
    pub timeout: Millis,
    /// The revision it is asked in; `None` from the shell.
    pub revision: Option<Revision>,
    /// `ClientCapabilities` as declared; `{}` if nothing is known.
    pub capabilities: RawObject,
    /// Tells listeners that something changed.
    pub changes: Changes,
    ledger: Arc<Ledger>,
    notifier: Option<Notifier>,
    pub(crate) asks: Option<Arc<Asks>>,
}

impl Context {
    /// The context of a request; without a notifier nobody hears progress and log messages.
    #[must_use]
    pub fn new(
        principal: Arc<str>,
        mode: Arc<str>,
        timeout: Millis,
        changes: Changes,
        ledger: Arc<Ledger>,
        notifier: Option<Notifier>,
    ) -> Context {
        Context {
            principal,
            mode,
            timeout,
            revision: None,
            capabilities: RawObject::empty(),
            changes,
            ledger,
            notifier,
            asks: None,
        }
    }

    /// Whether the client declared a capability, such as `sampling`.
    #[must_use]
    pub fn has(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some_and(|c| !c.is_null())
    }

    /// Tells the client how far the request is, if it asked to be told. `done` must increase.
    pub fn progress(&self, done: f64, total: Option<f64>, message: Option<&str>) {
        if let Some(n) = &self.notifier {
            n.progress(done, total, message);
        }
    }

    /// Sends a log message, if the client asked for messages of this level. It must hold no secrets.
    pub fn log(&self, level: LogLevel, logger: Option<&str>, data: &Raw) {
        if let Some(n) = &self.notifier {
            n.log(level, logger, data);
        }
    }

    /// Asks the client, and gives its answers in the order of the questions. In the modern era the request ends with what
    /// is not answered yet, and what works on it is begun anew when it comes again: the same questions must then be asked
    /// under the same keys. A legacy client is waited for.
    ///
    /// # Errors
    /// [`Unanswered`]: end with an error, whichever; the client gets the questions instead, or hears why it can't be asked.
    pub async fn ask(&self, requests: &[InputRequest]) -> Result<Vec<Answer>, Unanswered> {
        match &self.asks {
            Some(asks) => asks.ask(requests).await,
            None => Err(Unanswered),
        }
    }

    /// The caller's handles, to be read.
    #[must_use]
    pub fn handles(&self) -> ReadHandles {
        ReadHandles { ledger: self.ledger.clone(), principal: self.principal.clone() }
    }

    /// Resolves when the client gave up.
    pub async fn gone(&self) {
        match &self.notifier {
            Some(n) => n.gone().await,
            None => std::future::pending().await,
        }
    }
}
