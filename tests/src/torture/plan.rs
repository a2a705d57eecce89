//! Which rounds are played: every point with every provider class first, then every other fault, then combinations,
//! in an order that the seed draws.

use crate::clients;
use crate::random::Random;
use crate::stand::Class;

/// What breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The gateway kills itself (SIGKILL) at a named point; `help` is the provider's fault that leads it there.
    Point {
        /// The name in reports: the failpoint, with `@2` for its second passing.
        name: &'static str,
        /// The provider's fault, if the way to the point needs one.
        help: Option<&'static str>,
    },
    /// The gateway is killed while it recovers from a first kill.
    Recovery {
        /// The failpoint of the second life.
        name: &'static str,
    },
    /// The gateway is killed from outside while the provider holds the request unapplied.
    RequestOut,
    /// The gateway is killed from outside after the provider applied and before it answers.
    AppliedUnanswered,
    /// The gateway is killed from outside at any moment.
    KillRandom,
    /// The client's socket closes in the middle of the call.
    ClientCut,
    /// The client reads some bytes of the answer and closes.
    ClientCutMidReply,
    /// Only the provider fails.
    Provider(&'static str),
    /// The provider itself is killed after it applied, and started again.
    ProviderKilled,
}

/// The failpoints, and the provider's fault that leads there.
pub const POINTS: [(&str, Option<&str>); 12] = [
    ("open.before", None),
    ("open.after", None),
    ("send.before", None),
    ("send.after", None),
    ("receipt.after", None),
    ("close.before", None),
    ("close.after", None),
    ("reply.before", None),
    ("deliver.before", None),
    ("send.before@2", Some("apply_then_cut")),
    ("send.after@2", Some("apply_then_cut")),
    ("lookup.after", Some("apply_then_cut")),
];

/// The failpoints of a second life.
pub const RECOVERY: [&str; 2] = ["recover.before", "recover.after"];

/// Faults of the provider alone.
pub const PROVIDER: [&str; 14] = [
    "apply_then_cut",
    "apply_then_502",
    "apply_then_500",
    "apply_then_hang",
    "cut",
    "hang",
    "fail",
    "refuse",
    "refuse_replay",
    "retry_later",
    "unavailable",
    "garbage",
    "torn",
    "huge",
];

impl Fault {
    /// Its name in reports.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Fault::Point { name, .. } | Fault::Recovery { name } => (*name).into(),
            Fault::RequestOut => "request.out".into(),
            Fault::AppliedUnanswered => "applied.unanswered".into(),
            Fault::KillRandom => "kill.random".into(),
            Fault::ClientCut => "client.cut".into(),
            Fault::ClientCutMidReply => "client.cut_mid_reply".into(),
            Fault::Provider(name) => format!("provider.{name}"),
            Fault::ProviderKilled => "provider.killed".into(),
        }
    }

    /// Whether the gateway dies in it.
    #[must_use]
    pub fn kills(&self) -> bool {
        matches!(
            self,
            Fault::Point { .. }
                | Fault::Recovery { .. }
                | Fault::RequestOut
                | Fault::AppliedUnanswered
                | Fault::KillRandom
        )
    }

    /// The provider's fault in it.
    #[must_use]
    pub fn provider(&self) -> Option<&'static str> {
        match self {
            Fault::Point { help, .. } => *help,
            Fault::Provider(name) => Some(name),
            Fault::AppliedUnanswered | Fault::ProviderKilled => Some("apply_then_hang"),
            _ => None,
        }
    }

    /// Whether a class can come to the point at all.
    #[must_use]
    pub fn reaches(&self, class: Class) -> bool {
        match self {
            // Nothing is ever sent a second time, and nobody asks.
            Fault::Point { name: "send.before@2" | "send.after@2", .. } => {
                !matches!(class, Class::None | Class::Confirm | Class::Lookup)
            }
            Fault::Point { name: "lookup.after", .. } => matches!(class, Class::Lookup),
            _ => true,
        }
    }
}

/// How the caller names its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Style {
    /// The program carries the same key each time.
    ProgramKey,
    /// No key; the retry is inside the guard window.
    NoKey,
    /// No key, and another JSON-RPC id (a client that started anew).
    OtherId,
    /// A model invents another key for each try.
    InventedKey,
    /// No key at first; the retry carries the `retryKey` it was told or looked up.
    RetryKey,
}

impl Style {
    /// All of them.
    pub const ALL: [Style; 5] =
        [Style::ProgramKey, Style::NoKey, Style::OtherId, Style::InventedKey, Style::RetryKey];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Style::ProgramKey => "program_key",
            Style::NoKey => "no_key",
            Style::OtherId => "other_id",
            Style::InventedKey => "invented_key",
            Style::RetryKey => "retry_key",
        }
    }
}

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Voice {
    /// An official client.
    Official(clients::Kind),
    /// A socket.
    Raw,
}

impl Voice {
    /// All of them.
    pub const ALL: [Voice; 3] =
        [Voice::Official(clients::Kind::TypeScript), Voice::Official(clients::Kind::Python), Voice::Raw];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Voice::Official(kind) => kind.name(),
            Voice::Raw => "raw",
        }
    }
}

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
    /// Draws one. The naive server knows only a few points.
    #[must_use]
    pub fn new(seed: u64, count: usize, naive: bool) -> Plan {
        let mut random = Random::new(seed, 0);
        let every = faults(naive);
        let mut cells: Vec<(Fault, Class)> = Vec::new();
        for fault in &every {
            for class in if naive { &Class::ALL[..1] } else { &Class::ALL[..] } {
                cells.push((fault.clone(), *class));
            }
        }
        // The named points are played first, so that even a short run has them.
        let (mut first, mut rest): (Vec<_>, Vec<_>) = cells.into_iter().partition(|(f, _)| f.kills());
        random.shuffle(&mut first);
        random.shuffle(&mut rest);
        first.append(&mut rest);
        while first.len() < count {
            let class = if naive { Class::Key } else { *random.one(&Class::ALL) };
            first.push((random.one(&every).clone(), class));
        }
        first.truncate(count);
        // Every fault meets every style and voice in turn, wherever the shuffle put it.
        let rounds = first.into_iter().enumerate().map(|(number, (fault, class))| {
            let voice = match fault {
                Fault::ClientCutMidReply => Voice::Raw,
                _ if naive => Voice::Raw,
                _ => *random.one(&Voice::ALL),
            };
            Round { number, fault, class, style: *random.one(&Style::ALL), voice }
        });
        let mut rounds: Vec<Round> = rounds.collect();
        random.shuffle(&mut rounds);
        Plan { rounds }
    }
}

/// Every fault, each once.
#[must_use]
pub fn faults(naive: bool) -> Vec<Fault> {
    if naive {
        return vec![
            Fault::Point { name: "send.before", help: None },
            Fault::Point { name: "send.after", help: None },
            Fault::Provider("cut"),
        ];
    }
    let mut all: Vec<Fault> = POINTS.iter().map(|(name, help)| Fault::Point { name, help: *help }).collect();
    all.extend(RECOVERY.iter().map(|name| Fault::Recovery { name }));
    all.extend([
        Fault::RequestOut,
        Fault::AppliedUnanswered,
        Fault::KillRandom,
        Fault::ClientCut,
        Fault::ClientCutMidReply,
        Fault::ProviderKilled,
    ]);
    all.extend(PROVIDER.iter().map(|name| Fault::Provider(name)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn three_hundred_rounds_have_every_point_with_every_class_and_every_style_and_voice() {
        for seed in [1, 2, 99] {
            let plan = Plan::new(seed, 300, false);
            let cells: BTreeSet<_> = plan.rounds.iter().map(|r| (r.fault.name(), r.class)).collect();
            for fault in faults(false) {
                for class in Class::ALL {
                    assert!(cells.contains(&(fault.name(), class)), "{} x {}", fault.name(), class.name());
                }
            }
            for style in Style::ALL {
                for voice in Voice::ALL {
                    assert!(plan.rounds.iter().any(|r| r.style == style && r.voice == voice));
                }
            }
            let numbers: BTreeSet<_> = plan.rounds.iter().map(|r| r.number).collect();
            assert_eq!(numbers.len(), 300);
        }
        assert!(POINTS.len() + RECOVERY.len() >= 12);
    }

    #[test]
    fn a_seed_names_one_plan() {
        let words = |seed| {
            Plan::new(seed, 40, false).rounds.iter().map(|r| (r.number, r.words())).collect::<Vec<_>>()
        };
        assert_eq!(words(5), words(5));
        assert_ne!(words(5), words(6));
    }
}
