//! The table as Markdown: how a cell is written and read, and where it stands on the front page.

use super::{COLUMNS, Cell, Column, Outcome, Promise, ROWS, Table, Told, promise};
use crate::process::project;
use crate::stand::Class;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// Between these the front page has it.
const BEGIN: &str = "<!-- torture-table -->";
const END: &str = "<!-- /torture-table -->";

/// A column's name.
pub fn name(column: Column) -> &'static str {
    match column {
        Column::Class(class) => class.name(),
        Column::Control => "control",
    }
}

fn head(column: Column) -> String {
    match column {
        Column::Class(class) => format!("`{}`", class.name()),
        Column::Control => "control".into(),
    }
}

/// An outcome in the words of the front page.
fn word(column: Column, (effects, told): Outcome) -> String {
    match (effects, told) {
        (1, Told::Answer) if column == Column::Class(Class::Natural) => "same end state".into(),
        (1, Told::Answer) => "exactly 1".into(),
        (n, Told::Doubt) => format!("{n}, in doubt"),
        (n, Told::Answer) if n > 1 => format!("{n}: **duplicate**"),
        (n, Told::Differs) if n > 1 => format!("{n}: **duplicate**, two answers"),
        (n, Told::Differs) => format!("{n}: **two answers**"),
        (n, Told::Answer | Told::Lost) => format!("{n}: **lost**"),
        (n, Told::Wrong) => format!("{n}: **wrong answer**"),
    }
}

/// The outcome of a word.
fn outcome(word: &str) -> Option<Outcome> {
    if matches!(word, "exactly 1" | "same end state") {
        return Some((1, Told::Answer));
    }
    let (n, rest) = word.split_at(word.find(|c: char| !c.is_ascii_digit())?);
    let told = match rest {
        ", in doubt" => Told::Doubt,
        ": **duplicate**" => Told::Answer,
        ": **duplicate**, two answers" | ": **two answers**" => Told::Differs,
        ": **lost**" => Told::Lost,
        ": **wrong answer**" => Told::Wrong,
        _ => return None,
    };
    Some((n.parse().ok()?, told))
}

/// A cell: its outcome, or its outcomes with how often each was seen.
fn written(column: Column, cell: &Cell) -> String {
    let mut all: Vec<_> = cell.iter().collect();
    all.sort_by_key(|(_, times)| std::cmp::Reverse(**times));
    match all.as_slice() {
        [] => "not reached".into(),
        [(outcome, _)] => word(column, **outcome),
        several => {
            let one = |(outcome, times): &(&Outcome, &u64)| format!("{} ({times}×)", word(column, **outcome));
            several.iter().map(one).collect::<Vec<_>>().join("; ")
        }
    }
}

/// The outcomes of a cell as it is written.
fn read(cell: &str) -> Option<Vec<Outcome>> {
    let one = |part: &str| outcome(part.rsplit_once(" (").map_or(part, |(word, _)| word));
    cell.split("; ").map(one).collect()
}

/// The table.
pub fn table(table: &Table) -> String {
    let heads: Vec<String> = COLUMNS.into_iter().map(head).collect();
    let mut out = format!("| | {} |\n|{}\n", heads.join(" | "), " --- |".repeat(COLUMNS.len() + 1));
    for (n, row) in ROWS.iter().enumerate() {
        let cells: Vec<String> = COLUMNS.into_iter().map(|c| written(c, &table.cell(n, c))).collect();
        out.push_str(&format!("| {} | {} |\n", row.title, cells.join(" | ")));
    }
    out
}

fn front_page() -> PathBuf {
    project().join("README.md")
}

fn parts(page: &str) -> Result<(&str, &str, &str)> {
    let (before, rest) = page.split_once(BEGIN).with_context(|| format!("the front page has no {BEGIN}"))?;
    let (inside, after) = rest.split_once(END).with_context(|| format!("the front page has no {END}"))?;
    Ok((before, inside, after))
}

/// Puts a table into the front page, with how it was measured.
///
/// # Errors
/// There is no place for it.
pub fn write(table: &str, each: u64) -> Result<()> {
    let page = std::fs::read_to_string(front_page())?;
    let (before, _, after) = parts(&page)?;
    let measured = format!("Measured with {each} rounds a cell on {}.", machine());
    let page = format!("{before}{BEGIN}\n{table}\n{measured}\n{END}{after}");
    Ok(std::fs::write(front_page(), page)?)
}

/// The machine in a few words.
fn machine() -> String {
    let said = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = said("/proc/cpuinfo");
    let model = info.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(": "));
    let model = model.map_or("an unnamed processor", |(_, name)| name.trim());
    let kernel = said("/proc/sys/kernel/osrelease");
    let version: Vec<&str> = kernel.trim().splitn(3, ['.', '-']).take(2).collect();
    format!("{cores} cores of {model}, Linux {}", version.join("."))
}

/// The rows of the front page's table: a title and the cells.
fn rows(page: &str) -> Result<Vec<(String, Vec<String>)>> {
    let (_, inside, _) = parts(page)?;
    let mut lines = inside.lines().filter(|l| l.starts_with('|')).map(|l| {
        let cells: Vec<String> = l.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect();
        let (title, cells) =
            cells.split_first().map_or((String::new(), Vec::new()), |(t, c)| (t.clone(), c.to_vec()));
        (title, cells)
    });
    let heads: Vec<String> = COLUMNS.into_iter().map(head).collect();
    if lines.next().is_none_or(|(_, cells)| cells != heads) {
        bail!("the columns of the front page's table are not {}", heads.join(", "));
    }
    Ok(lines.skip(1).collect())
}

/// What a cell of the front page says that is not promised.
fn amiss(row: usize, column: Column, said: &str) -> Option<String> {
    let promise = promise(&ROWS[row], column);
    match read(said) {
        None => Some(format!("the front page says {said:?}, which is no outcome")),
        Some(all) if all.iter().any(|o| !promise.allows(*o)) => {
            Some(format!("the front page says {said:?}, and the promise is {promise:?}"))
        }
        Some(_) => None,
    }
}

/// Compares the front page with what was measured; one check a cell. Whether all is well.
///
/// # Errors
/// There is no table.
pub fn check(table: &Table) -> Result<bool> {
    let said = rows(&std::fs::read_to_string(front_page())?)?;
    let titles: Vec<&str> = said.iter().map(|(title, _)| title.as_str()).collect();
    if titles != ROWS.each_ref().map(|row| row.title) {
        bail!("the rows of the front page's table are not those that are measured");
    }
    let (mut passed, mut failed) = (0, 0);
    for (n, (title, cells)) in said.iter().enumerate() {
        for (column, cell) in COLUMNS.into_iter().zip(cells) {
            let why = amiss(n, column, cell);
            // What was measured, and broke the promise, is told already.
            let broken = table.broken.iter().any(|(row, c, _)| (*row, *c) == (n, column));
            if let Some(why) = &why {
                println!("FAILED: {title} x {}: {why}", name(column));
            }
            if broken || why.is_some() { failed += 1 } else { passed += 1 }
        }
    }
    let second = |(effects, _): &Outcome| *effects > 1;
    let caught = (0..ROWS.len()).filter(|n| table.cell(*n, Column::Control).keys().any(second)).count();
    let expected = ROWS.iter().filter(|row| row.control == Promise::Duplicate).count();
    if caught < expected {
        println!(
            "FAILED: the control made a second effect in {caught} windows of {expected}: this harness sees nothing"
        );
        failed += 1;
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let key = Column::Class(Class::Key);
        for outcome in [
            (1, Told::Answer),
            (0, Told::Doubt),
            (1, Told::Doubt),
            (2, Told::Answer),
            (3, Told::Differs),
            (1, Told::Differs),
            (0, Told::Lost),
            (1, Told::Wrong),
        ] {
            assert_eq!(super::outcome(&word(key, outcome)), Some(outcome));
        }
        let cell: Cell = [((1, Told::Answer), 3), ((1, Told::Doubt), 5)].into();
        assert_eq!(written(key, &cell), "1, in doubt (5×); exactly 1 (3×)");
        assert_eq!(read(&written(key, &cell)).unwrap(), [(1, Told::Doubt), (1, Told::Answer)]);
        assert_eq!(read("at least 1"), None);
        assert_eq!(read("not reached"), None);
    }

    #[test]
    fn the_front_page_says_what_is_promised_and_a_better_word_would_be_noticed() {
        let said = rows(&std::fs::read_to_string(front_page()).unwrap()).unwrap();
        assert_eq!(said.len(), ROWS.len());
        for (n, (title, cells)) in said.iter().enumerate() {
            assert_eq!(title, ROWS[n].title);
            assert_eq!(cells.len(), COLUMNS.len());
            for (column, cell) in COLUMNS.into_iter().zip(cells) {
                assert_eq!(amiss(n, column, cell), None);
            }
        }
        let in_doubt = ROWS.iter().position(|row| row.weak == Promise::Doubt(1)).unwrap();
        assert!(amiss(in_doubt, Column::Class(Class::None), "exactly 1").is_some());
        assert!(amiss(in_doubt, Column::Control, "exactly 1").is_some());
        assert!(amiss(in_doubt, Column::Class(Class::Key), "2: **duplicate**").is_some());
    }
}
