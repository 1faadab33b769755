//! Predictions for packets, and traced packets.

use super::{Binding, Fate, Kind, Name, PortFrom, Protocol, Session};
use crate::schema::structs;
use std::net::{IpAddr, Ipv4Addr};

structs! {
    /// An ICMP error.
    pub struct IcmpError {
        /// ICMPv6 type for an IPv6 packet, ICMPv4 type for an IPv4 packet.
        pub kind: u8,
        /// Code of that type.
        pub code: u8,
        /// Reported MTU in bytes; none for other types.
        pub mtu: Option<u32>,
    }

    /// State of a subscriber, and its limits.
    pub struct SubscriberUsage {
        /// Inside network of the subscriber, as a prefix.
        pub subscriber: String,
        /// True if the subscriber has state.
        pub known: bool,
        /// Public address paired with the subscriber.
        pub address: Option<Ipv4Addr>,
        /// Current sessions of the subscriber.
        pub sessions: u32,
        /// Session limit of a subscriber (`sessions_per_subscriber`).
        pub sessions_max: u32,
        /// Public ports in use, of all protocols.
        pub ports: u32,
        /// Limit of public ports, of all protocols.
        pub ports_max: u32,
        /// Public ports in use, of the packet's protocol.
        pub ports_of_protocol: u32,
        /// Limit of public ports of the packet's protocol.
        pub ports_of_protocol_max: u32,
        /// Port blocks that the subscriber has.
        pub blocks: u32,
        /// Limit of port blocks; 0 if its pool has no blocks.
        pub blocks_max: u32,
    }

    /// Allocation of a new session.
    pub struct Opening {
        /// Source of its public port.
        pub from: PortFrom,
        /// Public address of the new session.
        pub address: Ipv4Addr,
        /// Public port of the new session; none if it is chosen at random.
        pub port: Option<u16>,
        /// First port of the block; none without blocks.
        pub first_port: Option<u16>,
        /// Last port of the block; none without blocks.
        pub last_port: Option<u16>,
        /// Free ports to choose from at random; for a new block, free blocks.
        pub free: u32,
    }

    /// Source and destination of a packet.
    pub struct PacketEndpoints {
        /// Transport protocol of the packet.
        pub protocol: Protocol,
        /// Source address of the packet.
        pub source: IpAddr,
        /// Source port or identifier; none if it is chosen at random.
        pub source_port: Option<u16>,
        /// Destination address of the packet.
        pub destination: IpAddr,
        /// Destination port or identifier.
        pub destination_port: Option<u16>,
        /// Length in bytes, from the IP header on.
        pub bytes: u32,
    }

    /// Prediction for a packet at this moment, with the reasons. Nothing is changed.
    pub struct Explanation {
        /// The packet in question.
        pub packet: PacketEndpoints,
        /// Predicted outcome of the packet.
        pub fate: Fate,
        /// The packet as it would leave.
        pub becomes: Option<PacketEndpoints>,
        /// Drop reason, by its name in `/v1/drops`.
        pub reason: Option<String>,
        /// Meaning of the drop reason.
        pub help: Option<String>,
        /// Section of an RFC, or key of the configuration, that applies.
        pub rule: Option<String>,
        /// ICMP error for its sender, if the rate limit of errors allows it.
        pub answer: Option<IcmpError>,
        /// Instance of the packet.
        pub instance: Option<Name>,
        /// Kind of translation.
        pub kind: Option<Kind>,
        /// Number of the packet's worker.
        pub worker: u32,
        /// Shard of the cluster whose state the packet needs.
        pub shard: Option<u32>,
        /// Node of the cluster that translates the packet, if it is another one.
        pub node: Option<Name>,
        /// Pool of public addresses.
        pub pool: Option<Name>,
        /// Subscriber of the inside host.
        pub subscriber: Option<SubscriberUsage>,
        /// Existing session to which the packet belongs.
        pub session: Option<Session>,
        /// Existing binding that the packet uses.
        pub binding: Option<Binding>,
        /// Allocation for the session that the packet would open.
        pub opening: Option<Opening>,
        /// True if it would be hairpinned to an inside host.
        pub hairpinned: bool,
        /// Largest packet of this flow without fragmentation, bytes.
        pub mtu: Option<u32>,
        /// MTU of its path in bytes, if a router reported one below the minimum of IPv6.
        pub path_mtu: Option<u32>,
        /// Maximum size of the fragments that it would become, bytes; none if it is not fragmented.
        pub cut_to: Option<u32>,
        /// Steps of the decision as sentences, in order.
        pub why: Vec<String>,
    }

    /// A traced packet.
    pub struct TracedPacket {
        /// Time of the trace, microseconds since 1970.
        pub time_us: u64,
        /// Number of its worker.
        pub worker: u32,
        /// Outcome of the packet.
        pub fate: Fate,
        /// Drop reason, by its name in `/v1/drops`; none if it was not dropped.
        pub reason: Option<String>,
        /// Meaning of the drop reason.
        pub help: Option<String>,
        /// True if its sender got an answer, an ICMP error or an echo reply: `after` is the answer.
        pub answered: bool,
        /// Instance of the packet.
        pub instance: Option<Name>,
        /// Node of the cluster that the packet was sent to.
        pub node: Option<Name>,
        /// Source and destination; none if it is not a whole TCP, UDP or ping packet.
        pub packet: Option<PacketEndpoints>,
        /// Source and destination of the packet that was sent.
        pub becomes: Option<PacketEndpoints>,
        /// Facts known before translation, in sentences.
        pub why: Vec<String>,
        /// First bytes as received, hexadecimal.
        pub before: String,
        /// Length as received, in bytes from the IP header on.
        pub before_bytes: u32,
        /// First bytes of the packet that was sent, hexadecimal.
        pub after: String,
        /// Length of the packet that was sent, in bytes from the IP header on.
        pub after_bytes: u32,
        /// Packets lost before this one because the client reads too slowly.
        pub lost: u64,
    }
}
