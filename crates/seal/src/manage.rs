//! What operators see of the ring and do with it.

use crate::error::Error;
use crate::keeper::{TRIES, master_for_a_new_ring, take_back, unwrap};
use crate::master::{MasterId, MasterKey, MasterPlace};
use crate::ring::{Change, Refusal, Turning};
use crate::shelf::{NAME, Shelf};
use crate::wrap::Wrapped;
use crate::{Key, Settings};
use ledger::{Millis, Time};

/// A ring as it is shown: never a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The server name that it belongs to.
    pub audience: String,
    /// The master keys that open it.
    pub masters: Vec<MasterId>,
    /// The one of this process.
    pub mine: MasterId,
    /// Where that is from.
    pub place: String,
    /// The longest lifetime of a token.
    pub longest: Millis,
    /// Its keys, oldest first.
    pub keys: Vec<Turning>,
    /// The ledger's time at which this is so.
    pub now: Time,
}

/// What is done with a ring.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A new key, in stages: nothing in flight is refused.
    Rotate,
    /// A new key at once, and none of the others any more: what is in flight is refused.
    Replace,
    /// Another master key opens it too.
    Allow(MasterKey),
    /// That master key opens it no longer.
    Forbid(MasterId),
    /// It belongs to this server name.
    Rename(String),
    /// A new ring in place of one that this process can't open.
    Reset,
}

fn told(wrapped: &Wrapped, master: &MasterKey, place: &MasterPlace, now: Time) -> Told {
    Told {
        audience: wrapped.audience.clone(),
        masters: wrapped.masters(),
        mine: master.id(),
        place: place.shown(),
        longest: wrapped.ring.longest(),
        keys: wrapped.ring.keys(now),
        now,
    }
}

/// Shows the ring.
///
/// # Errors
/// [`Error`]: it isn't there, or can't be opened here.
pub async fn look(shelf: &dyn Shelf, place: &MasterPlace) -> Result<Told, Error> {
    let kept = shelf.kept(NAME).await.map_err(Error::Store)?.ok_or(Error::Absent)?;
    let (wrapped, master) = unwrap(&kept, place)?;
    Ok(told(&wrapped, &master, place, shelf.now()))
}

/// Changes the ring, and shows what it is then.
///
/// # Errors
/// [`Error`]: it was not changed.
pub async fn alter(
    shelf: &dyn Shelf,
    place: &MasterPlace,
    settings: &Settings,
    operation: &Operation,
) -> Result<Told, Error> {
    if let Operation::Reset = operation {
        return reset(shelf, place, settings).await;
    }
    let key = Key::new()?;
    for _ in 0..TRIES {
        let kept = shelf.kept(NAME).await.map_err(Error::Store)?.ok_or(Error::Absent)?;
        let (mut wrapped, master) = unwrap(&kept, place)?;
        let now = shelf.now();
        // The very change that an unconfirmed write of ours made.
        if wrapped.ring.keys(now).iter().any(|t| t.id == key.id()) {
            return Ok(told(&wrapped, &master, place, now));
        }
        let change = match operation {
            Operation::Rotate => Some(Change::Rotate(key.clone())),
            Operation::Replace => {
                wrapped.renew_vault()?;
                Some(Change::Replace(key.clone()))
            }
            Operation::Allow(other) => {
                wrapped.allow(other)?;
                None
            }
            Operation::Forbid(id) => {
                wrapped.forbid(*id, &master)?;
                None
            }
            Operation::Rename(name) => {
                if wrapped.audience == *name {
                    return Err(Error::Refused(format!("the key ring belongs to {name:?} already")));
                }
                wrapped.audience.clone_from(name);
                None
            }
            Operation::Reset => None,
        };
        if let Some(change) = change {
            match wrapped.ring.decide(change, now) {
                Ok(Some(next)) => wrapped.ring = next,
                Ok(None) => {}
                Err(refusal) => return Err(refused(refusal, now)),
            }
        }
        if shelf.keep(NAME, kept.version, wrapped.close()?).await.map_err(Error::Store)? {
            return Ok(told(&wrapped, &master, place, now));
        }
    }
    Err(Error::Contended)
}

fn refused(refusal: Refusal, now: Time) -> Error {
    let seconds = |at: Time| (at.since(now).0.max(0) + 999) / 1000;
    Error::Refused(match refusal {
        Refusal::Underway(id, at) => format!(
            "the key {id} is on its way already and seals in {} s; nothing was changed. If a key is known to others, `counterfoil keys rotate --now` lets go of all at once",
            seconds(at)
        ),
        Refusal::Full(at) => format!(
            "so many keys still open what they sealed that no other one is taken in; nothing was changed. Try again in {} s, or `counterfoil keys rotate --now` lets go of all at once",
            seconds(at)
        ),
    })
}

async fn reset(shelf: &dyn Shelf, place: &MasterPlace, settings: &Settings) -> Result<Told, Error> {
    for _ in 0..TRIES {
        let kept = shelf.kept(NAME).await.map_err(Error::Store)?;
        match kept.as_ref().map(|kept| unwrap(kept, place)) {
            Some(Ok(_)) => {
                return Err(Error::Refused(
                    "the key ring opens with the master key of this process; nothing was changed. To let go of all keys at once use `counterfoil keys rotate --now`".into(),
                ));
            }
            // The file that is there is to be mended, not passed over; what a newer version wrote is not damaged.
            Some(Err(e @ (Error::Master(_) | Error::Newer(_) | Error::Random(_)))) => return Err(e),
            Some(Err(_)) | None => {}
        }
        let version = kept.map_or(0, |kept| kept.version);
        let (master, made) = master_for_a_new_ring(place)?;
        let now = shelf.now();
        let wrapped = Wrapped::new(&settings.audience, &master, now, settings.state_ttl)?;
        if shelf.keep(NAME, version, wrapped.close()?).await.map_err(Error::Store)? {
            return Ok(told(&wrapped, &master, place, now));
        }
        if made {
            take_back(shelf, place, &master).await;
        }
    }
    Err(Error::Contended)
}
