//! Small readers of human text: lengths of time, sizes, names on the wire, near misses.

use crate::error::ConfigError;
use ledger::Millis;
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// The longest tool name that hosts and model APIs accept.
pub(crate) const MAX_WIRE_NAME: usize = 64;

/// Reads `250ms`, `20s`, `5m`, `24h` or `30d`.
///
/// # Errors
/// Says what a length of time looks like.
pub fn parse_duration(text: &str) -> Result<Millis, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unit: i64 = match &text[digits..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => 0,
    };
    text[..digits]
        .parse::<i64>()
        .ok()
        .filter(|_| unit > 0)
        .and_then(|n| n.checked_mul(unit))
        .map(Millis)
        .ok_or_else(|| format!("{text:?} is not a length of time; write for example \"250ms\", \"20s\", \"5m\", \"24h\" or \"30d\""))
}

/// A length of time in the largest unit that divides it.
#[must_use]
pub(crate) fn show_duration(d: Millis) -> String {
    for (unit, name) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")] {
        if d.0 != 0 && d.0 % unit == 0 {
            return format!("{}{name}", d.0 / unit);
        }
    }
    format!("{}ms", d.0)
}

/// Reads `512KiB` or `1MiB`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unit: u64 = match &text[digits..] {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => 0,
    };
    text[..digits]
        .parse::<u64>()
        .ok()
        .filter(|_| unit > 0)
        .and_then(|n| n.checked_mul(unit))
        .ok_or_else(|| format!("{text:?} is not a size; write for example \"512KiB\" or \"1MiB\""))
}

/// The tool name on the wire of a canonical id: only `[A-Za-z0-9_-]`, 64 characters at most; what is longer is
/// shortened, with a suffix that depends on the whole id.
#[must_use]
pub fn wire_name(canonical: &str) -> String {
    let mut name: String = canonical
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' })
        .collect();
    if name.len() > MAX_WIRE_NAME {
        let digest = Sha256::digest(canonical.as_bytes());
        name.truncate(MAX_WIRE_NAME - 9);
        name.push('_');
        for byte in &digest[..4] {
            name.push_str(&format!("{byte:02x}"));
        }
    }
    name
}

/// Whether a name may go on the wire as it is.
pub(crate) fn is_wire_name(name: &str) -> bool {
    (1..=MAX_WIRE_NAME).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The wire names of canonical ids, each with its `name = "…"` if one is set, in the order given.
///
/// # Errors
/// Two tools that would meet under one name, or an override that can't be a name.
pub fn wire_names<'a>(
    tools: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<Vec<String>, ConfigError> {
    let mut taken: HashMap<String, &str> = HashMap::new();
    let mut names = Vec::new();
    for (canonical, name) in tools {
        let name = match name {
            Some(name) if !is_wire_name(name) => {
                return Err(ConfigError::new(
                    canonical,
                    format!(
                        "the tool name {name:?} is not 1 to 64 of A-Z a-z 0-9 _ -; choose another `name`"
                    ),
                ));
            }
            Some(name) => name.to_owned(),
            None => wire_name(canonical),
        };
        if let Some(other) = taken.insert(name.clone(), canonical) {
            return Err(ConfigError::new(
                canonical,
                format!(
                    "it and {other} would both be the tool {name:?}; give one of them another name with `name = \"…\"`"
                ),
            ));
        }
        names.push(name);
    }
    Ok(names)
}

/// The candidate nearest to a word, if one is near enough to be what was meant.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = 2.max(word.len() / 3);
    candidates
        .into_iter()
        .map(|c| (distance(&word.to_ascii_lowercase(), &c.to_ascii_lowercase()), c))
        .filter(|(d, _)| *d <= limit)
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// Levenshtein, with swaps of neighbours as one step.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// What is wrong with a JSON Pointer (RFC 6901), if anything.
pub(crate) fn check_pointer(text: &str) -> Result<(), String> {
    if !text.is_empty() && !text.starts_with('/') {
        return Err(format!("{text:?} is not a JSON pointer; write \"/data\", or \"\" for the whole answer"));
    }
    Ok(())
}

/// The path of a body field: `metadata.marker` or `/metadata/marker`.
pub(crate) fn field_path(text: &str) -> Result<Vec<String>, String> {
    let parts: Vec<String> = match text.strip_prefix('/') {
        Some(rest) => rest.split('/').map(|p| p.replace("~1", "/").replace("~0", "~")).collect(),
        None => text.split('.').map(str::to_owned).collect(),
    };
    if parts.iter().any(String::is_empty) || parts.len() > 8 {
        return Err(format!("{text:?} is not a field; write \"metadata.marker\" or \"/metadata/marker\""));
    }
    Ok(parts)
}

/// A name as the most careless server reads it: without case (as Unicode folds it, so that `ſ` is an `s`), dots and blanks for
/// underscores. What is the same here may be taken for one name.
#[must_use]
pub fn read_as(name: &str) -> String {
    name.trim().to_uppercase().to_lowercase().replace(['.', ' '], "_")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn durations_and_sizes() {
        for (text, ms) in
            [("250ms", 250), ("20s", 20_000), ("5m", 300_000), ("24h", 86_400_000), ("30d", 2_592_000_000)]
        {
            assert_eq!(parse_duration(text).unwrap(), Millis(ms));
            assert_eq!(parse_duration(&show_duration(Millis(ms))).unwrap(), Millis(ms));
        }
        for text in ["", "5", "ms", "-1s", "1.5s", "1 s", "1w", "99999999999999999d", "é"] {
            assert!(parse_duration(text).is_err(), "{text}");
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!(parse_size("2MiB").unwrap(), 2 << 20);
    }

    #[test]
    fn wire_names_are_short_stable_and_never_meet() {
        assert_eq!(wire_name("payments.refunds.create"), "payments_refunds_create");
        let (long_a, long_b) = (format!("a.{}", "x".repeat(80)), format!("a.{}y", "x".repeat(79)));
        let (a, b) = (wire_name(&long_a), wire_name(&long_b));
        assert_eq!((a.len(), b.len()), (64, 64));
        assert_ne!(a, b);
        assert_eq!(a, "a_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_".to_owned() + &a[56..]);
        let meet = wire_names([("a.b_c", None), ("a_b.c", None)]).unwrap_err();
        assert!(meet.message.contains("a.b_c") && meet.file == "a_b.c", "{meet}");
        assert_eq!(wire_names([("a.b_c", None), ("a_b.c", Some("other"))]).unwrap(), ["a_b_c", "other"]);
        assert!(wire_names([("a.b", Some("no dots.please"))]).is_err());
    }

    #[test]
    fn near_misses() {
        assert_eq!(nearest("base_urll", ["name", "base_url"]), Some("base_url"));
        assert_eq!(nearest("retires", ["retries", "timeouts"]), Some("retries"));
        assert_eq!(nearest("zebra", ["name", "base_url"]), None);
    }
}
