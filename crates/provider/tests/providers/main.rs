//! Each preset against a simulated provider that does what the provider's facts say, and counts its effects.
//!
//! `table.rs` has the facts and what may be expected, written down apart from the presets; `fake.rs` is the provider;
//! `windows.rs` goes through the ledger, with a clock that is put ahead.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../common/mod.rs"]
mod common;
mod fake;
mod table;
mod windows;

use common::{KEY, key, parse, word};
use counterfoil_provider::{ConfigCredentials, HttpExecutor, Integration, Overrides, Preset, Receipt};
use fake::{Compares, Fake, Fault, Repeat};
use ledger::{Executor, Intent, Looked, Millis, Sent};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use table::Provider;

struct Api {
    fake: Fake,
    i: Integration,
    executor: HttpExecutor,
}

impl Api {
    async fn of(p: &Provider) -> Api {
        let fake = Fake::new(p.facts).await;
        let i = parse(&manifest(p, &format!("http://{}", fake.at))).unwrap();
        let credentials = ConfigCredentials::load_with(std::slice::from_ref(&i), |_| None).unwrap();
        Api { fake, executor: HttpExecutor::new(Arc::new(credentials)), i }
    }
    fn intent(&self, p: &Provider, amount: u32) -> Intent {
        let m = self.i.method("m").unwrap();
        m.intent(&arguments(p, amount), &m.recovery(None).unwrap()).unwrap()
    }
    async fn send(&self, p: &Provider, amount: u32, replay: bool) -> Sent {
        self.executor.send(&self.intent(p, amount), &key(), replay, Millis(10_000)).await
    }
}

fn manifest(p: &Provider, base: &str) -> String {
    format!(
        "name = \"p\"\nbase_url = \"{base}\"\npreset = \"{}\"\n[execution_policy.retries]\ninitial_backoff = \"1ms\"\nmax_backoff = \"2ms\"\n[methods.m]\n{}",
        p.preset, p.method
    )
}

fn arguments(p: &Provider, amount: u32) -> String {
    let mut args = json!({ "amount": amount });
    for name in ["account", "merchant"] {
        if p.method.contains(&format!("{{{name}}}")) {
            args[name] = json!("a1");
        }
    }
    args.to_string()
}

fn json_of(receipt: &ledger::Receipt) -> Value {
    let receipt: Receipt = serde_json::from_slice(&receipt.0).unwrap();
    serde_json::from_str(receipt.json.unwrap().get()).unwrap()
}

/// The object that an answer tells of.
fn object(p: &Provider, sent: &Sent) -> Value {
    let Sent::Applied(receipt) = sent else { panic!("{}: {sent:?}", p.preset) };
    let json = json_of(receipt);
    match p.facts.graphql {
        Some(field) => json["data"][field]["object"].clone(),
        None => json,
    }
}

#[test]
fn every_preset_is_in_the_table() {
    let table: BTreeSet<&str> = table::all().iter().map(|p| p.preset).collect();
    let presets: BTreeSet<&str> = Preset::names().filter(|name| *name != "none").collect();
    assert_eq!(table, presets);
    assert!(presets.len() >= 28);
}

#[tokio::test]
async fn a_first_send_carries_the_key_where_the_provider_looks_for_it() {
    for p in table::all() {
        let api = Api::of(&p).await;
        let sent = api.send(&p, 500, false).await;
        assert_eq!(object(&p, &sent)["amount"], 500, "{}", p.preset);
        assert_eq!(api.fake.keys(), [Some(KEY.to_owned())], "{}", p.preset);
        // Once, and nowhere else.
        let intent = api.intent(&p, 500);
        let http = counterfoil_provider::HttpIntent::decode(&intent.body).unwrap();
        let request = http.to_http(Some(&key())).unwrap();
        let body = String::from_utf8(request.body().to_vec()).unwrap();
        let whole = format!("{} {:?} {body}", request.uri(), request.headers());
        assert_eq!(whole.matches(KEY).count(), 1, "{}: {whole}", p.preset);
        let shown = api.i.method("m").unwrap().input_schema().to_string().to_lowercase();
        assert!(
            !["idempot", "apirequestkey", "clienttoken", "requestid", "customertransactionid"]
                .iter()
                .any(|k| shown.contains(k)),
            "{}: {shown}",
            p.preset
        );
    }
}

#[tokio::test]
async fn a_lost_answer_and_a_repeat_make_one_effect() {
    for p in table::all() {
        let api = Api::of(&p).await;
        api.fake.next(Fault::LoseAnswer);
        assert_eq!(word(&api.send(&p, 500, false).await), "unknown", "{}", p.preset);
        assert_eq!(api.fake.effects(), 1, "{}", p.preset);
        // Whatever became of it meanwhile.
        api.fake.touch();
        for _ in 0..2 {
            let again = api.send(&p, 500, true).await;
            assert_eq!(word(&again), p.expect.repeated, "{}: {again:?}", p.preset);
            if word(&again) == "applied" {
                assert_eq!(object(&p, &again)["id"], "0", "{}", p.preset);
                let now = if matches!(p.facts.repeat, Repeat::First) { "new" } else { "later" };
                assert_eq!(object(&p, &again)["state"], now, "{}", p.preset);
            }
        }
        assert_eq!(api.fake.effects(), 1, "{}", p.preset);
        assert_eq!(api.fake.keys(), vec![Some(KEY.to_owned()); 3], "{}", p.preset);
    }
}

#[tokio::test]
async fn a_lost_request_and_a_repeat_make_one_effect() {
    for p in table::all() {
        let api = Api::of(&p).await;
        api.fake.next(Fault::LoseRequest);
        assert_eq!(word(&api.send(&p, 500, false).await), "unknown", "{}", p.preset);
        assert_eq!(api.fake.effects(), 0, "{}", p.preset);
        assert_eq!(object(&p, &api.send(&p, 500, true).await)["amount"], 500, "{}", p.preset);
        assert_eq!(api.fake.effects(), 1, "{}", p.preset);
    }
}

#[tokio::test]
async fn another_request_under_the_key() {
    for p in table::all() {
        let api = Api::of(&p).await;
        api.send(&p, 500, false).await;
        let (fresh, again) = (api.send(&p, 700, false).await, api.send(&p, 700, true).await);
        assert_eq!((word(&fresh), word(&again)), p.expect.other, "{}: {fresh:?} {again:?}", p.preset);
        if p.facts.compares == Compares::Amount {
            // Another amount is another payment: why what is sent again must be the recorded bytes.
            assert_eq!(api.fake.effects(), 2, "{}", p.preset);
        } else {
            assert_eq!(api.fake.effects(), 1, "{}", p.preset);
        }
    }
}

#[tokio::test]
async fn a_twin_in_flight_is_not_known_yet() {
    let all = table::all();
    // At once, since each takes its time.
    futures_util::future::join_all(all.iter().map(async |p| {
        let api = Api::of(p).await;
        api.fake.next(Fault::Slow);
        let late = async {
            while api.fake.requests() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            api.send(p, 500, true).await
        };
        let (first, second) = tokio::join!(api.send(p, 500, false), late);
        assert_eq!(word(&first), "applied", "{}: {first:?}", p.preset);
        assert!(word(&second).starts_with("unknown"), "{}: {second:?}", p.preset);
        // Where a repeat shows the object, being early is no reason to give up.
        if p.expect.repeated == "applied" {
            assert_eq!(word(&second), "unknown", "{}: {second:?}", p.preset);
        }
        assert_eq!(word(&api.send(p, 500, true).await), p.expect.repeated, "{}", p.preset);
        assert_eq!(api.fake.effects(), 1, "{}", p.preset);
    }))
    .await;
}

#[tokio::test]
async fn a_failure_is_carried_out_anew_but_where_it_is_kept() {
    for p in table::all() {
        let api = Api::of(&p).await;
        api.fake.next(Fault::Fail);
        assert_eq!(word(&api.send(&p, 500, false).await), "unknown", "{}", p.preset);
        let again = api.send(&p, 500, true).await;
        assert_eq!(word(&again), p.expect.failed, "{}: {again:?}", p.preset);
        assert_eq!(api.fake.effects(), usize::from(!p.facts.keeps_all), "{}", p.preset);
    }
}

#[tokio::test]
async fn a_refusal_settles_a_first_send_and_no_unmarked_repeat() {
    for p in table::all() {
        for status in [400, 404, 413] {
            let api = Api::of(&p).await;
            api.fake.next(Fault::Refuse(status));
            assert_eq!(word(&api.send(&p, 500, false).await), "refused", "{} {status}", p.preset);
            let api = Api::of(&p).await;
            api.fake.next(Fault::LoseRequest);
            api.fake.next(Fault::Refuse(status));
            api.send(&p, 500, false).await;
            let again = api.send(&p, 500, true).await;
            assert!(word(&again).starts_with("unknown"), "{} {status}: {again:?}", p.preset);
        }
    }
}

#[tokio::test]
async fn a_forgotten_key_is_why_the_window_ends_before_the_retention() {
    for p in table::all() {
        let api = Api::of(&p).await;
        api.send(&p, 500, false).await;
        api.fake.forget();
        api.send(&p, 500, true).await;
        assert_eq!(api.fake.effects(), 2, "{}", p.preset);
    }
}

#[tokio::test]
async fn the_first_answer_is_asked_for_by_key() {
    let p = table::all().into_iter().find(|p| p.preset == "mangopay").unwrap();
    let api = Api::of(&p).await;
    let ask = async || api.executor.look_up(&api.intent(&p, 500), &key(), Millis(10_000)).await;
    assert!(matches!(ask().await, Looked::NotFound));
    api.fake.next(Fault::LoseAnswer);
    api.send(&p, 500, false).await;
    let Looked::Found(receipt) = ask().await else { panic!("not found") };
    assert_eq!(
        json_of(&receipt),
        json!({ "id": "0", "amount": 500, "state": "new", "idempotency_key": KEY })
    );
    // A first answer that was a failure settles nothing.
    let api = Api::of(&p).await;
    api.fake.next(Fault::Fail);
    api.send(&p, 500, false).await;
    match api.executor.look_up(&api.intent(&p, 500), &key(), Millis(10_000)).await {
        Looked::Unknown { why } => assert!(why.contains("500"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(api.fake.effects(), 0);
    // A refusal shows that there is no effect.
    let api = Api::of(&p).await;
    api.fake.next(Fault::LoseRefusal(400));
    api.send(&p, 500, false).await;
    assert!(matches!(
        api.executor.look_up(&api.intent(&p, 500), &key(), Millis(10_000)).await,
        Looked::NotFound
    ));
    // First answers are forgotten, so an absent one is no leave to send again by itself.
    let e = parse(&format!("{}\nrecovery = \"lookup\"", manifest(&p, "http://127.0.0.1:1"))).unwrap_err();
    assert!(e.message.contains("forgets its first answers"), "{e}");
}

#[tokio::test]
async fn an_answer_for_which_the_key_did_not_count_is_one_without_a_key() {
    let p = table::all().into_iter().find(|p| p.preset == "solidgate").unwrap();
    let api = Api::of(&p).await;
    api.fake.ignore();
    assert_eq!(word(&api.send(&p, 500, false).await), "applied");
    api.fake.next(Fault::Refuse(400));
    assert_eq!(word(&api.send(&p, 500, false).await), "refused");
    // After a failure nothing may be sent again: the key would not make it safe.
    api.fake.next(Fault::Fail);
    match api.send(&p, 500, false).await {
        Sent::Unknown { stored: true, why, .. } => assert!(why.contains("does not count"), "{why}"),
        other => panic!("{other:?}"),
    }
    // Nor does the answer to a repeat settle anything: the send before it may have been carried out, too.
    assert_eq!(api.fake.effects(), 1);
    api.fake.next(Fault::LoseAnswer);
    assert_eq!(word(&api.send(&p, 500, false).await), "unknown");
    match api.send(&p, 500, true).await {
        Sent::Unknown { stored: true, why, .. } => assert!(why.contains("twice"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(api.fake.effects(), 3);
    // So a key goes out only where the operator says that it counts.
    for (preset, path) in
        [("solidgate", "/refund"), ("wise_uuid", "/v1/quotes"), ("google_cloud", "/instances")]
    {
        let text = |more: &str| {
            format!(
                "name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\npreset = \"{preset}\"\n[methods.m]\nhttp = \"POST {path}\"\n{more}"
            )
        };
        let m = parse(&text("")).unwrap();
        assert_eq!(m.method("m").unwrap().key_carrier(), None);
        assert_eq!(m.method("m").unwrap().recovery(None).unwrap().strategy, ledger::Strategy::None);
        let e = parse(&text("recovery = \"key\"")).unwrap_err();
        assert!(
            e.message.contains("on some endpoints only") && e.message.contains("mode = \"dynamic\""),
            "{e}"
        );
    }
}

#[test]
fn a_key_that_the_provider_would_not_take_is_refused_at_start() {
    for p in table::all() {
        let with = |more: &str| {
            let method = match p.method.strip_suffix("idempotency = { mode = \"dynamic\" }") {
                Some(head) => format!("{head}idempotency = {{ mode = \"dynamic\", {more} }}"),
                None => format!("{}\nidempotency = {{ {more} }}", p.method),
            };
            let preset = p.preset;
            parse(&format!(
                "name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\npreset = \"{preset}\"\n[methods.m]\n{method}"
            ))
        };
        // The fake's own limits, as the table has them, are met.
        assert!((p.facts.lengths.0..=p.facts.lengths.1).contains(&KEY.len()), "{}", p.preset);
        for (more, why) in [
            ("max_len = 35", "36 characters"),
            ("min_len = 37, max_len = 400", "at least 37"),
            ("min_len = 40, max_len = 38", "is more than"),
            ("alphabet = \"alphanumeric\"", "hyphens"),
            ("alphabet = \"uuid_v4\"", "version 8"),
            ("alphabet = \"uuidd\"", "did you mean `uuid`"),
        ] {
            let e = with(more).unwrap_err();
            assert!(e.message.contains(why), "{} {more}: {e}", p.preset);
        }
    }
}

#[test]
fn windows_are_what_the_facts_allow() {
    for p in table::all() {
        let i = parse(&manifest(&p, "http://127.0.0.1:1")).unwrap();
        let resolved = i.method("m").unwrap().resolve(&Overrides::default()).unwrap();
        let window = resolved.recovery.replay_for.map_or(0, |d| d.0 / 60_000);
        assert_eq!(window, p.expect.window, "{}", p.preset);
        assert_eq!(resolved.recovery.strategy, ledger::Strategy::Key, "{}", p.preset);
        // What nobody published is good for an hour at most.
        assert!(resolved.retention_published || (1..=60).contains(&window), "{}", p.preset);
    }
}
