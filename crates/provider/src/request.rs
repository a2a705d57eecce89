//! From arguments to the exact request, and to the intent that pins it.

mod listing;

pub use listing::{Borne, Listed, Listing};

use crate::encode::{self, Level, Lists, Node, Pairs, percent};
use crate::error::BadArguments;
use crate::judge::{Answer, Observation};
use crate::lookup::{ConflictPlan, LookupPlan};
use crate::method::{Marker, Method, MethodEffect, Place};
use crate::policy::{self, Carrier, KeyScope, Policy};
use crate::raw::{BodyKind, Style};
use crate::template::{Piece, Spliced, Template};
use http::{HeaderName, HeaderValue};
use ledger::{EffectKey, Intent, Recovery, Strategy};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;

/// The version of [`HttpIntent`]'s form.
const VERSION: u8 = 1;
/// The longest URL that is sent, in bytes.
const MAX_URL: usize = 16 << 10;
/// The name of the one effect of an HTTP method.
const EFFECT: &str = "request";

/// The recorded request: an intent's body. No secret is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpIntent {
    v: u8,
    pub(crate) method: String,
    pub(crate) url: Spliced,
    pub(crate) headers: Vec<(String, Spliced)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<Spliced>,
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

/// The same request, to go out with a principal's own credential, which has this mark.
///
/// # Errors
/// It is no request of an HTTP method.
pub fn owned(intent: Intent, principal: &str, mark: &str) -> Result<Intent, String> {
    let mut http = HttpIntent::decode(&intent.body)?;
    http.principal = Some(principal.to_owned());
    http.credential = Some(mark.to_owned());
    let body = serde_json::to_vec(&http).map_err(|e| e.to_string())?;
    Ok(Intent { body, ..intent })
}

type Args = Vec<(String, Box<RawValue>)>;

impl Method {
    /// The intent of one call: the exact request, everything pinned but the effect key and the secret.
    /// `args` is the text of a JSON object.
    ///
    /// # Errors
    /// Arguments from which no request can be built.
    pub fn intent(&self, args: &str, recovery: &Recovery) -> Result<Intent, BadArguments> {
        let args = encode::arguments(args)?;
        let mut http = self.request(&args)?;
        let gone_is_done = recovery.strategy == Strategy::Natural && self.verb == http::Method::DELETE;
        if http.policy.gone_is_done != gone_is_done {
            Arc::make_mut(&mut http.policy).gone_is_done = gone_is_done;
        }
        http.lookup = self.lookup_plan(&args)?;
        http.conflict = self.conflict_plan(&args)?;
        let summary = format!("{} {}", self.verb, http.url.shown_until('?'));
        let body = serde_json::to_vec(&http).map_err(|e| BadArguments::new(e.to_string()))?;
        Ok(Intent {
            name: EFFECT.into(),
            discriminator: String::new(),
            recovery: recovery.clone(),
            summary,
            body,
        })
    }

    /// The request of one call of a method that only reads.
    ///
    /// # Errors
    /// Arguments from which no request can be built, or a method that changes something.
    pub fn read_request(&self, args: &str) -> Result<HttpIntent, BadArguments> {
        if self.effect != MethodEffect::Read {
            return Err(BadArguments::new(format!(
                "{} changes something; it goes through the ledger",
                self.id
            )));
        }
        self.request(&encode::arguments(args)?)
    }

    fn request(&self, args: &Args) -> Result<HttpIntent, BadArguments> {
        let mut url = Spliced::text(&*self.home.base);
        url.push(&self.path_of(&self.path, args)?);
        let mut query = Pairs::new(Lists::Repeat);
        let mut headers: Vec<(String, Spliced)> = self
            .home
            .headers
            .iter()
            .chain(&self.headers)
            .map(|(n, v)| (n.clone(), Spliced::text(v)))
            .collect();
        let mut fields: Vec<(String, Node)> = Vec::new();
        let mut document = None;
        for (name, raw) in args {
            match self.place(name)? {
                Place::Path => {}
                Place::Query(to) if self.fills_query(&to) => {
                    return Err(BadArguments::new(format!(
                        "the query parameter `{to}` is filled by the gateway; leave `{name}` out"
                    )));
                }
                Place::Query(to) => {
                    let style = self.style(name);
                    if style == Some(Style::Members)
                        && let Level::Object(members) = encode::level(raw, name)?
                        && let Some((member, _)) = members.iter().find(|(member, _)| self.fills_query(member))
                    {
                        return Err(BadArguments::new(format!(
                            "the query parameter `{member}` is filled by the gateway; leave it out of `{name}`"
                        )));
                    }
                    query.styled(&to, raw, style)?;
                }
                Place::Header(to) => {
                    let text = match self.style(name) {
                        Some(style) => encode::joined(raw, name, style, str::to_owned)?,
                        None => encode::scalar(raw, name, "header")?,
                    };
                    if let Some(text) = text {
                        HeaderValue::from_str(&text).ok().filter(|_| text.is_ascii()).ok_or_else(|| {
                            BadArguments::new(format!(
                                "argument `{name}` goes into a header and may hold visible ASCII only"
                            ))
                        })?;
                        headers.push((to, Spliced::text(text)));
                    }
                }
                Place::Body(path) => {
                    let node = match self.style(name) {
                        Some(style) => Node::Styled(raw.clone(), style),
                        None => Node::Raw(raw.clone()),
                    };
                    encode::insert(&mut fields, &path, node)?;
                }
                Place::Document => document = Some(&**raw),
            }
        }
        if let Some((keys, _)) = &self.keys {
            match &keys.carrier {
                Carrier::Header(name) => {
                    let quote = if keys.quote { "\"" } else { "" };
                    let mut value = Spliced::text(quote);
                    value.push_key();
                    value.push_str(quote);
                    headers.push((name.clone(), value));
                }
                Carrier::Body(path) => encode::insert(&mut fields, path, Node::Key)?,
                Carrier::Query(name) => query.key(name),
            }
        }
        match &self.marker {
            Some(Marker::Field(path)) => encode::insert(&mut fields, path, Node::Key)?,
            Some(Marker::Query(name)) => query.key(name),
            None => {}
        }
        if let Some(unique) = &self.unique {
            encode::insert(&mut fields, &unique.field, Node::Key)?;
        }
        if let (true, Some((beside, _))) = (self.is_document(), fields.first()) {
            return Err(BadArguments::new(format!(
                "there is no argument `{beside}`: the body is one argument by itself"
            )));
        }
        if !query.is_empty() {
            url.push_str("?");
            url.push(&query.out);
        }
        check_url(&url)?;
        Ok(HttpIntent {
            v: VERSION,
            method: self.verb.to_string(),
            url,
            headers,
            body: if self.is_document() { self.document_of(document)? } else { self.body_of(&fields)? },
            account: self.home.account.clone(),
            mode: self.home.mode.as_str().into(),
            base: Some(self.home.base.clone()),
            credential: self.home.mark.get(),
            principal: None,
            scope: self.key_scope(),
            // What such a body is can't be told by its first character.
            content_type: match (&self.content_type, self.is_document(), self.body) {
                (None, true, BodyKind::Text) => Some("text/plain; charset=utf-8".into()),
                (None, true, _) => Some("application/json".into()),
                (own, ..) => own.clone(),
            },
            cap: self.max_response,
            policy: self.policy.clone(),
            lookup: None,
            conflict: None,
        })
    }

    /// Whether the effect key goes into this query parameter. A second one of the name might be the one that counts.
    fn fills_query(&self, name: &str) -> bool {
        matches!(&self.keys, Some((keys, _)) if matches!(&keys.carrier, Carrier::Query(key) if key == name))
            || matches!(&self.marker, Some(Marker::Query(marker)) if marker == name)
    }

    fn body_of(&self, fields: &[(String, Node)]) -> Result<Option<Spliced>, BadArguments> {
        Ok(match self.body {
            BodyKind::None | BodyKind::Text => None,
            BodyKind::Json => {
                let mut out = Spliced::default();
                encode::write_json(fields, &mut out);
                Some(out)
            }
            BodyKind::Form => {
                let mut pairs = Pairs::new(Lists::Index);
                pairs.fields("", fields)?;
                Some(pairs.out)
            }
        })
    }

    fn style(&self, name: &str) -> Option<Style> {
        self.styles.iter().find(|(n, _)| n == name).map(|(_, s)| *s)
    }

    /// Whether one argument is the whole body.
    fn is_document(&self) -> bool {
        self.places.iter().any(|(_, p)| *p == Place::Document)
    }

    fn document_of(&self, document: Option<&RawValue>) -> Result<Option<Spliced>, BadArguments> {
        let Some(raw) = document else { return Ok(None) };
        Ok(match self.body {
            BodyKind::Text => encode::scalar(raw, "body", "body")?.map(Spliced::text),
            _ => Some(Spliced::text(raw.get())),
        })
    }

    /// Where an argument goes: as declared, else into the path that names it, else by the verb.
    fn place(&self, name: &str) -> Result<Place, BadArguments> {
        if let Some((_, place)) = self.places.iter().find(|(n, _)| n == name) {
            return Ok(place.clone());
        }
        if self.path.args().any(|a| a == [name]) {
            return Ok(Place::Path);
        }
        Ok(match self.body {
            BodyKind::None
                if self.verb == http::Method::GET
                    || self.verb == http::Method::HEAD
                    || self.verb == http::Method::DELETE =>
            {
                Place::Query(name.to_owned())
            }
            BodyKind::None => {
                return Err(BadArguments::new(format!(
                    "there is no argument `{name}`: this request has no body"
                )));
            }
            _ => Place::Body(vec![name.to_owned()]),
        })
    }

    /// A path with its arguments in place. Each stays inside its segment, and no segment may climb.
    fn path_of(&self, template: &Template, args: &Args) -> Result<Spliced, BadArguments> {
        let mut out = Spliced::default();
        for piece in &template.0 {
            match piece {
                Piece::Text(t) => out.push_str(t),
                Piece::Key => out.push_key(),
                Piece::Arg(path) => {
                    let name = path.join(".");
                    let own = match path.as_slice() {
                        [name] => args.iter().find(|(n, _)| n == name).zip(self.style(name)),
                        _ => None,
                    };
                    if let Some(((_, raw), style)) = own {
                        out.push_str(&segment(raw, &name, style)?);
                        continue;
                    }
                    let text = argument(args, path)?.filter(|t| !t.is_empty()).ok_or_else(|| {
                        BadArguments::new(format!("argument `{name}` is part of the URL and must be given"))
                    })?;
                    if text.chars().any(|c| c.is_control() || c == '/' || c == '\\') {
                        return Err(BadArguments::new(format!(
                            "argument `{name}` is part of the URL and may have no slash and no control character"
                        )));
                    }
                    out.push_str(&percent(&text));
                }
            }
        }
        if out.shown().split('/').any(|s| s == "." || s == "..") {
            return Err(BadArguments::new("an argument would make `.` or `..` a part of the URL's path"));
        }
        Ok(out)
    }

    fn lookup_plan(&self, args: &Args) -> Result<Option<LookupPlan>, BadArguments> {
        let Some(look) = &self.lookup else { return Ok(None) };
        if self.lookup_needs_marker() {
            return Ok(None);
        }
        let mut url = Spliced::text(&*self.home.base);
        url.push(&self.path_of(&look.path, args)?);
        let mut query = Pairs::new(Lists::Repeat);
        for (name, template) in &look.query {
            if let Some(value) = filled(template, args, percent)? {
                query.encoded(name, &value);
            }
        }
        if !query.is_empty() {
            url.push_str("?");
            url.push(&query.out);
        }
        check_url(&url)?;
        let (mut ours, mut also) = (Vec::new(), Vec::new());
        for (pointer, template) in &look.matches {
            if let Some(value) = filled(template, args, str::to_owned)? {
                if template.has_key() { &mut ours } else { &mut also }.push((pointer.clone(), value));
            }
        }
        let next = look.next.clone();
        Ok(Some(LookupPlan { url, items: look.items.clone(), ours, also, more: look.more.clone(), next }))
    }

    fn conflict_plan(&self, args: &Args) -> Result<Option<ConflictPlan>, BadArguments> {
        if self.policy.conflict.is_empty() {
            return Ok(None);
        }
        let mut before = Spliced::text(&*self.home.base);
        let mut after = String::new();
        match self.unique.as_ref().and_then(|u| u.fetch.as_ref()) {
            Some((head, tail)) => {
                before.push_str(head);
                after.push_str(tail);
            }
            None => {
                before.push(&self.path_of(&self.path, args)?);
                before.push_str("/");
            }
        }
        let prove = match (&self.unique, &self.keys) {
            (Some(u), _) => Some(pointer(&u.field)),
            (None, Some((keys, _))) => keys.lookup.as_ref().map(|l| l.matches.clone()),
            (None, None) => None,
        };
        Ok(Some(ConflictPlan { before, after, prove }))
    }
}

/// A list or an object as a part of a path.
fn segment(raw: &RawValue, name: &str, style: Style) -> Result<String, BadArguments> {
    let missing = || BadArguments::new(format!("argument `{name}` is part of the URL and must be given"));
    let bare =
        encode::joined(raw, name, style, str::to_owned)?.filter(|t| !t.is_empty()).ok_or_else(missing)?;
    if bare.chars().any(|c| c.is_control() || c == '/' || c == '\\') {
        return Err(BadArguments::new(format!(
            "argument `{name}` is part of the URL and may have no slash and no control character"
        )));
    }
    encode::joined(raw, name, style, percent)?.ok_or_else(missing)
}

fn pointer(path: &[String]) -> String {
    path.iter().map(|p| format!("/{}", p.replace('~', "~0").replace('/', "~1"))).collect()
}

/// An argument by its path, as text; `None` if it is absent or null.
fn argument(args: &Args, path: &[String]) -> Result<Option<String>, BadArguments> {
    let Some((first, rest)) = path.split_first() else { return Ok(None) };
    let Some((_, raw)) = args.iter().find(|(n, _)| n == first) else { return Ok(None) };
    if rest.is_empty() {
        return encode::scalar(raw, first, "URL or look-up");
    }
    match encode::level(raw, first)? {
        Level::Object(fields) => argument(&fields, rest),
        _ => Ok(None),
    }
}

/// A look-up's value; `None` if it names an argument that was not given.
fn filled(
    template: &Template,
    args: &Args,
    write: impl Fn(&str) -> String,
) -> Result<Option<Spliced>, BadArguments> {
    let mut out = Spliced::default();
    for piece in &template.0 {
        match piece {
            Piece::Text(t) => out.push_str(&write(t)),
            Piece::Key => out.push_key(),
            Piece::Arg(path) => match argument(args, path)? {
                Some(text) => out.push_str(&write(&text)),
                None => return Ok(None),
            },
        }
    }
    Ok(Some(out))
}

fn check_url(url: &Spliced) -> Result<(), BadArguments> {
    let whole = url.shown().replace("{key}", "0");
    if whole.len() > MAX_URL {
        return Err(BadArguments::new("the arguments make the URL longer than 16 KiB"));
    }
    whole
        .parse::<http::Uri>()
        .map(drop)
        .map_err(|_| BadArguments::new("the arguments do not make a valid URL"))
}

impl HttpIntent {
    /// Reads a recorded request.
    ///
    /// # Errors
    /// It was not recorded by this version or an earlier one.
    pub fn decode(bytes: &[u8]) -> Result<HttpIntent, String> {
        let intent: HttpIntent = serde_json::from_slice(bytes)
            .map_err(|_| "the recorded request can't be read by this version of Counterfoil".to_owned())?;
        if intent.v != VERSION {
            return Err("the recorded request was made by a newer version of Counterfoil".into());
        }
        Ok(intent)
    }

    /// The same request at the base URL `to`, where it is recorded at `from`.
    pub(crate) fn moved(mut self, from: &str, to: &str) -> HttpIntent {
        self.url.replace_start(from, to);
        if let Some(plan) = &mut self.lookup {
            plan.url.replace_start(from, to);
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
        let body = self.body.as_ref().map(&with);
        let mut request = http::Request::builder().method(self.method.as_str()).uri(with(&self.url));
        for (name, value) in &self.headers {
            request = request.header(name.as_str(), with(value));
        }
        if body.is_some() {
            // The body kinds differ in their first character: only JSON objects begin with a brace.
            let json = body.as_ref().is_some_and(|b| b.starts_with('{'));
            let kind = if json { "application/json" } else { "application/x-www-form-urlencoded" };
            let kind = self.content_type.as_deref().unwrap_or(kind);
            request = request.header(http::header::CONTENT_TYPE, kind);
        }
        let mut request = request
            .body(bytes::Bytes::from(body.unwrap_or_default()))
            .map_err(|_| "the recorded request can't be written as HTTP".to_owned())?;
        ordinary_headers(request.headers_mut());
        Ok(request)
    }
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
