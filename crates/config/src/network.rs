//! Networks of either family.

use crate::value::{self, Read};
use gatun_ether::Prefix;
use gatun_nat::plan::{Net4, Net6};
use std::fmt;
use toml::de::DeValue;

/// A network of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Network {
    /// IPv4.
    V4(Net4),
    /// IPv6.
    V6(Net6),
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Network::V4(net) => write!(f, "{}/{}", net.addr, net.len),
            Network::V6(net) => write!(f, "{}/{}", net.addr, net.len),
        }
    }
}

/// A network of either family.
pub(crate) fn network(value: &DeValue<'_>) -> Read<Network> {
    parse_network(value::text(value)?)
}

/// Parses a network of either family.
pub(crate) fn parse_network(s: &str) -> Read<Network> {
    match s.contains(':') {
        true => value::parse_net6(s).map(Network::V6),
        false => value::parse_net4(s).map(Network::V4),
    }
}

/// Converts a network for a host on an Ethernet.
pub(crate) fn prefix(network: Network) -> Prefix {
    match network {
        Network::V4(net) => Prefix { addr: net.addr.into(), len: net.len },
        Network::V6(net) => Prefix { addr: net.addr.into(), len: net.len },
    }
}
