//! Hairpins: packets from inside to inside through outside addresses (RFC 6146 3.8, RFC 4787 REQ-9, RFC 5382
//! REQ-8). Both translations happen at once. The packet is filtered as if it came from outside, with an
//! outside address and port as its source. The hop limit falls by two, as at a translator and a router behind
//! it. Each end may be of either kind.

use super::filter::{self, InboundQuery, InboundRefusal};
use super::unsolicited::{self, Unsolicited};
use crate::base::outcome::Refusal;
use crate::base::plan::Transport;
use crate::base::step::Step;
use crate::path::context::PacketContext;
use crate::path::query::Query;
use crate::path::rewrite::{InboundRewrite, OutboundRewrite};
use crate::path::rules::{Instance, Rules};
use crate::tables::bib::PoolAddress;
use gatun_wire::hdr::ipv6;
use gatun_wire::rfc3022::{self, Link};
use gatun_wire::rfc7915::{four_to_six, six_to_four};
use gatun_wire::{DropReason, Ipv4View, Ipv6View, Packet, Ports, Segmentation, Settings, Whole};

/// Hairpins a query whose outgoing destination, at `at`, is a pool address. `out` is its outbound rewrite.
#[cold]
pub(crate) fn query(
    cx: &mut PacketContext<'_>,
    packet: &mut Packet<'_>,
    query: &Query,
    out: (u8, &OutboundRewrite),
    at: PoolAddress,
) -> Result<Step, Refusal> {
    match decide(cx, packet, query, out.1, at) {
        Ok((receiver, back)) => Ok(turn(cx.rules, packet, out, (receiver, &back))?),
        Err(InboundRefusal::Drop(refusal)) => Err(refusal),
        Err(InboundRefusal::Hold) => {
            let syn = Unsolicited::hairpinned(cx.rules, out, at);
            Ok(unsolicited::hold(cx, packet, &syn)?)
        }
    }
}

/// Returns the rewrite of the packet for its receiver, and the receiver's instance.
pub(crate) fn decide(
    cx: &mut PacketContext<'_>,
    packet: &Packet<'_>,
    query: &Query,
    out: &OutboundRewrite,
    at: PoolAddress,
) -> Result<(u8, InboundRewrite), InboundRefusal> {
    if hops(packet.bytes()) <= 2 {
        return Err(DropReason::TtlExceeded.into());
    }
    let (src_port, dst_port) = match out.ports() {
        Ports::Set { src, dst } => (src, dst),
        Ports::EchoId(id) | Ports::EchoPiece { id, .. } => (0, id),
        Ports::Keep => (query.src_port, query.dst_port),
    };
    let inbound = Query { src_port, dst_port, ..*query };
    let remote = (out.addresses().0, if query.transport == Transport::Icmp { 0 } else { src_port });
    let (instance, back) = filter::admit(cx, &InboundQuery { at, query: inbound, remote })?;
    if let Some(refusal) = too_big(packet, instance) {
        return Err(refusal.into());
    }
    Ok((instance.policy().instance, back))
}

/// Returns a refusal with the maximum packet size if a packet that must not be fragmented does not fit its
/// receiver's link. Super-packets always fit, because a device cuts them for the link that they leave by.
pub(crate) fn too_big(packet: &Packet<'_>, receiver: Instance<'_>) -> Option<Refusal> {
    if packet.offload.segmentation != Segmentation::None {
        return None;
    }
    let bytes = packet.bytes();
    if let Ok(view) = Ipv6View::parse(bytes) {
        let header = if view.fragment.is_some() { 48 } else { 40 };
        let len = header + view.total_len - u32::from(view.l4_offset);
        let mtu = match receiver {
            Instance::Nat64(nat) => nat.settings.mtu6,
            Instance::Nat44(nat) => nat.link.mtu + header - 20,
        };
        let mtu = mtu.max(ipv6::MTU_MIN);
        return (len > mtu).then(|| Refusal::too_big(DropReason::TooBig6, mtu));
    }
    let view = Ipv4View::parse(bytes).ok().filter(|view| view.dont_fragment)?;
    let mtu = match receiver {
        Instance::Nat64(nat) => nat.settings.mtu6 - if view.fragment.is_some() { 28 } else { 20 },
        Instance::Nat44(nat) => nat.link.mtu,
    };
    (view.total_len > mtu).then(|| Refusal::too_big(DropReason::TooBig4, mtu.min(u16::MAX.into())))
}

/// Applies both translations to a packet. It is never on a link between them, so no MTU counts there. The MTU
/// of the receiver's link counts: IPv4 packets without DF are fragmented to it.
pub(crate) fn turn(
    rules: &Rules,
    packet: &mut Packet<'_>,
    (number, out): (u8, &OutboundRewrite),
    (receiver, back): (u8, &InboundRewrite),
) -> Result<Step, DropReason> {
    let cut = matches!(out, OutboundRewrite::From4(_)) && packet.offload.segmentation == Segmentation::None;
    let _ = match out {
        OutboundRewrite::From6(to) => {
            let nat = rules.nat64(number).ok_or(DropReason::NoSession)?;
            let view = Ipv6View::parse(packet.bytes())?;
            let l4 = view.l4(packet.bytes())?;
            let id = view.fragment.map_or(0, |f| f.id as u16);
            six_to_four::translate(packet, &view, l4, to, id, &inner_settings(&nat.settings))?
        }
        OutboundRewrite::From4(to) => {
            let view = Ipv4View::parse(packet.bytes())?;
            let l4 = view.l4(packet.bytes())?;
            let nat = rules.nat44(number).ok_or(DropReason::NoSession)?;
            rfc3022::translate(packet, &view, l4, to, Link { mtu: ANY_MTU, ..nat.link })?
        }
    };
    // The bytes have changed, so an error from here on cannot be answered.
    Ok(match turn_back(rules, packet, receiver, back, cut) {
        Ok(whole) => Step::Forward { whole, hairpinned: true },
        Err(reason) => Step::Lost(reason),
    })
}

fn turn_back(
    rules: &Rules,
    packet: &mut Packet<'_>,
    receiver: u8,
    back: &InboundRewrite,
    cut: bool,
) -> Result<Whole, DropReason> {
    let view = Ipv4View::parse(packet.bytes())?;
    let l4 = view.l4(packet.bytes())?;
    packet.realm = rules.get(receiver).map_or(0, |instance| instance.policy().realm);
    match (rules.get(receiver), back) {
        (Some(Instance::Nat64(nat)), InboundRewrite::To6(to)) => {
            let settings = if cut { nat.settings } else { inner_settings(&nat.settings) };
            four_to_six::translate(packet, &view, l4, to, &settings)
        }
        (Some(Instance::Nat44(nat)), InboundRewrite::To4(to)) => rfc3022::translate(
            packet,
            &view,
            l4,
            to,
            if cut { nat.link } else { Link { mtu: ANY_MTU, ..nat.link } },
        ),
        _ => Err(DropReason::NoSession),
    }
}

/// Returns the TTL or hop limit.
pub(crate) fn hops(packet: &[u8]) -> u8 {
    let at = if packet.first().is_some_and(|b| b >> 4 == 4) { 8 } else { 7 };
    packet.get(at).copied().unwrap_or(0)
}

/// MTU larger than any packet.
pub(crate) const ANY_MTU: u32 = u16::MAX as u32;

/// Settings for a packet that is IPv4 only between its two translations.
pub(crate) fn inner_settings(settings: &Settings) -> Settings {
    Settings {
        mtu4: ANY_MTU,
        mtu6: ANY_MTU,
        lowest_ipv6_mtu: ANY_MTU,
        icmp4_error_max: u16::MAX,
        ..*settings
    }
}
