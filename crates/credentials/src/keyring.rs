//! The keyring of the operating system, asked through the program that comes with it: it knows the desktop's session, and
//! what may be read without asking a person. What it answers is bounded in length and time.

use std::io::{ErrorKind, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

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
pub fn read(name: &str, longest: u64) -> Result<String, String> {
    ask(&mut reader(name), &written(name), longest, PATIENCE)
}

/// Makes the entry `name`, in the place of an older one. The text goes in through the program's standard input: others can
/// see command lines.
///
/// # Errors
/// There is no keyring, or it refuses; says what to do.
pub fn write(name: &str, text: &str) -> Result<(), String> {
    let (mut command, input) = writer(name, text);
    tell(&mut command, &input, PATIENCE)
}

/// Takes the entry `name` away, if there is one and it can be done.
pub fn clear(name: &str) {
    let _ = tell(&mut eraser(name), "", PATIENCE);
}

#[cfg(target_os = "macos")]
fn reader(name: &str) -> Command {
    let mut c = Command::new("security");
    c.args(["find-generic-password", "-s", SERVICE, "-a", name, "-w"]);
    c
}

#[cfg(target_os = "macos")]
fn written(name: &str) -> String {
    format!("security add-generic-password -s {SERVICE} -a {name} -w")
}

/// The program, and what it is told: its interactive mode, whose commands are read and not seen by others.
#[cfg(target_os = "macos")]
fn writer(name: &str, text: &str) -> (Command, Zeroizing<String>) {
    let mut c = Command::new("security");
    c.arg("-i");
    (c, Zeroizing::new(format!("add-generic-password -U -s {SERVICE} -a {name} -w {text}\n")))
}

#[cfg(target_os = "macos")]
fn eraser(name: &str) -> Command {
    let mut c = Command::new("security");
    c.args(["delete-generic-password", "-s", SERVICE, "-a", name]);
    c
}

#[cfg(not(target_os = "macos"))]
fn reader(name: &str) -> Command {
    let mut c = Command::new("secret-tool");
    c.args(["lookup", "service", SERVICE, "account", name]);
    c
}

#[cfg(not(target_os = "macos"))]
fn written(name: &str) -> String {
    format!("secret-tool store --label=Counterfoil service {SERVICE} account {name}")
}

/// The program, and what it is told.
#[cfg(not(target_os = "macos"))]
fn writer(name: &str, text: &str) -> (Command, Zeroizing<String>) {
    let mut c = Command::new("secret-tool");
    c.args(["store", "--label=Counterfoil", "service", SERVICE, "account", name]);
    (c, Zeroizing::new(text.to_owned()))
}

#[cfg(not(target_os = "macos"))]
fn eraser(name: &str) -> Command {
    let mut c = Command::new("secret-tool");
    c.args(["clear", "service", SERVICE, "account", name]);
    c
}

fn started(c: &mut Command) -> Result<Child, String> {
    let program = c.get_program().to_string_lossy().into_owned();
    c.spawn().map_err(|e| match e.kind() {
        ErrorKind::NotFound => format!(
            "this machine has no `{program}`, by which a keyring is used (on Debian: libsecret-tools); install it, or name a variable or a file"
        ),
        kind => format!("`{program}` can't be started: {kind}"),
    })
}

/// Runs a program that says nothing of interest.
fn tell(c: &mut Command, input: &str, patience: Duration) -> Result<(), String> {
    let mut child = started(c.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that ended already says how.
        let _ = stdin.write_all(input.as_bytes());
    }
    match waited(&mut child, patience) {
        Some(true) => Ok(()),
        Some(false) => {
            Err("the keyring did not take the entry, or isn't there; a server has none, so use a file".into())
        }
        None => Err(format!("the keyring gave no answer within {} s; unlock it", patience.as_secs())),
    }
}

/// `made_by` is the command that makes the entry.
fn ask(c: &mut Command, made_by: &str, longest: u64, patience: Duration) -> Result<String, String> {
    let mut child = started(c.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()))?;
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
        return Err(format!("the keyring has no such entry, or isn't there; make it with `{made_by}`"));
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
        let begun = Instant::now();
        let told = asked("exec sleep 30", 64, Duration::from_millis(60)).unwrap_err();
        assert!(told.contains("no answer") && begun.elapsed() < second, "{told}");
    }

    #[test]
    fn what_is_kept_goes_in_by_standard_input() {
        let second = Duration::from_secs(10);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kept");
        let script = format!("cat >'{}'", file.display());
        tell(Command::new("sh").args(["-c", &script]), "a secret", second).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "a secret");
        let told = tell(Command::new("sh").args(["-c", "exit 1"]), "x", second).unwrap_err();
        assert!(told.contains("did not take"), "{told}");
        let (command, input) = writer("name", "a secret");
        assert!(!format!("{command:?}").contains("a secret") && input.contains("a secret"));
    }
}
