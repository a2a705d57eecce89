//! What the end-to-end tests share: processes that end with their owner, raw sockets, the MCP wire written by hand,
//! the official clients as workers, and the torture harness.
//!
//! Nothing here uses the code under test. The gateway is the built binary, the provider the real sandbox process,
//! and what they say is read from their sockets. `cargo xtask test` builds and installs what is needed and says
//! where it is by `COUNTERFOIL_BIN` and `COUNTERFOIL_BUILD_DIR`; without them every test that needs them fails and
//! says so.

pub mod arguments;
pub mod bad_input;
pub mod cable;
pub mod clients;
pub mod clock;
pub mod cluster;
pub mod conformance;
pub mod http;
pub mod load;
pub mod naive;
pub mod native;
pub mod nats;
pub mod nginx;
pub mod prism;
pub mod process;
pub mod proxy;
pub mod random;
pub mod schema;
pub mod session;
pub mod shell;
pub mod stand;
pub mod stdio;
pub mod stream;
pub mod torture;
pub mod traps;
pub mod wire;
