//! The oracle's account: what really happened, apart from what was answered.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use crate::state::Application;

/// Which applications to count.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub object: Option<String>,
    pub key: Option<String>,
    pub class: Option<String>,
    pub kind: Option<String>,
    pub list: bool,
}

impl Filter {
    /// Reads the query; an unknown name is an error, because a filter that does nothing miscounts.
    pub(crate) fn read(query: &str) -> Result<Filter, String> {
        let mut filter = Filter::default();
        for (name, text) in url::form_urlencoded::parse(query.as_bytes()) {
            let slot = match name.as_ref() {
                "object" => &mut filter.object,
                "key" => &mut filter.key,
                "class" => &mut filter.class,
                "kind" => &mut filter.kind,
                "list" => {
                    filter.list = text == "true" || text == "1";
                    continue;
                }
                _ => {
                    return Err(format!(
                        "unknown parameter {name:?}; this takes object, key, class, kind, list"
                    ));
                }
            };
            *slot = Some(text.into_owned());
        }
        Ok(filter)
    }

    fn takes(&self, application: &Application) -> bool {
        let is = |wanted: &Option<String>, text: &str| wanted.as_deref().is_none_or(|wanted| wanted == text);
        is(&self.object, object(application))
            && is(&self.key, key(application))
            && is(&self.class, application.class.name())
            && is(&self.kind, application.kind.spec().object)
    }
}

fn object(application: &Application) -> &str {
    application.object.as_deref().unwrap_or("(unnamed)")
}

fn key(application: &Application) -> &str {
    application.key.as_deref().unwrap_or("(none)")
}

/// Counts.
pub(crate) fn report(applications: &[Arc<Application>], received: u64, filter: &Filter) -> Value {
    let taken: Vec<&Application> =
        applications.iter().map(AsRef::as_ref).filter(|application| filter.takes(application)).collect();
    let count = |by: fn(&Application) -> &str, all: bool| {
        let mut counts = BTreeMap::<&str, u64>::new();
        for application in taken.iter().filter(|application| all || application.effect) {
            *counts.entry(by(application)).or_default() += 1;
        }
        json!(counts)
    };
    let mut value = json!({
        "total": taken.iter().filter(|application| application.effect).count(),
        "byObject": count(object, false),
        "byKey": count(key, false),
        "byClass": count(|application| application.class.name(), false),
        "applications": {"total": taken.len(), "byObject": count(object, true)},
        "received": received,
    });
    if filter.list {
        value["list"] = json!(taken);
    }
    value
}
