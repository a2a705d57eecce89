//! The official clients of both eras, each from its own lock file into `build/clients/`. The Rust client is not
//! installed: its worker is a program of the tests and built with them.

use crate::install::{Stamp, apt, locked_packages, version};
use crate::steps::must;
use crate::{build_dir, root};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Those in TypeScript: the divided packages, and the one of the legacy era.
const TYPESCRIPT: [&str; 2] = ["ts", "ts1"];
/// Those in Python: the second and the first major version.
const PYTHON: [&str; 2] = ["py", "py1"];

/// Installs them all.
///
/// # Errors
/// A package can't be had; says which.
pub fn install() -> Result<()> {
    TYPESCRIPT.iter().try_for_each(|name| typescript(name))?;
    PYTHON.iter().try_for_each(|name| python(name))
}

fn source(name: &str) -> PathBuf {
    root().join("tests/clients").join(name)
}

fn folder(name: &str) -> PathBuf {
    build_dir().join("clients").join(name)
}

fn typescript(name: &str) -> Result<()> {
    let folder = folder(name);
    locked_packages(&source(name), &folder, &["worker.mjs"])?;
    // What the workers share is beside each, because modules are looked for from there.
    let shared = root().join("tests/clients/host.mjs");
    std::fs::copy(&shared, folder.join("host.mjs")).with_context(|| shared.display().to_string())?;
    Ok(())
}

fn python(name: &str) -> Result<()> {
    venv(&source(name).join("requirements.txt"), &folder(name))
}

/// The packages of a list with versions, in a virtual environment `venv` in `folder`.
///
/// # Errors
/// A package can't be had.
pub fn venv(list: &Path, folder: &Path) -> Result<()> {
    let venv = folder.join("venv");
    std::fs::create_dir_all(folder)?;
    let stamp = Stamp::of(folder, &[std::fs::read_to_string(list)?, folder.display().to_string()]);
    if stamp.is_fresh() && version(&venv.join("bin/python"), "--version").is_some() {
        return Ok(());
    }
    let make = || must(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv));
    if make().is_err() {
        apt(&["python3-venv"])?;
        make()?;
    }
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    must(pip.arg("--requirement").arg(list))?;
    stamp.set()
}
