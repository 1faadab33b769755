//! Hosts: network namespaces in a sandbox, and the programs that run in them.

mod initramfs;
mod namespace;
mod own_files;
pub mod pair;
mod process;
mod sandbox;
pub mod topology;
mod virtual_machine;

pub use initramfs::Initramfs;
pub use namespace::Namespace;
pub use own_files::{OWN_FILES, make_own_files, own_files_view};
pub use pair::PairNetwork;
pub use process::{Process, output, processes_about, run, run_for, wait_until};
pub use sandbox::{enter, refusal, refusal_but_to_root, run_test};
pub use topology::Topology;
pub use virtual_machine::{MachineEnd, VirtualMachine};
