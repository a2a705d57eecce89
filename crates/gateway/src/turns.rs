//! Effects that set one resource take turns in this process, or a replay of the first could undo the second.

use ledger::Strategy;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Who may change which resource now, by the method and target that intents name.
static TURNS: LazyLock<Mutex<HashMap<String, Weak<AsyncMutex<()>>>>> = LazyLock::new(Mutex::default);

/// Waits for the turn of an effect on `resource` (its intent's summary), which lasts until what is given is dropped. Only
/// effects that are repeated because repeating changes nothing need one.
pub async fn take(strategy: Strategy, resource: &str) -> Option<OwnedMutexGuard<()>> {
    if strategy != Strategy::Natural {
        return None;
    }
    let lock = {
        let mut all = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(resource).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            all.retain(|_, l| l.strong_count() > 0);
            let new = Arc::new(AsyncMutex::new(()));
            all.insert(resource.to_owned(), Arc::downgrade(&new));
            new
        })
    };
    Some(lock.lock_owned().await)
}
