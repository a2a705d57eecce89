//! `api-keys`: made here, shown once, kept as a hash.

use super::fail::{Done, Fail};
use super::out::Out;
use super::place::{Place, encode};
use crate::run::Use;
use serde_json::{Value, json};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Make a key for a principal; it is shown once
    Create(Create),
    /// List keys; never their values
    List(List),
    /// Revoke a key
    Revoke(Revoke),
}

#[derive(Debug, clap::Args)]
pub(super) struct Create {
    #[command(flatten)]
    place: Place,
    /// Who calls with it: operations belong to the principal, so a new key of the same one sees them
    #[arg(long, value_name = "NAME")]
    principal: String,
    /// For people: where it is used
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct List {
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
pub(super) struct Revoke {
    #[command(flatten)]
    place: Place,
    /// The key's id, from `api-keys list`
    id: String,
}

pub(super) async fn run(command: Command, out: &Out) -> Done {
    match command {
        Command::Create(args) => create(args, out).await,
        Command::List(args) => list(args, out).await,
        Command::Revoke(args) => revoke(args, out).await,
    }
}

/// RFC 4648 base32, lower case, without padding.
fn base32(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut out = String::with_capacity(bytes.len() * 8 / 5 + 1);
    let (mut bits, mut held) = (0u32, 0u32);
    for b in bytes {
        held = held << 8 | u32::from(*b);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            out.push(char::from(DIGITS[(held >> bits & 31) as usize]));
        }
    }
    if bits > 0 {
        out.push(char::from(DIGITS[(held << (5 - bits) & 31) as usize]));
    }
    out
}

fn random<const N: usize>() -> Result<[u8; N], Fail> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| Fail::unavailable(format!("the operating system gives no random numbers ({e})")))?;
    Ok(bytes)
}

async fn create(args: Create, out: &Out) -> Done {
    // 256 bits: nobody guesses it, so a plain hash is enough at rest.
    let key = format!("{}{}", gateway::principal::PREFIX, base32(&random::<32>()?));
    let id = format!("ak-{}", base32(&random::<5>()?));
    let body = json!({ "id": id, "principal": args.principal, "hash": gateway::principal::hash(&key), "note": args.note });
    let session = args.place.open(Use::Write).await?;
    let made = session.post("/v1/api-keys", &body).await;
    session.close().await?;
    let mut made = made?;
    made["key"] = json!(key);
    out.document(&made);
    out.say(&key);
    out.say(out.dim(&format!(
        "{id} for {}: this is the only time the key is shown. Send it as `Authorization: Bearer {}…`.",
        args.principal,
        gateway::principal::PREFIX
    )));
    Ok(0)
}

async fn list(args: List, out: &Out) -> Done {
    let session = args.place.open(Use::Read).await?;
    let answer = session.get("/v1/api-keys").await;
    session.close().await?;
    let answer = answer?;
    out.document(&answer);
    let text = |v: &Value| v.as_str().unwrap_or("-").to_owned();
    let keys = answer["keys"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows: Vec<Vec<String>> = keys
        .iter()
        .map(|k| {
            vec![
                text(&k["id"]),
                text(&k["principal"]),
                text(&k["createdAt"]),
                text(&k["revokedAt"]),
                text(&k["note"]),
            ]
        })
        .collect();
    if rows.is_empty() {
        out.say("no API keys; make one with `counterfoil api-keys create --principal NAME`");
    } else {
        out.table(&["ID", "PRINCIPAL", "MADE", "REVOKED", "NOTE"], &rows);
    }
    Ok(0)
}

async fn revoke(args: Revoke, out: &Out) -> Done {
    let session = args.place.open(Use::Read).await?;
    let answer = session.post(&format!("/v1/api-keys/{}/revoke", encode(&args.id)), &json!({})).await;
    session.close().await?;
    let answer = answer?;
    out.document(&answer);
    out.say(format!("{} is revoked; operations of its principal stay", args.id));
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::base32;

    /// RFC 4648, section 10.
    #[test]
    fn base32_of_the_rfc() {
        for (given, wanted) in [
            ("", ""),
            ("f", "my"),
            ("fo", "mzxq"),
            ("foo", "mzxw6"),
            ("foob", "mzxw6yq"),
            ("fooba", "mzxw6ytb"),
            ("foobar", "mzxw6ytboi"),
        ] {
            assert_eq!(base32(given.as_bytes()), wanted);
        }
    }
}
