//! Where an API is, by its description: which of its servers is production's, and which the sandbox's.
//!
//! Calls in sandbox mode must have no real effects, so a server is taken for a sandbox only where that is plain. Calls in
//! production mode carry the live secret, so what is like a trial is production's only if nothing else is there.

mod sign;

use self::sign::{Shown, Sign, Trust};
use crate::document::{list, text};
use crate::operation::Described;
use crate::prose;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The most servers of one list that are chosen from, and the most that are told of.
const MAX_SERVERS: usize = 32;
const MAX_TOLD: usize = 256;

/// The addresses of one operation, as descriptions give them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Base {
    pub production: Option<String>,
    pub sandbox: Option<String>,
}

/// The servers of an operation: its own, else its path's, else the description's.
fn servers<'a>(root: &'a Value, described: Option<Described<'a>>) -> &'a [Value] {
    let places = described.map(|d| [d.operation, d.item]);
    let own = places.iter().flatten().map(|place| list(place, "servers")).find(|servers| !servers.is_empty());
    let all = own.unwrap_or_else(|| list(root, "servers"));
    &all[..all.len().min(MAX_TOLD)]
}

/// The servers of an operation that are chosen from.
fn read<'a>(
    root: &'a Value,
    described: Option<Described<'a>>,
    variables: &BTreeMap<String, String>,
) -> Vec<Server<'a>> {
    servers(root, described).iter().take(MAX_SERVERS).filter_map(|s| Server::read(s, variables)).collect()
}

/// The addresses of an operation. Of several that are alike the first: servers come in the order of preference.
pub(crate) fn base(
    root: &Value,
    described: Option<Described<'_>>,
    variables: &BTreeMap<String, String>,
) -> Base {
    let all = read(root, described, variables);
    let slots = slots(&all);
    let both = || all.iter().zip(&slots);
    let sandbox = both().find(|(_, slot)| slot.is_none()).map(|(server, _)| server);
    let tried = both().any(|(server, slot)| slot.is_none() && !server.is_loopback());
    let production = both()
        .filter_map(|(server, slot)| Some((server, (*slot)?)))
        // Beside a sandbox there is no need to take another trial for production.
        .filter(|(_, trust)| !tried || *trust < Trust::Trial)
        .min_by_key(|(_, trust)| *trust);
    Base {
        production: production.map(|(server, _)| server.url.clone()),
        sandbox: sandbox.map(|server| server.url.clone()),
    }
}

/// All addresses of an operation's servers, whatever they are for, as [`base`] gives them, and whether each is named live.
pub(crate) fn listed(
    root: &Value,
    described: Option<Described<'_>>,
    variables: &BTreeMap<String, String>,
) -> Vec<(String, bool)> {
    let all = read(root, described, variables);
    all.iter().map(|server| (server.url.clone(), server.shows(&all).is_live())).collect()
}

/// What a description says of further servers, which nothing is sent to.
pub(crate) fn further(
    root: &Value,
    described: Option<Described<'_>>,
    variables: &BTreeMap<String, String>,
    base: &Base,
) -> Vec<String> {
    let taken = |url: &str| [&base.production, &base.sandbox].into_iter().flatten().any(|own| own == url);
    let (mut others, mut seen): (Vec<String>, BTreeSet<String>) = (Vec::new(), BTreeSet::new());
    let mut notes = Vec::new();
    for server in servers(root, described) {
        let about = text(server, "description").map(|a| prose::short(a, 80)).filter(|a| !a.is_empty());
        let about = about.map(|a| format!(" ({a})")).unwrap_or_default();
        match Server::read(server, variables) {
            Some(read) if taken(&read.url) => {
                for (name, chosen, choices) in choices(server, variables) {
                    let note = format!(
                        "`{name:.60}` is {chosen:.60} in its address, of {}; --server-variable {name:.60}=… takes another",
                        prose::some(&choices)
                    );
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                }
            }
            Some(read) if seen.insert(read.url.clone()) => others.push(format!("{:.200}{about}", read.url)),
            Some(_) => {}
            None => {
                let template = prose::short(text(server, "url").unwrap_or_default(), 120);
                if seen.insert(template.clone()) {
                    others.push(format!("{template:?}{about}, which is no address that requests can go to"));
                }
            }
        }
    }
    if !others.is_empty() {
        notes.insert(
            0,
            format!(
                "nothing is sent to its further servers; --base-url and --sandbox-url name one: {}",
                prose::some(&others)
            ),
        );
    }
    notes
}

/// The variables of a server that have several values: name, the value that is taken, all values.
fn choices(server: &Value, variables: &BTreeMap<String, String>) -> Vec<(String, String, Vec<String>)> {
    let all = server.get("variables").and_then(Value::as_object).into_iter().flatten().take(32);
    let used = |name: &str| text(server, "url").is_some_and(|url| url.contains(&format!("{{{name}}}")));
    let open = all.filter(|(name, _)| used(name) && !variables.contains_key(*name));
    let choices = open.map(|(name, known)| {
        let choices: Vec<String> =
            list(known, "enum").iter().filter_map(Value::as_str).map(|c| prose::short(c, 60)).collect();
        (name.clone(), filled(known).unwrap_or_default().to_owned(), choices)
    });
    choices.filter(|(_, _, choices)| choices.len() > 1).collect()
}

/// A variable's value where nobody says another.
fn filled(variable: &Value) -> Option<&str> {
    text(variable, "default").or_else(|| list(variable, "enum").first().and_then(Value::as_str))
}

/// A server that requests can go to.
struct Server<'a> {
    url: String,
    parsed: url::Url,
    about: &'a str,
}

impl<'a> Server<'a> {
    fn read(server: &'a Value, variables: &BTreeMap<String, String>) -> Option<Server<'a>> {
        let url = address(server, variables)?;
        let parsed = url::Url::parse(&url).ok()?;
        Some(Server { url, parsed, about: text(server, "description").unwrap_or_default() })
    }

    fn host(&self) -> (Option<&str>, Option<u16>) {
        (self.parsed.host_str(), self.parsed.port_or_known_default())
    }
}

/// What each of several servers is for: `None` is a sandbox, the others can be production's.
fn slots(all: &[Server<'_>]) -> Vec<Option<Trust>> {
    let shown: Vec<Shown> = all.iter().map(|server| server.shows(all)).collect();
    let others: Vec<(&Server<'_>, Trust)> = all
        .iter()
        .zip(&shown)
        .filter(|(_, s)| s.sign.is_none())
        .map(|(server, s)| (server, s.trust))
        .collect();
    // What is like a trial, or runs beside the caller, shows nothing of the others.
    let beside = others
        .iter()
        .any(|(other, trust)| matches!(trust, Trust::Live | Trust::Silent) && !other.is_loopback());
    let is_plain = |server: &Server<'_>, sign: Sign| {
        // One address can't be both, and neither can one host, but for what its paths say.
        let apart = !others.iter().any(|(other, _)| other.host() == server.host());
        match sign {
            Sign::Host => apart,
            Sign::Said => apart && beside,
            Sign::Path => beside && !others.iter().any(|(o, _)| o.url.eq_ignore_ascii_case(&server.url)),
        }
    };
    let slot = |(server, shown): (&Server<'_>, &Shown)| {
        let plain = shown.sign.is_some_and(|sign| is_plain(server, sign));
        (!plain).then_some(shown.trust)
    };
    all.iter().zip(&shown).map(slot).collect()
}

/// A server's URL with its variables filled in; `None` if it is none that requests can go to.
fn address(server: &Value, variables: &BTreeMap<String, String>) -> Option<String> {
    let template = text(server, "url")?.trim();
    let mut url = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}')?;
        url.push_str(before);
        let known = server.pointer("/variables").and_then(|v| v.get(name));
        let value = variables.get(name).map(String::as_str).or_else(|| known.and_then(filled))?;
        url.push_str(value);
        rest = after;
    }
    url.push_str(rest);
    checked(&url)
}

/// An address that a manifest takes: https, or http on loopback; what is described with http is taken with https.
pub(crate) fn checked(url: &str) -> Option<String> {
    let mut parsed = url::Url::parse(url).ok()?;
    parsed.host()?;
    if parsed.scheme() == "http" && !provider::is_loopback(&parsed) {
        parsed.set_scheme("https").ok()?;
        if parsed.port() == Some(80) {
            parsed.set_port(None).ok()?;
        }
    }
    let plain = parsed.username().is_empty()
        && parsed.password().is_none()
        && parsed.query().is_none()
        && parsed.fragment().is_none();
    (plain && matches!(parsed.scheme(), "https" | "http"))
        .then(|| parsed.as_str().trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    /// Production's address and the sandbox's of servers, each a URL with its description.
    fn of(servers: &[(&str, &str)]) -> (Option<String>, Option<String>) {
        let servers: Vec<Value> =
            servers.iter().map(|(url, about)| json!({ "url": url, "description": about })).collect();
        let base = base(&json!({ "servers": servers }), None, &BTreeMap::new());
        (base.production, base.sandbox)
    }

    #[test]
    fn a_lone_server_is_production_unless_its_host_is_plainly_a_sandbox() {
        for (url, about) in [
            ("https://dev.to/api", "Production server"),
            ("https://dev.azure.com/x", ""),
            ("https://dev.example.com", "Development server"),
            ("https://testing.googleapis.com", ""),
            ("https://test.com/v1", ""),
            ("https://sandbox.co.uk/v1", ""),
            ("https://crossbrowsertesting.com/api/v3", ""),
            ("https://speed-test.example.com", ""),
            ("https://test-takers.example.com", ""),
            ("https://api.example.com", "Sandbox"),
            ("https://api.example.com/test", "Test mode"),
            ("https://api.example.com/sandbox/v1", ""),
            ("https://test.example.com", "Live: the test centre"),
            ("https://sandbox.example.com", "Not a sandbox any more"),
            ("https://live-test.example.com", ""),
            ("https://test.example.com/prod", ""),
            ("http://127.0.0.1:6326", "Runs on Mainnet"),
            ("https://203.0.113.7/sandbox", ""),
        ] {
            assert_eq!(of(&[(url, about)]), (Some(url.to_owned()), None), "{url} {about}");
        }
        for (url, about) in [
            ("https://sandbox.example.com", ""),
            ("https://sandbox.example.co.uk/v1", "Sandbox, a day behind production"),
            ("https://api-sandbox.cloud.wowza.com/api/v1", ""),
            ("https://sandbox-quickbooks.api.example.com", "Sandbox. Not for production"),
            ("https://api.test.enode.io", ""),
            ("https://test.api.example.com/v1", ""),
            ("https://test-api.example.com", ""),
            ("https://checkout-test.example.com/v71", ""),
            ("https://staging2.example.com", ""),
            ("https://virtserver.swaggerhub.com/a/b/1", ""),
            ("http://127.0.0.1:8080/v1", ""),
            ("http://localhost:8080", "Local"),
        ] {
            assert_eq!(of(&[(url, about)]), (None, Some(url.to_owned())), "{url} {about}");
        }
    }

    #[test]
    fn beside_another_server_paths_and_descriptions_count_too() {
        let live = ("https://api.example.com/v1", "Production");
        for (url, about) in [
            ("https://api.example.com/sandbox/v1", ""),
            ("https://apis.example.net/test/v1", "For tests"),
            ("https://connect.examplesandbox.com", "Sandbox"),
            ("https://try.example.com", "The test environment"),
        ] {
            let both = (Some(live.0.to_owned()), Some(url.to_owned()));
            assert_eq!(of(&[live, (url, about)]), both, "{url} {about}");
            assert_eq!(of(&[(url, about), live]), both, "{url} {about}");
        }
        for (url, about) in [
            // Test mode is a matter of the credential here: the address is the same.
            ("https://api.example.com/v1", "Test mode"),
            ("https://API.example.com/v1/", "Sandbox"),
            ("https://api.example.com/v2", "Test mode"),
            ("https://us.example.com/v1", "Test or live"),
            ("https://us.example.com/v1", "Production (do not use for testing)"),
            ("https://us.example.com/v1", "Not for testing"),
            ("https://us.example.com/v1", "Development"),
            ("https://us.example.com/v1", "US"),
        ] {
            assert_eq!(of(&[live, (url, about)]), (Some(live.0.to_owned()), None), "{url} {about}");
        }
        let first = ("https://api.example.com/v2", "Test mode");
        assert_eq!(of(&[first, live]), (Some(live.0.to_owned()), None));
        // One host is not both.
        let demo = [("https://demo.example.com/a", "Production"), ("https://demo.example.com/b", "")];
        assert_eq!(of(&demo), (Some("https://demo.example.com/a".into()), None));
        // What is said of a server is not proved by another at home.
        let home = [
            ("https://a.example.com", "For testing"),
            ("http://localhost:8080", "In production, run it yourself"),
        ];
        assert_eq!(of(&home).1, None);
        // Where none is without a sign, words prove nothing.
        let words = [("https://a.example.com", "Test"), ("https://b.example.com", "Test")];
        assert_eq!(of(&words), (Some("https://a.example.com".into()), None));
    }

    #[test]
    fn what_is_like_a_trial_is_not_productions_beside_another() {
        let live = ("https://api.example.com", "Production");
        let silent = ("https://api.example.com", "");
        for (url, about, is_sandbox) in [
            ("https://dev.example.com", "Development server", false),
            ("https://dev2.example.com", "", false),
            ("https://api-qa.example.com", "", false),
            ("https://testing.example.com", "", false),
            ("https://a.example.com/dev/v1", "", false),
            ("https://a.example.com", "Development and QA", false),
            ("https://a.example.com", "Non-production", false),
            ("https://pre-prod.example.com", "", false),
            ("https://test.example.com", "Live: the test centre", false),
            ("https://sandbox.example.com", "Not a sandbox any more", false),
            ("https://a.example.com", "Test or live", false),
            ("http://localhost:8080", "In production, run it yourself", false),
            ("https://sandbox.example.com", "API sandbox, no real charges", true),
            ("https://sandbox.example.com", "Developer sandbox (not for production)", true),
            ("https://sandbox.example.com", "For developers. Does not use production data", true),
            ("https://connect.examplesandbox.com", "", true),
            ("http://localhost:8080", "", true),
        ] {
            for other in [live, silent] {
                let expected = (Some(other.0.to_owned()), is_sandbox.then(|| url.to_owned()));
                assert_eq!(of(&[(url, about), other]), expected, "{url} {about}, first");
                assert_eq!(of(&[other, (url, about)]), expected, "{url} {about}, second");
            }
        }
        // One that is named live goes before one of which nothing is said, and this before one that is a trial's too.
        let (us, mixed) = (("https://us.example.com", "US"), ("https://eu.example.com", "Test or live"));
        for servers in [[us, live, mixed], [mixed, us, live], [live, mixed, us], [mixed, live, us]] {
            assert_eq!(of(&servers), (Some(live.0.into()), None), "{servers:?}");
        }
        assert_eq!(of(&[mixed, us]), (Some(us.0.into()), None));
        // A name that merely ends so is none: nothing shows whose sandbox it would be.
        let code = ("https://codesandbox.example", "");
        assert_eq!(of(&[code]), (Some(code.0.into()), None));
        assert_eq!(of(&[code, live]), (Some(live.0.into()), None));
    }

    #[test]
    fn without_a_live_server_production_is_the_least_doubtful_or_none() {
        let dev = ("https://dev.example.com", "Development server");
        let sandbox = ("https://sandbox.example.com", "");
        let local = ("http://localhost:8080", "Deploy it in production, or locally");
        let deployed = ("https://app.example.com", "A deployment for testing");
        for pair in [[deployed, local], [local, deployed]] {
            assert_eq!(of(&pair), (Some(deployed.0.into()), None));
        }
        for pair in [[dev, sandbox], [sandbox, dev]] {
            assert_eq!(of(&pair), (None, Some(sandbox.0.into())));
        }
        // What runs beside the caller does not stand in for it.
        let home = ("http://localhost:8080", "");
        for pair in [[dev, home], [home, dev]] {
            assert_eq!(of(&pair), (Some(dev.0.into()), Some(home.0.into())));
        }
    }

    #[test]
    fn all_servers_are_listed_and_which_are_named_live() {
        let root = json!({ "servers": [
            { "url": "http://dev.example.com/", "description": "Development" },
            { "url": "https://us.example.com", "description": "Production (do not use for testing)" },
            { "url": "https://eu.example.com", "description": "Test or live" },
            { "url": "https://sandbox.example.com", "description": "Sandbox, a day behind production" },
            { "url": "/v1" },
        ] });
        let listed = listed(&root, None, &BTreeMap::new());
        let expected = [("dev", false), ("us", true), ("eu", true), ("sandbox", false)];
        assert_eq!(listed, expected.map(|(name, live)| (format!("https://{name}.example.com"), live)));
    }

    #[test]
    fn a_variable_that_says_live_is_no_sandbox() {
        let root = json!({ "servers": [{
            "url": "https://{env}.example.com/v1", "description": "Test or live",
            "variables": { "env": { "default": "test", "enum": ["test", "live"] } },
        }] });
        let with = |env: &str| base(&root, None, &[("env".to_owned(), env.to_owned())].into());
        assert_eq!(with("live").production.as_deref(), Some("https://live.example.com/v1"));
        assert_eq!(with("live").sandbox, None);
        assert_eq!(with("test").sandbox.as_deref(), Some("https://test.example.com/v1"));
    }

    #[test]
    fn further_servers_are_told() {
        let root = json!({ "servers": [
            { "url": "https://{region}.example.com", "variables": { "region": { "default": "eu", "enum": ["eu", "us"] } } },
            { "url": "https://us2.example.com/", "description": "United States" },
            { "url": "http://eu.example.com" },
            { "url": "/v1" },
        ] });
        let none = BTreeMap::new();
        let notes = further(&root, None, &none, &base(&root, None, &none));
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("https://us2.example.com (United States), \"/v1\""), "{notes:?}");
        assert!(notes[1].contains("`region` is eu in its address, of eu, us"), "{notes:?}");
        let us = [("region".to_owned(), "us".to_owned())].into();
        let notes = further(&root, None, &us, &base(&root, None, &us));
        assert!(notes.len() == 1 && notes[0].contains("https://eu.example.com"), "{notes:?}");
    }
}
