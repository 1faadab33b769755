//! Fragmented datagrams (RFC 6146 3.4, RFC 4787 REQ-14). The decision on the first fragment is that on a
//! whole packet. The other fragments follow it, in any order of arrival; [`crate::fragment`] holds those that
//! have to wait.

use super::context::{Inbound, Outbound4, Outbound6, PacketContext};
use super::query::Query;
use super::rewrite::{DatagramRewrite, InboundRewrite, OutboundRewrite};
use super::rules::nat64::Nat64;
use super::rules::{Instance, Rules, nat44};
use super::state::{EngineState, count_forwarded};
use super::stateful::filter::InboundRefusal;
use super::stateful::unsolicited::{self, Unsolicited};
use super::stateful::{hairpin, inbound};
use super::{nat44 as path44, nat64 as path64};
use crate::base::attribution::{Account, DatagramParties};
use crate::base::counters::{Count, Counters};
use crate::base::emit::Emit;
use crate::base::outcome::{Outcome, Refusal};
use crate::base::step::Step;
use crate::tables::fragment::{Datagram, Fragment, FragmentAction, Released};
use gatun_wire::checksum::{add, pseudo};
use gatun_wire::proto::{ICMP, ICMPV6, TCP, UDP};
use gatun_wire::rfc3022::{self, Rewrite};
use gatun_wire::rfc7915::{self, ZeroChecksum};
use gatun_wire::{DropReason, Ipv4View, Ipv6View, L4, Packet, Ports, To4, To6, Whole};

/// Base for the instance number of a fragment of which only the pool is known: `OF_POOLS` minus the pool's
/// number.
const OF_POOLS: u16 = u16::MAX;

/// A fragment on its way through the store.
struct FragmentPath<'a, 'c> {
    cx: &'a mut PacketContext<'c>,
    fragment: Fragment,
    /// Time that fragments wait for their first one.
    lifetime_ms: u32,
}

/// Checks if fragments of this protocol are translated. `icmp` is the ICMP protocol of the family.
fn check_protocol(proto: u8, icmp: u8) -> Result<(), DropReason> {
    match proto {
        TCP | UDP => Ok(()),
        own if own == icmp => Ok(()),
        _ => Err(DropReason::UnsupportedProtocol),
    }
}

/// Translates a fragment from an IPv6 host inside.
pub(crate) fn from_inside6(
    cx: &mut PacketContext<'_>,
    nat: &Nat64,
    packet: &mut Packet<'_>,
    from: &Outbound6,
) -> Outcome {
    let fragment = match fragment6(nat, from) {
        Ok(fragment) => fragment,
        Err(reason) => return cx.outcome(Err(reason)),
    };
    let lifetime_ms = nat.policy.timeouts.fragment_ms;
    let mut path = FragmentPath { cx, fragment, lifetime_ms };
    let outcome = match (from.l4, Query::of(from.l4, true)) {
        (_, Some(query)) => {
            let to = path64::outbound::decide_fragment(path.cx, nat, from, &query);
            let to = to.map(|to| (from.instance, OutboundRewrite::From6(to)));
            path.first_outbound(packet, from.l4, &query, to)
        }
        (L4::LaterFragment, None) => path.later(packet),
        // A fragmented ICMP error, or a message of an unknown type.
        (_, None) => path.first(packet, Err(DropReason::FragmentIcmp.into())),
    };
    count_ended(cx.state);
    outcome
}

fn fragment6(nat: &Nat64, from: &Outbound6) -> Result<Fragment, DropReason> {
    nat.check_source(from.view.src)?;
    check_protocol(from.view.proto, ICMPV6)?;
    let fragment = Fragment::of6(from.instance.into(), &from.view).ok_or(DropReason::FragmentOrphan)?;
    Ok(fragment.counted_for(nat.policy.subscriber(from.view.src).prefix))
}

/// Translates a fragment from an IPv4 host inside.
pub(crate) fn from_inside4(
    cx: &mut PacketContext<'_>,
    packet: &mut Packet<'_>,
    from: &Outbound4<'_>,
) -> Outcome {
    let (nat, view) = (from.nat, &from.view);
    let fragment = match fragment4(from) {
        Ok(fragment) => fragment,
        Err(reason) => return cx.outcome(Err(reason)),
    };
    let mut path = FragmentPath { cx, fragment, lifetime_ms: nat.policy.timeouts.fragment_ms };
    let outcome = match (from.l4, Query::of(from.l4, true)) {
        (l4, Some(_)) if nat.is_exempt(view.dst, view.proto, nat44::remote_port(l4, true)) => {
            path.first(packet, Ok(DatagramRewrite::Pass))
        }
        (l4, Some(query)) => {
            let to = path44::outbound::decide(path.cx, from, &query);
            let to = to.map(|to| (nat.policy.instance, OutboundRewrite::From4(to)));
            path.first_outbound(packet, l4, &query, to)
        }
        (L4::LaterFragment, None) => path.later(packet),
        // A fragmented ICMP error, or a message of an unknown type.
        (_, None) => path.first(packet, Err(DropReason::FragmentIcmp.into())),
    };
    count_ended(cx.state);
    outcome
}

fn fragment4(from: &Outbound4<'_>) -> Result<Fragment, DropReason> {
    let policy = &from.nat.policy;
    check_protocol(from.view.proto, ICMP)?;
    let fragment = Fragment::of44(policy.instance.into(), &from.view).ok_or(DropReason::FragmentOrphan)?;
    Ok(fragment.counted_for(policy.subscriber(from.view.src.to_ipv6_mapped()).prefix))
}

/// Translates a fragment from outside.
pub(crate) fn from_outside(cx: &mut PacketContext<'_>, packet: &mut Packet<'_>, from: &Inbound) -> Outcome {
    let (fragment, lifetime_ms) = match fragment_from_outside(cx, from) {
        Ok(fragment) => fragment,
        Err(reason) => return cx.outcome(Err(reason)),
    };
    let mut path = FragmentPath { cx, fragment, lifetime_ms };
    let outcome = match (from.l4, Query::of(from.l4, false)) {
        (_, Some(query)) => path.first_inbound(packet, from, &query),
        (L4::LaterFragment, None) => path.later(packet),
        (_, None) => path.first(packet, Err(DropReason::FragmentIcmp.into())),
    };
    count_ended(cx.state);
    outcome
}

/// Returns the fragment, and the time that it waits for its first one.
fn fragment_from_outside(cx: &PacketContext<'_>, from: &Inbound) -> Result<(Fragment, u32), DropReason> {
    check_protocol(from.view.proto, ICMP)?;
    // Only the first fragment determines the instance. Until then, the pool distinguishes datagrams.
    let table = OF_POOLS - from.at.pool as u16;
    let mut of_pool = cx.rules.of_pool(&cx.state.tables, from.at.pool);
    let policy = of_pool.next().ok_or(DropReason::NoBib)?;
    let fragment = match cx.rules.get(policy.instance) {
        Some(Instance::Nat44(_)) => Fragment::of44(table, &from.view),
        _ => Fragment::of4(table, &from.view),
    };
    Ok((fragment.ok_or(DropReason::FragmentOrphan)?, policy.timeouts.fragment_ms))
}

impl FragmentPath<'_, '_> {
    /// Handles a first fragment that leaves through an instance, or is hairpinned.
    fn first_outbound(
        &mut self,
        packet: &mut Packet<'_>,
        l4: L4,
        query: &Query,
        to: Result<(u8, OutboundRewrite), DropReason>,
    ) -> Outcome {
        let (instance, to) = match to {
            Ok(to) => to,
            Err(reason) => return self.first(packet, Err(reason.into())),
        };
        let Some(at) = self.cx.state.tables.locate_hairpin(to.addresses().1) else {
            let parties = self.parties();
            return self.decided(packet, l4, DatagramRewrite::Outbound { instance, to, parties });
        };
        match hairpin::decide(self.cx, packet, query, &to, at) {
            Ok(back) => {
                let (out, parties) = ((instance, to), self.parties());
                self.decided(packet, l4, DatagramRewrite::Hairpin { out, back, parties })
            }
            Err(InboundRefusal::Drop(refusal)) => self.first(packet, Err(refusal)),
            Err(InboundRefusal::Hold) => {
                self.hold_syn(packet, &Unsolicited::hairpinned(self.cx.rules, (instance, &to), at))
            }
        }
    }

    /// Handles a fragmented unsolicited SYN: the first fragment is held as a whole SYN would be, the others
    /// are dropped.
    fn hold_syn(&mut self, packet: &Packet<'_>, syn: &Unsolicited) -> Outcome {
        self.refuse();
        let held = unsolicited::hold(self.cx, packet, syn);
        self.cx.outcome(held)
    }

    fn first_inbound(&mut self, packet: &mut Packet<'_>, from: &Inbound, query: &Query) -> Outcome {
        let (instance, to) = match inbound::decide(self.cx, from, query) {
            Ok(decided) => decided,
            Err(InboundRefusal::Drop(refusal)) => return self.first(packet, Err(refusal)),
            Err(InboundRefusal::Hold) => return self.hold_syn(packet, &inbound::unsolicited(from, query)),
        };
        let (instance, parties) = (instance.policy().instance, self.parties());
        self.decided(packet, from.l4, DatagramRewrite::Inbound { instance, to, parties })
    }

    /// Returns the inside hosts of the fragment after the decision.
    fn parties(&self) -> DatagramParties {
        self.cx.state.tables.keep_parties(self.cx.attribution.parties)
    }

    /// Forwards a first fragment that may pass: at once, or with the last fragment if its checksum needs the
    /// whole datagram.
    fn decided(&mut self, packet: &mut Packet<'_>, l4: L4, rewrite: DatagramRewrite) -> Outcome {
        if !self.needs_all(l4, &rewrite) {
            return self.first(packet, Ok(rewrite));
        }
        let (state, now) = (&mut *self.cx.state, self.cx.now);
        match state.fragments.collect(now, &self.fragment, self.lifetime_ms, packet, rewrite) {
            Err(reason) => return self.cx.outcome(Err(reason)),
            Ok(complete) => {
                state.counters.held += 1;
                if complete {
                    self.release();
                }
            }
        }
        self.cx.outcome(Ok::<_, Refusal>(Step::Held))
    }

    /// Returns whether a datagram has to be collected (RFC 6146 3.4): UDP without checksum that has to get
    /// one, and echo messages that are or become ICMPv6, whose checksum covers their length.
    fn needs_all(&self, l4: L4, rewrite: &DatagramRewrite) -> bool {
        match (l4, rewrite) {
            (L4::Echo { .. }, rewrite) => rewrite.has_ipv6(),
            (
                L4::Udp { no_checksum: true, .. },
                DatagramRewrite::Inbound { instance, to: InboundRewrite::To6(_), .. },
            ) => {
                let nat = self.cx.rules.nat64(*instance);
                nat.is_some_and(|nat| nat.settings.udp_zero_checksum == ZeroChecksum::Compute)
            }
            _ => false,
        }
    }

    /// Handles a first fragment that was accepted or refused, and the fragments that wait for it.
    fn first(&mut self, packet: &mut Packet<'_>, decided: Result<DatagramRewrite, Refusal>) -> Outcome {
        let done = decided.inspect_err(|_| self.refuse()).and_then(|rewrite| {
            let (state, now) = (&mut *self.cx.state, self.cx.now);
            let waiting = state.fragments.first(now, &self.fragment, self.lifetime_ms, rewrite)?;
            let done = follow(self.cx.rules, packet, &rewrite, None);
            match &done {
                Err(_) | Ok(Step::Lost(_)) => self.refuse(),
                Ok(_) if waiting > 0 => self.release(),
                Ok(_) => {}
            }
            Ok(done?)
        });
        self.cx.outcome(done)
    }

    /// Handles a fragment without transport header.
    fn later(&mut self, packet: &mut Packet<'_>) -> Outcome {
        let (state, now) = (&mut *self.cx.state, self.cx.now);
        match state.fragments.later(now, &self.fragment, self.lifetime_ms, packet) {
            FragmentAction::Known(rewrite) => {
                let attribution = rewrite.attribution(&state.tables).unwrap_or(self.cx.attribution);
                return Outcome::new(attribution, follow(self.cx.rules, packet, &rewrite, None));
            }
            FragmentAction::Drop(reason) => return self.cx.outcome(Err(reason)),
            FragmentAction::Held => state.counters.held += 1,
            FragmentAction::Complete => {
                state.counters.held += 1;
                self.release();
            }
        }
        self.cx.outcome(Ok::<_, Refusal>(Step::Held))
    }

    fn refuse(&mut self) {
        self.cx.state.fragments.refuse(self.cx.now, &self.fragment, self.lifetime_ms);
    }

    /// Sends the held fragments of a datagram, right after the packet being processed.
    fn release(&mut self) {
        let PacketContext { rules, state, now, attribution } = &mut *self.cx;
        let EngineState { fragments, emit, counters, tally, tables, .. } = &mut **state;
        fragments.release(*now, &self.fragment, |mut released| {
            let bytes = released.packet.len();
            let direction = released.memo.direction();
            counters.held -= 1;
            let attribution = released.memo.attribution(tables).unwrap_or(*attribution);
            match send_released(rules, emit, counters, &mut released) {
                Ok(()) if matches!(released.memo, DatagramRewrite::Pass) => {
                    counters.passed.add(bytes);
                    tally.passed(attribution.account, bytes);
                }
                Ok(()) => {
                    let hairpinned = matches!(released.memo, DatagramRewrite::Hairpin { .. });
                    count_forwarded((counters, tally, tables), attribution, direction, bytes, hairpinned);
                }
                Err(reason) => {
                    counters.dropped.add(bytes);
                    counters.add_dropped(direction, reason, Count::one(bytes));
                    tally.dropped(attribution.account, reason, Count::one(bytes));
                }
            }
        });
    }
}

/// Translates a fragment by the rewrite of its datagram's first one. `whole` is the datagram, if it was
/// collected.
fn follow(
    rules: &Rules,
    packet: &mut Packet<'_>,
    rewrite: &DatagramRewrite,
    whole: Option<Datagram>,
) -> Result<Step, DropReason> {
    let missing = DropReason::FragmentOrphan;
    match *rewrite {
        DatagramRewrite::Outbound { instance, to: OutboundRewrite::From6(to), .. } => {
            let nat = rules.nat64(instance).ok_or(missing)?;
            let view = Ipv6View::parse(packet.bytes())?;
            let l4 = view.l4(packet.bytes())?;
            let to = To4 { ports: ports_for(l4, to.ports, whole), ..to };
            rfc7915::six_to_four::translate(packet, &view, l4, &to, 0, &nat.settings).map(Step::forward)
        }
        DatagramRewrite::Outbound { instance, to: OutboundRewrite::From4(to), .. } => {
            let Some(Instance::Nat44(nat)) = rules.get(instance) else { return Err(missing) };
            let view = Ipv4View::parse(packet.bytes())?;
            let l4 = view.l4(packet.bytes())?;
            let to = Rewrite { ports: ports_for(l4, to.ports, whole), ..to };
            rfc3022::translate(packet, &view, l4, &to, nat.link).map(Step::forward)
        }
        DatagramRewrite::Inbound { instance, to, .. } => {
            let instance = rules.get(instance).ok_or(missing)?;
            let view = Ipv4View::parse(packet.bytes())?;
            let l4 = view.l4(packet.bytes())?;
            instance.write_inbound(packet, &view, l4, &inbound_for(l4, to, whole)).map(Step::forward)
        }
        DatagramRewrite::Pass => Ok(Step::Pass),
        DatagramRewrite::Hairpin { out, back, .. } => {
            let l4 = match out.1 {
                OutboundRewrite::From6(_) => Ipv6View::parse(packet.bytes())?.l4(packet.bytes())?,
                OutboundRewrite::From4(_) => Ipv4View::parse(packet.bytes())?.l4(packet.bytes())?,
            };
            let to = outbound_for(l4, out.1, whole);
            hairpin::turn(rules, packet, (out.0, &to), (back.0, &inbound_for(l4, back.1, whole)))
        }
    }
}

/// Returns the ports of a fragment. Only a first fragment has ports. A collected echo message needs its
/// length in every fragment.
fn ports_for(l4: L4, first: Ports, whole: Option<Datagram>) -> Ports {
    match (first, whole) {
        (Ports::EchoId(id), Some(whole)) => Ports::EchoPiece { id, len: whole.len as u16 },
        _ if l4 == L4::LaterFragment => Ports::Keep,
        (first, _) => first,
    }
}

fn inbound_for(l4: L4, to: InboundRewrite, whole: Option<Datagram>) -> InboundRewrite {
    match to {
        InboundRewrite::To6(to) => InboundRewrite::To6(To6 { ports: ports_for(l4, to.ports, whole), ..to }),
        InboundRewrite::To4(to) => {
            InboundRewrite::To4(Rewrite { ports: ports_for(l4, to.ports, whole), ..to })
        }
    }
}

fn outbound_for(l4: L4, to: OutboundRewrite, whole: Option<Datagram>) -> OutboundRewrite {
    match to {
        OutboundRewrite::From6(to) => {
            OutboundRewrite::From6(To4 { ports: ports_for(l4, to.ports, whole), ..to })
        }
        OutboundRewrite::From4(to) => {
            OutboundRewrite::From4(Rewrite { ports: ports_for(l4, to.ports, whole), ..to })
        }
    }
}

fn send_released(
    rules: &Rules,
    emit: &mut Emit,
    counters: &mut Counters,
    released: &mut Released<'_, DatagramRewrite>,
) -> Result<(), DropReason> {
    let packet = &mut released.packet;
    if let Some(datagram) = released.datagram.filter(|_| released.info.is_first()) {
        fill_checksum(packet, datagram)?;
    }
    match follow(rules, packet, &released.memo, released.datagram)? {
        Step::Forward { whole: Whole::Yes, .. } => {}
        Step::Forward { whole: Whole::Split(max), .. } => {
            counters.fragments_made += emit.push_cut(packet, max)?;
            return Ok(());
        }
        Step::Lost(reason) => return Err(reason),
        Step::Pass => {}
        Step::Held | Step::Echo => return Err(DropReason::FragmentOrphan),
    }
    emit.push(packet.realm, packet.bytes(), &[])
}

/// Computes the UDP checksum that the sender left out, when the whole datagram has arrived. An echo message
/// already has its checksum, which changes by difference.
fn fill_checksum(packet: &mut Packet<'_>, datagram: Datagram) -> Result<(), DropReason> {
    const CHECKSUM: usize = 6;
    let Some(view) = Ipv4View::parse(packet.bytes()).ok().filter(|view| view.proto == UDP) else {
        return Ok(());
    };
    let at = usize::from(view.l4_offset) + CHECKSUM;
    let bytes = packet.bytes_mut();
    let addresses = bytes.get(12..20).ok_or(DropReason::L4Truncated)?;
    let checksum = match !add(pseudo(addresses, datagram.len, UDP), datagram.sum) {
        0 => 0xffff,
        c => c,
    };
    bytes.get_mut(at..at + 2).ok_or(DropReason::L4Truncated)?.copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// Counts fragments that were held and then dropped.
pub(crate) fn count_ended(state: &mut EngineState) {
    let EngineState { fragments, counters, tally, .. } = state;
    fragments.take_ended(|ended| {
        counters.add_dropped(ended.direction, ended.reason, ended.count);
        counters.dropped += ended.count;
        let account = match u8::try_from(ended.instance) {
            Ok(instance) => Account::Stateful(instance),
            Err(_) => Account::Pool(usize::from(OF_POOLS - ended.instance)),
        };
        tally.dropped(account, ended.reason, ended.count);
        counters.held -= ended.count.packets;
    });
}
