//! What comes back from an authorization server and is not right: it connects nobody, and can be tried again.

use super::authority::Tokens;
use super::oauth::{Own, create, plain};
use super::person::Person;
use super::stage::done;
use super::wrong::{Parameters, Wrong, answer};
use super::{browser, link, wrong};
use anyhow::{Context, Result, ensure};
use counterfoil_tests::http;
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::time::Duration;

fn refs(all: &Parameters) -> Vec<(&str, &str)> {
    all.iter().map(|(n, v)| (*n, v.as_str())).collect()
}

#[test]
fn an_answer_that_is_not_right_connects_nobody() -> Result<()> {
    let mut own = Own::keyed("")?;
    let gateway = own.project.gateway(None)?;
    let at = gateway.addr;
    let (mut alice, mut bob) = (own.person("alice")?, own.person("bob")?);
    let issuer = own.authority.issuer();
    let asked = link(&create(at, &alice, "one"))?;
    let gone = alice.back(at, &[("code", "c"), ("state", "unknown")])?;
    ensure!(gone.status == 404);
    plain(&gone)?;

    // Whoever comes back is not who proved; the right one still can.
    let sent = alice.consent(at, &asked, &own.authority)?;
    let other = link(&create(at, &bob, "one"))?;
    let foreign = bob.consent(at, &other, &own.authority)?;
    let place = alice.callback.clone().context("no redirect")?;
    for mut person in [Person::default().elsewhere(&place), bob.clone()] {
        let page = person.back(at, &sent.right(&issuer))?;
        ensure!(page.status == 403 && page.text().contains("not the browser"), "{}", page.text());
        plain(&page)?;
    }
    // At the place of another server, whatever it says of its issuer; the right place still can.
    let page = alice.elsewhere("/connect/callback/0123456789abcdef").back(at, &sent.right(&issuer))?;
    ensure!(page.status == 403 && page.text().contains("mix-up"), "{}", page.text());
    plain(&page)?;
    let swapped = [("code", sent.code.as_str()), ("state", &foreign.state), ("iss", &issuer)];
    ensure!(alice.back(at, &swapped)?.status == 403);
    for state in ["", &sent.state[1..], &sent.state.to_uppercase()] {
        let page = alice.back(at, &[("code", &sent.code), ("state", state), ("iss", &issuer)])?;
        ensure!(page.status == 404 && page.body == gone.body, "{state}: {}", page.status);
    }
    ensure!(alice.back(at, &[("code", &sent.code), ("iss", &issuer)])?.status == 404);
    ensure!(alice.back_by(at, "POST", "code=x&state=y")?.status == 405);
    // Whoever only looks whether an address is there uses nothing up.
    let looks = format!("{place}?code={}&state={}", sent.code, sent.state);
    let mut stream = std::net::TcpStream::connect(at)?;
    stream.write_all(&http::request("HEAD", &looks, &[("Host", &at.to_string())], b""))?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    ensure!(head == *b"HTTP/1.1 405", "{}", String::from_utf8_lossy(&head));
    let long = format!("code={}&state={}", "a".repeat(9 << 10), sent.state);
    ensure!(alice.back_by(at, "GET", &long)?.status == 400);
    let sneaked = browser::Browser::at(at).exchange(
        "GET",
        &format!("{place}?state={}", sent.state),
        &[("Host", "evil.example")],
        "",
    )?;
    ensure!(sneaked.status == 403);
    ensure!(own.authority.state().heard.is_empty());
    // What was not asked for is ignored (RFC 6749, section 4.1.2).
    let mut all = answer(&sent, Some(&issuer));
    all.extend([("scope", "x".to_owned()), ("session_state", "y".to_owned())]);
    ensure!(alice.back(at, &refs(&all))?.status == 200);
    done(&create(at, &alice, "one"))?;

    // Bob's link lives through all of these.
    let together =
        json!({ "access_token": "C".repeat(8000), "refresh_token": "R".repeat(190), "token_type": "bearer" });
    let alone = json!({ "access_token": "C".repeat(9 << 10), "token_type": "bearer" });
    let mut cases = wrong::all();
    cases.extend([
        Wrong::tokens("html", 200, "<html>CANARY</html>", "not one of a token endpoint"),
        Wrong::tokens("a redirect", 302, "", "redirects"),
        Wrong::tokens("a client that is unknown", 401, r#"{"error":"invalid_client"}"#, "invalid_client"),
        Wrong::tokens(
            "tokens that are too long to be kept together",
            200,
            &together.to_string(),
            "longer than the 8 KiB",
        ),
        Wrong::tokens("tokens that are too long", 200, &alone.to_string(), "longer than 8 KiB"),
    ]);
    for Wrong { name, tokens, back, why, .. } in cases {
        own.authority.state().tokens = tokens;
        let sent = bob.consent(at, &other, &own.authority)?;
        let all = back(&sent, &issuer);
        let page = bob.back(at, &refs(&all))?;
        let text = page.text();
        ensure!(
            page.status == 400 && text.contains("is not connected") && text.contains(why),
            "{name}: {} {text}",
            page.status
        );
        plain(&page)?;
        // The way back to the beginning.
        let path = other.rsplit('/').next().context("a token")?;
        ensure!(text.contains(&format!("href=\"{path}\"")), "{name}: {text}");
        // Once, whatever came of it.
        ensure!(bob.back(at, &sent.right(&issuer))?.status == 404, "{name}");
        link(&create(at, &bob, "two"))?;
    }
    own.authority.state().tokens = Tokens::Right;
    bob.connect(at, &other, &own.authority)?;
    done(&create(at, &bob, "two"))?;
    own.effects(2)?;

    // One that does not say that it names itself need not.
    own.authority.state().names_itself = false;
    let mut other = Own::keyed("")?;
    other.authority.state().names_itself = false;
    let gateway = other.project.gateway(None)?;
    let mut carol = other.person("carol")?;
    let asked = link(&create(gateway.addr, &carol, "one"))?;
    let sent = carol.consent(gateway.addr, &asked, &other.authority)?;
    ensure!(carol.back(gateway.addr, &[("code", &sent.code), ("state", &sent.state)])?.status == 200);
    Ok(())
}

/// Two calls at once were answered two links: the second one finds what the first one connected, and makes no other account.
#[test]
fn a_second_link_changes_nothing_of_what_the_first_one_connected() -> Result<()> {
    let mut own = Own::keyed("")?;
    let gateway = own.project.gateway(None)?;
    let (at, mut alice) = (gateway.addr, own.person("alice")?);
    let [one, two, three] = ["one", "two", "three"].map(|order| link(&create(at, &alice, order)));
    let (one, two, three) = (one?, two?, three?);
    // Sent away before the other came back.
    let late = alice.consent(at, &two, &own.authority)?;
    let sent = alice.consent(at, &one, &own.authority)?;
    ensure!(alice.back(at, &sent.right(&own.authority.issuer()))?.status == 200);
    done(&create(at, &alice, "one"))?;
    let since = own.project.ask(&["auth", "status"])?.1["credentials"][0]["since"].clone();
    let tokens = own.authority.state().shown.len();
    let page = alice.back(at, &late.right(&own.authority.issuer()))?;
    ensure!(page.status == 200 && page.text().contains("is connected"), "{}", page.text());
    plain(&page)?;
    // Not sent away at all.
    let page = alice.prove(at, &three)?;
    ensure!(page.status == 200 && page.text().contains("is connected"), "{}", page.text());
    ensure!(page.header("location").is_none() && own.authority.state().shown.len() == tokens);
    ensure!(own.project.ask(&["auth", "status"])?.1["credentials"][0]["since"] == since && since.is_string());
    done(&create(at, &alice, "two"))?;
    own.effects(2)
}

/// Over after a while, and of another integration after a change.
#[test]
fn a_state_is_short_lived_and_of_one_integration() -> Result<()> {
    let mut own = Own::keyed("")?;
    own.project.edit(|text| format!("{text}\n[seal]\nstate_ttl = \"30s\"\n"))?;
    let mut gateway = own.project.gateway(None)?;
    let mut alice = own.person("alice")?;
    let asked = link(&create(gateway.addr, &alice, "one"))?;
    let sent = alice.consent(gateway.addr, &asked, &own.authority)?;
    std::thread::sleep(Duration::from_secs(31));
    ensure!(alice.back(gateway.addr, &sent.right(&own.authority.issuer()))?.status == 404);
    let asked = link(&create(gateway.addr, &alice, "one"))?;
    let sent = alice.consent(gateway.addr, &asked, &own.authority)?;
    gateway.process.terminate()?;
    // Another client asks now: what was begun for the one before is not taken for it.
    let file = own.project.path().join("integrations/things.toml");
    let manifest = std::fs::read_to_string(&file)?;
    std::fs::write(&file, manifest.replace("\"the-client\"", "\"another-client\""))?;
    let gateway = own.project.gateway(None)?;
    let page = alice.back(gateway.addr, &sent.right(&own.authority.issuer()))?;
    ensure!(page.status == 404, "{}", page.text());
    link(&create(gateway.addr, &alice, "one"))?;
    own.effects(0)
}
