//! `doctor`: the replicas on a ledger in PostgreSQL, what they don't agree on, and what its server promises.

use super::doctor::Report;
use crate::config::show_duration;
use crate::run::Operator;
use ledger::Millis;
use serde_json::Value;

/// Tells what the ledger's own process, or this one, sees of them. Nothing where there is one process.
pub(super) async fn told(operator: &Operator, report: &mut Report) {
    match operator.get("/v1/replicas").await {
        Ok((status, body)) if status.is_success() => say(&body, report),
        Ok((_, body)) => {
            let why = body["error"]["message"].as_str().unwrap_or("the request was refused");
            report.error("replicas", why.to_owned(), "look at the database");
        }
        Err(e) => report.error("replicas", e.to_string(), "look at the database"),
    }
}

fn list<'a>(body: &'a Value, name: &str) -> &'a [Value] {
    body[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn say(body: &Value, report: &mut Report) {
    let serving: Vec<&Value> = list(body, "replicas").iter().filter(|r| r["serves"] == true).collect();
    for r in &serving {
        let at = match text(r, "listen") {
            "" => String::new(),
            listen => format!(" on {listen}"),
        };
        let left = Millis(r["leaseLeftMs"].as_i64().unwrap_or(0));
        let lease = if left.0 > 0 {
            format!("its lease is good for {}", show_duration(left))
        } else {
            "its lease has lapsed".to_owned()
        };
        report.good(
            "replicas",
            format!(
                "{}{at}, version {}, since {}; {lease}",
                text(r, "name"),
                text(r, "version"),
                text(r, "startedAt")
            ),
        );
    }
    let drift = list(body, "drift");
    for d in drift {
        report.warn("replicas", text(d, "what"), text(d, "mend"));
    }
    if serving.len() > 1 && drift.is_empty() {
        report.good("replicas", "all say and serve the same");
    }
    for c in list(body, "checks") {
        let what = format!("{} = {}", text(c, "what"), text(c, "found"));
        match text(c, "level") {
            "error" => report.error("database", what, text(c, "mend")),
            "warning" => report.warn("database", what, text(c, "mend")),
            _ => report.good("database", what),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_said_of_them() {
        let mut report = Report::default();
        say(&json!({ "replicas": [], "drift": [], "checks": [] }), &mut report);
        assert!(report.lines().is_empty());
        let one = |name: &str, left: i64, serves: bool| {
            json!({ "name": name, "listen": "10.0.0.1:8600", "version": "1", "startedAt": "then",
                    "leaseLeftMs": left, "serves": serves })
        };
        let body = json!({
            "replicas": [one("a", 2000, true), one("b", -5, true), one("a command", 9, false)],
            "drift": [{ "what": "they differ", "mend": "make them the same" }],
            "checks": [
                { "what": "fsync", "found": "off", "level": "error", "mend": "set fsync = on" },
                { "what": "wal_level", "found": "replica", "level": "ok", "mend": "" },
                { "what": "max_connections", "found": "95 of 100", "level": "warning", "mend": "raise it" },
            ],
        });
        say(&body, &mut report);
        assert_eq!(
            report.lines(),
            [
                "ok replicas: a on 10.0.0.1:8600, version 1, since then; its lease is good for 2s | -",
                "ok replicas: b on 10.0.0.1:8600, version 1, since then; its lease has lapsed | -",
                "warning replicas: they differ | make them the same",
                "error database: fsync = off | set fsync = on",
                "ok database: wal_level = replica | -",
                "warning database: max_connections = 95 of 100 | raise it",
            ]
        );
    }
}
