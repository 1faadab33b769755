//! What becomes of a packet.

use super::{Binding, Fate, Kind, Name, PortFrom, Protocol, Session};
use crate::schema::structs;
use std::net::{IpAddr, Ipv4Addr};

structs! {
    /// An ICMP error.
    pub struct IcmpError {
        /// Type: of ICMPv6 for an IPv6 packet, else of ICMP.
        pub kind: u8,
        /// Code.
        pub code: u8,
        /// The MTU that it tells, bytes.
        pub mtu: Option<u32>,
    }

    /// State of a subscriber, and its limits.
    pub struct Standing {
        /// Its inside network.
        pub subscriber: String,
        /// Whether it has any state.
        pub known: bool,
        /// The public address that it is paired with.
        pub address: Option<Ipv4Addr>,
        /// Sessions.
        pub sessions: u32,
        /// Sessions that it may have.
        pub sessions_max: u32,
        /// Ports of all protocols.
        pub ports: u32,
        /// Ports that it may have.
        pub ports_max: u32,
        /// Ports of the packet's protocol.
        pub ports_of_protocol: u32,
        /// Of these, it may have so many.
        pub ports_of_protocol_max: u32,
        /// Port blocks.
        pub blocks: u32,
        /// Port blocks that it may have; 0 where its pool has none.
        pub blocks_max: u32,
    }

    /// Allocation of a new session.
    pub struct Opening {
        /// Source of its public port.
        pub from: PortFrom,
        /// Public address.
        pub address: Ipv4Addr,
        /// Public port; none where chance decides.
        pub port: Option<u16>,
        /// First port of the block.
        pub first_port: Option<u16>,
        /// Last port of the block.
        pub last_port: Option<u16>,
        /// Free ports of which chance picks one; of new blocks, free blocks.
        pub free: u32,
    }

    /// A packet's two ends.
    pub struct Ends {
        /// Protocol.
        pub protocol: Protocol,
        /// Source address.
        pub source: IpAddr,
        /// Source port, or identifier; none where chance decides.
        pub source_port: Option<u16>,
        /// Destination address.
        pub destination: IpAddr,
        /// Destination port, or identifier.
        pub destination_port: Option<u16>,
        /// Length from the IP header on.
        pub bytes: u32,
    }

    /// Prediction for a packet at this moment, with the reasons. Nothing was changed.
    pub struct Explanation {
        /// The packet.
        pub packet: Ends,
        /// Outcome.
        pub fate: Fate,
        /// The packet as it would leave.
        pub becomes: Option<Ends>,
        /// Drop reason, by its name as in drops.
        pub reason: Option<String>,
        /// Meaning of the drop reason.
        pub help: Option<String>,
        /// Section of an RFC, or key of the configuration, that applies.
        pub rule: Option<String>,
        /// The ICMP error that its sender would get, as far as the limit of errors allows.
        pub answer: Option<IcmpError>,
        /// The instance that it is for.
        pub instance: Option<Name>,
        /// Kind of translation.
        pub kind: Option<Kind>,
        /// Number of the worker that it is for.
        pub worker: u32,
        /// The pool of public addresses.
        pub pool: Option<Name>,
        /// The inside host's subscriber.
        pub subscriber: Option<Standing>,
        /// The session that there is.
        pub session: Option<Session>,
        /// The binding that there is.
        pub binding: Option<Binding>,
        /// Allocation of a new session.
        pub opening: Option<Opening>,
        /// Whether it would be turned round, to an inside host.
        pub hairpinned: bool,
        /// The largest packet of this flow that passes in one piece, bytes.
        pub mtu: Option<u32>,
        /// MTU of its path, if a router reported one below the minimum of IPv6.
        pub path_mtu: Option<u32>,
        /// It would be cut into fragments of so many bytes at most.
        pub cut_to: Option<u32>,
        /// The same in sentences, in the order in which it is decided.
        pub why: Vec<String>,
    }

    /// A packet that was watched.
    pub struct TracedPacket {
        /// When it was told of, microseconds since 1970.
        pub time_us: u64,
        /// Number of its worker.
        pub worker: u32,
        /// Outcome.
        pub fate: Fate,
        /// Drop reason.
        pub reason: Option<String>,
        /// Meaning of the drop reason.
        pub help: Option<String>,
        /// Whether its sender was answered, with an ICMP error or an echo reply: `after` is the answer.
        pub answered: bool,
        /// The instance that it was for.
        pub instance: Option<Name>,
        /// Its ends; none where it is no whole TCP, UDP or ping.
        pub packet: Option<Ends>,
        /// The ends of what was sent for it.
        pub becomes: Option<Ends>,
        /// Facts known before translation, in sentences.
        pub why: Vec<String>,
        /// Its first bytes as received, hexadecimal.
        pub before: String,
        /// Its length then.
        pub before_bytes: u32,
        /// The first bytes of what was sent, hexadecimal.
        pub after: String,
        /// Its length.
        pub after_bytes: u32,
        /// Packets before this one that could not be told of, as they were read too slowly.
        pub lost: u64,
    }
}
