//! `completions`: a completion script on stdout.

use super::Cli;
use super::fail::Done;
use clap::CommandFactory as _;
use std::io::Write as _;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

pub(super) fn run(args: &Args) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "counterfoil", &mut script);
    let _ = std::io::stdout().write_all(&script);
    Ok(0)
}
