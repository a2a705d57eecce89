//! The sandbox provider: an ordinary HTTP API for payments and mail, with durable state, a count of what really
//! happened, and faults on demand.
//!
//! It plays the part of a paid provider for people in their first minutes and is the oracle of the crash tests,
//! so it promises three things. An effect is on disk *before* it is answered, and before the connection is cut
//! by a fault that applies. What happened is counted apart from what was answered. After a kill and a restart on
//! the same directory every object, every remembered key with its first answer, and every count is as it was.
//! It shares no code with the gateway, least of all the gateway's judgement of outcomes.
//!
//! # Provider classes
//!
//! One server plays them all; the first part of the path chooses. Each is a provider of its own: an object made
//! under one prefix is unknown under the others.
//!
//! | prefix | class | a second request |
//! | --- | --- | --- |
//! | `/v1` | `key` | honours `Idempotency-Key` (1 to 255 visible ASCII): the first answer is kept once execution began, 4xx and 5xx included, and replayed with `Idempotent-Replayed: true`; another body or path → 400 `idempotency_error`; while the first runs → 409 `idempotency_key_in_use`; remembered for [`Tuning::retention`] |
//! | `/unique/v1` | `unique` | ignores keys; a second `reference` in a collection → 409 `already_exists` with `resource_id`; no replay |
//! | `/lookup/v1` | `lookup` | ignores keys; can be asked by `marker` (`metadata.marker`) or `reference`, after [`Tuning::visibility_lag`] |
//! | `/natural/v1` | `natural` | ignores keys; `PUT` of the same `/{reference}` and content changes nothing; `POST` is an effect each time |
//! | `/none/v1` | `none` | ignores keys; each `POST` is an effect; lists take only `limit` |
//! | `/resend/v1` | `resend` | key (≤ 256); only successes kept; mismatch 409 `invalid_idempotent_request`; running 409 `concurrent_idempotent_requests`; the answer is `{"id"}` |
//! | `/increase/v1` | `increase` | key (≤ 200) for ever, successes only: same body → replay with `Idempotent-Replayed: true`; other body → 409 `idempotency_key_already_used_error` with `resource_id`; a second while the first runs waits for it |
//! | `/modern_treasury/v1`, `/modern_treasury/api` | `modern_treasury` | key, successes only; neither body nor route compared: reuse on another route returns the first result; while storing → 409 |
//! | `/square/v2` | `square` | key in the body field `idempotency_key` (≤ 45), successes only; other body → 400 `IDEMPOTENCY_KEY_REUSED`; while the first runs → 409 |
//! | `/paypal/v2` | `paypal` | header `PayPal-Request-Id` (≤ 108), 6 hours, successes only; a repeat gets the object as it is now; other body → 422 `DUPLICATE_REQUEST_ID`; while the first runs → 422 `PREVIOUS_REQUEST_IN_PROGRESS` |
//! | `/adyen/v71` | `adyen` | key (≤ 64), successes only, sent back in every answer; the body is not compared; while the first runs → 422 `704` |
//! | `/checkout` | `checkout` | header `Cko-Idempotency-Key`, successes only; the body is not compared; while the first runs → 429 |
//! | `/aws` | `aws` | key in the body field `ClientToken` or `clientToken` (≤ 64), 15 minutes, successes only; a repeat gets the object as it is now; other body → 400 `IdempotentParameterMismatch` to a form, 409 `ConflictException` to JSON; while the first runs → 409 |
//!
//! # Endpoints, under every prefix
//!
//! Bodies are JSON or forms (bracket style: `metadata[order]=1`), at most 1 MiB. Amounts are integers in minor
//! units, 1 to 999 999 999 999. Unknown parameters are refused, so that nothing is dropped unseen.
//!
//! | endpoint | fields |
//! | --- | --- |
//! | `POST /payments` | `amount`, `currency`, `order_id`?, `reference`?, `description`?, `customer`?, `metadata`? |
//! | `POST /refunds` | `payment`, `amount`? (all that remains), `reason`?, `order_id`?, `reference`?, `metadata`? |
//! | `POST /messages` | `to`, `subject`, `body`, `from`?, `order_id`?, `reference`?, `metadata`? |
//! | `POST /emails` | `to`, `subject`, `from`?, `text`?, `html`?, `body`?, `order_id`?, `reference`?, `metadata`? |
//! | `POST /transfers` | `amount`, `account_id`?, `description`?, `order_id`?, `reference`?, `metadata`? |
//! | `POST /payment_orders` | `amount`, `currency`?, `direction`?, `originating_account_id`?, `receiving_account_id`?, `description`?, `order_id`?, `reference`?, `metadata`? |
//! | `GET /{collection}/{id}` | the object as it is now |
//! | `GET /{collection}` | newest first; `limit` (1 to 100, default 10) and, as the class allows, `payment`, `idempotency_key`, `marker`, `reference` |
//! | `PUT /natural/v1/{collection}/{reference}` | as `POST`; the path is the reference |
//!
//! Payments named `pay_demo…` stand ready in every class with 1 000 000 each. An amount of 40200, or
//! `metadata.card_declined` true, is declined with 402 `card_declined`. A refund beyond what remains is 400
//! `amount_too_large`; of nothing that remains, 400 `charge_already_refunded`; of an unknown payment, 404.
//!
//! # Control side
//!
//! | endpoint | does |
//! | --- | --- |
//! | `GET /_sandbox/effects` | `{"total", "byObject", "byKey", "byClass", "applications", "received"}`; filters `object`, `key`, `class`, `kind`; `list=true` adds each application |
//! | `POST /_sandbox/rules` | arms a fault: `{"on": "POST /v1/refunds", "do": "apply_then_cut", "times": 1}` |
//! | `GET /_sandbox/rules`, `DELETE /_sandbox/rules` | the armed faults, with how often each fired; disarms all, or one by `?id=` |
//! | `POST /_sandbox/reset` | forgets everything, the log included |
//! | `GET /_sandbox/health` | `{"sandbox": "counterfoil", "version"}` |
//!
//! `byObject` counts by business object: `order_id`, else `metadata.order_id`, else `metadata.order`, else the
//! refunded `payment`, else the recipient `to`, else `(unnamed)`. `byKey` counts by the key as received, where
//! the class looks for it (else the `Idempotency-Key` header), or `(none)`. `applications` also counts natural repeats that changed nothing;
//! `received` counts provider requests since the process started.
//!
//! # Faults
//!
//! A rule fires for the first `times` requests (default 1) that fit `on` (method and path; `*` may end it) and
//! `match` (`{"key", "object"}`), after letting `skip` of them pass. `delay`, `forget_keys` and
//! `not_found_for_a_while` combine with each other and with one of the rest; of each kind the first armed wins.
//! Rules live in memory. (A client that asks with `Expect: 100-continue` gets its `100 Continue` before a cut.)
//!
//! | `do` | what happens | also takes |
//! | --- | --- | --- |
//! | `apply_then_cut` | applied and on disk, then the connection closes without one byte | `after_ms` |
//! | `apply_then_502` | applied; a proxy's 502 page; the key keeps the true answer | `after_ms`, `status` (5xx) |
//! | `apply_then_500` | applied; a 500, which is what the `key` class keeps and replays; the others keep the success | `after_ms` |
//! | `apply_then_hang` | applied; no answer (10 minutes, then a cut) | |
//! | `cut` / `hang` | not applied; closed / no answer | `after_ms` / |
//! | `fail` | not applied; a 500, which is what the `key` class keeps and replays; the others keep the success | `after_ms` |
//! | `refuse` | not applied; `status` (4xx, default 402); kept for a new key unless 401, 403, 408, 425 or 429 | `after_ms`, `status`, `body` |
//! | `refuse_replay` | 401 if the key, reference or marker was seen before, the kept answer not consulted; else it waits | `after_ms`, `status`, `body` |
//! | `retry_later` / `unavailable` | not applied; 429 / 503 with `Retry-After` | `after_ms`, `retry_after` (s, default 1) |
//! | `garbage` | applied; 200 and no JSON | `after_ms`, `body` (text) |
//! | `torn` | applied; half of the body that `Content-Length` announces, then closed | `after_ms` |
//! | `huge` | applied; the answer padded to 10 MiB | `after_ms` |
//! | `delay` | waits `delay_ms` with the key in flight, then goes on; a client that leaves does not stop it | `delay_ms` |
//! | `forget_keys` | first forgets the class's keys (only `match.key`, if given), durably | |
//! | `not_found_for_a_while` | what it creates is hidden from look-ups for `delay_ms` | `delay_ms` |
//!
//! # Bounds
//!
//! Loopback only, unless [`Tuning::any_address`]: there is no authentication. 1024 connections, 100 headers in
//! 64 KiB, bodies of 1 MiB, 1000 rules, waits of 10 minutes. The counts grow until a reset.

mod answer;
mod business;
mod class;
mod control;
mod log;
mod repeat;
mod report;
mod request;
mod rules;
mod server;
mod shared;
mod state;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

pub use server::{Running, Sandbox};

/// What to serve, and where its state lives.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address to listen on; port 0 picks a free one. Loopback only, unless [`Tuning::any_address`].
    pub listen: SocketAddr,
    /// Directory of the log; made with mode 0700 if absent. One process at a time.
    pub data: PathBuf,
    /// `true`: every effect is fsynced before it is answered. `false`: benchmark mode, it is only written
    /// (survives a kill, not a power loss).
    pub fsync: bool,
    /// Behaviour that tests shorten or lengthen.
    pub tune: Tuning,
}

impl Config {
    /// A configuration with fsync on and the default [`Tuning`].
    pub fn new(listen: SocketAddr, data: impl AsRef<Path>) -> Self {
        Self { listen, data: data.as_ref().to_path_buf(), fsync: true, tune: Tuning::default() }
    }
}

/// How the simulated providers behave.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// How long a key is remembered. `increase` never forgets; a class with a shorter time of its own keeps to
    /// that. Default 24 h.
    pub retention: Duration,
    /// Processing time: how long each change holds its key in flight before it applies. Default 0.
    pub in_flight: Duration,
    /// How long the `lookup` class does not yet show what it has applied. Default 0.
    pub visibility_lag: Duration,
    /// Allow an address other than loopback. Anyone who reaches it can read and change everything. Default no.
    pub any_address: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            retention: Duration::from_secs(24 * 60 * 60),
            in_flight: Duration::ZERO,
            visibility_lag: Duration::ZERO,
            any_address: false,
        }
    }
}

/// Why the sandbox could not start, or stopped. Each says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is not loopback.
    #[error(
        "the sandbox provider has no authentication and listens on loopback only, not on {0}; use 127.0.0.1"
    )]
    NotLoopback(SocketAddr),
    /// The address could not be bound.
    #[error(
        "the sandbox provider cannot listen on {addr}: {source}; stop what uses the port, or choose another"
    )]
    Bind {
        /// The address asked for.
        addr: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another process owns the data directory.
    #[error("another sandbox provider is using the data directory {}; stop it, or choose another directory", .0.display())]
    Locked(PathBuf),
    /// The data directory or a file in it could not be made, opened, read or mended.
    #[error("the sandbox provider cannot use {}: {source}; check that the directory is yours and writable", path.display())]
    Data {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The log holds a line, other than a torn last one, that is not an entry of this format.
    #[error("line {line} of {} is not an entry of the sandbox log: {reason}; nothing was changed. Move the file away to start empty", path.display())]
    Corrupt {
        /// The log.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The log could not be written; everything not yet answered may or may not be on disk.
    #[error(
        "the sandbox provider stopped: its log could not be written (disk full or failing?); free space and start it again, what was answered is kept"
    )]
    LogFailed,
    /// The provider's own task or thread ended unexpectedly.
    #[error("the sandbox provider stopped unexpectedly: {0}; start it again, what was answered is kept")]
    Stopped(String),
}
