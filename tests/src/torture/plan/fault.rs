//! What breaks.

use super::{Break, Upset};
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
    /// The provider is killed while it holds the request, applied or not, and nobody listens there for seconds.
    ProviderDown,
    /// Nobody listens at the provider's address when the first request is to be sent: nothing has left.
    ProviderDownFirst,
    /// The gateway stands still (SIGSTOP) for longer than its lease, its attempt and its client's patience.
    Stop(Stop),
    /// The gateway's wall clock is set.
    Clock(When, By),
    /// Something that happens to one of several replicas.
    Replicas(Upset),
}

/// When the gateway is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Before it has read the call: its client has left when it does.
    Unread,
    /// With the intent durable, before the first byte to the provider.
    FirstByte,
    /// While the provider holds the request unapplied.
    RequestOut,
    /// After the provider applied and before it answers.
    Applied,
    /// At any moment.
    Random,
    /// At any moment, and it is killed before it has moved again.
    Killed,
}

impl Stop {
    /// All of them.
    pub const ALL: [Stop; 6] =
        [Stop::Unread, Stop::FirstByte, Stop::RequestOut, Stop::Applied, Stop::Random, Stop::Killed];

    fn name(self) -> &'static str {
        match self {
            Stop::Unread => "stop.unread",
            Stop::FirstByte => "stop.first_byte",
            Stop::RequestOut => "stop.request_out",
            Stop::Applied => "stop.applied",
            Stop::Random => "stop.random",
            Stop::Killed => "stop.killed",
        }
    }
}

/// When the clock is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// While the gateway runs and waits for the provider.
    Running,
    /// Between the gateway's death, with a request out, and its next start.
    Restart,
    /// After the call was answered and before it is made again, while the gateway runs.
    Answered,
    /// The same, between the gateway's death and its next start.
    AnsweredRestart,
}

/// By how much the clock is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// So many seconds.
    Seconds(i64),
    /// One of the steps.
    Any,
}

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

impl By {
    /// The steps.
    pub const STEPS: [i64; 4] = [HOUR, -HOUR, DAY, -DAY];

    /// The seconds, drawn if they are not fixed.
    #[must_use]
    pub fn seconds(self, random: &mut Random) -> i64 {
        match self {
            By::Seconds(s) => s,
            By::Any => *random.one(&By::STEPS),
        }
    }

    fn name(self) -> &'static str {
        match self {
            By::Seconds(HOUR) => "+1h",
            By::Seconds(s) if s == -HOUR => "-1h",
            By::Seconds(DAY) => "+1d",
            By::Seconds(s) if s == -DAY => "-1d",
            By::Seconds(_) => "other",
            By::Any => "",
        }
    }
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

/// The failpoints of a second life.
pub const RECOVERY: [&str; 2] = ["recover.before", "recover.after"];

/// What the provider may do besides, without a change of what is promised.
pub(super) const EXTRA: [&str; 7] =
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
    /// So many gateways on one PostgreSQL.
    Replicas(usize),
    /// The same with that manifest.
    LiarReplicas(usize),
}

impl Against {
    /// How many gateways share a ledger, where several do.
    #[must_use]
    pub fn replicas(self) -> Option<usize> {
        match self {
            Against::Replicas(count) | Against::LiarReplicas(count) => Some(count),
            Against::Gateway | Against::Naive | Against::Liar => None,
        }
    }

    /// The classes that are played.
    #[must_use]
    pub fn classes(self) -> &'static [Class] {
        match self {
            Against::Gateway | Against::Replicas(_) => &Class::ALL,
            Against::Naive => &[Class::Key],
            Against::Liar | Against::LiarReplicas(_) => &[Class::Liar],
        }
    }
}

/// Faults of the provider alone. `late` answers after the send's time limit and within the patience of the next,
/// `trickle` answers byte by byte, `mute` takes several sends and says nothing.
pub const PROVIDER: [&str; 17] = [
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
    "late",
    "trickle",
    "mute",
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
            Fault::ProviderDown => "provider.down".into(),
            Fault::ProviderDownFirst => "provider.down_first".into(),
            Fault::Stop(at) => at.name().into(),
            Fault::Clock(When::Running, by) => format!("clock.running{}", by.name()),
            Fault::Clock(When::Restart, by) => format!("clock.restart{}", by.name()),
            Fault::Clock(When::Answered, by) => format!("clock.answered{}", by.name()),
            Fault::Clock(When::AnsweredRestart, by) => format!("clock.answered_restart{}", by.name()),
            Fault::Replicas(upset) => upset.name(),
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
                | Fault::ReplyMid
                | Fault::Stop(Stop::Killed)
        ) || matches!(self, Fault::Replicas(upset) if upset.kills())
    }

    /// The provider's fault in it, or the one that leads to its point.
    #[must_use]
    pub fn provider(&self, class: Class) -> Option<&'static str> {
        match self {
            Fault::Replicas(Upset::Killed(name)) => Fault::Point { name }.provider(class),
            // Nothing is found, so it is sent again.
            Fault::Point { name: "send.before@2" | "send.after@2" } if class == Class::Lookup => Some("cut"),
            Fault::Point { name: "send.before@2" | "send.after@2" } => Some("apply_then_cut"),
            // A stored failure is repeated for ever, so the provider is asked.
            Fault::Point { name: "lookup.after" } if class == Class::Key => Some("apply_then_500"),
            Fault::Point { name: "lookup.after" } => Some("apply_then_cut"),
            Fault::Provider(name) => Some(name),
            Fault::AppliedUnanswered | Fault::ProviderKilled | Fault::Stop(Stop::Applied) => {
                Some("apply_then_hang")
            }
            // What it does is drawn, and what is promised depends on it.
            Fault::ProviderDown | Fault::Clock(..) => Some("hang"),
            // What is shown is that nothing left.
            Fault::ProviderDownFirst => Some("nothing"),
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
            Fault::Replicas(Upset::Killed(name)) => Fault::Point { name }.reaches(class),
            Fault::Replicas(upset) => upset.is_played_with(class),
            _ => true,
        }
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
                Fault::ProviderDown,
                Fault::ProviderDownFirst,
            ]);
            all.extend(PROVIDER.iter().map(|name| Fault::Provider(name)));
            all.extend(Stop::ALL.map(Fault::Stop));
            let steps = |when| By::STEPS.map(|s| Fault::Clock(when, By::Seconds(s)));
            all.extend(steps(When::Running));
            all.extend(steps(When::Restart));
            all.extend([When::Answered, When::AnsweredRestart].map(|when| Fault::Clock(when, By::Any)));
            all
        }
        Against::Replicas(_) => Upset::all().into_iter().map(Fault::Replicas).collect(),
        Against::LiarReplicas(_) => {
            let upsets = [
                Upset::Killed("send.after"),
                Upset::Still("send.late"),
                Upset::Cable("send.after", Break::Held),
            ];
            upsets.map(Fault::Replicas).into()
        }
        Against::Liar => {
            vec![
                Fault::Point { name: "send.after" },
                Fault::AppliedUnanswered,
                Fault::Provider("apply_then_cut"),
                Fault::Stop(Stop::Applied),
            ]
        }
        Against::Naive => {
            let points = ["send.before", "send.after"].map(|name| Fault::Point { name });
            points.into_iter().chain([Fault::Provider("cut")]).collect()
        }
    }
}
