//! From the configuration to the tools that are served: manifests read, secrets resolved, every setting decided.

use crate::config::{At, Config, ConfigError, Problem, Set, ToolConfig, nearest, read_file};
use gateway::catalog::ListSettings;
use gateway::{Body, Catalog, CatalogError, Offer, ToolSettings, ToolSpec, http_tool, status};
use ledger::{Ledger, OperationPolicy};
use provider::{ConfigCredentials, Format, HttpExecutor, Integration, Method, MethodEffect, Overrides};
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
}

/// The tools, checked.
pub(crate) struct Assembled {
    pub catalog: Catalog,
}

/// Reads the manifests and resolves the secrets. `sandbox_at`: where the bundled provider listens, if it is mounted.
///
/// # Errors
/// [`ConfigError`]: every file that is wrong.
pub fn load(config: &Config, sandbox_at: Option<SocketAddr>) -> Result<Loaded, ConfigError> {
    let mut integrations = Vec::new();
    let mut problems = Vec::new();
    if let Some(at) = sandbox_at {
        for (file, text) in provider::builtin::sandbox_manifests() {
            let bundled = Integration::parse(file, text, Format::Toml, provider::Mode::Sandbox)
                .and_then(|i| i.with_base_url(&format!("http://{at}")));
            match bundled {
                Ok(i) => integrations.push(i),
                Err(e) => problems.push(from_provider(&e)),
            }
        }
    }
    for r in &config.integrations {
        let wrong = |message: String| Problem { file: config.shown(), at: r.at.clone(), message };
        let shown = r.manifest.display().to_string();
        let text = match read_file(&r.manifest) {
            Ok(text) => text,
            Err(why) => {
                problems.push(wrong(format!("the manifest {shown} {why}")));
                continue;
            }
        };
        match Integration::parse(&shown, &text, Format::of(&shown), config.mode) {
            Ok(i) if i.name() == r.name => integrations.push(i),
            Ok(i) => problems.push(wrong(format!("the manifest {shown} is of {:?}, not {:?}; canonical ids depend on the name, so make both the same", i.name(), r.name))),
            Err(e) => problems.push(from_provider(&e)),
        }
    }
    if !problems.is_empty() {
        return Err(ConfigError { problems });
    }
    let credentials = ConfigCredentials::load(&integrations)
        .map_err(|e| ConfigError { problems: vec![from_provider(&e)] })?;
    let missing = credentials.missing();
    let executor = Arc::new(HttpExecutor::new(Arc::new(credentials)));
    Ok(Loaded { integrations, executor, missing })
}

fn from_provider(e: &provider::ConfigError) -> Problem {
    let at = e.line.map_or(At::Nowhere, |line| At::Line(line, 1));
    Problem { file: e.file.clone(), at, message: e.message.clone() }
}

/// Decides every setting and makes the catalog, the built-in tool last.
pub(crate) fn catalog(
    config: &Config,
    loaded: &Loaded,
    ledger: &Arc<Ledger>,
) -> Result<Assembled, ConfigError> {
    for e in &loaded.missing {
        tracing::warn!("{e}");
    }
    let mut tools = tools(config, loaded)?;
    tools.push(status::tool(ledger.clone()));
    let lists = ListSettings {
        ttl: config.lists_ttl,
        public: config.auth == crate::config::Auth::None,
        server_info: gateway::service::server_info(&config.server.name, env!("CARGO_PKG_VERSION")),
    };
    let catalog = Catalog::build(Offer { tools, ..Offer::default() }, &lists)
        .map_err(|e| ConfigError { problems: vec![from_catalog(config, &e)] })?;
    Ok(Assembled { catalog })
}

fn from_catalog(config: &Config, e: &CatalogError) -> Problem {
    let (CatalogError::SameName(_, id, _)
    | CatalogError::SameId(id)
    | CatalogError::BadName(id, _)
    | CatalogError::Schema(id, _)
    | CatalogError::Header(id, _)
    | CatalogError::KeyFrom(id, _)) = e;
    let tool = config.tools.iter().find(|t| t.id == *id);
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

fn tools(config: &Config, loaded: &Loaded) -> Result<Vec<(ToolSpec, ToolSettings, Body)>, ConfigError> {
    let methods: Vec<&Method> = loaded.integrations.iter().flat_map(Integration::methods).collect();
    let mut problems = Vec::new();
    let mut add =
        |at: &At, message: String| problems.push(Problem { file: config.shown(), at: at.clone(), message });
    for t in &config.tools {
        if !methods.iter().any(|m| m.canonical_id() == t.id) {
            let hint = match nearest(&t.id, methods.iter().map(|m| m.canonical_id())) {
                Some(near) => format!("did you mean {near:?}?"),
                None => "`counterfoil methods` lists what there is".to_owned(),
            };
            add(&t.at, format!("there is no method {:?}; {hint}", t.id));
        }
    }
    let mut out = Vec::new();
    for m in methods {
        let own = config.tools.iter().find(|t| t.id == m.canonical_id());
        if let Some((at, why)) = own.and_then(|t| misplaced(t, m)) {
            add(&at, why);
            continue;
        }
        carrier(own, m, &mut add);
        match http_tool::tool(m, &overrides(config, own), settings(config, own), &loaded.executor) {
            Ok((mut spec, settings, body)) => {
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
    }
    if problems.is_empty() { Ok(out) } else { Err(ConfigError { problems }) }
}

/// A setting of effects on a method that only reads.
fn misplaced(t: &ToolConfig, m: &Method) -> Option<(At, String)> {
    if m.effect() == MethodEffect::Mutating {
        return None;
    }
    let at = |key: &'static str, at: Option<At>| at.map(|at| (key, at));
    let set = [
        at("recovery", t.recovery.as_ref().map(|s| s.at.clone())),
        at("unkeyed", t.unkeyed.as_ref().map(|s| s.at.clone())),
        at("key_from", t.key_from.as_ref().map(|s| s.at.clone())),
        at("inject_key", t.inject_key.as_ref().map(|s| s.at.clone())),
        at("guard_window", t.guard_window.as_ref().map(|s| s.at.clone())),
        at("send_timeout", t.send_timeout.as_ref().map(|s| s.at.clone())),
        at("inline_limit", t.inline_limit.as_ref().map(|s| s.at.clone())),
        at("retention", t.retention.as_ref().map(|s| s.at.clone())),
        at("header_name", t.header_name.as_ref().map(|s| s.at.clone())),
    ];
    let (key, at) = set.into_iter().flatten().next()?;
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

fn settings(config: &Config, own: Option<&ToolConfig>) -> ToolSettings {
    fn first<T: Clone>(own: Option<&Set<T>>, default: Option<&Set<T>>, reference: T) -> T {
        own.or(default).map_or(reference, |s| s.value.clone())
    }
    let d = &config.defaults;
    let base = ToolSettings::default();
    let policy = OperationPolicy {
        guard_window: first(
            own.and_then(|t| t.guard_window.as_ref()),
            d.guard_window.as_ref(),
            base.policy.guard_window,
        ),
        timeout: first(own.and_then(|t| t.timeout.as_ref()), d.timeout.as_ref(), base.policy.timeout),
        retention: first(own.and_then(|t| t.retention.as_ref()), None, config.ledger.retention),
        ..base.policy
    };
    ToolSettings {
        unkeyed: first(own.and_then(|t| t.unkeyed.as_ref()), d.unkeyed.as_ref(), base.unkeyed),
        key_from: own.and_then(|t| t.key_from.as_ref()).map(|s| s.value.clone()).unwrap_or_default(),
        inject_key: first(own.and_then(|t| t.inject_key.as_ref()), None, base.inject_key),
        wait: first(own.and_then(|t| t.inline_limit.as_ref()), d.inline_limit.as_ref(), base.wait),
        policy,
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
