//! Subscribers, port blocks, bindings and sessions.

use super::{Count, Holder, Name, Outcome, Protocol, State};
use crate::schema::structs;
use std::net::{IpAddr, Ipv4Addr};

structs! {
    /// A port block of a subscriber.
    pub struct Block {
        /// Pool of the public address.
        pub pool: Name,
        /// Public address of the block.
        pub address: Ipv4Addr,
        /// First public port of the block.
        pub first_port: u16,
        /// Last public port of the block.
        pub last_port: u16,
        /// Protocols for which the subscriber has these ports.
        pub protocols: Vec<Protocol>,
        /// Instance of its subscriber.
        pub instance: Name,
        /// Inside network of its subscriber.
        pub subscriber: String,
    }

    /// A subscriber with state.
    pub struct Subscriber {
        /// Instance of the subscriber.
        pub instance: Name,
        /// Inside network of the subscriber, as a prefix.
        pub subscriber: String,
        /// Public address paired with the subscriber.
        pub address: Option<Ipv4Addr>,
        /// Current sessions of all protocols.
        pub sessions: u32,
        /// Public TCP ports in use, without static bindings.
        pub tcp_ports: u16,
        /// Public UDP ports in use, without static bindings.
        pub udp_ports: u16,
        /// Public ICMP identifiers in use, without static bindings.
        pub icmp_ids: u16,
        /// Port blocks that the subscriber has.
        pub blocks: u32,
        /// Sessions refused by the session limit.
        pub refused_sessions: u32,
        /// Sessions refused by the rate limit.
        pub refused_rate: u32,
        /// Sessions refused by the port limit.
        pub refused_ports: u32,
        /// Sessions refused by the block limit.
        pub refused_blocks: u32,
        /// Packets that its hosts sent, since it last began to have state.
        pub outbound: Count,
        /// Packets that its hosts received in that time.
        pub inbound: Count,
    }

    /// A binding (BIB entry), or a public port shared by several flows.
    pub struct Binding {
        /// Instance of the binding.
        pub instance: Name,
        /// Pool of the public address.
        pub pool: Name,
        /// Transport protocol of the binding.
        pub protocol: Protocol,
        /// Inside address; for a shared port, that of one of its flows.
        pub inside: IpAddr,
        /// Inside port or identifier.
        pub inside_port: u16,
        /// Public address of the binding.
        pub outside: Ipv4Addr,
        /// Public port or identifier.
        pub outside_port: u16,
        /// Current sessions of the binding, counted up to a limit.
        pub sessions: u32,
        /// True if there are more sessions than counted.
        pub more_sessions: bool,
        /// True if it is a static binding.
        pub configured: bool,
        /// True if several flows share the port.
        pub shared: bool,
    }

    /// A session: one flow of a binding.
    pub struct Session {
        /// Instance of the session.
        pub instance: Name,
        /// Transport protocol of the session.
        pub protocol: Protocol,
        /// Address of the inside host.
        pub inside: IpAddr,
        /// Inside port or identifier.
        pub inside_port: u16,
        /// Public address of the session.
        pub outside: Ipv4Addr,
        /// Public port or identifier.
        pub outside_port: u16,
        /// Address of the remote host, in IPv4.
        pub remote: Ipv4Addr,
        /// Remote port; 0 for ICMP.
        pub remote_port: u16,
        /// State of the TCP connection; `open` for other protocols.
        pub state: State,
        /// Milliseconds until it ends without traffic.
        pub expires_ms: u32,
        /// True if its binding is static.
        pub configured: bool,
        /// True if it shares its public port with other flows.
        pub shared: bool,
        /// True if the kernel or P4 switches translate its packets, or are about to.
        pub offloaded: bool,
    }

    /// Current holder of a public address and port.
    pub struct PortHolder {
        /// Outcome: a holder, none, or not known.
        pub outcome: Outcome,
        /// Reasons why the holder is not known, if it is not.
        pub unknown: Vec<String>,
        /// Address of the request.
        pub address: Ipv4Addr,
        /// Port of the request.
        pub port: u16,
        /// Pool of the address, if any.
        pub pool: Option<Name>,
        /// Blocks that contain the port.
        pub blocks: Vec<Block>,
        /// Bindings at the port.
        pub bindings: Vec<Binding>,
        /// Sessions of the port, up to a limit.
        pub sessions: Vec<Session>,
        /// True if there are more sessions.
        pub more_sessions: bool,
        /// Holders by the configuration alone, if no block or binding names one: the formula of a
        /// deterministic pool, or an address mapping.
        pub planned: Vec<Holder>,
    }

    /// Current public addresses and ports of an inside host.
    pub struct HostPorts {
        /// Address of the request.
        pub address: IpAddr,
        /// Subscribers that the address belongs to, in each instance.
        pub subscribers: Vec<Subscriber>,
        /// The subscriber's port blocks.
        pub blocks: Vec<Block>,
        /// The host's bindings, up to a limit.
        pub bindings: Vec<Binding>,
        /// True if there are more bindings.
        pub more_bindings: bool,
    }

    /// Key of a session.
    pub struct SessionKey {
        /// Name of its instance.
        pub instance: Name,
        /// Transport protocol of the session.
        pub protocol: Protocol,
        /// Address of the inside host.
        pub inside: IpAddr,
        /// Inside port or identifier.
        pub inside_port: u16,
        /// Address of the remote host, in IPv4.
        pub remote: Ipv4Addr,
        /// Remote port; 0 for ICMP.
        pub remote_port: u16,
    }

    /// List of sessions to end.
    pub struct SessionKeys {
        /// Sessions to end.
        pub sessions: Vec<SessionKey>,
    }

    /// Result of ending sessions and bindings.
    pub struct Cleared {
        /// Number of sessions ended.
        pub sessions: u64,
        /// Number of bindings ended with them.
        pub bindings: u64,
    }
}

impl SessionKey {
    /// Returns the key of a session.
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
