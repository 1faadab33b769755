//! The slow path: translates any packet by its class.

use super::classify::{Class4, Class6, Classifier, Nat64Class};
use super::context::{Inbound, Outbound4, Outbound6, PacketContext};
use super::query::Query;
use super::rules::Instance;
use super::rules::nat44::Nat44;
use super::state::Core;
use super::stateful::inbound;
use super::{fragments, nat44, nat64, query};
use crate::base::attribution::{Account, Attribution};
use crate::base::outcome::{Outcome, Refusal};
use crate::base::step::Step;
use crate::base::time::Instant;
use gatun_wire::{DropReason, Ipv4View, Ipv6View, L4, Packet};

impl Core {
    /// Classifies packets by this engine's rules and tables.
    pub(crate) fn classifier(&self) -> Classifier<'_, '_> {
        Classifier { rules: &self.rules, tables: &self.state.tables }
    }
}

/// Translates a packet from `realm`. It leaves for realm 0 unless an instance sets another one.
#[inline(never)]
pub(crate) fn translate(core: &mut Core, now: Instant, packet: &mut Packet<'_>, realm: u8) -> Outcome {
    let refused = |reason| Outcome::new(Attribution::NONE, Err(reason));
    match packet.bytes().first().map(|b| b >> 4) {
        Some(6) => six(core, now, packet, realm).unwrap_or_else(refused),
        Some(4) => four(core, now, packet, realm).unwrap_or_else(refused),
        Some(_) => refused(DropReason::BadVersion),
        None => refused(DropReason::ShortL3),
    }
}

/// Translates an IPv6 packet.
fn six(core: &mut Core, now: Instant, packet: &mut Packet<'_>, realm: u8) -> Result<Outcome, DropReason> {
    let bytes = packet.bytes();
    let view = Ipv6View::parse(bytes)?;
    let l4 = view.l4(bytes)?;
    let Core { rules, state, .. } = core;
    let (class, attribution) = Classifier { rules, tables: &state.tables }.six(bytes, &view, l4, realm);
    let result = match class {
        Class6::Nat64(class) => {
            return Ok(outbound6(
                PacketContext { rules, state, now, attribution },
                packet,
                class,
                (view, l4),
            ));
        }
        Class6::Own { answer, .. } => answer.answer6(packet, &view, l4),
        Class6::Siit(_, siit) => {
            let hash = state.idents.hash_between(view.src, view.dst);
            let id = state.idents.next_of(hash, packet);
            siit.six_to_four(packet, &view, l4, id)
        }
        Class6::Nobody(reason) => Err(reason),
    };
    Ok(Outcome::new(attribution, result))
}

/// Translates any packet from the inside of a NAT64 instance.
#[inline(never)]
fn outbound6(
    mut cx: PacketContext<'_>,
    packet: &mut Packet<'_>,
    class: Nat64Class<'_>,
    (view, l4): (Ipv6View, L4),
) -> Outcome {
    let (cx, nat) = (&mut cx, class.nat);
    let from = &Outbound6 { view, l4, instance: class.owner.instance, pool6: class.owner.pool6 };
    if view.fragment.is_some_and(|f| !f.is_atomic()) {
        return fragments::from_inside6(cx, nat, packet, from);
    }
    let result = match (Query::of(l4, true), l4) {
        (Some(query), _) => nat64::outbound::query(cx, nat, packet, from, &query),
        (None, L4::IcmpError { .. }) => nat64::icmp::outbound(cx, packet, from).map_err(Refusal::from),
        (None, l4) => {
            let refused = nat.check_source(view.src).err();
            Err(refused.unwrap_or(query::unreadable(l4, view.proto)).into())
        }
    };
    cx.outcome(result)
}

/// Translates an IPv4 packet.
fn four(core: &mut Core, now: Instant, packet: &mut Packet<'_>, realm: u8) -> Result<Outcome, DropReason> {
    let bytes = packet.bytes();
    let view = Ipv4View::parse(bytes)?;
    let l4 = view.l4(bytes)?;
    let Core { rules, state, .. } = core;
    let (class, attribution) = Classifier { rules, tables: &state.tables }.four(&view, l4, realm);
    let result = match class {
        Class4::Nat44(nat) => {
            let cx = PacketContext { rules, state, now, attribution };
            return Ok(outbound4(cx, packet, &Outbound4 { nat, view, l4 }));
        }
        Class4::Pool(at) => {
            let cx = PacketContext { rules, state, now, attribution };
            return Ok(to_pool(cx, packet, &Inbound { view, l4, at }));
        }
        Class4::Own(answer) => answer.answer4(packet, &view, l4),
        Class4::Siit(_, siit) => siit.four_to_six(packet, &view, l4),
        Class4::Exempt { to_realm, .. } => {
            packet.realm = to_realm;
            Ok(Step::Pass)
        }
        Class4::Nobody(reason) => Err(reason),
    };
    Ok(Outcome::new(attribution, result))
}

/// Translates any packet to a pool address.
#[inline(never)]
fn to_pool(mut cx: PacketContext<'_>, packet: &mut Packet<'_>, from: &Inbound) -> Outcome {
    let cx = &mut cx;
    if from.view.fragment.is_some() {
        return fragments::from_outside(cx, packet, from);
    }
    match (Query::of(from.l4, false), from.l4) {
        (Some(query), _) => {
            let result = inbound::query(cx, packet, from, &query);
            cx.outcome(result)
        }
        (None, L4::IcmpError { .. }) => error_from_outside(cx, packet, from),
        (None, l4) => cx.outcome(Err(query::unreadable(l4, from.view.proto))),
    }
}

/// Translates any packet from the inside of a NAT44 instance.
#[inline(never)]
fn outbound4(mut cx: PacketContext<'_>, packet: &mut Packet<'_>, from: &Outbound4<'_>) -> Outcome {
    let cx = &mut cx;
    if from.view.fragment.is_some() {
        return fragments::from_inside4(cx, packet, from);
    }
    match (Query::of(from.l4, true), from.l4) {
        (Some(query), _) => {
            let result = nat44::outbound::query(cx, packet, from, &query);
            cx.outcome(result)
        }
        (None, L4::IcmpError { .. }) => error_from_inside4(cx, packet, from),
        (None, l4) => cx.outcome(Err(query::unreadable(l4, from.view.proto))),
    }
}

/// Translates an ICMP error from a host or router with an inside address.
fn error_from_inside4(cx: &mut PacketContext<'_>, packet: &mut Packet<'_>, from: &Outbound4<'_>) -> Outcome {
    let &Outbound4 { nat, view, l4 } = from;
    let result = nat44::icmp::outbound(cx, packet, from);
    // The error comes from a router with an inside address, such as the kernel that a TUN device belongs to,
    // and quotes a packet that had left. A quoted packet to an inside host had not left.
    if result == Err(DropReason::IcmpErrorNoState)
        && !quotes_inside(cx, packet, nat, &view)
        && let Some(at) = cx.state.tables.locate(view.dst)
    {
        return error_from_outside(cx, packet, &Inbound { view, l4, at });
    }
    cx.outcome(result)
}

/// Returns whether the packet that an error quotes went to an inside host of the same realm.
fn quotes_inside(cx: &PacketContext<'_>, packet: &Packet<'_>, nat: &Nat44, view: &Ipv4View) -> bool {
    let quoted = nat44::icmp::quoted_destination(packet.bytes(), view);
    quoted.is_some_and(|to| cx.rules.inside44(to, nat.policy.realm).is_some())
}

/// Translates an ICMP error to a pool address. The quoted packet determines the instance.
fn error_from_outside(cx: &mut PacketContext<'_>, packet: &mut Packet<'_>, from: &Inbound) -> Outcome {
    let tables = &cx.state.tables;
    if !cx.rules.nat44.is_empty()
        && let Some(quoted) = nat44::icmp::quoted(tables, packet.bytes(), &from.view)
        && let Some(Instance::Nat44(nat)) = cx.rules.get(tables.get(quoted.1).instance)
    {
        let mut attribution = Attribution::inbound(Account::Stateful(nat.policy.instance));
        attribution.meant_for(tables.get(quoted.1).party());
        return Outcome::new(attribution, nat44::icmp::inbound(nat, tables, packet, &from.view, quoted));
    }
    nat64::icmp::inbound(cx, packet, from)
}
