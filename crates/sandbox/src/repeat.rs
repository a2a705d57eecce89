//! What a second request under a key gets, in the words of each provider.

use bytes::Bytes;

use crate::{
    answer::{Answer, Problem},
    business,
    class::{Class, Keys, Repeat},
    request::Request,
    state::{State, Stored},
};

/// What a second request gets while the first with its key runs.
pub(crate) fn in_use(class: Class) -> Problem {
    let (status, code) = match class {
        Class::Resend => (409, "concurrent_idempotent_requests"),
        Class::Square => (409, "CONFLICT"),
        Class::Paypal => (422, "PREVIOUS_REQUEST_IN_PROGRESS"),
        Class::Adyen => (422, "704"),
        Class::Checkout => (429, "too_many_requests"),
        Class::Aws => (409, "ConcurrentModificationException"),
        _ => (409, "idempotency_key_in_use"),
    };
    let message = "Another request with this idempotency key is being processed; try again later.";
    Problem::new(status, "idempotency_error", code, message)
}

/// With the key that came, where the provider sends it back: to a first request and to a repeat alike.
pub(crate) fn echoed(answer: Answer, request: &Request) -> Answer {
    match &request.key {
        Some(key) if request.route.class == Class::Adyen => answer.with("idempotency-key", key.clone()),
        _ => answer,
    }
}

/// The kept answer, or the complaint about another request under its key.
pub(crate) fn replay(
    state: &State,
    policy: &Keys,
    stored: &Stored,
    request: &Request,
) -> Result<Answer, Problem> {
    let class = stored.class;
    if policy.compares && stored.hash != request.hash() {
        let message = "Keys for idempotent requests can only be used with the same parameters they were first used with.";
        let problem = match class {
            Class::Resend => Problem::invalid(409, "invalid_idempotent_request", message),
            Class::Increase => Problem::invalid(409, "idempotency_key_already_used_error", message),
            Class::Square => Problem::invalid(400, "IDEMPOTENCY_KEY_REUSED", message),
            Class::Paypal => Problem::invalid(422, "DUPLICATE_REQUEST_ID", message),
            // The query protocol and the JSON protocols name it differently.
            Class::Aws if request.form => Problem::invalid(400, "IdempotentParameterMismatch", message),
            Class::Aws => Problem::invalid(409, "ConflictException", message),
            _ => Problem::new(400, "idempotency_error", "idempotency_key_mismatch", message),
        };
        return Err(match &stored.resource {
            Some(id) if class == Class::Increase => problem.resource(id),
            _ => problem,
        });
    }
    let now = stored.resource.as_ref().filter(|_| policy.repeat == Repeat::Now);
    if let Some(object) = now.and_then(|id| state.objects.get(id)) {
        return Ok(Answer::json(stored.status, &business::render(state, object)));
    }
    let answer = Answer::bytes(stored.status, "application/json", Bytes::from(stored.body.get().to_owned()));
    Ok(if policy.marks_replay { answer.with("idempotent-replayed", "true") } else { answer })
}
