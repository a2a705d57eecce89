//! The ring turns, and no token in flight is refused, whichever copies of it the replicas have.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use ledger::{Millis, Time};
use proptest::prelude::*;
use seal::{Change, Context, Key, LONGEST_LIFETIME, MAX_KEYS, Refusal, Reject, Ring, SPREAD, STALE, Stage};

const TTL: Millis = Millis::secs(600);
const CONTEXT: Context<'_> = Context {
    purpose: "state",
    audience: "billing",
    principal: "ann",
    method: "tools/call",
    name: "t",
    fingerprint: b"f",
};

fn stages(ring: &Ring, now: Time) -> Vec<Stage> {
    ring.keys(now).iter().map(|t| t.stage).collect()
}

#[test]
fn a_key_goes_through_its_stages() {
    use Stage::{Active, Gone, Retiring, Standby};
    let ring = Ring::new(Key::new().unwrap(), Time(0), TTL).unwrap();
    assert_eq!(stages(&ring, Time(0)), [Active]);
    let ring = ring.decide(Change::Rotate(Key::new().unwrap()), Time(1000)).unwrap().unwrap();
    let active = Time(1000).plus(SPREAD);
    assert_eq!(stages(&ring, Time(1000)), [Active, Standby]);
    assert_eq!(stages(&ring, Time(active.0 - 1)), [Active, Standby]);
    assert_eq!(stages(&ring, active), [Retiring, Active]);
    let until = ring.keys(active)[0].opens_until.unwrap();
    assert!(until.since(active).0 >= TTL.0 + STALE.0, "{until:?}");
    assert_eq!(stages(&ring, Time(until.0 - 1)), [Retiring, Active]);
    assert_eq!(stages(&ring, until), [Gone, Active]);
    assert_eq!(ring.decide(Change::Tidy, Time(until.0 - 1)), Ok(None));
    let tidied = ring.decide(Change::Tidy, until).unwrap().unwrap();
    assert_eq!(stages(&tidied, until), [Active]);
    assert_eq!(tidied.decide(Change::Tidy, until), Ok(None));
    // A clock that stands before all of it has a key to seal with all the same.
    assert_eq!(stages(&ring, Time(-5)), [Active, Standby]);
}

#[test]
fn one_new_key_at_a_time() {
    let ring = Ring::new(Key::new().unwrap(), Time(0), TTL).unwrap();
    let next = Key::new().unwrap();
    let turning = ring.decide(Change::Rotate(next.clone()), Time(0)).unwrap().unwrap();
    assert_eq!(
        turning.decide(Change::Rotate(Key::new().unwrap()), Time(5)),
        Err(Refusal::Underway(next.id(), Time(0).plus(SPREAD)))
    );
    // At the end of its time as standby another one may follow, until there are too many that still open.
    let (mut ring, mut now) = (Ring::new(Key::new().unwrap(), Time(0), LONGEST_LIFETIME).unwrap(), Time(0));
    for made in 2..=MAX_KEYS {
        ring = ring.decide(Change::Rotate(Key::new().unwrap()), now).unwrap().unwrap();
        assert_eq!(ring.keys(now).len(), made);
        now = now.plus(SPREAD);
    }
    let first = ring.keys(now)[0].opens_until.unwrap();
    assert_eq!(ring.decide(Change::Rotate(Key::new().unwrap()), now), Err(Refusal::Full(first)));
    let again = ring.decide(Change::Rotate(Key::new().unwrap()), first).unwrap().unwrap();
    assert_eq!(again.keys(first).len(), MAX_KEYS);
}

#[test]
fn a_longer_lifetime_is_kept_and_a_shorter_one_changes_nothing() {
    let ring = Ring::new(Key::new().unwrap(), Time(0), TTL).unwrap();
    assert_eq!(ring.decide(Change::Lifetime(TTL), Time(0)), Ok(None));
    assert_eq!(ring.decide(Change::Lifetime(Millis(1)), Time(0)), Ok(None));
    let turned = ring.decide(Change::Rotate(Key::new().unwrap()), Time(0)).unwrap().unwrap();
    let longer = turned.decide(Change::Lifetime(Millis(TTL.0 * 3)), Time(0)).unwrap().unwrap();
    assert_eq!(longer.longest(), Millis(TTL.0 * 3));
    let until = |ring: &Ring| ring.keys(Time(0))[0].opens_until.unwrap();
    assert_eq!(until(&longer).since(until(&turned)), Millis(TTL.0 * 2), "the old key still seals");
    let most = longer.decide(Change::Lifetime(Millis(i64::MAX)), Time(0)).unwrap().unwrap();
    assert_eq!(most.longest(), LONGEST_LIFETIME);
}

/// What happens to the ring in the ledger.
#[derive(Clone, Debug)]
enum Step {
    Wait(i64),
    Rotate,
    Tidy,
    Lifetime(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1i64..400_000).prop_map(Step::Wait),
        3 => Just(Step::Rotate),
        1 => Just(Step::Tidy),
        1 => (1i64..2_000_000).prop_map(Step::Lifetime),
    ];
    proptest::collection::vec(step, 1..40)
}

proptest! {
    /// One replica seals with a copy of any age below [`STALE`], another opens at any moment of the token's life with a
    /// copy of any such age, and looks the key up if it doesn't know it.
    #[test]
    fn nothing_in_flight_is_refused(
        steps in steps(), seal_at in 0f64..1.0, seal_age in 0i64..STALE.0,
        open_after in 0f64..1.0, open_age in 0i64..STALE.0,
    ) {
        let mut history: Vec<(Time, Ring)> = Vec::new();
        let mut now = Time(1_000_000);
        history.push((now, Ring::new(Key::new().unwrap(), now, TTL).unwrap()));
        for step in &steps {
            let ring = &history.last().unwrap().1;
            let next = match step {
                Step::Wait(ms) => {
                    now = now.plus(Millis(*ms));
                    continue;
                }
                Step::Rotate => ring.decide(Change::Rotate(Key::new().unwrap()), now).unwrap_or(None),
                Step::Tidy => ring.decide(Change::Tidy, now).unwrap_or(None),
                Step::Lifetime(ms) => ring.decide(Change::Lifetime(Millis(*ms)), now).unwrap_or(None),
            };
            if let Some(next) = next {
                history.push((now, next));
            }
        }
        let begin = history[0].0;
        let at = |time: Time| {
            let (_, ring) = history.iter().rev().find(|(t, _)| *t <= time).unwrap_or(&history[0]);
            ring
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
        let part = |f: f64, of: i64| (f * of as f64) as i64;
        let sealed_at = begin.plus(Millis(part(seal_at, now.0 - begin.0 + 1)));
        let theirs = at(Time(sealed_at.0 - seal_age));
        let token = theirs.seal(b"{}", &CONTEXT, sealed_at, LONGEST_LIFETIME).unwrap();
        let life = theirs.longest();
        let opened_at = sealed_at.plus(Millis(part(open_after, life.0 - 1)));
        let copy = at(Time(opened_at.0 - open_age));
        let opened = match copy.open(&token, &CONTEXT, opened_at) {
            // What every replica does before it refuses.
            Err(Reject::UnknownKey) => at(opened_at).open(&token, &CONTEXT, opened_at),
            done => done,
        };
        prop_assert_eq!(opened, Ok(b"{}".to_vec()));
        prop_assert_eq!(
            at(sealed_at.plus(life)).open(&token, &CONTEXT, sealed_at.plus(life)).is_err(), true
        );
    }

    /// However it turns, there is one key that seals, the newer ones are standby and the older ones are not.
    #[test]
    fn one_key_seals(steps in steps()) {
        let mut now = Time(1_000_000);
        let mut ring = Ring::new(Key::new().unwrap(), now, TTL).unwrap();
        for step in &steps {
            let change = match step {
                Step::Wait(ms) => { now = now.plus(Millis(*ms)); Change::Tidy }
                Step::Rotate => Change::Rotate(Key::new().unwrap()),
                Step::Tidy => Change::Tidy,
                Step::Lifetime(ms) => Change::Lifetime(Millis(*ms)),
            };
            if let Ok(Some(next)) = ring.decide(change, now) {
                ring = next;
            }
            let stages = stages(&ring, now);
            let active = stages.iter().position(|s| *s == Stage::Active).unwrap();
            prop_assert!(stages[..active].iter().all(|s| matches!(s, Stage::Retiring | Stage::Gone)), "{stages:?}");
            prop_assert!(stages[active + 1..].iter().all(|s| *s == Stage::Standby), "{stages:?}");
            prop_assert!(ring.keys(now).len() <= MAX_KEYS);
            let token = ring.seal(b"1", &CONTEXT, now, TTL);
            prop_assert!(token.is_ok());
        }
    }
}
