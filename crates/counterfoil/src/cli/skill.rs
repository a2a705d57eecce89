//! `skill`: a guide for agents that use this program from a shell, as Markdown with front matter. What it says of exit
//! codes and kinds comes from the tables that the program itself goes by.

use super::fail::Done;
use super::out::Out;
use gateway::exec::outcome::{Class, advice, class};
use ledger::Kind;
use serde_json::json;
use std::fmt::Write as _;

#[derive(Debug, clap::Args)]
pub(super) struct Args {}

/// The name in the front matter.
const NAME: &str = "counterfoil";

const HEAD: &str = "description: Run API methods that change the world (refunds, mails, orders) through the `counterfoil` command so that each happens once, even after a lost answer. Use it whenever a `counterfoil.toml` is there or a task names Counterfoil.";

const INTRODUCTION: &str = "# Counterfoil

Counterfoil keeps a durable record of every call that changes something: what was sent, under which key, what came back. A call
that is repeated with its key gets the first answer again; nothing is done twice. Secrets are added by Counterfoil: never ask
for them, never pass them.

## Find the method

```sh
counterfoil methods WORD --safety --json   # which there are, and which are safe to repeat
counterfoil info ID --json                 # arguments, whether a retry is safe and why, where each setting comes from
counterfoil exec ID --param NAME=VALUE --dry-run   # the exact request, credentials masked; nothing is sent
```

Look before the first call of a method. `repeat.safe` is `yes`, `asks` (a person) or `no`: then an unclear outcome stays in doubt
until a person decides.

## Execute

```sh
counterfoil exec ID --body '{\"payment\": \"pay_1\", \"amount\": 200}' --key KEY --json
```

- Numbers and texts go in exactly as they are meant: amounts in the unit that `info` says.
- **Keys: never invent one.** A key is either a name that the task itself has for this very thing and that is the same whenever
  it is repeated (`refund-order-17`), or exactly the `retryKey` or `newKey` of an earlier answer. No random values, no times, no
  counters of your own.
- To a method that changes something always give `--key` if the task has a name for the intent. Without one every run is a new
  operation: run once, and repeat only with what the answer gives you.
- After any lost, cut or unclear answer: the same command with the same key and the same arguments. Never with another key. If
  you gave none and got none, look with `counterfoil ops list` before you run it again.
- Programs use `POST /api/v1/exec` with `operation` (the name of their run) instead of a key; MCP clients leave
  `idempotency_key` out unless an answer gave one.

The document is `{\"outcome\": \"result\", \"isError\", \"result\", \"operation\"}` or `{\"outcome\": \"error\", \"error\": {\"kind\", \"message\",
\"retryAfterMs\", \"retryKey\", \"newKey\", \"advice\"}}`. `isError: true` is the provider's own refusal: it is final, and repeating it
gets the same. `operation.replayed: true`: this is the answer of an earlier run, nothing was sent now.
";

const AFTERWARDS: &str = "
## Did it land?

```sh
counterfoil ops list --limit 5 --json
counterfoil ops show OPERATION --json
```

States: `completed` (there is a result), `failed` and `cancelled` (no effect), `running`, `input_required` (a person is asked),
`in_doubt` (nobody knows yet). `ops resolve`, `ops approve` and `ops deny` are a person's decisions: show what `ops show` says and
ask; never run them on your own.
";

/// The guide.
fn guide() -> String {
    let mut text = format!(
        "---\nname: {NAME}\n{HEAD}\n---\n\n{INTRODUCTION}\n## Exit codes\n\n| code | means |\n| --- | --- |\n"
    );
    for one in Class::ALL {
        let _ = writeln!(text, "| {} | {} |", one.exit_code(), one.says());
    }
    text.push_str("\n## Kinds of errors\n\n| kind | exit | do |\n| --- | --- | --- |\n");
    for kind in Kind::ALL {
        let _ = writeln!(text, "| `{}` | {} | {} |", kind.word(), codes(kind), advice(kind));
    }
    text.push_str(AFTERWARDS);
    text
}

/// The exit code of a kind; the one without a key too, where that is another.
fn codes(kind: Kind) -> String {
    let [keyed, bare] = [true, false].map(|keyed| class(kind, keyed).exit_code());
    if keyed == bare { keyed.to_string() } else { format!("{keyed}; without `--key` {bare}") }
}

pub(super) fn run(_: &Args, out: &Out) -> Done {
    let text = guide();
    out.document(&json!({ "name": NAME, "format": "markdown", "text": text }));
    out.say(text.trim_end());
    Ok(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::Cli;
    use super::*;
    use clap::CommandFactory as _;

    /// The largest guide that an agent is given, in bytes.
    const MOST: usize = 8 << 10;

    #[test]
    fn the_guide_is_small_and_whole() {
        let text = guide();
        assert!(text.len() < MOST, "{} bytes", text.len());
        let front = text.strip_prefix("---\n").and_then(|t| t.split_once("\n---\n")).unwrap().0;
        let members: Vec<&str> = front.lines().map(|l| l.split_once(": ").unwrap().0).collect();
        assert_eq!(members, ["name", "description"]);
        // Texts of front matter are plain YAML: no second colon with a blank, no quotes at their start.
        assert!(front.lines().all(|l| !l.split_once(": ").unwrap().1.contains(": ")), "{front}");
        for kind in Kind::ALL {
            let code = |keyed| super::super::fail::code_of_kind(kind.word(), keyed);
            let bare = if code(false) == code(true) {
                String::new()
            } else {
                format!("; without `--key` {}", code(false))
            };
            let row = format!("| `{}` | {}{bare} |", kind.word(), code(true));
            assert!(text.contains(&row), "{row}");
        }
        for code in 0..=5 {
            assert!(text.contains(&format!("| {code} | ")), "{code}");
        }
    }

    #[test]
    fn its_commands_and_flags_exist() {
        let cli = Cli::command();
        let mut checked = 0;
        for line in guide().lines().filter(|l| l.starts_with("counterfoil ")) {
            let line = line.split(" #").next().unwrap();
            let mut words = line.split_whitespace().skip(1).peekable();
            let mut command = cli.find_subcommand(words.next().unwrap()).unwrap();
            while let Some(inner) = words.peek().and_then(|w| command.find_subcommand(w)) {
                command = inner;
                words.next();
            }
            for flag in words.filter_map(|w| w.strip_prefix("--")) {
                let known = command.get_arguments().chain(cli.get_arguments());
                assert!(known.into_iter().any(|a| a.get_long() == Some(flag)), "{line}: --{flag}");
                checked += 1;
            }
        }
        assert!(checked >= 8, "only {checked} flags were found");
    }
}
