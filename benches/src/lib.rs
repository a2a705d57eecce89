//! What a call costs, beside what others cost: the load, the servers, and the figures with their bars.
//!
//! The load is one thread that waits for many sockets at once, so that on a small machine most of the processor is the
//! server's. Figures that compare two servers are taken in pairs, one right after the other, so that what else the
//! machine does meets both.

pub mod exec;
pub mod figures;
pub mod lists;
pub mod load;
pub mod peers;
pub mod process;
pub mod recovery;
pub mod replicas;
pub mod runs;
pub mod state;
pub mod stored;
pub mod streams;
