//! Whether the documents say what is so: each link between pages leads to a page and a heading that exist, each
//! command that they show is one that the program knows, with flags that it knows, each row is in a table, each page of
//! the book is among its contents, and the page of commands tells of every flag. (What the pages configure is read by a
//! test of the program's own package, `book`.)

mod reference;

use crate::steps::{Step, must};
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Checks every page.
///
/// # Errors
/// There are no pages, or the binary can't be run.
pub fn check(step: &mut Step, root: &Path, binary: &Path) -> Result<()> {
    let mut pages = Vec::new();
    collect(root, root, &mut pages)?;
    if pages.is_empty() {
        bail!("there are no pages");
    }
    must(Command::new(binary).arg("--version"))?;
    let mut helps = Helps { binary, known: BTreeMap::new() };
    for page in &pages {
        let text = std::fs::read_to_string(page)?;
        let name = page.strip_prefix(root).unwrap_or(page).display().to_string();
        for link in links(&text) {
            match follow(page, &text, &link) {
                Ok(()) => step.pass(),
                Err(why) => step.fail(&format!("{name}: the link {link}: {why}")),
            }
        }
        for line in commands(&text) {
            match helps.knows(&line) {
                Ok(true) => step.pass(),
                Ok(false) => {}
                Err(why) => step.fail(&format!("{name}: `{line}`: {why}")),
            }
        }
        let loose = reference::loose_rows(&text);
        loose.iter().for_each(|why| step.fail(&format!("{name}: {why}")));
        if loose.is_empty() {
            step.pass();
        }
    }
    let contents = std::fs::read_to_string(root.join(CONTENTS))?;
    let book = root.join(CONTENTS).parent().map(Path::to_path_buf).unwrap_or_default();
    for page in pages.iter().filter_map(|page| page.strip_prefix(&book).ok()) {
        let page = page.display().to_string();
        if page == "README.md" || contents.contains(&format!("({page})")) {
            step.pass();
        } else {
            step.fail(&format!("{CONTENTS}: the page {page} is not among the contents"));
        }
    }
    let page = std::fs::read_to_string(root.join(COMMANDS))?;
    let (told, untold) = reference::untold(&page, &mut helps);
    (0..told).for_each(|_| step.pass());
    untold.iter().for_each(|why| step.fail(&format!("{COMMANDS}: {why}")));
    Ok(())
}

/// The contents of the book.
const CONTENTS: &str = "docs/README.md";
/// The page of commands.
const COMMANDS: &str = "docs/reference/cli.md";

fn collect(root: &Path, folder: &Path, pages: &mut Vec<PathBuf>) -> Result<()> {
    let mut entries: Vec<_> = std::fs::read_dir(folder)?.collect::<std::io::Result<_>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if path.is_dir() {
            let built = folder == root && matches!(name.as_str(), "target" | "build");
            if !built && !name.starts_with('.') && name != "node_modules" {
                collect(root, &path, pages)?;
            }
        } else if name.ends_with(".md") {
            pages.push(path);
        }
    }
    Ok(())
}

/// Lines outside and inside of code fences.
fn lines(text: &str) -> impl Iterator<Item = (Option<&str>, &str)> {
    let mut fence = None;
    text.lines().filter_map(move |line| {
        let bare = line.trim_start();
        match (bare.strip_prefix("```"), fence) {
            (Some(language), None) => {
                fence = Some(language.trim());
                None
            }
            (Some(_), Some(_)) => {
                fence = None;
                None
            }
            (None, fence) => Some((fence, line)),
        }
    })
}

/// The targets of `[text](target)`, outside of code.
fn links(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (_, line) in lines(text).filter(|(fence, _)| fence.is_none()) {
        // Code between backticks holds no links.
        let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        let mut rest = plain.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, after)) = after.split_once(')') else { break };
            all.push(target.split(' ').next().unwrap_or_default().to_owned());
            rest = after;
        }
    }
    all
}

fn follow(page: &Path, text: &str, link: &str) -> Result<(), String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return Ok(());
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(f, a)| (f, Some(a)));
    let target = page.parent().unwrap_or(page).join(file);
    let other;
    let text = if file.is_empty() {
        text
    } else if target.is_dir() {
        return Ok(());
    } else {
        other = std::fs::read_to_string(&target).map_err(|_| "there is no such file".to_owned())?;
        &other
    };
    match anchor {
        Some(anchor) if link_is_page(file) && !headings(text).iter().any(|h| h == anchor) => {
            Err("there is no such heading".into())
        }
        _ => Ok(()),
    }
}

fn link_is_page(file: &str) -> bool {
    file.is_empty() || file.ends_with(".md")
}

/// Headings as they are named in links: lower case, blanks to hyphens, without punctuation.
fn headings(text: &str) -> Vec<String> {
    let heads = lines(text).filter(|(fence, line)| fence.is_none() && line.starts_with('#'));
    heads
        .map(|(_, line)| {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            words
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

/// Commands of this project in code fences: lines that begin with `counterfoil`, `cargo run … --` or `cargo xtask`,
/// after a prompt or none.
fn commands(text: &str) -> Vec<String> {
    let shells = ["", "sh", "bash", "console", "shell", "text"];
    let inside = lines(text).filter(|(fence, _)| fence.is_some_and(|f| shells.contains(&f)));
    inside
        .map(|(_, line)| {
            line.trim().trim_start_matches("$ ").split(" # ").next().unwrap_or_default().trim().to_owned()
        })
        .filter(|line| {
            line.starts_with("counterfoil ")
                || line.starts_with("cargo run ")
                || line.starts_with("cargo xtask ")
        })
        .collect()
}

struct Helps<'a> {
    binary: &'a Path,
    known: BTreeMap<String, Option<String>>,
}

impl Helps<'_> {
    fn help(&mut self, args: &[&str]) -> Option<String> {
        let binary = self.binary;
        let ask = || {
            let mut c = Command::new(binary);
            let out = c.args(args).arg("--help").stdin(Stdio::null()).output().ok()?;
            out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
        };
        self.known.entry(args.join(" ")).or_insert_with(ask).clone()
    }

    /// Whether a command is checked and known; `Ok(false)`: it is not this program's.
    fn knows(&mut self, line: &str) -> Result<bool, String> {
        if let Some(rest) = line.strip_prefix("cargo xtask ") {
            let task = rest.split_whitespace().next().unwrap_or_default();
            let tasks = ["test", "torture", "simulate", "conformance", "fuzz", "bench", "import", "install"];
            return if tasks.contains(&task) { Ok(true) } else { Err(format!("there is no task {task:?}")) };
        }
        let rest = match line.strip_prefix("counterfoil ") {
            Some(rest) => rest,
            None => match line.split_once(" -- ") {
                Some((cargo, rest)) if !cargo.contains("--package") && !cargo.contains(" -p ") => rest,
                _ => return Ok(false),
            },
        };
        let words: Vec<&str> =
            rest.split_whitespace().take_while(|w| !matches!(*w, "|" | ">" | "&&" | "&" | "\\")).collect();
        let Some(first) = words.first() else { return Ok(false) };
        if first.starts_with('-') {
            return self.flags(&[], &words);
        }
        if self.help(&[first]).is_none() {
            return Err(format!("there is no command {first:?}"));
        }
        // A group's commands are its second words.
        let second = words
            .get(1)
            .filter(|w| w.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !w.starts_with('-'));
        let is_group = self.help(&[first]).is_some_and(|h| h.contains("Commands:"));
        match (is_group, second) {
            (true, Some(second)) => {
                if self.help(&[first, second]).is_none() {
                    return Err(format!("there is no command {first} {second}"));
                }
                self.flags(&[first, second], &words)
            }
            _ => self.flags(&[first], &words),
        }
    }

    fn flags(&mut self, command: &[&str], words: &[&str]) -> Result<bool, String> {
        let help = self.help(command).unwrap_or_default();
        for word in words.iter().filter(|w| w.starts_with("--") && w.len() > 2) {
            let flag = word.split('=').next().unwrap_or_default().trim_end_matches([']', ',']);
            let known = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).any(|w| w == flag);
            if !known {
                return Err(format!("it has no flag {flag}"));
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_commands_and_headings_are_found() {
        let text = "# One two!\nSee [a](b.md#c) and `[x](no)`.\n```sh\n$ counterfoil serve --json # so\ncounterfoil ops list\nls\n```\n```toml\ncounterfoil = 1\n```\n[d](#one-two)\n";
        assert_eq!(links(text), ["b.md#c", "#one-two"]);
        assert_eq!(commands(text), ["counterfoil serve --json", "counterfoil ops list"]);
        assert_eq!(headings(text), ["one-two"]);
        assert!(follow(Path::new("x.md"), text, "#one-two").is_ok());
        assert!(follow(Path::new("x.md"), text, "#three").is_err());
        assert!(follow(Path::new("x.md"), text, "missing.md").is_err());
    }
}
