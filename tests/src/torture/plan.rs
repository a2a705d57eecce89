//! Which rounds are played: every point with every provider class first, then every other fault, then combinations,
//! in an order that the seed draws.

use crate::clients;
use crate::random::Random;
use crate::stand::Class;

/// What breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The gateway kills itself (SIGKILL) at a named point.
    Point {
        /// The name in reports: the failpoint, with `@2` for its second passing.
        name: &'static str,
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
    /// The client has read some bytes of the answer when the gateway is killed.
    ReplyMid,
    /// The client sends the same call twice at once, as some hosts do.
    Twice,
    /// Only the provider fails.
    Provider(&'static str),
    /// The provider itself is killed after it applied, and started again.
    ProviderKilled,
}

/// The failpoints of a call's way.
pub const POINTS: [&str; 13] = [
    "open.before",
    "open.after",
    "send.before",
    "send.after",
    "receipt.after",
    "close.before",
    "close.after",
    "reply.before",
    "reply.mid",
    "deliver.before",
    "send.before@2",
    "send.after@2",
    "lookup.after",
];

/// The methods that every class has in a lane.
pub const METHODS: [&str; 3] = ["create", "reject", "named"];

/// The failpoints of a second life.
pub const RECOVERY: [&str; 2] = ["recover.before", "recover.after"];

/// What the provider may do besides, without a change of what is promised.
const EXTRA: [&str; 7] =
    ["apply_then_cut", "apply_then_502", "apply_then_hang", "torn", "garbage", "cut", "hang"];

/// What the rounds are played against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// The gateway.
    Gateway,
    /// The naive server, to see that the harness reports what it must.
    Naive,
    /// The gateway with a manifest that promises for its provider what that does not keep: the harness must see the
    /// duplicates through the same eyes as everything else.
    Liar,
}

impl Against {
    /// The classes that are played.
    #[must_use]
    pub fn classes(self) -> &'static [Class] {
        match self {
            Against::Gateway => &Class::ALL,
            Against::Naive => &[Class::Key],
            Against::Liar => &[Class::Liar],
        }
    }
}

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
            Fault::Point { name } | Fault::Recovery { name } => (*name).into(),
            Fault::RequestOut => "request.out".into(),
            Fault::AppliedUnanswered => "applied.unanswered".into(),
            Fault::KillRandom => "kill.random".into(),
            Fault::ClientCut => "client.cut".into(),
            Fault::ClientCutMidReply => "client.cut_mid_reply".into(),
            Fault::ReplyMid => "reply.half_read".into(),
            Fault::Twice => "client.twice".into(),
            Fault::Provider(name) => format!("provider.{name}"),
            Fault::ProviderKilled => "provider.killed".into(),
        }
    }

    /// Whether the gateway dies in it.
    #[must_use]
    pub fn kills(&self) -> bool {
        !matches!(
            self,
            Fault::ClientCut
                | Fault::ClientCutMidReply
                | Fault::Twice
                | Fault::Provider(_)
                | Fault::ProviderKilled
        )
    }

    /// The provider's fault in it, or the one that leads to its point.
    #[must_use]
    pub fn provider(&self, class: Class) -> Option<&'static str> {
        match self {
            // Nothing is found, so it is sent again.
            Fault::Point { name: "send.before@2" | "send.after@2" } if class == Class::Lookup => Some("cut"),
            Fault::Point { name: "send.before@2" | "send.after@2" } => Some("apply_then_cut"),
            // A stored failure is repeated for ever, so the provider is asked.
            Fault::Point { name: "lookup.after" } if class == Class::Key => Some("apply_then_500"),
            Fault::Point { name: "lookup.after" } => Some("apply_then_cut"),
            Fault::Provider(name) => Some(name),
            Fault::AppliedUnanswered | Fault::ProviderKilled => Some("apply_then_hang"),
            _ => None,
        }
    }

    /// Whether a class can come to the point at all.
    #[must_use]
    pub fn reaches(&self, class: Class) -> bool {
        match self {
            // Nothing is ever sent a second time.
            Fault::Point { name: "send.before@2" | "send.after@2" } => {
                !matches!(class, Class::None | Class::Confirm)
            }
            // Nobody can be asked.
            Fault::Point { name: "lookup.after" } => matches!(class, Class::Key | Class::Lookup),
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
    /// The tool wants a key (`unkeyed = "reject"`); the caller uses the `newKey` that the refusal gave it.
    MintedKey,
    /// The tool derives the key from its arguments (`key_from`).
    DerivedKey,
}

impl Style {
    /// All of them.
    pub const ALL: [Style; 7] = [
        Style::ProgramKey,
        Style::NoKey,
        Style::OtherId,
        Style::InventedKey,
        Style::RetryKey,
        Style::MintedKey,
        Style::DerivedKey,
    ];

    /// The method that is called: they differ by the policy of their tools.
    #[must_use]
    pub fn method(self) -> &'static str {
        match self {
            Style::MintedKey => "reject",
            Style::DerivedKey => "named",
            _ => "create",
        }
    }

    /// Whether each try bears the same key: then no try is a mere twin.
    #[must_use]
    pub fn is_keyed(self) -> bool {
        matches!(self, Style::ProgramKey | Style::MintedKey | Style::DerivedKey)
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Style::ProgramKey => "program_key",
            Style::NoKey => "no_key",
            Style::OtherId => "other_id",
            Style::InventedKey => "invented_key",
            Style::RetryKey => "retry_key",
            Style::MintedKey => "minted_key",
            Style::DerivedKey => "derived_key",
        }
    }
}

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Voice {
    /// An official client.
    Official(clients::Kind),
    /// A socket that speaks the modern era.
    Raw,
    /// A socket that speaks the legacy era: no session, no `initialize`.
    RawLegacy,
}

impl Voice {
    /// All of them. A pinned client differs from one that asks only in how it opens, so it is none of its own here.
    pub const ALL: [Voice; 9] = [
        Voice::Official(clients::Kind::TypeScript),
        Voice::Official(clients::Kind::TypeScriptLegacy),
        Voice::Official(clients::Kind::TypeScript1),
        Voice::Official(clients::Kind::Python),
        Voice::Official(clients::Kind::Python1),
        Voice::Official(clients::Kind::Rust),
        Voice::Official(clients::Kind::RustLegacy),
        Voice::Raw,
        Voice::RawLegacy,
    ];

    /// Those that see and say every byte.
    pub const SOCKETS: [Voice; 2] = [Voice::Raw, Voice::RawLegacy];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Voice::Official(kind) => kind.name(),
            Voice::Raw => "raw",
            Voice::RawLegacy => "raw_legacy",
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
            for class in against.classes() {
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
                None => (random.one(&every).clone(), *random.one(against.classes())),
            };
            let (style, voice) = pairs[number % pairs.len()];
            let voice = match fault {
                // The naive server knows one era.
                _ if against == Against::Naive => Voice::Raw,
                Fault::ClientCutMidReply | Fault::ReplyMid => *random.one(&Voice::SOCKETS),
                _ => voice,
            };
            // Beyond the first of each, misfortunes come together.
            let beyond = number >= cells && against == Against::Gateway;
            let extra =
                (beyond && fault.provider(class).is_none() && random.chance(50)).then(|| *random.one(&EXTRA));
            let again = beyond && fault.kills() && random.chance(40);
            // The naive server has one tool.
            let style = if against == Against::Naive { *random.one(&Style::ALL[..5]) } else { style };
            Round { number, fault, class, style, voice, extra, again }
        });
        let mut rounds: Vec<Round> = rounds.collect();
        random.shuffle(&mut rounds);
        Plan { rounds }
    }
}

/// Every fault, each once.
#[must_use]
pub fn faults(against: Against) -> Vec<Fault> {
    match against {
        Against::Gateway => {
            let mut all: Vec<Fault> = POINTS.iter().map(|name| Fault::Point { name }).collect();
            all.extend(RECOVERY.iter().map(|name| Fault::Recovery { name }));
            all.extend([
                Fault::RequestOut,
                Fault::AppliedUnanswered,
                Fault::ReplyMid,
                Fault::KillRandom,
                Fault::ClientCut,
                Fault::ClientCutMidReply,
                Fault::Twice,
                Fault::ProviderKilled,
            ]);
            all.extend(PROVIDER.iter().map(|name| Fault::Provider(name)));
            all
        }
        Against::Liar => {
            vec![
                Fault::Point { name: "send.after" },
                Fault::AppliedUnanswered,
                Fault::Provider("apply_then_cut"),
            ]
        }
        Against::Naive => {
            let points = ["send.before", "send.after"].map(|name| Fault::Point { name });
            points.into_iter().chain([Fault::Provider("cut")]).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn three_hundred_rounds_have_every_point_with_every_class_and_every_style_and_voice() {
        for seed in [1, 2, 99] {
            let plan = Plan::new(seed, 300, Against::Gateway);
            let cells: BTreeSet<_> = plan.rounds.iter().map(|r| (r.fault.name(), r.class)).collect();
            for fault in faults(Against::Gateway) {
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
