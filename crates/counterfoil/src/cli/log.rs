//! Logs go to stderr: text for people, JSON for machines.

use clap::ValueEnum;
use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

/// Starts logging. `RUST_LOG` decides unless a level was given on the command line.
pub(super) fn start(level: Level, given: bool, format: Format) {
    let word = match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    };
    let plain = || EnvFilter::new(word);
    let filter = if given { plain() } else { EnvFilter::try_from_default_env().unwrap_or_else(|_| plain()) };
    let start = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _ = match format {
        Format::Json => start.json().flatten_event(true).try_init(),
        Format::Text => {
            let colour =
                std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
            start.with_ansi(colour).with_target(false).try_init()
        }
    };
}
