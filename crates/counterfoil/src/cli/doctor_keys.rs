//! `doctor`: whether the key ring opens here, and for which server.

use super::doctor::Report;
use crate::run::Operator;
use serde_json::Value;

/// Tells what the ledger's own process, or this one, sees of it.
pub(super) async fn told(operator: &Operator, report: &mut Report) {
    match operator.get("/v1/keys").await {
        Ok((status, body)) => say(status.as_u16(), &body, report),
        Err(e) => report.error("keys", e.to_string(), "look at the process that holds the ledger"),
    }
}

fn say(status: u16, body: &Value, report: &mut Report) {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    if status == 404 {
        report.good("keys", "no key ring yet: the first start of the server makes it");
        return;
    }
    if status != 200 {
        // The message says what to do.
        let why = body["error"]["message"].as_str().unwrap_or("the request was refused");
        report.error("keys", why.to_owned(), "see docs/security.md, \"Sealed state and its keys\"");
        return;
    }
    let (ring, ours) = (text(&body["serverName"]), text(&body["configuredName"]));
    if ring != ours {
        report.error(
            "keys",
            format!("the key ring belongs to the server name {ring:?}, and this configuration says {ours:?}"),
            "give every replica the same [server] name; if all are to be renamed, stop them and run `counterfoil keys rename`. A server on SQLite renames its ring at the next start",
        );
    }
    let masters = body["masters"].as_array().map_or(0, Vec::len);
    if masters > 1 {
        report.warn(
            "keys",
            format!("{masters} master keys open the key ring"),
            "when every replica has the new one, `counterfoil keys forbid` the old one",
        );
    }
    let keys = body["keys"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |stage: &str| keys.iter().filter(|k| k["stage"] == stage).count();
    let active = keys.iter().find(|k| k["stage"] == "active");
    report.good(
        "keys",
        format!(
            "{} seals since {} ({} standby, {} retiring), under the master key {}",
            active.map_or_else(|| "no key".to_owned(), |k| text(&k["id"])),
            active.map_or_else(|| "-".to_owned(), |k| text(&k["sealsFrom"])),
            of("standby"),
            of("retiring"),
            text(&body["master"]),
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_said_of_it() {
        let mut report = Report::default();
        let key = |stage: &str| json!({ "id": format!("k-{stage}"), "stage": stage, "sealsFrom": "then" });
        let body = json!({
            "serverName": "billing", "configuredName": "billing", "masters": ["mk-a"], "master": "mk-a",
            "keys": [key("retiring"), key("active"), key("standby")],
        });
        say(200, &body, &mut report);
        let mut other = body.clone();
        other["configuredName"] = json!("shop");
        other["masters"] = json!(["mk-a", "mk-b"]);
        say(200, &other, &mut report);
        say(404, &json!({ "error": { "message": "absent" } }), &mut report);
        say(400, &json!({ "error": { "message": "under another master key" } }), &mut report);
        let lines = report.lines();
        assert_eq!(
            lines[0],
            "ok keys: k-active seals since then (1 standby, 1 retiring), under the master key mk-a | -"
        );
        assert!(
            lines[1].starts_with("error keys: the key ring belongs to the server name \"billing\""),
            "{lines:?}"
        );
        assert!(lines[2].starts_with("warning keys: 2 master keys open"), "{lines:?}");
        assert_eq!(lines[3], lines[0]);
        assert!(lines[4].starts_with("ok keys: no key ring yet"), "{lines:?}");
        assert!(lines[5].starts_with("error keys: under another master key"), "{lines:?}");
    }
}
