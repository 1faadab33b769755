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

use crate::base::build_error::BuildError;
use crate::base::shards::{SHARDS_MAX, ShardSet};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use gatun_wire::vxlan::{self, Outer};
use gatun_wire::{DropReason, Packet};

/// Maximum number of nodes of a cluster.
pub const NODES_MAX: usize = 64;

/// Place where the packets of a shard are translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// This node.
    #[default]
    Here,
    /// Another node, by its index among the nodes of the [`Tunnel`].
    Node(u8),
    /// No node: the packets are dropped.
    Nowhere,
}

/// Node of a cluster at the end of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelNode {
    /// Name.
    pub name: Arc<str>,
    /// Tunnel address.
    pub address: IpAddr,
}

/// Tunnel between the nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    own: IpAddr,
    port: u16,
    vni: u32,
    mtu: u32,
    nodes: Vec<TunnelNode>,
}

impl Tunnel {
    /// Smallest MTU of the network between the nodes: an IPv6 packet of 1280 bytes fits the tunnel.
    pub const MTU_MIN: u32 = 1280 + vxlan::HEADERS_MAX as u32;
    /// Largest network identifier of realm 0: those of all other realms follow it.
    pub const VNI_MAX: u32 = vxlan::VNI_MAX - u8::MAX as u32;

    /// Creates a tunnel between `nodes`, whose addresses are of one family; `own` is the index of this node.
    /// All nodes have the UDP port. Packets of realm `n` have the `n`-th network identifier after `vni`.
    /// `mtu` is the size of the largest packet that the network between the nodes carries, with all headers.
    ///
    /// # Errors
    /// There is no such node, there are too many nodes, two have one address, or their families differ; the
    /// network identifier or the MTU is out of bounds.
    pub fn new(
        own: usize,
        nodes: Vec<TunnelNode>,
        port: u16,
        vni: u32,
        mtu: u32,
    ) -> Result<Tunnel, BuildError> {
        let refused = |why| Err(BuildError(why));
        let count = nodes.len();
        let Some(own) = nodes.get(own).map(|node| node.address).filter(|_| count <= NODES_MAX) else {
            return refused(format!("node {own} of {count}: a cluster has at most {NODES_MAX} nodes"));
        };
        let addresses = || nodes.iter().map(|node| node.address);
        if let Some(other) = addresses().find(|other| other.is_ipv4() != own.is_ipv4()) {
            return refused(format!("the tunnel addresses {own} and {other} are of two families"));
        }
        let is_twice = |(n, address): &(usize, IpAddr)| addresses().take(*n).any(|other| other == *address);
        if let Some((_, address)) = addresses().enumerate().find(is_twice) {
            return refused(format!("two nodes have the tunnel address {address}"));
        }
        if vni > Self::VNI_MAX {
            return refused(format!("network identifier {vni}: expected 0 to {}", Self::VNI_MAX));
        }
        if !(Self::MTU_MIN..=u32::from(u16::MAX)).contains(&mtu) {
            return refused(format!("MTU {mtu} of the tunnel: expected {} to {}", Self::MTU_MIN, u16::MAX));
        }
        Ok(Tunnel { own, port, vni, mtu, nodes })
    }

    /// Tunnel address of this node.
    pub fn own(&self) -> IpAddr {
        self.own
    }

    /// Nodes, this one included.
    pub fn nodes(&self) -> &[TunnelNode] {
        &self.nodes
    }

    /// Name of a node, by its index.
    pub fn name(&self, node: u8) -> Option<&Arc<str>> {
        self.nodes.get(usize::from(node)).map(|node| &node.name)
    }

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
        let to = self.nodes.get(usize::from(node))?.address;
        Some(Outer { ends: (self.own, to), port: self.port, vni: self.vni + u32::from(realm) })
    }

    /// Takes the outer headers off a packet that another node has sent. Returns the packet's realm, which is
    /// at most `realm_max`.
    ///
    /// # Errors
    /// Returns the reason why the packet is none of another node. The sender is checked before anything else,
    /// because everybody can send to this port.
    pub(crate) fn take_out(&self, packet: &mut Packet<'_>, realm_max: u8) -> Result<u8, DropReason> {
        let is_node = |sender| sender != self.own && self.nodes.iter().any(|node| node.address == sender);
        if !vxlan::sender(packet.bytes()).is_some_and(is_node) {
            return Err(DropReason::TunnelSource);
        }
        let realm = vxlan::decapsulate(packet)?.checked_sub(self.vni).and_then(|n| u8::try_from(n).ok());
        realm.filter(|realm| *realm <= realm_max).ok_or(DropReason::TunnelVni)
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

    /// Name of the node that translates a shard, if it is another one.
    pub fn node(&self, shard: u8) -> Option<&Arc<str>> {
        match self.place(shard) {
            Place::Node(node) => self.tunnel.name(node),
            Place::Here | Place::Nowhere => None,
        }
    }

    /// Shards whose packets are not translated here, unless the tunnel brings them.
    pub fn elsewhere(&self) -> ShardSet {
        (0..=u8::MAX).filter(|shard| self.place(*shard) != Place::Here).collect()
    }

    /// Returns whether a packet comes by the tunnel. The network between the nodes is that of realm 0.
    #[inline]
    pub fn is_by_tunnel(&self, packet: &Packet<'_>) -> bool {
        packet.realm == 0 && vxlan::is_to(packet.bytes(), self.tunnel.own, self.tunnel.port)
    }
}
