//! `[seal]`: the master key under which the ledger keeps the key ring, and how long sealed state lives.

use super::At;
use super::environment::Environment;
use super::node::Reader;
use super::values;
use ledger::Millis;
use seal::MasterKey;
use std::path::Path;

/// How long sealed state lives, by default.
pub(super) const STATE_TTL: Millis = Millis::secs(600);

/// `[seal]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealConfig {
    /// What the key ring is wrapped under; none: the file `master.key` beside an SQLite ledger. It is never printed.
    pub master: Option<MasterKey>,
    /// How long a sealed token lives.
    pub state_ttl: Millis,
    /// Whether a state of a request that only reads may be brought back once.
    pub single_use: bool,
}

impl Default for SealConfig {
    fn default() -> SealConfig {
        SealConfig { master: None, state_ttl: STATE_TTL, single_use: false }
    }
}

/// Reads `[seal]`.
pub(super) fn read(section: &Reader<'_>, environment: &Environment, base: &Path) -> SealConfig {
    section.parsed("keys", |text| match text {
        "ledger" => Ok(()),
        _ => Err(format!("{text:?} is unknown; the key ring is kept in the \"ledger\"")),
    });
    let ttl = section.parsed("state_ttl", |t| values::duration(t, Millis::secs(30), seal::LONGEST_LIFETIME));
    let master =
        section.secret("master").and_then(|(text, at)| match self::master(&text, &at, environment, base) {
            Ok(key) => Some(key),
            Err(why) => {
                section.faults.add(&at, format!("master: {why}"));
                None
            }
        });
    let single_use = section.bool("single_use");
    section.finish();
    SealConfig {
        master,
        state_ttl: ttl.map_or(STATE_TTL, |(t, _)| t),
        single_use: single_use.is_some_and(|(yes, _)| yes),
    }
}

fn master(text: &str, at: &At, environment: &Environment, base: &Path) -> Result<MasterKey, String> {
    if matches!(at, At::Line(..)) && !text.contains("${") {
        return Err(
            "a secret is named, \"${env:NAME}\", \"${file:PATH}\" or \"${keyring:NAME}\", never written"
                .into(),
        );
    }
    MasterKey::read(&environment.secret(text, base)?).map_err(|e| e.to_string())
}

/// The text of a master key as a command is told it: named as in the file, because others see command lines.
#[cfg(feature = "cli")]
pub(crate) fn named_master(text: &str) -> Result<String, String> {
    if !text.contains("${") {
        return Err("name the key, '${env:NAME}', '${file:PATH}' or '${keyring:NAME}' (in single quotes), instead of writing it: others can see command lines".into());
    }
    let environment = Environment::new(std::env::vars_os());
    let key = environment.secret(text, Path::new(""))?;
    MasterKey::read(&key).map_err(|e| e.to_string())?;
    Ok(key)
}
