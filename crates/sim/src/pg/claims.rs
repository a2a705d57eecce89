//! Claims, and what is given back: statements over a connection of their own. One whose answer was lost is sent again on the
//! next connection, while the first may still be on its way.

use super::store::Replica;
use super::writer::Fate;
use crate::limits::{Word, bounded};
use crate::world::OUTSIDE;
use ledger::claims::Claimed;
use ledger::store::StoreError;

impl Replica {
    pub async fn claims(&self, word: Word) -> Result<Claimed, StoreError> {
        bounded(&word)?;
        let lab = &self.lab;
        lab.state().asks(lab, &word);
        loop {
            if !self.reached().await {
                lab.state().excuse(word.holder);
                return Err(StoreError::Unavailable("the database is away".into()));
            }
            self.way().await;
            let make = || lab.state().make(lab, &word);
            let fate = self.fate();
            if !matches!(fate, Fate::Plain | Fate::Slow { .. }) {
                self.troubled();
                lab.state().excuse(word.holder);
            }
            match fate {
                Fate::Plain => {}
                Fate::Slow { arrives, works } => {
                    lab.world.sleep(arrives + works).await;
                    self.troubled();
                }
                Fate::Refused => return Err(StoreError::Unavailable("simulated".into())),
                Fate::DieBefore => self.die().await,
                Fate::DieAfter => {
                    make();
                    self.die().await;
                }
                Fate::Broken { arrives, away } => {
                    match arrives {
                        Some((0, _)) => drop(make()),
                        Some((late, works)) => self.late(word.clone(), late + works),
                        None => {}
                    }
                    lab.world.sleep(away).await;
                    self.troubled();
                    continue;
                }
            }
            if self.is_cut() {
                continue;
            }
            let made = make();
            self.way().await;
            if !self.is_cut() {
                return Ok(made);
            }
            lab.state().excuse(word.holder);
        }
    }

    /// It arrives when nobody waits for it any more, unless the server stops before.
    fn late(&self, word: Word, ms: i64) {
        let lab = self.lab.clone();
        let generation = lab.state().server.generation;
        self.lab.world.spawn(
            OUTSIDE,
            Box::pin(async move {
                lab.world.sleep(ms).await;
                let mut s = lab.state();
                if s.server.generation == generation && s.server.up_at <= lab.world.now() {
                    s.make(&lab, &word);
                }
            }),
        );
    }
}
