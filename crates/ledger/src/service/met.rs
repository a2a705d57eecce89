//! Which keys this process met lately, as far as it remembers. Nothing here is a fact: it only says what is tried first.
//!
//! A key that was never met is most likely new. Its creation finds out as well as a look-up does, since it is refused where
//! the key is taken, and is needed anyway. A key that was met is most likely there, so it is looked up first, and a call
//! that is made again writes nothing.

use crate::words::KeyHash;
use std::sync::atomic::{AtomicU64, Ordering};

/// Places for keys: each holds the newest of those that fall on it.
const PLACES: usize = 1 << 16;

pub(crate) struct Met(Box<[AtomicU64]>);

impl Default for Met {
    fn default() -> Self {
        Met((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Met {
    /// Whether it was met before; it is from now on.
    pub fn meet(&self, key: &KeyHash) -> bool {
        let bits = u128::from_be_bytes(key.0);
        // What does not choose the place tells the keys apart that fall on it.
        let (place, mark) = ((bits >> 64) as usize % PLACES, bits as u64);
        self.0.get(place).is_some_and(|met| met.swap(mark, Ordering::Relaxed) == mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_met_once_and_forgotten_for_a_newer_one_in_its_place() {
        let met = Met::default();
        let key = |n: u128| KeyHash(n.to_be_bytes());
        let (one, same_place, other) = (key(7 << 64 | 1), key(7 << 64 | 2), key(8 << 64 | 1));
        assert!(!met.meet(&one));
        assert!(met.meet(&one) && !met.meet(&other) && met.meet(&one));
        assert!(!met.meet(&same_place) && !met.meet(&one));
    }
}
