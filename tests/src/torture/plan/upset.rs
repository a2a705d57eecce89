//! What breaks where there are several replicas: one of them, its way to the database, the database, or all in turn.

use crate::stand::Class;

/// What breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upset {
    /// The replica that works on the call kills itself (SIGKILL) at a named point.
    Killed(&'static str),
    /// So does the one that takes over from it.
    KilledTwice(&'static str),
    /// The one that works is killed from outside, while the provider holds the request.
    KilledOut,
    /// One is killed at any moment.
    KilledRandom,
    /// All are killed at once.
    AllKilled,
    /// The one that works stands still (SIGSTOP) at a named point past its lease; another takes over; it goes on.
    Still(&'static str),
    /// One stands still at any moment, past its lease.
    StillRandom,
    /// The cable between the one that works and the database breaks at a named point.
    Cable(&'static str, Break),
    /// The database server is stopped as by a crash (`-m immediate`) while the provider holds the request, and started.
    DatabaseCrashes,
    /// The same at any moment, by SIGKILL.
    DatabaseKilled,
    /// The same, and it stays away for longer than a lease.
    DatabaseAway,
    /// Two replicas are called at once with the same call.
    AtOnce,
    /// All are restarted in order, one after the other, while callers call.
    Rolling,
    /// A session is opened at one, used at others, and ended at a third.
    Sessions,
    /// A change is published at one, and heard at all.
    News,
    /// The same while one can't reach the database.
    NewsMissed,
}

/// How a cable breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Cut for less than a lease.
    Short,
    /// Cut for longer than a lease.
    Long,
    /// Nothing passes for longer than a lease, and then everything does, late.
    Held,
    /// Answers no longer come; then it is cut, and mended: what was asked was done, and nobody was told.
    Unanswered,
}

/// Where one may stand still, and what is late when it wakes: an attempt that was not sent yet, a request, an answer, a
/// result.
const STILL: [&str; 4] = ["send.before", "send.late", "receipt.after", "close.before"];

/// Where and how cables break.
const CABLES: [(&str, Break); 8] = [
    ("open.before", Break::Short),
    ("open.before", Break::Unanswered),
    ("send.before", Break::Long),
    ("send.after", Break::Held),
    ("send.after", Break::Unanswered),
    ("receipt.after", Break::Held),
    ("close.before", Break::Long),
    ("close.before", Break::Unanswered),
];

impl Upset {
    /// Every one.
    #[must_use]
    pub fn all() -> Vec<Upset> {
        let mut all: Vec<Upset> = super::POINTS.map(Upset::Killed).into();
        all.extend(super::RECOVERY.map(Upset::KilledTwice));
        all.extend(STILL.map(Upset::Still));
        all.extend(CABLES.map(|(at, how)| Upset::Cable(at, how)));
        all.extend([
            Upset::KilledOut,
            Upset::KilledRandom,
            Upset::AllKilled,
            Upset::StillRandom,
            Upset::DatabaseCrashes,
            Upset::DatabaseKilled,
            Upset::DatabaseAway,
            Upset::AtOnce,
            Upset::Rolling,
            Upset::Sessions,
            Upset::News,
            Upset::NewsMissed,
        ]);
        all
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Upset::Killed(at) => format!("killed.{at}"),
            Upset::KilledTwice(at) => format!("killed_twice.{at}"),
            Upset::KilledOut => "killed.request_out".into(),
            Upset::KilledRandom => "killed.random".into(),
            Upset::AllKilled => "killed.all".into(),
            Upset::Still(at) => format!("still.{at}"),
            Upset::StillRandom => "still.random".into(),
            Upset::Cable(at, how) => {
                let how = match how {
                    Break::Short => "cut",
                    Break::Long => "cut_long",
                    Break::Held => "held",
                    Break::Unanswered => "unanswered",
                };
                format!("cable.{how}.{at}")
            }
            Upset::DatabaseCrashes => "database.crashes".into(),
            Upset::DatabaseKilled => "database.killed".into(),
            Upset::DatabaseAway => "database.away".into(),
            Upset::AtOnce => "replicas.at_once".into(),
            Upset::Rolling => "replicas.rolling".into(),
            Upset::Sessions => "sessions".into(),
            Upset::News => "news".into(),
            Upset::NewsMissed => "news.missed".into(),
        }
    }

    /// Whether a replica dies of it.
    #[must_use]
    pub fn kills(self) -> bool {
        use Upset as U;
        matches!(self, U::Killed(_) | U::KilledTwice(_) | U::KilledOut | U::KilledRandom | U::AllKilled)
    }

    /// Whether it is about the provider's class at all; else it is played with one.
    #[must_use]
    pub fn is_played_with(self, class: Class) -> bool {
        use Upset as U;
        !matches!(self, U::Rolling | U::Sessions | U::News | U::NewsMissed) || class == Class::Key
    }
}
