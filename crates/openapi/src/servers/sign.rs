//! What shows whether a server is production's or a sandbox's: its host, its path, and what is said of it.

use super::Server;

/// Words of hosts and paths where nothing real happens.
const TRIAL: [&str; 6] = ["sandbox", "test", "staging", "demo", "mock", "uat"];
/// More of them, as people write.
const TRIAL_SAID: [&str; 6] = ["sandboxed", "tests", "testing", "mocking", "mocked", "testnet"];
/// Words for what is neither plainly a sandbox nor production.
const UNSURE: [&str; 8] =
    ["dev", "devel", "development", "nonprod", "nonproduction", "preprod", "preproduction", "qa"];
/// Words that say the contrary, wherever they stand.
const REAL: [&str; 5] = ["live", "prod", "production", "real", "mainnet"];
/// Words that turn around what is said after them.
const NOT: [&str; 13] = [
    "not", "no", "non", "never", "without", "nor", "isn", "don", "doesn", "cannot", "except", "instead",
    "pre",
];
/// How many words after it such a word turns around, at most.
const REACH: usize = 4;
/// Parts of hosts' names that say nothing of what is there: `test-api` is a test's API, `test-takers` is not.
const NEUTRAL: [&str; 16] = [
    "api", "apis", "app", "connect", "eu", "gateway", "int", "pay", "payments", "public", "rest", "service",
    "services", "us", "web", "www",
];
/// What is tested where the test is what is served: `speed-test` is no place to try things.
const TESTED: [&str; 16] = [
    "ab",
    "blood",
    "covid",
    "dna",
    "drug",
    "eye",
    "language",
    "load",
    "pen",
    "performance",
    "self",
    "skill",
    "speed",
    "stress",
    "unit",
    "user",
];
/// What stands between a registered name and its country: `example.co.uk`.
const SECOND: [&str; 18] = [
    "ac", "asso", "co", "com", "edu", "go", "gob", "gouv", "gov", "govt", "info", "ltd", "ne", "net", "nom",
    "or", "org", "plc",
];
/// It answers from descriptions alone.
const MOCKS: &str = "virtserver.swaggerhub.com";

/// What shows that a server is a sandbox.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// Its host: by itself.
    Host,
    /// Its path: beside a server that has no such sign.
    Path,
    /// Its description: beside such a server on another host.
    Said,
}

/// How far a server that is no sandbox can be production's: the first of several before the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trust {
    /// It is named live, and nothing speaks against it.
    Live,
    Silent,
    /// It is named live, and a trial too.
    Mixed,
    /// It is like a trial.
    Trial,
    /// It runs beside the caller, while another doesn't.
    Local,
}

/// What one server shows, among the others of its list.
pub(super) struct Shown {
    pub sign: Option<Sign>,
    pub trust: Trust,
    /// A word says so that nothing turns around.
    real: bool,
}

impl Shown {
    /// Whether it is named live, whatever else it is named.
    pub(super) fn is_live(&self) -> bool {
        self.real && self.sign.is_none()
    }
}

/// A word, and whether one before it turns it around.
struct Word {
    word: String,
    denied: bool,
}

impl Word {
    fn is_real(&self) -> bool {
        REAL.contains(&self.word.as_str())
    }

    fn is_trial(&self) -> bool {
        TRIAL.contains(&self.word.as_str()) || TRIAL_SAID.contains(&self.word.as_str())
    }

    fn is_unsure(&self) -> bool {
        UNSURE.contains(&self.word.trim_end_matches(|c: char| c.is_ascii_digit()))
    }
}

/// The words of a text. What turns them around reaches to the end of its clause.
fn words(text: &str) -> Vec<Word> {
    let text = text.to_lowercase().replace(" - ", ";");
    let mut all = Vec::new();
    for clause in text.split(['.', ',', ';', ':', '!', '?', '(', ')', '\n', '–', '—']) {
        let mut left = 0_usize;
        for word in clause.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()) {
            all.push(Word { word: word.to_owned(), denied: left > 0 });
            left = if NOT.contains(&word) { REACH } else { left.saturating_sub(1) };
        }
    }
    all
}

impl Server<'_> {
    /// The parts of its host's name before the registered name, and those of that name: `["api", "sandbox"]` and
    /// `["example", "co", "uk"]` of `api.sandbox.example.co.uk`.
    fn labels(&self) -> (Vec<&str>, Vec<&str>) {
        let Some(url::Host::Domain(host)) = self.parsed.host() else { return (Vec::new(), Vec::new()) };
        let mut labels: Vec<&str> = host.trim_end_matches('.').split('.').collect();
        let country = labels.last().is_some_and(|l| l.len() == 2);
        let second = labels.len().checked_sub(2).and_then(|i| labels.get(i));
        let registered = if country && second.is_some_and(|l| SECOND.contains(l)) { 3 } else { 2 };
        let name = labels.split_off(labels.len().saturating_sub(registered));
        (labels, name)
    }

    pub(super) fn is_loopback(&self) -> bool {
        provider::is_loopback(&self.parsed)
    }

    /// What it shows among `all` of its list.
    pub(super) fn shows(&self, all: &[Server<'_>]) -> Shown {
        let (labels, name) = self.labels();
        let segments: Vec<&str> = self.parsed.path().split('/').collect();
        let named: Vec<Word> = labels.iter().chain(&segments).flat_map(|part| words(part)).collect();
        let said = words(self.about);
        // `connect.squareupsandbox.com` beside `connect.squareup.com`.
        let stem = name.first().and_then(|n| n.strip_suffix("sandbox")).map(|n| n.trim_end_matches('-'));
        let stem = stem.filter(|stem| !stem.is_empty());
        let beside = |stem: &str| {
            let is_its = |other: &Server<'_>| {
                let (_, own) = other.labels();
                own.first() == Some(&stem) && own.get(1..) == name.get(1..)
            };
            all.iter().any(is_its)
        };
        let by_host = self.is_loopback()
            || self.parsed.host_str() == Some(MOCKS)
            || labels.iter().any(|l| is_trial_label(l))
            || stem.is_some_and(beside);
        let by_path = segments.iter().any(|s| TRIAL.contains(&s.to_ascii_lowercase().as_str()));

        let sign = sign(&named, &said, by_host, by_path);
        let real = named.iter().chain(&said).any(|w| w.is_real() && !w.denied);
        let trial = stem.is_some()
            || (by_host && !self.is_loopback())
            || by_path
            || named.iter().any(|w| w.is_unsure() || w.word == "testing")
            || said.iter().any(|w| !w.denied && (w.is_trial() || w.is_unsure()))
            || named.iter().chain(&said).any(|w| w.denied && w.is_real());
        let trust = match (real, trial) {
            _ if self.is_loopback() && all.iter().any(|other| !other.is_loopback()) => Trust::Local,
            (true, true) => Trust::Mixed,
            (true, false) => Trust::Live,
            (false, true) => Trust::Trial,
            (false, false) => Trust::Silent,
        };
        Shown { sign, trust, real }
    }
}

/// The sign of a server by the words of its host and path, and those that are said of it.
fn sign(named: &[Word], said: &[Word], by_host: bool, by_path: bool) -> Option<Sign> {
    // What is named live in any way is no sandbox, whatever else is said of it.
    if named.iter().any(|w| w.is_real() && !w.denied) {
        return None;
    }
    if by_host {
        // "Not for production" goes with the host; "not a sandbox" does not.
        let contrary = said.iter().any(|w| if w.denied { w.is_trial() } else { w.is_real() });
        // "Sandbox, a day behind production": host and description agree on what it is.
        let first = said.iter().find(|w| !["a", "an", "our", "the"].contains(&w.word.as_str()));
        return (!contrary || first.is_some_and(Word::is_trial)).then_some(Sign::Host);
    }
    // Of what stands alone, any doubt counts.
    let doubted = said.iter().any(|w| w.is_real() || NOT.contains(&w.word.as_str()));
    let by_words = said.iter().any(Word::is_trial).then_some(Sign::Said);
    if doubted {
        None
    } else if by_path {
        Some(Sign::Path)
    } else {
        by_words
    }
}

/// Whether a part of a host's name is that of a sandbox: `sandbox`, `api-sandbox`, `checkout-test`, `staging2`.
fn is_trial_label(label: &str) -> bool {
    let parts: Vec<&str> =
        label.split(['-', '_']).map(|p| p.trim_end_matches(|c: char| c.is_ascii_digit())).collect();
    let is_trial = |p: &&str| TRIAL.iter().any(|t| t.eq_ignore_ascii_case(p));
    match parts.as_slice() {
        [] => false,
        all if all.iter().any(|p| NOT.contains(p)) => false,
        [one] => is_trial(one),
        [first, between @ .., last] => {
            let sandbox = [first, last].iter().any(|p| p.eq_ignore_ascii_case("sandbox"));
            let subject = between.iter().chain([first]).any(|p| TESTED.contains(p));
            let neutral = between.iter().chain([last]).all(|p| p.is_empty() || NEUTRAL.contains(p));
            sandbox || (is_trial(last) && !subject) || (is_trial(first) && neutral)
        }
    }
}
