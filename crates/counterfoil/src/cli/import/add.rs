//! `import --add`: a manifest is named in the configuration too.

use super::super::fail::Fail;
use super::{read, write};
use crate::config::{Config, MAX_FILE};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// What became of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// It names the manifest now.
    Now,
    /// It named it before.
    Before,
}

impl Added {
    /// The word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Added::Now => "added",
            Added::Before => "there",
        }
    }
}

/// The lines that name a manifest, in a configuration of the same folder as the path is seen from.
pub(super) fn block(name: &str, manifest: &Path) -> String {
    let text = |text: &str| Value::String(text.to_owned()).to_string();
    format!("[[integration]]\nname = {}\nmanifest = {}\n", text(name), text(&manifest.display().to_string()))
}

/// Names a manifest, which is there, at the end of a configuration that does not name it yet. Else nothing is written.
pub(super) fn add(config: &Path, name: &str, manifest: &Path) -> Result<Added, Fail> {
    let failed = |why: String| Fail::usage(format!("{}: {why}; it is as it was", config.display()));
    let real = |path: &Path| {
        path.canonicalize().map_err(|e| failed(format!("{} can't be found: {e}", path.display())))
    };
    // A link stays one.
    let config = real(config)?;
    let manifest = real(manifest)?;
    let folder = config.parent().unwrap_or(Path::new("/"));
    let text = read(&config, MAX_FILE)?;
    let known: Table = toml::from_str(&text).map_err(|e| failed(format!("it can't be read: {e}")))?;
    let all = known.get("integration").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let field = |one: &Value, field: &str| one.get(field).and_then(Value::as_str).map(str::to_owned);
    if let Some(same) = all.iter().find(|one| field(one, "name").as_deref() == Some(name)) {
        let there = field(same, "manifest").map(|m| folder.join(m)).and_then(|m| m.canonicalize().ok());
        return match there == Some(manifest) {
            true => Ok(Added::Before),
            false => Err(failed(format!("the integration {name:?} has another manifest there"))),
        };
    }
    if manifest.to_str().is_none() {
        return Err(failed(
            "the manifest's path is no Unicode text, which a configuration can't hold".into(),
        ));
    }
    let shown: PathBuf = manifest.strip_prefix(folder).map_or(manifest.clone(), Path::to_path_buf);
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let new = format!("{text}{gap}\n{}", block(name, &shown));
    let count = |t: &Table| t.get("integration").and_then(Value::as_array).map_or(0, Vec::len);
    match toml::from_str::<Table>(&new) {
        Ok(after) if count(&after) == all.len() + 1 && new.len() <= MAX_FILE => {}
        _ => return Err(failed("the integration can't be named at its end".into())),
    }
    // What was wrong before is told elsewhere; that it was right and isn't any more would be this command's doing.
    let reads = |text: &str| Config::parse(&config, text, std::env::vars_os());
    if let (Ok(_), Err(e)) = (reads(&text), reads(&new)) {
        return Err(failed(format!("with this integration it would be refused: {e}")));
    }
    write(&config, &new)?;
    Ok(Added::Now)
}
