//! A day's use by the shell: every command, its exit code and its document, with the real binary, a provider that
//! counts, and the files that `init` wrote.

use anyhow::{Context, Result, ensure};
use counterfoil_tests::http;
use counterfoil_tests::process::project as root;
use counterfoil_tests::shell::{Day, bash, counterfoil, signal, until};
use counterfoil_tests::stand::{AMOUNT, Class, Project};
use counterfoil_tests::wire::{self, Call, Said};
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;

const KEYED: &str = Day::KEYED;
const DOUBTFUL: &str = Day::DOUBTFUL;

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn ids(document: &Value) -> Vec<String> {
    document["operations"].as_array().into_iter().flatten().map(|o| text(&o["id"])).collect()
}

/// Whether a document has these members.
fn has(value: &Value, members: &[&str]) -> Result<()> {
    for member in members {
        ensure!(value.get(member).is_some(), "{member} is missing in {value}");
    }
    Ok(())
}

#[test]
fn a_day_in_one_folder() -> Result<()> {
    let mut day = Day::begin()?;
    looking_around(&day).context("init, methods, info, dry run")?;
    let mut gateway = day.serve()?;
    executing(&day).context("exec")?;
    let left = deciding(&day).context("ops")?;
    // The gateway ends in order; the commands go on with the ledger itself.
    ensure!(gateway.process.terminate()?.code() == Some(0), "{}", day.project.gateway_said());
    let shown = day.run(&["ops", "show", &left, "--json"])?.exits(0)?.json()?;
    ensure!(shown["state"] == "in_doubt", "{shown}");
    let replayed = day.exec(KEYED, "paid", &["--key", "k-paid"])?.exits(0)?.json()?;
    ensure!(replayed["operation"]["replayed"] == json!(true), "{replayed}");
    ensure!(day.effects(Class::Key, "paid")? == 1);
    let done = day.run(&["ops", "resolve", &left, "--not-applied", "--by", "ann", "--json"])?.exits(0)?;
    ensure!(done.json()?["state"] == "failed", "{done}");
    day.run(&["doctor"])?.exits(0)?.says("opens, and no process holds it")?;
    Ok(())
}

fn looking_around(day: &Day) -> Result<()> {
    let before = day.config()?;
    let again = day.run(&["init"])?.exits(0)?;
    ensure!(again.stdout.matches("it was there").count() == 3, "{again}");
    ensure!(day.config()? == before, "the configuration was overwritten");

    let methods = day.run(&["methods", "--json"])?.exits(0)?.json()?;
    let listed: Vec<String> =
        methods["methods"].as_array().context("no methods")?.iter().map(|m| text(&m["id"])).collect();
    for id in [KEYED, DOUBTFUL, "payments.payments.get", "mail.messages.send"] {
        ensure!(listed.iter().any(|l| l == id), "{id} is not in {listed:?}");
    }
    let some = day.run(&["methods", "refund"])?.exits(0)?;
    ensure!(some.stdout.contains("at most one effect, and never hidden"), "{some}");
    ensure!(!some.stdout.contains("mail."), "{some}");
    let info = day.run(&["info", KEYED, "--json"])?.exits(0)?.json()?;
    ensure!(
        info["safety"]["recovery"] == json!({ "value": "key", "from": "tools" })
            && info["safety"]["promise"] == "exactly one effect"
            && info["settings"]["unkeyed"] == "guard",
        "{info}"
    );
    // By the name on the wire, for people: where the setting is written.
    day.run(&["info", "payments_refunds_create"])?.exits(0)?.says("counterfoil.toml:")?;

    let dry = day.exec(KEYED, "dry", &["--dry-run", "--key", "k-dry"])?.exits(0)?.json()?;
    ensure!(dry["outcome"] == "dry_run", "{dry}");
    has(&dry["wouldSend"], &["summary", "request"])?;
    let counted = day.sandbox.effects("")?;
    ensure!(counted["total"] == 0 && counted["received"] == 0, "a dry run reached the provider: {counted}");
    ensure!(!day.project.data().exists(), "a dry run opened the ledger");
    Ok(())
}

fn executing(day: &Day) -> Result<()> {
    let first = day.exec(KEYED, "paid", &["--key", "k-paid"])?.exits(0)?.json()?;
    ensure!(
        first["outcome"] == "result"
            && first["isError"] == json!(false)
            && first["operation"]["replayed"] == json!(false),
        "{first}"
    );
    let again = day.exec("payments_refunds_create", "paid", &["--key", "k-paid"])?.exits(0)?.json()?;
    ensure!(again["result"] == first["result"], "{first}\n{again}");
    ensure!(again["operation"]["replayed"] == json!(true), "{again}");
    ensure!(day.effects(Class::Key, "paid")? == 1);
    // Each without a key is one of its own.
    let one = day.exec(KEYED, "bare", &[])?.exits(0)?.json()?;
    let two = day.exec(KEYED, "bare", &[])?.exits(0)?.json()?;
    ensure!(one["operation"]["id"] != two["operation"]["id"], "{one}");
    ensure!(day.effects(Class::Key, "bare")? == 2);
    // With a dry run beside the gateway, still nothing.
    day.exec(KEYED, "dry", &["--dry-run"])?.exits(0)?;
    ensure!(day.effects(Class::Key, "dry")? == 0);

    // More than the payment has: the provider refuses, and that answer is kept.
    let much = |day: &Day| day.exec_of(KEYED, "much", 1_000_001, &["--key", "k-much"]);
    let refused = much(day)?.exits(1)?.json()?;
    ensure!(refused["outcome"] == "result" && refused["isError"] == json!(true), "{refused}");
    ensure!(refused.to_string().contains("amount_too_large"), "{refused}");
    let again = much(day)?.exits(1)?.json()?;
    ensure!(again["result"] == refused["result"] && again["operation"]["replayed"] == json!(true), "{again}");

    let other = day.exec_of(KEYED, "paid", AMOUNT + 1, &["--key", "k-paid"])?.exits(4)?.json()?;
    ensure!(other["error"]["kind"] == "key_conflict", "{other}");
    ensure!(day.effects(Class::Key, "paid")? == 1);
    let unfit = day.exec_of(KEYED, "unfit", 0, &[])?.exits(2)?;
    ensure!(unfit.stdout.contains("amount"), "{unfit}");
    day.exec("payments.refund.create", "unfit", &[])?.exits(2)?;
    // Another principal's keys are its own.
    let hers = day.exec(KEYED, "hers", &["--key", "k-paid", "--principal", "ann"])?.exits(0)?.json()?;
    ensure!(hers["operation"]["replayed"] == json!(false), "{hers}");
    Ok(())
}

/// Every decision about an operation in doubt; returns one that is left so.
fn deciding(day: &Day) -> Result<String> {
    let applied = day.doubt("applied", "apply_then_cut")?;
    let listed = day.run(&["ops", "list", "--json", "--state", "in_doubt"])?.exits(0)?.json()?;
    ensure!(ids(&listed) == [applied.as_str()], "{listed}");
    let op = &listed["operations"][0];
    let members = [
        "id",
        "principal",
        "tool",
        "mode",
        "key",
        "state",
        "reason",
        "attempt",
        "running",
        "isError",
        "createdAt",
        "effects",
        "delivery",
        "deliveryAt",
        "joined",
        "callerGone",
    ];
    has(op, &members)?;
    ensure!(op["tool"] == DOUBTFUL && op["principal"] == "operator" && op["mode"] == "sandbox", "{op}");
    ensure!(op["key"] == "applied" && op["running"] == json!(false) && op["attempt"] == 1, "{op}");
    ensure!(op.get("arguments").is_none(), "a list holds no arguments: {op}");
    let shown = day.run(&["ops", "show", &applied, "--json"])?.exits(0)?.json()?;
    has(&shown, &members)?;
    let effect = &shown["effects"][0];
    // The request as it was sent, without the credential.
    ensure!(
        effect["intent"]["method"] == "POST" && effect["intent"]["body"].to_string().contains("applied"),
        "{effect}"
    );
    let of_effect = [
        "name",
        "key",
        "state",
        "strategy",
        "promise",
        "summary",
        "intendedAt",
        "sends",
        "unresolved",
        "looks",
        "intent",
    ];
    has(effect, &of_effect)?;
    ensure!(effect["strategy"] == "none" && effect["sends"] == 1 && effect["unresolved"] == 1, "{effect}");
    day.run(&["ops", "show", &applied])?.exits(0)?.says("counterfoil ops resolve")?;
    day.run(&["ops", "watch", &applied])?.exits(3)?;
    day.run(&["doctor"])?.exits(0)?.says("1 wait for somebody's decision")?;

    // This provider can't be asked.
    day.run(&["ops", "retry", &applied])?.exits(1)?;
    // A verdict is one of three, and somebody's.
    day.run(&["ops", "resolve", &applied, "--by", "ann"])?.exits(2)?;
    day.run(&["ops", "resolve", &applied, "--applied"])?.exits(2)?;
    let receipt = ["--receipt", r#"{"seen":"re_1"}"#];
    let resolve = ["ops", "resolve", &applied, "--applied", "--by", "ann", "--json"];
    let done = day.run(&[&resolve[..], &receipt].concat())?.exits(0)?.json()?;
    ensure!(done["state"] == "completed" && done["decisions"][0]["by"] == "ann", "{done}");
    let shown = day.run(&["ops", "show", &applied, "--json"])?.exits(0)?.json()?;
    ensure!(shown["effects"][0]["receipt"].to_string().contains("re_1"), "{shown}");
    let answer = day.exec(DOUBTFUL, "applied", &["--key", "applied"])?.exits(0)?.json()?;
    ensure!(
        answer["operation"]["replayed"] == json!(true) && answer["result"] == shown["result"],
        "{answer}"
    );
    ensure!(day.effects(Class::None, "applied")? == 1);
    // It is over: nothing is decided, repeated or cancelled any more.
    day.run(&resolve)?.exits(1)?.says("completed")?;
    day.run(&["ops", "retry", &applied])?.exits(1)?.says("completed")?;
    let cancel = day.run(&["ops", "cancel", &applied, "--by", "ann", "--json"])?.exits(1)?.json()?;
    ensure!(cancel["exitCode"] == 1 && text(&cancel["error"]["message"]).contains("completed"), "{cancel}");

    // It did not happen: the next call runs it, as the same operation.
    let absent = day.doubt("absent", "cut")?;
    let said = day.run(&["ops", "resolve", &absent, "--not-applied", "--by", "ann", "--json"])?.exits(0)?;
    ensure!(said.json()?["state"] == "failed", "{said}");
    let ran = day.exec(DOUBTFUL, "absent", &["--key", "absent"])?.exits(0)?.json()?;
    ensure!(ran["operation"]["id"] == json!(absent) && ran["operation"]["attempt"] == 2, "{ran}");
    ensure!(day.effects(Class::None, "absent")? == 1);

    // Or the operator runs it.
    let retried = day.doubt("retried", "cut")?;
    day.run(&["ops", "resolve", &retried, "--not-applied", "--by", "ann"])?.exits(0)?;
    let said = day.run(&["ops", "retry", &retried, "--by", "ann", "--json"])?.exits(0)?.json()?;
    ensure!(said["state"] == "completed" && said["attempt"] == 2, "{said}");
    ensure!(day.effects(Class::None, "retried")? == 1);

    // One more send is allowed, of the recorded bytes.
    let again = day.doubt("again", "cut")?;
    let said =
        day.run(&["ops", "resolve", &again, "--send-again", "--by", "ann", "--json"])?.exits(0)?.json()?;
    ensure!(said["state"] == "completed" && said["effects"][0]["sends"] == 2, "{said}");
    ensure!(day.effects(Class::None, "again")? == 1);

    // Pages and filters.
    let all = ids(&day.run(&["ops", "list", "--json"])?.exits(0)?.json()?);
    let first = ids(&day.run(&["ops", "list", "--json", "--limit", "2"])?.exits(0)?.json()?);
    let next = day.run(&["ops", "list", "--json", "--limit", "100", "--before", &first[1]])?;
    ensure!([first, ids(&next.exits(0)?.json()?)].concat() == all, "{all:?}");
    let hers = day.run(&["ops", "list", "--json", "--principal", "ann"])?.exits(0)?.json()?;
    ensure!(ids(&hers).len() == 1 && hers["operations"][0]["principal"] == "ann", "{hers}");
    let tool = day.run(&["ops", "list", "--json", "--tool", DOUBTFUL])?.exits(0)?.json()?;
    ensure!(ids(&tool).len() == 4, "{tool}");
    day.run(&["ops", "list", "--state", "nonsense"])?.exits(2)?;
    day.run(&["ops", "show", "op_01ARZ3NDEKTSV4RRFFQ69G5FAV"])?.exits(2)?;
    day.run(&["ops", "cancel", "nonsense", "--by", "ann"])?.exits(2)?;
    day.doubt("left", "apply_then_cut")
}

#[test]
fn a_call_whose_answer_is_lost_has_one_effect() -> Result<()> {
    let mut day = Day::begin()?;
    let gateway = day.serve()?;
    day.arm(Class::Key, "apply_then_cut")?;
    let first = day.call(&gateway.url, "payments_refunds_create", "lost", &[])?.exits(0)?.json()?;
    has(&first, &["result", "operation", "error", "key", "sends"])?;
    ensure!(first["error"].is_null() && first["sends"] == 1, "{first}");
    ensure!(day.effects(Class::Key, "lost")? == 1);
    let key = text(&first["key"]);
    let again = day.call(&gateway.url, "payments_refunds_create", "lost", &["--key", &key])?.exits(0)?;
    let again = again.json()?;
    ensure!(again["operation"]["replayed"] == json!(true), "{again}");
    ensure!(again["result"]["structuredContent"] == first["result"]["structuredContent"], "{first}\n{again}");
    ensure!(day.effects(Class::Key, "lost")? == 1);
    // Each other end has its code.
    let shown = ["call", &gateway.url, "payments_refunds_create", "--key", &key, "--arg", "payment=pay_demo"];
    day.run(&shown)?.exits(4)?.says("newKey")?;
    day.run(&[
        "call",
        &gateway.url,
        "payments_refunds_create",
        "--arg",
        "payment=pay_demo",
        "--arg",
        "amount=40200",
    ])?
    .exits(1)?
    .says("card_declined")?;
    day.run(&["call", &gateway.url, "payments_refunds_create", "--arg", "amount=1"])?
        .exits(2)?
        .says("payment")?;
    day.run(&["call", &gateway.url, "nothing"])?.exits(2)?.says("unknown tool")?;
    day.arm(Class::None, "apply_then_cut")?;
    let doubt = day.call(&gateway.url, "none_refunds_create", "doubt", &[])?.exits(3)?.json()?;
    ensure!(doubt["error"]["kind"] == "in_doubt", "{doubt}");
    ensure!(day.effects(Class::None, "doubt")? == 1);

    // The port of a process that is gone.
    let url = gateway.url.clone();
    drop(gateway);
    let dead = day.call(&url, "payments_refunds_create", "dead", &["--retries", "1", "--key", "k-dead"])?;
    let dead = dead.exits(5)?;
    let said = dead.json()?;
    ensure!(said["exitCode"] == 5 && text(&said["error"]["message"]).contains("Nothing ran"), "{dead}");
    ensure!(day.effects(Class::Key, "dead")? == 0);
    Ok(())
}

#[test]
fn wrong_usage_names_the_line_and_what_was_meant() -> Result<()> {
    let day = Day::begin()?;
    day.run(&["ops", "lst"])?.exits(2)?.says("'list'")?;
    day.run(&["exec"])?.exits(2)?;
    let good = day.config()?;
    let line = good.lines().count() + 2;
    day.configure(&format!("{good}\n[tools.\"payments.refunds.create\".x]\n"))?;
    day.run(&["methods"])?.exits(2)?;
    day.configure(&good.replace("# retention = \"7d\"", "retentoin = \"7d\""))?;
    let line_of =
        good.lines().position(|l| l.starts_with("# retention = \"7d\"")).context("no such line")? + 1;
    for args in [&["serve"][..], &["methods"], &["ops", "list"], &["exec", KEYED]] {
        day.run(args)?.exits(2)?.says(&format!(
            "counterfoil.toml:{line_of}:1: unknown key \"retentoin\" in [ledger]; did you mean \"retention\"?"
        ))?;
    }
    let said = day.run(&["methods", "--json"])?.exits(2)?.json()?;
    ensure!(said["error"]["kind"] == "configuration" && said["exitCode"] == 2, "{said}");
    day.run(&["doctor"])?.exits(2)?.says("retentoin")?;
    // A method that no integration has.
    day.configure(&format!("{good}\n[tools.\"none.refund.create\"]\nretention = \"1d\"\n"))?;
    day.run(&["methods"])?
        .exits(2)?
        .says(&format!("counterfoil.toml:{line}:"))?
        .says("did you mean \"none.refunds.create\"?")?;
    // A manifest, with its own line.
    day.configure(&good)?;
    let file = day.project.path().join("integrations/none.toml");
    let manifest = std::fs::read_to_string(&file)?;
    std::fs::write(&file, manifest.replace("effect = \"mutating\"", "efect = \"mutating\""))?;
    let at = manifest.lines().position(|l| l.starts_with("effect =")).context("no such line")? + 1;
    day.run(&["methods"])?.exits(2)?.says(&format!("none.toml:{at}:"))?.says("efect")?;
    Ok(())
}

#[test]
fn doctor_tells_errors_from_warnings() -> Result<()> {
    let day = Day::begin()?;
    let fine = day.run(&["doctor", "--json"])?.exits(0)?.json()?;
    ensure!(fine["errors"] == 0 && fine["warnings"] == 0, "{fine}");
    let findings = fine["findings"].as_array().context("no findings")?;
    for finding in findings {
        has(finding, &["level", "about", "what", "mend"])?;
    }
    // Its manifest decides: never sent twice.
    let decided = findings.iter().find(|f| f["about"] == DOUBTFUL).context("nothing is said of it")?;
    ensure!(decided["level"] == "ok" && text(&decided["what"]).contains("as decided"), "{fine}");
    let file = day.project.path().join("integrations/none.toml");
    let manifest = std::fs::read_to_string(&file)?;
    std::fs::write(&file, manifest.replace("recovery = \"none\"", ""))?;
    let told = day.run(&["doctor", "--json"])?.exits(0)?.json()?;
    let its = told["findings"].as_array().into_iter().flatten().find(|f| f["about"] == DOUBTFUL);
    let its = its.context("nothing is said of it")?;
    ensure!(its["level"] == "warning" && text(&its["what"]).starts_with("undecided"), "{told}");
    std::fs::write(&file, manifest)?;
    // Callers that may retry for longer than the ledger remembers.
    let bad = day.run(&["doctor", "--retry-horizon", "30d"])?.exits(2)?;
    bad.says("the ledger forgets after 7d")?;
    // A secret that is not there.
    let secret = "\n[auth]\nkind = \"bearer\"\nsecret = \"${env:NO_SUCH_SECRET_HERE}\"\n";
    std::fs::write(&file, std::fs::read_to_string(&file)? + secret)?;
    day.run(&["doctor"])?.exits(2)?.says("NO_SUCH_SECRET_HERE")?;
    Ok(())
}

#[test]
fn an_api_key_works_until_it_is_revoked() -> Result<()> {
    let mut day = Day::begin()?;
    day.configure(&day.config()?.replace("mode = \"none\" ", "mode = \"api-key\" "))?;
    let gateway = day.serve()?;
    let ask = |auth: Option<&str>| -> Result<http::Reply> {
        let mut call = Call::new("payments_refunds_create", Class::Key.arguments("guarded")).keyed("k-1");
        call.auth = auth.map(|key| format!("Bearer {key}"));
        Ok(http::once(gateway.addr, Duration::from_secs(20), &call.bytes(gateway.addr))?)
    };
    let refused = ask(None)?;
    ensure!(refused.status == 401, "{refused:?}");
    ensure!(refused.header("www-authenticate") == Some("Bearer realm=\"counterfoil\""), "{refused:?}");
    ensure!(ask(Some("cfk_aaaa"))?.status == 401);
    ensure!(day.effects(Class::Key, "guarded")? == 0);

    let create = ["api-keys", "create", "--principal", "billing", "--note", "test", "--json"];
    let made = day.run(&create)?.exits(0)?.json()?;
    let (id, key) = (text(&made["id"]), text(&made["key"]));
    ensure!(
        key.starts_with("cfk_") && made["principal"] == "billing" && made.get("hash").is_none(),
        "{made}"
    );
    let first = ask(Some(&key))?;
    ensure!(first.status == 200, "{first:?}");
    ensure!(day.effects(Class::Key, "guarded")? == 1);
    // A second key of the principal sees the same operation; another principal's doesn't.
    let second = text(&day.run(&create)?.exits(0)?.json()?["key"]);
    let shown = day.call(
        &gateway.url,
        "payments_refunds_create",
        "guarded",
        &["--key", "k-1", "--api-key", &second],
    )?;
    ensure!(shown.exits(0)?.json()?["operation"]["replayed"] == json!(true));
    let other = day.run(&["api-keys", "create", "--principal", "shop"])?.exits(0)?;
    let other = other.stdout.lines().next().unwrap_or_default().to_owned();
    let theirs = Said::of(&ask(Some(&other))?);
    ensure!(
        matches!(&theirs, Said::Result { operation, .. } if operation["replayed"] == json!(false)),
        "{theirs:?}"
    );

    let listed = day.run(&["api-keys", "list", "--json"])?.exits(0)?;
    ensure!(!listed.stdout.contains(&key) && !listed.stdout.contains("hash"), "{listed}");
    let keys = listed.json()?["keys"].as_array().cloned().context("no keys")?;
    ensure!(keys.len() == 3 && keys.iter().all(|k| k["revokedAt"].is_null()), "{listed}");
    has(&keys[0], &["id", "principal", "note", "createdAt"])?;

    day.run(&["api-keys", "revoke", &id])?.exits(0)?.says("revoked")?;
    let refused = ask(Some(&key))?;
    ensure!(refused.status == 401 && refused.text().contains("revoked"), "{refused:?}");
    ensure!(ask(Some(&second))?.status == 200, "the other key of the principal still works");
    day.call(&gateway.url, "payments_refunds_create", "guarded", &["--api-key", &key])?
        .exits(2)?
        .says("revoked")?;
    let listed = day.run(&["api-keys", "list", "--json"])?.exits(0)?.json()?;
    let revoked = listed["keys"].as_array().into_iter().flatten().find(|k| k["id"] == json!(id)).cloned();
    ensure!(revoked.is_some_and(|k| k["revokedAt"].is_string()), "{listed}");
    day.run(&["api-keys", "revoke", "ak-nothing"])?.exits(2)?;
    Ok(())
}

#[test]
fn a_bad_file_on_reload_leaves_the_gateway_serving() -> Result<()> {
    let mut day = Day::begin()?;
    let good = day.config()?;
    let gateway = day.serve()?;
    let names = || -> Result<String> {
        let listed = wire::ask(gateway.addr, "tools/list", None, json!({}))?;
        Ok(listed["result"]["tools"].to_string())
    };
    day.configure(&format!("{good}\nthis is no TOML"))?;
    signal(&gateway, "HUP")?;
    until("the bad file is reported", || Ok(day.project.gateway_said().contains("was not reloaded")))?;
    day.call(&gateway.url, "payments_refunds_create", "still", &[])?.exits(0)?;
    ensure!(day.effects(Class::Key, "still")? == 1);
    // Mended, and with another name for a tool.
    day.configure(&format!("{good}\n[tools.\"{DOUBTFUL}\"]\nname = \"doubtful\"\n"))?;
    ensure!(!names()?.contains("\"doubtful\""));
    signal(&gateway, "HUP")?;
    until("the tool has its new name", || Ok(names()?.contains("\"doubtful\"")))?;
    until("that is reported", || Ok(day.project.gateway_said().contains("configuration reloaded")))
}

#[test]
fn a_call_in_flight_is_answered_before_the_end() -> Result<()> {
    let mut day = Day::begin()?;
    let mut gateway = day.serve()?;
    day.sandbox.rule(&json!({ "on": Class::Key.on(), "do": "delay", "delay_ms": 1500 }))?;
    let call = Call::new("payments_refunds_create", Class::Key.arguments("slow")).keyed("k-slow");
    let addr = gateway.addr;
    let calling = thread::spawn(move || wire::call(addr, Duration::from_secs(20), &call));
    until("the request is at the provider", || {
        Ok(day.sandbox.effects("")?["received"].as_u64().unwrap_or(0) > 0)
    })?;
    ensure!(day.effects(Class::Key, "slow")? == 0, "the provider should be waiting");
    let ended = gateway.process.terminate()?;
    ensure!(ended.code() == Some(0), "{ended:?}\n{}", day.project.gateway_said());
    let said = calling.join().ok().context("the call's thread failed")?;
    ensure!(matches!(said, Said::Result { is_error: false, .. }), "{said:?}");
    ensure!(day.effects(Class::Key, "slow")? == 1);
    ensure!(http::Connection::open(addr, Duration::from_secs(1)).is_err(), "something still listens");
    Ok(())
}

#[test]
fn one_ledger_one_process_and_a_kill_loses_no_answer() -> Result<()> {
    let mut day = Day::begin()?;
    let mut gateway = day.serve()?;
    let call = Call::new("payments_refunds_create", Class::Key.arguments("kept")).keyed("k-kept");
    let Said::Result { stored, operation, .. } = wire::call(gateway.addr, Duration::from_secs(20), &call)
    else {
        anyhow::bail!("no result\n{}", day.project.gateway_said())
    };
    let second = day.run(&["serve", "--listen", "127.0.0.1:0"])?.exits(5)?;
    second.says(&format!("in use by process {}", gateway.process.pid()))?;
    // The first one did not notice.
    ensure!(http::json(gateway.addr, "GET", "/readyz", None)?.status == 200);

    gateway.process.kill();
    drop(gateway);
    let gateway = day.serve()?;
    let said = wire::call(gateway.addr, Duration::from_secs(20), &call);
    let Said::Result { stored: again, operation: same, .. } = &said else { anyhow::bail!("{said:?}") };
    ensure!(*again == stored, "the bytes differ:\n{stored}\n{again}");
    ensure!(same["replayed"] == json!(true) && same["id"] == operation["id"], "{same}");
    ensure!(day.effects(Class::Key, "kept")? == 1);
    Ok(())
}

#[test]
fn machines_are_told_how_it_is() -> Result<()> {
    let mut day = Day::begin()?;
    let gateway = day.serve()?;
    let get = |path: &str| http::json(gateway.addr, "GET", path, None);
    ensure!(get("/healthz")?.status == 200);
    until("it is ready", || Ok(get("/readyz")?.status == 200))?;
    day.call(&gateway.url, "payments_refunds_create", "counted", &["--key", "k-1"])?.exits(0)?;
    day.call(&gateway.url, "payments_refunds_create", "counted", &["--key", "k-1"])?.exits(0)?;
    let metrics = get("/metrics")?;
    ensure!(metrics.status == 200);
    ensure!(
        metrics.header("content-type").is_some_and(|t| t.starts_with("application/openmetrics-text")),
        "{:?}",
        metrics.headers
    );
    let text = metrics.text();
    ensure!(text.ends_with("# EOF\n"), "{text}");
    // Every metric of the operators' page is there, and of its type.
    let page = std::fs::read_to_string(root().join("docs/operating.md"))?;
    let mut known = 0;
    for row in page.lines().filter(|l| l.starts_with("| `counterfoil_")) {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let name = cells.next().unwrap_or_default().trim_matches('`').to_owned();
        let kind = cells.next().unwrap_or_default();
        let kind = kind.split([';', ',']).next().unwrap_or_default().trim();
        let family = name.strip_suffix("_total").unwrap_or(&name);
        ensure!(text.contains(&format!("# TYPE {family} {kind}\n")), "{name} ({kind}) is not in\n{text}");
        known += 1;
    }
    ensure!(known >= 18, "only {known} metrics are documented");
    for line in [
        "counterfoil_calls_total{tool=\"payments.refunds.create\",outcome=\"completed\"} 1\n",
        "counterfoil_calls_total{tool=\"payments.refunds.create\",outcome=\"replayed\"} 1\n",
        "counterfoil_operations_opened_total 1\n",
        "counterfoil_sends_total{word=\"applied\"} 1\n",
        "counterfoil_operations{state=\"completed\"} 1\n",
        "counterfoil_deliveries{state=\"acknowledged\"} 1\n",
        // A counter that appears with its first event has no increase: the first alert would be missed.
        "counterfoil_alerts_total{word=\"in_doubt\"} 0\n",
        "counterfoil_alerts_total{word=\"undelivered\"} 0\n",
        "counterfoil_alerts_total{word=\"several\"} 0\n",
        "counterfoil_alerts_total{word=\"attempts_used_up\"} 0\n",
    ] {
        ensure!(text.contains(line), "{line} is not in\n{text}");
    }
    Ok(())
}

#[test]
fn version_and_completions() -> Result<()> {
    let project = Project::empty()?;
    let version = counterfoil(&project, &["--version"])?.exits(0)?;
    ensure!(version.stdout == format!("counterfoil {}\n", env!("CARGO_PKG_VERSION")), "{version}");
    for (shell, mark) in
        [("bash", "complete -F"), ("zsh", "#compdef counterfoil"), ("fish", "complete -c counterfoil")]
    {
        let script = counterfoil(&project, &["completions", shell])?.exits(0)?;
        ensure!(script.stdout.contains(mark) && script.stdout.contains("api-keys"), "{script}");
        std::fs::write(project.path().join(shell), &script.stdout)?;
    }
    // Bash is everywhere: what does it complete?
    let line = ". ./bash; COMP_WORDS=(counterfoil ops res); COMP_CWORD=2; _counterfoil counterfoil res ops; echo \"${COMPREPLY[*]}\"";
    let told = bash(
        line,
        |c| {
            c.current_dir(project.path());
        },
        Duration::from_secs(10),
    )?
    .exits(0)?;
    ensure!(told.stdout.trim() == "resolve", "{told}");
    counterfoil(&project, &["completions", "sh"])?.exits(2)?;
    Ok(())
}
