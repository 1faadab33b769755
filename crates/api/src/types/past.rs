//! Holders of a public port at a past time, from the log.

use super::{Name, Protocol};
use crate::schema::{structs, words};
use std::net::{IpAddr, Ipv4Addr};

words! {
    /// Outcome of the question who has, or had, a public port.
    pub enum Outcome {
        /// The port has a holder.
        Who = "who",
        /// Proven: nobody has the port.
        Nobody = "nobody",
        /// The holder is not known.
        Unknown = "unknown",
    }

    /// Evidence for a holder.
    pub enum Evidence {
        /// A record of a port block.
        Block = "block",
        /// A record of a binding.
        Binding = "binding",
        /// The configuration alone: a static binding, or the formula of deterministic ports.
        Configuration = "configuration",
        /// An address mapping (SIIT).
        Mapping = "mapping",
    }
}

structs! {
    /// Holders of a public address and port at a time, by the log.
    pub struct PastHolders {
        /// Outcome: a holder, none, or not known.
        pub outcome: Outcome,
        /// Reasons why the log cannot answer, or not completely.
        pub unknown: Vec<String>,
        /// Address of the question.
        pub address: Ipv4Addr,
        /// Port of the question.
        pub port: u16,
        /// Time of the question, RFC 3339; it covers `precision_ms`.
        pub at: String,
        /// Precision of that time, milliseconds.
        pub precision_ms: u64,
        /// The configuration in force then.
        pub configuration: Option<PastConfiguration>,
        /// The pool of the address, by that configuration.
        pub pool: Option<Name>,
        /// Holders of the port; several if protocols differ, or the time is not precise enough.
        pub holders: Vec<Holder>,
        /// Holders that got or released the port within a minute of the time.
        pub near: Vec<Holder>,
        /// Doubts about the answer.
        pub caveats: Vec<String>,
    }

    /// A configuration that was in force.
    pub struct PastConfiguration {
        /// SHA-256 of its text.
        pub hash: String,
        /// Its first moment, RFC 3339.
        pub since: String,
    }

    /// Holder of a public port for a time.
    pub struct Holder {
        /// Evidence for this holder.
        pub by: Evidence,
        /// Protocols for which it had the ports.
        pub protocols: Vec<Protocol>,
        /// Instance of the holder; none if the record does not name it.
        pub instance: Option<Name>,
        /// Pool of the public address; none for an address mapping.
        pub pool: Option<Name>,
        /// Prefix of the subscriber; none for a binding of one host.
        pub subscriber: Option<String>,
        /// Inside address of a binding or mapping.
        pub inside: Option<IpAddr>,
        /// Inside port of a binding; for a mapping, the public one.
        pub inside_port: Option<u16>,
        /// First public port.
        pub first_port: u16,
        /// Last public port.
        pub last_port: u16,
        /// Time when it got the ports, RFC 3339; none if that was before the log or the record was lost.
        pub from: Option<String>,
        /// Time when it released the ports, RFC 3339; none if there is no record of that.
        pub to: Option<String>,
        /// Bounds of that time in words, if there is no record of it.
        pub end: Option<String>,
        /// True if it had the port for the whole time of the question.
        pub certain: bool,
    }
}
