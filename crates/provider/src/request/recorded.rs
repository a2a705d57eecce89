//! The recorded request: what an intent holds of it, and how it is written as HTTP.

use crate::content::Content;
use crate::credentials::with_also;
use crate::judge::{Answer, Observation};
use crate::lookup::{ConflictPlan, LookupPlan, Question};
use crate::policy::{self, KeyScope, Policy};
use crate::template::Spliced;
use http::{HeaderName, HeaderValue};
use ledger::{EffectKey, Intent};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The version of [`HttpIntent`]'s form.
pub(super) const VERSION: u8 = 1;
/// The version of one whose body is no text, or whose look-up says more: who knows only the first must not send it without
/// its body, nor take another's object for its.
pub(super) const VERSION_OF_MORE: u8 = 2;
/// The version of one whose parts have headers, which must not go out without them, or whose look-up is a query, for which a
/// GET says nothing.
pub(super) const VERSION_OF_STILL_MORE: u8 = 3;
/// The recorded request: an intent's body. No secret is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpIntent {
    pub(super) v: u8,
    pub(crate) method: String,
    pub(crate) url: Spliced,
    pub(crate) headers: Vec<(String, Spliced)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<Spliced>,
    /// A body that is no text, in place of the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<Content>,
    pub(crate) account: String,
    pub(crate) mode: String,
    /// The base URL that the request was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<String>,
    /// The mark of the credential that the account had, where it must not be another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) credential: Option<String>,
    /// Whose own credential it goes out with, where each principal has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) principal: Option<String>,
    /// Within what the key names one request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<KeyScope>,
    /// `None`: by the body's kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content_type: Option<String>,
    /// The largest answer that is read, in bytes.
    pub(crate) cap: u64,
    #[serde(deserialize_with = "policy::pinned")]
    pub(crate) policy: Arc<Policy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lookup: Option<LookupPlan>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) conflict: Option<ConflictPlan>,
}

/// The same request, to go out with a principal's own credential, which has this mark; beside that of what goes along.
///
/// # Errors
/// It is no request of an HTTP method.
pub fn owned(intent: Intent, principal: &str, mark: &str) -> Result<Intent, String> {
    let mut http = HttpIntent::decode(&intent.body)?;
    http.principal = Some(principal.to_owned());
    http.credential = Some(with_also(mark.to_owned(), http.credential.as_deref()));
    let body = serde_json::to_vec(&http).map_err(|e| e.to_string())?;
    Ok(Intent { body, ..intent })
}

impl HttpIntent {
    /// Reads a recorded request.
    ///
    /// # Errors
    /// It was not recorded by this version or an earlier one.
    pub fn decode(bytes: &[u8]) -> Result<HttpIntent, String> {
        let intent: HttpIntent = serde_json::from_slice(bytes)
            .map_err(|_| "the recorded request can't be read by this version of Counterfoil".to_owned())?;
        if ![VERSION, VERSION_OF_MORE, VERSION_OF_STILL_MORE].contains(&intent.v) {
            return Err("the recorded request was made by a newer version of Counterfoil".into());
        }
        Ok(intent)
    }

    /// The same request at the base URL `to`, where it is recorded at `from`.
    pub(crate) fn moved(mut self, from: &str, to: &str) -> HttpIntent {
        self.url.replace_start(from, to);
        if let Some(plan) = &mut self.lookup {
            plan.replace_start(from, to);
        }
        if let Some(plan) = &mut self.conflict {
            plan.before.replace_start(from, to);
        }
        self
    }

    /// Verb and URL, for people; a stand-in where the key goes.
    #[must_use]
    pub fn shown(&self) -> String {
        format!("{} {}", self.method, self.url.shown())
    }

    /// The HTTP request, without the secret.
    ///
    /// # Errors
    /// It can't be serialised; nothing was sent.
    pub fn to_http(&self, key: Option<&EffectKey>) -> Result<http::Request<bytes::Bytes>, String> {
        let with = |s: &Spliced| key.map_or_else(|| s.shown(), |k| s.with(k));
        let (body, own_type) = match (&self.content, &self.body) {
            (Some(content), _) => content.write(key).map(|(body, kind)| (Some(body), kind))?,
            (None, body) => (body.as_ref().map(|b| with(b).into_bytes()), None),
        };
        let mut request = http::Request::builder().method(self.method.as_str()).uri(with(&self.url));
        for (name, value) in &self.headers {
            request = request.header(name.as_str(), with(value));
        }
        if let Some(body) = &body {
            // The body kinds differ in their first character: only JSON objects begin with a brace.
            let json = body.starts_with(b"{");
            let usual = if json { "application/json" } else { "application/x-www-form-urlencoded" };
            let kind = own_type.as_deref().or(self.content_type.as_deref()).unwrap_or(usual);
            request = request.header(http::header::CONTENT_TYPE, kind);
        }
        let mut request = request
            .body(bytes::Bytes::from(body.unwrap_or_default()))
            .map_err(|_| "the recorded request can't be written as HTTP".to_owned())?;
        ordinary_headers(request.headers_mut());
        Ok(request)
    }
}

/// A question under the same static headers and account.
pub(crate) fn ask(
    question: &Question,
    headers: &[(String, Spliced)],
) -> Result<http::Request<bytes::Bytes>, String> {
    let mut request = get(&question.url, headers)?;
    if let Some(body) = &question.body {
        *request.method_mut() = http::Method::POST;
        *request.body_mut() = body.clone().into();
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(http::header::CONTENT_TYPE, json);
    }
    Ok(request)
}

/// A plain GET of a URL under the same static headers and account.
pub(crate) fn get(url: &str, headers: &[(String, Spliced)]) -> Result<http::Request<bytes::Bytes>, String> {
    let mut request = http::Request::builder().method(http::Method::GET).uri(url);
    for (name, value) in headers.iter().filter(|(_, v)| !v.has_key()) {
        request = request.header(name.as_str(), value.shown());
    }
    let mut request =
        request.body(bytes::Bytes::new()).map_err(|_| "the look-up can't be written as HTTP".to_owned())?;
    ordinary_headers(request.headers_mut());
    Ok(request)
}

fn ordinary_headers(headers: &mut http::HeaderMap) {
    use http::header::{ACCEPT, ACCEPT_ENCODING, USER_AGENT};
    let mut set = |name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    set(ACCEPT, "application/json, */*;q=0.1");
    set(ACCEPT_ENCODING, "identity");
    set(USER_AGENT, concat!("counterfoil/", env!("CARGO_PKG_VERSION")));
}

/// A whole answer, or nothing.
pub(crate) fn answered(seen: Observation) -> Result<Answer, String> {
    match seen {
        Observation::Answer(a) => Ok(a),
        Observation::NotSent(why) => Err(format!("not sent: {why}")),
        Observation::ConnectionLost(why) | Observation::Torn(why) => Err(format!("no whole answer: {why}")),
        Observation::Timeout => Err("no answer within the time allowed".into()),
        Observation::TooLarge(cap) => Err(format!("the answer is larger than {cap} bytes")),
    }
}
