//! Callers: they call, leave, repeat, repeat elsewhere, change their mind, and compare what they are told.

use crate::boot::Fleet;
use crate::lab::Lab;
use crate::plan::{CallerPlan, KeyMode, Wish};
use crate::rng::Rng;
use crate::world::Home;
use ledger::keys::{CallerKey, Carrier};
use ledger::{
    Answer, BlobKind, Call, CallError, Creation, DeliveryState, Execution, JoinedBy, Key, Kind, Millis,
    Operation, OperationId, Scope, Unkeyed,
};
use std::sync::Arc;
use tokio::sync::oneshot;

/// What a caller got.
enum Reply {
    Result {
        op: OperationId,
        bytes: Vec<u8>,
        nonce: String,
    },
    Error(Box<CallError>),
    /// The connection broke.
    Lost,
    /// It left.
    Left,
}

/// Tries after which a caller that meets no fault must have its answer.
const MOST_TRIES: u32 = 80;

/// How long a replica that is told of a result may take to read it and to answer, in virtual milliseconds.
const PROMPT: i64 = 150;

pub(crate) struct Caller {
    pub fleet: Arc<Fleet>,
    pub plan: CallerPlan,
    pub rng: Rng,
}

impl Caller {
    fn lab(&self) -> Arc<Lab> {
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
        let mut tries_in_calm = 0;
        let mut doubts = 0;
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
            let altered = own && key.is_some() && lab.hits(&mut self.rng, wish.alters);
            let arguments = if altered { wish.arguments ^ 1 } else { wish.arguments };
            if lab.hits(&mut self.rng, wish.pries) {
                self.pry(wish, arguments as usize).await;
            }
            let reply = self.call(wish, arguments as usize, key.clone()).await;
            let pause = self.rng.range(1, if wish.hasty && !lab.is_calm() { 60 } else { 700 });
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
                    Kind::Twin if wish.second && self.rng.mille(500) => key = given(e.new_key),
                    Kind::Twin | Kind::StillRunning | Kind::Unavailable | Kind::AdmissionUnknown => {
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
                    Kind::Denied
                    | Kind::BadArguments
                    | Kind::AnswerConflict
                    | Kind::ApprovalRequired
                    | Kind::HandleExpired
                    | Kind::HandleUnknown => return,
                },
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
        let reply = self.call(wish, arguments, Some((id.to_string(), Carrier::Program))).await;
        let told = match reply {
            Reply::Error(e) => {
                !matches!(e.kind, Kind::KeyExpired | Kind::Unavailable) || e.operation.is_some()
            }
            Reply::Result { .. } => true,
            Reply::Lost | Reply::Left => false,
        };
        if told {
            let what = format!("{} learned of {id}, which is another's", self.plan.principal);
            lab.fail(&mut lab.state(), "foreign", what);
        }
    }

    /// One call at some replica.
    async fn call(&mut self, wish: &Wish, arguments: usize, key: Option<(String, Carrier)>) -> Reply {
        let lab = self.lab();
        let tool = &lab.plan.tools[wish.tool];
        let boot = self.fleet.get(self.rng.index(lab.plan.replicas));
        let call = Call {
            scope: Scope {
                principal: self.plan.principal.into(),
                tool: tool.name.as_str().into(),
                mode: "sandbox".into(),
            },
            fingerprint: lab.fingerprints[wish.tool][arguments],
            key: key.and_then(|(text, carrier)| Some(CallerKey { key: Key::new(&text).ok()?, carrier })),
            unkeyed: tool.unkeyed,
            guard_window: tool.guard_window,
            wait: Millis(4000),
            named: None,
            answers: Vec::new(),
            lease_of_caller: Millis(0),
        };
        let leaves = lab.hits(&mut self.rng, wish.leaves);
        let soon = if wish.hasty { 120 } else { 2500 };
        let patience = if leaves { self.rng.range(0, soon) } else { 20_000 };
        let swallowed = lab.hits(&mut self.rng, lab.plan.rates.swallowed);
        lab.say(format_args!(
            "caller {} calls {} {arguments} with {:?} at home {}",
            self.plan.number,
            tool.name,
            call.key.as_ref().map(|k| k.key.as_str()),
            boot.home
        ));
        let (tx, rx) = oneshot::channel();
        let (stay, gone) = oneshot::channel::<()>();
        let (fleet, home) = (self.fleet.clone(), boot.home);
        let handler = Handler { fleet, home, tool: wish.tool, arguments, call, swallowed };
        lab.world.spawn(boot.home, Box::pin(async move { handler.serve(boot.ledger, gone, tx).await }));
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
                Reply::Lost => "nothing: the connection broke".into(),
                Reply::Left => "nothing: it left".into(),
            };
            lab.say(format_args!("caller {} gets {text}", self.plan.number));
        }
        reply
    }

    async fn acknowledge(&mut self, nonce: String) {
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

/// The replica's side of a call, as a gateway would be.
struct Handler {
    fleet: Arc<Fleet>,
    home: Home,
    tool: usize,
    arguments: usize,
    call: Call,
    /// The answer is written and never arrives.
    swallowed: bool,
}

impl Handler {
    async fn serve(
        self,
        ledger: Arc<ledger::Ledger>,
        mut gone: oneshot::Receiver<()>,
        tx: oneshot::Sender<Reply>,
    ) {
        let lab = self.fleet.lab.clone();
        let tool = &lab.plan.tools[self.tool];
        let creation = Creation {
            policy: tool.policy.clone(),
            intent: tool.planned.then(|| crate::tool::intent(tool, self.arguments, 0, false)),
            arguments: (!tool.planned).then(|| b"{}".to_vec()),
            asks: Vec::new(),
        };
        let (began, called) = (lab.time(), lab.world.now());
        let create = move || Ok::<_, std::convert::Infallible>(creation.clone());
        let left = async {
            let _ = (&mut gone).await;
        };
        let Ok(answer) = ledger.call(&self.call, &create, left, |_| {}).await;
        match ledger.or_error(&self.call, answer) {
            Answer::Result { operation, result, joined_by, .. } => {
                self.check_result(&operation, &result, joined_by, began);
                self.check_prompt(&operation, joined_by, called);
                let nonce = ledger.ack_nonce(&self.call.scope.principal, operation.id);
                let reply = Reply::Result { op: operation.id, bytes: result.to_vec(), nonce };
                let there = if self.swallowed {
                    drop(tx);
                    true
                } else {
                    tx.send(reply).is_ok()
                };
                let state = if there { DeliveryState::Written } else { DeliveryState::Undelivered };
                ledger.delivered(&operation, state);
            }
            Answer::Error(e) => {
                self.check_error(&e);
                let _ = tx.send(Reply::Error(e));
            }
            // Said as errors.
            Answer::Gone
            | Answer::Running { .. }
            | Answer::Confirm { .. }
            | Answer::Input { .. }
            | Answer::Reserve { .. } => {}
        }
    }

    /// A result leaves only when it is stored, is that of the call, and never changes.
    fn check_result(&self, op: &Operation, result: &[u8], by: Option<JoinedBy>, began: ledger::Time) {
        let lab = &self.fleet.lab;
        let mut guard = lab.state();
        let s = &mut *guard;
        lab.world.trace.mark(13, op.id.0 as u64);
        if !s.graves.contains_key(&op.id) {
            let done = s.records.get(&op.id).is_some_and(|r| r.op.execution == Execution::Completed);
            let same = s.blobs.get(&(op.id, BlobKind::Result)).is_some_and(|b| b == result);
            if !done || !same {
                let what = format!("a result of {} was handed out that is not stored", op.id);
                lab.fail(s, "answer_before_close", what);
            }
        }
        let subject = format!("{} {} ", lab.plan.tools[self.tool].name, self.arguments);
        if !result.starts_with(subject.as_bytes()) || op.scope != self.call.scope {
            let what = format!("a call was answered with the result of another: {}", op.id);
            lab.fail(s, "anothers_result", what);
        }
        if by == Some(JoinedBy::Fingerprint)
            && op.delivery.state == DeliveryState::Acknowledged
            && op.delivery.at < began
        {
            let what = format!("a new call joined {}, whose result was acknowledged before", op.id);
            lab.fail(s, "acknowledged", what);
        }
        // One operation per (scope, key), as callers see it.
        if let Some(k) = &self.call.key
            && k.carrier == Carrier::Program
        {
            let hash = self.call.scope.key_hash(&k.key);
            let first = *s.answered.entry(hash).or_insert(op.id);
            if first != op.id {
                let what = format!("one key was answered with {first} and with {}", op.id);
                lab.fail(s, "one_operation", what);
            }
        }
    }

    /// Whoever waits for a result that came to be at another replica has it as soon as this one can know of it. (A call
    /// that waits for its twin waits for more.)
    fn check_prompt(&self, op: &Operation, by: Option<JoinedBy>, called: i64) {
        let lab = &self.fleet.lab;
        let mut s = lab.state();
        let Some(heard) = s.heard.get(&(self.home, op.id)) else { return };
        let slow = s.troubled.get(&self.home).copied().unwrap_or(0);
        let late = lab.world.now() - called.max(*heard).max(slow);
        if late > PROMPT && by != Some(JoinedBy::Fingerprint) {
            let what = format!("a caller of {} got its result {late} ms after that was heard of", op.id);
            lab.fail(&mut s, "prompt", what);
        }
    }

    fn check_error(&self, e: &CallError) {
        let lab = &self.fleet.lab;
        let mut guard = lab.state();
        let s = &mut *guard;
        lab.world.trace.mark(14, e.kind as u64);
        let task = lab.world.current();
        let nothing_ran =
            matches!(e.kind, Kind::KeyRequired | Kind::KeyConflict | Kind::KeyExpired | Kind::BadArguments)
                || (e.kind == Kind::Unavailable && e.operation.is_none());
        if nothing_ran && let Some(id) = s.created_by.get(&task) {
            let what = format!("a call was told that nothing ran ({}), and it opened {id}", e.kind.word());
            if s.records.contains_key(id) && e.kind != Kind::KeyExpired {
                lab.fail(s, "nothing_ran", what);
            }
        }
        let named = self.call.key.as_ref().and_then(|k| k.key.operation_id());
        if e.kind == Kind::KeyExpired
            && let Some(r) = named.and_then(|id| s.records.get(&id))
            && r.op.scope == self.call.scope
            && r.op.execution != (Execution::Cancelled { explicit: false })
        {
            let what = format!("the key {} was said to be gone", r.op.id);
            lab.fail(s, "expired", what);
        }
        if e.kind == Kind::KeyRequired && self.call.unkeyed != Unkeyed::Reject {
            lab.fail(s, "key_required", "a key was asked for without need".into());
        }
    }
}
