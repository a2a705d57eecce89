//! Checks a manifest as written and builds the types from it.

use super::auth::{Reach, Said, auth};
use super::closed::base_in;
use super::credential::has_its_places;
use super::filling::Filling;
use super::multipart::{part_headers, part_types};
use super::parts::{
    Wrong, base_url, check_input, default_input, fixed_fields, fixed_query, headers, hide, mail_arguments,
    places, styles, unique, verb_and_path, wrong,
};
use super::{Integration, Mode, document, looking};
use crate::credentials::Auth;
use crate::error::ConfigError;
use crate::graphql::{Beside, Kind};
use crate::method::{Home, Method, MethodEffect, Place};
use crate::own::{self, OwnAccount};
use crate::parse;
use crate::policy::{Basis, Carrier, KeyLookup, KeyMode, KeyScope, Keys, Policy, RawIdempotency, split};
use crate::preset::Preset;
use crate::raw::{BodyKind, RawAnswers, RawEffect, RawManifest, RawMethod, RawRetries, RawTimeouts, Style};
use crate::recovery::{Limits, Origin};
use crate::template::is_name;
use crate::text::{is_wire_name, wire_names};
use ledger::{Recovery, Strategy};
use std::sync::Arc;

/// Why a method has no key where only those have one that say so.
const UNDECLARED: &str = "the provider honours a key on some endpoints only, and which those are is not known here; if it does on this one, set idempotency = { mode = \"dynamic\" } on the method";
/// The answer cap when a manifest says nothing, and the most it may say, in bytes.
const DEFAULT_CAP: u64 = 1 << 20;
const MAX_CAP: u64 = 10 << 20;

pub(super) fn integration(
    file: &str,
    text: &str,
    raw: RawManifest,
    mode: Mode,
) -> Result<Integration, ConfigError> {
    let top = |field: &str, what: String| {
        let line = text.lines().position(|l| {
            let l = l.trim_start();
            l.starts_with(field)
                || l.starts_with(&format!("\"{field}\""))
                || (l.starts_with('[') && l.contains(field))
        });
        ConfigError::new(file, what).at(line.map(|i| i + 1))
    };
    if !is_name(&raw.name) || raw.name.len() > 64 {
        return Err(top("name", format!("the name {:?} must be 1 to 64 of A-Z a-z 0-9 _ -", raw.name)));
    }
    for url in [&raw.base_url.sandbox, &raw.base_url.production].into_iter().flatten() {
        base_url(&url.0).map_err(|e| top("base_url", e))?;
    }
    let (base, closed) = base_in(&raw.base_url, mode).map_err(|e| top("base_url", e))?;
    let other = if mode == Mode::Sandbox { Mode::Production } else { Mode::Sandbox };
    let elsewhere = base_in(&raw.base_url, other).ok().filter(|(_, closed)| closed.is_none());
    let preset_name = raw.preset.as_deref().unwrap_or("none");
    let preset = Preset::named(preset_name).map_err(|e| top("preset", e.message))?;
    let rotates = raw.auth.as_ref().is_some_and(|a| a.rotates);
    let reach = match (&closed, &raw.base_url.production) {
        (Some(_), _) => Reach::Closed,
        (None, None) => Reach::SandboxAlone,
        (None, Some(_)) => Reach::Open,
    };
    let Said { auth, also, closed: shut, withheld } =
        auth(raw.auth, mode, reach).map_err(|e| top("auth", e))?;
    // Where it is closed for its address, what was given before was for the address that it has.
    let was_at = elsewhere.as_ref().filter(|_| closed.is_some()).map_or(&base, |(base, _)| base);
    let was_at = own::origin(was_at);
    let closed = closed.or(shut);
    let headers = headers(&raw.headers).map_err(|e| top("headers", e))?;
    let account = raw.account.unwrap_or_else(|| raw.name.clone());
    let provider = raw.title.clone().unwrap_or_else(|| raw.name.clone());
    let withheld = withheld.map(|s| OwnAccount::withheld(provider.clone(), account.clone(), mode, was_at, s));
    let own = auth.own().map(|how| (provider, how));
    let masked = auth.masked(&also);
    let home =
        Arc::new(Home { account, mode, base, closed, headers, mark: Arc::default(), own, withheld, masked });
    // Tokens are replaced by others of the same account all the time.
    let replaced = rotates || matches!(auth, Auth::OAuth(_) | Auth::OwnTokens(_));

    let idem = raw.execution_policy.idempotency;
    let by_preset = preset.idempotency.mode.is_some_and(|mode| mode != KeyMode::None);
    let carrier_origin = if by_preset && !idem.names_carrier() { Origin::Preset } else { Origin::Manifest };
    // A manifest that says how or how long is where the window comes from.
    let origin = if preset.idempotency.mode == Some(KeyMode::Dynamic)
        && idem.retention.is_none()
        && idem.margin.is_none()
        && idem.retention_basis.is_none()
    {
        Origin::Preset
    } else if idem.retention.is_some() || idem.mode.is_some() || idem.margin.is_some() {
        Origin::Manifest
    } else {
        Origin::Default
    };
    let merged = idem.over(&preset.idempotency);
    let (keys, policy) = split(&merged).map_err(|e| top("execution_policy.idempotency", e))?;
    if replaced && keys.as_ref().and_then(|k| k.scope) == Some(KeyScope::ApiKey) {
        let why = if rotates {
            "`rotates` says that another credential is the same account to the provider, and its keys are scoped by API key; leave `rotates` out"
        } else {
            "tokens of OAuth are replaced by others, and this provider's keys are scoped by API key: a replay under another token could be a second effect; use an API key"
        };
        return Err(top("auth", why.into()));
    }
    let shared = Shared {
        home: home.clone(),
        replaced,
        idem: merged,
        keys,
        key_origin: origin,
        carrier_origin,
        policy,
        retries: raw.execution_policy.retries,
        timeouts: raw.execution_policy.timeouts,
    };
    shared.limits(None, None).map_err(|(f, e)| top(f, e))?;
    if raw.methods.0.is_empty() {
        return Err(ConfigError::new(
            file,
            "no methods; add [methods.\"things.create\"] with http = \"POST /things\"",
        ));
    }
    let mut methods = Vec::new();
    for (name, m) in raw.methods.0 {
        let method = shared.method(&raw.name, &name, m).map_err(|(field, what)| {
            ConfigError::new(file, format!("method {name:?}: {what}")).at(parse::line_of(text, &name, field))
        })?;
        methods.push(method);
    }
    wire_names(methods.iter().map(|m| (m.canonical_id(), m.name_override())))
        .map_err(|e| ConfigError::new(file, format!("{}: {}", e.file, e.message)))?;
    Ok(Integration {
        name: raw.name,
        title: raw.title,
        description: raw.description,
        preset,
        home,
        elsewhere: elsewhere.map(|(base, _)| base),
        auth,
        also,
        rotates,
        any_port: false,
        methods,
    })
}

/// What all methods of an integration build on.
struct Shared {
    home: Arc<Home>,
    /// Its credential is replaced by others of the same account.
    replaced: bool,
    /// What preset and manifest say of keys, for methods that say otherwise.
    idem: RawIdempotency,
    keys: Option<Keys>,
    key_origin: Origin,
    carrier_origin: Origin,
    policy: Policy,
    retries: RawRetries,
    timeouts: RawTimeouts,
}

impl Shared {
    fn limits(&self, retries: Option<&RawRetries>, timeouts: Option<&RawTimeouts>) -> Result<Limits, Wrong> {
        fn or<T>(own: Option<T>, shared: Option<T>, default: T) -> (T, Origin) {
            own.or(shared).map_or((default, Origin::Default), |v| (v, Origin::Manifest))
        }
        let d = Recovery::new(Strategy::None);
        let span = |s: Option<parse::Span>| s.map(|s| s.0);
        let limits = Limits {
            send_timeout: or(timeouts.and_then(|t| span(t.send)), span(self.timeouts.send), d.send_timeout),
            read_timeout: or(timeouts.and_then(|t| span(t.read)), span(self.timeouts.read), d.send_timeout).0,
            max_sends: or(retries.and_then(|r| r.max_sends), self.retries.max_sends, d.max_sends),
            initial_backoff: or(
                retries.and_then(|r| span(r.initial_backoff)),
                span(self.retries.initial_backoff),
                d.initial_backoff,
            ),
            max_backoff: or(
                retries.and_then(|r| span(r.max_backoff)),
                span(self.retries.max_backoff),
                d.max_backoff,
            ),
        };
        if !(1..=100).contains(&limits.max_sends.0) {
            return wrong("max_sends", format!("max_sends = {} must be 1 to 100", limits.max_sends.0));
        }
        for (field, time) in [("send", limits.send_timeout.0), ("read", limits.read_timeout)] {
            if !(1..=600_000).contains(&time.0) {
                return wrong(field, format!("the time-out `{field}` must be 1ms to 10m"));
            }
        }
        if limits.initial_backoff.0 > limits.max_backoff.0 {
            return wrong("initial_backoff", "initial_backoff is longer than max_backoff");
        }
        Ok(limits)
    }

    /// How keys are treated on one method: as on all, unless it says otherwise.
    fn idempotency(
        &self,
        own: Option<RawIdempotency>,
        read: bool,
        known: bool,
    ) -> Result<(Option<Keys>, Origin, Policy), Wrong> {
        let Some(mut own) = own else { return Ok((self.keys.clone(), self.key_origin, self.policy.clone())) };
        if read {
            return wrong("idempotency", "it only reads, so no key is carried; leave `idempotency` out");
        }
        // A method that asks for a key has one, whichever paths its provider is known for.
        if own.mode == Some(KeyMode::Dynamic) && own.endpoints.is_none() {
            own.endpoints = Some(parse::Names::default());
            // How long a key is remembered is said of the provider's own carrier, at the paths that it is known for.
            if !(known && self.has_carrier_of(&own))
                && own.names_carrier()
                && own.retention.is_none()
                && own.retention_basis.is_none()
            {
                own.retention_basis = Some(Basis::Unpublished);
            }
        }
        let said = own.mode.is_some()
            || own.retention.is_some()
            || own.margin.is_some()
            || own.retention_basis.is_some();
        let (keys, policy) = split(&own.over(&self.idem)).map_err(|e| ("idempotency", e))?;
        if self.replaced && keys.as_ref().and_then(|k| k.scope) == Some(KeyScope::ApiKey) {
            return wrong(
                "idempotency",
                "[auth] `rotates`, or kind = \"oauth\", does not go with scope = \"api_key\"",
            );
        }
        Ok((keys, if said { Origin::Manifest } else { self.key_origin }, policy))
    }

    /// Whether what a method says leaves the key where the provider's are known to be.
    fn has_carrier_of(&self, own: &RawIdempotency) -> bool {
        let carrier = |raw: RawIdempotency| {
            let keyed = RawIdempotency { mode: Some(KeyMode::Dynamic), ..raw };
            let keys = split(&keyed).ok()?.0?;
            Some(match keys.carrier {
                Carrier::Header(name) => Carrier::Header(name.to_ascii_lowercase()),
                other => other,
            })
        };
        carrier(own.clone().over(&self.idem)) == carrier(self.idem.clone())
    }

    fn method(&self, integration: &str, name: &str, mut raw: RawMethod) -> Result<Method, Wrong> {
        if !name.split('.').all(is_name) {
            return wrong(
                "http",
                "a method's name has parts of A-Z a-z 0-9 _ - with dots between, like \"refunds.create\"",
            );
        }
        if let Some(wire) = raw.name.as_deref().filter(|w| !is_wire_name(w)) {
            return wrong("name", format!("the tool name {wire:?} must be 1 to 64 of A-Z a-z 0-9 _ -"));
        }
        let (verb, path) = verb_and_path(&raw.http).map_err(|e| ("http", e))?;
        let document = document::read(&raw, &verb)?;
        let queries = document.as_ref().is_some_and(|d| d.kind == Kind::Query);
        let effect = match raw.effect {
            Some(RawEffect::Read) => MethodEffect::Read,
            Some(RawEffect::Mutating) => MethodEffect::Mutating,
            None if queries || verb == http::Method::GET || verb == http::Method::HEAD => MethodEffect::Read,
            None => MethodEffect::Mutating,
        };
        let effect_origin = match (&raw.imported, raw.effect) {
            (_, None) => Origin::Default,
            (Some(imported), said) if imported.effect == said => Origin::Description,
            _ => Origin::Manifest,
        };
        let read = effect == MethodEffect::Read;
        let bodiless = [http::Method::GET, http::Method::HEAD, http::Method::DELETE].contains(&verb);
        let body = raw.body.unwrap_or(if bodiless { BodyKind::None } else { BodyKind::Json });
        if body != BodyKind::None && (verb == http::Method::GET || verb == http::Method::HEAD) {
            return wrong("body", format!("a {verb} has no body"));
        }
        if let Some(own) = &mut raw.idempotency
            && self.idem.mode == Some(KeyMode::Declared)
            && own.mode.is_none()
            && (own.names_carrier() || own.retention.is_some())
        {
            // Who says where its key goes, or how long it counts, says that it takes one.
            own.mode = Some(KeyMode::Dynamic);
        }
        let undeclared = self.idem.mode == Some(KeyMode::Declared)
            && raw.idempotency.as_ref().and_then(|i| i.mode).is_none_or(|mode| mode == KeyMode::Declared);
        let carrier_origin = match &raw.idempotency {
            Some(own) if own.names_carrier() => Origin::Manifest,
            _ => self.carrier_origin,
        };
        let spans = raw.styles.0.iter().any(|(_, style)| *style == Style::Segments);
        let known = self.keys.as_ref().is_none_or(|k| k.cover(&verb, &path, spans));
        let (all_keys, key_origin, policy) = self.idempotency(raw.idempotency, read, known)?;
        let mut policy = policy.answered_by(document.as_ref().map(|d| d.field.as_str()));
        let covered = all_keys.as_ref().filter(|k| !read && k.cover(&verb, &path, spans));
        let (placed, mut key_lacks) = document::keys(document.as_ref(), covered)?;
        if undeclared {
            key_lacks = Some(UNDECLARED.into());
        }
        let keys = placed.as_ref();
        if let Some(kind) = &raw.content_type {
            if body == BodyKind::None {
                return wrong("content_type", "the request has no body, so it has no content type");
            }
            if body == BodyKind::Multipart {
                return wrong("content_type", "a form of parts says its own type; leave it out");
            }
            http::HeaderValue::from_str(kind)
                .map_err(|_| ("content_type", format!("{kind:?} is not a content type")))?;
        }
        let own_headers = headers(&raw.headers).map_err(|e| ("headers", e))?;
        if let Some(Keys { carrier: Carrier::Header(key), .. }) = keys {
            let mut all = self.home.headers.iter().chain(&own_headers);
            if all.any(|(n, _)| n.eq_ignore_ascii_case(key)) {
                return wrong("headers", format!("the header {key} carries the effect key; leave it out"));
            }
        }
        if read {
            let extras = [
                ("recovery", raw.recovery.is_some()),
                ("precheck", raw.precheck.is_some()),
                ("lookup", raw.lookup.is_some()),
                ("unique", raw.unique.is_some()),
                ("marker", raw.marker.is_some()),
                ("natural", raw.natural.is_some()),
            ];
            if let Some((field, _)) = extras.iter().find(|(_, given)| *given) {
                return wrong(
                    field,
                    format!(
                        "it only reads, so `{field}` has no meaning; leave it out, or set effect = \"mutating\""
                    ),
                );
            }
            if path.has_key() {
                return wrong("http", "{$key} stands for an effect's key, and it only reads");
            }
        }
        let params = document::params(document.as_ref(), raw.params)?;
        let places = places(&params, &path, body, keys)?;
        let in_path: Vec<String> = path.args().map(|a| a.join(".")).collect();
        let styles = styles(raw.styles, &places, &path, &verb, body)?;
        let query = fixed_query(raw.query, &places, keys)?;
        let part_types = part_types(raw.part_types, body)?;
        let part_headers = part_headers(raw.part_headers, body)?;
        let whole = places.iter().find(|(_, p)| *p == Place::Document);
        if let Some((name, _)) = whole {
            if places.iter().any(|(_, p)| matches!(p, Place::Body(_))) {
                return wrong(
                    "params",
                    format!("`{name}` is the whole body, so nothing else can go into it"),
                );
            }
        } else if matches!(body, BodyKind::Text | BodyKind::Binary) {
            let word = if body == BodyKind::Text { "text" } else { "binary" };
            return wrong(
                "body",
                format!(
                    "body = {word:?} needs an argument that is the body: params = {{ … = \"document\" }}"
                ),
            );
        }
        let marker = raw.marker.map(|m| looking::marker(m, body, document.as_ref())).transpose()?;
        let filling = Filling { keys, unique: None, marker: marker.as_ref() };
        let filled: Vec<&[String]> = filling.fields().iter().map(|(_, field)| *field).collect();
        let text = filling.taken_up();
        let beside = Beside { path: &in_path, text: &text, places: &places, filled: &filled };
        let mut input = match raw.input {
            Some(schema) => schema.0,
            None => match &document {
                Some(document) => document.input(&beside),
                None => default_input(&path, &places),
            },
        };
        // The field that carries the key belongs to the gateway: a schema copied from the provider's own must not
        // show it to a model.
        if let Some(Keys { carrier: Carrier::Body(field), .. }) = keys {
            let named = |name: &str| {
                places.iter().any(|(n, _)| n == name)
                    || path.args().any(|a| a.first().is_some_and(|a| a == name))
            };
            if let [name] = field.as_slice()
                && named(name)
            {
                return wrong(
                    "params",
                    format!(
                        "`{name}` is the field that carries the effect key; give the argument another name"
                    ),
                );
            }
            hide(&mut input, document::argument(document.as_ref(), field));
        }
        check_input(&input, &path, &places)?;
        if let Some(document) = &document {
            document.check(&input, &beside).map_err(|e| ("input", e))?;
            document.check_holes(keys).map_err(|e| ("graphql", e))?;
        }
        policy.json = raw.answers != Some(RawAnswers::Any);
        let unique = raw.unique.as_ref().map(|u| unique(u, &mut policy)).transpose()?;
        if keys.is_none() && unique.is_none() {
            // Nothing of the effect is in the request, so an object that exists already is not known to be its.
            policy.conflict.clear();
        }
        if body == BodyKind::Mail {
            mail_arguments(&input, &places, &path)?;
        }
        let fields = fixed_fields(raw.fields, &places, body, &input)?;
        let fills = Filling { keys, unique: unique.as_ref(), marker: marker.as_ref() };
        fills.check(body, &fields, whole.map(|(name, _)| name), document.as_ref(), &input)?;
        let look = match (&raw.lookup, keys.and_then(|k| k.lookup.as_ref())) {
            (Some(own), _) => Some(looking::lookup(own, &path, &verb, &styles)?),
            (None, Some(KeyLookup::List { .. })) if document.is_some() => None,
            (None, Some(by_key)) => Some(looking::by_key(by_key, &path)),
            (None, None) => None,
        };
        let max_response = raw.max_response.map_or(DEFAULT_CAP, |s| s.0);
        if !(1024..=MAX_CAP).contains(&max_response) {
            return wrong("max_response", "max_response must be 1KiB to 10MiB");
        }
        let method = Method {
            home: self.home.clone(),
            id: format!("{integration}.{name}"),
            wire: raw.name,
            title: raw.title,
            description: raw
                .description
                .unwrap_or_else(|| format!("{verb} {}", raw.http.split_once(' ').map_or("", |p| p.1.trim()))),
            details: raw.details,
            effect,
            effect_origin,
            imported_recovery: raw.imported.and_then(|i| i.recovery),
            keys: keys.map(|k| (k.clone(), key_origin)),
            carrier_origin,
            key_lacks,
            graphql: document.map(Arc::new),
            key_cover: all_keys.as_ref().map(|k| (k.methods.clone(), k.endpoints.clone())),
            verb,
            path,
            places,
            styles,
            part_types,
            part_headers,
            query,
            fields,
            body,
            content_type: raw.content_type,
            headers: own_headers,
            input,
            output: raw.output.map(|s| s.0),
            policy: policy.into(),
            lookup: look,
            unique,
            marker,
            natural: raw.natural.map(|n| n.replay_horizon.map(|s| s.0)),
            precheck: raw.precheck.unwrap_or(false),
            declared: raw.recovery,
            limits: self.limits(raw.retries.as_ref(), raw.timeouts.as_ref())?,
            max_response,
        };
        if method.precheck && (method.lookup.is_none() || method.lookup_needs_marker()) {
            return wrong(
                "precheck",
                "`precheck` asks before the first send, and there is no `lookup` to ask with",
            );
        }
        has_its_places(&method)?;
        if !read {
            method.recovery(None).map_err(|e| ("recovery", e.message))?;
        }
        Ok(method)
    }
}
