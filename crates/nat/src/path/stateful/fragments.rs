//! Datagrams in pieces (RFC 6146 3.4, RFC 4787 REQ-14). The first fragment decides as a whole packet would,
//! and the others follow it, whatever order they come in; [`crate::fragment`] keeps those that have to wait.

use super::filter::Refused;
use super::inbound::{self, FromOutside};
use super::unsolicited::{self, Unsolicited};
use super::{Instance, Instances, Inward, Outward, Query, hairpin};
use crate::base::counters::{Count, Counters, Direction};
use crate::base::emit::Emit;
use crate::base::step::Step;
use crate::base::tally::{Row, Tally};
use crate::base::time::Instant;
use crate::path::nat44::{self, From4};
use crate::path::nat64::{self, From6};
use crate::path::shared::Shared;
use crate::tables::fragment::{Datagram, Fragment, Later, Released};
use gatun_wire::checksum::{add, pseudo};
use gatun_wire::proto::{ICMP, ICMPV6, TCP, UDP};
use gatun_wire::rfc3022::{self, Rewrite};
use gatun_wire::rfc7915::{self, ZeroChecksum};
use gatun_wire::{DropReason, Ipv4View, Ipv6View, L4, Packet, Ports, To4, To6, Whole};

/// What stands in an instance's place where only the pool is known, less the pool's number.
const OF_POOLS: u16 = u16::MAX;

/// How a first fragment was translated, and so its datagram's others. Instances by number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Memo {
    Out {
        instance: u8,
        to: Outward,
    },
    In {
        instance: u8,
        to: Inward,
    },
    Turned {
        out: (u8, Outward),
        back: (u8, Inward),
    },
    /// Exempt by its port, which only the first fragment has.
    Pass,
}

/// Where fragments of a datagram are decided on.
struct Desk<'a> {
    nats: Instances<'a>,
    sh: &'a mut Shared,
    now: Instant,
    fragment: Fragment,
    /// How long fragments wait for their first one.
    lifetime_ms: u32,
}

/// Whether fragments of this protocol are translated; `icmp` is the family's own.
fn check_protocol(proto: u8, icmp: u8) -> Result<(), DropReason> {
    match proto {
        TCP | UDP => Ok(()),
        own if own == icmp => Ok(()),
        _ => Err(DropReason::UnsupportedProtocol),
    }
}

/// A fragment from an IPv6 host inside.
pub(crate) fn from_inside6(
    nats: Instances<'_>,
    sh: &mut Shared,
    now: Instant,
    packet: &mut Packet<'_>,
    from: &From6,
) -> Result<Step, DropReason> {
    let nat = nats.nat64(from.instance).ok_or(DropReason::NoSession)?;
    nat.check_source(from.view.src)?;
    check_protocol(from.view.proto, ICMPV6)?;
    let fragment = Fragment::of6(from.instance.into(), &from.view).ok_or(DropReason::FragmentOrphan)?;
    let fragment = fragment.counted_for(nat.policy.subscriber(from.view.src).prefix);
    let lifetime_ms = nat.policy.timeouts.fragment_ms;
    let mut desk = Desk { nats, sh, now, fragment, lifetime_ms };
    let result = match (from.l4, Query::of(from.l4, true)) {
        (l4, Some(query)) => {
            let to = nat64::six_to_four::decide_fragment(nat, desk.sh, now, from, &query);
            desk.first_outbound(packet, l4, &query, from.instance, to.map(Outward::From6))
        }
        (L4::LaterFragment, None) => desk.later(packet),
        // An ICMP error in pieces, or a message that is none of ours.
        (_, None) => desk.first(packet, Err(DropReason::FragmentIcmp)),
    };
    settle_ended(sh);
    result
}

/// A fragment from an IPv4 host inside.
pub(crate) fn from_inside4(
    nats: Instances<'_>,
    sh: &mut Shared,
    now: Instant,
    packet: &mut Packet<'_>,
    from: &From4<'_>,
) -> Result<Step, DropReason> {
    check_protocol(from.view.proto, ICMP)?;
    let instance = from.nat.policy.instance;
    let fragment = Fragment::of44(instance.into(), &from.view).ok_or(DropReason::FragmentOrphan)?;
    let subscriber = from.nat.policy.subscriber(from.view.src.to_ipv6_mapped());
    let fragment = fragment.counted_for(subscriber.prefix);
    let mut desk = Desk { nats, sh, now, fragment, lifetime_ms: from.nat.policy.timeouts.fragment_ms };
    let result = match (from.l4, Query::of(from.l4, true)) {
        (_, Some(_))
            if from.nat.is_exempt(from.view.dst, from.view.proto, nat44::remote_port(from.l4, true)) =>
        {
            desk.first(packet, Ok(Memo::Pass))
        }
        (_, Some(query)) => {
            let to = nat44::outbound::decide(desk.sh, now, from, &query);
            desk.first_outbound(packet, from.l4, &query, instance, to.map(Outward::From4))
        }
        (L4::LaterFragment, None) => desk.later(packet),
        // An ICMP error in pieces, or a message that is none of ours.
        (_, None) => desk.first(packet, Err(DropReason::FragmentIcmp)),
    };
    settle_ended(sh);
    result
}

/// A fragment from outside.
pub(crate) fn from_outside(
    nats: Instances<'_>,
    sh: &mut Shared,
    now: Instant,
    packet: &mut Packet<'_>,
    from: &FromOutside,
) -> Result<Step, DropReason> {
    check_protocol(from.view.proto, ICMP)?;
    // Which instance it is for shows only at the first fragment; the pool tells datagrams apart.
    let table = OF_POOLS - from.place.pool as u16;
    let policy = nats.of_pool(&sh.tables, from.place.pool).next().ok_or(DropReason::NoBib)?;
    let fragment = match nats.get(policy.instance) {
        Some(Instance::Nat44(_)) => Fragment::of44(table, &from.view),
        _ => Fragment::of4(table, &from.view),
    };
    let fragment = fragment.ok_or(DropReason::FragmentOrphan)?;
    let mut desk = Desk { nats, sh, now, fragment, lifetime_ms: policy.timeouts.fragment_ms };
    let result = match (from.l4, Query::of(from.l4, false)) {
        (_, Some(query)) => desk.first_inbound(packet, from, &query),
        (L4::LaterFragment, None) => desk.later(packet),
        (_, None) => desk.first(packet, Err(DropReason::FragmentIcmp)),
    };
    settle_ended(sh);
    result
}

impl Desk<'_> {
    /// A first fragment that leaves as `to`, or is turned round.
    fn first_outbound(
        &mut self,
        packet: &mut Packet<'_>,
        l4: L4,
        query: &Query,
        instance: u8,
        to: Result<Outward, DropReason>,
    ) -> Result<Step, DropReason> {
        let to = match to {
            Ok(to) => to,
            Err(reason) => return self.first(packet, Err(reason)),
        };
        let Some(place) = self.sh.tables.locate(to.addresses().1) else {
            return self.decided(packet, l4, Memo::Out { instance, to });
        };
        match hairpin::decide(self.nats, self.sh, self.now, packet, query, &to, place) {
            Ok(back) => self.decided(packet, l4, Memo::Turned { out: (instance, to), back }),
            Err(Refused::Drop(reason)) => self.first(packet, Err(reason)),
            Err(Refused::Hold) => {
                self.hold_syn(packet, &Unsolicited::hairpinned(self.nats, (instance, &to), place))
            }
        }
    }

    /// An unsolicited SYN in pieces: the first one waits as a whole one would, the others are dropped.
    fn hold_syn(&mut self, packet: &Packet<'_>, syn: &Unsolicited) -> Result<Step, DropReason> {
        self.refuse();
        unsolicited::hold(self.nats, self.sh, self.now, packet, syn)
    }

    fn first_inbound(
        &mut self,
        packet: &mut Packet<'_>,
        from: &FromOutside,
        query: &Query,
    ) -> Result<Step, DropReason> {
        let (instance, to) = match inbound::decide(self.nats, self.sh, self.now, from, query) {
            Ok(decided) => decided,
            Err(Refused::Drop(reason)) => return self.first(packet, Err(reason)),
            Err(Refused::Hold) => return self.hold_syn(packet, &from.unsolicited(query)),
        };
        self.decided(packet, from.l4, Memo::In { instance: instance.policy().instance, to })
    }

    /// A first fragment that may pass: at once, or, where its checksum needs all of the datagram, with the last one.
    fn decided(&mut self, packet: &mut Packet<'_>, l4: L4, memo: Memo) -> Result<Step, DropReason> {
        if !self.needs_all(l4, &memo) {
            return self.first(packet, Ok(memo));
        }
        let fragments = &mut self.sh.fragments;
        let complete = fragments.collect(self.now, &self.fragment, self.lifetime_ms, packet, memo)?;
        self.sh.counters.held += 1;
        if complete {
            self.release();
        }
        Ok(Step::Held)
    }

    /// Whether a datagram has to be collected (RFC 6146 3.4): UDP without checksum, which is to get one, and echo messages
    /// that are or become ICMPv6, whose checksum covers their length.
    fn needs_all(&self, l4: L4, memo: &Memo) -> bool {
        match (l4, memo) {
            (L4::Echo { .. }, memo) => memo.has_ipv6(),
            (L4::Udp { no_checksum: true, .. }, Memo::In { instance, to: Inward::To6(_) }) => {
                let nat = self.nats.nat64(*instance);
                nat.is_some_and(|nat| nat.settings.udp_zero_checksum == ZeroChecksum::Compute)
            }
            _ => false,
        }
    }

    /// A first fragment that was decided on, or refused: those that wait for it follow.
    fn first(
        &mut self,
        packet: &mut Packet<'_>,
        decided: Result<Memo, DropReason>,
    ) -> Result<Step, DropReason> {
        let memo = decided.inspect_err(|_| self.refuse())?;
        let waiting = self.sh.fragments.first(self.now, &self.fragment, self.lifetime_ms, memo)?;
        let done = follow(self.nats, packet, &memo, None);
        match &done {
            Err(_) | Ok(Step::Lost(_)) => self.refuse(),
            Ok(_) if waiting > 0 => self.release(),
            Ok(_) => {}
        }
        done
    }

    /// A fragment without transport header.
    fn later(&mut self, packet: &mut Packet<'_>) -> Result<Step, DropReason> {
        match self.sh.fragments.later(self.now, &self.fragment, self.lifetime_ms, packet) {
            Later::Known(memo) => {
                self.follows(&memo);
                follow(self.nats, packet, &memo, None)
            }
            Later::Drop(reason) => Err(reason),
            Later::Held => {
                self.sh.counters.held += 1;
                Ok(Step::Held)
            }
            Later::Complete => {
                self.sh.counters.held += 1;
                self.release();
                Ok(Step::Held)
            }
        }
    }

    /// The packet at hand is whose its first fragment was.
    fn follows(&mut self, memo: &Memo) {
        if let Some(whose) = memo.whose() {
            self.sh.tally.is(whose);
        }
    }

    fn refuse(&mut self) {
        self.sh.fragments.refuse(self.now, &self.fragment, self.lifetime_ms);
    }

    /// Sends what was held of a datagram, right behind the packet being processed.
    fn release(&mut self) {
        let Shared { fragments, emit, counters, tally, .. } = &mut *self.sh;
        let nats = self.nats;
        let at_hand = tally.at_hand();
        fragments.release(self.now, &self.fragment, |mut released| {
            let bytes = released.packet.len();
            let direction = released.memo.direction();
            counters.held -= 1;
            tally.is(released.memo.whose().unwrap_or(at_hand));
            match send_released(nats, emit, counters, &mut released) {
                Ok(()) if matches!(released.memo, Memo::Pass) => {
                    counters.passed.add(bytes);
                    tally.passed(bytes);
                }
                Ok(()) => {
                    let hairpinned = matches!(released.memo, Memo::Turned { .. });
                    counters.add_translated(direction, bytes, hairpinned);
                    tally.translated(bytes, hairpinned);
                }
                Err(reason) => {
                    counters.dropped.add(bytes);
                    counters.add_dropped(direction, reason, Count::one(bytes));
                    tally.dropped(tally.whose(), reason, Count::one(bytes));
                }
            }
        });
        tally.is(at_hand);
    }
}

impl Memo {
    /// Whose its packets are; of those that pass the memo does not tell.
    fn whose(&self) -> Option<(Row, bool)> {
        match self {
            Memo::Out { instance, .. } | Memo::Turned { out: (instance, _), .. } => {
                Some((Tally::stateful(*instance), false))
            }
            Memo::In { instance, .. } => Some((Tally::stateful(*instance), true)),
            Memo::Pass => None,
        }
    }

    /// Whether a packet is IPv6 on one of its sides.
    fn has_ipv6(&self) -> bool {
        match self {
            Memo::Out { to, .. } => matches!(to, Outward::From6(_)),
            Memo::In { to, .. } => matches!(to, Inward::To6(_)),
            Memo::Turned { out, back } => {
                matches!(out.1, Outward::From6(_)) || matches!(back.1, Inward::To6(_))
            }
            Memo::Pass => false,
        }
    }

    fn direction(&self) -> Direction {
        match self {
            Memo::Out { to: Outward::From6(_), .. } | Memo::Turned { out: (_, Outward::From6(_)), .. } => {
                Direction::SixToFour
            }
            Memo::In { to: Inward::To6(_), .. } => Direction::FourToSix,
            _ => Direction::FourToFour,
        }
    }
}

/// Translates a fragment, first or not, as its datagram's first one is; `whole` is the datagram, if it was collected.
fn follow(
    nats: Instances<'_>,
    packet: &mut Packet<'_>,
    memo: &Memo,
    whole: Option<Datagram>,
) -> Result<Step, DropReason> {
    let missing = DropReason::FragmentOrphan;
    match *memo {
        Memo::Out { instance, to: Outward::From6(to) } => {
            let nat = nats.nat64(instance).ok_or(missing)?;
            let view = Ipv6View::parse(packet.bytes())?;
            let l4 = view.l4(packet.bytes())?;
            let to = To4 { ports: ports_for(l4, to.ports, whole), ..to };
            rfc7915::six_to_four::translate(packet, &view, l4, &to, 0, &nat.settings).map(Step::forward)
        }
        Memo::Out { instance, to: Outward::From4(to) } => {
            let Some(Instance::Nat44(nat)) = nats.get(instance) else { return Err(missing) };
            let view = Ipv4View::parse(packet.bytes())?;
            let l4 = view.l4(packet.bytes())?;
            let to = Rewrite { ports: ports_for(l4, to.ports, whole), ..to };
            rfc3022::translate(packet, &view, l4, &to, nat.link).map(Step::forward)
        }
        Memo::In { instance, to } => {
            let instance = nats.get(instance).ok_or(missing)?;
            let view = Ipv4View::parse(packet.bytes())?;
            let l4 = view.l4(packet.bytes())?;
            instance.write_inward(packet, &view, l4, &inward_for(l4, to, whole)).map(Step::forward)
        }
        Memo::Pass => Ok(Step::Pass),
        Memo::Turned { out, back } => {
            let l4 = match out.1 {
                Outward::From6(_) => Ipv6View::parse(packet.bytes())?.l4(packet.bytes())?,
                Outward::From4(_) => Ipv4View::parse(packet.bytes())?.l4(packet.bytes())?,
            };
            let to = outward_for(l4, out.1, whole);
            hairpin::turn(nats, packet, (out.0, &to), (back.0, &inward_for(l4, back.1, whole)))
        }
    }
}

/// Only a first fragment has ports; all of an echo message that was collected are told its length.
fn ports_for(l4: L4, first: Ports, whole: Option<Datagram>) -> Ports {
    match (first, whole) {
        (Ports::EchoId(id), Some(whole)) => Ports::EchoPiece { id, len: whole.len as u16 },
        _ if l4 == L4::LaterFragment => Ports::Keep,
        (first, _) => first,
    }
}

fn inward_for(l4: L4, to: Inward, whole: Option<Datagram>) -> Inward {
    match to {
        Inward::To6(to) => Inward::To6(To6 { ports: ports_for(l4, to.ports, whole), ..to }),
        Inward::To4(to) => Inward::To4(Rewrite { ports: ports_for(l4, to.ports, whole), ..to }),
    }
}

fn outward_for(l4: L4, to: Outward, whole: Option<Datagram>) -> Outward {
    match to {
        Outward::From6(to) => Outward::From6(To4 { ports: ports_for(l4, to.ports, whole), ..to }),
        Outward::From4(to) => Outward::From4(Rewrite { ports: ports_for(l4, to.ports, whole), ..to }),
    }
}

fn send_released(
    nats: Instances<'_>,
    emit: &mut Emit,
    counters: &mut Counters,
    released: &mut Released<'_, Memo>,
) -> Result<(), DropReason> {
    let packet = &mut released.packet;
    if let Some(datagram) = released.datagram.filter(|_| released.info.is_first()) {
        fill_checksum(packet, datagram)?;
    }
    match follow(nats, packet, &released.memo, released.datagram)? {
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

/// Writes the UDP checksum that the sender left out, now that the whole datagram is there. That of an echo message is
/// there, and changes by difference.
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

/// Counts the last fate of fragments that were held and then dropped.
pub(crate) fn settle_ended(sh: &mut Shared) {
    let Shared { fragments, counters, tally, .. } = sh;
    fragments.take_ended(|ended| {
        counters.add_dropped(ended.direction, ended.reason, ended.count);
        counters.dropped += ended.count;
        let row = match u8::try_from(ended.instance) {
            Ok(instance) => Tally::stateful(instance),
            Err(_) => tally.of_pool(usize::from(OF_POOLS - ended.instance)),
        };
        tally.dropped(row, ended.reason, ended.count);
        counters.held -= ended.count.packets;
    });
}
