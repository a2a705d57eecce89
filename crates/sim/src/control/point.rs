//! The named points at which a crash test kills or stops the process: `COUNTERFOIL_FAILPOINT=name`, or `name@2` for the
//! second passing, or `name:stop`.

use rustix::process::{Signal, getpid, kill_process};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

struct Armed {
    name: String,
    nth: u32,
    signal: Signal,
}

static ARMED: LazyLock<Option<Armed>> = LazyLock::new(|| {
    let text = std::env::var("COUNTERFOIL_FAILPOINT").ok()?;
    let (text, signal) = match text.strip_suffix(":stop") {
        Some(text) => (text, Signal::STOP),
        None => (text.as_str(), Signal::KILL),
    };
    let (name, nth) = text.split_once('@').unwrap_or((text, "1"));
    Some(Armed { name: name.to_owned(), nth: nth.parse().unwrap_or(1), signal })
});

/// Passes a point. If the environment names it: SIGKILL, so no destructor runs and nothing is flushed, or SIGSTOP.
pub fn pass(name: &str) {
    static PASSED: AtomicU32 = AtomicU32::new(0);
    if let Some(armed) = &*ARMED
        && armed.name == name
        && PASSED.fetch_add(1, Ordering::SeqCst) + 1 == armed.nth
    {
        let _ = kill_process(getpid(), armed.signal);
        if armed.signal == Signal::KILL {
            std::thread::park();
        }
    }
}
