//! Whether the page of commands tells of every command, and of every flag that its help knows, with its default.

use super::{Helps, lines};
use std::collections::BTreeSet;

/// What every command has, told once.
const OF_ALL: [&str; 3] = ["--help", "--version", "--json"];

/// Each command and flag that the page leaves out, and how many it tells of.
pub(super) fn untold(page: &str, helps: &mut Helps<'_>) -> (u64, Vec<String>) {
    let sections = Sections::of(page);
    let (mut told, mut untold) = (0, Vec::new());
    for command in commands(&helps.help(&[]).unwrap_or_default()) {
        let Some(section) = sections.of_command(&command) else {
            untold.push(format!("there is no section of `{command}`"));
            continue;
        };
        let help = helps.help(&[command.as_str()]).unwrap_or_default();
        let own = (command.clone(), help.clone());
        let below = commands(&help).into_iter().map(|sub| {
            let help = helps.help(&[command.as_str(), sub.as_str()]).unwrap_or_default();
            (format!("{command} {sub}"), help)
        });
        let all: Vec<(String, String)> = std::iter::once(own).chain(below).collect();
        for (flag, default) in defaults(section) {
            let known = |help: &String| of_flag(help, &flag).is_some_and(|of| of.contains(&default));
            if all.iter().any(|(_, help)| known(help)) {
                told += 1;
            } else {
                untold.push(format!("`{command}`: the default of {flag} is not {default}"));
            }
        }
        for (name, help) in all {
            for flag in flags(&help) {
                if OF_ALL.contains(&flag.as_str()) || has(section, &flag) || has(&sections.before, &flag) {
                    told += 1;
                } else {
                    untold.push(format!("`{name}` has {flag}, and its section does not tell of it"));
                }
            }
        }
    }
    (told, untold)
}

/// The defaults that the tables of a section tell in a word.
fn defaults(section: &str) -> Vec<(String, String)> {
    let mut told = false;
    let rows = section.lines().filter(|line| {
        let head = line.starts_with("| flag") && line.contains(" | default | ");
        told = head || (told && line.starts_with('|'));
        told
    });
    let default = |row: &str| {
        let mut cells =
            row.replace("\\|", "¦").split('|').map(|c| c.trim().to_owned()).collect::<Vec<_>>().into_iter();
        let (flag, default) = (cells.nth(1)?, cells.next()?);
        let flag = flag.strip_prefix('`')?.split([' ', '`']).next()?.to_owned();
        let word = default.strip_prefix('`')?.strip_suffix('`').filter(|w| !w.contains('`'))?;
        Some((flag, word.to_owned()))
    };
    rows.filter_map(default).collect()
}

/// What a help says of the default of a flag.
fn of_flag(help: &str, flag: &str) -> Option<String> {
    let mut lines = help.lines().skip_while(|line| !line.trim_start().starts_with('-') || !has(line, flag));
    let first = lines.next()?.to_owned();
    let more = lines.take_while(|line| !line.is_empty() && !line.trim_start().starts_with('-'));
    let all = more.fold(first, |all, line| format!("{all} {}", line.trim()));
    Some(all.split_once("[default: ")?.1.split(']').next()?.to_owned())
}

/// The page by its second headings.
struct Sections {
    /// What is above the first one of a command: it is about all of them.
    before: String,
    of: Vec<(String, String)>,
}

impl Sections {
    fn of(page: &str) -> Sections {
        let mut sections = Sections { before: String::new(), of: Vec::new() };
        for line in page.lines() {
            if let Some(command) = line.strip_prefix("## `").and_then(|l| l.split(['`', ' ']).next()) {
                sections.of.push((command.to_owned(), String::new()));
            }
            let text = sections.of.last_mut().map_or(&mut sections.before, |(_, text)| text);
            text.push_str(line);
            text.push('\n');
        }
        sections
    }

    fn of_command(&self, command: &str) -> Option<&str> {
        self.of.iter().find(|(name, _)| name == command).map(|(_, text)| text.as_str())
    }
}

/// The commands that a help lists.
fn commands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let named = listed.filter_map(|l| l.strip_prefix("  ")).filter(|l| !l.starts_with(' '));
    named.filter_map(|l| l.split_whitespace().next()).filter(|c| *c != "help").map(str::to_owned).collect()
}

/// The flags that a help lists.
fn flags(help: &str) -> BTreeSet<String> {
    let first = |line: &str| {
        let line = line.trim_start();
        let long = line.strip_prefix('-').filter(|l| !l.starts_with('-')).and_then(|l| l.split_once(", "));
        long.map_or(line, |(_, long)| long).split([' ', '=', '[']).next().map(str::to_owned)
    };
    let listed = help.lines().skip_while(|l| *l != "Options:").skip(1);
    listed.filter_map(first).filter(|flag| flag.starts_with("--") && flag.len() > 2).collect()
}

/// Whether a text names a flag, and not only one that begins like it.
fn has(text: &str, flag: &str) -> bool {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).any(|word| word == flag)
}

/// Rows that are in no table as a reader sees it: without a head above them, or of other cells than that has.
pub(super) fn loose_rows(text: &str) -> Vec<String> {
    let mut loose = Vec::new();
    let mut table: Vec<&str> = Vec::new();
    for (fence, line) in lines(text).chain(std::iter::once((None, ""))) {
        if fence.is_none() && line.starts_with('|') {
            table.push(line);
            continue;
        }
        if let Some(first) = table.first() {
            let ruled = table.get(1).is_some_and(|rule| rule.chars().all(|c| "|-: ".contains(c)));
            if ruled {
                let wide = cells(first);
                let odd = table.iter().filter(|row| cells(row) != wide);
                loose.extend(odd.map(|row| format!("a row has not the cells of its table: {row}")));
            } else {
                loose.push(format!("a row is in no table: {first}"));
            }
        }
        table.clear();
    }
    loose
}

/// How many cells a row has.
fn cells(row: &str) -> usize {
    let row = row.trim_end();
    let bars = row.char_indices().filter(|(at, c)| *c == '|' && !row[..*at].ends_with('\\')).count();
    if row.ends_with('|') && !row.ends_with("\\|") { bars.saturating_sub(1) } else { bars }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "Says\n\nUsage: x [OPTIONS]\n\nCommands:\n  list  Lists --all of them\n        and more\n  help  Helps\n\nOptions:\n      --by <NAME>  Who, see --other\n  -q, --quiet      Less\n  -h, --help       Print help\n\nExit codes: 0\n";

    #[test]
    fn a_help_is_read() {
        assert_eq!(commands(HELP), ["list"]);
        assert_eq!(flags(HELP), ["--by", "--help", "--quiet"].map(str::to_owned).into());
    }

    #[test]
    fn a_default_is_read_on_both_sides() {
        let page = "| flag | meaning |\n| --- | --- |\n| `--no` | `x` |\n\n| flag | default | meaning |\n| --- | --- | --- |\n\
            | `--mode a\\|b` | `a` | m |\n| `--data DIR` | the `x`, else `y` | m |\n| `--to` | `5m` | m |\n";
        assert_eq!(
            defaults(page),
            [("--mode", "a"), ("--to", "5m")].map(|(f, d)| (f.to_owned(), d.to_owned()))
        );
        let help = "Options:\n      --mode <M>  Which one\n          [default: a]\n      --top  More\n      --to <T>  When [default: 5m]\n";
        assert_eq!(of_flag(help, "--mode").as_deref(), Some("a"));
        assert_eq!((of_flag(help, "--top"), of_flag(help, "--to").as_deref()), (None, Some("5m")));
    }

    #[test]
    fn a_flag_is_looked_for_where_its_command_is_told() {
        let page =
            "# All\n`--config`\n## `run FILE`\n| `--bys`, `--key K` |\n## More\n--quiet\n## `list`\n--by\n";
        let s = Sections::of(page);
        assert!(has(&s.before, "--config") && !has(&s.before, "--key"));
        let run = s.of_command("run").unwrap_or_default();
        assert!(has(run, "--key") && has(run, "--quiet") && !has(run, "--by") && !has(run, "--config"));
        assert!(s.of_command("lis").is_none());
    }

    #[test]
    fn a_row_outside_of_its_table_is_seen() {
        let good = "| a | b |\n| --- | :-: |\n| `x\\|y` | 2 |\n\n```\n| c |\n```\n";
        assert_eq!(loose_rows(good), Vec::<String>::new());
        assert_eq!(loose_rows("| a |\n| --- |\n| 1 |\n\n| 2 |\n"), ["a row is in no table: | 2 |"]);
        let odd = loose_rows("| a | b |\n| --- | --- |\n| `x|y` | 2 |\n");
        assert_eq!(odd, ["a row has not the cells of its table: | `x|y` | 2 |"]);
    }
}
