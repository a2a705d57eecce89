//! What a provider's refusals (401) say of an account's access tokens: which one must not be used, and whether the next use
//! will find another.

use sha2::{Digest as _, Sha256};
use std::time::{Duration, Instant};

/// A token that is refused so soon after it replaced a refused one is not at fault.
const ONCE_IN: Duration = Duration::from_secs(60);

/// Which access token it was, without telling it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

impl Ticket {
    /// That of a token.
    #[must_use]
    pub fn of(token: &str) -> Ticket {
        let digest = Sha256::digest(token.as_bytes());
        Ticket(digest.iter().take(8).fold(0, |n, b| n << 8 | u64::from(*b)))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Refused {
    ticket: Option<Ticket>,
    /// When a token was last renewed because of that.
    renewed: Option<Instant>,
    /// The one that was used last. Whoever still comes with another one left before it was replaced, here or elsewhere.
    current: Option<Ticket>,
}

impl Refused {
    /// A token that can be renewed was refused. Whether another one will be found at the next use.
    pub fn say(&mut self, ticket: Ticket) -> bool {
        // Several were sent under the token that was refused; the first answer had it replaced for all of them.
        if self.current.is_some_and(|current| current != ticket) {
            return true;
        }
        if self.renewed.is_some_and(|at| at.elapsed() < ONCE_IN) {
            return false;
        }
        self.ticket = Some(ticket);
        true
    }

    /// The one that must not be used.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }

    /// A token is in use; it may be a replaced one again: connected anew, for one.
    pub fn in_use(&mut self, ticket: Option<Ticket>) {
        self.current = ticket;
    }

    /// The refused one, if one was, was to be replaced, and this was got.
    pub fn renewed(&mut self, refused: Option<Ticket>, got: Option<Ticket>) {
        self.current = got;
        // One that was given a second time is as good as it gets: it is not asked for again at once, either.
        if refused.is_some() && self.ticket.take_if(|t| Some(*t) == refused).is_some() {
            self.renewed = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_refusal_of_a_replaced_token_has_nothing_renewed() {
        let (first, second) = (Ticket::of("1"), Ticket::of("2"));
        let mut refused = Refused::default();
        refused.in_use(Some(first));
        // Another process renewed it, and that one is in use here.
        refused.in_use(Some(second));
        assert!(refused.say(first));
        assert_eq!(refused.ticket(), None);
        assert!(refused.say(second));
        assert_eq!(refused.ticket(), Some(second));
    }
}
