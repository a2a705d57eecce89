//! The keyring of the operating system, asked through the program that comes with it: it knows the desktop's session, and
//! what may be read without asking a person. What it answers is bounded in length and time.

use std::io::{ErrorKind, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The service that entries are kept under.
const SERVICE: &str = "counterfoil";
/// How long it may take: a locked keyring asks a person for its password.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked after.
const PAUSE: Duration = Duration::from_millis(20);

/// The entry `name` of [`SERVICE`], of at most `longest` bytes.
///
/// # Errors
/// There is no keyring, no such entry, no answer, or too long a one; says what to do.
pub(super) fn read(name: &str, longest: u64) -> Result<String, String> {
    ask(&mut reader(name), &writer(name), longest, PATIENCE)
}

#[cfg(target_os = "macos")]
fn reader(name: &str) -> Command {
    let mut c = Command::new("security");
    c.args(["find-generic-password", "-s", SERVICE, "-a", name, "-w"]);
    c
}

#[cfg(target_os = "macos")]
fn writer(name: &str) -> String {
    format!("security add-generic-password -s {SERVICE} -a {name} -w")
}

#[cfg(not(target_os = "macos"))]
fn reader(name: &str) -> Command {
    let mut c = Command::new("secret-tool");
    c.args(["lookup", "service", SERVICE, "account", name]);
    c
}

#[cfg(not(target_os = "macos"))]
fn writer(name: &str) -> String {
    format!("secret-tool store --label=Counterfoil service {SERVICE} account {name}")
}

/// `written` is the command that makes the entry.
fn ask(c: &mut Command, written: &str, longest: u64, patience: Duration) -> Result<String, String> {
    let program = c.get_program().to_string_lossy().into_owned();
    let child = c.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.map_err(|e| match e.kind() {
        ErrorKind::NotFound => format!(
            "this machine has no `{program}`, by which a keyring is read (on Debian: libsecret-tools); install it, or name a variable or a file"
        ),
        kind => format!("`{program}` can't be started: {kind}"),
    })?;
    // Read beside the wait: a program with more to say than a pipe holds would never end.
    let out = child.stdout.take().ok_or("the keyring's answer can't be read")?;
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        out.take(longest + 1).read_to_string(&mut text).map(|_| text)
    });
    let found = waited(&mut child, patience)
        .ok_or_else(|| format!("the keyring gave no answer within {} s; unlock it", patience.as_secs()))?;
    let text = reading.join().ok().and_then(Result::ok).unwrap_or_default();
    // Whoever had more to say than is read did not end well, either.
    if text.len() as u64 > longest {
        return Err(format!("the keyring's entry is longer than {longest} bytes"));
    }
    // Which of the two it is, the program doesn't tell alike everywhere.
    if !found || text.trim().is_empty() {
        return Err(format!("the keyring has no such entry, or isn't there; make it with `{written}`"));
    }
    Ok(text)
}

/// Whether it ended well; none: it didn't end, and was ended.
fn waited(child: &mut Child, patience: Duration) -> Option<bool> {
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if started.elapsed() < patience => std::thread::sleep(PAUSE),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn asked(script: &str, longest: u64, patience: Duration) -> Result<String, String> {
        ask(Command::new("sh").args(["-c", script]), "store it", longest, patience)
    }

    #[test]
    fn an_entry_is_read_whole_or_refused() {
        let second = Duration::from_secs(10);
        assert_eq!(asked("printf 'a secret\n'", 9, second).as_deref(), Ok("a secret\n"));
        for longer in ["printf 'a secret\n'", "head -c 9000000 /dev/zero | tr '\\0' x"] {
            let told = asked(longer, 8, second).unwrap_err();
            assert!(told.contains("longer than 8 bytes"), "{told}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_what_to_do() {
        let second = Duration::from_secs(10);
        for script in ["exit 1", "printf ''", "printf 'half'; exit 1"] {
            let told = asked(script, 64, second).unwrap_err();
            assert!(told.contains("no such entry") && told.contains("store it"), "{told}");
        }
        let told = ask(&mut Command::new("there-is-no-such-program"), "", 64, second).unwrap_err();
        assert!(told.contains("no `there-is-no-such-program`"), "{told}");
        let started = Instant::now();
        let told = asked("exec sleep 30", 64, Duration::from_millis(60)).unwrap_err();
        assert!(told.contains("no answer") && started.elapsed() < second, "{told}");
    }
}
