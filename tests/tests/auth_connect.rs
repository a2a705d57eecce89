//! Credentials of the user: connected, kept encrypted outside the project, renewed, and seen by nobody but whom they are for.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "auth_connect/authority.rs"]
mod authority;
#[path = "auth_connect/canary.rs"]
mod canary;
#[path = "auth_connect/refused.rs"]
mod refused;
#[path = "auth_connect/servers.rs"]
mod servers;
#[path = "auth_connect/stage.rs"]
mod stage;
#[path = "auth_connect/terminal.rs"]
mod terminal;
#[path = "auth_connect/wrong.rs"]
mod wrong;

use anyhow::{Context, Result, ensure};
use authority::{CLIENT_SECRET, Fault, Sent, Tokens};
use counterfoil_tests::http::Reply;
use counterfoil_tests::shell::until;
use counterfoil_tests::wire::{self, Call, Said};
use serde_json::{Value, json};
use stage::{SECONDS, Stage, by_code, create, done, give, once, project};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use wrong::{Wrong, answer};

fn mode(path: &Path) -> Result<u32> {
    Ok(std::fs::metadata(path)?.permissions().mode() & 0o777)
}

/// A page that shows nothing of what it was asked with.
fn plain(page: &Reply, sent: &Sent) -> Result<()> {
    let text = page.text();
    for hidden in [&sent.code, &sent.state] {
        ensure!(!text.contains(hidden.as_str()), "{text}");
    }
    for (name, value) in [
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("content-security-policy", "default-src 'none'"),
    ] {
        ensure!(page.header(name).is_some_and(|v| v.contains(value)), "{name}: {:?}", page.headers);
    }
    ensure!(!text.contains("<script"), "{text}");
    Ok(())
}

#[test]
fn by_code_it_is_connected_and_kept() -> Result<()> {
    let stage = Stage::by_code()?;
    let issuer = stage.authority.issuer();
    let mut ports = Vec::new();
    let (code, said, document) = stage.connected_by(&[], |sent| {
        ports.push(sent.redirect);
        for (name, value) in [
            ("client_id", "the-client"),
            ("scope", "things.read things.write"),
            ("resource", "https://things.example/"),
        ] {
            ensure!(sent.parameters.get(name).is_some_and(|v| v == value), "{name}: {:?}", sent.parameters);
        }
        ensure!(sent.state.len() >= 16 && sent.parameters["code_challenge"].len() == 43);
        // Nothing but the answer is taken, and the answer from nobody who doesn't know the state.
        let own = sent.redirect.to_string();
        for (path, host) in [("/", own.as_str()), ("/favicon.ico", &own), ("/callback", "evil.example")] {
            let reply = sent.get(path, host)?;
            ensure!(reply.status == 404, "{path} {host}: {}", reply.status);
        }
        for state in ["", "another", &sent.state[1..]] {
            let reply = sent.back(&[("code", &sent.code), ("state", state), ("iss", &issuer)])?;
            ensure!(reply.status == 400, "{state}: {}", reply.status);
            plain(&reply, sent)?;
        }
        let page = sent.back(&sent.right(&issuer))?;
        ensure!(page.status == 200 && page.text().contains("Connected"), "{}", page.text());
        plain(&page, sent)?;
        // Once.
        let again = sent.back(&sent.right(&issuer));
        ensure!(again.is_err() || again.is_ok_and(|r| r.status != 200));
        Ok(())
    })?;
    ensure!(code == 0, "{said}");
    let document = document.context("no document")?;
    ensure!(document["account"] == "acme" && document["kept"] == true, "{document}");
    ensure!(!said.contains("CANARY") && !document.to_string().contains("CANARY"), "{said} {document}");
    ensure!(mode(&stage.folder())? == 0o700 && mode(&stage.folder().join("store.json"))? == 0o600);

    let status = stage.status()?;
    let one = &status["connected"][0];
    ensure!(
        one["state"] == "valid"
            && one["issuer"] == json!(issuer)
            && one["kind"] == "oauth"
            && one["scopes"] == json!(["things.read", "things.write"])
            && one["renewable"] == true
            && one["expires"].is_string(),
        "{status}"
    );
    ensure!(status["missing"] == json!([]) && !status.to_string().contains("CANARY"), "{status}");
    // Another time it is another port, and another state.
    stage.connected_by(&[], |sent| {
        ports.push(sent.redirect);
        sent.back(&sent.right(&issuer)).map(|_| ())
    })?;
    ensure!(ports[0] != ports[1], "{ports:?}");
    Ok(())
}

#[test]
fn an_answer_that_is_not_right_connects_nothing() -> Result<()> {
    let mut cases = wrong::all();
    cases.extend([
        Wrong::tokens("garbage", 200, "CANARY", "not one of a token endpoint"),
        Wrong::refused("a refusal", 400, r#"{"error":"invalid_client"}"#, "invalid_client"),
    ]);
    let stage = Stage::by_code()?;
    let issuer = stage.authority.issuer();
    for Wrong { name, tokens, back, is_refusal, why } in cases {
        stage.authority.state().tokens = tokens;
        let (code, said, document) = stage.connected_by(&[], |sent| {
            let all = back(sent, &issuer);
            let all: Vec<(&str, &str)> = all.iter().map(|(n, v)| (*n, v.as_str())).collect();
            let page = sent.back(&all)?;
            ensure!(page.status == 400 && page.text().contains("Not connected"), "{name}: {}", page.text());
            plain(&page, sent)?;
            ensure!(!page.text().contains("CANARY"), "{name}: {}", page.text());
            Ok(())
        })?;
        let document = document.unwrap_or_default();
        ensure!(code == if is_refusal { 1 } else { 5 } && said.contains(why), "{name}: {code} {said}");
        ensure!(document["error"]["message"].as_str().is_some_and(|m| m.contains(why)), "{name}: {document}");
        ensure!(!said.contains("CANARY") && !document.to_string().contains("CANARY"), "{name}: {said}");
        ensure!(!stage.folder().join("store.json").exists(), "{name}: something was kept");
    }
    // Nobody comes.
    stage.authority.state().tokens = Tokens::Right;
    let (mut process, _) = stage.begin(&["--wait", "300ms"])?;
    let code = process.wait(SECONDS).and_then(|s| s.code());
    ensure!(code == Some(5) && process.said().contains("nobody came back"), "{code:?} {}", process.said());
    // A server that doesn't say that it names itself need not; if it does, it is compared.
    stage.authority.state().names_itself = false;
    let (code, said, _) = stage.connected_by(&[], |s| {
        let all = answer(s, Some("https://evil.example"));
        let all: Vec<(&str, &str)> = all.iter().map(|(n, v)| (*n, v.as_str())).collect();
        s.back(&all).map(|_| ())
    })?;
    ensure!(code == 5 && said.contains("mix-up"), "{said}");
    let (code, said, _) =
        stage.connected_by(&[], |s| s.back(&[("code", &s.code), ("state", &s.state)]).map(|_| ()))?;
    ensure!(code == 0, "{said}");
    Ok(())
}

#[test]
fn a_lost_reply_and_a_renewed_token_are_one_effect() -> Result<()> {
    let mut stage = Stage::by_code()?;
    let gateway = stage.project.gateway(None)?;
    let at = gateway.addr;
    // Before it is connected nothing is sent, and the call says what to do.
    let said = create(at, "early");
    ensure!(matches!(&said, Said::Error { text, .. } if !text.contains("CANARY")), "{said:?}");
    let (code, report) = stage.project.ask(&["doctor"])?;
    ensure!(code == 2 && report.to_string().contains("auth connect acme"), "{report}");
    ensure!(stage.effects() == 0);

    // Connected beside the gateway, it counts at once.
    stage.connect(&[])?;
    done(&create(at, "one"))?;
    ensure!(stage.effects() == 1);
    // The reply is lost, the token is refused at the second send, and another one goes on under the same key.
    stage.authority.state().faults.push(Fault::ApplyThenCut);
    let renewer = stage.authority.clone();
    let lost = std::thread::scope(|scope| {
        let call = scope.spawn(|| create(at, "two"));
        let _ = until("the first send", || Ok(renewer.state().faults.is_empty()));
        renewer.revoke_access();
        call.join().unwrap()
    });
    let lost = match lost {
        Said::Result { .. } => lost,
        _ => create(at, "two"),
    };
    done(&lost)?;
    ensure!(stage.effects() == 2, "{:?}", stage.authority.state().effects);
    // A first send that is refused for its token goes out again.
    stage.authority.revoke_access();
    let refreshed = stage.authority.state().refreshes;
    std::thread::sleep(std::time::Duration::from_millis(10));
    let third = create(at, "three");
    let heard = stage.authority.state().heard.clone();
    match &third {
        Said::Result { is_error: false, .. } => {
            ensure!(stage.authority.state().refreshes == refreshed + 1);
        }
        // The token before was replaced for a refusal less than a minute ago: then the provider's word is final.
        Said::Result { is_error: true, .. } => ensure!(refreshed > 0, "{heard:?}"),
        other => anyhow::bail!("{other:?}"),
    }
    ensure!(stage.authority.state().reused == 0);
    // The same call again is the same effect, in the ledger.
    done(&create(at, "one"))?;
    ensure!(heard.iter().all(|(auth, key)| auth.starts_with("Bearer CANARY-access") && !key.is_empty()));
    Ok(())
}

#[test]
fn another_account_is_told_apart_and_the_same_one_goes_on() -> Result<()> {
    let mut stage = Stage::by_code()?;
    stage.connect(&[])?;
    let gateway = stage.project.gateway(None)?;
    let at = gateway.addr;
    // The reply is lost, and everything is refused from then on: whether it happened is open.
    let open = |key: &str| -> Result<()> {
        stage.authority.state().faults.push(Fault::ApplyThenRevoke);
        let said = once(at, key);
        let ended = matches!(&said, Said::Result { value, .. } if value.get("requestState").is_none());
        ensure!(!ended, "{said:?}");
        Ok(())
    };
    open("first")?;
    let sent = || stage.authority.state().heard.iter().filter(|(_, key)| !key.is_empty()).count();
    until("the account's end", || Ok(stage.status()?["connected"][0]["state"] == "refused"))?;
    let sends = sent();
    // Another account: nothing goes out.
    stage.connect(&[])?;
    until("the doubt", || Ok(matches!(once(at, "first"), Said::Error { kind, .. } if kind == "in_doubt")))?;
    ensure!(sent() == sends, "it was sent under another account");
    done(&create(at, "second"))?;
    // The same account, by a person's word.
    open("third")?;
    until("the account's end", || Ok(stage.status()?["connected"][0]["state"] == "refused"))?;
    stage.connect(&["--same-account"])?;
    until("the third", || {
        let said = once(at, "third");
        Ok(
            matches!(&said, Said::Result { is_error: false, value, .. } if value.get("requestState").is_none()),
        )
    })?;
    ensure!(stage.effects() == 3, "{:?}", stage.authority.state().effects);
    // What was never connected is no account to be the same as.
    stage.project.ask(&["auth", "forget", "things"])?;
    let (code, refused) = stage.project.ask(&["auth", "connect", "things", "--same-account"])?;
    ensure!(code == 2, "{refused}");
    Ok(())
}

#[test]
fn of_two_gateways_one_renews() -> Result<()> {
    let mut stage = Stage::by_code()?;
    stage.authority.state().life = 1;
    stage.connect(&[])?;
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage.authority.state().life = 3600;
    let auth = by_code(&stage.authority, "");
    let mut other = project(&stage.authority, stage.home.path(), &auth, "")?;
    let (one, two) = (stage.project.gateway(None)?, other.gateway(None)?);
    let said: Vec<Said> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..12)
            .map(|n| {
                let at = if n % 2 == 0 { one.addr } else { two.addr };
                scope.spawn(move || create(at, &format!("call-{n}")))
            })
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for one in &said {
        done(one)?;
    }
    {
        let state = stage.authority.state();
        ensure!((state.refreshes, state.reused) == (1, 0), "{} {}", state.refreshes, state.reused);
    }
    let status = stage.status()?;
    ensure!(status["connected"][0]["renewed"].is_string(), "{status}");
    // A refusal for good is kept, told, and not asked for again.
    stage.authority.revoke_all();
    let listing = || -> Result<Value> {
        let said = wire::call(one.addr, SECONDS, &Call::new("things_list", json!({})));
        let Said::Result { value, .. } = said else { anyhow::bail!("{said:?}") };
        Ok(value)
    };
    let told = (0..3).map(|_| listing()).collect::<Result<Vec<_>>>();
    ensure!(!format!("{told:?}").contains("CANARY"), "{told:?}");
    ensure!(stage.authority.state().reused == 1, "{}", stage.authority.state().reused);
    let status = stage.status()?;
    ensure!(status["connected"][0]["state"] == "refused", "{status}");
    ensure!(status["missing"][0]["what"].as_str().is_some_and(|w| w.contains("auth connect")), "{status}");
    Ok(())
}

#[test]
fn a_client_of_its_own_shows_its_secret_only_there() -> Result<()> {
    let stage = Stage::new(|authority| by_code(authority, "flow = \"client_credentials\""))?;
    stage.authority.state().confidential = true;
    let (code, said) = stage.give("CANARY-wrong")?;
    ensure!(code == 1 && said.contains("invalid_client") && !said.contains("CANARY"), "{said}");
    ensure!(!stage.folder().join("store.json").exists());
    let (code, said) = stage.give(CLIENT_SECRET)?;
    ensure!(code == 0 && !said.contains("CANARY"), "{said}");
    let mut stage = stage;
    let gateway = stage.project.gateway(None)?;
    let at = gateway.addr;
    done(&create(at, "one"))?;
    stage.authority.revoke_access();
    done(&create(at, "two"))?;
    ensure!(stage.effects() == 2);
    // Named in the environment, nothing is kept.
    let auth =
        by_code(&stage.authority, "flow = \"client_credentials\"\nclient_secret = \"${env:THE_SECRET}\"");
    let away = tempfile::TempDir::with_prefix("counterfoil-home-")?;
    let mut named = project(&stage.authority, away.path(), &auth, "")?;
    named.environment.push(("THE_SECRET".into(), CLIENT_SECRET.into()));
    let gateway = named.gateway(None)?;
    let at = gateway.addr;
    done(&create(at, "three"))?;
    ensure!(!away.path().join("credentials").exists());
    Ok(())
}

#[test]
fn a_secret_is_given_by_hand_and_belongs_to_its_mode_and_place() -> Result<()> {
    let kinds = [
        ("kind = \"bearer\"", "CANARY-key", "Bearer CANARY-key"),
        (
            "kind = \"basic\"\nusername = \"org\"\nsecret = \"store\"",
            "CANARY-pw",
            "Basic b3JnOkNBTkFSWS1wdw==",
        ),
        ("kind = \"header\"\nheader = \"X-Api-Key\"", "CANARY-head", "CANARY-head"),
    ];
    for (auth, secret, header) in kinds {
        let mut stage = Stage::new(|_| auth.into())?;
        stage.authority.state().taken.insert(header.into());
        let gateway = stage.project.gateway(None)?;
        let at = gateway.addr;
        let (code, said) = stage.give(&format!("  {secret}\n"))?;
        ensure!(code == 0 && !said.contains("CANARY"), "{said}");
        done(&create(at, "one"))?;
        ensure!(stage.authority.state().heard[0].0 == header, "{:?}", stage.authority.state().heard);
        let status = stage.status()?;
        ensure!(
            status["connected"][0]["state"] == "valid" && !status.to_string().contains("CANARY"),
            "{status}"
        );

        // Not what another manifest of another place asks for under the same name.
        let file = stage.project.path().join("integrations/things.toml");
        let good = std::fs::read_to_string(&file)?;
        std::fs::write(&file, good.replace("http://127.0.0.1", "http://localhost"))?;
        let (code, status) = stage.project.ask(&["auth", "status"])?;
        let what = status["missing"][0]["what"].as_str().unwrap_or_default();
        ensure!(code == 0 && what.contains("another address"), "{status}");
        std::fs::write(&file, &good)?;

        // Nor in the other mode.
        let real = project(&stage.authority, stage.home.path(), auth, "mode = \"production\"\n")?;
        let (_, status) = real.ask(&["auth", "status"])?;
        ensure!(status["missing"][0]["mode"] == "production", "{status}");
        let (code, answer) = real.ask(&["exec", "things.create", "--param", "order=x", "--key", "k"])?;
        ensure!(code != 0 && answer.to_string().contains("auth connect"), "{answer}");
        ensure!(stage.authority.state().heard.len() == 1);
        let (code, _) = give(&real, "CANARY-production")?;
        ensure!(code == 0);
        let (code, gone) = real.ask(&["auth", "forget", "things"])?;
        ensure!(code == 0 && gone["mode"] == "production" && gone["forgotten"] == true, "{gone}");
        done(&create(at, "two"))?;
        let (code, gone) = real.ask(&["auth", "forget", "acme", "--mode", "sandbox"])?;
        ensure!(code == 0 && gone["forgotten"] == true, "{gone}");
        let said = create(at, "three");
        ensure!(matches!(&said, Said::Error { .. }), "{said:?}");
    }
    Ok(())
}
