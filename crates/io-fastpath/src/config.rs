//! Configuration of the fast path.

use crate::control::IdentRange;
use std::path::PathBuf;
use std::time::Duration;

/// Configuration of the fast path of one device.
#[derive(Clone, Debug)]
pub struct FastPathConfig {
    /// Name of the TUN device.
    pub device: String,
    /// Folder on a bpffs ([`mount_bpffs`](crate::mount_bpffs)) where maps and link are pinned, so that they
    /// outlive the process. It is created. Without one, nothing is taken over.
    pub pins: Option<PathBuf>,
    /// Capacity in sessions. Each takes 384 bytes of kernel memory.
    pub capacity: u32,
    /// Mapped hosts and single addresses of stateless instances that are found at once; further ones take the
    /// kernel longer. Each takes 64 bytes of kernel memory when the maps are made, and two elements of 96
    /// bytes when it is set. Maps that are taken over keep their size.
    pub hosts: u32,
    /// The only way to attach the program; `None`: tcx, or clsact where the kernel has no tcx.
    pub hook: Option<Hook>,
    /// Network interfaces at which packets are translated before the network stack (XDP), too.
    pub xdp: Vec<String>,
    /// Identifications that the kernel uses.
    pub idents: IdentRange,
    /// Longest time that a session stays pending.
    pub pending_max: Duration,
    /// Unpredictable random numbers: the first identifications, and the secret of the table's hash.
    pub seed: u64,
}

/// Way to attach the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A link of tcx (Linux 6.6). It ends with its last file descriptor or pin.
    Tcx,
    /// A filter of the clsact qdisc. It stays until it is deleted.
    Clsact,
}
