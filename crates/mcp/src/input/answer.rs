//! Whether an answer of a client fits what it was asked, and what it says.
//!
//! Members that aren't asked for are ignored (spec: basic/patterns/mrtr, "Error Handling") and don't come back out.
use serde_json::{Map, Value};

use super::{Ask, InputRequest, LIMITS, MAX_BYTES, MAX_DEPTH};
use crate::json::{Raw, RawObject, quote};

/// The most roots of an answer.
const MAX_ROOTS: usize = 1024;

/// What a client answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The user accepted: the properties of the form that were filled in, by name; for a page none. That a page was
    /// accepted says that the user was willing, not that anything is done there.
    Accepted(Vec<(String, Raw)>),
    /// The user refused. Of a legacy client that answered with an error it is taken as the same.
    Declined,
    /// The user went away without a choice.
    Cancelled,
    /// The model's message: `role`, `content`, `model`, `stopReason`.
    Message(Raw),
    /// The client's roots, an array.
    Roots(Raw),
}

/// Whether this answers the request.
///
/// # Errors
/// As [`Answer::read`].
pub fn fits(request: &InputRequest, answer: &Raw) -> Result<(), String> {
    Answer::read(request, answer).map(drop)
}

impl Answer {
    /// Reads an answer as it came.
    ///
    /// # Errors
    /// What is wrong, in words for a program: which member must be what. What it holds isn't shown.
    pub fn read(request: &InputRequest, answer: &Raw) -> Result<Answer, String> {
        let (raw, value) = bounded(answer)?;
        match request.ask() {
            Ask::Form { form, .. } => Ok(match action(&value)? {
                Action::Accept => {
                    let values = match value.get("content") {
                        None => &Map::new(),
                        Some(Value::Object(values)) => values,
                        Some(_) => return Err("content must be an object".into()),
                    };
                    let content = raw.get("content").and_then(|content| content.object());
                    let mut filled = Vec::new();
                    for property in form.properties() {
                        let name = &property.name;
                        match (values.get(name), content.as_ref().and_then(|content| content.get(name))) {
                            (Some(value), Some(text)) => {
                                let fits = property.field.fits(value);
                                fits.map_err(|why| format!("content.{} {why}", super::form::short(name)))?;
                                filled.push((name.clone(), text.single_line()));
                            }
                            _ if property.required => {
                                return Err(format!("content.{} is missing", super::form::short(name)));
                            }
                            _ => {}
                        }
                    }
                    Answer::Accepted(filled)
                }
                Action::Decline => Answer::Declined,
                Action::Cancel => Answer::Cancelled,
            }),
            Ask::Page { .. } => Ok(match action(&value)? {
                Action::Accept => Answer::Accepted(Vec::new()),
                Action::Decline => Answer::Declined,
                Action::Cancel => Answer::Cancelled,
            }),
            Ask::Sampling(sampling) => {
                sampling.fits(&value)?;
                let known = ["role", "content", "model", "stopReason", "_meta"];
                Ok(Answer::Message(object(known.into_iter().filter_map(|name| Some((name, raw.get(name)?))))))
            }
            Ask::Roots => {
                let roots = value.get("roots").and_then(Value::as_array).ok_or("roots must be an array")?;
                if roots.len() > MAX_ROOTS {
                    return Err(format!("roots must hold {MAX_ROOTS} at most"));
                }
                for (n, root) in roots.iter().enumerate() {
                    let uri = root.get("uri").and_then(Value::as_str).unwrap_or_default();
                    if !uri.starts_with("file://") || !super::format::is_uri(uri) {
                        return Err(format!("roots[{n}].uri must be a file:// URI"));
                    }
                    if root.get("name").is_some_and(|name| !name.is_string()) {
                        return Err(format!("roots[{n}].name must be a string"));
                    }
                }
                let roots = raw.get("roots").ok_or("roots must be an array")?;
                Ok(Answer::Roots(roots.single_line()))
            }
        }
    }

    /// Reads what [`Answer::to_raw`] wrote: that may also be a refusal of a request whose result can't say so.
    ///
    /// # Errors
    /// As [`Answer::read`].
    pub fn kept(request: &InputRequest, answer: &Raw) -> Result<Answer, String> {
        if matches!(request.ask(), Ask::Sampling(_) | Ask::Roots)
            && answer
                .object()
                .is_some_and(|all| all.len() == 1 && all.string("action").as_deref() == Some("decline"))
        {
            return Ok(Answer::Declined);
        }
        Answer::read(request, answer)
    }

    /// The `content` of an accepted form, an object; `None` for every other answer.
    pub fn content(&self) -> Option<Raw> {
        match self {
            Answer::Accepted(filled) => {
                Some(object(filled.iter().map(|(name, value)| (&**name, value.clone()))))
            }
            _ => None,
        }
    }

    /// The answer with what was asked for and nothing else, on one line: two answers that say the same in the same words
    /// are the same text.
    pub fn to_raw(&self) -> Raw {
        let action = |name: &str| Raw::trusted(format!(r#"{{"action":"{name}"}}"#));
        match self {
            Answer::Accepted(filled) if filled.is_empty() => action("accept"),
            Answer::Accepted(_) => {
                let content = self.content().map(|content| ("content", content));
                object([("action", Raw::string("accept"))].into_iter().chain(content))
            }
            Answer::Declined => action("decline"),
            Answer::Cancelled => action("cancel"),
            Answer::Message(message) => message.clone(),
            Answer::Roots(roots) => object([("roots", roots.clone())].into_iter()),
        }
    }
}

enum Action {
    Accept,
    Decline,
    Cancel,
}

fn action(answer: &Map<String, Value>) -> Result<Action, String> {
    match answer.get("action").and_then(Value::as_str) {
        Some("accept") => Ok(Action::Accept),
        Some("decline") => Ok(Action::Decline),
        Some("cancel") => Ok(Action::Cancel),
        _ => Err("action must be accept, decline or cancel".into()),
    }
}

/// The members of an answer that is within bounds.
fn bounded(answer: &Raw) -> Result<(RawObject, Map<String, Value>), String> {
    if answer.bytes().len() > MAX_BYTES {
        return Err(format!("an answer has {MAX_BYTES} bytes at most"));
    }
    let raw = RawObject::parse(answer.bytes().clone(), &LIMITS).map_err(|error| match error.flaw {
        crate::json::Flaw::NotObject => "an answer must be an object".to_owned(),
        crate::json::Flaw::TooDeep(_) => format!("an answer is nested {MAX_DEPTH} levels at most"),
        _ => "an answer must be JSON without doubled members".to_owned(),
    })?;
    match answer.read::<Value>() {
        Ok(Value::Object(value)) => Ok((raw, value)),
        _ => Err("the answer holds a number that is too large".into()),
    }
}

fn object<'a>(members: impl Iterator<Item = (&'a str, Raw)>) -> Raw {
    let members: Vec<_> =
        members.map(|(name, value)| format!("{}:{}", quote(name), value.single_line())).collect();
    Raw::trusted(format!("{{{}}}", members.join(",")))
}
