//! Methods that change something and for which nobody decided how an unclear outcome is dealt with: what an operator must
//! not find out from the first of them.

use crate::config::Config;
use gateway::Catalog;
use provider::Mode;

/// The most that are named in one line.
const NAMED: usize = 10;

/// Their ids.
pub(crate) fn of(catalog: &Catalog) -> Vec<&str> {
    let undecided = |e: &&std::sync::Arc<gateway::catalog::Entry>| e.body.safety()["undecided"] == true;
    catalog.entries().filter(undecided).map(|e| &*e.spec.canonical).collect()
}

/// Says so in the log of a server in production; it serves all the same, since such a method is never sent twice.
pub(crate) fn log(config: &Config, catalog: &Catalog) {
    if config.mode != Mode::Production {
        return;
    }
    let ids = of(catalog);
    if ids.is_empty() {
        return;
    }
    let named = ids.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = if ids.len() > NAMED { ", …" } else { "" };
    tracing::warn!(
        methods = ids.len(),
        "nobody decided how these recover, so an unclear outcome of them is in doubt at once: {named}{more}; `counterfoil doctor` says how to decide"
    );
}
