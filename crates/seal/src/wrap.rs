//! The ring at rest: its keys under a key of their own, that one under each master key.
//!
//! So a second master key can be allowed while replicas go over to it, one after another, and a rotation needs only one
//! of them. Whoever has the ledger, or a backup of it, and no master key has no ring.

use crate::context::assertion;
use crate::error::{Error, Reject, SealError};
use crate::key::Key;
use crate::master::{MasterId, MasterKey};
use crate::ring::{Held, MAX_KEYS, Ring};
use crate::token;
use crate::vault::{MAX_VAULT_KEYS, Vault};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ledger::{Millis, Time};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The most master keys at a time: the one in use, and the one that is gone over to.
pub const MAX_MASTERS: usize = 2;
/// The form that is written. A newer one is left alone.
const FORM: u32 = 1;
/// The largest value that is read, in bytes.
const MAX_BYTES: usize = 64 << 10;
const END: Time = Time(i64::MAX);

/// As it is kept.
#[derive(Serialize, Deserialize)]
struct Envelope {
    form: u32,
    audience: String,
    masters: Vec<Slot>,
    ring: String,
}

/// The key of the ring under one master key.
#[derive(Clone, Serialize, Deserialize)]
struct Slot {
    id: String,
    key: String,
}

#[derive(Serialize, Deserialize)]
struct RingText {
    longest: Millis,
    keys: Vec<KeyText>,
    /// Keys of the vault, oldest first. A ring of an older program has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    vault: Vec<Zeroizing<String>>,
}

#[derive(Serialize, Deserialize)]
struct KeyText {
    secret: Zeroizing<String>,
    made_at: Time,
    seals_from: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    opens_until: Option<Time>,
}

/// A ring, opened, with what is needed to close it again.
#[derive(Clone)]
pub struct Wrapped {
    /// The server name that it was made for.
    pub audience: String,
    /// The ring.
    pub ring: Ring,
    /// `None` where an older program wrote it.
    pub(crate) vault: Option<Vault>,
    inner: Key,
    slots: Vec<(MasterId, String)>,
}

impl std::fmt::Debug for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wrapped")
            .field("audience", &self.audience)
            .field("ring", &self.ring)
            .field("masters", &self.masters())
            .finish_non_exhaustive()
    }
}

fn slot_assertion(id: MasterId) -> Vec<u8> {
    assertion(&[b"counterfoil seal master slot v1", id.to_string().as_bytes()])
}

fn ring_assertion(audience: &str) -> Vec<u8> {
    assertion(&[b"counterfoil seal ring v1", audience.as_bytes()])
}

fn sealed(key: &Key, text: &str, assertion: &[u8]) -> Result<String, Error> {
    token::seal(key, text.as_bytes(), assertion, END).map_err(|e| match e {
        SealError::TooLarge => {
            Error::Refused("the key ring holds more than fits; wait until older keys are gone".into())
        }
        SealError::Unavailable(why) => Error::Store(why),
    })
}

fn opened(key: &Key, text: &str, assertion: &[u8]) -> Result<Zeroizing<Vec<u8>>, Reject> {
    let unproved = token::parse(text)?;
    if unproved.kid != key.id() {
        return Err(Reject::UnknownKey);
    }
    unproved.open(key, assertion, Time(0)).map(Zeroizing::new)
}

fn key(text: &[u8]) -> Option<Key> {
    let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(text).ok()?);
    let mut secret = Zeroizing::new([0; 32]);
    if bytes.len() != secret.len() {
        return None;
    }
    secret.copy_from_slice(&bytes);
    Some(Key::from_bytes(secret))
}

fn text_of(key: &Key) -> Zeroizing<String> {
    Zeroizing::new(URL_SAFE_NO_PAD.encode(key.secret()))
}

/// What can be read of a kept ring without a master key: the server name and the master keys that open it.
pub(crate) fn outside(data: &[u8]) -> Result<(String, Vec<MasterId>), Error> {
    let envelope = envelope(data)?;
    let ids = slots(&envelope)?.into_iter().map(|(id, _)| id).collect();
    Ok((envelope.audience, ids))
}

fn envelope(data: &[u8]) -> Result<Envelope, Error> {
    #[derive(Deserialize)]
    struct Form {
        form: u32,
    }
    if data.len() > MAX_BYTES {
        return Err(Error::Damaged("it is larger than any that is written"));
    }
    let form: Form = serde_json::from_slice(data).map_err(|_| Error::Damaged("it is no key ring"))?;
    if form.form > FORM {
        return Err(Error::Newer(form.form));
    }
    serde_json::from_slice(data).map_err(|_| Error::Damaged("a part of it is missing"))
}

fn slots(envelope: &Envelope) -> Result<Vec<(MasterId, String)>, Error> {
    let read = |s: &Slot| Some((MasterId::read(&s.id)?, s.key.clone()));
    let slots: Option<Vec<_>> = envelope.masters.iter().map(read).collect();
    slots
        .filter(|s| (1..=MAX_MASTERS).contains(&s.len()))
        .ok_or(Error::Damaged("its master keys can't be read"))
}

impl Wrapped {
    /// A new ring under one master key.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn new(audience: &str, master: &MasterKey, now: Time, longest: Millis) -> Result<Wrapped, Error> {
        let ring = Ring::new(Key::new()?, now, longest)?;
        let vault = Some(Vault::new()?);
        let (audience, inner) = (audience.to_owned(), Key::new()?);
        let mut wrapped = Wrapped { audience, ring, vault, inner, slots: Vec::new() };
        wrapped.allow(master)?;
        Ok(wrapped)
    }

    /// Opens what is kept. `place` says where the master key is from, for people.
    ///
    /// # Errors
    /// [`Error::WrongMaster`], [`Error::Damaged`], [`Error::Newer`]: what is kept stays as it is.
    pub fn open(data: &[u8], master: &MasterKey, place: &str) -> Result<Wrapped, Error> {
        let envelope = envelope(data)?;
        let slots = slots(&envelope)?;
        let Some((_, slot)) = slots.iter().find(|(id, _)| *id == master.id()) else {
            return Err(Error::WrongMaster {
                ring: slots.iter().map(|(id, _)| *id).collect(),
                ours: master.id(),
                place: place.to_owned(),
            });
        };
        let inner = opened(&master.wrapping(), slot, &slot_assertion(master.id()));
        let inner = inner.ok().and_then(|text| key(&text));
        let inner = inner.ok_or(Error::Damaged("its key doesn't open with its master key"))?;
        let text = opened(&inner, &envelope.ring, &ring_assertion(&envelope.audience));
        let text = text.map_err(|_| Error::Damaged("its keys don't open, or its server name was changed"))?;
        let text: RingText =
            serde_json::from_slice(&text).map_err(|_| Error::Damaged("its keys can't be read"))?;
        let held = text.keys.iter().map(|k| {
            Some(Held {
                key: key(k.secret.as_bytes())?,
                made_at: k.made_at,
                seals_from: k.seals_from,
                opens_until: k.opens_until,
            })
        });
        let held: Option<Vec<Held>> = held.collect();
        let held = held.filter(|h| (1..=MAX_KEYS).contains(&h.len()));
        let held = held.ok_or(Error::Damaged("its keys can't be read"))?;
        let vault: Option<Vec<Key>> = text.vault.iter().map(|secret| key(secret.as_bytes())).collect();
        let vault = vault.filter(|v| v.len() <= MAX_VAULT_KEYS);
        let vault = vault.ok_or(Error::Damaged("the keys of its vault can't be read"))?;
        let vault = Some(Vault { keys: vault }).filter(|v| !v.keys.is_empty());
        let (audience, ring) = (envelope.audience, Ring::of(held, text.longest)?);
        Ok(Wrapped { audience, ring, vault, inner, slots })
    }

    /// As it is kept.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn close(&self) -> Result<Vec<u8>, Error> {
        let keys = self.ring.held.iter().map(|h| KeyText {
            secret: text_of(&h.key),
            made_at: h.made_at,
            seals_from: h.seals_from,
            opens_until: h.opens_until,
        });
        let vault = self.vault.iter().flat_map(|v| &v.keys).map(text_of);
        let text = RingText { longest: self.ring.longest, keys: keys.collect(), vault: vault.collect() };
        let unwritten = |_| Error::Damaged("it can't be written");
        let text = Zeroizing::new(serde_json::to_string(&text).map_err(unwritten)?);
        let envelope = Envelope {
            form: FORM,
            audience: self.audience.clone(),
            masters: self
                .slots
                .iter()
                .map(|(id, key)| Slot { id: id.to_string(), key: key.clone() })
                .collect(),
            ring: sealed(&self.inner, &text, &ring_assertion(&self.audience))?,
        };
        serde_json::to_vec(&envelope).map_err(unwritten)
    }

    /// The master keys that open it.
    #[must_use]
    pub fn masters(&self) -> Vec<MasterId> {
        self.slots.iter().map(|(id, _)| *id).collect()
    }

    /// Lets another master key open it too.
    ///
    /// # Errors
    /// [`Error::Refused`]: there are [`MAX_MASTERS`] already, or it is one of them.
    pub fn allow(&mut self, master: &MasterKey) -> Result<(), Error> {
        if self.masters().contains(&master.id()) {
            return Err(Error::Refused(format!("the master key {} opens the key ring already", master.id())));
        }
        if self.slots.len() >= MAX_MASTERS {
            return Err(Error::Refused(format!(
                "{MAX_MASTERS} master keys open the key ring; forbid one of them first"
            )));
        }
        let slot = sealed(&master.wrapping(), &text_of(&self.inner), &slot_assertion(master.id()))?;
        self.slots.push((master.id(), slot));
        Ok(())
    }

    /// Keeps `mine` and takes the master key `id` away. The ring gets another key of its own, and the vault a new one: who
    /// had kept the old ones by that master key opens nothing that is written from now on.
    ///
    /// # Errors
    /// [`Error::Refused`]: it is this process's, or opens nothing.
    pub fn forbid(&mut self, id: MasterId, mine: &MasterKey) -> Result<(), Error> {
        if id == mine.id() {
            return Err(Error::Refused(format!(
                "{id} is the master key of this process; restart all with the other one first, then forbid this one there"
            )));
        }
        if !self.masters().contains(&id) {
            return Err(Error::Refused(format!("no master key {id} opens the key ring")));
        }
        self.inner = Key::new()?;
        self.renew_vault()?;
        self.slots.clear();
        self.allow(mine)
    }

    /// Puts secrets away under a new key from now on; what was put away still opens.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub(crate) fn renew_vault(&mut self) -> Result<(), Error> {
        match &mut self.vault {
            Some(vault) => vault.renew()?,
            None => self.vault = Some(Vault::new()?),
        }
        Ok(())
    }
}
