//! What a command says: to people or to programs, never both on stdout.

use super::fail::Fail;
use serde_json::{Value, json};
use std::io::{IsTerminal as _, Write as _};

/// Where answers go.
pub(super) struct Out {
    json: bool,
    colour: bool,
}

impl Out {
    pub fn new(json: bool) -> Out {
        let allowed = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        Out { json, colour: !json && allowed && std::io::stdout().is_terminal() }
    }

    pub fn is_json(&self) -> bool {
        self.json
    }

    /// A line for people; nothing with `--json`. Someone who stops reading (`| head`) is no fault.
    pub fn say(&self, text: impl AsRef<str>) {
        if !self.json {
            let _ = writeln!(std::io::stdout(), "{}", text.as_ref());
        }
    }

    /// The one document for programs; nothing without `--json`.
    pub fn document(&self, value: &Value) {
        if self.json {
            let mut stdout = std::io::stdout().lock();
            let _ = writeln!(stdout, "{value}");
            let _ = stdout.flush();
        }
    }

    /// The same of a document that is written already, on one line as it is: outside of its texts a line break is a blank.
    pub fn written(&self, document: &str) {
        if self.json {
            let mut stdout = std::io::stdout().lock();
            let _ = writeln!(stdout, "{}", document.trim().replace(['\n', '\r'], " "));
            let _ = stdout.flush();
        }
    }

    pub fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }
    pub fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }
    pub fn good(&self, text: &str) -> String {
        self.paint("32", text)
    }
    pub fn bad(&self, text: &str) -> String {
        self.paint("31", text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Says why the command failed: to people on stderr, to programs on stdout too.
    pub fn failed(&self, fail: &Fail) {
        if self.json {
            let mut error = json!({ "kind": fail.kind, "message": fail.message });
            if let Some(detail) = &fail.detail {
                error["detail"] = (**detail).clone();
            }
            self.document(&json!({ "error": error, "exitCode": fail.code }));
        }
        let _ = writeln!(std::io::stderr(), "counterfoil: {}", fail.message);
    }

    /// Rows in columns, two blanks apart.
    pub fn table(&self, head: &[&str], rows: &[Vec<String>]) {
        if self.json {
            return;
        }
        let mut widths: Vec<usize> = head.iter().map(|h| h.chars().count()).collect();
        for row in rows {
            for (w, cell) in widths.iter_mut().zip(row) {
                *w = (*w).max(cell.chars().count());
            }
        }
        let line = |cells: &[String]| {
            let mut text = String::new();
            for (i, (cell, w)) in cells.iter().zip(&widths).enumerate() {
                text.push_str(cell);
                if i + 1 < cells.len() {
                    text.push_str(&" ".repeat(w - cell.chars().count() + 2));
                }
            }
            text.trim_end().to_owned()
        };
        let head: Vec<String> = head.iter().map(|h| (*h).to_owned()).collect();
        self.say(self.dim(&line(&head)));
        for row in rows {
            self.say(line(row));
        }
    }
}

/// JSON for people, of which every number and text stays as it is written.
pub(super) fn pretty_text(json: &str) -> String {
    /// Deeper lines are no further to the right.
    const DEEPEST: usize = 64;
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut text, mut escaped) = (0_usize, false, false);
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth.min(DEEPEST)));
    };
    let mut all = json.chars().filter(|c| *c >= ' ').peekable();
    while let Some(c) = all.next() {
        if text {
            out.push(c);
            text = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            ' ' => {}
            '{' | '[' => {
                out.push(c);
                while all.next_if_eq(&' ').is_some() {}
                if let Some(end) = all.next_if(|end| matches!(end, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            '"' => {
                text = true;
                out.push(c);
            }
            other => out.push(other),
        }
    }
    out
}

/// When something may be tried again, for people: never too early.
pub(super) fn soon(ms: u64) -> String {
    for (unit, name) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min")] {
        if ms >= 2 * unit {
            return format!("in {} {name}", ms.div_ceil(unit));
        }
    }
    format!("in {} s", ms.div_ceil(1000).max(1))
}

/// JSON for people.
pub(super) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_words_and_never_too_short() {
        let told = [(0, "1 s"), (1_001, "2 s"), (119_999, "120 s"), (120_001, "3 min"), (10_800_000, "3 h")];
        for (ms, words) in told.into_iter().chain([(172_799_999, "48 h"), (1_300_000_000, "16 d")]) {
            assert_eq!(soon(ms), format!("in {words}"), "{ms}");
        }
    }

    #[test]
    fn written_json_is_told_as_it_is() {
        let odd =
            r#"{"a":[1.10,1e400,12345678901234567890123],"b":{},"c":[ ],"d":"x, \"{\\","e":{"f":null}}"#;
        let told = pretty_text(odd);
        assert!(told.contains("    1e400,\n    12345678901234567890123\n  ],"), "{told}");
        assert!(told.contains(r#""d": "x, \"{\\","#) && told.contains(r#""c": [],"#), "{told}");
        // Of what a number's spelling doesn't matter in, the usual.
        for plain in [r#"{"a":[1,{"b":"c:,[]"}],"d":{"e":[]}}"#, "[]", "1", r#""t""#] {
            let value: Value = serde_json::from_str(plain).unwrap_or_default();
            assert_eq!(pretty_text(plain), pretty(&value));
            assert_eq!(pretty_text(&pretty(&value)), pretty(&value));
        }
        let deep = format!("{}{}", "[".repeat(2000), "]".repeat(2000));
        assert!(pretty_text(&deep).len() < 2000 * 2 * 140);
    }
}
