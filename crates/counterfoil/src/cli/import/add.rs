//! `import --add`: a manifest is named in the configuration too.

use super::super::fail::Fail;
use super::{read, write};
use crate::config::{Config, MAX_FILE};
use std::io;
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

/// A configuration in which manifests are being named. Nothing is written before it is told so.
pub(super) struct Adding {
    config: PathBuf,
    before: String,
    text: String,
}

impl Adding {
    /// Reads the configuration.
    pub fn to(config: &Path) -> Result<Adding, Fail> {
        // A link stays one.
        let config = config
            .canonicalize()
            .map_err(|e| unchanged(config, &format!("{} can't be found: {e}", config.display())))?;
        let before = read(&config, MAX_FILE)?;
        Ok(Adding { text: before.clone(), config, before })
    }

    /// Names a manifest, which may be still to be written, at the end if it isn't named yet.
    pub fn name(&mut self, name: &str, manifest: &Path) -> Result<Added, Fail> {
        let failed = |why: String| unchanged(&self.config, &why);
        let manifest =
            real(manifest).map_err(|e| failed(format!("{} can't be found: {e}", manifest.display())))?;
        let folder = self.config.parent().unwrap_or(Path::new("/"));
        let known: Table =
            toml::from_str(&self.text).map_err(|e| failed(format!("it can't be read: {e}")))?;
        let all = known.get("integration").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let field = |one: &Value, field: &str| one.get(field).and_then(Value::as_str).map(str::to_owned);
        if let Some(same) = all.iter().find(|one| field(one, "name").as_deref() == Some(name)) {
            let there = field(same, "manifest").and_then(|m| real(&folder.join(m)).ok());
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
        let gap = if self.text.is_empty() || self.text.ends_with('\n') { "" } else { "\n" };
        let new = format!("{}{gap}\n{}", self.text, block(name, &shown));
        let count = |t: &Table| t.get("integration").and_then(Value::as_array).map_or(0, Vec::len);
        match toml::from_str::<Table>(&new) {
            Ok(after) if count(&after) == all.len() + 1 && new.len() <= MAX_FILE => {}
            _ => return Err(failed("the integration can't be named at its end".into())),
        }
        // What was wrong before is told elsewhere; that it was right and isn't any more would be this command's doing.
        let reads = |text: &str| Config::parse(&self.config, text, std::env::vars_os());
        if let (Ok(_), Err(e)) = (reads(&self.text), reads(&new)) {
            return Err(failed(format!("with this integration it would be refused: {e}")));
        }
        self.text = new;
        Ok(Added::Now)
    }

    /// Writes it, if anything is new.
    pub fn write(self) -> Result<(), Fail> {
        if self.text == self.before { Ok(()) } else { write(&self.config, &self.text) }
    }
}

/// Nothing was written: neither it nor a manifest.
fn unchanged(config: &Path, why: &str) -> Fail {
    Fail::usage(format!("{}: {why}; it is as it was, and no manifest is written", config.display()))
}

/// Where a file is or would be, without links in its folder.
fn real(path: &Path) -> io::Result<PathBuf> {
    match (path.canonicalize(), path.file_name()) {
        (Err(e), Some(name)) if e.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Ok(real(folder)?.join(name))
        }
        (found, _) => found,
    }
}
