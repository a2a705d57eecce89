//! Three replicas of the shop, a customer with a client, and what the customer must find.

use crate::stage::{Stage, WITHIN};
use anyhow::{Context, Result, bail, ensure};
use counterfoil_tests::clients::{Kind, Order, Worker};
use counterfoil_tests::process::project;
use counterfoil_tests::wire::{META_KEY, Said};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::thread;
use std::time::{Duration, Instant};

/// The shop's payments API, mounted under the name that the example calls it by.
const PAYMENTS: &str = "\n[[integration]]\nname = \"payments\"\nmanifest = \"integrations/payments.toml\"\n";
/// The client's own limit for a request.
pub const LIMIT: Duration = Duration::from_secs(6);

/// Three replicas, with more configuration at the end.
pub fn open(more: &str) -> Result<Stage> {
    let more = format!("{PAYMENTS}{more}");
    Stage::open_with(Some("--shop"), &more, |to, provider| {
        let shipped = std::fs::read_to_string(project().join("crates/provider/sandbox/payments.toml"))?;
        let at = "{ sandbox = \"http://127.0.0.1:8690\" }";
        ensure!(shipped.contains(at), "the shipped manifest names another address");
        let own = shipped.replace(at, &format!("\"http://{provider}\"")).replace("\"250ms\"", "\"20ms\"");
        Ok(std::fs::write(to.path().join("integrations/payments.toml"), own)?)
    })
}

/// Somebody with a client.
pub struct Customer {
    worker: RefCell<Worker>,
    url: String,
    auth: Option<String>,
}

impl Customer {
    pub fn new(stage: &Stage, kind: Kind, auth: Option<String>) -> Result<Customer> {
        let worker = RefCell::new(Worker::start(kind, stage.project.path())?);
        let url = format!("http://{}/mcp", stage.front);
        Ok(Customer { worker, url, auth })
    }

    fn order(&self) -> Order<'_> {
        let auth = self.auth.as_deref();
        Order { client: "customer", url: &self.url, auth, timeout: LIMIT, abort_after: None }
    }

    /// Makes a call as a host does: where there is no answer, or one that says to come again, the same again.
    pub fn call(&self, tool: &str, arguments: &Value, key: Option<&str>) -> Result<Said> {
        let meta = key.map_or(json!({}), |key| json!({ META_KEY: key }));
        let until = Instant::now() + WITHIN;
        loop {
            let said = self.worker.borrow_mut().call(&self.order(), tool, arguments, &meta)?;
            let again = match &said {
                Said::Lost(_) => true,
                Said::Error { kind, .. } => {
                    ["still_running", "unavailable", "admission_unknown"].contains(&kind.as_str())
                }
                // A balancer without a replica to pass on to.
                Said::Rpc { code, .. } => *code == -32603,
                Said::Result { .. } => false,
            };
            if !again {
                return Ok(said);
            }
            ensure!(Instant::now() < until, "no answer to {tool} at last: {said:?}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// The structure of a result that is no error.
    pub fn made(&self, tool: &str, arguments: &Value, key: &str) -> Result<Value> {
        structure(self.call(tool, arguments, Some(key))?).with_context(|| format!("{tool} {arguments}"))
    }

    pub fn create(&self, key: &str) -> Result<String> {
        let made = self.made("basket_create", &json!({}), key)?;
        made["basket"].as_str().map(str::to_owned).with_context(|| made.to_string())
    }

    pub fn add(&self, basket: &str, item: &str, version: u64, key: &str) -> Result<Said> {
        self.call("basket_add", &json!({ "basket": basket, "item": item, "version": version }), Some(key))
    }

    /// What is in it, by the tool that reads.
    pub fn shown(&self, basket: &str) -> Result<Value> {
        structure(self.call("basket_show", &json!({ "basket": basket }), None)?)
    }

    /// Each basket of this customer.
    pub fn listed(&self) -> Result<Vec<Value>> {
        let all = structure(self.call("basket_list", &json!({}), None)?)?;
        Ok(all["baskets"].as_array().with_context(|| all.to_string())?.clone())
    }

    /// Begins a call that another is to race with.
    pub fn begin(&self, tool: &str, arguments: &Value) -> Result<counterfoil_tests::clients::Pending> {
        self.worker.borrow_mut().begin_call(&self.order(), tool, arguments, &json!({}))
    }

    pub fn end(&self, pending: counterfoil_tests::clients::Pending) -> Result<Said> {
        self.worker.borrow_mut().end_call(pending)
    }
}

pub fn structure(said: Said) -> Result<Value> {
    match said {
        Said::Result { value, is_error: false, .. } => Ok(value["structuredContent"].clone()),
        other => bail!("a result was expected, not {} ({other:?})", other.brief()),
    }
}

/// What somebody who was too slow is told: the basket as it is now.
pub fn overtaken(said: &Said) -> Result<Value> {
    match said {
        Said::Result { value, is_error: true, .. } => Ok(value["_meta"]["com.example/basket"].clone()),
        other => bail!("{other:?}"),
    }
}

/// How many payments an order had.
pub fn payments(stage: &Stage, order: &str) -> Result<u64> {
    let effects = stage.sandbox().effects(&format!("object={order}"))?;
    effects["total"].as_u64().with_context(|| effects.to_string())
}
