//! Finding a backend: the ledger itself if it is free, else the process that holds it.

use super::{MAX_ANSWER, STARTING};
use crate::Error;
use crate::config::Config;
use crate::native::Native;
use crate::run::{Held, LINES, Refused, Sockets, Terms, greet, socket};
use mcp::server::LineReader;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

/// Bytes between the front and the ledger in one process.
const PIPE: usize = 64 << 10;
/// Pauses between attempts, from and to.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

pub(super) type Reader = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Something that answers.
pub(super) struct Backend {
    pub lines: LineReader<Reader>,
    pub writer: Writer,
    /// It is this process.
    pub held: Option<Held>,
}

/// What a backend is found with.
#[derive(Clone)]
pub(crate) struct Reach {
    pub config: Config,
    /// Serve HTTP too where this process holds the ledger.
    pub listen: bool,
    pub api_key: Option<String>,
    /// What is served beside the configuration.
    pub native: Native,
}

/// Why there is none.
struct Obstacle {
    error: Error,
    /// It may pass.
    passing: bool,
}

impl Reach {
    /// The first backend, which is given a while.
    ///
    /// # Errors
    /// What stands in the way.
    pub(super) async fn first(self) -> Result<Backend, Error> {
        let until = Instant::now() + STARTING;
        let mut pause = PAUSE.0;
        loop {
            match self.once().await {
                Ok(backend) => return Ok(backend),
                Err(Obstacle { error, passing }) if !passing || Instant::now() >= until => {
                    return Err(match error {
                        Error::Open(locked @ ledger_sqlite::OpenError::Locked { .. }) => {
                            Error::Holder(format!(
                                "{locked}. It serves no clients of other processes; wait until it has ended, or stop it"
                            ))
                        }
                        other => other,
                    });
                }
                Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// The next backend, however long it takes.
    pub(super) async fn next(self) -> Result<Backend, Error> {
        let mut pause = PAUSE.0;
        let mut said = String::new();
        loop {
            match self.once().await {
                Ok(backend) => return Ok(backend),
                Err(Obstacle { error, passing }) => {
                    let why = error.to_string();
                    if why != said {
                        tracing::warn!(why, passing, "no backend yet; trying again");
                        said = why;
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    async fn once(&self) -> Result<Backend, Obstacle> {
        let dir = self.config.ledger.directory();
        // A ledger that replicas share needs nobody to hold it: this process is one of them.
        if self.config.ledger.postgres().is_none()
            && let Ok(stream) = socket::connect(dir, LINES).await
        {
            let (reader, writer) = stream.into_split();
            let backend = self.greeted(Box::new(reader), Box::new(writer), None).await?;
            tracing::info!("another process holds the ledger; requests are forwarded to it");
            if self.listen {
                tracing::warn!("--listen has no effect while another process holds the ledger");
            }
            return Ok(backend);
        }
        match Held::open(self.config.clone(), self.native.clone(), Sockets::IfFree).await {
            Ok(held) => self.here(held).await,
            Err(error) => {
                let passing = matches!(
                    &error,
                    Error::Open(ledger_sqlite::OpenError::Locked { .. })
                        | Error::OpenPostgres(ledger_postgres::OpenError::Unreachable(_))
                );
                Err(Obstacle { error, passing })
            }
        }
    }

    async fn here(&self, mut held: Held) -> Result<Backend, Obstacle> {
        let firm = |error| Obstacle { error, passing: false };
        let address = if self.listen { Some(held.listen().await.map_err(firm)?) } else { None };
        held.begin().await.map_err(firm)?;
        tracing::info!(listening = address.map(|a| a.to_string()), "this process holds the ledger");
        let (near, far) = tokio::io::duplex(PIPE);
        let (reader, writer) = tokio::io::split(far);
        tokio::spawn(held.host.clone().serve(reader, writer));
        let (reader, writer) = tokio::io::split(near);
        self.greeted(Box::new(reader), Box::new(writer), Some(held)).await
    }

    async fn greeted(
        &self,
        reader: Reader,
        mut writer: Writer,
        held: Option<Held>,
    ) -> Result<Backend, Obstacle> {
        let terms = Terms::of(&self.config);
        match greet(reader, &mut writer, MAX_ANSWER, &terms, self.api_key.as_deref()).await {
            Ok(lines) => Ok(Backend { lines, writer, held }),
            Err(Refused::Later(why)) => Err(Obstacle { error: Error::Holder(why), passing: true }),
            Err(Refused::Never(why)) => Err(Obstacle { error: Error::Refused(why), passing: false }),
        }
    }
}
