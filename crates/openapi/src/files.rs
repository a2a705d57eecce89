//! Files in bodies: by themselves, and as parts of forms.

use crate::body::{Body, Object};
use crate::document::{Document, list, text};
use crate::keywords::types;
use crate::names::Arguments;
use crate::parameters::Argument;
use crate::prose;
use provider::{is_media_type, takes_part_header};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// The longest description of a file, in characters.
const MAX_ABOUT: usize = 240;
/// The most headers of a part that are looked at.
const MAX_HEADERS: usize = 40;
/// How a file is given.
const HOW: &str = "A file: its bytes in base64, or an object of `base64` or `text` with `name` and `type`.";

static ONE: LazyLock<Value> = LazyLock::new(|| {
    let base64 = json!({ "type": "string", "contentEncoding": "base64" });
    let plain = json!({ "type": "string" });
    json!({ "anyOf": [base64, {
        "type": "object",
        "properties": { "base64": base64, "text": plain, "name": plain, "type": plain },
        "additionalProperties": false,
    }] })
});
static SEVERAL: LazyLock<Value> = LazyLock::new(|| json!({ "type": "array", "items": *ONE }));

/// The schema of a file.
pub(crate) fn one() -> &'static Value {
    &ONE
}

/// The description of an argument that is a file.
pub(crate) fn about(said: Option<&str>) -> String {
    let said = said.map(|s| prose::short(s, MAX_ABOUT)).filter(|s| !s.is_empty());
    said.map_or_else(|| HOW.to_owned(), |said| format!("{said} {HOW}"))
}

/// Whether a schema, or the type that is said of its part, stands for bytes.
pub(crate) fn is_file(document: &Document<'_>, schema: &Value, said: Option<&str>) -> bool {
    let schema = document.resolve(schema).unwrap_or(schema);
    let format = text(schema, "format").unwrap_or_default();
    // Some publishers kept the word of Swagger 2.
    if text(schema, "type") == Some("file") || format == "file" {
        return true;
    }
    let is_text = matches!(types(schema), None | Some(Value::String(_)))
        && text(schema, "type").is_none_or(|t| t == "string")
        && schema.get("properties").is_none()
        && schema.get("items").is_none();
    // What is described as base64 already is a text.
    let encoded = format == "byte" || schema.get("contentEncoding").is_some();
    let media = said.or_else(|| text(schema, "contentMediaType"));
    is_text && !encoded && (format == "binary" || media.is_some_and(|m| m.split(',').any(is_bytes)))
}

/// Whether a media type is one of bytes that no text can hold.
fn is_bytes(media: &str) -> bool {
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let prefix = ["image/", "video/", "audio/", "font/"].iter().any(|p| media.starts_with(p));
    (prefix && media != "image/svg+xml")
        || matches!(
            media.as_str(),
            "application/octet-stream" | "application/pdf" | "application/zip" | "application/gzip"
        )
}

/// The fields of a form in parts.
pub(crate) fn form<'a>(
    document: &Document<'a>,
    media: &'a Value,
    object: &Object<'a>,
    required: bool,
    names: &mut Arguments,
    notes: &mut Vec<String>,
) -> Body<'a> {
    let (mut arguments, mut part_types, mut part_headers) = (Vec::new(), Vec::new(), Vec::new());
    for (field, property) in object.properties.iter().filter(|(name, _)| !name.is_empty()) {
        let encoding = media.get("encoding").and_then(|e| e.get(field));
        let heads = encoding.and_then(|e| e.get("headers")).and_then(Value::as_object);
        let mut fixed = Vec::new();
        for (header, described) in heads.into_iter().flatten().take(MAX_HEADERS) {
            // Its type is told by the encoding.
            if header.eq_ignore_ascii_case("content-type") {
                continue;
            }
            match only_value(document, described).filter(|v| takes_part_header(header, v)) {
                Some(value) => fixed.push((header.clone(), value)),
                None => notes.push(format!(
                    "the header `{header:.60}` of the part `{field:.60}` is not sent: its description has no one value for it"
                )),
            }
        }
        if !fixed.is_empty() {
            part_headers.push(((*field).to_owned(), fixed));
        }
        let said = encoding.and_then(|e| text(e, "contentType"));
        let target = document.resolve(property).unwrap_or(property);
        let items = target.get("items").filter(|_| text(target, "type").is_none_or(|t| t == "array"));
        let file = std::ptr::eq(*property, one()) || is_file(document, property, said);
        let files = items.is_some_and(|i| is_file(document, i, said));
        let json = said.is_some_and(|c| c.contains("json"));
        // One type that is not what a part is anyway; of several, the caller says which.
        part_types.extend(
            said.map(str::trim)
                .filter(|t| {
                    is_media_type(t)
                        && !t.contains(['*', ','])
                        && !matches!(*t, "application/json" | "text/plain")
                })
                .map(|t| ((*field).to_owned(), t.to_owned())),
        );
        let name = names.give(field, "body");
        let described = text(property, "description").or_else(|| text(target, "description"));
        arguments.push(Argument {
            param: (name != *field).then(|| format!("body:/{}", field.replace('~', "~0").replace('/', "~1"))),
            name,
            original: (*field).to_owned(),
            place: "body",
            style: match (file || files, json) {
                (true, _) => Some("file"),
                (false, true) => Some("json"),
                (false, false) => None,
            },
            required: required && object.required.contains(field),
            schema: match (file, files) {
                (true, _) => &ONE,
                (_, true) => &SEVERAL,
                _ => property,
            },
            about: (file || files).then(|| about(described)),
            said: None,
            deprecated: false,
        });
    }
    let open = object.open || object.properties.is_empty();
    Body { kind: "multipart", content_type: None, part_types, part_headers, arguments, open }
}

/// The one value that a header is described with: a constant, the only choice, or a default.
fn only_value(document: &Document<'_>, header: &Value) -> Option<String> {
    let header = document.resolve(header).unwrap_or(header);
    let schema = header.get("schema")?;
    let schema = document.resolve(schema).unwrap_or(schema);
    let choice = match list(schema, "enum") {
        [one] => Some(one),
        _ => None,
    };
    match schema.get("const").or(choice).or_else(|| schema.get("default"))? {
        Value::String(text) => Some(text.clone()),
        other @ (Value::Number(_) | Value::Bool(_)) => Some(other.to_string()),
        _ => None,
    }
}
