//! The command line: one module per command.
//!
//! What it promises: answers on stdout (with `--json` one JSON document), everything else on stderr; `NO_COLOR` is
//! honoured; the exit code tells a program what is safe: 0 done, 1 the provider or tool refused, 2 usage or
//! configuration, 3 in doubt, 4 key conflict, 5 unavailable: the very same command again is safe.

mod api_keys;
mod arguments;
mod auth;
mod auth_connect;
mod auth_forget;
mod auth_status;
mod backup;
mod call;
mod caller;
mod completions;
mod demo;
mod doctor;
mod doctor_credentials;
mod doctor_eras;
mod doctor_keys;
mod doctor_lists;
mod doctor_providers;
mod doctor_replicas;
mod doctor_tools;
mod exec;
mod fail;
mod http;
mod import;
mod info;
mod init;
mod keys;
mod log;
mod methods;
mod naive;
mod ops;
mod ops_show;
mod out;
mod place;
mod prompt;
mod ready;
mod request;
mod sandbox;
mod serve;
mod skill;

use clap::{Parser, Subcommand};
use fail::{Done, Fail};
use log::{Format, Level};
use out::Out;
use std::process::ExitCode;

/// Every tool call that changes the world, once.
#[derive(Debug, Parser)]
#[command(name = "counterfoil", version, propagate_version = true, after_help = AFTER)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// One JSON document on stdout
    #[arg(long, global = true)]
    json: bool,
    /// What is logged, to stderr: error, warn, info, debug, trace (RUST_LOG refines it)
    #[arg(long, global = true, value_name = "LEVEL")]
    log_level: Option<Level>,
    /// How it is logged
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    log_format: Format,
}

const AFTER: &str = "Exit codes: 0 done, 1 the provider or tool refused, 2 usage or configuration, 3 in doubt (look before you repeat it), 4 key conflict, 5 unavailable (the very same command again is safe).";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway (without a configuration: sandbox mode, usable at once)
    Serve(serve::Args),
    /// Run the sandbox provider alone
    Sandbox(sandbox::Args),
    /// Write a commented configuration and folders
    Init(init::Args),
    /// Write integrations from descriptions of APIs
    #[command(subcommand)]
    Import(import::Command),
    /// Play the lost-reply story, and count
    Demo(demo::Args),
    /// Run one operation, through the ledger
    Exec(exec::Args),
    /// Call a tool of an MCP server, retrying safely
    Call(call::Args),
    /// List what can be called
    Methods(methods::Args),
    /// Tell how a method is called, and whether a retry is safe
    Info(info::Args),
    /// See operations, and decide those in doubt
    #[command(subcommand)]
    Ops(ops::Command),
    /// Copy the ledger while it is in use
    Backup(backup::Args),
    /// Make, list and revoke API keys
    #[command(subcommand)]
    ApiKeys(api_keys::Command),
    /// Connect, see and forget credentials
    #[command(subcommand)]
    Auth(auth::Command),
    /// See and turn the key ring that seals what clients carry
    #[command(subcommand)]
    Keys(keys::Command),
    /// Say what is wrong, and how to mend it
    Doctor(doctor::Args),
    /// Print a guide for agents that use this program
    Skill(skill::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
}

impl Command {
    /// A server tells what it does; a command only what goes wrong.
    fn level(&self) -> Level {
        match self {
            Command::Serve(_) | Command::Sandbox(_) => Level::Info,
            _ => Level::Warn,
        }
    }
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version are answers; a wrong command line is code 2, as everywhere here.
            let code = if e.use_stderr() { 2 } else { 0 };
            let _ = e.print();
            return ExitCode::from(code);
        }
    };
    log::start(cli.log_level.unwrap_or(cli.command.level()), cli.log_level.is_some(), cli.log_format);
    let out = Out::new(cli.json);
    // The provider alone does little for a request, and all of it behind one lock: threads would only hand it around.
    let mut threads = match cli.command {
        Command::Sandbox(_) => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = match threads.enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return end(&out, Err(Fail::unavailable(format!("this process can't be set up: {e}")))),
    };
    let done = runtime.block_on(run(cli.command, &out));
    // Threads that wait for files or names must not hold up the end.
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    end(&out, done)
}

async fn run(command: Command, out: &Out) -> Done {
    match command {
        Command::Serve(args) => serve::run(args, out).await,
        Command::Sandbox(args) => sandbox::run(args, out).await,
        Command::Init(args) => init::run(&args, out),
        Command::Import(command) => import::run(command, out),
        Command::Demo(args) => demo::run(&args, out).await,
        Command::Exec(args) => exec::run(args, out).await,
        Command::Call(args) => call::run(args, out).await,
        Command::Methods(args) => methods::run(args, out).await,
        Command::Info(args) => info::run(args, out).await,
        Command::Ops(command) => ops::run(command, out).await,
        Command::Backup(args) => backup::run(args, out).await,
        Command::ApiKeys(command) => api_keys::run(command, out).await,
        Command::Auth(command) => auth::run(command, out).await,
        Command::Keys(command) => keys::run(command, out).await,
        Command::Doctor(args) => doctor::run(args, out).await,
        Command::Skill(args) => skill::run(&args, out),
        Command::Completions(args) => completions::run(&args),
    }
}

fn end(out: &Out, done: Done) -> ExitCode {
    match done {
        Ok(code) => ExitCode::from(code),
        Err(fail) => {
            out.failed(&fail);
            ExitCode::from(fail.code)
        }
    }
}
