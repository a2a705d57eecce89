//! Which rounds are played: every fault with every provider class first (where it is killed before all else), then
//! combinations, in an order that the seed draws.

mod caller;
mod fault;
mod upset;

pub use caller::{METHODS, Style, Voice};
pub use fault::{Against, By, Fault, POINTS, PROVIDER, RECOVERY, Stop, When, faults};
pub use upset::{Break, Upset};

use crate::random::Random;
use crate::stand::Class;
use fault::EXTRA;

/// So many rounds have every fault with every class that it can meet.
pub const FULL: usize = 360;

/// So many rounds have whatever can happen to replicas, with every class that it is about.
pub const REPLICATED: usize = 300;

/// One round.
#[derive(Clone, Debug)]
pub struct Round {
    /// Its number in the plan.
    pub number: usize,
    /// What breaks.
    pub fault: Fault,
    /// At which kind of provider.
    pub class: Class,
    /// How the call is named.
    pub style: Style,
    /// Who calls.
    pub voice: Voice,
    /// What the provider does besides.
    pub extra: Option<&'static str>,
    /// The gateway is killed once more, a moment after it has started again.
    pub again: bool,
}

impl Round {
    /// The business object of the round: nothing else has it.
    #[must_use]
    pub fn order(&self, seed: u64) -> String {
        format!("{seed:x}_{}", self.number)
    }

    /// The words by which a run is narrowed.
    #[must_use]
    pub fn words(&self) -> [String; 4] {
        [self.fault.name(), self.class.name().into(), self.style.name().into(), self.voice.name().into()]
    }

    /// The tool that is called, on the wire.
    #[must_use]
    pub fn tool(&self) -> String {
        self.class.tool_of(self.style.method())
    }

    /// Its stream of numbers.
    #[must_use]
    pub fn random(&self, seed: u64) -> Random {
        Random::new(seed, self.number as u64 + 1)
    }
}

/// A run's rounds.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In the order of play.
    pub rounds: Vec<Round>,
}

impl Plan {
    /// Draws one.
    #[must_use]
    pub fn new(seed: u64, count: usize, against: Against) -> Plan {
        let mut random = Random::new(seed, 0);
        let every = faults(against);
        let mut cells: Vec<(Fault, Class)> = Vec::new();
        for fault in &every {
            for class in against.classes().iter().filter(|class| fault.reaches(**class)) {
                cells.push((fault.clone(), *class));
            }
        }
        // The named points are played first, so that even a short run has them.
        let (mut first, mut rest): (Vec<_>, Vec<_>) = cells.into_iter().partition(|(f, _)| f.kills());
        random.shuffle(&mut first);
        random.shuffle(&mut rest);
        first.append(&mut rest);
        let cells = first.len();
        // Every style with every voice, in turn.
        let mut pairs: Vec<(Style, Voice)> =
            Style::ALL.into_iter().flat_map(|s| Voice::ALL.map(|v| (s, v))).collect();
        random.shuffle(&mut pairs);
        // A round depends on the seed and its number alone, so that it can be played again without the others.
        let rounds = (0..count).map(|number| {
            let mut random = Random::new(!seed, number as u64);
            let (fault, class) = match first.get(number) {
                Some(cell) => cell.clone(),
                None if against.replicas().is_some() => random.one(&first).clone(),
                None => (random.one(&every).clone(), *random.one(against.classes())),
            };
            let (style, voice) = pairs[number % pairs.len()];
            let voice = match fault {
                // The naive server knows one era.
                _ if against == Against::Naive => Voice::Raw,
                Fault::ClientCutMidReply | Fault::ReplyMid | Fault::Replicas(Upset::AtOnce) => {
                    *random.one(&Voice::SOCKETS)
                }
                _ => voice,
            };
            // Beyond the first of each, misfortunes come together.
            let beyond = number >= cells && matches!(against, Against::Gateway | Against::Replicas(_));
            let extra =
                (beyond && fault.provider(class).is_none() && random.chance(50)).then(|| *random.one(&EXTRA));
            let again = beyond && fault.kills() && random.chance(40);
            let style = match fault {
                // The naive server has one tool.
                _ if against == Against::Naive => *random.one(&Style::ALL[..5]),
                // Where there is a key, no window matters.
                Fault::Clock(When::Answered | When::AnsweredRestart, _) => *random.one(&Style::UNKEYED),
                _ => style,
            };
            Round { number, fault, class, style, voice, extra, again }
        });
        let mut rounds: Vec<Round> = rounds.collect();
        random.shuffle(&mut rounds);
        Plan { rounds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_full_run_has_every_fault_with_every_class_and_every_style_and_voice() {
        for seed in [1, 2, 99] {
            let plan = Plan::new(seed, FULL, Against::Gateway);
            let cells: BTreeSet<_> = plan.rounds.iter().map(|r| (r.fault.name(), r.class)).collect();
            for fault in faults(Against::Gateway) {
                for class in Class::ALL.into_iter().filter(|class| fault.reaches(*class)) {
                    assert!(cells.contains(&(fault.name(), class)), "{} x {}", fault.name(), class.name());
                }
            }
            for style in Style::ALL {
                for voice in Voice::ALL {
                    assert!(plan.rounds.iter().any(|r| r.style == style && r.voice == voice));
                }
            }
            let numbers: BTreeSet<_> = plan.rounds.iter().map(|r| r.number).collect();
            assert_eq!(numbers.len(), FULL);
        }
        assert!(POINTS.len() + RECOVERY.len() >= 12);
    }

    #[test]
    fn so_many_rounds_have_whatever_can_happen_to_replicas_with_every_class() {
        let against = Against::Replicas(3);
        let plan = Plan::new(7, REPLICATED, against);
        let cells: BTreeSet<_> = plan.rounds.iter().map(|r| (r.fault.name(), r.class)).collect();
        for fault in faults(against) {
            for class in Class::ALL.into_iter().filter(|class| fault.reaches(*class)) {
                assert!(cells.contains(&(fault.name(), class)), "{} x {}", fault.name(), class.name());
            }
        }
        assert!(plan.rounds.iter().all(|r| r.fault.reaches(r.class)));
    }

    #[test]
    fn a_seed_names_one_plan() {
        let words = |seed| {
            Plan::new(seed, 40, Against::Gateway)
                .rounds
                .iter()
                .map(|r| (r.number, r.words()))
                .collect::<Vec<_>>()
        };
        assert_eq!(words(5), words(5));
        assert_ne!(words(5), words(6));
        let round = |count| {
            let plan = Plan::new(5, count, Against::Gateway);
            plan.rounds.into_iter().find(|r| r.number == 39).map(|r| r.words())
        };
        assert!(round(40).is_some());
        assert_eq!(round(40), round(300));
    }
}
