//! Named points at which a crash test may kill the process. Nothing of it is compiled without the feature
//! `failpoints`.
//!
//! `COUNTERFOIL_FAILPOINT=name` (or `name@3`: at the third passing) kills the process with SIGKILL, as a
//! crash would: no destructor runs and nothing is flushed.

/// Marks a named point.
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoint::pass($name);
    };
}

#[cfg(feature = "failpoints")]
static ARMED: std::sync::LazyLock<Option<(String, u32)>> = std::sync::LazyLock::new(|| {
    let text = std::env::var("COUNTERFOIL_FAILPOINT").ok()?;
    Some(match text.split_once('@') {
        Some((n, nth)) => (n.to_owned(), nth.parse().unwrap_or(1)),
        None => (text, 1),
    })
});

/// Whether the environment names this point.
#[cfg(feature = "failpoints")]
#[must_use]
pub fn is_armed(name: &str) -> bool {
    ARMED.as_ref().is_some_and(|(armed, _)| armed == name)
}

/// Passes the point `name`: kills the process if the environment says so.
#[cfg(feature = "failpoints")]
pub fn pass(name: &str) {
    use std::sync::atomic::{AtomicU32, Ordering};
    static PASSED: AtomicU32 = AtomicU32::new(0);
    if let Some((armed, nth)) = &*ARMED
        && armed == name
        && PASSED.fetch_add(1, Ordering::SeqCst) + 1 == *nth
    {
        eprintln!("failpoint {name}: killed");
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}
