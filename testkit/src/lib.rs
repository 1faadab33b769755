//! Hosts, peers, packets and traffic for tests, scenarios and the demo.
//!
//! | module | contents |
//! |---|---|
//! | [`hosts`] | a sandbox with network namespaces, and processes in them |
//! | [`peers`] | programs that take part: an echo server, etcd, iperf3, tayga, testpmd; a proxy that delays |
//! | [`packet`] | single packets, built and checked by etherparse |
//! | [`traffic`] | packets of many subscribers, a generator of them, and the judge of what arrives |
//! | [`plot`] | charts as SVG |
//! | [`unreadable`] | check of the texts that Gatun prints |
//! | [`Manifest`] | hashes of compiled files that are committed |
//! | [`skip`], [`missing`] | tests that lack a program or a right |
//!
//! `testkit/scenarios` measures Gatun with these modules. `testkit/model` is the reference model that the
//! engine is compared with.
//!
//! Hosts live inside one sandbox: a process that `unshare` started with network, mount and process
//! namespaces of its own, and with a user namespace if the caller is not root. When its first process ends
//! for any reason, the kernel ends all others and removes all namespaces, links and mounts: nothing is left
//! behind.
//!
//! ```no_run
//! if let Some(status) = gatun_testkit::enter("demo", &["demo".into()])? {
//!     // the outer process: the inner one has ended
//!     std::process::exit(status.code().unwrap_or(1));
//! }
//! let client = gatun_testkit::Namespace::new("client")?;
//! client.ip("link set lo up")?;
//! # Ok::<(), gatun_testkit::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod hosts;
mod manifest;
pub mod packet;
pub mod peers;
pub mod plot;
mod readable;
mod requirement;
pub mod traffic;

pub use hosts::{
    Initramfs, MachineEnd, Namespace, OWN_FILES, PairNetwork, Process, Topology, VirtualMachine, enter,
    make_own_files, output, own_files_view, pair, processes_about, refusal, refusal_but_to_root, run,
    run_for, run_test, topology, wait_until,
};
pub use manifest::Manifest;
pub use peers::{ECHO_PORT, EtcdMembers, EtcdPlace, EtcdTls, Iperf, Proxy, ProxyMode, echo, tayga, testpmd};
pub use readable::unreadable;
pub use requirement::{find_program, linux, missing, skip};

/// Reason of a failure, as a sentence.
#[derive(Debug)]
pub struct Error(pub String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Returns true if a program is in PATH.
pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}
