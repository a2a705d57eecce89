//! Where an ordeal is played: a project with every provider class, a provider, a gateway, and the questions that can
//! be asked of them.

use super::books::{Breach, Found, Heard, Order, Sheet};
use crate::http::{self, Connection};
use crate::process::Process;
use crate::stand::{Class, Gateway, Project, Sandbox, payment};
use crate::wire::{self, Call, Era};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

/// How long a caller waits for one answer.
pub const CALLER: Duration = Duration::from_secs(20);
/// How many callers ask at once where many orders are settled.
const AT_ONCE: usize = 8;

/// See the module. What is dropped first goes first: nothing may use the folder when it is removed.
pub struct Scene {
    gateway: Option<Gateway>,
    sandbox: Option<Sandbox>,
    /// The folder.
    pub project: Project,
    address: Option<SocketAddr>,
}

impl Scene {
    /// A folder for a provider at this address, where a send may take `send` and an attempt `attempt`.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(provider: SocketAddr, send: &str, attempt: &str) -> Result<Scene> {
        let project = Project::with_classes(provider)?;
        let change = |file: &str, pairs: &[(&str, String)]| -> Result<()> {
            let file = project.path().join(file);
            let mut text = std::fs::read_to_string(&file)?;
            for (old, new) in pairs {
                if !text.contains(old) {
                    bail!("{} does not say {old}", file.display());
                }
                text = text.replacen(old, new, 1);
            }
            Ok(std::fs::write(&file, text)?)
        };
        for class in Class::ALL.into_iter().chain([Class::Liar]) {
            let file = format!("integrations/{}.toml", class.name());
            change(&file, &[("\nsend = \"500ms\"", format!("\nsend = \"{send}\""))])?;
        }
        change(
            "counterfoil.toml",
            &[
                ("send_timeout = \"500ms\"", format!("send_timeout = \"{send}\"")),
                ("\ntimeout = \"3s\"", format!("\ntimeout = \"{attempt}\"")),
            ],
        )?;
        Ok(Scene { gateway: None, sandbox: None, project, address: None })
    }

    /// Starts the provider, or starts it again elsewhere with all it has. It survives a kill, not a power cut: its
    /// durability is not what is looked at.
    ///
    /// # Errors
    /// It does not start.
    pub fn provide(&mut self, at: SocketAddr) -> Result<()> {
        self.sandbox = None;
        let data = self.project.path().join("sandbox").display().to_string();
        let listen = at.to_string();
        let args = ["sandbox", "--json", "--no-fsync", "--listen", &listen, "--data", &data];
        let mut process =
            Process::start(&mut self.project.command(&args)?, &self.project.path().join("sandbox.log"))?;
        process.ready().context("the sandbox provider")?;
        self.sandbox = Some(Sandbox { process, addr: at });
        Ok(())
    }

    /// The provider.
    ///
    /// # Errors
    /// There is none.
    pub fn sandbox(&self) -> Result<&Sandbox> {
        self.sandbox.as_ref().context("no provider runs")
    }

    /// Starts the gateway, where it was before.
    ///
    /// # Errors
    /// It does not start; says what it said.
    pub fn serve(&mut self) -> Result<()> {
        self.kill();
        let gateway = self.project.gateway(None)?;
        self.address = Some(gateway.addr);
        self.gateway = Some(gateway);
        Ok(())
    }

    /// Ends the gateway in order, and starts it again.
    ///
    /// # Errors
    /// It does not end, or does not start.
    pub fn restart(&mut self) -> Result<()> {
        if let Some(mut gateway) = self.gateway.take() {
            gateway.process.terminate()?;
        }
        self.serve()
    }

    /// SIGKILL to the gateway.
    pub fn kill(&mut self) {
        if let Some(mut gateway) = self.gateway.take() {
            gateway.process.kill();
        }
    }

    /// Whether the gateway has ended by itself.
    pub fn has_ended(&mut self) -> Option<String> {
        let gateway = self.gateway.as_mut()?;
        let status = gateway.process.ended()?;
        Some(format!("the gateway ended by itself ({status}): {}", self.project.gateway_said()))
    }

    /// The gateway's process id.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.gateway.as_ref().map(|g| g.process.pid())
    }

    /// Where calls go, also while nobody is there.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 1)))
    }

    /// What was said on standard error.
    #[must_use]
    pub fn said(&self) -> String {
        format!("gateway:\n{}", self.project.gateway_said())
    }

    /// Waits until all operations are over, which says how many are kept in which state.
    ///
    /// # Errors
    /// The gateway does not answer.
    pub fn quiet(&self, within: Duration) -> Result<Kept> {
        let until = Instant::now() + within;
        loop {
            let kept = kept(self.addr())?;
            if kept.open == 0 || Instant::now() > until {
                return Ok(kept);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Looks at everything at the end: each order's books, and whether the ledger keeps exactly what was admitted.
    ///
    /// # Errors
    /// Gateway or provider do not answer.
    pub fn audit(&self, orders: &[Order], sheet: &mut Sheet) -> Result<()> {
        let effects = self.sandbox()?.effects("")?;
        let provider = self.sandbox()?.addr;
        let share = orders.len().div_ceil(AT_ONCE).max(1);
        let refunded: Vec<u64> = thread::scope(|scope| {
            let readers: Vec<_> = orders
                .chunks(share)
                .map(|part| {
                    scope.spawn(move || -> Result<Vec<u64>> {
                        let mut connection = Connection::open(provider, CALLER)?;
                        part.iter().map(|o| refunded(&mut connection, o)).collect()
                    })
                })
                .collect();
            let parts: Result<Vec<_>> =
                readers.into_iter().map(|r| r.join().unwrap_or_else(|_| bail!("a reader ended"))).collect();
            Ok::<_, anyhow::Error>(parts?.concat())
        })?;
        for (order, refunded) in orders.iter().zip(refunded) {
            let effects = effects["byObject"][&order.name].as_u64().unwrap_or(0);
            sheet.order(order, Found { effects, refunded });
        }
        let kept = self.quiet(Duration::from_secs(15))?;
        sheet.check(kept.open == 0, Breach::LeftOpen, || format!("{} operations are still open", kept.open));
        let admitted = orders.iter().filter(|o| !o.dropped).count() as u64;
        sheet.check(kept.all == admitted, Breach::Refusal, || {
            format!("{admitted} orders were admitted, and the ledger keeps {} operations", kept.all)
        });
        let panics = crate::process::tail(&self.project.gateway_log(), 8 << 20);
        sheet.check(!panics.contains("panicked at"), Breach::Service, || {
            let at = panics.find("panicked at").unwrap_or(0);
            panics[at..].chars().take(600).collect()
        });
        Ok(())
    }
}

fn refunded(connection: &mut Connection, order: &Order) -> Result<u64> {
    let path = format!("{}/payments/{}", order.class.prefix(), payment(&order.name));
    let reply = connection.exchange(&http::request("GET", &path, &[], b""))?;
    reply.json()["refunded"].as_u64().with_context(|| format!("{path}: {}", reply.text()))
}

/// How many operations a ledger keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// All.
    pub all: u64,
    /// Those that are begun and not over: neither ended nor waiting for a person.
    pub open: u64,
}

/// Asks for them.
///
/// # Errors
/// The gateway does not answer.
pub fn kept(addr: SocketAddr) -> Result<Kept> {
    let text = http::json(addr, "GET", "/metrics", None)?.text();
    let mut kept = Kept::default();
    for line in text.lines() {
        let Some((state, count)) =
            line.strip_prefix("counterfoil_operations{state=\"").and_then(|r| r.split_once("\"} "))
        else {
            continue;
        };
        let count = count.trim().parse::<f64>().with_context(|| line.to_owned())? as u64;
        kept.all += count;
        kept.open += if matches!(state, "running" | "accepted") { count } else { 0 };
    }
    if text.contains("counterfoil_operations{") { Ok(kept) } else { bail!("no counts of operations: {text}") }
}

/// What `/readyz` says.
///
/// # Errors
/// The gateway does not answer.
pub fn ready(addr: SocketAddr) -> Result<(u16, String)> {
    let reply = http::json(addr, "GET", "/readyz", None)?;
    Ok((reply.status, reply.text().trim().to_owned()))
}

/// The call of an order: always the same, and in one era always.
#[must_use]
pub fn call_of(order: &Order) -> Call {
    let call = Call::new(&order.class.tool(), order.class.arguments(&order.name))
        .keyed(&format!("order-{}", order.name));
    let odd = order.name.bytes().fold(0u8, u8::wrapping_add) % 3 == 0;
    if odd { call.of(Era::Legacy(Some(wire::LEGACY))) } else { call }
}

/// Calls once on a connection of its own, and remembers what was heard.
pub fn ask(addr: SocketAddr, order: &mut Order) {
    order.heard.push(Heard::of(&wire::call(addr, CALLER, &call_of(order))));
}

/// Calls until there is an answer that counts, or the time is over.
pub fn settle(addr: SocketAddr, order: &mut Order, until: Instant) {
    while !order.is_settled() {
        ask(addr, order);
        if Instant::now() > until {
            return;
        }
        if !order.is_settled() {
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Does something with each order, several at once.
pub fn each(orders: &mut [Order], work: impl Fn(&mut Order) + Sync) {
    let share = orders.len().div_ceil(AT_ONCE).max(1);
    thread::scope(|scope| {
        for part in orders.chunks_mut(share) {
            let work = &work;
            scope.spawn(move || part.iter_mut().for_each(work));
        }
    });
}

/// A call under way.
pub type Flight = thread::JoinHandle<Order>;

/// Calls all at once, each on a connection of its own; they come back with what they heard.
#[must_use]
pub fn fly(addr: SocketAddr, orders: Vec<Order>) -> Vec<Flight> {
    let one = |mut order: Order| {
        thread::spawn(move || {
            ask(addr, &mut order);
            order
        })
    };
    orders.into_iter().map(one).collect()
}

/// Those that came back.
///
/// # Errors
/// A caller's thread ended.
pub fn landed(flights: Vec<Flight>) -> Result<Vec<Order>> {
    flights.into_iter().map(|f| f.join().map_err(|_| anyhow::anyhow!("a caller's thread ended"))).collect()
}

/// Requests that the provider has received since it started.
///
/// # Errors
/// It does not answer.
pub fn received(sandbox: &Sandbox) -> Result<u64> {
    let all: Value = sandbox.effects("object=nothing")?;
    all["received"].as_u64().context("received")
}
