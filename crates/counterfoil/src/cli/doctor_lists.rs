//! What `doctor` says of the lists of tools: whether models and clients can do with them.

use super::doctor::Report;
use crate::config::show_size;
use gateway::{ToolList, ViewBy};

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

#[cfg(test)]
mod tests {
    use super::*;
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
