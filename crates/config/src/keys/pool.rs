//! Keys of pools.

use super::forms::{NAME, NET, PROTOCOL_KIND, RANGE4};
use super::kind::{Key, Kind, key};
use super::words::{ALLOCATION, BLOCK_PROTOCOLS, PAIRING, words};
use gatun_nat::plan::Blocks;

/// `[[pool]]`
pub(crate) const POOL: &[Key] = &[
    key("name", NAME, "\"res\"", "Name of the pool, for `pool` in `[[nat64]]` and `[[nat44]]`.").default("\"pool1\", \"pool2\", ..."),
    key("prefixes", Kind::List(&RANGE4), "[\"192.0.2.0/28\", \"198.51.100.7-198.51.100.9\"]", "Addresses: prefixes, single addresses, or ranges. All are used, the first and the last of a prefix included. Each takes 768 KB of memory per worker."),
    key("ports", Kind::List(&Kind::Ports), "\"1024-65535\"", "Ports (for ICMP: identifiers) of these addresses.").default("\"1024-65535\""),
    key("protocols", Kind::List(&PROTOCOL_KIND), "[\"tcp\", \"udp\", \"icmp\"]", "Protocols of these ports.").default("all three"),
    key("ranges", Kind::Tables(RANGE), "[{ prefixes = \"192.0.2.7\", ports = \"80-443\", protocols = \"tcp\" }]", "Further addresses with their own ports and protocols."),
    key("pairing", Kind::Words(|| words(PAIRING)), "\"soft\"", "Behaviour when the public address of a subscriber has no free port: `soft` uses another address and counts it, `hard` drops the packet (RFC 7857 4).").default("\"soft\""),
    key("port_parity", Kind::Flag, "true", "Prefers an even public port for an even inside port, and an odd one for an odd one (RFC 4787 REQ-4; RFC 7857 8 allows `false`).").default("true"),
    key("port_class", Kind::Flag, "true", "Prefers a public port below 1024 for an inside port below 1024, and one from 1024 on for others (RFC 4787 REQ-3). Not with port blocks.").default("true"),
    key("allocation", Kind::WordOrTable(ALLOCATION_KEYS), "{ kind = \"blocks\", size = 256 }", "Allocation of ports: single ports of the whole address (`random`), port blocks, so that one log record covers many ports (`blocks`), or a formula that needs no log (`deterministic`, RFC 7422). A word, or a table with that word as `kind`.").default("\"random\""),
    key("overload", Kind::List(&Kind::RemotePort), "[443, \"udp/123\"]", "Remote ports, of TCP and UDP or of the protocol in front. Flows to these ports may reuse a public port of their subscriber for different destinations. This saves ports and disables inbound connections to them, because no binding is made. An observer of one flow knows the public port of others: leave out `53` if inside hosts resolve names themselves (RFC 5452). Not with `[peer]` or `[cluster]`.").default("[]"),
];

/// `allocation` in `[[pool]]`
pub(crate) const ALLOCATION_KEYS: &[Key] = &[
    key("kind", Kind::Words(|| words(ALLOCATION)), "\"blocks\"", "Kind of allocation, as above.").required(),
    key("size", Kind::Integer { min: Blocks::SIZE_MIN as u32, max: Blocks::SIZE_MAX as u32 }, "256", "Blocks: ports per block, a power of two. A block begins at a multiple of its size. Ports that fill no block are not used.").default("256"),
    key("blocks_per_subscriber", Kind::Integer { min: 1, max: 1024 }, "4", "Blocks: maximum number of blocks of one subscriber at a time. It gets the next one when the last one is full. Deterministic: blocks from `overflow` in addition to its own.").default("4"),
    key("protocols", Kind::Words(|| words(BLOCK_PROTOCOLS)), "\"shared\"", "Blocks: one block for TCP, UDP and ICMP together (`shared`), or one for each (`split`).").default("\"shared\""),
    key("linger", Kind::Duration, "\"2m\"", "Blocks: time that an empty block is kept for its subscriber.").default("\"2m\""),
    key("hold", Kind::Duration, "\"120s\"", "Time before a returned port or block is given to another subscriber (RFC 6888 REQ-8). Ports of TCP only and of instances that filter by address are exempt.").default("\"120s\""),
    key("hold_max", Kind::Integer { min: 0, max: 1 << 28 }, "16_384", "Maximum number of held ports. If there are more, the one held longest becomes free.").default("16_384 for `random`, no limit for blocks"),
    key("inside", Kind::List(&NET), "[\"2001:db8::/48\"]", "Deterministic: networks of the subscribers that have their own block, in order. The instance's `subscriber` is the length of each (an IPv4 subscriber is an address)."),
    key("overflow", Kind::Integer { min: 0, max: 2047 }, "8", "Deterministic: last blocks of each address, reserved for subscribers that need more than their own.").default("0"),
];

/// `ranges` in `[[pool]]`
pub(crate) const RANGE: &[Key] = &[
    key("prefixes", Kind::List(&RANGE4), "\"192.0.2.7\"", "As in `[[pool]]`.").required(),
    key("ports", Kind::List(&Kind::Ports), "\"80-443\"", "As in `[[pool]]`.").default("\"1024-65535\""),
    key("protocols", Kind::List(&PROTOCOL_KIND), "\"tcp\"", "As in `[[pool]]`.").default("all three"),
];
