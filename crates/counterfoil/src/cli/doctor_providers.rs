//! `doctor --providers`: what providers have of ours that the ledger doesn't know. A ledger that was restored is older
//! than the world: what was done since is found where a look-up can list it, and by the shape of its effect key.

use super::doctor::Report;
use super::fail::Fail;
use super::place::{Place, Session, encode};
use crate::config::Config;
use crate::run::{Use, load};
use ledger::Millis;
use provider::{Borne, HttpExecutor, Listing, MethodEffect};
use serde_json::Value;
use std::collections::HashSet;

/// Pages of one provider's list.
const PAGES: usize = 20;
/// Time for one provider's list.
const PATIENCE: Millis = Millis::secs(30);
/// Records in one question to the ledger, and questions at most.
const AT_ONCE: usize = 1000;
const QUESTIONS: usize = 500;
/// Objects that are named.
const NAMED: usize = 20;

/// See the module.
pub(super) async fn strays(place: &Place, config: &Config, report: &mut Report) {
    let loaded = match load(config, config.sandbox) {
        Ok(loaded) => loaded,
        // Told already.
        Err(_) => return,
    };
    let known = match known(place).await {
        Ok(known) => known,
        Err(e) => {
            report.error("providers", e.message, "the ledger has to be read to compare with it");
            return;
        }
    };
    if !known.whole {
        report.warn(
            "providers",
            format!(
                "the ledger keeps more than {} operations, and only the newest were compared",
                AT_ONCE * QUESTIONS
            ),
            "what is older may be named here although the ledger knows it",
        );
    }
    for integration in &loaded.integrations {
        for m in integration.methods().iter().filter(|m| m.effect() == MethodEffect::Mutating) {
            match m.listing() {
                Ok(listing) => ask(m.canonical_id(), &listing, &loaded.executor, &known.keys, report).await,
                Err(why) => report.warn(
                    m.canonical_id(),
                    format!("can't be compared: {why}"),
                    "look at the provider's own list for what was made since the backup",
                ),
            }
        }
    }
}

async fn ask(
    id: &str,
    listing: &Listing,
    executor: &HttpExecutor,
    known: &HashSet<String>,
    report: &mut Report,
) {
    let listed = match executor.list(listing, PAGES, PATIENCE).await {
        Ok(listed) => listed,
        Err(why) => {
            report.warn(
                id,
                format!("can't be compared: {why}"),
                "look at the provider's own list for what was made since the backup",
            );
            return;
        }
    };
    let strays: Vec<&Borne> = listed.borne.iter().filter(|b| !known.contains(&b.key)).collect();
    let rest = if listed.whole { "" } else { " first" };
    if strays.is_empty() {
        let objects = listed.objects;
        report.good(
            id,
            format!(
                "the ledger knows every effect key among the {objects} objects that its provider lists{rest}"
            ),
        );
    } else {
        let named: Vec<String> = strays.iter().take(NAMED).map(|b| named(b)).collect();
        let more = if strays.len() > NAMED { ", …" } else { "" };
        report.warn(
            id,
            format!(
                "{} of the {} objects that its provider lists{rest} bear effect keys that the ledger doesn't know: {}{more}",
                strays.len(),
                listed.objects,
                named.join(", ")
            ),
            "made since the backup, by another ledger of this account, or longer ago than this one keeps: find out who called them and tell them not to call again, before `counterfoil ops release`",
        );
    }
    if !listed.whole {
        report.warn(
            id,
            "its provider has more than was listed",
            "look at the provider's own list for the rest; let its look-up name the next page (next)",
        );
    }
}

fn named(b: &Borne) -> String {
    match &b.id {
        Some(id) => format!("{} (key {})", id.chars().take(100).collect::<String>(), b.key),
        None => format!("key {}", b.key),
    }
}

struct Known {
    keys: HashSet<String>,
    whole: bool,
}

/// The effect keys of everything that is kept.
async fn known(place: &Place) -> Result<Known, Fail> {
    let session = place.open(Use::Read).await?;
    let keys = all(&session).await;
    session.close().await?;
    keys
}

async fn all(session: &Session) -> Result<Known, Fail> {
    let mut keys = HashSet::new();
    let mut before = String::new();
    for _ in 0..QUESTIONS {
        let answer = session.get(&format!("/v1/ops?limit={AT_ONCE}{before}")).await?;
        let ops = answer["operations"].as_array().map(Vec::as_slice).unwrap_or_default();
        for op in ops {
            let effects = op["effects"].as_array().map(Vec::as_slice).unwrap_or_default();
            keys.extend(effects.iter().filter_map(|e| e["key"].as_str().map(str::to_owned)));
        }
        match ops.last().and_then(|op: &Value| op["id"].as_str()) {
            Some(last) if ops.len() == AT_ONCE => before = format!("&before={}", encode(last)),
            _ => return Ok(Known { keys, whole: true }),
        }
    }
    Ok(Known { keys, whole: false })
}
