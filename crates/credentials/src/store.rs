//! The file: read whole, written whole.

use crate::entry::{self, About, Secret};
use crate::error::Error;
use crate::files::{self, Lock, Stamp};
use crate::key::KeyAt;
use seal::{MasterId, MasterKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The form that is written. A newer one is left alone.
const FORM: u32 = 1;
/// The largest file, in bytes, and the most entries.
const MAX_FILE: u64 = 4 << 20;
const MAX_ENTRIES: usize = 200;
/// The longest that is told of a credential, in bytes.
const MAX_ABOUT: usize = 4 << 10;
/// How long another process may hold the lock for a write.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long another process may take to renew an account's tokens.
pub(crate) const RENEWED_WITHIN: Duration = Duration::from_secs(25);

const NAME: &str = "store.json";

/// Seconds since 1970, by the wall clock.
#[must_use]
pub fn unix_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// As it is kept.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    form: u32,
    key: KeyText,
    entries: Vec<Entry>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyText {
    at: KeyAt,
    id: String,
}

/// One entry: what is told of it, and the rest under the key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What is told.
    pub about: About,
    sealed: String,
}

impl Entry {
    /// Whether it is the same writing.
    pub(crate) fn is(&self, other: &Entry) -> bool {
        self.sealed == other.sealed && self.about == other.about
    }
}

/// What is in a store, without the key: nothing of it opens.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Where the key is.
    pub key_at: KeyAt,
    /// The key's name.
    pub key_id: String,
    id: MasterId,
    /// The entries.
    pub entries: Vec<Entry>,
}

/// The credentials of a user, in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// The one in this folder, which need not be there yet.
    #[must_use]
    pub fn at(dir: PathBuf) -> Store {
        Store { dir }
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.dir
    }

    /// Its file.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.dir.join(NAME)
    }

    pub(crate) fn stamp(&self) -> Option<Stamp> {
        files::stamp(&self.file())
    }

    /// What is in it; `None`: nothing was ever kept.
    ///
    /// # Errors
    /// It can't be used as it is; see [`Error`].
    pub fn look(&self) -> Result<Option<Listing>, Error> {
        #[derive(Deserialize)]
        struct Form {
            form: u32,
        }
        if !files::check_folder(&self.dir)? {
            return Ok(None);
        }
        let Some(bytes) = files::read(&self.file(), MAX_FILE)? else { return Ok(None) };
        let damaged = |what| Error::Damaged { path: self.file(), what };
        let form: Form = serde_json::from_slice(&bytes).map_err(|_| damaged("it is no such file"))?;
        if form.form > FORM {
            return Err(Error::Newer { path: self.file(), form: form.form });
        }
        let kept: Kept = serde_json::from_slice(&bytes).map_err(|_| damaged("a part of it can't be read"))?;
        if kept.entries.len() > MAX_ENTRIES {
            return Err(damaged("it has more entries than are kept"));
        }
        let id = MasterId::read(&kept.key.id).ok_or_else(|| damaged("the name of its key can't be read"))?;
        Ok(Some(Listing { key_at: kept.key.at, key_id: kept.key.id, id, entries: kept.entries }))
    }

    /// The key that its entries open with. May wait for the keyring: blocks the thread.
    ///
    /// # Errors
    /// [`Error::NoKey`].
    pub(crate) fn key(&self, listing: &Listing) -> Result<MasterKey, Error> {
        let id = listing.key_id.clone();
        listing.key_at.get(&self.dir, listing.id).map_err(|why| Error::NoKey { path: self.file(), id, why })
    }

    /// Opens an entry. Blocks the thread.
    ///
    /// # Errors
    /// The key is not to be had, or the entry does not open.
    pub fn open(&self, listing: &Listing, entry: &Entry) -> Result<Secret, Error> {
        open(&self.key(listing)?, entry)
    }

    /// Keeps a credential, in the place of the one that is there for the same account, mode, issuer and origin. `key_at`:
    /// where the key is made, if there is none yet. Blocks the thread.
    ///
    /// # Errors
    /// Nothing was changed.
    pub fn put(&self, about: About, secret: &Secret, key_at: KeyAt) -> Result<(), Error> {
        files::make_folder(&self.dir)?;
        let _turn = self.turn()?;
        let listing = self.look()?;
        let (key_at, key, mut entries) = match listing {
            Some(l) => (l.key_at, self.key(&l)?, l.entries),
            None => (key_at, key_at.make(&self.dir)?, Vec::new()),
        };
        let told = serde_json::to_vec(&about).map_or(usize::MAX, |text| text.len());
        if told > MAX_ABOUT {
            return Err(Error::TooMuch(format!(
                "what is told of this credential (scopes, addresses) has more than {MAX_ABOUT} bytes; nothing was changed"
            )));
        }
        let sealed = entry::close(&key, &about, secret)?;
        entries.retain(|e| !about.replaces(&e.about));
        entries.push(Entry { about, sealed });
        if entries.len() > MAX_ENTRIES {
            return Err(Error::TooMuch(format!(
                "the store keeps {MAX_ENTRIES} credentials at most; forget one first. Nothing was changed"
            )));
        }
        self.write(key_at, key.id(), entries)
    }

    /// The same by a person: not while another process renews the tokens that were there. Blocks the thread.
    ///
    /// # Errors
    /// Nothing was changed.
    pub fn connect(&self, about: About, secret: &Secret, key_at: KeyAt) -> Result<(), Error> {
        let _renewal = self.renewal(&about.account, &about.mode, RENEWED_WITHIN)?;
        self.put(about, secret, key_at)
    }

    /// Forgets those of an account and mode; how many there were. The key is not needed for it.
    ///
    /// # Errors
    /// Nothing was changed.
    pub fn forget(&self, account: &str, mode: &str) -> Result<usize, Error> {
        if !files::check_folder(&self.dir)? {
            return Ok(0);
        }
        // Or a renewal that is under way would bring it back.
        let _renewal = self.renewal(account, mode, RENEWED_WITHIN)?;
        let _turn = self.turn()?;
        let Some(mut listing) = self.look()? else { return Ok(0) };
        let before = listing.entries.len();
        listing.entries.retain(|e| e.about.account != account || e.about.mode != mode);
        let gone = before - listing.entries.len();
        if gone > 0 {
            self.write(listing.key_at, listing.id, listing.entries)?;
        }
        Ok(gone)
    }

    /// Gives the store a new key, in this place, and takes the old one away. Blocks the thread.
    ///
    /// # Errors
    /// What is kept opens: with the key that it had, or, where it was written already and only that could not be made sure
    /// of, with the new one. No key is taken away that it may need.
    pub fn rekey(&self, key_at: KeyAt) -> Result<Option<Listing>, Error> {
        self.rekey_by(key_at, |id, entries| self.write(key_at, id, entries))
    }

    fn rekey_by(
        &self,
        key_at: KeyAt,
        write: impl FnOnce(MasterId, Vec<Entry>) -> Result<(), Error>,
    ) -> Result<Option<Listing>, Error> {
        if !files::check_folder(&self.dir)? {
            return Ok(None);
        }
        let _turn = self.turn()?;
        let Some(old) = self.look()? else { return Ok(None) };
        let key = self.key(&old)?;
        let opened: Result<Vec<Secret>, Error> = old.entries.iter().map(|e| open(&key, e)).collect();
        let opened = opened?;
        let new = key_at.make(&self.dir)?;
        let sealed = old.entries.iter().zip(&opened).map(|(e, secret)| {
            Ok(Entry { about: e.about.clone(), sealed: entry::close(&new, &e.about, secret)? })
        });
        let written = sealed.collect::<Result<Vec<_>, Error>>().and_then(|e| write(new.id(), e));
        if let Err(e) = written {
            // A write can fail after the file took its place: what is on the disk tells which key it needs.
            if self.look().is_ok_and(|now| now.is_some_and(|now| now.id == old.id)) {
                key_at.drop(&self.dir, new.id());
            }
            return Err(e);
        }
        old.key_at.drop(&self.dir, old.id);
        self.look()
    }

    fn write(&self, key_at: KeyAt, id: MasterId, entries: Vec<Entry>) -> Result<(), Error> {
        let kept = Kept { form: FORM, key: KeyText { at: key_at, id: id.to_string() }, entries };
        let unwritten = || Error::TooMuch("the credential store could not be written".into());
        let mut text = serde_json::to_vec_pretty(&kept).map_err(|_| unwritten())?;
        text.push(b'\n');
        if text.len() as u64 > MAX_FILE {
            return Err(Error::TooMuch(
                "the credential store is full; forget a credential first. Nothing was changed".into(),
            ));
        }
        files::replace(&self.file(), &text)
    }

    /// The turn to write.
    fn turn(&self) -> Result<Lock, Error> {
        files::lock(self.dir.join("store.lock"), PATIENCE)
    }

    /// The turn to renew the tokens of one account, between processes. Blocks the thread.
    ///
    /// # Errors
    /// Another process renews it for longer than `patience`.
    pub(crate) fn renewal(&self, account: &str, mode: &str, patience: Duration) -> Result<Lock, Error> {
        files::make_folder(&self.dir)?;
        let mut digest = Sha256::new();
        for part in [account, mode] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        let name: String = digest.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect();
        files::lock(self.dir.join(format!("renew-{name}.lock")), patience)
    }
}

/// Opens an entry with the store's key.
pub(crate) fn open(key: &MasterKey, entry: &Entry) -> Result<Secret, Error> {
    entry::open(key, &entry.about, &entry.sealed)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use zeroize::Zeroizing;

    const CANARY: &str = "CANARY_31fa";

    fn about(account: &str, mode: &str, origin: &str) -> About {
        About {
            account: account.into(),
            mode: mode.into(),
            kind: "bearer".into(),
            origins: vec![origin.into()],
            issuer: None,
            client: None,
            mark: "0001".into(),
            since: 1,
            renewed: None,
            expires: None,
            renewable: false,
            scopes: vec![],
            refused: None,
        }
    }

    fn secret(text: &str) -> Secret {
        Secret { secret: Some(Zeroizing::new(text.into())), ..Secret::default() }
    }

    fn store() -> (tempfile::TempDir, Store) {
        let home = tempfile::tempdir().unwrap();
        let store = Store::at(home.path().join("credentials"));
        (home, store)
    }

    fn found(store: &Store, of: &About) -> Secret {
        let listing = store.look().unwrap().unwrap();
        let entry = listing.entries.iter().find(|e| e.about == *of).unwrap();
        store.open(&listing, entry).unwrap()
    }

    #[test]
    fn what_is_kept_is_found_and_nowhere_in_plain() {
        let (_home, store) = store();
        assert!(store.look().unwrap().is_none());
        assert_eq!(store.forget("a", "sandbox").unwrap(), 0);
        let (one, two) = (about("a", "sandbox", "https://x"), about("a", "production", "https://x"));
        store.put(one.clone(), &secret(CANARY), KeyAt::File).unwrap();
        store.put(two.clone(), &secret("other"), KeyAt::File).unwrap();
        assert_eq!(found(&store, &one), secret(CANARY));
        assert_eq!(found(&store, &two), secret("other"));
        // Another origin is another entry; the same one is replaced.
        store.put(about("a", "sandbox", "https://y"), &secret("y"), KeyAt::File).unwrap();
        let newer = About { since: 2, ..one.clone() };
        store.put(newer.clone(), &secret("newer"), KeyAt::File).unwrap();
        assert_eq!(store.look().unwrap().unwrap().entries.len(), 3);
        assert_eq!(found(&store, &newer), secret("newer"));
        for entry in std::fs::read_dir(store.folder()).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains("newer\""));
        }
        let shown = format!("{:?} {:?}", store.look().unwrap(), secret(CANARY));
        assert!(!shown.contains("CANARY"), "{shown}");
        assert_eq!(store.forget("a", "sandbox").unwrap(), 2);
        assert_eq!(found(&store, &two), secret("other"));
    }

    #[test]
    fn what_is_told_can_t_be_changed() {
        let (_home, store) = store();
        store.put(about("a", "sandbox", "https://x"), &secret(CANARY), KeyAt::File).unwrap();
        let whole = std::fs::read_to_string(store.file()).unwrap();
        for (from, to) in [
            ("\"sandbox\"", "\"production\""),
            ("https://x", "https://z"),
            ("\"0001\"", "\"0002\""),
            ("\"bearer\"", "\"basic\""),
        ] {
            let changed = whole.replace(from, to);
            assert_ne!(whole, changed);
            std::fs::write(store.file(), changed).unwrap();
            let listing = store.look().unwrap().unwrap();
            let told = store.open(&listing, &listing.entries[0]).unwrap_err();
            assert!(matches!(told, Error::Forged { .. }), "{told}");
        }
    }

    #[test]
    fn a_damaged_file_is_refused_and_left() {
        let (_home, store) = store();
        let one = about("a", "sandbox", "https://x");
        store.put(one.clone(), &secret(CANARY), KeyAt::File).unwrap();
        let whole = std::fs::read(store.file()).unwrap();
        let newer = String::from_utf8(whole.clone()).unwrap().replace("\"form\": 1", "\"form\": 2");
        let unknown = String::from_utf8(whole.clone()).unwrap().replace("\"since\"", "\"sinse\"");
        for bad in [b"".to_vec(), whole[..whole.len() / 2].to_vec(), newer.into_bytes(), unknown.into_bytes()]
        {
            std::fs::write(store.file(), &bad).unwrap();
            let told = store.put(one.clone(), &secret("new"), KeyAt::File).unwrap_err();
            assert!(matches!(told, Error::Damaged { .. } | Error::Newer { .. }), "{told}");
            assert!(told.to_string().contains("left as it is"), "{told}");
            assert!(store.look().is_err() && store.forget("a", "sandbox").is_err());
            assert!(store.rekey(KeyAt::File).is_err());
            assert_eq!(std::fs::read(store.file()).unwrap(), bad);
        }
        std::fs::write(store.file(), vec![b' '; usize::try_from(MAX_FILE).unwrap() + 1]).unwrap();
        assert!(store.look().unwrap_err().to_string().contains("larger than"));
    }

    #[test]
    fn without_the_key_nothing_opens_and_nothing_is_added() {
        let (_home, store) = store();
        let one = about("a", "sandbox", "https://x");
        store.put(one.clone(), &secret(CANARY), KeyAt::File).unwrap();
        let listing = store.look().unwrap().unwrap();
        let key = store.folder().join(format!("{}.key", listing.key_id));
        let kept = std::fs::read(&key).unwrap();
        std::fs::remove_file(&key).unwrap();
        for told in [
            store.open(&listing, &listing.entries[0]).unwrap_err(),
            store.put(one.clone(), &secret("new"), KeyAt::File).unwrap_err(),
        ] {
            assert!(matches!(told, Error::NoKey { .. }), "{told}");
            assert!(told.to_string().contains("Put the key back"), "{told}");
        }
        std::fs::write(&key, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA").unwrap();
        std::os::unix::fs::PermissionsExt::set_mode(
            &mut std::fs::metadata(&key).unwrap().permissions(),
            0o600,
        );
        assert!(store.open(&listing, &listing.entries[0]).is_err());
        files::replace(&key, &kept).unwrap();
        assert_eq!(found(&store, &one), secret(CANARY));
        // Another key, and the old one is gone.
        let after = store.rekey(KeyAt::File).unwrap().unwrap();
        assert_ne!(after.key_id, listing.key_id);
        assert!(!key.exists());
        assert_eq!(found(&store, &one), secret(CANARY));
        // Nothing is needed to forget.
        std::fs::remove_file(store.folder().join(format!("{}.key", after.key_id))).unwrap();
        assert_eq!(store.forget("a", "sandbox").unwrap(), 1);
    }

    #[test]
    fn a_new_key_is_taken_away_only_while_the_old_one_is_in_use() {
        let (_home, store) = store();
        let one = about("a", "sandbox", "https://x");
        store.put(one.clone(), &secret(CANARY), KeyAt::File).unwrap();
        let keys = || {
            let all = std::fs::read_dir(store.folder()).unwrap();
            all.filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|e| e == "key")).count()
        };
        let old = store.look().unwrap().unwrap().key_id;
        // The disk was full: nothing is there, and the old key is the one.
        assert_eq!(store.rekey_by(KeyAt::File, |_, _| Err(Error::Busy)).unwrap_err(), Error::Busy);
        assert_eq!((store.look().unwrap().unwrap().key_id, keys()), (old.clone(), 1));
        assert_eq!(found(&store, &one), secret(CANARY));
        // It took its place, and that could not be made sure of: both keys stay.
        let unsure = |id, entries| store.write(KeyAt::File, id, entries).and(Err(Error::Busy));
        assert_eq!(store.rekey_by(KeyAt::File, unsure).unwrap_err(), Error::Busy);
        let now = store.look().unwrap().unwrap().key_id;
        assert!(now != old && keys() == 2);
        assert_eq!(found(&store, &one), secret(CANARY));
        // It can't be read: who knows which it needs.
        let damaged = |_, _| {
            std::fs::write(store.file(), "{").unwrap();
            Err(Error::Busy)
        };
        assert_eq!(store.rekey_by(KeyAt::File, damaged).unwrap_err(), Error::Busy);
        assert_eq!(keys(), 3);
    }

    #[test]
    fn it_is_bounded() {
        let (_home, store) = store();
        let one = about("a", "sandbox", "https://x");
        let long = secret(&"x".repeat(entry::MAX_SECRET + 1));
        assert!(matches!(store.put(one.clone(), &long, KeyAt::File), Err(Error::TooMuch(_))));
        let fits = secret(&"\u{1}".repeat(1000));
        store.put(one.clone(), &fits, KeyAt::File).unwrap();
        assert_eq!(found(&store, &one), fits);
        let told = About { scopes: vec!["s".repeat(MAX_ABOUT)], ..one.clone() };
        assert!(matches!(store.put(told, &secret("s"), KeyAt::File), Err(Error::TooMuch(_))));
        assert_eq!(found(&store, &one), fits);
    }

    #[test]
    fn writers_take_turns() {
        let (_home, store) = store();
        std::thread::scope(|scope| {
            for n in 0..8 {
                let store = &store;
                scope.spawn(move || {
                    let one = about(&format!("a{n}"), "sandbox", "https://x");
                    store.put(one, &secret("s"), KeyAt::File).unwrap();
                });
            }
        });
        assert_eq!(store.look().unwrap().unwrap().entries.len(), 8);
        // One key, whoever was first.
        let keys = std::fs::read_dir(store.folder()).unwrap();
        let keys = keys.filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|e| e == "key"));
        assert_eq!(keys.count(), 1);
    }
}
