//! What a server may ask of a client while it works on a request: the user by a form or a page, the client's language
//! model, its roots (spec 2026-07-28: basic/patterns/mrtr; client/elicitation, client/sampling, client/roots). Pure: it
//! sends nothing.
//!
//! Promises: an [`InputRequest`] that exists is one that the specification allows, within bounds; [`fits`] and
//! [`Answer::read`] say of any JSON whether it answers a request, and never show what it holds, since that may be a
//! secret; [`check`] names every capability that is missing at once.
//!
//! - [`Form`], [`Field`], [`Format`]: what a form asks for. [`Sampling`]: what the model is asked.
//! - [`InputRequest::legacy_params`]: a request in the words of an earlier revision, where it can be said in them.
//! - [`Asker`], [`Given`]: which requests may end in a question, and what came back with one.
mod answer;
mod field;
mod form;
mod format;
mod legacy;
mod needs;
mod page;
mod rounds;
mod sampling;

pub use answer::{Answer, fits};
pub use field::{Choice, Field};
pub use form::{Form, Property};
pub use format::Format;
pub use legacy::Unspoken;
pub use needs::{check, needs};
pub(crate) use rounds::asking;
pub use rounds::{Asker, Given, Unasked, of_requests, responses};
pub use sampling::{Sampling, ToolChoice};

use serde_json::{Value, json};

use crate::constants::method;
use crate::json::{Limits, Raw, quote};

/// The most requests, or answers, of one round.
pub const MAX_REQUESTS: usize = 64;
/// Longest key, in characters.
pub const MAX_KEY: usize = 64;
/// Largest request and largest answer, in bytes of JSON.
pub const MAX_BYTES: usize = 256 << 10;
/// Deepest nesting of either.
pub const MAX_DEPTH: usize = 32;
/// The most properties of a form.
pub const MAX_PROPERTIES: usize = 64;
/// Longest message to the user, in bytes.
pub const MAX_MESSAGE: usize = 16 << 10;

pub(crate) const LIMITS: Limits = Limits { depth: MAX_DEPTH, unique_members: true };

/// Why something is no request that may be sent. Nothing was sent; the program that asks has to be corrected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this can't be asked of a client: {0}")]
pub struct Invalid(pub String);

/// A request to the client, with its key among those of its operation.
#[derive(Debug, Clone, PartialEq)]
pub struct InputRequest {
    key: String,
    ask: Ask,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// The user, by a form in the client.
    Form {
        /// Why.
        message: String,
        /// For what.
        form: Form,
    },
    /// The user, by a page outside of the client.
    Page {
        /// Why.
        message: String,
        /// Where; see [`InputRequest::page`].
        url: String,
    },
    /// The client's language model.
    Sampling(Sampling),
    /// The client's roots.
    Roots,
}

impl InputRequest {
    /// Asks the user by a form. It must not ask for secrets, which pass through the client (spec: client/elicitation,
    /// "User Interaction Model"): for those there is [`InputRequest::page`].
    ///
    /// # Errors
    /// [`Invalid`].
    pub fn form(key: &str, message: &str, form: Form) -> Result<InputRequest, Invalid> {
        InputRequest::of(key, Ask::Form { message: message.to_owned(), form })
    }

    /// Sends the user to a page: https, or http on a loopback host; without credentials in the URL.
    ///
    /// # Errors
    /// [`Invalid`].
    pub fn page(key: &str, message: &str, url: &str) -> Result<InputRequest, Invalid> {
        InputRequest::of(key, Ask::Page { message: message.to_owned(), url: url.to_owned() })
    }

    /// Asks the client's language model.
    ///
    /// # Errors
    /// [`Invalid`].
    pub fn sampling(key: &str, sampling: Sampling) -> Result<InputRequest, Invalid> {
        InputRequest::of(key, Ask::Sampling(sampling))
    }

    /// Asks for the client's roots.
    ///
    /// # Errors
    /// [`Invalid`].
    pub fn roots(key: &str) -> Result<InputRequest, Invalid> {
        InputRequest::of(key, Ask::Roots)
    }

    fn of(key: &str, ask: Ask) -> Result<InputRequest, Invalid> {
        let named = (1..=MAX_KEY).contains(&key.len())
            && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
        if !named {
            return Err(Invalid(format!("a key has 1 to {MAX_KEY} characters of A-Z a-z 0-9 _ . -")));
        }
        if let Ask::Form { message, .. } | Ask::Page { message, .. } = &ask
            && (message.is_empty() || message.len() > MAX_MESSAGE)
        {
            return Err(Invalid(format!("a message has 1 to {MAX_MESSAGE} bytes")));
        }
        if let Ask::Page { url, .. } = &ask {
            page::check(url)?;
        }
        let request = InputRequest { key: key.to_owned(), ask };
        Raw::parse(request.to_raw().bytes().clone(), &LIMITS)
            .ok()
            .filter(|raw| raw.bytes().len() <= MAX_BYTES)
            .ok_or_else(|| {
                Invalid(format!("a request has {MAX_BYTES} bytes at most, nested {MAX_DEPTH} levels at most"))
            })?;
        Ok(request)
    }

    /// Reads `{"method", "params"}`, as [`InputRequest::to_raw`] writes it.
    ///
    /// # Errors
    /// [`Invalid`] names the first thing that the specification doesn't allow.
    pub fn parse(key: &str, request: &Raw) -> Result<InputRequest, Invalid> {
        let invalid = |why: &str| Invalid(why.to_owned());
        if request.bytes().len() > MAX_BYTES {
            return Err(Invalid(format!("a request has {MAX_BYTES} bytes at most")));
        }
        let request = Raw::parse(request.bytes().clone(), &LIMITS)
            .map_err(|error| Invalid(format!("the request is refused: {error}")))?;
        let all = request.object().ok_or_else(|| invalid("a request must be an object"))?;
        if all.iter().any(|(name, _)| name != "method" && name != "params") {
            return Err(invalid("a request has method and params, and no other members"));
        }
        let asked = all.string("method").ok_or_else(|| invalid("method must be a string"))?;
        let params = all.get("params");
        let object = params.as_ref().and_then(Raw::object);
        if params.is_some() && object.is_none() {
            return Err(invalid("params must be an object"));
        }
        let known = |names: &[&str]| match object
            .iter()
            .flat_map(|o| o.iter())
            .find(|(name, _)| name != "_meta" && !names.contains(&&**name))
        {
            None => Ok(()),
            Some((name, _)) => Err(Invalid(format!("params must not have {}", form::short(&name)))),
        };
        if &*asked == method::ROOTS_LIST {
            known(&[])?;
            return InputRequest::roots(key);
        }
        let object = object.as_ref().ok_or_else(|| invalid("params must be an object"))?;
        let text = |name: &str| {
            let text = object.string(name).map(|text| text.into_owned());
            text.ok_or_else(|| Invalid(format!("params.{name} must be a string")))
        };
        match &*asked {
            method::ELICITATION_CREATE => {
                match object.get("mode").map(|_| text("mode")).transpose()?.as_deref() {
                    None | Some("form") => {
                        known(&["mode", "message", "requestedSchema"])?;
                        let schema = object.get("requestedSchema").and_then(|raw| raw.read::<Value>().ok());
                        let schema = schema.ok_or_else(|| invalid("params.requestedSchema is missing"))?;
                        InputRequest::form(key, &text("message")?, Form::parse(&schema)?)
                    }
                    Some("url") => {
                        known(&["mode", "message", "url"])?;
                        InputRequest::page(key, &text("message")?, &text("url")?)
                    }
                    Some(_) => Err(invalid("params.mode must be form or url")),
                }
            }
            method::SAMPLING_CREATE => InputRequest::sampling(key, Sampling::parse(&object.raw())?),
            _ => Err(invalid("method must be elicitation/create, sampling/createMessage or roots/list")),
        }
    }

    /// Its key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What it asks.
    pub fn ask(&self) -> &Ask {
        &self.ask
    }

    /// Its method.
    pub fn method(&self) -> &'static str {
        match self.ask {
            Ask::Form { .. } | Ask::Page { .. } => method::ELICITATION_CREATE,
            Ask::Sampling(_) => method::SAMPLING_CREATE,
            Ask::Roots => method::ROOTS_LIST,
        }
    }

    /// Its `params` in the modern era; `roots/list` has none.
    pub fn params(&self) -> Option<Raw> {
        let object = |value: Value| Some(Raw::trusted(value.to_string()));
        match &self.ask {
            Ask::Form { message, form } => object(json!({
                "mode": "form", "message": message, "requestedSchema": form.to_value(),
            })),
            Ask::Page { message, url } => object(json!({ "mode": "url", "message": message, "url": url })),
            Ask::Sampling(sampling) => Some(sampling.params().clone()),
            Ask::Roots => None,
        }
    }

    /// `{"method", "params"}` on one line, as the modern era sends it and [`InputRequest::parse`] reads it.
    pub fn to_raw(&self) -> Raw {
        let method = quote(self.method());
        Raw::trusted(match self.params() {
            Some(params) => format!(r#"{{"method":{method},"params":{params}}}"#),
            None => format!(r#"{{"method":{method}}}"#),
        })
    }

    /// A short text of what it asks, for operators and logs: never a property's value, since there is none yet.
    pub fn summary(&self) -> String {
        match &self.ask {
            Ask::Form { message, .. } | Ask::Page { message, .. } => {
                message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
            }
            Ask::Sampling(_) => "a message of the client's language model".to_owned(),
            Ask::Roots => "the client's roots".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
