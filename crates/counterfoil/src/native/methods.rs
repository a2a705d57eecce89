//! The configured methods, by canonical id: what native tools compose. Replaced as a whole by each reload.

use super::reply::Reply;
use super::tool::ToolError;
use ledger::{Millis, Recovery};
use provider::{HttpExecutor, Method, MethodEffect, ReadOutcome};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// A method, with what the configuration decided about its effects.
#[derive(Clone)]
pub(crate) struct Bound {
    pub method: Method,
    /// Of a method that changes something.
    pub recovery: Option<Recovery>,
}

/// All of them, with who sends their requests.
#[derive(Clone, Default)]
pub(crate) struct Registry {
    pub methods: HashMap<String, Bound>,
    pub executor: Option<Arc<HttpExecutor>>,
}

/// The longest that one reading may take, whatever its manifest says.
const LONGEST_READ: Millis = Millis::secs(60);

/// A handle on the configured methods that only read. Cheap to clone.
#[derive(Clone, Default)]
pub struct Methods(Arc<RwLock<Arc<Registry>>>);

impl Methods {
    pub(crate) fn replace(&self, registry: Registry) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(registry);
    }

    pub(super) fn now(&self) -> Arc<Registry> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks a configured method that only reads. `arguments` is a JSON object.
    ///
    /// # Errors
    /// [`ToolError::Failed`]: there is no such method, no request can be made from the arguments, or the provider gave
    /// no answer. A refusal is an answer ([`Reply::applied`] is false).
    pub async fn read(&self, method: &str, arguments: Value) -> Result<Reply, ToolError> {
        let now = self.now();
        let found = now.methods.get(method).zip(now.executor.as_ref());
        let Some((bound, executor)) = found.filter(|(b, _)| b.method.effect() == MethodEffect::Read) else {
            return Err(ToolError::failed(format!(
                "The method {method} is not configured here, or is not one that reads."
            )));
        };
        let timeout = bound.method.read_timeout().min(LONGEST_READ);
        match executor.read(&bound.method, &arguments.to_string(), timeout).await {
            Ok(ReadOutcome::Answered(answer)) => Ok(Reply::new(answer.status < 400, answer.keep())),
            Ok(ReadOutcome::Unavailable { why }) => {
                Err(ToolError::failed(format!("The provider gave no answer ({why}). Reading again is safe.")))
            }
            Err(e) => Err(ToolError::failed(format!("The method {method} can't be asked this: {e}."))),
        }
    }
}
