//! Thousands of operations are open when the gateway is killed: each has left its intent and no receipt, and the
//! provider had half of the requests. The gateway is started again, and while it takes them up, callers retry and new
//! ones come.

use super::books::{Breach, Heard, Order, Sheet, Tally};
use super::pit::Pit;
use super::scene::{self, CALLER, Scene};
use crate::http::Connection;
use crate::process::free_address;
use crate::random::Random;
use crate::stand::Class;
use crate::torture::Against;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The most operations that one life of the gateway can have in flight, with some to spare (its limit is 4096 running
/// operations, and as many connections).
const A_LIFE: usize = 3400;
/// Lives in which they are opened: recovery makes twelve attempts, and each life takes one of some.
const MOST_LIVES: usize = 6;
/// How long opening those of one life may take.
const OPENED: Duration = Duration::from_secs(60);
/// All must be over by then, counted from the start of the process.
const OVER: Duration = Duration::from_secs(60);
/// Within that it says that it is ready, counted from its first answer: it waits a second for what was left behind.
const READY: Duration = Duration::from_secs(10);
/// A new call is answered within that, however much is being taken up.
const ANSWERED: Duration = Duration::from_secs(5);

/// What it came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Operations that were open at the last kill.
    pub open: u64,
    /// Lives of the gateway in which they were opened, each ended by a kill.
    pub lives: u64,
    /// Requests that had their effect before the restart.
    pub applied_before: u64,
    /// From the start of the process to its first answer, in milliseconds.
    pub serving_ms: u64,
    /// Until `/readyz` says that it is ready.
    pub ready_ms: u64,
    /// Until nothing was open any more.
    pub over_ms: u64,
    /// Retries that came while it was recovering.
    pub retried: u64,
    /// New orders meanwhile.
    pub new_orders: u64,
    /// Half of them were answered within that, in milliseconds.
    pub new_p50_ms: f64,
    /// All of them were.
    pub new_max_ms: f64,
    /// In doubt at the end, as their class promises no more.
    pub in_doubt: u64,
    /// What was broken.
    #[serde(flatten)]
    pub tally: Tally,
}

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// From which seed.
    pub seed: u64,
    /// How many are open.
    pub open: usize,
    /// The gateway, or the gateway with a lying manifest.
    pub against: Against,
    /// Says how far it is.
    pub verbose: bool,
}

/// The soft limit of open files of this process.
fn files() -> usize {
    let text = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("Max open files")).unwrap_or_default();
    line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(1024)
}

/// Of twenty orders most are of classes that come to one effect whatever happens.
fn class(against: Against, n: usize) -> Class {
    match (against, n % 20) {
        (Against::Liar, _) => Class::Liar,
        (_, 0..=6) => Class::Key,
        (_, 7..=10) => Class::Unique,
        (_, 11..=14) => Class::Lookup,
        (_, 15..=17) => Class::Natural,
        (_, 18) => Class::None,
        _ => Class::Confirm,
    }
}

/// Plays it.
///
/// # Errors
/// The stand does not work, or the machine permits too few open files.
pub fn play(settings: Settings) -> Result<(Figures, Sheet, String)> {
    let at = free_address()?;
    let mut scene = Scene::new(at, "8s", "20s")?;
    let (mut figures, mut sheet) = (Figures::default(), Sheet::default());
    let done = open(&mut scene, settings, at, &mut figures)
        .and_then(|orders| recover(&mut scene, settings, at, orders, &mut figures, &mut sheet));
    done.with_context(|| scene.said())?;
    let said = if sheet.violations.is_empty() { String::new() } else { scene.said() };
    figures.tally = sheet.tally();
    Ok((figures, sheet, said))
}

/// Opens them all, in as many lives as that takes, and kills the last.
fn open(scene: &mut Scene, settings: Settings, at: SocketAddr, figures: &mut Figures) -> Result<Vec<Order>> {
    let mut orders: Vec<Order> = (0..settings.open)
        .map(|n| Order::new(class(settings.against, n), format!("{:x}_o{n}", settings.seed)))
        .collect();
    Random::new(settings.seed, 0x09e4).shuffle(&mut orders);
    // A connection of each caller, and one of the gateway's to the provider's place, are this process's.
    let most = A_LIFE.min(files().saturating_sub(300) / 2).max(1);
    let lives = settings.open.div_ceil(most).max(2);
    if lives > MOST_LIVES {
        bail!("this machine permits too few open files ({}) for {} operations", files(), settings.open);
    }
    let hidden = free_address()?;
    scene.provide(hidden)?;
    let pit = Pit::open(at, hidden)?;
    let mut all = 0u64;
    for part in orders.chunks(settings.open.div_ceil(lives).max(1)) {
        scene.serve()?;
        figures.lives += 1;
        let before = pit.taken();
        all += part.len() as u64;
        let mut callers = Vec::new();
        for order in part {
            let mut caller = Connection::open(scene.addr(), CALLER)?;
            caller.send(&scene::call_of(order).bytes(scene.addr()))?;
            callers.push(caller);
        }
        let until = Instant::now() + OPENED;
        // Open, and most of them sent: the rest has left its intent and not one byte. What is said to overwrite one
        // thing is sent one after the other.
        let sent = if settings.against == Against::Liar { 1 } else { part.len() as u64 * 9 / 10 };
        while scene::kept(scene.addr())?.all < all || pit.taken() < before + sent {
            if Instant::now() > until {
                bail!(
                    "{:?} of {all} operations were opened, {} requests left",
                    scene::kept(scene.addr())?,
                    pit.taken()
                );
            }
            thread::sleep(Duration::from_millis(20));
        }
        scene.kill();
        if settings.verbose {
            eprintln!("{all} operations are open after life {}", figures.lives);
        }
    }
    figures.open = all;
    let passed_on = pit.passed_on();
    drop(pit);
    figures.applied_before = scene.sandbox()?.effects("")?["total"].as_u64().context("total")?;
    if figures.applied_before == 0 || passed_on == 0 {
        bail!("no request reached the provider, so nothing would be shown about those that did");
    }
    Ok(orders)
}

/// Starts it again, with a provider that answers, and looks at how it goes on.
fn recover(
    scene: &mut Scene,
    settings: Settings,
    at: SocketAddr,
    mut orders: Vec<Order>,
    figures: &mut Figures,
    sheet: &mut Sheet,
) -> Result<()> {
    scene.provide(at)?;
    let addr = scene.addr();
    // They are in a random order: those that are retried are any of them.
    let (retried, rest) = orders.split_at_mut((settings.open / 5).min(1000));
    figures.retried = retried.len() as u64;
    let (up, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let began = Instant::now();
    let (mut fresh, doors, ended) = thread::scope(|scope| -> Result<_> {
        let doors = scope.spawn(|| watch_doors(addr, began, &up));
        let comers: Vec<_> = (0..2)
            .map(|n| {
                let (up, over) = (&up, &over);
                scope.spawn(move || come(addr, settings, n, up, over))
            })
            .collect();
        let retrying = scope.spawn(|| {
            wait_for(&up, &over);
            scene::each(retried, |order| scene::settle(addr, order, began + OVER));
        });
        let ended = scene.serve().and_then(|()| watch(scene, began));
        over.store(true, Ordering::Relaxed);
        let gone = |_| anyhow::anyhow!("a caller's thread ended");
        retrying.join().map_err(gone)?;
        let mut fresh = Vec::new();
        for comer in comers {
            fresh.extend(comer.join().map_err(gone)?);
        }
        Ok((fresh, doors.join().map_err(gone)?, ended?))
    })?;
    let ms = |t: Option<Duration>| t.map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX));
    (figures.serving_ms, figures.ready_ms, figures.over_ms) = (ms(doors.up), ms(doors.ready), ms(ended));
    sheet
        .check(ended.is_some(), Breach::LeftOpen, || format!("operations are open {OVER:?} after the start"));
    sheet.check(doors.said.contains("taking up"), Breach::Service, || {
        format!("with {} operations to take up, /readyz said at first: {}", settings.open, doors.said)
    });
    let waited = doors.ready.unwrap_or(OVER).saturating_sub(doors.up.unwrap_or_default());
    sheet.check(waited < READY, Breach::Service, || {
        format!("it was ready {waited:?} after it began to serve")
    });
    latencies(&fresh, figures, sheet);
    // Everybody else comes back as well; then each asks once more.
    scene::each(rest, |order| scene::settle(addr, order, Instant::now() + CALLER));
    orders.extend(fresh.drain(..).map(|(order, _)| order));
    scene.kill();
    scene.serve()?;
    scene::each(&mut orders, |order| scene::ask(addr, order));
    figures.in_doubt =
        orders.iter().filter(|o| o.heard.iter().any(|h| matches!(h, Heard::Doubt(_)))).count() as u64;
    scene.audit(&orders, sheet)?;
    if let Some(why) = scene.has_ended() {
        sheet.check(false, Breach::Service, || why);
    }
    Ok(())
}

fn latencies(fresh: &[(Order, Duration)], figures: &mut Figures, sheet: &mut Sheet) {
    let mut took: Vec<Duration> = fresh.iter().map(|(_, t)| *t).collect();
    took.sort_unstable();
    let ms = |t: Option<&Duration>| t.map_or(0.0, |t| (t.as_secs_f64() * 1e4).round() / 10.0);
    figures.new_orders = took.len() as u64;
    figures.new_p50_ms = ms(took.get(took.len() / 2));
    figures.new_max_ms = ms(took.last());
    sheet.check(!took.is_empty(), Breach::Service, || "no new call was made while it recovered".into());
    sheet.check(took.last().is_some_and(|t| *t < ANSWERED), Breach::Service, || {
        format!("a new call took {:?} while it recovered", took.last())
    });
    for (order, _) in fresh {
        let at_once = matches!(order.heard[..], [Heard::Result { .. }]);
        sheet.check(at_once, Breach::Service, || {
            format!("a new order while it recovered, {}, heard {:?}", order.name, order.heard)
        });
    }
}

/// What `/readyz` said.
#[derive(Default)]
struct Doors {
    /// When it answered at all.
    up: Option<Duration>,
    /// What it said then.
    said: String,
    /// When it said that it is ready.
    ready: Option<Duration>,
}

/// Asks until it is ready, from before anybody listens.
fn watch_doors(addr: SocketAddr, began: Instant, up: &AtomicBool) -> Doors {
    let mut doors = Doors::default();
    while began.elapsed() < OVER && doors.ready.is_none() {
        if let Ok((status, text)) = scene::ready(addr) {
            if doors.up.is_none() {
                doors.up = Some(began.elapsed());
                doors.said = format!("{status} {text}");
                up.store(true, Ordering::Relaxed);
            }
            if status == 200 {
                doors.ready = Some(began.elapsed());
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
    doors
}

fn wait_for(up: &AtomicBool, over: &AtomicBool) {
    while !up.load(Ordering::Relaxed) && !over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until nothing is open, or the time is over: then there is no answer.
fn watch(scene: &Scene, began: Instant) -> Result<Option<Duration>> {
    while began.elapsed() < OVER {
        // New orders come for as long as anything is open, so some of them may be open at any look.
        if scene::kept(scene.addr())?.open <= 2 {
            return Ok(Some(began.elapsed()));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(None)
}

/// New orders, one after the other, while it recovers.
fn come(
    addr: SocketAddr,
    settings: Settings,
    n: usize,
    up: &AtomicBool,
    over: &AtomicBool,
) -> Vec<(Order, Duration)> {
    let mut made = Vec::new();
    wait_for(up, over);
    while !over.load(Ordering::Relaxed) {
        let number = made.len() * 2 + n;
        let mut order =
            Order::new(class(settings.against, number % 18), format!("{:x}_n{number}", settings.seed));
        let began = Instant::now();
        scene::ask(addr, &mut order);
        made.push((order, began.elapsed()));
        thread::sleep(Duration::from_millis(5));
    }
    made
}
