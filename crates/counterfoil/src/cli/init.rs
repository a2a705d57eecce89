//! `init`: a commented configuration and folders. Nothing that is there is ever overwritten.

use super::fail::{Done, Fail};
use super::out::Out;
use serde_json::json;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    Sandbox,
    Production,
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// For trying things out with the sandbox provider, or for real providers [default: sandbox]
    #[arg(long, value_enum, hide_default_value = true)]
    mode: Option<Mode>,
    /// Where; made if it isn't there
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

const SANDBOX: &str = include_str!("templates/sandbox.toml");
const PRODUCTION: &str = include_str!("templates/production.toml");
const MANIFEST: &str = include_str!("templates/manifest.toml");
const IGNORE: &str = ".counterfoil/\n*.secret\n";

pub(super) fn run(args: &Args, out: &Out) -> Done {
    let there = there(&args.dir.join(crate::config::FILE), args.mode)?;
    let mode = there.or(args.mode).unwrap_or(Mode::Sandbox);
    let config = match mode {
        Mode::Sandbox => SANDBOX,
        Mode::Production => PRODUCTION,
    };
    let files =
        [(crate::config::FILE, config), ("integrations/example.toml", MANIFEST), (".gitignore", IGNORE)];
    let mut written = Vec::new();
    let mut kept = Vec::new();
    for (name, text) in files {
        let path = args.dir.join(name);
        match write(&path, text) {
            Ok(()) => {
                out.say(format!("  written  {}", path.display()));
                written.push(name);
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                out.say(format!("  kept     {}  (it was there)", path.display()));
                kept.push(name);
            }
            Err(e) => return Err(Fail::usage(format!("{} can't be written: {e}", path.display()))),
        }
    }
    out.document(&json!({ "directory": args.dir.display().to_string(), "written": written, "kept": kept }));
    out.say("");
    out.say(match mode {
        Mode::Sandbox => "Next: `counterfoil serve`, then `counterfoil methods`.",
        Mode::Production => "Next: describe your provider in integrations/, name it in counterfoil.toml, then `counterfoil doctor` and `counterfoil api-keys create --principal NAME`.",
    });
    Ok(0)
}

/// The mode of a configuration that is there. Refuses another one than is wanted: what was tried out and what is real share
/// nothing, so a folder has one mode from its first day on.
fn there(file: &Path, wanted: Option<Mode>) -> Result<Option<Mode>, Fail> {
    if !file.exists() {
        return Ok(None);
    }
    let config = crate::config::Config::load(file).map_err(|e| {
        let e = Fail::from(e);
        Fail {
            message: format!(
                "nothing was written: a configuration is there, and can't be used.\n{}",
                e.message
            ),
            ..e
        }
    })?;
    let is = match config.mode {
        provider::Mode::Sandbox => Mode::Sandbox,
        provider::Mode::Production => Mode::Production,
    };
    match wanted {
        Some(wanted) if wanted != is => Err(Fail::usage(format!(
            "{} is there, in {} mode: the mode is written once, and nothing was changed. Make the other one in a folder of its own (--dir), with a ledger of its own",
            file.display(),
            config.mode
        ))),
        _ => Ok(Some(is)),
    }
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())
}
