//! The bus between replicas on [NATS](https://nats.io): what one tells is heard by all others that are connected.
//!
//! Promises: telling never waits; only messages that a holder of the ledger's secret made are heard. NATS keeps nothing
//! for whoever is away, so a gap is heard wherever something may be lost: by a replica whose connection broke, and by all
//! others from it, because what it had told may not have left the server it was connected to; and by a replica that is
//! too slow. While the server is away nothing is heard, and readers of the ledger look by themselves now and then.

mod message;

use async_nats::{Client, ConnectOptions, Event};
use futures_util::StreamExt as _;
use ledger::OperationId;
use ledger::bus::{Bus, Heard, Note, ROOM};
use ledger::store::Identity;
use message::{Form, MAX_IDS, Message};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, mpsc};
use tokio_util::task::AbortOnDropHandle;

/// Messages that may wait to be sent. What is beyond is dropped, and a gap told in its place.
const WAITING: usize = 16_384;
/// The longest pause between two tries to connect.
const PAUSE: Duration = Duration::from_secs(2);

/// Why there is no bus.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL can't be used.
    #[error("the bus can't be set up: {0}. Nothing runs yet; correct [bus] url")]
    Setup(String),
}

enum Telling {
    Moved(OperationId),
    Note(Note),
    Gap,
}

/// See the module. Dropping it ends the connection.
pub struct NatsBus {
    telling: mpsc::Sender<Telling>,
    /// Something was dropped since the last gap was told.
    dropped: Arc<std::sync::atomic::AtomicBool>,
    heard: broadcast::Sender<Heard>,
    _sending: AbortOnDropHandle<()>,
    _hearing: AbortOnDropHandle<()>,
}

impl NatsBus {
    /// Connects to the servers at `url` (`nats://[user:password@]host[:port]`, `tls://…`; several separated by commas), now
    /// or, if none answers, in the background for as long as it takes.
    ///
    /// # Errors
    /// [`Error`]: the URL is none.
    pub async fn connect(url: &str, identity: &Identity) -> Result<Arc<NatsBus>, Error> {
        let form =
            Form::new(&identity.secret).ok_or_else(|| Error::Setup("the ledger has no secret".into()))?;
        let addresses: Vec<async_nats::ServerAddr> = url
            .split(',')
            .map(|one| one.trim().parse().map_err(|_| Error::Setup("its URL is not one of NATS".into())))
            .collect::<Result<_, _>>()?;
        let heard = broadcast::Sender::new(ROOM);
        let (telling, to_send) = mpsc::channel(WAITING);
        let dropped: Arc<std::sync::atomic::AtomicBool> = Arc::default();
        let (gaps, again) = (heard.clone(), (telling.clone(), Arc::clone(&dropped)));
        let client = ConnectOptions::new()
            .name("counterfoil")
            .no_echo()
            .retry_on_initial_connect()
            .reconnect_delay_callback(|tries| PAUSE.min(Duration::from_millis(20 << tries.min(10))))
            .event_callback(move |event| {
                let (gaps, again) = (gaps.clone(), again.clone());
                async move { on(&event, &gaps, &again.0, &again.1) }
            })
            .connect(addresses)
            .await
            .map_err(|e| Error::Setup(e.kind().to_string()))?;
        let subject = form.subject();
        let hearing = tokio::spawn(hear(client.clone(), subject.clone(), form.clone(), heard.clone()));
        let sending = tokio::spawn(send(client, subject, form, to_send, Arc::clone(&dropped)));
        Ok(Arc::new(NatsBus {
            telling,
            dropped,
            heard,
            _sending: AbortOnDropHandle::new(sending),
            _hearing: AbortOnDropHandle::new(hearing),
        }))
    }

    fn put(&self, one: Telling) {
        put(&self.telling, &self.dropped, one);
    }
}

impl Bus for NatsBus {
    fn moved(&self, id: OperationId) {
        self.put(Telling::Moved(id));
    }

    fn tell(&self, note: Note) {
        self.put(Telling::Note(note));
    }

    fn listen(&self) -> broadcast::Receiver<Heard> {
        self.heard.subscribe()
    }
}

/// Has it sent; or, if too much waits, a gap behind that.
fn put(telling: &mpsc::Sender<Telling>, dropped: &std::sync::atomic::AtomicBool, one: Telling) {
    if telling.try_send(one).is_err() {
        dropped.store(true, std::sync::atomic::Ordering::Release);
        // If all of it was sent meanwhile, this tells of it.
        let _ = telling.try_send(Telling::Gap);
    }
}

/// What happened to the connection.
fn on(
    event: &Event,
    gaps: &broadcast::Sender<Heard>,
    telling: &mpsc::Sender<Telling>,
    dropped: &std::sync::atomic::AtomicBool,
) {
    match event {
        Event::Connected => {
            tracing::info!("connected to the bus");
            let _ = gaps.send(Heard::Gap);
            put(telling, dropped, Telling::Gap);
        }
        Event::Disconnected => {
            tracing::warn!("the bus is away; news of other replicas come late until it is back");
        }
        Event::SlowConsumer(_) => {
            let _ = gaps.send(Heard::Gap);
        }
        other => tracing::debug!(event = %other, "the bus"),
    }
}

async fn hear(client: Client, subject: String, form: Form, heard: broadcast::Sender<Heard>) {
    loop {
        match client.subscribe(subject.clone()).await {
            Ok(mut messages) => {
                while let Some(message) = messages.next().await {
                    // Nobody has to listen.
                    match form.read(&message.payload) {
                        Some(Message::Moved(ids)) => {
                            ids.into_iter().for_each(|id| drop(heard.send(Heard::Moved(id))));
                        }
                        Some(Message::Note(note)) => drop(heard.send(Heard::Note(Arc::new(note)))),
                        Some(Message::Gap) => drop(heard.send(Heard::Gap)),
                        None => tracing::warn!(
                            "a message on the bus was not made by a replica of this ledger and version"
                        ),
                    }
                }
            }
            Err(e) => tracing::warn!(error = %e, "the bus can't be listened to; it is tried again"),
        }
        // The subscription ended: what was told meanwhile was not heard.
        tokio::time::sleep(PAUSE).await;
        let _ = heard.send(Heard::Gap);
    }
}

async fn send(
    client: Client,
    subject: String,
    form: Form,
    mut telling: mpsc::Receiver<Telling>,
    dropped: Arc<std::sync::atomic::AtomicBool>,
) {
    while let Some(first) = telling.recv().await {
        let mut next = Some(first);
        let mut ids = Vec::new();
        let mut out = Vec::new();
        while let Some(one) = next.take() {
            match one {
                Telling::Moved(id) => ids.push(id),
                Telling::Note(note) => out.push(Message::Note(note)),
                Telling::Gap => out.push(Message::Gap),
            }
            if ids.len() < MAX_IDS && out.len() < MAX_IDS {
                next = telling.try_recv().ok();
            }
        }
        if !ids.is_empty() {
            out.push(Message::Moved(ids));
        }
        if dropped.swap(false, std::sync::atomic::Ordering::AcqRel) {
            out.push(Message::Gap);
        }
        for message in out {
            let bytes = form.write(&message).or_else(|| form.write(&Message::Gap)).unwrap_or_default();
            if let Err(e) = client.publish(subject.clone(), bytes).await {
                tracing::warn!(error = %e, "other replicas could not be told");
                dropped.store(true, std::sync::atomic::Ordering::Release);
            }
        }
    }
}
