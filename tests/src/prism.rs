//! Requests of imported methods, judged by somebody else: published descriptions of large providers are imported whole,
//! methods are called through a running gateway with arguments made from their own schemas, and what the gateway sends is
//! judged by Prism, which read the provider's description and nothing of ours.

mod broken;
mod prune;
mod recorder;
mod run;
mod sample;
mod validator;

use std::collections::BTreeMap;
use std::time::Duration;

pub use run::run;

/// How many methods are called of each provider.
pub const METHODS: usize = 30;
/// How many requests that must be refused are sent besides.
pub const BROKEN: usize = 5;

/// A provider whose description is published.
#[derive(Clone, Copy, Debug)]
pub struct Provider {
    /// Its integration.
    pub name: &'static str,
    /// What it is for.
    pub what: &'static str,
    /// Its file in the collection of descriptions.
    pub file: &'static str,
}

/// The providers whose requests are judged.
pub const PROVIDERS: [Provider; 5] = [
    Provider { name: "stripe", what: "payments", file: "stripe.com.json" },
    Provider { name: "github", what: "code hosting", file: "github.com/api.github.com.json" },
    Provider { name: "twilio", what: "messaging", file: "twilio.com/api.json" },
    Provider { name: "compute", what: "cloud", file: "googleapis.com/compute.json" },
    Provider { name: "sendgrid", what: "mail", file: "sendgrid.com.json" },
];

/// What came of a provider.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// The size of its description.
    pub bytes: usize,
    /// Operations that it describes.
    pub operations: u64,
    /// Those that became methods, and how long the import took.
    pub methods: u64,
    /// How long that took.
    pub import: Duration,
    /// Operations that did not, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Methods that were not chosen, since their forms must have what the validator can't read.
    pub unreadable: u64,
    /// Methods that were called.
    pub called: usize,
    /// Methods whose requests the validator took.
    pub accepted: usize,
    /// What was wrong with the others.
    pub refused: Vec<String>,
    /// Requests that were broken on purpose, and refused.
    pub caught: usize,
    /// Those that were not, and what else is wrong.
    pub wrong: Vec<String>,
    /// How many of the called methods have what: verbs, places of arguments, kinds of bodies, styles.
    pub spread: BTreeMap<String, usize>,
}

impl Judged {
    /// How many checks passed and failed.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.accepted + self.caught, self.refused.len() + self.wrong.len())
    }

    /// In a few lines.
    #[must_use]
    pub fn lines(&self, provider: &Provider) -> String {
        let list = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>().join(", ");
        let skipped = list(&mut self.skipped.iter().map(|(reason, n)| format!("{reason} {n}")));
        let spread = list(&mut self.spread.iter().map(|(what, n)| format!("{what} {n}")));
        let mut lines = format!(
            "{} ({}, {} KiB): {} of {} operations imported in {:.1} s{}\n  called {}: accepted {}, refused {}; broken on purpose {}: refused {}{}\n  {spread}",
            provider.name,
            provider.what,
            self.bytes >> 10,
            self.methods,
            self.operations,
            self.import.as_secs_f64(),
            if skipped.is_empty() { String::new() } else { format!(" (skipped: {skipped})") },
            self.called,
            self.accepted,
            self.refused.len(),
            BROKEN,
            self.caught,
            match self.unreadable {
                0 => String::new(),
                n => format!("; {n} could not be chosen: the validator can't read their forms"),
            },
        );
        for line in self.refused.iter().chain(&self.wrong) {
            lines.push_str(&format!("\n  WRONG {line}"));
        }
        lines
    }
}
