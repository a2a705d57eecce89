//! A small server of one's own: orders that can be read, and refunded with a mail to the customer, each once.
//!
//! `cargo run -p counterfoil --example orders` serves it at <http://127.0.0.1:8600/mcp>, with the sandbox provider at
//! 127.0.0.1:8690 as the payments and mail API, and its ledger in `.orders/`.

use counterfoil::config::Config;
use counterfoil::native::{
    Attempt, Change, Completion, Context, Failure, Messages, Native, NoArguments, Prompt, Resource,
    Structured, Template, Tool, ToolError,
};
use counterfoil::run::Server;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::Path;

/// An order.
#[derive(Clone, Serialize, JsonSchema)]
struct Order {
    /// Its number.
    id: &'static str,
    /// What was paid, in minor units.
    amount: u64,
    /// The payment at the provider.
    payment: &'static str,
    /// The customer's address.
    customer: &'static str,
}

const ORDERS: [Order; 3] = [
    Order { id: "o-1", amount: 2500, payment: "pay_demo_1", customer: "ada@example.com" },
    Order { id: "o-2", amount: 900, payment: "pay_demo_2", customer: "grace@example.com" },
    Order { id: "o-3", amount: 12_000, payment: "pay_demo_3", customer: "alan@example.com" },
];

fn order(id: &str) -> Option<Order> {
    ORDERS.into_iter().find(|o| o.id == id)
}

#[derive(Deserialize, JsonSchema)]
struct GetOrder {
    /// The order's number, for example o-1.
    id: String,
}

#[derive(Deserialize, JsonSchema)]
struct RefundOrder {
    /// The order's number, for example o-1.
    id: String,
    /// Why, in a few words; the customer reads it.
    reason: String,
}

#[derive(Serialize, JsonSchema)]
struct Refunded {
    /// The refund at the provider.
    refund: String,
    /// What was given back, in minor units.
    amount: u64,
    /// Whether the customer was told.
    mailed: bool,
}

/// What of a refund is read.
#[derive(Deserialize)]
struct Refund {
    id: String,
}

/// Gives the money back, then tells the customer. Both are effects of one operation: whatever happens in between, each
/// is caused once.
async fn refund(attempt: Attempt, asked: RefundOrder) -> Result<counterfoil::native::CallResult, ToolError> {
    let order =
        order(&asked.id).ok_or_else(|| ToolError::bad(format!("there is no order {:?}", asked.id)))?;
    let arguments = json!({ "payment": order.payment, "amount": order.amount, "order_id": order.id });
    let refund = attempt.call("refund", "payments.refunds.create", arguments).await?;
    if !refund.applied() {
        // The provider's no is this tool's answer, and stays it.
        return Ok(refund.into_result());
    }
    let refund: Refund = refund.read()?;
    attempt.progress(1.0, Some(2.0), "refunded");
    let letter = json!({
        "to": order.customer,
        "subject": format!("Your refund for order {}", order.id),
        "body": format!("We have refunded {} cents ({}). {}", order.amount, refund.id, asked.reason),
    });
    let mail = attempt.call("mail", "mail.messages.send", letter).await?;
    counterfoil::native::CallResult::structured(&Refunded {
        refund: refund.id,
        amount: order.amount,
        mailed: mail.applied(),
    })
}

#[derive(Deserialize)]
struct OrderPath {
    id: String,
}

#[derive(Deserialize, JsonSchema)]
struct Apology {
    /// The order's number.
    order: String,
    /// How it should sound; friendly if left out.
    tone: Option<String>,
}

/// What the server offers.
pub fn native() -> Native {
    let native = Native::new();
    let changes = native.changes();
    native
        .tool(
            Tool::reading(
                "orders.get",
                "Tells an order by its number",
                |_: Context, asked: GetOrder| async move {
                    order(&asked.id)
                        .map(Structured)
                        .ok_or_else(|| ToolError::bad(format!("there is no order {:?}", asked.id)))
                },
            )
            .title("Get an order"),
        )
        .tool(
            Tool::changing(
                "orders.refund",
                "Refunds an order in full and mails the customer",
                ["payments.refunds.create", "mail.messages.send"],
                move |attempt, asked: RefundOrder| {
                    let changes = changes.clone();
                    async move {
                        let result = refund(attempt, asked).await;
                        changes.tell(Change::Resource("orders://list".into()));
                        result
                    }
                },
            )
            .title("Refund an order")
            .key_from(["id"]),
        )
        .resource(
            Resource::reading("orders://list", "orders", |_: Context| async {
                serde_json::to_string(&ORDERS)
                    .map_err(|_| Failure::Failed("the orders can't be read now".into()))
            })
            .description("All orders")
            .mime_type("application/json")
            .subscribable(),
        )
        .template(
            Template::new("orders://order/{id}", "order", |_: Context, path: OrderPath| async move {
                let order = order(&path.id).ok_or(Failure::NotFound)?;
                serde_json::to_string(&order)
                    .map_err(|_| Failure::Failed("the order can't be read now".into()))
            })
            .description("One order")
            .mime_type("application/json")
            .completing(|_, asked| async move {
                let ids = ORDERS.iter().map(|o| o.id.to_owned());
                Ok(Completion {
                    values: ids.filter(|id| id.starts_with(&asked.value)).collect(),
                    total: None,
                })
            }),
        )
        .prompt(Prompt::new(
            "apology",
            "Writes an apology for an order",
            |_: Context, asked: Apology| async move {
                let tone = asked.tone.unwrap_or_else(|| "friendly".into());
                Ok(Messages::new()
                    .user(format!("Write a {tone} apology to the customer of order {}.", asked.order)))
            },
        ))
        .tool(Tool::reading(
            "orders.count",
            "Tells how many orders there are",
            |_: Context, _: NoArguments| async { Ok(ORDERS.len().to_string()) },
        ))
}

/// Where its data is, and that the sandbox provider's methods are mounted.
pub fn config(data: &Path) -> Config {
    let mut config = Config::native("orders", data);
    config.sandbox = Some(([127, 0, 0, 1], 8690).into());
    config
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let running = Server::start_with(config(".orders".as_ref()), native()).await?;
    println!("{}", running.endpoint());
    tokio::signal::ctrl_c().await?;
    running.shutdown().await?;
    Ok(())
}
