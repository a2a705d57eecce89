//! Prompts: messages made from arguments, which are texts (spec: server/prompts).

use super::content::Content;
use super::guard::guarded;
use super::resource::{Completing, complete, completing};
use super::schema;
use super::texts;
use async_trait::async_trait;
use futures_util::future::BoxFuture;
use gateway::prompt::{Made, Prompt as Makes, PromptArgument, PromptEntry, PromptSpec};
use gateway::resource::{Asked, Completion, Failure};
use gateway::{Context, Icon};
use mcp::json::{Limits, Raw};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The messages of a prompt, in their order.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    description: Option<String>,
    messages: Vec<Raw>,
}

impl Messages {
    /// None yet.
    #[must_use]
    pub fn new() -> Messages {
        Messages::default()
    }

    /// What these are about, where that is more than the prompt's description.
    #[must_use]
    pub fn about(mut self, description: impl Into<String>) -> Messages {
        self.description = Some(description.into());
        self
    }

    /// Adds what the user says.
    #[must_use]
    pub fn user(self, content: impl Into<Content>) -> Messages {
        self.says("user", &content.into())
    }

    /// Adds what the assistant says.
    #[must_use]
    pub fn assistant(self, content: impl Into<Content>) -> Messages {
        self.says("assistant", &content.into())
    }

    fn says(mut self, role: &str, content: &Content) -> Messages {
        let text = format!(r#"{{"role":"{role}","content":{}}}"#, content.json());
        // Content was checked when it was made, one level less deep.
        let limits = Limits { depth: 512, unique_members: false };
        self.messages.extend(Raw::parse(text, &limits));
        self
    }
}

type Variables = BTreeMap<String, String>;
type Make = Arc<dyn Fn(Context, Variables) -> BoxFuture<'static, Result<Messages, Failure>> + Send + Sync>;

/// A prompt.
pub struct Prompt {
    spec: PromptSpec,
    make: Make,
    completing: Option<Completing>,
}

impl Prompt {
    /// A prompt that a function makes. Its arguments are the fields of `A`: described by their doc comments, required
    /// unless they are an `Option`. Their values are texts; a field may be a number or a truth value all the same.
    pub fn new<A, F, W>(name: impl Into<String>, description: impl Into<String>, function: F) -> Prompt
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(Context, A) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Messages, Failure>> + Send + 'static,
    {
        let function = Arc::new(function);
        let make: Make = Arc::new(move |context, arguments| {
            let function = function.clone();
            Box::pin(async move {
                let arguments: A = texts::read(arguments)
                    .map_err(|why| Failure::Bad(format!("the arguments don't fit: {why}")))?;
                function(context, arguments).await
            })
        });
        let spec = PromptSpec {
            name: name.into(),
            title: None,
            description: Some(description.into()),
            arguments: arguments(&schema::input::<A>()),
            icons: Vec::new(),
        };
        Prompt { spec, make, completing: None }
    }

    /// Completes its arguments.
    #[must_use]
    pub fn completing<F, W>(mut self, function: F) -> Prompt
    where
        F: Fn(Context, Asked) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Completion, Failure>> + Send + 'static,
    {
        self.completing = Some(completing(function));
        self
    }

    /// A short name for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Prompt {
        self.spec.title = Some(title.into());
        self
    }

    /// Adds an image.
    #[must_use]
    pub fn icon(mut self, icon: Icon) -> Prompt {
        self.spec.icons.push(icon);
        self
    }

    pub(crate) fn offered(&self) -> PromptEntry {
        let maker = Maker { make: self.make.clone(), completing: self.completing.clone() };
        (self.spec.clone(), Arc::new(maker))
    }
}

/// The properties of a schema as arguments.
fn arguments(schema: &Value) -> Vec<PromptArgument> {
    let required = |name: &str| schema["required"].as_array().is_some_and(|r| r.iter().any(|n| n == name));
    let text = |v: &Value| v.as_str().map(str::to_owned);
    let properties = schema["properties"].as_object();
    properties
        .into_iter()
        .flatten()
        .map(|(name, p)| PromptArgument {
            name: name.clone(),
            title: text(&p["title"]),
            description: text(&p["description"]),
            required: required(name),
        })
        .collect()
}

struct Maker {
    make: Make,
    completing: Option<Completing>,
}

#[async_trait]
impl Makes for Maker {
    async fn get(&self, context: Context, arguments: Variables) -> Result<Made, Failure> {
        let work = (self.make)(context.clone(), arguments);
        let messages = guarded(context.timeout, work).await.unwrap_or_else(|broke| {
            Err(Failure::Failed(format!("{}; asking again is safe", broke.sentence("the prompt"))))
        })?;
        Ok(Made { description: messages.description, messages: messages.messages })
    }
    async fn complete(&self, context: Context, asked: Asked) -> Result<Completion, Failure> {
        complete(self.completing.as_ref(), context, asked).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, JsonSchema)]
    #[allow(dead_code)]
    struct Letter {
        /// To whom.
        name: String,
        /// How many lines.
        lines: Option<u8>,
    }

    #[test]
    fn arguments_are_derived() {
        let all = arguments(&schema::input::<Letter>());
        let said: Vec<_> =
            all.iter().map(|a| (a.name.as_str(), a.description.as_deref(), a.required)).collect();
        assert_eq!(said, [("name", Some("To whom."), true), ("lines", Some("How many lines."), false)]);
    }
}
