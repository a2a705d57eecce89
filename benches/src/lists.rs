//! How long a client waits for the list of tools, and how much of it there is: a thousand methods, and a view of twenty.

use crate::figures::{Figures, median};
use crate::runs::Extent;
use anyhow::{Context, Result, ensure};
use counterfoil_tests::http::Connection;
use counterfoil_tests::stand::{Gateway, Project};
use counterfoil_tests::wire::{meta, post};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const METHODS: usize = 1000;
const SHOWN: usize = 20;
const VIEW: &str = "/mcp/few";
const TIMEOUT: Duration = Duration::from_secs(10);

/// A manifest of methods as descriptions have them: half a dozen arguments, each with a sentence.
fn manifest() -> String {
    let mut text = String::from(
        "name = \"shop\"\nbase_url = { sandbox = \"http://127.0.0.1:9\", production = \"http://127.0.0.1:9\" }\npreset = \"stripe\"\n",
    );
    for n in 0..METHODS {
        let group = if n < SHOWN { "few" } else { "many" };
        let input = json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["customer", "amount"],
            "properties": {
                "customer": { "type": "string", "minLength": 1, "description": "The customer that the object belongs to." },
                "amount": { "type": "integer", "minimum": 1, "description": "The amount in the smallest unit of the currency." },
                "currency": { "type": "string", "pattern": "^[a-z]{3}$", "description": "A currency of three letters." },
                "description": { "type": "string", "maxLength": 500, "description": "What stands on the statement." },
                "metadata": { "type": "object", "description": "Up to fifty pairs of your own." },
                "expand": { "type": "array", "items": { "type": "string" }, "description": "Which members to show whole." },
            },
        });
        // Into a string: it takes everything.
        let _ = write!(
            text,
            "\n[methods.\"{group}.things_{n}.create\"]\nhttp = \"POST /v1/things_{n}\"\ntitle = \"Create thing {n}\"\ndescription = \"Creates a thing of kind {n}, charges it to the customer, and answers the thing as it is then.\"\ninput = '''{input}'''\n"
        );
    }
    text
}

fn project() -> Result<(Project, Gateway)> {
    let mut project = Project::empty()?;
    let config = format!(
        "[server]\nname = \"bench\"\nlisten = \"127.0.0.1:0\"\n\n[[integration]]\nname = \"shop\"\nmanifest = \"shop.toml\"\n\n[[view]]\nname = \"few\"\npath = \"{VIEW}\"\ntools = [\"shop.few.*\"]\n"
    );
    std::fs::write(project.path().join("counterfoil.toml"), config)?;
    std::fs::write(project.path().join("shop.toml"), manifest())?;
    let gateway = project.gateway(None)?;
    Ok((project, gateway))
}

/// One list: its pages one after the other, as clients ask for them. How many tools and bytes there were.
fn list(connection: &mut Connection, addr: SocketAddr, path: &str) -> Result<(usize, usize)> {
    let (mut tools, mut bytes, mut cursor) = (0, 0, None);
    loop {
        let mut params = json!({ "_meta": meta(&json!({})) });
        if let Some(cursor) = &cursor {
            params["cursor"] = json!(cursor);
        }
        let request =
            post(addr, "1", "tools/list", None, &params, "application/json, text/event-stream", &[]);
        let request = String::from_utf8(request)?.replacen("POST /mcp ", &format!("POST {path} "), 1);
        let reply = connection.exchange(request.as_bytes())?;
        ensure!(reply.status == 200, "not a list: HTTP {}: {}", reply.status, reply.text());
        bytes += reply.body.len();
        let page: Value = serde_json::from_slice(&reply.body)?;
        tools += page["result"]["tools"].as_array().context("no tools")?.len();
        match page["result"]["nextCursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return Ok((tools, bytes)),
        }
    }
}

/// `list_1000_ms`, `list_1000_kb`, and of a view of twenty `list_20_ms`, `list_20_kb`: half of the lists came within, and
/// their bytes.
///
/// # Errors
/// The server does not start, or does not list what it has.
pub fn all(figures: &mut Figures, extent: Extent) -> Result<()> {
    let (_project, gateway) = project()?;
    // The built-in tool is in each.
    for (path, name, shown) in [("/mcp", METHODS, METHODS + 1), (VIEW, SHOWN, SHOWN + 1)] {
        let mut connection = Connection::open(gateway.addr, TIMEOUT)?;
        let (tools, bytes) = list(&mut connection, gateway.addr, path)?;
        ensure!(tools == shown, "{tools} tools are listed at {path}, not {shown}");
        let (mut took, began) = (Vec::new(), Instant::now());
        while began.elapsed() < extent.each {
            let one = Instant::now();
            let same = list(&mut connection, gateway.addr, path)?;
            ensure!(same == (tools, bytes), "the list is not the same each time");
            took.push(one.elapsed().as_secs_f64() * 1e3);
        }
        let lists = format!("{} lists, with the client's reading of them", took.len());
        figures.add(&format!("list_{name}_ms"), median(took), &lists);
        figures.add(&format!("list_{name}_kb"), bytes as f64 / 1024.0, "");
    }
    Ok(())
}
