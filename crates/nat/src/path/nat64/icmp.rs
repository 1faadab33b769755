//! ICMP errors (RFC 6146 3.4, 3.5.3, 3.6; RFC 5508 4): found by the packet inside them. They change no
//! state and extend no life.

use super::{From6, Nat64};
use crate::base::plan::IcmpErrorSource;
use crate::base::special;
use crate::base::step::Step;
use crate::base::tally::Tally;
use crate::path::shared::Shared;
use crate::path::stateful::hairpin::inner_settings;
use crate::path::stateful::icmp::{receiver, sender_port, turn};
use crate::path::stateful::inbound::FromOutside;
use crate::path::stateful::{Instances, Query, query};
use crate::tables::session::{Endpoint4, RecordId};
use core::net::Ipv4Addr;
use gatun_wire::rfc7915::{icmp_4to6, icmp_6to4};
use gatun_wire::{DropReason, L4, Packet, To4, To6, Whole, proto};

/// An error from inside, about a packet from outside.
pub(crate) fn six_to_four(
    nats: Instances<'_>,
    sh: &mut Shared,
    packet: &mut Packet<'_>,
    from: &From6,
) -> Result<Step, DropReason> {
    let nat = nats.nat64(from.instance).ok_or(DropReason::IcmpErrorNoState)?;
    nat.check_origin(from.view.src)?;
    let embedded = icmp_6to4::embedded(packet.bytes(), &from.view)?;
    // Inside it is a packet that we sent: from a prefix to the inside host.
    let about = embedded.view;
    let pool6 = nat.prefix_of(about.src).ok_or(DropReason::IcmpInnerUntranslatable)?;
    let remote = nat.prefix(pool6).extract_unchecked(about.src);
    let query = Query::of(embedded.l4, false).ok_or(DropReason::IcmpErrorNoState)?;
    let inside = super::inside_of(nat, about.dst, query.dst_port, query.transport);
    let outside = sh.tables.outside_of(&inside, (remote, query.src_port));
    let outside = outside.ok_or(DropReason::IcmpErrorNoState)?;
    let ports = query::ports(query.transport, query.src_port, outside.1, outside.1);
    let inner = To4::new((about.src, about.dst), (remote, outside.0), ports);
    let dst = nat.prefix(from.pool6).extract_unchecked(from.view.dst);
    // An error goes to whoever sent what it is about (RFC 4443 2.2).
    if dst != remote {
        return Err(DropReason::IcmpErrorNoState);
    }
    let settings = &nat.settings;
    let id = sh.idents.next(u64::from(u32::from(dst)) << 32);
    let Some(place) = sh.tables.locate(dst) else {
        icmp_6to4::translate(packet, &from.view, &embedded, (outside.0, dst), &inner, id, settings)?;
        return Ok(Step::forward(Whole::Yes));
    };
    // RFC 6146 3.8, RFC 5508 REQ-7: the sender is inside too. All that can fail is looked up first.
    if from.view.hop_limit <= 2 {
        return Err(DropReason::TtlExceeded);
    }
    let sender = (place, sender_port(&query, outside));
    let back = receiver(nats, sh, sender, query.transport, outside)?;
    let settings = inner_settings(settings);
    icmp_6to4::translate(packet, &from.view, &embedded, (outside.0, dst), &inner, id, &settings)?;
    Ok(match turn(packet, &back) {
        Ok(()) => Step::Forward { whole: Whole::Yes, hairpinned: true },
        Err(reason) => Step::Lost(reason),
    })
}

/// An error from outside, about a packet from inside.
pub(crate) fn four_to_six(
    nats: Instances<'_>,
    sh: &mut Shared,
    packet: &mut Packet<'_>,
    from: &FromOutside,
) -> Result<Step, DropReason> {
    let embedded = icmp_4to6::embedded(packet.bytes(), &from.view)?;
    // Inside it is a packet that we sent: from a pool address to the remote host.
    let about = embedded.view;
    let query = Query::of(embedded.l4, true).ok_or(DropReason::IcmpErrorNoState)?;
    // An error goes to whoever sent what it is about (RFC 792).
    if from.view.dst != about.src {
        return Err(DropReason::IcmpErrorNoState);
    }
    let place = sh.tables.locate(about.src).ok_or(DropReason::IcmpErrorNoState)?;
    let remote = (about.dst, query.dst_port);
    let primary = sh.tables.binding_at(place, query.transport, query.src_port);
    let primary =
        primary.and_then(|id| sh.tables.owner_at(id, remote)).ok_or(DropReason::IcmpErrorNoState)?;
    let p = sh.tables.get(primary);
    let nat = nats.nat64(p.instance).ok_or(DropReason::IcmpErrorNoState)?;
    sh.tally.is_to(Tally::stateful(p.instance));
    let pool6 = prefix_towards(nat, sh, primary, remote)?;
    let prefix = nat.prefix(pool6);
    let remote6 = prefix.embed(about.dst);
    let ports = query::ports(query.transport, p.inside_port(), query.dst_port, p.inside_port());
    let inner = To6::new((about.src, about.dst), (p.inside_addr(), remote6), ports);
    let src = match nat.icmp_error_source {
        IcmpErrorSource::Router if nat.can_stand_for(pool6, from.view.src) => prefix.embed(from.view.src),
        _ => remote6,
    };
    let outer = (src, p.inside_addr());
    icmp_4to6::translate(packet, &from.view, &embedded, outer, &inner, &nat.settings)?;
    packet.realm = nat.policy.realm;
    Ok(Step::forward(Whole::Yes))
}

/// The prefix that a binding's inside host uses towards `remote`, or one that may stand for it.
///
/// # Errors
/// `wkp_nonglobal`.
pub(crate) fn prefix_towards(
    nat: &Nat64,
    sh: &Shared,
    primary: RecordId,
    remote: Endpoint4,
) -> Result<u8, DropReason> {
    match sh.tables.session_of_binding(primary, remote) {
        Some(id) => Ok(sh.tables.get(id).pool6),
        None => nat.prefix_for(sh.tables.get(primary).pool6, remote.0),
    }
}

impl Nat64 {
    /// Whether a router's IPv4 address can be shown to the inside. A private one can't under the
    /// well-known prefix (RFC 6052 3.1); the error is then shown to come from the packet's destination.
    fn can_stand_for(&self, pool6: u8, router: Ipv4Addr) -> bool {
        !special::illegal_source4(router) && self.check_embedded(pool6, router).is_ok()
    }
}

/// Whether a transport header is one that [`Query::of`] can't read, and why that is dropped. IGMP is for one
/// link: silence (RFC 7915 4.2), as for a stateless instance.
pub(crate) fn unusable(l4: L4, proto: u8) -> DropReason {
    match l4 {
        L4::Other if proto == proto::IGMP => DropReason::IcmpSingleHop,
        L4::IcmpOther { kind } if is_single_hop(proto, kind) => DropReason::IcmpSingleHop,
        L4::IcmpOther { .. } => DropReason::IcmpUnknownType,
        _ => DropReason::UnsupportedProtocol,
    }
}

/// Messages that never leave a link: MLD (130 to 132, 143) and neighbour discovery (133 to 137) of ICMPv6,
/// router discovery (9, 10) of ICMPv4.
fn is_single_hop(proto: u8, kind: u8) -> bool {
    match proto {
        proto::ICMP => matches!(kind, 9 | 10),
        _ => matches!(kind, 130..=137 | 143),
    }
}
