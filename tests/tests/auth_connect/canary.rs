//! A secret of its own for each place where one can be, a day of use, and a search of everything that is left of it.

use super::authority::{Authority, CLIENT_SECRET, Fault};
use super::stage::{SECONDS, Stage, by_code, create, done};
use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use counterfoil_tests::http::{self, Asked};
use counterfoil_tests::stand::Project;
use counterfoil_tests::wire::{self, Call};
use serde_json::json;
use std::io::{BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use temp_postgres::{Options, TempPostgres};

/// What every secret here begins with, and nothing else has.
const MARK: &str = "CANARY";

/// A text in each form in which it could be hidden, without regard to case.
fn forms(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let mut all = vec![text.to_owned()];
    all.push(bytes.iter().map(|b| format!("{b:02x}")).collect());
    all.push(url::form_urlencoded::byte_serialize(bytes).collect());
    all.push(bytes.iter().map(|b| format!("%{b:02x}")).collect());
    // Within a longer text it begins at one of three places of a group of base64.
    for engine in [&STANDARD, &URL_SAFE] {
        for skip in 0..3 {
            let padded = [&vec![b'x'; skip][..], bytes].concat();
            let from = (skip * 8).div_ceil(6);
            all.push(engine.encode(&padded)[from..padded.len() * 8 / 6].to_owned());
        }
    }
    all.sort();
    all.dedup();
    all
}

/// The files in a folder, and below it, that have a text in one of its forms.
fn found(folder: &Path, text: &str) -> Result<String> {
    let mut grep = Command::new("grep");
    grep.args(["--recursive", "--text", "--files-with-matches", "--fixed-strings", "--ignore-case"]);
    for form in forms(text) {
        grep.arg("-e").arg(form);
    }
    let out = grep.arg(folder).env("LC_ALL", "C").output()?;
    match out.status.code() {
        Some(0 | 1) => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        other => bail!("grep: {other:?} {}", String::from_utf8_lossy(&out.stderr)),
    }
}

/// Uses it: calls, errors, refusals, retries, a crash, and whatever a person asks.
fn day(project: &mut Project, authority: &Authority, said: &mut Vec<u8>) -> Result<()> {
    let alerts = Alerts::beside(project)?;
    let day = spent(project, authority, said);
    let told = alerts.told();
    said.extend_from_slice(&told);
    day?;
    ensure!(found_in(&told, b"in_doubt"), "nobody was alerted: {}", String::from_utf8_lossy(&told));
    // What the provider repeated got here, and without it.
    for masked in [b"with Bearer ****".as_slice(), b"with Basic ****", b"with ****"] {
        if found_in(said, masked) {
            return Ok(());
        }
    }
    bail!("the provider repeated nothing")
}

fn found_in(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

/// Who is told of alerts.
struct Alerts(Arc<Mutex<Vec<u8>>>);

impl Alerts {
    /// For a project, with a method that is never sent twice.
    fn beside(project: &Project) -> Result<Alerts> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let hook = format!("\n[alerts]\nwebhook = \"http://{}/alerts\"\n", listener.local_addr()?);
        project.edit(|text| format!("{text}{hook}"))?;
        let manifest = project.path().join("integrations/things.toml");
        let once = "\n[methods.once]\nhttp = \"POST /v1/things\"\nrecovery = \"none\"\nparams = { order = \"body\" }\n";
        std::fs::write(&manifest, std::fs::read_to_string(&manifest)? + once)?;
        let all = Arc::new(Mutex::new(Vec::new()));
        let told = all.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut reader = BufReader::new(stream);
                while let Some(asked) = Asked::read(&mut reader) {
                    told.lock().unwrap().extend(asked.bytes());
                    let _ = reader.get_mut().write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
                }
            }
        });
        Ok(Alerts(all))
    }

    fn told(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

fn spent(project: &mut Project, authority: &Authority, said: &mut Vec<u8>) -> Result<()> {
    project.environment.push(("RUST_LOG".into(), "trace".into()));
    project.serve = vec!["--log-level".into(), "trace".into()];
    authority.state().echoes = true;
    let mut gateway = project.gateway(None)?;
    let at = gateway.addr;
    let mut keep = |text: String| said.extend_from_slice(text.as_bytes());
    done(&create(at, "plain"))?;
    for fault in [Fault::ApplyThenCut, Fault::Answer500] {
        authority.state().faults.push(fault);
        keep(format!("{:?}", create(at, &format!("{fault:?}"))));
    }
    authority.state().faults.push(Fault::ApplyThenCut);
    keep(format!("{:?}", wire::call(at, SECONDS, &Call::new("things_once", json!({ "order": "once" })))));
    authority.revoke_access();
    keep(format!("{:?}", create(at, "refused")));
    let run = json!({ "id": "things.create", "arguments": { "order": "handler" }, "operation": "job" });
    for (verb, path, body) in [
        ("POST", "/api/v1/exec", Some(&run)),
        ("POST", "/api/v1/exec", Some(&json!({ "id": "things.list", "arguments": {} }))),
        ("GET", "/metrics", None),
        ("GET", "/readyz", None),
    ] {
        let reply = http::json(at, verb, path, body)?;
        keep(format!("{:?} {}", reply.headers, reply.text()));
    }
    keep(format!("{:?}", wire::call(gateway.addr, SECONDS, &Call::new("things_list", json!({})))));
    keep(format!("{:?}", wire::call(gateway.addr, SECONDS, &Call::new("things_create", json!({ "x": 1 })))));
    // Killed with a call under way.
    authority.state().faults.push(Fault::ApplyThenCut);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| create(at, "killed"));
        std::thread::sleep(std::time::Duration::from_millis(60));
        let pid = gateway.process.pid().to_string();
        let _ = Command::new("kill").args(["-KILL", &pid]).status();
        keep(format!("{:?}", call.join().unwrap()));
    });
    gateway.process.kill();
    let mut gateway = project.gateway(None)?;
    let at = gateway.addr;
    keep(format!("{:?}", create(at, "killed")));
    let (_, list) = project.ask(&["ops", "list"])?;
    let id = list["operations"][0]["id"].as_str().context("an operation")?.to_owned();
    let backup = project.path().join("backup.db").display().to_string();
    let commands: Vec<Vec<&str>> = vec![
        vec!["ops", "list"],
        vec!["ops", "show", &id],
        vec!["exec", "things.create", "--param", "order=dry", "--dry-run"],
        vec!["exec", "things.create", "--param", "order=shell"],
        vec!["info", "things.create"],
        vec!["methods"],
        vec!["auth", "status"],
        vec!["doctor"],
        vec!["doctor", "--providers"],
        vec!["backup", &backup],
    ];
    for command in commands {
        for json in [false, true] {
            if json && command[0] == "backup" {
                continue;
            }
            let mut all = command.clone();
            if json {
                all.push("--json");
            }
            let out = project.run(&all)?;
            said.extend_from_slice(&out.stdout);
            said.extend_from_slice(&out.stderr);
        }
    }
    gateway.process.terminate()?;
    let out = project.run(&["exec", "things.create", "--param", "order=alone", "--json"])?;
    said.extend_from_slice(&[out.stdout, out.stderr].concat());
    Ok(())
}

/// No secret is anywhere but encrypted; what is no secret is found, so the search searches.
fn nowhere(project: &Project, home: &Path, said: &[u8]) -> Result<()> {
    nowhere_of(project, home, said, &["said", "ledger.db", "backup.db"])
}

fn nowhere_of(project: &Project, home: &Path, said: &[u8], files: &[&str]) -> Result<()> {
    std::fs::write(project.path().join("said"), said)?;
    for folder in [project.path(), home] {
        let all = found(folder, MARK)?;
        ensure!(all.is_empty(), "{all}");
    }
    let known = found(project.path(), "things.create")?;
    for file in files {
        ensure!(known.contains(file), "{file} does not have what it must have: {known}");
    }
    ensure!(found(project.path(), " TRACE ")?.contains("gateway.log"), "the log has no traces");
    Ok(())
}

/// Every one of these was sent to whom it is for: or nobody could have seen it anywhere else.
fn used(authority: &Authority, part: &str) -> Result<()> {
    ensure!(authority.state().heard.iter().any(|(auth, _)| auth.contains(part)), "{part} was never sent");
    Ok(())
}

#[test]
fn given_by_hand() -> Result<()> {
    let kinds = [
        ("kind = \"bearer\"", "CANARY+bearer/5f1c=", "Bearer CANARY+bearer/5f1c="),
        ("kind = \"basic\"\nusername = \"org\"", "CANARY+basic/77ab", "Basic b3JnOkNBTkFSWStiYXNpYy83N2Fi"),
        ("kind = \"header\"\nheader = \"X-Api-Key\"", "CANARY+header/90dd", "CANARY+header/90dd"),
        ("kind = \"query\"\nquery = \"api key\"", "CANARY+query/61cb=", "CANARY+query/61cb="),
    ];
    for (auth, secret, header) in kinds {
        let mut stage = Stage::new(|_| auth.into())?;
        let mut said = Vec::new();
        let (code, told) = stage.give(secret)?;
        ensure!(code == 0, "{told}");
        said.extend_from_slice(told.as_bytes());
        stage.authority.state().taken.insert(header.into());
        day(&mut stage.project, &stage.authority, &mut said)?;
        used(&stage.authority, header)?;
        nowhere(&stage.project, stage.home.path(), &said)?;
    }
    Ok(())
}

#[test]
fn named_in_the_environment() -> Result<()> {
    let secret = "CANARY+named/12ee";
    let mut stage = Stage::new(|_| "kind = \"bearer\"\nsecret = \"${env:THE_KEY}\"".into())?;
    stage.project.environment.push(("THE_KEY".into(), secret.into()));
    stage.authority.state().taken.insert(format!("Bearer {secret}"));
    let mut said = Vec::new();
    day(&mut stage.project, &stage.authority, &mut said)?;
    used(&stage.authority, secret)?;
    nowhere(&stage.project, stage.home.path(), &said)
}

#[test]
fn in_a_ledger_of_postgresql() -> Result<()> {
    let secret = "CANARY+named/34aa";
    let postgres = TempPostgres::start(Options::default());
    let database = postgres.database();
    let mut stage = Stage::new(|_| "kind = \"bearer\"\nsecret = \"${env:THE_KEY}\"".into())?;
    let project = &mut stage.project;
    let master = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    for (name, value) in
        [("THE_KEY", secret), ("THE_LEDGER", &postgres.url(&database)), ("THE_MASTER", master)]
    {
        project.environment.push((name.into(), value.into()));
    }
    // A lease that a busy machine keeps.
    project.edit(|text| {
        let ledger = "[seal]\nmaster = \"${env:THE_MASTER}\"\n\n[ledger]\nurl = \"${env:THE_LEDGER}\"\n";
        text.replace("[ledger]\n", ledger).replace("lease = \"500ms\"", "lease = \"4s\"")
    })?;
    stage.authority.state().taken.insert(format!("Bearer {secret}"));
    let mut said = Vec::new();
    day(project, &stage.authority, &mut said)?;
    used(&stage.authority, secret)?;
    let mut dump = postgres.program("pg_dump");
    dump.args(["-U", "postgres", "-h", "127.0.0.1", "-p", &postgres.port().to_string(), "-d", &database]);
    let dump = dump.output()?;
    ensure!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    std::fs::write(stage.project.path().join("dump.sql"), dump.stdout)?;
    nowhere_of(&stage.project, stage.home.path(), &said, &["said", "dump.sql"])
}

#[test]
fn tokens_of_oauth() -> Result<()> {
    let stage = Stage::new(|authority| by_code(authority, "client_secret = \"${env:CLIENT_SECRET}\""))?;
    let mut stage = stage;
    stage.project.environment.push(("CLIENT_SECRET".into(), CLIENT_SECRET.into()));
    stage.authority.state().confidential = true;
    let mut said = Vec::new();
    let issuer = stage.authority.issuer();
    let (code, told, document) =
        stage.connected_by(&["--log-level", "trace"], |sent| sent.back(&sent.right(&issuer)).map(|_| ()))?;
    ensure!(code == 0, "{told}");
    said.extend_from_slice(format!("{told}{document:?}").as_bytes());
    day(&mut stage.project, &stage.authority, &mut said)?;
    used(&stage.authority, "CANARY-access-")?;
    ensure!(stage.authority.state().refreshes > 0, "nothing was renewed");
    nowhere(&stage.project, stage.home.path(), &said)
}

#[test]
fn a_client_s_secret_that_is_kept() -> Result<()> {
    let mut stage = Stage::new(|authority| by_code(authority, "flow = \"client_credentials\""))?;
    stage.authority.state().confidential = true;
    let mut said = Vec::new();
    let (code, told) = stage.give(CLIENT_SECRET)?;
    ensure!(code == 0, "{told}");
    said.extend_from_slice(told.as_bytes());
    day(&mut stage.project, &stage.authority, &mut said)?;
    used(&stage.authority, "CANARY-access-")?;
    nowhere(&stage.project, stage.home.path(), &said)
}

#[test]
fn the_search_finds_what_is_there() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("f");
    let secret = "CANARY+x/12";
    for around in ["", "a", "ab", "abc"] {
        let texts: [String; 5] = [
            secret.to_owned(),
            STANDARD.encode(format!("{around}{secret}{around}")),
            URL_SAFE.encode(format!("{around}{secret}{around}")),
            url::form_urlencoded::byte_serialize(secret.as_bytes()).collect(),
            secret.bytes().map(|b| format!("{b:02X}")).collect(),
        ];
        for hidden in texts {
            std::fs::write(&file, [b"\0\xff", around.as_bytes(), hidden.as_bytes(), b"\n"].concat())?;
            ensure!(!found(folder.path(), MARK)?.is_empty(), "{around} {hidden}");
        }
    }
    std::fs::write(&file, "CANADA")?;
    ensure!(found(folder.path(), MARK)?.is_empty());
    Ok(())
}
