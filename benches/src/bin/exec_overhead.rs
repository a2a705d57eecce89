//! A reading method beside a bare call with reqwest: the same GET, with the same headers, of the same server, in turns.
//!
//! usage: `exec_overhead SECONDS PAIRS`. Prints one JSON object. The server is an axum handler in this process, on a thread
//! of its own; it costs both the same.

use anyhow::{Context, Result, bail, ensure};
use axum::Router;
use axum::http::header;
use axum::routing::get;
use counterfoil_benches::figures::median;
use ledger::Millis;
use provider::{ConfigCredentials, Format, HttpExecutor, Integration, Method, Mode, ReadOutcome};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BODY: &str = r#"{"id":"thing_1","object":"thing","amount":700,"currency":"eur","customer":"cus_1","description":"A thing that was made for this","created":1796033940,"metadata":{"order":"o-1"}}"#;
/// Calls in a row before the other side's turn.
const ROW: usize = 50;
/// Callers of the second figure.
const CALLERS: usize = 16;
const TIMEOUT: Millis = Millis(10_000);

fn server() -> Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    listener.set_nonblocking(true)?;
    let addr = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let listener =
                axum::serve::ListenerExt::tap_io(listener, |stream: &mut tokio::net::TcpStream| {
                    let _ = stream.set_nodelay(true);
                });
            let thing = || async { ([(header::CONTENT_TYPE, "application/json")], BODY) };
            axum::serve(listener, Router::new().route("/v1/things/{id}", get(thing))).await
        })
    });
    Ok(addr)
}

/// Ours: the method, and what carries it out.
struct Ours {
    executor: HttpExecutor,
    method: Method,
}

impl Ours {
    fn new(addr: SocketAddr) -> Result<Ours> {
        let text = format!(
            "name = \"shop\"\nbase_url = {{ sandbox = \"http://{addr}\", production = \"http://{addr}\" }}\n[auth]\nkind = \"bearer\"\nsecret = \"${{env:KEY}}\"\n[methods.\"things.get\"]\nhttp = \"GET /v1/things/{{id}}\"\n"
        );
        let i = Integration::parse("shop.toml", &text, Format::Toml, Mode::Sandbox)?;
        let credentials = ConfigCredentials::load_with(std::slice::from_ref(&i), |_| Some("secret".into()))?;
        let method = i.method("things.get").context("the method")?.clone();
        Ok(Ours { executor: HttpExecutor::new(Arc::new(credentials)), method })
    }

    async fn call(&self) -> Result<()> {
        match self.executor.read(&self.method, r#"{"id":"thing_1"}"#, TIMEOUT).await? {
            ReadOutcome::Answered(r) if r.json.as_ref().is_some_and(|j| j.get() == BODY) => Ok(()),
            other => bail!("not what was asked for: {other:?}"),
        }
    }
}

/// Theirs: one client, as its users have one.
struct Bare {
    client: reqwest::Client,
    url: String,
}

impl Bare {
    fn new(addr: SocketAddr) -> Result<Bare> {
        let client = reqwest::Client::builder().timeout(Duration::from_secs(10)).build()?;
        Ok(Bare { client, url: format!("http://{addr}/v1/things/thing_1") })
    }

    async fn call(&self) -> Result<()> {
        let request = self
            .client
            .get(&self.url)
            .header(header::ACCEPT, "application/json, */*;q=0.1")
            .header(header::USER_AGENT, "bench")
            .bearer_auth("secret");
        let answer = request.send().await?;
        ensure!(answer.status() == 200, "HTTP {}", answer.status());
        ensure!(answer.bytes().await? == BODY, "not what was asked for");
        Ok(())
    }
}

/// One call after the other; what each took, in microseconds.
///
/// On a worker of the runtime, as in any server: the main task has a thread of its own, and each answer would have to wake it.
async fn row<F: Future<Output = Result<()>> + Send>(
    call: impl Fn() -> F + Send + 'static,
) -> Result<Vec<f64>> {
    let calls = async move {
        let mut took = Vec::with_capacity(ROW);
        for _ in 0..ROW {
            let began = Instant::now();
            call().await?;
            took.push(began.elapsed().as_secs_f64() * 1e6);
        }
        anyhow::Ok(took)
    };
    tokio::spawn(calls).await?
}

/// Calls a second of some callers at once.
async fn many<F: Future<Output = Result<()>> + Send + 'static>(
    call: impl Fn() -> F + Clone + Send + 'static,
    lasting: Duration,
) -> Result<f64> {
    let began = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let call = call.clone();
            tokio::spawn(async move {
                let mut done = 0_u32;
                while began.elapsed() < lasting {
                    call().await?;
                    done += 1;
                }
                anyhow::Ok(done)
            })
        })
        .collect();
    let mut done = 0;
    for caller in callers {
        done += caller.await??;
    }
    Ok(f64::from(done) / began.elapsed().as_secs_f64())
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [seconds, pairs] = &args[..] else { bail!("usage: exec_overhead SECONDS PAIRS") };
    let lasting = Duration::from_secs_f64(seconds.parse::<f64>().context("SECONDS")?.clamp(0.1, 60.0));
    let pairs: usize = pairs.parse().context("PAIRS")?;
    let addr = server()?;
    let (ours, bare) = (Arc::new(Ours::new(addr)?), Arc::new(Bare::new(addr)?));
    let own = |ours: Arc<Ours>| {
        move || {
            let ours = ours.clone();
            async move { ours.call().await }
        }
    };
    let their = |bare: Arc<Bare>| {
        move || {
            let bare = bare.clone();
            async move { bare.call().await }
        }
    };
    row(own(ours.clone())).await?;
    row(their(bare.clone())).await?;
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let began = Instant::now();
    while began.elapsed() < lasting {
        a.extend(row(own(ours.clone())).await?);
        b.extend(row(their(bare.clone())).await?);
    }
    let (ours_us, bare_us) = (median(a), median(b));
    let (mut ratios, mut ours_all, mut bare_all) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..pairs.max(1) {
        let (x, y) = if n % 2 == 0 {
            let x = many(own(ours.clone()), lasting).await?;
            (x, many(their(bare.clone()), lasting).await?)
        } else {
            let y = many(their(bare.clone()), lasting).await?;
            (many(own(ours.clone()), lasting).await?, y)
        };
        ratios.push(x / y);
        ours_all.push(x);
        bare_all.push(y);
    }
    println!(
        "{}",
        serde_json::json!({
            "overhead_us": ours_us - bare_us, "ours_us": ours_us, "bare_us": bare_us,
            "ratio": median(ratios), "ours_per_s": median(ours_all), "bare_per_s": median(bare_all),
        })
    );
    Ok(())
}
