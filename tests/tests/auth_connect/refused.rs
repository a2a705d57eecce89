//! What can't be connected, and modes that reach nothing: refused, with what to do.

use super::stage::{SECONDS, Stage, create, manifest};
use anyhow::{Context, Result, ensure};
use counterfoil_tests::wire::{self, Call, Said};
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn what_can_t_be_connected_is_refused_with_what_to_do() -> Result<()> {
    let stage = Stage::new(|_| "kind = \"bearer\"".into())?;
    let refused = |args: &[&str], why: &str| -> Result<()> {
        let out = stage.project.run(&[&["auth"], args].concat())?;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        ensure!(out.status.code() == Some(2) && said.contains(why), "{args:?}: {said}");
        Ok(())
    };
    refused(&["connect", "thinks"], "did you mean \"things\"")?;
    // No terminal, and never as an argument.
    refused(&["connect", "things"], "--stdin")?;
    refused(&["connect", "things", "CANARY"], "unexpected argument")?;
    refused(&["connect", "things", "--same-account"], "is for OAuth")?;
    refused(&["key"], "--keyring")?;
    refused(&["key", "--file"], "nothing is kept yet")?;
    for (given, why) in
        [("", "no secret was given"), (" \n", "no secret was given"), ("a\u{7f}b", "no header can carry")]
    {
        let (code, said) = stage.give(given)?;
        ensure!(code == 2 && said.contains(why), "{given:?}: {said}");
    }
    let (code, said) = stage.give(&"x".repeat(9 << 10))?;
    ensure!(code == 2 && said.contains("8 KiB"), "{said}");
    ensure!(!stage.folder().join("store.json").exists());

    // A store that others can read, or that is damaged, is not used and not touched.
    ensure!(stage.give("CANARY-one")?.0 == 0);
    let file = stage.folder().join("store.json");
    let good = std::fs::read(&file)?;
    let open = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode));
    open(0o644)?;
    refused(&["status"], "chmod 600")?;
    open(0o600)?;
    std::fs::write(&file, &good[..good.len() / 2])?;
    refused(&["status"], "was left as it is")?;
    let (code, said) = stage.give("CANARY-two")?;
    ensure!(code == 2 && said.contains("damaged"), "{said}");
    ensure!(std::fs::read(&file)? == good[..good.len() / 2]);
    let (code, report) = stage.project.ask(&["doctor"])?;
    ensure!(code == 2 && report.to_string().contains("damaged"), "{report}");
    std::fs::write(&file, &good)?;
    let (code, key) = stage.project.ask(&["auth", "key", "--file"])?;
    ensure!(code == 0 && stage.status()?["connected"][0]["state"] == "valid", "{key}");
    // The key is gone: said, and nothing is thrown away.
    std::fs::remove_file(key["place"].as_str().context("the key's place")?)?;
    ensure!(stage.status()?["connected"][0]["state"] == "does not open");
    let (code, said) = stage.give("CANARY-three")?;
    ensure!(code == 2 && said.contains("Put the key back"), "{said}");

    // Elsewhere than in the store.
    let write = |auth: &str| {
        let base = format!("\"{}\"", stage.authority.issuer());
        std::fs::write(stage.project.path().join("integrations/things.toml"), manifest(&base, auth))
    };
    write("kind = \"bearer\"\nsecret = \"${env:K}\"")?;
    refused(&["connect", "things", "--stdin"], "secret = \"store\"")?;
    write("kind = \"bearer\"\nper = \"principal\"")?;
    refused(&["connect", "things", "--stdin"], "each principal gives its own")?;
    write("kind = \"none\"")?;
    refused(&["connect", "things", "--stdin"], "sends no credential")
}

#[test]
fn sandbox_mode_reaches_no_production_host() -> Result<()> {
    let mut stage = Stage::new(|_| "kind = \"none\"".into())?;
    let base = "{ production = \"https://api.example.com\" }";
    std::fs::write(stage.project.path().join("integrations/things.toml"), manifest(base, "kind = \"none\""))?;
    let gateway = stage.project.gateway(None)?;
    let at = gateway.addr;
    let said = create(at, "one");
    let Said::Error { kind, text, .. } = &said else { anyhow::bail!("{said:?}") };
    ensure!(
        kind == "bad_arguments" && text.contains("sandbox mode") && text.contains("nothing was sent"),
        "{text}"
    );
    let said = wire::call(gateway.addr, SECONDS, &Call::new("things_list", json!({})));
    ensure!(format!("{said:?}").contains("sandbox mode"), "{said:?}");
    let (code, dry) = stage.project.ask(&["exec", "things.create", "--param", "order=x", "--dry-run"])?;
    ensure!(code != 0 && dry.to_string().contains("sandbox mode"), "{dry}");
    let (_, report) = stage.project.ask(&["doctor"])?;
    ensure!(report.to_string().contains("no sandbox host"), "{report}");
    let (_, list) = stage.project.ask(&["ops", "list"])?;
    ensure!(list["operations"] == json!([]), "{list}");
    Ok(())
}
