//! Interface of a cluster's node to the engine: packets on their way to and from other nodes.

use super::Nat;
use crate::base::redirect::Tunnel;
use crate::base::shards::ShardSet;
use crate::base::time::Instant;
use crate::base::verdict::Verdict;
use crate::path::redirect;
use gatun_wire::{DropReason, Packet};

/// Node of a cluster.
impl Nat {
    /// Sets the shards that other nodes translate: a packet from inside to their public addresses does not
    /// return to the inside here.
    pub fn set_elsewhere(&mut self, shards: ShardSet) {
        self.core.state.tables.standby.elsewhere = shards;
    }

    /// Puts outer headers before a packet that another node translates, and counts it. The buffer holds the
    /// packet to be sent, or an ICMP error. Send emitted packets after each call: there is room for those of
    /// one packet.
    pub fn redirect(&mut self, now: Instant, packet: &mut Packet<'_>, tunnel: &Tunnel, node: u8) -> Verdict {
        let now = self.at(now);
        redirect::redirect(&mut self.core, now, packet, tunnel, node)
    }

    /// Takes the outer headers off a packet to the own tunnel address and port. Then it is a packet as any
    /// other, of the realm that its sender gave it.
    ///
    /// # Errors
    /// Returns the verdict on a packet that is none of another node. It is counted.
    pub fn receive_redirected(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        tunnel: &Tunnel,
    ) -> Result<(), Verdict> {
        self.at(now);
        redirect::receive(&mut self.core, packet, tunnel)
    }

    /// Drops a received packet for a reason that the caller has found, and counts it.
    pub fn refuse(&mut self, now: Instant, packet: &Packet<'_>, reason: DropReason) -> Verdict {
        self.at(now);
        redirect::drop_silently(&mut self.core, packet.len(), packet, reason)
    }
}
