//! Where a wrapped handler runs: in the task that brought its call, so that its context, its peer and whatever else that
//! task carries are as without a ledger. The attempt, which runs in a task of its own, hands the work over and waits.
//!
//! A handler that has begun is run to its end, or to its time limit, whether or not somebody still waits for the call:
//! when the call's task has other things to do, or is dropped, the work goes on in the background.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use ledger::env::{Abort, Env};
use ledger::{EffectKey, Fingerprint, Millis, Operation, OperationId, Scope, SystemEnv};
use rmcp::model::{CallToolRequestParams, CallToolResponse, InputRequiredResult};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

/// The place of the effect key in the `_meta` that a handler sees.
pub const META_EFFECT_KEY: &str = "dev.counterfoil/effect-key";

/// What a ledgered call's handler finds in the extensions of its context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledgered {
    /// The operation that the call belongs to.
    pub operation: OperationId,
    /// The same in all repetitions of the call: pass it on to whoever honours an idempotency key. It is in the context's
    /// `_meta` as well, under [`META_EFFECT_KEY`].
    pub effect_key: EffectKey,
    /// The handler ran before for this operation, and what came of that is not known.
    pub replay: bool,
    /// The context is that of a request; otherwise recovery runs the handler, and there is nobody to ask or to notify.
    pub has_caller: bool,
}

/// What came of a run.
pub(crate) enum Came {
    /// It ended by itself.
    Ended(Box<Result<CallToolResponse, ErrorData>>),
    /// It panicked.
    Panicked,
}

/// What a run that did nothing says to the caller who brought it, and to nobody else.
pub(crate) enum Said {
    Asks(InputRequiredResult),
    Fails(ErrorData),
}

pub(crate) struct Job {
    pub request: CallToolRequestParams,
    pub ledgered: Ledgered,
    /// Dropped by the attempt when its time is over.
    pub reply: oneshot::Sender<Came>,
}

/// The way from an attempt to the call that began it.
pub(crate) struct Seat {
    scope: Scope,
    fingerprint: Fingerprint,
    jobs: mpsc::UnboundedSender<Job>,
    ear: Ear,
}

/// Where a call hears what its own run said.
#[derive(Clone, Default)]
pub(crate) struct Ear(Arc<Mutex<Option<Said>>>);

impl Ear {
    pub fn heard(&self) -> Option<Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Seat {
    /// Whether this operation is what the call asks for. An attempt of another one has no business here.
    pub fn is_for(&self, op: &Operation) -> bool {
        self.scope == op.scope && self.fingerprint == op.fingerprint
    }

    pub fn say(&self, said: Said) {
        *self.ear.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(said);
    }

    /// Hands work over; `None`: nobody takes it any more, and nothing began.
    pub fn hand_over(&self, job: Job) -> Option<()> {
        self.jobs.send(job).ok()
    }
}

tokio::task_local! {
    /// The call that began what runs now.
    pub(crate) static SEAT: Arc<Seat>;
}

/// The system's time, randomness and tasks; a task that a call begins stays connected with that call.
pub(crate) struct SeatedEnv;

impl Env for SeatedEnv {
    fn random(&self, buf: &mut [u8]) {
        SystemEnv.random(buf);
    }
    fn sleep(&self, d: Millis) -> BoxFuture<'static, ()> {
        SystemEnv.sleep(d)
    }
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Abort {
        match SEAT.try_with(Arc::clone) {
            Ok(seat) => SystemEnv.spawn(Box::pin(SEAT.scope(seat, task))),
            Err(_) => SystemEnv.spawn(task),
        }
    }
    fn monotonic(&self) -> i64 {
        SystemEnv.monotonic()
    }
}

/// The other end of a seat: in the call's task.
pub(crate) struct Bench<H: ServerHandler>(Option<Place<H>>);

struct Place<H> {
    handler: Arc<H>,
    request: CallToolRequestParams,
    context: RequestContext<RoleServer>,
    jobs: mpsc::UnboundedReceiver<Job>,
    work: Option<BoxFuture<'static, ()>>,
}

/// A seat for a call, and the bench where its work is done. Whoever holds the seat may hand over work.
pub(crate) fn seat<H: ServerHandler>(
    handler: Arc<H>,
    request: CallToolRequestParams,
    context: RequestContext<RoleServer>,
    scope: Scope,
    fingerprint: Fingerprint,
) -> (Arc<Seat>, Ear, Bench<H>) {
    let (sender, jobs) = mpsc::unbounded_channel();
    let ear = Ear::default();
    let seat = Seat { scope, fingerprint, jobs: sender, ear: ear.clone() };
    (Arc::new(seat), ear, Bench(Some(Place { handler, request, context, jobs, work: None })))
}

impl<H: ServerHandler> Bench<H> {
    /// Does what is handed over, until nobody can hand over anything any more. Dropped meanwhile, it goes on later.
    pub async fn serve(&mut self) {
        if let Some(place) = &mut self.0 {
            place.serve().await;
        }
    }
}

impl<H: ServerHandler> Drop for Bench<H> {
    fn drop(&mut self) {
        let Some(mut place) = self.0.take() else { return };
        let idle = place.work.is_none() && place.jobs.sender_strong_count() == 0;
        // Without a runtime the work is dropped, and its attempt told so: what came of it is not known.
        if !idle && let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { place.serve().await });
        }
    }
}

impl<H: ServerHandler> Place<H> {
    async fn serve(&mut self) {
        loop {
            if let Some(work) = &mut self.work {
                work.await;
                self.work = None;
            }
            match self.jobs.recv().await {
                Some(job) => self.work = Some(self.begin(job)),
                None => return,
            }
        }
    }

    fn begin(&self, job: Job) -> BoxFuture<'static, ()> {
        let context = in_place_of(&self.context, &job.ledgered);
        let mut request = job.request;
        // What is recorded are the arguments. Answers to what the handler asked are this call's own.
        request.input_responses.clone_from(&self.request.input_responses);
        request.request_state.clone_from(&self.request.request_state);
        let (handler, mut reply) = (self.handler.clone(), job.reply);
        Box::pin(async move {
            let came = tokio::select! {
                biased;
                came = run(&*handler, request, context) => Some(came),
                () = reply.closed() => None,
            };
            if let Some(came) = came {
                // An attempt that is gone learns nothing, and records that it is not known.
                let _ = reply.send(came);
            }
        })
    }
}

/// Runs the handler once.
pub(crate) async fn run<H: ServerHandler>(
    handler: &H,
    request: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Came {
    // Whatever the handler left running hears that its call is over.
    let _over = context.ct.clone().drop_guard();
    match AssertUnwindSafe(handler.call_tool(request, context)).catch_unwind().await {
        Ok(result) => Came::Ended(Box::new(result)),
        // What a panic says may hold anything.
        Err(_) => Came::Panicked,
    }
}

/// The call's context as the handler gets it. Its token is not that of the call: what has begun is not cancelled because a
/// stream closed.
fn in_place_of(context: &RequestContext<RoleServer>, ledgered: &Ledgered) -> RequestContext<RoleServer> {
    let mut new = RequestContext::new(context.id.clone(), context.peer.clone());
    new.meta = context.meta.clone();
    new.extensions = context.extensions.clone();
    mark(&mut new, ledgered);
    new
}

pub(crate) fn mark(context: &mut RequestContext<RoleServer>, ledgered: &Ledgered) {
    context.meta.insert(META_EFFECT_KEY.into(), ledgered.effect_key.as_str().into());
    context.extensions.insert(ledgered.clone());
}
