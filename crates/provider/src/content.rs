//! Bodies that are no text: forms in parts (RFC 7578), and bytes.
//!
//! Files come as base64 in arguments and are recorded so; they become bytes when the request is sent. Nothing random is in
//! what is sent: the boundary depends on the effect key and on all parts, so a replay has the very same bytes.

use crate::encode::{Level, Node, level, write_json};
use crate::error::BadArguments;
use crate::raw::Style;
use crate::template::Spliced;
use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ledger::EffectKey;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

/// The largest body of files, in bytes.
const MAX_BODY: usize = 16 << 20;
/// The most parts of a form.
const MAX_PARTS: usize = 1000;
/// The longest name of a file, in bytes.
const MAX_FILE_NAME: usize = 255;
/// What a file is where nobody says.
pub(crate) const BYTES: &str = "application/octet-stream";

/// Some callers leave the padding out; what they mean is the same.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A recorded body that is no text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Content {
    /// A form in parts.
    Parts(Vec<Part>),
    /// Bytes, in base64.
    Bytes(String),
}

/// One part of a form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    name: String,
    /// The name of the file that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// What stands in its head besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
    data: Data,
}

/// Headers of parts, by field: names and values.
pub(crate) type PartHeaders = Vec<(String, Vec<(String, String)>)>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Data {
    Text(Spliced),
    /// Bytes, in base64.
    Bytes(String),
}

/// A file as a caller gives it.
pub(crate) struct File {
    /// In base64, in its one spelling.
    pub base64: String,
    size: usize,
    name: Option<String>,
    /// What the caller says that it is.
    pub kind: Option<String>,
}

/// Reads a file: a text in base64, or an object of `base64` or `text`, `name` and `type`. `None` for null.
pub(crate) fn file(raw: &RawValue, argument: &str) -> Result<Option<File>, BadArguments> {
    let wrong = |what: &str| {
        BadArguments::new(format!(
            "argument `{argument}` is a file: {what}; give its bytes in base64, or {{\"base64\": …}} or {{\"text\": …}} with \
             \"name\" and \"type\" if they matter"
        ))
    };
    let decoded = |text: &str| BASE64.decode(text.trim_ascii()).map_err(|_| wrong("this is not base64"));
    let (mut bytes, mut name, mut kind) = (None, None, None);
    match level(raw, argument)? {
        Level::Null => return Ok(None),
        Level::Scalar(text) if raw.get().trim_start().starts_with('"') => bytes = Some(decoded(&text)?),
        Level::Scalar(_) | Level::Array(_) => return Err(wrong("this is neither a text nor an object")),
        Level::Object(members) => {
            for (member, value) in &members {
                let text: String =
                    serde_json::from_str(value.get()).map_err(|_| wrong("each of its members is a text"))?;
                match member.as_str() {
                    "base64" | "text" if bytes.is_some() => return Err(wrong("it is given twice")),
                    "base64" => bytes = Some(decoded(&text)?),
                    "text" => bytes = Some(text.into_bytes()),
                    "name" => {
                        name = Some(file_name(text).ok_or_else(|| wrong("its name is a path, or too long"))?)
                    }
                    "type" if is_media_type(&text) => kind = Some(text),
                    "type" => return Err(wrong("its type is not like image/png")),
                    _ => return Err(wrong("it has a member of another name")),
                }
            }
        }
    }
    let bytes = bytes.ok_or_else(|| wrong("it has no bytes"))?;
    if bytes.len() > MAX_BODY {
        return Err(too_large());
    }
    Ok(Some(File { size: bytes.len(), base64: BASE64.encode(bytes), name, kind }))
}

fn too_large() -> BadArguments {
    BadArguments::new(format!("the files of a call may have {} MiB together", MAX_BODY >> 20))
}

/// A file's name without a folder.
fn file_name(name: String) -> Option<String> {
    let fits = !name.is_empty()
        && name.len() <= MAX_FILE_NAME
        && !name.contains(['/', '\\'])
        && !name.chars().any(char::is_control);
    fits.then_some(name)
}

/// Whether a text is `type/subtype`, with parameters or without.
#[must_use]
pub fn is_media_type(text: &str) -> bool {
    let essence = text.split(';').next().unwrap_or_default().trim();
    let token =
        |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&b));
    text.len() <= 200
        && text.bytes().all(|b| (b' '..0x7f).contains(&b))
        && essence.split_once('/').is_some_and(|(kind, sub)| token(kind) && token(sub))
}

/// A form in parts of these fields. `types` says what the parts of a field are, `headers` what stands in their heads besides.
pub(crate) fn parts(
    fields: &[(String, Node)],
    types: &[(String, String)],
    headers: &[(String, Vec<(String, String)>)],
) -> Result<Content, BadArguments> {
    let mut form = Form { parts: Vec::new(), size: 0, types, headers };
    for (name, node) in fields {
        match node {
            Node::Key => {
                let mut key = Spliced::default();
                key.push_key();
                form.text(name, name, key, None)?;
            }
            Node::Text(text) => form.text(name, name, text.clone(), None)?,
            Node::Object(inside) => {
                let mut json = Spliced::default();
                write_json(inside, &mut json);
                form.text(name, name, json, Some("application/json"))?;
            }
            Node::Raw(raw) => form.value(name, raw)?,
            Node::Styled(raw, style) => form.styled(name, raw, *style)?,
        }
    }
    Ok(Content::Parts(form.parts))
}

/// A form while it is made.
struct Form<'t> {
    parts: Vec<Part>,
    size: usize,
    types: &'t [(String, String)],
    headers: &'t [(String, Vec<(String, String)>)],
}

impl Form<'_> {
    fn push(&mut self, part: Part, size: usize) -> Result<(), BadArguments> {
        self.size += size;
        if self.size > MAX_BODY {
            return Err(too_large());
        }
        if part.name.chars().any(char::is_control) {
            return Err(BadArguments::new("an argument's name has a control character"));
        }
        if self.parts.len() >= MAX_PARTS {
            return Err(BadArguments::new(format!("the form would have more than {MAX_PARTS} parts")));
        }
        self.parts.push(part);
        Ok(())
    }

    fn of(&self, field: &str) -> Option<String> {
        self.types.iter().find(|(f, _)| f == field).map(|(_, t)| t.clone())
    }

    fn headers_of(&self, field: &str) -> Vec<(String, String)> {
        self.headers.iter().find(|(f, _)| f == field).map(|(_, all)| all.clone()).unwrap_or_default()
    }

    fn text(
        &mut self,
        name: &str,
        field: &str,
        text: Spliced,
        kind: Option<&str>,
    ) -> Result<(), BadArguments> {
        let kind = self.of(field).or_else(|| kind.map(str::to_owned));
        let size = text.shown().len();
        let headers = self.headers_of(field);
        self.push(Part { name: name.to_owned(), file: None, kind, headers, data: Data::Text(text) }, size)
    }

    /// One value as one part: a text as it is, anything else as JSON. Nothing of null.
    fn one(&mut self, name: &str, field: &str, raw: &RawValue) -> Result<(), BadArguments> {
        match level(raw, field)? {
            Level::Null => Ok(()),
            Level::Scalar(text) => self.text(name, field, Spliced::text(text), None),
            _ => self.text(name, field, Spliced::text(raw.get()), Some("application/json")),
        }
    }

    /// A list is as many parts of one name.
    fn value(&mut self, field: &str, raw: &RawValue) -> Result<(), BadArguments> {
        match level(raw, field)? {
            Level::Array(items) => items.iter().try_for_each(|item| self.one(field, field, item)),
            _ => self.one(field, field, raw),
        }
    }

    fn styled(&mut self, field: &str, raw: &RawValue, style: Style) -> Result<(), BadArguments> {
        match (style, level(raw, field)?) {
            (Style::Json, _) => self.text(field, field, Spliced::text(raw.get()), Some("application/json")),
            (Style::File, Level::Array(items)) => items.iter().try_for_each(|item| self.file(field, item)),
            (Style::File, _) => self.file(field, raw),
            (Style::Index, Level::Array(items)) => items
                .iter()
                .enumerate()
                .try_for_each(|(i, item)| self.one(&format!("{field}[{i}]"), field, item)),
            _ => self.value(field, raw),
        }
    }

    fn file(&mut self, field: &str, raw: &RawValue) -> Result<(), BadArguments> {
        let Some(file) = file(raw, field)? else { return Ok(()) };
        // What the provider wants is not the caller's to change.
        let kind = self.of(field).or(file.kind).unwrap_or_else(|| BYTES.to_owned());
        let part = Part {
            name: field.to_owned(),
            // Many servers take a part for a file only if it has a name.
            file: Some(file.name.unwrap_or_else(|| field.to_owned())),
            kind: Some(kind),
            headers: self.headers_of(field),
            data: Data::Bytes(file.base64),
        };
        self.push(part, file.size)
    }
}

impl Content {
    /// An earlier program would send it without a part of what it is.
    pub(crate) fn is_new(&self) -> bool {
        matches!(self, Content::Parts(all) if all.iter().any(|p| !p.headers.is_empty()))
    }

    /// The body's bytes, and its type where that follows from them.
    pub(crate) fn write(&self, key: Option<&EffectKey>) -> Result<(Vec<u8>, Option<String>), String> {
        match self {
            Content::Bytes(base64) => Ok((bytes_of(base64)?, None)),
            Content::Parts(parts) => form(parts, key).map(|(body, kind)| (body, Some(kind))),
        }
    }
}

fn bytes_of(base64: &str) -> Result<Vec<u8>, String> {
    BASE64.decode(base64).map_err(|_| "the recorded body can't be read".to_owned())
}

fn form(parts: &[Part], key: Option<&EffectKey>) -> Result<(Vec<u8>, String), String> {
    let mut written = Vec::with_capacity(parts.len());
    for part in parts {
        let mut head = format!("Content-Disposition: form-data; name=\"{}\"", quoted(&part.name));
        if let Some(file) = &part.file {
            head.push_str(&format!("; filename=\"{}\"", quoted(file)));
        }
        if let Some(kind) = &part.kind {
            head.push_str(&format!("\r\nContent-Type: {kind}"));
        }
        for (name, value) in &part.headers {
            head.push_str(&format!("\r\n{name}: {value}"));
        }
        let data = match &part.data {
            Data::Text(text) => key.map_or_else(|| text.shown(), |k| text.with(k)).into_bytes(),
            Data::Bytes(base64) => bytes_of(base64)?,
        };
        written.push((head, data));
    }
    // No part can hold a boundary that depends on every byte of all parts.
    let mut digest = Sha256::new();
    digest.update(key.map(EffectKey::as_str).unwrap_or_default());
    for (head, data) in &written {
        for bytes in [head.as_bytes(), data.as_slice()] {
            digest.update((bytes.len() as u64).to_be_bytes());
            digest.update(bytes);
        }
    }
    let hex: String = digest.finalize()[..16].iter().map(|b| format!("{b:02x}")).collect();
    let boundary = format!("counterfoil-{hex}");
    let mut body = Vec::new();
    for (head, data) in &written {
        body.extend_from_slice(format!("--{boundary}\r\n{head}\r\n\r\n").as_bytes());
        body.extend_from_slice(data);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok((body, format!("multipart/form-data; boundary={boundary}")))
}

/// A name between quotation marks, as browsers write it.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}
