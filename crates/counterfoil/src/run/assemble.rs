//! From the configuration to the tools that are served: manifests read, secrets resolved, every setting decided.

use super::limits;
use crate::config::{
    At, Auth, Config, ConfigError, IntegrationRef, Problem, Set, ToolConfig, nearest, read_file,
};
use crate::native::{Bound, Chosen, Native, Registry};
use gateway::catalog::ListSettings;
use gateway::tool::Mode;
use gateway::{
    Approval, Body, Catalog, CatalogError, Connections, Offer, ToolSettings, ToolSpec, http_tool, status,
};
use ledger::{Ledger, OperationPolicy};
use provider::{ConfigCredentials, Format, HttpExecutor, Integration, Method, MethodEffect, Overrides};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Integrations as they are read, with what sends their requests.
#[derive(Clone)]
pub struct Loaded {
    /// The bundled provider's first, then those of the file in their order.
    pub integrations: Vec<Integration>,
    /// Sends recorded requests.
    pub executor: Arc<HttpExecutor>,
    /// Credentials that are missing or unusable: calls that need one fail before they send.
    pub missing: Vec<provider::CredentialError>,
    /// Which of their providers are down.
    pub(crate) breakers: limits::ByIntegration,
}

/// What is offered, checked.
pub(crate) struct Assembled {
    pub catalog: Catalog,
    /// The methods that native tools compose.
    pub methods: Registry,
}

/// Reads the manifests and resolves the secrets. `sandbox_at`: where the bundled provider listens, if it is mounted.
///
/// # Errors
/// [`ConfigError`]: every file that is wrong.
pub fn load(config: &Config, sandbox_at: Option<SocketAddr>) -> Result<Loaded, ConfigError> {
    load_with(config, sandbox_at, Arc::default())
}

/// The same, with the credentials of principals.
///
/// # Errors
/// [`ConfigError`]: every file that is wrong.
pub(crate) fn load_with(
    config: &Config,
    sandbox_at: Option<SocketAddr>,
    connections: Arc<Connections>,
) -> Result<Loaded, ConfigError> {
    let mut integrations = Vec::new();
    let mut problems = Vec::new();
    if let Some(at) = sandbox_at {
        for (file, text) in provider::builtin::sandbox_manifests() {
            let bundled = Integration::parse(file, text, Format::Toml, provider::Mode::Sandbox)
                .and_then(|i| i.with_base_url(&format!("http://{at}")));
            match bundled {
                // With port 0 it is this ledger's own at whatever port: another start's is the same provider.
                Ok(i) if config.sandbox.is_some_and(|asked| asked.port() == 0) => {
                    integrations.push(i.at_any_port());
                }
                Ok(i) => integrations.push(i),
                Err(e) => problems.push(from_provider(&e)),
            }
        }
    }
    for r in &config.integrations {
        match integration(config, r) {
            Ok(i) => integrations.push(i),
            Err(problem) => problems.push(problem),
        }
    }
    if !problems.is_empty() {
        return Err(ConfigError { problems });
    }
    let credentials = ConfigCredentials::load(&integrations)
        .map_err(|e| ConfigError { problems: vec![from_provider(&e)] })?;
    let credentials = credentials.with_store(&super::credentials::live());
    let missing = credentials.missing();
    let credentials = credentials.with_own(connections);
    let breakers = limits::ByIntegration::new(config, &integrations);
    let watch = breakers.by_origin(&integrations);
    let executor = HttpExecutor::new(Arc::new(credentials));
    let executor = if watch.is_empty() { executor } else { executor.watched_by(Arc::new(watch)) };
    Ok(Loaded { integrations, executor: Arc::new(executor), missing, breakers })
}

/// One integration, whatever the others are like.
///
/// # Errors
/// What is wrong with its manifest.
pub(crate) fn integration(config: &Config, r: &IntegrationRef) -> Result<Integration, Problem> {
    let wrong = |message: String| Problem { file: config.shown(), at: r.at.clone(), message };
    let shown = r.manifest.display().to_string();
    let text = read_file(&r.manifest, provider::MAX_MANIFEST)
        .map_err(|why| wrong(format!("the manifest {shown} {why}")))?;
    match Integration::parse(&shown, &text, Format::of(&shown), config.mode) {
        Ok(i) if i.name() == r.name => match unproved(config, &i) {
            Some(why) => Err(wrong(format!("the manifest {shown} {why}"))),
            None => Ok(i),
        },
        Ok(i) => Err(wrong(format!(
            "the manifest {shown} is of {:?}, not {:?}; canonical ids depend on the name, so make both the same",
            i.name(),
            r.name
        ))),
        Err(e) => Err(from_provider(&e)),
    }
}

/// Why principals can't have credentials of their own here, if an integration asks for that.
fn unproved(config: &Config, integration: &Integration) -> Option<String> {
    if !integration.is_per_principal() {
        return None;
    }
    const PER: &str = "has [auth] per = \"principal\"";
    let public = config.server.public_url.as_ref();
    if config.auth == Auth::None && public.is_some_and(|url| url.scheme() == "https") {
        return Some(format!(
            "{PER}, and with [auth] mode = \"none\" everybody is the same principal: whoever reaches public_url would act under the credential of one; set mode = \"api-key\" in [auth], or take public_url out"
        ));
    }
    if public.is_none() && !config.server.listen.ip().is_loopback() {
        return Some(format!(
            "{PER}, and people have to reach the page where they give it; set [server] public_url to the https address of this server"
        ));
    }
    None
}

fn from_provider(e: &provider::ConfigError) -> Problem {
    let at = e.line.map_or(At::Nowhere, |line| At::Line(line, 1));
    Problem { file: e.file.clone(), at, message: e.message.clone() }
}

/// Decides every setting and makes the catalog: native tools first, then methods, the built-in tool last.
pub(crate) fn catalog(
    config: &Config,
    loaded: &Loaded,
    ledger: &Arc<Ledger>,
    native: &Native,
) -> Result<Assembled, ConfigError> {
    for e in &loaded.missing {
        tracing::warn!("{e}");
    }
    let (mut tools, methods) = tools(config, loaded, native)?;
    tools.push(status::tool(ledger.clone()));
    let lists = ListSettings {
        ttl: config.lists_ttl,
        public: config.auth == crate::config::Auth::None,
        server_info: gateway::service::server_info(&config.server.name, super::replicas::version()),
    };
    let offer = Offer {
        tools,
        resources: native.resources.iter().map(|r| r.offered()).collect(),
        templates: native.templates.iter().map(|t| t.offered()).collect(),
        prompts: native.prompts.iter().map(|p| p.offered()).collect(),
    };
    let catalog = Catalog::build(offer, &lists)
        .map_err(|e| ConfigError { problems: vec![from_catalog(config, &e)] })?;
    let views = super::views::of(config, &catalog)?;
    let catalog = catalog.with_views(views);
    Ok(Assembled { catalog, methods })
}

fn from_catalog(config: &Config, e: &CatalogError) -> Problem {
    let tool = e.tool().and_then(|id| config.tools.iter().find(|t| t.id == id));
    let at = match e {
        CatalogError::KeyFrom(..) => tool.and_then(|t| t.key_from.as_ref().map(|k| k.at.clone())),
        CatalogError::SameName(..) | CatalogError::BadName(..) => {
            tool.and_then(|t| t.name.as_ref().map(|n| n.at.clone()))
        }
        _ => None,
    };
    let at = at.or_else(|| tool.map(|t| t.at.clone())).unwrap_or(At::Nowhere);
    Problem { file: config.shown(), at, message: e.to_string() }
}

type Served = (ToolSpec, ToolSettings, Body);

fn tools(config: &Config, loaded: &Loaded, native: &Native) -> Result<(Vec<Served>, Registry), ConfigError> {
    let methods: Vec<&Method> = loaded.integrations.iter().flat_map(Integration::methods).collect();
    let mut problems = Vec::new();
    let mut add =
        |at: &At, message: String| problems.push(Problem { file: config.shown(), at: at.clone(), message });
    let known = || native.tools.iter().map(|t| t.id()).chain(methods.iter().map(|m| m.canonical_id()));
    for t in &config.tools {
        if !known().any(|id| id == t.id) {
            let hint = match nearest(&t.id, known()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => "`counterfoil methods` lists what there is".to_owned(),
            };
            add(&t.at, format!("there is no method {:?}; {hint}", t.id));
        }
    }
    let ids: Vec<&str> = known().collect();
    limits::unknown(config, &loaded.integrations, ids.iter().copied(), &mut add);
    let mut out = natives(config, loaded, &methods, native, &mut add);
    let mut bound = HashMap::new();
    for m in methods {
        let own = config.tools.iter().find(|t| t.id == m.canonical_id());
        if let Some((at, why)) =
            own.filter(|_| m.effect() == MethodEffect::Read).and_then(|t| of_effects(t, &EFFECTS))
        {
            add(&at, why);
            continue;
        }
        carrier(own, m, &mut add);
        match http_tool::tool(
            m,
            &overrides(config, own),
            settings(config, own, &Chosen::default()),
            &loaded.executor,
        ) {
            Ok((mut spec, mut settings, body)) => {
                unknown_limits(own, &spec, &mut add);
                let of = limits::Of {
                    config,
                    breakers: &loaded.breakers,
                    spec: &spec,
                    timeout: settings.policy.timeout,
                    reads: m.effect() == MethodEffect::Read,
                    calls: &[],
                };
                settings.limits = of.limits(&mut add);
                if let Some(name) = own.and_then(|t| t.name.as_ref()) {
                    spec.name.clone_from(&name.value);
                }
                out.push((spec, settings, body));
            }
            Err(e) => {
                let set = own.and_then(|t| {
                    t.recovery.as_ref().map(|r| &r.at).or(t.send_timeout.as_ref().map(|s| &s.at))
                });
                let at = set.or(own.map(|t| &t.at)).unwrap_or(&At::Nowhere);
                add(at, format!("{}: {}", m.canonical_id(), e.message));
            }
        }
        let recovery = match m.effect() {
            MethodEffect::Read => None,
            MethodEffect::Mutating => m.resolve(&overrides(config, own)).ok().map(|r| r.recovery),
        };
        bound.insert(m.canonical_id().to_owned(), Bound { method: m.clone(), recovery });
    }
    let registry = Registry { methods: bound, executor: Some(loaded.executor.clone()) };
    if problems.is_empty() { Ok((out, registry)) } else { Err(ConfigError { problems }) }
}

/// The native tools, in their order, with what `[tools]` says of them.
fn natives(
    config: &Config,
    loaded: &Loaded,
    methods: &[&Method],
    native: &Native,
    add: &mut impl FnMut(&At, String),
) -> Vec<Served> {
    let mut out = Vec::new();
    for tool in &native.tools {
        let own = config.tools.iter().find(|t| t.id == tool.id());
        let misplaced = own.and_then(|t| {
            let foreign = of_effects(t, &OF_METHODS).map(|(at, _)| {
                let why = format!("{} is a tool of its own: what it sends is sent by the methods that it calls, so set this on them", t.id);
                (at, why)
            });
            foreign.or_else(|| of_effects(t, &EFFECTS).filter(|_| tool.only_reads()))
        });
        if let Some((at, why)) = misplaced {
            add(&at, why);
            continue;
        }
        for id in tool.calls() {
            match methods.iter().find(|m| m.canonical_id() == id) {
                Some(m) if m.effect() == MethodEffect::Mutating => {}
                Some(_) => add(
                    &At::Nowhere,
                    format!(
                        "the tool {} names {id} among the methods that change something, but it only reads; it can be read without being named",
                        tool.id()
                    ),
                ),
                None => {
                    let hint = match nearest(id, methods.iter().map(|m| m.canonical_id())) {
                        Some(near) => format!("did its author mean {near:?}?"),
                        None => "add the integration that has it".to_owned(),
                    };
                    add(
                        &At::Nowhere,
                        format!(
                            "the tool {} calls the method {id:?}, which is not configured; {hint}",
                            tool.id()
                        ),
                    );
                }
            }
        }
        let (mut spec, mut settings, body) =
            tool.offered(settings(config, own, tool.chosen()), &native.methods());
        settings.mode = mode(config, own, spec.mode);
        unknown_limits(own, &spec, add);
        let of = limits::Of {
            config,
            breakers: &loaded.breakers,
            spec: &spec,
            timeout: settings.policy.timeout,
            reads: tool.only_reads(),
            calls: tool.calls(),
        };
        settings.limits = of.limits(add);
        // Whoever wants a yes for a method wants it whichever way the method is called.
        if settings.approval == Approval::Never && own.is_none_or(|t| t.approval.is_none()) {
            for t in config.tools.iter().filter(|t| tool.calls().contains(&t.id)) {
                if let Some(set) = t.approval.as_ref().filter(|s| s.value != Approval::Never) {
                    add(
                        &set.at,
                        format!(
                            "approval: {} calls {} without asking anybody; set approval for [tools.{:?}] too, or say there that it is \"never\"",
                            tool.id(),
                            t.id,
                            tool.id()
                        ),
                    );
                }
            }
        }
        if let Some(name) = own.and_then(|t| t.name.as_ref()) {
            spec.name.clone_from(&name.value);
        }
        out.push((spec, settings, body));
    }
    out
}

/// The settings that speak of effects.
const EFFECTS: [&str; 12] = [
    "recovery",
    "unkeyed",
    "key_from",
    "inject_key",
    "guard_window",
    "send_timeout",
    "leg",
    "inline_limit",
    "mode",
    "approval",
    "retention",
    "header_name",
];
/// Those that speak of one method's requests.
const OF_METHODS: [&str; 3] = ["recovery", "send_timeout", "header_name"];

/// The first of these settings that is set, and why it means nothing on a tool that only reads.
fn of_effects(t: &ToolConfig, which: &[&str]) -> Option<(At, String)> {
    let at = |key: &'static str, at: Option<At>| at.map(|at| (key, at));
    let set = [
        at("recovery", t.recovery.as_ref().map(|s| s.at.clone())),
        at("unkeyed", t.unkeyed.as_ref().map(|s| s.at.clone())),
        at("key_from", t.key_from.as_ref().map(|s| s.at.clone())),
        at("inject_key", t.inject_key.as_ref().map(|s| s.at.clone())),
        at("guard_window", t.guard_window.as_ref().map(|s| s.at.clone())),
        at("send_timeout", t.send_timeout.as_ref().map(|s| s.at.clone())),
        at("leg", t.leg.as_ref().map(|s| s.at.clone())),
        at("mode", t.mode.as_ref().map(|s| s.at.clone())),
        at("approval", t.approval.as_ref().map(|s| s.at.clone())),
        at("inline_limit", t.inline_limit.as_ref().map(|s| s.at.clone())),
        at("retention", t.retention.as_ref().map(|s| s.at.clone())),
        at("header_name", t.header_name.as_ref().map(|s| s.at.clone())),
    ];
    let (key, at) = set.into_iter().flatten().find(|(key, _)| which.contains(key))?;
    Some((
        at,
        format!(
            "{} only reads: nothing of it is kept or repeated, so {key} means nothing; take it out",
            t.id
        ),
    ))
}

/// The key's header belongs to the provider, so its manifest (or preset) names it; what is said here must agree.
fn carrier(own: Option<&ToolConfig>, m: &Method, add: &mut impl FnMut(&At, String)) {
    let Some(wish) = own.and_then(|t| t.header_name.as_ref()) else { return };
    let said = m.key_carrier().unwrap_or_else(|| "nothing".into());
    if said.strip_prefix("header ").is_none_or(|h| !h.eq_ignore_ascii_case(&wish.value)) {
        add(
            &wish.at,
            format!(
                "{} carries its key in {said}; set header_name in [execution_policy.idempotency] of its manifest to change that",
                m.canonical_id()
            ),
        );
    }
}

fn overrides(config: &Config, own: Option<&ToolConfig>) -> Overrides {
    Overrides {
        strategy: own.and_then(|t| t.recovery.as_ref()).map(|s| s.value),
        send_timeout: own.and_then(|t| t.send_timeout.as_ref()).map(|s| s.value),
        default_send_timeout: config.defaults.send_timeout.as_ref().map(|s| s.value),
    }
}

/// `[tools]` before what a tool's author chose, that before `[defaults]`, those before the reference.
fn settings(config: &Config, own: Option<&ToolConfig>, chosen: &Chosen) -> ToolSettings {
    fn first<T: Clone>(
        own: Option<&Set<T>>,
        chosen: Option<&T>,
        default: Option<&Set<T>>,
        reference: T,
    ) -> T {
        own.map(|s| &s.value).or(chosen).or(default.map(|s| &s.value)).cloned().unwrap_or(reference)
    }
    let d = &config.defaults;
    let base = ToolSettings::default();
    let inline = own.and_then(|t| t.inline_limit.as_ref());
    let policy = OperationPolicy {
        guard_window: first(
            own.and_then(|t| t.guard_window.as_ref()),
            chosen.guard_window.as_ref(),
            d.guard_window.as_ref(),
            base.policy.guard_window,
        ),
        timeout: first(
            own.and_then(|t| t.timeout.as_ref()),
            chosen.timeout.as_ref(),
            d.timeout.as_ref(),
            base.policy.timeout,
        ),
        retention: first(
            own.and_then(|t| t.retention.as_ref()),
            chosen.retention.as_ref(),
            None,
            config.ledger.retention,
        ),
        ..base.policy
    };
    ToolSettings {
        unkeyed: first(
            own.and_then(|t| t.unkeyed.as_ref()),
            chosen.unkeyed.as_ref(),
            d.unkeyed.as_ref(),
            base.unkeyed,
        ),
        key_from: first(own.and_then(|t| t.key_from.as_ref()), Some(&chosen.key_from), None, Vec::new()),
        inject_key: first(
            own.and_then(|t| t.inject_key.as_ref()),
            chosen.inject_key.as_ref(),
            None,
            base.inject_key,
        ),
        // Whoever set only the inline limit meant every wait.
        wait: first(
            own.and_then(|t| t.leg.as_ref()),
            None,
            d.leg.as_ref(),
            first(inline, chosen.wait.as_ref(), d.inline_limit.as_ref(), base.wait),
        ),
        inline_limit: first(inline, chosen.wait.as_ref(), d.inline_limit.as_ref(), base.inline_limit),
        mode: mode(config, own, None),
        approval: approval(config, own, chosen),
        policy,
        limits: Arc::default(),
    }
}

/// As [`settings`]: the operator's word for the tool, its author's, `[defaults]`.
fn mode(config: &Config, own: Option<&ToolConfig>, author: Option<Mode>) -> Mode {
    let own = own.and_then(|t| t.mode.as_ref()).map(|s| s.value);
    own.or(author).or(config.defaults.mode.as_ref().map(|s| s.value)).unwrap_or_default()
}

fn approval(config: &Config, own: Option<&ToolConfig>, chosen: &Chosen) -> Approval {
    let (own, default) = (own.and_then(|t| t.approval.as_ref()), config.defaults.approval.as_ref());
    let value = |set: &'_ Set<Approval>| set.value.clone();
    own.map(value).or_else(|| chosen.approval.clone()).or_else(|| default.map(value)).unwrap_or_default()
}

/// Arguments that an approval looks at and the tool does not take: every call would wait, which is hardly meant.
fn unknown_limits(own: Option<&ToolConfig>, spec: &ToolSpec, add: &mut impl FnMut(&At, String)) {
    let Some((Approval::Over(limits), at)) = own.and_then(|t| t.approval.as_ref()).map(|s| (&s.value, &s.at))
    else {
        return;
    };
    let properties = spec.input_schema.object().and_then(|o| o.get("properties")).and_then(|p| p.object());
    for (name, _) in limits {
        if properties.as_ref().is_none_or(|p| p.get(name).is_none()) {
            let known: Vec<String> =
                properties.iter().flat_map(|p| p.iter().map(|(n, _)| n.into_owned())).collect();
            let hint = match nearest(name, known.iter().map(String::as_str)) {
                Some(near) => format!("did you mean {near:?}?"),
                None => "`counterfoil info` lists its arguments".to_owned(),
            };
            add(at, format!("approval: {} has no argument {name:?}; {hint}", spec.canonical));
        }
    }
}

/// How a place is named to people.
pub(super) fn shown(file: Option<&Path>, at: &At) -> String {
    let file = file.map_or_else(|| "the configuration".into(), |f| f.display().to_string());
    match at {
        At::Line(line, _) => format!("{file}:{line}"),
        At::Variable(name) => format!("environment variable {name}"),
        At::Nowhere => file,
    }
}
