//! Time, randomness and tasks, as one small trait: the simulator has its own.

use crate::words::Millis;
use futures_util::future::BoxFuture;

/// Stops a spawned task when told; dropping it lets the task run on.
pub struct Abort(Box<dyn Fn() + Send + Sync>);

impl Abort {
    /// Wraps a stop function.
    pub fn new(f: impl Fn() + Send + Sync + 'static) -> Self {
        Abort(Box::new(f))
    }
    /// Stops the task at its next suspension point.
    pub fn abort(&self) {
        (self.0)();
    }
}

/// What the ledger needs of the world besides its store.
pub trait Env: Send + Sync + 'static {
    /// Fills `buf` with unpredictable bytes.
    fn random(&self, buf: &mut [u8]);
    /// Resolves after `d` of real time.
    fn sleep(&self, d: Millis) -> BoxFuture<'static, ()>;
    /// Runs `task` in the background.
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Abort;
    /// A clock that never goes back, in milliseconds from an arbitrary start; includes time asleep.
    fn monotonic(&self) -> i64;

    /// A random 128-bit number.
    fn random_u128(&self) -> u128 {
        let mut b = [0; 16];
        self.random(&mut b);
        u128::from_le_bytes(b)
    }
    /// A random length in `[0, max]` (full jitter).
    fn jitter(&self, max: Millis) -> Millis {
        let max = max.0.max(0);
        let r = (self.random_u128() & 0xffff_ffff) as i64;
        Millis(((i128::from(r) * i128::from(max)) >> 32) as i64)
    }
}

/// The real world: the operating system's randomness and Tokio's timers and tasks.
#[derive(Clone, Debug, Default)]
pub struct SystemEnv;

static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);

impl Env for SystemEnv {
    fn random(&self, buf: &mut [u8]) {
        // Without randomness no id is safe to hand out; there is nothing better to do than to stop.
        if let Err(e) = getrandom::fill(buf) {
            eprintln!("counterfoil: the operating system gives no random numbers ({e}); stopping");
            std::process::abort();
        }
    }
    fn sleep(&self, d: Millis) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(d.duration()))
    }
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Abort {
        let handle = tokio::spawn(task).abort_handle();
        Abort::new(move || handle.abort())
    }
    fn monotonic(&self) -> i64 {
        i64::try_from(START.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}
