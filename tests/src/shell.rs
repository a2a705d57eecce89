//! Commands as a shell sees them: an exit code and two texts; the folder of a day's use; and the transcripts that the
//! documents show, to be played again.

use crate::process::run;
use crate::stand::{AMOUNT, Class, Gateway, Project, Sandbox, payment};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

/// What came of a command.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The command, for messages.
    pub shown: String,
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What it said on standard output.
    pub stdout: String,
    /// What it said on standard error.
    pub stderr: String,
}

impl Ran {
    fn of(shown: String, out: &Output) -> Ran {
        Ran {
            shown,
            code: out.status.code(),
            stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        }
    }

    /// It ended with this code.
    ///
    /// # Errors
    /// It ended otherwise; says what it printed.
    pub fn exits(self, code: i32) -> Result<Ran> {
        ensure!(self.code == Some(code), "exit code {code} was expected of {self}");
        Ok(self)
    }

    /// It said this on one of its outputs.
    ///
    /// # Errors
    /// It did not.
    pub fn says(self, text: &str) -> Result<Ran> {
        ensure!(self.stdout.contains(text) || self.stderr.contains(text), "{text:?} was expected of {self}");
        Ok(self)
    }

    /// The document of a command with `--json`: the only line of standard output.
    ///
    /// # Errors
    /// There is another line, or it is no JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout)
            .with_context(|| format!("one JSON document was expected of {self}"))
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` (code {:?})\n{}\n{}", self.shown, self.code, self.stdout, self.stderr)
    }
}

/// Runs a command of the binary in a project's folder.
///
/// # Errors
/// It does not end within 30 seconds.
pub fn counterfoil(project: &Project, args: &[&str]) -> Result<Ran> {
    Ok(Ran::of(format!("counterfoil {}", args.join(" ")), &project.run(args)?))
}

/// Runs a line with bash.
///
/// # Errors
/// It does not end within a time.
pub fn bash(line: &str, dress: impl FnOnce(&mut Command), within: Duration) -> Result<Ran> {
    let mut command = Command::new("bash");
    command.args(["-c", line]);
    dress(&mut command);
    Ok(Ran::of(line.to_owned(), &run(&mut command, within)?))
}

/// A command of a transcript and what it prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scene {
    /// The line of the page, from 1.
    pub line: usize,
    /// After the prompt.
    pub command: String,
    /// Until the next prompt; `…` stands for anything.
    pub output: String,
}

/// The lines of a page's code fences of a language, with their numbers.
pub fn fenced<'a>(page: &'a str, language: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let mut fence: Option<&str> = None;
    page.lines().enumerate().filter_map(move |(i, line)| {
        match (line.trim_start().strip_prefix("```"), fence) {
            (Some(word), None) => fence = Some(word.trim()),
            (Some(_), Some(_)) => fence = None,
            (None, Some(word)) if word == language => return Some((i + 1, line)),
            _ => {}
        }
        None
    })
}

/// The transcripts of a page: code fences of the language `console`, in which `$ ` begins a command.
///
/// # Errors
/// A fence begins without a command.
pub fn transcript(page: &str) -> Result<Vec<Scene>> {
    let mut scenes: Vec<Scene> = Vec::new();
    for (line, text) in fenced(page, "console") {
        match (text.strip_prefix("$ "), scenes.last_mut()) {
            (Some(command), _) => {
                scenes.push(Scene { line, command: command.to_owned(), output: String::new() });
            }
            (None, Some(scene)) => {
                scene.output.push_str(text);
                scene.output.push('\n');
            }
            (None, None) => bail!("line {line}: output without a command"),
        }
    }
    Ok(scenes)
}

/// Whether a text is what a page shows, where `…` stands for anything. Ends of line at the end don't count.
#[must_use]
pub fn fits(shown: &str, text: &str) -> bool {
    let (shown, text) = (shown.trim_end_matches('\n'), text.trim_end_matches('\n'));
    let mut pieces = shown.split('…');
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else { return rest.is_empty() };
    for piece in middle {
        let Some((_, after)) = rest.split_once(piece) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// A folder as `init` makes it, its provider elsewhere, and an integration whose provider knows no keys.
/// Every file of it is there for a person to change.
pub struct Day {
    /// The provider.
    pub sandbox: Sandbox,
    /// The folder.
    pub project: Project,
    _home: Project,
}

impl Day {
    /// A method whose provider honours keys.
    pub const KEYED: &str = "payments.refunds.create";
    /// A method of whose provider nothing is known.
    pub const DOUBTFUL: &str = "none.refunds.create";

    /// `init` in a fresh folder, its provider elsewhere.
    ///
    /// # Errors
    /// Something does not start.
    pub fn begin() -> Result<Day> {
        let home = Project::empty()?;
        let log = home.path().join("provider.log");
        let sandbox = Sandbox::start(&home.path().join("provider"), &log, "127.0.0.1:0")?;
        let project = Project::empty()?;
        let day = Day { sandbox, project, _home: home };
        let made = day.run(&["init", "--json"])?.exits(0)?.json()?;
        ensure!(
            made["written"] == json!(["counterfoil.toml", "integrations/example.toml", ".gitignore"]),
            "{made}"
        );
        // What is lost here is lost by a fault, not by a busy machine.
        let manifest = Class::None.manifest(day.sandbox.addr).replace("send = \"500ms\"", "send = \"5s\"");
        std::fs::write(day.project.path().join("integrations/none.toml"), manifest)?;
        let config = day.config()?;
        let ours =
            config.replace("# listen = \"127.0.0.1:8690\"", &format!("listen = \"{}\"", day.sandbox.addr));
        ensure!(ours != config, "the file names no address of the provider:\n{config}");
        day.configure(&format!(
            "{ours}\n[[integration]]\nname = \"none\"\nmanifest = \"integrations/none.toml\"\n"
        ))?;
        Ok(day)
    }

    /// The configuration as it is.
    ///
    /// # Errors
    /// It is gone.
    pub fn config(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.project.path().join("counterfoil.toml"))?)
    }

    /// Replaces the configuration.
    ///
    /// # Errors
    /// What the system says.
    pub fn configure(&self, text: &str) -> Result<()> {
        Ok(std::fs::write(self.project.path().join("counterfoil.toml"), text)?)
    }

    /// Starts the gateway.
    ///
    /// # Errors
    /// It does not start.
    pub fn serve(&mut self) -> Result<Gateway> {
        self.project.gateway(None)
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// It does not end.
    pub fn run(&self, args: &[&str]) -> Result<Ran> {
        counterfoil(&self.project, args)
    }

    /// A refund of an order, by `exec`.
    ///
    /// # Errors
    /// It does not end.
    pub fn exec(&self, method: &str, order: &str, more: &[&str]) -> Result<Ran> {
        self.exec_of(method, order, AMOUNT, more)
    }

    /// A refund of an order and an amount, by `exec`.
    ///
    /// # Errors
    /// It does not end.
    pub fn exec_of(&self, method: &str, order: &str, amount: u64, more: &[&str]) -> Result<Ran> {
        let body = json!({ "payment": payment(order), "amount": amount }).to_string();
        let order = format!("order_id={order}");
        self.run(&[&["exec", method, "--json", "--body", &body, "--param", &order], more].concat())
    }

    /// A refund of an order, by `call`.
    ///
    /// # Errors
    /// It does not end.
    pub fn call(&self, url: &str, tool: &str, order: &str, more: &[&str]) -> Result<Ran> {
        let arguments = Class::Key.arguments(order).to_string();
        self.run(&[&["call", url, tool, "--json", "--args", &arguments], more].concat())
    }

    /// Arms a fault for the next refund of a provider class.
    ///
    /// # Errors
    /// It is refused.
    pub fn arm(&self, class: Class, fault: &str) -> Result<()> {
        self.sandbox.rule(&json!({ "on": class.on(), "do": fault }))
    }

    /// The provider's count of an order, in its two books.
    ///
    /// # Errors
    /// They disagree, or it does not answer.
    pub fn effects(&self, class: Class, order: &str) -> Result<u64> {
        let (effects, refunded) = self.sandbox.count(class, order)?;
        ensure!(refunded == effects * AMOUNT, "{effects} effects, but {refunded} was refunded");
        Ok(effects)
    }

    /// An operation whose outcome nobody knows, and its id.
    ///
    /// # Errors
    /// Its outcome is known.
    pub fn doubt(&self, order: &str, fault: &str) -> Result<String> {
        self.arm(Class::None, fault)?;
        let said = self.exec(Self::DOUBTFUL, order, &["--key", order])?.exits(3)?.json()?;
        ensure!(said["outcome"] == "error" && said["error"]["kind"] == "in_doubt", "{said}");
        ensure!(said["error"]["retryKey"].is_string() && said["error"]["newKey"].is_string(), "{said}");
        said["error"]["operationId"].as_str().map(str::to_owned).context("the operation is not named")
    }
}

/// Waits until something is so.
///
/// # Errors
/// It is not within 15 seconds, or asking fails.
pub fn until(what: &str, mut so: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(15);
    while !so()? {
        ensure!(Instant::now() < end, "not within 15 s: {what}");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Sends a signal (`HUP`) to a gateway.
///
/// # Errors
/// It is not sent.
pub fn signal(gateway: &Gateway, name: &str) -> Result<()> {
    let sent =
        Command::new("kill").args([&format!("-{name}"), &gateway.process.pid().to_string()]).status()?;
    ensure!(sent.success(), "the signal was not sent");
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{fits, transcript};

    #[test]
    fn the_wildcard_stands_for_anything_but_what_follows() {
        for (shown, text, wanted) in [
            ("abc\n", "abc", true),
            ("abc", "abcd", false),
            ("a…c", "a\nb\nc", true),
            ("a…c", "ac", true),
            ("a…c", "acd", false),
            ("…", "", true),
            ("id …, n 1", "id x, n 2", false),
            ("a…b…c", "a-b-c", true),
            ("a…b…c", "a-c", false),
            ("a…a", "a", false),
        ] {
            assert_eq!(fits(shown, text), wanted, "{shown:?} {text:?}");
        }
    }

    #[test]
    fn a_page_is_cut_into_commands_and_outputs() {
        let page = "x\n```sh\n$ no\n```\n```console\n$ one\n1\n2\n$ two\n```\n";
        let scenes = transcript(page).unwrap();
        let told: Vec<_> = scenes.iter().map(|s| (s.line, s.command.as_str(), s.output.as_str())).collect();
        assert_eq!(told, [(6, "one", "1\n2\n"), (9, "two", "")]);
        assert!(transcript("```console\noutput\n```\n").is_err());
    }
}
