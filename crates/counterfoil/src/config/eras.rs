//! `[server]`: which eras of the protocol are served, under which names, and the sessions of the older one.

use super::node::Reader;
use super::{Auth, LegacySessions, values};
use gateway::sessions::SESSION_IDLE;
use ledger::Millis;
use mcp::Eras;
use mcp::origin::is_loopback_name;

/// How long a session may go unused: the least, the most.
const IDLE: [Millis; 2] = [Millis::secs(300), Millis::secs(30 * 86_400)];

/// What `[server]` says of eras and sessions.
pub(super) struct Spoken {
    pub eras: Eras,
    pub by_host: Vec<(String, Eras)>,
    pub by_principal: Vec<(String, Eras)>,
    pub sessions: LegacySessions,
    pub idle: Millis,
}

fn era(text: &str) -> Result<Eras, String> {
    [Eras::Both, Eras::Modern, Eras::Legacy]
        .into_iter()
        .find(|e| e.as_str() == text)
        .ok_or_else(|| format!("{text:?} is unknown; use \"both\", \"modern\" or \"legacy\""))
}

fn sessions(text: &str) -> Result<LegacySessions, String> {
    LegacySessions::parse(text)
        .ok_or_else(|| format!("{text:?} is unknown; use \"auto\", \"always\", \"never\" or \"platform\""))
}

/// A host without its port; the name of an IPv6 address keeps its brackets.
fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        Some(colon) if !host[colon..].contains(']') => &host[..colon],
        _ => host,
    }
}

/// Reads them. `allowed` are the `Host` names beyond loopback that are let in, with or without ports.
pub(super) fn read(section: &Reader<'_>, allowed: &[String], auth: Auth) -> Spoken {
    let eras = section.parsed("eras", era).map_or(Eras::Both, |(e, _)| e);
    let by_host = by_host(section, allowed);
    let by_principal = by_principal(section, auth);
    let sessions = section.parsed("legacy_sessions", sessions).map_or(LegacySessions::Auto, |(s, _)| s);
    let [least, most] = IDLE;
    let idle = section.parsed("legacy_session_idle", |t| values::duration(t, least, most));
    if !eras.legacy() && by_host.iter().chain(&by_principal).all(|(_, e)| !e.legacy()) {
        for key in ["legacy_sessions", "legacy_session_idle"] {
            if !section.lacks(key) {
                section.faults.add(
                    &section.place(key),
                    format!("{key} has no use where only the modern era is served; take it out, or let eras, eras_by_host or eras_by_principal include \"legacy\""),
                );
            }
        }
    } else if matches!(sessions, LegacySessions::Never | LegacySessions::Platform)
        && !section.lacks("legacy_session_idle")
    {
        section.faults.add(
            &section.place("legacy_session_idle"),
            "legacy_session_idle has no use where legacy_sessions keeps none here; take it out, or set legacy_sessions = \"auto\"",
        );
    }
    Spoken { eras, by_host, by_principal, sessions, idle: idle.map_or(SESSION_IDLE, |(d, _)| d) }
}

fn by_host(section: &Reader<'_>, allowed: &[String]) -> Vec<(String, Eras)> {
    let mut out: Vec<(String, Eras)> = Vec::new();
    for pair in section.pairs("eras_by_host") {
        let host = pair.key.to_ascii_lowercase();
        let seen =
            || is_loopback_name(&host) || allowed.iter().any(|a| without_port(a).eq_ignore_ascii_case(&host));
        let wrong = if let Err(why) = values::host(&host) {
            Some(why)
        } else if without_port(&host) != host {
            Some(format!(
                "{:?} names a port, and eras go by the name alone; write {:?}",
                pair.key,
                without_port(&host)
            ))
        } else if out.iter().any(|(h, _)| *h == host) {
            Some(format!("{:?} is there already; hosts are the same in upper and lower case", pair.key))
        } else if !seen() {
            Some(format!(
                "requests for {:?} are refused, so it is never seen: it is neither loopback nor in allowed_hosts or public_url; add it there, or take it out",
                pair.key
            ))
        } else {
            None
        };
        if let Some(why) = wrong {
            section.faults.add(&pair.key_at, format!("eras_by_host: {why}"));
        }
        match era(&pair.value) {
            Ok(eras) => out.push((host, eras)),
            Err(why) => section.faults.add(&pair.value_at, format!("eras_by_host: {why}")),
        }
    }
    out
}

fn by_principal(section: &Reader<'_>, auth: Auth) -> Vec<(String, Eras)> {
    let mut out: Vec<(String, Eras)> = Vec::new();
    for pair in section.pairs("eras_by_principal") {
        if pair.key.is_empty() {
            section.faults.add(&pair.key_at, "eras_by_principal: a principal has a name; write it");
        }
        match era(&pair.value) {
            Ok(eras) => out.push((pair.key, eras)),
            Err(why) => section.faults.add(&pair.value_at, format!("eras_by_principal: {why}")),
        }
    }
    if !out.is_empty() && auth == Auth::None {
        section.faults.add(
            &section.place("eras_by_principal"),
            "eras_by_principal has no use without authentication: every caller is the same principal; set mode = \"api-key\" in [auth], or take it out",
        );
    }
    out
}
