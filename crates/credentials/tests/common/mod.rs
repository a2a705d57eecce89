//! A store, and an authorization server that is played.
#![allow(clippy::unwrap_used, missing_docs, dead_code, unreachable_pub)]

use credentials::{About, Client, Endpoints, Flow, KeyAt, Live, Secret, Store, Wanted, unix_now};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zeroize::Zeroizing;

pub const ORIGIN: &str = "https://api.example";

/// What is answered to the body of a request: a status and a body.
pub type Play = Box<dyn FnMut(&str) -> (u16, String) + Send>;

/// An authorization server. It keeps what it was asked.
#[derive(Clone)]
pub struct Played {
    at: String,
    pub asked: Arc<Mutex<Vec<String>>>,
    play: Arc<Mutex<Play>>,
}

impl Played {
    pub fn new(play: impl FnMut(&str) -> (u16, String) + Send + 'static) -> Played {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = format!("http://{}", listener.local_addr().unwrap());
        let played = Played { at, asked: Arc::default(), play: Arc::new(Mutex::new(Box::new(play))) };
        let server = played.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                std::thread::spawn(move || server.answer(stream));
            }
        });
        played
    }

    fn answer(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) < 3 {
                break;
            }
            if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = n.trim().parse().unwrap();
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        let _ = reader.read_exact(&mut body);
        let body = String::from_utf8(body).unwrap();
        self.asked.lock().unwrap().push(format!("{head}\n{body}"));
        let (status, text) = (self.play.lock().unwrap())(&body);
        let more = if status == 302 { "Location: /elsewhere\r\n" } else { "" };
        let _ = write!(
            reader.get_mut(),
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{more}Content-Length: {}\r\nConnection: close\r\n\r\n{text}",
            text.len()
        );
    }

    pub fn play(&self, play: impl FnMut(&str) -> (u16, String) + Send + 'static) {
        *self.play.lock().unwrap() = Box::new(play);
    }

    pub fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    pub fn client(&self) -> Client {
        Client {
            endpoints: Endpoints::Given {
                issuer: Some("https://as.example".into()),
                authorize: Some("https://as.example/authorize".into()),
                token: format!("{}/token", self.at),
            },
            id: "client".into(),
            secret: None,
            scopes: vec!["read".into()],
            flow: Flow::Code,
            resource: Some("https://api.example/v1".into()),
            audience: None,
            auth: None,
        }
    }
}

/// Each refresh token works once, and gives the next pair.
pub fn rotating() -> impl FnMut(&str) -> (u16, String) + Send + 'static {
    let mut next = 1;
    move |body| {
        if body.contains(&format!("refresh_token=refresh{next}")) {
            next += 1;
            let answer = format!(
                r#"{{"access_token":"access{next}","refresh_token":"refresh{next}","token_type":"Bearer","expires_in":3600}}"#
            );
            std::thread::sleep(Duration::from_millis(100));
            (200, answer)
        } else {
            (400, r#"{"error":"invalid_grant","error_description":"SECRET refresh1 SECRET"}"#.into())
        }
    }
}

pub struct Stage {
    _home: tempfile::TempDir,
    pub store: Store,
    pub played: Played,
    pub client: Client,
}

pub fn secret(n: u32) -> Secret {
    Secret {
        access: Some(Zeroizing::new(format!("access{n}"))),
        refresh: Some(Zeroizing::new(format!("refresh{n}"))),
        ..Secret::default()
    }
}

impl Stage {
    /// With tokens that end in so many seconds.
    pub fn new(ends_in: i64, play: impl FnMut(&str) -> (u16, String) + Send + 'static) -> Stage {
        let home = tempfile::tempdir().unwrap();
        let store = Store::at(home.path().join("credentials"));
        let played = Played::new(play);
        let stage = Stage { _home: home, store, client: played.client(), played };
        stage.connect("m1", ends_in, secret(1));
        stage
    }

    pub fn connect(&self, mark: &str, ends_in: i64, secret: Secret) {
        let about = About {
            account: "a".into(),
            mode: "sandbox".into(),
            kind: "oauth".into(),
            origins: vec![ORIGIN.into()],
            issuer: Some(self.client.endpoints.identity().to_owned()),
            client: Some("client".into()),
            mark: mark.into(),
            since: unix_now() - 1000,
            renewed: None,
            expires: Some(unix_now() + ends_in),
            renewable: secret.refresh.is_some(),
            scopes: vec![],
            refused: None,
        };
        self.store.connect(about, &secret, KeyAt::File).unwrap();
    }

    pub fn live(&self) -> Live {
        Live::new(Ok(self.store.clone()))
    }

    pub fn wanted(&self) -> Wanted<'_> {
        Wanted { account: "a", mode: "sandbox", origin: ORIGIN, kind: "oauth", client: Some(&self.client) }
    }

    pub fn kept(&self) -> (About, Secret) {
        let listing = self.store.look().unwrap().unwrap();
        let entry = &listing.entries[0];
        (entry.about.clone(), self.store.open(&listing, entry).unwrap())
    }
}
