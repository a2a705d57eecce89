//! The master key in the keyring of a desktop session: a real one, of its own, on a message bus of its own.

use anyhow::{Context, Result, ensure};
use counterfoil_tests::process::binary;
use std::process::{Command, Output, Stdio};

/// `$1` is the program. `serve` makes the ring under the key of the keyring, and later commands find the key there.
const DAY: &str = r#"
set -eu
unlock() { printf password | gnome-keyring-daemon --unlock --components=secrets >/dev/null; }
store() { printf %s "$1" | secret-tool store --label=Counterfoil service counterfoil account billing; }
unlock
echo "without: $("$1" serve --listen 127.0.0.1:0 2>&1 || true)"
store 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
"$1" serve --listen 127.0.0.1:0 >served 2>&1 &
serving=$!
tries=0
until "$1" keys list >listed 2>/dev/null; do
    tries=$((tries + 1))
    test "$tries" -lt 300 || { cat served; exit 1; }
    sleep 0.1
done
cat listed
kill "$serving"
wait "$serving"
"$1" keys rotate >/dev/null
store 1f1e1d1c1b1a191817161514131211100f0e0d0c0b0a09080706050403020100
echo "another: $("$1" serve --listen 127.0.0.1:0 2>&1 || true)"
"#;

/// `$1` is the program. The key of the user's credentials goes from the keyring into a file, and what is kept opens all the time.
const CONNECTED: &str = r#"
set -eu
printf password | gnome-keyring-daemon --unlock --components=secrets >/dev/null
printf CANARY-key | "$1" auth connect things --stdin --keyring --json
"$1" auth status --json
echo "second: $("$1" auth key --keyring --json)"
"$1" auth status --json
echo "file: $("$1" auth key --file --json)"
"$1" auth status --json
"#;

fn session(folder: &std::path::Path, script: &str) -> Result<Output> {
    let home = folder.join("home");
    let runtime = folder.join("runtime");
    for d in [&home, &runtime] {
        std::fs::create_dir(d)?;
    }
    std::fs::set_permissions(&runtime, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    Command::new("timeout")
        .args(["100", "dbus-run-session", "--", "sh", "-c", script, "sh"])
        .arg(binary()?)
        .current_dir(folder)
        .env("COUNTERFOIL_CREDENTIALS", home.join("credentials"))
        .env("HOME", home)
        .env("XDG_RUNTIME_DIR", runtime)
        .stdin(Stdio::null())
        .output()
        .context("dbus-run-session can't be started: run `cargo xtask install`")
}

#[test]
fn a_master_key_is_read_from_the_keyring() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = "[server]\nname = \"desk\"\n[seal]\nmaster = \"${keyring:billing}\"\n";
    std::fs::write(folder.path().join("counterfoil.toml"), file)?;
    let out = session(folder.path(), DAY)?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    ensure!(out.status.success(), "{out:?}");

    let line = |word: &str| said.lines().find(|l| l.starts_with(word)).unwrap_or_default().to_owned();
    let without = line("without:");
    ensure!(without.contains("no such entry") && without.contains("secret-tool store"), "{said}");
    // The ring is under the key of the keyring, and under no file.
    ensure!(said.contains("mk-") && said.contains("active"), "{said}");
    ensure!(!folder.path().join(".counterfoil/master.key").exists());
    ensure!(line("another:").contains("mk-"), "{said}");
    for secret in ["000102030405", "1f1e1d1c1b1a"] {
        ensure!(!said.contains(secret), "{said}");
    }
    Ok(())
}

#[test]
fn credentials_are_kept_under_a_key_of_the_keyring() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path();
    let config = "[[integration]]\nname = \"things\"\nmanifest = \"things.toml\"\n";
    let manifest = "name = \"things\"\nbase_url = \"http://127.0.0.1:1\"\n[auth]\nkind = \"bearer\"\n[methods.list]\nhttp = \"GET /\"\n";
    std::fs::write(path.join("counterfoil.toml"), config)?;
    std::fs::write(path.join("things.toml"), manifest)?;
    let out = session(path, CONNECTED)?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    ensure!(out.status.success(), "{out:?}");
    ensure!(!said.contains("CANARY") && said.matches("\"state\":\"valid\"").count() == 3, "{said}");
    ensure!(said.contains("the keyring's entry credentials-mk-"), "{said}");
    let kept = |ending: &str| -> Result<usize> {
        let all = std::fs::read_dir(path.join("home/credentials"))?;
        Ok(all.flatten().filter(|e| e.path().extension().is_some_and(|x| x == ending)).count())
    };
    // Only the last key is in a file.
    ensure!(kept("key")? == 1 && kept("json")? == 1, "{said}");
    Ok(())
}
