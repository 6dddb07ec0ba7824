//! The journal on PostgreSQL: what a node reaches over the server that it uses, and what a failure costs.
//!
//! ```text
//!   one step        N callers ──► node ──► server     beside it: bare fenced statements with as many rows; a store in one file
//!   40 in sequence  1 caller  ──► node ──► server     beside it: 41 bare fenced statements
//!   idle            a node that has nothing to do: statements of the server, CPU time of this process
//!   restart         the server is killed under load, and started: from when it takes connections to the next run that ends
//!   takeover        a node, a process of its own, is killed with its runs: until the other one owns all
//!   graceful stop   it is shut down while its runs work: until all of them work on the other one; fails if a step is begun twice
//! ```
//!
//! A server of PostgreSQL is made for it, on this machine and with its default of one sync for each commit, and shares the cores
//! with what is measured.

mod bare;
mod cases;
mod draining;
mod idle;
mod node;
mod server;

pub use cases::{Effort, measure};
pub use node::serve;
