//! A shop with baskets: state that outlives a call, under a handle that works for its owner alone.
//!
//! `cargo run -p counterfoil --example basket` serves it at <http://127.0.0.1:8600/mcp>, with the sandbox provider at
//! 127.0.0.1:8690 as the payments API, and its ledger in `.basket/`.
//!
//! Whoever adds, and whoever pays, says which version of the basket was seen. If somebody was faster, nothing is done, and
//! the answer says what there is now.

use counterfoil::config::Config;
use counterfoil::native::{
    Attempt, CallResult, Context, HandleError, Held, Native, NoArguments, Structured, Tool, ToolError,
    Unkeyed,
};
use counterfoil::run::Server;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// What handles of baskets are called.
const KIND: &str = "basket";
/// How long a basket may lie unused.
const IDLE: Duration = Duration::from_secs(2 * 3600);
/// How long it may live at all.
const LIFE: Duration = Duration::from_secs(7 * 86_400);
/// What there is, and its price in minor units.
const PRICES: [(&str, u64); 3] = [("tea", 450), ("coffee", 600), ("cake", 380)];
/// The most items in a basket.
const MOST: usize = 100;

/// What is kept under a handle.
#[derive(Default, Serialize, Deserialize)]
struct Basket {
    items: Vec<String>,
    /// It is being paid, or was: nothing is added any more.
    closed: bool,
}

impl Basket {
    fn total(&self) -> u64 {
        let price = |item: &String| PRICES.iter().find(|(name, _)| name == item).map_or(0, |(_, p)| *p);
        self.items.iter().map(price).sum()
    }
}

/// What a caller sees of one.
#[derive(Serialize, JsonSchema)]
struct Seen {
    /// What is in it.
    items: Vec<String>,
    /// What it costs, in minor units.
    total: u64,
    /// Give it when you change or pay the basket.
    version: u64,
}

impl Seen {
    fn of(held: Held<Basket>) -> Seen {
        let (total, version) = (held.value.total(), held.version());
        Seen { items: held.value.items, total, version }
    }
}

/// The answer to who was too slow, for people and programs.
fn changed(now: Held<Basket>) -> Result<CallResult, ToolError> {
    let now = Seen::of(now);
    let text = format!(
        "The basket was changed meanwhile, so nothing was done. It holds {} now, at version {}; call again with that version.",
        if now.items.is_empty() { "nothing".into() } else { now.items.join(", ") },
        now.version,
    );
    Ok(CallResult::error(text).meta("com.example/basket", json!(now)))
}

#[derive(Serialize, JsonSchema)]
struct Created {
    /// Its handle: keep it, and give it with each call about this basket.
    basket: String,
    /// Its version.
    version: u64,
}

async fn create(attempt: Attempt, _: NoArguments) -> Result<Structured<Created>, ToolError> {
    let basket = attempt.handles().create("create", KIND, &Basket::default()).await?;
    Ok(Structured(Created { basket, version: 1 }))
}

#[derive(Deserialize, JsonSchema)]
struct Add {
    /// The basket's handle.
    basket: String,
    /// What to put in: tea, coffee or cake.
    item: String,
    /// The version that was seen last.
    version: u64,
}

async fn add(attempt: Attempt, asked: Add) -> Result<CallResult, ToolError> {
    if !PRICES.iter().any(|(name, _)| *name == asked.item) {
        let all: Vec<&str> = PRICES.iter().map(|(name, _)| *name).collect();
        return Ok(CallResult::error(format!("There is {}, and nothing else.", all.join(", "))));
    }
    let handles = attempt.handles();
    // What was read is kept with the operation: when this runs again, it says the same.
    let mut held: Held<Basket> = handles.fixed("seen", KIND, &asked.basket).await?;
    if held.version() != asked.version {
        return changed(held);
    }
    if held.value.closed || held.value.items.len() >= MOST {
        return Ok(CallResult::error("Nothing more can be put into this basket."));
    }
    held.value.items.push(asked.item);
    match handles.update("add", &held).await {
        Ok(now) => CallResult::structured(&Seen::of(now)),
        // Somebody was faster by a moment.
        Err(HandleError::Moved) => changed(handles.get(KIND, &asked.basket).await?),
        Err(e) => Err(e.into()),
    }
}

#[derive(Deserialize, JsonSchema)]
struct Which {
    /// The basket's handle.
    basket: String,
}

async fn show(context: Context, asked: Which) -> Result<Structured<Seen>, ToolError> {
    Ok(Structured(Seen::of(context.handles().get(KIND, &asked.basket).await?)))
}

#[derive(Serialize, JsonSchema)]
struct Baskets {
    /// The caller's, in no order. Their handles are with whoever made them.
    baskets: Vec<Seen>,
}

async fn list(context: Context, _: NoArguments) -> Result<Structured<Baskets>, ToolError> {
    let all = context.handles().list::<Basket>(KIND).await?;
    Ok(Structured(Baskets { baskets: all.into_iter().map(Seen::of).collect() }))
}

#[derive(Deserialize, JsonSchema)]
struct Checkout {
    /// The basket's handle.
    basket: String,
    /// The version that is paid for.
    version: u64,
    /// Your number of the order.
    order: String,
}

/// What of a payment is read.
#[derive(Deserialize)]
struct Payment {
    id: String,
}

/// Closes the basket, has it paid, and ends it. Whatever happens in between, it is paid once.
async fn checkout(attempt: Attempt, asked: Checkout) -> Result<CallResult, ToolError> {
    let handles = attempt.handles();
    let mut held: Held<Basket> = handles.fixed("seen", KIND, &asked.basket).await?;
    if held.version() != asked.version {
        return changed(held);
    }
    if held.value.closed || held.value.items.is_empty() {
        return Ok(CallResult::error("There is nothing to pay in this basket."));
    }
    let total = held.value.total();
    // From here on nobody puts in what would not be paid.
    held.value.closed = true;
    let mut held = match handles.update("close", &held).await {
        Err(HandleError::Moved) => return changed(handles.get(KIND, &asked.basket).await?),
        closed => closed?,
    };
    attempt.progress(1.0, Some(2.0), "closed");
    let payment = json!({ "amount": total, "currency": "eur", "order_id": asked.order });
    let payment = attempt.call("pay", "payments.payments.create", payment).await?;
    if !payment.applied() {
        // The provider's no is this tool's answer. Another try is another call, with the version after this.
        held.value.closed = false;
        handles.update("reopen", &held).await?;
        return Ok(payment.into_result());
    }
    let payment: Payment = payment.read()?;
    handles.destroy("end", KIND, &asked.basket).await?;
    CallResult::structured(&json!({ "payment": payment.id, "paid": total, "items": held.value.items }))
}

/// What the server offers, beside what it offers already.
pub fn add_to(native: Native) -> Native {
    native
        .tool(
            Tool::changing("basket.create", "Makes an empty basket", [""; 0], create)
                // Two baskets without a key are two: one too many is empty, and ends by itself.
                .unkeyed(Unkeyed::New)
                .handles(KIND, IDLE, LIFE),
        )
        .tool(Tool::changing("basket.add", "Puts something into a basket", [""; 0], add))
        .tool(Tool::reading("basket.show", "Tells what is in a basket", show))
        .tool(Tool::reading("basket.list", "Tells what is in each of your baskets", list))
        .tool(
            Tool::changing("basket.checkout", "Pays a basket", ["payments.payments.create"], checkout)
                .key_from(["basket", "version"]),
        )
}

/// Where its data is, and that the sandbox provider's methods are mounted.
pub fn config(data: &Path) -> Config {
    let mut config = Config::native("basket", data);
    config.sandbox = Some(([127, 0, 0, 1], 8690).into());
    config
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let running = Server::start_with(config(".basket".as_ref()), add_to(Native::new())).await?;
    println!("{}", running.endpoint());
    tokio::signal::ctrl_c().await?;
    running.shutdown().await?;
    Ok(())
}
