//! `docs/reference/errors.md`, read as the tables that it is.

use super::{Answer, Row};
use crate::process::project;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;

/// Whether a text is what a template says: `{…}` is anything but nothing, all else is literal.
#[must_use]
pub fn fits(template: &str, text: &str) -> bool {
    let hole = template.find('{').and_then(|open| Some((open, open + template[open..].find('}')?)));
    let Some((open, close)) = hole else { return template == text };
    let (Some(rest), after) = (text.strip_prefix(&template[..open]), &template[close + 1..]) else {
        return false;
    };
    (1..=rest.len()).any(|n| rest.is_char_boundary(n) && fits(after, &rest[n..]))
}

/// A row of a table in the book, by the heads of its columns.
pub struct Entry {
    columns: BTreeMap<String, String>,
    /// The status that the section's text states for all its rows.
    status: Option<u16>,
}

impl Entry {
    /// A column, by its head; empty if there is none.
    #[must_use]
    pub fn get(&self, column: &str) -> &str {
        self.columns.get(column).map_or("", String::as_str)
    }

    /// The HTTP status, of the row or of its section.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.get("HTTP").get(..3).and_then(|s| s.parse().ok()).or(self.status)
    }

    /// The literal text, without the marks of code around it.
    #[must_use]
    pub fn text(&self) -> &str {
        self.get("text").trim_matches('`').trim()
    }
}

/// The tables that have causes and texts, by cause.
///
/// # Errors
/// The file is not there, a row has another number of cells than its head, a cause is there twice, or there are too few
/// to be all.
pub fn book() -> Result<BTreeMap<String, Entry>> {
    let path = project().join("docs/reference/errors.md");
    let text = std::fs::read_to_string(&path)?;
    let mut all = BTreeMap::new();
    let (mut heads, mut status) = (Vec::new(), None);
    for line in text.lines() {
        if line.starts_with("## ") {
            status = None;
        }
        let Some(cells) = line.strip_prefix('|').and_then(|l| l.strip_suffix('|')) else {
            heads.clear();
            status = status
                .or_else(|| line.starts_with("All 400").then_some(400))
                .or_else(|| line.starts_with("HTTP 200").then_some(200));
            continue;
        };
        let cells: Vec<&str> = cells.split(" | ").map(str::trim).collect();
        if heads.is_empty() {
            heads = cells;
        } else if !line.starts_with("| ---") && heads.contains(&"cause") && heads.contains(&"text") {
            ensure!(cells.len() == heads.len(), "{line}");
            let cells = cells.into_iter().map(str::to_owned);
            let columns: BTreeMap<_, _> = heads.iter().map(|h| (*h).to_owned()).zip(cells).collect();
            let cause = columns.get("cause").context("no cause")?.clone();
            ensure!(all.insert(cause.clone(), Entry { columns, status }).is_none(), "twice: {cause}");
        }
    }
    ensure!(all.len() > 120, "{} rows were read from {}", all.len(), path.display());
    Ok(all)
}

/// What the book has for a text, if that is something else.
#[must_use]
pub fn misquotes(entry: &Entry, said: &str) -> Option<String> {
    // An ellipsis at the end: the text goes on as that of a row above.
    let template = entry.text();
    let template = match template.strip_suffix('…') {
        Some(head) => format!("{head}{{rest}}"),
        None => template.to_owned(),
    };
    (!fits(&template, said)).then(|| format!("text\n    book {}\n    here {said}", entry.text()))
}

/// What a row and its entry in the book say differently.
#[must_use]
pub fn differs(row: &Row, entry: &Entry) -> Vec<String> {
    let mut wrong = Vec::new();
    // An error of an admitted legacy request travels with 200, as the book says once for all.
    let admitted = row.ask.is_old() && row.status == 200;
    if !admitted && entry.status() != Some(row.status) {
        wrong.push(format!("status {:?} in the book, {} here", entry.status(), row.status));
    }
    let mut said = row.text;
    match row.answer {
        Answer::Rpc(code) => {
            let column = format!("{}{}", entry.get("code"), entry.get("answer"));
            let first = column.split([',', ' ']).next().unwrap_or_default();
            if first != code.to_string() {
                wrong.push(format!("code {column:?} in the book, {code} here"));
            }
            for (at, _) in row.also.iter().filter(|(at, _)| at.starts_with("/error/data")) {
                let member = at.trim_start_matches("/error/").replace('/', ".");
                // The section's text tells of `data.offset`, the rows of the rest.
                if member != "data.offset" && !column.contains(&member) {
                    wrong.push(format!("{member} is not in the book"));
                }
            }
        }
        Answer::Kind(kind, keys) => {
            let place = format!("{} {}", entry.get("kind"), entry.get("answer"));
            if !place.contains(&format!("`{kind}`")) {
                wrong.push(format!("kind {place:?} in the book, {kind} here"));
            }
            let column = entry.get("keys");
            for name in ["retryKey", "newKey", "retryAfterMs"] {
                if column.contains(&format!("`{name}`")) != keys.contains(&name) {
                    wrong.push(format!("{name}: keys {column:?} in the book, {keys:?} here"));
                }
            }
            // The pause and the keys follow the text, as the book says above its table.
            for (name, mark) in [("newKey", "{key}"), ("retryKey", "{key}"), ("retryAfterMs", "5000")] {
                let rest = said.strip_suffix(&format!(" {name}: {mark}"));
                if rest.is_some() != keys.contains(&name) {
                    wrong.push(format!("{name} is not said at the end of the text"));
                }
                said = rest.unwrap_or(said);
            }
        }
        _ => wrong.push("is no refusal".into()),
    }
    for (header, value) in row.also.iter().filter(|(at, _)| !at.starts_with('/')) {
        let told = entry.get("HTTP").to_ascii_lowercase();
        if !told.contains(&format!("{header}: {value}").to_ascii_lowercase()) {
            wrong.push(format!("{header}: {value} is not in the book"));
        }
    }
    wrong.extend(misquotes(entry, said));
    wrong
}
