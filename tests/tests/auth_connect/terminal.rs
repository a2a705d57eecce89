//! The prompt on a real terminal: what is typed is seen nowhere, and whichever way it ends the terminal is as it was.

use super::authority::CLIENT_SECRET;
use super::stage::{Stage, by_code, create, done};
use anyhow::{Context, Result, ensure};
use counterfoil_tests::process::{build_dir, run};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

/// Runs a command on a new pseudo-terminal, types, and tells what was shown. Python's, since the calls for it are unsafe ones
/// in Rust. The leader of the session is the script, as a shell is: at a leader's end the system makes the settings anew.
const TERMINAL: &str = r#"
import fcntl, json, os, pty, select, signal, subprocess, sys, termios, time

given = json.loads(sys.argv[1])
master, slave = pty.openpty()
settings = lambda: termios.tcgetattr(slave)
before = settings()

os.setsid()
fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
# Not ignored: that would be handed on to the command.
for name in ("SIGINT", "SIGHUP"):
    signal.signal(getattr(signal, name), lambda *_: None)
child = subprocess.Popen(given["command"], stdin=slave, stderr=slave, stdout=subprocess.PIPE)
shown, until, during = b"", time.time() + 20, []

def listen(seconds):
    global shown
    if select.select([master], [], [], seconds)[0]:
        shown += os.read(master, 4096)

for step in given["steps"]:
    if "wait" in step:
        while step["wait"].encode() not in shown and time.time() < until and child.poll() is None:
            listen(0.05)
    if "hidden" in step:
        while settings()[3] & termios.ECHO and time.time() < until and child.poll() is None:
            listen(0.01)
        during.append(not settings()[3] & termios.ECHO)
    if "type" in step:
        os.write(master, step["type"].encode())
        listen(0.2)
    if "signal" in step:
        os.kill(child.pid, getattr(signal, step["signal"]))
        listen(0.3)
while child.poll() is None and time.time() < until:
    listen(0.05)
ended = child.poll()
if ended is None:
    child.kill()
listen(0.05)
print(json.dumps({
    "code": ended,
    "shown": shown.decode(errors="replace"),
    "stdout": child.communicate()[0].decode(errors="replace"),
    "hidden": during,
    "restored": settings() == before,
    "echoes": bool(before[3] & termios.ECHO),
}))
"#;

/// What came of `auth connect` on a terminal.
fn at_terminal(stage: &Stage, steps: &Value) -> Result<Value> {
    connecting(stage, &[], steps)
}

fn connecting(stage: &Stage, more: &[&str], steps: &Value) -> Result<Value> {
    let command = stage.project.command(&[&["auth", "connect", "things", "--json"], more].concat())?;
    let mut all = vec![command.get_program().to_string_lossy().into_owned()];
    all.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    let mut python = Command::new(build_dir()?.join("clients/py/venv/bin/python"));
    python.args(["-c", TERMINAL, &json!({ "command": all, "steps": steps }).to_string()]);
    python.current_dir(stage.project.path());
    python.envs(command.get_envs().filter_map(|(n, v)| Some((n, v?))));
    let out = run(&mut python, Duration::from_secs(40))?;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let seen: Value = serde_json::from_slice(&out.stdout).with_context(|| said)?;
    ensure!(seen["echoes"] == true, "a terminal that never echoes shows nothing: {seen}");
    ensure!(!seen.to_string().contains("CANARY"), "what was typed is seen: {seen}");
    ensure!(seen["restored"] == true, "the terminal is not as it was: {seen}");
    Ok(seen)
}

fn by_hand() -> Result<Stage> {
    Stage::new(|_| "kind = \"bearer\"".into())
}

#[test]
fn what_is_typed_is_kept_and_seen_nowhere() -> Result<()> {
    let mut stage = by_hand()?;
    // With a slip of the finger, taken back.
    let steps = json!([
        { "wait": "sent to http://127.0.0.1", "hidden": 1, "type": "CANARY-typeX\u{7f}d\r" },
    ]);
    let seen = at_terminal(&stage, &steps)?;
    ensure!(seen["code"] == 0 && seen["hidden"] == json!([true]), "{seen}");
    let document: Value = serde_json::from_str(seen["stdout"].as_str().unwrap_or_default())?;
    ensure!(document["kept"] == true, "{document}");
    stage.authority.state().taken.insert("Bearer CANARY-typed".into());
    let gateway = stage.project.gateway(None)?;
    done(&create(gateway.addr, "one"))
}

#[test]
fn a_prompt_that_is_left_keeps_nothing() -> Result<()> {
    let stage = by_hand()?;
    let cases = [
        // Ctrl-C, before and after something was typed.
        ("\u{3}", 5, "interrupted"),
        ("CANARY-half\u{3}", 5, "interrupted"),
        // Ctrl-D.
        ("\u{4}", 2, "the input ended before a secret was given"),
        ("\r", 2, "no secret was given"),
        ("   \r", 2, "no secret was given"),
    ];
    for (typed, code, why) in cases {
        let steps = json!([{ "wait": "sent to", "hidden": 1, "type": typed }]);
        let seen = at_terminal(&stage, &steps)?;
        ensure!(seen["code"] == code && seen["hidden"] == json!([true]), "{typed:?}: {seen}");
        let shown = seen["shown"].as_str().unwrap_or_default();
        ensure!(shown.contains(why) && shown.contains("nothing was kept"), "{typed:?}: {seen}");
        ensure!(seen["stdout"].as_str().is_some_and(|s| s.contains(why)), "{typed:?}: {seen}");
        ensure!(!stage.folder().join("store.json").exists(), "{typed:?}: something was kept");
    }
    Ok(())
}

#[test]
fn after_the_prompt_an_interruption_still_ends_it() -> Result<()> {
    let stage = Stage::new(|a| by_code(a, "client_secret = \"store\""))?;
    let page = format!("{}/authorize?", stage.authority.issuer());
    // While a person is waited for; typed, and as a signal.
    for end in [json!({ "type": "\u{3}" }), json!({ "signal": "SIGINT" }), json!({ "signal": "SIGTERM" })] {
        let mut last = end;
        last["wait"] = json!(page);
        let steps = json!([
            { "wait": "sent to", "hidden": 1, "type": format!("{CLIENT_SECRET}\r") },
            last,
        ]);
        let seen = at_terminal(&stage, &steps)?;
        ensure!(seen["code"] == 5, "{seen}");
        ensure!(seen["shown"].as_str().is_some_and(|s| s.contains("interrupted")), "{seen}");
        ensure!(!stage.folder().join("store.json").exists(), "something was kept");
    }
    Ok(())
}

#[test]
fn a_signal_at_the_prompt_ends_it_and_puts_the_terminal_right() -> Result<()> {
    let stage = by_hand()?;
    for signal in ["SIGINT", "SIGTERM", "SIGHUP"] {
        let steps = json!([
            { "wait": "sent to", "hidden": 1, "type": "CANARY-half" },
            { "signal": signal },
        ]);
        let seen = at_terminal(&stage, &steps)?;
        ensure!(seen["code"] == 5 && seen["hidden"] == json!([true]), "{signal}: {seen}");
        let shown = seen["shown"].as_str().unwrap_or_default();
        ensure!(shown.contains("interrupted; nothing was kept"), "{signal}: {seen}");
        ensure!(!stage.folder().join("store.json").exists(), "{signal}: something was kept");
    }
    Ok(())
}

#[test]
fn a_secret_that_is_awaited_on_standard_input_can_be_given_up() -> Result<()> {
    let by_hand = by_hand()?;
    let by_code = Stage::new(|a| by_code(a, "client_secret = \"store\""))?;
    for stage in [by_hand, by_code] {
        // Typed, and as a signal.
        for end in [json!({ "type": "\u{3}" }), json!({ "signal": "SIGINT" })] {
            let mut last = end;
            last["wait"] = json!("sent to");
            let seen = connecting(&stage, &["--stdin"], &json!([last]))?;
            ensure!(seen["code"] == 5, "{seen}");
            ensure!(seen["shown"].as_str().is_some_and(|s| s.contains("interrupted")), "{seen}");
            ensure!(!stage.folder().join("store.json").exists(), "something was kept");
        }
    }
    Ok(())
}
