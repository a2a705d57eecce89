//! Claims on allowances: granted inside the writer's transaction, so exactly. Beside the claims each bucket has their sum, so
//! that what a claim costs does not grow with how many there are; what is over is taken off before it is looked at.

use ledger::claims::{Claim, Claimed};
use ledger::words::{OperationId, Time};
use rusqlite::{Connection, OptionalExtension as _, Result, params};

/// The most claims that are over and go at once, of a bucket that is looked at.
const STEP: i64 = 256;
/// The most claims that are looked through to say when there is room. Everybody who writes waits for it.
const LOOKED: i64 = 1000;

/// What is held of a bucket at `now`. Notes in `changed` if anything was over and went.
fn used(db: &Connection, bucket: &str, now: Time, changed: &mut bool) -> Result<i64> {
    let (sum, over): (Option<i64>, bool) = db
        .prepare_cached(
            "SELECT (SELECT used FROM allowance WHERE bucket = ?1),
               EXISTS (SELECT 1 FROM claim INDEXED BY claim_over WHERE bucket = ?1 AND until <= ?2)",
        )?
        .query_row(params![bucket, now.0], |r| Ok((r.get(0)?, r.get(1)?)))?;
    if !over {
        return Ok(sum.unwrap_or(0));
    }
    let gone: i64 = db
        .prepare_cached(
            "SELECT coalesce(sum(amount), 0) FROM (SELECT amount FROM claim INDEXED BY claim_over
               WHERE bucket = ?1 AND until <= ?2 ORDER BY until, holder LIMIT ?3)",
        )?
        .query_row(params![bucket, now.0, STEP], |r| r.get(0))?;
    let went = db
        .prepare_cached(
            "DELETE FROM claim WHERE bucket = ?1 AND holder IN (SELECT holder FROM claim INDEXED BY claim_over
               WHERE bucket = ?1 AND until <= ?2 ORDER BY until, holder LIMIT ?3)",
        )?
        .execute(params![bucket, now.0, STEP])?;
    add(db, bucket, -gone)?;
    *changed = true;
    let sum = sum.unwrap_or(0) - gone;
    if i64::try_from(went).unwrap_or(STEP) < STEP {
        return Ok(sum);
    }
    // More is over than goes at once: it counts no more all the same.
    let rest: i64 = db
        .prepare_cached(
            "SELECT coalesce(sum(amount), 0) FROM claim INDEXED BY claim_over WHERE bucket = ?1 AND until <= ?2",
        )?
        .query_row(params![bucket, now.0], |r| r.get(0))?;
    Ok(sum - rest)
}

fn add(db: &Connection, bucket: &str, amount: i64) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO allowance (bucket, used) VALUES (?1, ?2) ON CONFLICT (bucket) DO UPDATE SET used = used + excluded.used",
    )?
    .execute(params![bucket, amount])?;
    Ok(())
}

/// What a holder has of a bucket, and in which turn.
fn own(db: &Connection, bucket: &str, holder: OperationId) -> Result<Option<(i64, i64, i64)>> {
    db.prepare_cached("SELECT amount, until, turn FROM claim WHERE bucket = ?1 AND holder = ?2")?
        .query_row(params![bucket, holder.0.to_be_bytes()], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))
        .optional()
}

fn remove(db: &Connection, bucket: &str, holder: OperationId, amount: i64) -> Result<()> {
    db.prepare_cached("DELETE FROM claim WHERE bucket = ?1 AND holder = ?2")?
        .execute(params![bucket, holder.0.to_be_bytes()])?;
    add(db, bucket, -amount)
}

/// Grants all of them or none; also says whether the database changed. What is in them is within its bounds.
pub(crate) fn claim(
    db: &Connection,
    holder: OperationId,
    turn: u64,
    claims: &[Claim],
    now: Time,
) -> Result<(Claimed, bool)> {
    let mut changed = false;
    let mut had = Vec::with_capacity(claims.len());
    for (which, c) in claims.iter().enumerate() {
        let (amount, cap) = (c.amount.cast_signed(), c.cap.cast_signed());
        let all = used(db, &c.bucket, now, &mut changed)?;
        // What was over and is removed is its own no more, either.
        let before = own(db, &c.bucket, holder)?;
        had.push(before);
        let mine = before.filter(|(_, until, _)| *until > now.0).map_or(0, |(a, ..)| a);
        let others = all - mine;
        // Neither is below zero, so this stays within its type where their sum would not.
        if amount <= cap - others {
            continue;
        }
        let next = if amount > cap { None } else { free_at(db, holder, c, others, now)? };
        let used = u64::try_from(others).unwrap_or(0);
        return Ok((Claimed::Full { which, used, next }, changed));
    }
    for (c, before) in claims.iter().zip(had) {
        let (mut until, mut turn) = (c.until.0, turn);
        match before {
            // One that comes once more takes nothing from what is held.
            Some((_, ends, later)) if ends > now.0 && later.cast_unsigned() > turn => continue,
            Some((_, ends, earlier)) => {
                until = if ends > now.0 { ends.max(until) } else { until };
                turn = earlier.cast_unsigned().max(turn);
            }
            None => {}
        }
        db.prepare_cached(
            "INSERT OR REPLACE INTO claim (bucket, holder, amount, until, turn) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            c.bucket,
            holder.0.to_be_bytes(),
            c.amount.cast_signed(),
            until,
            turn.cast_signed()
        ])?;
        add(db, &c.bucket, c.amount.cast_signed() - before.map_or(0, |(a, ..)| a))?;
    }
    Ok((Claimed::Granted, true))
}

/// When so much of what others hold is over that it fits; behind very many small ones, when all of it is.
fn free_at(db: &Connection, holder: OperationId, c: &Claim, others: i64, now: Time) -> Result<Option<Time>> {
    let mut over = others - (c.cap.cast_signed() - c.amount.cast_signed());
    let mut statement = db.prepare_cached(
        "SELECT until, amount FROM claim INDEXED BY claim_over
         WHERE bucket = ?1 AND until > ?2 AND holder <> ?3 ORDER BY until, holder LIMIT ?4",
    )?;
    let mut rows = statement.query(params![c.bucket, now.0, holder.0.to_be_bytes(), LOOKED])?;
    while let Some(r) = rows.next()? {
        over -= r.get::<_, i64>(1)?;
        if over <= 0 {
            return Ok(Some(Time(r.get(0)?)));
        }
    }
    let last: Option<i64> = db
        .prepare_cached("SELECT max(until) FROM claim INDEXED BY claim_over WHERE bucket = ?1")?
        .query_row([&c.bucket], |r| r.get(0))?;
    Ok(last.map(Time))
}

/// Whether anything was there to be given back.
pub(crate) fn release(db: &Connection, holder: OperationId, turn: u64, buckets: &[String]) -> Result<bool> {
    let mut changed = false;
    for bucket in buckets {
        if let Some((amount, _, held)) = own(db, bucket, holder)?
            && held.cast_unsigned() <= turn
        {
            remove(db, bucket, holder, amount)?;
            changed = true;
        }
    }
    Ok(changed)
}

/// Removes what is over, and the sums of buckets of which nothing is held.
pub(crate) fn prune(db: &Connection, now: Time, limit: usize) -> Result<usize> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let over = db
        .prepare_cached(
            "SELECT bucket, holder, amount FROM claim INDEXED BY claim_until WHERE until <= ?1 ORDER BY until, bucket LIMIT ?2",
        )?
        .query_map(params![now.0, limit], |r| {
            Ok((r.get(0)?, OperationId(u128::from_be_bytes(r.get(1)?)), r.get(2)?))
        })?
        .collect::<Result<Vec<(String, OperationId, i64)>>>()?;
    for (bucket, holder, amount) in &over {
        remove(db, bucket, *holder, *amount)?;
        db.prepare_cached(
            "DELETE FROM allowance WHERE bucket = ?1 AND NOT EXISTS (SELECT 1 FROM claim WHERE bucket = ?1)",
        )?
        .execute([bucket])?;
    }
    Ok(over.len())
}
