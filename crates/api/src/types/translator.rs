//! Instances, pools, public addresses and drops.

use super::{Count, Counter, Kind, Name};
use crate::schema::structs;
use std::net::Ipv4Addr;

structs! {
    /// A current number and a total.
    pub struct EntryCount {
        /// Number at this moment.
        pub now: u64,
        /// Number since the start.
        pub created: u64,
    }

    /// Sessions and bindings of one protocol.
    pub struct ProtocolEntries {
        /// Sessions, now and since the start.
        pub sessions: EntryCount,
        /// Bindings, now and since the start.
        pub bindings: EntryCount,
    }

    /// Criteria by which packets are assigned to an instance: all of them must match.
    #[derive(Default)]
    pub struct Selectors {
        /// The ports of its hosts; if empty, those that no other instance of its kind names.
        pub ports: Vec<String>,
        /// Translation prefixes that IPv6 hosts send to.
        pub pool6: Vec<String>,
        /// Networks of its hosts (`sources` of NAT64, `inside` of NAT44); if empty, all. The networks of a
        /// stateless instance are its mappings.
        pub sources: Vec<String>,
        /// Pool shared by its hosts; answers arrive at its addresses. A stateless instance has none.
        pub pool: Option<String>,
    }

    /// An instance: one section of the configuration.
    pub struct Instance {
        /// Kind of translation.
        pub kind: Kind,
        /// Name of the instance.
        pub name: Name,
        /// Criteria by which packets are assigned to it.
        pub selectors: Selectors,
        /// Packets matched to it, in either direction: translated, passed, answered or dropped.
        pub matched: Count,
        /// Packets from inside (for a stateless instance, from IPv6), translated and sent on.
        pub outbound: Count,
        /// Packets in the other direction.
        pub inbound: Count,
        /// Hairpinned packets, part of the outbound ones.
        pub hairpinned: Count,
        /// Packets passed on without translation.
        pub passed: Count,
        /// Echo replies sent for the translator's own addresses.
        pub echoes: Count,
        /// Packets dropped, with an ICMP error or silently.
        pub dropped: Count,
        /// State of TCP.
        pub tcp: ProtocolEntries,
        /// State of UDP.
        pub udp: ProtocolEntries,
        /// State of ICMP.
        pub icmp: ProtocolEntries,
        /// Subscribers with state.
        pub subscribers: u64,
        /// Dropped packets by reason, without zeros.
        pub drops: Vec<Counter>,
    }

    /// Usage of a resource.
    pub struct Usage {
        /// Units in use.
        pub used: u64,
        /// Units in total.
        pub total: u64,
    }

    /// Port blocks of a pool.
    pub struct BlockUsage {
        /// Number of blocks in the pool.
        pub total: u64,
        /// Blocks allocated to subscribers.
        pub owned: u64,
        /// Allocated blocks without a port in use.
        pub lingering: u64,
        /// Blocks in hold-down after their release.
        pub held: u64,
    }

    /// A pool of public addresses.
    pub struct Pool {
        /// Name of the pool.
        pub name: Name,
        /// Number of public addresses.
        pub addresses: u32,
        /// Ports of TCP.
        pub tcp: Usage,
        /// Ports of UDP.
        pub udp: Usage,
        /// Identifiers of ICMP.
        pub icmp: Usage,
        /// Single ports in hold-down.
        pub ports_held: u64,
        /// Blocks, if it has any.
        pub blocks: Option<BlockUsage>,
        /// Subscribers with state, of all instances that use it.
        pub subscribers: u64,
        /// Ports allocated to bindings, since the start.
        pub ports_allocated: u64,
        /// Ports freed, since the start.
        pub ports_released: u64,
        /// Blocks allocated to subscribers, since the start.
        pub blocks_allocated: u64,
        /// Blocks freed, since the start.
        pub blocks_released: u64,
        /// Failed port allocations, since the start.
        pub refused: u64,
        /// Ports allocated from another address than the subscriber's paired one.
        pub pairing_broken: u64,
        /// Packets from inside by its addresses; a hairpinned packet counts for its sender.
        pub outbound: Count,
        /// Packets to the inside by its addresses; a hairpinned packet counts for its receiver.
        pub inbound: Count,
    }

    /// A public address.
    pub struct Address {
        /// Pool of the address.
        pub pool: Name,
        /// The public address.
        pub address: Ipv4Addr,
        /// True if it gets no new bindings.
        pub drained: bool,
        /// Ports of TCP.
        pub tcp: Usage,
        /// Ports of UDP.
        pub udp: Usage,
        /// Identifiers of ICMP.
        pub icmp: Usage,
        /// Packets sent from it, since it has been in the pool.
        pub outbound: Count,
        /// Packets to the inside that arrived at it, since it has been in the pool.
        pub inbound: Count,
    }

    /// Result of draining or undraining.
    pub struct Drained {
        /// Number of changed addresses.
        pub addresses: u64,
    }

    /// Packets dropped for one reason.
    pub struct Drop {
        /// Name of the drop reason.
        pub reason: String,
        /// Meaning of the drop reason.
        pub help: String,
        /// Packets from IPv6 to IPv4.
        pub six_to_four: Count,
        /// Packets from IPv4 to IPv6.
        pub four_to_six: Count,
        /// Packets from IPv4 to IPv4.
        pub four_to_four: Count,
    }
}
