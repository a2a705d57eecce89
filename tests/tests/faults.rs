//! What stands between a client and the gateway breaks, in every way that breaks official clients: the caller calls
//! again as its host would, has the answer, and the provider has one effect. Each fault strikes a request that was
//! answered and one that never came, with a key and without.

use anyhow::{Context, Result, bail, ensure};
use counterfoil_tests::clients::{Kind, Order, Worker};
use counterfoil_tests::proxy::{Fault, Proxy, Reach, passes};
use counterfoil_tests::stand::{AMOUNT, Class, Gateway, Project, Sandbox};
use counterfoil_tests::wire::{META_KEY, Said};
use serde_json::{Value, json};
use std::time::Duration;

/// What a client waits for an answer that does not come; it is far more than the gateway needs for one.
const SHORT: Duration = Duration::from_millis(1500);
/// What it waits for one that comes.
const LONG: Duration = Duration::from_secs(15);

macro_rules! survives {
    ($($name:ident: $kind:ident),* $(,)?) => {
        $(#[test] fn $name() -> Result<()> { survives(Kind::$kind) })*
    };
}

survives! {
    typescript: TypeScript,
    typescript_pinned: TypeScriptPinned,
    typescript_legacy: TypeScriptLegacy,
    typescript_1: TypeScript1,
    python: Python,
    python_pinned: PythonPinned,
    python_1: Python1,
    rust: Rust,
    rust_legacy: RustLegacy,
}

/// Both halves at once: clients that hang do so side by side.
fn survives(kind: Kind) -> Result<()> {
    let halves = [Reach::Answered, Reach::Never];
    std::thread::scope(|scope| {
        let all = halves.map(|reach| scope.spawn(move || Stage::open(kind)?.every_fault(reach)));
        for (half, reach) in all.into_iter().zip(halves) {
            let lines = half.join().map_err(|_| anyhow::anyhow!("a panic"))??;
            for line in lines {
                println!("{:18} {:14} {line}", kind.name(), reach.name());
            }
        }
        Ok(())
    })
}

/// Provider, gateway, the proxy before it, and a client that knows the proxy.
struct Stage {
    kind: Kind,
    worker: Worker,
    proxy: Proxy,
    sandbox: Sandbox,
    broken: usize,
    _gateway: Gateway,
    _project: Project,
    _home: Project,
}

impl Stage {
    fn open(kind: Kind) -> Result<Stage> {
        let home = Project::empty()?;
        let sandbox =
            Sandbox::start(&home.path().join("provider"), &home.path().join("provider.log"), "127.0.0.1:0")?;
        let mut project = Project::with_classes(sandbox.addr)?;
        let gateway = project.gateway(None)?;
        let proxy = Proxy::start(gateway.addr)?;
        ensure!(passes(&proxy, "/healthz")? == 200, "the proxy does not pass a request on");
        let worker = Worker::start(kind, project.path())?;
        Ok(Stage {
            kind,
            worker,
            proxy,
            sandbox,
            broken: 0,
            _gateway: gateway,
            _project: project,
            _home: home,
        })
    }

    fn call(&mut self, limit: Duration, arguments: &Value, meta: &Value) -> Result<Said> {
        let url = self.proxy.url();
        let order = Order { client: "host", url: &url, auth: None, timeout: limit, abort_after: None };
        self.worker.call(&order, &Class::Key.tool(), arguments, meta)
    }

    /// Every fault with a key and without; a line of each for people.
    fn every_fault(&mut self, reach: Reach) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let kind = self.kind;
        for fault in Fault::ALL.into_iter().filter(|f| is_fault(kind, *f, reach)) {
            for keyed in [true, false] {
                let name = format!("{}, {}, {}", self.kind.name(), fault.name(), reach.name());
                let line = self.strike(fault, reach, keyed).with_context(|| name)?;
                lines.push(format!("{:24} {:4} {line}", fault.name(), if keyed { "key" } else { "none" }));
            }
        }
        for method in beside(kind) {
            for fault in [Fault::CutBeforeHeaders, Fault::ServerError, Fault::Unavailable] {
                let name = format!("{}, {} at {method}, {}", kind.name(), fault.name(), reach.name());
                let line = self.strike_beside(method, fault, reach).with_context(|| name)?;
                lines.push(format!("{:24} {method}: {line}", fault.name()));
            }
        }
        Ok(lines)
    }

    /// A request beside the call breaks: the one by which the client opens, or the list that it wants with its first
    /// call. Whatever the client makes of it, the call that is made again has the answer and there is one effect.
    fn strike_beside(&mut self, method: &'static str, fault: Fault, reach: Reach) -> Result<String> {
        self.worker.forget("host")?;
        let business = format!("{}_{}_{}", fault.name(), reach.name(), method).replace(['_', '/'], "");
        let (arguments, meta) = (Class::Key.arguments(&business), json!({ META_KEY: business }));
        self.proxy.rule(method, fault, reach);
        let first = self.call(SHORT * 2, &arguments, &meta)?;
        self.broken += 1;
        self.proxy.broken(self.broken)?;
        let meanwhile = self.proxy.requests();
        self.proxy.clear();
        self.worker.forget("host")?;
        let again = self.call(LONG, &arguments, &meta)?;
        let Said::Result { value, is_error: false, .. } = &again else { bail!("{again:?}") };
        ensure!(value["structuredContent"]["object"] == "refund", "{value}");
        if let Said::Result { value: told, .. } = &first {
            ensure!(told == value, "{told}, then {value}");
        }
        let after = self.sandbox.count(Class::Key, &business)?;
        ensure!(after == (1, AMOUNT), "{after:?}; {first:?}; {meanwhile:?}");
        Ok(format!("{}; meanwhile {meanwhile:?}", short(&first)))
    }

    fn strike(&mut self, fault: Fault, reach: Reach, keyed: bool) -> Result<String> {
        // A client that is connected and has listed, as one is in the middle of its work.
        let url = self.proxy.url();
        let order = Order { client: "host", url: &url, auth: None, timeout: LONG, abort_after: None };
        self.worker.list(&order)?;
        let business = format!("{}_{}_{keyed}", fault.name().replace('_', ""), reach.name().replace('_', ""));
        let arguments = Class::Key.arguments(&business);
        let meta = if keyed { json!({ META_KEY: business }) } else { json!({}) };

        self.proxy.rule("tools/call", fault, reach);
        let first = self.call(SHORT, &arguments, &meta)?;
        self.broken += 1;
        self.proxy.broken(self.broken)?;
        let meanwhile = self.proxy.requests();
        self.proxy.clear();
        let before = self.sandbox.count(Class::Key, &business)?;
        let wanted = if reach == Reach::Answered { (1, AMOUNT) } else { (0, 0) };
        ensure!(before == wanted, "{before:?} before the call was made again, {wanted:?} was expected");
        // The one fault that some clients don't mind is the answer itself.
        let answered = matches!(first, Said::Result { .. });
        ensure!(!answered || (fault, reach) == (Fault::NoResultType, Reach::Answered), "{first:?}");

        // The host calls again; and with a new client, if this one is of no use any more.
        let mut again = self.call(SHORT * 2, &arguments, &meta)?;
        let usable = !matches!(again, Said::Lost(_));
        if !usable {
            self.worker.forget("host")?;
            again = self.call(LONG, &arguments, &meta)?;
        }
        let mut keys = "";
        if let Said::Error { kind, error, .. } = &again {
            // The gateway may take the answer for delivered, and asks what is meant: a model uses the key it is told.
            ensure!(kind == "twin" && !keyed && reach == Reach::Answered, "{again:?}");
            let mut arguments = arguments.clone();
            arguments["idempotency_key"] = error["retryKey"].clone();
            again = self.call(LONG, &arguments, &meta)?;
            keys = ", by the key it was told";
        }
        let Said::Result { value, operation, is_error: false, .. } = &again else { bail!("{again:?}") };
        ensure!(value["structuredContent"]["object"] == "refund", "{value}");
        if let Said::Result { value: told, operation: its, .. } = &first {
            ensure!(
                told == value && its["id"] == operation["id"],
                "{told} of {its}, then {value} of {operation}"
            );
        }
        let after = self.sandbox.count(Class::Key, &business)?;
        ensure!(after == (1, AMOUNT), "{after:?} after the call was made again");
        Ok(format!(
            "{}; meanwhile {meanwhile:?}; {} client has the answer{keys}{}",
            short(&first),
            if usable { "the same" } else { "a new" },
            if operation["replayed"] == json!(true) { ", replayed" } else { "" },
        ))
    }
}

/// What each client asks beside its first call.
fn beside(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::TypeScriptLegacy | Kind::TypeScript1 | Kind::RustLegacy => &["initialize"],
        Kind::Python1 => &["initialize", "tools/list"],
        Kind::TypeScript | Kind::TypeScriptPinned | Kind::Rust => &["server/discover"],
        Kind::Python => &["server/discover", "tools/list"],
        // It never asks who is there.
        Kind::PythonPinned => &["tools/list"],
    }
}

/// A response without `resultType` is what the legacy era looks like, and the Rust client takes it for one: an invented
/// one is then not broken but a lie, against which nothing helps.
fn is_fault(kind: Kind, fault: Fault, reach: Reach) -> bool {
    let minds = !kind.is_legacy() && kind != Kind::Rust;
    fault != Fault::NoResultType || minds || reach == Reach::Answered
}

fn short(said: &Said) -> String {
    said.brief().chars().take(110).collect::<String>().replace('\n', " ")
}
