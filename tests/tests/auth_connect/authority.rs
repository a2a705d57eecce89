//! An authorization server and the provider that takes its tokens, played: strict where a real one is, and wrong on demand.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use counterfoil_tests::http::{self, Reply};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;
use url::Url;

pub const CLIENT_SECRET: &str = "CANARY:client+secret/7d2e";

/// What the token endpoint does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tokens {
    #[default]
    Right,
    /// Answers this instead.
    Instead(u16, String),
}

/// What the provider does with the next change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    ApplyThenCut,
    /// And from then on it takes none of the tokens that were given.
    ApplyThenRevoke,
    Answer500,
}

pub struct State {
    pub tokens: Tokens,
    /// Its answers name it, and it says so.
    pub names_itself: bool,
    /// The ways by which a client may show its secret: what it tells of them, and takes. `None`: it tells nothing, and takes
    /// what RFC 8414 says of that.
    pub ways: Option<Vec<&'static str>>,
    /// By which way each request for tokens came.
    pub shown: Vec<&'static str>,
    /// How often it was asked what it is.
    pub told: usize,
    /// How long access tokens live, in seconds.
    pub life: u64,
    pub faults: Vec<Fault>,
    codes: HashMap<String, (String, String)>,
    refresh: HashSet<String>,
    access: HashSet<String>,
    n: u32,
    pub refreshes: usize,
    /// A refresh token came twice.
    pub reused: usize,
    /// `Authorization` and key of each change.
    pub heard: Vec<(String, String)>,
    /// Effects by key.
    pub effects: HashMap<String, usize>,
    /// A credential that is no token, and is taken: the whole of its header.
    pub taken: HashSet<String>,
    /// Client, if it has to show a secret.
    pub confidential: bool,
    /// The provider repeats what it was sent in all its answers, the credential too.
    pub echoes: bool,
}

#[derive(Clone)]
pub struct Authority {
    pub addr: SocketAddr,
    state: Arc<Mutex<State>>,
}

/// Where a browser was sent.
pub struct Sent {
    pub redirect: SocketAddr,
    pub state: String,
    pub code: String,
    pub parameters: HashMap<String, String>,
}

struct Asked {
    verb: String,
    path: String,
    headers: String,
    body: Vec<u8>,
}

impl Asked {
    fn read(reader: &mut BufReader<TcpStream>) -> Option<Asked> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let mut first = head.split_whitespace();
        let (verb, path) = (first.next()?.to_owned(), first.next()?.to_owned());
        let mut asked = Asked { verb, path, headers: head, body: Vec::new() };
        let length = asked.header("content-length").parse().unwrap_or(0);
        asked.body = vec![0; length];
        reader.read_exact(&mut asked.body).ok()?;
        Some(asked)
    }

    fn header(&self, name: &str) -> String {
        let named = |l: &&str| l.to_ascii_lowercase().starts_with(&format!("{name}:"));
        let line = self.headers.lines().find(named);
        line.and_then(|l| l.split_once(':')).map(|(_, v)| v.trim().to_owned()).unwrap_or_default()
    }

    /// What it was authenticated with.
    fn credential(&self) -> String {
        let query = self.path.split_once('?').map_or("", |(_, query)| query);
        let in_query = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "api key");
        let all = [self.header("x-api-key"), self.header("authorization")];
        let mut all = all.into_iter().chain(in_query.map(|(_, value)| value.into_owned()));
        all.find(|given| !given.is_empty()).unwrap_or_default()
    }

    /// What a careless provider tells of a request.
    fn echo(&self) -> Value {
        let credential = self.credential();
        let pair = credential.strip_prefix("Basic ").map(|pair| {
            let bytes = base64::engine::general_purpose::STANDARD.decode(pair).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let link: String = url::form_urlencoded::byte_serialize(credential.as_bytes()).collect();
        json!({
            "message": format!("{} {} with {credential}", self.verb, self.path),
            "user": pair,
            "head": self.headers,
            "next": format!("/v1/things?key={link}"),
            "html": format!("<b>{}</b>", credential.replace('+', "&#43;").replace('/', "&#x2F;")),
        })
    }

    fn form(&self) -> HashMap<String, String> {
        url::form_urlencoded::parse(&self.body).into_owned().collect()
    }
}

impl Authority {
    pub fn start() -> Result<Authority> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let state = State {
            tokens: Tokens::Right,
            names_itself: true,
            ways: None,
            shown: Vec::new(),
            told: 0,
            life: 3600,
            faults: Vec::new(),
            codes: HashMap::new(),
            refresh: HashSet::new(),
            access: HashSet::new(),
            n: 0,
            refreshes: 0,
            reused: 0,
            heard: Vec::new(),
            effects: HashMap::new(),
            taken: HashSet::new(),
            confidential: false,
            echoes: false,
        };
        let authority = Authority { addr: listener.local_addr()?, state: Arc::new(Mutex::new(state)) };
        let server = authority.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = server.clone();
                thread::spawn(move || server.serve(stream));
            }
        });
        Ok(authority)
    }

    pub fn issuer(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// No access token that it gave is taken any more.
    pub fn revoke_access(&self) {
        self.state().access.clear();
    }

    /// No refresh token, either.
    pub fn revoke_all(&self) {
        let mut state = self.state();
        state.access.clear();
        state.refresh.clear();
    }

    /// A person who opens the page and says yes.
    pub fn consent(&self, page: &str) -> Result<Sent> {
        let page = Url::parse(page)?;
        ensure!(
            page.origin().ascii_serialization() == self.issuer() && page.path().ends_with("/authorize"),
            "{page}"
        );
        let parameters: HashMap<String, String> = page.query_pairs().into_owned().collect();
        let of = |name: &str| parameters.get(name).cloned().with_context(|| format!("no {name} in {page}"));
        ensure!(of("response_type")? == "code" && of("code_challenge_method")? == "S256", "{page}");
        let redirect = Url::parse(&of("redirect_uri")?)?;
        ensure!(
            redirect.host_str() == Some("127.0.0.1") && redirect.path().contains("/callback"),
            "{redirect}"
        );
        let mut state = self.state();
        state.n += 1;
        let code = format!("CANARY-code-{}", state.n);
        state.codes.insert(code.clone(), (of("code_challenge")?, of("redirect_uri")?));
        let port = redirect.port().context("no port")?;
        Ok(Sent { redirect: ([127, 0, 0, 1], port).into(), state: of("state")?, code, parameters })
    }

    fn serve(&self, stream: TcpStream) -> Option<()> {
        let mut writer = stream.try_clone().ok()?;
        let mut reader = BufReader::new(stream);
        loop {
            let asked = Asked::read(&mut reader)?;
            let (status, body) = match (asked.verb.as_str(), asked.path.as_str()) {
                ("GET", "/.well-known/oauth-authorization-server") => (200, self.metadata().to_string()),
                ("POST", "/token" | "/elsewhere/token") => self.token(&asked),
                (verb, path) if path.starts_with("/v1/things") => self.provider(verb, &asked)?,
                _ => (404, "{}".into()),
            };
            let echo = match self.state().echoes {
                true => format!("X-Asked: {}\r\n", asked.credential()),
                false => String::new(),
            };
            let head = format!(
                "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{echo}Content-Length: {}\r\n\r\n",
                body.len()
            );
            writer.write_all(head.as_bytes()).ok()?;
            writer.write_all(body.as_bytes()).ok()?;
        }
    }

    fn metadata(&self) -> Value {
        let issuer = self.issuer();
        let mut state = self.state();
        state.told += 1;
        let mut all = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": state.names_itself,
        });
        if let Some(ways) = &state.ways {
            all["token_endpoint_auth_methods_supported"] = json!(ways);
        }
        all
    }

    fn token(&self, asked: &Asked) -> (u16, String) {
        let no = |status: u16, word: &str| {
            // What a careless server says besides.
            let said = String::from_utf8_lossy(&asked.body).into_owned();
            (status, json!({ "error": word, "error_description": said }).to_string())
        };
        let mut state = self.state();
        if let Tokens::Instead(status, body) = &state.tokens {
            return (*status, body.clone());
        }
        let form = asked.form();
        let of = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
        let way = match (asked.header("authorization").as_str(), of("client_secret")) {
            ("", "") => "none",
            ("", _) => "client_secret_post",
            (_, "") => "client_secret_basic",
            // RFC 6749, section 2.3.
            _ => return no(400, "invalid_request"),
        };
        state.shown.push(way);
        let right = match way {
            "client_secret_basic" => {
                let encoded: String =
                    url::form_urlencoded::byte_serialize(CLIENT_SECRET.as_bytes()).collect();
                let both = base64::engine::general_purpose::STANDARD.encode(format!("the-client:{encoded}"));
                asked.header("authorization") == format!("Basic {both}")
            }
            "client_secret_post" => (of("client_id"), of("client_secret")) == ("the-client", CLIENT_SECRET),
            _ => !state.confidential && of("client_id") == "the-client",
        };
        let taken = match &state.ways {
            Some(ways) => ways.contains(&way),
            None => way != "client_secret_post",
        };
        if !right || !taken {
            return no(401, "invalid_client");
        }
        match of("grant_type") {
            "authorization_code" => {
                let Some((challenge, redirect)) = state.codes.remove(of("code")) else {
                    return no(400, "invalid_grant");
                };
                let proof = URL_SAFE_NO_PAD.encode(Sha256::digest(of("code_verifier")));
                if proof != challenge || of("redirect_uri") != redirect {
                    return no(400, "invalid_grant");
                }
            }
            "refresh_token" => {
                let token = of("refresh_token");
                if !state.refresh.remove(token) {
                    state.reused += 1;
                    return no(400, "invalid_grant");
                }
                state.refreshes += 1;
            }
            "client_credentials" if state.confidential => {}
            _ => return no(400, "unsupported_grant_type"),
        }
        state.n += 1;
        let n = state.n;
        let (access, refresh) = (format!("CANARY-access-{n}"), format!("CANARY-refresh-{n}"));
        state.access.insert(access.clone());
        let mut answer = json!({
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": state.life,
            "scope": "things.read things.write",
        });
        if of("grant_type") != "client_credentials" {
            state.refresh.insert(refresh.clone());
            answer["refresh_token"] = json!(refresh);
        }
        (200, answer.to_string())
    }

    /// `None`: the connection is cut.
    fn provider(&self, verb: &str, asked: &Asked) -> Option<(u16, String)> {
        let (status, body) = self.done(verb, asked)?;
        if !self.state().echoes {
            return Some((status, body));
        }
        let mut all: Value = serde_json::from_str(&body).ok()?;
        all["asked"] = json!(asked.echo());
        // As some write it in JSON.
        let escaped = asked.credential().replace('/', "\\/").replace('+', "\\u002B");
        let body = all.to_string();
        Some((status, format!("{},\"escaped\":\"{escaped}\"}}", body.strip_suffix('}')?)))
    }

    fn done(&self, verb: &str, asked: &Asked) -> Option<(u16, String)> {
        let mut state = self.state();
        let auth = asked.credential();
        let token = auth.strip_prefix("Bearer ").unwrap_or_default().to_owned();
        if verb == "POST" {
            state.heard.push((auth.clone(), asked.header("idempotency-key")));
        }
        if !state.access.contains(&token) && !state.taken.contains(&auth) {
            return Some((401, json!({ "error": { "code": "unauthorized" } }).to_string()));
        }
        if verb == "GET" {
            return Some((200, json!({ "data": [] }).to_string()));
        }
        let key = asked.header("idempotency-key");
        let fault = state.faults.pop();
        if fault == Some(Fault::Answer500) {
            return Some((500, "{}".into()));
        }
        // The second of a key is the first again.
        state.effects.entry(key.clone()).or_insert(1);
        if fault == Some(Fault::ApplyThenRevoke) {
            state.access.clear();
            state.refresh.clear();
        }
        if fault.is_some() {
            return None;
        }
        Some((200, json!({ "id": format!("thing-{key}") }).to_string()))
    }
}

impl Sent {
    /// The browser comes back with these parameters.
    pub fn back(&self, parameters: &[(&str, &str)]) -> Result<Reply> {
        let query: String =
            url::form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        self.get(&format!("/callback?{query}"), &self.redirect.to_string())
    }

    /// Something is asked of the place where it comes back.
    pub fn get(&self, path: &str, host: &str) -> Result<Reply> {
        let request = http::request("GET", path, &[("Host", host), ("Connection", "close")], b"");
        Ok(http::once(self.redirect, Duration::from_secs(20), &request)?)
    }

    /// What a right server sends it back with.
    pub fn right<'a>(&'a self, issuer: &'a str) -> [(&'static str, &'a str); 3] {
        [("code", &self.code), ("state", &self.state), ("iss", issuer)]
    }
}
