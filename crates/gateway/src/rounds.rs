//! What travels with a request that comes again: sealed state, and the answers to what was asked.
//!
//! A state says which operation a call belongs to and how many rounds it has used, and nothing that a client may change:
//! it opens only for the same caller, request and arguments, and not for long. Whatever is wrong with it, the caller
//! hears the same; only a metric says why.

use crate::service::Shared;
use ledger::canonical::canonicalise;
use ledger::service::OperateError;
use ledger::{Ask, BlobKind, InputKind, Millis, Operation, OperationId, Receipt, StoreError, Verdict};
use mcp::error::RpcError;
use mcp::input::{Answer, InputRequest};
use mcp::json::{Limits, Raw, quote};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;

/// The most rounds of one request: the official clients come again that often and then give up.
pub(crate) const MAX_ROUNDS: u32 = 10;
/// The last round that may be spent on waiting: one is kept for what is asked at the end. The result needs none, and a
/// call that waits once more after its last leg has ten waits: forty seconds by legs of four.
pub(crate) const LAST_LEG: u32 = MAX_ROUNDS - 1;
/// For how long after a leg its caller counts as present: a client that goes on comes back at once.
pub(crate) const GRACE: Millis = Millis::secs(15);
/// What the tokens are for that requests bring back.
pub(crate) const PURPOSE: &str = "state";

/// What a state says.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    /// The operation that the call belongs to.
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationId>,
    /// A key that was kept for it.
    #[serde(rename = "k", default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Rounds used.
    #[serde(rename = "r")]
    pub round: u32,
    /// The caller was sent to a page to give a credential of its own.
    #[serde(rename = "c", default, skip_serializing_if = "std::ops::Not::not")]
    pub connect: bool,
}

/// What a state is bound to: whose request, of what, saying what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub principal: &'a str,
    pub method: &'static str,
    pub name: &'a str,
    pub fingerprint: &'a [u8],
}

/// Why a state does not open.
#[derive(Debug)]
pub(crate) enum Closed {
    /// It is not for this request, or not any more. Nobody is told more.
    Rejected,
    /// Its key can't be read now: it may be good.
    Unavailable,
}

impl Shared {
    /// Seals what a request of this subject is to bring back; `None` where nothing can be sealed here.
    pub(crate) async fn seal<S: Serialize>(
        &self,
        purpose: &str,
        subject: Subject<'_>,
        state: &S,
    ) -> Option<String> {
        let keeper = self.keeper.as_ref()?;
        let text = serde_json::to_vec(state).ok()?;
        let Subject { principal, method, name, fingerprint } = subject;
        let context = keeper.context(purpose, principal, method, name, fingerprint);
        match keeper.seal(&text, &context, None).await {
            Ok(token) => Some(token),
            Err(e) => {
                tracing::error!(error = %e, "a state could not be sealed");
                None
            }
        }
    }

    /// Opens what a request of this subject brought back.
    pub(crate) async fn unseal<S: for<'de> Deserialize<'de>>(
        &self,
        purpose: &str,
        subject: Subject<'_>,
        token: &str,
    ) -> Result<S, Closed> {
        let rejected = |why: &'static str| {
            self.metrics.state_rejected(why);
            Closed::Rejected
        };
        let keeper = self.keeper.as_ref().ok_or_else(|| rejected("unknown_key"))?;
        let Subject { principal, method, name, fingerprint } = subject;
        let context = keeper.context(purpose, principal, method, name, fingerprint);
        match keeper.open(token, &context).await {
            Ok(text) => serde_json::from_slice(&text).map_err(|_| rejected("malformed")),
            Err(seal::OpenError::Rejected(why)) => Err(rejected(why.word())),
            Err(seal::OpenError::Unavailable(why)) => {
                tracing::warn!(%why, "a state could not be opened");
                Err(Closed::Unavailable)
            }
        }
    }
}

/// What is said of a state that does not open, whatever the reason.
pub(crate) fn rejected() -> RpcError {
    RpcError::invalid_params(
        "requestState is not valid for this request, or not any more; nothing ran. Make the request again without it only \
         under the same idempotency key; if it had none, look first whether it happened",
    )
}

/// The same, where there is no tool to answer for.
pub(crate) fn unavailable() -> RpcError {
    RpcError::unavailable(
        "The ledger can't be used at the moment, so nothing was done. Asking the same again a little later is safe.",
    )
}

/// What is said while a state can't be opened: what it names may be running.
pub(crate) const UNOPENED: (&str, &str) = (
    "The ledger can't be read at the moment, so it is not known which operation this call belongs to, or how it stands.",
    "Make the same request again a little later with the same `requestState`, or under the same idempotency key: nothing is done twice. Without either it could be: then look first whether it happened.",
);

/// Answers that came with a call, read against what its operation asks.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Answers {
    /// What is to be recorded, by key, in one spelling.
    pub given: Vec<(String, Vec<u8>)>,
    /// What a person decided by them.
    pub decision: Option<Decision>,
}

/// A person's word that decides. It is about what was asked, and about nothing that came after.
#[derive(Debug, PartialEq)]
pub(crate) enum Decision {
    /// A no to the question with this key, which waits for a yes.
    Denied(String),
    /// Whether the effect happened of which only a person can tell what became of it in this attempt.
    Happened(u32, bool),
}

/// Why answers are not taken.
pub(crate) enum Unfit {
    /// One doesn't answer what was asked; nothing was recorded.
    Answer(Box<RpcError>),
    /// The ledger can't be read.
    Store(StoreError),
}

fn unfit(key: &str, why: &str) -> Unfit {
    let text = format!("inputResponses.{}: {why}; nothing was recorded", quote(key));
    Unfit::Answer(Box::new(RpcError::malformed(text)))
}

/// Reads the answers to what `op` asks. Keys that it never asked for count for nothing.
pub(crate) async fn answers(
    shared: &Shared,
    op: &Operation,
    responses: &[(String, Raw)],
) -> Result<Answers, Unfit> {
    let mut all = Answers::default();
    if asks_a_person(op) {
        let request = confirm(op).ok();
        let response = request.as_ref().and_then(|r| responses.iter().find(|(key, _)| key == r.key()));
        if let Some((request, (key, response))) = request.as_ref().zip(response) {
            let answer = Answer::read(request, response).map_err(|why| unfit(key, &why))?;
            all.decision = happened(&answer).map(|so| Decision::Happened(op.attempt, so));
        }
        return Ok(all);
    }
    for (key, response) in responses {
        let Some(i) = op.input(key) else { continue };
        let request = recorded(shared, op, i).await.map_err(Unfit::Store)?;
        let answer = Answer::read(&request, response).map_err(|why| unfit(key, &why))?;
        let input = &op.inputs[i];
        // A yes after a yes is the same, whoever said that and in which words.
        if input.kind == InputKind::Approval && input.answer.is_some() && approves(&answer) {
            continue;
        }
        if input.kind == InputKind::Approval && input.answer.is_none() && !approves(&answer) {
            // Put away without a word is neither yes nor no: it is asked again.
            if answer == Answer::Cancelled {
                continue;
            }
            all.decision = Some(Decision::Denied(key.clone()));
        }
        all.given.push((key.clone(), spelled(&answer.to_raw())));
    }
    Ok(all)
}

/// One spelling of an answer, so that the same answer is the same bytes.
pub(crate) fn spelled(answer: &Raw) -> Vec<u8> {
    canonicalise(answer.as_str()).map_or_else(
        |_| answer.as_str().as_bytes().to_vec(),
        |canonical| canonical.as_str().as_bytes().to_vec(),
    )
}

/// Makes the decision. Whether the request may is for its caller to see to.
pub(crate) async fn decide(
    shared: &Arc<Shared>,
    principal: &str,
    id: OperationId,
    decision: &Decision,
) -> Result<Operation, OperateError> {
    let by = format!("{principal}, asked by the client");
    match decision {
        Decision::Happened(attempt, happened) => {
            // A person's word, as the ledger keeps it.
            let word = || json!({ "saidBy": by, "happened": true }).to_string().into_bytes();
            let verdict = if *happened { Verdict::Applied(Receipt(word())) } else { Verdict::NotApplied };
            shared.ledger.decide_about(id, *attempt, by, verdict).await
        }
        Decision::Denied(key) => shared.ledger.deny_asked(id, key, &by).await,
    }
}

/// The question with this index that an operation asked.
pub(crate) async fn recorded(
    shared: &Shared,
    op: &Operation,
    index: usize,
) -> Result<InputRequest, StoreError> {
    let kind = BlobKind::Request(u16::try_from(index).unwrap_or(u16::MAX));
    let asked = shared.ledger.store().blob(op.id, kind).await?;
    let key = op.inputs.get(index).map_or("", |input| &input.key);
    question(key, &asked.unwrap_or_default())
}

/// Questions as the ledger gives them.
pub(crate) fn questions(open: &[Ask]) -> Result<Vec<InputRequest>, StoreError> {
    open.iter().map(|ask| question(&ask.key, &ask.request)).collect()
}

/// A question as it is recorded.
pub(crate) fn question(key: &str, request: &[u8]) -> Result<InputRequest, StoreError> {
    let limits = Limits { depth: mcp::input::MAX_DEPTH, unique_members: true };
    Raw::parse(request.to_vec(), &limits)
        .ok()
        .and_then(|raw| InputRequest::parse(key, &raw).ok())
        .ok_or_else(|| StoreError::Damaged(format!("the question {key} can't be read")))
}

/// The property of an approval's form.
pub(crate) const APPROVE: &str = "approve";

/// Whether the answer to an approval is a yes.
pub(crate) fn approves(answer: &Answer) -> bool {
    matches!(answer, Answer::Accepted(filled)
        if filled.iter().any(|(name, value)| name == APPROVE && value.as_str() == "true"))
}

/// The question whether an effect happened, and what its form asks for.
const HAPPENED: &str = "happened";
const YES: &str = "yes";
const NO: &str = "no";

/// Whether only a person can tell what became of an effect of it.
pub(crate) fn asks_a_person(op: &Operation) -> bool {
    matches!(op.execution, ledger::Execution::InputRequired { .. }) && !op.waits_for_input()
}

/// The question whether the effect of an operation happened.
pub(crate) fn confirm(op: &Operation) -> Result<InputRequest, mcp::input::Invalid> {
    let asked = match &op.execution {
        ledger::Execution::InputRequired { question } => question.as_str(),
        _ => "",
    };
    let message: String = format!(
        "It is not known whether this happened: {asked} Look, and say whether it did. If you can't tell, say nothing."
    )
    .chars()
    .take(2000)
    .collect();
    let form = mcp::input::Form::new().require(HAPPENED, mcp::input::Field::choice([YES, NO]))?;
    // Asked again after another attempt, it is another question.
    InputRequest::form(&format!("{HAPPENED}.{}", op.attempt), &message, form)
}

pub(crate) fn happened(answer: &Answer) -> Option<bool> {
    let Answer::Accepted(filled) = answer else { return None };
    let (_, value) = filled.iter().find(|(name, _)| name == HAPPENED)?;
    match value.as_string()?.as_ref() {
        YES => Some(true),
        NO => Some(false),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_small_and_knows_no_other_members() {
        let id = OperationId::new(ledger::Time(1), 7);
        let state = State { operation: Some(id), key: None, round: 3, connect: false };
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(text, format!(r#"{{"o":"{id}","r":3}}"#));
        assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
        for other in [r#"{"r":1,"x":1}"#, r#"{"r":-1}"#, r#"{}"#, r#"{"o":"op_1","r":1}"#] {
            assert!(serde_json::from_str::<State>(other).is_err(), "{other}");
        }
    }

    #[test]
    fn one_answer_in_two_spellings_is_one_answer() {
        let raw = |text: &str| Raw::parse(text.to_owned(), &Limits::default()).unwrap();
        let one = raw(r#"{"action":"accept","content":{"a":1.0,"b":"é"}}"#);
        let other = raw("{ \"content\":{\"b\":\"\\u00e9\",\"a\":1},\n\"action\":\"accept\"}");
        assert_eq!(spelled(&one), spelled(&other));
        assert_ne!(spelled(&one), spelled(&raw(r#"{"action":"accept","content":{"a":2,"b":"é"}}"#)));
    }
}
