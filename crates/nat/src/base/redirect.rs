//! Redirection of packets to the node of a cluster that translates them (decision 0108).
//!
//! A packet from inside belongs to the shard of its subscriber, and one from outside to the shard of its
//! public address. If another node translates the shard, the packet goes there in a [`vxlan`] tunnel:
//!
//! ```text
//!   packet -> its shard -> place --Here-----> engine
//!                                --Node(n)--> one hop less, outer headers, out of the device
//!   packet to the own tunnel address -> outer headers off -> its shard is held here? -> engine
//! ```
//! A packet is redirected once: one that arrives by the tunnel is translated here, or dropped.

use crate::base::shards::{SHARDS_MAX, ShardSet};
use alloc::vec::Vec;
use core::net::IpAddr;
use gatun_wire::vxlan::{self, Outer};

/// Place where the packets of a shard are translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// This node.
    #[default]
    Here,
    /// Another node, by its index among [`Tunnel::nodes`].
    Node(u8),
    /// No node: the packets are dropped.
    Nowhere,
}

/// Tunnel between the nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Tunnel address of this node.
    pub own: IpAddr,
    /// UDP port of all nodes.
    pub port: u16,
    /// Network identifier of packets of realm 0. Those of realm `n` have the `n`-th identifier after it.
    pub vni: u32,
    /// Largest packet that the network between the nodes carries, with all headers.
    pub mtu: u32,
    /// Tunnel addresses of all nodes, of the family of the own one.
    pub nodes: Vec<IpAddr>,
}

impl Tunnel {
    /// Smallest MTU of the network between the nodes: an IPv6 packet of 1280 bytes fits the tunnel.
    pub const MTU_MIN: u32 = 1280 + vxlan::HEADERS_MAX as u32;

    /// Length in bytes of all outer headers.
    pub fn overhead(&self) -> u32 {
        vxlan::headers_len(self.own.is_ipv6()) as u32
    }

    /// Largest packet that fits the tunnel.
    pub fn inner_mtu(&self) -> u32 {
        self.mtu.saturating_sub(self.overhead())
    }

    /// Outer header of packets of a realm to a node; `None` if there is no such node.
    pub(crate) fn outer(&self, node: u8, realm: u8) -> Option<Outer> {
        let to = *self.nodes.get(usize::from(node))?;
        Some(Outer { ends: (self.own, to), port: self.port, vni: self.vni + u32::from(realm) })
    }

    /// Realm of packets with a network identifier.
    pub(crate) fn realm_of(&self, vni: u32) -> Option<u8> {
        u8::try_from(vni.checked_sub(self.vni)?).ok()
    }

    /// Returns whether an address is the tunnel address of another node.
    pub(crate) fn has_node(&self, address: IpAddr) -> bool {
        address != self.own && self.nodes.contains(&address)
    }
}

/// Places of all shards. All workers of a node have the same ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirection {
    /// Place of each shard, for packets that do not come by the tunnel.
    pub places: [Place; SHARDS_MAX],
    /// Shards that this node has, as the owner or as the backup: it translates what the tunnel brings.
    pub held: ShardSet,
    /// Tunnel.
    pub tunnel: Tunnel,
}

impl Redirection {
    /// Place of a shard.
    #[inline]
    pub fn place(&self, shard: u8) -> Place {
        self.places.get(usize::from(shard)).copied().unwrap_or(Place::Nowhere)
    }

    /// Shards whose packets are not translated here, unless the tunnel brings them.
    pub fn elsewhere(&self) -> ShardSet {
        (0..=u8::MAX).filter(|shard| self.place(*shard) != Place::Here).collect()
    }

    /// Returns whether a packet comes by the tunnel.
    #[inline]
    pub fn is_by_tunnel(&self, packet: &[u8]) -> bool {
        vxlan::is_to(packet, self.tunnel.own, self.tunnel.port)
    }
}
