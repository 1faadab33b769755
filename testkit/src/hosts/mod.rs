//! Hosts: network namespaces in a sandbox, and the programs that run in them.

mod namespace;
pub mod pair;
mod process;
mod sandbox;
pub mod topology;

pub use namespace::Namespace;
pub use pair::PairNetwork;
pub use process::{Process, output, processes_about, run, run_for, wait_until};
pub use sandbox::{enter, refusal, refusal_but_to_root, run_test};
pub use topology::Topology;
