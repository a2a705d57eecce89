//! Tokens that callers have of their own: got at the page by a word at the authorization server, renewed once for all
//! replicas, and asked for again when they are over.

use super::authority::{Authority, CLIENT_SECRET, Fault};
use super::person::Person;
use super::stage::{by_code, done, project};
use super::{SECONDS, again, found_below, link, result};
use anyhow::{Context, Result, ensure};
use counterfoil_tests::clients::{Kind, Order, Worker};
use counterfoil_tests::cluster::{self, Cluster};
use counterfoil_tests::http::{self, Reply};
use counterfoil_tests::shell::until;
use counterfoil_tests::stand::Project;
use counterfoil_tests::wire::{self, Call, META_KEY, Said};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tempfile::TempDir;

const TOOL: &str = "things_create";

pub struct Own {
    pub authority: Authority,
    pub project: Project,
    _home: TempDir,
}

impl Own {
    fn open(more: &str, server: &str) -> Result<Own> {
        let authority = Authority::start()?;
        let home = TempDir::with_prefix("counterfoil-home-")?;
        let auth = by_code(&authority, &format!("per = \"principal\"\n{more}"));
        let project = project(&authority, home.path(), &auth, server)?;
        Ok(Own { authority, project, _home: home })
    }

    /// With people who have keys.
    pub fn keyed(more: &str) -> Result<Own> {
        Own::open(more, "\n[auth]\nmode = \"api-key\"\n")
    }

    pub fn person(&self, name: &str) -> Result<Person> {
        let make = || self.project.ask(&["api-keys", "create", "--principal", name]);
        let (code, made) = (0..10).map(|_| make()).find(|m| !matches!(m, Ok((5, _)))).context("keys")??;
        ensure!(code == 0, "{made}");
        Ok(Person::with(made["key"].as_str().context("the key")?))
    }

    /// Whether this many effects happened, each once.
    pub fn effects(&self, many: usize) -> Result<()> {
        let state = self.authority.state();
        ensure!(
            state.effects.len() == many && state.effects.values().all(|n| *n == 1),
            "{:?}",
            state.effects
        );
        Ok(())
    }
}

fn bearer(person: &Person) -> Option<String> {
    (!person.key.is_empty()).then(|| format!("Bearer {}", person.key))
}

fn once(at: SocketAddr, person: &Person, order: &str) -> Said {
    let call = Call::new(TOOL, json!({ "order": order })).keyed(order);
    wire::call(at, SECONDS, &Call { auth: bearer(person), ..call })
}

/// The same as long as it is told to come back.
pub fn create(at: SocketAddr, person: &Person, order: &str) -> Said {
    loop {
        let said = once(at, person, order);
        if !matches!(&said, Said::Result { value, .. } if value.get("requestState").is_some()) {
            return said;
        }
    }
}

/// Nothing of what is secret, and nothing that others could run or see.
pub fn plain(page: &Reply) -> Result<()> {
    let text = page.text();
    ensure!(!text.contains("CANARY") && !text.contains("<script"), "{text}");
    for (name, value) in [
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("content-security-policy", "default-src 'none'"),
    ] {
        ensure!(page.header(name).is_some_and(|v| v.contains(value)), "{name}: {:?}", page.headers);
    }
    Ok(())
}

#[test]
fn official_clients_connect_at_replicas_of_which_one_renews() -> Result<()> {
    let mut own = Own::keyed("")?;
    cluster::configure(&own.project)?;
    let mut cluster = Cluster::start(&mut own.project, 2)?;
    let (one, two) = (cluster.replicas[0].addr, cluster.replicas[1].addr);
    let url = format!("http://{}/mcp", cluster.front);
    let issuer = own.authority.issuer();
    // A key may take a moment to be known at every replica.
    let people = [own.person("alice")?, own.person("bob")?];
    for ((kind, name), mut person) in
        [(Kind::TypeScript, "alice"), (Kind::Python, "bob")].into_iter().zip(people)
    {
        let mut worker = Worker::start(kind, own.project.path())?;
        let auth = bearer(&person).context("a key")?;
        let order =
            Order { client: "host", url: &url, auth: Some(&auth), timeout: SECONDS, abort_after: None };
        let mut asked = 0;
        own.authority.state().life = 2;
        let mut call = |name: &str, asked: &mut usize| {
            let meta = json!({ META_KEY: name });
            worker.call_answering(&order, TOOL, &json!({ "order": name }), &meta, 2 * SECONDS, |question| {
                ensure!(question.params["mode"] == "url", "{question:?}");
                *asked += 1;
                let link = question.params["url"].as_str().context("no address")?.to_owned();
                // Sent away by one replica, back at the other; twice at once, and one answer counts.
                let sent = person.consent(one, &link, &own.authority)?;
                let redirect = format!("http://{}/connect/callback/", cluster.front);
                ensure!(sent.parameters["redirect_uri"].starts_with(&redirect), "{:?}", sent.parameters);
                let back = |at| person.clone().back(at, &sent.right(&issuer));
                let mut both = std::thread::scope(|scope| {
                    let all = [one, two].map(|at| scope.spawn(move || back(at)));
                    all.map(|one| one.join().unwrap().map(|r| r.status))
                })
                .into_iter()
                .collect::<Result<Vec<_>>>()?;
                both.sort_unstable();
                ensure!(both == [200, 404], "{both:?}");
                // Used up, state and link.
                ensure!(person.back(two, &sent.right(&issuer))?.status == 404);
                ensure!(person.prove(one, &link)?.status == 404);
                Ok(json!({ "action": "accept" }))
            })
        };
        let (first, second) = (format!("{name}-1"), format!("{name}-2"));
        result(&again(|| call(&first, &mut asked))?).with_context(|| kind.name())?;
        // The token is over soon: at both replicas at once, and one asks.
        std::thread::sleep(Duration::from_millis(2100));
        let before = {
            let mut state = own.authority.state();
            state.life = 3600;
            (state.refreshes, state.effects.len())
        };
        let person = own_person(&auth);
        let all: Vec<Said> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..12)
                .map(|n| {
                    let (at, person) = (if n % 2 == 0 { one } else { two }, &person);
                    scope.spawn(move || create(at, person, &format!("{name}-many-{n}")))
                })
                .collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        all.iter().try_for_each(done)?;
        own.effects(before.1 + 12)?;
        {
            let state = own.authority.state();
            ensure!(
                (state.refreshes, state.reused) == (before.0 + 1, 0),
                "{} {}",
                state.refreshes,
                state.reused
            );
        }
        for order in [&second, &first] {
            result(&again(|| call(order, &mut asked))?)?;
        }
        ensure!(asked == 1, "asked {asked} times");
        own.effects(before.1 + 13)?;
    }
    ensure!(!cluster.lost_one(), "a replica ended");
    // A replica that the machine held up for longer than its lease says so, and that trying again is safe.
    let status = || own.project.ask(&["auth", "status"]);
    let (code, status) = (0..10).map(|_| status()).find(|s| !matches!(s, Ok((5, _)))).context("status")??;
    ensure!(code == 0 && status["credentials"].as_array().map(Vec::len) == Some(2), "{status}");
    drop(cluster);
    ensure!(found_below(own.project.path(), "CANARY")?.is_empty());
    Ok(())
}

fn own_person(auth: &str) -> Person {
    Person::with(auth.trim_start_matches("Bearer "))
}

#[test]
fn asked_connected_and_called_again_it_is_one_effect_also_over_renewals() -> Result<()> {
    let mut own = Own::keyed("client_secret = \"${env:THE_SECRET}\"")?;
    own.project.environment.push(("THE_SECRET".into(), CLIENT_SECRET.into()));
    own.project.environment.push(("RUST_LOG".into(), "trace".into()));
    own.project.serve = vec!["--log-level".into(), "trace".into()];
    own.authority.state().confidential = true;
    let mut gateway = own.project.gateway(None)?;
    let at = gateway.addr;
    let (mut alice, bob) = (own.person("alice")?, own.person("bob")?);
    let asked = link(&create(at, &alice, "one"))?;
    ensure!(own.authority.state().heard.is_empty());
    let shown = super::browser::Browser::at(at).get(&asked)?;
    let (text, issuer) = (shown.text(), own.authority.issuer());
    for told in ["alice", "name=\"key\"", "Continue to", issuer.as_str(), "the-client", "things.create"] {
        ensure!(text.contains(told), "{told}: {text}");
    }
    ensure!(!text.contains("name=\"secret\""), "{text}");
    plain(&shown)?;
    // Browsers hold the redirect that follows a form to this.
    ensure!(
        shown
            .header("content-security-policy")
            .is_some_and(|p| p.contains("form-action 'self' https: http:;"))
    );
    // Not by whom was not asked, and it is not sent anywhere.
    let wrong = bob.clone().prove(at, &asked)?;
    ensure!(wrong.status == 403 && wrong.header("location").is_none(), "{}", wrong.status);

    let sent = alice.consent(at, &asked, &own.authority)?;
    for (name, value) in [
        ("client_id", "the-client"),
        ("scope", "things.read things.write"),
        ("resource", "https://things.example/"),
    ] {
        ensure!(sent.parameters.get(name).is_some_and(|v| v == value), "{name}: {:?}", sent.parameters);
    }
    // A place of this server and client alone, which doctor tells.
    let redirect = sent.parameters["redirect_uri"].clone();
    let name =
        redirect.strip_prefix(&format!("http://{at}/connect/callback/")).context("another redirect")?;
    ensure!(name.len() == 16 && name.bytes().all(|b| b.is_ascii_hexdigit()), "{redirect}");
    ensure!(sent.state.len() >= 32 && sent.parameters["code_challenge"].len() == 43);
    let page = alice.back(at, &sent.right(&issuer))?;
    ensure!(page.status == 200, "{}", page.text());
    plain(&page)?;
    done(&create(at, &alice, "one"))?;
    own.effects(1)?;

    // The reply is lost, the token is refused at the second send, and another one goes on under the same key.
    own.authority.state().faults.push(Fault::ApplyThenCut);
    let lost = std::thread::scope(|scope| {
        let call = scope.spawn(|| create(at, &alice, "two"));
        let _ = until("the first send", || Ok(own.authority.state().faults.is_empty()));
        own.authority.revoke_access();
        call.join().unwrap()
    });
    let lost = if matches!(lost, Said::Result { .. }) { lost } else { create(at, &alice, "two") };
    done(&lost)?;
    own.effects(2)?;
    // A first send that is refused for its token goes out again; less than a minute after another, its word is final.
    own.authority.revoke_access();
    let before = own.authority.state().refreshes;
    let third = create(at, &alice, "three");
    let Said::Result { is_error, .. } = &third else { anyhow::bail!("{third:?}") };
    ensure!(*is_error == (before > 0) && own.authority.state().refreshes == 1, "{before} {third:?}");
    ensure!(own.authority.state().reused == 0);
    done(&create(at, &alice, "one"))?;
    // Nobody else has any of it.
    link(&create(at, &bob, "four"))?;

    // What is told of it.
    let (code, status) = own.project.ask(&["auth", "status"])?;
    let one = &status["credentials"][0];
    ensure!(
        code == 0
            && one["principal"] == "alice"
            && one["kind"] == "oauth"
            && one["state"] == "valid"
            && one["issuer"] == json!(issuer)
            && one["scopes"] == json!(["things.read", "things.write"])
            && one["expires"].is_string()
            && one["renewed"].is_string(),
        "{status}"
    );
    let (_, report) = own.project.ask(&["doctor"])?;
    ensure!(report.to_string().contains(&format!("/connect/callback/{name}")), "{report}");
    let (_, ops) = own.project.ask(&["ops", "list"])?;
    let id = ops["operations"][0]["id"].as_str().context("an operation")?.to_owned();
    let (_, whole) = own.project.ask(&["ops", "show", &id])?;
    let metrics = http::json(at, "GET", "/metrics", None)?.text();
    let said = format!("{status}{report}{ops}{whole}{metrics}{lost:?}{third:?}");
    ensure!(!said.contains("CANARY"), "{said}");
    let (code, gone) = own.project.ask(&["auth", "forget", "things", "--principal", "alice"])?;
    ensure!(code == 0 && gone["forgotten"] == true, "{gone}");
    link(&create(at, &alice, "five"))?;

    // Nowhere in files or logs; what is told is found, so the search searches.
    gateway.process.terminate()?;
    for secret in ["CANARY", "\"verifier\"", &sent.state] {
        let found = found_below(own.project.path(), secret)?;
        ensure!(found.is_empty(), "{secret}: {found:?}");
    }
    ensure!(!found_below(own.project.path(), "things.create")?.is_empty());
    ensure!(!found_below(own.project.path(), " TRACE ")?.is_empty());
    // Without the client's secret it is said what is missing, and nobody is sent away.
    own.project.environment.retain(|(name, _)| name != "THE_SECRET");
    let (code, report) = own.project.ask(&["doctor"])?;
    ensure!(code == 2 && report.to_string().contains("THE_SECRET"), "{report}");
    Ok(())
}

/// What is over is asked for again, and the new connection is another account.
#[test]
fn an_authorization_that_has_ended_is_asked_for_again() -> Result<()> {
    let mut own = Own::keyed("")?;
    let gateway = own.project.gateway(None)?;
    let at = gateway.addr;
    let mut alice = own.person("alice")?;
    alice.connect(at, &link(&create(at, &alice, "one"))?, &own.authority)?;
    done(&create(at, &alice, "one"))?;
    // The reply is lost and everything is refused from then on: whether it happened stays open, and is told apart.
    own.authority.state().faults.push(Fault::ApplyThenRevoke);
    let open = once(at, &alice, "open");
    ensure!(!matches!(&open, Said::Result { value, .. } if value.get("requestState").is_none()), "{open:?}");
    let status =
        || -> Result<Value> { Ok(own.project.ask(&["auth", "status"])?.1["credentials"][0].clone()) };
    until("the end", || Ok(status()?["state"] == "refused"))?;
    let sends = own.authority.state().heard.len();
    let asked = link(&create(at, &alice, "two"))?;
    // Nobody asks the server again for what is over.
    link(&create(at, &alice, "three"))?;
    ensure!(own.authority.state().reused == 1, "{}", own.authority.state().reused);
    alice.connect(at, &asked, &own.authority)?;
    ensure!(status()?["state"] == "valid");
    for order in ["one", "two", "three"] {
        done(&create(at, &alice, order))?;
    }
    until("the doubt", || {
        Ok(matches!(once(at, &alice, "open"), Said::Error { kind, .. } if kind == "in_doubt"))
    })?;
    let state = own.authority.state();
    ensure!(state.effects.len() == 4 && state.heard.len() == sends + 2, "{:?}", state.heard);
    Ok(())
}

/// Killed between the answer of the token endpoint and the write: that answer is lost, nothing else.
#[test]
fn a_renewal_that_was_lost_is_asked_for_again() -> Result<()> {
    let mut own = Own::keyed("")?;
    let mut gateway = own.project.gateway(Some("renewal.answered"))?;
    let mut alice = own.person("alice")?;
    own.authority.state().life = 2;
    alice.connect(gateway.addr, &link(&create(gateway.addr, &alice, "one"))?, &own.authority)?;
    done(&create(gateway.addr, &alice, "one"))?;
    std::thread::sleep(Duration::from_millis(2100));
    let lost = create(gateway.addr, &alice, "two");
    ensure!(!matches!(lost, Said::Result { .. }), "{lost:?}");
    ensure!(gateway.process.wait(SECONDS).is_some_and(|s| s.code().is_none()), "it was not killed");
    ensure!(own.authority.state().refreshes == 1);
    own.authority.state().life = 3600;
    let gateway = own.project.gateway(None)?;
    let mut said = create(gateway.addr, &alice, "two");
    for _ in 0..4 {
        if !matches!(&said, Said::Error { kind, .. } if kind == "unavailable") {
            break;
        }
        said = create(gateway.addr, &alice, "two");
    }
    let asked = link(&said)?;
    {
        let state = own.authority.state();
        ensure!((state.refreshes, state.reused) == (1, 1), "{} {}", state.refreshes, state.reused);
    }
    alice.connect(gateway.addr, &asked, &own.authority)?;
    done(&create(gateway.addr, &alice, "two"))?;
    own.effects(2)
}

/// A ledger that is away between the answer of the token endpoint and the write: nothing is used, and nothing is lost.
#[test]
fn what_was_got_waits_for_the_ledger_and_is_the_other_replicas_too() -> Result<()> {
    let mut own = Own::keyed("")?;
    cluster::configure(&own.project)?;
    let mut cluster = Cluster::start(&mut own.project, 2)?;
    let (one, two) = (cluster.replicas[0].addr, cluster.replicas[1].addr);
    let mut alice = own.person("alice")?;
    own.authority.state().life = 2;
    let first = again(|| Ok(create(one, &alice, "one")))?;
    alice.connect(one, &link(&first)?, &own.authority)?;
    result(&again(|| Ok(create(one, &alice, "one")))?)?;
    std::thread::sleep(Duration::from_millis(2100));
    own.authority.state().life = 3600;
    cluster.arm("renewal.answered:stop")?;
    std::thread::scope(|scope| -> Result<()> {
        let call = scope.spawn(|| create(one, &alice, "two"));
        until("the answer", || Ok(cluster.still() == Some(0)))?;
        cluster.replicas[0].cable.cut();
        cluster.process(0)?.go_on()?;
        std::thread::sleep(Duration::from_secs(1));
        {
            let state = own.authority.state();
            ensure!((state.refreshes, state.heard.len()) == (1, 1), "{:?}", state.heard);
        }
        cluster.replicas[0].cable.mend();
        drop(call.join().unwrap());
        Ok(())
    })?;
    for (at, order) in [(two, "two"), (one, "two"), (one, "three")] {
        result(&again(|| Ok(create(at, &alice, order)))?)?;
    }
    let state = own.authority.state();
    ensure!((state.refreshes, state.reused) == (1, 0), "{} {}", state.refreshes, state.reused);
    ensure!(state.effects.len() == 3, "{:?}", state.effects);
    Ok(())
}

/// On this machine alone nobody is asked who he is; behind https the cookie is its host's.
#[test]
fn the_cookie_is_the_browsers_and_the_hosts() -> Result<()> {
    let mut own = Own::open("", "")?;
    let gateway = own.project.gateway(None)?;
    let mut nobody = Person::default();
    let asked = link(&create(gateway.addr, &nobody, "one"))?;
    let away = nobody.clone().prove(gateway.addr, &asked)?;
    let cookie = away.header("set-cookie").context("a cookie")?.to_owned();
    ensure!(
        cookie.starts_with("counterfoil-")
            && cookie.contains("; HttpOnly")
            && cookie.contains("; SameSite=Lax")
            && !cookie.contains("Secure"),
        "{cookie}"
    );
    nobody.connect(gateway.addr, &asked, &own.authority)?;
    done(&create(gateway.addr, &nobody, "one"))?;
    own.effects(1)?;

    let mut own = Own::keyed("")?;
    own.project.server("public_url", "\"https://mcp.example.com/mcp\"")?;
    let gateway = own.project.gateway(None)?;
    let mut alice = own.person("alice")?;
    let asked = link(&create(gateway.addr, &alice, "one"))?;
    ensure!(asked.starts_with("https://mcp.example.com/connect/"), "{asked}");
    let away = alice.prove(gateway.addr, &asked)?;
    let (cookie, to) =
        (away.header("set-cookie").context("a cookie")?, away.header("location").context("an address")?);
    ensure!(
        cookie.starts_with("__Host-counterfoil-")
            && ["; Path=/", "; HttpOnly", "; SameSite=Lax", "; Secure"].iter().all(|a| cookie.contains(a))
            && !cookie.contains("Domain"),
        "{cookie}"
    );
    let encoded = "redirect_uri=https%3A%2F%2Fmcp.example.com%2Fconnect%2Fcallback%2F";
    ensure!(to.contains(encoded) && !to.contains("verifier"), "{to}");
    Ok(())
}
