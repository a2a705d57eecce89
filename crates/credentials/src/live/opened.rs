//! The key of the store, read when an entry has to be opened.

use super::{Inner, lock};
use crate::entry::Secret;
use crate::error::Error;
use crate::store::{self, Entry, Listing, Store};
use seal::MasterKey;
use std::sync::Arc;

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
    /// a process and a thread, until it is answered, whoever waits for it.
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
        let inner = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let key = read(inner.store()?, &listing)?;
            *lock(&inner.key) = Some((listing.key_id.clone(), key.clone()));
            Ok::<_, Error>(key)
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
    use crate::{About, KeyAt, Live, Secret, Store};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use zeroize::Zeroizing;

    #[tokio::test(flavor = "multi_thread")]
    async fn one_asks_for_the_key_and_who_gives_up_leaves_no_second_question() {
        let home = tempfile::tempdir().unwrap();
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
        let live = Live::new(Ok(store));
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
