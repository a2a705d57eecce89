//! `[[view]]` against the tools that there are.

use crate::config::{Config, ConfigError, Problem, ViewConfig, fits, nearest};
use gateway::{Catalog, View, ViewBy, status};
use std::collections::HashSet;
use std::sync::Arc;

/// The further paths of the endpoint, sorted.
pub(crate) fn paths(config: &Config) -> Vec<Arc<str>> {
    let path = |v: &ViewConfig| match &v.by {
        ViewBy::Path(path) => Some(path.as_str().into()),
        ViewBy::Principals(_) => None,
    };
    let mut all: Vec<Arc<str>> = config.views.iter().filter_map(path).collect();
    all.sort_unstable();
    all
}

/// The views, with the ids of their tools.
///
/// # Errors
/// Patterns that fit no tool, or none that others don't fit.
pub(crate) fn of(config: &Config, catalog: &Catalog) -> Result<Vec<View>, ConfigError> {
    let mut problems = Vec::new();
    let views = config.views.iter().map(|v| view(config, v, catalog, &mut problems)).collect();
    if problems.is_empty() { Ok(views) } else { Err(ConfigError { problems }) }
}

fn view(config: &Config, v: &ViewConfig, catalog: &Catalog, problems: &mut Vec<Problem>) -> View {
    let mut add = |at, message| problems.push(Problem { file: config.shown(), at, message });
    let ids = || catalog.entries().map(|e| &e.spec.canonical).filter(|id| ***id != *status::NAME);
    let mut tools: HashSet<Arc<str>> = HashSet::new();
    for pattern in &v.tools {
        let fitting: Vec<&Arc<str>> = ids().filter(|id| fits(&pattern.value, id)).collect();
        let before = tools.len();
        tools.extend(fitting.iter().map(|id| (*id).clone()));
        if fitting.is_empty() {
            let hint = match nearest(&pattern.value, ids().map(|id| &**id)) {
                Some(near) => format!("did you mean {near:?}?"),
                None => "`counterfoil methods` lists what there is".to_owned(),
            };
            add(pattern.at.clone(), format!("tools: there is no tool {:?}; {hint}", pattern.value));
        } else if tools.len() == before {
            let why = format!("tools: {:?} adds nothing to those before it; take it out", pattern.value);
            add(pattern.at.clone(), why);
        }
    }
    // Whoever may change something can ask whether it landed.
    tools.insert(status::NAME.into());
    View { name: v.name.clone(), by: v.by.clone(), tools }
}
