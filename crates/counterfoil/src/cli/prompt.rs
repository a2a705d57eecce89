//! A secret that is asked for on the terminal, unseen; and the signals that end the asking.
//!
//! Whichever way it ends, the terminal is as it was: what is typed next is seen again.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::fs::File;
use std::io::{self, Write as _};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use zeroize::Zeroizing;

/// How often, and how many times, it is looked whether the prompt has hidden what is typed.
const LOOK: Duration = Duration::from_millis(5);
const LOOKS: u32 = 40;

/// Whoever ends a command that waits for a person: Ctrl-C, a manager of processes, a terminal that is closed.
pub(super) struct Ends([Signal; 3]);

impl Ends {
    /// Listens from now on: none of them ends the process by itself any more.
    pub fn listen() -> io::Result<Ends> {
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        Ok(Ends([interrupt?, terminate?, hangup?]))
    }

    /// Waits for the first of them.
    pub async fn first(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// Asks on the terminal of this process.
///
/// # Errors
/// [`io::ErrorKind::Interrupted`]: a signal, or Ctrl-C; [`io::ErrorKind::UnexpectedEof`]: there was nothing to read; or the
/// terminal can't be used.
pub(super) async fn ask(what: &str) -> io::Result<Zeroizing<String>> {
    let mut ends = Ends::listen()?;
    let mut terminal = Terminal::open()?;
    let prompt = format!("{what}: ");
    // In a thread that nobody can call back: who leaves it puts the terminal right.
    let asked = tokio::task::spawn_blocking(|| rpassword::prompt_password(prompt).map(Zeroizing::new));
    tokio::select! {
        asked = asked => {
            terminal.is_right = true;
            asked.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
        }
        () = ends.first() => Err(io::ErrorKind::Interrupted.into()),
    }
}

/// The terminal, as it was before it was asked on.
struct Terminal {
    file: File,
    before: Termios,
    is_right: bool,
}

impl Terminal {
    fn open() -> io::Result<Terminal> {
        let file = File::options().read(true).write(true).open("/dev/tty")?;
        let before = tcgetattr(&file)?;
        Ok(Terminal { file, before, is_right: false })
    }

    /// Whether what is typed is seen; `None`: it is no terminal any more.
    fn shows(&self) -> Option<bool> {
        tcgetattr(&self.file).ok().map(|now| now.local_modes.contains(LocalModes::ECHO))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.is_right {
            return;
        }
        // The thread may only be about to hide what is typed.
        for _ in 0..LOOKS {
            if self.shows() != Some(true) || !self.before.local_modes.contains(LocalModes::ECHO) {
                break;
            }
            std::thread::sleep(LOOK);
        }
        // What was typed is nobody's: not the shell's, either.
        let _ = tcsetattr(&self.file, OptionalActions::Flush, &self.before);
        let _ = writeln!(io::stderr());
    }
}
