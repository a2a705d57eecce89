//! What machines watch: every state, window, refusal, send and commit, in the Prometheus text format.

use ledger::operation::{DeliveryState, Execution};
use ledger::store::{Counts, StoreStats};
use ledger::{JoinedBy, Kind, Note, Observer, Refusal};
use mcp::Revision;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Word {
    word: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Why {
    why: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Step {
    from: &'static str,
    to: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRevision {
    revision: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFeature {
    feature: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    tool: String,
    outcome: &'static str,
}

/// The counters of a tool's usual outcomes, once they have been looked up.
#[derive(Default)]
pub(crate) struct Usual {
    read: OnceLock<Counter>,
    completed: OnceLock<Counter>,
}

impl Usual {
    fn of(&self, outcome: &str) -> Option<&OnceLock<Counter>> {
        match outcome {
            "read" => Some(&self.read),
            "completed" => Some(&self.completed),
            _ => None,
        }
    }
}

/// The gateway's figures.
pub struct Metrics {
    registry: Registry,
    opened: Counter,
    joined: Family<Word, Counter>,
    transitions: Family<Step, Counter>,
    refusals: Family<Word, Counter>,
    sends: Family<Word, Counter>,
    windows: Family<Word, Counter>,
    answers: Family<Word, Counter>,
    alerts: Family<Word, Counter>,
    calls: Family<CallLabels, Counter>,
    call_seconds: Histogram,
    states_rejected: Family<Why, Counter>,
    requests: Family<OfRevision, Counter>,
    deprecated: Family<OfFeature, Counter>,
    /// Sessions of legacy clients opened.
    pub sessions_opened: Counter,
    /// Sessions of legacy clients that ended, by their client or unused.
    pub sessions_ended: Counter,
    /// Listen streams open now.
    pub listeners: Gauge,
    /// Streams of legacy clients beside their requests, open now.
    pub legacy_streams: Gauge,
    /// Calls in flight now.
    pub in_flight: Gauge,
    /// Notes heard of other replicas.
    pub bus_heard: Counter,
    /// Times that news of other replicas may have been missed.
    pub bus_gaps: Counter,
    /// Notes of other replicas that this version knows nothing of.
    pub bus_unknown: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let buckets =
            [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
        let mut m = Metrics {
            registry: Registry::with_prefix("counterfoil"),
            opened: Counter::default(),
            joined: Family::default(),
            transitions: Family::default(),
            refusals: Family::default(),
            sends: Family::default(),
            windows: Family::default(),
            answers: Family::default(),
            alerts: Family::default(),
            calls: Family::default(),
            call_seconds: Histogram::new(buckets),
            states_rejected: Family::default(),
            requests: Family::default(),
            deprecated: Family::default(),
            sessions_opened: Counter::default(),
            sessions_ended: Counter::default(),
            listeners: Gauge::default(),
            legacy_streams: Gauge::default(),
            in_flight: Gauge::default(),
            bus_heard: Counter::default(),
            bus_gaps: Counter::default(),
            bus_unknown: Counter::default(),
        };
        let r = &mut m.registry;
        r.register("operations_opened", "Operations opened", m.opened.clone());
        r.register(
            "calls_joined",
            "Calls that came to an operation that was there already, by how",
            m.joined.clone(),
        );
        r.register("transitions", "Changes of the execution state", m.transitions.clone());
        r.register(
            "refused_events",
            "Events that a record's state refused (fenced: a zombie's write)",
            m.refusals.clone(),
        );
        r.register("sends", "Sends to providers, by outcome", m.sends.clone());
        r.register("recovered_windows", "Operations taken up again, by crash window", m.windows.clone());
        r.register("error_answers", "Calls answered with an error of the ledger, by kind", m.answers.clone());
        r.register("alerts", "Alerts: somebody must look", m.alerts.clone());
        r.register("calls", "Tool calls, by tool and outcome", m.calls.clone());
        r.register(
            "call_duration_seconds",
            "Time from a call's arrival to its answer",
            m.call_seconds.clone(),
        );
        r.register(
            "state_rejected",
            "States that did not open, by why; callers are told nothing of it",
            m.states_rejected.clone(),
        );
        r.register("requests", "Requests, by revision of the protocol", m.requests.clone());
        r.register("deprecated", "Uses of deprecated features of the protocol", m.deprecated.clone());
        r.register("sessions_opened", "Sessions of legacy clients opened", m.sessions_opened.clone());
        r.register(
            "sessions_ended",
            "Sessions of legacy clients ended, by their client or unused",
            m.sessions_ended.clone(),
        );
        r.register("listen_streams", "Open subscriptions/listen streams", m.listeners.clone());
        r.register("legacy_streams", "Open streams of legacy clients", m.legacy_streams.clone());
        r.register("calls_in_flight", "Calls being worked on", m.in_flight.clone());
        r.register("bus_notes", "Notes heard of other replicas", m.bus_heard.clone());
        r.register("bus_gaps", "Times that news of other replicas may have been missed", m.bus_gaps.clone());
        r.register(
            "bus_unknown",
            "Notes of other replicas that this version knows nothing of",
            m.bus_unknown.clone(),
        );
        m.begin_at_zero();
        m
    }
}

impl Metrics {
    /// A series that first appears at 1 has no increase, so the first alert would not be seen: every word that
    /// can come begins at zero.
    fn begin_at_zero(&self) {
        let zero = |family: &Family<Word, Counter>, words: &[&'static str]| {
            for word in words {
                let _ = family.get_or_create(&Word { word });
            }
        };
        zero(&self.joined, &JoinedBy::ALL.map(JoinedBy::word));
        zero(&self.sends, &["not_sent", "applied", "refused", "not_applied", "unknown"]);
        zero(
            &self.windows,
            &[
                "abandoned",
                "running_without_intent",
                "intent_without_receipt",
                "receipt_without_result",
                "undelivered",
            ],
        );
        zero(&self.alerts, &["in_doubt", "undelivered", "several", "attempts_used_up"]);
        zero(&self.answers, &Kind::ALL.map(Kind::word));
        zero(&self.refusals, &Refusal::ALL.map(Refusal::word));
    }

    /// A state that came back did not open.
    pub(crate) fn state_rejected(&self, why: &'static str) {
        self.states_rejected.get_or_create(&Why { why }).inc();
    }

    /// The counter of a revision's requests.
    #[must_use]
    pub fn requests_of(&self, revision: Revision) -> Counter {
        self.requests.get_or_create(&OfRevision { revision: revision.as_str() }).clone()
    }

    /// The counter of a deprecated feature's uses.
    #[must_use]
    pub fn deprecated(&self, feature: &'static str) -> Counter {
        self.deprecated.get_or_create(&OfFeature { feature }).clone()
    }

    /// Counts an answered call.
    pub(crate) fn call(&self, tool: &str, usual: Option<&Usual>, outcome: &'static str, took: Duration) {
        let counter = || self.calls.get_or_create(&CallLabels { tool: tool.to_owned(), outcome }).clone();
        match usual.and_then(|u| u.of(outcome)) {
            Some(known) => known.get_or_init(counter).inc(),
            None => counter().inc(),
        };
        self.call_seconds.observe(took.as_secs_f64());
    }

    /// Everything in the Prometheus text format, with the store's own figures; and whether the breaker of each integration
    /// that has one is open.
    #[must_use]
    pub fn text(
        &self,
        counts: Option<&Counts>,
        stats: &StoreStats,
        breakers: &BTreeMap<&str, bool>,
    ) -> String {
        let mut out = String::new();
        if prometheus_client::encoding::text::encode(&mut out, &self.registry).is_err() {
            return String::new();
        }
        if let Some(end) = out.rfind("# EOF") {
            out.truncate(end);
        }
        if let Some(c) = counts {
            family(&mut out, "operations", "gauge", "Operations kept, by execution state");
            for w in Execution::WORDS {
                let _ = writeln!(
                    out,
                    "counterfoil_operations{{state=\"{w}\"}} {}",
                    c.execution.get(w).unwrap_or(&0)
                );
            }
            family(&mut out, "deliveries", "gauge", "Operations kept, by delivery state");
            for w in DeliveryState::WORDS {
                let _ = writeln!(
                    out,
                    "counterfoil_deliveries{{state=\"{w}\"}} {}",
                    c.delivery.get(w).unwrap_or(&0)
                );
            }
        }
        let help = "The provider does not answer, so new operations are refused";
        family(&mut out, "breaker_open", "gauge", help);
        for (integration, open) in breakers {
            let open = u8::from(*open);
            let _ = writeln!(out, "counterfoil_breaker_open{{integration=\"{integration}\"}} {open}");
        }
        family(&mut out, "store_commits", "counter", "Transactions committed");
        let _ = writeln!(out, "counterfoil_store_commits_total {}", stats.commits);
        family(&mut out, "store_writes", "counter", "Writes in them");
        let _ = writeln!(out, "counterfoil_store_writes_total {}", stats.writes);
        family(&mut out, "store_commit_seconds", "histogram", "Time of a durable commit, its fsync included");
        for (upper, n) in &stats.commit_buckets {
            let _ =
                writeln!(out, "counterfoil_store_commit_seconds_bucket{{le=\"{}\"}} {n}", seconds(*upper));
        }
        let _ = writeln!(out, "counterfoil_store_commit_seconds_bucket{{le=\"+Inf\"}} {}", stats.commits);
        let _ = writeln!(out, "counterfoil_store_commit_seconds_sum {}", seconds(stats.commit_us));
        let _ = writeln!(out, "counterfoil_store_commit_seconds_count {}", stats.commits);
        for (name, help, value) in [
            ("store_bytes", "Bytes of the database and its log", stats.bytes),
            ("store_free_bytes", "Free bytes on its disk", stats.free_bytes),
            (
                "store_disk_low",
                "New operations are refused because the disk is nearly full",
                u64::from(stats.disk_low),
            ),
        ] {
            family(&mut out, name, "gauge", help);
            let _ = writeln!(out, "counterfoil_{name} {value}");
        }
        out.push_str("# EOF\n");
        out
    }
}

fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP counterfoil_{name} {help}.\n# TYPE counterfoil_{name} {kind}");
}

#[allow(clippy::cast_precision_loss)]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

impl Observer for Metrics {
    fn note(&self, note: Note<'_>) {
        match note {
            Note::Opened(_) => {
                self.opened.inc();
            }
            Note::Joined(by, _) => {
                let word = by.word();
                self.joined.get_or_create(&Word { word }).inc();
            }
            Note::Transition { from, to } => {
                if from != to.execution.word() {
                    self.transitions.get_or_create(&Step { from, to: to.execution.word() }).inc();
                }
            }
            Note::Refused(r) => {
                self.refusals.get_or_create(&Word { word: r.word() }).inc();
            }
            Note::Sent(word) => {
                self.sends.get_or_create(&Word { word }).inc();
            }
            Note::Window(word) => {
                self.windows.get_or_create(&Word { word }).inc();
            }
            Note::Answered(kind) => {
                self.answers.get_or_create(&Word { word: kind.word() }).inc();
            }
            Note::Alert { what, operation } => {
                self.alerts.get_or_create(&Word { word: what }).inc();
                tracing::warn!(operation = %operation.id, tool = %operation.scope.tool, state = operation.execution.word(), alert = what, "somebody must look at an operation");
            }
        }
    }
}

/// Something counts in a gauge while it lasts, however it ends.
pub(crate) struct Counted(Gauge);

impl Counted {
    pub fn new(gauge: &Gauge) -> Counted {
        gauge.inc();
        Counted(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_leaves_nothing_in_flight() {
        let gauge = Gauge::default();
        let panics = std::panic::AssertUnwindSafe(|| {
            let _in_flight = Counted::new(&gauge);
            assert_eq!(gauge.get(), 1);
            std::panic::resume_unwind(Box::new("a panic"));
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(gauge.get(), 0);
    }
}
