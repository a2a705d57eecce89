//! The official clients of both eras, each from its own lock file into `build/clients/`. The Rust client is not
//! installed: its worker is a program of the tests and built with them. And our own thin clients, built and checked as
//! they are published.

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
    PYTHON.iter().try_for_each(|name| python(name))?;
    own_typescript()?;
    own_python()
}

/// The files of one of our own, copied to where building it leaves the repository alone.
fn copied(language: &str) -> Result<PathBuf> {
    let folder = folder(&format!("own-{language}"));
    copy(&root().join("clients").join(language), &folder)?;
    Ok(folder)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        let made = ["dist", "node_modules", "build", "__pycache__"].iter().any(|made| name == *made);
        if path.is_dir() {
            if !made {
                copy(&path, &to.join(name))?;
            }
        } else {
            std::fs::copy(&path, to.join(name)).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// Types checked, built, and packed as it would be published.
fn own_typescript() -> Result<()> {
    let folder = copied("typescript")?;
    locked_packages(&root().join("clients/typescript"), &folder, &[])?;
    for args in
        [&["run", "--silent", "check"][..], &["run", "--silent", "build"], &["pack", "--silent", "--dry-run"]]
    {
        must(Command::new("npm").args(args).current_dir(&folder))?;
    }
    Ok(())
}

/// Built and installed into an environment with nothing else in it.
fn own_python() -> Result<()> {
    let folder = copied("python")?;
    let venv = folder.join("venv");
    if version(&venv.join("bin/python"), "--version").is_none() {
        must(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    }
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--force-reinstall"]);
    must(pip.arg(&folder))?;
    // What is tested is what was installed, not the files beside the tests.
    let package = folder.join("counterfoil_client");
    std::fs::remove_dir_all(&package).with_context(|| package.display().to_string())
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
