//! Errors of DPDK devices, with corrections.

use gatun_dpdk_shim::LoadError;
use gatun_io::ProcessorError;
use gatun_wire::text::counted;
use std::fmt;

/// Reason why DPDK devices cannot be used.
#[derive(Debug)]
pub enum DpdkError {
    /// DPDK's libraries cannot be loaded.
    Load(LoadError),
    /// DPDK's environment was started in this process before.
    SecondStart,
    /// DPDK's environment did not start; its messages are on standard error.
    Environment(String),
    /// Too few huge pages are free.
    HugePages {
        /// Needed MB.
        needed_mb: u64,
        /// Free MB.
        free_mb: u64,
    },
    /// The processors cannot be divided among the workers.
    Processors(ProcessorError),
    /// Another process serves the memif socket.
    SocketBusy(String),
    /// The device does not exist.
    Missing {
        /// Device as configured.
        device: String,
        /// Error text of DPDK.
        error: String,
    },
    /// A device has fewer queues than there are workers.
    Queues {
        /// Name of the device.
        device: String,
        /// Available queues.
        has: u16,
        /// Needed queues.
        wanted: u16,
    },
    /// The MTU is too large.
    Mtu {
        /// Name of the device.
        device: String,
        /// The MTU, bytes.
        mtu: u16,
        /// Largest supported MTU, bytes.
        max: u16,
    },
    /// Another step failed.
    Step {
        /// Name of the device.
        device: String,
        /// The step that failed.
        step: &'static str,
        /// Error text of DPDK.
        error: String,
    },
    /// The process has reached its limit of threads or files.
    System(std::io::Error),
}

impl fmt::Display for DpdkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DpdkError::Load(LoadError::Instructions(missing)) => write!(
                f,
                "this processor lacks {missing}, which DPDK's libraries need: write backend = \"xdp\" or \"tun\", or use a newer processor (for a virtual machine, a newer CPU model)"
            ),
            DpdkError::Load(LoadError::Libraries(error)) => write!(
                f,
                "cannot load DPDK's libraries ({error}): install them (Debian: libdpdk-dev contains those that this build needs), or write backend = \"xdp\" or \"tun\""
            ),
            DpdkError::SecondStart => f.write_str("DPDK can be started only once per process"),
            DpdkError::Environment(error) => write!(
                f,
                "DPDK's environment did not start ({error}): see the EAL lines above; `eal` in [dpdk] sets its arguments"
            ),
            DpdkError::HugePages { needed_mb, free_mb } => write!(
                f,
                "packet buffers need {needed_mb} MB of huge pages, but only {free_mb} MB are free: echo {} > /proc/sys/vm/nr_hugepages, or write huge_pages = \"auto\" or \"never\" in [dpdk]",
                needed_mb.div_ceil(2)
            ),
            DpdkError::Processors(error) => error.fmt(f),
            DpdkError::SocketBusy(path) => write!(
                f,
                "another process serves the memif socket {path}: stop it first, or write another socket, or role=client"
            ),
            DpdkError::Missing { device, error } => {
                let hint = match device.starts_with("net_") {
                    true => {
                        "write a driver's name with a number and its arguments, for example \"net_memif0,role=client,socket=/run/memif.sock\""
                    }
                    false => {
                        "dpdk-devbind.py --status lists devices; a device with a kernel driver has to be bound to vfio-pci first"
                    }
                };
                write!(f, "DPDK has no device '{device}' ({error}): {hint}")
            }
            DpdkError::Queues { device, has, wanted } => write!(
                f,
                "device {device} has {}, but {wanted} are needed: write queues = {has} (some drivers take the number of queues as an argument)",
                counted((*has).into(), "queue")
            ),
            DpdkError::Mtu { device, mtu, max } => {
                write!(
                    f,
                    "device {device}: an MTU of {mtu} bytes is not supported: write mtu = {max} or less"
                )
            }
            DpdkError::Step { device, step, error } => write!(f, "device {device}: {step} failed: {error}"),
            DpdkError::System(error) => write!(f, "cannot create a thread or file for DPDK: {error}"),
        }
    }
}

/// There is no `source`, because the text already contains the system's error.
impl std::error::Error for DpdkError {}

impl From<LoadError> for DpdkError {
    fn from(error: LoadError) -> DpdkError {
        DpdkError::Load(error)
    }
}

impl From<ProcessorError> for DpdkError {
    fn from(error: ProcessorError) -> DpdkError {
        DpdkError::Processors(error)
    }
}
