//! The replica's side of a call, as a gateway would be, and what has to be true of what it answers.

use crate::boot::Fleet;
use crate::caller::{GRACE, PROMPT};
use crate::plan::ToolPlan;
use crate::world::Home;
use ledger::keys::Carrier;
use ledger::store::Shelved;
use ledger::{
    Answer, Ask, BlobKind, Call, CallError, Creation, DeliveryState, Execution, InputKind, JoinedBy, Kind,
    Ledger, Millis, Operation, OperationId, Unkeyed,
};
use std::sync::Arc;
use tokio::sync::oneshot;

/// What a caller got.
pub(crate) enum Reply {
    Result {
        op: OperationId,
        bytes: Vec<u8>,
        nonce: String,
    },
    Error(Box<CallError>),
    /// Call again: it goes on.
    Leg(OperationId),
    /// These have to be answered; the state that goes with it.
    Asked {
        op: OperationId,
        open: Vec<Ask>,
        state: String,
    },
    /// It is a task.
    Task(String),
    /// The state was used with another answer.
    Used,
    /// The connection broke.
    Lost,
    /// It left.
    Left,
}

/// For how long the state of a question may be used.
const STATE_LIVES: Millis = Millis::secs(60);

pub(crate) struct Handler {
    pub fleet: Arc<Fleet>,
    pub home: Home,
    pub tool: usize,
    pub arguments: usize,
    pub call: Call,
    /// The state that came with what is answered.
    pub state: Option<String>,
    /// It comes back by itself when its time is over.
    pub legs: bool,
    /// It is content with a task.
    pub task: Option<bool>,
    /// The answer is written and never arrives.
    pub swallowed: bool,
}

impl Handler {
    fn plan(&self) -> &ToolPlan {
        &self.fleet.lab.plan.tools[self.tool]
    }

    pub async fn serve(
        self,
        ledger: Arc<Ledger>,
        mut gone: oneshot::Receiver<()>,
        tx: oneshot::Sender<Reply>,
    ) {
        let lab = self.fleet.lab.clone();
        if let Some(refused) = self.take_state(&ledger).await {
            let _ = tx.send(refused);
            return;
        }
        let tool = self.plan();
        let creation = Creation {
            policy: tool.policy.clone(),
            intent: tool.planned.then(|| crate::tool::intent(tool, self.arguments, 0, false)),
            arguments: (!tool.planned).then(|| b"{}".to_vec()),
            asks: if tool.approval { vec![crate::tool::approval(tool, self.arguments)] } else { Vec::new() },
            allowances: lab.allowances(self.tool, self.arguments, &self.call.scope.principal),
            gate: None,
        };
        let (began, called) = (lab.time(), lab.world.now());
        lab.state().calling(&lab, lab.world.current(), &self.call);
        let create = move || Ok::<_, std::convert::Infallible>(creation.clone());
        let left = async {
            let _ = (&mut gone).await;
        };
        let Ok(answer) = ledger.call(&self.call, &create, left, |_| {}).await;
        let reply = match answer {
            Answer::Result { operation, result, joined_by, .. } => {
                self.check_result(&operation, &result, joined_by, began);
                self.check_prompt(&operation, joined_by, called);
                self.check_taken(&operation);
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
                return;
            }
            Answer::Error(e) => self.error(e),
            Answer::Gone => return,
            Answer::Running { operation, .. } if self.task.is_some() => {
                self.check_taken(&operation);
                self.hand_out(&ledger, operation.id).await
            }
            Answer::Running { operation, .. } if self.legs => {
                self.check_taken(&operation);
                let mut s = lab.state();
                s.coverage.travel("leg");
                s.books.lingers.insert(operation.id, (self.home, lab.world.now() + GRACE));
                Reply::Leg(operation.id)
            }
            Answer::Input { operation, .. } if self.task == Some(true) => {
                self.check_taken(&operation);
                self.hand_out(&ledger, operation.id).await
            }
            Answer::Input { operation, open, .. } => {
                self.check_taken(&operation);
                self.check_open(&operation, &open);
                let mut guard = lab.state();
                let s = &mut *guard;
                let state = format!("s{}", s.books.states.len() + 1);
                s.books.states.insert(state.clone(), ledger.store().now());
                Reply::Asked { op: operation.id, open, state }
            }
            other => match ledger.or_error(&self.call, other) {
                Answer::Error(e) => self.error(e),
                _ => return,
            },
        };
        if self.swallowed {
            return;
        }
        let _ = tx.send(reply);
    }

    fn error(&self, e: Box<CallError>) -> Reply {
        self.check_error(&e);
        Reply::Error(e)
    }

    /// A state that may be used once goes with one answer.
    async fn take_state(&self, ledger: &Ledger) -> Option<Reply> {
        let lab = &self.fleet.lab;
        let state =
            self.state.as_ref().filter(|_| self.plan().single_use && !self.call.answers.is_empty())?;
        let store = ledger.store();
        let given = lab.state().books.states.get(state).copied();
        let over = || given.is_none_or(|t| store.now() >= t.plus(STATE_LIVES));
        if over() {
            return Some(Reply::Used);
        }
        let answer: Vec<u8> = self
            .call
            .answers
            .iter()
            .flat_map(|(key, a)| [key.as_bytes(), b"=", a.as_slice(), b";"].concat())
            .collect();
        let name = format!("used/{state}");
        // The mark outlives the state, whatever clocks differ by.
        let until = store.now().plus(Millis(STATE_LIVES.0 + 1000));
        match store.shelve(&name, 0, answer.clone(), Some(until)).await {
            // An earlier mark may have gone with the state's life, if that ended since it was looked at.
            Ok(true) if over() => return Some(Reply::Used),
            Ok(true) => {}
            Ok(false) => match store.shelved(&name).await {
                Ok(Some(Shelved { data, .. })) if data == answer => {}
                Ok(_) => {
                    lab.state().coverage.travel("state used before");
                    return Some(Reply::Used);
                }
                Err(_) => return Some(Reply::Lost),
            },
            Err(_) => return Some(Reply::Lost),
        }
        lab.state().use_once(lab, state, &answer);
        None
    }

    /// Durable before the client is told; always under the same id.
    async fn hand_out(&self, ledger: &Ledger, id: OperationId) -> Reply {
        let lab = &self.fleet.lab;
        let Ok(op) = ledger.hand_out(id, Some(Millis::secs(20))).await else { return Reply::Lost };
        let text = ledger.task_id(id);
        let mut guard = lab.state();
        let s = &mut *guard;
        s.coverage.travel("handed out");
        let there = s.records.get(&id).is_some_and(|r| r.op.task.is_some());
        if (!there && !s.graves.contains_key(&id)) || op.task.is_none() {
            lab.fail(s, "task_lost", format!("{id} is told of as a task, and is not recorded as one"));
        }
        let first = s.books.tasks.entry(id).or_insert_with(|| text.clone());
        if *first != text || ledger.task(&text) != Some(id) {
            let what = format!("{id} is the task {first}, and {text}");
            lab.fail(s, "task_id", what);
        }
        Reply::Task(text)
    }

    /// Who is not refused gave the answers that count.
    fn check_taken(&self, op: &Operation) {
        let lab = &self.fleet.lab;
        let mut guard = lab.state();
        let s = &mut *guard;
        let Some(r) = s.records.get(&op.id) else { return };
        let other = self.call.answers.iter().find(|(key, answer)| {
            let Some(n) = r.op.inputs.iter().position(|i| i.key == *key) else { return false };
            let kept = s.blobs.get(&(op.id, BlobKind::Answer(n as u16)));
            r.op.inputs[n].answer.is_some() && kept != Some(answer)
        });
        if let Some((key, _)) = other {
            let what = format!("{}: an answer to `{key}` that does not count was taken", op.id);
            lab.fail(s, "one_answer", what);
        }
    }

    /// What is asked is what is recorded as asked.
    fn check_open(&self, op: &Operation, open: &[Ask]) {
        let lab = &self.fleet.lab;
        let mut guard = lab.state();
        let s = &mut *guard;
        let Some(r) = s.records.get(&op.id) else { return };
        let other = open.iter().find(|ask| {
            let n = r.op.inputs.iter().position(|i| i.key == ask.key);
            n.is_none_or(|n| s.blobs.get(&(op.id, BlobKind::Request(n as u16))) != Some(&ask.request))
        });
        if let Some(ask) = other {
            let what = format!("{}: `{}` is asked, and that is not recorded", op.id, ask.key);
            lab.fail(s, "question", what);
        }
        let tool = &lab.plan.tools[self.tool];
        let shown = crate::tool::approval(tool, self.arguments).request;
        if let Some(ask) = open.iter().find(|a| a.kind == InputKind::Approval && a.request != shown) {
            let what = format!("{}: a yes is asked for to something else: `{}`", op.id, ask.key);
            lab.fail(s, "shown", what);
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
        s.check_limited(lab, e, task);
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
            && let Some(id) = named
            && !s.records.contains_key(&id)
            && !s.graves.contains_key(&id)
        {
            s.said_gone.insert(id);
        }
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
