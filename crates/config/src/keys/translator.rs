//! Keys of header translation, for all instances and for each.

use super::forms::{ADDRESS4, ADDRESS6};
use super::kind::{Key, Kind, key};
use super::words::{ZERO_CHECKSUM, words};

pub(super) const MTU4: Key = key(
    "mtu4",
    Kind::Integer { min: 68, max: 65_535 },
    "1500",
    "MTU of the next hop on the IPv4 side, bytes.",
)
.default("1500");
pub(super) const MTU6: Key = key(
    "mtu6",
    Kind::Integer { min: 1280, max: 65_535 },
    "1500",
    "MTU of the next hop on the IPv6 side, bytes.",
)
.default("1500");
pub(super) const MSS_MAX: Key = key("tcp_mss_max", Kind::Integer { min: 536, max: 65_535 }, "1360", "Largest TCP maximum segment size (MSS) in a SYN, in either direction, bytes. Gatun lowers larger values, so that no segment is fragmented or dropped on its way. `65535` leaves them unchanged.").default("the largest that fits both MTUs");
pub(super) const LOWEST_MTU6: Key = key("lowest_ipv6_mtu", Kind::Integer { min: 1280, max: 65_535 }, "1280", "Smallest MTU on the IPv6 side, bytes. IPv4 packets without DF become IPv6 packets of at most this length (RFC 7915 4).").default("1280");
pub(super) const TOS: Key = key(
    "tos",
    Kind::CopyOr { min: 0, max: 255 },
    "\"copy\"",
    "TOS byte of IPv4 packets: a copy of the traffic class (RFC 7915 5.1), or a constant.",
)
.default("\"copy\"");
pub(super) const TRAFFIC_CLASS: Key = key(
    "traffic_class",
    Kind::CopyOr { min: 0, max: 255 },
    "\"copy\"",
    "Traffic class of IPv6 packets: a copy of the TOS byte (RFC 7915 4.1), or a constant.",
)
.default("\"copy\"");
pub(super) const ZERO_UDP: Key = key("udp_zero_checksum", Kind::Words(|| words(ZERO_CHECKSUM)), "\"compute\"", "Handling of IPv4 UDP packets without a checksum: `compute` one, `drop` the packet, or `forward` it without (RFC 6935: only between tunnel endpoints that agreed on it).").default("\"compute\"");
pub(super) const ERROR4_MAX: Key = key(
    "icmp4_error_max",
    Kind::Integer { min: 68, max: 1500 },
    "576",
    "Largest ICMPv4 error that Gatun sends, bytes (RFC 1812 4.3.2.3).",
)
.default("576");

/// `[translator]`
pub(crate) const TRANSLATOR: &[Key] = &[
    key("own4", ADDRESS4, "\"192.0.2.1\"", "IPv4 address of the translator: source of its ICMPv4 errors. It answers pings. UDP to it gets Port Unreachable and TCP is dropped; nothing to it is translated (`own_udp`, `own_proto`, `own_other`). It may lie in a pool; the pool's ports and `static` bindings take precedence.").default("the second address of the first pool"),
    key("own6", ADDRESS6, "\"64:ff9b::192.0.2.1\"", "IPv6 address of the translator: source of its ICMPv6 errors, otherwise as `own4`. It may lie in a `pool6`.").default("`own4` embedded in the first `pool6`"),
    MTU4, MTU6, LOWEST_MTU6, MSS_MAX, TOS, TRAFFIC_CLASS, ZERO_UDP, ERROR4_MAX,
];
