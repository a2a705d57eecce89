//! A person at a browser that keeps cookies, who is sent to an authorization server and comes back.

use super::authority::{Authority, Sent};
use super::browser::Browser;
use anyhow::{Context, Result, ensure};
use counterfoil_tests::http::Reply;
use std::collections::BTreeMap;
use std::net::SocketAddr;

#[derive(Clone, Default)]
pub struct Person {
    /// What the person calls the gateway with.
    pub key: String,
    cookies: BTreeMap<String, String>,
    /// Where the last authorization server led back to.
    pub callback: Option<String>,
}

impl Person {
    pub fn with(key: &str) -> Person {
        Person { key: key.to_owned(), ..Person::default() }
    }

    /// The same person, who comes back at another place.
    pub fn elsewhere(&self, place: &str) -> Person {
        Person { callback: Some(place.to_owned()), ..self.clone() }
    }

    fn cookie(&self) -> String {
        self.cookies.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join("; ")
    }

    fn keep(&mut self, reply: &Reply) {
        for (_, line) in reply.headers.iter().filter(|(name, _)| name == "set-cookie") {
            let Some((name, value)) = line.split(';').next().and_then(|pair| pair.split_once('=')) else {
                continue;
            };
            if line.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
    }

    /// Proves at the page to be who was asked.
    pub fn prove(&mut self, at: SocketAddr, link: &str) -> Result<Reply> {
        let body = format!("key={}", self.key);
        let reply =
            Browser::at(at).send(link, &[("Origin", "null"), ("Sec-Fetch-Site", "same-origin")], &body)?;
        self.keep(&reply);
        Ok(reply)
    }

    /// The same, sent on and consenting.
    pub fn consent(&mut self, at: SocketAddr, link: &str, authority: &Authority) -> Result<Sent> {
        let reply = self.prove(at, link)?;
        ensure!(reply.status == 303, "{}: {}", reply.status, reply.text());
        for (name, value) in [("cache-control", "no-store"), ("referrer-policy", "no-referrer")] {
            ensure!(reply.header(name) == Some(value), "{name}: {:?}", reply.headers);
        }
        let sent = authority.consent(reply.header("location").context("no address")?)?;
        let redirect = url::Url::parse(&sent.parameters["redirect_uri"])?;
        self.callback = Some(redirect.path().to_owned());
        Ok(sent)
    }

    /// Comes back with these parameters.
    pub fn back(&mut self, at: SocketAddr, parameters: &[(&str, &str)]) -> Result<Reply> {
        let query: String =
            url::form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        self.back_by(at, "GET", &query)
    }

    pub fn back_by(&mut self, at: SocketAddr, method: &str, query: &str) -> Result<Reply> {
        let cookie = self.cookie();
        let headers = [("Sec-Fetch-Site", "cross-site"), ("Cookie", cookie.as_str())];
        let path = self.callback.as_deref().unwrap_or("/connect/callback/0123456789abcdef");
        let reply = Browser::at(at).exchange(method, &format!("{path}?{query}"), &headers, "")?;
        self.keep(&reply);
        Ok(reply)
    }

    /// All of it, as it should be.
    pub fn connect(&mut self, at: SocketAddr, link: &str, authority: &Authority) -> Result<()> {
        let before = self.cookies.clone();
        let sent = self.consent(at, link, authority)?;
        let page = self.back(at, &sent.right(&authority.issuer()))?;
        ensure!(
            page.status == 200 && page.text().contains("is connected"),
            "{}: {}",
            page.status,
            page.text()
        );
        ensure!(self.cookies == before, "a cookie is left: {:?}", self.cookies);
        Ok(())
    }
}
