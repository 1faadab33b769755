//! Errors of AF_XDP interfaces, with corrections.

use gatun_wire::text::counted;
use std::fmt;
use std::io;

/// Reason why an interface cannot be used. The text says what to do.
#[derive(Debug)]
pub enum XdpError {
    /// The interface does not exist.
    Missing(String),
    /// The interface is not Ethernet.
    NotEthernet(String),
    /// The MTU is larger than a frame.
    Mtu {
        /// The interface.
        interface: String,
        /// Its MTU, bytes.
        mtu: u32,
    },
    /// The interface came back with a larger MTU than this run's frames hold.
    MtuGrown {
        /// The interface.
        interface: String,
        /// Its MTU, bytes.
        mtu: u32,
    },
    /// The driver receives on more queues than are served.
    Queues {
        /// The interface.
        interface: String,
        /// Queues that it has.
        has: u32,
        /// Queues that are served.
        served: u32,
    },
    /// Another Gatun runs on the interface.
    SecondInstance(String),
    /// Another XDP program is attached.
    Busy(String),
    /// Another AF_XDP socket is bound to the queue.
    QueueBusy(String, u32),
    /// The driver cannot run XDP programs natively, but mode = native was configured.
    NoNative(String, io::Error),
    /// Missing privilege for a step.
    Permission {
        /// The interface.
        interface: String,
        /// The step that failed.
        step: &'static str,
    },
    /// The locked memory limit is too low.
    Locked {
        /// The interface.
        interface: String,
        /// Bytes of the UMEM.
        bytes: usize,
    },
    /// The kernel's verifier requires CAP_PERFMON to read packets.
    Verifier {
        /// The interface.
        interface: String,
        /// Error of the kernel, with the verifier's log.
        error: io::Error,
    },
    /// The kernel does not support AF_XDP.
    Kernel(&'static str),
    /// A step failed in the process that keeps the capabilities; its text.
    Helper(String),
    /// A step failed otherwise.
    Step {
        /// The interface.
        interface: String,
        /// The step that failed.
        step: &'static str,
        /// Error of the kernel.
        error: io::Error,
    },
}

impl fmt::Display for XdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            XdpError::Missing(name) => {
                write!(
                    f,
                    "interface '{name}' does not exist: `ip link` lists the interfaces of this namespace"
                )
            }
            XdpError::NotEthernet(name) => write!(
                f,
                "interface '{name}' is not Ethernet: the xdp backend needs Ethernet; use backend = \"tun\""
            ),
            XdpError::Mtu { interface, mtu } => write!(
                f,
                "interface '{interface}' has an MTU of {mtu} bytes, but the xdp backend supports at most {}: ip link set {interface} mtu {}",
                crate::MTU_MAX,
                crate::MTU_MAX
            ),
            XdpError::MtuGrown { interface, mtu } => write!(
                f,
                "interface '{interface}' now has an MTU of {mtu} bytes, but the packet buffers were allocated for {}: restart gatun, or ip link set {interface} mtu {}",
                crate::MTU_OF_SMALL_FRAMES_MAX,
                crate::MTU_OF_SMALL_FRAMES_MAX
            ),
            XdpError::Queues { interface, has, served } => write!(
                f,
                "interface '{interface}' receives on {}, but gatun serves {served}: write queues = {has}, or run ethtool -L {interface} combined {served} (for a veth: rx {served})",
                counted((*has).into(), "queue")
            ),
            XdpError::Helper(why) => f.write_str(why),
            XdpError::SecondInstance(name) => {
                write!(f, "another gatun already runs on interface '{name}': stop it first")
            }
            XdpError::Busy(name) => write!(
                f,
                "another XDP program is attached to interface '{name}' (`ip link show {name}`): detach it first (ip link set {name} xdp off, or stop the process that holds it)"
            ),
            XdpError::QueueBusy(name, queue) => {
                write!(
                    f,
                    "another AF_XDP socket is bound to queue {queue} of interface '{name}': stop its process"
                )
            }
            XdpError::NoNative(name, e) => write!(
                f,
                "the driver of interface '{name}' does not support native XDP ({e}): write mode = \"auto\" or \"skb\""
            ),
            XdpError::Permission { interface, step } => write!(
                f,
                "no permission to use interface '{interface}' ({step}): run as root, or with CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF"
            ),
            XdpError::Locked { interface, bytes } => write!(
                f,
                "interface '{interface}': cannot lock {} KB of memory for packet buffers: give the process CAP_IPC_LOCK, or raise the limit (LimitMEMLOCK=infinity in a systemd unit, ulimit -l unlimited)",
                bytes >> 10
            ),
            XdpError::Verifier { interface, error } => write!(
                f,
                "interface '{interface}': this kernel refuses the XDP program ({error}): use Linux 6.6 or later, or 6.1 of Debian 12 (docs/reference/kernels.md), or write backend = \"tun\""
            ),
            XdpError::Kernel(what) => {
                write!(f, "this kernel does not support {what}: use Linux 6.1 or later")
            }
            XdpError::Step { interface, step, error } => {
                write!(f, "interface '{interface}': {step} failed: {error}")
            }
        }
    }
}

/// There is no `source`, because the text already contains the system's error.
impl std::error::Error for XdpError {}
