//! Callers: they call, leave, repeat, repeat elsewhere, change their mind, and compare what they are told.

use crate::boot::Fleet;
use crate::lab::Lab;
use crate::plan::{CallerPlan, KeyMode, Wish};
use crate::rng::Rng;
use crate::serve::{Handler, Reply};
use ledger::keys::{CallerKey, Carrier};
use ledger::{Call, Key, Kind, Millis, OperationId, Scope};
use std::sync::Arc;
use tokio::sync::oneshot;

/// What a call brings besides its arguments.
#[derive(Clone, Default)]
pub(crate) struct Brings {
    pub key: Option<(String, Carrier)>,
    /// What its state names, and the state.
    pub named: Option<OperationId>,
    pub state: Option<String>,
    pub answers: Vec<(String, Vec<u8>)>,
}

/// What comes next.
pub(crate) enum Next {
    /// Call again with this, after a pause.
    Call(Brings, i64),
    /// Enough.
    Done,
}

/// Tries after which a caller that meets no fault must have its answer.
pub(crate) const MOST_TRIES: u32 = 80;

/// How long a replica that is told of a result may take to read it and to answer, in virtual milliseconds.
pub(crate) const PROMPT: i64 = 400;

pub(crate) struct Caller {
    pub fleet: Arc<Fleet>,
    pub plan: CallerPlan,
    pub rng: Rng,
}

impl Caller {
    pub fn lab(&self) -> Arc<Lab> {
        self.fleet.lab.clone()
    }

    pub async fn live(mut self) {
        for wish in self.plan.wishes.clone() {
            let lab = self.lab();
            lab.world.sleep(wish.starts_at).await;
            self.pursue(&wish).await;
        }
        self.lab().callers_left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn own_key(&self, wish: &Wish) -> Option<(String, Carrier)> {
        match wish.key {
            KeyMode::None => None,
            KeyMode::Program => Some((format!("key-{}", wish.key_number), Carrier::Program)),
            KeyMode::Argument => Some((format!("arg-{}", wish.key_number), Carrier::Argument)),
        }
    }

    /// Calls until it has an answer that it can live with.
    async fn pursue(&mut self, wish: &Wish) {
        let lab = self.lab();
        let mut key = self.own_key(wish);
        let mut brings = Brings::default();
        let mut legs = 0;
        let mut tries_in_calm = 0;
        let mut doubts = 0;
        let mut limited = 0;
        let mut got: Option<(OperationId, Vec<u8>)> = None;
        loop {
            if lab.is_calm() {
                tries_in_calm += 1;
                if tries_in_calm > MOST_TRIES {
                    let what = format!("caller {} gets no answer, whatever it does", self.plan.number);
                    lab.fail(&mut lab.state(), "liveness", what);
                    return;
                }
            }
            let own = key.as_ref().is_none_or(|k| Some(k) == self.own_key(wish).as_ref());
            let altered =
                brings.named.is_none() && own && key.is_some() && lab.hits(&mut self.rng, wish.alters);
            let arguments = if altered { wish.arguments ^ 1 } else { wish.arguments };
            if lab.hits(&mut self.rng, wish.pries) {
                self.pry(wish, arguments as usize).await;
            }
            let now = Brings { key: key.clone(), ..std::mem::take(&mut brings) };
            let said = now.answers.clone();
            let reply = self.call(wish, arguments as usize, now).await;
            let mut pause = self.rng.range(1, if wish.hasty && !lab.is_calm() { 60 } else { 700 });
            match reply {
                Reply::Result { op, bytes, nonce } => {
                    if altered {
                        continue;
                    }
                    if let Some((first, kept)) = &got
                        && *first == op
                        && *kept != bytes
                    {
                        let what = format!("caller {} got another result of {op}", self.plan.number);
                        lab.fail(&mut lab.state(), "result_changed", what);
                    }
                    self.answer_again(wish, arguments as usize, op, &said).await;
                    let first = got.is_none();
                    got = Some((op, bytes));
                    if self.rng.mille(wish.acknowledges) {
                        self.acknowledge(nonce).await;
                    }
                    if !(first && wish.again) {
                        return;
                    }
                }
                Reply::Error(_) if altered => {}
                Reply::Error(e) => match e.kind {
                    // The tool contradicts itself, and will again.
                    Kind::Unavailable if e.sentence.contains("input_mismatch") => return,
                    // It had no effect, and has ended as a task.
                    Kind::Unavailable if e.new_key.is_some() => key = given(e.new_key),
                    Kind::Twin if wish.second && self.rng.mille(500) => key = given(e.new_key),
                    Kind::Twin | Kind::StillRunning | Kind::Unavailable | Kind::AdmissionUnknown => {
                        if e.kind == Kind::AdmissionUnknown {
                            pause = pause.max(e.retry_after.map_or(0, |t| t.0));
                        }
                        if self.rng.mille(700) && e.retry_key.is_some() {
                            key = given(e.retry_key);
                        }
                    }
                    Kind::InDoubt => {
                        doubts += 1;
                        if doubts > 3 {
                            return;
                        }
                        if e.retry_key.is_some() {
                            key = given(e.retry_key);
                        }
                    }
                    Kind::KeyRequired => key = given(e.new_key),
                    // Its key is taken by a wish with other arguments, is no longer kept, or was cancelled.
                    Kind::KeyConflict | Kind::KeyExpired => {
                        if !wish.second {
                            return;
                        }
                        key = given(e.new_key);
                    }
                    // Another answer counts: its result is asked for.
                    Kind::AnswerConflict => brings.named = e.operation,
                    Kind::Denied
                    | Kind::BadArguments
                    | Kind::ApprovalRequired
                    | Kind::HandleExpired
                    | Kind::HandleUnknown
                    | Kind::CredentialRequired => return,
                    // The same again when there may be room, for as long as there is patience.
                    Kind::Limited => {
                        limited += 1;
                        if limited > 6 {
                            return;
                        }
                        pause = pause.max(e.retry_after.map_or(0, |t| t.0.min(4000)));
                    }
                },
                Reply::Leg(op) => {
                    legs += 1;
                    if lab.hits(&mut self.rng, wish.quits) {
                        return;
                    }
                    // Past the last leg it comes back by its key, or anew.
                    brings.named = Some(op).filter(|_| legs % 9 > 0);
                    let at_once = self.rng.mille(700);
                    if at_once && !lab.is_calm() {
                        continue;
                    }
                }
                Reply::Asked { op, open, state } if !altered => {
                    match self.answer(wish, arguments as usize, op, open, state).await {
                        Next::Call(next, pause) => {
                            brings = next;
                            lab.world.sleep(pause).await;
                            continue;
                        }
                        Next::Done => return,
                    }
                }
                Reply::Task(text) if !altered => return self.follow(wish, &text).await,
                Reply::Asked { .. } | Reply::Task(_) | Reply::Used => {}
                Reply::Lost | Reply::Left => {}
            }
            lab.world.sleep(pause).await;
        }
    }

    /// Calls with the id of an operation that is another principal's: it must look like one that never was.
    async fn pry(&mut self, wish: &Wish, arguments: usize) {
        let lab = self.lab();
        let foreign = {
            let s = lab.state();
            let theirs = s.records.values().filter(|r| *r.op.scope.principal != *self.plan.principal);
            theirs.map(|r| r.op.id).next_back()
        };
        let Some(id) = foreign else { return };
        lab.state().coverage.fault("pried");
        let me = self.plan.principal;
        let seen =
            self.at_some(move |l| async move { l.status(me, id).await.ok().flatten().is_some() }).await;
        if seen == Some(true) {
            let what = format!("{me} sees the task of {id}, which is another's");
            return lab.fail(&mut lab.state(), "foreign", what);
        }
        let mut brings = Brings { key: Some((id.to_string(), Carrier::Program)), ..Brings::default() };
        if self.rng.mille(300) {
            brings = Brings { named: Some(id), ..Brings::default() };
        }
        let reply = self.call(wish, arguments, brings).await;
        let told = match reply {
            Reply::Error(e) => {
                !matches!(e.kind, Kind::KeyExpired | Kind::Unavailable | Kind::AdmissionUnknown)
                    || e.operation.is_some()
            }
            Reply::Result { .. } | Reply::Leg(_) | Reply::Asked { .. } | Reply::Task(_) => true,
            Reply::Lost | Reply::Left | Reply::Used => false,
        };
        if told {
            let what = format!("{} learned of {id}, which is another's", self.plan.principal);
            lab.fail(&mut lab.state(), "foreign", what);
        }
    }

    /// One call at some replica.
    pub async fn call(&mut self, wish: &Wish, arguments: usize, brings: Brings) -> Reply {
        let lab = self.lab();
        let leaves = lab.hits(&mut self.rng, wish.leaves);
        let soon = if wish.hasty { 120 } else { 2500 };
        let patience = if leaves { self.rng.range(0, soon) } else { 20_000 };
        let swallowed = lab.hits(&mut self.rng, lab.plan.rates.swallowed);
        let (rx, stay) = self.place(wish, arguments, brings, swallowed);
        let reply = tokio::select! {
            biased;
            r = rx => r.unwrap_or(Reply::Lost),
            () = lab.world.sleep(patience) => Reply::Left,
        };
        drop(stay);
        if lab.world.trace.is_recording() {
            let text = match &reply {
                Reply::Result { op, bytes, .. } => {
                    format!("a result of {op}: {}", String::from_utf8_lossy(bytes))
                }
                Reply::Error(e) => format!("{}: {}", e.kind.word(), e.sentence),
                Reply::Leg(op) => format!("a leg of {op}"),
                Reply::Asked { op, open, state } => {
                    let keys: Vec<&str> = open.iter().map(|a| a.key.as_str()).collect();
                    format!("questions of {op}: {} (state {state})", keys.join(", "))
                }
                Reply::Task(text) => format!("a task: {text}"),
                Reply::Used => "nothing: the state was used with another answer".into(),
                Reply::Lost => "nothing: the connection broke".into(),
                Reply::Left => "nothing: it left".into(),
            };
            lab.say(format_args!("caller {} gets {text}", self.plan.number));
        }
        reply
    }

    /// Begins a call at some replica. Dropping the second part closes its stream.
    pub fn place(
        &mut self,
        wish: &Wish,
        arguments: usize,
        brings: Brings,
        swallowed: bool,
    ) -> (oneshot::Receiver<Reply>, oneshot::Sender<()>) {
        let lab = self.lab();
        let tool = &lab.plan.tools[wish.tool];
        let boot = self.fleet.get(self.rng.index(lab.plan.replicas));
        let wait = match (wish.leg, wish.task) {
            (_, Some(true)) => 0,
            (Some(leg), _) => leg,
            _ => 4000,
        };
        let legs = wish.leg.is_some() && wish.task.is_none();
        let call = Call {
            scope: Scope {
                principal: self.plan.principal.into(),
                tool: tool.name.as_str().into(),
                mode: "sandbox".into(),
            },
            fingerprint: lab.fingerprints[wish.tool][arguments],
            key: brings
                .key
                .and_then(|(text, carrier)| Some(CallerKey { key: Key::new(&text).ok()?, carrier })),
            unkeyed: tool.unkeyed,
            guard_window: tool.guard_window,
            wait: Millis(wait),
            named: brings.named,
            answers: brings.answers,
            lease_of_caller: Millis(if legs { GRACE } else { 0 }),
            hears_progress: false,
        };
        lab.say(format_args!(
            "caller {} calls {} {arguments} with {:?} at home {}{}",
            self.plan.number,
            tool.name,
            call.key.as_ref().map(|k| k.key.as_str()),
            boot.home,
            Told(&call),
        ));
        let (tx, rx) = oneshot::channel();
        let (stay, gone) = oneshot::channel::<()>();
        let handler = Handler {
            fleet: self.fleet.clone(),
            home: boot.home,
            tool: wish.tool,
            arguments,
            call,
            state: brings.state,
            legs,
            task: wish.task,
            swallowed,
        };
        lab.world.spawn(boot.home, Box::pin(async move { handler.serve(boot.ledger, gone, tx).await }));
        (rx, stay)
    }

    pub async fn acknowledge(&mut self, nonce: String) {
        let lab = self.lab();
        let boot = self.fleet.get(self.rng.index(lab.plan.replicas));
        let principal = self.plan.principal;
        let (tx, rx) = oneshot::channel::<()>();
        lab.world.spawn(
            boot.home,
            Box::pin(async move {
                boot.ledger.acknowledge(principal, &nonce).await;
                let _ = tx.send(());
            }),
        );
        tokio::select! {
            biased;
            _ = rx => {}
            () = lab.world.sleep(3000) => {}
        }
    }
}

fn given(key: Option<String>) -> Option<(String, Carrier)> {
    key.map(|k| (k, Carrier::Argument))
}

/// How long a caller counts as present between two legs.
pub(crate) const GRACE: i64 = 1500;

/// What a call brings, for people.
struct Told<'a>(&'a Call);

impl std::fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(id) = self.0.named {
            write!(f, ", named {id}")?;
        }
        for (key, answer) in &self.0.answers {
            write!(f, ", {key}={}", String::from_utf8_lossy(answer))?;
        }
        Ok(())
    }
}
