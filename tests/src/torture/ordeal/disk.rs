//! The disk fills to its last byte under running calls, is emptied, and fills again; sometimes the gateway is killed
//! meanwhile, and sometimes somebody else takes what the ledger had set aside, too.
//!
//! The ledger's directory is a small file system in memory of its own (tmpfs), in a mount namespace of its own, so that
//! nothing of it is left on the machine whatever ends this program. The provider keeps its books on another disk.

use super::books::{Breach, Heard, Order, Sheet, Tally};
use super::scene::{self, CALLER, Flight, Scene};
use crate::process::free_address;
use crate::random::Random;
use crate::stand::Class;
use crate::torture::Against;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The file system's size. The ledger keeps 64 MiB free, sets 64 MiB aside, and does so once there is twice as much.
const SIZE: &str = "320m";
/// What the ledger sets aside, in bytes (docs/operating.md).
const BALLAST: u64 = 64 << 20;
/// Calls of each class that the provider is working on when the disk fills.
const IN_FLIGHT: usize = 10;
/// The ledger looks at the disk once a second; from then on nothing new is begun.
const NOTICED: Duration = Duration::from_millis(1300);
/// How long a full disk stays full.
const FULL_FOR: Duration = Duration::from_millis(2500);
/// Within that, new operations are taken again once there is room.
const RESUMED: Duration = Duration::from_secs(4);
/// Within that, what was under way on a full disk has come to its end, a restart included.
const LANDS: Duration = Duration::from_secs(10);

/// What happens in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mode {
    /// What the ledger gives up is taken by somebody else at once.
    starved: bool,
    /// The gateway is killed while the disk is full, and started again.
    killed: bool,
}

const MODES: [Mode; 4] = [
    Mode { starved: false, killed: false },
    Mode { starved: false, killed: true },
    Mode { starved: true, killed: false },
    Mode { starved: true, killed: true },
];

/// What it came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// How often the disk was full.
    pub turns: u64,
    /// In how many of them the gateway was killed meanwhile.
    pub killed: u64,
    /// In how many of them even what the ledger had set aside was taken.
    pub starved: u64,
    /// Orders, each with a call or more.
    pub orders: u64,
    /// Those that the provider was working on when the disk was filled.
    pub in_flight: u64,
    /// Those of them whose result was stored and heard while it was still full.
    pub landed_while_full: u64,
    /// Orders that were begun on a full disk and refused.
    pub refused: u64,
    /// Those of them that were given up: nothing of them may be anywhere.
    pub dropped: u64,
    /// In how many turns the ledger gave up what it had set aside.
    pub ballast_used: u64,
    /// Results that landed in turns in which it had to, and nobody took it.
    pub landed_on_ballast: u64,
    /// Starts that a full disk without a byte set aside made impossible.
    pub starts_refused: u64,
    /// The longest time from room on the disk to a new operation, in milliseconds.
    pub resumed_ms_max: u64,
    /// Came to be in doubt, as their class promises no more.
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
    /// How often the disk fills.
    pub turns: usize,
    /// The gateway, or the gateway with a lying manifest.
    pub against: Against,
    /// Says which turn is done.
    pub verbose: bool,
}

/// What a program must be started with to have a mount namespace in which it may mount.
///
/// # Errors
/// The machine permits none; says what it said.
pub fn permitted() -> Result<Vec<&'static str>> {
    let folder = tempfile::TempDir::with_prefix("counterfoil-mount-")?;
    let mut why = Vec::new();
    // As root; else as root of a user namespace of its own.
    for prefix in [&["unshare", "--mount"][..], &["unshare", "--user", "--map-root-user", "--mount"][..]] {
        let mount = "mount -t tmpfs -o size=1m counterfoil \"$0\" && : > \"$0/try\" && umount \"$0\"";
        let mut command = Command::new(prefix[0]);
        command.args(&prefix[1..]).args(["sh", "-c", mount]).arg(folder.path());
        match crate::process::run(&mut command, Duration::from_secs(10)) {
            Ok(out) if out.status.success() => return Ok(prefix.to_vec()),
            Ok(out) => why.push(String::from_utf8_lossy(&out.stderr).trim().replace('\n', "; ")),
            Err(e) => why.push(e.root_cause().to_string()),
        }
    }
    bail!("{}", why.join("; "))
}

/// A file system that is there until this is dropped.
struct Mount(PathBuf);

impl Mount {
    fn new(at: &Path) -> Result<Mount> {
        std::fs::create_dir_all(at)?;
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={SIZE},mode=700"), "counterfoil"]).arg(at);
        let out = crate::process::run(&mut command, Duration::from_secs(10))?;
        if !out.status.success() {
            bail!("{command:?}: {}", String::from_utf8_lossy(&out.stderr));
        }
        Ok(Mount(at.to_owned()))
    }

    /// Takes all the room that there is.
    fn fill(&self) -> Result<Filler> {
        let path = self.0.join("filler");
        let mut filler = Filler { file: File::create(&path)?, path };
        filler.take()?;
        Ok(filler)
    }

    fn ballast(&self) -> Option<u64> {
        std::fs::metadata(self.0.join("ledger.ballast")).ok().map(|m| m.len())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// What fills a disk.
struct Filler {
    file: File,
    path: PathBuf,
}

impl Filler {
    /// To the last byte: large pieces first, then pages, then bytes.
    fn take(&mut self) -> Result<()> {
        for piece in [1 << 20, 4096, 1] {
            let zeros = vec![0u8; piece];
            loop {
                match self.file.write(&zeros) {
                    Ok(_) => {}
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) if e.kind() == ErrorKind::StorageFull => break,
                    Err(e) => return Err(e.into()),
                }
            }
        }
        Ok(())
    }

    /// Gives it all back.
    fn empty(self) -> Result<()> {
        Ok(std::fs::remove_file(&self.path)?)
    }
}

/// An order that was begun on a full disk.
struct Late {
    order: Order,
    began: Instant,
}

struct Game {
    // Dropped in this order: the processes, then what they write on.
    scene: Scene,
    mount: Mount,
    settings: Settings,
    random: Random,
    orders: Vec<Order>,
    made: usize,
    figures: Figures,
    sheet: Sheet,
}

/// Plays it, in a process that may mount (see [`permitted`]).
///
/// # Errors
/// The stand does not work.
pub fn play(settings: Settings) -> Result<(Figures, Sheet, String)> {
    let at = free_address()?;
    let mut scene = Scene::new(at, "2500ms", "4s")?;
    scene.provide(at)?;
    let mount = Mount::new(&scene.project.data())?;
    scene.serve()?;
    let mut game = Game {
        scene,
        mount,
        settings,
        random: Random::new(settings.seed, 0xd15c),
        orders: Vec::new(),
        made: 0,
        figures: Figures::default(),
        sheet: Sheet::default(),
    };
    game.all().with_context(|| game.scene.said())?;
    let said = if game.sheet.violations.is_empty() { String::new() } else { game.scene.said() };
    let mut figures = game.figures;
    figures.tally = game.sheet.tally();
    Ok((figures, game.sheet, said))
}

impl Game {
    fn classes(&self) -> &'static [Class] {
        self.settings.against.classes()
    }

    fn fresh(&mut self, class: Class) -> Order {
        self.made += 1;
        Order::new(class, format!("{:x}_d{}", self.settings.seed, self.made))
    }

    fn all(&mut self) -> Result<()> {
        // Each once in an order that the seed draws; then any.
        let mut modes = match self.settings.against {
            // A kill is what a lie comes to light by.
            Against::Liar => vec![MODES[1]],
            _ => MODES.to_vec(),
        };
        self.random.shuffle(&mut modes);
        for turn in 0..self.settings.turns {
            let mode = match modes.pop() {
                Some(mode) => mode,
                None => *self.random.one(&MODES),
            };
            let began = Instant::now();
            self.turn(mode).with_context(|| format!("turn {turn} ({mode:?})"))?;
            if self.settings.verbose {
                eprintln!(
                    "disk full {turn}: starved {}, killed {}, {:.1} s, {} broken so far",
                    mode.starved,
                    mode.killed,
                    began.elapsed().as_secs_f64(),
                    self.sheet.violations.len()
                );
            }
        }
        self.end()
    }

    fn turn(&mut self, mode: Mode) -> Result<()> {
        self.figures.turns += 1;
        self.figures.killed += u64::from(mode.killed);
        self.figures.starved += u64::from(mode.starved);
        if !mode.starved {
            // An orderly end leaves no log, so what lands needs new room, and not only that of an older log.
            self.scene.restart()?;
        }
        let delay = 700 + self.random.below(500);
        let flights = self.depart(delay)?;
        let in_flight = flights.len();
        self.figures.in_flight += in_flight as u64;
        let old = self.orders.iter().rfind(|o| o.result().is_some()).cloned();
        let addr = self.scene.addr();

        let filler = Mutex::new(self.mount.fill()?);
        let full_at = Instant::now();
        let (stop, taking) = (AtomicBool::new(false), AtomicBool::new(mode.starved));
        let pool: Vec<Vec<Order>> = (0..2)
            .map(|_| (0..60).map(|n| self.fresh(self.classes()[n % self.classes().len()])).collect())
            .collect();
        let (late, mut flown, flying) = thread::scope(|scope| -> Result<_> {
            let glutton = scope.spawn(|| -> Result<()> {
                while taking.load(Ordering::Relaxed) {
                    filler.lock().map_err(|_| anyhow::anyhow!("a thread ended"))?.take()?;
                    thread::sleep(Duration::from_millis(5));
                }
                Ok(())
            });
            let comers: Vec<_> =
                pool.into_iter().map(|orders| scope.spawn(|| come(addr, orders, &stop))).collect();
            let played = self.while_full(mode, full_at, Duration::from_millis(delay), flights, old.as_ref());
            stop.store(true, Ordering::Relaxed);
            let mut late = Vec::new();
            for comer in comers {
                late.extend(comer.join().map_err(|_| anyhow::anyhow!("a caller's thread ended"))?);
            }
            taking.store(false, Ordering::Relaxed);
            glutton.join().map_err(|_| anyhow::anyhow!("the thread that fills the disk ended"))??;
            let (flown, flying) = played?;
            Ok((late, flown, flying))
        })?;
        if self.mount.ballast() != Some(BALLAST) {
            self.figures.ballast_used += 1;
            if !mode.starved {
                self.figures.landed_on_ballast +=
                    flown.iter().filter(|o| o.result().is_some()).count() as u64;
            }
        }
        filler.into_inner().map_err(|_| anyhow::anyhow!("a thread ended"))?.empty()?;
        self.judge_late(mode, full_at, &late);
        self.resume()?;
        flown.extend(scene::landed(flying)?);
        self.settle(late, flown)
    }

    /// Calls that the provider holds.
    fn depart(&mut self, delay: u64) -> Result<Vec<Flight>> {
        self.scene.sandbox()?.disarm()?;
        let mut orders = Vec::new();
        for class in self.classes() {
            let rule = json!({ "on": class.on(), "do": "delay", "delay_ms": delay, "times": IN_FLIGHT });
            self.scene.sandbox()?.rule(&rule)?;
            orders.extend((0..IN_FLIGHT).map(|_| self.fresh(*class)));
        }
        let before = scene::received(self.scene.sandbox()?)?;
        let count = orders.len() as u64;
        let flights = scene::fly(self.scene.addr(), orders);
        let until = Instant::now() + Duration::from_millis(delay);
        while scene::received(self.scene.sandbox()?)? < before + count {
            if Instant::now() > until {
                // What has not left by now is in flight all the same, and may be refused.
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(flights)
    }

    /// What is done and looked at while the disk is full. Returns the orders that were in flight, and those that are.
    fn while_full(
        &mut self,
        mode: Mode,
        full_at: Instant,
        delay: Duration,
        flights: Vec<Flight>,
        old: Option<&Order>,
    ) -> Result<(Vec<Order>, Vec<Flight>)> {
        if mode.killed {
            let after = self.random.below(u64::try_from(delay.as_millis()).unwrap_or(1));
            thread::sleep(Duration::from_millis(after));
            self.scene.kill();
            self.start_while_full(mode);
        }
        // Whose result can't be kept waits for room.
        let (land, flying) = if mode.starved { (Vec::new(), flights) } else { (flights, Vec::new()) };
        let mut flown = scene::landed(land)?;
        if !mode.starved {
            let until = full_at + LANDS;
            let addr = self.scene.addr();
            scene::each(&mut flown, |order| scene::settle(addr, order, until));
            for order in &flown {
                let landed = order.result().is_some();
                self.figures.landed_while_full += u64::from(landed);
                let may_doubt = mode.killed && !order.class.is_exact();
                // One that was still on its way to the ledger when the disk filled may have been refused.
                let excused = order.is_refused() || (may_doubt && order.is_settled());
                self.sheet.check(landed || excused, Breach::Lost, || {
                    format!("{} did not land on the full disk: {:?}", order.name, order.heard.last())
                });
            }
        }
        thread::sleep((full_at + FULL_FOR).saturating_duration_since(Instant::now()));
        if let Some(why) = self.scene.has_ended() {
            self.sheet.check(false, Breach::Service, || format!("on a full disk {why}"));
            self.scene.kill();
        }
        if self.scene.pid().is_some() {
            let (status, text) = scene::ready(self.scene.addr())?;
            self.sheet.check(status == 503 && text.contains("disk is nearly full"), Breach::Service, || {
                format!("on a full disk /readyz says {status} {text}")
            });
            if let Some(old) = old {
                let mut again = Order::new(old.class, old.name.clone());
                scene::ask(self.scene.addr(), &mut again);
                self.sheet.check(again.heard.first() == old.result(), Breach::Changed, || {
                    format!("{} had {:?}, and on a full disk {:?}", old.name, old.result(), again.heard)
                });
            }
        }
        Ok((flown, flying))
    }

    /// A start is work in flight too: it has what was set aside. Without that it may be refused, in so many words.
    fn start_while_full(&mut self, mode: Mode) {
        let Err(e) = self.scene.serve() else {
            self.sheet.passed += 1;
            return;
        };
        let last = self.scene.project.gateway_said();
        let said = format!("{e:#}: {}", last.lines().last().unwrap_or_default());
        let refused = mode.starved && said.contains("the disk is full");
        self.figures.starts_refused += u64::from(refused);
        self.sheet.check(refused, Breach::Service, || {
            format!("it was not started on a full disk ({mode:?}): {said}")
        });
    }

    fn judge_late(&mut self, mode: Mode, full_at: Instant, late: &[Late]) {
        let mut asked = 0;
        for Late { order, began } in late {
            let Some(heard) = order.heard.first().filter(|_| *began >= full_at + NOTICED) else { continue };
            // Nobody was there.
            if mode.killed && matches!(heard, Heard::Open(why) if why.starts_with("lost")) {
                continue;
            }
            asked += 1;
            self.figures.refused += u64::from(*heard == Heard::NothingRan);
            self.sheet.check(*heard == Heard::NothingRan, Breach::Refusal, || {
                format!("{} was begun {:?} after the disk was full: {heard:?}", order.name, *began - full_at)
            });
        }
        if self.scene.pid().is_some() {
            self.sheet.check(asked > 0, Breach::Service, || {
                format!("no call was answered on the full disk ({mode:?})")
            });
        }
    }

    /// There is room: new operations are taken, without a restart, and room is set aside again.
    fn resume(&mut self) -> Result<()> {
        let began = Instant::now();
        if self.scene.pid().is_none() {
            self.scene.serve().context("there is room again")?;
        }
        let mut order = self.fresh(self.classes()[0]);
        while order.result().is_none() && began.elapsed() < CALLER {
            scene::ask(self.scene.addr(), &mut order);
            thread::sleep(Duration::from_millis(20));
        }
        let took = began.elapsed();
        self.figures.resumed_ms_max =
            self.figures.resumed_ms_max.max(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        self.sheet.check(took < RESUMED, Breach::Service, || {
            format!("a new operation was taken {took:?} after there was room again")
        });
        self.orders.push(order);
        while self.mount.ballast() != Some(BALLAST) && began.elapsed() < RESUMED * 2 {
            thread::sleep(Duration::from_millis(20));
        }
        self.sheet.check(self.mount.ballast() == Some(BALLAST), Breach::Service, || {
            "nothing was set aside again for the next full disk".into()
        });
        Ok(())
    }

    /// Every caller goes on, or gives up what it may give up.
    fn settle(&mut self, late: Vec<Late>, flown: Vec<Order>) -> Result<()> {
        self.scene.sandbox()?.disarm()?;
        let mut orders = flown;
        for Late { mut order, .. } in late {
            order.dropped = order.is_refused() && self.random.chance(60);
            self.figures.dropped += u64::from(order.dropped);
            orders.push(order);
        }
        let (addr, until) = (self.scene.addr(), Instant::now() + LANDS);
        scene::each(&mut orders, |order| {
            if !order.dropped {
                scene::settle(addr, order, until);
            }
        });
        self.orders.append(&mut orders);
        Ok(())
    }

    /// After one more restart everything is as it was said, and nothing else is there.
    fn end(&mut self) -> Result<()> {
        self.scene.kill();
        self.scene.serve()?;
        let kept = self.scene.quiet(CALLER)?;
        self.sheet.check(kept.open == 0, Breach::LeftOpen, || format!("{} operations are open", kept.open));
        let addr = self.scene.addr();
        let mut orders = std::mem::take(&mut self.orders);
        scene::each(&mut orders, |order| {
            if !order.dropped {
                scene::ask(addr, order);
            }
        });
        self.scene.audit(&orders, &mut self.sheet)?;
        self.figures.orders = orders.len() as u64;
        self.figures.in_doubt =
            orders.iter().filter(|o| o.heard.iter().any(|h| matches!(h, Heard::Doubt(_)))).count() as u64;
        // What never came to pass shows nothing.
        let f = &self.figures;
        for (count, what) in [
            (f.ballast_used, "the ledger never needed what it had set aside"),
            (f.refused, "no order was refused on a full disk"),
            (f.landed_while_full, "nothing landed on a full disk"),
            (f.landed_on_ballast, "nothing landed in the room that was set aside"),
        ] {
            let expected = self.settings.turns >= MODES.len();
            self.sheet.check(count > 0 || !expected, Breach::Service, || {
                format!("{what}: nothing is shown about it")
            });
        }
        Ok(())
    }
}

/// Begins new orders, one after the other, for as long as the disk is full.
fn come(addr: std::net::SocketAddr, orders: Vec<Order>, stop: &AtomicBool) -> Vec<Late> {
    let mut late = Vec::new();
    for mut order in orders {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let began = Instant::now();
        scene::ask(addr, &mut order);
        late.push(Late { order, began });
        thread::sleep(Duration::from_millis(45));
    }
    late
}
