//! Answering a server that asks back (spec: basic/patterns/mrtr, "Client Requirements"): the request is sent again, under
//! a new id, with the answers and with the server's state as it came.
use std::future::Future;

use super::{CallOptions, McpClient, Reply};
use crate::constants::result_type;
use crate::error::Error;
use crate::input::{InputRequest, Invalid, MAX_REQUESTS};
use crate::json::{Raw, RawObject, quote};

/// How often a server may ask back before the client gives up.
pub const MAX_ROUNDS: u32 = 10;

const RESPONSES: &str = "inputResponses";
const STATE: &str = "requestState";

/// One thing that a server asks.
#[derive(Debug, Clone)]
pub struct Question {
    /// Its key, or in the legacy era the JSON text of its request's id.
    pub key: String,
    /// Such as `elicitation/create`.
    pub method: String,
    /// Its parameters, if it has some.
    pub params: Option<RawObject>,
}

impl Question {
    /// The same as a checked request. The key of one of the legacy era is `question`.
    ///
    /// # Errors
    /// The server asks what the specification doesn't allow.
    pub fn request(&self) -> Result<InputRequest, Invalid> {
        // Only a legacy revision names its pages (2025-11-25: client/elicitation, "URL Mode").
        let members = |params: &RawObject| {
            let kept = params.iter().filter(|(name, _)| name != "elicitationId");
            kept.map(|(name, value)| format!("{}:{value}", quote(&name))).collect::<Vec<_>>().join(",")
        };
        let params = self.params.as_ref().map(|params| format!(r#","params":{{{}}}"#, members(params)));
        let text = format!(r#"{{"method":{}{}}}"#, quote(&self.method), params.unwrap_or_default());
        let named = !self.key.starts_with('"');
        InputRequest::parse(if named { &self.key } else { "question" }, &Raw::trusted(text))
    }
}

/// A result that asks: answer each question, then send the request again with what [`Round::params`] gives.
#[derive(Debug, Clone)]
pub struct Round {
    /// What is asked. Empty: the request may be sent again as it is.
    pub questions: Vec<Question>,
    /// The server's state: JSON text to be sent back unread.
    state: Option<Raw>,
    answers: Vec<(String, Raw)>,
}

impl Round {
    /// `None` if the reply asks nothing.
    ///
    /// # Errors
    /// [`Error::Protocol`] if it asks in a form that can't be read.
    pub fn of(reply: &Reply) -> Result<Option<Round>, Error> {
        if reply.result_type != result_type::INPUT_REQUIRED {
            return Ok(None);
        }
        let broken = |why: &str| Error::Protocol(format!("a result that asks for input: {why}"));
        let state = reply.result.get(STATE);
        if state.as_ref().is_some_and(|state| !state.is_string()) {
            return Err(broken("its requestState is not a string"));
        }
        let asked = match reply.result.get("inputRequests") {
            None => RawObject::empty(),
            Some(all) => all.object().ok_or_else(|| broken("its inputRequests are not an object"))?,
        };
        if asked.is_empty() && state.is_none() {
            return Err(broken("it has neither inputRequests nor requestState"));
        }
        if asked.len() > MAX_REQUESTS {
            return Err(broken("it asks too much at once"));
        }
        let question = |(key, request): (std::borrow::Cow<'_, str>, Raw)| {
            let request = request.object()?;
            let method = request.string("method")?.into_owned();
            let params = match request.get("params") {
                None => None,
                Some(params) => Some(params.object()?),
            };
            Some(Question { key: key.into_owned(), method, params })
        };
        let questions = asked.iter().map(question).collect::<Option<Vec<_>>>();
        let questions = questions.ok_or_else(|| broken("one of its inputRequests is no request"))?;
        Ok(Some(Round { questions, state, answers: Vec::new() }))
    }

    /// Answers one question, by an object such as `{"action": "decline"}`.
    pub fn answer(&mut self, key: &str, answer: Raw) {
        self.answers.retain(|(known, _)| known != key);
        self.answers.push((key.to_owned(), answer));
    }

    /// The members of `params` to send beside those of the first request.
    pub fn params(&self) -> Vec<(String, Raw)> {
        let mut params = Vec::new();
        if !self.questions.is_empty() {
            let all: Vec<_> =
                self.answers.iter().map(|(key, answer)| format!("{}:{answer}", quote(key))).collect();
            params.push((RESPONSES.to_owned(), Raw::trusted(format!("{{{}}}", all.join(",")))));
        }
        params.extend(self.state.clone().map(|state| (STATE.to_owned(), state)));
        params
    }
}

impl McpClient {
    /// A request whose server may ask back, up to [`MAX_ROUNDS`] times: `answer` is given each question. Where it gives
    /// `None`, or too many rounds were asked, the reply that asks is given back as it is.
    ///
    /// # Errors
    /// As [`McpClient::request`]. An answer that was given may be lost then: who wants to send the same round again keeps
    /// it as a [`Round`] and sends it by [`McpClient::request`].
    pub async fn request_answering<F, A>(
        &self,
        method: &str,
        params: &[(&str, Raw)],
        mut options: CallOptions<'_>,
        mut answer: F,
    ) -> Result<Reply, Error>
    where
        F: FnMut(Question) -> A,
        A: Future<Output = Option<Raw>>,
    {
        let mut rounds = 0;
        loop {
            let reply = self.send(method, params, &mut options).await?;
            let Some(mut round) = Round::of(&reply)? else { return Ok(reply) };
            rounds += 1;
            if rounds > MAX_ROUNDS {
                return Ok(reply);
            }
            for question in round.questions.clone() {
                let key = question.key.clone();
                match answer(question).await {
                    Some(given) => round.answer(&key, given),
                    None => return Ok(reply),
                }
            }
            options.params.retain(|(name, _)| name != RESPONSES && name != STATE);
            options.params.extend(round.params());
        }
    }

    /// `tools/call` of a server that may ask back; see [`McpClient::request_answering`] and [`McpClient::call_tool`].
    ///
    /// # Errors
    /// As [`McpClient::request_answering`].
    pub async fn call_tool_answering<F, A>(
        &self,
        name: &str,
        arguments: Option<&RawObject>,
        mut options: CallOptions<'_>,
        answer: F,
    ) -> Result<Reply, Error>
    where
        F: FnMut(Question) -> A,
        A: Future<Output = Option<Raw>>,
    {
        let params = self.tool_call(name, arguments, &mut options);
        self.request_answering(crate::constants::method::TOOLS_CALL, &params, options, answer).await
    }
}
