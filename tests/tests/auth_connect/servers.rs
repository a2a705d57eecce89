//! Authorization servers that differ: in how a client shows its secret, in whether they tell where they are; and the browser.

use super::authority::{Authority, CLIENT_SECRET};
use super::stage::{SECONDS, Stage, by_code, create, done};
use anyhow::{Context, Result, ensure};
use counterfoil_tests::shell::until;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

const IN_HEADER: &str = "client_secret_basic";
const IN_BODY: &str = "client_secret_post";

/// What a server tells of the ways, and the one that has to be used.
const WAYS: [(Option<&[&str]>, &str); 4] = [
    (None, IN_HEADER),
    (Some(&[IN_BODY, IN_HEADER]), IN_HEADER),
    (Some(&[IN_BODY]), IN_BODY),
    (Some(&["none", IN_BODY, "private_key_jwt"]), IN_BODY),
];

fn told(authority: &Authority, ways: Option<&[&'static str]>) {
    let mut state = authority.state();
    state.ways = ways.map(<[_]>::to_vec);
    state.shown.clear();
}

#[test]
fn a_client_shows_its_secret_in_the_way_that_the_server_takes() -> Result<()> {
    for (ways, way) in WAYS {
        let mut stage = Stage::new(|a| by_code(a, "client_secret = \"${env:THE_SECRET}\""))?;
        stage.project.environment.push(("THE_SECRET".into(), CLIENT_SECRET.into()));
        stage.authority.state().confidential = true;
        told(&stage.authority, ways);
        stage.authority.state().life = 1;
        stage.connect(&[])?;
        // The code's tokens, and a renewal that another process asks for.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        stage.authority.state().life = 3600;
        let gateway = stage.project.gateway(None)?;
        done(&create(gateway.addr, "one"))?;
        let state = stage.authority.state();
        ensure!(state.shown == [way, way], "{ways:?}: {:?}", state.shown);
        ensure!((state.refreshes, state.reused) == (1, 0), "{ways:?}: {}", state.refreshes);
    }
    for (ways, way) in WAYS {
        let mut stage = Stage::new(|a| by_code(a, "flow = \"client_credentials\""))?;
        stage.authority.state().confidential = true;
        told(&stage.authority, ways);
        let (code, said) = stage.give("CANARY-wrong")?;
        ensure!(code == 1 && said.contains("invalid_client") && !said.contains("CANARY"), "{ways:?}: {said}");
        let (code, said) = stage.give(CLIENT_SECRET)?;
        ensure!(code == 0 && !said.contains("CANARY"), "{ways:?}: {said}");
        let gateway = stage.project.gateway(None)?;
        done(&create(gateway.addr, "one"))?;
        let state = stage.authority.state();
        ensure!(state.shown == [way; 3], "{ways:?}: {:?}", state.shown);
    }
    // Without a secret none is shown, whatever the server takes besides.
    let stage = Stage::by_code()?;
    told(&stage.authority, Some(&[IN_HEADER, IN_BODY, "none"]));
    stage.connect(&[])?;
    ensure!(stage.authority.state().shown == ["none"], "{:?}", stage.authority.state().shown);
    Ok(())
}

/// `[auth]` with places that are told, which are not those that the server would tell.
fn elsewhere(authority: &Authority, more: &str) -> String {
    let at = authority.issuer();
    format!(
        "kind = \"oauth\"\nclient_id = \"the-client\"\nauthorize_url = \"{at}/elsewhere/authorize\"\ntoken_url = \"{at}/elsewhere/token\"\n{more}"
    )
}

#[test]
fn places_that_are_told_are_used_and_nothing_is_asked() -> Result<()> {
    // With an issuer: answers are compared with it, and need not have one.
    for iss in [true, false] {
        let stage = Stage::new(|a| elsewhere(a, &format!("issuer = \"{}\"", a.issuer())))?;
        let issuer = stage.authority.issuer();
        let (code, said, _) = stage.connected_by(&[], |sent| {
            let mut all = vec![("code", sent.code.as_str()), ("state", sent.state.as_str())];
            all.extend(iss.then_some(("iss", issuer.as_str())));
            sent.back(&all).map(|_| ())
        })?;
        ensure!(code == 0, "{iss}: {said}");
        let one = &stage.status()?["connected"][0];
        ensure!(one["issuer"] == issuer.as_str() && one["state"] == "valid", "{one}");
        ensure!(stage.authority.state().told == 0, "it was asked what it is");
    }
    let stage = Stage::new(|a| elsewhere(a, &format!("issuer = \"{}\"", a.issuer())))?;
    let (code, said, _) = stage.connected_by(&[], |sent| {
        sent.back(&[("code", &sent.code), ("state", &sent.state), ("iss", "https://evil.example")])
            .map(|_| ())
    })?;
    ensure!(code == 5 && said.contains("mix-up"), "{code} {said}");
    ensure!(!stage.folder().join("store.json").exists());

    // Without one there is nothing to compare with: an answer that names one is refused.
    let mut stage = Stage::new(|a| elsewhere(a, ""))?;
    let issuer = stage.authority.issuer();
    let (code, said, _) = stage.connected_by(&[], |sent| sent.back(&sent.right(&issuer)).map(|_| ()))?;
    ensure!(code == 5 && said.contains("set `issuer` in [auth]"), "{code} {said}");
    stage.authority.state().life = 1;
    let (code, said, _) = stage
        .connected_by(&[], |sent| sent.back(&[("code", &sent.code), ("state", &sent.state)]).map(|_| ()))?;
    ensure!(code == 0, "{said}");
    let token = format!("{issuer}/elsewhere/token");
    let one = &stage.status()?["connected"][0];
    ensure!(one["issuer"] == token.as_str(), "{one}");
    // Renewed there, too.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage.authority.state().life = 3600;
    let gateway = stage.project.gateway(None)?;
    done(&create(gateway.addr, "one"))?;
    ensure!(stage.authority.state().refreshes == 1 && stage.authority.state().told == 0);
    // Another place is another server: what is kept is not for it.
    let file = stage.project.path().join("integrations/things.toml");
    let manifest = std::fs::read_to_string(&file)?;
    std::fs::write(&file, manifest.replace("/elsewhere/token", "/token"))?;
    let status = stage.status()?;
    ensure!(status["missing"][0]["what"].as_str().is_some_and(|w| w.contains("auth connect")), "{status}");
    Ok(())
}

#[test]
fn a_client_of_its_own_needs_one_place() -> Result<()> {
    let auth = |authority: &Authority| {
        elsewhere(authority, "flow = \"client_credentials\"")
            .lines()
            .filter(|l| !l.starts_with("authorize_url"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let mut stage = Stage::new(auth)?;
    stage.authority.state().confidential = true;
    let (code, said) = stage.give(CLIENT_SECRET)?;
    ensure!(code == 0, "{said}");
    let gateway = stage.project.gateway(None)?;
    done(&create(gateway.addr, "one"))?;
    ensure!(stage.authority.state().shown == [IN_HEADER; 2], "{:?}", stage.authority.state().shown);
    ensure!(stage.authority.state().told == 0);
    // A person has to be sent somewhere.
    let file = stage.project.path().join("integrations/things.toml");
    let manifest = std::fs::read_to_string(&file)?.replace("flow = \"client_credentials\"", "");
    std::fs::write(&file, manifest)?;
    let out = stage.project.run(&["auth", "connect", "things"])?;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    ensure!(out.status.code() == Some(2) && said.contains("authorize_url"), "{:?} {said}", out.status);
    Ok(())
}

#[test]
fn the_manifest_says_how_a_secret_is_shown_and_has_the_last_word() -> Result<()> {
    // At a place that is told, nobody tells how: the header is the usual, and this server takes the body alone.
    let own = |more: &str| {
        let more = format!("flow = \"client_credentials\"\nclient_secret = \"${{env:THE_SECRET}}\"\n{more}");
        move |authority: &Authority| elsewhere(authority, &more)
    };
    for (more, code) in [("", 1), ("client_auth = \"client_secret_post\"", 0)] {
        let mut stage = Stage::new(own(more))?;
        stage.project.environment.push(("THE_SECRET".into(), CLIENT_SECRET.into()));
        stage.authority.state().confidential = true;
        told(&stage.authority, Some(&[IN_BODY]));
        let out = stage.project.run(&["auth", "connect", "things"])?;
        ensure!(out.status.code() == Some(code), "{more}: {}", String::from_utf8_lossy(&out.stderr));
        if code == 0 {
            let gateway = stage.project.gateway(None)?;
            done(&create(gateway.addr, "one"))?;
            ensure!(stage.authority.state().shown == [IN_BODY; 2], "{:?}", stage.authority.state().shown);
        }
    }
    // Over what a server tells of itself, for the code and for a renewal.
    for (way, ways) in [(IN_BODY, [IN_HEADER, IN_BODY]), (IN_HEADER, [IN_BODY, IN_HEADER])] {
        let mut stage = Stage::new(|a| {
            by_code(a, &format!("client_secret = \"${{env:THE_SECRET}}\"\nclient_auth = \"{way}\""))
        })?;
        stage.project.environment.push(("THE_SECRET".into(), CLIENT_SECRET.into()));
        stage.authority.state().confidential = true;
        told(&stage.authority, Some(&ways));
        stage.authority.state().life = 1;
        stage.connect(&[])?;
        std::thread::sleep(std::time::Duration::from_millis(1100));
        stage.authority.state().life = 3600;
        let gateway = stage.project.gateway(None)?;
        done(&create(gateway.addr, "one"))?;
        ensure!(stage.authority.state().shown == [way, way], "{way}: {:?}", stage.authority.state().shown);
    }
    Ok(())
}

/// A program that opens pages, which writes down what it was given. The search path with it alone.
fn opener(folder: &Path, then: &str) -> Result<(PathBuf, String)> {
    let (bin, opened) = (folder.join("bin"), folder.join("opened"));
    std::fs::create_dir_all(&bin)?;
    for name in ["xdg-open", "open"] {
        let file = bin.join(name);
        std::fs::write(
            &file,
            format!("#!/bin/sh\nprintf '%s\\n' \"$#\" \"$@\" >>'{}'\n{then}\n", opened.display()),
        )?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok((opened, bin.display().to_string()))
}

#[test]
fn a_browser_is_opened_where_that_is_asked_for() -> Result<()> {
    let mut stage = Stage::by_code()?;
    let issuer = stage.authority.issuer();
    // What it says is said to nobody: standard output is the document's.
    let (opened, path) = opener(stage.home.path(), "echo noise; echo noise >&2; exit 3")?;
    stage.project.environment.push(("PATH".into(), path));
    stage.connect(&[])?;
    ensure!(!opened.exists(), "a page was opened that nobody asked for");
    let (mut process, page) = stage.begin(&["--browser"])?;
    until("the browser", || Ok(std::fs::read_to_string(&opened).is_ok_and(|t| t.lines().count() == 2)))?;
    let text = std::fs::read_to_string(&opened)?;
    // One argument, the same page that is shown.
    ensure!(text == format!("1\n{page}\n"), "{text:?} {page}");
    let sent = stage.authority.consent(text.lines().nth(1).context("no page")?)?;
    sent.back(&sent.right(&issuer))?;
    let document = process.json_line(SECONDS)?;
    ensure!(document["kept"] == true && !process.said().contains("noise"), "{document} {}", process.said());
    ensure!(process.wait(SECONDS).and_then(|s| s.code()) == Some(0), "{}", process.said());

    // Where there is none the person has the address, and the connection goes on.
    let none = stage.home.path().join("nothing").display().to_string();
    stage.project.environment.push(("PATH".into(), none));
    let (code, said, _) =
        stage.connected_by(&["--browser"], |sent| sent.back(&sent.right(&issuer)).map(|_| ()))?;
    ensure!(code == 0 && said.contains("open the page by hand"), "{code} {said}");
    Ok(())
}
