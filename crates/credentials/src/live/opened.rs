//! The key of the store, read when an entry has to be opened.

use super::{Inner, REST, lock};
use crate::KeyAt;
use crate::entry::Secret;
use crate::error::Error;
use crate::store::{self, Entry, Listing, Store};
use seal::MasterKey;
use std::sync::Arc;
use std::time::Instant;

/// A key that could not be read.
pub(super) struct Unread {
    id: String,
    at: Instant,
    why: Error,
}

impl Inner {
    /// Opens an entry; the key may have to be waited for.
    pub(super) async fn open(
        self: &Arc<Inner>,
        listing: Arc<Listing>,
        entry: Entry,
    ) -> Result<Secret, Error> {
        let key = self.key_by(listing, Store::key).await?;
        store::open(&key, &entry)
    }

    /// The key, read in this way if it is not known. One reads at a time: a locked keyring asks a person, and each question is
    /// a process and a thread, until it is answered, whoever waits for it. One that gave no key is left alone for a while.
    async fn key_by<R>(self: &Arc<Inner>, listing: Arc<Listing>, read: R) -> Result<MasterKey, Error>
    where
        R: FnOnce(&Store, &Listing) -> Result<MasterKey, Error> + Send + 'static,
    {
        if let Some(key) = self.known_key(&listing) {
            return Ok(key);
        }
        let turn = self.opening.clone().lock_owned().await;
        if let Some(key) = self.known_key(&listing) {
            return Ok(key);
        }
        if let Some(unread) = lock(&self.unread).as_ref().filter(|u| u.id == listing.key_id)
            && unread.at.elapsed() < REST
        {
            return Err(unread.why.clone());
        }
        let inner = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let (read, id) = (read(inner.store()?, &listing), listing.key_id.clone());
            match &read {
                Ok(key) => *lock(&inner.key) = Some((id, key.clone())),
                // A file costs nothing, and may be put back.
                Err(why) if listing.key_at == KeyAt::Keyring => {
                    *lock(&inner.unread) = Some(Unread { id, at: Instant::now(), why: why.clone() });
                }
                Err(_) => {}
            }
            read
        });
        reading.await.map_err(|_| Error::Busy)?
    }

    fn known_key(&self, listing: &Listing) -> Option<MasterKey> {
        lock(&self.key).as_ref().filter(|(id, _)| *id == listing.key_id).map(|(_, key)| key.clone())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::live::REST;
    use crate::{About, Error, KeyAt, Listing, Live, Secret, Store};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use zeroize::Zeroizing;

    /// A store with one credential.
    fn one(home: &tempfile::TempDir) -> Store {
        let store = Store::at(home.path().join("credentials"));
        let about = About {
            account: "a".into(),
            mode: "sandbox".into(),
            kind: "bearer".into(),
            origins: vec!["https://api.example".into()],
            issuer: None,
            client: None,
            mark: "m".into(),
            since: 1,
            renewed: None,
            expires: None,
            renewable: false,
            scopes: vec![],
            refused: None,
        };
        let secret = Secret { secret: Some(Zeroizing::new("s".into())), ..Secret::default() };
        store.put(about, &secret, KeyAt::File).unwrap();
        store
    }

    #[tokio::test]
    async fn a_keyring_that_gives_no_key_is_left_alone_for_a_while() {
        let home = tempfile::tempdir().unwrap();
        let live = Live::new(Ok(one(&home)));
        let in_file = live.0.listing().unwrap().unwrap();
        let changed = |listing: &Arc<Listing>, by: fn(&mut Listing)| {
            let mut listing = (**listing).clone();
            by(&mut listing);
            Arc::new(listing)
        };
        let in_keyring = changed(&in_file, |l| l.key_at = KeyAt::Keyring);
        let asked = Arc::new(AtomicUsize::new(0));
        let ask = |listing: &Arc<Listing>| {
            let (inner, listing, asked) = (live.0.clone(), listing.clone(), asked.clone());
            let read = move |_: &Store, _: &Listing| {
                asked.fetch_add(1, Ordering::SeqCst);
                Err(Error::Keyring("locked".into()))
            };
            async move { inner.key_by(listing, read).await.map(|_| ()) }
        };
        // Those who waited have the answer of the first, too.
        let first = tokio::join!(ask(&in_keyring), ask(&in_keyring), ask(&in_keyring));
        for said in [first.0, first.1, first.2, ask(&in_keyring).await] {
            assert_eq!(said, Err(Error::Keyring("locked".into())));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        // Another key is another question, and so is the same one later.
        let other = changed(&in_keyring, |l| l.key_id = "mk-other".into());
        assert!(ask(&other).await.is_err());
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        tokio::time::sleep(REST).await;
        assert!(ask(&other).await.is_err());
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        // A file is looked for each time.
        for n in 4..6 {
            assert!(ask(&in_file).await.is_err());
            assert_eq!(asked.load(Ordering::SeqCst), n);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_asks_for_the_key_and_who_gives_up_leaves_no_second_question() {
        let home = tempfile::tempdir().unwrap();
        let live = Live::new(Ok(one(&home)));
        let listing = live.0.listing().unwrap().unwrap();
        let (asked, at_once) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let ask = |takes: Duration| {
            let (inner, listing) = (live.0.clone(), listing.clone());
            let (asked, at_once) = (asked.clone(), at_once.clone());
            async move {
                let read = move |store: &Store, listing: &crate::Listing| {
                    asked.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0, "two questions at once");
                    std::thread::sleep(takes);
                    at_once.fetch_sub(1, Ordering::SeqCst);
                    store.key(listing)
                };
                inner.key_by(listing, read).await
            }
        };
        // The first goes away; what it began goes on, and the others have its answer.
        let first = tokio::time::timeout(Duration::from_millis(20), ask(Duration::from_millis(300))).await;
        assert!(first.is_err());
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..8 {
            all.spawn(ask(Duration::from_millis(10)));
        }
        while let Some(one) = all.join_next().await {
            assert!(one.unwrap().is_ok());
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }
}
