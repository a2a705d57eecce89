//! The resources and templates of a catalog: found by URI, checked when they are added.

use super::template::Template;
use super::{CatalogError, with_icons, with_text};
use crate::resource::{Resource, ResourceEntry, ResourceSpec, TemplateEntry, TemplateSpec};
use mcp::json::{Raw, quote};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The longest URI that is looked up, in bytes.
pub(crate) const MAX_URI: usize = 8 << 10;

/// Who reads a URI, and with which variables.
pub(crate) struct Found {
    pub reader: Arc<dyn Resource>,
    pub variables: BTreeMap<String, String>,
}

#[derive(Default)]
pub(super) struct Resources {
    plain: Vec<ResourceEntry>,
    by_uri: HashMap<String, usize>,
    templates: Vec<(Template, TemplateEntry)>,
    by_template: HashMap<String, usize>,
}

impl Resources {
    pub(super) fn add(&mut self, (spec, reader): ResourceEntry) -> Result<(), CatalogError> {
        if !is_uri(&spec.uri) {
            return Err(CatalogError::BadUri(spec.uri.chars().take(200).collect()));
        }
        if !spec.annotations.as_ref().is_none_or(Raw::is_object) {
            return Err(CatalogError::ResourceAnnotations(spec.uri));
        }
        super::check_icons(&format!("resource {}", spec.uri), &spec.icons)?;
        if self.by_uri.insert(spec.uri.clone(), self.plain.len()).is_some() {
            return Err(CatalogError::SameUri(spec.uri));
        }
        self.plain.push((spec, reader));
        Ok(())
    }

    pub(super) fn add_template(&mut self, (spec, reader): TemplateEntry) -> Result<(), CatalogError> {
        let template = Template::parse(&spec.uri_template)
            .map_err(|why| CatalogError::Template(spec.uri_template.chars().take(200).collect(), why))?;
        if !spec.annotations.as_ref().is_none_or(Raw::is_object) {
            return Err(CatalogError::ResourceAnnotations(spec.uri_template));
        }
        super::check_icons(&format!("template {}", spec.uri_template), &spec.icons)?;
        if self.by_template.insert(spec.uri_template.clone(), self.templates.len()).is_some() {
            return Err(CatalogError::SameUri(spec.uri_template));
        }
        self.templates.push((template, (spec, reader)));
        Ok(())
    }

    /// Plain resources first, then templates in their order.
    pub(super) fn find(&self, uri: &str) -> Option<Found> {
        if uri.len() > MAX_URI {
            return None;
        }
        if let Some(i) = self.by_uri.get(uri) {
            return Some(Found { reader: self.plain[*i].1.clone(), variables: BTreeMap::new() });
        }
        self.templates.iter().find_map(|(template, (_, reader))| {
            let variables = template.variables_of(uri)?;
            Some(Found { reader: reader.clone(), variables })
        })
    }

    /// Who completes the variables of a template, and whether it has this one; for a plain resource, which has none,
    /// its own URI is taken as well.
    pub(super) fn template(&self, uri: &str, variable: &str) -> Option<(Arc<dyn Resource>, bool)> {
        if let Some(i) = self.by_template.get(uri) {
            let (template, (_, reader)) = &self.templates[*i];
            return Some((reader.clone(), template.has(variable)));
        }
        self.by_uri.get(uri).map(|i| (self.plain[*i].1.clone(), false))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.templates.is_empty()
    }

    pub(super) fn has_templates(&self) -> bool {
        !self.templates.is_empty()
    }

    /// Whether there is one whose changes are told.
    pub(super) fn tell_changes(&self) -> bool {
        self.plain.iter().any(|(_, r)| r.tells_changes())
            || self.templates.iter().any(|(_, (_, r))| r.tells_changes())
    }

    pub(super) fn listings(&self) -> Vec<(&str, String)> {
        self.plain.iter().map(|(spec, _)| (spec.uri.as_str(), listing(spec))).collect()
    }

    pub(super) fn template_listings(&self) -> Vec<(&str, String)> {
        let one = |spec: &TemplateSpec| template_listing(spec);
        self.templates.iter().map(|(_, (spec, _))| (spec.uri_template.as_str(), one(spec))).collect()
    }
}

/// A scheme, and nothing that can't be in a URI (RFC 3986, sections 2 and 3.1); characters beyond ASCII are let pass,
/// as many clients do (RFC 3987).
fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    text.len() <= MAX_URI
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
        && !rest.is_empty()
        && !rest.chars().any(|c| c.is_control() || c.is_whitespace() || "<>\"{}|\\^`".contains(c))
}

fn rest(o: &mut String, mime_type: Option<&str>, annotations: Option<&Raw>) {
    with_text(o, "mimeType", mime_type);
    if let Some(a) = annotations {
        o.push_str(&format!(r#","annotations":{}"#, a.single_line()));
    }
}

/// Its object in `resources/list`.
fn listing(s: &ResourceSpec) -> String {
    let mut o = format!(r#"{{"uri":{},"name":{}"#, quote(&s.uri), quote(&s.name));
    with_text(&mut o, "title", s.title.as_deref());
    with_text(&mut o, "description", s.description.as_deref());
    rest(&mut o, s.mime_type.as_deref(), s.annotations.as_ref());
    if let Some(size) = s.size {
        o.push_str(&format!(r#","size":{size}"#));
    }
    with_icons(&mut o, &s.icons);
    o.push('}');
    o
}

/// Its object in `resources/templates/list`.
fn template_listing(s: &TemplateSpec) -> String {
    let mut o = format!(r#"{{"uriTemplate":{},"name":{}"#, quote(&s.uri_template), quote(&s.name));
    with_text(&mut o, "title", s.title.as_deref());
    with_text(&mut o, "description", s.description.as_deref());
    rest(&mut o, s.mime_type.as_deref(), s.annotations.as_ref());
    with_icons(&mut o, &s.icons);
    o.push('}');
    o
}
