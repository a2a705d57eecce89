//! A configuration for servers that need no file.

use crate::config::Config;
use std::path::Path;

impl Config {
    /// A server of native tools, without a file: the defaults, no sandbox provider, no integrations, the ledger in
    /// `data`. `name` is the name of the server and of a new ledger. Change what differs in the fields.
    #[must_use]
    pub fn native(name: &str, data: &Path) -> Config {
        let mut config = Config::sandbox(data);
        name.clone_into(&mut config.server.name);
        config.sandbox = None;
        config
    }
}
