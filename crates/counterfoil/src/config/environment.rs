//! `COUNTERFOIL__SECTION__KEY`: the environment over the file.

use super::error::At;
use super::node::{Entry, Faults, Kind, Node};
use credentials::keyring;
use provider::nearest;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

const PREFIX: &str = "COUNTERFOIL__";
/// Sections whose keys are fixed words. Tools and integrations have names of their own and are set in the file.
const SECTIONS: [&str; 9] =
    ["server", "ledger", "bus", "seal", "auth", "lists", "defaults", "alerts", "sandbox"];
/// The largest secret that is read from a file, in bytes.
const MAX_SECRET: u64 = 64 << 10;

/// The environment as it was when the configuration was read.
pub(super) struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    pub fn new<K: Into<OsString>, V: Into<OsString>>(all: impl IntoIterator<Item = (K, V)>) -> Environment {
        Environment(all.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }

    /// What `${env:NAME}`, `${file:PATH}` or `${keyring:NAME}` stands for; any other text is itself. Messages never hold the value.
    pub fn secret(&self, text: &str, base: &Path) -> Result<String, String> {
        if !text.contains("${") {
            return Ok(text.to_owned());
        }
        let inside =
            text.strip_prefix("${").and_then(|t| t.strip_suffix('}')).and_then(|t| t.split_once(':'));
        let value = match inside {
            Some(("env", name)) if !name.is_empty() => {
                let value = self
                    .0
                    .get(OsStr::new(name))
                    .ok_or_else(|| format!("the environment variable {name} is not set"))?;
                value
                    .to_str()
                    .ok_or_else(|| format!("the environment variable {name} is not UTF-8"))?
                    .to_owned()
            }
            Some(("file", path)) if !path.is_empty() => {
                use std::io::Read as _;
                let fail = |e: std::io::Error| format!("the file {path} can't be read: {}", e.kind());
                let mut value = String::new();
                let file = std::fs::File::open(base.join(path)).map_err(fail)?;
                file.take(MAX_SECRET).read_to_string(&mut value).map_err(fail)?;
                value
            }
            Some(("keyring", name)) if !name.is_empty() && !name.starts_with('-') => {
                keyring::read(name, MAX_SECRET)?
            }
            _ => {
                return Err(
                    "a secret is written \"${env:NAME}\", \"${file:PATH}\" or \"${keyring:NAME}\", with nothing around it".into(),
                );
            }
        };
        let value = value.trim();
        if value.is_empty() { Err("the secret is empty".into()) } else { Ok(value.to_owned()) }
    }

    /// Puts what the environment says into the tree. Unknown keys are found by whoever reads the section.
    pub fn overlay(&self, entries: &mut Vec<Entry>, faults: &Faults) {
        for (name, value) in &self.0 {
            let Some(name) = name.to_str().filter(|n| n.starts_with(PREFIX)) else { continue };
            let at = At::Variable(name.to_owned());
            let Some(value) = value.to_str() else {
                faults.add(&at, "its value is not UTF-8");
                continue;
            };
            let rest = name[PREFIX.len()..].to_ascii_lowercase();
            let Some((section, key)) = rest.split_once("__").filter(|(s, k)| !s.is_empty() && !k.is_empty())
            else {
                faults.add(&at, "must be COUNTERFOIL__SECTION__KEY, for example COUNTERFOIL__SERVER__LISTEN");
                continue;
            };
            if !SECTIONS.contains(&section) {
                let hint = match nearest(section, SECTIONS) {
                    Some(near) => {
                        format!(
                            "did you mean COUNTERFOIL__{}__{}?",
                            near.to_ascii_uppercase(),
                            key.to_ascii_uppercase()
                        )
                    }
                    None => format!(
                        "the environment can set keys of {}",
                        SECTIONS.map(|s| format!("[{s}]")).join(", ")
                    ),
                };
                faults.add(
                    &at,
                    format!("there is no section [{section}] that the environment can set; {hint}"),
                );
                continue;
            }
            put(entries, section, key, Node { at: at.clone(), kind: Kind::Variable(value.to_owned()) });
        }
    }
}

fn put(entries: &mut Vec<Entry>, section: &str, key: &str, value: Node) {
    let at = value.at.clone();
    let index = entries.iter().position(|e| e.key == section).unwrap_or_else(|| {
        let table = Node { at: at.clone(), kind: Kind::Table(Vec::new()) };
        entries.push(Entry { key: section.to_owned(), at: at.clone(), value: table });
        entries.len() - 1
    });
    // A section of another type is refused by its reader.
    let Kind::Table(table) = &mut entries[index].value.kind else { return };
    table.retain(|e| e.key != key);
    table.push(Entry { key: key.to_owned(), at, value });
}
