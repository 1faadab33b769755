//! Pools of public IPv4 addresses, and the allocation of their ports.

use super::{Net6, Transport};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Public IPv4 addresses and their ports.
#[derive(Clone, Debug)]
pub struct Pool4 {
    /// Name shown to operators.
    pub name: String,
    /// Addresses with ports. The same address may be in several ranges if their ports or protocols do not
    /// overlap.
    pub ranges: Vec<PoolRange>,
    /// Behaviour if a subscriber's address has no free port left.
    pub pairing: Pairing,
    /// True if Gatun keeps the parity of the inside port (RFC 4787 REQ-4).
    pub port_parity: bool,
    /// True if Gatun keeps the class of the inside port: below 1024, or 1024 and above (RFC 4787 REQ-3).
    /// This applies to single ports, as long as such a port is free. Blocks have no class.
    pub port_class: bool,
    /// Allocation of ports.
    pub allocation: Allocation,
    /// Remote TCP and UDP ports. Flows to these share a public port with other flows of their subscriber:
    /// their mapping and filtering depend on the remote end (RFC 7857 3).
    pub overload: Vec<(Transport, u16)>,
}

impl Default for Pool4 {
    /// Pool without addresses that allocates single ports and keeps their class but not their parity.
    fn default() -> Self {
        Pool4 {
            name: String::new(),
            ranges: Vec::new(),
            pairing: Pairing::Soft,
            port_parity: false,
            port_class: true,
            allocation: Allocation::default(),
            overload: Vec::new(),
        }
    }
}

/// Allocation of a pool's ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Single ports, at random over all ports of the subscriber's address (RFC 6056).
    Random(HoldDown),
    /// Port blocks: a subscriber gets consecutive ports, and each binding gets a random one of them.
    Blocks(Blocks),
    /// Formula: the ports of a subscriber are known without a log (RFC 7422).
    Deterministic(Deterministic),
}

impl Default for Allocation {
    fn default() -> Self {
        Allocation::Random(HoldDown::default())
    }
}

/// Time for which a returned port or block is not given to another subscriber (RFC 6888 REQ-8). Single TCP
/// ports are exempt, because each connection is followed to its end. Pools whose instances all filter by
/// address are exempt too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldDown {
    /// Hold-down time; zero disables it.
    pub ms: u32,
    /// Maximum number of held ports. Beyond it, the port that was held longest becomes free.
    pub ports_max: u32,
}

/// Port block allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Ports of a block: a power of two from [`Blocks::SIZE_MIN`] to [`Blocks::SIZE_MAX`]. A block begins at
    /// a multiple of its size. Ports that fill no block are not given out.
    pub size: u16,
    /// Maximum number of blocks per subscriber. With [`BlockProtocols::Split`], the limit holds for each
    /// protocol.
    pub per_subscriber: u16,
    /// Time for which a block without bindings is kept for its subscriber.
    pub linger_ms: u32,
    /// Hold-down after that time.
    pub hold: HoldDown,
    /// Protocols of a block.
    pub protocols: BlockProtocols,
}

impl Blocks {
    /// Smallest block.
    pub const SIZE_MIN: u16 = 32;
    /// Largest block.
    pub const SIZE_MAX: u16 = 16_384;
}

impl Default for Blocks {
    fn default() -> Self {
        Blocks {
            size: 256,
            per_subscriber: 4,
            linger_ms: 120_000,
            hold: HoldDown { ms: 120_000, ports_max: u32::MAX },
            protocols: BlockProtocols::Shared,
        }
    }
}

/// Protocols of a port block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockProtocols {
    /// All protocols: a subscriber has the same ports for TCP, UDP and ICMP, and one log record covers them.
    #[default]
    Shared,
    /// One protocol: each protocol has its own blocks.
    Split,
}

/// Deterministic allocation: the n-th subscriber has the n-th block, in order of addresses and ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deterministic {
    /// Networks of the subscribers that have a block of their own, in this order. IPv4 networks are written
    /// in ::ffff:0:0/96.
    pub inside: Vec<Net6>,
    /// Prefix length of IPv6 subscribers. An IPv4 subscriber is one address.
    pub subscriber_len: u8,
    /// Overflow blocks: the last blocks of each address, which belong to no subscriber. A subscriber that
    /// needs more than its own block, or has none, gets one for as long as it needs it.
    pub overflow_per_address: u16,
    /// Size of all blocks, and the terms of the overflow blocks. Protocols are always shared.
    pub blocks: Blocks,
}

/// Range of addresses and of their ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRange {
    /// First address.
    pub first: Ipv4Addr,
    /// Last address, not below the first.
    pub last: Ipv4Addr,
    /// First and last port (or identifier).
    pub ports: (u16, u16),
    /// True for each of TCP, UDP and ICMP that may use the range, in the order of [`Transport`].
    pub transports: [bool; 3],
}

/// Address pairing (RFC 7857 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pairing {
    /// Gatun uses another address of the pool, and counts that.
    #[default]
    Soft,
    /// Gatun drops the packet.
    Hard,
}
