//! The circuit breaker: while a provider does not answer, no new operation is begun there. In memory, for this process.
//!
//! It looks at sends alone, and stops none: what was begun is recovered as ever, and a send of recovery that is answered
//! closes it, too. So whoever is let through to try the provider has sent something when its attempt is over, or it tried
//! nothing, and another may.

use ledger::{Admission, CallError, Kind, Millis, Pass};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// When it opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// So many sends without an answer, or with one of 500 and above,
    pub failures: u32,
    /// within this time open it,
    pub window: Millis,
    /// for so long; then one operation is let through, and so on until a send is answered.
    pub pause: Millis,
}

/// What it remembers. Times are those of a clock that never goes back, from its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    /// The latest failures, while it is closed.
    failed: VecDeque<Duration>,
    /// When the next operation is let through, while it is open.
    open_until: Option<Duration>,
    /// The latest that was let through while it is open, until a send was seen.
    probe: Option<Probe>,
    /// How many were.
    probes: u64,
}

/// One that tries whether the provider answers again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probe {
    number: u64,
    /// From when on another could have been let through in its place.
    since: Duration,
}

impl State {
    fn seen(&mut self, settings: &BreakerSettings, now: Duration, answered: bool) {
        self.probe = None;
        if answered {
            // While it is closed an answer makes no failure undone: a provider that fails every other time is down, too.
            if self.open_until.take().is_some() {
                self.failed.clear();
            }
            return;
        }
        if self.open_until.is_some() {
            self.open_until = Some(now + settings.pause.duration());
            return;
        }
        let since = now.saturating_sub(settings.window.duration());
        self.failed.push_back(now);
        while self.failed.front().is_some_and(|t| *t < since)
            || self.failed.len() > settings.failures as usize
        {
            self.failed.pop_front();
        }
        if self.failed.len() >= settings.failures as usize {
            self.open_until = Some(now + settings.pause.duration());
            self.failed.clear();
        }
    }

    /// Whether one would be let through, or after which time.
    fn look(&self, now: Duration) -> Result<(), Duration> {
        match self.open_until {
            Some(until) if now < until => Err(until - now),
            _ => Ok(()),
        }
    }

    /// Lets one through, or says after which time to come again. While it is open, that one has a number.
    fn pass(&mut self, settings: &BreakerSettings, now: Duration) -> Result<Option<u64>, Duration> {
        self.look(now)?;
        let Some(since) = self.open_until else { return Ok(None) };
        // Half open: the next one waits for what becomes of this one, or for another pause.
        self.open_until = Some(now + settings.pause.duration());
        self.probes += 1;
        self.probe = Some(Probe { number: self.probes, since });
        Ok(Some(self.probes))
    }

    /// It is over with the one of this number. If nothing was sent, another may be let through at once.
    fn over(&mut self, number: u64) {
        if let Some(probe) = self.probe.take_if(|p| p.number == number) {
            self.open_until = Some(probe.since);
        }
    }
}

/// The breaker of one integration.
pub struct Breaker {
    of: String,
    settings: BreakerSettings,
    began: Instant,
    state: Mutex<State>,
}

impl Breaker {
    /// A closed one.
    #[must_use]
    pub fn new(of: &str, settings: BreakerSettings) -> Breaker {
        Breaker { of: of.to_owned(), settings, began: Instant::now(), state: Mutex::default() }
    }

    /// The integration that it is of.
    #[must_use]
    pub fn of(&self) -> &str {
        &self.of
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self, wait: Duration) -> Box<CallError> {
        Box::new(CallError {
            retry_after: Some(Millis(Millis::from(wait).0.max(1))),
            ..CallError::plain(
                Kind::Unavailable,
                format!(
                    "{} has not answered for a while, so nothing is sent there now and nothing ran.",
                    self.of
                ),
                "Call again after `retryAfterMs`; it is safe. Give the same key if you gave one.",
            )
        })
    }

    /// A send was answered, or not.
    pub fn seen(&self, answered: bool) {
        let mut state = self.state();
        let before = state.open_until.is_some();
        state.seen(&self.settings, self.began.elapsed(), answered);
        let after = state.open_until.is_some();
        drop(state);
        match (before, after) {
            (false, true) => {
                tracing::warn!(integration = %self.of, "its provider does not answer: no new operation is begun there for a while")
            }
            (true, false) => tracing::info!(integration = %self.of, "its provider answers again"),
            _ => {}
        }
    }

    /// Whether it is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state().open_until.is_some()
    }
}

/// While it is open, one operation is let through after each pause; until something is sent, as often as one is over.
impl Admission for Breaker {
    fn look(&self) -> Result<(), Box<CallError>> {
        let looked = self.state().look(self.began.elapsed());
        looked.map_err(|wait| self.refused(wait))
    }

    fn pass(self: Arc<Self>) -> Result<Pass, Box<CallError>> {
        let passed = self.state().pass(&self.settings, self.began.elapsed());
        match passed {
            Ok(None) => Ok(Pass::free()),
            Ok(Some(number)) => Ok(Pass::holding(Trying { breaker: self, number })),
            Err(wait) => Err(self.refused(wait)),
        }
    }
}

/// Held while one that was let through may still send.
struct Trying {
    breaker: Arc<Breaker>,
    number: u64,
}

impl Drop for Trying {
    fn drop(&mut self) {
        self.breaker.state().over(self.number);
    }
}

/// What it remembers is no part of what it is.
impl PartialEq for Breaker {
    fn eq(&self, other: &Breaker) -> bool {
        (&self.of, &self.settings) == (&other.of, &other.settings)
    }
}

impl Eq for Breaker {}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker").field("of", &self.of).field("settings", &self.settings).finish()
    }
}

impl fmt::Display for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BreakerSettings { failures, window, pause } = self.settings;
        let seconds = |m: Millis| m.duration().as_secs_f64();
        write!(
            f,
            "calls of {}: none are begun for {} s after {failures} sends in {} s without an answer",
            self.of,
            seconds(pause),
            seconds(window)
        )
    }
}

/// The breakers of all integrations, by the origin of their requests.
#[derive(Clone, Debug, Default)]
pub struct Breakers(HashMap<String, Vec<Arc<Breaker>>>);

impl Breakers {
    /// One more.
    pub fn add(&mut self, origin: &str, breaker: Arc<Breaker>) {
        self.0.entry(origin.to_owned()).or_default().push(breaker);
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl provider::Watch for Breakers {
    fn seen(&self, origin: &str, answered: bool) {
        self.0.get(origin).into_iter().flatten().for_each(|b| b.seen(answered));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SETTINGS: BreakerSettings =
        BreakerSettings { failures: 3, window: Millis::secs(10), pause: Millis::secs(5) };

    fn at(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn it_opens_waits_lets_one_through_and_closes() {
        let mut s = State::default();
        for t in [0, 6, 11] {
            s.seen(&SETTINGS, at(t), false);
            assert_eq!(s.pass(&SETTINGS, at(t)), Ok(None), "the first is out of the window: {t}");
        }
        s.seen(&SETTINGS, at(11), true);
        s.seen(&SETTINGS, at(12), false);
        assert_eq!(s.pass(&SETTINGS, at(12)), Err(at(5)), "an answer in between is no end of it");
        assert_eq!(s.pass(&SETTINGS, at(16)), Err(at(1)));
        assert_eq!((s.look(at(17)), s.look(at(17))), (Ok(()), Ok(())), "who only looks takes nothing");
        assert_eq!((s.pass(&SETTINGS, at(17)), s.pass(&SETTINGS, at(17))), (Ok(Some(1)), Err(at(5))), "one");
        assert_eq!(s.look(at(17)), Err(at(5)));
        s.seen(&SETTINGS, at(18), false);
        assert_eq!(s.pass(&SETTINGS, at(22)), Err(at(1)), "a failure begins a new pause");
        // One that was let through and never ends holds up nobody for longer than a pause.
        assert_eq!((s.pass(&SETTINGS, at(23)), s.pass(&SETTINGS, at(28))), (Ok(Some(2)), Ok(Some(3))));
        s.seen(&SETTINGS, at(29), true);
        assert_eq!((s.pass(&SETTINGS, at(29)), s.pass(&SETTINGS, at(29))), (Ok(None), Ok(None)));
        for t in [30, 31] {
            s.seen(&SETTINGS, at(t), false);
        }
        assert_eq!(s.pass(&SETTINGS, at(31)), Ok(None), "it counts anew");
        s.seen(&SETTINGS, at(32), false);
        assert!(s.pass(&SETTINGS, at(32)).is_err());
    }

    #[test]
    fn who_sends_nothing_takes_nobodys_turn() {
        let mut s = State::default();
        for t in 0..3 {
            s.seen(&SETTINGS, at(t), false);
        }
        assert_eq!((s.pass(&SETTINGS, at(7)), s.pass(&SETTINGS, at(8))), (Ok(Some(1)), Err(at(4))));
        s.over(1);
        assert_eq!(s.pass(&SETTINGS, at(8)), Ok(Some(2)), "the next has its turn at once");
        // It is over with one in whose place another came meanwhile, or twice.
        s.over(1);
        assert_eq!(s.pass(&SETTINGS, at(9)), Err(at(4)));
        // It did send: then nothing is given back.
        s.seen(&SETTINGS, at(10), false);
        s.over(2);
        assert_eq!((s.look(at(14)), s.pass(&SETTINGS, at(15))), (Err(at(1)), Ok(Some(3))));
        s.seen(&SETTINGS, at(16), true);
        s.over(3);
        assert_eq!(s.open_until, None, "closed");
    }

    #[test]
    fn origins_are_told_apart() {
        use provider::Watch as _;
        let one = |of: &str| Arc::new(Breaker::new(of, BreakerSettings { failures: 1, ..SETTINGS }));
        let (a, b, c) = (one("a"), one("b"), one("c"));
        let mut all = Breakers::default();
        all.add("https://x", a.clone());
        all.add("https://x", b.clone());
        all.add("https://y", c.clone());
        all.seen("https://x", false);
        all.seen("https://z", false);
        assert_eq!((a.is_open(), b.is_open(), c.is_open()), (true, true, false));
        let e = a.look().unwrap_err();
        assert_eq!(
            (e.kind, e.sentence.as_str()),
            (
                Kind::Unavailable,
                "a has not answered for a while, so nothing is sent there now and nothing ran."
            )
        );
        assert!(e.retry_after.is_some_and(|t| t > Millis(0) && t <= SETTINGS.pause));
        all.seen("https://x", true);
        assert!(a.look().is_ok() && !b.is_open());
    }
}
