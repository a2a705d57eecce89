//! How a method's effects recover: which strategy, from which layer, with which limits.
//!
//! The order is preset < manifest < `[tools]`; what can't work is refused when it is asked for, not when it is
//! needed.

use crate::error::ConfigError;
use crate::method::{Method, MethodEffect};
use crate::text::show_duration;
use ledger::{Millis, Recovery, Strategy};

/// The layer a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// The provider's preset.
    Preset,
    /// The API's description, from which the manifest was imported.
    Description,
    /// The integration's manifest.
    Manifest,
    /// `counterfoil.toml`.
    Tools,
}

impl Origin {
    /// The word for people.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Origin::Default => "default",
            Origin::Preset => "preset",
            Origin::Description => "description",
            Origin::Manifest => "manifest",
            Origin::Tools => "tools",
        }
    }
}

/// What `counterfoil.toml` says about one tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overrides {
    /// `[tools."…"] recovery`.
    pub strategy: Option<Strategy>,
    /// `[tools."…"] send_timeout`.
    pub send_timeout: Option<Millis>,
    /// `[defaults] send_timeout`: below preset and manifest.
    pub default_send_timeout: Option<Millis>,
}

/// Where each resolved value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origins {
    /// Of the strategy.
    pub strategy: Origin,
    /// Of the replay window.
    pub replay_for: Origin,
    /// Of the longest send.
    pub send_timeout: Origin,
    /// Of the number of sends.
    pub max_sends: Origin,
    /// Of the first pause.
    pub initial_backoff: Origin,
    /// Of the longest pause.
    pub max_backoff: Origin,
}

/// A method's recovery, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// What intents pin.
    pub recovery: Recovery,
    /// Where it comes from.
    pub origins: Origins,
    /// The provider has published its retention of keys; otherwise the replay window is a cautious guess.
    pub retention_published: bool,
}

impl Resolved {
    /// Nobody decided how an unclear outcome of it is dealt with: neither the API's description, the preset, the manifest
    /// nor `[tools]` says anything that a strategy follows from. (`recovery = "none"` is a decision, too.)
    #[must_use]
    pub fn is_undecided(&self) -> bool {
        self.recovery.strategy == Strategy::None && self.origins.strategy == Origin::Default
    }
}

/// Limits with their layers.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub send_timeout: (Millis, Origin),
    pub read_timeout: Millis,
    pub max_sends: (u32, Origin),
    pub initial_backoff: (Millis, Origin),
    pub max_backoff: (Millis, Origin),
}

impl Method {
    /// How its effects recover, with the strategy that `[tools]` asks for, if any.
    ///
    /// # Errors
    /// The strategy can't work for this method; the message says what it lacks.
    pub fn recovery(&self, strategy: Option<Strategy>) -> Result<Recovery, ConfigError> {
        self.resolve(&Overrides { strategy, ..Overrides::default() }).map(|r| r.recovery)
    }

    /// How its effects recover, and where each value comes from.
    ///
    /// # Errors
    /// A combination that can't work; the message says what it lacks.
    pub fn resolve(&self, over: &Overrides) -> Result<Resolved, ConfigError> {
        let refuse = |why: String| Err(ConfigError::new(self.canonical_id(), why));
        if self.effect == MethodEffect::Read {
            return refuse("it only reads, so it has no effect to recover; leave `recovery` out".into());
        }
        let (strategy, origin) = self.strategy(over.strategy);
        if let Err(why) = self.can(strategy) {
            return refuse(format!("recovery = \"{}\" can't work: {why}", strategy.word()));
        }
        let mut r = Recovery::new(strategy);
        let mut replay_origin = Origin::Default;
        let mut published = false;
        match strategy {
            Strategy::Key => {
                if let Some((keys, from)) = &self.keys {
                    r.replay_for = keys.replay_for;
                    r.replays_first_answer = keys.replays_first_answer;
                    published = keys.published;
                    replay_origin = *from;
                }
            }
            Strategy::Natural => {
                let horizon = self.natural.as_ref().and_then(|n| *n);
                r.replay_for = Some(horizon.unwrap_or(DEFAULT_HORIZON));
                replay_origin = if horizon.is_some() { Origin::Manifest } else { Origin::Default };
            }
            _ => {}
        }
        r.can_look_up = self.lookup.is_some() && !self.lookup_needs_marker();
        if let Some(look) = &self.lookup {
            r.processing_bound = look.processing_bound.unwrap_or(r.processing_bound);
            r.visibility_lag = look.visibility_lag.unwrap_or(r.visibility_lag);
        }
        r.precheck = self.precheck;
        let (send, send_origin) =
            match (over.send_timeout, self.limits.send_timeout, over.default_send_timeout) {
                (Some(tools), _, _) => (tools, Origin::Tools),
                (None, (_, Origin::Default), Some(default)) => (default, Origin::Tools),
                (None, own, _) => own,
            };
        r.send_timeout = send;
        r.max_sends = self.limits.max_sends.0;
        r.initial_backoff = self.limits.initial_backoff.0;
        r.max_backoff = self.limits.max_backoff.0;
        if let Some(window) = r.replay_for.filter(|w| *w <= r.send_timeout) {
            return refuse(format!(
                "one send may take {} and a replay is safe for only {}; shorten `send_timeout` or the margin",
                show_duration(r.send_timeout),
                show_duration(window),
            ));
        }
        let origins = Origins {
            strategy: origin,
            replay_for: replay_origin,
            send_timeout: send_origin,
            max_sends: self.limits.max_sends.1,
            initial_backoff: self.limits.initial_backoff.1,
            max_backoff: self.limits.max_backoff.1,
        };
        Ok(Resolved { recovery: r, origins, retention_published: published })
    }

    fn strategy(&self, tools: Option<Strategy>) -> (Strategy, Origin) {
        if let Some(s) = tools {
            return (s, Origin::Tools);
        }
        if let Some(s) = self.declared {
            return (s, Origin::Manifest);
        }
        // What the manifest equips a method with says enough; the strongest promise first.
        let imported = |strategy: Strategy, otherwise: Origin| match (self.imported_recovery, otherwise) {
            (Some(derived), Origin::Manifest) if derived == strategy => (strategy, Origin::Description),
            _ => (strategy, otherwise),
        };
        if let Some((_, from)) = &self.keys {
            return imported(Strategy::Key, *from);
        }
        if self.unique.is_some() {
            return (Strategy::Unique, Origin::Manifest);
        }
        if self.natural.is_some() {
            return imported(Strategy::Natural, Origin::Manifest);
        }
        if self.lookup.is_some() {
            return (Strategy::Lookup, Origin::Manifest);
        }
        (Strategy::None, Origin::Default)
    }

    fn can(&self, strategy: Strategy) -> Result<(), String> {
        match strategy {
            Strategy::Key if self.keys.is_none() => Err(match &self.key_cover {
                _ if self.key_lacks.is_some() => self.key_lacks.clone().unwrap_or_default(),
                None => "no idempotency key is carried (mode = \"none\"); set [execution_policy.idempotency] mode = \"dynamic\" if the provider honours one".into(),
                Some((verbs, _)) if !verbs.iter().any(|v| v == self.verb.as_str()) => {
                    format!("the provider honours a key on {} only, and this is a {}", verbs.join(", "), self.verb)
                }
                Some((_, endpoints)) => format!(
                    "the provider is known to honour a key on {} only; if it does on this path too, set idempotency = {{ mode = \"dynamic\" }} on the method",
                    endpoints.join(", ")
                ),
            }),
            Strategy::Unique if self.unique.is_none() => {
                Err("it needs `unique = { field, resource_id }` in the manifest".into())
            }
            Strategy::Lookup if self.lookup.is_none() => Err("it needs `lookup` in the manifest, or a preset that can be asked by key".into()),
            Strategy::Lookup if self.lookup.as_ref().is_some_and(|look| look.kept.is_some()) => {
                Err("the provider forgets its first answers after a while, so that none is there does not make a second send safe; use recovery = \"key\", which asks too".into())
            }
            Strategy::Lookup if self.lookup_needs_marker() => Err("the look-up asks for a key or marker that the request does not carry; set `marker = { field = \"metadata.marker\" }`".into()),
            Strategy::Natural
                if self.natural.is_none() && self.verb != http::Method::PUT && self.verb != http::Method::DELETE =>
            {
                Err(format!("a {} does not repeat without change by itself; declare `natural = {{}}` in the manifest if this one does", self.verb))
            }
            Strategy::Local => Err("an HTTP call can't commit in the ledger's database; it is for native tools".into()),
            _ => Ok(()),
        }
    }
}

/// How long a natural replay is thought harmless when the manifest does not say.
const DEFAULT_HORIZON: Millis = Millis::secs(3600);
