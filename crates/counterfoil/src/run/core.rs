//! An open ledger with the gateway on it, listening nowhere yet: what a server and a command from the shell have
//! in common.

use super::assemble::{self, Assembled};
use super::bundled::Bundled;
use super::control::Operator;
use super::executor::Replaceable;
use super::opened::{Opened, bus_of};
use super::origins::{self, Origins};
use super::{backup, replicas, sealing, undecided, views};
use crate::Error;
use crate::config::{Auth, Config, LedgerConfig};
use crate::native::Native;
use axum::Router;
use gateway::{Alerting, ApiKeys, Connections, Gateway, GatewayParts, GatewaySettings, Metrics};
use ledger::{Env, Ledger, Observer, Settings, SystemEnv};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

/// The most calls that are worked on at a time; more are told to come back.
const MAX_IN_FLIGHT: usize = 4096;

/// How long a start waits for what an earlier run left behind.
const TAKING_UP: Duration = Duration::from_secs(1);

/// Which store the ledger is opened on, and whether the sandbox provider is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// To answer what can be called: in memory, nothing is opened or made.
    Catalog,
    /// To read the ledger.
    Read,
    /// To write into the ledger, made if it isn't there; nothing runs.
    Write,
    /// To run operations for a while: recovery runs too, and the sandbox provider is started where it is mounted.
    Work,
    /// To serve: the same, for as long as it takes, and as the replica that the configuration names.
    Serve,
}

impl Use {
    /// Whether operations run.
    #[must_use]
    pub fn runs(self) -> bool {
        matches!(self, Use::Work | Use::Serve)
    }

    /// Whether something may be made that isn't there yet.
    #[must_use]
    pub fn writes(self) -> bool {
        self.runs() || self == Use::Write
    }
}

/// See the module.
pub struct Core {
    pub(crate) config: Config,
    /// The gateway.
    pub gateway: Gateway,
    pub(crate) api_keys: Arc<ApiKeys>,
    pub(crate) connections: Arc<Connections>,
    operator: Router,
    opened: Option<Opened>,
    executor: Arc<Replaceable>,
    native: Native,
    origins: Origins,
    bundled: Option<Bundled>,
    fatal: watch::Receiver<Option<String>>,
    /// Takes up, delivers and prunes.
    tending: Option<AbortOnDropHandle<()>>,
    /// Of a process that serves.
    keeper: Option<seal::Keeper>,
    /// Hears the other replicas, looks at them, and keeps the key ring fresh.
    heeding: Vec<AbortOnDropHandle<()>>,
    /// Where it listens, as it tells the other replicas.
    listen: String,
}

/// Makes the data directory for this user only, with an ignore file of its own, if it isn't there.
pub(crate) fn data_directory(dir: &Path) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt as _;
    let fail = |source| Error::File { what: "the data directory", source };
    match std::fs::metadata(dir) {
        Ok(_) => return Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(fail(e)),
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fail)?;
    std::fs::write(dir.join(".gitignore"), "*\n").map_err(fail)
}

impl Core {
    /// Opens the ledger and assembles the gateway.
    ///
    /// # Errors
    /// [`Error`] says what stands in the way; nothing is left running.
    pub async fn open(config: Config, purpose: Use) -> Result<Core, Error> {
        Core::open_with(config, purpose, Native::default()).await
    }

    /// The same, with native tools, resources and prompts.
    ///
    /// # Errors
    /// As [`Core::open`].
    pub async fn open_with(config: Config, purpose: Use, native: Native) -> Result<Core, Error> {
        let mut bundled = None;
        let mut provider_at = config.sandbox;
        let directory = config.ledger.directory().to_owned();
        // What is wrong in the files is found before anything is made.
        let connections = Arc::new(Connections::default());
        let first = assemble::load_with(&config, provider_at, connections.clone())?;
        if purpose == Use::Serve {
            sealing::given(&config)?;
        }
        if purpose.writes() {
            data_directory(&directory)?;
        }
        let env: Arc<dyn Env> = Arc::new(SystemEnv);
        let (dead, fatal) = watch::channel(None);
        let opened = match purpose {
            Use::Catalog => Opened::memory(&env),
            _ => Opened::at(&config, purpose, env.clone(), dead).await?,
        };
        let bus = match bus_of(&config.bus, &opened).await {
            Ok(bus) => bus,
            Err(e) => {
                opened.close().await?;
                return Err(e);
            }
        };
        let store = opened.store();
        let keeper = match purpose {
            Use::Serve => match sealing::keeper(&config, store.clone()).await {
                Ok(keeper) => Some(keeper),
                Err(e) => {
                    opened.close().await?;
                    return Err(e);
                }
            },
            Use::Catalog | Use::Read | Use::Write | Use::Work => None,
        };
        match &keeper {
            Some(keeper) => connections.open(store.clone(), keeper.clone()),
            None if purpose == Use::Work => sealing::open(&connections, &config, &store).await,
            None => {}
        }
        let mut loaded = first;
        if purpose.runs()
            && let Some(listen) = config.sandbox
        {
            let b = Bundled::at(listen, &directory.join("sandbox")).await?;
            if Some(b.address) != provider_at {
                provider_at = Some(b.address);
                loaded = assemble::load_with(&config, provider_at, connections.clone())?;
            }
            bundled = Some(b);
        }
        let metrics = Arc::new(Metrics::default());
        let observer: Arc<dyn Observer> = match config.webhook.as_ref().filter(|_| purpose.runs()) {
            Some(webhook) => {
                let alerting = Alerting::new(metrics.clone(), webhook.url().to_owned());
                alerting.set_clock(&store);
                alerting
            }
            None => metrics.clone(),
        };
        let ledger = Ledger::with_bus(store.clone(), bus, env, Settings::default(), observer);
        let executor = Arc::new(Replaceable::new(loaded.executor.clone()));
        let settings = settings(&config);
        let Assembled { catalog, methods } = assemble::catalog(&config, &loaded, &ledger, &native)?;
        native.methods().replace(methods);
        let origins = Origins::new(origins::of(&config, &loaded));
        let gateway = Gateway::new(GatewayParts {
            ledger,
            catalog,
            executor: executor.clone(),
            settings,
            metrics,
            changes: native.changes(),
            keeper: keeper.clone(),
            connections: connections.clone(),
        });
        if purpose == Use::Serve {
            undecided::log(&config, &gateway.catalog());
        }
        let api_keys = Arc::new(ApiKeys::new(store).with_eras(config.server.eras_by_principal.clone()));
        let operator = gateway::operator::router(&gateway, api_keys.clone())
            .merge(origins.router())
            .merge(replicas::router(&opened))
            .merge(backup::router(&opened))
            .merge(sealing::router(&config, &opened, keeper.clone()));
        let mut core = Core {
            config,
            gateway,
            api_keys,
            connections,
            operator,
            opened: Some(opened),
            executor,
            native,
            origins,
            bundled,
            fatal,
            tending: None,
            keeper,
            heeding: Vec::new(),
            listen: String::new(),
        };
        if let Some(at) = provider_at {
            core.config.sandbox = Some(at);
        }
        Ok(core)
    }

    /// Begins to take up what earlier runs left behind, and goes on recovering, delivering and pruning. Returns when
    /// all that was left behind has been claimed or settled, or after a second: where there is much of it, or a
    /// provider is slow, the rest goes on behind the calls.
    pub async fn recover(&mut self) {
        let (ledger, gateway) = (self.gateway.ledger().clone(), self.gateway.clone());
        let (done, taken_up) = oneshot::channel::<()>();
        let behind = ledger.clone();
        let behind = AbortOnDropHandle::new(tokio::spawn(async move {
            match behind.recover_orphans().await {
                Ok(0) => {}
                Ok(taken) => tracing::info!(operations = taken, "took up what an earlier run left behind"),
                // The recovery loop takes it up when it is due; a store that failed for good says so itself.
                Err(e) => tracing::error!(error = %e, "what an earlier run left behind could not be read"),
            }
            drop(done);
        }));
        self.tending = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            ledger.tend().await;
            drop(behind);
        })));
        self.heeding.push(AbortOnDropHandle::new(tokio::spawn(async move { gateway.heed().await })));
        if let Some(keeper) = self.keeper.clone() {
            self.heeding.push(AbortOnDropHandle::new(tokio::spawn(async move { keeper.tend().await })));
        }
        let _ = tokio::time::timeout(TAKING_UP, taken_up).await;
    }

    /// Tells the other replicas what is served here, and looks at what they serve from now on.
    pub(crate) async fn describe(&mut self, listen: Option<std::net::SocketAddr>) {
        self.listen = listen.map(|at| at.to_string()).unwrap_or_default();
        let Some(store) = self.opened.as_ref().and_then(Opened::postgres).cloned() else { return };
        let description = replicas::description(&self.gateway, &self.config, &self.listen);
        if let Err(e) = store.describe(description).await {
            tracing::warn!(error = %e, "the other replicas could not be told what is served here yet");
        }
        let watching = replicas::watch(store, self.gateway.clone(), self.keeper.clone());
        self.heeding.push(AbortOnDropHandle::new(tokio::spawn(watching)));
    }

    /// Takes up nothing more that others left behind, where others can do so.
    pub(crate) fn stop_recovering(&mut self) {
        if self.opened.as_ref().and_then(Opened::postgres).is_some() {
            self.tending = None;
        }
    }

    /// The operators' routes, asked in process.
    #[must_use]
    pub fn operator(&self) -> Operator {
        Operator::Here(self.operator.clone())
    }

    pub(crate) fn routes(&self) -> Router {
        self.operator.clone()
    }

    /// Where the sandbox provider listens, if it is mounted, and whether this process runs it.
    #[must_use]
    pub fn sandbox(&self) -> Option<(std::net::SocketAddr, bool)> {
        self.config.sandbox.map(|at| (at, self.bundled.as_ref().is_some_and(Bundled::is_own)))
    }

    /// Takes other tools, settings of tools and credentials from now on. What else differs needs a restart; it is
    /// named in the answer.
    ///
    /// # Errors
    /// [`Error::Config`]: nothing was changed.
    pub fn reload(&self, new: &Config) -> Result<Vec<&'static str>, Error> {
        let at = self.config.sandbox.filter(|_| new.sandbox.is_some()).or(new.sandbox);
        let loaded = assemble::load_with(new, at, self.connections.clone())?;
        let Assembled { catalog, methods } =
            assemble::catalog(new, &loaded, self.gateway.ledger(), &self.native)?;
        self.executor.replace(loaded.executor.clone());
        self.native.methods().replace(methods);
        self.origins.replace(origins::of(new, &loaded));
        self.gateway.reload(catalog);
        if let Some(store) = self.opened.as_ref().and_then(Opened::postgres).cloned() {
            // What needs a restart is still served as it was.
            let served = Config {
                lists_ttl: new.lists_ttl,
                ledger: LedgerConfig { retention: new.ledger.retention, ..self.config.ledger.clone() },
                ..self.config.clone()
            };
            let description = replicas::description(&self.gateway, &served, &self.listen);
            tokio::spawn(async move {
                if let Err(e) = store.describe(description).await {
                    tracing::warn!(error = %e, "the other replicas could not be told what is served here yet");
                }
            });
        }
        let old = &self.config;
        let fixed = [
            ("[server] name", old.server.name != new.server.name),
            ("[server] mode", old.mode != new.mode),
            ("[server] listen", old.server.listen.ip() != new.server.listen.ip()),
            ("[server] path", old.server.path != new.server.path),
            ("[[view]] path", views::paths(old) != views::paths(new)),
            ("[server] allowed_hosts", old.server.allowed_hosts != new.server.allowed_hosts),
            ("[server] allowed_origins", old.server.allowed_origins != new.server.allowed_origins),
            ("[server] public_url", old.server.public_url != new.server.public_url),
            ("[server] max_body", old.server.max_body != new.server.max_body),
            ("[server] eras", old.server.eras != new.server.eras),
            ("[server] eras_by_host", old.server.eras_by_host != new.server.eras_by_host),
            ("[server] eras_by_principal", old.server.eras_by_principal != new.server.eras_by_principal),
            ("[server] legacy_sessions", old.server.legacy_sessions != new.server.legacy_sessions),
            (
                "[server] legacy_session_idle",
                old.server.legacy_session_idle != new.server.legacy_session_idle,
            ),
            ("[alerts] webhook", old.webhook != new.webhook),
            ("[auth] mode", old.auth != new.auth),
            ("[server] shutdown_delay", old.server.shutdown_delay != new.server.shutdown_delay),
            ("[server] shutdown_limit", old.server.shutdown_limit != new.server.shutdown_limit),
            ("[ledger] lease", old.ledger.lease != new.ledger.lease),
            ("[ledger] url", old.ledger.place != new.ledger.place),
            ("[bus] url", old.bus != new.bus),
            ("[seal]", old.seal != new.seal),
            ("[sandbox]", old.sandbox.is_some() != new.sandbox.is_some()),
        ];
        Ok(fixed.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect())
    }

    /// Resolves when the ledger has failed for good, with the reason.
    pub async fn failed(&self) -> String {
        let mut fatal = self.fatal.clone();
        let why = fatal.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        match why {
            Some(why) => why,
            // No store that can fail.
            None => std::future::pending().await,
        }
    }

    /// Waits until no attempt runs here, or the time is over.
    pub async fn settle(&self, most: Duration) {
        let rest = async {
            while self.gateway.ledger().running() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let _ = tokio::time::timeout(most, rest).await;
    }

    /// Makes everything durable and lets the ledger go.
    ///
    /// # Errors
    /// [`Error::Store`]: the store had failed; what was answered before is durable all the same.
    pub async fn close(mut self) -> Result<(), Error> {
        self.tending = None;
        self.heeding.clear();
        if let Some(b) = self.bundled.take() {
            b.shutdown().await;
        }
        if let Some(opened) = self.opened.take() {
            opened.close().await?;
        }
        Ok(())
    }
}

impl Drop for Core {
    /// A core that is dropped instead of closed lets the ledger go all the same, a moment later: ledger and gateway
    /// hold each other, so nothing else would.
    fn drop(&mut self) {
        if let (Some(opened), Ok(runtime)) = (self.opened.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                if let Err(e) = opened.close().await {
                    tracing::warn!(error = %e, "the ledger was not closed in order; the next start replays its log");
                }
            });
        }
    }
}

fn settings(config: &Config) -> GatewaySettings {
    GatewaySettings {
        name: config.server.name.clone(),
        version: replicas::version().into(),
        mode: config.mode.as_str().into(),
        instructions: Some(
            "Calls that change something run once. After a lost or unclear answer repeat the same call with the same arguments, or ask operation_status; never invent an idempotency_key.".into(),
        ),
        list_ttl_ms: config.lists_ttl.0,
        public_lists: config.auth == Auth::None,
        retention_ms: config.ledger.retention.0,
        max_in_flight: MAX_IN_FLIGHT,
        legacy_sessions: config.server.legacy_sessions,
        session_idle: config.server.legacy_session_idle,
        single_use: config.seal.single_use,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::opened::Opened;
    use super::{Core, Use};
    use crate::config::Config;
    use ledger_sqlite::faults::Fault;
    use serde_json::json;
    use std::time::Duration;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_failed_disk_stops_everything_and_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::sandbox(&dir.path().join("data"));
        config.sandbox = Some(([127, 0, 0, 1], 0).into());
        let core = Core::open(config, Use::Work).await.unwrap();
        let Some(Opened::Sqlite(store)) = &core.opened else { panic!("an SQLite ledger") };
        store.faults().fail(1, Fault::Io);
        let exec =
            json!({ "id": "payments.refunds.create", "key": "k", "arguments": { "payment": "pay_demo" } });
        let (_, answer) = core.operator().post("/v1/exec", &exec).await.unwrap();
        assert_eq!(answer["error"]["kind"], "admission_unknown", "{answer}");
        let why = tokio::time::timeout(Duration::from_secs(5), core.failed()).await.unwrap();
        assert!(why.contains("nothing more is read or written"), "{why}");
        // Nothing runs on without the ledger.
        let (_, answer) = core.operator().post("/v1/exec", &exec).await.unwrap();
        assert_eq!(answer["error"]["kind"], "unavailable", "{answer}");
    }
}
