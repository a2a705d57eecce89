//! A tool that changes the world, run as an attempt: its function asks, the ledger decides what is sent.
//!
//! The function gets a handle without the attempt itself, and is polled beside what the attempt does for it. So it may
//! be an ordinary `async` block, and when the ledger stops the attempt it is dropped where it waits: it can neither hide
//! that nor come to a result over an open effect.

use super::attempt::{Attempt, EffectName, Told, Want, Wish};
use super::guard::Broke;
use super::handles;
use super::input::{Answer, InputRequest};
use super::methods::Methods;
use super::reply::Reply;
use super::step;
use super::tool::{ToolError, Worked};
use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, OptionFuture};
use gateway::{APPROVAL_KEY, BadArguments, Tool, turns};
use ledger::canonical::canonicalise_arguments;
use ledger::{
    Ask, Fingerprint, InputKind, Intent, Performed, RunError, Stopped, StoreError, Strategy, ToolResult,
};
use mcp::json::{Limits, Raw, RawObject};
use provider::MethodEffect;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Wishes that wait for their turn, and progress that waits to be told.
const ROOM: usize = 64;
/// The member of a recorded request that says what the function asked for.
const ASKED: &str = "asked";

type Begin =
    Arc<dyn Fn(Attempt, &RawObject) -> Result<BoxFuture<'static, Worked>, BadArguments> + Send + Sync>;

/// The typed function behind plain arguments.
#[derive(Clone)]
pub(super) struct Handler {
    /// Whether arguments can be read into its type.
    pub check: fn(&RawObject) -> Result<(), BadArguments>,
    /// Begins it.
    pub begin: Begin,
}

pub(super) struct Changing {
    pub handler: Handler,
    pub calls: Arc<[String]>,
    pub methods: Methods,
    pub kinds: handles::Kinds,
    /// It has an `outputSchema`.
    pub promises: bool,
}

#[async_trait]
impl Tool for Changing {
    fn plan(&self, arguments: &RawObject) -> Result<Option<Intent>, BadArguments> {
        (self.handler.check)(arguments).map(|()| None)
    }

    async fn run(&self, attempt: &ledger::Attempt) -> Result<ToolResult, RunError> {
        let lost = || RunError::Tool("the call's arguments are not kept any more".into());
        let given = attempt.arguments().ok_or_else(lost)?;
        let arguments = RawObject::parse(given.to_vec(), &Limits::default()).map_err(|_| lost())?;
        let (wishes, mut wished) = mpsc::channel(ROOM);
        let (told, mut telling) = mpsc::channel::<Told>(ROOM);
        let op = attempt.operation();
        let handle = Attempt {
            wishes,
            told,
            methods: self.methods.clone(),
            operation: op.id,
            number: op.attempt,
            principal: op.scope.principal.clone(),
            mode: op.scope.mode.clone(),
        };
        // Of what this attempt asked for: two effects of one name would be one.
        let mut asked: HashSet<EffectName> = HashSet::new();
        let work = (self.handler.begin)(handle, &arguments).map_err(|e| RunError::Tool(e.0))?;
        // A panic is caught here and not further out, or it would take along what is being sent.
        let mut work = AssertUnwindSafe(work).catch_unwind().fuse();
        let mut doing: OptionFuture<BoxFuture<'_, Result<Option<EffectName>, Stopped>>> = None.into();
        let mut busy = false;
        let mut ended: Option<Worked> = None;
        loop {
            if !busy && let Some(worked) = ended {
                return match worked {
                    Ok(result) => Ok(result.finish()),
                    Err(ToolError::Bad(why) | ToolError::Failed(why)) => Err(RunError::Tool(why)),
                    // Over something that was done, an account of it is owed.
                    Err(ToolError::Handle(e)) => match e.ends_tool(self.promises) {
                        Some(result) if attempt.operation().effects.is_empty() => Ok(result),
                        _ => Err(RunError::Tool(e.to_string())),
                    },
                };
            }
            tokio::select! {
                biased;
                Some(t) = telling.recv() => tell(attempt, t),
                // What is begun is brought to its end, whether the function still waits for it or not.
                Some(done) = &mut doing, if busy => {
                    busy = false;
                    doing = None.into();
                    // Of what came to nothing, the name is free again.
                    if let Some(name) = done? {
                        asked.remove(&name);
                    }
                }
                worked = &mut work, if ended.is_none() => {
                    ended = Some(worked.unwrap_or_else(|_| Err(ToolError::failed(Broke::Panicked.sentence("the tool")))));
                }
                Some(wish) = wished.recv(), if !busy && ended.is_none() => {
                    match wish.name.as_ref().and_then(|name| cannot(name, &asked)) {
                        Some(why) => wish.want.refuse(why),
                        None => {
                            asked.extend(wish.name.clone());
                            busy = true;
                            doing = Some(self.grant(attempt, wish).boxed()).into();
                        }
                    }
                }
            }
        }
    }

    fn safety(&self) -> Value {
        let now = self.methods.now();
        let strategies: Vec<(&String, Strategy)> = self
            .calls
            .iter()
            .filter_map(|id| Some((id, now.methods.get(id)?.recovery.as_ref()?.strategy)))
            .collect();
        let weakest = strategies.iter().map(|(_, s)| *s).min_by_key(|s| strength(*s));
        let calls: Vec<Value> = strategies
            .iter()
            .map(|(id, s)| json!({ "method": id, "recovery": s.word(), "promise": s.promise() }))
            .collect();
        json!({
            "effect": "mutating",
            "recovery": { "value": weakest.map(Strategy::word), "from": "its methods" },
            "promise": weakest.map(|s| format!("of each effect: {}", s.promise())),
            "retry": "each effect recovers by its method's strategy; what happened is not sent again",
            "repeat": weakest.map(|s| gateway::safety::repeat(s, false)),
            "calls": calls,
        })
    }
}

/// Passes progress on. The ledger tells of an effect's sends by their number, and what doesn't increase is not heard, so
/// the function's count goes on top.
fn tell(attempt: &ledger::Attempt, told: Told) {
    let sends = attempt.operation().effects.iter().map(|e| e.sends).max().unwrap_or(0);
    let base = f64::from(sends);
    attempt.progress(told.done + base, told.total.map(|t| t + base), told.message);
}

/// How much a strategy promises, the least first.
fn strength(s: Strategy) -> u8 {
    match s {
        Strategy::None => 0,
        Strategy::Confirm => 1,
        Strategy::Lookup => 2,
        Strategy::Natural => 3,
        Strategy::Key | Strategy::Unique | Strategy::Local => 4,
    }
}

/// Why nothing can be recorded under a name, if so.
fn cannot(name: &EffectName, asked: &HashSet<EffectName>) -> Option<String> {
    if let Some(flaw) = name.flaw() {
        let shown = name.shown();
        return Some(format!(
            "The tool asks for an effect that can't be: {flaw}. Nothing was sent for {shown:?}."
        ));
    }
    asked.contains(name).then(|| {
        format!("Two effects of this tool are called {:?}, so the second was not sent.", name.shown())
    })
}

impl Changing {
    /// Does what one wish asks for, and answers it. A name that is given back was not used up. An error ends the attempt.
    async fn grant(&self, attempt: &ledger::Attempt, wish: Wish) -> Result<Option<EffectName>, Stopped> {
        let name = wish.name.unwrap_or_else(|| "".into());
        // Who dropped the call does not hear of it.
        match wish.want {
            Want::Call { method, arguments, answer } => {
                let done = self.call(attempt, &name, &method, &arguments).await;
                drop(answer.send(told(&name, done)?));
            }
            Want::Step { wanted, answer } => {
                let done = self.step(attempt, &name, wanted).await.map_err(Refused::Stopped);
                drop(answer.send(told(&name, done)?));
            }
            Want::Ask { requests, answer } => match ask(attempt, &requests).await {
                Err(Stopped::NeverSent(why)) => {
                    drop(answer.send(Err(ToolError::Failed(format!("Nothing was asked: {why}.")))));
                }
                answers => drop(answer.send(Ok(answers?))),
            },
            Want::Handle(wanted) => {
                // The ledger knows a change of a handle by one text.
                let step = name.shown();
                let done = handles::grant(attempt, &self.kinds, &step, wanted).await?;
                return Ok(Some(name).filter(|_| !done));
            }
        }
        Ok(None)
    }

    async fn step(
        &self,
        attempt: &ledger::Attempt,
        name: &EffectName,
        wanted: step::Wanted,
    ) -> Result<Performed, Stopped> {
        let tool = attempt.operation().scope.tool.clone();
        let intent = step::intent(&name.name, &name.discriminator, &wanted, &tool);
        // What is recorded for it counts; another wish under its name is stopped.
        let _turn = turns::take(intent.recovery.strategy, &intent.summary).await;
        attempt.effect(intent, &step::Closure(wanted.work)).await
    }

    async fn call(
        &self,
        attempt: &ledger::Attempt,
        name: &EffectName,
        id: &str,
        arguments: &Value,
    ) -> Result<Reply, Refused> {
        let known = |why: String| Refused::Known(format!("{why} Nothing was sent for {:?}.", name.shown()));
        let now = self.methods.now();
        let Some(executor) = &now.executor else {
            return Err(known("No method is configured here.".into()));
        };
        let arguments = arguments.to_string();
        let asked =
            asked(id, &arguments).map_err(|why| known(format!("{id} can't be asked this: {why}.")))?;
        let op = attempt.operation();
        if let Some(i) = op.effect(&name.name, &name.discriminator)
            && let Some(recorded) = attempt.recorded_intent(i).await?
        {
            // The same wish as then: what is recorded counts, whatever the configuration says today. Another one is
            // stopped, whatever becomes of it today: something may have been sent under this name.
            let _turn = turns::take(recorded.recovery.strategy, &recorded.summary).await;
            let done = if said(&recorded).is_some_and(|s| s == asked) {
                attempt.resume(i, executor.as_ref()).await?
            } else {
                attempt.effect(Intent { body: asked.into_bytes(), ..recorded }, executor.as_ref()).await?
            };
            return Ok(Reply::new(done.applied, done.receipt));
        }
        if !self.calls.iter().any(|c| c == id) {
            return Err(known(format!("The tool does not name {id} among the methods that it calls.")));
        }
        let bound = now.methods.get(id).filter(|b| b.method.effect() == MethodEffect::Mutating);
        let Some((method, recovery)) = bound.and_then(|b| Some((&b.method, b.recovery.as_ref()?))) else {
            return Err(known(format!("The method {id} is not configured here, or only reads.")));
        };
        let mut intent = method
            .intent(&arguments, recovery)
            .map_err(|e| known(format!("{id} can't be asked this: {e}.")))?;
        intent.name.clone_from(&name.name);
        intent.discriminator.clone_from(&name.discriminator);
        let body = RawObject::parse(intent.body, &Limits { depth: 512, unique_members: false })
            .map_err(|e| known(format!("{id} can't be asked this: {e}.")))?;
        intent.body = body.with(&[(ASKED, &asked)]).as_str().as_bytes().to_vec();
        let _turn = turns::take(intent.recovery.strategy, &intent.summary).await;
        let done = attempt.effect(intent, executor.as_ref()).await?;
        Ok(Reply::new(done.applied, done.receipt))
    }
}

/// What the function is told; an error ends the attempt.
fn told<T>(name: &EffectName, done: Result<T, Refused>) -> Result<Result<T, ToolError>, Stopped> {
    match done {
        Ok(done) => Ok(Ok(done)),
        Err(Refused::Known(why)) => Ok(Err(ToolError::Failed(why))),
        Err(Refused::Stopped(Stopped::NeverSent(why))) => {
            Ok(Err(ToolError::Failed(format!("Nothing was sent for {:?}: {why}.", name.shown()))))
        }
        Err(Refused::Stopped(stopped)) => Err(stopped),
    }
}

/// Asks, and reads what was answered. Without an answer the attempt ends here.
async fn ask(attempt: &ledger::Attempt, requests: &[InputRequest]) -> Result<Vec<Answer>, Stopped> {
    if requests.iter().any(|r| r.key() == APPROVAL_KEY) {
        let why = format!("the key {APPROVAL_KEY:?} is that of a person's yes to the call; choose another");
        return Err(Stopped::NeverSent(why));
    }
    let asks = requests.iter().map(|r| Ask {
        key: r.key().to_owned(),
        kind: InputKind::Client,
        request: r.to_raw().as_str().as_bytes().to_vec(),
    });
    let answers = attempt.ask(asks.collect()).await?;
    let limits = Limits { depth: mcp::input::MAX_DEPTH, unique_members: true };
    let read = |(request, answer): (&InputRequest, Vec<u8>)| {
        let raw = Raw::parse(answer, &limits).ok()?;
        Answer::kept(request, &raw).ok()
    };
    let all: Option<Vec<Answer>> = requests.iter().zip(answers).map(read).collect();
    all.ok_or_else(|| StoreError::Damaged("an answer can't be read".into()).into())
}

enum Refused {
    /// Nothing was sent, and the function may go on.
    Known(String),
    /// The ledger stopped the attempt.
    Stopped(Stopped),
}

impl From<Stopped> for Refused {
    fn from(s: Stopped) -> Refused {
        Refused::Stopped(s)
    }
}

/// What is asked for, as a JSON string: the method and its arguments, not the request that is made of them today.
fn asked(method: &str, arguments: &str) -> Result<String, String> {
    let canonical = canonicalise_arguments(Some(arguments), None).map_err(|e| e.to_string())?;
    serde_json::to_string(&Fingerprint::of(method, &canonical)).map_err(|e| e.to_string())
}

/// What a recorded request was asked for.
fn said(intent: &Intent) -> Option<String> {
    let body = RawObject::parse(intent.body.clone(), &Limits { depth: 512, unique_members: false }).ok()?;
    body.get(ASKED).map(|r| r.as_str().to_owned())
}
