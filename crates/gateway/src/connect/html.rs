//! The pages, without script and without anything from elsewhere.

use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use provider::OwnAccount;
use sha2::{Digest as _, Sha256};
use std::sync::LazyLock;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:34em;margin:3em auto;padding:0 1em;color:#1c1c1c;background:#fff}\
h1{font-size:1.4em}dt{font-weight:600;margin-top:.6em}dd{margin:0}label{display:block;margin:1em 0 .2em;font-weight:600}\
input{font:inherit;width:100%;box-sizing:border-box;padding:.4em}button{font:inherit;margin-top:1.2em;padding:.5em 1.2em}\
.note{color:#555}.wrong{color:#a40000}";

/// Nothing is loaded, run, framed or sent elsewhere; the style is known by its hash.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| policy("'self'"));

fn policy(forms: &str) -> HeaderValue {
    let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; form-action {forms}; frame-ancestors 'none'; base-uri 'none'"
    );
    HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
}

/// What a person is shown before giving a secret.
pub(super) struct Shown<'a> {
    pub server: &'a str,
    pub account: &'a OwnAccount,
    pub principal: &'a str,
    pub tool: &'a str,
    pub purpose: &'a str,
    /// The page asks for the principal's key.
    pub asks_key: bool,
    /// What was wrong the last time.
    pub wrong: Option<&'static str>,
}

/// Text as HTML shows it, in elements and in quoted attributes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

fn page(status: StatusCode, title: &str, body: &str) -> Response {
    let text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n{body}\n</body></html>\n"
    );
    let mut headers = HeaderMap::new();
    let mut set = |name, value| drop(headers.insert(name, HeaderValue::from_static(value)));
    set(header::CONTENT_TYPE, "text/html; charset=utf-8");
    set(header::CACHE_CONTROL, "no-store");
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    (status, headers, text).into_response()
}

/// The form.
pub(super) fn form(status: StatusCode, shown: &Shown<'_>) -> Response {
    let provider = escaped(&shown.account.provider);
    let origin = escaped(&shown.account.origin);
    let principal = escaped(shown.principal);
    let wrong = shown.wrong.map(|w| format!("<p class=\"wrong\">{w}</p>\n")).unwrap_or_default();
    let key = if shown.asks_key {
        format!(
            "<label for=\"key\">The key with which {principal} calls this server (<code>cfk_…</code>), as proof that you are {principal}</label>\n\
             <input id=\"key\" name=\"key\" type=\"password\" autocomplete=\"off\" required maxlength=\"256\">\n"
        )
    } else {
        String::new()
    };
    let wanted = escaped(&shown.account.wanted());
    // Of OAuth the page takes nothing: it leads on.
    let leads_to = shown.account.leads_to();
    let (what, way, act) = match &leads_to {
        None => (
            wanted.clone(),
            format!(
                "<label for=\"secret\">{wanted}</label>\n\
                 <input id=\"secret\" name=\"secret\" type=\"password\" autocomplete=\"off\" required maxlength=\"4096\">\n"
            ),
            "Store it".to_owned(),
        ),
        Some((place, client)) => (
            format!(
                "Tokens that {} gives this server (its client {}) with your consent",
                escaped(place),
                escaped(client)
            ),
            String::new(),
            format!("Continue to {}", escaped(place)),
        ),
    };
    let body = format!(
        "<p>A call of <code>{tool}</code> waits for it. Go on only if you made that call: what you give here is used for the calls of \
         <strong>{principal}</strong>, and for nobody else's.</p>\n{wrong}\
         <dl><dt>Server</dt><dd>{server}</dd><dt>Provider</dt><dd>{provider}, {origin} ({mode})</dd>\
         <dt>What the call does</dt><dd>{purpose}</dd><dt>For whom</dt><dd>{principal}</dd>\
         <dt>What is stored</dt><dd>{what}, encrypted, in this server's ledger. It is sent to {origin} with the calls of {principal}, \
         and shown to nobody: no client, no model, no log. An operator of this server can have it forgotten.</dd></dl>\n\
         <form method=\"post\" autocomplete=\"off\">\n{key}\
         {way}<button type=\"submit\">{act}</button>\n</form>",
        tool = escaped(shown.tool),
        server = escaped(shown.server),
        mode = shown.account.mode,
        purpose = escaped(shown.purpose),
    );
    let mut response = page(status, &format!("Connect {provider}"), &body);
    if let Some((place, _)) = leads_to {
        // The answer to the form leads to the authorization server, and that one perhaps to others.
        let forms = if place.starts_with("http:") { "'self' https: http:" } else { "'self' https:" };
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy(forms));
    }
    response
}

/// On to the authorization server.
pub(super) fn onward(url: &str, cookie: &str) -> Option<Response> {
    let mut headers = HeaderMap::new();
    headers.insert(header::LOCATION, HeaderValue::try_from(url).ok()?);
    headers.insert(header::SET_COOKIE, HeaderValue::try_from(cookie).ok()?);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Some((StatusCode::SEE_OTHER, headers).into_response())
}

/// The person came back, and there is nothing to store. The link is as good as it was.
pub(super) fn not_connected(account: &OwnAccount, why: &str, token: &str) -> Response {
    let provider = escaped(&account.provider);
    let body = format!(
        "<p>What happened: {}.</p><p>Nothing was stored. To try again, <a href=\"{}\">go back to the beginning</a>; if that page is not valid any \
         more, make the call again: its answer has a new link.</p>",
        escaped(why),
        escaped(token),
    );
    page(StatusCode::BAD_REQUEST, &format!("{provider} is not connected"), &body)
}

/// It is stored.
pub(super) fn done(account: &OwnAccount) -> Response {
    let title = format!("{} is connected", escaped(&account.provider));
    page(
        StatusCode::OK,
        &title,
        "<p>You can close this page. The call that waited goes on, or can be made again.</p>",
    )
}

/// Unknown, expired, used or somebody else's: nobody is told which.
pub(super) fn gone() -> Response {
    page(
        StatusCode::NOT_FOUND,
        "This link is not valid",
        "<p>It is not, or no longer, good for anything, and nothing was stored. Make the call again: its answer has a new link.</p>",
    )
}

/// Nothing was stored, and the same page can be tried again.
pub(super) fn later(status: StatusCode, why: &str) -> Response {
    let mut response = page(status, "Not now", &format!("<p>{}</p>", escaped(why)));
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

/// It did not come from the page.
pub(super) fn refused(status: StatusCode, why: &'static str) -> Response {
    page(status, "Refused", &format!("<p>{why} Nothing was stored.</p>"))
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn nothing_leaves_its_place() {
        assert_eq!(escaped("<a href=\"x\" b='y'>&"), "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;");
    }
}
