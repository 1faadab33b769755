//! Packets to own addresses: those of the translator, or those of a pool that has the same address.

use super::Classifier;
use crate::base::plan::Transport;
use crate::path::own_address::{OwnAnswer, OwnPacket};
use crate::path::query::Query;
use crate::path::siit::SiitState;
use crate::tables::bib::PoolAddress;
use core::net::Ipv4Addr;
use gatun_wire::L4;

impl Classifier<'_, '_> {
    /// Returns the answer to a packet whose destination is, or represents, this IPv4 address; `None` if the
    /// packet is for a pool.
    #[cold]
    pub(super) fn own_answer(
        &self,
        packet: &OwnPacket,
        address: Ipv4Addr,
        from_inside: bool,
    ) -> Option<OwnAnswer> {
        let is_pools = match self.tables.locate(address) {
            Some(at) => self.is_pools(packet, at, from_inside),
            // Only the worker that has the address knows its bindings. It gets the packet as if from outside.
            None => self.rules.is_pooled(address) && !(from_inside && packet.is_request()),
        };
        (!is_pools).then(|| packet.answer())
    }

    /// Returns the answer to a packet to `own6` when `own6` is in no NAT64 instance's prefix; `None` if the
    /// packet is for a pool through a stateless instance.
    #[cold]
    pub(super) fn own6_answer(&self, packet: &OwnPacket) -> Option<OwnAnswer> {
        match self.rules.siit.iter().find_map(SiitState::own6_in_ipv4) {
            Some(address) => self.own_answer(packet, address, true),
            None => Some(packet.answer()),
        }
    }

    fn is_pools(&self, packet: &OwnPacket, at: PoolAddress, from_inside: bool) -> bool {
        let tables = self.tables;
        let binding = |q: Query| tables.binding_at(at, q.transport, q.dst_port).map(|id| tables.get(id));
        match (packet.l4, Query::of(packet.l4, from_inside)) {
            // A ping from inside does not have the identifier that it would have at another host's binding.
            _ if from_inside && packet.is_request() => false,
            (L4::Echo { request: true, .. }, Some(query)) if !packet.is_piece => {
                binding(query).is_some_and(|primary| primary.is_of_static())
            }
            // These have their own rules: the quoted packet decides on an error, the first fragment on later
            // ones.
            (_, None) => true,
            (_, Some(query)) if query.transport == Transport::Icmp => true,
            (_, Some(query)) => {
                let may_wait = !from_inside || query.transport == Transport::Tcp;
                binding(query).is_some() || may_wait && tables.covers(at, query.transport, query.dst_port)
            }
        }
    }
}
