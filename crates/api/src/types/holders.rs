//! Who has what: subscribers, port blocks, bindings and sessions.

use super::{Count, Holder, Name, Outcome, Protocol, State};
use crate::schema::structs;
use std::net::{IpAddr, Ipv4Addr};

structs! {
    /// A port block that a subscriber has.
    pub struct Block {
        /// Its pool.
        pub pool: Name,
        /// Public address.
        pub address: Ipv4Addr,
        /// First port.
        pub first_port: u16,
        /// Last port.
        pub last_port: u16,
        /// For which protocols.
        pub protocols: Vec<Protocol>,
        /// Instance of its subscriber.
        pub instance: Name,
        /// Inside network of its subscriber.
        pub subscriber: String,
    }

    /// A subscriber with state.
    pub struct Subscriber {
        /// Its instance.
        pub instance: Name,
        /// Its inside network.
        pub subscriber: String,
        /// The public address that it is paired with.
        pub address: Option<Ipv4Addr>,
        /// Sessions.
        pub sessions: u32,
        /// Ports of TCP: its bindings, those of the configuration not counted.
        pub tcp_ports: u16,
        /// Ports of UDP.
        pub udp_ports: u16,
        /// Identifiers of ICMP.
        pub icmp_ids: u16,
        /// Port blocks.
        pub blocks: u32,
        /// Sessions refused: it had as many as it may have.
        pub refused_sessions: u32,
        /// Sessions refused: it opened them faster than it may.
        pub refused_rate: u32,
        /// Sessions refused: it had as many ports as it may have.
        pub refused_ports: u32,
        /// Sessions refused: it had as many blocks as it may have.
        pub refused_blocks: u32,
        /// Packets that it sent, since it has had state without a pause.
        pub outbound: Count,
        /// Packets that it got.
        pub inbound: Count,
    }

    /// A binding (BIB entry), or a public port that several flows share.
    pub struct Binding {
        /// Its instance.
        pub instance: Name,
        /// Its pool.
        pub pool: Name,
        /// Protocol.
        pub protocol: Protocol,
        /// Inside address; of a shared port, that of one of its flows.
        pub inside: IpAddr,
        /// Inside port or identifier.
        pub inside_port: u16,
        /// Public address.
        pub outside: Ipv4Addr,
        /// Public port or identifier.
        pub outside_port: u16,
        /// Sessions, up to a few.
        pub sessions: u32,
        /// Whether there are more sessions than that.
        pub more_sessions: bool,
        /// Whether it is one of the configuration.
        pub configured: bool,
        /// Whether it is a port that several flows share.
        pub shared: bool,
    }

    /// A session.
    pub struct Session {
        /// Its instance.
        pub instance: Name,
        /// Protocol.
        pub protocol: Protocol,
        /// Inside address.
        pub inside: IpAddr,
        /// Inside port or identifier.
        pub inside_port: u16,
        /// Public address.
        pub outside: Ipv4Addr,
        /// Public port or identifier.
        pub outside_port: u16,
        /// Remote address.
        pub remote: Ipv4Addr,
        /// Remote port; 0 for ICMP.
        pub remote_port: u16,
        /// State.
        pub state: State,
        /// Milliseconds until it ends without another packet.
        pub expires_ms: u32,
        /// Whether its binding is one of the configuration.
        pub configured: bool,
        /// Whether it shares its public port with other flows.
        pub shared: bool,
    }

    /// Owner of a public address and port at this moment.
    pub struct Who {
        /// Whether there is an owner.
        pub outcome: Outcome,
        /// Reasons why the owner is not known, if it is not.
        pub unknown: Vec<String>,
        /// The address that was asked for.
        pub address: Ipv4Addr,
        /// The port that was asked for.
        pub port: u16,
        /// The pool of the address, where it is in one.
        pub pool: Option<Name>,
        /// Blocks that the port lies in.
        pub blocks: Vec<Block>,
        /// Bindings at the port.
        pub bindings: Vec<Binding>,
        /// Sessions through it, up to a limit.
        pub sessions: Vec<Session>,
        /// Whether there are more sessions.
        pub more_sessions: bool,
        /// Owners by the configuration alone, if no block or binding names one: the formula of a deterministic pool, or an
        /// address mapping.
        pub planned: Vec<Holder>,
    }

    /// Public addresses and ports of an inside host at this moment.
    pub struct Where {
        /// The address that was asked for.
        pub address: IpAddr,
        /// The subscriber that it belongs to, in each instance.
        pub subscribers: Vec<Subscriber>,
        /// The subscriber's port blocks.
        pub blocks: Vec<Block>,
        /// The host's bindings, up to a limit.
        pub bindings: Vec<Binding>,
        /// Whether there are more bindings.
        pub more_bindings: bool,
    }

    /// Names a session.
    pub struct SessionKey {
        /// Name of its instance.
        pub instance: Name,
        /// Protocol.
        pub protocol: Protocol,
        /// Inside address.
        pub inside: IpAddr,
        /// Inside port or identifier.
        pub inside_port: u16,
        /// Remote address.
        pub remote: Ipv4Addr,
        /// Remote port; 0 for ICMP.
        pub remote_port: u16,
    }

    /// Sessions that are to end.
    pub struct SessionKeys {
        /// Sessions to end.
        pub sessions: Vec<SessionKey>,
    }

    /// Ended sessions and bindings.
    pub struct Cleared {
        /// Sessions.
        pub sessions: u64,
        /// Bindings that went with them.
        pub bindings: u64,
    }
}

impl SessionKey {
    /// The key of a session.
    pub fn of(session: &Session) -> SessionKey {
        SessionKey {
            instance: session.instance.clone(),
            protocol: session.protocol,
            inside: session.inside,
            inside_port: session.inside_port,
            remote: session.remote,
            remote_port: session.remote_port,
        }
    }
}
