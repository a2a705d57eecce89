//! The key of a store: in a file of its own beside it, or in the session's keyring.
//!
//! It is named after itself, in either place: a store that is changed over to another key finds the old one until the new one
//! is in use, whenever it is interrupted.

use crate::error::Error;
use crate::{files, keyring};
use seal::{MasterId, MasterKey};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The longest text of a key that is read, in bytes.
const LONGEST: u64 = 4096;

/// Where a store's key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyAt {
    /// In a file beside it (0600).
    File,
    /// In the session's keyring.
    Keyring,
}

impl KeyAt {
    /// The place of a key with this name, for people.
    #[must_use]
    pub fn shown(self, dir: &Path, id: &str) -> String {
        match self {
            KeyAt::File => file(dir, id).display().to_string(),
            KeyAt::Keyring => format!("the keyring's entry {}", entry(id)),
        }
    }

    /// Reads the key. May wait for a person to unlock the keyring: blocks the thread.
    pub(crate) fn get(self, dir: &Path, id: MasterId) -> Result<MasterKey, String> {
        let shown = id.to_string();
        let text = match self {
            KeyAt::File => {
                let path = file(dir, &shown);
                let bytes = files::read(&path, LONGEST).map_err(|e| e.to_string())?;
                let bytes = bytes.ok_or_else(|| format!("{} is not there", path.display()))?;
                let text = std::str::from_utf8(&bytes).map_err(|_| "its file is damaged".to_owned())?;
                Zeroizing::new(text.to_owned())
            }
            KeyAt::Keyring => Zeroizing::new(keyring::read(&entry(&shown), LONGEST)?),
        };
        let key = MasterKey::read(&text).map_err(|_| "what is there is not a key".to_owned())?;
        if key.id() == id { Ok(key) } else { Err(format!("what is there is another key, {}", key.id())) }
    }

    /// Makes a new one and keeps it, before anything is sealed under it.
    pub(crate) fn make(self, dir: &Path) -> Result<MasterKey, Error> {
        let key = MasterKey::new().map_err(|_| Error::Random)?;
        let id = key.id().to_string();
        match self {
            KeyAt::File => {
                let text = Zeroizing::new(format!("{}\n", *key.text()));
                files::replace(&file(dir, &id), text.as_bytes())?;
            }
            KeyAt::Keyring => {
                keyring::write(&entry(&id), &key.text()).map_err(Error::Keyring)?;
                // What can't be read back would be lost with all that is sealed under it.
                self.get(dir, key.id()).map_err(Error::Keyring)?;
            }
        }
        Ok(key)
    }

    /// Takes an old one away, if that can be done.
    pub(crate) fn drop(self, dir: &Path, id: MasterId) {
        let id = id.to_string();
        match self {
            KeyAt::File => drop(std::fs::remove_file(file(dir, &id))),
            KeyAt::Keyring => keyring::clear(&entry(&id)),
        }
    }
}

fn file(dir: &Path, id: &str) -> PathBuf {
    dir.join(format!("{id}.key"))
}

fn entry(id: &str) -> String {
    format!("credentials-{id}")
}
