//! What only operators decide: about operations in doubt, those that wait for a yes, and a restored ledger.

use super::{Answered, Ctx, Failure, parse_id, told, usage};
use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use ledger::Verdict;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resolve {
    by: String,
    verdict: String,
    receipt: Option<Value>,
}

pub(super) async fn resolve(
    State(c): State<Ctx>,
    Path(id): Path<String>,
    Json(r): Json<Resolve>,
) -> Answered {
    let id = parse_id(&id)?;
    let by = who(&r.by)?;
    let verdict = match r.verdict.as_str() {
        "applied" => {
            let receipt =
                json!({ "operator": by, "note": "an operator found that it happened", "receipt": r.receipt });
            Verdict::Applied(ledger::Receipt(receipt.to_string().into_bytes()))
        }
        "not_applied" => Verdict::NotApplied,
        "send_again" => Verdict::SendAgain,
        other => {
            return Err(usage(format!(
                "there is no verdict {other:?}; it is applied, not_applied or send_again"
            )));
        }
    };
    let op = c.shared.ledger.decide(id, by, verdict).await?;
    told(&op)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct By {
    by: String,
}

fn who(by: &str) -> Result<String, Failure> {
    if by.trim().is_empty() || by.len() > 128 {
        Err(usage("say who decides: `by` has 1 to 128 characters"))
    } else {
        Ok(by.to_owned())
    }
}

pub(super) async fn retry(State(c): State<Ctx>, Path(id): Path<String>, Json(b): Json<By>) -> Answered {
    let op = c.shared.ledger.retry(parse_id(&id)?, who(&b.by)?).await?;
    told(&op)
}

pub(super) async fn cancel(State(c): State<Ctx>, Path(id): Path<String>, Json(b): Json<By>) -> Answered {
    let op = c.shared.ledger.cancel(parse_id(&id)?, who(&b.by)?).await?;
    told(&op)
}

/// Exactly what was shown is done, once; the same again changes nothing.
pub(super) async fn approve(State(c): State<Ctx>, Path(id): Path<String>, Json(b): Json<By>) -> Answered {
    let op = c.shared.ledger.approve(parse_id(&id)?, &who(&b.by)?).await?;
    told(&op)
}

/// Nothing of it is done, for good.
pub(super) async fn deny(State(c): State<Ctx>, Path(id): Path<String>, Json(b): Json<By>) -> Answered {
    let op = c.shared.ledger.deny(parse_id(&id)?, &who(&b.by)?).await?;
    told(&op)
}

/// Every open operation must have been reconciled: what a restored ledger does not know, it would do again.
pub(super) async fn release(State(c): State<Ctx>, Json(b): Json<By>) -> Answered {
    let by = who(&b.by)?;
    let counts = c.shared.ledger.counts().await?;
    let open: u64 = ["accepted", "running", "input_required", "in_doubt"]
        .iter()
        .filter_map(|w| counts.execution.get(*w))
        .sum();
    if open > 0 {
        let why = format!(
            "{open} operations are still open; reconcile them first (`counterfoil ops list`), then release"
        );
        return Err(Failure(StatusCode::CONFLICT, "open_operations", why));
    }
    let held = c.shared.ledger.store().is_held();
    c.shared.ledger.store().release().await?;
    tracing::warn!(by, "the restored ledger was released: new operations are opened again");
    Ok(Json(json!({ "released": held, "by": by })))
}
