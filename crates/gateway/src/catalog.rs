//! The tools that are served: found by name or canonical id, their lists ready made, in a fixed order. A
//! catalog never changes; a reload makes a new one.

use crate::arguments::{self, Schema, SchemaError};
use crate::prompt::PromptEntry;
use crate::resource::{ResourceEntry, TemplateEntry};
use crate::tool::{Body, ToolSettings, ToolSpec};
use ledger::Millis;
use mcp::error::RpcError;
use mcp::headers::HeaderParams;
use mcp::json::{Raw, quote};
use mcp::paging;
use mcp::server::Outcome;
use std::collections::HashMap;
use std::sync::Arc;

/// The name of the list in cursors.
const LIST: &str = "tools";
/// Tools on one page.
const PAGE: usize = 100;

/// A tool with everything that a call of it needs.
pub struct Entry {
    /// How it is known.
    pub spec: ToolSpec,
    /// What the operator decided.
    pub settings: ToolSettings,
    /// What it does.
    pub body: Body,
    pub(crate) schema: Schema,
    pub(crate) header_params: HeaderParams,
    /// The `idempotency_key` argument is ours, not the tool's.
    pub(crate) key_is_ours: bool,
}

/// Why a set of tools can't be served.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// Two tools would have one name.
    #[error("the tools {0} and {1} would both be called {2:?} on the wire; give one of them another `name`")]
    SameName(String, String, String),
    /// Two tools have one canonical id.
    #[error("there are two tools with the id {0:?}; rename one of the integrations or methods")]
    SameId(String),
    /// A name that hosts don't accept.
    #[error(
        "the tool {0} can't be called {1:?}: a name has 1 to 64 of the characters A-Z, a-z, 0-9, _ and -"
    )]
    BadName(String, String),
    /// A schema that can't be used.
    #[error("the tool {0} can't be served: {1}")]
    Schema(String, SchemaError),
    /// A wrong header annotation.
    #[error("the tool {0} can't be served: its schema's x-mcp-header annotations are not valid ({1})")]
    Header(String, String),
    /// `key_from` names an argument that the tool hasn't.
    #[error("the tool {0} has no argument {1:?}, which its `key_from` names")]
    KeyFrom(String, String),
}

/// Everything that a server offers.
#[derive(Default)]
pub struct Offer {
    /// Tools, in the order in which they are listed.
    pub tools: Vec<(ToolSpec, ToolSettings, Body)>,
    /// Resources, in the order in which they are listed.
    pub resources: Vec<ResourceEntry>,
    /// Templates, in the order in which they are listed and tried.
    pub templates: Vec<TemplateEntry>,
    /// Prompts, in the order in which they are listed.
    pub prompts: Vec<PromptEntry>,
}

/// The list settings.
#[derive(Clone, Debug)]
pub struct ListSettings {
    /// How long a client may keep a list.
    pub ttl: Millis,
    /// Whether every caller sees the same, without authentication.
    pub public: bool,
    /// `io.modelcontextprotocol/serverInfo`, as JSON text.
    pub server_info: Raw,
}

/// The tools that are served.
pub struct Catalog {
    entries: Vec<Arc<Entry>>,
    by_name: HashMap<String, usize>,
    by_id: HashMap<String, usize>,
    /// Each page's result, by the index of its first entry.
    pages: Vec<Outcome>,
    /// Identifies the lists' content.
    digest: [u8; 32],
}

impl Catalog {
    /// Checks the tools and makes their lists, in the given order.
    ///
    /// # Errors
    /// [`CatalogError`] names the tool and what to change.
    pub fn build(offer: Offer, lists: &ListSettings) -> Result<Catalog, CatalogError> {
        let mut c = Catalog {
            entries: Vec::new(),
            by_name: HashMap::new(),
            by_id: HashMap::new(),
            pages: Vec::new(),
            digest: [0; 32],
        };
        for (spec, settings, body) in offer.tools {
            c.add(spec, settings, body)?;
        }
        c.make_pages(lists);
        Ok(c)
    }

    fn add(&mut self, spec: ToolSpec, settings: ToolSettings, body: Body) -> Result<(), CatalogError> {
        let id = spec.canonical.to_string();
        let name_ok = (1..=64).contains(&spec.name.len())
            && spec.name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if !name_ok {
            return Err(CatalogError::BadName(id, spec.name));
        }
        let index = self.entries.len();
        if let Some(other) = self.by_name.insert(spec.name.clone(), index) {
            return Err(CatalogError::SameName(
                self.entries[other].spec.canonical.to_string(),
                id,
                spec.name,
            ));
        }
        if self.by_id.insert(id.clone(), index).is_some() {
            return Err(CatalogError::SameId(id));
        }
        let schema = Schema::compile(&spec.input_schema).map_err(|e| CatalogError::Schema(id.clone(), e))?;
        let root = spec
            .input_schema
            .object()
            .ok_or_else(|| CatalogError::Schema(id.clone(), SchemaError::NotAnObject))?;
        let properties = root.get("properties").and_then(|p| p.object());
        if let Some(missing) =
            settings.key_from.iter().find(|n| properties.as_ref().is_none_or(|p| p.get(n).is_none()))
        {
            return Err(CatalogError::KeyFrom(id, missing.clone()));
        }
        let header_params = HeaderParams::of_schema(&spec.input_schema)
            .map_err(|e| CatalogError::Header(id, e.to_string()))?;
        let key_is_ours =
            matches!(body, Body::Mutating(_)) && settings.inject_key && arguments::allows_key(&root);
        self.entries.push(Arc::new(Entry { spec, settings, body, schema, header_params, key_is_ours }));
        Ok(())
    }

    fn make_pages(&mut self, lists: &ListSettings) {
        use sha2::{Digest, Sha256};
        let mut hash = Sha256::new();
        let scope = if lists.public { "public" } else { "private" };
        let count = self.entries.len().div_ceil(PAGE).max(1);
        for page in 0..count {
            let slice = self.entries.iter().skip(page * PAGE).take(PAGE);
            let tools: Vec<String> = slice.clone().map(|e| e.listing()).collect();
            let mut text = format!(r#"{{"tools":[{}]"#, tools.join(","));
            hash.update(&text);
            if page + 1 < count
                && let Some(last) = slice.clone().next_back()
            {
                text.push_str(&format!(r#","nextCursor":{}"#, quote(&paging::encode(LIST, &last.spec.name))));
            }
            text.push_str(&format!(r#","ttlMs":{},"cacheScope":"{scope}"}}"#, lists.ttl.0.max(0)));
            self.pages.push(crate::service::complete(
                text,
                &[(mcp::constants::meta::SERVER_INFO, lists.server_info.as_str())],
            ));
        }
        self.digest = hash.finalize().into();
    }

    /// A page of `tools/list`.
    #[must_use]
    pub fn page(&self, params: Option<&mcp::json::RawObject>) -> Outcome {
        let after = match paging::requested(LIST, params) {
            Ok(a) => a,
            Err(e) => return Outcome::Error(e),
        };
        let index = match after {
            None => Some(0),
            // Pages begin at fixed places, so only the last name of a page is a cursor that was issued.
            Some(name) => self.by_name.get(&name).map(|i| i + 1).filter(|i| i % PAGE == 0).map(|i| i / PAGE),
        };
        match index.and_then(|i| self.pages.get(i)) {
            Some(page) => page.clone(),
            None => Outcome::Error(RpcError::invalid_params(
                "this cursor is of a list that has changed; list again without a cursor",
            )),
        }
    }

    /// By the name on the wire.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Arc<Entry>> {
        self.by_name.get(name).map(|i| &self.entries[*i])
    }

    /// By the canonical id, or the name on the wire.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&Arc<Entry>> {
        self.by_id.get(id).or_else(|| self.by_name.get(id)).map(|i| &self.entries[*i])
    }

    /// All, in their order.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.iter()
    }

    /// Whether clients would see the same lists.
    #[must_use]
    pub fn lists_like(&self, other: &Catalog) -> bool {
        self.digest == other.digest
    }
}

impl Entry {
    /// Its object in `tools/list`.
    fn listing(&self) -> String {
        let s = &self.spec;
        let mut o = format!(r#"{{"name":{}"#, quote(&s.name));
        if let Some(t) = &s.title {
            o.push_str(&format!(r#","title":{}"#, quote(t)));
        }
        o.push_str(&format!(r#","description":{}"#, quote(&s.description)));
        let schema = match s.input_schema.object() {
            Some(root) if self.key_is_ours => arguments::with_key(&root),
            _ => s.input_schema.clone(),
        };
        o.push_str(&format!(r#","inputSchema":{}"#, schema.single_line()));
        if let Some(out) = &s.output_schema {
            o.push_str(&format!(r#","outputSchema":{}"#, out.single_line()));
        }
        let read = matches!(self.body, Body::Read(_));
        o.push_str(&format!(r#","annotations":{{"readOnlyHint":{read},"openWorldHint":true}}}}"#));
        o
    }
}
