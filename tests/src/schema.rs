//! Messages against the protocol's own schemas: which definition of which revision a message must fit, and whether
//! it does.
//!
//! The schemas are read from a folder of `<revision>.json` files that `cargo xtask install` takes out of the official
//! conformance suite. What a revision defines is read from the schema itself (`ClientRequest`, `ServerNotification`
//! and so on), so that a message in the wrong direction fails too.

mod tasks;

use anyhow::{Context, Result, bail};
use jsonschema::Validator;
use serde::Deserialize;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::rc::Rc;

/// The revisions, oldest first.
pub const REVISIONS: [&str; 4] = ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];

/// Stands for a method that the revision does not define; what a caller made up is no kind of its own.
pub const OTHER: &str = "(other)";

/// Who sent a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sender {
    /// The server.
    Server,
    /// The client.
    Client,
}

/// A line of a wire log.
#[derive(Debug, Clone, Deserialize)]
pub struct Entry {
    /// Who sent it.
    pub from: Sender,
    /// The revision of the exchange; `None` where none was agreed on, as for a body that is no JSON.
    pub revision: Option<String>,
    /// The method of the request that a response answers.
    pub about: Option<String>,
    /// The message.
    pub message: Value,
}

/// What sort of message it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// The revision, or `any`.
    pub revision: String,
    /// Who sent it.
    pub from: Sender,
    /// `result`, `input_required`, `task`, `error`, `notification`, `request` or `unreadable`.
    pub what: &'static str,
    /// The method, or [`OTHER`].
    pub method: String,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = if self.from == Sender::Server { "" } else { " by the client" };
        write!(f, "{} {} {}{from}", self.revision, self.method, self.what)
    }
}

/// What is said of a message.
#[derive(Debug)]
pub struct Verdict {
    /// Its kind.
    pub kind: Kind,
    /// Whether the revision has a definition for it; without one only the envelope was checked.
    pub defined: bool,
    /// Why it does not fit.
    pub problem: Option<String>,
}

/// The schemas of all revisions.
pub struct Schemas(BTreeMap<&'static str, Document>);

impl Schemas {
    /// Reads them.
    ///
    /// # Errors
    /// One is missing or no such schema; says how to get them.
    pub fn load(folder: &Path) -> Result<Schemas> {
        let mut all = BTreeMap::new();
        for revision in REVISIONS {
            let file = folder.join(format!("{revision}.json"));
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("{}: run `cargo xtask install`", file.display()))?;
            let root = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
            let document = Document::new(root).with_context(|| file.display().to_string())?;
            let requests = document.of(&document.requests, Sender::Client).len();
            let notifications = document.of(&document.notifications, Sender::Server).len();
            if requests < 8 || notifications < 5 {
                bail!("{} does not define what clients and servers send", file.display());
            }
            all.insert(revision, document);
        }
        Ok(Schemas(all))
    }

    /// The schema of one revision, for tests of single messages.
    ///
    /// # Errors
    /// It is no schema of the protocol.
    pub fn of(revision: &'static str, root: Value) -> Result<Schemas> {
        Ok(Schemas(BTreeMap::from([(revision, Document::new(root)?)])))
    }

    /// Judges what a line holds: one message, or those of a batch.
    #[must_use]
    pub fn judge(&self, entry: &Entry) -> Vec<Verdict> {
        let Some(name) = entry.revision.as_deref() else { return vec![self.judge_unversioned(entry)] };
        let Some((name, document)) = self.0.get_key_value(name) else {
            let problem = Some(format!("there is no schema of revision {name:?}"));
            let kind = kind("unknown", entry.from, "unreadable", None);
            return vec![Verdict { kind, defined: false, problem }];
        };
        match &entry.message {
            Value::Array(all) if document.has("JSONRPCBatchResponse") => all
                .iter()
                .map(|message| document.judge(name, entry.from, entry.about.as_deref(), message))
                .collect(),
            message => vec![document.judge(name, entry.from, entry.about.as_deref(), message)],
        }
    }

    /// Before a revision is agreed on a message must fit one of them.
    fn judge_unversioned(&self, entry: &Entry) -> Verdict {
        let mut last = None;
        for (name, document) in self.0.iter().rev() {
            let mut verdict = document.judge(name, entry.from, entry.about.as_deref(), &entry.message);
            verdict.kind.revision = "any".into();
            if verdict.problem.is_none() {
                return verdict;
            }
            last.get_or_insert(verdict);
        }
        last.unwrap_or_else(|| Verdict {
            kind: kind("any", entry.from, "unreadable", None),
            defined: false,
            problem: Some("there is no schema".into()),
        })
    }
}

fn kind(revision: &str, from: Sender, what: &'static str, method: Option<&str>) -> Kind {
    Kind { revision: revision.into(), from, what, method: method.unwrap_or(OTHER).into() }
}

/// Methods and the definition of their request or notification.
type Methods = BTreeMap<String, String>;

struct Document {
    root: Value,
    /// `definitions` or `$defs`.
    keyword: &'static str,
    requests: BTreeMap<Sender, Methods>,
    notifications: BTreeMap<Sender, Methods>,
    /// Error codes that have a definition of their own.
    errors: BTreeMap<i64, String>,
    /// The extension of tasks, which belongs to the revisions whose results may ask.
    tasks: Option<tasks::Tasks>,
    compiled: RefCell<BTreeMap<String, Rc<Validator>>>,
}

/// The bounds and the default of a form's number. Where the suite's package has "integer", the specification's own files
/// have "number" (schema/2025-11-25 and later), and a scored scenario of the suite itself wants a default of 95.5.
fn numbers_are_numbers(properties: Option<&mut Value>) {
    let Some(properties) = properties else { return };
    for name in ["default", "minimum", "maximum"] {
        if let Some(word) = properties.pointer_mut(&format!("/{name}/type")) {
            *word = "number".into();
        }
    }
}

impl Document {
    fn new(mut root: Value) -> Result<Document> {
        for keyword in ["$defs", "definitions"] {
            numbers_are_numbers(root.pointer_mut(&format!("/{keyword}/NumberSchema/properties")));
        }
        let keyword = if root.get("$defs").is_some() { "$defs" } else { "definitions" };
        let Some(names) = root.get(keyword).and_then(Value::as_object) else { bail!("no definitions") };
        let methods = |group: &str| -> Methods {
            let Some(group_schema) = names.get(group) else { return Methods::new() };
            let members: Vec<&str> = match group_schema.get("anyOf").and_then(Value::as_array) {
                Some(all) => all
                    .iter()
                    .filter_map(|m| m.get("$ref").and_then(Value::as_str))
                    .filter_map(|r| r.rsplit('/').next())
                    .collect(),
                None => vec![group],
            };
            let method = |name: &&str| names.get(*name)?.pointer("/properties/method/const")?.as_str();
            members.iter().filter_map(|name| Some((method(name)?.to_owned(), (*name).to_owned()))).collect()
        };
        let both = |what: &str| {
            BTreeMap::from([
                (Sender::Server, methods(&format!("Server{what}"))),
                (Sender::Client, methods(&format!("Client{what}"))),
            ])
        };
        let (requests, notifications) = (both("Request"), both("Notification"));
        let code = |schema: &Value| -> Option<i64> {
            let own = schema.pointer("/properties/code/const");
            let all = schema.pointer("/properties/error/allOf").and_then(Value::as_array);
            let inner = || all?.iter().find_map(|part| part.pointer("/properties/code/const"));
            own.or_else(inner)?.as_i64()
        };
        let errors = names.iter().filter(|(name, _)| name.ends_with("Error"));
        let errors = errors.filter_map(|(name, schema)| Some((code(schema)?, name.clone()))).collect();
        let compiled = RefCell::default();
        let asks = names.contains_key("InputRequiredResult");
        let tasks = asks.then(tasks::Tasks::new).transpose().map_err(anyhow::Error::msg)?;
        Ok(Document { keyword, requests, notifications, errors, tasks, compiled, root })
    }

    fn has(&self, definition: &str) -> bool {
        self.root[self.keyword].get(definition).is_some()
    }

    fn of<'a>(&self, methods: &'a BTreeMap<Sender, Methods>, sender: Sender) -> &'a Methods {
        static NONE: Methods = Methods::new();
        methods.get(&sender).unwrap_or(&NONE)
    }

    /// Checks a value against a definition.
    fn fits(&self, definition: &str, value: &Value) -> Result<(), String> {
        let known = self.compiled.borrow().get(definition).cloned();
        let validator = match known {
            Some(validator) => validator,
            None => {
                let made = Rc::new(self.compile(definition)?);
                self.compiled.borrow_mut().insert(definition.to_owned(), made.clone());
                made
            }
        };
        if validator.is_valid(value) {
            return Ok(());
        }
        let told: Vec<String> = validator
            .iter_errors(value)
            .take(3)
            .map(|e| {
                let at = e.instance_path().to_string();
                let text: String = e.to_string().chars().take(300).collect();
                format!("at {}: {text}", if at.is_empty() { "/" } else { &at })
            })
            .collect();
        Err(format!("no {definition}: {}", told.join("; ")))
    }

    fn compile(&self, definition: &str) -> Result<Validator, String> {
        if !self.has(definition) {
            return Err(format!("the schema has no definition {definition}"));
        }
        // In draft-07 what stands beside a `$ref` is ignored, so it stands alone.
        let reference = json!({"$ref": format!("#/{}/{definition}", self.keyword)});
        let mut schema = json!({"allOf": [reference]});
        for word in ["$schema", self.keyword] {
            schema[word] = self.root[word].clone();
        }
        jsonschema::options()
            .should_validate_formats(true)
            .with_format("byte", is_base64)
            .build(&schema)
            .map_err(|e| format!("{definition} can't be compiled: {e}"))
    }

    fn judge(&self, revision: &str, from: Sender, about: Option<&str>, message: &Value) -> Verdict {
        let method = message.get("method").and_then(Value::as_str);
        let (what, method, checked) = match (method, message.get("id").is_some()) {
            (Some(method), true) => {
                let definition = self.of(&self.requests, from).get(method);
                let checked = match (definition, &self.tasks) {
                    // A server asks what the revision defines, and from 2026-07-28 on nothing at all.
                    (None, _) if from == Sender::Server => {
                        Err("this revision has no such request by the server".into())
                    }
                    (None, Some(extension)) if tasks::METHODS.contains(&method) => self
                        .fits("JSONRPCRequest", message)
                        .and_then(|()| extension.request(method, message))
                        .map(|()| true),
                    _ => self.sent(definition, "JSONRPCRequest", message),
                };
                ("request", Some(method), checked)
            }
            (Some(method), false) => {
                let definition = self.of(&self.notifications, from).get(method);
                // Notifications of other extensions come with extensions that nobody has here.
                let checked = match (definition, &self.tasks) {
                    (Some(_), _) => self.sent(definition, "JSONRPCNotification", message),
                    (None, Some(extension)) if from == Sender::Server && method == tasks::NOTIFICATION => {
                        let task = message.get("params").unwrap_or(&Value::Null);
                        self.fits("JSONRPCNotification", message)
                            .and_then(|()| extension.detailed(task))
                            .and_then(|()| self.asked_by_task(task))
                            .map(|()| true)
                    }
                    (None, _) => Err(format!("this revision has no such notification by the {from:?}")),
                };
                ("notification", Some(method), checked)
            }
            (None, _) if message.get("error").is_some() => ("error", about, self.error(message)),
            (None, _) if message.get("result").is_some() => {
                let asked = message.pointer("/result/resultType").and_then(Value::as_str);
                let asks = asked == Some("input_required") && self.has("InputRequiredResult");
                let task = asked == Some("task") && self.tasks.is_some();
                let what = match (asks, task) {
                    (true, _) => "input_required",
                    (_, true) => "task",
                    _ => "result",
                };
                (what, about, self.result(from, about, asks, message))
            }
            _ => ("unreadable", None, Err("it is neither a request, a notification nor a response".into())),
        };
        let method = method.filter(|m| self.defines(m) || self.tasks.is_some() && defines_task(m));
        let (defined, problem) = match checked {
            Ok(defined) => (defined, None),
            Err(why) => (true, Some(why)),
        };
        Verdict { kind: kind(revision, from, what, method), defined, problem }
    }

    /// What a task asks is what a result may ask.
    fn asked_by_task(&self, task: &Value) -> Result<(), String> {
        match task.get("inputRequests") {
            Some(requests) => self.fits("InputRequests", requests),
            None => Ok(()),
        }
    }

    fn defines(&self, method: &str) -> bool {
        let all = self.requests.values().chain(self.notifications.values());
        all.into_iter().any(|methods| methods.contains_key(method))
    }

    /// A request or a notification: by its own definition if there is one.
    fn sent(&self, definition: Option<&String>, envelope: &str, message: &Value) -> Result<bool, String> {
        self.fits(envelope, message)?;
        let Some(definition) = definition else { return Ok(false) };
        self.fits(definition, message).map(|()| true)
    }

    fn error(&self, message: &Value) -> Result<bool, String> {
        if self.has("JSONRPCErrorResponse") {
            self.fits("JSONRPCErrorResponse", message)?;
        } else if message.get("id").is_none() {
            // The transport pages of all revisions allow an error without an id where there is no request to name;
            // the schemas do so since 2025-11-25.
            let mut named = message.clone();
            named["id"] = json!(0);
            self.fits("JSONRPCError", &named)?;
        } else {
            self.fits("JSONRPCError", message)?;
        }
        if message.get("result").is_some() {
            return Err("it holds a result and an error".into());
        }
        let code = message.pointer("/error/code").and_then(Value::as_i64);
        if let Some(definition) = code.and_then(|c| self.errors.get(&c)) {
            let whole = self.root[self.keyword][definition].pointer("/properties/error").is_some();
            self.fits(definition, if whole { message } else { &message["error"] })?;
        }
        Ok(true)
    }

    fn result(&self, from: Sender, about: Option<&str>, asks: bool, message: &Value) -> Result<bool, String> {
        let envelope =
            if self.has("JSONRPCResultResponse") { "JSONRPCResultResponse" } else { "JSONRPCResponse" };
        self.fits(envelope, message)?;
        let Some(about) = about else { return Err("the log does not say which request it answers".into()) };
        let result = &message["result"];
        if let Some(extension) = self.tasks.as_ref().filter(|_| from == Sender::Server) {
            if tasks::METHODS.contains(&about) {
                extension.result(about, result)?;
                return self.asked_by_task(result).map(|()| true);
            }
            if result.get("resultType").and_then(Value::as_str) == Some("task") {
                if about != "tools/call" {
                    return Err(format!("{about} may not end in a task"));
                }
                return extension.created(result).map(|()| true);
            }
        }
        let asker = if from == Sender::Server { Sender::Client } else { Sender::Server };
        let Some(request) = self.of(&self.requests, asker).get(about) else { return Ok(false) };
        let base = request.trim_end_matches("Request");
        if asks {
            // Only where the response's own definition lists it.
            let response = &self.root[self.keyword][&format!("{base}ResultResponse")];
            let may =
                response.pointer("/properties/result/anyOf").and_then(Value::as_array).is_some_and(|a| {
                    a.iter().any(|r| {
                        r.get("$ref")
                            .and_then(Value::as_str)
                            .is_some_and(|r| r.ends_with("/InputRequiredResult"))
                    })
                });
            if !may {
                return Err(format!("{about} may not ask back"));
            }
            if result.get("inputRequests").is_none() && result.get("requestState").is_none() {
                return Err("an InputRequiredResult without inputRequests and requestState".into());
            }
            return self.fits("InputRequiredResult", result).map(|()| true);
        }
        let own = format!("{base}Result");
        let definition = if self.has(&own) { own.as_str() } else { "EmptyResult" };
        self.fits(definition, result).map(|()| true)
    }
}

fn defines_task(method: &str) -> bool {
    tasks::METHODS.contains(&method) || method == tasks::NOTIFICATION
}

/// The schemas' format `byte`: padded Base64 (OpenAPI 3.0).
fn is_base64(text: &str) -> bool {
    let bare = text.trim_end_matches('=');
    text.len().is_multiple_of(4)
        && text.len() - bare.len() <= 2
        && bare.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

#[cfg(test)]
mod tests;
