//! `lookup` and `marker` of a manifest, checked.

use super::parts::{Wrong, path_text, spans, wrong};
use crate::graphql::Document;
use crate::lookup::{Absent, DEFAULT_MARGIN, Kept, More, Next, SinceForm};
use crate::method::{Item, Lookup, Marker, Match, Window};
use crate::parse::Table;
use crate::policy::KeyLookup;
use crate::raw::{BodyKind, RawAbsence, RawLookup, RawMarker, RawMatch, RawMore, RawNext, Style};
use crate::template::{Piece, Template};
use crate::text::{check_pointer, field_path};
use ledger::Millis;

/// The most pages of one look-up.
const MAX_PAGES: u8 = 20;
/// How much earlier than its intent an effect may be looked for.
const MARGINS: [Millis; 2] = [Millis::secs(60), Millis::secs(7 * 86_400)];

fn bad(what: impl Into<String>) -> Wrong {
    ("lookup", what.into())
}

pub(super) fn lookup(
    raw: &RawLookup,
    own: &Template,
    verb: &http::Method,
    styles: &[(String, Style)],
) -> Result<Lookup, Wrong> {
    let asks = raw.graphql.as_deref().map(|text| asks(text, raw)).transpose()?;
    let path = match &raw.http {
        // The holes of a look-up are spelled out; those of a method's path are arguments.
        Some(text) if asks.is_some() => at("POST", text)?,
        Some(text) => get(text)?,
        None if verb == http::Method::POST => own.clone(),
        None if asks.is_some() => {
            return wrong("lookup", "`lookup` needs http = \"POST /…\", where its query is sent");
        }
        None => return wrong("lookup", "`lookup` needs http = \"GET /…\""),
    };
    let item = raw.fetch.as_ref().map(|f| item(&f.http, &f.at, &f.query)).transpose()?;
    for (name, _) in styles.iter().filter(|(_, style)| *style == Style::Segments) {
        spans(&path, name).map_err(bad)?;
        if item.iter().any(|i| i.before.args().chain(i.after.args()).any(|a| a == [name.as_str()])) {
            return wrong(
                "lookup",
                format!("fetch: `{name}` spans segments, so it can't stand beside {{item}}"),
            );
        }
    }
    let (query, window) = query(raw)?;
    let matches = matches(&raw.matches)?;
    let more = raw.more.as_ref().and_then(RawMore::at);
    let pointers = raw.items.iter().chain(more).chain(raw.empty.0.iter().map(|(at, _)| at));
    for pointer in pointers {
        check_pointer(pointer).map_err(bad)?;
    }
    if raw.items.is_none() {
        let of_lists = [
            ("more", raw.more.as_ref().is_some_and(|more| !matches!(more, RawMore::At(_, None)))),
            ("next", raw.next.is_some()),
            ("pages", raw.pages.is_some()),
            ("empty", !raw.empty.0.is_empty()),
            ("fetch", raw.fetch.is_some()),
        ];
        if let Some((field, _)) = of_lists.iter().find(|(_, given)| *given) {
            return wrong("lookup", format!("`{field}` is about a list, and there is no `items`"));
        }
    }
    let next = raw.next.as_ref().map(next).transpose()?;
    let variables = !raw.variables.0.is_empty() || raw.next.as_ref().is_some_and(|n| n.variable.is_some());
    if asks.is_none() && variables {
        return wrong("lookup", "variables are those of a query: `graphql`");
    }
    if raw.pages.is_some() && next.is_none() {
        return wrong("lookup", "`pages` needs `next`, which says how the next one is found");
    }
    if let Some(pages) = raw.pages.filter(|p| !(1..=MAX_PAGES).contains(p)) {
        return wrong("lookup", format!("pages = {pages} must be 1 to {MAX_PAGES}"));
    }
    if raw.more == Some(RawMore::Never) && next.is_some() {
        return wrong(
            "lookup",
            "more = false says that the list has no further pages, and `next` how to get to them",
        );
    }
    if raw.more.is_some() && matches!(next, Some(Next::Link(_))) {
        return wrong("lookup", "the `Link` header tells of further pages; leave `more` out");
    }
    Ok(Lookup {
        path,
        graphql: asks,
        query,
        window,
        items: raw.items.clone(),
        matches,
        // A cursor tells of further pages by itself.
        more: match (more, &next) {
            (Some(more), _) => more.clone(),
            (None, Some(Next::Cursor(at, _))) => at.clone(),
            (None, _) => More::UNSAID.into(),
        },
        undivided: matches!(raw.more, Some(RawMore::Never)),
        absent: match &raw.more {
            Some(RawMore::At(_, Some(absent))) => Some(*absent),
            Some(RawMore::At(at, None)) if at == More::UNSAID && raw.next.is_none() => Some(Absent::Unsaid),
            _ => None,
        },
        next,
        pages: raw.pages,
        empty: raw.empty.0.clone(),
        item,
        absence_is_doubt: raw.not_found == Some(RawAbsence::InDoubt),
        kept: None,
        visibility_lag: raw.visibility_lag.map(|s| s.0),
        processing_bound: raw.processing_bound.map(|s| s.0),
    })
}

/// The look-up of a provider that can be asked by key; `own` is the method's path.
pub(super) fn by_key(by: &KeyLookup, own: &Template) -> Lookup {
    let key = || Template(vec![Piece::Key]);
    let at = |path: &Template| Lookup {
        path: path.clone(),
        graphql: None,
        query: Vec::new(),
        window: None,
        items: None,
        matches: Vec::new(),
        more: More::UNSAID.into(),
        undivided: false,
        absent: None,
        next: None,
        pages: None,
        empty: Vec::new(),
        item: None,
        absence_is_doubt: false,
        kept: None,
        visibility_lag: None,
        processing_bound: None,
    };
    match by {
        KeyLookup::List { query, items, matches } => Lookup {
            query: vec![(query.clone(), key())],
            items: items.clone(),
            matches: vec![(matches.clone(), Match::Equals(key()))],
            ..at(own)
        },
        KeyLookup::Answer { path, status, body } => {
            Lookup { kept: Some(Kept { status: status.clone(), body: body.clone() }), ..at(path) }
        }
    }
}

/// The query of a look-up, and what it is asked with.
type Asks = (String, Vec<(String, Template)>);

/// A query in GraphQL: what a GET would leave to HTTP has to be said by its answer.
fn asks(text: &str, raw: &RawLookup) -> Result<Asks, Wrong> {
    let cursor = raw.next.as_ref().and_then(|n| n.variable.as_deref());
    let mut variables = Vec::new();
    for (name, text) in &raw.variables.0 {
        if cursor == Some(name) {
            return wrong(
                "lookup",
                format!("${name} takes the cursor of a page; leave it out of `variables`"),
            );
        }
        variables.push((name.clone(), value(text)?));
    }
    let given: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
    let document = Document::asks(text, &given, cursor).map_err(bad)?;
    let inside = |at: Option<&String>| at.is_some_and(|at| at.starts_with("/data/"));
    if !inside(raw.items.as_ref()) {
        return wrong(
            "lookup",
            "`graphql` needs `items`, the list in the answer: items = \"/data/orders/nodes\"",
        );
    }
    if !inside(raw.more.as_ref().and_then(RawMore::at)) {
        return wrong(
            "lookup",
            "`graphql` needs `more`, which says whether the list goes on: more = \"/data/orders/pageInfo/hasNextPage\"",
        );
    }
    if matches!(raw.more, Some(RawMore::At(_, Some(_)))) {
        return wrong("lookup", "a query's answer has what the query selects; leave `absent` out of `more`");
    }
    if raw.fetch.is_some() {
        return wrong("lookup", "`fetch` is for a GET; let the query select what `match` compares");
    }
    if raw.next.as_ref().is_some_and(|n| n.variable.is_none()) {
        return wrong(
            "lookup",
            "the next page of a query is asked for by a variable: next = { at = \"/data/orders/pageInfo/endCursor\", variable = \"after\" }",
        );
    }
    Ok((document, variables))
}

fn get(text: &str) -> Result<Template, Wrong> {
    at("GET", text)
}

/// A path of a look-up that goes out with this verb.
fn at(verb: &str, text: &str) -> Result<Template, Wrong> {
    let path = text.strip_prefix(verb).and_then(|rest| rest.strip_prefix(' '));
    let path = path.ok_or_else(|| match verb {
        "GET" => bad(format!("http = {text:?}: a look-up is a GET")),
        _ => bad(format!("http = {text:?}: a GraphQL query goes out with {verb}")),
    })?;
    let path = Template::value(path.trim()).map_err(bad)?;
    match path.0.first() {
        Some(Piece::Text(t)) if t.starts_with('/') && !t.contains(['?', '#']) => {}
        _ => return wrong("lookup", "a look-up's path must begin with a slash and end before any `?`"),
    }
    path_text(&path).map_err(bad)?;
    Ok(path)
}

fn value(text: &str) -> Result<Template, Wrong> {
    Template::value(text).map_err(bad)
}

/// The query's parameters, and the one that says since when.
type Query = (Vec<(String, Template)>, Option<Window>);

fn query(raw: &RawLookup) -> Result<Query, Wrong> {
    let margin = raw.since_margin.map(|s| s.0);
    let mut window: Option<Window> = None;
    let mut query = Vec::new();
    for (name, text) in &raw.query.0 {
        let form = match text.as_str() {
            "{since}" => SinceForm::Rfc3339,
            "{since.unix}" => SinceForm::Unix,
            text if text.contains("{since") => {
                return wrong(
                    "lookup",
                    format!("query {name:?}: {{since}} and {{since.unix}} stand by themselves"),
                );
            }
            text => {
                query.push((name.clone(), value(text)?));
                continue;
            }
        };
        if window.is_some() {
            return wrong("lookup", "only one query parameter can take the moment since when to look");
        }
        window = Some(Window { query: name.clone(), form, margin: margin.unwrap_or(DEFAULT_MARGIN) });
    }
    let [least, most] = MARGINS;
    match margin {
        Some(_) if window.is_none() => {
            wrong("lookup", "`since_margin` needs a query parameter that is {since} or {since.unix}")
        }
        Some(m) if m < least || m > most => wrong("lookup", "`since_margin` must be 1m to 7d"),
        _ => Ok((query, window)),
    }
}

fn matches(raw: &Table<RawMatch>) -> Result<Vec<(String, Match)>, Wrong> {
    let mut out = Vec::new();
    for (pointer, given) in &raw.0 {
        check_pointer(pointer).map_err(bad)?;
        let found = match given {
            RawMatch::Equals(text) => Match::Equals(value(text)?),
            RawMatch::Contains(text) if text.is_empty() => {
                return wrong("lookup", "every text contains the empty one; say what `contains` is to find");
            }
            RawMatch::Contains(text) => Match::Contains(value(text)?),
        };
        let template = found.template();
        if template.has_key() && template.args().next().is_some() {
            return wrong("lookup", "a `match` must hold either {key} or arguments, not both");
        }
        out.push((pointer.clone(), found));
    }
    // A provider that ignores an unknown filter answers with every object it has.
    if !out.iter().any(|(_, m)| m.template().has_key()) {
        return wrong(
            "lookup",
            "`match` must compare something with {key} or {marker}, or any object would count as this effect",
        );
    }
    Ok(out)
}

fn next(raw: &RawNext) -> Result<Next, Wrong> {
    match (&raw.at, raw.query.as_ref().xor(raw.variable.as_ref()), &raw.link) {
        (Some(at), Some(name), None) => {
            check_pointer(at).map_err(bad)?;
            Ok(Next::Cursor(at.clone(), name.clone()))
        }
        (None, None, Some(rel))
            if raw.query.is_none()
                && !rel.is_empty()
                && rel.bytes().all(|b| b.is_ascii_graphic() && b != b'"') =>
        {
            Ok(Next::Link(rel.clone()))
        }
        _ => wrong(
            "lookup",
            "`next` needs a cursor's place and parameter, { at = \"/next\", query = \"cursor\" }, or the relation of a `Link` header, { link = \"next\" }",
        ),
    }
}

fn item(http: &str, at: &str, query: &Table<String>) -> Result<Item, Wrong> {
    check_pointer(at).map_err(bad)?;
    let path = http.strip_prefix("GET ").map(str::trim).unwrap_or_default();
    let (before, after) = path.split_once("{item}").ok_or_else(|| {
        bad(format!("fetch: http = {http:?} must be like \"GET /v1/messages/{{item}}\", where {{item}} is what an item names at `at`"))
    })?;
    if !before.ends_with('/') || !(after.is_empty() || after.starts_with('/')) {
        return wrong("lookup", "fetch: {item} is a whole segment of the path");
    }
    let mut fetched = Vec::new();
    for (name, text) in &query.0 {
        fetched.push((name.clone(), value(text)?));
    }
    let after = if after.is_empty() { Template(Vec::new()) } else { get(&format!("GET {after}"))? };
    Ok(Item { before: get(&format!("GET {before}"))?, after, at: at.to_owned(), query: fetched })
}

/// Where the effect key is put so that a look-up finds it.
pub(super) fn marker(raw: RawMarker, body: BodyKind, document: Option<&Document>) -> Result<Marker, Wrong> {
    let bad = |what: String| ("marker", what);
    // Beside a document there are only its variables.
    let field_path = |field: &str| match document {
        Some(document) => document.variable(field.strip_prefix("variables.").unwrap_or(field)),
        None => field_path(field),
    };
    let RawMarker { field, query, text, message_id } = raw;
    if message_id.is_none() && body == BodyKind::Mail {
        return wrong(
            "marker",
            "body = \"mail\" has no fields; write marker = { message_id = \"mail.example.com\" }",
        );
    }
    match (field, query, text, message_id) {
        (Some(field), None, None, None) => Ok(Marker::Field(field_path(&field).map_err(bad)?)),
        (None, Some(query), None, None) => Ok(Marker::Query(query)),
        (Some(field), None, Some(text), None) => {
            let template = Template::value(&text).map_err(bad)?;
            if !template.has_key() {
                return wrong("marker", "the marker's `text` needs {marker}, where the effect key goes");
            }
            if let (Some(_), Some(part)) = (document, template.args().find(|a| a.len() > 1)) {
                return wrong(
                    "marker",
                    format!(
                        "{{args.{}}} is a part of an argument, which is a variable of the document; make it an argument \
                         of its own",
                        part.join(".")
                    ),
                );
            }
            Ok(Marker::Text(field_path(&field).map_err(bad)?, template))
        }
        (None, None, None, Some(domain)) => {
            if body != BodyKind::Mail {
                return wrong("marker", "`message_id` is for body = \"mail\"");
            }
            if !crate::mail::is_domain(&domain) {
                return wrong(
                    "marker",
                    format!("message_id = {domain:?} must be a domain of yours, like \"mail.example.com\""),
                );
            }
            Ok(Marker::MessageId(domain))
        }
        _ => wrong(
            "marker",
            "`marker` needs either `field`, with or without `text`, or `query`, or `message_id` with body = \"mail\"",
        ),
    }
}
