//! The scheduler that owns time and tasks: one thread, tasks polled in seeded order, a clock that jumps to the next
//! timer when nothing can run.
//!
//! Every task has a home. A home can be killed (its tasks are dropped where they stand) or paused (its tasks are not
//! polled; its timers go on and are seen when it wakes). What is asked for during a poll happens after it, as it would
//! under a real scheduler.

use crate::rng::Rng;
use crate::trace::Trace;
use futures_util::future::BoxFuture;
use ledger::env::{Abort, Env};
use ledger::words::Millis;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Where a task lives.
pub(crate) type Home = usize;
/// Callers, providers and packets: outside every replica.
pub(crate) const OUTSIDE: Home = 0;

pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Signal {
    id: usize,
    queued: AtomicBool,
    wakes: Arc<Mutex<Vec<usize>>>,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Relaxed) {
            lock(&self.wakes).push(self.id);
        }
    }
}

struct Task {
    home: Home,
    signal: Arc<Signal>,
    waker: Waker,
    /// Absent while it is polled.
    future: Option<BoxFuture<'static, ()>>,
}

#[derive(Default)]
struct HomeState {
    paused: bool,
    dead: bool,
    /// Tasks that could run if the home were not paused.
    parked: Vec<usize>,
}

struct Timer {
    at: i64,
    serial: u64,
    waker: Arc<Mutex<Option<Waker>>>,
}
impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.serial == other.serial
    }
}
impl Eq for Timer {}
impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // The heap gives its greatest first: the earliest timer.
        (other.at, other.serial).cmp(&(self.at, self.serial))
    }
}

struct Inner {
    rng: Rng,
    tasks: Vec<Option<Task>>,
    ready: Vec<usize>,
    timers: BinaryHeap<Timer>,
    serial: u64,
    homes: Vec<HomeState>,
    doomed: Vec<usize>,
    killed: Vec<Home>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// What was waited for came to be.
    Done,
    /// Something was found, or asked to stop.
    Stopped,
    /// Nothing can ever run again.
    Idle,
    /// The limit of virtual time or steps was reached.
    Late,
}

pub(crate) struct World {
    now: AtomicI64,
    current: AtomicUsize,
    steps: AtomicUsize,
    stopped: AtomicBool,
    wakes: Arc<Mutex<Vec<usize>>>,
    inner: Mutex<Inner>,
    pub trace: Trace,
}

impl World {
    pub fn new(seed: u64, trace: Trace) -> Arc<World> {
        Arc::new(World {
            now: AtomicI64::new(0),
            current: AtomicUsize::new(usize::MAX),
            steps: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            wakes: Arc::default(),
            inner: Mutex::new(Inner {
                rng: Rng::new(seed, 1),
                tasks: Vec::with_capacity(256),
                ready: Vec::new(),
                timers: BinaryHeap::new(),
                serial: 0,
                homes: vec![HomeState::default()],
                doomed: Vec::new(),
                killed: Vec::new(),
            }),
            trace,
        })
    }

    /// Virtual milliseconds since the start.
    pub fn now(&self) -> i64 {
        self.now.load(Relaxed)
    }
    /// The task that is polled now.
    pub fn current(&self) -> usize {
        self.current.load(Relaxed)
    }
    pub fn steps(&self) -> usize {
        self.steps.load(Relaxed)
    }
    /// Ends the run after this poll.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    pub fn new_home(&self) -> Home {
        let mut i = lock(&self.inner);
        i.homes.push(HomeState::default());
        i.homes.len() - 1
    }

    pub fn spawn(&self, home: Home, future: BoxFuture<'static, ()>) -> usize {
        let mut i = lock(&self.inner);
        let id = i.tasks.len();
        if i.homes[home].dead {
            i.tasks.push(None);
            return id;
        }
        let signal = Arc::new(Signal { id, queued: AtomicBool::new(true), wakes: self.wakes.clone() });
        let waker = Waker::from(signal.clone());
        i.tasks.push(Some(Task { home, signal, waker, future: Some(future) }));
        lock(&self.wakes).push(id);
        id
    }

    /// Drops a task after this poll.
    pub fn abort(&self, id: usize) {
        lock(&self.inner).doomed.push(id);
    }

    /// Drops all tasks of a home after this poll; nothing of it runs again.
    pub fn kill(&self, home: Home) {
        let mut i = lock(&self.inner);
        if !i.homes[home].dead {
            i.homes[home].dead = true;
            i.killed.push(home);
        }
    }

    pub fn is_dead(&self, home: Home) -> bool {
        lock(&self.inner).homes[home].dead
    }

    pub fn pause(&self, home: Home) {
        lock(&self.inner).homes[home].paused = true;
    }

    pub fn wake(&self, home: Home) {
        let mut i = lock(&self.inner);
        i.homes[home].paused = false;
        let parked = std::mem::take(&mut i.homes[home].parked);
        i.ready.extend(parked);
    }

    pub fn sleep(self: &Arc<Self>, ms: i64) -> Sleep {
        Sleep { world: self.clone(), until: self.now().saturating_add(ms.max(0)), waker: None }
    }

    /// Drops what was doomed or killed. Futures are dropped without any lock held: they wake others.
    fn reap(&self) {
        let mut gone = Vec::new();
        {
            let mut i = lock(&self.inner);
            if i.doomed.is_empty() && i.killed.is_empty() {
                return;
            }
            for id in std::mem::take(&mut i.doomed) {
                gone.push(i.tasks[id].take());
            }
            for home in std::mem::take(&mut i.killed) {
                for t in &mut i.tasks {
                    if t.as_ref().is_some_and(|t| t.home == home) {
                        gone.push(t.take());
                    }
                }
            }
        }
        drop(gone);
    }

    /// Drops every task, so that what they hold of the world goes, too.
    pub fn clear(&self) {
        let gone = std::mem::take(&mut lock(&self.inner).tasks);
        drop(gone);
        let timers = std::mem::take(&mut lock(&self.inner).timers);
        drop(timers);
    }

    /// Polls tasks until `done` (asked whenever the clock moves), or nothing is left, or a limit is reached.
    pub fn run(&self, until: i64, most_steps: usize, mut done: impl FnMut() -> bool) -> End {
        loop {
            self.reap();
            if self.stopped.load(Relaxed) {
                return End::Stopped;
            }
            if self.steps() >= most_steps {
                return End::Late;
            }
            let picked = {
                let mut guard = lock(&self.inner);
                let i = &mut *guard;
                let mut woken = std::mem::take(&mut *lock(&self.wakes));
                // In whatever order one poll woke them (Tokio's channels draw it), what follows is the same.
                woken.sort_unstable();
                for id in woken {
                    let Some(t) = &i.tasks[id] else { continue };
                    if i.homes[t.home].paused {
                        let home = t.home;
                        i.homes[home].parked.push(id);
                    } else {
                        i.ready.push(id);
                    }
                }
                Self::pick(i)
            };
            let Some((id, mut future, waker)) = picked else {
                if !self.advance(until) {
                    return if lock(&self.inner).timers.is_empty() { End::Idle } else { End::Late };
                }
                if done() {
                    return End::Done;
                }
                continue;
            };
            self.steps.fetch_add(1, Relaxed);
            self.current.store(id, Relaxed);
            self.trace.mark(1, id as u64);
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            self.current.store(usize::MAX, Relaxed);
            match polled {
                Poll::Ready(()) => {
                    let task = lock(&self.inner).tasks[id].take();
                    drop((task, future));
                }
                Poll::Pending => {
                    let mut i = lock(&self.inner);
                    if let Some(t) = &mut i.tasks[id] {
                        t.future = Some(future);
                    }
                }
            }
        }
    }

    #[allow(clippy::type_complexity)]
    fn pick(i: &mut Inner) -> Option<(usize, BoxFuture<'static, ()>, Waker)> {
        while !i.ready.is_empty() {
            let n = i.rng.index(i.ready.len());
            let id = i.ready.swap_remove(n);
            let Some(t) = &mut i.tasks[id] else { continue };
            if i.homes[t.home].paused {
                i.homes[t.home].parked.push(id);
                continue;
            }
            t.signal.queued.store(false, Relaxed);
            if let Some(future) = t.future.take() {
                return Some((id, future, t.waker.clone()));
            }
        }
        None
    }

    /// Moves the clock to the next timer that somebody waits for.
    fn advance(&self, until: i64) -> bool {
        loop {
            let timer = {
                let mut i = lock(&self.inner);
                match i.timers.peek() {
                    Some(t) if t.at <= until => i.timers.pop(),
                    _ => None,
                }
            };
            let Some(timer) = timer else { return false };
            let waker = lock(&timer.waker).take();
            if let Some(w) = waker {
                if timer.at > self.now() {
                    self.now.store(timer.at, Relaxed);
                    self.trace.mark(2, timer.at as u64);
                }
                w.wake();
                return true;
            }
        }
    }

    fn register(&self, at: i64, waker: &Waker) -> Arc<Mutex<Option<Waker>>> {
        let slot = Arc::new(Mutex::new(Some(waker.clone())));
        let mut i = lock(&self.inner);
        i.serial += 1;
        let serial = i.serial;
        i.timers.push(Timer { at, serial, waker: slot.clone() });
        slot
    }
}

/// Resolves at a moment of virtual time.
pub(crate) struct Sleep {
    world: Arc<World>,
    until: i64,
    waker: Option<Arc<Mutex<Option<Waker>>>>,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.world.now() >= self.until {
            return Poll::Ready(());
        }
        match &self.waker {
            Some(slot) => *lock(slot) = Some(cx.waker().clone()),
            None => self.waker = Some(self.world.register(self.until, cx.waker())),
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(slot) = &self.waker {
            lock(slot).take();
        }
    }
}

/// One boot's environment.
pub(crate) struct SimEnv {
    pub world: Arc<World>,
    pub home: Home,
    rng: Mutex<Rng>,
    /// Where this machine's clock began.
    started: i64,
}

impl SimEnv {
    pub fn new(world: Arc<World>, home: Home, mut rng: Rng) -> Arc<SimEnv> {
        let started = rng.range(0, 1 << 40);
        Arc::new(SimEnv { world, home, rng: Mutex::new(rng), started })
    }
}

impl Env for SimEnv {
    fn random(&self, buf: &mut [u8]) {
        let mut rng = lock(&self.rng);
        for part in buf.chunks_mut(8) {
            part.copy_from_slice(&rng.next().to_le_bytes()[..part.len()]);
        }
    }
    fn sleep(&self, d: Millis) -> BoxFuture<'static, ()> {
        Box::pin(self.world.sleep(d.0))
    }
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Abort {
        let id = self.world.spawn(self.home, task);
        let world = self.world.clone();
        Abort::new(move || world.abort(id))
    }
    fn monotonic(&self) -> i64 {
        self.started + self.world.now()
    }
}
