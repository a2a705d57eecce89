//! Before the provider: passes requests on, and remembers as whom each was sent.

use anyhow::Result;
use counterfoil_tests::http::{self, Asked};
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// `Authorization` and body of each request.
type Heard = Arc<Mutex<Vec<(String, String)>>>;

pub struct Ear {
    pub addr: SocketAddr,
    heard: Heard,
}

impl Ear {
    pub fn before(to: SocketAddr) -> Result<Ear> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let heard = Heard::default();
        let all = heard.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let all = all.clone();
                // A connection that breaks, breaks for its client.
                thread::spawn(move || serve(stream, to, &all));
            }
        });
        Ok(Ear { addr, heard })
    }

    /// As whom the refunds of an order were asked for.
    pub fn of(&self, order: &str) -> Vec<String> {
        let named = format!("\"{order}\"");
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|(_, body)| body.contains(&named)).map(|(auth, _)| auth.clone()).collect()
    }
}

fn serve(stream: TcpStream, to: SocketAddr, heard: &Heard) -> Option<()> {
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let asked = Asked::read(&mut reader)?;
        let auth = asked.header("authorization").unwrap_or_default();
        heard.lock().unwrap().push((auth, String::from_utf8_lossy(&asked.body).into_owned()));
        let reply = http::once(to, Duration::from_secs(10), &asked.bytes()).ok()?;
        let mut text = format!("HTTP/1.1 {} -\r\n", reply.status);
        let skipped = ["content-length", "transfer-encoding", "connection"];
        for (name, value) in reply.headers.iter().filter(|(name, _)| !skipped.contains(&name.as_str())) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("content-length: {}\r\n\r\n", reply.body.len()));
        writer.write_all(text.as_bytes()).ok()?;
        writer.write_all(&reply.body).ok()?;
    }
}
