//! Choosing operations at a terminal: first tags, then operations, by numbers.

use super::plain;
use openapi::{Choice, Selection};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Read as _, Write};

/// The longest line that is read.
const MAX_LINE: u64 = 64 << 10;
/// The widest text of one operation, in characters.
const WIDTH: usize = 110;

/// What was chosen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    /// Everything that the description has.
    All,
    These(Selection),
    /// Somebody left.
    Nothing,
}

/// An answer to a list of numbers.
#[derive(Debug, PartialEq, Eq)]
enum Numbers {
    All,
    /// From 0.
    These(BTreeSet<usize>),
    Quit,
}

/// Reads `1-5,8`, `all` or `q`; numbers go from 1 to `most`.
fn numbers(text: &str, most: usize) -> Result<Numbers, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "q" | "quit" => return Ok(Numbers::Quit),
        "all" | "*" => return Ok(Numbers::All),
        _ => {}
    }
    let mut chosen = BTreeSet::new();
    for part in text.split([',', ' ', '\t', '\n', '\r']).filter(|p| !p.is_empty()) {
        let one = |n: &str| n.parse::<usize>().ok().filter(|n| (1..=most).contains(n));
        let range = match part.split_once('-') {
            Some((from, to)) => one(from).zip(one(to)).filter(|(from, to)| from <= to),
            None => one(part).map(|n| (n, n)),
        };
        let (from, to) = range.ok_or_else(|| format!("{:?} is no number from 1 to {most}", plain(part)))?;
        chosen.extend(from - 1..to);
    }
    if chosen.is_empty() { Err("nothing is chosen".into()) } else { Ok(Numbers::These(chosen)) }
}

/// Asks until there is an answer. Who closes the terminal has left.
fn ask(question: &str, most: usize, input: &mut impl BufRead, out: &mut impl Write) -> io::Result<Numbers> {
    loop {
        write!(out, "{question} (1-{most}, such as 1-5,8; all; q to leave): ")?;
        out.flush()?;
        let mut line = String::new();
        if input.take(MAX_LINE).read_line(&mut line)? == 0 {
            writeln!(out)?;
            return Ok(Numbers::Quit);
        }
        match numbers(&line, most) {
            Ok(answer) => return Ok(answer),
            Err(why) => writeln!(out, "{why}")?,
        }
    }
}

/// Lets somebody choose among the operations of a description.
pub(super) fn choose(
    operations: &[Choice<'_>],
    input: &mut impl BufRead,
    out: &mut impl Write,
) -> io::Result<Chosen> {
    // In the order in which the description names them; those without one last.
    let mut tags: Vec<Option<&str>> = Vec::new();
    let mut counts: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for operation in operations {
        for tag in tags_of(operation) {
            *counts.entry(tag).or_default() += 1;
            if tag.is_some() && !tags.contains(&tag) {
                tags.push(tag);
            }
        }
    }
    tags.extend(counts.contains_key(&None).then_some(None));
    let mut taken: Vec<Option<&str>> = tags.clone();
    if tags.len() > 1 {
        for (i, tag) in tags.iter().enumerate() {
            let name = tag.map_or_else(|| "(without a tag)".to_owned(), plain);
            writeln!(out, "{:5}  {name} ({})", i + 1, counts.get(tag).copied().unwrap_or_default())?;
        }
        match ask("Tags", tags.len(), input, out)? {
            Numbers::Quit => return Ok(Chosen::Nothing),
            Numbers::All => {}
            Numbers::These(these) => taken = these.iter().filter_map(|i| tags.get(*i).copied()).collect(),
        }
    }
    let listed: Vec<&Choice<'_>> =
        operations.iter().filter(|o| tags_of(o).iter().any(|t| taken.contains(t))).collect();
    for (i, operation) in listed.iter().enumerate() {
        let id = operation.id.map(|id| format!("  {id}")).unwrap_or_default();
        let line: String = plain(&format!("{}{id}", operation.http)).chars().take(WIDTH).collect();
        writeln!(out, "{:5}  {line}", i + 1)?;
    }
    let these = match ask("Operations", listed.len(), input, out)? {
        Numbers::Quit => return Ok(Chosen::Nothing),
        Numbers::All if taken.len() == tags.len() => return Ok(Chosen::All),
        Numbers::All if taken.iter().all(Option::is_some) => {
            let tags = taken.iter().flatten().map(|t| (*t).to_owned()).collect();
            return Ok(Chosen::These(Selection { tags, ..Selection::default() }));
        }
        Numbers::All => listed,
        Numbers::These(these) => these.iter().filter_map(|i| listed.get(*i).copied()).collect(),
    };
    // By its id where it has one of its own: it stays when the path changes.
    let named = |o: &Choice<'_>| match o.id {
        Some(id) if operations.iter().filter(|other| other.id == Some(id)).count() == 1 => id.to_owned(),
        _ => o.http.clone(),
    };
    let operations = these.into_iter().map(named).collect();
    Ok(Chosen::These(Selection { operations, ..Selection::default() }))
}

fn tags_of<'a>(operation: &Choice<'a>) -> Vec<Option<&'a str>> {
    match operation.tags.is_empty() {
        true => vec![None],
        false => operation.tags.iter().copied().map(Some).collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn operation<'a>(http: &str, id: Option<&'a str>, tags: &[&'a str]) -> Choice<'a> {
        Choice { http: http.into(), id, tags: tags.to_vec() }
    }

    fn chosen(answers: &str) -> (Chosen, String) {
        let all = [
            operation("GET /a", Some("a.list"), &["a"]),
            operation("POST /a", Some("twice"), &["a", "b"]),
            operation("GET /b", Some("twice"), &["b"]),
            operation("GET /\u{1b}[31m", None, &[]),
        ];
        let mut out = Vec::new();
        let chosen = choose(&all, &mut answers.as_bytes(), &mut out).unwrap();
        (chosen, String::from_utf8(out).unwrap())
    }

    fn these(tags: &[&str], operations: &[&str]) -> Chosen {
        let owned = |all: &[&str]| all.iter().map(|t| (*t).to_owned()).collect();
        Chosen::These(Selection { tags: owned(tags), operations: owned(operations), ..Selection::default() })
    }

    #[test]
    fn by_numbers_ranges_and_words() {
        assert_eq!(numbers("1-3, 5\n", 6), Ok(Numbers::These([0, 1, 2, 4].into())));
        assert_eq!((numbers(" ALL ", 1), numbers("q", 1)), (Ok(Numbers::All), Ok(Numbers::Quit)));
        for bad in ["", ",", "0", "7", "3-1", "1-7", "-", "x", "1-2-3", "99999999999999999999999"] {
            assert!(numbers(bad, 6).is_err(), "{bad}");
        }
    }

    #[test]
    fn tags_then_operations() {
        assert_eq!(chosen("all\nall\n").0, Chosen::All);
        assert_eq!(chosen("1\nall\n").0, these(&["a"], &[]));
        assert_eq!(chosen("2,3\nall\n").0, these(&[], &["POST /a", "GET /b", "GET /\u{1b}[31m"]));
        assert_eq!(chosen("1\n1\n").0, these(&[], &["a.list"]));
        // An id that two share names neither of them.
        assert_eq!(chosen("2\n2\n").0, these(&[], &["GET /b"]));
        assert_eq!(chosen("all\n1,3\n").0, these(&[], &["a.list", "GET /b"]));
        let (left, shown) = chosen("9\n\n1\nq\n");
        assert_eq!(left, Chosen::Nothing);
        assert!(shown.contains("no number from 1 to 3") && shown.contains("nothing is chosen"), "{shown}");
        assert_eq!(chosen("").0, Chosen::Nothing, "a closed terminal");
        let shown = chosen("all\nall\n").1;
        assert!(shown.contains("    1  a (2)") && shown.contains("(without a tag) (1)"), "{shown}");
        assert!(shown.contains("GET /a  a.list") && !shown.contains('\u{1b}'), "{shown}");
    }
}
