//! Stateless translation (SIIT): RFC 7915 with the explicit mappings of RFC 7757.
//!
//! ```text
//!   6->4   source: EAM, else pool6            destination: EAM, else pool6 (longest prefix)
//!   4->6   destination: EAM, else pool6[0]    source: the same, except for simple hairpins
//!   ICMP errors: outer addresses as above, an outer source without translation from RFC 6791's pools;
//!                the quoted packet, address by address
//! ```
//! The legality of an address is checked before anything is rewritten. A refused packet keeps its bytes.
//! Fragments are handled as other packets: ports stay the same, so nothing about the first fragment has to be
//! known.

mod addresses;
mod fast_path;
mod hairpin;
mod own;
mod rfc6791;
#[cfg(test)]
mod tests;

use crate::base::build_error::BuildError;
use crate::base::plan::{self, Hairpin, Plan};
use crate::base::special::{illegal_destination4, illegal_destination6, illegal_source4, illegal_source6};
use crate::base::step::Step;
use crate::path::own_address::OwnPacket;
use crate::tables::eamt::{Eamt, EamtError};
use addresses::{Addresses, Mapped, MappingRule};
use alloc::format;
use alloc::sync::Arc;
use core::net::{Ipv4Addr, Ipv6Addr};
pub(crate) use fast_path::{MappingLookups, NeedsSlowPath};
use gatun_wire::rfc7915::icmp_6to4::{self, OuterHeader};
use gatun_wire::rfc7915::{four_to_six, icmp_4to6, six_to_four};
use gatun_wire::{DropReason, Ipv4View, Ipv6View, L4, Packet, Ports, Settings, To4, To6, Whole};
use own::OwnAddresses;
use rfc6791::ErrorSources;

/// Stateless instance. It has tables but no state: packets do not change it.
#[derive(Debug)]
pub struct SiitState {
    addresses: Addresses,
    error_sources: ErrorSources,
    own: OwnAddresses,
    /// True if every IPv4 packet takes the slow path.
    goes_long4: bool,
    hairpin: Hairpin,
    settings: Settings,
}

impl SiitState {
    /// Creates all instances of a plan.
    ///
    /// # Errors
    /// Same as [`SiitState::new`].
    pub fn all(plan: &Plan) -> Result<Arc<[SiitState]>, BuildError> {
        let ranges = || plan.pools.iter().flat_map(|pool| &pool.ranges);
        let is_pools = |a: Ipv4Addr| {
            let mut all = ranges().map(|range| (range.first, range.last)).chain(plan.pooled.iter().copied());
            all.any(|(first, last)| first <= a && a <= last)
        };
        let state = |siit: &plan::Siit| {
            let mut state = SiitState::new(siit, plan.own4, plan.own6)
                .map_err(|e| BuildError(format!("siit {:?}: {e}", siit.name)))?;
            state.own.leave(is_pools);
            Ok(state)
        };
        plan.siit.iter().map(state).collect()
    }

    /// Creates an instance. Packets to `own4` and `own6` end at the translator. These addresses are also the
    /// last resort as sources of forwarded ICMP errors.
    ///
    /// # Errors
    /// Returns an error if the mappings cannot form a table.
    pub fn new(plan: &plan::Siit, own4: Option<Ipv4Addr>, own6: Option<Ipv6Addr>) -> Result<Self, EamtError> {
        let addresses = Addresses::new(plan, Eamt::build(&plan.eamt)?);
        let own = OwnAddresses::new(&addresses, own4, own6);
        Ok(SiitState {
            addresses,
            goes_long4: plan.hairpin == Hairpin::Simple || own.is_mapped,
            own,
            error_sources: ErrorSources::new(plan, own4, own6),
            hairpin: plan.hairpin,
            settings: plan.settings,
        })
    }

    /// Returns whether a packet to this address is for this instance: in pool6, or mapped.
    #[inline]
    pub fn claims6(&self, dst: Ipv6Addr) -> bool {
        self.addresses.covers6(dst)
    }

    /// Returns whether a packet to this address is for this instance: mapped, or any address if there is a
    /// pool6.
    #[inline]
    pub fn claims4(&self, dst: Ipv4Addr) -> bool {
        self.addresses.covers4(dst)
    }

    /// Returns whether an explicit mapping covers this address. Such an instance has priority over one that
    /// claims the address only because it has a pool6.
    #[inline]
    pub fn maps4(&self, dst: Ipv4Addr) -> bool {
        self.addresses.eamt.covers_v4(dst)
    }

    /// Returns the IPv4 address that represents `own6` here.
    pub(crate) fn own6_in_ipv4(&self) -> Option<Ipv4Addr> {
        self.own.of6()
    }

    /// Settings of the header translation, as configured.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Translates an IPv6 packet in place. A hairpinned packet (RFC 7757 4.2.2) is an IPv6 packet again
    /// afterwards. `id` is for a packet that leaves without DF and had no identification.
    ///
    /// # Errors
    /// Returns the reason for the drop; the packet is unchanged then.
    pub fn six_to_four(
        &self,
        packet: &mut Packet<'_>,
        view: &Ipv6View,
        l4: L4,
        id: u16,
    ) -> Result<Step, DropReason> {
        if self.addresses.ipv4_of(view.dst).is_some_and(|dst| self.own.contains(dst.address)) {
            return OwnPacket::six(view, l4).answer().answer6(packet, view, l4);
        }
        if matches!(l4, L4::IcmpError { .. }) {
            return self.error_six_to_four(packet, view, id);
        }
        if illegal_source6(view.src) {
            return Err(DropReason::SourceMartian);
        }
        let src = self.addresses.to4(view.src, DropReason::NoEam)?;
        let dst = self.destination4(view)?;
        if illegal_source4(src.address) {
            return Err(DropReason::SourceMartian);
        }
        let to = To4::new((view.src, view.dst), (src.address, dst.address), Ports::Keep);
        if let Some(prefix) = self.turns_round(&dst) {
            return self.hairpin_packet(packet, view, l4, &to, id, prefix);
        }
        let whole = six_to_four::translate(packet, view, l4, &to, id, &self.settings)?;
        Ok(Step::Forward { whole, hairpinned: false })
    }

    /// Translates an IPv4 packet, in place.
    ///
    /// # Errors
    /// Returns the reason for the drop; the packet is unchanged then.
    pub fn four_to_six(&self, packet: &mut Packet<'_>, view: &Ipv4View, l4: L4) -> Result<Step, DropReason> {
        if self.own.contains(view.dst) {
            return OwnPacket::four(view, l4).answer().answer4(packet, view, l4);
        }
        if matches!(l4, L4::IcmpError { .. }) {
            return self.error_four_to_six(packet, view);
        }
        // RFC 7915 4.1 requires a silent drop.
        if illegal_source4(view.src) {
            return Err(DropReason::SourceMartian);
        }
        let dst = self.destination6(view)?;
        let src = self.source6(view.src, &dst)?;
        let to = To6::new((view.src, view.dst), (src.address, dst.address), Ports::Keep);
        let whole = four_to_six::translate(packet, view, l4, &to, &self.settings)?;
        Ok(Step::Forward { whole, hairpinned: false })
    }

    fn error_six_to_four(
        &self,
        packet: &mut Packet<'_>,
        view: &Ipv6View,
        id: u16,
    ) -> Result<Step, DropReason> {
        let embedded = icmp_6to4::embedded(packet.bytes(), view)?;
        let dst = self.destination4(view)?;
        let src = self.error_source4(view)?;
        let inner = &embedded.view;
        let untranslatable = DropReason::IcmpInnerUntranslatable;
        let inner_src = self.addresses.to4(inner.src, untranslatable)?;
        let inner_dst = self.addresses.to4(inner.dst, untranslatable)?;
        let to = To4::new((inner.src, inner.dst), (inner_src.address, inner_dst.address), Ports::Keep);
        let outer = OuterHeader { src, dst: dst.address, id };
        // RFC 7757 4.2.2: the quoted packet was hairpinned if its source was embedded in pool6 and is mapped.
        if let (Some(prefix), Some(inner_prefix)) = (self.turns_round(&dst), self.turns_round(&inner_src)) {
            let error = hairpin::ErrorTurn { embedded, outer, to, prefix, inner_prefix };
            return self.hairpin_error(packet, view, &error);
        }
        icmp_6to4::translate(packet, view, &embedded, outer, &to, &self.settings)?;
        Ok(Step::Forward { whole: Whole::Yes, hairpinned: false })
    }

    fn error_four_to_six(&self, packet: &mut Packet<'_>, view: &Ipv4View) -> Result<Step, DropReason> {
        let embedded = icmp_4to6::embedded(packet.bytes(), view)?;
        let dst = self.destination6(view)?;
        // An illegal source is translated (RFC 7915 4.1), because it helps to find the problem.
        let src = self.error_source6(view, &dst)?;
        let inner = &embedded.view;
        let untranslatable = DropReason::IcmpInnerUntranslatable;
        let inner_src = self.addresses.to6(inner.src, untranslatable)?;
        // RFC 7757 4.2.1: in an error, the hairpin has embedded the inner destination.
        let inner_dst = self.source6_for(inner.dst, &inner_src, untranslatable)?;
        let to = To6::new((inner.src, inner.dst), (inner_src.address, inner_dst.address), Ports::Keep);
        icmp_4to6::translate(packet, view, &embedded, (src, dst.address), &to, &self.settings)?;
        Ok(Step::Forward { whole: Whole::Yes, hairpinned: false })
    }

    #[inline]
    fn destination4(&self, view: &Ipv6View) -> Result<Mapped<Ipv4Addr>, DropReason> {
        if illegal_destination6(view.dst) {
            return Err(DropReason::DestinationMartian);
        }
        let dst = self.addresses.to4(view.dst, DropReason::DestinationNotPool6)?;
        if illegal_destination4(dst.address) {
            return Err(DropReason::DestinationMartian);
        }
        Ok(dst)
    }

    #[inline]
    fn destination6(&self, view: &Ipv4View) -> Result<Mapped<Ipv6Addr>, DropReason> {
        if illegal_destination4(view.dst) {
            return Err(DropReason::DestinationMartian);
        }
        self.addresses.to6(view.dst, DropReason::NotInPool)
    }

    #[inline]
    fn source6(&self, src: Ipv4Addr, dst: &Mapped<Ipv6Addr>) -> Result<Mapped<Ipv6Addr>, DropReason> {
        self.source6_for(src, dst, DropReason::NoEam)
    }

    /// Returns the IPv6 source of a packet whose destination is `dst`. For simple hairpins (RFC 7757 4.2.1):
    /// if both are mapped, the packet may be a hairpinned one that came back. Its receiver must answer to the
    /// address that it came through, so the source is embedded in pool6.
    #[inline]
    fn source6_for(
        &self,
        src: Ipv4Addr,
        dst: &Mapped<Ipv6Addr>,
        missing: DropReason,
    ) -> Result<Mapped<Ipv6Addr>, DropReason> {
        if self.hairpin == Hairpin::Simple && dst.via == MappingRule::Eam {
            return self.addresses.to6_by_prefix(src, missing);
        }
        self.addresses.to6(src, missing)
    }

    /// Returns the outer IPv4 source of an error: its own, or one of RFC 6791's. An error with 64:ff9b::/96
    /// and an address that is not global is dropped even so (RFC 6052 3.1), and so is one with a denied
    /// address.
    fn error_source4(&self, view: &Ipv6View) -> Result<Ipv4Addr, DropReason> {
        match self.addresses.to4(view.src, DropReason::NoEam) {
            Ok(src) if !illegal_source4(src.address) => Ok(src.address),
            Ok(_) | Err(DropReason::NoEam) => {
                self.error_sources.source4(view.src, view.hop_limit).ok_or(DropReason::NoEam)
            }
            Err(reason) => Err(reason),
        }
    }

    /// Returns the outer IPv6 source of an error: its own, or one of RFC 6791's kind. Under 64:ff9b::/96, a
    /// router with a private address counts as one without translation.
    fn error_source6(&self, view: &Ipv4View, dst: &Mapped<Ipv6Addr>) -> Result<Ipv6Addr, DropReason> {
        match self.source6(view.src, dst) {
            Ok(src) => Ok(src.address),
            Err(reason @ (DropReason::NoEam | DropReason::WellKnownNonGlobal)) => {
                self.error_sources.source6(view.src).ok_or(reason)
            }
            Err(reason) => Err(reason),
        }
    }
}
