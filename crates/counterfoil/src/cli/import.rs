//! `import`: integration manifests from descriptions of APIs. What an operator has changed in a manifest stays.

mod add;
mod beside;
mod choose;
mod tell;

use super::fail::{Done, Fail};
use super::out::Out;
use crate::config::{FILE, read_file};
use add::{Added, Adding};
use beside::Beside;
use choose::{Chosen, choose};
use openapi::read::MAX_BYTES;
use openapi::report::Report;
use openapi::{Description, Options, Selection};
use provider::Mode;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use tell::{plain, tell};

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
    let (mut prepared, mut beside) = (Vec::<Prepared>::new(), Beside::default());
    for file in &args.files {
        if let Some(one) = prepare(&args, file, &prepared, &mut beside, out)? {
            beside.add(file, &one.manifest, &one.text);
            prepared.push(one);
        }
    }
    // Whatever is refused, is refused before anything is written.
    let mut configuration = args.add.then(|| Adding::to(&args.config)).transpose()?;
    if let Some(configuration) = &mut configuration {
        for one in &mut prepared {
            one.added = Some(configuration.name(&one.name, &one.manifest)?);
        }
    }
    if !args.dry_run {
        write_all(&prepared, configuration)?;
    }
    let mut documents = Vec::new();
    for one in &prepared {
        tell(out, one, args.dry_run);
        let modes: Vec<&str> = one.modes.iter().map(|m| m.as_str()).collect();
        let report = serde_json::to_value(&one.report).map_err(|e| Fail::usage(e.to_string()))?;
        documents.push(json!({
            "file": one.file.display().to_string(), "manifest": one.manifest.display().to_string(), "modes": modes,
            "configuration": one.added.map(Added::word), "report": report,
        }));
    }
    out.document(&json!({ "imported": documents, "written": !args.dry_run }));
    Ok(0)
}

/// A description that was imported, and nothing written of it yet. There may be many: of the loaded integration only what is
/// told is kept.
struct Prepared {
    file: PathBuf,
    name: String,
    manifest: PathBuf,
    /// The manifest is there, and is the same.
    same: bool,
    text: String,
    report: Report,
    modes: Vec<Mode>,
    /// The variable of its credential, if that is where it is.
    secret_variable: Option<String>,
    authenticates: bool,
    /// What becomes of the configuration.
    added: Option<Added>,
}

/// Imports one description. Nothing is written.
fn prepare(
    args: &Args,
    file: &Path,
    before: &[Prepared],
    beside: &mut Beside,
    out: &Out,
) -> Result<Option<Prepared>, Fail> {
    let said = |e: &dyn std::fmt::Display| Fail::usage(plain(&format!("{}: {e}", file.display())));
    let description = Description::read(&read(file, MAX_BYTES)?).map_err(|e| said(&e))?;
    let name = args.name.clone().unwrap_or_else(|| description.name());
    if name.is_empty()
        || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        || name.len() > 64
    {
        return Err(Fail::usage(format!("the name {name:?} must be 1 to 64 of A-Z a-z 0-9 _ -")));
    }
    if let Some(other) = before.iter().find(|b| b.name == name) {
        return Err(said(&format_args!(
            "by its title its name is {name:?}, and so is that of {}; nothing is written. Import one of them by itself, with --name",
            other.file.display()
        )));
    }
    let manifest = args.out.join(format!("{name}.toml"));
    let existing = if manifest.exists() { Some(read(&manifest, MAX_BYTES)?) } else { None };
    if args.name.is_none() && existing.is_none() {
        beside.unforked(&args.out, &description, &name).map_err(|e| said(&e))?;
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
        replace: args.name.is_some(),
    };
    let imported = description.import(&options, existing.as_deref()).map_err(|e| match e {
        openapi::Error::Other { .. } | openapi::Error::Existing(_) => {
            said(&format_args!("{}: {e}", manifest.display()))
        }
        e => said(&e),
    })?;
    let same = existing.as_ref().is_some_and(|e| *e == imported.manifest);
    let integration = imported.integration;
    Ok(Some(Prepared {
        file: file.to_owned(),
        name,
        manifest,
        same,
        text: imported.manifest,
        report: imported.report,
        modes: imported.modes,
        secret_variable: integration.secret_variable().map(str::to_owned),
        authenticates: integration.authenticates(),
        added: None,
    }))
}

/// Writes all that is new. Where that fails, it is said what is written already.
fn write_all(prepared: &[Prepared], configuration: Option<Adding>) -> Result<(), Fail> {
    let mut written: Vec<String> = Vec::new();
    let also = |fail: Fail, written: &[String]| match written {
        [] => fail,
        all => Fail::usage(format!("{}; written before that: {}", fail.message, all.join(", "))),
    };
    for one in prepared.iter().filter(|p| !p.same) {
        write(&one.manifest, &one.text).map_err(|e| also(e, &written))?;
        written.push(one.manifest.display().to_string());
    }
    configuration.map_or(Ok(()), Adding::write).map_err(|e| also(e, &written))
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
