//! The key of one step of a handler's run, so that a handler that runs again repeats no effect.
//!
//! A run has a name that is the same whenever it runs again: the id of the operation around it, a job's, an order's. In
//! it, a step is known by
//! - its method and its arguments: the same method with the same arguments is the same effect, other arguments another;
//! - or a name: the same method under the same name is the same effect. The arguments are no part of it, so a run that
//!   would make them anew (a time, a random number) is refused as a conflict of keys, and nothing runs twice.
//!
//! Both are keys like any other in the scope of (principal, method, mode), which holds the method; order plays no part.

use ledger::words::BadKey;
use ledger::{Fingerprint, Key};
use sha2::{Digest as _, Sha256};

/// The longest name of a run or of a step, in characters.
pub(super) const MAX_NAME: usize = 255;

/// One step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The run.
    pub operation: String,
    /// The step's name, if it has one.
    pub name: Option<String>,
}

/// Checks a name: 1 to 255 visible ASCII characters, as a key.
pub(super) fn checked(text: &str) -> Result<(), String> {
    match text.len() {
        0 => Err("is empty; leave it out or give 1 to 255 characters".into()),
        n if n > MAX_NAME => Err(format!("has {n} bytes; at most {MAX_NAME} are allowed")),
        _ if text.bytes().all(|b| (0x21..=0x7e).contains(&b)) => Ok(()),
        _ => Err("has a character outside visible ASCII (0x21 to 0x7E)".into()),
    }
}

impl Step {
    /// Its key. `fingerprint` is that of the method and the arguments. What goes into it is fixed for ever: a run that is
    /// repeated by a newer version must find its effects.
    pub fn key(&self, fingerprint: &Fingerprint) -> Result<Key, BadKey> {
        let (what, which): (&[u8], &[u8]) = match &self.name {
            Some(name) => (b"step", name.as_bytes()),
            None => (b"arguments", &fingerprint.digest),
        };
        let mut hash = Sha256::new();
        for part in [b"counterfoil/run/1", self.operation.as_bytes(), what, which] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Key::new(&format!("run-{}", ledger::effect::hex(&hash.finalize())))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ledger::canonical::canonicalise_arguments;

    fn fingerprint(arguments: &str) -> Fingerprint {
        Fingerprint::of("a.b", &canonicalise_arguments(Some(arguments), None).unwrap())
    }

    fn key(operation: &str, name: Option<&str>, arguments: &str) -> String {
        let step = Step { operation: operation.into(), name: name.map(str::to_owned) };
        step.key(&fingerprint(arguments)).unwrap().as_str().to_owned()
    }

    #[test]
    fn a_step_is_its_arguments_or_its_name() {
        let plain = key("job-1", None, r#"{"a":1,"b":2}"#);
        assert_eq!(plain, key("job-1", None, r#"{ "b": 2.0, "a": 1 }"#));
        assert_ne!(plain, key("job-1", None, r#"{"a":1,"b":3}"#));
        assert_ne!(plain, key("job-2", None, r#"{"a":1,"b":2}"#));
        let named = key("job-1", Some("first"), r#"{"a":1}"#);
        assert_eq!(named, key("job-1", Some("first"), r#"{"a":2}"#));
        assert_ne!(named, key("job-1", Some("second"), r#"{"a":1}"#));
        assert_ne!(named, key("job-1f", Some("irst"), r#"{"a":1}"#));
        assert_ne!(plain, named);
    }

    #[test]
    fn the_derivation_is_fixed() {
        // Changing these would make a repeated run a second effect.
        assert_eq!(
            key("job-1", Some("first"), "{}"),
            "run-d36d634978934d6817548a3e983243ff81a4600cd3875b7c8bef883a001e2e67"
        );
        assert_eq!(
            key("job-1", None, r#"{"a":1}"#),
            "run-eb1ed1012664a10d67191274b0d76a7701a8d2c3b1a3b764afff8ca9ad116a87"
        );
    }

    #[test]
    fn names_are_bounded() {
        for good in ["a", "op_nonsense", &"x".repeat(255)] {
            assert_eq!(checked(good), Ok(()));
        }
        for bad in ["", "a b", "é", "a\n", &"x".repeat(256)] {
            assert!(checked(bad).is_err(), "{bad:?}");
        }
    }
}
