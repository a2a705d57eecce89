//! A refund in three steps of the server's own: money back, a letter, a note in the books. Each is recorded with its
//! receipt, and none of them happens twice, whatever is killed in between.
//!
//! `cargo run -p counterfoil --example refund` serves it at <http://127.0.0.1:8600/mcp>, with its ledger in `.refund/` and the
//! bank, the letters and the books as files beside it. No configured method is needed: the steps are closures. Each says
//! how it recovers, because each is carried out by somebody else.

use counterfoil::config::Config;
use counterfoil::native::{
    Attempt, Context, Native, NoArguments, Step, StepError, Structured, Tool, ToolError,
};
use counterfoil::run::Server;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

/// Those who carry the steps out. In earnest they are other systems; here each is a folder.
pub struct Office {
    folder: PathBuf,
}

/// What nobody can tell from here: it may have happened.
fn unknown(e: io::Error) -> StepError {
    StepError::Unknown(format!("the disk said: {}", e.kind()))
}

impl Office {
    /// In this folder.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(folder: &Path) -> io::Result<Office> {
        for part in ["bank", "letters", "books"] {
            fs::create_dir_all(folder.join(part))?;
        }
        Ok(Office { folder: folder.to_owned() })
    }

    /// The bank knows a booking by its key, and tells of the first if it is asked for a second.
    fn pay_back(&self, key: &str, order: &str, amount: u64) -> Result<Booking, StepError> {
        let file = self.folder.join("bank").join(format!("{}.json", name_of(key)));
        let booking = Booking { order: order.to_owned(), amount };
        let new = file.with_extension("new");
        fs::write(&new, json!(booking).to_string()).map_err(unknown)?;
        match fs::hard_link(&new, &file) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(unknown(e)),
            _ => {}
        }
        let there = fs::read(&file).map_err(unknown)?;
        serde_json::from_slice(&there).map_err(|_| StepError::Unknown("the booking can't be read".into()))
    }

    /// The post knows no keys: a second letter is a second letter.
    fn post(&self, to: &str, text: &str) -> Result<u64, StepError> {
        let all = self.folder.join("letters/sent");
        let number = fs::read_to_string(&all).map_or(0, |sent| sent.lines().count());
        let mut all = fs::File::options().create(true).append(true).open(all).map_err(unknown)?;
        writeln!(all, "{}", json!({ "to": to, "text": text })).map_err(unknown)?;
        Ok(number as u64 + 1)
    }

    /// The books hold one line for each order: writing it again changes nothing.
    fn note(&self, order: &str, line: &str) -> Result<(), StepError> {
        let file = self.folder.join("books").join(name_of(order));
        fs::write(file, line).map_err(unknown)
    }

    fn notes(&self) -> io::Result<Vec<String>> {
        let read = |entry: io::Result<fs::DirEntry>| fs::read_to_string(entry?.path());
        fs::read_dir(self.folder.join("books"))?.map(read).collect()
    }
}

/// A name that is safe for a file.
fn name_of(text: &str) -> String {
    text.bytes().map(|b| format!("{b:02x}")).collect()
}

#[derive(Clone, Serialize, Deserialize)]
struct Booking {
    order: String,
    amount: u64,
}

#[derive(Clone, Deserialize, JsonSchema)]
struct Refund {
    /// The order, for example o-1.
    #[schemars(length(min = 1, max = 60))]
    order: String,
    /// How much goes back, in minor units.
    amount: u64,
    /// The customer.
    #[schemars(length(min = 1, max = 200))]
    customer: String,
}

#[derive(Serialize, JsonSchema)]
struct Refunded {
    /// What the bank booked, in minor units.
    booked: u64,
    /// The letter's number; absent if it could not be sent.
    letter: Option<u64>,
}

async fn refund(
    attempt: Attempt,
    office: Arc<Office>,
    asked: Refund,
) -> Result<Structured<Refunded>, ToolError> {
    // Unique: the bank takes the key as the booking's name, so an interrupted step is simply run again.
    let (bank, order, amount) = (office.clone(), asked.order.clone(), asked.amount);
    let given = json!({ "order": asked.order, "amount": asked.amount });
    let booking: Booking = attempt
        .effect("pay_back", Step::unique(), &given, move |key| {
            let booked = bank.pay_back(&key, &order, amount);
            async move { booked }
        })
        .await?;
    attempt.progress(1.0, Some(3.0), "paid back");

    // Nothing protects from a second letter, so an interrupted one is never sent again: a person looks.
    let (post, to) = (office.clone(), asked.customer.clone());
    let text = format!("{} of your order {} are on their way to you.", booking.amount, booking.order);
    let given = json!({ "to": asked.customer, "text": text });
    let letter = attempt
        .effect("letter", Step::none(), &given, move |_| {
            let sent = post.post(&to, &text);
            async move { sent }
        })
        .await
        .ok();
    attempt.progress(2.0, Some(3.0), "told the customer");

    // It sets a state, so it may be run again.
    let (books, order) = (office, asked.order.clone());
    let line = format!("{}: {} refunded", booking.order, booking.amount);
    attempt
        .effect("note", Step::natural(), &line.clone(), move |_| {
            let noted = books.note(&order, &line);
            async move { noted }
        })
        .await?;
    Ok(Structured(Refunded { booked: booking.amount, letter }))
}

/// What the server offers.
pub fn native(office: Arc<Office>) -> Native {
    let books = office.clone();
    Native::new()
        .tool(
            Tool::changing(
                "orders.refund",
                "Refunds an order, writes to the customer and keeps the books",
                [""; 0],
                move |attempt, asked: Refund| refund(attempt, office.clone(), asked),
            )
            .key_from(["order"]),
        )
        .tool(Tool::reading(
            "orders.books",
            "Tells what is in the books",
            move |_: Context, _: NoArguments| {
                let notes = books.notes();
                async move {
                    let mut notes = notes.map_err(|_| ToolError::failed("The books can't be read now."))?;
                    notes.sort();
                    Ok(if notes.is_empty() { "nothing".to_owned() } else { notes.join("\n") })
                }
            },
        ))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(".refund");
    let office = Arc::new(Office::open(&folder.join("office"))?);
    let running = Server::start_with(Config::native("refund", folder), native(office)).await?;
    println!("{}", running.endpoint());
    tokio::signal::ctrl_c().await?;
    running.shutdown().await?;
    Ok(())
}
