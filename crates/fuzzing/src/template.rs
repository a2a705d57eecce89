//! URI templates of resources.

use crate::input::parts;
use gateway::fuzzing::Templates;
use std::collections::BTreeMap;

/// A template as literals with variables between them: `literal (name literal)*`.
fn taken_apart(template: &str) -> Option<(String, Vec<(String, String)>)> {
    let mut pieces = template.split('{');
    let head = pieces.next()?.to_owned();
    let mut rest = Vec::new();
    for piece in pieces {
        let (name, literal) = piece.split_once('}')?;
        rest.push((name.to_owned(), literal.to_owned()));
    }
    Some((head, rest))
}

/// The rule of the matcher, by trying every end from the shortest on: a variable is one or more characters that are
/// none of `/?#`, and ends where what follows it begins first; the last literal reaches to the end.
fn naive(template: &str, uri: &str) -> Option<BTreeMap<String, String>> {
    let (head, rest) = taken_apart(template)?;
    let mut left = uri.strip_prefix(head.as_str())?;
    let mut found = BTreeMap::new();
    let count = rest.len();
    for (i, (name, literal)) in rest.into_iter().enumerate() {
        let ends: Vec<usize> = left.char_indices().map(|(at, c)| at + c.len_utf8()).collect();
        let end = if i + 1 == count {
            left.len()
                .checked_sub(literal.len())
                .filter(|end| left.is_char_boundary(*end) && left[*end..] == literal)?
        } else {
            ends.into_iter().find(|end| left[*end..].starts_with(&literal))?
        };
        let value = &left[..end];
        if value.is_empty() || value.chars().any(|c| "/?#".contains(c)) {
            return None;
        }
        found.insert(name, percent_decoded(value)?);
        left = &left[end + literal.len()..];
    }
    left.is_empty().then_some(found)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            out.push(*first);
            continue;
        }
        let digits = rest.get(..2).filter(|d| d.iter().all(u8::is_ascii_hexdigit))?;
        out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(out).ok()
}

/// Every byte that isn't a plain letter or digit, encoded: no literal but of letters and digits can occur in it.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02x}") })
        .collect()
}

/// A URI matches exactly where the rule says so, with the same values; and what is made from a template by filling it in
/// is matched by it. Parts: template, URI, a value.
///
/// # Panics
/// A promise is broken.
pub fn template(data: &[u8]) {
    let Ok(all) = std::str::from_utf8(data) else { return };
    let [template, uri, value] = parts(all.as_bytes()).map(|p| std::str::from_utf8(p).unwrap_or_default());
    let Some(served) = Templates::of(template) else { return };
    let (head, rest) = taken_apart(template).expect("a served template can be taken apart");
    assert!(head.contains(':') && !rest.is_empty() && rest.len() <= 32 && template.len() <= 2048);
    if uri.len() <= 2048 {
        assert_eq!(served.variables(uri), naive(template, uri), "{uri:?} by {template:?}");
    }
    let value: String = value.chars().take(20).collect();
    if value.is_empty() {
        return;
    }
    let mut filled = head;
    let mut wanted = BTreeMap::new();
    let mut clear = true;
    let last = rest.len() - 1;
    for (i, (name, literal)) in rest.into_iter().enumerate() {
        let value = format!("{i}{value}");
        let text = encoded(&value);
        // A literal that begins inside of a value ends it there; nobody can tell.
        let behind = format!("{text}{literal}");
        clear &= i == last || behind.find(&literal).is_some_and(|at| at == text.len());
        filled.push_str(&text);
        filled.push_str(&literal);
        wanted.insert(name, value);
    }
    if clear && filled.len() <= 2048 {
        assert_eq!(served.variables(&filled), Some(wanted), "{filled:?} by {template:?}");
    }
}
