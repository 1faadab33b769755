//! Types of requests and answers. Addresses are strings, times have the unit at the end of their names, other
//! numbers are counts: of packets, of bytes from the IP header on, of sessions, ports and so on, since the
//! start unless stated otherwise.

mod cluster;
mod config;
mod fastpath;
mod health;
mod holders;
mod logging;
mod offload;
mod packets;
mod past;
mod peer;
mod running;
mod translator;

use crate::schema::{Schema, words};
pub use cluster::*;
pub use config::*;
pub use fastpath::*;
pub use health::*;
pub use holders::*;
pub use logging::*;
pub use offload::*;
pub use packets::*;
pub use past::*;
pub use peer::*;
pub use running::*;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::fmt;
use std::sync::Arc;
pub use translator::*;

/// Name given by an operator. Clones are cheap: a million sessions share one.
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
        /// ICMP echo: an identifier takes the place of the port.
        Icmp = "icmp",
    }

    /// Kind of translation.
    pub enum Kind {
        /// Stateful, IPv6 inside (RFC 6146).
        Nat64 = "nat64",
        /// Stateful, private IPv4 inside.
        Nat44 = "nat44",
        /// Stateless (RFC 7915).
        Siit = "siit",
    }

    /// Outcome of a packet.
    pub enum Fate {
        /// Translated and sent on.
        Forwarded = "forwarded",
        /// Dropped; `answer` tells if an ICMP error is sent.
        Dropped = "dropped",
        /// Passed on unchanged: not for the translator.
        Passed = "passed",
        /// A ping to Gatun itself, answered.
        Echo = "echo",
        /// A SYN from outside that waits six seconds for the inside host to open the connection.
        Held = "held",
        /// Sent to the node of the cluster that translates it.
        Redirected = "redirected",
        /// The outcome cannot be predicted.
        Unknown = "unknown",
    }

    /// Source of the public port of a new session.
    pub enum PortFrom {
        /// The existing binding of its inside endpoint.
        Binding = "binding",
        /// A public port shared by several flows.
        SharedPort = "shared_port",
        /// Any free port of the public address.
        Address = "address",
        /// The subscriber's own block, by formula.
        OwnBlock = "own_block",
        /// A block that the subscriber has.
        Block = "block",
        /// A new block for the subscriber.
        NewBlock = "new_block",
        /// The destination port of a SYN of the remote host that is held.
        HeldSyn = "held_syn",
    }

    /// State of a session: for TCP that of RFC 6146 3.5.2, for others always `open`.
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

/// A page of a long list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    /// Entries of the page.
    pub items: Vec<T>,
    /// Position of the next page; none on the last page.
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
                    "description": "Position of the next page, for `cursor`; null on the last page.",
                },
            },
            "required": ["items", "next"],
        })
    }

    fn define(definitions: &mut Map<String, Value>) {
        T::define(definitions);
    }
}

/// Columns of a type in a flat table, each the path of a field, in the order of the fields.
pub fn columns<T: Schema>() -> Vec<Vec<&'static str>> {
    let mut columns = Vec::new();
    T::columns(&[], &mut columns);
    columns
}
