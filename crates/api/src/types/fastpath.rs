//! Kernel fast path.

use super::running::Counter;
use crate::schema::{structs, words};

words! {
    /// State of the kernel fast path, or of P4 switches.
    pub enum FastPathState {
        /// Not configured, or switched off: Gatun translates all packets itself.
        Off = "off",
        /// The kernel, or a switch, translates established sessions.
        On = "on",
        /// Configured, but not in use: `why` has the reason, and Gatun translates all packets that it gets.
        Unavailable = "unavailable",
    }
}

// `words!` defines the enum, without this trait.
#[allow(clippy::derivable_impls)]
impl Default for FastPathState {
    fn default() -> Self {
        FastPathState::Off
    }
}

structs! {
    /// Packets of an instance at the kernel fast path.
    pub struct FastPathInstance {
        /// Name of the instance; empty for packets of no session in the kernel.
        pub name: String,
        /// Packets translated in the kernel.
        pub translated: u64,
        /// Packets dropped in the kernel, because it refused to write to them.
        pub dropped: u64,
        /// Part of `translated`: packets that may have overtaken earlier ones of their session, because the
        /// device's queue was not empty for too long, or dropped packets.
        pub moved_late: u64,
        /// Packets passed to the device, by reason.
        pub passed: Vec<Counter>,
        /// Part of `translated`: packets translated at network interfaces (XDP).
        pub xdp_translated: u64,
        /// Packets at network interfaces that were passed to the network stack, by reason. Those that are
        /// routed to the device are counted there, too.
        pub xdp_passed: Vec<Counter>,
    }

    /// Network interface at which the kernel is to translate before its network stack (XDP).
    pub struct FastPathInterface {
        /// Name.
        pub name: String,
        /// True if the program is attached.
        pub attached: bool,
        /// Reason why it is not; or, if it is, why no frames can be sent there by XDP. Packets to the
        /// interface take the way through the device then.
        pub why: Option<String>,
    }

    /// The kernel fast path: a program in the kernel that translates packets of established sessions.
    #[derive(Default)]
    pub struct FastPath {
        /// State.
        pub state: FastPathState,
        /// Reason why it is not available.
        pub why: Option<String>,
        /// Device at whose egress the program is.
        pub device: String,
        /// Way in which the program is attached: tcx or clsact; empty if it is not attached.
        pub hook: String,
        /// Network interfaces of `xdp` in the configuration.
        pub xdp: Vec<FastPathInterface>,
        /// Number of times that Gatun has attached a program again after somebody had detached it, or an
        /// interface had come back.
        pub attached_again: u64,
        /// Milliseconds for which the kernel translates without a renewal by the daemon.
        pub lease_ms: u64,
        /// Sessions in the kernel.
        pub sessions: u64,
        /// Sessions that the kernel has room for.
        pub sessions_max: u64,
        /// Sessions of the previous process that were taken over at the start.
        pub adopted: u64,
        /// Sessions given to the kernel.
        pub installed: u64,
        /// Sessions given to the kernel per second, over the last seconds.
        pub installed_per_second: u64,
        /// Sessions removed from the kernel.
        pub removed: u64,
        /// Sessions not given to the kernel because its table was full.
        pub refused_full: u64,
        /// Sessions not given to the kernel because it refused.
        pub refused_other: u64,
        /// Last refusal of the kernel.
        pub error: Option<String>,
        /// Records of the engines that wait to be read.
        pub waiting_records: u64,
        /// Records of the engines that were lost because too many waited; the state was read again.
        pub lost_records: u64,
        /// Microseconds from a session's offer to its entry in the kernel, 99th percentile.
        pub install_p99_us: u64,
        /// Packets by instance, since the kernel's tables were created.
        pub instances: Vec<FastPathInstance>,
    }
}
