//! Descriptions as models read them: plain, on few lines, short.

/// A text without markup of HTML, with single blanks.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(4096));
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let tag = after.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '!');
        match after.find('>').filter(|end| tag && *end < 300) {
            Some(end) => {
                out.push(' ');
                rest = &after[end + 1..];
            }
            None => {
                out.push('<');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    let out = out.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
    let clean: String = out.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    clean.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The beginning of a text: plain, up to a number of characters, ended at a sentence or a word.
pub(crate) fn short(text: &str, most: usize) -> String {
    // What is cut off is not looked at: a description may be a book.
    let end = text.char_indices().nth(most * 8).map_or(text.len(), |(i, _)| i);
    let plain = plain(&text[..end]);
    let Some((end, _)) = plain.char_indices().nth(most) else { return plain };
    let head = &plain[..end];
    let sentence = head.rfind(". ").map(|i| i + 1).filter(|i| *i > head.len() / 2);
    match sentence {
        Some(end) => head[..end].to_owned(),
        None => {
            let word = head.rfind(' ').filter(|i| *i > head.len() / 2).unwrap_or(head.len());
            format!("{}…", head[..word].trim_end())
        }
    }
}

/// How many of several things are named.
const NAMED: usize = 8;

/// The first of several names, and how many more there are.
pub(crate) fn some(all: &[String]) -> String {
    let more = all.len().saturating_sub(NAMED);
    let named = all[..all.len() - more].join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_and_short() {
        assert_eq!(
            plain("<p>Creates a\n\n<b>refund</b> if a &lt; b, 1 < 2.</p>"),
            "Creates a refund if a < b, 1 < 2."
        );
        assert_eq!(short("One two. Three four five.", 12), "One two.");
        assert_eq!(short("One two three four", 9), "One two…");
        assert_eq!(short("äöü äöü", 20), "äöü äöü");
        assert_eq!(short(&"ä".repeat(100), 5), "äääää…");
    }
}
