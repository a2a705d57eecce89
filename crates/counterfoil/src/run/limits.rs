//! From `[limits]` to what each tool may be used for: an integration's limits hold for every method of it, a method's for
//! itself.

use crate::config::{At, Config, LimitsConfig, hint, nearest};
use gateway::ToolSpec;
use gateway::limits::{Breaker, Breakers, Limit, Limits, Per, Rule, What};
use ledger::Millis;
use provider::Integration;
use std::collections::HashMap;
use std::sync::Arc;

/// The breakers of the integrations that have one.
#[derive(Clone, Default)]
pub(crate) struct ByIntegration(HashMap<String, Arc<Breaker>>);

impl ByIntegration {
    /// New ones, all of them closed.
    pub fn new(config: &Config, integrations: &[Integration]) -> ByIntegration {
        let of = |i: &Integration| {
            let found = config.limits.iter().find(|l| l.name == i.name())?;
            Some((i.name().to_owned(), Arc::new(Breaker::new(i.name(), found.breaker?))))
        };
        ByIntegration(integrations.iter().filter_map(of).collect())
    }

    /// Them, by where their requests go.
    pub fn by_origin(&self, integrations: &[Integration]) -> Breakers {
        let mut all = Breakers::default();
        for i in integrations {
            if let (Some(breaker), Ok(url)) = (self.0.get(i.name()), url::Url::parse(i.base_url())) {
                all.add(&url.origin().ascii_serialization(), breaker.clone());
            }
        }
        all
    }
}

/// Names that are neither an integration's nor a tool's.
pub(crate) fn unknown<'a>(
    config: &Config,
    integrations: &[Integration],
    ids: impl Iterator<Item = &'a str> + Clone,
    add: &mut impl FnMut(&At, String),
) {
    for l in &config.limits {
        let named = |name: &str| integrations.iter().any(|i| i.name() == name);
        if l.is_of_one() {
            if !ids.clone().any(|id| id == l.name) {
                add(
                    &l.at,
                    format!("limits: there is no method {:?}; {}", l.name, hint(&l.name, ids.clone())),
                );
            }
        } else if !named(&l.name) {
            let known = integrations.iter().map(Integration::name);
            let near = nearest(&l.name, known).map_or_else(
                || "name an [[integration]], or a method by its canonical id".to_owned(),
                |near| format!("did you mean {near:?}?"),
            );
            add(&l.at, format!("limits: there is no integration {:?}; {near}", l.name));
        }
    }
}

/// What limits one tool.
pub(crate) struct Of<'a> {
    pub config: &'a Config,
    pub breakers: &'a ByIntegration,
    pub spec: &'a ToolSpec,
    /// The longest that one attempt may take.
    pub timeout: Millis,
    pub reads: bool,
    /// The methods that it calls by itself.
    pub calls: &'a [String],
}

impl Of<'_> {
    /// All of its limits; what can't be is added.
    pub fn limits(&self, add: &mut impl FnMut(&At, String)) -> Arc<Limits> {
        let id: &str = &self.spec.canonical;
        let integration = id.split('.').next().unwrap_or_default();
        let all = &self.config.limits;
        let own = all.iter().find(|l| l.name == id);
        let shared = all.iter().find(|l| l.name == integration);
        if own.is_none() {
            self.bypasses(add);
        }
        if let Some(own) = own {
            self.arguments(own, add);
            if let Some(b) = own.budgets.first().filter(|_| self.reads) {
                add(&b.at, format!("budget: {id} only reads, so nothing of it is added up; take this out"));
            }
        }
        let mut limits = Limits::default();
        for l in shared.into_iter().chain(own) {
            let rule = |r: &crate::config::Set<Rule>| r.value.clone();
            limits.allow.extend(l.allow.iter().map(rule));
            limits.deny.extend(l.deny.iter().map(rule));
            limits.limits.extend(self.each(l));
        }
        if !self.reads {
            limits.breaker = self.breakers.0.get(integration).cloned();
        }
        Arc::new(limits)
    }

    fn each(&self, l: &LimitsConfig) -> Vec<Limit> {
        let of: Arc<str> = l.name.as_str().into();
        let limit = |per: Per, what: What| Limit { of: of.clone(), per, what };
        // What a crash leaves behind counts until the attempt, if it went on, would be over.
        let held = Millis(self.timeout.0.saturating_add(self.config.ledger.lease.0));
        let rates = l.rates.iter().map(|(most, span)| limit(l.per, What::Rate { most: *most, span: *span }));
        let places = l.concurrency.map(|most| limit(l.per, What::Places { most, held }));
        let budgets = l.budgets.iter().map(|b| {
            let (argument, by) = (b.argument.clone(), b.by.clone());
            limit(b.per, What::Budget { argument, most: b.most, period: b.period, by })
        });
        rates.chain(places).chain(budgets).collect()
    }

    /// Arguments that are looked at and that the tool doesn't take.
    fn arguments(&self, own: &LimitsConfig, add: &mut impl FnMut(&At, String)) {
        let properties =
            self.spec.input_schema.object().and_then(|o| o.get("properties")).and_then(|p| p.object());
        for (argument, at) in own.arguments() {
            let name = argument.root();
            if properties.as_ref().is_some_and(|p| p.has(name)) {
                continue;
            }
            let known: Vec<String> =
                properties.iter().flat_map(|p| p.iter().map(|(n, _)| n.into_owned())).collect();
            let near = match nearest(name, known.iter().map(String::as_str)) {
                Some(near) => format!("did you mean {near:?}?"),
                None => "`counterfoil info` lists its arguments".to_owned(),
            };
            add(at, format!("limits: {} has no argument {name:?}; {near}", own.name));
        }
    }

    /// Whoever limits a method wants it limited whichever way it is called, and what a tool calls by itself is not counted.
    fn bypasses(&self, add: &mut impl FnMut(&At, String)) {
        for l in &self.config.limits {
            let covers = |id: &String| *id == l.name || id.split('.').next() == Some(l.name.as_str());
            if let Some(id) = self.calls.iter().find(|id| covers(id)) {
                let tool = &self.spec.canonical;
                add(
                    &l.at,
                    format!(
                        "limits: {tool} calls {id} by itself, and what it calls is not counted; set limits for {tool} too: [limits.\"{tool}\"]"
                    ),
                );
            }
        }
    }
}
