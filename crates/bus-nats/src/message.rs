//! Messages of the bus as bytes: a version, a tag over the rest, and what is told. Nobody who doesn't hold the ledger's
//! secret can make one.

use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use ledger::OperationId;
use ledger::bus::{MAX_BODY, MAX_TOPIC, Note};
use ledger::keys::Secret;
use sha2::Sha256;

/// The version of this form. Others are not read.
const VERSION: u8 = 1;
const TAG: usize = 32;
const ID: usize = 16;
/// Records that one message names at most: some kilobytes.
pub(crate) const MAX_IDS: usize = 256;

const MOVED: u8 = b'm';
const NOTE: u8 = b'n';
const GAP: u8 = b'g';

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// These records changed.
    Moved(Vec<OperationId>),
    /// A note.
    Note(Note),
    /// Something that was told before may be lost.
    Gap,
}

/// Makes and checks messages of one ledger.
#[derive(Clone)]
pub(crate) struct Form {
    mac: Hmac<Sha256>,
}

impl Form {
    /// For the ledger with this secret. HMAC takes keys of any length (RFC 2104), so there always is one.
    pub fn new(secret: &Secret) -> Option<Form> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).ok()?;
        mac.update(b"counterfoil bus on nats");
        Some(Form { mac })
    }

    /// Where the replicas of this ledger meet: nobody else can name it.
    pub fn subject(&self) -> String {
        let mut mac = self.mac.clone();
        mac.update(b"subject");
        format!("counterfoil.{}", ledger::effect::hex(&mac.finalize().into_bytes()[..16]))
    }

    /// The bytes of a message; `None` for a note that is too long.
    pub fn write(&self, message: &Message) -> Option<Bytes> {
        let mut said = Vec::new();
        match message {
            Message::Gap => said.push(GAP),
            Message::Moved(ids) => {
                said.push(MOVED);
                ids.iter().for_each(|id| said.extend(id.0.to_be_bytes()));
            }
            Message::Note(note) => {
                if note.topic.len() > MAX_TOPIC || note.body.len() > MAX_BODY {
                    return None;
                }
                said.push(NOTE);
                said.push(u8::try_from(note.topic.len()).ok()?);
                said.extend(note.topic.as_bytes());
                said.extend(note.body.as_bytes());
            }
        }
        let mut mac = self.mac.clone();
        mac.update(&said);
        let mut all = vec![VERSION];
        all.extend(mac.finalize().into_bytes());
        all.extend(said);
        Some(all.into())
    }

    /// What the bytes say, if they are of this ledger and version.
    pub fn read(&self, all: &[u8]) -> Option<Message> {
        let (&version, rest) = all.split_first()?;
        let (tag, said) = rest.split_at_checked(TAG)?;
        let mut mac = self.mac.clone();
        mac.update(said);
        if version != VERSION || mac.verify_slice(tag).is_err() {
            return None;
        }
        let (&kind, body) = said.split_first()?;
        match kind {
            GAP => Some(Message::Gap),
            MOVED => {
                let ids = body.chunks_exact(ID).take(MAX_IDS);
                Some(Message::Moved(
                    ids.filter_map(|c| Some(OperationId(u128::from_be_bytes(c.try_into().ok()?)))).collect(),
                ))
            }
            NOTE => {
                let (&length, body) = body.split_first()?;
                let (topic, body) = body.split_at_checked(usize::from(length))?;
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
                Some(Message::Note(Note { topic: text(topic)?, body: text(body)? }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn note(topic: &str, body: &str) -> Message {
        Message::Note(Note { topic: topic.into(), body: body.into() })
    }

    #[test]
    fn what_is_written_is_read_by_the_same_ledger_only() {
        let (mine, other) = (Form::new(&Secret([7; 32])).unwrap(), Form::new(&Secret([8; 32])).unwrap());
        assert_ne!(mine.subject(), other.subject());
        let all = [
            Message::Gap,
            Message::Moved((0..MAX_IDS as u128).map(OperationId).collect()),
            note("change", "resource test://ä"),
            note("", ""),
        ];
        for message in all {
            let bytes = mine.write(&message).unwrap();
            assert_eq!(mine.read(&bytes), Some(message));
            assert_eq!(other.read(&bytes), None);
            for cut in 0..bytes.len().min(64) {
                assert_eq!(mine.read(&bytes[..cut]), None);
                let mut changed = bytes.to_vec();
                changed[cut] ^= 1;
                assert_eq!(mine.read(&changed), None);
            }
        }
        assert_eq!(mine.write(&note("change", &"x".repeat(MAX_BODY + 1))), None);
    }
}
