//! The parts of a manifest, each checked by itself.

use crate::method::{Place, Unique};
use crate::parse::Table;
use crate::policy::{Carrier, Keys, Policy, Sign};
use crate::raw::{BodyKind, RawUnique, Style};
use crate::template::{Piece, Template};
use crate::text::{check_pointer, field_path, nearest};
use http::{HeaderName, HeaderValue};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Headers that are set by the transport, by `[auth]` or by the key, and by nothing else.
const RESERVED: [&str; 17] = [
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "authorization",
    "proxy-authorization",
    "proxy-connection",
    "cookie",
    "accept-encoding",
    "user-agent",
];

/// An error of one method's field.
pub(super) type Wrong = (&'static str, String);

pub(super) fn wrong<T>(field: &'static str, what: impl Into<String>) -> Result<T, Wrong> {
    Err((field, what.into()))
}

/// A base URL without its last slash: https, or http on loopback.
pub(super) fn base_url(text: &str) -> Result<String, String> {
    let url = url::Url::parse(text).map_err(|e| format!("base_url {text:?} is not a URL: {e}"))?;
    match url.scheme() {
        "https" => {}
        "http" if credentials::is_loopback(&url) => {}
        "http" => return Err("base_url must be https: only loopback may be reached without it".into()),
        other => return Err(format!("base_url must be https, not {other}")),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("base_url must not hold a credential; use [auth]".into());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("base_url must end before any `?` or `#`".into());
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

pub(super) fn headers(table: &Table<String>) -> Result<Vec<(String, String)>, String> {
    for (name, value) in &table.0 {
        header_name(name)?;
        if value.contains("${") {
            return Err(format!(
                "header {name} names a secret, and headers are recorded; use [auth] kind = \"header\""
            ));
        }
        HeaderValue::from_str(value)
            .map_err(|_| format!("header {name}: its value has characters that no header can carry"))?;
    }
    Ok(table.0.clone())
}

pub(super) fn header_name(name: &str) -> Result<(), String> {
    HeaderName::try_from(name).map_err(|_| format!("{name:?} is not a header's name"))?;
    if RESERVED.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(format!("the header {name} is set by the gateway itself; leave it out"));
    }
    Ok(())
}

/// Whether a header is set by the gateway itself, so that no argument can go there.
#[must_use]
pub fn sets_header(name: &str) -> bool {
    RESERVED.contains(&name.to_ascii_lowercase().as_str())
}

/// Whether a text is a header's name.
#[must_use]
pub fn is_header(name: &str) -> bool {
    HeaderName::try_from(name).is_ok()
}

pub(super) fn verb_and_path(text: &str) -> Result<(http::Method, Template), String> {
    const VERBS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
    let (verb, path) = text
        .split_once(' ')
        .ok_or_else(|| format!("http = {text:?} must be a verb and a path, like \"POST /v1/refunds\""))?;
    if !VERBS.contains(&verb) {
        let hint = nearest(verb, VERBS).map(|v| format!("; did you mean {v}?")).unwrap_or_default();
        return Err(format!("{verb:?} is not one of {}{hint}", VERBS.join(", ")));
    }
    let template = path_template(path.trim())?;
    Ok((http::Method::from_bytes(verb.as_bytes()).map_err(|e| e.to_string())?, template))
}

pub(super) fn path_template(path: &str) -> Result<Template, String> {
    if !path.starts_with('/') {
        return Err(format!("the path {path:?} must begin with a slash"));
    }
    if path.contains(['?', '#']) {
        return Err(
            "the path must end before any `?` or `#`; give query parameters as `params` or `query`".into()
        );
    }
    let template = Template::path(path)?;
    path_text(&template)?;
    if path.split('/').any(|s| s == "." || s == "..") {
        return Err("the path has a `.` or `..` segment".into());
    }
    Ok(template)
}

/// Whether the text of a path can stand in a URL as it is. An encoded dot is a dot to whoever normalises the URL, and
/// might climb out of its place.
pub(super) fn path_text(template: &Template) -> Result<(), String> {
    for piece in &template.0 {
        let Piece::Text(t) = piece else { continue };
        let unfit = |c: &char| !(c.is_ascii_alphanumeric() || "/-._~!$&'()*+,;=:@%".contains(*c));
        if let Some(c) = t.chars().find(unfit) {
            return Err(format!(
                "the path has {c:?}, which a URL's path can't carry as it is; percent-encode it"
            ));
        }
        for after in t.split('%').skip(1) {
            match after.get(..2) {
                Some(dot) if dot.eq_ignore_ascii_case("2e") => {
                    return Err("the path has an encoded dot (%2e); write the dot itself".into());
                }
                Some(code) if code.bytes().all(|b| b.is_ascii_hexdigit()) => {}
                // Else an argument behind it could finish the escape.
                _ => return Err("the path has a % that begins no escape; write %25".into()),
            }
        }
    }
    Ok(())
}

pub(super) fn places(
    params: &Table<String>,
    path: &Template,
    body: BodyKind,
    keys: Option<&Keys>,
) -> Result<Vec<(String, Place)>, Wrong> {
    let mut out = Vec::new();
    for (name, text) in &params.0 {
        let (kind, rest) = text.split_once(':').map_or((text.as_str(), None), |(k, r)| (k, Some(r)));
        let in_path = path.args().any(|a| a == [name.as_str()]);
        let place = match (kind, rest) {
            ("path", None) if in_path => Place::Path,
            ("path", None) => {
                return wrong(
                    "params",
                    format!("`{name}` goes into the path, but the path has no {{{name}}}"),
                );
            }
            _ if in_path => {
                return wrong("params", format!("`{name}` is part of the path; it can't go elsewhere too"));
            }
            ("query", rest) => Place::Query(rest.unwrap_or(name).to_owned()),
            ("header", Some(header)) => {
                header_name(header).map_err(|e| ("params", e))?;
                if matches!(keys, Some(Keys { carrier: Carrier::Header(key), .. }) if key.eq_ignore_ascii_case(header))
                {
                    return wrong("params", format!("the header {header} carries the effect key"));
                }
                Place::Header(header.to_owned())
            }
            ("header", None) => {
                return wrong("params", format!("`{name}` needs its header: \"header:X-Name\""));
            }
            ("cookie", rest) => {
                Place::Cookie(cookie_name(rest.unwrap_or(name)).map_err(|e| ("params", e))?.to_owned())
            }
            ("document", None) if matches!(body, BodyKind::Json | BodyKind::Text | BodyKind::Binary) => {
                Place::Document
            }
            ("document", None) => {
                return wrong(
                    "params",
                    format!(
                        "`{name}` is the whole body, which is for body = \"json\", \"text\" and \"binary\""
                    ),
                );
            }
            ("body", _) if body == BodyKind::None => {
                return wrong("params", format!("`{name}` goes into the body, but the request has none"));
            }
            ("body", rest) => {
                let field = field_path(rest.unwrap_or(name)).map_err(|e| ("params", e))?;
                if body == BodyKind::Multipart && field.len() > 1 {
                    return wrong(
                        "params",
                        format!("`{name}` goes into a part of a form, and parts have no fields"),
                    );
                }
                if matches!(keys, Some(Keys { carrier: Carrier::Body(key), .. }) if *key == field) {
                    return wrong(
                        "params",
                        format!("the body field `{}` carries the effect key", field.join(".")),
                    );
                }
                Place::Body(field)
            }
            _ => {
                return wrong(
                    "params",
                    format!(
                        "`{name}` = {text:?}; write \"path\", \"query\", \"query:name\", \"header:X-Name\", \"cookie\", \"cookie:name\", \"body\", \"body:/a/b\" or \"document\""
                    ),
                );
            }
        };
        out.push((name.clone(), place));
    }
    Ok(out)
}

/// How arguments are written, where their place knows that way.
pub(super) fn styles(
    given: Table<Style>,
    places: &[(String, Place)],
    path: &Template,
    verb: &http::Method,
    body: BodyKind,
) -> Result<Vec<(String, Style)>, Wrong> {
    for (name, style) in &given.0 {
        let in_path = path.args().any(|a| a == [name.as_str()]);
        let place = places.iter().find(|(n, _)| n == name).map(|(_, p)| p);
        let reads = [http::Method::GET, http::Method::HEAD, http::Method::DELETE].contains(verb);
        let (known, whereto): (&[Style], &str) = match place {
            _ if in_path => (&IN_PATH, "the path"),
            Some(Place::Header(_)) => (&IN_ONE, "a header"),
            Some(Place::Cookie(_)) => (&IN_COOKIE, "a cookie"),
            Some(Place::Query(_)) => (&IN_PAIRS, "the query"),
            None if body == BodyKind::None && reads => (&IN_PAIRS, "the query"),
            Some(Place::Body(_)) | None if body == BodyKind::Form => (&IN_FORM, "a form"),
            Some(Place::Body(_)) | None if body == BodyKind::Multipart => (&IN_PARTS, "a form of parts"),
            _ => (&[], "this body"),
        };
        if !known.contains(style) {
            return wrong("styles", format!("`{name}` goes into {whereto}, which does not know that style"));
        }
        if *style == Style::Segments {
            spans(path, name).map_err(|e| ("styles", e))?;
        }
    }
    Ok(given.0)
}

/// Whether an argument that spans segments has a place for them in a path: between slashes, and behind it no other hole, for
/// two neighbours could share out one text in several ways.
pub(super) fn spans(path: &Template, name: &str) -> Result<(), String> {
    let is_it = |p: &Piece| matches!(p, Piece::Arg(path) if path.as_slice() == [name]);
    let Some(at) = path.0.iter().position(is_it) else { return Ok(()) };
    let (before, after) = (path.0[..at].last(), &path.0[at + 1..]);
    let begins = matches!(before, Some(Piece::Text(t)) if t.ends_with('/'));
    let ends = match after {
        [] => true,
        [Piece::Text(t)] => t.starts_with('/'),
        _ => return Err(format!("`{name}` spans segments, so it must be the last hole of its path")),
    };
    if !begins || !ends {
        return Err(format!(
            "`{name}` spans segments, so it must stand between slashes, or at the path's end"
        ));
    }
    Ok(())
}

/// What a path knows.
const IN_PATH: [Style; 4] = [Style::Comma, Style::Pairs, Style::Json, Style::Segments];
/// What a place for one text knows.
const IN_ONE: [Style; 3] = [Style::Comma, Style::Pairs, Style::Json];
/// What a cookie knows.
const IN_COOKIE: [Style; 2] = [Style::Comma, Style::Json];
/// What a query knows.
const IN_PAIRS: [Style; 7] =
    [Style::Comma, Style::Space, Style::Pipe, Style::Members, Style::Repeat, Style::Index, Style::Json];
/// What a form knows.
const IN_FORM: [Style; 6] =
    [Style::Comma, Style::Space, Style::Pipe, Style::Repeat, Style::Index, Style::Json];

/// What a form of parts knows.
const IN_PARTS: [Style; 4] = [Style::Repeat, Style::Index, Style::Json, Style::File];

/// A cookie's name (RFC 6265).
fn cookie_name(name: &str) -> Result<&str, String> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    match name {
        "" => Err("a cookie needs a name: \"cookie:name\"".into()),
        name if name.bytes().all(token) => Ok(name),
        _ => Err(format!("{name:?} is not a cookie's name")),
    }
}

/// What stands in the query of each request: nothing that an argument or the key puts there too.
pub(super) fn fixed_query(
    given: Table<String>,
    places: &[(String, Place)],
    keys: Option<&Keys>,
) -> Result<Vec<(String, String)>, Wrong> {
    for (name, value) in &given.0 {
        if value.contains("${") {
            return wrong("query", format!("`{name}` names a secret, and queries are recorded; use [auth]"));
        }
        if let Some((argument, _)) = places.iter().find(|(_, p)| matches!(p, Place::Query(to) if to == name))
        {
            return wrong(
                "query",
                format!("the query parameter `{name}` is given here, and as the argument `{argument}`"),
            );
        }
        if matches!(keys, Some(Keys { carrier: Carrier::Query(key), .. }) if key == name) {
            return wrong("query", format!("the query parameter `{name}` carries the effect key"));
        }
    }
    Ok(given.0)
}

pub(super) fn default_input(path: &Template, places: &[(String, Place)]) -> Value {
    let mut properties = serde_json::Map::new();
    let mut required = Vec::new();
    for name in path.args().map(|a| a.join(".")) {
        properties.insert(name.clone(), json!({"type": "string", "minLength": 1}));
        required.push(name);
    }
    for (name, _) in places.iter().filter(|(_, p)| *p != Place::Path) {
        properties.insert(name.clone(), json!({}));
    }
    json!({"type": "object", "properties": properties, "required": required})
}

pub(super) fn check_input(input: &Value, path: &Template, places: &[(String, Place)]) -> Result<(), Wrong> {
    if input.get("type").and_then(Value::as_str) != Some("object") {
        return wrong("input", "`input` must be a schema with type = \"object\"");
    }
    let Some(properties) = input.get("properties").and_then(Value::as_object) else { return Ok(()) };
    let named = path.args().map(|a| a.join(".")).chain(places.iter().map(|(n, _)| n.clone()));
    for name in named {
        if !properties.contains_key(&name) {
            let hint = nearest(&name, properties.keys().map(String::as_str))
                .map(|n| format!("; did you mean `{n}`?"))
                .unwrap_or_default();
            return wrong(
                "input",
                format!("`{name}` has a place in the request, but is not a property of `input`{hint}"),
            );
        }
    }
    Ok(())
}

/// Takes a field out of a schema: out of `properties` and `required`, of the objects on the way too.
pub(super) fn hide(schema: &mut Value, field: &[String]) {
    let Some((first, rest)) = field.split_first() else { return };
    if !rest.is_empty() {
        if let Some(inner) = schema.get_mut("properties").and_then(|p| p.get_mut(first)) {
            hide(inner, rest);
        }
        return;
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.shift_remove(first);
    }
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name.as_str() != Some(first));
    }
}

pub(super) fn unique(raw: &RawUnique, policy: &mut Policy) -> Result<Unique, Wrong> {
    let field = field_path(&raw.field).map_err(|e| ("unique", e))?;
    check_pointer(&raw.resource_id).map_err(|e| ("unique", e))?;
    let fetch = raw.fetch.as_deref().map(|text| {
        let bad = || ("unique", format!("fetch = {text:?} must be like \"GET /v1/refunds/{{resource_id}}\""));
        let path = text.strip_prefix("GET ").map(str::trim).ok_or_else(bad)?;
        let (before, after) = path.split_once("{resource_id}").ok_or_else(bad)?;
        if !before.starts_with('/')
            || path_template(&format!("{before}x{after}")).is_err()
            || after.contains('{')
            || before.contains('{')
        {
            return Err(bad());
        }
        Ok((before.to_owned(), after.to_owned()))
    });
    policy.conflict =
        vec![Sign { status: raw.conflict_status.unwrap_or(409), code: raw.conflict_code.clone() }];
    policy.conflict_resource = Some(raw.resource_id.clone());
    if raw.conflict_code.is_some() && policy.code_at.is_empty() {
        policy.code_at = ["/error/code", "/error/type", "/code", "/type", "/name"].map(str::to_owned).into();
    }
    Ok(Unique { field, fetch: fetch.transpose()? })
}

/// Fields of a body, each with its value.
type Fixed = Vec<(Vec<String>, Box<RawValue>)>;

/// What stands in the body of each request: nothing that an argument puts there too.
pub(super) fn fixed_fields(
    given: Table<Value>,
    places: &[(String, Place)],
    body: BodyKind,
    input: &Value,
) -> Result<Fixed, Wrong> {
    if !given.0.is_empty() && !matches!(body, BodyKind::Json | BodyKind::Form | BodyKind::Multipart) {
        return wrong("fields", "this body has no fields");
    }
    if !given.0.is_empty() && places.iter().any(|(_, p)| *p == Place::Document) {
        return wrong("fields", "one argument is the whole body, so nothing else can go into it");
    }
    let mut out = Vec::new();
    for (name, value) in given.0 {
        let field = field_path(&name).map_err(|e| ("fields", e))?;
        let text = value.to_string();
        if text.contains("${") {
            return wrong("fields", format!("`{name}` names a secret, and bodies are recorded; use [auth]"));
        }
        if text.contains("$__toml_private_datetime") {
            return wrong("fields", format!("`{name}` is a date; put quotes around it"));
        }
        let placed = places.iter().any(|(_, p)| matches!(p, Place::Body(to) if *to == field));
        let own = field.len() == 1
            && places.iter().all(|(n, _)| *n != field[0])
            && input.pointer(&format!("/properties/{}", field[0])).is_some();
        if placed || own {
            return wrong("fields", format!("`{name}` is given here, and as an argument"));
        }
        let raw = RawValue::from_string(text).map_err(|e| ("fields", format!("`{name}`: {e}")))?;
        out.push((field, raw));
    }
    Ok(out)
}

/// A mail takes these arguments, and what goes elsewhere.
pub(super) fn mail_arguments(
    input: &Value,
    places: &[(String, Place)],
    path: &Template,
) -> Result<(), Wrong> {
    use crate::mail::ARGUMENTS;
    if let Some((name, _)) = places.iter().find(|(_, p)| matches!(p, Place::Body(_))) {
        return wrong(
            "params",
            format!("`{name}` can't be placed in a mail; its arguments are {}", ARGUMENTS.join(", ")),
        );
    }
    let properties = input.get("properties").and_then(Value::as_object);
    for name in properties.into_iter().flat_map(|p| p.keys()) {
        let elsewhere = places.iter().any(|(n, _)| n == name) || path.args().any(|a| a == [name.as_str()]);
        if !elsewhere && !ARGUMENTS.contains(&name.as_str()) {
            let hint = nearest(name, ARGUMENTS).map(|n| format!("; did you mean `{n}`?")).unwrap_or_default();
            return wrong(
                "input",
                format!("a mail has no `{name}`; its arguments are {}{hint}", ARGUMENTS.join(", ")),
            );
        }
    }
    if properties.is_none_or(|p| !p.contains_key("from")) {
        return wrong("input", "a mail needs the argument `from`");
    }
    Ok(())
}
