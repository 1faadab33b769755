//! Keys of limits, timeouts and ICMP errors.

use super::forms::REASON;
use super::kind::{Key, Kind, key};

/// `[limits]`
pub(crate) const LIMITS: &[Key] = &[
    key("sessions_max", Kind::Integer { min: 1, max: 268_435_456 }, "1_000_000", "Maximum number of sessions.")
        .default("262_144"),
    key("sessions_reserved", Kind::Integer { min: 0, max: 90 }, "25", "Share of `sessions_max` reserved for subscribers with few sessions, percent. With 0, a few subscribers with very many sessions lock out all others.").default("25"),
    key("sessions_reserved_below", Kind::Integer { min: 1, max: 268_435_456 }, "64", "Number of sessions below which a subscriber may use the reserve. `gatun check` shows how many subscribers that open all they can fill the table.").default("a 1024th of the reserve, 4 to 64"),
    key("subscribers_max", Kind::Integer { min: 1, max: 268_435_456 }, "65_536", "Maximum number of subscribers with state.")
        .default("65_536"),
    key(
        "sessions_per_subscriber",
        Kind::Integer { min: 1, max: 268_435_456 },
        "4000",
        "Maximum number of sessions of one subscriber.",
    )
    .default("16_384"),
    key(
        "ports_per_subscriber",
        Kind::Integer { min: 1, max: 196_608 },
        "1024",
        "Maximum number of ports of one subscriber, all protocols together (RFC 6888 REQ-4).",
    )
    .default("4_096"),
    key("tcp_ports_per_subscriber", Kind::Integer { min: 0, max: 65_535 }, "1024", "Maximum number of TCP ports of one subscriber.")
        .default("65_535"),
    key("udp_ports_per_subscriber", Kind::Integer { min: 0, max: 65_535 }, "1024", "Maximum number of UDP ports of one subscriber.")
        .default("65_535"),
    key(
        "icmp_ports_per_subscriber",
        Kind::Integer { min: 0, max: 65_535 },
        "64",
        "Maximum number of ICMP identifiers of one subscriber.",
    )
    .default("65_535"),
    key(
        "session_rate_per_subscriber",
        Kind::Integer { min: 0, max: 10_000_000 },
        "500",
        "Maximum number of new sessions of one subscriber per second (RFC 6888 REQ-4, REQ-5). 0 sets no limit.",
    )
    .default("0"),
    key(
        "session_burst_per_subscriber",
        Kind::Integer { min: 1, max: 10_000_000 },
        "2000",
        "Burst of new sessions of one subscriber, if `session_rate_per_subscriber` is set.",
    )
    .default("1_000"),
    key(
        "syn_store_max",
        Kind::Integer { min: 1, max: 1_048_576 },
        "1024",
        "Maximum number of unsolicited TCP SYNs held for six seconds (RFC 5382 REQ-4).",
    )
    .default("1_024"),
    key(
        "path_mtus_max",
        Kind::Integer { min: 0, max: 1_048_576 },
        "4096",
        "Maximum number of remembered IPv4 destinations with a path MTU below 1,260 bytes. Gatun fragments packets to them and forgets each after ten minutes. 0 remembers none.",
    )
    .default("4_096"),
    key(
        "fragment_entries_max",
        Kind::Integer { min: 1, max: 1_048_576 },
        "2048",
        "Fragmented packets tracked at a time.",
    )
    .default("2_048"),
    key(
        "fragment_bytes_max",
        Kind::Bytes { min: 65_536, max: 1 << 30 },
        "\"4MiB\"",
        "Memory for fragments that arrived before the first fragment of their packet: bytes, or a number with KiB, MiB or GiB.",
    )
    .default("\"4MiB\""),
    key(
        "fragments_per_source",
        Kind::Integer { min: 1, max: 65_536 },
        "128",
        "Maximum number of waiting fragments and tracked fragmented packets of one subscriber or one outside address.",
    )
    .default("128"),
];

/// `[timeouts]`
pub(crate) const TIMEOUTS: &[Key] = &[
    key("udp", Kind::Duration, "\"5m\"", "Idle time of UDP sessions. RFC 4787 REQ-5 requires at least `2m`.").default("\"5m\""),
    key("tcp_established", Kind::Duration, "\"2h4m\"", "Idle time of established TCP connections. RFC 5382 REQ-5 requires at least `2h4m`.").default("\"2h4m\""),
    key("tcp_transitory", Kind::Duration, "\"4m\"", "Idle time of TCP connections that are opening, closing or reset. RFC 5382 REQ-5 requires at least `4m`.").default("\"4m\""),
    key("tcp_partial_open", Kind::Duration, "\"4m\"", "Idle time of TCP connections that are opening (RFC 7857 2.1).").default("as `tcp_transitory`"),
    key("tcp_closing", Kind::Duration, "\"4m\"", "Idle time of TCP connections after a FIN from both sides (RFC 7857 2.1).").default("as `tcp_transitory`"),
    key("tcp_incoming_syn", Kind::Duration, "\"6s\"", "Time that an unsolicited SYN is held for the inside host to open the same connection. RFC 5382 REQ-4 requires at least `6s`.").default("\"6s\""),
    key("icmp", Kind::Duration, "\"60s\"", "Idle time of ICMP query sessions (ping). RFC 5508 REQ-2 requires at least `60s`.").default("\"60s\""),
    key("fragment", Kind::Duration, "\"2s\"", "Time that fragments wait for the first fragment of their packet. RFC 6146 3.4 requires at least `2s`.").default("\"2s\""),
];

/// `[icmp]`
pub(crate) const ICMP: &[Key] = &[
    key("rate", Kind::Integer { min: 0, max: 1_000_000 }, "1000", "ICMP errors per second, all receivers together. 0 sends none.")
        .default("1000"),
    key("burst", Kind::Integer { min: 1, max: 1_000_000 }, "200", "Burst of ICMP errors. The last quarter is reserved for Packet Too Big and Fragmentation Needed.").default("200"),
    key("rate_per_source", Kind::Integer { min: 0, max: 1_000_000 }, "100", "ICMP errors per second to one receiver: a subscriber, or otherwise a /64 or an IPv4 address. 0 sets no limit per receiver.").default("a tenth of `rate`, at least 1"),
    key("burst_per_source", Kind::Integer { min: 1, max: 1_000_000 }, "50", "Burst of ICMP errors to one receiver. The last quarter is reserved as in `burst`.").default("a quarter of `burst`, at least 1"),
    key(
        "suppress",
        Kind::List(&REASON),
        "[\"no_bib\"]",
        "Drop reasons for which no ICMP error is sent, in either direction. For all others Gatun sends one if RFC 7915 4.4 and 5.4 or another RFC require it, `wkp_nonglobal`, `dst_not_pref64` and `udp_zero_csum` included.",
    )
    .default("[]"),
    key("quota_code6", Kind::Integer { min: 0, max: 6 }, "1", "Code of the ICMPv6 Destination Unreachable sent when a subscriber has reached a limit. 1 is \"administratively prohibited\".").default("1"),
    key("quota_code4", Kind::Integer { min: 0, max: 15 }, "1", "Code of the ICMPv4 Destination Unreachable sent when a subscriber has reached a limit. 1 is \"host unreachable\" (RFC 6888 REQ-11), 13 \"administratively prohibited\".").default("1"),
];
