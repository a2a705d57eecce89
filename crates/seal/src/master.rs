//! The master key: what the ring is wrapped under. The ledger never has it.

use crate::key::{derive, name, random};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use std::fmt;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The file that is made beside the ledger where no master key is given.
pub const FILE: &str = "master.key";

/// 256 random bits. Wiped when it is let go, and never printed.
#[derive(Clone)]
pub struct MasterKey {
    secret: Zeroizing<[u8; 32]>,
    id: MasterId,
}

/// A master key's name: derived from it, and telling nothing of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MasterId([u8; 16]);

impl MasterId {
    /// Reads one as it is shown.
    #[must_use]
    pub fn read(text: &str) -> Option<MasterId> {
        text.strip_prefix("mk-").and_then(|t| crate::KeyId::read(t.as_bytes())).map(|id| {
            let mut out = [0; 16];
            out.copy_from_slice(id.as_str().as_bytes());
            MasterId(out)
        })
    }
}

impl fmt::Display for MasterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mk-{}", std::str::from_utf8(&self.0).unwrap_or_default())
    }
}
impl fmt::Debug for MasterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why there is no master key. None of its text holds one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MasterError {
    /// What was given is no key.
    #[error(
        "the master key is not 32 bytes, written as base64 or as 64 hexadecimal digits; make one with `openssl rand -base64 32`, and give every replica the same"
    )]
    Unreadable,
    /// The file can't be used.
    #[error("the master key in {file} can't be used: {why}")]
    File {
        /// Its name.
        file: String,
        /// What is wrong, and what to do.
        why: String,
    },
}

impl MasterKey {
    /// A new one, from the operating system.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn new() -> Result<MasterKey, getrandom::Error> {
        Ok(MasterKey::of(random()?))
    }

    fn of(secret: Zeroizing<[u8; 32]>) -> MasterKey {
        let id = MasterId(name(&derive(&secret, "counterfoil seal master id v1")));
        MasterKey { secret, id }
    }

    /// Reads one: 32 bytes as base64 (either alphabet, with or without padding) or hexadecimal digits.
    ///
    /// # Errors
    /// [`MasterError::Unreadable`].
    pub fn read(text: &str) -> Result<MasterKey, MasterError> {
        let text = text.trim();
        let mut bytes = Zeroizing::new(Vec::new());
        if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
            for pair in text.as_bytes().chunks_exact(2) {
                let digit = |b: u8| char::from(b).to_digit(16).unwrap_or(0);
                bytes.push(u8::try_from(digit(pair[0]) << 4 | digit(pair[1])).unwrap_or(0));
            }
        } else {
            let plain = text.trim_end_matches('=');
            let alphabet = if plain.contains(['-', '_']) { URL_SAFE_NO_PAD } else { STANDARD_NO_PAD };
            *bytes = alphabet.decode(plain).map_err(|_| MasterError::Unreadable)?;
        }
        let mut secret = Zeroizing::new([0; 32]);
        if bytes.len() != secret.len() {
            return Err(MasterError::Unreadable);
        }
        secret.copy_from_slice(&bytes);
        Ok(MasterKey::of(secret))
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> MasterId {
        self.id
    }

    /// The key that wraps: the master key itself encrypts nothing.
    pub(crate) fn wrapping(&self) -> crate::Key {
        self.derived("counterfoil seal wrap v1")
    }

    /// The key for one purpose.
    pub(crate) fn derived(&self, purpose: &str) -> crate::Key {
        crate::Key::from_bytes(derive(&self.secret, purpose))
    }

    /// As it is written into a file or keyring.
    #[must_use]
    pub fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(URL_SAFE_NO_PAD.encode(self.secret.as_slice()))
    }
}

impl PartialEq for MasterKey {
    /// In constant time.
    fn eq(&self, other: &MasterKey) -> bool {
        self.wrapping() == other.wrapping()
    }
}
impl Eq for MasterKey {}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", self.id)
    }
}

/// Where the master key is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterPlace {
    /// It was given.
    Given(MasterKey),
    /// A file of this user's, made where there is no ring yet.
    File(PathBuf),
}

impl MasterPlace {
    /// For people.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            MasterPlace::Given(_) => "from [seal] master".into(),
            MasterPlace::File(path) => path.display().to_string(),
        }
    }

    /// The key, if it is there.
    ///
    /// # Errors
    /// [`MasterError`]: the file is there and can't be used, or others can read it.
    pub fn get(&self) -> Result<Option<MasterKey>, MasterError> {
        let path = match self {
            MasterPlace::Given(key) => return Ok(Some(key.clone())),
            MasterPlace::File(path) => path,
        };
        let fail = |why: String| MasterError::File { file: path.display().to_string(), why };
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(fail(format!("{e}; check that it is yours and readable"))),
        };
        let about = file.metadata().map_err(|e| fail(e.to_string()))?;
        if !about.is_file() {
            return Err(fail("it is not a file; move it away".into()));
        }
        if about.mode() & 0o077 != 0 {
            let why = format!(
                "others may read it (its mode is {:04o}); `chmod 600` it, and if others can log in here, make another one with `counterfoil keys allow` and `keys forbid`",
                about.mode() & 0o7777
            );
            return Err(fail(why));
        }
        let mut text = Zeroizing::new(String::new());
        file.take(4096).read_to_string(&mut text).map_err(|e| fail(e.to_string()))?;
        let damaged =
            |_| fail("it doesn't hold 32 bytes, written as base64; restore it from a backup".into());
        MasterKey::read(&text).map(Some).map_err(damaged)
    }
}

/// Writes a new key's file, for this user only, on the disk before anything is wrapped under it. `false`: there is one
/// already.
pub(crate) fn write(path: &Path, key: &MasterKey) -> Result<bool, MasterError> {
    let fail = |e: std::io::Error| MasterError::File {
        file: path.display().to_string(),
        why: format!("{e}; check that the directory is yours and writable, or set [seal] master"),
    };
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Under another name first: a crash must not leave half a key under this one.
    let half = dir.join(format!(".{FILE}.{}", key.id()));
    let written = || -> std::io::Result<bool> {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&half)?;
        file.write_all(key.text().as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        // A link, unlike a rename, takes nobody's place.
        match std::fs::hard_link(&half, path) {
            Ok(()) => {
                std::fs::File::open(dir)?.sync_all()?;
                Ok(true)
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(e),
        }
    };
    let done = written();
    let _ = std::fs::remove_file(&half);
    done.map_err(fail)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_is_read_in_every_spelling_of_its_bytes() {
        let bytes: Vec<u8> = (0..32).map(|i| 255 - i * 7).collect();
        let hex: String = bytes.iter().map(|b| format!("{b:02X}")).collect();
        let base = STANDARD_NO_PAD.encode(&bytes);
        let url = URL_SAFE_NO_PAD.encode(&bytes);
        assert!(base.contains(['+', '/']), "{base}");
        let key = MasterKey::read(&hex).unwrap();
        for text in [hex.to_lowercase(), base.clone(), format!("{base}="), url.clone(), format!(" {url}=\n")]
        {
            assert_eq!(MasterKey::read(&text).unwrap(), key);
        }
        assert_eq!(MasterId::read(&key.id().to_string()), Some(key.id()));
        assert_eq!(format!("{key:?}"), format!("MasterKey({})", key.id()));
        for bad in ["", "hunter2", &hex[1..], &base[1..], &format!("{base}A"), &"g".repeat(64)] {
            let e = MasterKey::read(bad).unwrap_err();
            assert!(bad.is_empty() || !e.to_string().contains(bad));
        }
    }

    #[test]
    fn its_file_is_made_once_and_for_one_user() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let place = MasterPlace::File(path.clone());
        assert_eq!(place.get(), Ok(None));
        let key = MasterKey::new().unwrap();
        assert!(write(&path, &key).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(place.get().unwrap().unwrap(), key);
        assert!(!write(&path, &MasterKey::new().unwrap()).unwrap(), "it takes nobody's place");
        assert_eq!(place.get().unwrap().unwrap(), key);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let open = place.get().unwrap_err().to_string();
        assert!(open.contains("0640") && open.contains("chmod 600"), "{open}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "half a k").unwrap();
        let damaged = place.get().unwrap_err().to_string();
        assert!(damaged.contains("32 bytes") && !damaged.contains("half a k"), "{damaged}");
    }
}
