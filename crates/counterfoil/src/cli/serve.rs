//! `serve`: the gateway, until it is told to stop; with `--stdio` for one client, until that one ends.

use super::fail::{Done, Fail, UNAVAILABLE};
use super::out::Out;
use super::place::Place;
use super::ready;
use crate::config::{Auth, Config, show_duration};
use crate::native::Native;
use crate::run::{Running, Server};
use std::net::SocketAddr;
use tokio::signal::unix::{Signal, SignalKind, signal};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// The address of the MCP endpoint; port 0 picks a free one [default: the configuration's, else 127.0.0.1:8600]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// The ledger was restored from a backup: no new operation is opened until `counterfoil ops release`
    #[arg(long)]
    restored: bool,
    /// Serve one client over stdin and stdout, and listen on HTTP only where --listen says so. If another process holds
    /// the ledger, forward to it. With [auth] mode = "api-key" the key is in COUNTERFOIL_API_KEY
    #[arg(long, conflicts_with_all = ["json", "restored"])]
    stdio: bool,
}

/// The key of the client over stdio.
const API_KEY: &str = "COUNTERFOIL_API_KEY";

impl Args {
    fn config(&self) -> Result<Config, crate::config::ConfigError> {
        let mut config = self.place.load()?;
        if let Some(listen) = self.listen {
            config.set_listen(listen)?;
        }
        config.ledger.restored = self.restored;
        Ok(config)
    }
}

pub(super) async fn run(args: Args, out: &Out) -> Done {
    let config = args.config()?;
    if args.stdio {
        return stdio(args, config).await;
    }
    // From here on a signal is a wish to end in order, also while starting.
    let listen =
        |kind| signal(kind).map_err(|e| Fail::unavailable(format!("signals can't be received: {e}")));
    let mut stop = [listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?];
    let mut reload = listen(SignalKind::hangup())?;
    let running = tokio::select! {
        started = Server::start(config) => started?,
        () = any(&mut stop) => return Ok(0),
    };
    if out.is_json() {
        out.document(&ready::document(&running));
    } else {
        ready::say(out, &running, &program());
    }
    tracing::info!(
        endpoint = running.endpoint(),
        mode = running.config().mode.as_str(),
        auth = running.config().auth.word(),
        "ready"
    );
    loop {
        tokio::select! {
            () = any(&mut stop) => break,
            _ = reload.recv() => reload_from(&args, &running),
            failed = running.failed() => {
                // Nothing is written any more, so there is nothing to wait for: what is under way is taken up by
                // the next start, and answers that would leave now could not be kept.
                out.failed(&Fail::from(failed));
                std::process::exit(i32::from(UNAVAILABLE));
            }
        }
    }
    let server = &running.config().server;
    let limit = show_duration(server.shutdown_limit);
    if server.shutdown_delay.0 > 0 {
        let delay = show_duration(server.shutdown_delay);
        tracing::info!(
            "stopping: /readyz says so, and calls are taken for {delay} more; then those under way have {limit} to end (a second signal ends at once)"
        );
    } else {
        tracing::info!(
            "stopping: no new calls; those under way have {limit} to end (a second signal ends at once)"
        );
    }
    tokio::select! {
        ended = running.shutdown() => ended?,
        () = any(&mut stop) => {
            tracing::warn!("stopped at once; what was under way is taken up by the next start, or by another replica");
            std::process::exit(i32::from(UNAVAILABLE));
        }
    }
    tracing::info!("stopped");
    Ok(0)
}

/// Stdout belongs to the client from here on.
async fn stdio(args: Args, config: Config) -> Done {
    let listen =
        |kind| signal(kind).map_err(|e| Fail::unavailable(format!("signals can't be received: {e}")));
    let mut stop = [listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?];
    let mut hangup = listen(SignalKind::hangup())?;
    let api_key = std::env::var(API_KEY).ok().filter(|key| !key.is_empty());
    if config.auth == Auth::ApiKey && api_key.is_none() {
        return Err(Fail::usage(format!(
            "the configuration asks for an API key ([auth] mode = \"api-key\"): set {API_KEY} to one; `counterfoil api-keys create --principal NAME` makes it"
        )));
    }
    let (tell, reload) = tokio::sync::mpsc::channel(1);
    let hangups = async move { while hangup.recv().await.is_some() && tell.send(()).await.is_ok() {} };
    let _hangups = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(hangups));
    let pipes = crate::stdio::stdin().and_then(|input| Ok((input, crate::stdio::stdout()?)));
    let (reader, writer) =
        pipes.map_err(|e| Fail::unavailable(format!("standard input and output can't be used: {e}")))?;
    let served = crate::stdio::serve(
        crate::stdio::Reach { config, listen: args.listen.is_some(), api_key, native: Native::default() },
        crate::stdio::Client { reader, writer, stop: any(&mut stop), reload, load: || args.config() },
    );
    served.await?;
    Ok(0)
}

async fn any(signals: &mut [Signal; 2]) {
    let [a, b] = signals;
    tokio::select! {
        _ = a.recv() => {}
        _ = b.recv() => {}
    }
}

/// A file that can't be used leaves the running configuration in place.
fn reload_from(args: &Args, running: &Running) {
    let done = args.config().map_err(crate::Error::from).and_then(|config| running.reload(&config));
    match done {
        Ok(fixed) if fixed.is_empty() => tracing::info!("configuration reloaded"),
        Ok(fixed) => tracing::warn!(
            restart_for = fixed.join(", "),
            "configuration reloaded; some of it takes a restart"
        ),
        Err(e) => tracing::error!("the configuration was not reloaded, the running one stays in place: {e}"),
    }
}

/// How this program is called, for lines to paste.
pub(super) fn program() -> String {
    let name = std::env::args().next().unwrap_or_default();
    let plain = !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_'));
    if plain { name } else { "counterfoil".into() }
}
