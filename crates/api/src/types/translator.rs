//! What an instance or a pool has done and has left.

use super::{Count, Counter, Kind, Name};
use crate::schema::structs;
use std::net::Ipv4Addr;

structs! {
    /// Things that come and go.
    pub struct Lived {
        /// Number at this moment.
        pub now: u64,
        /// Number since the start.
        pub begun: u64,
    }

    /// Sessions and bindings of one protocol.
    pub struct Lives {
        /// Sessions.
        pub sessions: Lived,
        /// Bindings.
        pub bindings: Lived,
    }

    /// Criteria by which packets are assigned to an instance: all of them must match.
    #[derive(Default)]
    pub struct Choice {
        /// The ports that its hosts are behind; without any, those that no other instance of its kind names.
        pub ports: Vec<String>,
        /// Translation prefixes that IPv6 hosts write to.
        pub pool6: Vec<String>,
        /// Networks that its hosts are in (`sources` of NAT64, `inside` of NAT44); without any, all. Those that a
        /// stateless one maps are its static maps.
        pub sources: Vec<String>,
        /// The pool that its hosts share, and that what comes back is sent to; a stateless one has none.
        pub pool: Option<String>,
    }

    /// An instance: one section of the configuration.
    pub struct Instance {
        /// Kind of translation.
        pub kind: Kind,
        /// Name of the instance.
        pub name: Name,
        /// Criteria by which packets are assigned to it.
        pub choice: Choice,
        /// Packets that it was chosen for, in either direction: translated, passed, answered or not forwarded.
        pub chosen: Count,
        /// Packets from inside, of a stateless one from IPv6, translated and sent on.
        pub outbound: Count,
        /// Packets the other way.
        pub inbound: Count,
        /// Of the outbound ones: turned round, to an inside host.
        pub hairpinned: Count,
        /// Packets left as they are.
        pub passed: Count,
        /// Echo requests to the translator itself, answered.
        pub echoes: Count,
        /// Packets refused, with an ICMP error or silently.
        pub dropped: Count,
        /// State of TCP.
        pub tcp: Lives,
        /// State of UDP.
        pub udp: Lives,
        /// State of ICMP.
        pub icmp: Lives,
        /// Subscribers with state.
        pub subscribers: u64,
        /// Dropped packets by reason, without zeros.
        pub drops: Vec<Counter>,
    }

    /// Some that are used of all there are.
    pub struct Usage {
        /// In use.
        pub used: u64,
        /// In all.
        pub total: u64,
    }

    /// Port blocks of a pool.
    pub struct BlockUsage {
        /// In all.
        pub total: u64,
        /// Given to subscribers.
        pub owned: u64,
        /// Of those, without a port in use.
        pub lingering: u64,
        /// Given back, and not to be given to another subscriber yet.
        pub held: u64,
    }

    /// A pool of public addresses.
    pub struct Pool {
        /// Name of the pool.
        pub name: Name,
        /// Public addresses.
        pub addresses: u32,
        /// Ports of TCP.
        pub tcp: Usage,
        /// Ports of UDP.
        pub udp: Usage,
        /// Identifiers of ICMP.
        pub icmp: Usage,
        /// Single ports that were given back and are held down.
        pub ports_held: u64,
        /// Blocks, where it has any.
        pub blocks: Option<BlockUsage>,
        /// Subscribers with state, of all instances that use it.
        pub subscribers: u64,
        /// Ports given to bindings.
        pub ports_given: u64,
        /// Ports that came back.
        pub ports_returned: u64,
        /// Blocks given to subscribers.
        pub blocks_given: u64,
        /// Blocks that came back.
        pub blocks_returned: u64,
        /// Ports that could not be given.
        pub refused: u64,
        /// Ports of another address than the subscriber's own.
        pub pairing_broken: u64,
        /// Packets from inside by its addresses; one that is turned round counts for its sender.
        pub outbound: Count,
        /// Packets to the inside by its addresses; one that is turned round counts for its receiver.
        pub inbound: Count,
    }

    /// A public address.
    pub struct Address {
        /// Its pool.
        pub pool: Name,
        /// The address.
        pub address: Ipv4Addr,
        /// Whether it gets no new bindings.
        pub drained: bool,
        /// Ports of TCP.
        pub tcp: Usage,
        /// Ports of UDP.
        pub udp: Usage,
        /// Identifiers of ICMP.
        pub icmp: Usage,
        /// Packets that left by it, since it has been in the pool.
        pub outbound: Count,
        /// Packets to the inside that came to it.
        pub inbound: Count,
    }

    /// Addresses that were drained, or are no longer.
    pub struct Drained {
        /// Number of changed addresses.
        pub addresses: u64,
    }

    /// Packets that were not forwarded for one reason.
    pub struct Drop {
        /// The reason's name.
        pub reason: String,
        /// Meaning of the drop reason.
        pub help: String,
        /// From IPv6 to IPv4.
        pub six_to_four: Count,
        /// From IPv4 to IPv6.
        pub four_to_six: Count,
        /// From IPv4 to IPv4.
        pub four_to_four: Count,
    }
}
