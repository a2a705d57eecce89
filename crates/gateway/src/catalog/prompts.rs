//! The prompts of a catalog: found by name, checked when they are added.

use super::{CatalogError, MAX_NAME, with_icons, with_text};
use crate::prompt::{Prompt, PromptEntry, PromptSpec};
use mcp::json::quote;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Prompts {
    entries: Vec<PromptEntry>,
    by_name: HashMap<String, usize>,
}

impl Prompts {
    pub(super) fn add(&mut self, (spec, body): PromptEntry) -> Result<(), CatalogError> {
        if spec.name.is_empty() || spec.name.len() > MAX_NAME {
            return Err(CatalogError::PromptName(spec.name.chars().take(64).collect()));
        }
        let mut names = HashSet::new();
        for a in &spec.arguments {
            if a.name.is_empty() || a.name.len() > MAX_NAME || !names.insert(a.name.as_str()) {
                return Err(CatalogError::PromptArgument(spec.name.clone(), a.name.clone()));
            }
        }
        super::check_icons(&format!("prompt {:?}", spec.name), &spec.icons)?;
        if self.by_name.insert(spec.name.clone(), self.entries.len()).is_some() {
            return Err(CatalogError::SamePrompt(spec.name));
        }
        self.entries.push((spec, body));
        Ok(())
    }

    pub(super) fn find(&self, name: &str) -> Option<(&PromptSpec, &Arc<dyn Prompt>)> {
        self.by_name.get(name).map(|i| &self.entries[*i]).map(|(spec, body)| (spec, body))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether there is an argument that could be completed.
    pub(super) fn take_arguments(&self) -> bool {
        self.entries.iter().any(|(spec, _)| !spec.arguments.is_empty())
    }

    pub(super) fn listings(&self) -> Vec<(&str, String)> {
        self.entries.iter().map(|(spec, _)| (spec.name.as_str(), listing(spec))).collect()
    }
}

/// Its object in `prompts/list`.
fn listing(s: &PromptSpec) -> String {
    let mut o = format!(r#"{{"name":{}"#, quote(&s.name));
    with_text(&mut o, "title", s.title.as_deref());
    with_text(&mut o, "description", s.description.as_deref());
    if !s.arguments.is_empty() {
        let arguments: Vec<String> = s
            .arguments
            .iter()
            .map(|a| {
                let mut o = format!(r#"{{"name":{}"#, quote(&a.name));
                with_text(&mut o, "title", a.title.as_deref());
                with_text(&mut o, "description", a.description.as_deref());
                o.push_str(&format!(r#","required":{}}}"#, a.required));
                o
            })
            .collect();
        o.push_str(&format!(r#","arguments":[{}]"#, arguments.join(",")));
    }
    with_icons(&mut o, &s.icons);
    o.push('}');
    o
}
