//! Legacy era: requests of the server to its client, which belong to a request that the client is waiting for (spec
//! 2025-11-25: Streamable HTTP; client/elicitation, client/sampling, client/roots). They go onto that request's own
//! stream, or, where that is gone, onto a stream that the client's session has open. What the client answers comes to
//! [`Service::response`](super::Service::response). The modern era has none of this: there a request ends with the
//! questions ([`WireResult::input_required`](super::WireResult::input_required)).
//!
//! Promises: a request is in its stream or [`Unsent`] says that it never will be; a question that nobody waits for any
//! more is withdrawn by `notifications/cancelled` as long as its stream lasts.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::channel::Channel;
use super::responder::{Notifier, Subscription};
use crate::constants::method;
use crate::json::{Raw, quote};
use crate::message::Response;
use crate::revision::Revision;

/// Longest id of a request of ours, in bytes; an answer to a longer one is nobody's.
pub const MAX_ASKED_ID: usize = 255;
/// What is kept of the words of a client's error, in characters.
const MAX_WORDS: usize = 200;

/// Why a request isn't in a stream. It was not sent and never will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsent {
    /// The client can't be asked here at all: it is of the modern era, takes no stream, or sent a batch.
    #[error("this request's answer has no stream that could carry a question")]
    NoStream,
    /// The stream has ended, or none is open.
    #[error("no stream to this client is open")]
    Gone,
    /// Its reader is too slow.
    #[error("the client takes nothing from its stream at the moment")]
    Full,
}

/// A client's error where it was to give a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientError {
    /// Its code; 0 if it has none.
    pub code: i64,
    /// Its words, cut, without control characters.
    pub message: String,
}

impl ClientError {
    fn of(error: &Raw) -> ClientError {
        let error = error.object();
        let code = error.as_ref().and_then(|e| e.text("code")?.parse().ok()).unwrap_or_default();
        let message = error.as_ref().and_then(|e| e.string("message")).unwrap_or_default();
        let message = message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_WORDS).collect();
        ClientError { code, message }
    }
}

/// A client's answer with the id of the request that it names; `None` if no request of ours can have had that id.
pub(super) fn answered(response: Response) -> Option<(String, Result<Raw, ClientError>)> {
    let id = response.id.raw().as_string()?.into_owned();
    if id.is_empty() || id.len() > MAX_ASKED_ID {
        return None;
    }
    Some((id, response.outcome.map_err(|error| ClientError::of(&error))))
}

/// A question in its stream. Dropped, it is withdrawn: tell it when it was [answered](Asked::answered).
#[must_use = "dropped, the question is withdrawn"]
pub struct Asked {
    channel: Arc<Channel>,
    id: String,
    open: bool,
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asked").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Asked {
    fn send(channel: &Arc<Channel>, id: String, method: &str, params: Option<&Raw>) -> Result<Asked, Unsent> {
        debug_assert!((1..=MAX_ASKED_ID).contains(&id.len()), "ids of questions are bounded");
        debug_assert!(
            method != method::ELICITATION_CREATE || channel.revision >= Revision::V2025_06_18,
            "the revision has elicitation"
        );
        // The method comes first: whoever reads no further knows what it is.
        let mut message = format!(r#"{{"jsonrpc":"2.0","method":{},"id":{}"#, quote(method), quote(&id));
        if let Some(params) = params {
            message.push_str(&format!(r#","params":{}"#, params.single_line()));
        }
        message.push('}');
        channel.ask(message.into())?;
        Ok(Asked { channel: channel.clone(), id, open: true })
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Resolves when the stream that it is in is gone: the client may never have seen it.
    pub async fn cut(&self) {
        self.channel.cut.cancelled().await;
    }

    /// It was answered, or goes on without this program: nothing is withdrawn.
    pub fn answered(mut self) {
        self.open = false;
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.open {
            let (method, id) = (method::CANCELLED, quote(&self.id));
            let message: Bytes =
                format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"requestId":{id}}}}}"#).into();
            self.channel.withdraw(message);
        }
    }
}

impl Notifier {
    /// Asks the client something on the stream of its own request, which opens by that. Legacy era only. `id` is
    /// unique and has 1 to [`MAX_ASKED_ID`] bytes.
    ///
    /// # Errors
    /// [`Unsent`].
    pub fn request(&self, id: String, method: &str, params: Option<&Raw>) -> Result<Asked, Unsent> {
        Asked::send(&self.0, id, method, params)
    }

    /// Resolves when nothing more can reach the client on this request's stream. Of a legacy client over HTTP that is no
    /// cancellation: see [`Notifier::gone`].
    pub async fn cut(&self) {
        self.0.cut.cancelled().await;
    }
}

impl Subscription {
    /// Asks the client something on this stream, which must be a legacy client's. As [`Notifier::request`].
    ///
    /// # Errors
    /// [`Unsent`].
    pub fn request(&self, id: String, method: &str, params: Option<&Raw>) -> Result<Asked, Unsent> {
        Asked::send(&self.channel, id, method, params)
    }
}

/// The streams that legacy sessions have open at an endpoint (HTTP GET), to ask on. Cheap to clone: clones share.
#[derive(Clone, Default)]
pub struct SessionStreams(Arc<Mutex<BySession>>);

/// Nobody is kept here without an open stream; the newest comes last.
type BySession = HashMap<Arc<str>, Vec<Arc<Channel>>>;

impl SessionStreams {
    fn all(&self) -> MutexGuard<'_, BySession> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this session has a stream open here.
    pub fn has(&self, session: &str) -> bool {
        self.all().contains_key(session)
    }

    /// Asks the client on the newest stream that its session has open here: for a question whose own stream is gone. The
    /// session must be known to be that client's.
    ///
    /// # Errors
    /// [`Unsent`]; [`Unsent::Gone`] also if no stream is open here, where another replica may have one.
    pub fn request(
        &self,
        session: &str,
        id: String,
        method: &str,
        params: Option<&Raw>,
    ) -> Result<Asked, Unsent> {
        let open: Vec<_> = self.all().get(session).cloned().unwrap_or_default();
        let mut refused = Unsent::Gone;
        for channel in open.iter().rev() {
            match Asked::send(channel, id.clone(), method, params) {
                Ok(asked) => return Ok(asked),
                Err(why) => refused = why,
            }
        }
        Err(refused)
    }

    /// Keeps a stream findable until the entry is dropped.
    pub(super) fn insert(&self, session: Arc<str>, channel: Arc<Channel>) -> Open {
        self.all().entry(session.clone()).or_default().push(channel.clone());
        Open { streams: self.clone(), session, channel }
    }
}

/// A stream's place among those that can be asked on.
pub(super) struct Open {
    streams: SessionStreams,
    session: Arc<str>,
    channel: Arc<Channel>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut all = self.streams.all();
        if let Some(open) = all.get_mut(&self.session) {
            open.retain(|channel| !Arc::ptr_eq(channel, &self.channel));
            if open.is_empty() {
                all.remove(&self.session);
            }
        }
    }
}
