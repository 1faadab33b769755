//! Why a device cannot be used, and what to do about it.

use gatun_io::Undividable;
use std::fmt;

/// What keeps devices of DPDK from being used.
#[derive(Debug)]
pub enum DpdkError {
    /// The processor lacks instructions that DPDK's libraries use.
    Instructions(&'static str),
    /// DPDK's libraries cannot be loaded.
    Libraries(String),
    /// DPDK's environment was started in this process before.
    SecondStart,
    /// DPDK's environment did not start; what it said is on the standard error.
    Environment(String),
    /// Too few huge pages are free.
    HugePages {
        /// How many MB are needed.
        needed_mb: u64,
        /// How many MB are free.
        free_mb: u64,
    },
    /// Not a processor for each worker.
    Processors(Undividable),
    /// Another process serves this memif socket.
    SocketBusy(String),
    /// There is no such device.
    Missing {
        /// As it is configured.
        device: String,
        /// What DPDK says.
        error: String,
    },
    /// A device has fewer queues than there are workers.
    Queues {
        /// Its name.
        device: String,
        /// How many it has.
        has: u16,
        /// How many are wanted.
        wanted: u16,
    },
    /// A larger MTU than can be served.
    Mtu {
        /// The device's name.
        device: String,
        /// The MTU, bytes.
        mtu: u16,
        /// The largest, bytes.
        max: u16,
    },
    /// Something else failed.
    Step {
        /// The device's name.
        device: String,
        /// What was tried.
        step: &'static str,
        /// What DPDK says.
        error: String,
    },
    /// The process may have no more threads or files.
    System(std::io::Error),
}

impl fmt::Display for DpdkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DpdkError::Instructions(missing) => write!(
                f,
                "this processor lacks {missing}, which DPDK's libraries use: write backend = \"xdp\" or \"tun\", or take a newer processor (for a virtual machine, a newer CPU model)"
            ),
            DpdkError::Libraries(error) => write!(
                f,
                "DPDK's libraries cannot be loaded ({error}): install them (Debian: libdpdk-dev brings those that this build wants), or write backend = \"xdp\" or \"tun\""
            ),
            DpdkError::SecondStart => f.write_str("DPDK can be started once in a process"),
            DpdkError::Environment(error) => write!(
                f,
                "DPDK's environment did not start ({error}): the lines above that begin with EAL say why; `eal` in [dpdk] is passed on to it"
            ),
            DpdkError::HugePages { needed_mb, free_mb } => write!(
                f,
                "packet buffers need {needed_mb} MB of huge pages, and {free_mb} MB are free: echo {} > /proc/sys/vm/nr_hugepages, or write huge_pages = \"auto\" or \"never\" in [dpdk]",
                needed_mb.div_ceil(2)
            ),
            DpdkError::Processors(error) => error.fmt(f),
            DpdkError::SocketBusy(path) => write!(
                f,
                "somebody else serves the memif socket {path}: stop it first, or write another socket, or role=client"
            ),
            DpdkError::Missing { device, error } => {
                let hint = match device.starts_with("net_") {
                    true => {
                        "write a driver's name with a number and its arguments, for example \"net_memif0,role=client,socket=/run/memif.sock\""
                    }
                    false => {
                        "dpdk-devbind.py --status lists devices; one of a driver of the kernel has to be bound to vfio-pci first"
                    }
                };
                write!(f, "DPDK has no device '{device}' ({error}): {hint}")
            }
            DpdkError::Queues { device, has, wanted } => write!(
                f,
                "device {device} has {has} queues, and {wanted} are wanted: write queues = {has} (some drivers take a number of queues as an argument)"
            ),
            DpdkError::Mtu { device, mtu, max } => {
                write!(
                    f,
                    "device {device}: an MTU of {mtu} bytes; at most {max} can be served: write mtu = {max}"
                )
            }
            DpdkError::Step { device, step, error } => write!(f, "device {device}: {step} failed: {error}"),
            DpdkError::System(error) => write!(f, "no thread or file for DPDK: {error}"),
        }
    }
}

/// No `source`: the text has the system's error in it already.
impl std::error::Error for DpdkError {}

impl From<Undividable> for DpdkError {
    fn from(error: Undividable) -> DpdkError {
        DpdkError::Processors(error)
    }
}
