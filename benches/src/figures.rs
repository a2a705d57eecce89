//! Figures, their bars, and how they are shown.

use serde_json::{Map, Value, json};

/// What a figure has to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bar {
    AtLeast(f64),
    Under(f64),
}

/// Names, bars and aims of the figures that have one.
const BARS: [(&str, Bar, f64); 11] = [
    ("readonly_vs_axum_16", Bar::AtLeast(0.8), 0.95),
    ("readonly_vs_axum_64", Bar::AtLeast(0.8), 0.95),
    ("readonly_vs_rmcp_64", Bar::AtLeast(1.5), 2.0),
    ("ledgered_vs_typescript_64", Bar::AtLeast(1.5), 3.0),
    ("ledgered_vs_python_64", Bar::AtLeast(1.5), 3.0),
    ("ledger_vs_floor_64", Bar::AtLeast(0.7), 0.9),
    ("growth_1e6", Bar::AtLeast(0.9), 1.0),
    ("recover_10k_ms", Bar::Under(5000.0), 1000.0),
    ("pg_ledger_vs_pgbench_64", Bar::AtLeast(2.0), 4.0),
    ("listen_kb", Bar::Under(20.0), 15.0),
    ("notify_p50_ms", Bar::Under(100.0), 20.0),
];

/// All that were taken, in order.
#[derive(Debug, Default)]
pub struct Figures {
    values: Map<String, Value>,
    bars: Map<String, Value>,
    missed: usize,
}

fn rounded(value: f64) -> f64 {
    let steps = if value.abs() < 100.0 { 1000.0 } else { 10.0 };
    (value * steps).round() / steps
}

impl Figures {
    /// Adds one and prints it, with what is behind it.
    pub fn add(&mut self, name: &str, value: f64, behind: &str) {
        let value = rounded(value);
        let mut judged = String::new();
        if let Some((_, bar, aim)) = BARS.iter().find(|(n, ..)| *n == name) {
            let (word, limit, met) = match *bar {
                Bar::AtLeast(limit) => ("at_least", limit, value >= limit),
                Bar::Under(limit) => ("under", limit, value < limit),
            };
            self.missed += usize::from(!met);
            judged = format!(
                "  {} {limit}, aim {aim}: {}",
                word.replace('_', " "),
                if met { "met" } else { "MISSED" }
            );
            self.bars.insert(name.into(), json!({ word: limit, "aim": aim, "met": met }));
        }
        println!("{name:28}{value:>12}{judged}");
        if !behind.is_empty() {
            println!("{:28}{behind}", "");
        }
        self.values.insert(name.into(), json!(value));
    }

    /// Whether every bar was met.
    #[must_use]
    pub fn all_met(&self) -> bool {
        self.missed == 0
    }

    /// Each figure by its name, `bars` beside them, and what else is to be said of the run.
    #[must_use]
    pub fn json(mut self, run: Value) -> Value {
        self.values.insert("bars".into(), Value::Object(self.bars));
        self.values.insert("run".into(), run);
        Value::Object(self.values)
    }
}

/// The middle of some numbers; NaN of none.
#[must_use]
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let n = numbers.len();
    match n {
        0 => f64::NAN,
        _ if n % 2 == 1 => numbers[n / 2],
        _ => (numbers[n / 2 - 1] + numbers[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn a_bar_is_met_or_missed() {
        let mut figures = Figures::default();
        figures.add("readonly_vs_axum_16", 0.8, "");
        figures.add("recover_10k_ms", 4999.9, "");
        figures.add("start_ms", 1e9, "");
        assert!(figures.all_met());
        figures.add("readonly_vs_axum_64", 0.79, "");
        figures.add("recover_10k_ms", f64::NAN, "");
        assert!(!figures.all_met());
        let json = figures.json(Value::Null);
        assert_eq!(json["bars"]["readonly_vs_axum_64"]["met"], false);
        assert_eq!(json["bars"]["recover_10k_ms"]["met"], false);
        assert_eq!(json["bars"]["readonly_vs_axum_16"]["met"], true);
        assert!(json["bars"].get("start_ms").is_none());
    }
}
