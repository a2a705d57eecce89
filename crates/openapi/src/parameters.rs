//! Parameters as arguments: where each goes, and how its value is written there.

use crate::document::{Document, is, list, text};
use crate::keywords::types;
use crate::names::Arguments;
use crate::operation::{Described, Skip};
use crate::prose;
use crate::report::Reason;
use serde_json::Value;

/// The most parameters of one operation.
const MAX_PARAMETERS: usize = 400;
/// The longest description of an argument, in characters.
const MAX_ABOUT: usize = 300;

static ANYTHING: Value = Value::Bool(true);

/// A parameter as described, with defaults filled in.
pub(crate) struct Parameter<'a> {
    pub name: &'a str,
    pub place: &'a str,
    required: bool,
    style: &'a str,
    explode: bool,
    /// Its value is written as JSON.
    json: bool,
    /// Its publisher says that a value may have slashes, which the specification knows no word for.
    segments: bool,
    schema: &'a Value,
    about: Option<String>,
    /// The same, as it is written.
    said: Option<&'a str>,
    deprecated: bool,
}

/// One argument of a method.
pub(crate) struct Argument<'a> {
    /// The name that models see.
    pub name: String,
    /// The name that the provider sees.
    pub original: String,
    /// `path`, `query`, `header`, `cookie` or `body`.
    pub place: &'static str,
    /// Its text in `params`, if it needs one.
    pub param: Option<String>,
    /// Its word in `styles`, if it needs one.
    pub style: Option<&'static str>,
    pub required: bool,
    pub schema: &'a Value,
    pub about: Option<String>,
    /// The parameter's whole description.
    pub said: Option<&'a str>,
    /// Its parameter is going out of use; what a schema says of itself is not in it.
    pub deprecated: bool,
}

impl Argument<'_> {
    /// The provider's name of it, in a body a JSON pointer.
    pub(crate) fn field(&self) -> String {
        match self.place {
            "body" => format!("/{}", self.original.replace('~', "~0").replace('/', "~1")),
            _ => self.original.clone(),
        }
    }
}

/// A path as manifests have it, with its arguments.
pub(crate) struct Path<'a> {
    pub template: String,
    pub arguments: Vec<Argument<'a>>,
    /// What stands in the query of each request: names and values.
    pub query: Vec<(String, String)>,
    /// What stands in the headers of each request.
    pub headers: Vec<(String, String)>,
    /// Places and names of parameters that the path says already.
    pub said: Vec<(&'static str, String)>,
}

/// A cookie's name (RFC 6265).
fn is_cookie(name: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(token)
}

/// What a value can be, as far as its style matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    List,
    Object,
}

fn kind(document: &Document<'_>, schema: &Value) -> Kind {
    let schema = document.resolve(schema).unwrap_or(schema);
    let is = |t: &str| match types(schema) {
        Some(Value::String(one)) => one == t,
        Some(Value::Array(several)) => several.iter().any(|s| s == t),
        _ => false,
    };
    match (is("array"), is("object")) {
        (true, _) => Kind::List,
        (_, true) => Kind::Object,
        _ => Kind::Plain,
    }
}

/// The parameters of an operation: its own over those of its path.
pub(crate) fn of<'a>(
    document: &Document<'a>,
    described: Described<'a>,
    notes: &mut Vec<String>,
) -> Result<Vec<Parameter<'a>>, Skip> {
    let mut all: Vec<Parameter<'a>> = Vec::new();
    if list(described.item, "parameters").len() + list(described.operation, "parameters").len()
        > MAX_PARAMETERS
    {
        return Err((Reason::Parameter, format!("it has more than {MAX_PARAMETERS} parameters")));
    }
    for given in list(described.item, "parameters").iter().chain(list(described.operation, "parameters")) {
        let value = document.resolve(given).map_err(|l| (Reason::Reference, l.said()))?;
        let (Some(name), Some(place)) = (text(value, "name"), text(value, "in")) else {
            return Err((Reason::Malformed, "a parameter has no `name` or no `in`".into()));
        };
        if !["path", "query", "header", "cookie"].contains(&place) {
            return Err((
                Reason::Malformed,
                format!("the parameter `{name:.60}` is in `{place:.20}`, which is no place of OpenAPI 3"),
            ));
        }
        let style = text(value, "style").unwrap_or(if matches!(place, "query" | "cookie") {
            "form"
        } else {
            "simple"
        });
        let content = value.get("content").and_then(Value::as_object).and_then(|c| c.iter().next());
        let schema = match content {
            Some((_, media)) => media.get("schema"),
            None => value.get("schema"),
        };
        let parameter = Parameter {
            name,
            place,
            required: is(value, "required") || place == "path",
            style,
            explode: value.get("explode").and_then(Value::as_bool).unwrap_or(style == "form"),
            json: content.is_some_and(|(media, _)| media.contains("json")),
            segments: place == "path" && is(value, "x-multi-segment"),
            schema: schema.unwrap_or(&ANYTHING),
            about: text(value, "description").map(|d| prose::short(d, MAX_ABOUT)).filter(|d| !d.is_empty()),
            said: text(value, "description"),
            deprecated: is(value, "deprecated"),
        };
        let unfit = match place {
            "cookie" => !is_cookie(name),
            "header" => !provider::is_header(name),
            _ => false,
        };
        if unfit {
            if parameter.required {
                return Err((
                    Reason::Parameter,
                    format!("{name:.60?} is required, and no name of a {place}"),
                ));
            }
            notes.push(format!("{name:.60?} is no name of a {place}, and is not sent"));
            continue;
        }
        match all.iter().position(|p| p.name == name && p.place == place) {
            Some(i) => all[i] = parameter,
            None => all.push(parameter),
        }
    }
    Ok(all)
}

/// A path with its holes named as arguments are.
pub(crate) fn path<'a>(
    path: &str,
    parameters: &[Parameter<'a>],
    names: &mut Arguments,
    document: &Document<'a>,
    notes: &mut Vec<String>,
) -> Result<Path<'a>, Skip> {
    let unfit = |what: &str| Err((Reason::Path, format!("its path {what}")));
    if !path.starts_with('/') {
        return unfit("does not begin with a slash");
    }
    let (path, more) =
        path.split_once(['?', '#']).map_or((path, ""), |(bare, _)| (bare, &path[bare.len()..]));
    let mut template = String::new();
    let mut arguments: Vec<Argument<'a>> = Vec::new();
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else { return unfit("has a { without its }") };
        template.push_str(&literal(before));
        let parameter = parameters.iter().find(|p| p.place == "path" && p.name == name);
        let known = arguments.iter().find(|a| a.original == name).map(|a| a.name.clone());
        let first = known.is_none();
        let argument = known.unwrap_or_else(|| names.give(name, "path"));
        let mut style = parameter.map_or(Ok(None), |p| in_path(p, document))?;
        if style.is_none() && parameter.is_some_and(|p| p.segments && p.style == "simple") {
            if template.ends_with('/') && !after.contains('{') && (after.is_empty() || after.starts_with('/'))
            {
                style = Some("segments");
            } else {
                notes.push(format!(
                    "`{name:.60}` may have slashes, and here takes none: another parameter follows, or it is no whole segment"
                ));
            }
        }
        match parameter.map(|p| p.style) {
            Some("label") => template.push('.'),
            Some("matrix") => template.push_str(&format!(";{}=", literal(name))),
            _ => {}
        }
        template.push_str(&format!("{{{argument}}}"));
        if first {
            arguments.push(Argument {
                name: argument,
                original: name.to_owned(),
                place: "path",
                param: None,
                style,
                required: true,
                schema: parameter.map_or(&ANYTHING, |p| p.schema),
                about: parameter.and_then(|p| p.about.clone()),
                said: parameter.and_then(|p| p.said),
                deprecated: parameter.is_some_and(|p| p.deprecated),
            });
        }
        rest = after;
    }
    template.push_str(&literal(rest));
    if template.split('/').any(|s| s == "." || s == "..") {
        return unfit("has a `.` or `..` segment");
    }
    let mut path = Path { template, arguments, query: Vec::new(), headers: Vec::new(), said: Vec::new() };
    after_path(more, parameters, names, document, &mut path)?;
    for p in parameters.iter().filter(|p| p.place == "path") {
        let said = path.said.iter().any(|(place, name)| *place == "path" && name == p.name);
        if !said && !path.arguments.iter().any(|a| a.place == "path" && a.original == p.name) {
            notes
                .push(format!("the path parameter `{:.60}` is nowhere in the path, and is left out", p.name));
        }
    }
    Ok(path)
}

/// What some publishers put behind a path: `?action=list` is sent with each request, `?id={id}` is an argument. After a
/// `#` stands what tells two operations of one path apart, and a URL's fragment is not sent; but where it repeats a
/// parameter with its only value, that value is sent.
fn after_path<'a>(
    more: &str,
    parameters: &[Parameter<'a>],
    names: &mut Arguments,
    document: &Document<'a>,
    out: &mut Path<'a>,
) -> Result<(), Skip> {
    let (query, fragment) = more.split_once('#').unwrap_or((more, ""));
    for pair in query.trim_start_matches('?').split('&').filter(|p| !p.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decoded(name), decoded(value));
        let twice = out.said.iter().any(|(place, n)| *place == "query" && *n == name);
        if name.is_empty() || name.contains(['{', '}']) || twice {
            return Err((
                Reason::Path,
                "its path's query has no name, a hole as a name, or a name twice".into(),
            ));
        }
        match value.strip_prefix('{').and_then(|v| v.strip_suffix('}')) {
            Some(hole) if !hole.contains(['{', '}']) => {
                let parameter =
                    parameters.iter().find(|p| p.name == hole && matches!(p.place, "path" | "query"));
                let argument = names.give(hole, "query");
                let place = parameter.map_or("path", |p| if p.place == "query" { "query" } else { "path" });
                out.said.push((place, hole.to_owned()));
                out.arguments.push(Argument {
                    param: Some(if argument == name { "query".into() } else { format!("query:{name}") }),
                    name: argument,
                    original: name.clone(),
                    place: "query",
                    style: parameter.and_then(|p| in_query(p, document)),
                    required: true,
                    schema: parameter.map_or(&ANYTHING, |p| p.schema),
                    about: parameter.and_then(|p| p.about.clone()),
                    said: parameter.and_then(|p| p.said),
                    deprecated: parameter.is_some_and(|p| p.deprecated),
                });
            }
            _ if value.contains(['{', '}']) => {
                return Err((Reason::Path, "its path's query has text beside an argument".into()));
            }
            _ => out.query.push((name.clone(), value)),
        }
        out.said.push(("query", name));
    }
    for pair in fragment.split('&').filter(|p| !p.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decoded(name), decoded(value));
        let Some(p) = parameters.iter().find(|p| p.name == name && p.required) else { continue };
        let choices = list(document.resolve(p.schema).unwrap_or(p.schema), "enum");
        let texts = || choices.iter().map(|c| c.as_str().map_or_else(|| c.to_string(), str::to_owned));
        let only = match (choices.len(), value.is_empty()) {
            (1, _) => texts().next(),
            (0, false) => Some(value),
            (_, false) => texts().find(|c| *c == value),
            (_, true) => None,
        };
        let Some(only) = only.filter(|o| !o.contains("${")) else { continue };
        match p.place {
            "query" if !out.said.iter().any(|(_, n)| *n == name) => {
                out.query.push((name.clone(), only));
                out.said.push(("query", name));
            }
            "header" if provider::is_header(p.name) && !provider::sets_header(p.name) && is_plain(&only) => {
                out.headers.push((p.name.to_owned(), only));
                out.said.push(("header", name));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a header carries a text as it is.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|b| (b' '..0x7f).contains(&b)) && text.trim() == text && !text.is_empty()
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// How a path parameter's value is written.
fn in_path(p: &Parameter<'_>, document: &Document<'_>) -> Result<Option<&'static str>, Skip> {
    if p.json {
        return Ok(Some("json"));
    }
    match (p.style, kind(document, p.schema), p.explode) {
        (_, Kind::Plain, _) => Ok(None),
        ("simple", Kind::List, _) | ("label" | "matrix", Kind::List, false) => Ok(Some("comma")),
        ("simple", Kind::Object, false) | ("label" | "matrix", Kind::Object, false) => Ok(Some("comma")),
        ("simple", Kind::Object, true) => Ok(Some("pairs")),
        (style, ..) => Err((
            Reason::Parameter,
            format!(
                "the path parameter `{:.60}` is a list or an object in the style `{style:.20}`, exploded",
                p.name
            ),
        )),
    }
}

/// Text of a path as a URL carries it.
fn literal(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || "/-._~!$&'()*+,;=:@%".contains(c) {
            out.push(c);
        } else {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                out.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    out
}

/// The arguments in query, headers and cookies, but for those that the path says already.
pub(crate) fn others<'a>(
    document: &Document<'a>,
    parameters: &[Parameter<'a>],
    said: &[(&'static str, String)],
    names: &mut Arguments,
    notes: &mut Vec<String>,
) -> Vec<Argument<'a>> {
    let mut all = Vec::new();
    for p in parameters {
        if said.iter().any(|(place, name)| *place == p.place && name == p.name) {
            continue;
        }
        let (place, param, style) = match p.place {
            "query" => ("query", String::new(), in_query(p, document)),
            "header" => {
                // OpenAPI leaves these to content negotiation and security schemes.
                if ["accept", "content-type", "authorization"].contains(&p.name.to_ascii_lowercase().as_str())
                {
                    continue;
                }
                if provider::sets_header(p.name) {
                    notes.push(format!("the header `{:.60}` is set by the gateway itself", p.name));
                    continue;
                }
                ("header", format!("header:{}", p.name), in_header(p, document))
            }
            "cookie" => ("cookie", String::new(), in_cookie(p, document)),
            _ => continue,
        };
        let name = names.give(p.name, place);
        let param = match place {
            "query" | "cookie" if name == p.name => place.to_owned(),
            "query" | "cookie" => format!("{place}:{}", p.name),
            _ => param,
        };
        all.push(Argument {
            name,
            original: p.name.to_owned(),
            place,
            param: Some(param),
            style,
            required: p.required,
            schema: p.schema,
            about: p.about.clone(),
            said: p.said,
            deprecated: p.deprecated,
        });
    }
    all
}

fn in_query(p: &Parameter<'_>, document: &Document<'_>) -> Option<&'static str> {
    if p.json {
        return Some("json");
    }
    match (p.style, kind(document, p.schema), p.explode) {
        ("deepObject", Kind::List, _) => Some("index"),
        ("form", Kind::Object, true) => Some("members"),
        ("form", Kind::List | Kind::Object, false) => Some("comma"),
        ("spaceDelimited", Kind::List | Kind::Object, false) => Some("space"),
        ("pipeDelimited", Kind::List | Kind::Object, false) => Some("pipe"),
        _ => None,
    }
}

fn in_header(p: &Parameter<'_>, document: &Document<'_>) -> Option<&'static str> {
    if p.json {
        return Some("json");
    }
    match (kind(document, p.schema), p.explode) {
        (Kind::Plain, _) => None,
        (Kind::Object, true) => Some("pairs"),
        _ => Some("comma"),
    }
}

fn in_cookie(p: &Parameter<'_>, document: &Document<'_>) -> Option<&'static str> {
    if p.json {
        return Some("json");
    }
    (kind(document, p.schema) != Kind::Plain).then_some("comma")
}

/// How a field of a form is written, by its encoding.
pub(crate) fn in_form(
    document: &Document<'_>,
    schema: &Value,
    encoding: Option<&Value>,
) -> Option<&'static str> {
    let said = |name: &str| encoding.and_then(|e| text(e, name));
    if said("contentType").is_some_and(|c| c.contains("json")) {
        return Some("json");
    }
    let explode = encoding.and_then(|e| e.get("explode")).and_then(Value::as_bool);
    match (kind(document, schema), said("style").unwrap_or("form"), explode) {
        (Kind::List, "deepObject", _) => None,
        (Kind::List, "form", Some(false)) => Some("comma"),
        (Kind::List, "spaceDelimited", Some(false) | None) => Some("space"),
        (Kind::List, "pipeDelimited", Some(false) | None) => Some("pipe"),
        (Kind::List, ..) => Some("repeat"),
        (Kind::Object, "form", Some(false)) => Some("comma"),
        _ => None,
    }
}
