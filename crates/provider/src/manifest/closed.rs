//! Integrations that reach nothing in sandbox mode. One address alone is production's, be it the provider's or that of its
//! authorization server: who serves in sandbox mode must not reach it by having said nothing.

use super::Mode;
use super::auth::Reach;
use super::parts::base_url;
use crate::parse::{ByMode, Text};
use std::fmt;

/// Where nothing is (RFC 6761, section 6.4): not even a mistake of ours could be answered.
const NOWHERE: &str = "https://no-sandbox-host.invalid";

/// Why none of an integration's methods can be called in this mode. As a text it is the answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    why: &'static str,
    field: &'static str,
}

impl Closed {
    /// What is so of it: "it …".
    #[must_use]
    pub fn why(&self) -> &str {
        self.why
    }

    /// What an operator can do.
    #[must_use]
    pub fn mend(&self) -> String {
        let Closed { field, .. } = self;
        let place = if *field == "base_url" { "" } else { " in [auth]" };
        format!(
            "add {field} = {{ sandbox = \"https://…\", production = \"https://…\" }}{place}, or serve in production mode"
        )
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "nothing was sent: this server is in sandbox mode, and this integration {}; an operator can {}",
            self.why,
            self.mend()
        )
    }
}

fn is_loopback(url: &str) -> bool {
    url::Url::parse(url).is_ok_and(|url| credentials::is_loopback(&url))
}

/// Whether it is production's by being the only one.
fn is_one_for_both(by: &ByMode<Text>) -> bool {
    by.one && by.sandbox.as_ref().is_some_and(|url| !is_loopback(&url.0))
}

/// Where requests go in a mode, and why none does, if so.
pub(super) fn base_in(by: &ByMode<Text>, mode: Mode) -> Result<(String, Option<Closed>), String> {
    if mode == Mode::Production {
        let base = by.production.as_ref();
        let base = base.ok_or("there is no base_url for production; add `production = \"https://…\"`")?;
        return Ok((base_url(&base.0)?, None));
    }
    let closed = |why| Ok((NOWHERE.to_owned(), Some(Closed { why, field: "base_url" })));
    match &by.sandbox {
        None => closed("has no sandbox host"),
        Some(_) if is_one_for_both(by) => {
            closed("has one address for both modes, which counts as production's")
        }
        Some(base) => Ok((base_url(&base.0)?, None)),
    }
}

/// Why no authorization server may be asked in a mode, if so: of its addresses, by their fields.
pub(super) fn servers_in(
    given: &[(&'static str, Option<&ByMode<Text>>)],
    mode: Mode,
    reach: Reach,
) -> Option<Closed> {
    if mode == Mode::Production {
        return None;
    }
    let given = || given.iter().filter_map(|(field, by)| Some((*field, (*by)?)));
    let is_one = |by| reach != Reach::SandboxAlone && is_one_for_both(by);
    if let Some((field, _)) = given().find(|(_, by)| is_one(by)) {
        let why = "has one authorization server for both modes, which counts as production's";
        return Some(Closed { why, field });
    }
    // One of several may be production's alone.
    let (field, _) = given().next().filter(|_| given().all(|(_, by)| by.sandbox.is_none()))?;
    Some(Closed { why: "has no authorization server for sandbox mode", field })
}
