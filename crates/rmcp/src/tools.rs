//! Tools as they are listed, and what the ledger has to know of one when it is called.

use crate::Durable;
use crate::config::Config;
use calls::argument::{self, KEY_ARGUMENT};
use rmcp::model::{JsonObject, PaginatedRequestParams, Tool};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For how long a list of tools is believed.
const FRESH: Duration = Duration::from_secs(60);
/// A list with more pages is not walked to its end.
const MOST_PAGES: usize = 64;

/// What the ledger has to know of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// It only reads, and its calls go past the ledger.
    pub reads: bool,
    /// The key argument is ours: it was added to the tool's schema.
    pub key_is_ours: bool,
    /// It promises a structured result of its own.
    pub has_output_schema: bool,
}

/// Whether a tool is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    Yes(Facts),
    /// The handler lists its tools, and this is none of them.
    No,
    /// The handler does not say.
    Unsaid,
}

/// The tools of the newest list, for handlers that don't say what a single tool is.
#[derive(Default)]
pub(crate) struct Known(Mutex<Option<(Instant, HashMap<String, Facts>)>>);

impl Known {
    fn of(&self, name: &str) -> Option<Served> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, tools) = known.as_ref()?;
        if since.elapsed() >= FRESH {
            return None;
        }
        // One that is not there may have been added since; that one only reads is not believed for long.
        tools.get(name).filter(|facts| !facts.reads).map(|facts| Served::Yes(*facts))
    }

    fn set(&self, tools: HashMap<String, Facts>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), tools));
    }
}

fn takes_key(tool: &Tool) -> bool {
    let properties = tool.input_schema.get("properties");
    properties.is_none_or(Value::is_object) && argument::allows_key(&*tool.input_schema)
}

fn facts(config: &Config, tool: &Tool) -> Facts {
    let annotated = tool.annotations.as_ref().and_then(|a| a.read_only_hint) == Some(true);
    Facts {
        reads: config.read_only.contains(&*tool.name) || (config.trust_annotations && annotated),
        key_is_ours: config.key_argument && takes_key(tool),
        has_output_schema: tool.output_schema.is_some(),
    }
}

/// The tool as it is listed: with the key argument, if it is ledgered and its schema allows for it.
pub(crate) fn listed(config: &Config, mut tool: Tool) -> Tool {
    let facts = facts(config, &tool);
    if facts.reads || !facts.key_is_ours {
        return tool;
    }
    let mut schema: JsonObject = (*tool.input_schema).clone();
    let properties = schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(properties) = properties {
        properties.insert(KEY_ARGUMENT.into(), argument::property());
        tool.input_schema = Arc::new(schema);
    }
    tool
}

impl<H: ServerHandler> Durable<H> {
    pub(crate) async fn served(&self, name: &str, context: &RequestContext<RoleServer>) -> Served {
        if let Some(tool) = self.handler.get_tool(name) {
            return Served::Yes(facts(&self.config, &tool));
        }
        if let Some(known) = self.tools.of(name) {
            return known;
        }
        let Some(tools) = self.walk(context).await else { return Served::Unsaid };
        let found = tools.get(name).map_or(Served::No, |facts| Served::Yes(*facts));
        self.tools.set(tools);
        found
    }

    /// All tools that the handler lists; `None` if it lists none or not all.
    async fn walk(&self, context: &RequestContext<RoleServer>) -> Option<HashMap<String, Facts>> {
        let mut tools = HashMap::new();
        let mut cursor = None;
        for _ in 0..MOST_PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor.take());
            let page = self.handler.list_tools(Some(page), context.clone()).await.ok()?;
            tools.extend(page.tools.iter().map(|t| (t.name.to_string(), facts(&self.config, t))));
            match page.next_cursor {
                None => return (!tools.is_empty()).then_some(tools),
                next => cursor = next,
            }
        }
        None
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(schema: Value) -> Tool {
        let Value::Object(schema) = schema else { panic!("no object") };
        Tool::new("t", "a tool", Arc::new(schema))
    }

    #[test]
    fn the_key_argument_is_added_to_ledgered_tools_with_a_plain_root_only() {
        let plain =
            tool(json!({ "type": "object", "properties": { "a": {} }, "additionalProperties": false }));
        let usual = Config::default();
        let with = listed(&usual, plain.clone());
        assert_eq!(with.input_schema["properties"]["a"], json!({}));
        assert_eq!(with.input_schema["properties"][KEY_ARGUMENT]["type"], "string");
        assert!(facts(&usual, &plain).key_is_ours);
        let bare = listed(&usual, tool(json!({ "type": "object" })));
        assert!(bare.input_schema["properties"][KEY_ARGUMENT].is_object());

        let reads = Config { read_only: ["t".to_owned()].into(), ..Config::default() };
        assert_eq!(listed(&reads, plain.clone()), plain);
        let without = Config { key_argument: false, ..Config::default() };
        assert_eq!(listed(&without, plain.clone()), plain);
        assert!(!facts(&without, &plain).key_is_ours);
        for other in [
            json!({ "type": "object", "oneOf": [{}] }),
            json!({ "type": "object", "properties": { "idempotency_key": {} } }),
            json!({ "$schema": "http://json-schema.org/draft-07/schema#", "type": "object" }),
        ] {
            let other = tool(other);
            assert_eq!(listed(&usual, other.clone()), other);
            assert!(!facts(&usual, &other).key_is_ours);
        }
    }

    #[test]
    fn annotations_count_only_where_they_are_trusted() {
        let mut hinted = tool(json!({ "type": "object" }));
        hinted.annotations = Some(rmcp::model::ToolAnnotations::new().read_only(true));
        assert!(!facts(&Config::default(), &hinted).reads);
        let trusting = Config { trust_annotations: true, ..Config::default() };
        assert!(facts(&trusting, &hinted).reads);
        assert!(!facts(&trusting, &tool(json!({ "type": "object" }))).reads);
    }
}
