//! How the caller is asked for its credential: by URL elicitation where the client can, in words with the link where it can't.

use super::page::Link;
use super::{Connections, place, whose};
use crate::answers::random_name;
use crate::asks::Reading;
use crate::call::error_outcome;
use crate::catalog::Entry;
use crate::context::Context;
use crate::service::Shared;
use ledger::{CallError, Kind, Millis};
use mcp::Revision;
use mcp::error::RpcError;
use mcp::input::{self, InputRequest};
use mcp::json::Raw;
use mcp::server::{Exchange, Outcome};
use provider::{Own, OwnAccount, OwnCredentials as _};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The key of the question.
pub(crate) const KEY: &str = "credential";
/// How often it is looked whether the credential is there, while a call waits for it.
const LOOK: Duration = Duration::from_millis(500);
/// How much longer than the call waits a look may take, which may have to renew a token first.
const LATE: Duration = Duration::from_secs(10);

/// What a client said of the page that its user was to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Connecting {
    /// It was not asked yet.
    #[default]
    Unasked,
    /// The user goes there; that is no word of whether it is done (spec: client/elicitation, "URL Mode").
    Agreed,
    /// The user won't.
    Declined,
}

/// What was said. `before`: the question was put in an earlier round.
pub(crate) fn connecting(responses: &[(String, Raw)], before: bool) -> Connecting {
    match responses.iter().find(|(key, _)| key == KEY) {
        Some((_, said)) => {
            let action = said.object().and_then(|o| o.string("action").map(|a| a.into_owned()));
            if action.as_deref() == Some("accept") { Connecting::Agreed } else { Connecting::Declined }
        }
        None if before => Connecting::Agreed,
        None => Connecting::Unasked,
    }
}

/// The credential that a principal has for this account; where there is none, it is looked for during `most`.
///
/// # Errors
/// Why that can't be known now.
pub(crate) async fn wait(
    connections: &Connections,
    account: &OwnAccount,
    principal: &str,
    most: Millis,
    gone: impl Future<Output = ()>,
) -> Result<Option<Own>, String> {
    looked_for(|| async { connections.find(&whose(account, principal), account.client()?).await }, most, gone)
        .await
}

/// No look, and no caller that is gone, is waited for beyond its time.
async fn looked_for<T, F: Future<Output = Result<Option<T>, String>>>(
    look: impl Fn() -> F,
    most: Millis,
    gone: impl Future<Output = ()>,
) -> Result<Option<T>, String> {
    let until = Instant::now() + most.duration();
    let last = until + LATE;
    tokio::pin!(gone);
    loop {
        let found = tokio::select! {
            found = timeout_at(last, look()) => found.map_err(|_| "that takes too long".to_owned())??,
            () = &mut gone => return Ok(None),
        };
        if found.is_some() || Instant::now() >= until {
            return Ok(found);
        }
        tokio::select! {
            () = tokio::time::sleep_until(until.min(Instant::now() + LOOK)) => {}
            () = &mut gone => return Ok(None),
        }
    }
}

/// What is to be said to a caller that has to give a credential first.
pub(crate) struct Required {
    message: String,
    /// The page and its name, if one is served.
    page: Option<(String, String)>,
    provider: String,
}

/// Makes a link for this caller.
pub(crate) async fn required(
    shared: &Shared,
    account: &OwnAccount,
    principal: &str,
    entry: &Entry,
) -> Required {
    let link = Link {
        principal: principal.to_owned(),
        tool: entry.spec.canonical.to_string(),
        place: place(&whose(account, principal)),
        nonce: random_name(),
    };
    let page = match shared.connections.base() {
        Some(base) => link.seal(shared).await.map(|token| (format!("{base}/connect/{token}"), link.nonce)),
        None => None,
    };
    let message = format!(
        "{} calls {} ({}) for you and needs your own credential for it. Open this page of the server to give it. It stays \
         with the server: neither this client nor a model sees it.",
        shared.settings.name, account.provider, account.origin
    );
    Required { message, page, provider: account.provider.clone() }
}

impl Required {
    /// The question, if this client can be asked it.
    pub fn question(&self, exchange: &Exchange) -> Option<InputRequest> {
        let revision = exchange.caller.revision;
        let (url, _) = self.page.as_ref()?;
        let request = InputRequest::page(KEY, &self.message, url).ok()?;
        input::check([&request], exchange.meta.client_capabilities(), revision).ok()?;
        Some(request)
    }

    /// What a legacy client that opens pages is told: the very same request can be made again afterwards.
    pub fn legacy(&self, exchange: &Exchange) -> Option<RpcError> {
        let revision = exchange.caller.revision;
        if !revision.is_legacy() || revision < Revision::V2025_11_25 {
            return None;
        }
        self.question(exchange)?;
        let (url, id) = self.page.as_ref()?;
        Some(RpcError::url_required(id, &self.message, url))
    }

    /// The same in words.
    pub fn error(&self) -> CallError {
        let sentence = format!(
            "This tool acts under a credential of the caller's own for {}, and there is none yet, so nothing ran.",
            self.provider
        );
        let advice = match &self.page {
            Some((url, _)) => format!(
                "Show the user this link, where the credential is given without passing through here: {url} Then call again with the same arguments."
            ),
            None => "No page to give it at is served here: an operator has to run `counterfoil serve` with an address that people can open.".to_owned(),
        };
        CallError::plain(Kind::CredentialRequired, sentence, advice)
    }
}

/// What a reading call is answered whose caller has no credential; `None`: it has one.
pub(crate) async fn before_read(
    shared: &Shared,
    exchange: &Exchange,
    entry: &Entry,
    account: &OwnAccount,
    reading: &Reading<'_>,
    context: &Context,
) -> Option<Outcome> {
    let said = connecting(reading.brought(), false);
    let most = if said == Connecting::Agreed { entry.settings.wait } else { Millis(0) };
    match wait(&shared.connections, account, &context.principal, most, context.gone()).await {
        Ok(Some(_)) => return None,
        Ok(None) => {}
        Err(why) => {
            tracing::warn!(%why, "the credential of a principal can't be read");
            return Some(error_outcome(shared, exchange, &unreadable(), Some(entry)));
        }
    }
    let required = required(shared, account, &context.principal, entry).await;
    if let Some(e) = required.legacy(exchange) {
        return Some(e.into());
    }
    if let Some(question) = required.question(exchange).filter(|_| said == Connecting::Unasked)
        && !exchange.caller.revision.is_legacy()
    {
        // It can't be answered in this round: the request ends with it.
        let _ = context.ask(&[question]).await;
        if let Some(asked) = reading.end(false).await {
            return Some(asked);
        }
    }
    Some(error_outcome(shared, exchange, &required.error(), Some(entry)))
}

/// What is said while it can't be known whether there is one.
pub(crate) fn unreadable() -> CallError {
    CallError {
        retry_after: Some(Millis::secs(1)),
        ..CallError::plain(
            Kind::Unavailable,
            "The credential that this tool acts under can't be read at the moment, so nothing ran.",
            "Call again a little later; it is safe.",
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[tokio::test(start_paused = true)]
    async fn a_look_that_does_not_end_holds_nobody() {
        let begin = Instant::now();
        let gone = tokio::time::sleep(Duration::from_secs(3));
        assert_eq!(looked_for(pending::<Result<Option<()>, String>>, Millis::secs(60), gone).await, Ok(None));
        assert_eq!(begin.elapsed().as_secs(), 3);
        let looked = looked_for(pending::<Result<Option<()>, String>>, Millis::secs(5), pending()).await;
        assert!(looked.unwrap_err().contains("too long"));
        assert_eq!(begin.elapsed().as_secs(), 3 + 5 + 10);
        // What is there is found at once, and what is not within the time.
        assert_eq!(looked_for(|| ready(Ok(Some(1))), Millis(0), pending()).await, Ok(Some(1)));
        assert_eq!(looked_for(|| ready(Ok(None::<u8>)), Millis::secs(2), pending()).await, Ok(None));
        assert_eq!(begin.elapsed().as_secs(), 20);
    }
}
