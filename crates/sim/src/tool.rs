//! The tools that callers call, and the way of their effects to the provider.

use crate::lab::Lab;
use crate::plan::ToolPlan;
use crate::provider::Request;
use crate::rng::Rng;
use crate::world::lock;
use async_trait::async_trait;
use futures_util::future::join;
use ledger::handle::{self, Handle, HandleChange, HandleConflict};
use ledger::store::Store;
use ledger::{
    Ask, Attempt, BlobKind, EffectKey, EffectState, Executor, InputKind, Intent, Looked, Millis, Operation,
    OperationId, Performed, Receipt, RunError, Runner, Sent, Stopped, Time, ToolResult,
};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// The names of a tool's effects.
const NAMES: [&str; 2] = ["pay", "mail"];

pub(crate) fn intent(tool: &ToolPlan, arguments: usize, effect: usize, other: bool) -> Intent {
    let odd = if other { " other" } else { "" };
    Intent {
        name: NAMES[effect].into(),
        discriminator: String::new(),
        recovery: tool.recovery.clone(),
        summary: "POST".into(),
        body: format!("{} {arguments} {}{odd}", tool.name, NAMES[effect]).into_bytes(),
    }
}

/// What a person is shown before the first effect.
pub(crate) fn approval(tool: &ToolPlan, arguments: usize) -> Ask {
    let request = [b"approve ", intent(tool, arguments, 0, false).body.as_slice()].concat();
    Ask { key: "approve".into(), kind: InputKind::Approval, request }
}

/// Runs tools on one boot.
pub(crate) struct Tools {
    pub lab: Arc<Lab>,
    pub store: Arc<dyn Store>,
    pub rng: Mutex<Rng>,
}

/// One attempt's way to the provider.
struct Line<'a> {
    lab: &'a Arc<Lab>,
    store: &'a dyn Store,
    rng: &'a Mutex<Rng>,
    tool: usize,
    op: OperationId,
    attempt: u32,
    owner: ledger::Epoch,
}

impl Tools {
    fn hits(&self, rate: u32) -> bool {
        self.lab.hits(&mut lock(&self.rng), rate)
    }

    /// Something goes wrong with the tool itself.
    async fn mishap(&self) -> Result<(), RunError> {
        let dice = lock(&self.rng).below(4);
        self.lab.state().coverage.fault("tool failed");
        match dice {
            0 => std::panic::panic_any("simulated"),
            1 => Err(RunError::Tool("lost its head".into())),
            2 => {
                self.lab.world.sleep(9000).await;
                Ok(())
            }
            _ => {
                let ms = lock(&self.rng).range(1, 800);
                self.lab.world.sleep(ms).await;
                Ok(())
            }
        }
    }

    async fn perform(
        &self,
        attempt: &Attempt,
        tool: &ToolPlan,
        arguments: usize,
        effect: usize,
        line: &Line<'_>,
    ) -> Result<Performed, Stopped> {
        let other = self.hits(tool.other);
        if tool.planned && !other && attempt.recorded_intent(0).await?.is_some() {
            return attempt.resume(0, line).await;
        }
        attempt.effect(intent(tool, arguments, effect, other), line).await
    }
}

impl Tools {
    /// Asks a round of questions; what comes back is what was answered, to what was asked.
    async fn ask(
        &self,
        attempt: &Attempt,
        tool: &ToolPlan,
        arguments: usize,
        round: usize,
    ) -> Result<(), RunError> {
        let odd = if self.hits(tool.asks_other) { " other" } else { "" };
        let asks: Vec<Ask> = (0..tool.questions)
            .map(|n| Ask {
                key: format!("r{round}q{n}"),
                kind: InputKind::Client,
                request: format!("{} {arguments} {round} {n}{odd}", tool.name).into_bytes(),
            })
            .collect();
        let answers = attempt.ask(asks.clone()).await?;
        let id = attempt.operation().id;
        let mut guard = self.lab.state();
        let s = &mut *guard;
        let Some(r) = s.records.get(&id) else { return Ok(()) };
        let index = |key: &str| r.op.inputs.iter().position(|i| i.key == key).map(|n| n as u16);
        let wrong = asks.iter().zip(&answers).find(|(ask, answer)| {
            let Some(n) = index(&ask.key) else { return true };
            s.blobs.get(&(id, BlobKind::Request(n))) != Some(&ask.request)
                || s.blobs.get(&(id, BlobKind::Answer(n))) != Some(answer)
        });
        if let Some((ask, _)) = wrong {
            let what = format!("the tool of {id} was given an answer to `{}` that is none to it", ask.key);
            self.lab.fail(s, "answer", what);
        }
        Ok(())
    }

    /// Makes a handle, or takes the one that the operation is about, and adds its mark to it.
    async fn keep(&self, attempt: &Attempt) -> Result<&'static str, RunError> {
        let op = attempt.operation();
        let principal = op.scope.principal.clone();
        let about = {
            let mut s = self.lab.state();
            let known = s.books.known.iter().rev().find(|(whose, _)| **whose == *principal);
            let named = known.filter(|_| op.id.0 & 1 == 0).map(|(_, text)| text.clone());
            let own = attempt.handle_id("make", "");
            s.books.about.entry(op.id).or_insert_with(|| named.unwrap_or(own)).clone()
        };
        let id_hash = handle::id_hash(&about);
        if about == attempt.handle_id("make", "") {
            let change = HandleChange::Create(Handle {
                id_hash,
                principal: principal.clone(),
                kind: "basket".into(),
                value: Vec::new(),
                version: 1,
                created_at: Time(0),
                used_at: Time(0),
                idle: Millis(8000),
                absolute: Millis(40_000),
            });
            let receipt = Receipt(about.clone().into_bytes());
            match attempt.handle_change("make", change, receipt.clone()).await? {
                Ok(made) if made == receipt => {
                    let mut s = self.lab.state();
                    s.books.known.push((principal.to_string(), about));
                }
                other => {
                    let what = format!("{} made its handle, and was told {other:?}", op.id);
                    self.lab.fail(&mut self.lab.state(), "handle_once", what);
                }
            }
        }
        for _ in 0..6 {
            let there =
                self.store.handle(&id_hash, &principal, attempt.now()).await.map_err(Stopped::from)?;
            let Some(h) = there else { return Ok("gone") };
            let mut value = h.value;
            value.extend_from_slice(format!("|{}", op.id).as_bytes());
            let change = HandleChange::Update {
                id_hash,
                principal: principal.clone(),
                expected: h.version,
                value,
                at: Time(0),
            };
            let receipt = Receipt(h.version.to_string().into_bytes());
            match attempt.handle_change("add", change, receipt).await? {
                Ok(_) => return Ok("kept"),
                Err(HandleConflict::Gone | HandleConflict::Expired) => return Ok("gone"),
                Err(_) => {}
            }
        }
        Ok("busy")
    }

    async fn end(&self, attempt: &Attempt) -> Result<(), RunError> {
        let op = attempt.operation();
        let about = self.lab.state().books.about.get(&op.id).cloned();
        let Some(text) = about else { return Ok(()) };
        let change = HandleChange::Destroy {
            id_hash: handle::id_hash(&text),
            principal: op.scope.principal.clone(),
            expected: None,
            at: Time(0),
        };
        let _ = attempt.handle_change("end", change, Receipt(b"ended".to_vec())).await?;
        Ok(())
    }
}

#[async_trait]
impl Runner for Tools {
    async fn run(&self, attempt: &Attempt) -> Result<ToolResult, RunError> {
        let op = attempt.operation();
        let (number, arguments) = self.lab.subject(&op);
        let plan = self.lab.plan.clone();
        let tool = &plan.tools[number];
        let line = Line {
            lab: &self.lab,
            store: &*self.store,
            rng: &self.rng,
            tool: number,
            op: op.id,
            attempt: op.attempt,
            owner: op.owner,
        };
        if self.hits(tool.before) {
            self.mishap().await?;
        }
        let mut done = Vec::new();
        if tool.rounds > 0 {
            self.ask(attempt, tool, arguments, 1).await?;
        }
        let kept = if tool.handles { self.keep(attempt).await? } else { "" };
        if tool.effects == 2 && tool.at_once {
            let both = join(
                self.perform(attempt, tool, arguments, 0, &line),
                self.perform(attempt, tool, arguments, 1, &line),
            );
            let (a, b) = both.await;
            done.push(a?);
            done.push(b?);
        } else {
            // A re-execution may come by another way.
            let turned = tool.effects == 2 && lock(&self.rng).mille(300);
            for n in 0..tool.effects {
                if n > 0 && attempt.operation().cancel_requested {
                    return Err(RunError::Tool("cancelled between two effects".into()));
                }
                if n > 0 && tool.rounds > 1 {
                    self.ask(attempt, tool, arguments, 2).await?;
                }
                let which = if turned { tool.effects - 1 - n } else { n };
                match self.perform(attempt, tool, arguments, which, &line).await {
                    Ok(performed) => done.push(performed),
                    Err(_) if self.hits(tool.deaf) => {}
                    Err(stopped) => return Err(stopped.into()),
                }
                if self.hits(tool.after) {
                    self.mishap().await?;
                }
            }
        }
        if tool.rounds > 1 && tool.effects < 2 {
            self.ask(attempt, tool, arguments, 2).await?;
        }
        if tool.handles && op.id.0 & 6 == 0 {
            self.end(attempt).await?;
        }
        // No two runs come to the same bytes: a result that is not kept shows.
        let nonce = lock(&self.rng).next();
        let mut result = format!("{} {arguments} {nonce:x}{kept}", tool.name).into_bytes();
        for d in &done {
            result.push(b'|');
            result.extend_from_slice(&d.receipt.0);
        }
        Ok(ToolResult { result, is_error: done.iter().any(|d| !d.applied) })
    }

    fn account(&self, op: &Operation, why: &str) -> ToolResult {
        let (tool, arguments) = self.lab.subject(op);
        let nonce = lock(&self.rng).next();
        let applied = op.effects.iter().filter(|e| e.state == EffectState::Applied).count();
        let text = format!("t{tool} {arguments} {nonce:x} account of {applied}: {why}");
        ToolResult { result: text.into_bytes(), is_error: true }
    }
}

impl Line<'_> {
    /// No effect leaves without its intent durable, under its own key and before its durable deadline.
    fn check(&self, intent: &Intent, key: &EffectKey, timeout: Millis) {
        let now = self.lab.time();
        let mut guard = self.lab.state();
        let s = &mut *guard;
        s.check_limits_seen(self.lab, self.op);
        let Some(r) = s.records.get(&self.op) else {
            self.lab.fail(s, "intent_first", format!("{} sends and is not in the store", self.op));
            return;
        };
        let Some((n, e)) = r.op.effects.iter().enumerate().find(|(_, e)| e.name == intent.name) else {
            let what = format!("`{}` of {} is sent and has no durable intent", intent.name, self.op);
            self.lab.fail(s, "intent_first", what);
            return;
        };
        let mine = r.op.attempt == self.attempt && r.op.owner == self.owner;
        let recorded = s.blobs.get(&(self.op, BlobKind::Intent(n as u16)));
        let shown =
            r.op.inputs
                .iter()
                .position(|i| i.kind == InputKind::Approval)
                .filter(|_| e.name == NAMES[0])
                .and_then(|n| s.blobs.get(&(self.op, BlobKind::Request(n as u16))));
        let wrong = if crate::books::lacks_yes(&r.op) {
            Some(("before_yes", "before anybody said yes"))
        } else if shown.is_some_and(|shown| shown.strip_prefix(b"approve ") != Some(&intent.body)) {
            Some(("shown", "and is not what was shown"))
        } else if e.key != *key {
            Some(("effect_key", "under another key than recorded"))
        } else if recorded != Some(&intent.body) {
            Some(("intent_first", "with other bytes than recorded"))
        } else if mine && (e.is_settled() || e.unresolved == 0) {
            Some(("intent_first", "although no send of it is begun"))
        } else if mine && now.plus(timeout) > e.send_deadline.plus(Millis(self.lab.lag())) {
            Some(("intent_first", "past its durable deadline"))
        } else if self.lab.is_postgres() && self.store.epoch() != self.owner {
            Some(("old_epoch", "for an epoch that its replica has left behind"))
        } else {
            None
        };
        if let Some((rule, how)) = wrong {
            let what = format!("`{}` of {} is sent {how}", intent.name, self.op);
            self.lab.fail(s, rule, what);
        }
    }
}

#[async_trait]
impl Executor for Line<'_> {
    async fn send(&self, intent: &Intent, key: &EffectKey, replay: bool, timeout: Millis) -> Sent {
        let lab = self.lab;
        let deadline = lab.world.now() + timeout.0;
        self.check(intent, key, timeout);
        lab.say(format_args!(
            "attempt {} of epoch {} sends `{}` of {} (replay: {replay})",
            self.attempt, self.owner.0, intent.name, self.op
        ));
        let (fails, withheld, ms) = {
            let mut r = lock(self.rng);
            let rates = &lab.plan.rates;
            let fails = lab.hits(&mut r, rates.not_sent);
            (fails, replay && lab.hits(&mut r, rates.withheld), r.range(0, 10))
        };
        if withheld {
            // The account is another one by now, say.
            return Sent::Withheld { why: "withheld: another account".into() };
        }
        lab.world.sleep(ms).await;
        if fails {
            return Sent::NotSent { why: "connection refused".into() };
        }
        if lab.world.now() >= deadline {
            // Whoever was paused till now finds its time over before the first byte.
            return Sent::NotSent { why: "no time was left".into() };
        }
        let (reply, answer) = oneshot::channel();
        let request = Request {
            tool: self.tool,
            op: self.op,
            effect: intent.name.clone(),
            key: key.clone(),
            replay,
            deadline,
        };
        lab.carry(request, reply);
        let sent = tokio::select! {
            biased;
            sent = answer => sent.ok(),
            () = lab.world.sleep(deadline - lab.world.now()) => None,
        };
        let sent =
            sent.unwrap_or(Sent::Unknown { why: "no answer".into(), retry_after: None, stored: false });
        lab.say(format_args!("`{}` of {} is answered: {sent:?}", intent.name, self.op));
        sent
    }

    async fn look_up(&self, _: &Intent, key: &EffectKey, timeout: Millis) -> Looked {
        let lab = self.lab;
        let (fails, ms) = {
            let mut r = lock(self.rng);
            (lab.hits(&mut r, lab.plan.rates.look_fails), r.range(0, 20).min(timeout.0))
        };
        lab.world.sleep(ms).await;
        if fails {
            return Looked::Unknown { why: "no answer".into() };
        }
        let looked = {
            let mut s = lab.state();
            let now = lab.world.now();
            s.providers[self.tool].look(key, now)
        };
        lab.say(format_args!("{} asks: {looked:?}", self.op));
        lab.world.sleep(ms / 2).await;
        looked
    }
}
