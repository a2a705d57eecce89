//! What somebody does first: `demo`, and the lines of the README and of the start page, played as they are printed.
//! Ports are the only thing that is changed: a test must not need those of the documents to be free.

use anyhow::{Context, Result, ensure};
use counterfoil_tests::process::{binary, project};
use counterfoil_tests::shell::{bash, counterfoil, fenced, fits, transcript};
use counterfoil_tests::stand::{Gateway, Project};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn the_demo_counts_one_and_two() -> Result<()> {
    let project = Project::empty()?;
    let begun = Instant::now();
    let told = counterfoil(&project, &["demo"])?.exits(0)?;
    ensure!(begun.elapsed() < Duration::from_secs(20), "it took {:?}", begun.elapsed());
    let told = told.says("  1  refund through Counterfoil")?.says("  2  refunds through the naive server")?;
    told.says("kill -9")?;
    let begun = Instant::now();
    let counts = counterfoil(&project, &["demo", "--json"])?.exits(0)?.json()?;
    ensure!(begun.elapsed() < Duration::from_secs(20), "it took {:?}", begun.elapsed());
    ensure!(
        counts["counterfoil"] == 1 && counts["naive"] == 2 && counts["asExpected"] == json!(true),
        "{counts}"
    );
    ensure!(std::fs::read_dir(project.path())?.next().is_none(), "the demo left something in the directory");
    Ok(())
}

/// A gateway in sandbox mode in a fresh directory, and a shell beside it that finds the program as `counterfoil`.
struct Terminal {
    gateway: Gateway,
    sandbox: String,
    path: String,
    project: Project,
}

impl Terminal {
    fn open() -> Result<Terminal> {
        let mut project = Project::empty()?;
        project.serve = vec!["--sandbox-listen".into(), "127.0.0.1:0".into()];
        let bin = project.path().join("bin");
        std::fs::create_dir(&bin)?;
        std::os::unix::fs::symlink(binary()?, bin.join("counterfoil"))?;
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let gateway = project.gateway(None)?;
        let sandbox = gateway.sandbox.context("sandbox mode mounts a provider")?.to_string();
        Ok(Terminal { gateway, sandbox, path, project })
    }

    /// The same text with the ports that are really used, and the program instead of its building.
    fn here(&self, text: &str) -> String {
        text.replace("127.0.0.1:8600", &self.gateway.addr.to_string())
            .replace("127.0.0.1:8690", &self.sandbox)
            .replace("cargo run --release -- ", "counterfoil ")
    }

    fn run(&self, line: &str) -> Result<counterfoil_tests::shell::Ran> {
        let folder = self.project.path();
        bash(
            &self.here(line),
            |c| {
                c.current_dir(folder).env("PATH", &self.path).env("NO_COLOR", "1");
            },
            Duration::from_secs(30),
        )
    }

    /// Plays a page's transcripts; how many commands that were.
    fn play(&self, page: &Path) -> Result<usize> {
        let scenes = transcript(&std::fs::read_to_string(page)?)?;
        for scene in &scenes {
            let ran = self.run(&scene.command)?;
            let shown = self.here(&scene.output);
            ensure!(
                fits(&shown, &ran.stdout),
                "{}:{} shows\n{shown}\nbut this came of {ran}",
                page.display(),
                scene.line
            );
        }
        Ok(scenes.len())
    }
}

#[test]
fn the_readme_shows_what_happens() -> Result<()> {
    let played = Terminal::open()?.play(&project().join("README.md"))?;
    ensure!(played >= 7, "only {played} commands were found");
    Ok(())
}

#[test]
fn the_start_page_shows_what_happens() -> Result<()> {
    let page = project().join("docs/start.md");
    let terminal = Terminal::open()?;
    ensure!(terminal.play(&page)? >= 1, "no command was found");
    // What it says to try, without showing what comes: it works at least. What runs on and on is played elsewhere.
    let text = std::fs::read_to_string(&page)?;
    let runs_on = ["counterfoil serve", "counterfoil ops watch"];
    let mut tried = 0;
    for (line, command) in fenced(&text, "sh") {
        let command = command.trim();
        if (command.starts_with("counterfoil ") || command.starts_with("curl "))
            && !runs_on.iter().any(|r| command.starts_with(r))
        {
            terminal.run(command)?.exits(0).with_context(|| format!("docs/start.md:{line}"))?;
            tried += 1;
        }
    }
    ensure!(tried >= 8, "only {tried} commands were found");
    // The story of the page: two faults, and order-1 is refunded once.
    let counted = terminal.run("curl -s 'http://127.0.0.1:8690/_sandbox/effects?object=order-1'")?.json()?;
    ensure!(counted["total"] == 1, "{counted}");
    Ok(())
}
