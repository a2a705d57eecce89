//! `import`: integration manifests from descriptions of APIs. What an operator has changed in a manifest stays.

mod add;
mod choose;

use super::fail::{Done, Fail};
use super::out::Out;
use crate::config::{FILE, read_file};
use add::{Added, add, block};
use choose::{Chosen, choose};
use openapi::read::MAX_BYTES;
use openapi::{Description, Options, Selection};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// From OpenAPI 3.0 or 3.1, in JSON or YAML
    Openapi(Args),
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The descriptions, one integration each
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The integration's name [default: from the description's title]
    #[arg(long)]
    name: Option<String>,
    /// Only operations with this tag; may be repeated
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Only paths that fit: * is any part of a segment, ** of a path; may be repeated
    #[arg(long, value_name = "GLOB")]
    path: Vec<String>,
    /// Only the operation with this id, or this verb and path; may be repeated
    #[arg(long, value_name = "ID")]
    operation: Vec<String>,
    /// All operations, whatever was chosen when it was imported before
    #[arg(long, conflicts_with_all = ["tag", "path", "operation"])]
    all: bool,
    /// Choose by numbers at the terminal: tags, then operations
    #[arg(long, conflicts_with_all = ["tag", "path", "operation", "all"])]
    choose: bool,
    /// Where requests go to in production [default: as described]
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Where requests go to in sandbox mode [default: as described]
    #[arg(long, value_name = "URL")]
    sandbox_url: Option<String>,
    /// The value of a variable in the server's address; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    server_variable: Vec<(String, String)>,
    /// How the provider treats keys; `none`: nothing is known [default: the one of the provider's address, if there is one]
    #[arg(long, value_name = "PRESET")]
    preset: Option<String>,
    /// The folder of manifests
    #[arg(long, value_name = "DIR", default_value = "integrations")]
    out: PathBuf,
    /// Name it in the configuration too, if it isn't there
    #[arg(long, conflicts_with = "dry_run")]
    add: bool,
    /// The configuration that --add writes to
    #[arg(long, value_name = "FILE", env = "COUNTERFOIL_CONFIG", default_value = FILE)]
    config: PathBuf,
    /// Show what would change, and write nothing
    #[arg(long)]
    dry_run: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(super) fn run(command: Command, out: &Out) -> Done {
    let Command::Openapi(args) = command;
    if let (Some(_), true) = (&args.name, args.files.len() > 1) {
        return Err(Fail::usage("--name is for one description; import the others by themselves"));
    }
    if let Some(preset) = &args.preset {
        provider::Preset::named(preset).map_err(|e| Fail::usage(e.message))?;
    }
    if args.choose && !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(Fail::usage(
            "--choose asks at a terminal, and there is none; nothing is written. Choose with --tag, --path or --operation",
        ));
    }
    let mut documents = Vec::new();
    for file in &args.files {
        documents.extend(one(&args, file, out)?);
    }
    out.document(&json!({ "imported": documents, "written": !args.dry_run }));
    Ok(0)
}

/// Imports one description, and says what became of it.
fn one(args: &Args, file: &Path, out: &Out) -> Result<Option<Value>, Fail> {
    let failed = |e: openapi::Error| Fail::usage(plain(&format!("{}: {e}", file.display())));
    let description = Description::read(&read(file, MAX_BYTES)?).map_err(failed)?;
    let name = args.name.clone().unwrap_or_else(|| description.name());
    if name.is_empty()
        || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        || name.len() > 64
    {
        return Err(Fail::usage(format!("the name {name:?} must be 1 to 64 of A-Z a-z 0-9 _ -")));
    }
    let chosen = if args.choose {
        let asked = choose(&description.operations(), &mut std::io::stdin().lock(), &mut std::io::stderr());
        asked.map_err(|e| Fail::usage(format!("the terminal can't be read: {e}; nothing is written")))?
    } else if args.all {
        Chosen::All
    } else {
        Chosen::These(Selection {
            tags: args.tag.clone(),
            paths: args.path.clone(),
            operations: args.operation.clone(),
        })
    };
    let all = chosen == Chosen::All;
    let selection = match chosen {
        Chosen::All => Selection::default(),
        Chosen::These(selection) => selection,
        Chosen::Nothing => {
            out.say(format!("{}: nothing is chosen, and nothing is written", file.display()));
            return Ok(None);
        }
    };
    let options = Options {
        name: Some(name.clone()),
        selection,
        all,
        base_url: args.base_url.clone(),
        sandbox_url: args.sandbox_url.clone(),
        variables: args.server_variable.iter().cloned().collect::<BTreeMap<_, _>>(),
        preset: args.preset.clone(),
    };
    let manifest = args.out.join(format!("{name}.toml"));
    let existing = if manifest.exists() { Some(read(&manifest, MAX_BYTES)?) } else { None };
    let imported = description.import(&options, existing.as_deref()).map_err(failed)?;
    let same = existing.as_ref().is_some_and(|e| *e == imported.manifest);
    if !args.dry_run && !same {
        write(&manifest, &imported.manifest)?;
    }
    let added = args.add.then(|| add(&args.config, &name, &manifest)).transpose()?;
    let written = Written { manifest: &manifest, same, dry_run: args.dry_run, added };
    tell(out, &imported, &written);
    let modes: Vec<&str> = imported.modes.iter().map(|m| m.as_str()).collect();
    let report = serde_json::to_value(&imported.report).map_err(|e| Fail::usage(e.to_string()))?;
    Ok(Some(
        json!({ "file": file.display().to_string(), "manifest": manifest.display().to_string(), "modes": modes,
            "configuration": added.map(Added::word), "report": report }),
    ))
}

/// A file's text, if it isn't larger than it may be.
fn read(file: &Path, most: usize) -> Result<String, Fail> {
    read_file(file, most).map_err(|why| Fail::usage(format!("{}: {why}", file.display())))
}

/// Puts a file in its place at once: whoever reads it sees the old or the new one. Who may read it stays so.
fn write(path: &Path, text: &str) -> Result<(), Fail> {
    let failed = |e: std::io::Error| {
        Fail::usage(format!("{} can't be written, and is as it was: {e}", path.display()))
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let beside = path.with_extension(format!("toml.{}", std::process::id()));
    let put = || {
        let mut file = std::fs::File::create(&beside)?;
        if let Ok(before) = std::fs::metadata(path) {
            #[cfg(unix)]
            {
                use std::os::unix::fs::{MetadataExt as _, fchown};
                fchown(&file, Some(before.uid()), Some(before.gid()))?;
            }
            file.set_permissions(before.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    put().map_err(|e| {
        let _ = std::fs::remove_file(&beside);
        failed(e)
    })
}

/// How many lines of one kind are shown to people; `--json` has them all.
const SHOWN: usize = 12;

/// What became of files.
struct Written<'a> {
    manifest: &'a Path,
    same: bool,
    dry_run: bool,
    added: Option<Added>,
}

fn tell(out: &Out, imported: &openapi::Imported, written: &Written<'_>) {
    let report = &imported.report;
    let done = match (written.dry_run, written.same) {
        (true, _) => "would be written",
        (_, true) => "is as it was",
        (false, false) => "written",
    };
    out.say(format!("{}  {done}", out.bold(&written.manifest.display().to_string())));
    let recovery: Vec<String> = report.recovery.iter().map(|(word, n)| format!("{n} {word}")).collect();
    let changing = report.methods - report.reading;
    let by =
        if recovery.is_empty() { String::new() } else { format!(" (recovery: {})", recovery.join(", ")) };
    out.say(format!(
        "  {} methods: {} read, {changing} change something{by}",
        report.methods, report.reading
    ));
    if let Some(preset) = &report.preset {
        out.say(format!("  preset {preset}: what is known of how this provider treats keys"));
    }
    if report.not_chosen > 0 {
        out.say(format!("  {} operations are not chosen", report.not_chosen));
    }
    let changes = &report.changes;
    lines(out, "added", &changes.added);
    lines(out, "removed", &changes.removed);
    let named = |all: &BTreeMap<String, Vec<String>>| -> Vec<String> {
        let name = |n: &String| if n.is_empty() { "(the integration)".to_owned() } else { n.clone() };
        all.iter().map(|(n, fields)| format!("{}: {}", name(n), fields.join(", "))).collect()
    };
    lines(out, "changed", &named(&changes.changed));
    lines(out, "kept as you have it", &named(&changes.kept));
    lines(out, "left out, as you took them out", &changes.left_out);
    let skipped: Vec<String> = report
        .skipped
        .iter()
        .map(|s| format!("{}: {} ({})", s.operation, s.detail, s.reason.word()))
        .collect();
    lines(out, "skipped", &skipped);
    let notes: Vec<String> = report
        .notes
        .iter()
        .map(|n| n.method.as_ref().map_or_else(|| n.note.clone(), |m| format!("{m}: {}", n.note)))
        .collect();
    lines(out, "notes", &notes);
    out.say("");
    match written.added {
        Some(Added::Now) => out.say("It is named in the configuration now."),
        Some(Added::Before) => out.say("The configuration names it."),
        None => {
            out.say("Name it in counterfoil.toml, if it isn't yet (--add does it):");
            out.say("");
            block(&report.integration, written.manifest)
                .lines()
                .for_each(|line| out.say(format!("  {line}")));
        }
    }
    out.say("");
    out.say(match imported.integration.secret_variable() {
        Some(variable) => format!(
            "Its credential is read from {variable}. To keep it encrypted instead, write secret = \"store\" in [auth] of the \
             manifest, and run: counterfoil auth connect {}",
            report.integration
        ),
        None if imported.integration.authenticates() => "Its credential is where [auth] of the manifest says.".into(),
        None => "Its description names no credential. If the provider wants one, add [auth] to the manifest.".into(),
    });
    let modes: Vec<&str> = imported.modes.iter().map(|m| m.as_str()).collect();
    if modes == ["production"] {
        out.say("");
        out.say("It has an address for production only; --sandbox-url gives it one for sandbox mode.");
    }
}

/// Text of a description, which must not move a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn lines(out: &Out, what: &str, all: &[String]) {
    if all.is_empty() {
        return;
    }
    out.say(out.dim(&format!("{what} ({})", all.len())));
    for line in all.iter().take(SHOWN) {
        out.say(format!("  {}", plain(line)));
    }
    if all.len() > SHOWN {
        out.say(format!("  and {} more; --json has them all", all.len() - SHOWN));
    }
}
