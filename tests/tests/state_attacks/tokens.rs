//! Forged, changed, foreign, old and replayed states, of everything that can be asked for and asks back.

use crate::stage::{Caller, Stage, accept, at_once, shown};
use anyhow::{Context, Result, ensure};
use counterfoil_tests::stand::{AMOUNT, Class, payment};
use counterfoil_tests::wire::{META_ERROR, META_OPERATION};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Something that asks back, and gives a state for that.
struct Carrier {
    method: &'static str,
    params: Value,
}

fn order(name: &str) -> Value {
    json!({ "payment": payment(name), "order_id": name })
}

fn tool(name: &str, arguments: Value) -> Carrier {
    Carrier { method: "tools/call", params: json!({ "name": name, "arguments": arguments }) }
}

/// A native tool and a manifest's, which the ledger keeps; a tool that reads; a prompt. `name` makes them one's own.
fn carriers(name: &str) -> [Carrier; 4] {
    [
        tool("orders_two_rounds", order(name)),
        tool(&Class::Unique.tool(), Class::Unique.arguments(name)),
        tool("test_elicitation", json!({ "message": name })),
        Carrier { method: "prompts/get", params: json!({ "name": "test_input_required_result_prompt" }) },
    ]
}

impl Carrier {
    fn with(&self, state: Option<&str>, answers: Option<&Value>) -> Value {
        let mut params = self.params.clone();
        if let Some(state) = state {
            params["requestState"] = json!(state);
        }
        if let Some(answers) = answers {
            params["inputResponses"] = answers.clone();
        }
        params
    }

    /// Answers to whatever could be asked: the yes, the amount and the names.
    fn answers() -> Value {
        json!({
            "approval": accept(json!({ "approve": true })),
            "amount": accept(json!({ "amount": AMOUNT })),
            "user": accept(json!({ "username": "me" })),
            "user_context": accept(json!({ "context": "it" })),
        })
    }

    /// The state that it gives, asking for the first time or again.
    fn state(&self, addr: SocketAddr, caller: &Caller) -> Result<String> {
        let result = caller.result(addr, self.method, &self.params)?;
        ensure!(result["resultType"] == "input_required", "{result}");
        result["requestState"].as_str().map(str::to_owned).with_context(|| format!("no state: {result}"))
    }

    /// It is asked again, not refused: the state is good.
    fn is_good(&self, addr: SocketAddr, caller: &Caller, state: &str) -> Result<()> {
        let result = caller.result(addr, self.method, &self.with(Some(state), None))?;
        ensure!(result["resultType"] == "input_required", "{result}");
        Ok(())
    }
}

/// One refusal after the other, all of which have to look the same.
struct Watch<'a> {
    stage: &'a Stage,
    seen: BTreeSet<String>,
}

impl Watch<'_> {
    fn look(&mut self, what: &str, by: &Caller, carrier: &Carrier, token: &str, why: &str) -> Result<()> {
        let (all, this) = (self.stage.rejected_at_all()?, self.stage.rejected(why)?);
        let params = carrier.with(Some(token), Some(&Carrier::answers()));
        let reply = by.ask(self.stage.addr, carrier.method, &params)?;
        ensure!(reply.json()["error"]["code"] == -32602, "{what}: {}", reply.text());
        self.seen.insert(shown(&reply));
        let of = (self.stage.rejected_at_all()? - all, self.stage.rejected(why)? - this);
        ensure!(of == (1, 1), "{what} of {}: counted {of:?} as {why}", carrier.params["name"]);
        Ok(())
    }

    fn end(self) -> Result<String> {
        ensure!(self.seen.len() == 1, "refusals differ: {:#?}", self.seen);
        self.seen.into_iter().next().context("nothing was tried")
    }
}

fn replaced(text: &str, at: usize) -> String {
    let mut bytes = text.as_bytes().to_vec();
    bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
    String::from_utf8(bytes).unwrap()
}

#[test]
fn whatever_is_wrong_with_a_state_the_answer_is_the_same_and_the_metric_says_why() -> Result<()> {
    let mut stage = Stage::open("shop", "")?;
    // The same master key and the same callers, on a ledger of its own.
    let elsewhere = Stage::open("other", "")?;
    let (ann, ben) = (stage.caller("ann")?, stage.caller("ben")?);
    let there = elsewhere.caller("ann")?;
    let all = carriers("tokens");
    let states = all.iter().map(|c| c.state(stage.addr, &ann)).collect::<Result<Vec<_>>>()?;
    let mut watch = Watch { stage: &stage, seen: BTreeSet::new() };
    for (n, carrier) in all.iter().enumerate() {
        let good = &states[n];
        let (body, footer) = good.rsplit_once('.').context("a footer")?;
        let begin = "v4.local.".len();
        for (what, token, why) in [
            ("nothing", String::new(), "malformed"),
            ("words", "please".into(), "malformed"),
            ("a handle", "hd_01K8Z5T7QH4N0V8W2X6Y9ABCDE".into(), "malformed"),
            ("without its end", good[..good.len() - 1].into(), "malformed"),
            ("half", good[..good.len() / 2].into(), "malformed"),
            ("longer", format!("{good}A"), "malformed"),
            ("twice", format!("{good}{good}"), "malformed"),
            ("too long", format!("{good}{}", "A".repeat(20_000)), "too_long"),
            ("of nothing", format!("v4.local.{}.{footer}", "A".repeat(120)), "forged"),
            ("shortened within", format!("{}{}", &good[..begin + 60], &good[begin + 64..]), "forged"),
            ("another nonce", replaced(good, begin + 3), "forged"),
            ("another text", replaced(good, begin + 60), "forged"),
            ("another proof", replaced(good, body.len() - 6), "forged"),
            ("of another server", carrier.state(elsewhere.addr, &there)?, "unknown_key"),
        ] {
            watch.look(what, &ann, carrier, &token, why)?;
        }
        watch.look("another caller's", &ben, carrier, good, "forged")?;
        for (m, other) in all.iter().enumerate().filter(|(m, _)| *m != n) {
            watch.look("another request's", &ann, carrier, &states[m], "forged")?;
            watch.look("another's of another", &ben, other, good, "forged")?;
        }
        carrier.is_good(stage.addr, &ann, good)?;
    }
    // The same call with other arguments.
    for (carrier, other) in all.iter().zip(carriers("another")).take(3) {
        let state = carrier.state(stage.addr, &ann)?;
        watch.look("other arguments", &ann, &other, &state, "forged")?;
        stage.untouched(Class::Key, "another")?;
    }
    let before = watch.end()?;

    // What the server was called is part of what a state is bound to; its keys stay.
    stage.named("renamed")?;
    let mut watch = Watch { stage: &stage, seen: BTreeSet::from([before]) };
    for (carrier, state) in all.iter().zip(&states) {
        watch.look("another audience's", &ann, carrier, state, "forged")?;
    }
    let before = watch.end()?;
    stage.named("shop")?;
    for (carrier, state) in all.iter().zip(&states) {
        carrier.is_good(stage.addr, &ann, state)?;
    }
    // A new key in stages refuses nothing; one in place of all others does.
    let rotate = |args: &[&str]| -> Result<()> {
        let (code, said) = stage.project.ask(&[&["keys", "rotate"], args].concat())?;
        ensure!(code == 0, "{said}");
        Ok(())
    };
    rotate(&[])?;
    for (carrier, state) in all.iter().zip(&states) {
        carrier.is_good(stage.addr, &ann, state)?;
    }
    rotate(&["--now"])?;
    let mut watch = Watch { stage: &stage, seen: BTreeSet::from([before]) };
    for (carrier, state) in all.iter().zip(&states) {
        watch.look("let go of", &ann, carrier, state, "unknown_key")?;
    }
    watch.end()?;
    // Nothing was done, and whoever asks anew goes on where it was.
    for (class, carrier) in [Class::Key, Class::Unique].into_iter().zip(&all) {
        stage.untouched(class, "tokens")?;
        let state = carrier.state(stage.addr, &ann)?;
        carrier.is_good(stage.addr, &ann, &state)?;
    }
    ensure!(stage.metric("counterfoil_operations")? == 2, "an attack opened an operation");
    Ok(())
}

/// One bit at a time, one at least of every character; and every length.
#[test]
fn no_bit_and_no_end_of_a_state_can_be_changed() -> Result<()> {
    let stage = Stage::open("shop", "")?;
    let ann = stage.caller("ann")?;
    let mut seen = BTreeSet::new();
    for carrier in &carriers("bits") {
        let good = carrier.state(stage.addr, &ann)?;
        let flipped = |at: usize| {
            let mut bytes = good.clone().into_bytes();
            // Without the highest, which no text of one byte has.
            bytes[at] ^= 1 << (at % 7);
            String::from_utf8(bytes).unwrap()
        };
        let changed: Vec<String> =
            (0..good.len()).map(flipped).chain((0..good.len()).map(|n| good[..n].to_owned())).collect();
        let bytes: Vec<Vec<u8>> = changed
            .iter()
            .map(|t| ann.bytes(stage.addr, carrier.method, &carrier.with(Some(t), Some(&Carrier::answers()))))
            .collect();
        let before = stage.rejected_at_all()?;
        for (token, reply) in changed.iter().zip(at_once(stage.addr, &bytes)?) {
            ensure!(reply.json()["error"]["code"] == -32602, "{token}: {}", reply.text());
            seen.insert(shown(&reply));
        }
        let counted = stage.rejected_at_all()? - before;
        ensure!(counted == changed.len() as u64, "{counted} of {} were counted", changed.len());
        carrier.is_good(stage.addr, &ann, &good)?;
    }
    ensure!(seen.len() == 1, "refusals differ: {seen:#?}");
    for class in [Class::Key, Class::Unique] {
        stage.untouched(class, "bits")?;
    }
    Ok(())
}

#[test]
fn a_state_is_good_for_as_long_as_it_says() -> Result<()> {
    let stage = Stage::open("shop", "state_ttl = \"30s\"\n")?;
    let ann = stage.caller("ann")?;
    let all = carriers("late");
    let made = Instant::now();
    let states = all.iter().map(|c| c.state(stage.addr, &ann)).collect::<Result<Vec<_>>>()?;
    let all_made = Instant::now();
    let mut watch = Watch { stage: &stage, seen: BTreeSet::new() };
    watch.look("forged", &ann, &all[0], &replaced(&states[0], 40), "forged")?;
    std::thread::sleep(Duration::from_secs(25).saturating_sub(made.elapsed()));
    // On a machine that hangs it may be over already, and says nothing then.
    for (carrier, state) in all.iter().zip(&states) {
        let good = carrier.is_good(stage.addr, &ann, state);
        ensure!(good.is_ok() || made.elapsed() > Duration::from_secs(29), "{good:?}");
    }
    std::thread::sleep(Duration::from_millis(30_500).saturating_sub(all_made.elapsed()));
    for (carrier, state) in all.iter().zip(&states) {
        watch.look("expired", &ann, carrier, state, "expired")?;
    }
    watch.end()?;
    for class in [Class::Key, Class::Unique] {
        stage.untouched(class, "late")?;
    }
    Ok(())
}

/// Every request of an exchange again, in both directions of time; and answers that race.
#[test]
fn what_is_replayed_changes_nothing() -> Result<()> {
    let stage = Stage::open("shop", "")?;
    let ann = stage.caller("ann")?;
    let carrier = tool("orders_two_rounds", order("replayed"));
    let amount = |n: u64| json!({ "amount": accept(json!({ "amount": n })) });
    let note = |text: &str| json!({ "note": accept(json!({ "note": text })) });
    let ask = |params: &Value| ann.result(stage.addr, "tools/call", params);
    let first = carrier.state(stage.addr, &ann)?;
    let one = carrier.with(Some(&first), Some(&amount(AMOUNT)));
    let second = ask(&one)?["requestState"].as_str().context("a second round")?.to_owned();
    // Back in time with another answer, before the end.
    let other = carrier.with(Some(&first), Some(&amount(AMOUNT + 1)));
    let kind = |result: &Value| result["_meta"][META_ERROR]["kind"].clone();
    ensure!(kind(&ask(&other)?) == "answer_conflict", "a second answer was taken");
    let last = carrier.with(Some(&second), Some(&note("so")));
    // The last answer eight times at once.
    let bytes = vec![ann.bytes(stage.addr, "tools/call", &last); 8];
    let mut contents = BTreeSet::new();
    for reply in at_once(stage.addr, &bytes)? {
        let message: Value = serde_json::from_str(&reply.message())?;
        ensure!(message["result"]["isError"] != true, "{message}");
        contents.insert(message["result"]["content"].to_string());
    }
    ensure!(contents.len() == 1, "{contents:?}");
    // After the end: the same is answered the same, and another answer is none.
    for again in [&one, &last, &carrier.with(Some(&first), None), &carrier.with(Some(&second), None)] {
        let result = ask(again)?;
        ensure!(contents.contains(&result["content"].to_string()), "{again}: {result}");
        ensure!(result["_meta"][META_OPERATION]["joinedBy"] == "state", "{result}");
    }
    for late in [&other, &carrier.with(Some(&second), Some(&note("otherwise")))] {
        ensure!(kind(&ask(late)?) == "answer_conflict", "{late}");
    }
    let counted = stage.provider.sandbox.count(Class::Key, "replayed")?;
    ensure!(counted == (1, AMOUNT), "{counted:?}");

    // A yes and a no that race: one of them counts, whichever, and at most one effect.
    for n in 0..6 {
        let name = format!("raced{n}");
        let carrier = tool(&Class::Unique.tool(), Class::Unique.arguments(&name));
        let state = carrier.state(stage.addr, &ann)?;
        let said = |yes: bool| {
            let answers = json!({ "approval": accept(json!({ "approve": yes })) });
            ann.bytes(stage.addr, "tools/call", &carrier.with(Some(&state), Some(&answers)))
        };
        let bytes: Vec<Vec<u8>> = (0..8).map(|i| said((i + n) % 2 == 0)).collect();
        let all = at_once(stage.addr, &bytes)?;
        let results: Vec<Value> = all
            .iter()
            .map(|r| serde_json::from_str::<Value>(&r.message()).map(|m| m["result"].clone()))
            .collect::<Result<_, _>>()?;
        let done = results.iter().any(|r| r.is_object() && r["isError"] != true);
        let denied = results.iter().any(|r| kind(r) == "denied");
        ensure!(done != denied, "{name}: both or neither: {results:?}");
        let counted = stage.provider.sandbox.count(Class::Unique, &name)?;
        ensure!(counted == if done { (1, AMOUNT) } else { (0, 0) }, "{name}: {counted:?}");
        // It stays so.
        let again = ask(&carrier.with(Some(&state), None))?;
        ensure!((again["isError"] != true) == done, "{name}: {again}");
    }
    Ok(())
}
