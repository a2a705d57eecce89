//! A ledger is copied while it is in use, put somewhere else, and goes on from there: nothing new before somebody says so.

use anyhow::{Result, ensure};
use counterfoil_tests::stand::{Class, Project, Sandbox};
use counterfoil_tests::wire::{self, Call};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(15);

#[test]
fn a_copy_goes_on_where_it_was_made() -> Result<()> {
    let home = Project::empty()?;
    let sandbox =
        Sandbox::start(&home.path().join("provider"), &home.path().join("provider.log"), "127.0.0.1:0")?;
    let mut project = Project::with_classes(sandbox.addr)?;
    let mut gateway = project.gateway(None)?;
    let addr = gateway.addr;
    let call = |addr, order: &str| {
        let said =
            wire::call(addr, LONG, &Call::new(&Class::Key.tool(), Class::Key.arguments(order)).keyed(order));
        said.brief()
    };
    let before = call(addr, "before");
    ensure!(sandbox.count(Class::Key, "before")?.0 == 1, "{before}");

    // Calls go on while it is copied.
    let busy = std::thread::scope(|scope| -> Result<(i32, Value)> {
        let calls = scope.spawn(|| (0..40).map(|n| call(addr, &format!("busy{n}"))).collect::<Vec<_>>());
        let copied = project.ask(&["backup", "copy.db"]);
        ensure!(calls.join().is_ok_and(|all| all.len() == 40));
        copied
    })?;
    ensure!(busy.0 == 0, "{busy:?}");
    for n in 0..40 {
        ensure!(sandbox.count(Class::Key, &format!("busy{n}"))?.0 == 1, "busy{n}");
    }
    let copy = project.path().join("copy.db");
    let meta = std::fs::metadata(&copy)?;
    ensure!(meta.permissions().mode() & 0o777 == 0o600, "{:o}", meta.permissions().mode());
    ensure!(busy.1["bytes"] == json!(meta.len()), "{busy:?}");
    ensure!(
        std::fs::read_dir(project.path())?
            .flatten()
            .all(|f| !f.file_name().to_string_lossy().contains(".part"))
    );
    // Nothing is overwritten, and a name is needed.
    let again = project.run(&["backup", "copy.db"])?;
    ensure!(again.status.code() == Some(2), "{again:?}");
    ensure!(String::from_utf8_lossy(&again.stderr).contains("nothing is overwritten"), "{again:?}");
    ensure!(project.run(&["backup"])?.status.code() == Some(2));
    ensure!(project.run(&["backup", "no/such/place.db"])?.status.code() == Some(5));

    // What is called after it, the copy doesn't know.
    call(addr, "after");
    ensure!(gateway.process.terminate()?.code() == Some(0), "{}", project.gateway_said());
    // Without a process the copy is made by the command.
    ensure!(project.ask(&["backup", "later.db"])?.0 == 0);

    // The machine is lost; the copy is put on another one. Its key ring opens with the key that was kept beside it only.
    ensure!(busy.1["masterKey"].as_str().is_some_and(|k| k.ends_with("master.key")), "{busy:?}");
    let key = std::fs::read(project.data().join("master.key"))?;
    std::fs::remove_dir_all(project.data())?;
    std::fs::create_dir(project.data())?;
    std::fs::copy(&copy, project.data().join("ledger.db"))?;
    let keyless = project.run(&["serve"])?;
    let said = String::from_utf8_lossy(&keyless.stderr);
    ensure!(keyless.status.code() == Some(2) && said.contains("counterfoil keys reset"), "{keyless:?}");
    let place = project.data().join("master.key");
    std::fs::write(&place, key)?;
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o600))?;
    let mut gateway = project.gateway(None)?;
    let ready = counterfoil_tests::http::json(gateway.addr, "GET", "/readyz", None)?;
    ensure!(ready.status == 503 && ready.text().contains("restored from a backup"), "{}", ready.text());
    // What it knows is answered; what it doesn't is not begun again.
    let known = call(gateway.addr, "before");
    ensure!(sandbox.count(Class::Key, "before")?.0 == 1, "{known}");
    let unknown = call(gateway.addr, "after");
    ensure!(unknown.contains("unavailable"), "{unknown}");
    ensure!(sandbox.count(Class::Key, "after")?.0 == 1);
    // What was done since is found where the provider can list it.
    let found = project.ask(&["doctor", "--providers"])?.1;
    let about = |id: &str| -> Vec<String> {
        let all = found["findings"].as_array().into_iter().flatten();
        let of = all.filter(|f| f["about"] == format!("{id}.refunds.create"));
        of.map(|f| format!("{} {}", f["level"].as_str().unwrap_or("?"), f["what"].as_str().unwrap_or("?")))
            .collect()
    };
    let keyed = about(Class::Key.name());
    let stray = sandbox.effects("object=after")?.to_string();
    ensure!(
        keyed
            .iter()
            .any(|l| l.starts_with("warning ")
                && l.contains("bear effect keys that the ledger doesn't know: re_")),
        "{keyed:?} {stray}"
    );
    let natural = about(Class::Natural.name());
    ensure!(natural.iter().any(|l| l.contains("its manifest describes no look-up")), "{natural:?}");
    let marked = about(Class::Lookup.name());
    ensure!(marked.iter().any(|l| l.starts_with("ok the ledger knows every effect key")), "{marked:?}");
    // That it was a copy is not forgotten over a restart.
    ensure!(gateway.process.terminate()?.code() == Some(0), "{}", project.gateway_said());
    let mut gateway = project.gateway(None)?;
    ensure!(call(gateway.addr, "after").contains("unavailable"));
    ensure!(project.ask(&["ops", "release", "--by", "ann"])?.0 == 0);
    // The caller's own key is the same at the provider, which still knows it.
    let late = call(gateway.addr, "after");
    ensure!(!late.contains("unavailable"), "{late}");
    ensure!(sandbox.count(Class::Key, "after")?.0 == 1, "{late}");
    // Released is released, over a restart too.
    ensure!(gateway.process.terminate()?.code() == Some(0), "{}", project.gateway_said());
    let gateway = project.gateway(None)?;
    ensure!(counterfoil_tests::http::json(gateway.addr, "GET", "/readyz", None)?.status == 200);
    Ok(())
}
