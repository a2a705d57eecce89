//! The tools of a catalog: found by name or canonical id, checked when they are added.

use super::{CatalogError, with_icons};
use crate::arguments::{self, Schema, SchemaError};
use crate::metrics::Usual;
use crate::requires::Requires;
use crate::tool::{Body, ToolSettings, ToolSpec};
use mcp::headers::HeaderParams;
use mcp::json::{Raw, RawObject, quote};
use std::collections::HashMap;
use std::sync::Arc;

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
    /// What a client must have declared.
    pub(crate) requires: Option<Requires>,
    pub(crate) usual: Usual,
}

#[derive(Default)]
pub(super) struct Tools {
    pub(super) entries: Vec<Arc<Entry>>,
    by_name: HashMap<String, usize>,
    by_id: HashMap<String, usize>,
}

impl Tools {
    pub(super) fn add(
        &mut self,
        spec: ToolSpec,
        settings: ToolSettings,
        body: Body,
    ) -> Result<(), CatalogError> {
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
            .map_err(|e| CatalogError::Header(id.clone(), e.to_string()))?;
        if !spec.annotations.as_ref().is_none_or(Raw::is_object) {
            return Err(CatalogError::ToolObject(id, "annotations"));
        }
        let requires = match &spec.requires {
            None => None,
            Some(raw) => match Requires::read(raw) {
                Some(r) => Some(r),
                None => return Err(CatalogError::ToolObject(id, "required capabilities")),
            },
        };
        super::check_icons(&format!("tool {id}"), &spec.icons)?;
        let key_is_ours =
            matches!(body, Body::Mutating(_)) && settings.inject_key && arguments::allows_key(&root);
        self.entries.push(Arc::new(Entry {
            spec,
            settings,
            body,
            schema,
            header_params,
            key_is_ours,
            requires,
            usual: Usual::default(),
        }));
        Ok(())
    }

    /// Adds a tool of another catalog, which has checked it.
    pub(super) fn share(&mut self, entry: &Arc<Entry>) {
        let index = self.entries.len();
        self.by_name.insert(entry.spec.name.clone(), index);
        self.by_id.insert(entry.spec.canonical.to_string(), index);
        self.entries.push(entry.clone());
    }

    pub(super) fn by_name(&self, name: &str) -> Option<&Arc<Entry>> {
        self.by_name.get(name).map(|i| &self.entries[*i])
    }

    pub(super) fn find(&self, id: &str) -> Option<&Arc<Entry>> {
        self.by_id.get(id).or_else(|| self.by_name.get(id)).map(|i| &self.entries[*i])
    }

    pub(super) fn listings(&self) -> Vec<(&str, String)> {
        self.entries.iter().map(|e| (e.spec.name.as_str(), e.listing())).collect()
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
        o.push_str(&format!(r#","annotations":{}"#, self.annotations()));
        with_icons(&mut o, &s.icons);
        o.push('}');
        o
    }

    /// What follows from the kind of tool, and what its owner says instead or beyond.
    fn annotations(&self) -> Raw {
        let read = if matches!(self.body, Body::Read(_)) { "true" } else { "false" };
        let derived = RawObject::empty().with(&[("readOnlyHint", read), ("openWorldHint", "true")]);
        let own = self.spec.annotations.as_ref().and_then(|a| a.object());
        let (Some(own), Some(derived)) = (own, derived.object()) else { return derived };
        let members: Vec<(String, String)> =
            own.iter().map(|(k, v)| (k.into_owned(), v.single_line().to_string())).collect();
        let set: Vec<(&str, &str)> = members.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        derived.with(&set)
    }
}
