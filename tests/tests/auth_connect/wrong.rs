//! Answers of an authorization server, and of its token endpoint, that connect nobody.

use super::authority::{Sent, Tokens};

pub type Parameters = Vec<(&'static str, String)>;

/// The right answer, with this issuer.
pub fn answer(sent: &Sent, issuer: Option<&str>) -> Parameters {
    let mut all = vec![("code", sent.code.clone()), ("state", sent.state.clone())];
    all.extend(issuer.map(|i| ("iss", i.to_owned())));
    all
}

/// One of them.
pub struct Wrong {
    pub name: &'static str,
    pub tokens: Tokens,
    /// What the browser brings, of whoever was sent to which issuer.
    pub back: fn(&Sent, &str) -> Parameters,
    /// The server said no, in the protocol's words.
    pub is_refusal: bool,
    /// What is said of it.
    pub why: &'static str,
}

impl Wrong {
    /// The browser brings something else.
    fn back(name: &'static str, back: fn(&Sent, &str) -> Parameters, why: &'static str) -> Wrong {
        Wrong { name, tokens: Tokens::Right, back, is_refusal: false, why }
    }

    /// The token endpoint answers something else.
    pub fn tokens(name: &'static str, status: u16, body: &str, why: &'static str) -> Wrong {
        let tokens = Tokens::Instead(status, body.to_owned());
        Wrong { name, tokens, back: |s, i| answer(s, Some(i)), is_refusal: false, why }
    }

    /// The token endpoint says no.
    pub fn refused(name: &'static str, status: u16, body: &str, why: &'static str) -> Wrong {
        Wrong { is_refusal: true, ..Wrong::tokens(name, status, body, why) }
    }
}

/// With this error, of this issuer.
fn error(sent: &Sent, error: &str, issuer: &str) -> Parameters {
    vec![("error", error.into()), ("state", sent.state.clone()), ("iss", issuer.into())]
}

/// All that are wrong wherever they arrive.
pub fn all() -> Vec<Wrong> {
    let no = |wrong: Wrong| Wrong { is_refusal: true, ..wrong };
    let mac = r#"{"access_token":"CANARY-mac","token_type":"mac"}"#;
    vec![
        Wrong::back("another issuer", |s, _| answer(s, Some("https://evil.example")), "mix-up"),
        Wrong::back("no issuer", |s, _| answer(s, None), "does not name its issuer"),
        no(Wrong::back("an error", |s, i| error(s, "access_denied", i), "access_denied")),
        no(Wrong::back("an error of its own", |s, i| error(s, "CANARY-error", i), "an error of its own")),
        Wrong::back("an error of another issuer", |s, _| error(s, "access_denied", "https://e"), "mix-up"),
        Wrong::back("no code", |s, i| answer(s, Some(i)).split_off(1), "no code"),
        Wrong::back(
            "a parameter twice",
            |s, i| [answer(s, Some(i)), vec![("code", "another".into())]].concat(),
            "twice",
        ),
        no(Wrong::back(
            "a code of another, or one that was used",
            |s, i| {
                let mut all = answer(s, Some(i));
                all[0].1 = "CANARY-code-used".into();
                all
            },
            "invalid_grant",
        )),
        Wrong::tokens("500", 500, "<h1>CANARY</h1>", "answered 500"),
        Wrong::tokens("huge", 200, &"C".repeat(400 << 10), "256 KiB"),
        Wrong::tokens("another kind of token", 200, mac, "not a bearer token"),
    ]
}
