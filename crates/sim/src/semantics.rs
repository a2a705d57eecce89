//! Which database the replicas of a schedule share, as far as the ledger can tell one from another.

use crate::rng::Rng;
use ledger::planted::Plant;

/// What a store does that another one doesn't.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Semantics {
    /// One process at a time holds the ledger. Each of its boots is an epoch, and ends the one before.
    Sqlite,
    /// Several replicas, whose batches of writes are committed as a whole by a server behind a network: an
    /// acknowledgement is lost with its whole batch, which may be committed after the replica came back; who lapsed goes
    /// on under another epoch, and writes nothing under the old one; a bell rings between replicas.
    Postgres,
    /// The least that the contract of a store asks for: write by write, several replicas, and where the schedule says so
    /// one that lapsed goes on as if nothing had been.
    Shared,
}

impl Semantics {
    /// Every one.
    pub const ALL: [Semantics; 3] = [Semantics::Sqlite, Semantics::Postgres, Semantics::Shared];

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Semantics::Sqlite => "sqlite",
            Semantics::Postgres => "postgres",
            Semantics::Shared => "shared",
        }
    }

    /// The one with this word.
    #[must_use]
    pub fn of(word: &str) -> Option<Semantics> {
        Semantics::ALL.into_iter().find(|s| s.word() == word)
    }

    /// Whether there is anything for this guard to guard.
    #[must_use]
    pub fn has(self, plant: Plant) -> bool {
        match plant {
            // They are about epochs that change under a process, batches, and bells.
            Plant::OldEpochSpeaks
            | Plant::SendUnderOldEpoch
            | Plant::BellNotHeard
            | Plant::GapNotHeard
            | Plant::MovedNotTold
            | Plant::LateBatchOfOldEpoch
            | Plant::StaleWhereUnsure
            | Plant::ClaimsNotWaitedFor => self == Semantics::Postgres,
            _ => true,
        }
    }

    /// Where to begin looking for the schedules that miss this guard: the rarest need a lost acknowledgement, or a pause,
    /// and another write just then, which is one in some thousand.
    #[must_use]
    pub fn first_seed(self, plant: Plant) -> u64 {
        match (self, plant) {
            (Semantics::Postgres, Plant::AnswerCountedTwice) => 7000,
            (Semantics::Postgres, Plant::StaleWhereUnsure) => 27_000,
            (Semantics::Postgres, Plant::GapNotHeard) => 2000,
            (Semantics::Postgres, Plant::SendUnderOldEpoch) => 1000,
            _ => 1,
        }
    }

    /// What a seed draws.
    pub(crate) fn draw(seed: u64) -> Semantics {
        match Rng::new(seed, 3).below(20) {
            0..=5 => Semantics::Sqlite,
            6..=15 => Semantics::Postgres,
            _ => Semantics::Shared,
        }
    }
}

/// Every guard that can be taken out, and that schedules miss.
#[must_use]
pub fn guards() -> Vec<Plant> {
    let missed = |plant: &Plant| Semantics::ALL.iter().any(|s| s.has(*plant));
    Plant::ALL.into_iter().chain(Plant::BESIDE).filter(missed).collect()
}
