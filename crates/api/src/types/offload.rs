//! P4 switches that translate established sessions.

use super::fastpath::FastPathState;
use super::running::Counter;
use crate::schema::{structs, words};

words! {
    /// Phase of a P4 switch.
    pub enum SwitchPhase {
        /// No connection: `why` has the reason. The switch may translate with the entries that it has.
        Down = "down",
        /// Connected, and another controller is the primary one: `why` has its election ID. The switch may
        /// translate with the entries that it has.
        Standby = "standby",
        /// Its entries are being read.
        Reading = "reading",
        /// In use.
        Ready = "ready",
        /// Declared gone by an operator: it has no entries, and does not forward.
        Gone = "gone",
    }
}

// `words!` defines the enum, without this trait.
#[allow(clippy::derivable_impls)]
impl Default for SwitchPhase {
    fn default() -> Self {
        SwitchPhase::Down
    }
}

structs! {
    /// A P4 switch.
    #[derive(Default)]
    pub struct OffloadSwitch {
        /// Name in the configuration.
        pub name: String,
        /// Address of its P4Runtime server.
        pub address: String,
        /// Number of the device there.
        pub device: u64,
        /// Phase.
        pub phase: SwitchPhase,
        /// Seconds since the phase began.
        pub phase_s: u64,
        /// Reason of the last disconnection.
        pub why: Option<String>,
        /// Sessions in the switch.
        pub sessions: u64,
        /// Sessions that are being inserted or removed.
        pub changing: u64,
        /// Sessions that are moving into the switch: their packets still go through Gatun while earlier ones
        /// are on their way through it, for about a second at most, so that none is overtaken.
        pub moving: u64,
        /// Sessions that the switch may or may not have, because it is not connected. Their ports stay
        /// reserved.
        pub unknown: u64,
        /// Sessions inserted.
        pub inserted: u64,
        /// Sessions removed.
        pub deleted: u64,
        /// Sessions that the switch has refused.
        pub refused: u64,
        /// Entries of nobody that were found and removed.
        pub strays: u64,
        /// Connections since the start.
        pub connections: u64,
        /// Packets that the switch gave to Gatun by reason, since it has its program. Only reasons with
        /// packets.
        pub to_controller: Vec<Counter>,
        /// Packets for Gatun that the switch dropped by reason, because there were more than its limit for
        /// the reason.
        pub over_limit: Vec<Counter>,
        /// Packets that the switch dropped by reason: to other MACs or of unknown VLANs (`foreign`), or to a
        /// port that does not exist (`no_port`). Gatun's echoes, which the switch has read, are among them
        /// (`echo`).
        pub dropped: Vec<Counter>,
        /// Packets of `[[siit]]` instances that the switch has translated, since the start of the daemon.
        pub stateless_packets: u64,
        /// Next hops whose MAC the switch knows.
        pub next_hops: u64,
        /// Routes and next hops that its tables have no room for. Gatun sends their packets.
        pub left_out: u64,
    }

    /// Translation of established sessions in P4 switches.
    #[derive(Default)]
    pub struct Offload {
        /// State: `on` if at least one switch is in use.
        pub state: FastPathState,
        /// Reason why no switch is in use.
        pub why: Option<String>,
        /// Name in the configuration; empty without `[[offload]]`.
        pub name: String,
        /// Sessions in the switches.
        pub sessions: u64,
        /// Sessions that the switches have room for.
        pub sessions_max: u64,
        /// Sessions of the previous process that were taken over.
        pub adopted: u64,
        /// Sessions given to the switches.
        pub installed: u64,
        /// Sessions given to the switches per second, over the last seconds.
        pub installed_per_second: u64,
        /// Sessions removed from the switches.
        pub removed: u64,
        /// Sessions that wait for the confirmation of their insertion or removal.
        pub waiting: u64,
        /// Sessions not given to the switches because their tables were full.
        pub refused_full: u64,
        /// Sessions not given to the switches because none was in use.
        pub refused_unready: u64,
        /// Sessions that the switches have refused for another reason.
        pub refused_other: u64,
        /// Last such reason.
        pub error: Option<String>,
        /// Packets translated in the switches, as they were credited to sessions and stateless instances.
        pub packets: u64,
        /// Packets translated in the switches whose session had ended before they were counted.
        pub packets_uncredited: u64,
        /// Mappings of `[[siit]]` instances in the switches.
        pub mappings: u64,
        /// Mappings that stay with Gatun: they overlap with addresses that it keeps for itself, or the
        /// switches have no room for all of them.
        pub mappings_left: u64,
        /// Reason why a switch has no `[[siit]]` instances.
        pub mappings_error: Option<String>,
        /// Records of the engines that wait to be read.
        pub waiting_records: u64,
        /// Records of the engines that were lost because too many waited; the state was read again.
        pub lost_records: u64,
        /// Microseconds from a session's offer to its entry in the switches, 99th percentile.
        pub install_p99_us: u64,
        /// The switches.
        pub switches: Vec<OffloadSwitch>,
    }
}
