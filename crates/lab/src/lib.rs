//! Network namespaces and processes for the demo and the tests.
//!
//! Everything happens inside one sandbox: a process that `unshare` started with network, mount and process
//! namespaces of its own, and with a user namespace where the caller is not root. When its first process
//! ends, by whatever cause, the kernel ends all others and takes all namespaces, links and mounts away:
//! nothing can be left behind.
//!
//! ```no_run
//! if let Some(status) = gatun_lab::enter("demo", &["demo".into()])? {
//!     // the outer process: the inner one has ended
//!     std::process::exit(status.code().unwrap_or(1));
//! }
//! let client = gatun_lab::Namespace::new("client")?;
//! client.ip("link set lo up")?;
//! # Ok::<(), gatun_lab::Error>(())
//! ```
#![forbid(unsafe_code)]

mod iperf;
mod namespace;
mod process;
mod requirement;
mod sandbox;
pub mod tayga;
pub mod testpmd;
pub mod topology;

pub use iperf::Iperf;
pub use namespace::Namespace;
pub use process::{Process, processes_about, run, run_for, wait_until};
pub use requirement::{find_program, missing, skip};
pub use sandbox::{enter, refusal, refusal_but_to_root, run_test};
pub use topology::Topology;

/// What went wrong, in a sentence.
#[derive(Debug)]
pub struct Error(pub String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Whether a program is in the path.
pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}
