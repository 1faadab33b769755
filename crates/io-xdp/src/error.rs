//! Why an interface cannot be used, and what to do about it.

use std::fmt;
use std::io;

/// Why an interface cannot be used. The text says what to do.
#[derive(Debug)]
pub enum XdpError {
    /// There is none of that name.
    Missing(String),
    /// It is no Ethernet interface.
    NotEthernet(String),
    /// The MTU is more than a frame holds.
    Mtu {
        /// The interface.
        interface: String,
        /// Its MTU, bytes.
        mtu: u32,
    },
    /// It came back with a larger MTU than the frames of this run hold.
    MtuGrown {
        /// The interface.
        interface: String,
        /// Its MTU, bytes.
        mtu: u32,
    },
    /// Its driver gives packets to more queues than are served.
    Queues {
        /// The interface.
        interface: String,
        /// Queues that it has.
        has: u32,
        /// Queues that are served.
        served: u32,
    },
    /// A Gatun already runs on it.
    SecondInstance(String),
    /// It has an XDP program of somebody else.
    Busy(String),
    /// Somebody else has an AF_XDP socket on a queue.
    QueueBusy(String, u32),
    /// The driver cannot run a program itself, and was told to.
    NoNative(String, io::Error),
    /// No right to do one of the steps.
    Permission {
        /// The interface.
        interface: String,
        /// What was to be done.
        step: &'static str,
    },
    /// The process may not lock so much memory.
    Locked {
        /// The interface.
        interface: String,
        /// Bytes of the UMEM.
        bytes: usize,
    },
    /// The kernel's verifier lets nobody without CAP_PERFMON read packets.
    Verifier {
        /// The interface.
        interface: String,
        /// The kernel's answer, and the verifier's.
        error: io::Error,
    },
    /// The kernel has no AF_XDP.
    Kernel(&'static str),
    /// A step failed in the process that keeps the capabilities; its text.
    Helper(String),
    /// A step failed otherwise.
    Step {
        /// The interface.
        interface: String,
        /// What was to be done.
        step: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
}

impl fmt::Display for XdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            XdpError::Missing(name) => {
                write!(f, "interface '{name}' does not exist here: `ip link` shows those that do")
            }
            XdpError::NotEthernet(name) => write!(
                f,
                "interface '{name}' has no Ethernet address: the xdp backend is for Ethernet; use backend = \"tun\" for others"
            ),
            XdpError::Mtu { interface, mtu } => write!(
                f,
                "interface '{interface}' has an MTU of {mtu} bytes, and a frame of the xdp backend holds {}: ip link set {interface} mtu {}",
                crate::MTU_MAX,
                crate::MTU_MAX
            ),
            XdpError::MtuGrown { interface, mtu } => write!(
                f,
                "interface '{interface}' has an MTU of {mtu} bytes now, and the packet buffers were made for {}: restart gatun, or ip link set {interface} mtu {}",
                crate::MTU_OF_SMALL_FRAMES_MAX,
                crate::MTU_OF_SMALL_FRAMES_MAX
            ),
            XdpError::Queues { interface, has, served } => write!(
                f,
                "interface '{interface}' receives on {has} queues and gatun serves {served}: write queues = {has}, or set them: ethtool -L {interface} combined {served} (a veth: rx {served})"
            ),
            XdpError::Helper(why) => f.write_str(why),
            XdpError::SecondInstance(name) => {
                write!(f, "another gatun already runs on interface '{name}': stop it first")
            }
            XdpError::Busy(name) => write!(
                f,
                "interface '{name}' has an XDP program of somebody else (`ip link show {name}`): take it off first (ip link set {name} xdp off, or end the process that holds it)"
            ),
            XdpError::QueueBusy(name, queue) => {
                write!(
                    f,
                    "queue {queue} of interface '{name}' is served by another AF_XDP socket: end its process"
                )
            }
            XdpError::NoNative(name, e) => write!(
                f,
                "the driver of interface '{name}' does not run the XDP program itself ({e}): write mode = \"auto\" or \"skb\""
            ),
            XdpError::Permission { interface, step } => write!(
                f,
                "no right to use interface '{interface}' ({step}): run as root, or with CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF"
            ),
            XdpError::Locked { interface, bytes } => write!(
                f,
                "interface '{interface}': {} KB of packet buffers may not be locked: give the process CAP_IPC_LOCK, or a higher limit (LimitMEMLOCK=infinity in a systemd unit, ulimit -l unlimited)",
                bytes >> 10
            ),
            XdpError::Verifier { interface, error } => write!(
                f,
                "interface '{interface}': this kernel refuses the XDP program ({error}): take Linux 6.6 or later, or 6.1 of Debian 12 (docs/kernels.md), or write backend = \"tun\""
            ),
            XdpError::Kernel(what) => write!(f, "this kernel has no {what}; Linux 6.1 or later has it"),
            XdpError::Step { interface, step, error } => {
                write!(f, "interface '{interface}': {step} failed: {error}")
            }
        }
    }
}

/// No `source`: the text has the system's error in it already.
impl std::error::Error for XdpError {}
