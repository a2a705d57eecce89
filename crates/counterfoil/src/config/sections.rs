//! The sections of the file, one function each.

use super::environment::Environment;
use super::error::At;
use super::node::{Entry, Faults, Reader};
use super::{
    Auth, Config, IntegrationRef, SANDBOX_LISTEN, Server, eras, limits, place, seal, tools, values, views,
};
use ledger::Millis;
use provider::Mode;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;

/// Reads the whole tree. Faults go to `faults`; what is returned counts only without any.
pub(super) fn read(file: &Path, entries: &[Entry], environment: &Environment, faults: &Faults) -> Config {
    let base = file.parent().unwrap_or(Path::new(""));
    let root = Reader::new("", At::Nowhere, entries, faults);
    let empty = |name: &str| Reader::new(format!("[{name}]"), At::Nowhere, &[], faults);
    let section = |name: &'static str| root.table(name).unwrap_or_else(|| empty(name));

    let auth = auth(&section("auth"));
    let ledger = place::ledger(&section("ledger"), environment, base);
    let bus = place::bus(&section("bus"), environment, base, &ledger);
    let seal = seal::read(&section("seal"), environment, base);
    let (server, mode) = server(&section("server"), auth, ledger.postgres().is_some());
    let lists = section("lists");
    let lists_ttl = lists.parsed("ttl", |t| values::duration(t, Millis(0), Millis::secs(86_400)));
    lists.finish();
    let defaults = tools::defaults(&section("defaults"));
    let webhook = alerts(&section("alerts"), environment, base);
    let integrations = integrations(&root, base);
    let tools =
        root.table("tools").map(|t| tools::tools(&t, &defaults, ledger.retention)).unwrap_or_default();
    let views = views::read(&root, &server.path, auth);
    let limits = root.table("limits").map(|l| limits::read(&l)).unwrap_or_default();
    let sandbox = root.table("sandbox").map(|s| sandbox(&s));

    if let (Some(_), Mode::Production) = (sandbox, mode) {
        let at = root.take("sandbox").map_or(At::Nowhere, |e| e.at.clone());
        faults.add(&at, "the sandbox provider has no place in mode = \"production\"; take [sandbox] out, or set mode = \"sandbox\" in [server]");
    }
    if let Some(first) =
        integrations.iter().find(|i| sandbox.is_some() && matches!(i.name.as_str(), "payments" | "mail"))
    {
        faults.add(&first.at, format!("{:?} is also the name of an integration that [sandbox] mounts; rename this one, or take [sandbox] out", first.name));
    }
    root.later("upstream", "MCP servers as upstreams are");
    root.finish();
    Config {
        file: Some(file.to_owned()),
        mode,
        server,
        ledger,
        bus,
        seal,
        auth,
        lists_ttl: lists_ttl.map_or(Millis::secs(300), |(d, _)| d),
        defaults,
        integrations,
        tools,
        limits,
        views,
        webhook,
        sandbox,
    }
}

fn auth(section: &Reader<'_>) -> Auth {
    let mode = section.parsed("mode", |text| match text {
        "none" => Ok(Auth::None),
        "api-key" => Ok(Auth::ApiKey),
        "oauth" => {
            Err("\"oauth\" is not available in this version; use \"api-key\", or \"none\" on loopback".into())
        }
        _ => Err(format!("{text:?} is unknown; use \"api-key\", or \"none\" on loopback")),
    });
    section.finish();
    mode.map_or(Auth::None, |(m, _)| m)
}

/// Why an address can't be served without authentication, if it can't.
pub(super) fn exposed(listen: SocketAddr, auth: Auth) -> Option<String> {
    (auth == Auth::None && !listen.ip().is_loopback()).then(|| {
        format!("{listen} can be reached from other machines, and nobody is asked who they are; use a loopback address, or set mode = \"api-key\" in [auth]")
    })
}

/// How long a server that stops goes on accepting, by default: where others can take its place, for as long as a
/// balancer takes to notice.
const SHUTDOWN_DELAY: Millis = Millis::secs(5);
/// How long calls in flight may take to end on shutdown, by default.
pub(super) const SHUTDOWN_LIMIT: Millis = Millis::secs(30);

fn server(section: &Reader<'_>, auth: Auth, replicated: bool) -> (Server, Mode) {
    let listen = section.parsed("listen", values::address);
    if let Some((listen, at)) = &listen
        && let Some(why) = exposed(*listen, auth)
    {
        section.faults.add(at, why);
    }
    let mode = section.parsed("mode", |text| match text {
        "sandbox" => Ok(Mode::Sandbox),
        "production" => Ok(Mode::Production),
        _ => Err(format!("{text:?} is unknown; use \"sandbox\" or \"production\"")),
    });
    let checked = |key: &'static str, check: fn(&str) -> Result<(), String>| -> Vec<String> {
        let mut out = Vec::new();
        for (text, at) in section.texts(key).unwrap_or_default() {
            match check(&text) {
                Ok(()) => out.push(text),
                Err(why) => section.faults.add(&at, format!("{key}: {why}")),
            }
        }
        out
    };
    let max_body = section.parsed("max_body", |text| {
        let bytes = values::parse_size(text)?;
        let fits = (1024..=64 << 20).contains(&bytes);
        usize::try_from(bytes).ok().filter(|_| fits).ok_or_else(|| format!("{text} is outside 1KiB to 64MiB"))
    });
    let allowed_hosts = checked("allowed_hosts", values::host);
    let public_url = section.parsed("public_url", values::public_url).map(|(u, _)| u);
    let mut seen = allowed_hosts.clone();
    seen.extend(public_url.as_ref().and_then(|u| u.host_str()).map(str::to_owned));
    let spoken = eras::read(section, &seen, auth);
    let span =
        |key, least, most| section.parsed(key, move |t| values::duration(t, least, most)).map(|(d, _)| d);
    let shutdown_delay = span("shutdown_delay", Millis(0), Millis::secs(300));
    let shutdown_limit = span("shutdown_limit", Millis::secs(1), Millis::secs(600));
    let server = Server {
        name: section.parsed("name", values::name).map_or_else(|| "counterfoil".into(), |(n, _)| n),
        listen: listen.map_or(SocketAddr::from(([127, 0, 0, 1], 8600)), |(l, _)| l),
        path: section.parsed("path", values::path).map_or_else(|| "/mcp".into(), |(p, _)| p),
        public_url,
        allowed_hosts,
        allowed_origins: checked("allowed_origins", values::origin),
        max_body: max_body.map_or(4 << 20, |(b, _)| b),
        eras: spoken.eras,
        eras_by_host: spoken.by_host,
        eras_by_principal: spoken.by_principal,
        legacy_sessions: spoken.sessions,
        legacy_session_idle: spoken.idle,
        shutdown_delay: shutdown_delay.unwrap_or(if replicated { SHUTDOWN_DELAY } else { Millis(0) }),
        shutdown_limit: shutdown_limit.unwrap_or(SHUTDOWN_LIMIT),
    };
    section.finish();
    (server, mode.map_or(Mode::Sandbox, |(m, _)| m))
}

fn integrations(root: &Reader<'_>, base: &Path) -> Vec<IntegrationRef> {
    let mut out: Vec<IntegrationRef> = Vec::new();
    let mut seen: HashMap<String, At> = HashMap::new();
    for section in root.list("integration") {
        let name = section.parsed("name", values::integration);
        let manifest = section.text("manifest");
        section.finish();
        for (key, there) in [("name", name.is_some()), ("manifest", manifest.is_some())] {
            if !there && section.lacks(key) {
                section.faults.add(&section.at, format!("[[integration]] needs {key}"));
            }
        }
        let (Some((name, at)), Some((manifest, _))) = (name, manifest) else { continue };
        if let Some(At::Line(line, _)) = seen.get(&name) {
            section.faults.add(
                &at,
                format!(
                    "the integration {name:?} is already there, in line {line}; give this one another name"
                ),
            );
        }
        seen.insert(name.clone(), at.clone());
        out.push(IntegrationRef { name, manifest: base.join(manifest), at });
    }
    out
}

fn alerts(section: &Reader<'_>, environment: &Environment, base: &Path) -> Option<values::Webhook> {
    let (text, at) = section.secret("webhook").unzip();
    section.finish();
    match environment.secret(&text?, base).and_then(|url| values::Webhook::new(&url)) {
        Ok(webhook) => Some(webhook),
        Err(why) => {
            section.faults.add(&at?, format!("webhook: {why}"));
            None
        }
    }
}

fn sandbox(section: &Reader<'_>) -> SocketAddr {
    let listen = section.parsed("listen", |text| {
        let address = values::address(text)?;
        if address.ip().is_loopback() {
            Ok(address)
        } else {
            Err(format!("{text} is not on loopback; the sandbox provider has no authentication"))
        }
    });
    section.finish();
    listen.map_or_else(
        || values::address(SANDBOX_LISTEN).unwrap_or(SocketAddr::from(([127, 0, 0, 1], 8690))),
        |(l, _)| l,
    )
}
