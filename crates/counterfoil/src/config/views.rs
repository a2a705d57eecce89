//! `[[view]]`: fewer tools at a path or for a principal.

use super::error::At;
use super::node::Reader;
use super::{Auth, Set, values};
use gateway::ViewBy;

/// The most views.
const MAX_VIEWS: usize = 64;
/// The longest pattern, in bytes.
const MAX_PATTERN: usize = 255;

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewConfig {
    /// Its name.
    pub name: String,
    /// Where it is written.
    pub at: At,
    /// By what it is chosen.
    pub by: ViewBy,
    /// Which tools it has: canonical ids, and patterns with `*`.
    pub tools: Vec<Set<String>>,
}

/// Reads them. `endpoint` is the path of what is served without a view.
pub(super) fn read(root: &Reader<'_>, endpoint: &str, auth: Auth) -> Vec<ViewConfig> {
    let mut out: Vec<ViewConfig> = Vec::new();
    let sections = root.list("view");
    if let Some(one) = sections.get(MAX_VIEWS) {
        one.faults.add(&one.at, format!("there are {} views, and {MAX_VIEWS} are the most", sections.len()));
    }
    for r in sections.iter().take(MAX_VIEWS) {
        let name = r.parsed("name", values::name);
        let path = r.parsed("path", values::path);
        let principals = r.texts("principals");
        let tools = tools(r);
        r.finish();
        for (key, there) in [("name", name.is_some()), ("tools", tools.is_some())] {
            if !there && r.lacks(key) {
                r.faults.add(&r.at, format!("[[view]] needs {key}"));
            }
        }
        let by = match (path, principals) {
            (Some((path, at)), None) => {
                if path == endpoint {
                    let why = format!(
                        "path: {path:?} is [server] path, where everything is served; choose another one"
                    );
                    r.faults.add(&at, why);
                }
                if let Some(other) = out.iter().find(|v| v.by == ViewBy::Path(path.clone())) {
                    r.faults
                        .add(&at, format!("path: {path:?} is the path of the view {:?} already", other.name));
                }
                Some(ViewBy::Path(path))
            }
            (None, Some(all)) => Some(ViewBy::Principals(members(r, all, &out, auth))),
            (None, None) => {
                if r.lacks("path") && r.lacks("principals") {
                    r.faults.add(&r.at, "[[view]] needs path or principals, by which it is chosen");
                }
                None
            }
            (Some(_), Some(_)) => {
                r.faults.add(&r.place("principals"), "a view is chosen by its path or by its principals; make two of it, with another name each. Whoever has one and asks at the other's path sees what both have");
                None
            }
        };
        let (Some((name, at)), Some(by), Some(tools)) = (name, by, tools) else { continue };
        if out.iter().any(|v| v.name == name) {
            r.faults.add(&at, format!("the view {name:?} is there already; give this one another name"));
        }
        out.push(ViewConfig { name, at: r.at.clone(), by, tools });
    }
    out
}

fn members(r: &Reader<'_>, given: Vec<(String, At)>, before: &[ViewConfig], auth: Auth) -> Vec<String> {
    let place = r.place("principals");
    if given.is_empty() {
        r.faults.add(&place, "principals names nobody; name some, or take the view out");
    }
    if auth == Auth::None {
        r.faults.add(&place, "principals has no use without authentication: every caller is the same principal; set mode = \"api-key\" in [auth], or choose the view by path");
    }
    let mut all: Vec<String> = Vec::new();
    for (principal, at) in given {
        let of = |v: &&ViewConfig| matches!(&v.by, ViewBy::Principals(p) if p.contains(&principal));
        if principal.is_empty() || all.contains(&principal) {
            r.faults.add(&at, format!("principals: {principal:?} is empty or named twice"));
        } else if let Some(other) = before.iter().find(of) {
            r.faults.add(
                &at,
                format!(
                    "principals: {principal:?} has the view {:?} already, and each has one at most",
                    other.name
                ),
            );
        }
        all.push(principal);
    }
    all
}

fn tools(r: &Reader<'_>) -> Option<Vec<Set<String>>> {
    let given = r.texts("tools")?;
    if given.is_empty() {
        r.faults.add(
            &r.place("tools"),
            "tools names none; name some, as \"payments.refunds.create\" or \"payments.*\"",
        );
    }
    let mut out: Vec<Set<String>> = Vec::new();
    for (text, at) in given {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '*');
        if text.is_empty() || text.len() > MAX_PATTERN || text.contains("**") || !text.chars().all(plain) {
            r.faults.add(&at, format!("tools: {text:?} is neither a canonical id nor a pattern; write for example \"payments.refunds.create\" or \"payments.*\""));
            continue;
        }
        if out.iter().any(|s| s.value == text) {
            r.faults.add(&at, format!("tools: {text:?} is there twice"));
        }
        out.push(Set { value: text, at });
    }
    Some(out)
}

/// Whether an id fits a pattern: `*` stands for any number of characters, dots too.
pub(crate) fn fits(pattern: &str, id: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = id.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        // The earliest place leaves the most for the others.
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, id) in [
            ("payments.*", "payments.refunds.create"),
            ("*.create", "payments.refunds.create"),
            ("payments.*.create", "payments.refunds.create"),
            ("p*s.r*s.c*e", "payments.refunds.create"),
            ("*", "anything"),
            ("payments.refunds.create", "payments.refunds.create"),
            ("a*", "a"),
            ("*a*a", "aa"),
        ] {
            assert!(fits(pattern, id), "{pattern} {id}");
        }
        for (pattern, id) in [
            ("payments.*", "payment.refunds"),
            ("payments", "payments.refunds"),
            ("payments.refunds", "payments"),
            ("*.create", "payments.refunds.creates"),
            ("a*a", "a"),
            ("*a*a", "a"),
            ("a*b*c", "acb"),
        ] {
            assert!(!fits(pattern, id), "{pattern} {id}");
        }
    }
}
