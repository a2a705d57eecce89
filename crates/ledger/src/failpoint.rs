//! Named points at which a crash test may kill the process, or have it stand still. Nothing of it is compiled without the
//! feature `failpoints`.
//!
//! `COUNTERFOIL_FAILPOINT=name` (or `name@3`: at the third passing) kills the process with SIGKILL, as a
//! crash would: no destructor runs and nothing is flushed. `name:stop` sends SIGSTOP instead; it goes on there when
//! somebody else sends SIGCONT.
//!
//! `COUNTERFOIL_FAILPOINTS_IN=DIR` arms points while processes run: of all that pass the point `name`, the one that removes
//! the file `DIR/name` is killed, the one that removes `DIR/name:stop` stands still. At each passing `DIR/name@3` becomes
//! `DIR/name@2`, and that `DIR/name`. So exactly one of several replicas breaks, whichever comes there.

/// Marks a named point.
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoint::pass($name);
    };
}

#[cfg(feature = "failpoints")]
struct Armed {
    name: String,
    nth: u32,
    stops: bool,
}

#[cfg(feature = "failpoints")]
static ARMED: std::sync::LazyLock<Option<Armed>> = std::sync::LazyLock::new(|| {
    let text = std::env::var("COUNTERFOIL_FAILPOINT").ok()?;
    let (text, stops) = text.strip_suffix(":stop").map_or((text.as_str(), false), |t| (t, true));
    let (name, nth) = text.split_once('@').map_or((text, 1), |(n, nth)| (n, nth.parse().unwrap_or(1)));
    Some(Armed { name: name.to_owned(), nth, stops })
});

/// Whether this point is armed, or may come to be.
#[cfg(feature = "failpoints")]
#[must_use]
pub fn is_armed(name: &str) -> bool {
    ARMED_IN.is_some() || ARMED.as_ref().is_some_and(|armed| armed.name == name)
}

#[cfg(feature = "failpoints")]
static ARMED_IN: std::sync::LazyLock<Option<std::path::PathBuf>> =
    std::sync::LazyLock::new(|| std::env::var_os("COUNTERFOIL_FAILPOINTS_IN").map(Into::into));

/// Passes the point `name`: kills the process, or stops it, if it is armed.
#[cfg(feature = "failpoints")]
pub fn pass(name: &str) {
    use std::sync::atomic::{AtomicU32, Ordering};
    static PASSED: AtomicU32 = AtomicU32::new(0);
    if let Some(armed) = &*ARMED
        && armed.name == name
        && PASSED.fetch_add(1, Ordering::SeqCst) + 1 == armed.nth
    {
        end(name, armed.stops);
    }
    if let Some(dir) = &*ARMED_IN {
        let file = |more: &str| dir.join(format!("{name}{more}"));
        if std::fs::remove_file(file("")).is_ok() {
            end(name, false);
        }
        if std::fs::remove_file(file(":stop")).is_ok() {
            end(name, true);
        }
        let _ = std::fs::rename(file("@2"), file(""));
        let _ = std::fs::rename(file("@3"), file("@2"));
    }
}

#[cfg(feature = "failpoints")]
fn end(name: &str, stops: bool) {
    use rustix::process::Signal;
    let (signal, word) = if stops { (Signal::STOP, "stopped") } else { (Signal::KILL, "killed") };
    eprintln!("failpoint {name}: {word}");
    let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    if stops {
        // The signal may take effect in this thread a moment after it is sent.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    while !stops {
        std::thread::park();
    }
}
