//! From arguments to the exact request, and to the intent that pins it.

mod apart;
mod listing;
mod path;
mod plans;
mod recorded;

pub use listing::{Borne, Listed, Listing};
pub use recorded::{HttpIntent, owned};
pub(crate) use recorded::{answered, ask, get};

use crate::content::{self, Content};
use crate::encode::{self, Level, Lists, Node, Pairs, percent};
use crate::error::BadArguments;
use crate::lookup::LookupPlan;
use crate::mail;
use crate::method::{Marker, Method, MethodEffect, Place};
use crate::policy::Carrier;
use crate::raw::{BodyKind, Style};
use crate::template::{Piece, Spliced, Template};
use http::HeaderValue;
use ledger::{Intent, Recovery, Strategy};
use recorded::{VERSION, VERSION_OF_MORE, VERSION_OF_STILL_MORE};
use serde_json::value::RawValue;
use std::sync::Arc;

/// The longest URL that is sent, in bytes.
pub(crate) const MAX_URL: usize = 16 << 10;
/// The name of the one effect of an HTTP method.
const EFFECT: &str = "request";

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
        if http.lookup.as_ref().is_some_and(LookupPlan::is_new) {
            http.v = http.v.max(VERSION_OF_MORE);
        }
        if http.lookup.as_ref().is_some_and(|plan| plan.graphql.is_some()) {
            http.v = http.v.max(VERSION_OF_STILL_MORE);
        }
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
        self.query.iter().for_each(|(name, value)| query.text(name, value));
        let mut apart = apart::Apart::new(self);
        let mut cookies: Vec<String> = Vec::new();
        let mut headers: Vec<(String, Spliced)> = self
            .home
            .headers
            .iter()
            .chain(&self.headers)
            .map(|(n, v)| (n.clone(), Spliced::text(v)))
            .collect();
        let mut fields = encode::Body::default();
        let mut document = None;
        for (path, raw) in &self.fields {
            fields.insert(path, Node::Raw(raw.clone()))?;
        }
        for (name, raw) in args {
            if self.is_in_marker(name) {
                continue;
            }
            match self.place(name)? {
                Place::Path => {}
                Place::Query(to) => {
                    let before = query.written.len();
                    query.styled(&to, raw, self.style(name))?;
                    apart.stays_in_query(name, &to, &query.written[before..])?;
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
                Place::Cookie(to) => {
                    let text = match self.style(name) {
                        Some(style) => encode::joined(raw, name, style, percent)?,
                        None => encode::scalar(raw, name, "cookie")?.map(|t| percent(&t)),
                    };
                    cookies.extend(text.map(|t| format!("{to}={t}")));
                }
                Place::Body(path) => {
                    apart.stays_in_body(name, &path, raw)?;
                    let node = match self.style(name) {
                        Some(style) => Node::Styled(raw.clone(), style),
                        None => Node::Raw(raw.clone()),
                    };
                    fields.insert(&path, node)?;
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
                Carrier::Body(path) => fields.insert(path, Node::Key)?,
                Carrier::Query(name) => query.key(name),
                // A method carries a variable as a field of its body, and a directive stands in its document.
                Carrier::Variable(_) | Carrier::Directive { .. } => {}
            }
        }
        match &self.marker {
            Some(Marker::Field(path)) => fields.insert(path, Node::Key)?,
            Some(Marker::Query(name)) => query.key(name),
            Some(Marker::Text(path, template)) => {
                fields.insert(path, Node::Text(marked(template, args)?))?;
            }
            Some(Marker::MessageId(_)) | None => {}
        }
        if let Some(unique) = &self.unique {
            fields.insert(&unique.field, Node::Key)?;
        }
        let fields = fields.into_fields();
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
        self.home.open()?;
        if !cookies.is_empty() {
            headers.push(("Cookie".into(), Spliced::text(cookies.join("; "))));
        }
        let (content, file_type) = self.content_of(document, &fields)?;
        Ok(HttpIntent {
            v: match &content {
                Some(content) if content.is_new() => VERSION_OF_STILL_MORE,
                Some(_) => VERSION_OF_MORE,
                None if self.policy.is_new() => VERSION_OF_MORE,
                None => VERSION,
            },
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
            content,
            // What such a body is can't be told by its first character.
            content_type: match (&self.content_type, self.is_document(), self.body) {
                (_, _, BodyKind::Binary) => file_type,
                (None, _, BodyKind::Mail) => Some(mail::TYPE.into()),
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

    /// Whether an argument is taken up by the marker's text, so that it goes nowhere else. A variable of a document's own is
    /// filled all the same, if the text does not stand there: without it the document would be refused.
    fn is_in_marker(&self, name: &str) -> bool {
        let Some(Marker::Text(field, text)) = &self.marker else { return false };
        if !text.args().any(|a| a == [name]) {
            return false;
        }
        let declared = self.graphql.is_some().then(|| self.place(name).ok()).flatten();
        match declared {
            Some(Place::Body(path)) => field.starts_with(&path),
            Some(_) => false,
            None => true,
        }
    }

    fn mail_of(&self, fields: &[(String, Node)]) -> Result<Spliced, BadArguments> {
        let mut arguments = Vec::new();
        for (name, node) in fields {
            match node {
                Node::Raw(raw) if mail::ARGUMENTS.contains(&name.as_str()) => {
                    arguments.push((name.clone(), &**raw));
                }
                _ => return Err(BadArguments::new(format!("a mail has no `{name}`"))),
            }
        }
        let domain = match &self.marker {
            Some(Marker::MessageId(domain)) => Some(domain.as_str()),
            _ => None,
        };
        mail::write(&arguments, domain)
    }

    /// A body that is no text, and what a file's bytes are.
    fn content_of(
        &self,
        document: Option<&RawValue>,
        fields: &[(String, Node)],
    ) -> Result<(Option<Content>, Option<String>), BadArguments> {
        match (self.body, document) {
            (BodyKind::Multipart, _) => {
                Ok((Some(content::parts(fields, &self.part_types, &self.part_headers)?), None))
            }
            (BodyKind::Binary, Some(raw)) => {
                let Some(file) = content::file(raw, "body")? else { return Ok((None, None)) };
                let said = self.content_type.clone().or(file.kind);
                let kind = said.unwrap_or_else(|| content::BYTES.to_owned());
                Ok((Some(Content::Bytes(file.base64)), Some(kind)))
            }
            _ => Ok((None, None)),
        }
    }

    fn body_of(&self, fields: &[(String, Node)]) -> Result<Option<Spliced>, BadArguments> {
        Ok(match self.body {
            BodyKind::None | BodyKind::Text | BodyKind::Multipart | BodyKind::Binary => None,
            BodyKind::Mail => Some(self.mail_of(fields)?),
            BodyKind::Json => Some(match &self.graphql {
                Some(document) => document.body(fields),
                None => {
                    let mut out = Spliced::default();
                    encode::write_json(fields, &mut out);
                    out
                }
            }),
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
            BodyKind::Binary => None,
            _ => Some(Spliced::text(raw.get())),
        })
    }

    /// Where an argument goes: as declared, else into the path that names it, else by the verb.
    pub(crate) fn place(&self, name: &str) -> Result<Place, BadArguments> {
        if let Some((_, place)) = self.places.iter().find(|(n, _)| n == name) {
            return Ok(place.clone());
        }
        if self.path.args().any(|a| a == [name]) {
            return Ok(Place::Path);
        }
        if let Some(document) = &self.graphql {
            return document.default_place(name).ok_or_else(|| {
                BadArguments::new(format!(
                    "there is no argument `{name}`: the document declares no such variable"
                ))
            });
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

/// The marker's text; what was not given is empty in it.
fn marked(template: &Template, args: &Args) -> Result<Spliced, BadArguments> {
    let mut out = Spliced::default();
    for piece in &template.0 {
        match piece {
            Piece::Text(t) => out.push_str(t),
            Piece::Key => out.push_key(),
            Piece::Arg(path) => out.push_str(&argument(args, path)?.unwrap_or_default()),
        }
    }
    Ok(out)
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

pub(crate) fn long_url() -> BadArguments {
    BadArguments::new("the arguments make the URL longer than 16 KiB")
}

fn check_url(url: &Spliced) -> Result<(), BadArguments> {
    let whole = url.shown().replace("{key}", "0");
    if whole.len() > MAX_URL {
        return Err(long_url());
    }
    whole
        .parse::<http::Uri>()
        .map(drop)
        .map_err(|_| BadArguments::new("the arguments do not make a valid URL"))
}
