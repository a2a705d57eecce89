//! What `doctor` says of the lists of tools: whether models and clients can do with them.

use super::doctor::Report;
use crate::config::{ViewConfig, show_size};
use crate::run::Operator;
use gateway::{ToolList, ViewBy};
use serde_json::Value;

/// More tools than this, and a model chooses worse among them; some hosts take no more.
const MANY: usize = 128;
/// More bytes than this take up much of what a model reads, at the start of each conversation.
const LARGE: usize = 256 << 10;

/// A line for each list.
pub(super) fn told(lists: &[ToolList], report: &mut Report) {
    for list in lists {
        let place = match list.view.as_ref().map(|v| (&v.name, &v.by)) {
            None => String::new(),
            Some((name, ViewBy::Path(path))) => format!(" in the view {name} at {path}"),
            Some((name, ViewBy::Principals(all))) => format!(" in the view {name} of {}", all.join(", ")),
        };
        let size = show_size(list.bytes as u64);
        let what = format!("{} tool{}, {size}{place}", list.tools, if list.tools == 1 { "" } else { "s" });
        if list.tools > MANY || list.bytes > LARGE {
            let why = format!(
                "{what}: more than models and hosts do well with ({MANY} tools, {})",
                show_size(LARGE as u64)
            );
            let mend = match list.view {
                None => {
                    "serve fewer at a path or to a principal of its own ([[view]]), or import fewer; callers without a view still see all"
                }
                Some(_) => "name fewer in its tools, or make it several views",
            };
            report.warn("lists", why, mend);
        } else {
            report.good("lists", what);
        }
    }
}

/// Says which principals of views nobody can be, as the ledger knows its API keys: a name that is misspelt there leaves its
/// bearer with all tools.
pub(super) async fn owners(operator: &Operator, views: &[ViewConfig], report: &mut Report) {
    if !views.iter().any(|v| matches!(v.by, ViewBy::Principals(_))) {
        return;
    }
    match operator.get("/v1/api-keys").await {
        Ok((status, body)) if status.is_success() => strangers(views, &body, report),
        Ok((_, body)) => {
            let why = body["error"]["message"].as_str().unwrap_or("the request was refused").to_owned();
            report.error("views", why, "look at the process that holds the ledger");
        }
        Err(e) => report.error("views", e.to_string(), "look at the process that holds the ledger"),
    }
}

fn strangers(views: &[ViewConfig], keys: &Value, report: &mut Report) {
    let keys = keys["keys"].as_array().map(Vec::as_slice).unwrap_or_default();
    let owns = |principal: &String| {
        keys.iter().any(|k| k["principal"] == principal.as_str() && k["revokedAt"].is_null())
    };
    for view in views {
        let ViewBy::Principals(all) = &view.by else { continue };
        for principal in all.iter().filter(|p| !owns(p)) {
            report.warn(
                "views",
                format!("{principal:?}, of the view {}, owns no API key that is good", view.name),
                "compare it with `counterfoil api-keys list`: a principal who is in no view sees all tools, so a name must be written as its keys have it",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::At;
    use serde_json::json;

    #[test]
    fn principals_that_nobody_can_be_are_warned_of() {
        let view =
            |name: &str, by: ViewBy| ViewConfig { name: name.into(), at: At::Nowhere, by, tools: Vec::new() };
        let of = |all: &[&str]| ViewBy::Principals(all.iter().map(|p| (*p).to_owned()).collect());
        let views = [
            view("support", of(&["support-bot", "suport-staff", "left"])),
            view("billing", ViewBy::Path("/mcp/billing".into())),
        ];
        let key =
            |principal: &str, revoked: Option<&str>| json!({ "principal": principal, "revokedAt": revoked });
        let keys = json!({ "keys": [key("support-bot", Some("then")), key("support-bot", None), key("support-staff", None), key("left", Some("then"))] });
        let mut report = Report::default();
        strangers(&views, &keys, &mut report);
        let lines = report.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        for (line, who) in lines.iter().zip(["suport-staff", "left"]) {
            let expected =
                format!("warning views: {who:?}, of the view support, owns no API key that is good | ");
            assert!(line.starts_with(&expected), "{line}");
        }
    }
    use gateway::View;

    fn list(view: Option<ViewBy>, tools: usize, bytes: usize) -> ToolList {
        let view = view.map(|by| View { name: "billing".into(), by, tools: Default::default() });
        ToolList { view, tools, bytes }
    }

    #[test]
    fn long_lists_are_warned_of() {
        let mut report = Report::default();
        let path = || Some(ViewBy::Path("/mcp/billing".into()));
        let two = Some(ViewBy::Principals(vec!["ada".into(), "bot".into()]));
        told(
            &[
                list(None, 128, 256 << 10),
                list(None, 129, 10),
                list(path(), 1, 2048),
                list(path(), 2, (256 << 10) + 1),
                list(two, 3, 3),
            ],
            &mut report,
        );
        let lines = report.lines();
        assert_eq!(lines[0], "ok lists: 128 tools, 256KiB | -");
        assert!(
            lines[1].starts_with("warning lists: 129 tools, 10B: more than") && lines[1].contains("[[view]]"),
            "{lines:?}"
        );
        assert_eq!(lines[2], "ok lists: 1 tool, 2KiB in the view billing at /mcp/billing | -");
        assert!(
            lines[3].starts_with("warning lists: 2 tools, 256.0KiB in the view billing")
                && lines[3].contains("name fewer"),
            "{lines:?}"
        );
        assert_eq!(lines[4], "ok lists: 3 tools, 3B in the view billing of ada, bot | -");
    }
}
