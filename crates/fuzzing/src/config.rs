//! `counterfoil.toml`.

use counterfoil::config::{At, Auth, Config};
use std::path::Path;

/// Where the file is said to be: a place without files, so that nothing is read by accident.
const FILE: &str = "/nonexistent/counterfoil.toml";

/// A configuration is either taken, and then doesn't open the gateway to the world without authentication, or refused
/// with a place inside the file.
///
/// # Panics
/// A promise is broken.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Secrets can be named by file; other files than those are nobody's business here.
    if text.contains("${file:/") || text.contains("..") {
        return;
    }
    let nothing: [(&str, &str); 0] = [];
    match Config::parse(Path::new(FILE), text, nothing) {
        Ok(config) => {
            let server = &config.server;
            assert!(
                server.listen.ip().is_loopback() || config.auth != Auth::None,
                "it listens on {} without authentication",
                server.listen
            );
            assert!(server.path.starts_with('/'));
            assert!(server.max_body > 0);
            assert!(config.ledger.lease.0 > 0 && config.ledger.retention.0 > 0);
            if let Some(sandbox) = config.sandbox {
                assert!(sandbox.ip().is_loopback(), "the sandbox provider is reachable from elsewhere");
            }
        }
        Err(error) => {
            assert!(!error.problems.is_empty(), "refused without a reason");
            let lines: Vec<&str> = text.split('\n').collect();
            for problem in &error.problems {
                assert!(!problem.message.trim().is_empty(), "a problem without words");
                assert_eq!(problem.file, FILE);
                match &problem.at {
                    At::Line(line, column) => {
                        assert!((1..=lines.len()).contains(line), "line {line} of {}", lines.len());
                        let length = lines[line - 1].len();
                        assert!((1..=length + 1).contains(column), "column {column} of {length}");
                    }
                    At::Variable(name) => panic!("there is no variable {name}"),
                    At::Nowhere => {}
                }
            }
        }
    }
}
