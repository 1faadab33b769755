//! Datagrams in pieces (RFC 6146 3.4). The first fragment decides as a whole packet would, and the others
//! follow it, whatever order they come in; [`crate::fragment`] keeps those that have to wait.

use super::filter::Refused;
use super::four_to_six::{self, From4};
use super::six_to_four;
use super::{From6, Nat64, Query, hairpin};
use crate::counters::{Counters, Direction};
use crate::emit::Emit;
use crate::fragment::{Datagram, Fragment, Later, Released};
use crate::shared::Shared;
use crate::step::Step;
use crate::time::Instant;
use gatun_wire::checksum::{add, pseudo};
use gatun_wire::proto::{ICMP, ICMPV6, TCP, UDP};
use gatun_wire::rfc7915::{self, ZeroChecksum};
use gatun_wire::{DropReason, Ipv4View, Ipv6View, L4, Packet, Ports, To4, To6, Whole};

/// How a first fragment was translated, and so its datagram's others.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Memo {
    Out { instance: u8, to: To4 },
    In { instance: u8, to: To6 },
    Turned { instance: u8, to: To4, back: To6 },
}

/// Whether fragments of this protocol are translated (RFC 7915 1.2: not those of ICMP, whose checksum
/// needs the whole message; RFC 6146 1.2: TCP and UDP).
fn check_protocol(proto: u8) -> Result<(), DropReason> {
    match proto {
        TCP | UDP => Ok(()),
        ICMP | ICMPV6 => Err(DropReason::FragmentIcmp),
        _ => Err(DropReason::UnsupportedProtocol),
    }
}

/// A fragment from inside.
pub(crate) fn six_to_four(
    nats: &[Nat64],
    sh: &mut Shared,
    now: Instant,
    packet: &mut Packet<'_>,
    from: &From6,
) -> Result<Step, DropReason> {
    let nat = nats.get(usize::from(from.instance)).ok_or(DropReason::NoSession)?;
    nat.check_source(from.view.src)?;
    check_protocol(from.view.proto)?;
    let fragment = Fragment::of6(from.instance.into(), &from.view).ok_or(DropReason::FragmentOrphan)?;
    let lifetime_ms = nat.timeouts.fragment_ms;
    let result = match Query::of(from.l4, true) {
        Some(query) => first_out(nats, nat, sh, now, packet, from, &query, &fragment),
        None => later(nats, sh, now, packet, &fragment, lifetime_ms),
    };
    settle_ended(sh);
    result
}

#[allow(clippy::too_many_arguments)]
fn first_out(
    nats: &[Nat64],
    nat: &Nat64,
    sh: &mut Shared,
    now: Instant,
    packet: &mut Packet<'_>,
    from: &From6,
    query: &Query,
    fragment: &Fragment,
) -> Result<Step, DropReason> {
    let lifetime_ms = nat.timeouts.fragment_ms;
    let memo = decide_out(nats, nat, sh, now, from, query)
        .inspect_err(|_| sh.fragments.refuse(now, fragment, lifetime_ms))?;
    let waiting = sh.fragments.first(now, fragment, lifetime_ms, memo)?;
    let done = match &memo {
        Memo::Turned { to, back, .. } => hairpin::turn(nats, packet, from, to, back),
        Memo::Out { to, .. } => {
            rfc7915::six_to_four::translate(packet, &from.view, from.l4, to, 0, &nat.settings)
                .map(Step::forward)
        }
        Memo::In { .. } => Err(DropReason::NoSession),
    };
    finish_first(nats, sh, now, fragment, lifetime_ms, waiting, done)
}

fn decide_out(
    nats: &[Nat64],
    nat: &Nat64,
    sh: &mut Shared,
    now: Instant,
    from: &From6,
    query: &Query,
) -> Result<Memo, DropReason> {
    let (inside, remote) = six_to_four::endpoints(nat, from, query);
    let hash = sh.tables.session_hash(&inside, remote);
    let to = six_to_four::decide(nat, sh, now, from, query, hash)?;
    match sh.tables.locate(to.dst) {
        None => Ok(Memo::Out { instance: nat.index, to }),
        Some(place) => {
            let back = hairpin::decide(nats, sh, now, from, query, &to, place)?;
            Ok(Memo::Turned { instance: nat.index, to, back })
        }
    }
}

/// A fragment from outside.
pub(crate) fn four_to_six(
    nats: &[Nat64],
    sh: &mut Shared,
    now: Instant,
    packet: &mut Packet<'_>,
    from: &From4,
) -> Result<Step, DropReason> {
    check_protocol(from.view.proto)?;
    // Which instance it is for shows only at the first fragment; the pool tells datagrams apart.
    let table = u16::MAX - from.place.pool as u16;
    let fragment = Fragment::of4(table, &from.view).ok_or(DropReason::FragmentOrphan)?;
    let of_pool = |n: &&Nat64| sh.tables.pool_of(n.index) == from.place.pool;
    let nat = nats.iter().find(of_pool).ok_or(DropReason::NoBib)?;
    let lifetime_ms = nat.timeouts.fragment_ms;
    let result = match Query::of(from.l4, false) {
        Some(query) => first_in(nats, sh, now, packet, from, &query, &fragment, lifetime_ms),
        None => later(nats, sh, now, packet, &fragment, lifetime_ms),
    };
    settle_ended(sh);
    result
}

#[allow(clippy::too_many_arguments)]
fn first_in(
    nats: &[Nat64],
    sh: &mut Shared,
    now: Instant,
    packet: &mut Packet<'_>,
    from: &From4,
    query: &Query,
    fragment: &Fragment,
    lifetime_ms: u32,
) -> Result<Step, DropReason> {
    let remote = (from.view.src, query.src_port);
    let (nat, to) = match four_to_six::decide(nats, sh, now, from, query, remote) {
        Ok(decided) => decided,
        Err(Refused::Drop(reason) | Refused::Hold(reason)) => {
            sh.fragments.refuse(now, fragment, lifetime_ms);
            return Err(reason);
        }
    };
    let memo = Memo::In { instance: nat.index, to };
    // RFC 6146 3.4: a datagram without UDP checksum is collected, because the checksum needs all of it.
    if matches!(from.l4, L4::Udp { no_checksum: true, .. })
        && nat.settings.udp_zero_checksum == ZeroChecksum::Compute
    {
        let complete = sh.fragments.collect(now, fragment, lifetime_ms, packet, memo)?;
        sh.counters.held += 1;
        if complete {
            release(nats, sh, now, fragment);
        }
        return Ok(Step::Held);
    }
    let waiting = sh.fragments.first(now, fragment, lifetime_ms, memo)?;
    let done = rfc7915::four_to_six::translate(packet, &from.view, from.l4, &to, &nat.settings);
    finish_first(nats, sh, now, fragment, lifetime_ms, waiting, done.map(Step::forward))
}

/// A first fragment has been translated, or not: those that wait for it follow.
fn finish_first(
    nats: &[Nat64],
    sh: &mut Shared,
    now: Instant,
    fragment: &Fragment,
    lifetime_ms: u32,
    waiting: u32,
    done: Result<Step, DropReason>,
) -> Result<Step, DropReason> {
    match &done {
        Err(_) => sh.fragments.refuse(now, fragment, lifetime_ms),
        Ok(_) if waiting > 0 => release(nats, sh, now, fragment),
        Ok(_) => {}
    }
    done
}

/// A fragment without transport header.
fn later(
    nats: &[Nat64],
    sh: &mut Shared,
    now: Instant,
    packet: &mut Packet<'_>,
    fragment: &Fragment,
    lifetime_ms: u32,
) -> Result<Step, DropReason> {
    match sh.fragments.later(now, fragment, lifetime_ms, packet) {
        Later::Known(memo) => follow(nats, packet, &memo),
        Later::Drop(reason) => Err(reason),
        Later::Held => {
            sh.counters.held += 1;
            Ok(Step::Held)
        }
        Later::Complete => {
            sh.counters.held += 1;
            release(nats, sh, now, fragment);
            Ok(Step::Held)
        }
    }
}

/// Translates a fragment as its datagram's first one was.
fn follow(nats: &[Nat64], packet: &mut Packet<'_>, memo: &Memo) -> Result<Step, DropReason> {
    let settings =
        |instance: u8| nats.get(usize::from(instance)).map(|n| &n.settings).ok_or(DropReason::FragmentOrphan);
    match *memo {
        Memo::Out { instance, to } => {
            let view = Ipv6View::parse(packet.bytes())?;
            let l4 = view.l4(packet.bytes())?;
            let to = To4 { ports: ports_for(l4, to.ports), ..to };
            rfc7915::six_to_four::translate(packet, &view, l4, &to, 0, settings(instance)?).map(Step::forward)
        }
        Memo::In { instance, to } => {
            let view = Ipv4View::parse(packet.bytes())?;
            let l4 = view.l4(packet.bytes())?;
            let to = To6 { ports: ports_for(l4, to.ports), ..to };
            rfc7915::four_to_six::translate(packet, &view, l4, &to, settings(instance)?).map(Step::forward)
        }
        Memo::Turned { instance, to, back } => {
            let view = Ipv6View::parse(packet.bytes())?;
            let l4 = view.l4(packet.bytes())?;
            let to = To4 { ports: ports_for(l4, to.ports), ..to };
            let back = To6 { ports: ports_for(l4, back.ports), ..back };
            let from = From6 { view, l4, instance, pool6: 0 };
            hairpin::turn(nats, packet, &from, &to, &back)
        }
    }
}

/// Only a first fragment has ports.
fn ports_for(l4: L4, first: Ports) -> Ports {
    if l4 == L4::LaterFragment { Ports::Keep } else { first }
}

/// Sends what was held of a datagram, right behind the packet being processed.
fn release(nats: &[Nat64], sh: &mut Shared, now: Instant, fragment: &Fragment) {
    let Shared { fragments, emit, counters, .. } = sh;
    fragments.release(now, fragment, |mut released| {
        let bytes = released.packet.len();
        let direction = match released.memo {
            Memo::In { .. } => Direction::FourToSix,
            _ => Direction::SixToFour,
        };
        counters.held -= 1;
        match send_released(nats, emit, counters, &mut released) {
            Ok(()) => {
                let hairpinned = matches!(released.memo, Memo::Turned { .. });
                counters.add_translated(direction, bytes, hairpinned);
            }
            Err(reason) => {
                counters.dropped.add(bytes);
                counters.drops[direction as usize][reason as usize].add(bytes);
            }
        }
    });
}

fn send_released(
    nats: &[Nat64],
    emit: &mut Emit,
    counters: &mut Counters,
    released: &mut Released<'_, Memo>,
) -> Result<(), DropReason> {
    if let Some(datagram) = released.datagram.filter(|_| released.info.is_first()) {
        fill_checksum(&mut released.packet, datagram)?;
    }
    let packet = &mut released.packet;
    match follow(nats, packet, &released.memo)? {
        Step::Forward { whole: Whole::Yes, .. } => {}
        Step::Forward { whole: Whole::Split(max), .. } => {
            counters.fragments_made += emit.push_cut(packet, max)?;
            return Ok(());
        }
        Step::Lost(reason) => return Err(reason),
        Step::Held | Step::Echo => return Err(DropReason::FragmentOrphan),
    }
    emit.push(packet.bytes(), &[])
}

/// Writes the UDP checksum that the sender left out, now that the whole datagram is there.
fn fill_checksum(packet: &mut Packet<'_>, datagram: Datagram) -> Result<(), DropReason> {
    const CHECKSUM: usize = 6;
    let view = Ipv4View::parse(packet.bytes())?;
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
    let Shared { fragments, counters, .. } = sh;
    fragments.take_ended(|ended| {
        let drops = &mut counters.drops[ended.direction as usize][ended.reason as usize];
        for total in [&mut counters.dropped, drops] {
            total.packets += ended.count.packets;
            total.bytes += ended.count.bytes;
        }
        counters.held -= ended.count.packets;
    });
}
