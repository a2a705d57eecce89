//! Claims on allowances: all or nothing, never over a cap, and the same again if they are made again.

use super::{Made, id};
use futures_util::future::join_all;
use ledger::claims::{Claim, Claimed, MAX_AMOUNT, MAX_BUCKET, MAX_CLAIMS};
use ledger::store::{Store, StoreError};
use ledger::words::{Millis, OperationId, Time};

const HOUR: i64 = 3_600_000;

fn of(s: &dyn Store, bucket: &str, amount: u64, cap: u64, for_ms: i64) -> Claim {
    Claim { bucket: bucket.into(), amount, cap, until: s.now().plus(Millis(for_ms)) }
}

async fn claim(s: &dyn Store, n: u64, claims: &[Claim]) -> Claimed {
    s.claim(id(n), 1, claims).await.unwrap()
}

/// How much is held, seen by somebody who asks for more than there can be.
async fn used(s: &dyn Store, bucket: &str) -> u64 {
    match claim(s, 999_999, &[of(s, bucket, MAX_AMOUNT, MAX_AMOUNT - 1, 1)]).await {
        Claimed::Full { used, .. } => used,
        Claimed::Granted => panic!("more than there can be was granted"),
    }
}

fn full(which: usize, used: u64, next: Option<Time>) -> Claimed {
    Claimed::Full { which, used, next }
}

fn names(buckets: &[&str]) -> Vec<String> {
    buckets.iter().map(|b| (*b).to_owned()).collect()
}

pub async fn claims(made: Made) {
    let s = &*made.store;
    let first = of(s, "a", 60, 100, HOUR);
    let later = of(s, "a", 40, 100, 2 * HOUR);
    assert_eq!(claim(s, 1, std::slice::from_ref(&first)).await, Claimed::Granted);
    assert_eq!(claim(s, 2, std::slice::from_ref(&later)).await, Claimed::Granted, "to the last bit");
    assert_eq!(claim(s, 3, &[of(s, "a", 1, 100, HOUR)]).await, full(0, 100, Some(first.until)));
    assert_eq!(claim(s, 3, &[of(s, "a", 61, 100, HOUR)]).await, full(0, 100, Some(later.until)));
    assert_eq!(claim(s, 3, &[of(s, "a", 101, 100, HOUR)]).await, full(0, 100, None), "it never fits");
    assert_eq!(claim(s, 3, &[of(s, "A", 100, 100, HOUR)]).await, Claimed::Granted, "another bucket");
    let third = of(s, "a", 1, 101, HOUR);
    assert_eq!(claim(s, 3, std::slice::from_ref(&third)).await, Claimed::Granted, "the cap is the claim's");
    let first = Claim { cap: 101, ..first };
    // Made again, it is the same one; changed, it takes the place of what it was.
    for _ in 0..3 {
        assert_eq!(claim(s, 1, std::slice::from_ref(&first)).await, Claimed::Granted);
        assert_eq!(used(s, "a").await, 101);
    }
    assert_eq!(claim(s, 1, &[of(s, "a", 20, 100, HOUR)]).await, Claimed::Granted);
    assert_eq!(used(s, "a").await, 61);
    assert_eq!(claim(s, 1, &[of(s, "a", 60, 100, HOUR)]).await, full(0, 41, Some(third.until)));
    assert_eq!(used(s, "a").await, 61, "what is refused leaves what was there");
    // What is on the disk stays.
    drop(made.store);
    let s = &*(made.restart)();
    assert_eq!(used(s, "a").await, 61);
    assert_eq!(claim(s, 4, &[of(s, "a", 40, 100, HOUR)]).await, full(0, 61, Some(third.until)));
}

pub async fn claims_together(made: Made) {
    let s = &*made.store;
    assert_eq!(claim(s, 1, &[of(s, "b", 5, 5, HOUR)]).await, Claimed::Granted);
    let three = [of(s, "a", 1, 9, HOUR), of(s, "b", 1, 5, HOUR), of(s, "c", 1, 0, HOUR)];
    assert!(matches!(claim(s, 2, &three).await, Claimed::Full { which: 1, used: 5, next: Some(_) }));
    assert_eq!((used(s, "a").await, used(s, "c").await), (0, 0), "all or nothing");
    s.release_claims(id(1), 1, &names(&["b"])).await.unwrap();
    assert_eq!(claim(s, 2, &three).await, full(2, 0, None));
    assert_eq!(claim(s, 2, &three[..2]).await, Claimed::Granted);
    assert_eq!((used(s, "a").await, used(s, "b").await), (1, 1));
    // The largest amounts don't run over.
    let most = of(s, "m", MAX_AMOUNT, MAX_AMOUNT, HOUR);
    assert_eq!(claim(s, 1, std::slice::from_ref(&most)).await, Claimed::Granted);
    assert_eq!(claim(s, 2, std::slice::from_ref(&most)).await, full(0, MAX_AMOUNT, Some(most.until)));
    assert_eq!(
        claim(s, 2, &[of(s, "m", 0, MAX_AMOUNT, HOUR)]).await,
        Claimed::Granted,
        "nothing fits always"
    );
    assert_eq!(claim(s, 2, &[of(s, "m", 0, 0, HOUR)]).await, full(0, MAX_AMOUNT, Some(most.until)));
}

pub async fn claims_bounds(made: Made) {
    let s = &*made.store;
    let c = |bucket: &str| of(s, bucket, 1, 1, HOUR);
    let long = "n".repeat(MAX_BUCKET);
    assert_eq!(claim(s, 1, &[c(&long)]).await, Claimed::Granted);
    let many = |n: usize| (0..n).map(|i| c(&format!("m{i}"))).collect::<Vec<_>>();
    assert_eq!(claim(s, 1, &many(MAX_CLAIMS)).await, Claimed::Granted);
    let too_much = Claim { amount: MAX_AMOUNT + 1, ..c("x") };
    let too_high = Claim { cap: u64::MAX, ..c("x") };
    for wrong in [
        vec![],
        many(MAX_CLAIMS + 1),
        vec![c("")],
        vec![c(&format!("{long}n"))],
        vec![c("a\0b")],
        vec![c("a b")],
        vec![c("é")],
        vec![c("x"), c("y"), c("x")],
        vec![too_much],
        vec![too_high],
    ] {
        let said = s.claim(id(2), 1, &wrong).await;
        assert!(matches!(said, Err(StoreError::Unavailable(_))), "{wrong:?} {said:?}");
    }
    s.release_claims(id(2), 1, &names(&["", "a\0b", "é", "never"])).await.unwrap();
}

pub async fn claims_end(made: Made) {
    let s = &*made.store;
    // Long enough to be there still when it is asked for, however slow the disk.
    let short = of(s, "a", 3, 5, 1000);
    assert_eq!(claim(s, 1, std::slice::from_ref(&short)).await, Claimed::Granted);
    assert_eq!(claim(s, 2, &[of(s, "a", 2, 5, HOUR)]).await, Claimed::Granted);
    assert_eq!(claim(s, 3, &[of(s, "a", 1, 5, HOUR)]).await, full(0, 5, Some(short.until)));
    while s.now() < short.until {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(used(s, "a").await, 2);
    assert_eq!(claim(s, 3, &[of(s, "a", 3, 5, HOUR)]).await, Claimed::Granted);
    // Whoever comes back after its own is over starts anew.
    assert!(matches!(claim(s, 1, &[of(s, "a", 1, 5, HOUR)]).await, Claimed::Full { used: 5, .. }));
    assert_eq!(claim(s, 1, &[of(s, "a", 1, 6, HOUR)]).await, Claimed::Granted);
    assert_eq!(used(s, "a").await, 6);
    // More of them than go in one step are over at once, and what they come to stays within its bounds beside the next.
    let until = s.now().plus(Millis(1500));
    let one = |n: u64| async move {
        let one = Claim { bucket: "many".into(), amount: MAX_AMOUNT / 600, cap: MAX_AMOUNT, until };
        assert_eq!(claim(s, n, &[one]).await, Claimed::Granted);
    };
    join_all((0..600).map(one)).await;
    while s.now() < until {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let all = of(s, "many", MAX_AMOUNT, MAX_AMOUNT, HOUR);
    assert_eq!(claim(s, 700, std::slice::from_ref(&all)).await, Claimed::Granted);
    let full_up = full(0, MAX_AMOUNT, Some(all.until));
    assert_eq!(claim(s, 5, &[of(s, "many", 1, MAX_AMOUNT, HOUR)]).await, full_up);
    assert_eq!(used(s, "many").await, MAX_AMOUNT);
}

/// Behind very many small claims it is said when there is room at the latest: never too early, never after the last of them.
pub async fn claims_in_the_way(made: Made) {
    let s = &*made.store;
    let now = s.now();
    let until = |n: u64| now.plus(Millis(HOUR + i64::try_from(n).unwrap()));
    let one = |n: u64| async move {
        let one = Claim { bucket: "a".into(), amount: 1, cap: 1100, until: until(n) };
        assert_eq!(claim(s, n, &[one]).await, Claimed::Granted);
    };
    join_all((1..=1100).map(one)).await;
    for (amount, least, most) in [(1, 1, 1), (900, 900, 900), (1050, 1050, 1100), (1100, 1100, 1100)] {
        match claim(s, 5000, &[of(s, "a", amount, 1100, HOUR)]).await {
            Claimed::Full { used: 1100, next: Some(t), .. } => {
                assert!(until(least) <= t && t <= until(most), "{amount}: {t:?}");
            }
            other => panic!("{amount}: {other:?}"),
        }
    }
}

/// Whoever finds one place taken is told when to come again, although its holder gives it back at the same time.
pub async fn claims_by_turns_of_one(made: Made) {
    let s = &made.store;
    let one = |n: u64| {
        let s = s.clone();
        async move {
            let mut refused = 0;
            for turn in 1..=12 {
                match s.claim(id(n), turn, &[of(&*s, "a", 1, 1, HOUR)]).await.unwrap() {
                    Claimed::Granted => {
                        tokio::task::yield_now().await;
                        s.release_claims(id(n), turn, &names(&["a"])).await.unwrap();
                    }
                    Claimed::Full { used, next, .. } => {
                        assert!(used == 1 && next.is_some(), "{n}: {used} {next:?}");
                        refused += 1;
                    }
                }
            }
            refused
        }
    };
    let refused: u64 = join_all((0..32).map(one)).await.into_iter().sum();
    assert!(refused > 0, "nobody was in the way");
    // Nor is anything sooner than there is room: of two who give back, one holds on.
    let (short, long) = (of(&**s, "b", 1, 2, HOUR), of(&**s, "b", 1, 2, 2 * HOUR));
    assert_eq!(claim(&**s, 40, std::slice::from_ref(&short)).await, Claimed::Granted);
    assert_eq!(claim(&**s, 41, std::slice::from_ref(&long)).await, Claimed::Granted);
    for n in 42..50 {
        let two = [of(&**s, "b", 2, 2, HOUR)];
        let back = names(&["b"]);
        let (said, gone) =
            futures_util::future::join(s.claim(id(n), 1, &two), s.release_claims(id(40), 1, &back)).await;
        gone.unwrap();
        assert!(matches!(said.unwrap(), Claimed::Full { next: Some(t), .. } if t == long.until), "{n}");
        assert_eq!(s.claim(id(40), 1, std::slice::from_ref(&short)).await.unwrap(), Claimed::Granted);
    }
}

pub async fn claims_given_back(made: Made) {
    let s = &*made.store;
    for n in 1..=2 {
        assert_eq!(claim(s, n, &[of(s, "a", 4, 8, HOUR), of(s, "b", 1, 2, HOUR)]).await, Claimed::Granted);
    }
    for _ in 0..2 {
        s.release_claims(id(1), 1, &names(&["a", "none"])).await.unwrap();
        assert_eq!((used(s, "a").await, used(s, "b").await), (4, 2));
    }
    s.release_claims(id(3), 9, &names(&["a"])).await.unwrap();
    assert_eq!(used(s, "a").await, 4, "only one's own");
    // What an earlier turn gives back, a later one holds.
    assert_eq!(s.claim(id(2), 5, &[of(s, "a", 6, 8, HOUR)]).await.unwrap(), Claimed::Granted);
    for turn in [0, 1, 4] {
        s.release_claims(id(2), turn, &names(&["a", "b"])).await.unwrap();
    }
    assert_eq!((used(s, "a").await, used(s, "b").await), (6, 1), "b was claimed in the first turn");
    // A claim of an earlier turn that comes late doesn't take the later one back.
    assert_eq!(s.claim(id(2), 3, &[of(s, "a", 6, 8, HOUR)]).await.unwrap(), Claimed::Granted);
    s.release_claims(id(2), 4, &names(&["a"])).await.unwrap();
    assert_eq!(used(s, "a").await, 6);
    s.release_claims(id(2), 5, &names(&["a"])).await.unwrap();
    assert_eq!(used(s, "a").await, 0);
}

/// A claim may come once more when nobody waits for it any longer: it takes nothing from what is held.
pub async fn claims_late(made: Made) {
    let s = &*made.store;
    let early = of(s, "a", 2, 9, 1000);
    let later = of(s, "a", 5, 9, HOUR);
    assert_eq!(s.claim(id(1), 1, std::slice::from_ref(&early)).await.unwrap(), Claimed::Granted);
    assert_eq!(s.claim(id(1), 2, std::slice::from_ref(&later)).await.unwrap(), Claimed::Granted);
    assert_eq!(s.claim(id(1), 1, std::slice::from_ref(&early)).await.unwrap(), Claimed::Granted);
    assert_eq!(used(s, "a").await, 5, "of an earlier turn it changes nothing");
    assert_eq!(s.claim(id(1), 2, &[Claim { amount: 4, ..early.clone() }]).await.unwrap(), Claimed::Granted);
    while s.now() <= early.until {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(used(s, "a").await, 4, "nothing ends sooner for it");
    assert_eq!(claim(s, 2, &[of(s, "a", 6, 9, HOUR)]).await, full(0, 4, Some(later.until)));
    s.release_claims(id(1), 1, &names(&["a"])).await.unwrap();
    assert_eq!(used(s, "a").await, 4);
    // What is over is nobody's: a holder that comes back begins anew, in whatever turn.
    let short = of(s, "b", 3, 3, 300);
    assert_eq!(s.claim(id(1), 7, std::slice::from_ref(&short)).await.unwrap(), Claimed::Granted);
    while s.now() <= short.until {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(s.claim(id(1), 1, &[of(s, "b", 2, 3, HOUR)]).await.unwrap(), Claimed::Granted);
    assert_eq!(used(s, "b").await, 2);
}

/// Many holders at once, each claiming, claiming again in later turns and giving back, in no order: what is held in the end
/// is what each of them has not given back.
pub async fn claims_by_turns(made: Made) {
    let s = &made.store;
    let one = |n: u64| {
        let s = s.clone();
        async move {
            for turn in 1..=6 {
                let two = [of(&*s, "a", turn, 10_000, HOUR), of(&*s, &format!("own-{n}"), 1, 1, HOUR)];
                let late = [of(&*s, "a", 99, 10_000, HOUR)];
                assert_eq!(s.claim(id(n), 2 * turn, &two).await.unwrap(), Claimed::Granted);
                let back = names(&["a", "nobody's"]);
                let (early, again) = futures_util::future::join(
                    s.release_claims(id(n), 2 * turn - 1, &back),
                    s.claim(id(n), 1, &late),
                )
                .await;
                assert_eq!((early.unwrap(), again.unwrap()), ((), Claimed::Granted));
                if turn % 2 == n % 2 {
                    s.release_claims(id(n), 2 * turn, &back).await.unwrap();
                }
            }
        }
    };
    join_all((0..40).map(one)).await;
    assert_eq!(used(&**s, "a").await, 20 * 6, "the odd ones hold their last");
    for n in 0..40 {
        assert_eq!(used(&**s, &format!("own-{n}")).await, 1);
    }
}

pub async fn claims_pruning(made: Made) {
    let s = &*made.store;
    let now = s.now();
    for n in 1..=5 {
        let until = now.plus(Millis(HOUR + i64::try_from(n).unwrap()));
        let c = |bucket: &str| Claim { bucket: bucket.into(), amount: n, cap: 100, until };
        assert_eq!(claim(s, n, &[c("a"), c("b")]).await, Claimed::Granted);
    }
    let at = |n: i64| now.plus(Millis(HOUR + n));
    assert_eq!(s.prune_claims(at(0), 10).await.unwrap(), 0);
    assert_eq!(s.prune_claims(at(3), 4).await.unwrap(), 4);
    assert_eq!(s.prune_claims(at(3), 4).await.unwrap(), 2);
    assert_eq!(s.prune_claims(at(3), 4).await.unwrap(), 0);
    assert_eq!((used(s, "a").await, used(s, "b").await), (9, 9));
    assert_eq!(s.prune_claims(at(9), 100).await.unwrap(), 4);
    assert_eq!((used(s, "a").await, used(s, "b").await), (0, 0));
    assert_eq!(claim(s, 1, &[of(s, "a", 100, 100, HOUR)]).await, Claimed::Granted);
    // So many at a time at least.
    let many = |n: u64| async move {
        let until = at(-1000);
        let one = Claim { bucket: "c".into(), amount: 1, cap: 300, until };
        assert_eq!(claim(s, n, &[one]).await, Claimed::Granted);
    };
    join_all((0..300).map(many)).await;
    for _ in 0..3 {
        assert_eq!(s.prune_claims(at(-1000), 100).await.unwrap(), 100);
    }
    assert_eq!((s.prune_claims(at(-1000), 100).await.unwrap(), used(s, "c").await), (0, 0));
}

/// Many at once, with what they take in different orders, some of them twice, as after a lost acknowledgement.
pub async fn claims_races(made: Made) {
    let s = &made.store;
    let one = |n: u64| {
        let s = s.clone();
        async move {
            let (a, b) = (of(&*s, "a", 3, 100, HOUR), of(&*s, "b", 1, 50, HOUR));
            let both = if n.is_multiple_of(2) { [a, b] } else { [b, a] };
            let said = s.claim(id(n), 1, &both).await.unwrap();
            if n.is_multiple_of(3) {
                let again = s.claim(id(n), 1, &both).await.unwrap();
                assert!(said != Claimed::Granted || again == Claimed::Granted, "{n} lost what it had");
                return (again == Claimed::Granted).then_some(n);
            }
            (said == Claimed::Granted).then_some(n)
        }
    };
    let won: Vec<u64> = join_all((0..200).map(one)).await.into_iter().flatten().collect();
    assert_eq!(won.len(), 33, "as many as fit, and no more");
    assert_eq!((used(&**s, "a").await, used(&**s, "b").await), (99, 33));
    // Taken and given back by turns, nothing is left and nothing was ever too much.
    let by_turns = |n: u64| {
        let s = s.clone();
        async move {
            for _ in 0..10 {
                let c = [of(&*s, "c", 1, 4, HOUR)];
                if s.claim(id(n), 1, &c).await.unwrap() == Claimed::Granted {
                    let held = used(&*s, "c").await;
                    assert!((1..=4).contains(&held), "{held} are held");
                    s.release_claims(id(n), 1, &names(&["c"])).await.unwrap();
                }
            }
        }
    };
    join_all((0..16).map(by_turns)).await;
    assert_eq!(used(&**s, "c").await, 0);
    let all: Vec<OperationId> = won.iter().map(|n| id(*n)).collect();
    join_all(all.iter().map(|who| s.release_claims(*who, 1, &[]))).await;
    assert_eq!(used(&**s, "a").await, 99, "who names no bucket gives nothing back");
}
