//! The command line.

fn main() -> std::process::ExitCode {
    counterfoil::cli::main()
}
