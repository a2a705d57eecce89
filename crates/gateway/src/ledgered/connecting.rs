//! A call whose caller has to give a credential of its own first. Nothing is opened before it is there, so the intent has the
//! mark of the credential that it goes out with; the rounds until then are rounds of the call.

use super::{Before, Ledgered, Refused};
use crate::connect::{self, Connecting};
use crate::rounds::{self, State};
use ledger::{Answer, CallError, Creation, Kind, Millis, OperationId};
use mcp::input::InputRequest;
use mcp::server::{Notifier, Outcome};
use provider::{Own, OwnAccount};

impl Ledgered<'_> {
    /// Has the request go out with the caller's own credential, where the tool acts under one.
    pub(super) fn under_own(&self, mut creation: Creation, own: Option<&Own>) -> Result<Creation, Before> {
        let Some(account) = self.entry.and_then(|e| e.body.own_account()) else { return Ok(creation) };
        let Some(own) = own else { return Err(Before::Credential(Box::new(account))) };
        let principal = &self.call.scope.principal;
        let owned = creation.intent.map(|intent| provider::owned(intent, principal, &own.mark)).transpose();
        creation.intent = owned.map_err(|why| {
            tracing::error!(%why, "a request can't be made the caller's own");
            Before::Busy
        })?;
        Ok(creation)
    }

    /// The caller's own credential; it is asked for, if there is none.
    ///
    /// # Errors
    /// What the call is answered instead.
    pub(super) async fn connect(
        &self,
        account: &OwnAccount,
        operation: Option<OperationId>,
        notifier: &Notifier,
    ) -> Result<Own, Refused> {
        let (shared, principal) = (self.shared, &self.call.scope.principal);
        let agreed = self.connecting == Connecting::Agreed;
        let most = if agreed { self.asked.settings.wait } else { Millis(0) };
        match connect::wait(&shared.connections, account, principal, most, notifier.gone()).await {
            Ok(Some(own)) => return Ok(own),
            Ok(None) => {}
            Err(why) => {
                tracing::warn!(%why, "the credential of a principal can't be read");
                return Err(self.told(&connect::unreadable()));
            }
        }
        let Some(entry) = self.entry else { return Err(self.told(&connect::unreadable())) };
        if agreed && self.round < rounds::LAST_LEG {
            // The user is at the page: the client only comes back.
            if let Some(leg) = self.connecting_round(&[], operation).await {
                return Err(leg);
            }
        }
        let required = connect::required(shared, account, principal, entry).await;
        if let Some(e) = required.legacy(self.exchange) {
            return Err((Outcome::from(e), "asked"));
        }
        if self.connecting == Connecting::Unasked
            && let Some(question) = required.question(self.exchange)
            && let Some(asked) = self.connecting_round(&[question], operation).await
        {
            return Err(asked);
        }
        Err(self.told(&CallError { operation, ..required.error() }))
    }

    async fn connecting_round(
        &self,
        requests: &[InputRequest],
        operation: Option<OperationId>,
    ) -> Option<Refused> {
        let state = State { operation, key: self.kept.clone(), round: self.round + 1, connect: true };
        self.end_round(requests, &state, None).await
    }

    /// Whether an operation has no effect for lack of the credential that was there when it was opened.
    pub(super) fn lacks(&self, answer: &Answer) -> Option<(OwnAccount, Option<OperationId>)> {
        let Answer::Error(e) = answer else { return None };
        let account = self.entry.filter(|_| e.kind == Kind::Unavailable)?.body.own_account()?;
        Some((account, Some(e.operation?)))
    }
}
