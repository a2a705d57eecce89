//! Which operations of a description become methods.

use crate::operation::Described;

/// What is chosen: operations that fit each kind that is given, by one of its values; all, if none is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Tags.
    pub tags: Vec<String>,
    /// Paths; `*` stands for any part of a segment, `**` for any part of a path.
    pub paths: Vec<String>,
    /// Operations' ids, or their verbs and paths: `GET /orders`.
    pub operations: Vec<String>,
}

impl Selection {
    /// Whether an operation is chosen.
    pub(crate) fn takes(&self, described: &Described<'_>) -> bool {
        let by_tag = self.tags.is_empty() || described.tags().any(|t| self.tags.iter().any(|w| w == t));
        let by_path = self.paths.is_empty() || self.paths.iter().any(|p| fits(p, described.path));
        let by_id = self.operations.is_empty() || self.operations.iter().any(|w| described.is(w));
        by_tag && by_path && by_id
    }

    /// What is asked for and is nowhere, with what may have been meant.
    pub(crate) fn unknown(&self, all: &[Described<'_>]) -> Option<String> {
        let tags: Vec<&str> = all.iter().flat_map(Described::tags).collect();
        let https: Vec<String> = all.iter().map(Described::http).collect();
        let ids: Vec<&str> =
            all.iter().filter_map(Described::id).chain(https.iter().map(String::as_str)).collect();
        for (what, wanted, known) in [("tag", &self.tags, &tags), ("operation", &self.operations, &ids)] {
            if let Some(missing) = wanted.iter().find(|w| !known.contains(&w.as_str())) {
                let near = provider::nearest(missing, known.iter().copied());
                let hint = near.map(|n| format!("; did you mean {n:?}?")).unwrap_or_default();
                return Some(format!("the description has no {what} {missing:?}{hint}"));
            }
        }
        let nowhere = self.paths.iter().find(|p| !all.iter().any(|d| fits(p, d.path)));
        nowhere.map(|p| format!("no path of the description fits {p:?}"))
    }
}

/// Whether a path fits a pattern. Takes time in proportion to the product of their lengths.
fn fits(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<char>, Vec<char>) = (pattern.chars().collect(), path.chars().collect());
    // What of the pattern may be left at each place of the path.
    let mut open = vec![false; pattern.len() + 1];
    open[0] = true;
    skip_stars(&pattern, &mut open);
    for c in path {
        let mut next = vec![false; pattern.len() + 1];
        for (i, want) in pattern.iter().enumerate() {
            if !open[i] {
                continue;
            }
            if *want != '*' {
                if *want == c {
                    next[i + 1] = true;
                }
            } else {
                let double = pattern.get(i + 1) == Some(&'*') || (i > 0 && pattern[i - 1] == '*');
                if double || c != '/' {
                    next[i] = true;
                }
            }
        }
        skip_stars(&pattern, &mut next);
        open = next;
    }
    open[pattern.len()]
}

/// A star may stand for nothing.
fn skip_stars(pattern: &[char], open: &mut [bool]) {
    for (i, c) in pattern.iter().enumerate() {
        if open[i] && *c == '*' {
            open[i + 1] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_paths() {
        for (pattern, path, fit) in [
            ("/a/b", "/a/b", true),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a/b/c", false),
            ("/a/**", "/a/b/c", true),
            ("/a/**/z", "/a/b/c/z", true),
            ("/a/*/c", "/a/{id}/c", true),
            ("/a*", "/abc", true),
            ("/a*", "/b", false),
            ("**", "/x/y", true),
            ("", "/", false),
        ] {
            assert_eq!(fits(pattern, path), fit, "{pattern} {path}");
        }
        assert!(!fits(&"*a".repeat(200), &"b".repeat(2000)));
    }
}
