//! A request's body as arguments: the fields of an object are arguments of their own; any other body is one argument.

use crate::document::{Document, is, list, text};
use crate::files;
use crate::keywords::mapping;
use crate::names::Arguments;
use crate::operation::{Described, Skip};
use crate::parameters::{Argument, in_form};
use crate::report::Reason;
use crate::schema::MAX_BRANCHES;
use provider::is_media_type;
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
    /// What the parts of its fields are, in a form of parts.
    pub part_types: Vec<(String, String)>,
    /// What stands in their heads, by field.
    pub part_headers: Vec<(String, Vec<(String, String)>)>,
    pub arguments: Vec<Argument<'a>>,
    /// Fields that are not described are taken too.
    pub open: bool,
}

impl<'a> Body<'a> {
    fn none() -> Body<'a> {
        Body::of("none", None, Vec::new(), false)
    }

    /// One of which nothing is said of parts.
    fn of(
        kind: &'static str,
        content_type: Option<String>,
        arguments: Vec<Argument<'a>>,
        open: bool,
    ) -> Body<'a> {
        Body { kind, content_type, part_types: Vec::new(), part_headers: Vec::new(), arguments, open }
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
        "multipart/form-data" | "application/form-data" => ("multipart", 5),
        "text/plain" => ("text", 6),
        _ if media.starts_with("text/") || media.ends_with("/xml") || media.ends_with("+xml") => ("text", 7),
        _ if media.ends_with("yaml") || media.contains("json") => ("text", 8),
        "application/jwt" | "application/text" => ("text", 8),
        "application/octet-stream" => ("binary", 9),
        // Whatever else it is: its bytes are given as they are.
        _ if is_media_type(&media) && !media.starts_with("multipart/") => ("binary", 10),
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
    // Under `*/*` a file is a file, not a text in JSON.
    let kind = if own.contains('*') && files::is_file(document, schema, None) { "binary" } else { kind };
    let usual = matches!(own, "application/json" | "application/x-www-form-urlencoded" | "text/plain")
        || own.contains('*')
        || kind == "multipart";
    let content_type = (!usual).then(|| own.to_owned());
    let only = |argument: Argument<'a>| Body::of(kind, content_type.clone(), vec![argument], false);
    if kind == "text" {
        return Ok(only(whole(names, required, &ANYTHING, Some(format!("The body, as {own}.")))));
    }
    if kind == "binary" {
        let about = files::about(Some(&format!("The body, as {own}.")));
        return Ok(only(whole(names, required, files::one(), Some(about))));
    }
    let form = kind != "json";
    let (mut object, mut left) = (Object { alternatives: form, ..Object::default() }, MAX_PARTS);
    if form && says_no_type(document, schema) {
        object.open = true;
    } else if kind == "multipart" && files::is_file(document, schema, None) {
        notes.push("the description does not name the part that is the file; it is sent as `file`".into());
        object.properties.push(("file", files::one()));
        object.required.push("file");
    } else if !flatten(document, schema, &mut object, &mut left) {
        if form {
            return Err((Reason::MediaType, "its form is no object, or has too many fields".into()));
        }
        return Ok(only(whole(names, required, schema, None)));
    }
    // Few publishers say so, and without a body its fields are not there either.
    let unsaid = body.get("required").and_then(Value::as_bool).is_none() && !object.required.is_empty();
    if unsaid {
        notes.push("its body is taken as required, since its fields are".into());
    }
    let required = required || unsaid;
    if object.mixed {
        notes.push("which fields go together in its alternatives is not checked".into());
    }
    if kind == "multipart" {
        return Ok(files::form(document, value, &object, required, names, notes));
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
            said: None,
            deprecated: false,
        }
    });
    let arguments = arguments.collect();
    Ok(Body::of(kind, content_type, arguments, open))
}

/// A schema that takes anything.
fn says_no_type(document: &Document<'_>, schema: &Value) -> bool {
    let schema = document.resolve(schema).unwrap_or(schema);
    !["type", "properties", "items", "allOf", "oneOf", "anyOf", "enum", "format"]
        .iter()
        .any(|k| schema.get(k).is_some())
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
        said: None,
        deprecated: false,
    }
}

/// An object's fields, of all its parts.
#[derive(Default)]
pub(crate) struct Object<'a> {
    pub properties: Vec<(&'a str, &'a Value)>,
    pub required: Vec<&'a str>,
    pub open: bool,
    /// The fields of all alternatives are taken.
    alternatives: bool,
    /// There were alternatives.
    mixed: bool,
}

/// Collects the fields of an object; `false` if it is something else, or has alternatives that are not taken.
fn flatten<'a>(document: &Document<'a>, schema: &'a Value, out: &mut Object<'a>, left: &mut usize) -> bool {
    let (Ok(schema), Some(less)) = (document.resolve(schema), left.checked_sub(1)) else { return false };
    *left = less;
    let branches = [list(schema, "oneOf"), list(schema, "anyOf")].concat();
    if !branches.is_empty() && !out.alternatives {
        return false;
    }
    let parts = list(schema, "allOf");
    let properties = schema.get("properties").and_then(Value::as_object);
    let object = match schema.get("type") {
        Some(Value::String(t)) => t == "object",
        Some(Value::Array(several)) => several.iter().any(|t| t == "object") && several.len() <= 2,
        Some(_) => false,
        None => properties.is_some() || !parts.is_empty() || !branches.is_empty(),
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
    let branches = [list(schema, "oneOf"), list(schema, "anyOf")];
    branches.iter().all(|b| b.is_empty() || either(document, b, out, left))
        && kinds(document, schema, out, left)
}

/// Takes the fields of all alternatives. Required is what each of them requires.
fn either<'a>(
    document: &Document<'a>,
    branches: &'a [Value],
    out: &mut Object<'a>,
    left: &mut usize,
) -> bool {
    let mut all: Vec<Object<'a>> = Vec::new();
    for branch in branches.iter().filter(|b| !says_nothing(document, b)) {
        let mut one = Object { alternatives: out.alternatives, ..Object::default() };
        if !flatten(document, branch, &mut one, left) {
            return false;
        }
        all.push(one);
    }
    if all.len() == branches.len()
        && let Some((first, others)) = all.split_first()
    {
        let by_all = first.required.iter().filter(|r| others.iter().all(|o| o.required.contains(r)));
        out.required.extend(by_all.copied());
    }
    for (name, property) in all.iter().flat_map(|o| &o.properties) {
        match out.properties.iter_mut().find(|(n, _)| n == name) {
            // Where two alternatives differ, either is taken.
            Some(known) if known.1 != *property => known.1 = &ANYTHING,
            Some(_) => {}
            None => out.properties.push((name, property)),
        }
    }
    out.open |= all.iter().any(|o| o.open);
    out.mixed = true;
    out.properties.len() <= MAX_FIELDS
}

/// Takes the fields of the kinds that a discriminator's mapping names, where these build on the schema itself: an object
/// with their fields is one of the schema's, too.
fn kinds<'a>(document: &Document<'a>, schema: &'a Value, out: &mut Object<'a>, left: &mut usize) -> bool {
    if !list(schema, "oneOf").is_empty() || !list(schema, "anyOf").is_empty() {
        return true;
    }
    let kinds = mapping(document, schema);
    if kinds.is_empty() {
        return true;
    }
    out.mixed = true;
    if kinds.len() > MAX_BRANCHES {
        out.open = true;
        return true;
    }
    kinds.into_iter().all(|(_, kind)| own_fields(document, kind, schema, out, left))
        && out.properties.len() <= MAX_FIELDS
}

/// The fields that a kind has beside those of its base.
fn own_fields<'a>(
    document: &Document<'a>,
    kind: &'a Value,
    base: &Value,
    out: &mut Object<'a>,
    left: &mut usize,
) -> bool {
    let (Ok(kind), Some(less)) = (document.resolve(kind), left.checked_sub(1)) else { return false };
    *left = less;
    if std::ptr::eq(kind, base) {
        return true;
    }
    for (name, property) in kind.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let target = document.resolve(property).unwrap_or(property);
        let there = out.properties.iter().any(|(n, _)| n == name);
        if !there && !is(target, "readOnly") && !is(property, "readOnly") {
            out.properties.push((name, property));
        }
    }
    list(kind, "allOf").iter().all(|part| own_fields(document, part, base, out, left))
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
