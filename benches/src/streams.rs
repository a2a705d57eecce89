//! What an open stream takes at the server that has it.

use crate::figures::Figures;
use crate::peers;
use crate::process::rss_kb;
use anyhow::{Context, Result, bail};
use counterfoil_tests::stand::Project;
use counterfoil_tests::stream::Stream;
use std::net::SocketAddr;
use std::time::Duration;

/// A server lets one caller have 256 streams, and all together 1,024.
const CALLERS: usize = 4;
const EACH: usize = 240;
/// The first pay for what is made once.
const FIRST: usize = 60;

/// What `counterfoil.toml` has to say so that there can be several callers.
pub const AUTH: &str = "\n[auth]\nmode = \"api-key\"\n";

/// `rss_per_listen_kb`: what an open `subscriptions/listen` stream takes.
///
/// # Errors
/// A stream is not served.
pub fn listen(figures: &mut Figures) -> Result<()> {
    let mut project = Project::empty()?;
    std::fs::write(project.path().join("counterfoil.toml"), format!("[server]\nname = \"bench\"\n{AUTH}"))?;
    let gateway = project.gateway(None)?;
    let each = kb(&project, gateway.addr, gateway.process.pid())?;
    figures.add("rss_per_listen_kb", each, "");
    Ok(())
}

/// What an open `subscriptions/listen` stream takes of a server's resident memory, in kB. Its callers are made by the
/// project's command.
pub(crate) fn kb(project: &Project, addr: SocketAddr, pid: u32) -> Result<f64> {
    let keys = (0..CALLERS).map(|n| key(project, n)).collect::<Result<Vec<_>>>()?;
    let requests: Vec<_> = keys.iter().map(|key| peers::listen(addr, key)).collect();
    let all: Vec<_> = requests.iter().flat_map(|request| std::iter::repeat_n(request, EACH)).collect();
    let (first, rest) = all.split_at(FIRST);
    let open = |requests: &[&Vec<u8>]| requests.iter().map(|r| opened(addr, r)).collect::<Result<Vec<_>>>();
    let _first = open(first)?;
    let before = rss_kb(pid)?;
    let _rest = open(rest)?;
    Ok((rss_kb(pid)? - before) / rest.len() as f64)
}

fn key(project: &Project, n: usize) -> Result<String> {
    let (code, made) = project.ask(&["api-keys", "create", "--principal", &format!("listener-{n}")])?;
    let key = made["key"].as_str().filter(|_| code == 0);
    Ok(key.with_context(|| format!("no API key was made: {made}"))?.to_owned())
}

fn opened(addr: SocketAddr, request: &[u8]) -> Result<Stream> {
    let mut stream = Stream::open(addr, request)?;
    stream.until(Duration::from_secs(10), |s| s.head().is_some())?;
    if stream.status()? != 200 {
        bail!("a stream was not opened: {}", stream.head().unwrap_or_default());
    }
    Ok(stream)
}
