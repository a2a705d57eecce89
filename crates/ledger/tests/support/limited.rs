//! Operations that are limited, and what is held of their limits.

use super::*;

pub const HOUR: Millis = Millis::secs(3600);

pub fn allowance(bucket: &str, amount: u64, cap: u64, term: Term) -> Allowance {
    Allowance { bucket: bucket.into(), of: format!("the {bucket} of refunds"), amount, cap, term, own: false }
}

pub fn own(allowance: Allowance) -> Allowance {
    Allowance { own: true, ..allowance }
}

pub fn budget(amount: u64, cap: u64) -> Allowance {
    allowance("budget", amount, cap, Term::Budget(Period::Last(HOUR)))
}

pub fn place(cap: u64) -> Allowance {
    allowance("place", 1, cap, Term::Place(Millis(8000)))
}

pub fn rate(cap: u64) -> Allowance {
    allowance("rate", 1, cap, Term::Rate(Millis::secs(60)))
}

pub fn limited(strategy: Strategy, script: &[Act], allowances: &[Allowance]) -> Boot {
    let mut b = Boot::plain(strategy, script);
    b.allowances = allowances.to_vec();
    b
}

pub fn other(key: &str, n: u32) -> Call {
    let arguments = canonical::canonicalise_arguments(Some(&format!("{{\"n\":{n}}}")), None).unwrap();
    Call { fingerprint: Fingerprint::of("refund", &arguments), ..keyed(key) }
}

/// How much is held of a bucket.
pub async fn used(b: &Boot, bucket: &str) -> u64 {
    let most = claims::MAX_AMOUNT;
    let until = b.store.now().plus(Millis(1));
    let all = Claim { bucket: bucket.into(), amount: most, cap: most - 1, until };
    match b.memory.claim(OperationId(9), 1, &[all]).await.unwrap() {
        Claimed::Full { used, .. } => used,
        Claimed::Granted => panic!("more than there can be was granted"),
    }
}

pub fn word(a: &Answer) -> &'static str {
    match a {
        Answer::Result { replayed: true, .. } => "replayed",
        Answer::Result { operation, .. } if operation.is_error => "error",
        Answer::Result { .. } => "result",
        Answer::Error(e) => e.kind.word(),
        _ => "other",
    }
}

pub fn refusal(a: Answer) -> CallError {
    match a {
        Answer::Error(e) if e.kind == Kind::Limited => *e,
        other => panic!("{other:?}"),
    }
}

pub async fn by_key(b: &Boot, call: &Call) -> Operation {
    let hash = call.scope.key_hash(&call.key.as_ref().unwrap().key);
    match b.memory.by_key(&hash).await.unwrap() {
        Some(store::Found::Operation(op)) => *op,
        other => panic!("{other:?}"),
    }
}
