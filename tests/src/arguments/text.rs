//! Texts: of the formats that validators know, and plain ones with what an encoding could get wrong.

use crate::random::Random;

/// Pieces of plain texts: letters of several scripts, and every character that means something in a URL, a form, a
/// header or JSON.
const PIECES: [&str; 24] = [
    "alpha", "Beta", "7", "x y", "&", "=", "+", "%", "%2F", "/", "?", "#", ",", ";", ":", "'", "\"", "\\",
    "{key}", "é", "ß", "日本", "🦊", "<b>",
];

/// A text of a format; `None` if it is one that validators don't know.
pub(super) fn of_format(format: &str, random: &mut Random) -> Option<String> {
    let n = random.below(90) + 10;
    Some(match format {
        "date-time" => format!("2026-11-{:02}T10:{:02}:00Z", n % 28 + 1, n % 60),
        "date" => format!("2026-11-{:02}", n % 28 + 1),
        "time" => format!("10:{:02}:00Z", n % 60),
        "duration" => format!("P{n}D"),
        "uri" | "url" | "iri" | "uri-reference" => format!("https://example.com/a%20b/{n}?c=d&e={n}"),
        "email" | "idn-email" => format!("a.person+{n}@example.com"),
        "hostname" | "idn-hostname" => format!("host{n}.example.com"),
        "ipv4" => format!("192.0.2.{n}"),
        "ipv6" => format!("2001:db8::{n}"),
        "uuid" => format!("{:08x}-0000-4000-8000-{:012x}", random.below(u64::from(u32::MAX)), n),
        // Base64 of three bytes each.
        "byte" => ["YWJj", "+/8A", "Zm9v"][usize::try_from(n % 3).unwrap_or(0)].to_owned(),
        "int32" | "uint32" | "int64" | "uint64" => n.to_string(),
        "float" | "double" | "decimal" => format!("{n}.25"),
        "json-pointer" => format!("/a/{n}"),
        "regex" => format!("^a{{{n}}}$"),
        _ => return None,
    })
}

/// A text of so many characters.
pub(super) fn plain(least: usize, most: usize, random: &mut Random) -> String {
    let mut made = String::from("t");
    for _ in 0..=random.below(3) {
        made.push_str(random.one::<&str>(&PIECES));
    }
    while made.chars().count() < least {
        made.push_str("abcdefghij");
    }
    // It must not begin or end in what a header would lose.
    let mut cut: String = made.chars().take(most).collect();
    if cut.ends_with(' ') {
        cut.pop();
        cut.push('z');
    }
    cut
}
