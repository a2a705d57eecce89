//! The thin clients of `clients/`, as they are published: their own tests, each in its language, against the real binary
//! with a provider that counts. Lost replies and a killed gateway are in them.

use anyhow::{Context, Result, ensure};
use counterfoil_tests::process::{binary, build_dir, node, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long one of them may take.
const WITHIN: Duration = Duration::from_secs(180);
/// Fewer checks than this were not all of them.
const LEAST: usize = 22;

/// Runs it; its two outputs in one.
fn output(command: &mut Command, folder: &Path) -> Result<String> {
    command.current_dir(folder).env("COUNTERFOIL_BIN", binary()?);
    for name in ["COUNTERFOIL_URL", "COUNTERFOIL_API_KEY"] {
        command.env_remove(name);
    }
    let out = run(command, WITHIN)?;
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    ensure!(out.status.success(), "{text}");
    Ok(text)
}

/// The number that stands between these words.
fn number(text: &str, before: &str, after: char) -> Result<usize> {
    let rest = text.split(before).nth(1).with_context(|| format!("{before:?} is not in {text}"))?;
    Ok(rest.split(after).next().unwrap_or_default().trim().parse()?)
}

#[test]
fn the_typescript_client_does_what_it_says() -> Result<()> {
    let build = build_dir()?;
    let folder = build.join("clients/own-typescript");
    let mut command = Command::new(node(&build));
    command.args(["--test", "--test-reporter=tap", "test/client.test.mjs", "test/published.test.mjs"]);
    let text = output(&mut command, &folder)?;
    let (passed, skipped) = (number(&text, "\n# pass ", '\n')?, number(&text, "\n# skipped ", '\n')?);
    ensure!(passed >= LEAST && skipped == 0, "{text}");
    Ok(())
}

#[test]
fn the_python_client_does_what_it_says() -> Result<()> {
    let folder = build_dir()?.join("clients/own-python");
    let mut command = Command::new(folder.join("venv/bin/python"));
    command.args(["-m", "unittest", "--verbose"]);
    let text = output(&mut command, &folder)?;
    ensure!(number(&text, "\nRan ", ' ')? >= LEAST && !text.contains("skipped"), "{text}");
    Ok(())
}

#[test]
fn both_are_published_under_the_license_of_all_this() -> Result<()> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let license = std::fs::read_to_string(root.join("LICENSE"))?;
    for language in ["typescript", "python"] {
        let own = root.join("clients").join(language).join("LICENSE");
        ensure!(std::fs::read_to_string(&own)? == license, "{} is another text", own.display());
    }
    Ok(())
}
