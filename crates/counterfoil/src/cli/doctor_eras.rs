//! `doctor` on the eras of the protocol: which are served, whether sessions can do what tools need, and what the clients
//! of a running gateway still use, so that an operator can tell when an era can be turned off.

use super::doctor::Report;
use crate::config::{LegacySessions, Server};
use crate::run::Operator;
use http::StatusCode;
use mcp::Eras;
use serde_json::Value;
use std::path::Path;

/// Which eras are served.
pub(super) fn served(server: &Server, report: &mut Report) {
    const MEND: &str = "set eras = \"both\", unless all its clients are legacy ones";
    if server.eras == Eras::Legacy {
        report.warn(
            "eras",
            "only the legacy era is served: modern clients fall back to `initialize` if they can, else they fail",
            MEND,
        );
    } else {
        report.good("eras", format!("{} served", eras(server.eras)));
    }
    for (host, of_host) in &server.eras_by_host {
        if *of_host == Eras::Legacy && server.eras != Eras::Legacy {
            report.warn("eras", format!("under {host} only the legacy era is served: modern clients fall back to `initialize` there if they can, else they fail"), MEND);
        } else {
            report.good("eras", format!("under {host} {} served", eras(*of_host)));
        }
    }
    for (principal, its) in &server.eras_by_principal {
        report.good("eras", format!("to {principal} {} served, under any name", eras(*its)));
    }
}

fn eras(eras: Eras) -> &'static str {
    match eras {
        Eras::Both => "both eras are",
        Eras::Modern => "only the modern era is",
        Eras::Legacy => "only the legacy era is",
    }
}

/// Whether legacy clients can use the tools that ask them back (`asking`, canonical ids).
pub(super) fn sessions(server: &Server, asking: &[&str], report: &mut Report) {
    let (word, why) = match server.legacy_sessions {
        LegacySessions::Never => ("never", "none is kept"),
        LegacySessions::Platform => ("platform", "the platform's ids name none here"),
        LegacySessions::Auto | LegacySessions::Always => return,
    };
    if asking.is_empty() || !server.serves_legacy() {
        return;
    }
    let tools = asking.join(", ");
    let what = format!(
        "legacy_sessions = {word:?}: a legacy client can be asked back in a session only, and {why}; it is refused {tools}"
    );
    let mut some = server.eras_by_host.iter().chain(&server.eras_by_principal);
    let modern = server.eras.modern() || some.any(|(_, e)| e.modern());
    let mend = "set legacy_sessions = \"auto\" in [server]";
    if modern {
        report.warn("sessions", what, mend);
    } else {
        report.error("sessions", format!("{what}, and no other client is served"), mend);
    }
}

/// Asks the gateway that holds the ledger in `directory` what its clients use.
pub(super) async fn usage(directory: &Path, report: &mut Report) {
    let Some(operator) = Operator::find(directory).await else {
        report.good("usage", "no gateway runs here, so it is not known what clients use");
        return;
    };
    match operator.get("/v1/usage").await {
        Ok((status, body)) if status.is_success() => used(&body, report),
        Ok((StatusCode::NOT_FOUND, _)) => report.warn(
            "usage",
            "the running process can't say what its clients use: it is of an older version",
            "restart it with this version",
        ),
        Ok((status, _)) => {
            report.error("usage", format!("the running process answered {status}"), "restart it");
        }
        Err(e) => report.error("usage", e.to_string(), "restart the process"),
    }
}

/// A line for each revision in use, a warning for each deprecated feature.
fn used(body: &Value, report: &mut Report) {
    let since = body["since"].as_str().unwrap_or("its start");
    let none = Vec::new();
    let rows = body["usage"].as_array().unwrap_or(&none);
    if rows.is_empty() {
        report.good("usage", format!("no request since {since}"));
    }
    for row in rows {
        let feature = row["feature"].as_str().unwrap_or("?");
        let requests = row["requests"].as_u64().unwrap_or(0);
        let clients: Vec<&str> =
            row["clients"].as_array().unwrap_or(&none).iter().filter_map(Value::as_str).collect();
        let mut what = format!(
            "{feature}: {requests} request{} since {since}, the last at {}",
            if requests == 1 { "" } else { "s" },
            row["lastSeen"].as_str().unwrap_or("?")
        );
        if !clients.is_empty() {
            what.push_str(&format!(", of {}", clients.join(", ")));
        }
        match row["deprecatedIn"].as_str() {
            None => report.good("usage", what),
            Some(revision) => {
                let removal = row["removal"].as_str().unwrap_or("a later revision");
                report.warn(
                    "usage",
                    format!("{what}; deprecated in {revision}, may be gone in {removal}"),
                    row["advice"].as_str().unwrap_or("stop using it"),
                );
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::Config;
    use serde_json::json;

    fn server(text: &str) -> Server {
        let text = format!("[server]\n{text}\n");
        Config::parse(Path::new("counterfoil.toml"), &text, [("", ""); 0]).unwrap().server
    }

    fn lines(say: impl FnOnce(&mut Report)) -> Vec<String> {
        let mut report = Report::default();
        say(&mut report);
        report.lines()
    }

    #[test]
    fn what_modern_clients_meet_is_told() {
        let told = |text: &str| lines(|r| served(&server(text), r));
        assert_eq!(told(""), ["ok eras: both eras are served | -"]);
        assert_eq!(told("eras = \"modern\""), ["ok eras: only the modern era is served | -"]);
        let all = told("eras = \"legacy\"");
        assert!(all.len() == 1 && all[0].starts_with("warning eras: only the legacy era"), "{all:?}");
        let all = told("eras_by_host = { localhost = \"legacy\", \"127.0.0.1\" = \"modern\" }");
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all[1].starts_with("warning eras: under localhost only the legacy era"), "{all:?}");
        assert_eq!(all[2], "ok eras: under 127.0.0.1 only the modern era is served | -");
    }

    #[test]
    fn sessions_that_tools_need_are_missed() {
        let told = |text: &str, asking: &[&str]| lines(|r| sessions(&server(text), asking, r));
        let tool = ["desk.refunds.confirm"];
        for (text, level) in [
            ("legacy_sessions = \"never\"", "warning"),
            ("legacy_sessions = \"platform\"", "warning"),
            ("eras = \"legacy\"\nlegacy_sessions = \"never\"", "error"),
            (
                "eras = \"legacy\"\nlegacy_sessions = \"never\"\neras_by_host = { localhost = \"both\" }",
                "warning",
            ),
        ] {
            let all = told(text, &tool);
            assert!(
                all.len() == 1 && all[0].starts_with(level) && all[0].contains(tool[0]),
                "{text}: {all:?}"
            );
            assert!(told(text, &[]).is_empty(), "{text}: nothing needs one");
        }
        for text in ["", "legacy_sessions = \"always\"", "eras = \"modern\""] {
            assert!(told(text, &tool).is_empty(), "{text}");
        }
    }

    #[test]
    fn each_revision_has_a_line_and_each_deprecated_feature_a_warning() {
        let row = |feature: &str, clients: &[&str], deprecated: Option<&str>| {
            json!({
                "feature": feature, "requests": clients.len(), "lastSeen": "2026-11-29T10:00:00.000Z", "clients": clients,
                "deprecatedIn": deprecated, "removal": deprecated.map(|_| "the revision after"),
                "advice": deprecated.map(|_| "do without"),
            })
        };
        let body = json!({ "since": "2026-11-29T09:00:00.000Z", "usage": [
            row("revision 2026-07-28", &[], None),
            row("revision 2025-11-25", &["old 1"], None),
            row("logging", &["old 1", "older 2"], Some("2026-07-28")),
        ] });
        let all = lines(|r| used(&body, r));
        assert_eq!(
            all,
            [
                "ok usage: revision 2026-07-28: 0 requests since 2026-11-29T09:00:00.000Z, the last at 2026-11-29T10:00:00.000Z | -",
                "ok usage: revision 2025-11-25: 1 request since 2026-11-29T09:00:00.000Z, the last at 2026-11-29T10:00:00.000Z, of old 1 | -",
                "warning usage: logging: 2 requests since 2026-11-29T09:00:00.000Z, the last at 2026-11-29T10:00:00.000Z, of old 1, older 2; deprecated in 2026-07-28, may be gone in the revision after | do without",
            ]
        );
        let all = lines(|r| used(&json!({ "since": "2026-11-29T09:00:00.000Z", "usage": [] }), r));
        assert_eq!(all, ["ok usage: no request since 2026-11-29T09:00:00.000Z | -"]);
    }

    /// `tools/list` of a client that says nothing of itself, so a legacy one.
    async fn list(at: std::net::SocketAddr) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let mut stream = tokio::net::TcpStream::connect(at).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_gateway_that_runs_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let asked = || async {
            let mut report = Report::default();
            usage(&data, &mut report).await;
            report.lines()
        };
        let nobody = ["ok usage: no gateway runs here, so it is not known what clients use | -"];
        assert_eq!(asked().await, nobody);
        let mut config = Config::sandbox(&data);
        config.sandbox = None;
        config.server.listen.set_port(0);
        let running = crate::run::Server::start(config).await.unwrap();
        let before = asked().await;
        assert!(before.len() == 1 && before[0].starts_with("ok usage: no request since 2"), "{before:?}");
        for _ in 0..2 {
            let answer = list(running.address()).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("operation_status"), "{answer}");
        }
        let after = asked().await;
        assert!(
            after.len() == 1 && after[0].starts_with("ok usage: revision 2025-03-26: 2 requests since 2"),
            "{after:?}"
        );
        running.shutdown().await.unwrap();
        assert_eq!(asked().await, nobody);
    }
}
