//! A tool: how it is known, what it takes, and the function behind it.

use super::attempt::Attempt;
use super::changing::{Changing, Handler as ChangeHandler};
use super::content::{Answer, CallResult};
use super::handles::Kind;
use super::methods::Methods;
use super::reading::{Handler as ReadHandler, Reading};
use super::schema;
use futures_util::future::BoxFuture;
use gateway::tool::Mode;
use gateway::{Approval, Body, Context, HandleError, Icon, ToolSettings, ToolSpec};
use ledger::{Millis, Unkeyed};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Why a tool has no result. The words go to the model: what happened, and what to do; no paths, no secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The arguments don't fit. Of a tool that changes the world this is as [`ToolError::Failed`].
    #[error("{0}")]
    Bad(String),
    /// It could not be done. Of a tool that changes the world: its operation has failed, and the same call may try
    /// again, if nothing was changed before; else it ends with an account of what was.
    #[error("{0}")]
    Failed(String),
    /// A handle can't be used. One that is unknown or has expired stays so: where nothing was changed before, that is
    /// the answer, of the kind `handle_unknown` or `handle_expired`, and it is kept. All else is as
    /// [`ToolError::Failed`].
    #[error(transparent)]
    Handle(#[from] HandleError),
}

impl ToolError {
    /// The arguments don't fit; say which and why.
    #[must_use]
    pub fn bad(why: impl Into<String>) -> ToolError {
        ToolError::Bad(why.into())
    }
    /// It could not be done.
    #[must_use]
    pub fn failed(why: impl Into<String>) -> ToolError {
        ToolError::Failed(why.into())
    }
}

/// What a tool's author chose; what is absent is `[defaults]` of the configuration, else the reference's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chosen {
    pub unkeyed: Option<Unkeyed>,
    pub key_from: Vec<String>,
    pub inject_key: Option<bool>,
    pub guard_window: Option<Millis>,
    pub timeout: Option<Millis>,
    pub wait: Option<Millis>,
    pub mode: Option<Mode>,
    pub task_after: Option<Millis>,
    pub approval: Option<Approval>,
    pub retention: Option<Millis>,
}

/// The function behind a tool.
pub(super) enum Does {
    Reads(ReadHandler),
    Changes {
        /// The methods that it may call, by canonical id.
        calls: Arc<[String]>,
        handler: ChangeHandler,
    },
}

/// A tool. Its id has dots by custom (`orders.refund`); configuration, records and commands use it, and on the wire the
/// dots are underscores.
pub struct Tool {
    id: String,
    title: Option<String>,
    description: String,
    input: Value,
    output: Option<Value>,
    icons: Vec<Icon>,
    requires: Option<Value>,
    annotations: Option<Value>,
    chosen: Chosen,
    kinds: Vec<Kind>,
    does: Does,
}

impl Tool {
    /// A tool that only reads: it runs as often as it is called, without the ledger.
    ///
    /// The schema of its arguments is derived from their type, descriptions from its doc comments.
    pub fn reading<A, R, F, W>(id: impl Into<String>, description: impl Into<String>, function: F) -> Tool
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Answer,
        F: Fn(Context, A) -> W + Send + Sync + 'static,
        W: Future<Output = Result<R, ToolError>> + Send + 'static,
    {
        let function = Arc::new(function);
        let handler: ReadHandler = Arc::new(move |context, arguments| {
            let arguments = schema::read::<A>(arguments)?;
            let function = function.clone();
            let work: BoxFuture<'static, _> =
                Box::pin(async move { function(context, arguments).await.and_then(Answer::into_result) });
            Ok(work)
        });
        Tool::new::<A, R>(id, description, Does::Reads(handler))
    }

    /// A tool that changes the world, through the configured methods that `calls` names by canonical id, and through
    /// nothing else. See [`Attempt`] for what its function must obey.
    pub fn changing<A, R, F, W>(
        id: impl Into<String>,
        description: impl Into<String>,
        calls: impl IntoIterator<Item = impl Into<String>>,
        function: F,
    ) -> Tool
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Answer,
        F: Fn(Attempt, A) -> W + Send + Sync + 'static,
        W: Future<Output = Result<R, ToolError>> + Send + 'static,
    {
        let function = Arc::new(function);
        let handler = ChangeHandler {
            check: |arguments| schema::read::<A>(arguments).map(drop),
            begin: Arc::new(move |attempt, arguments| {
                let arguments = schema::read::<A>(arguments)?;
                let function = function.clone();
                let work: BoxFuture<'static, _> =
                    Box::pin(async move { function(attempt, arguments).await.and_then(Answer::into_result) });
                Ok(work)
            }),
        };
        let calls = calls.into_iter().map(Into::into).collect();
        Tool::new::<A, R>(id, description, Does::Changes { calls, handler })
    }

    fn new<A: JsonSchema, R: Answer>(
        id: impl Into<String>,
        description: impl Into<String>,
        does: Does,
    ) -> Tool {
        Tool {
            id: id.into(),
            title: None,
            description: description.into(),
            input: schema::input::<A>(),
            output: R::schema(),
            icons: Vec::new(),
            requires: None,
            annotations: None,
            chosen: Chosen::default(),
            kinds: Vec::new(),
            does,
        }
    }

    /// Another schema of its arguments than the derived one, for what a type can't say. Arguments are checked against
    /// it first; with `serde_json::Value` as their type the function gets them as they came.
    #[must_use]
    pub fn input_schema(mut self, schema: Value) -> Tool {
        self.input = schema;
        self
    }

    /// A schema of its structured result, where the function returns [`CallResult`] and not
    /// [`Structured`](super::Structured).
    #[must_use]
    pub fn output_schema(mut self, schema: Value) -> Tool {
        self.output = Some(schema);
        self
    }

    /// A short name for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Tool {
        self.title = Some(title.into());
        self
    }

    /// Adds an image.
    #[must_use]
    pub fn icon(mut self, icon: Icon) -> Tool {
        self.icons.push(icon);
        self
    }

    /// Client capabilities without which it can't work, such as `{"sampling": {}}`: a call without them is refused
    /// before anything runs.
    #[must_use]
    pub fn requires(mut self, capabilities: Value) -> Tool {
        self.requires = Some(capabilities);
        self
    }

    /// `ToolAnnotations`, such as `{"destructiveHint": false}`. Whether it only reads is told without being said.
    #[must_use]
    pub fn annotations(mut self, annotations: Value) -> Tool {
        self.annotations = Some(annotations);
        self
    }

    /// The longest that it may take: one reading, or one attempt.
    #[must_use]
    pub fn timeout(mut self, most: Duration) -> Tool {
        self.chosen.timeout = Some(millis(most));
        self
    }

    /// What happens to a call without an idempotency key. As all that follows: for tools that change the world.
    #[must_use]
    pub fn unkeyed(mut self, policy: Unkeyed) -> Tool {
        self.chosen.unkeyed = Some(policy);
        self
    }

    /// The arguments that name what is meant: calls that agree in them are one operation.
    #[must_use]
    pub fn key_from(mut self, arguments: impl IntoIterator<Item = impl Into<String>>) -> Tool {
        self.chosen.key_from = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Whether the `idempotency_key` argument is added to its schema (it is, if nothing is said).
    #[must_use]
    pub fn inject_key(mut self, add: bool) -> Tool {
        self.chosen.inject_key = Some(add);
        self
    }

    /// How long the same call without a key counts as a twin.
    #[must_use]
    pub fn guard_window(mut self, window: Duration) -> Tool {
        self.chosen.guard_window = Some(millis(window));
        self
    }

    /// How long a call waits for the result before it is told that the operation goes on.
    #[must_use]
    pub fn inline_limit(mut self, most: Duration) -> Tool {
        self.chosen.wait = Some(millis(most));
        self
    }

    /// Each call is answered with a task, however fast it is; a client that doesn't know tasks is refused with -32021
    /// before anything runs. Without this a client that knows tasks gets one where the result takes longer than the
    /// [`inline_limit`](Tool::inline_limit), and others wait.
    #[must_use]
    pub fn as_task(mut self) -> Tool {
        self.chosen.mode = Some(Mode::Task);
        self
    }

    /// As [`Tool::as_task`]; but what it asks at first is asked by the call itself, and it becomes a task with the
    /// answers.
    #[must_use]
    pub fn as_task_once_answered(mut self) -> Tool {
        self.chosen.mode = Some(Mode::TaskOnceAnswered);
        self
    }

    /// How long a client that knows tasks waits for the result before it gets a task instead, where that is less than
    /// the [`inline_limit`](Tool::inline_limit).
    #[must_use]
    pub fn task_after(mut self, most: Duration) -> Tool {
        self.chosen.task_after = Some(millis(most));
        self
    }

    /// Each call waits for a person's yes before the function runs: the client asks its user, or an operator says it.
    /// `approval` in the configuration counts more.
    #[must_use]
    pub fn approval(mut self) -> Tool {
        self.chosen.approval = Some(Approval::Always);
        self
    }

    /// Declares a kind of handles that it makes: they end when they are not used for `idle`, and `absolute` after they
    /// were made. For callers without a name that is an hour at most. Its description says so.
    #[must_use]
    pub fn handles(mut self, kind: impl Into<String>, idle: Duration, absolute: Duration) -> Tool {
        self.kinds.push(Kind { name: kind.into(), idle, absolute });
        self
    }

    /// How long its operations are kept after their end.
    #[must_use]
    pub fn retention(mut self, kept: Duration) -> Tool {
        self.chosen.retention = Some(millis(kept));
        self
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    pub(crate) fn only_reads(&self) -> bool {
        matches!(self.does, Does::Reads(_))
    }

    /// The methods that it may call.
    pub(crate) fn calls(&self) -> &[String] {
        match &self.does {
            Does::Reads(_) => &[],
            Does::Changes { calls, .. } => calls,
        }
    }

    /// As the gateway serves it.
    pub(crate) fn offered(
        &self,
        settings: ToolSettings,
        methods: &Methods,
    ) -> (ToolSpec, ToolSettings, Body) {
        let mut settings = settings;
        settings.mode = self.chosen.mode.unwrap_or(settings.mode);
        if let Some(most) = self.chosen.task_after {
            settings.inline_limit = settings.inline_limit.min(most);
        }
        let mut description = self.description.clone();
        for kind in &self.kinds {
            description.push_str("\n\n");
            description.push_str(&kind.sentence());
        }
        let spec = ToolSpec {
            mode: self.chosen.mode,
            canonical: self.id.as_str().into(),
            name: provider::wire_name(&self.id),
            title: self.title.clone(),
            description,
            input_schema: schema::raw(&self.input),
            output_schema: self.output.as_ref().map(schema::raw),
            icons: self.icons.clone(),
            requires: self.requires.as_ref().map(schema::raw),
            annotations: self.annotations.as_ref().map(schema::raw),
        };
        let body = match &self.does {
            Does::Reads(handler) => {
                Body::Read(Arc::new(Reading { handler: handler.clone(), promises: self.output.is_some() }))
            }
            Does::Changes { calls, handler } => Body::Mutating(Arc::new(Changing {
                handler: handler.clone(),
                calls: calls.clone(),
                methods: methods.clone(),
                kinds: self.kinds.clone().into(),
                promises: self.output.is_some(),
            })),
        };
        (spec, settings, body)
    }
}

/// What a function comes to.
pub(super) type Worked = Result<CallResult, ToolError>;

fn millis(d: Duration) -> Millis {
    Millis(i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}
