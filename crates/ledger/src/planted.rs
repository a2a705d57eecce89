//! Guards that a test can take out, to see that some check misses them. Nothing of it is compiled without the feature
//! `planted`, which no shipped binary has.
//!
//! One guard is out at a time: for the calling thread ([`on_this_thread`]), or for the whole process ([`everywhere`])
//! where the work is done by other threads.

/// Whether this guard is taken out. Without the feature `planted` of the using crate: never, at compile time.
#[macro_export]
macro_rules! planted {
    ($name:ident) => {{
        #[cfg(feature = "planted")]
        let out = $crate::planted::is_out($crate::planted::Plant::$name);
        #[cfg(not(feature = "planted"))]
        let out = false;
        out
    }};
}

/// A guard taken out.
#[cfg(feature = "planted")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Plant {
    /// What a send came to is recorded without asking for the fence.
    ReceiveWithoutFence = 1,
    /// The effect key that is sent depends on the attempt.
    KeyPerAttempt,
    /// The answer leaves before the closing write is durable.
    AnswerBeforeReceipt,
    /// An attempt that ends in an error resets the record to *no effect happened*.
    ResetOnError,
    /// A look-up's *not found* counts at once.
    LookupWithoutQuarantine,
    /// A call without a key joins an operation whose result was acknowledged.
    AcknowledgedTwinJoined,
    /// A call without a key is a new operation although its twin's caller is gone.
    OrphanedTwinNotJoined,
    /// An operation without a key takes its slot without a compare-and-set.
    SlotWithoutCompareAndSet,
    /// The refusal of a replay settles the effect.
    ReplayRefusalSettles,
    /// An operation is cancelled although something of it may have left.
    CancelAfterNoReturn,
    /// A further effect is sent before its intent is durable.
    SendBeforeIntent,
    /// A live attempt is taken over before its deadline.
    ClaimFromTheLiving,
    /// A replay is sent although the provider may have forgotten the key.
    ReplayPastRetention,
    /// A second send of an effect that nothing makes safe to repeat.
    ReplayWithoutStrategy,
    /// After a lost acknowledgement, what a send came to is counted once more.
    AnswerCountedTwice,
    /// An operation is found by its id, whoever asks.
    ForeignOperation,
    /// After an uncertain opening the caller is told that nothing ran.
    NothingRanAfterUncertain,
    /// An operation closes although an effect of it is open.
    CloseOverOpenEffect,
    /// Doubt, although a replay would be safe.
    DoubtInHaste,
    /// An older delivery is recorded over a newer one.
    DeliveryGoesBack,
    /// Recovery takes up nothing that runs.
    LeftBehind,
    /// A key with other arguments is answered with the operation that it names.
    KeyWithoutFingerprint,
    /// What waits for a yes is an effect before it.
    IntentBeforeApproval,
    /// A later answer takes the place of the first.
    AnswerOverwrites,
    /// A change of a handle that is recorded is made again.
    HandleChangedTwice,
    /// The shelf takes whatever comes, whatever is there.
    ShelfWithoutCompareAndSet,
    /// What was handed out as a task is abandoned when its caller leaves.
    HandedOutAbandoned,
    /// What an attempt of an earlier epoch has to say is written under the present one.
    OldEpochSpeaks,
    /// A send is begun for an epoch that its replica has left behind.
    SendUnderOldEpoch,
    /// What other replicas tell of is not read again.
    BellNotHeard,
    /// What may have been missed is not read again.
    GapNotHeard,
    /// Other replicas are not told that somebody of theirs need not wait any more.
    MovedNotTold,
    /// A guard of stores: a batch of a boot that was ended is committed when it comes late.
    LateBatchOfOldEpoch,
    /// A guard of stores: a write whose acknowledgement was lost counts as not made where others wrote since.
    StaleWhereUnsure,
    /// What a tool asks to be sent now is sent, whatever was recorded and shown.
    OtherIntentSent,
    /// An answer is given to whatever is asked under its key now.
    OtherQuestionAnswered,
    /// An operation goes on although not everything that it asked is answered.
    AnsweredInPart,
    /// Between two legs a caller counts as gone.
    LegsNotAwaited,
    /// An operation begins whatever others hold of what it needs.
    NothingClaimed,
    /// What an operation holds is given back although it may have had its effect.
    GivenBackInDoubt,
    /// A call that is made again claims what a new operation would.
    ClaimedAgain,
    /// A call begins an operation with what was claimed for an earlier state of it.
    ClaimedForEarlier,
    /// What is given back late takes along what was claimed since.
    GivenBackLater,
    /// A beginning takes the place of an earlier one in a rate.
    BegunOnce,
    /// What was over when it was claimed is held for a claim.
    OverWhenClaimed,
    /// What goes on by itself does not count in its limits.
    GoesOnUncounted,
    /// What goes on is charged in the period in which it does, not in that in which it was begun.
    ChargedAgain,
    /// What an operation needs no more is not given back.
    NotGivenBack,
    /// What was claimed for a beginning that was refused is not given back.
    RefusedKept,
    /// A guard of stores: nobody waits for the disk with what is claimed.
    ClaimsNotWaitedFor,
}

#[cfg(feature = "planted")]
impl Plant {
    /// The guards of operations, effects, replicas and limits: simulated schedules miss each.
    pub const ALL: [Plant; 42] = [
        Plant::ReceiveWithoutFence,
        Plant::KeyPerAttempt,
        Plant::AnswerBeforeReceipt,
        Plant::ResetOnError,
        Plant::LookupWithoutQuarantine,
        Plant::AcknowledgedTwinJoined,
        Plant::OrphanedTwinNotJoined,
        Plant::SlotWithoutCompareAndSet,
        Plant::ReplayRefusalSettles,
        Plant::CancelAfterNoReturn,
        Plant::SendBeforeIntent,
        Plant::ClaimFromTheLiving,
        Plant::ReplayPastRetention,
        Plant::ReplayWithoutStrategy,
        Plant::AnswerCountedTwice,
        Plant::ForeignOperation,
        Plant::NothingRanAfterUncertain,
        Plant::CloseOverOpenEffect,
        Plant::DoubtInHaste,
        Plant::DeliveryGoesBack,
        Plant::LeftBehind,
        Plant::KeyWithoutFingerprint,
        Plant::OldEpochSpeaks,
        Plant::SendUnderOldEpoch,
        Plant::BellNotHeard,
        Plant::GapNotHeard,
        Plant::MovedNotTold,
        Plant::LateBatchOfOldEpoch,
        Plant::StaleWhereUnsure,
        Plant::OtherIntentSent,
        Plant::OtherQuestionAnswered,
        Plant::AnsweredInPart,
        Plant::LegsNotAwaited,
        Plant::ClaimedAgain,
        Plant::ClaimedForEarlier,
        Plant::GivenBackLater,
        Plant::BegunOnce,
        Plant::GoesOnUncounted,
        Plant::ChargedAgain,
        Plant::NotGivenBack,
        Plant::RefusedKept,
        Plant::ClaimsNotWaitedFor,
    ];
    /// Those that the tests of this crate and of the stores miss, too.
    pub const BESIDE: [Plant; 8] = [
        Plant::IntentBeforeApproval,
        Plant::AnswerOverwrites,
        Plant::HandleChangedTwice,
        Plant::ShelfWithoutCompareAndSet,
        Plant::HandedOutAbandoned,
        Plant::NothingClaimed,
        Plant::OverWhenClaimed,
        Plant::GivenBackInDoubt,
    ];
}

#[cfg(feature = "planted")]
thread_local! {
    static HERE: std::cell::Cell<Option<Plant>> = const { std::cell::Cell::new(None) };
}
#[cfg(feature = "planted")]
static EVERYWHERE: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Takes a guard out for what this thread does, or puts all back.
#[cfg(feature = "planted")]
pub fn on_this_thread(plant: Option<Plant>) {
    HERE.set(plant);
}

/// Takes a guard out in the whole process, or puts all back.
#[cfg(feature = "planted")]
pub fn everywhere(plant: Option<Plant>) {
    EVERYWHERE.store(plant.map_or(0, |p| p as u8), std::sync::atomic::Ordering::SeqCst);
}

/// Whether this guard is out.
#[cfg(feature = "planted")]
#[must_use]
pub fn is_out(plant: Plant) -> bool {
    HERE.get() == Some(plant) || EVERYWHERE.load(std::sync::atomic::Ordering::Relaxed) == plant as u8
}
