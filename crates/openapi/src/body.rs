//! A request's body as arguments: the fields of an object are arguments of their own; any other body is one argument.

use crate::document::{Document, is, list, text};
use crate::names::Arguments;
use crate::operation::{Described, Skip};
use crate::parameters::{Argument, in_form};
use crate::report::Reason;
use serde_json::{Map, Value};

/// How many parts of `allOf` are taken apart, and parts of these.
const MAX_PARTS: usize = 200;
/// The most fields that are arguments of their own; a body of more is one argument.
const MAX_FIELDS: usize = 400;

static ANYTHING: Value = Value::Bool(true);

/// A body's arguments and how they are written.
pub(crate) struct Body<'a> {
    /// The word of the manifest's `body`.
    pub kind: &'static str,
    pub content_type: Option<String>,
    pub arguments: Vec<Argument<'a>>,
    /// Fields that are not described are taken too.
    pub open: bool,
}

impl Body<'_> {
    fn none() -> Self {
        Body { kind: "none", content_type: None, arguments: Vec::new(), open: false }
    }
}

/// What kind of body a media type is.
fn kind_of(media: &str) -> Option<(&'static str, u8)> {
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    Some(match media.as_str() {
        "application/json" => ("json", 0),
        _ if media.ends_with("+json") || media.ends_with("/json") => ("json", 1),
        "*/*" | "application/*" => ("json", 2),
        _ if media.contains("json") && !media.contains("json-seq") && !media.contains("ndjson") => {
            ("json", 3)
        }
        "application/x-www-form-urlencoded" => ("form", 4),
        "text/plain" => ("text", 6),
        _ if media.starts_with("text/") || media.ends_with("/xml") || media.ends_with("+xml") => ("text", 7),
        _ if media.ends_with("yaml") => ("text", 8),
        _ => return None,
    })
}

pub(crate) fn of<'a>(
    document: &Document<'a>,
    described: Described<'a>,
    names: &mut Arguments,
    notes: &mut Vec<String>,
) -> Result<Body<'a>, Skip> {
    let Some(given) = described.operation.get("requestBody").filter(|b| !b.is_null()) else {
        return Ok(Body::none());
    };
    let body = document.resolve(given).map_err(|l| (Reason::Reference, l.said()))?;
    let required = is(body, "required");
    let Some(content) = body.get("content").and_then(Value::as_object).filter(|c| !c.is_empty()) else {
        return Ok(Body::none());
    };
    if matches!(described.verb, "GET" | "HEAD") {
        if required {
            return Err((Reason::GetWithBody, format!("a {} has no body in HTTP", described.verb)));
        }
        notes.push("its body is left out: reads have none".into());
        return Ok(Body::none());
    }
    let best = content
        .iter()
        .take(64)
        .filter_map(|(m, v)| kind_of(m).map(|(k, rank)| (rank, k, m, v)))
        .min_by_key(|b| b.0);
    let Some((_, kind, media, value)) = best else {
        let all: Vec<&str> = content.keys().take(8).map(String::as_str).collect();
        return Err((
            Reason::MediaType,
            format!("its body is {:.120}, which can't be written from arguments", all.join(" or ")),
        ));
    };
    let schema = value.get("schema").unwrap_or(&ANYTHING);
    let own = media.split(';').next().unwrap_or_default().trim();
    let usual = matches!(own, "application/json" | "application/x-www-form-urlencoded" | "text/plain")
        || own.contains('*');
    let content_type = (!usual).then(|| own.to_owned());
    if kind == "text" {
        let argument = whole(names, required, &ANYTHING, Some(format!("The body, as {own}.")));
        return Ok(Body { kind, content_type, arguments: vec![argument], open: false });
    }
    let (mut object, mut left) = (Object::default(), MAX_PARTS);
    if !flatten(document, schema, &mut object, &mut left) {
        if kind == "form" {
            return Err((Reason::MediaType, "its form has alternatives, or is no object".into()));
        }
        let argument = whole(names, required, schema, None);
        return Ok(Body { kind, content_type, arguments: vec![argument], open: false });
    }
    let open = object.open || object.properties.is_empty();
    let arguments = object.properties.iter().filter(|(name, _)| !name.is_empty()).map(|(field, property)| {
        let name = names.give(field, "body");
        let encoding = value.get("encoding").and_then(|e| e.get(field));
        Argument {
            param: (name != *field).then(|| format!("body:/{}", field.replace('~', "~0").replace('/', "~1"))),
            name,
            original: (*field).to_owned(),
            place: "body",
            style: if kind == "form" { in_form(document, property, encoding) } else { None },
            required: required && object.required.contains(field),
            schema: property,
            about: None,
        }
    });
    Ok(Body { kind, content_type, arguments: arguments.collect(), open })
}

/// A body that is one argument.
fn whole<'a>(
    names: &mut Arguments,
    required: bool,
    schema: &'a Value,
    about: Option<String>,
) -> Argument<'a> {
    Argument {
        name: names.give("body", "whole"),
        original: String::new(),
        place: "body",
        param: Some("document".into()),
        style: None,
        required,
        schema,
        about,
    }
}

/// An object's fields, of all its parts.
#[derive(Default)]
struct Object<'a> {
    properties: Vec<(&'a str, &'a Value)>,
    required: Vec<&'a str>,
    open: bool,
}

/// Collects the fields of an object; `false` if it is something else, or has alternatives.
fn flatten<'a>(document: &Document<'a>, schema: &'a Value, out: &mut Object<'a>, left: &mut usize) -> bool {
    let (Ok(schema), Some(less)) = (document.resolve(schema), left.checked_sub(1)) else { return false };
    *left = less;
    if !list(schema, "oneOf").is_empty() || !list(schema, "anyOf").is_empty() {
        return false;
    }
    let parts = list(schema, "allOf");
    let properties = schema.get("properties").and_then(Value::as_object);
    let object = match schema.get("type") {
        Some(Value::String(t)) => t == "object",
        Some(Value::Array(several)) => several.iter().any(|t| t == "object") && several.len() <= 2,
        Some(_) => false,
        None => properties.is_some() || !parts.is_empty(),
    };
    if !object {
        return false;
    }
    for part in parts {
        if !flatten(document, part, out, left) && !says_nothing(document, part) {
            return false;
        }
    }
    if out.properties.len() + properties.map_or(0, Map::len) > MAX_FIELDS {
        return false;
    }
    for (name, property) in properties.into_iter().flatten() {
        let target = document.resolve(property).unwrap_or(property);
        if is(target, "readOnly") || is(property, "readOnly") {
            continue;
        }
        match out.properties.iter_mut().find(|(n, _)| n == name) {
            Some(known) => known.1 = property,
            None => out.properties.push((name, property)),
        }
    }
    out.required.extend(list(schema, "required").iter().take(MAX_FIELDS).filter_map(Value::as_str));
    out.open |= match schema.get("additionalProperties") {
        Some(Value::Bool(open)) => *open,
        Some(Value::Object(_)) => true,
        _ => false,
    };
    true
}

/// A part that only adds `required` or a description.
fn says_nothing(document: &Document<'_>, part: &Value) -> bool {
    document.resolve(part).is_ok_and(|p| {
        p.as_object().is_some_and(|m| {
            m.keys().all(|k| {
                matches!(k.as_str(), "required" | "description" | "title" | "example") || k.starts_with("x-")
            })
        }) && text(p, "$ref").is_none()
    })
}
