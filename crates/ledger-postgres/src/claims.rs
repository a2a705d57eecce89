//! Claims on allowances: one statement each, under a lock per bucket that all replicas share. Each can be made again when its
//! answer was lost.

use crate::read::count;
use crate::record::Bits;
use crate::shared::{CLAIM, PRUNE_CLAIMS, RELEASE, Shared};
use ledger::claims::{self, Claim, Claimed};
use ledger::store::StoreError;
use ledger::words::{OperationId, Time};
use tokio_postgres::types::ToSql;

pub(crate) async fn claim(
    shared: &Shared,
    holder: OperationId,
    turn: u64,
    claims: &[Claim],
) -> Result<Claimed, StoreError> {
    claims::bounded(claims)?;
    let bucket: Vec<&str> = claims.iter().map(|c| c.bucket.as_str()).collect();
    let number = |of: fn(&Claim) -> i64| -> Vec<i64> { claims.iter().map(of).collect() };
    let (amount, cap, until) =
        (number(|c| c.amount.cast_signed()), number(|c| c.cap.cast_signed()), number(|c| c.until.0));
    let (now, holder, turn) = (shared.clock.now().0, Bits(holder.0.to_be_bytes()), turn.cast_signed());
    let args: [&(dyn ToSql + Sync); 7] = [&now, &holder, &turn, &bucket, &amount, &cap, &until];
    let rows = shared.again(CLAIM, &args).await?;
    let row = rows.first().ok_or_else(|| StoreError::Uncertain("a claim had no answer".into()))?;
    Ok(match row.get::<_, Option<i32>>(0) {
        None => Claimed::Granted,
        Some(place) => Claimed::Full {
            which: usize::try_from(place - 1).unwrap_or(0),
            used: u64::try_from(row.get::<_, i64>(1)).unwrap_or(0),
            next: row.get::<_, Option<i64>>(2).map(Time),
        },
    })
}

pub(crate) async fn release(
    shared: &Shared,
    holder: OperationId,
    turn: u64,
    buckets: &[String],
) -> Result<(), StoreError> {
    // Under other names nothing was ever claimed.
    let buckets: Vec<&str> = buckets.iter().map(String::as_str).filter(|b| claims::fits(b)).collect();
    if buckets.is_empty() {
        return Ok(());
    }
    let (holder, turn) = (Bits(holder.0.to_be_bytes()), turn.cast_signed());
    shared.again(RELEASE, &[&holder, &turn, &buckets]).await.map(|_| ())
}

pub(crate) async fn prune(shared: &Shared, now: Time, limit: usize) -> Result<usize, StoreError> {
    let rows = shared.again(PRUNE_CLAIMS, &[&now.0, &count(limit)]).await?;
    Ok(rows.first().map_or(0, |r| usize::try_from(r.get::<_, i64>(0)).unwrap_or(0)))
}
