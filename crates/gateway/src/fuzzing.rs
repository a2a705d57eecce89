//! Doors to inner functions for the fuzz targets; compiled with the feature `fuzzing` only, so not in what is shipped.
#![allow(missing_docs)]

use crate::catalog::{Catalog, ListSettings, Offer};
use crate::context::Context;
use crate::resource::{Contents, Failure, Resource, TemplateSpec};
use async_trait::async_trait;
use mcp::json::RawObject;
use std::collections::BTreeMap;
use std::sync::Arc;

pub use crate::arguments::{KEY_ARGUMENT, Schema, allows_key, with_key, without};
pub use crate::keys::{HEADER, KeyTrouble, META_KEY, find};

struct Nothing;

#[async_trait]
impl Resource for Nothing {
    async fn read(&self, _: Context, _: &str, _: BTreeMap<String, String>) -> Result<Vec<Contents>, Failure> {
        Err(Failure::NotFound)
    }
}

/// A catalog with one template and nothing else, if it can be served.
pub struct Templates(Catalog);

impl Templates {
    #[must_use]
    pub fn of(template: &str) -> Option<Templates> {
        let spec = TemplateSpec {
            uri_template: template.to_owned(),
            name: "x".into(),
            title: None,
            description: None,
            mime_type: None,
            icons: Vec::new(),
            annotations: None,
        };
        let lists = ListSettings {
            ttl: ledger::Millis::secs(1),
            public: true,
            server_info: RawObject::empty().raw(),
        };
        let templates = vec![(spec, Arc::new(Nothing) as Arc<dyn Resource>)];
        Catalog::build(Offer { templates, ..Offer::default() }, &lists).ok().map(Templates)
    }

    /// The variables of a URI that the template describes.
    #[must_use]
    pub fn variables(&self, uri: &str) -> Option<BTreeMap<String, String>> {
        self.0.resource(uri).map(|found| found.variables)
    }
}
