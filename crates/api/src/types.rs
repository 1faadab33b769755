//! What is asked and answered. Addresses are strings, times in the unit that the name ends with, all else are counts:
//! of packets, of bytes from the IP header on, of sessions, ports and so on, since the start where nothing else is said.

use crate::schema::{Fields, Schema, structs, words};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// What an operator calls something. Clones are cheap: a million sessions have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(pub Arc<str>);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|name| Name(name.into()))
    }
}

impl Schema for Name {
    fn reference() -> Value {
        json!({ "type": "string" })
    }

    fn define(_: &mut Map<String, Value>) {}
}

words! {
    /// A transport protocol.
    pub enum Protocol {
        /// TCP.
        Tcp = "tcp",
        /// UDP.
        Udp = "udp",
        /// ICMP echo: an identifier stands in the place of the port.
        Icmp = "icmp",
    }

    /// What an instance does.
    pub enum Kind {
        /// Stateful, IPv6 inside (RFC 6146).
        Nat64 = "nat64",
        /// Stateful, private IPv4 inside.
        Nat44 = "nat44",
        /// Stateless (RFC 7915).
        Siit = "siit",
    }

    /// What would become of a packet.
    pub enum Fate {
        /// Translated and sent on.
        Forwarded = "forwarded",
        /// Dropped; `answer` says whether somebody is told.
        Dropped = "dropped",
        /// Left as it is: not for the translator.
        Passed = "passed",
        /// A ping to Gatun itself, answered.
        Echo = "echo",
        /// A SYN from outside that waits six seconds for the inside host to open the connection.
        Held = "held",
        /// It cannot be told before.
        Unknown = "unknown",
    }

    /// Where the public port of a new session comes from.
    pub enum PortFrom {
        /// The binding that its inside end has already.
        Binding = "binding",
        /// A public port that several flows share.
        SharedPort = "shared_port",
        /// Any free port of the public address.
        Address = "address",
        /// The subscriber's own block, which a formula gives it.
        OwnBlock = "own_block",
        /// A block that the subscriber has been given.
        Block = "block",
        /// A block that the subscriber would be given.
        NewBlock = "new_block",
        /// The port that a waiting SYN of the remote host was sent to.
        HeldSyn = "held_syn",
    }

    /// State of a session: of TCP that of RFC 6146 3.5.2, of others always `open`.
    pub enum State {
        /// UDP or ICMP.
        Open = "open",
        /// A SYN came from outside.
        V4Init = "v4_init",
        /// A SYN came from inside.
        V6Init = "v6_init",
        /// SYNs came from both sides.
        Established = "established",
        /// A FIN came from outside.
        V4FinRcv = "v4_fin_rcv",
        /// A FIN came from inside.
        V6FinRcv = "v6_fin_rcv",
        /// FINs came from both sides.
        V4FinV6FinRcv = "v4_fin_v6_fin_rcv",
        /// A reset came, or a probe was sent.
        Trans = "trans",
    }
}

structs! {
    /// Packets and their bytes.
    pub struct Count {
        /// Packets. A super-packet is one.
        pub packets: u64,
        /// Bytes, as received, from the IP header on.
        pub bytes: u64,
    }

    /// The daemon at a glance.
    pub struct Status {
        /// Version of the daemon.
        pub version: String,
        /// Its process number.
        pub pid: u32,
        /// Seconds since it began to translate.
        pub uptime_seconds: u64,
        /// The configuration file.
        pub config_file: String,
        /// Workers.
        pub workers: u32,
        /// Workers that did not answer in time: what is told lacks theirs.
        pub workers_silent: u32,
        /// Sessions there are.
        pub sessions: u64,
        /// Bindings there are, those of the configuration too.
        pub bindings: u64,
        /// Subscribers with state.
        pub subscribers: u64,
        /// Packets received.
        pub received: Count,
        /// Packets translated and sent on.
        pub forwarded: Count,
        /// Packets answered.
        pub answered: Count,
        /// Packets that are not for the translator.
        pub passed: Count,
        /// Packets dropped without an answer.
        pub dropped: Count,
        /// Packets held at this moment.
        pub held: u64,
        /// Whether every packet received is accounted for.
        pub adds_up: bool,
    }

    /// A port of the configuration.
    pub struct Port {
        /// What the operator calls it.
        pub name: String,
        /// Where its packets come from: tun, xdp or dpdk.
        pub backend: String,
        /// The device's name in the system.
        pub device: String,
        /// Queues, each served by a worker.
        pub queues: u32,
        /// The largest packet in bytes; none where it is the device's own.
        pub mtu: Option<u32>,
        /// Addresses of the configuration.
        pub addresses: Vec<String>,
    }

    /// A count with a name.
    pub struct Counter {
        /// Its name.
        pub name: String,
        /// The count.
        pub value: u64,
        /// What is counted.
        pub help: String,
    }

    /// A worker: one thread, one share of the state.
    pub struct Worker {
        /// Its number, from 0.
        pub number: u32,
        /// What it receives from.
        pub device: String,
        /// Whether it answered in time; if not, all else is zero.
        pub answers: bool,
        /// Packets received from its device.
        pub received: Count,
        /// Packets translated and sent on.
        pub forwarded: Count,
        /// Packets dropped without an answer.
        pub dropped: Count,
        /// Bursts received.
        pub bursts: u64,
        /// Times that it went to sleep for want of packets.
        pub idle_waits: u64,
        /// Packets handed to the worker that has their session, as received.
        pub handed_before: u64,
        /// Packets handed to another worker behind translation.
        pub handed_after: u64,
        /// Packets lost on such a way, as the other worker did not keep up.
        pub handed_lost: u64,
        /// Sessions there are.
        pub sessions: u64,
        /// Subscribers with state.
        pub subscribers: u64,
        /// What its device could not receive or send, and what else it counts; without zeros.
        pub device_counters: Vec<Counter>,
    }

    /// Things that come and go.
    pub struct Lived {
        /// How many there are.
        pub now: u64,
        /// How many there have been.
        pub begun: u64,
    }

    /// Sessions and bindings of one protocol.
    pub struct Lives {
        /// Sessions.
        pub sessions: Lived,
        /// Bindings.
        pub bindings: Lived,
    }

    /// An instance: one section of the configuration.
    pub struct Instance {
        /// What it does.
        pub kind: Kind,
        /// What the operator calls it.
        pub name: Name,
        /// Packets from inside, of a stateless one from IPv6, translated and sent on.
        pub outbound: Count,
        /// Packets the other way.
        pub inbound: Count,
        /// Of the outbound ones: turned round, to an inside host.
        pub hairpinned: Count,
        /// Packets not forwarded, answered with an error or not.
        pub dropped: Count,
        /// State of TCP.
        pub tcp: Lives,
        /// State of UDP.
        pub udp: Lives,
        /// State of ICMP.
        pub icmp: Lives,
        /// Subscribers with state.
        pub subscribers: u64,
        /// Why packets were not forwarded, without zeros.
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
        /// What the operator calls it.
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
    }

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

    /// Packets that were not forwarded for one reason.
    pub struct Drop {
        /// The reason's name.
        pub reason: String,
        /// What it means.
        pub help: String,
        /// From IPv6 to IPv4.
        pub six_to_four: Count,
        /// From IPv4 to IPv6.
        pub four_to_six: Count,
        /// From IPv4 to IPv4.
        pub four_to_four: Count,
    }

    /// The configuration that runs.
    pub struct Config {
        /// The file that it was read from.
        pub file: String,
        /// What stood there when it was read.
        pub text: String,
    }

    /// Who is behind a public address and port, at this moment.
    pub struct Who {
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
    }

    /// Where an inside host is seen from outside, at this moment.
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
        /// Which.
        pub sessions: Vec<SessionKey>,
    }

    /// What was ended.
    pub struct Cleared {
        /// Sessions.
        pub sessions: u64,
        /// Bindings that went with them.
        pub bindings: u64,
    }

    /// An ICMP error.
    pub struct IcmpError {
        /// Type: of ICMPv6 for an IPv6 packet, else of ICMP.
        pub kind: u8,
        /// Code.
        pub code: u8,
        /// The MTU that it tells, bytes.
        pub mtu: Option<u32>,
    }

    /// What a subscriber has, beside what it may have.
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

    /// What a new session would go through.
    pub struct Opening {
        /// Where its public port comes from.
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

    /// What would become of a packet at this moment, and why. Nothing was changed to find out.
    pub struct Explanation {
        /// The packet.
        pub packet: Ends,
        /// What would become of it.
        pub fate: Fate,
        /// The packet as it would leave.
        pub becomes: Option<Ends>,
        /// Why it is dropped: the reason's name, as in drops.
        pub reason: Option<String>,
        /// What that means.
        pub help: Option<String>,
        /// What is said of it in an RFC, or in the configuration's reference.
        pub rule: Option<String>,
        /// The ICMP error that its sender would get, as far as the limit of errors allows.
        pub answer: Option<IcmpError>,
        /// The instance that it is for.
        pub instance: Option<Name>,
        /// What that does.
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
        /// What a new session would go through.
        pub opening: Option<Opening>,
        /// Whether it would be turned round, to an inside host.
        pub hairpinned: bool,
        /// The largest packet of this flow that passes in one piece, bytes.
        pub mtu: Option<u32>,
        /// What its path carries, where a router has said so little that IPv6 hosts send more.
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
        /// What became of it.
        pub fate: Fate,
        /// Why it was dropped.
        pub reason: Option<String>,
        /// What that means.
        pub help: Option<String>,
        /// Whether its sender was answered, with an ICMP error or an echo reply: `after` is the answer.
        pub answered: bool,
        /// The instance that it was for.
        pub instance: Option<Name>,
        /// Its ends; none where it is no whole TCP, UDP or ping.
        pub packet: Option<Ends>,
        /// The ends of what was sent for it.
        pub becomes: Option<Ends>,
        /// What was known of it before it went through the engine, in sentences.
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

    /// Addresses that were drained, or are no longer.
    pub struct Drained {
        /// How many changed.
        pub addresses: u64,
    }

    /// Why a request was not done.
    pub struct Problem {
        /// What is wrong.
        pub error: String,
        /// What to do about it.
        pub hint: String,
    }
}

/// A part of a list that may be long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page<T> {
    /// Some of it.
    pub items: Vec<T>,
    /// Where the next part begins; none where this is the last.
    pub next: Option<String>,
}

impl<T: Schema> Schema for Page<T> {
    fn reference() -> Value {
        json!({
            "type": "object",
            "properties": {
                "items": Vec::<T>::reference(),
                "next": {
                    "type": ["string", "null"],
                    "description": "Where the next part begins: give it as `cursor`. None where this is the last.",
                },
            },
            "required": ["items", "next"],
            "additionalProperties": false,
        })
    }

    fn define(definitions: &mut Map<String, Value>) {
        T::define(definitions);
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

/// Names of a type's fields, in order.
pub fn field_names<T: Fields>() -> impl Iterator<Item = &'static str> {
    T::FIELDS.iter().map(|(name, _)| *name)
}
