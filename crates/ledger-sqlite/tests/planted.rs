//! Guards of questions, handles, tasks, claims and the shelf are taken out, one at a time: each is missed by a test that is there
//! for it. (The others are missed by simulated schedules.)

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
// Each of the tests that are taken in brings the world that it runs in.
#![allow(clippy::duplicate_mod)]

extern crate ledger as counterfoil_ledger;

#[path = "../../ledger/tests/claims.rs"]
mod claims;
mod contract;
#[path = "../../ledger/tests/inputs.rs"]
mod inputs;

use contract::{Made, T0};
use ledger::SystemEnv;
use ledger::memory::MemoryStore;
use ledger::planted::{Plant, on_this_thread};
use ledger::store::Attention;
use std::panic::catch_unwind;
use std::sync::Arc;

fn shelf() {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemEnv), T0, Attention::default()));
    let again = store.clone();
    let made = Made { store, keep: Box::new(()), restart: Box::new(move || Arc::new(again.restart())) };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(contract::handles::shelf(made));
}

/// The test that is there for a guard.
fn test_of(plant: Plant) -> fn() {
    match plant {
        Plant::IntentBeforeApproval => inputs::what_waits_for_a_yes_is_no_effect_before_it,
        Plant::AnswerOverwrites => inputs::the_first_answer_counts,
        Plant::HandleChangedTwice => inputs::changes_of_handles_are_made_once,
        Plant::ShelfWithoutCompareAndSet => shelf,
        Plant::HandedOutAbandoned => inputs::what_is_handed_out_is_not_abandoned,
        Plant::NothingClaimed => claims::what_is_used_up_is_refused_before_anything_is_written,
        Plant::OverWhenClaimed => claims::what_takes_too_long_to_claim_is_claimed_again,
        Plant::GivenBackInDoubt => claims::a_doubt_keeps_what_it_holds,
        other => panic!("no test is there for {other:?}"),
    }
}

#[test]
fn every_guard_is_missed() {
    for plant in Plant::BESIDE {
        let test = test_of(plant);
        test();
        on_this_thread(Some(plant));
        let missed = catch_unwind(test).is_err();
        on_this_thread(None);
        assert!(missed, "{plant:?} was not missed");
    }
}
