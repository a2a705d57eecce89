//! Asking the client while a reading tool, a resource or a prompt is worked on.
//!
//! In the modern era the request ends with the questions and comes again with the answers: what is worked on is then
//! begun anew, and finds them. A legacy client is asked on its stream meanwhile, and may answer at any replica. Nothing is
//! kept but for that: reads leave no trace in the ledger.

use crate::answers::{Mail, Name, Waiting, random_name};
use crate::context::Context;
use crate::rounds::{self, Subject};
use crate::service::Shared;
use ledger::canonical::canonicalise_arguments;
use ledger::{Fingerprint, Millis, Store, Time};
use mcp::Revision;
use mcp::constants::meta;
use mcp::error::RpcError;
use mcp::input::{self, Answer, Asker, Given, InputRequest};
use mcp::json::{Limits, Raw, RawObject, quote};
use mcp::server::{Exchange, Notifier, Outcome, WireResult};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The question has no answer yet, or can't be asked. Whoever asked ends with an error, and is begun anew once there is
/// one; what is said of it then does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this needs an answer of the client first")]
pub struct Unanswered;

/// How the client of a request is asked, and what it answered.
pub(crate) struct Asks {
    given: Vec<(String, Raw)>,
    /// Those that answer what was asked: they are all that comes back with the next round.
    used: Mutex<BTreeMap<String, Raw>>,
    pending: Mutex<Option<Pending>>,
    way: Way,
    revision: Revision,
    declared: Raw,
}

/// Why a request ends otherwise than what worked on it says.
enum Pending {
    Ask(Vec<InputRequest>),
    Refuse(Box<RpcError>),
}

enum Way {
    Rounds,
    Stream(Box<Stream>),
    Nowhere,
}

struct Stream {
    notifier: Notifier,
    keeper: seal::Keeper,
    principal: Arc<str>,
    waiting: Waiting,
    store: Arc<dyn Store>,
}

/// What a reading request brings back.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadState {
    /// Rounds used.
    #[serde(rename = "r")]
    round: u32,
    /// Answers of earlier rounds, digit for digit.
    #[serde(rename = "a", default, skip_serializing_if = "BTreeMap::is_empty")]
    answers: BTreeMap<String, Box<RawValue>>,
    /// Where they are, if they are too large to travel.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    shelf: Option<String>,
    /// Its own name, where it may be used once.
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    once: Option<String>,
}

/// What is asked for: a state is bound to it.
#[derive(Clone, Copy)]
pub(crate) struct Of<'a> {
    pub asker: Asker,
    /// The tool's canonical id, the resource's URI, the prompt's name.
    pub name: &'a str,
    pub arguments: Option<&'a RawObject>,
}

impl Of<'_> {
    fn subject<'s>(&'s self, principal: &'s str, fingerprint: &'s [u8]) -> Subject<'s> {
        Subject { principal, method: self.asker.method(), name: self.name, fingerprint }
    }

    /// Most requests ask nothing, so it is made only where it is needed.
    fn fingerprint(&self) -> [u8; 32] {
        let raw = self.arguments.map(|a| a.raw());
        match canonicalise_arguments(raw.as_ref().map(Raw::as_str), None) {
            Ok(canonical) => Fingerprint::of(self.name, &canonical).digest,
            // Without a canonical form each spelling is another request.
            Err(_) => Sha256::digest(raw.as_ref().map_or("", Raw::as_str)).into(),
        }
    }
}

/// What a request brought back.
#[derive(Default)]
struct Brought {
    round: u32,
    /// The answers of this round and of those before.
    given: Vec<(String, Raw)>,
    /// The latter alone.
    before: BTreeMap<String, Raw>,
}

impl Brought {
    async fn of(shared: &Shared, of: Of<'_>, principal: &str, now: Given) -> Result<Brought, RpcError> {
        let mut all = Brought::default();
        if let Some(token) = &now.state {
            let fingerprint = of.fingerprint();
            let subject = of.subject(principal, &fingerprint);
            let begun = shared.ledger.store().now();
            let state: ReadState = match shared.unseal(rounds::PURPOSE, subject, token).await {
                Ok(state) => state,
                Err(rounds::Closed::Rejected) => return Err(rounds::rejected()),
                Err(rounds::Closed::Unavailable) => return Err(rounds::unavailable()),
            };
            if shared.settings.single_use {
                use_up(shared, state.once.as_deref(), begun).await?;
            }
            all.round = state.round;
            all.given = earlier(shared, state).await?;
        }
        all.before = all.given.iter().cloned().collect();
        // What was answered once stays as it was.
        for (key, answer) in now.responses {
            if all.given.iter().all(|(k, _)| *k != key) {
                all.given.push((key, answer));
            }
        }
        Ok(all)
    }
}

/// Spends a state that was opened after `begun`: of all who bring it back, to whichever replica, one is let through. The
/// mark lives longer than the state. Whoever opened the state in time and comes to its mark only when that is over, as a
/// process does that was stopped in between, is not let through.
async fn use_up(shared: &Shared, once: Option<&str>, begun: Time) -> Result<(), RpcError> {
    let used = || {
        shared.metrics.state_rejected("used");
        rounds::rejected()
    };
    let name = format!("used/{}", once.ok_or_else(used)?);
    let store = shared.ledger.store();
    let until = store.now().plus(shared.state_ttl()).plus(SPENT_FOR);
    match store.shelve(&name, 0, Vec::new(), Some(until)).await {
        Ok(true) if store.now() < begun.plus(SPENT_FOR) => Ok(()),
        Ok(_) => Err(used()),
        Err(_) => Err(rounds::unavailable()),
    }
}

async fn earlier(shared: &Shared, state: ReadState) -> Result<Vec<(String, Raw)>, RpcError> {
    let mut answers = state.answers;
    if let Some(name) = &state.shelf {
        let there = shared.ledger.store().shelved(name).await.map_err(|_| rounds::unavailable())?;
        let rejected = |why: &'static str| {
            shared.metrics.state_rejected(why);
            rounds::rejected()
        };
        let there = there.ok_or_else(|| rejected("expired"))?;
        answers = serde_json::from_slice(&there.data).map_err(|_| rejected("malformed"))?;
    }
    let limits = Limits { depth: input::MAX_DEPTH, ..Limits::default() };
    let raw = |(key, value): (String, Box<RawValue>)| {
        Some((key, Raw::parse(value.get().to_owned(), &limits).ok()?))
    };
    Ok(answers.into_iter().filter_map(raw).collect())
}

/// A reading request that may end in questions.
pub(crate) struct Reading<'a> {
    shared: &'a Shared,
    of: Of<'a>,
    principal: Arc<str>,
    round: u32,
    asks: Arc<Asks>,
}

/// What is wrong with what a request brought back.
fn malformed(key: &str, why: &str) -> RpcError {
    RpcError::malformed(format!("inputResponses.{}: {why}", quote(key)))
}

impl<'a> Reading<'a> {
    /// Reads what the request brought back, and makes the context of what works on it.
    ///
    /// # Errors
    /// What the request is answered; nothing was worked on.
    pub async fn begin(
        shared: &'a Shared,
        exchange: &Exchange,
        of: Of<'a>,
        timeout: Millis,
        notifier: Notifier,
    ) -> Result<(Reading<'a>, Context), RpcError> {
        let revision = exchange.caller.revision;
        let mut context = shared.context(exchange, timeout, notifier.clone());
        let principal = context.principal.clone();
        let mut brought = Brought::default();
        let way = match &shared.keeper {
            Some(keeper) if revision.is_legacy() => Way::Stream(Box::new(Stream {
                notifier,
                keeper: keeper.clone(),
                principal: principal.clone(),
                waiting: shared.waiting.clone(),
                store: shared.ledger.store().clone(),
            })),
            None if revision.is_legacy() => Way::Nowhere,
            _ => {
                let given = Given::of(&exchange.request)?;
                if !given.is_empty() {
                    brought = Brought::of(shared, of, &principal, given).await?;
                }
                Way::Rounds
            }
        };
        let asks = Arc::new(Asks {
            given: brought.given,
            used: Mutex::new(brought.before),
            pending: Mutex::default(),
            way,
            revision,
            declared: exchange.meta.client_capabilities().clone(),
        });
        context.asks = Some(asks.clone());
        Ok((Reading { shared, of, principal, round: brought.round, asks }, context))
    }

    /// What the request brought back, by the key of the question.
    pub fn brought(&self) -> &[(String, Raw)] {
        &self.asks.given
    }

    /// How the request ends, if not as what worked on it says: `done` tells whether that came to a result.
    pub async fn end(&self, done: bool) -> Option<Outcome> {
        let pending = self.asks.pending().take().filter(|_| !done)?;
        Some(match pending {
            Pending::Refuse(e) => Outcome::Error(*e),
            Pending::Ask(requests) => match self.ask(&requests).await {
                Ok(result) => Outcome::Result(result),
                Err(e) => Outcome::Error(e),
            },
        })
    }

    async fn ask(&self, requests: &[InputRequest]) -> Result<WireResult, RpcError> {
        if self.round >= rounds::MAX_ROUNDS {
            return Err(RpcError::internal("Internal error: this asks more often than a client answers."));
        }
        let answers = self.asks.used();
        let once = self.shared.settings.single_use.then(random_name);
        let mut state = ReadState { round: self.round + 1, answers, shelf: None, once };
        let large = serde_json::to_vec(&state.answers).map_err(|_| rounds::unavailable())?;
        if large.len() > LARGE {
            let store = self.shared.ledger.store();
            let name = format!("state/{}", random_name());
            let until = store.now().plus(self.shared.state_ttl());
            let kept = store.shelve(&name, 0, large, Some(until)).await;
            kept.ok().filter(|kept| *kept).ok_or_else(rounds::unavailable)?;
            state.answers.clear();
            state.shelf = Some(name);
        }
        let fingerprint = self.of.fingerprint();
        let subject = self.of.subject(&self.principal, &fingerprint);
        let token = self.shared.seal(rounds::PURPOSE, subject, &state).await;
        let token = token.ok_or_else(rounds::unavailable)?;
        let info = [(meta::SERVER_INFO, self.shared.server_info.as_str())];
        WireResult::input_required(self.of.asker, requests, Some(&token), &info)
            .map_err(|_| RpcError::internal("Internal error: this asks what can't be asked."))
    }
}

/// Answers beyond this many bytes stay here and only their place travels.
const LARGE: usize = 4 << 10;
/// For how long beyond the life of a state it is known to be spent: clocks differ.
const SPENT_FOR: Millis = Millis::secs(60);
/// How often an answer is looked for that another replica may have got.
const LOOK: Duration = Duration::from_millis(500);

impl Asks {
    fn pending(&self) -> std::sync::MutexGuard<'_, Option<Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(&self) -> BTreeMap<String, Box<RawValue>> {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let value = |raw: &Raw| RawValue::from_string(raw.as_str().to_owned()).ok();
        used.iter().filter_map(|(key, raw)| Some((key.clone(), value(raw)?))).collect()
    }

    fn end_with(&self, pending: Pending) -> Unanswered {
        *self.pending() = Some(pending);
        Unanswered
    }

    /// Answers to these, in their order.
    ///
    /// # Errors
    /// [`Unanswered`]: pass it on.
    pub async fn ask(&self, requests: &[InputRequest]) -> Result<Vec<Answer>, Unanswered> {
        let mut answers = Vec::new();
        let mut missing = Vec::new();
        for request in requests {
            match self.given.iter().find(|(key, _)| key == request.key()) {
                None => missing.push(request.clone()),
                Some((key, raw)) => match Answer::kept(request, raw) {
                    Ok(answer) => {
                        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
                        used.insert(key.clone(), answer.to_raw());
                        answers.push(answer);
                    }
                    Err(why) => return Err(self.end_with(Pending::Refuse(Box::new(malformed(key, &why))))),
                },
            }
        }
        if missing.is_empty() {
            return Ok(answers);
        }
        if let Err(e) = input::check(&missing, &self.declared, self.revision) {
            return Err(self.end_with(Pending::Refuse(Box::new(e))));
        }
        match &self.way {
            Way::Rounds => Err(self.end_with(Pending::Ask(missing))),
            Way::Nowhere => {
                let why = "this needs an answer of the client, and it can't be asked here; nothing was done";
                Err(self.end_with(Pending::Refuse(Box::new(RpcError::invalid_params(why)))))
            }
            Way::Stream(stream) => stream.ask(requests, self.revision).await.map_err(|e| match e {
                Some(e) => self.end_with(Pending::Refuse(Box::new(e))),
                None => Unanswered,
            }),
        }
    }
}

impl Stream {
    /// Asks on the stream and waits, for as long as there is a client and an answer would be taken. `None`: it is gone.
    async fn ask(
        &self,
        requests: &[InputRequest],
        revision: Revision,
    ) -> Result<Vec<Answer>, Option<RpcError>> {
        let mut mail = Mail::new(&self.waiting, self.store.clone());
        let mut asked = Vec::new();
        for (i, request) in requests.iter().enumerate() {
            let name = Name::Mail { box_: mail.name().to_owned(), index: i };
            let sent = name.send(&self.keeper, &self.principal, &self.notifier, request, revision).await;
            asked.push(sent.map_err(Some)?);
        }
        let limit = tokio::time::sleep(self.keeper.state_ttl().duration());
        tokio::pin!(limit);
        let mut answers: Vec<Option<Answer>> = requests.iter().map(|_| None).collect();
        while let Some(i) = answers.iter().position(Option::is_none) {
            let waits: Vec<usize> = (i..answers.len()).filter(|&n| answers[n].is_none()).collect();
            tokio::select! {
                (n, outcome) = mail.next(&waits, LOOK) => {
                    let Some((slot, request)) = answers.get_mut(n).zip(requests.get(n)) else { continue };
                    // The first answer counts.
                    slot.get_or_insert_with(|| match outcome {
                        // What doesn't fit is no answer; there is no way to say so to whoever gave it.
                        Ok(raw) => Answer::read(request, &raw).unwrap_or(Answer::Cancelled),
                        Err(_) => Answer::Declined,
                    });
                }
                () = &mut limit => {
                    return Err(Some(RpcError::invalid_params(
                        "this needs an answer of the client, and none came in time; nothing was done",
                    )));
                }
                () = self.notifier.cut() => return Err(None),
                () = self.notifier.gone() => return Err(None),
            }
        }
        for one in asked {
            one.answered();
        }
        Ok(answers.into_iter().flatten().collect())
    }
}
