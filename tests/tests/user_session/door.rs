//! The provider's front door: who has no credential is sent away, and what came in is remembered.

use anyhow::Result;
use counterfoil_tests::http::{self, Asked, Reply};
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A request that came in.
#[derive(Clone, Debug)]
pub struct Visit {
    /// Verb, path and query.
    pub line: String,
    /// `Idempotency-Key`.
    pub key: Option<String>,
    pub body: String,
    pub admitted: bool,
}

pub struct Door {
    pub addr: SocketAddr,
    visits: Arc<Mutex<Vec<Visit>>>,
}

impl Door {
    /// Before a provider, for those who have this secret.
    pub fn before(to: SocketAddr, secret: &str) -> Result<Door> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let door = Door { addr: listener.local_addr()?, visits: Arc::default() };
        let (visits, secret) = (door.visits.clone(), format!("Bearer {secret}"));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (visits, secret) = (visits.clone(), secret.clone());
                // A connection that breaks, breaks for its client.
                thread::spawn(move || serve(stream, to, &secret, &visits));
            }
        });
        Ok(door)
    }

    /// The requests whose bodies hold a text.
    pub fn with(&self, text: &str) -> Vec<Visit> {
        self.visits.lock().unwrap().iter().filter(|v| v.body.contains(text)).cloned().collect()
    }

    /// All.
    pub fn all(&self) -> Vec<Visit> {
        self.visits.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, to: SocketAddr, secret: &str, visits: &Mutex<Vec<Visit>>) -> Option<()> {
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    let asked = Asked::read(&mut reader)?;
    let admitted = asked.header("authorization").as_deref() == Some(secret);
    visits.lock().unwrap().push(Visit {
        line: asked.head.lines().next()?.trim_end_matches(" HTTP/1.1").to_owned(),
        key: asked.header("idempotency-key"),
        body: String::from_utf8_lossy(&asked.body).into_owned(),
        admitted,
    });
    let reply = if admitted {
        http::once(to, Duration::from_secs(10), &asked.bytes()).ok()?
    } else {
        Reply { status: 401, body: br#"{"error":{"code":"unauthorized"}}"#.to_vec(), ..Reply::default() }
    };
    let text = format!(
        "HTTP/1.1 {} -\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        reply.status,
        reply.body.len()
    );
    writer.write_all(&[text.as_bytes(), &reply.body].concat()).ok()
}
