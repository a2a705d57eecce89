//! Whether new operations are let through: who takes the turn of others, and until when.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;
use support::*;

use counterfoil_ledger::*;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

const PAUSE: Millis = Millis(5000);

/// Shut for a while, then lets one through at a time, until it is opened for good.
#[derive(Debug)]
struct Door {
    /// When the next is let through; `None`: everybody is.
    shut_until: Mutex<Option<Instant>>,
    let_through: AtomicUsize,
}

impl Door {
    fn shut() -> Arc<Door> {
        let until = Instant::now() + PAUSE.duration();
        Arc::new(Door { shut_until: Mutex::new(Some(until)), let_through: AtomicUsize::new(0) })
    }
    fn refused(&self) -> Result<(), Box<CallError>> {
        match *self.shut_until.lock().unwrap() {
            Some(until) if Instant::now() < until => {
                Err(Box::new(CallError::plain(Kind::Unavailable, "It is shut.", "Come later.")))
            }
            _ => Ok(()),
        }
    }
    fn let_through(&self) -> usize {
        self.let_through.load(SeqCst)
    }
}

impl Admission for Door {
    fn look(&self) -> Result<(), Box<CallError>> {
        self.refused()
    }
    fn pass(self: Arc<Self>) -> Result<Pass, Box<CallError>> {
        self.refused()?;
        self.let_through.fetch_add(1, SeqCst);
        let mut until = self.shut_until.lock().unwrap();
        if until.is_none() {
            return Ok(Pass::free());
        }
        let before = until.replace(Instant::now() + PAUSE.duration());
        let door = self.clone();
        Ok(Pass::holding(Back(door, before)))
    }
}

/// Nothing was sent: it is as before.
struct Back(Arc<Door>, Option<Instant>);

impl Drop for Back {
    fn drop(&mut self) {
        *self.0.shut_until.lock().unwrap() = self.1;
    }
}

fn behind(door: &Arc<Door>, script: &[Act]) -> Boot {
    let mut b = Boot::plain(Strategy::Key, script);
    b.door = Some(door.clone());
    b
}

fn place() -> Allowance {
    Allowance {
        bucket: "place".into(),
        of: "places".into(),
        amount: 1,
        cap: 1,
        term: Term::Place(Millis::secs(60)),
        own: false,
    }
}

fn word(a: &Answer) -> &'static str {
    match a {
        Answer::Result { .. } => "result",
        Answer::Input { .. } => "asked",
        Answer::Error(e) => e.kind.word(),
        _ => "other",
    }
}

fn key(n: u32) -> Call {
    Call { fingerprint: fingerprint(&format!("{{\"n\":{n}}}")), ..keyed(&format!("k{n}")) }
}

/// Somebody who has used up what is its own calls without end, and its claims take longer than it pauses.
#[tokio::test(start_paused = true)]
async fn who_has_no_room_is_not_let_through() {
    let door = Door::shut();
    let mut a = behind(&door, &[]);
    a.allowances = vec![place()];
    let taken =
        Claim { bucket: "place".into(), amount: 1, cap: 1, until: a.store.now().plus(Millis::secs(99)) };
    assert_eq!(a.memory.claim(OperationId(1), 1, &[taken]).await.unwrap(), Claimed::Granted);
    let (b, began) = (a.beside(), Instant::now());
    assert!(b.door.is_none());
    let b = Boot { door: a.door.clone(), allowances: Vec::new(), ..b };
    a.store.claim_latency.store(1200, SeqCst);
    let polls = async {
        let mut words = Vec::new();
        for n in 0..30 {
            words.push(word(&a.call(&key(100 + n)).await));
            pause(200).await;
        }
        words
    };
    let comes = async {
        pause(PAUSE.0 - 300).await;
        assert_eq!(word(&b.call(&key(1)).await), "unavailable");
        pause(300).await;
        word(&b.call(&key(1)).await)
    };
    let (polls, comes) = tokio::join!(polls, comes);
    assert_eq!((comes, door.let_through()), ("result", 1), "{polls:?}");
    assert!(polls.contains(&"limited") && began.elapsed() > PAUSE.duration() * 2, "{polls:?}");
    // While it is shut nothing is claimed, and who is refused at last gives back what it claimed.
    let claimed = async || a.memory.prune_claims(a.store.now().plus(Millis::secs(999)), 99).await.unwrap();
    assert_eq!(claimed().await, 1);
    *door.shut_until.lock().unwrap() = Some(Instant::now() + Millis(600).duration());
    assert_eq!(word(&a.call(&key(2)).await), "unavailable");
    pause(600).await;
    *door.shut_until.lock().unwrap() = Some(Instant::now());
    let late = a.spawn_call(&key(3));
    pause(100).await;
    *door.shut_until.lock().unwrap() = Some(Instant::now() + PAUSE.duration());
    assert_eq!(word(&late.await.unwrap()), "unavailable", "another came first while it claimed");
    assert_eq!((claimed().await, door.let_through()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_person_is_not_let_through() {
    let door = Door::shut();
    let mut a = behind(&door, &[]);
    a.asks = vec![approval()];
    assert_eq!(word(&a.asked(&key(1)).await), "unavailable");
    pause(PAUSE.0).await;
    for n in 1..4 {
        assert_eq!(word(&a.asked(&key(n)).await), "asked");
    }
    assert_eq!(door.let_through(), 0);
    let b = Boot { asks: Vec::new(), ..a };
    assert_eq!((word(&b.call(&key(9)).await), door.let_through()), ("result", 1));
}

/// However one that was let through comes to nothing, another is let through when it is over, and not before.
#[tokio::test(start_paused = true)]
async fn who_was_let_through_holds_up_others_until_its_first_attempt_is_over() {
    let door = Door::shut();
    let a = behind(&door, &[]);
    pause(PAUSE.0).await;
    a.mood(Mood::SleepBefore(1000));
    let one = a.spawn_call(&key(1));
    pause(500).await;
    assert_eq!(word(&a.call(&key(2)).await), "unavailable");
    assert_eq!(word(&one.await.unwrap()), "result");
    for (n, mood) in [(3, Mood::PanicBefore), (4, Mood::FailAfter), (5, Mood::Plain)] {
        a.mood(mood);
        assert_ne!(word(&a.call(&key(n)).await), "other");
        assert!(door.refused().is_ok(), "{mood:?}");
    }
    // It is not written, that is not known, or another of its key came first.
    for (n, fault, said) in
        [(6, Fault::Refused, "unavailable"), (7, Fault::LostUncertain, "admission_unknown")]
    {
        a.store.faults.lock().unwrap().push_back(fault);
        assert_eq!(word(&a.call(&key(n)).await), said);
        assert!(door.refused().is_ok(), "{fault:?}");
    }
    let b = Boot { door: a.door.clone(), ..a.beside() };
    b.store.latency.store(1000, SeqCst);
    let late = b.spawn_call(&key(8));
    pause(100).await;
    *door.shut_until.lock().unwrap() = None;
    let passed = door.let_through();
    assert_eq!(word(&a.call(&key(8)).await), "result");
    assert_eq!((word(&late.await.unwrap()), door.let_through()), ("result", passed + 1));
    assert!(door.shut_until.lock().unwrap().is_some(), "the late one gave back what it was let through by");
    // It is stopped where it stands.
    *door.shut_until.lock().unwrap() = Some(Instant::now());
    a.mood(Mood::SleepBefore(60_000));
    let one = a.spawn_call(&key(10));
    pause(500).await;
    assert!(door.refused().is_err());
    a.env.kill();
    pause(1).await;
    assert!(one.await.is_err() && door.refused().is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_is_there_is_answered_whatever_is_shut() {
    let door = Door::shut();
    let mut a = behind(&door, &[]);
    a.door = None;
    assert_eq!(word(&a.call(&key(1)).await), "result");
    a.door = Some(door.clone());
    assert_eq!((word(&a.call(&key(1)).await), word(&a.call(&key(2)).await)), ("result", "unavailable"));
    assert_eq!(door.let_through(), 0);
}
