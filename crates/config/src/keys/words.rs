//! Words of enumerated values, and their meanings.

use gatun_nat::plan::{
    BlockProtocols, Filtering, Hairpin, IcmpErrorSource, IcmpPoolMode, Pairing, Transport,
};
use gatun_wire::rfc7915::ZeroChecksum;

pub(crate) const BACKEND: &[(&str, Backend)] =
    &[("tun", Backend::Tun), ("xdp", Backend::Xdp), ("dpdk", Backend::Dpdk), ("pcap", Backend::Pcap)];
pub(crate) const MODE: &[(&str, Mode)] = &[
    ("create", Mode::Create),
    ("attach", Mode::Attach),
    ("auto", Mode::Auto),
    ("native", Mode::Native),
    ("skb", Mode::Skb),
];
pub(crate) const HUGE_PAGES: &[(&str, HugePages)] =
    &[("auto", HugePages::Auto), ("always", HugePages::Always), ("never", HugePages::Never)];
pub(crate) const EXPORT_FORMAT: &[(&str, ExportFormat)] =
    &[("ipfix", ExportFormat::Ipfix), ("syslog", ExportFormat::Syslog), ("json", ExportFormat::Json)];
pub(crate) const KERNEL: &[(&str, bool)] = &[("auto", true), ("off", false)];
pub(crate) const ON_STOP: &[(&str, bool)] = &[("detach", false), ("keep", true)];
pub(crate) const OFFLOAD_KIND: &[(&str, ())] = &[("p4runtime", ())];
pub(crate) const OFFLOAD_ON_STOP: &[(&str, bool)] = &[("remove", false), ("keep", true)];
pub(crate) const P4_PROGRAM: &[(&str, P4Program)] =
    &[("dpdk", P4Program::Dpdk), ("bmv2", P4Program::Bmv2), ("installed", P4Program::Installed)];
pub(crate) const PEER_MEMBER: &[(&str, PeerMember)] = &[("a", PeerMember::A), ("b", PeerMember::B)];
pub(crate) const PAIR_MODE: &[(&str, PairMode)] =
    &[("active-standby", PairMode::ActiveStandby), ("active-active", PairMode::ActiveActive)];
pub(crate) const PROTOCOL: &[(&str, Transport)] =
    &[named(Transport::Tcp), named(Transport::Udp), named(Transport::Icmp)];
const fn named(transport: Transport) -> (&'static str, Transport) {
    (transport.name(), transport)
}
pub(crate) const PAIRING: &[(&str, Pairing)] = &[("soft", Pairing::Soft), ("hard", Pairing::Hard)];
pub(crate) const ALLOCATION: &[(&str, Allocation)] = &[
    ("random", Allocation::Random),
    ("blocks", Allocation::Blocks),
    ("deterministic", Allocation::Deterministic),
];
pub(crate) const BLOCK_PROTOCOLS: &[(&str, BlockProtocols)] =
    &[("shared", BlockProtocols::Shared), ("split", BlockProtocols::Split)];
pub(crate) const SUBSCRIBER: &[(&str, u8)] = &[("/128", 128), ("/64", 64), ("/56", 56), ("/48", 48)];
pub(crate) const SUBSCRIBER4: &[(&str, u8)] = &[
    ("/32", 32),
    ("/31", 31),
    ("/30", 30),
    ("/29", 29),
    ("/28", 28),
    ("/27", 27),
    ("/26", 26),
    ("/25", 25),
    ("/24", 24),
];
pub(crate) const FILTERING: &[(&str, Filtering)] = &[
    ("endpoint-independent", Filtering::EndpointIndependent),
    ("address-dependent", Filtering::AddressDependent),
    ("address-and-port-dependent", Filtering::AddressAndPortDependent),
];
pub(crate) const ERROR_SOURCE: &[(&str, IcmpErrorSource)] =
    &[("router", IcmpErrorSource::Router), ("inner-destination", IcmpErrorSource::InnerDestination)];
pub(crate) const HAIRPIN: &[(&str, Hairpin)] =
    &[("intrinsic", Hairpin::Intrinsic), ("simple", Hairpin::Simple), ("off", Hairpin::Off)];
pub(crate) const POOL_MODE: &[(&str, IcmpPoolMode)] =
    &[("hash", IcmpPoolMode::Hash), ("hop-limit", IcmpPoolMode::HopLimit)];
pub(crate) const ZERO_CHECKSUM: &[(&str, ZeroChecksum)] =
    &[("compute", ZeroChecksum::Compute), ("drop", ZeroChecksum::Drop), ("forward", ZeroChecksum::Forward)];

/// Backend of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Tun,
    Xdp,
    Dpdk,
    Pcap,
}

/// Origin of a TUN device, or hook of an XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Create,
    Attach,
    Auto,
    Native,
    Skb,
}

/// Allocation of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    Random,
    Blocks,
    Deterministic,
}

/// The words of a list.
pub(super) fn words<T>(list: &[(&'static str, T)]) -> Vec<&'static str> {
    list.iter().map(|(word, _)| *word).collect()
}

/// Use of huge pages for packet buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Uses huge pages if enough are free.
    #[default]
    Auto,
    /// Requires huge pages: without them the daemon does not start.
    Always,
    /// Uses ordinary pages.
    Never,
}

/// Gatun's own P4 program, by kind of switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum P4Program {
    /// DPDK's pipeline: `gatun p4 switch`.
    #[default]
    Dpdk,
    /// BMv2: `simple_switch_grpc`.
    Bmv2,
    /// None is loaded: the switch has one already.
    Installed,
}

/// Member of a pair of boxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerMember {
    /// Owner of all public addresses when an active-standby pair begins.
    #[default]
    A,
    /// The other box.
    B,
}

/// Division of the public addresses between the boxes of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PairMode {
    /// One box owns all addresses, the other one backs them.
    #[default]
    ActiveStandby,
    /// Each box owns half of the addresses, and backs the other half.
    ActiveActive,
}

/// Format of exported events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// RFC 7011 and 8158.
    Ipfix,
    /// RFC 5424.
    Syslog,
    /// One JSON object per line.
    Json,
}
