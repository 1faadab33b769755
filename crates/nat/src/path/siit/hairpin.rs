//! Intrinsic hairpins (RFC 7757 4.2.2): from one mapped IPv6 host to another through the other's IPv4 address
//! in pool6. Both translations happen here, one after the other, so the hop limit falls by 2.
//!
//! ```text
//!   A6 -> pool6:B4     --v6>v4-->  A4 -> B4     --v4>v6-->  pool6:A4 -> B6
//!                                                ^ source by pool6 although it is mapped: B6 answers there
//! ```
//! The source gets the prefix that the sender used for the destination. So if there are several prefixes, an
//! answer comes from the address that the sender used.
//!
//! All checks of the second half that can fail happen before the first half changes a byte.

use super::SiitState;
use super::addresses::{Mapped, MappingRule, PrefixIx};
use crate::base::plan::Hairpin;
use crate::base::step::Step;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::rfc7915::icmp_6to4::{self, Embedded6, OuterHeader};
use gatun_wire::rfc7915::{ZeroChecksum, four_to_six, icmp_4to6, six_to_four};
use gatun_wire::{DropReason, Ipv4View, Ipv6View, L4, Packet, Ports, Settings, To4, To6, Whole};

/// ICMP error to be hairpinned: the data for its first translation, and the prefixes for the second.
pub(super) struct ErrorTurn {
    pub(super) embedded: Embedded6,
    /// Header between both halves of the translation.
    pub(super) outer: OuterHeader,
    /// Addresses and ports for the quoted packet.
    pub(super) to: To4,
    /// The prefix that contains the outer destination.
    pub(super) prefix: PrefixIx,
    /// The prefix that contains the inner source.
    pub(super) inner_prefix: PrefixIx,
}

/// The lowest hop limit at which a packet survives two translations.
const HOP_LIMIT_MIN: u8 = 3;

impl SiitState {
    /// Returns the prefix of an address that was reached by the prefix although it is mapped: its packets are
    /// hairpinned here.
    #[inline]
    pub(super) fn turns_round(&self, a: &Mapped<Ipv4Addr>) -> Option<PrefixIx> {
        match a.via {
            MappingRule::Prefix(prefix)
                if self.hairpin == Hairpin::Intrinsic && self.addresses.eamt.covers_v4(a.address) =>
            {
                Some(prefix)
            }
            _ => None,
        }
    }

    #[cold]
    pub(super) fn hairpin_packet(
        &self,
        packet: &mut Packet<'_>,
        view: &Ipv6View,
        l4: L4,
        to: &To4,
        id: u16,
        prefix: PrefixIx,
    ) -> Result<Step, DropReason> {
        let (src, dst) = self.turned(to.src, to.dst, prefix)?;
        check_hop_limit(view)?;
        if matches!(l4, L4::Udp { no_checksum: true, .. })
            && self.settings.udp_zero_checksum == ZeroChecksum::Drop
        {
            return Err(DropReason::ZeroUdpChecksum);
        }
        let [first, second] = self.hairpin_settings();
        // A fragmentation that the first half asks for is left to the second half.
        let _ = six_to_four::translate(packet, view, l4, to, id, &first)?;
        Ok(match second_half(packet, to, (src, dst), &second) {
            Ok(whole) => Step::Forward { whole, hairpinned: true },
            Err(reason) => Step::Lost(reason),
        })
    }

    #[cold]
    pub(super) fn hairpin_error(
        &self,
        packet: &mut Packet<'_>,
        view: &Ipv6View,
        error: &ErrorTurn,
    ) -> Result<Step, DropReason> {
        let (src, dst) = self.turned(error.outer.src, error.outer.dst, error.prefix)?;
        // The quoted packet went the other way: its destination is embedded, its source mapped.
        let (inner_dst, inner_src) = self.turned(error.to.dst, error.to.src, error.inner_prefix)?;
        check_hop_limit(view)?;
        let [first, second] = self.hairpin_settings();
        let ErrorTurn { embedded, outer, to, .. } = error;
        icmp_6to4::translate(packet, view, embedded, *outer, to, &first)?;
        let inner = To6::new((to.src, to.dst), (inner_src, inner_dst), Ports::Keep);
        Ok(match second_half_of_error(packet, (src, dst), &inner, &second) {
            Ok(()) => Step::Forward { whole: Whole::Yes, hairpinned: true },
            Err(reason) => Step::Lost(reason),
        })
    }

    /// Returns the addresses after the second half: `by_prefix` embedded in the prefix, `mapped` by the
    /// table.
    fn turned(
        &self,
        by_prefix: Ipv4Addr,
        mapped: Ipv4Addr,
        prefix: PrefixIx,
    ) -> Result<(Ipv6Addr, Ipv6Addr), DropReason> {
        let by_prefix = self.addresses.embed(prefix, by_prefix)?;
        let mapped = self.addresses.to6(mapped, DropReason::NoEam)?;
        Ok((by_prefix.address, mapped.address))
    }

    /// Settings of the two halves. The packet never is on the IPv4 side, so only the IPv6 side's MTU counts.
    /// It is checked in the first half, where a refusal leaves the packet unchanged. A zero checksum of an
    /// IPv6 packet stays zero, as the sender wants it.
    fn hairpin_settings(&self) -> [Settings; 2] {
        let base = self.settings;
        let first = Settings {
            mtu4: base.mtu6.saturating_sub(20),
            icmp4_error_max: u16::MAX,
            tos_6to4: None,
            ..base
        };
        let second = Settings {
            lowest_ipv6_mtu: base.mtu6,
            udp_zero_checksum: ZeroChecksum::Forward,
            traffic_class_4to6: None,
            ..base
        };
        [first, second]
    }
}

fn check_hop_limit(view: &Ipv6View) -> Result<(), DropReason> {
    if view.hop_limit < HOP_LIMIT_MIN { Err(DropReason::TtlExceeded) } else { Ok(()) }
}

fn second_half(
    packet: &mut Packet<'_>,
    from: &To4,
    to: (Ipv6Addr, Ipv6Addr),
    settings: &Settings,
) -> Result<Whole, DropReason> {
    let view = Ipv4View::parse(packet.bytes())?;
    let l4 = view.l4(packet.bytes())?;
    let to = To6::new((from.src, from.dst), to, Ports::Keep);
    four_to_six::translate(packet, &view, l4, &to, settings)
}

fn second_half_of_error(
    packet: &mut Packet<'_>,
    addresses: (Ipv6Addr, Ipv6Addr),
    inner: &To6,
    settings: &Settings,
) -> Result<(), DropReason> {
    let view = Ipv4View::parse(packet.bytes())?;
    let embedded = icmp_4to6::embedded(packet.bytes(), &view)?;
    icmp_4to6::translate(packet, &view, &embedded, addresses, inner, settings)
}
