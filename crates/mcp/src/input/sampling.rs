//! What the client's language model is asked, and what it may answer (spec: client/sampling; SEP-1577: tools).
use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::Invalid;
use super::form::short;
use crate::json::Raw;

/// The most messages of a request.
const MAX_MESSAGES: usize = 256;
/// The most blocks of content of a message.
const MAX_BLOCKS: usize = 128;
/// The most tools of a request.
const MAX_TOOLS: usize = 128;

/// Members of `params`.
const KNOWN: &[&str] = &[
    "_meta",
    "messages",
    "modelPreferences",
    "systemPrompt",
    "includeContext",
    "temperature",
    "maxTokens",
    "stopSequences",
    "metadata",
    "tools",
    "toolChoice",
];

/// How a model may use the tools that it is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolChoice {
    /// As it likes.
    Auto,
    /// At least one.
    Required,
    /// None.
    None,
}

/// The `params` of `sampling/createMessage`, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    params: Raw,
    offers_tools: bool,
    uses_tools: bool,
    includes_context: bool,
}

impl Sampling {
    /// One message of the user, in text.
    ///
    /// # Errors
    /// [`Invalid`].
    pub fn text(text: &str, max_tokens: u64) -> Result<Sampling, Invalid> {
        let content = json!({ "type": "text", "text": text });
        Self::of(&json!({ "messages": [{ "role": "user", "content": content }], "maxTokens": max_tokens }))
    }

    /// The same with a system prompt.
    ///
    /// # Errors
    /// [`Invalid`].
    pub fn system(self, prompt: &str) -> Result<Sampling, Invalid> {
        self.with("systemPrompt", json!(prompt))
    }

    /// The same with tools that the model may ask to be called: objects as `tools/list` has them.
    ///
    /// # Errors
    /// [`Invalid`].
    pub fn tools(self, tools: Value, choice: ToolChoice) -> Result<Sampling, Invalid> {
        let mode = match choice {
            ToolChoice::Auto => "auto",
            ToolChoice::Required => "required",
            ToolChoice::None => "none",
        };
        self.with("tools", tools)?.with("toolChoice", json!({ "mode": mode }))
    }

    /// The same with another member of `params` set, such as `temperature` or `messages`.
    ///
    /// # Errors
    /// [`Invalid`].
    pub fn with(self, member: &str, value: Value) -> Result<Sampling, Invalid> {
        let object = self.params.object().ok_or_else(|| Invalid("params must be an object".into()))?;
        Self::parse(&object.with(&[(member, &value.to_string())]))
    }

    fn of(params: &Value) -> Result<Sampling, Invalid> {
        Self::parse(&Raw::trusted(params.to_string()))
    }

    /// Reads `params`.
    ///
    /// # Errors
    /// [`Invalid`] names the first thing that the specification doesn't allow.
    pub fn parse(params: &Raw) -> Result<Sampling, Invalid> {
        let invalid = |why: String| Invalid(why);
        let value: Value =
            params.read().map_err(|_| invalid("params hold a number that is too large".into()))?;
        let all = value.as_object().ok_or_else(|| invalid("params must be an object".into()))?;
        super::form::only(all, KNOWN).map_err(|name| invalid(format!("params must not have {name}")))?;
        let uses = messages(all.get("messages")).map_err(|why| invalid(format!("params.{why}")))?;
        members(all).map_err(|why| invalid(format!("params.{why}")))?;
        let offers_tools = all.get("tools").and_then(Value::as_array).is_some_and(|tools| !tools.is_empty());
        let context = all.get("includeContext").and_then(Value::as_str);
        Ok(Sampling {
            params: params.single_line(),
            offers_tools,
            uses_tools: uses || all.contains_key("tools") || all.contains_key("toolChoice"),
            includes_context: matches!(context, Some("thisServer" | "allServers")),
        })
    }

    /// The `params`, as they were given, on one line.
    pub fn params(&self) -> &Raw {
        &self.params
    }

    /// Whether the client must know tools in sampling.
    pub fn uses_tools(&self) -> bool {
        self.uses_tools
    }

    /// Whether it asks for context of servers, which is deprecated.
    pub fn includes_context(&self) -> bool {
        self.includes_context
    }

    /// The `params` of revisions whose messages have one block; `None` if a message has another number.
    pub(super) fn with_single_blocks(&self) -> Option<Raw> {
        let mut value: Value = self.params.read().ok()?;
        let mut changed = false;
        for message in value.get_mut("messages")?.as_array_mut()? {
            let content = message.get_mut("content")?;
            if let Value::Array(blocks) = content {
                let block = blocks.pop()?;
                if !blocks.is_empty() {
                    return None;
                }
                *content = block;
                changed = true;
            }
        }
        if changed { Some(Raw::trusted(value.to_string())) } else { Some(self.params.clone()) }
    }

    /// Whether an object is a `CreateMessageResult` for it.
    pub(super) fn fits(&self, result: &Map<String, Value>) -> Result<(), String> {
        if !result.get("model").is_some_and(Value::is_string) {
            return Err("model must be a string".into());
        }
        if result.get("stopReason").is_some_and(|reason| !reason.is_string()) {
            return Err("stopReason must be a string".into());
        }
        if !matches!(result.get("role").and_then(Value::as_str), Some("assistant" | "user")) {
            return Err("role must be assistant".into());
        }
        for block in blocks(result)? {
            match kind(block)? {
                "tool_result" => return Err("content must hold no tool_result".into()),
                "tool_use" if !self.offers_tools => {
                    return Err("content uses a tool, and none was offered".into());
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Checks `messages`; says whether they hold tool uses or their results.
fn messages(all: Option<&Value>) -> Result<bool, String> {
    let all = all.and_then(Value::as_array).ok_or("messages must be an array")?;
    if all.is_empty() || all.len() > MAX_MESSAGES {
        return Err(format!("messages must hold 1 to {MAX_MESSAGES}"));
    }
    let mut any = false;
    // Tool uses that the next message has to answer.
    let mut open: HashSet<&str> = HashSet::new();
    for (n, message) in all.iter().enumerate() {
        let at = |why: String| format!("messages[{n}]: {why}");
        let message = message.as_object().ok_or_else(|| at("must be an object".into()))?;
        let assistant = match message.get("role").and_then(Value::as_str) {
            Some("assistant") => true,
            Some("user") => false,
            _ => return Err(at("role must be user or assistant".into())),
        };
        let blocks = blocks(message).map_err(at)?;
        let mut used = HashSet::new();
        let mut results = 0;
        for block in &blocks {
            match kind(block).map_err(at)? {
                "tool_use" if !assistant => return Err(at("only an assistant uses tools".into())),
                "tool_use" => {
                    let id = block.get("id").and_then(Value::as_str).unwrap_or_default();
                    if !used.insert(id) {
                        return Err(at("two tool uses have one id".into()));
                    }
                }
                "tool_result" => {
                    results += 1;
                    let id = block.get("toolUseId").and_then(Value::as_str).unwrap_or_default();
                    if assistant || !open.remove(id) {
                        return Err(at("a tool_result answers no tool use of the message before".into()));
                    }
                }
                _ => {}
            }
        }
        if results > 0 && results < blocks.len() {
            return Err(at("tool results must not stand beside other content".into()));
        }
        if !open.is_empty() {
            return Err(at("a tool use of the message before has no result".into()));
        }
        any |= results > 0 || !used.is_empty();
        open = used;
    }
    if open.is_empty() { Ok(any) } else { Err("messages end with a tool use that has no result".into()) }
}

/// The blocks of a message's `content`.
fn blocks(message: &Map<String, Value>) -> Result<Vec<&Map<String, Value>>, String> {
    let content = message.get("content").ok_or("content is missing")?;
    let all = match content {
        Value::Array(all) if all.is_empty() || all.len() > MAX_BLOCKS => {
            return Err(format!("content must hold 1 to {MAX_BLOCKS} blocks"));
        }
        Value::Array(all) => all.iter().collect(),
        one => vec![one],
    };
    let objects = all.into_iter().map(|block| block.as_object()).collect::<Option<_>>();
    objects.ok_or_else(|| "content must be an object, or an array of objects".into())
}

/// The type of a block, which has what its type demands.
fn kind(block: &Map<String, Value>) -> Result<&str, String> {
    let text = |name: &str| match block.get(name) {
        Some(Value::String(_)) => Ok(()),
        _ => Err(format!("content needs {name}, a string")),
    };
    let kind = block.get("type").and_then(Value::as_str).ok_or("content needs type, a string")?;
    match kind {
        "text" => text("text")?,
        "image" | "audio" => {
            text("mimeType")?;
            text("data")?;
            let data = block.get("data").and_then(Value::as_str).unwrap_or_default();
            if STANDARD.decode(data).is_err() {
                return Err("data must be Base64".into());
            }
        }
        "tool_use" => {
            text("id")?;
            text("name")?;
            if !block.get("input").is_some_and(Value::is_object) {
                return Err("content needs input, an object".into());
            }
        }
        "tool_result" => {
            text("toolUseId")?;
            let typed = |one: &Value| one.get("type").is_some_and(Value::is_string);
            if !block.get("content").and_then(Value::as_array).is_some_and(|all| all.iter().all(typed)) {
                return Err("a tool_result needs content, an array of blocks".into());
            }
            if block.get("isError").is_some_and(|flag| !flag.is_boolean()) {
                return Err("isError must be true or false".into());
            }
        }
        _ => return Err("content must be of type text, image, audio, tool_use or tool_result".into()),
    }
    Ok(kind)
}

/// Checks what is beside `messages`.
fn members(all: &Map<String, Value>) -> Result<(), String> {
    let must = |name: &str, ok: fn(&Value) -> bool, what: &str| match all.get(name) {
        Some(value) if !ok(value) => Err(format!("{name} must be {what}")),
        _ => Ok(()),
    };
    if all.get("maxTokens").and_then(Value::as_u64).unwrap_or(0) == 0 {
        return Err("maxTokens must be a whole number above 0".into());
    }
    must("_meta", Value::is_object, "an object")?;
    must("systemPrompt", Value::is_string, "a string")?;
    must("temperature", Value::is_number, "a number")?;
    must("metadata", Value::is_object, "an object")?;
    must("stopSequences", |v| super::form::strings(v).is_some(), "an array of strings")?;
    must(
        "includeContext",
        |v| matches!(v.as_str(), Some("none" | "thisServer" | "allServers")),
        "none, thisServer or allServers",
    )?;
    must("toolChoice", Value::is_object, "an object")?;
    if let Some(choice) = all.get("toolChoice").and_then(Value::as_object) {
        super::form::only(choice, &["mode"]).map_err(|name| format!("toolChoice must not have {name}"))?;
        let mode = choice.get("mode");
        if mode.is_some_and(|mode| !matches!(mode.as_str(), Some("auto" | "required" | "none"))) {
            return Err("toolChoice.mode must be auto, required or none".into());
        }
    }
    if let Some(preferences) = all.get("modelPreferences") {
        self::preferences(preferences).map_err(|why| format!("modelPreferences {why}"))?;
    }
    match all.get("tools") {
        Some(tools) => self::tools(tools),
        None => Ok(()),
    }
}

fn preferences(all: &Value) -> Result<(), String> {
    let all = all.as_object().ok_or("must be an object")?;
    for name in ["costPriority", "speedPriority", "intelligencePriority"] {
        let within = |n: &Value| n.as_f64().is_some_and(|n| (0.0..=1.0).contains(&n));
        if all.get(name).is_some_and(|n| !within(n)) {
            return Err(format!("needs a number from 0 to 1 as {name}"));
        }
    }
    let named =
        |hint: &Value| hint.as_object().is_some_and(|hint| hint.get("name").is_none_or(Value::is_string));
    match all.get("hints") {
        Some(hints) if !hints.as_array().is_some_and(|hints| hints.iter().all(named)) => {
            Err("needs an array of {\"name\"} as hints".into())
        }
        _ => Ok(()),
    }
}

fn tools(all: &Value) -> Result<(), String> {
    let all = all.as_array().filter(|all| all.len() <= MAX_TOOLS);
    let all = all.ok_or_else(|| format!("tools must be an array of {MAX_TOOLS} at most"))?;
    let mut names = HashSet::new();
    for (n, tool) in all.iter().enumerate() {
        let name = tool.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| format!("tools[{n}] needs a name"))?;
        let schema = tool.get("inputSchema").and_then(|schema| schema.get("type"));
        if schema.and_then(Value::as_str) != Some("object") {
            return Err(format!("tools[{n}] needs an inputSchema of type object"));
        }
        if !names.insert(name) {
            return Err(format!("tools: {} is there twice", short(name)));
        }
    }
    Ok(())
}
