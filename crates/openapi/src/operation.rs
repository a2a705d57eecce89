//! One operation as a method of a manifest, or why it can't be one.

use crate::body;
use crate::document::{Document, is, list, text};
use crate::names::Arguments;
use crate::pages;
use crate::parameters::{self, Argument};
use crate::prose;
use crate::report::Reason;
use crate::safety::{self, Carrier, Effect};
use crate::schema::Schemas;
use serde_json::{Map, Value, json};

/// The longest description that a model gets, in characters.
const MAX_DESCRIPTION: usize = 700;
/// The longest title, in characters.
const MAX_TITLE: usize = 100;
/// The longest description that is kept for people, in bytes.
const MAX_DETAILS: usize = 32 << 10;
/// The most arguments of one method.
const MAX_ARGUMENTS: usize = 400;

/// Why an operation is skipped: the reason, and what exactly.
pub(crate) type Skip = (Reason, String);

/// An operation where it is described.
#[derive(Clone, Copy)]
pub(crate) struct Described<'a> {
    /// In upper case.
    pub verb: &'a str,
    pub path: &'a str,
    pub item: &'a Value,
    pub operation: &'a Value,
}

impl<'a> Described<'a> {
    /// Verb and path, which no other operation has.
    pub(crate) fn http(&self) -> String {
        format!("{} {}", self.verb, self.path)
    }
    pub(crate) fn id(&self) -> Option<&'a str> {
        text(self.operation, "operationId").map(str::trim).filter(|id| !id.is_empty())
    }
    /// Whether this is its id, or its verb and path.
    pub(crate) fn is(&self, named: &str) -> bool {
        self.id() == Some(named)
            || named.split_once(' ').is_some_and(|(verb, path)| verb == self.verb && path == self.path)
    }
    pub(crate) fn tags(&self) -> impl Iterator<Item = &'a str> {
        list(self.operation, "tags").iter().filter_map(Value::as_str)
    }
}

/// A method before it has a name.
pub(crate) struct Draft {
    /// Its `http`.
    pub http: String,
    pub title: Option<String>,
    pub description: String,
    /// The whole description, where it is longer than the other.
    pub details: Option<String>,
    pub effect: Effect,
    pub body: &'static str,
    pub content_type: Option<String>,
    /// What is sent with each request, whatever its arguments are.
    pub query: Vec<(String, String)>,
    pub headers: Vec<(String, String)>,
    pub params: Vec<(String, String)>,
    pub styles: Vec<(String, &'static str)>,
    pub part_types: Vec<(String, String)>,
    pub part_headers: Vec<(String, Vec<(String, String)>)>,
    pub carrier: Option<Carrier>,
    /// Where its arguments go, but for those of the path.
    pub places: Vec<Placed>,
    /// No key is carried, whatever is known of the provider.
    pub keyless: bool,
    /// Repeating changes nothing.
    pub natural: bool,
    /// Answers are not JSON.
    pub any_answer: bool,
    pub input: Value,
    pub notes: Vec<String>,
}

/// Where an argument goes.
pub(crate) struct Placed {
    pub name: String,
    pub place: &'static str,
    /// The provider's name of it, in a body a JSON pointer.
    pub field: String,
    /// Its description says that it carries no key.
    pub denied: bool,
}

impl Draft {
    /// Takes an argument out: the gateway fills its place.
    pub(crate) fn take_out(&mut self, argument: &str) {
        self.params.retain(|(name, _)| name != argument);
        self.styles.retain(|(name, _)| name != argument);
        self.places.retain(|p| p.name != argument);
        if let Some(properties) = self.input.get_mut("properties").and_then(Value::as_object_mut) {
            properties.shift_remove(argument);
        }
        if let Some(required) = self.input.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|r| r != argument);
        }
        if self.input.get("required").is_some_and(|r| r.as_array().is_some_and(Vec::is_empty))
            && let Some(input) = self.input.as_object_mut()
        {
            input.shift_remove("required");
        }
    }
}

/// Makes a method of an operation.
pub(crate) fn draft(
    document: &Document<'_>,
    schemas: &Schemas<'_>,
    described: Described<'_>,
    secrets: &[(String, String)],
) -> Result<Draft, Skip> {
    let Described { verb, path, .. } = described;
    if !["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"].contains(&verb) {
        return Err((Reason::Verb, format!("a manifest has no {verb}")));
    }
    let mut notes = Vec::new();
    let mut names = Arguments::default();
    let mut parameters = parameters::of(document, described, &mut notes)?;
    // What [auth] fills is no argument.
    parameters.retain(|p| {
        !secrets.iter().any(|(place, name)| place == p.place && name.eq_ignore_ascii_case(p.name))
    });
    let path_given = parameters::path(path, &parameters, &mut names, document, &mut notes)?;
    let mut arguments = path_given.arguments;
    arguments.extend(parameters::others(document, &parameters, &path_given.said, &mut names, &mut notes));
    let mut body = body::of(document, described, &mut names, &mut notes)?;
    arguments.append(&mut body.arguments);
    if arguments.len() > MAX_ARGUMENTS {
        return Err((
            Reason::Parameter,
            format!("it has {} arguments; {MAX_ARGUMENTS} is the most", arguments.len()),
        ));
    }
    if let Some(calls) =
        described.operation.get("callbacks").and_then(Value::as_object).filter(|c| !c.is_empty())
    {
        let named: Vec<String> = calls.keys().map(|name| prose::short(name, 60)).collect();
        notes.push(format!(
            "its callbacks are requests of the provider's to you, and are not imported: {}",
            prose::some(&named)
        ));
    }
    let mut about = about(described);
    let effect = safety::effect(verb, path, described.id(), text(described.operation, "summary"));
    let mut denied = Vec::new();
    let carrier = match effect {
        Effect::Mutating => safety::carrier(&arguments, document, body.kind, &mut denied, &mut notes),
        Effect::Read => None,
    };
    // Hidden from models: the gateway fills it; on reads nothing does, and nothing has to.
    arguments.retain(|a| match effect {
        Effect::Mutating => carrier.as_ref().is_none_or(|c| c.argument != a.name),
        Effect::Read => a.required || !safety::names_a_key(&a.original, a.place),
    });
    if effect == Effect::Read
        && let Some(pages) = pages::hint(document, described.operation, &arguments)
    {
        let stop = if about.0.ends_with(['.', '!', '?', '…']) { "" } else { "." };
        about.0.push_str(&format!("{stop} {pages}"));
        about.1 = about.1.map(|details| format!("{details}\n\n{pages}"));
    }
    let parts: Vec<(String, &Value)> = arguments.iter().map(|a| (a.name.clone(), a.schema)).collect();
    let (written, lax) = schemas.write(&parts);
    notes.extend(lax);
    Ok(Draft {
        http: format!("{verb} {}", path_given.template),
        title: text(described.operation, "summary")
            .map(|s| prose::short(s, MAX_TITLE))
            .filter(|t| !t.is_empty()),
        description: about.0,
        details: about.1,
        natural: effect == Effect::Mutating && safety::repeats_harmlessly(verb, path),
        effect,
        body: body.kind,
        content_type: body.content_type,
        query: path_given.query,
        headers: path_given.headers,
        part_types: body.part_types,
        part_headers: body.part_headers,
        params: arguments.iter().filter_map(|a| a.param.clone().map(|p| (a.name.clone(), p))).collect(),
        styles: arguments.iter().filter_map(|a| a.style.map(|s| (a.name.clone(), s))).collect(),
        carrier,
        places: arguments
            .iter()
            .filter(|a| a.place != "path")
            .map(|a| Placed {
                name: a.name.clone(),
                place: a.place,
                field: a.field(),
                denied: denied.contains(&a.name),
            })
            .collect(),
        keyless: false,
        any_answer: answers_other_than_json(document, described.operation),
        input: input(&arguments, written, body.open),
        notes,
    })
}

/// The description for models, and the whole if that is more.
fn about(described: Described<'_>) -> (String, Option<String>) {
    let op = described.operation;
    let summary = text(op, "summary").unwrap_or_default().trim();
    let description = text(op, "description").unwrap_or_default().trim();
    let whole = match (summary, description) {
        ("", d) => d.to_owned(),
        (s, "") => s.to_owned(),
        (s, d) if d.starts_with(s) => d.to_owned(),
        (s, d) => {
            let stop = if s.ends_with(['.', '!', '?']) { "" } else { "." };
            format!("{s}{stop}\n\n{d}")
        }
    };
    let mut short = prose::short(&whole, MAX_DESCRIPTION);
    if short.is_empty() {
        short = described.http();
    }
    let cut = prose::plain(&whole) != short && !whole.is_empty();
    if is(op, "deprecated") {
        short = format!("Deprecated. {short}");
    }
    // What would move a terminal is not kept.
    let mut details: String = whole.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect();
    if details.len() > MAX_DETAILS {
        let end = (0..=MAX_DETAILS).rev().find(|i| details.is_char_boundary(*i)).unwrap_or(0);
        details.truncate(end);
    }
    (short, cut.then_some(details))
}

/// The schema of all arguments.
fn input(arguments: &[Argument<'_>], written: Vec<(String, Value)>, open: bool) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (argument, (name, mut schema)) in arguments.iter().zip(written) {
        if let (Some(about), Value::Object(members)) = (&argument.about, &mut schema) {
            members.insert("description".into(), Value::from(about.as_str()));
        }
        if argument.required {
            required.push(name.clone());
        }
        properties.insert(name, schema);
    }
    let mut input = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        input["required"] = json!(required);
    }
    if !open {
        input["additionalProperties"] = json!(false);
    }
    input
}

/// Whether its successes have bodies, and none of them JSON.
fn answers_other_than_json(document: &Document<'_>, operation: &Value) -> bool {
    let responses = operation.get("responses").and_then(Value::as_object).into_iter().flatten().take(64);
    let mut others = false;
    for (status, response) in responses {
        if !status.starts_with('2') {
            continue;
        }
        let content =
            document.resolve(response).ok().and_then(|r| r.get("content")).and_then(Value::as_object);
        for media in content.into_iter().flat_map(Map::keys) {
            if media.contains("json") || media.starts_with("*/") {
                return false;
            }
            others = true;
        }
    }
    others
}
