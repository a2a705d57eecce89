//! `methods`: what can be called.

use super::fail::Done;
use super::out::Out;
use super::place::{Place, encode};
use crate::run::Use;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// Only those with this word in their id or description
    word: Option<String>,
}

pub(super) async fn run(args: Args, out: &Out) -> Done {
    let session = args.place.open(Use::Catalog).await?;
    let path = format!("/v1/methods?q={}", encode(args.word.as_deref().unwrap_or_default()));
    let answer = session.get(&path).await;
    session.close().await?;
    let answer = answer?;
    out.document(&answer);
    let methods = answer["methods"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |v: &serde_json::Value| v.as_str().unwrap_or("-").to_owned();
    let rows: Vec<Vec<String>> = methods
        .iter()
        .map(|m| {
            let recovery = m["safety"]["recovery"]["value"].as_str();
            let promise = m["safety"]["promise"].as_str().unwrap_or("changes nothing");
            vec![
                text(&m["id"]),
                text(&m["tool"]),
                text(&m["effect"]),
                recovery.unwrap_or("-").to_owned(),
                text(&m["approval"]),
                text(&m["mode"]),
                promise.to_owned(),
            ]
        })
        .collect();
    if rows.is_empty() {
        out.say("nothing has that word; without one, all are listed");
    } else {
        out.table(&["METHOD", "TOOL", "EFFECT", "RECOVERY", "APPROVAL", "MODE", "PROMISE"], &rows);
    }
    Ok(0)
}
