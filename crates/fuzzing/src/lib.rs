//! What must hold of every input that a stranger can write.
//!
//! Each target is a function of bytes that panics where a promise is broken; none is satisfied with not panicking
//! itself. Most compare the product with a second, slower reading of the same input that shares no code with it
//! ([`tree`], and the naive readers beside the targets); the rest check that what was written can be read back.
//!
//! The same functions run in three places: over the kept inputs (`fuzz/seeds`) and over mutations of them in the normal
//! test run, and under libFuzzer by `cargo xtask fuzz`. An input is bytes; where a target needs several, a line `%%`
//! divides them.
// A broken promise is shown by a panic: that is what a fuzzer looks for.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod answer;
mod canonical;
mod config;
mod envelope;
mod form;
mod front;
mod headers;
pub mod input;
mod keys;
mod manifest;
mod schema;
mod seal_open;
mod streams;
mod template;
pub mod tree;

pub use answer::input_answer;
pub use canonical::canonical;
pub use config::config;
pub use envelope::envelope;
pub use form::form;
pub use front::front;
pub use headers::headers;
pub use keys::keys;
pub use manifest::manifest;
pub use schema::schema;
pub use seal_open::seal_open;
pub use streams::{lines, sse};
pub use template::template;

/// A target: its name, which is that of its folder of inputs, and the function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("canonical", canonical),
    ("config", config),
    ("envelope", envelope),
    ("form", form),
    ("front", front),
    ("headers", headers),
    ("input_answer", input_answer),
    ("keys", keys),
    ("lines", lines),
    ("manifest", manifest),
    ("schema", schema),
    ("seal_open", seal_open),
    ("sse", sse),
    ("template", template),
];
