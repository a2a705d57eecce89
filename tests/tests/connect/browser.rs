//! What a browser does with a link of the gateway: it shows the page, and sends its form.

use anyhow::{Context, Result};
use counterfoil_tests::http::{self, Reply};
use std::net::SocketAddr;
use std::time::Duration;

/// What a person enters.
#[derive(Clone, Copy)]
pub struct Form<'a> {
    pub key: &'a str,
    pub secret: &'a str,
}

impl Form<'_> {
    /// As a form is sent.
    pub fn body(&self) -> String {
        let encoded = |text: &str| text.bytes().map(|b| format!("%{b:02X}")).collect::<String>();
        format!("key={}&secret={}", encoded(self.key), encoded(self.secret))
    }
}

/// A browser that finds all servers at one address.
#[derive(Clone)]
pub struct Browser {
    at: SocketAddr,
}

impl Browser {
    pub fn at(at: SocketAddr) -> Browser {
        Browser { at }
    }

    pub fn exchange(&self, method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> Result<Reply> {
        let path = url.find("/connect/").map(|i| &url[i..]).context("the page's path")?;
        let host = self.at.to_string();
        let mut all = headers.to_vec();
        if !headers.iter().any(|(name, _)| *name == "Host") {
            all.push(("Host", &host));
        }
        let bytes = http::request(method, path, &all, body.as_bytes());
        Ok(http::once(self.at, Duration::from_secs(10), &bytes)?)
    }

    /// Follows a link.
    pub fn get(&self, url: &str) -> Result<Reply> {
        self.exchange("GET", url, &[("Sec-Fetch-Site", "none")], "")
    }

    /// Sends the form, as a browser does from a page without a referrer.
    pub fn post(&self, url: &str, form: &Form<'_>) -> Result<Reply> {
        self.send(url, &[("Origin", "null"), ("Sec-Fetch-Site", "same-origin")], &form.body())
    }

    /// Sends a form with these headers.
    pub fn send(&self, url: &str, headers: &[(&str, &str)], body: &str) -> Result<Reply> {
        let mut all = vec![("Content-Type", "application/x-www-form-urlencoded")];
        all.extend_from_slice(headers);
        self.exchange("POST", url, &all, body)
    }
}
