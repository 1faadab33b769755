//! Addresses of plain packets for the fast path: the look-up of the look-ahead, and the result if it leads to
//! one directly. All other packets, and those that are not forwarded, take the slow path, which decides the
//! same.

use super::SiitState;
use crate::base::plan::Hairpin;
use crate::base::special::{illegal_destination4, illegal_destination6, illegal_source4, illegal_source6};
use crate::tables::eamt::TagLookup;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::{Ports, To4, To6};

/// Places of a packet's two addresses in the mapping table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MappingLookups {
    src: TagLookup,
    dst: TagLookup,
}

/// Error: only the slow path can decide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NeedsSlowPath;

impl SiitState {
    /// Looks up an IPv6 packet's addresses as far as possible without waiting for memory, and prefetches the
    /// rest. Returns `Ok(None)` if the packet is not for this instance, `Err` if that cannot be decided so
    /// quickly.
    #[inline]
    pub(crate) fn look6(
        &self,
        src: Ipv6Addr,
        dst: Ipv6Addr,
    ) -> Result<Option<MappingLookups>, NeedsSlowPath> {
        let dst = match self.addresses.look6(dst) {
            TagLookup::ABSENT => return Ok(None),
            TagLookup::UNKNOWN => return Err(NeedsSlowPath),
            look => look,
        };
        Ok(Some(MappingLookups { src: self.addresses.look6(src), dst }))
    }

    /// Same as [`look6`](Self::look6), for an IPv4 packet.
    #[inline]
    pub(crate) fn look4(
        &self,
        src: Ipv4Addr,
        dst: Ipv4Addr,
    ) -> Result<Option<MappingLookups>, NeedsSlowPath> {
        let eamt = &self.addresses.eamt;
        let looks = MappingLookups { src: eamt.look4(src), dst: eamt.look4(dst) };
        match looks.dst {
            TagLookup::ABSENT if !self.addresses.has_first_prefix() => Ok(None),
            TagLookup::UNKNOWN => Err(NeedsSlowPath),
            _ => Ok(Some(looks)),
        }
    }

    /// Returns the new addresses of a plain IPv6 packet.
    #[inline(always)]
    pub(crate) fn plain6(&self, src: Ipv6Addr, dst: Ipv6Addr, looks: &MappingLookups) -> Option<To4> {
        if illegal_source6(src) || illegal_destination6(dst) {
            return None;
        }
        let (src4, _) = self.addresses.plain4(src, looks.src)?;
        let (dst4, by_mapping) = self.addresses.plain4(dst, looks.dst)?;
        // A packet by a prefix to a mapped address may have to be hairpinned (RFC 7757 4.2.2).
        let may_turn = self.hairpin == Hairpin::Intrinsic && !by_mapping;
        if illegal_source4(src4)
            || self.own.end_or_refuse(dst4)
            || may_turn && self.addresses.eamt.covers_v4(dst4)
        {
            return None;
        }
        Some(To4::new((src, dst), (src4, dst4), Ports::Keep))
    }

    /// Returns the new addresses of a plain IPv4 packet.
    #[inline(always)]
    pub(crate) fn plain4(&self, src: Ipv4Addr, dst: Ipv4Addr, looks: &MappingLookups) -> Option<To6> {
        if illegal_source4(src) || illegal_destination4(dst) || self.goes_long4 {
            return None;
        }
        let src6 = self.addresses.plain6(src, looks.src, |_| false)?;
        let dst6 = self.addresses.plain6(dst, looks.dst, |dst| self.own.may_contain(dst))?;
        Some(To6::new((src, dst), (src6, dst6), Ports::Keep))
    }
}
