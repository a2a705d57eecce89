//! What is promised of a round's end.

use super::Age;
use crate::stand::Class;
use crate::torture::plan::{Fault, Round, Upset};

/// What is promised of a round's end.
pub(super) struct Promise {
    /// The provider refuses for good.
    pub refused: bool,
    /// When it may come to be in doubt.
    pub doubt: Doubt,
    /// How many effects there may be.
    pub most: u64,
}

/// When a call may come to be in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It may not.
    Never,
    /// Only if the provider, when it is asked, has nothing to show.
    Untraced,
    /// Only if the provider has received anything at all.
    Received,
    /// Always: nobody can tell by machine.
    Always,
}

pub(super) fn promise(round: &Round, age: Age) -> Promise {
    let provider = round.fault.provider(round.class);
    let doubt = match round.class {
        Class::None | Class::Confirm if round.fault == Fault::ProviderDownFirst => Doubt::Received,
        Class::None | Class::Confirm => Doubt::Always,
        // A provider of this class repeats a stored failure, and shows no trace when it is asked.
        Class::Key if provider == Some("fail") => Doubt::Untraced,
        // What it may have forgotten is not sent again, but it is asked.
        Class::Key if age == Age::Unknown => Doubt::Untraced,
        // Another may have written since, and nobody can be asked.
        Class::Natural if age == Age::Unknown => Doubt::Always,
        // What `unique` refuses a second of stays refused, and the wait of `lookup` begins anew.
        _ => Doubt::Never,
    };
    // Who is asked by a marker, and has nothing to show, may have a request still to come of a sender that slept between
    // its last look at the clock and its first byte. Nobody can know; what is promised ends there.
    let blind = round.class == Class::Lookup && round.fault == Fault::Replicas(Upset::Still("send.late"));
    Promise { refused: provider == Some("refuse"), doubt, most: if blind { 2 } else { 1 } }
}
