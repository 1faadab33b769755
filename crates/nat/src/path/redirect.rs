//! Packets on their way to and from other nodes of a cluster (decision 0108).

use super::classify::flow::{self, FlowOwner};
use super::state::{Core, Scratch};
use super::translate::{Received, refuse};
use crate::base::attribution::{Account, Attribution};
use crate::base::counters::Direction;
use crate::base::emit::Emit;
use crate::base::outcome::Refusal;
use crate::base::redirect::Tunnel;
use crate::base::time::Instant;
use crate::base::verdict::Verdict;
use gatun_wire::hdr::ipv4;
use gatun_wire::rfc7915::fragment;
use gatun_wire::vxlan::{self, Inner, Outer};
use gatun_wire::{DropReason, HEADROOM, Ipv4View, Ipv6View, Offload, Packet, segment};

/// Sends a packet to another node: one hop less, and with outer headers.
pub(crate) fn redirect(
    core: &mut Core,
    now: Instant,
    packet: &mut Packet<'_>,
    tunnel: &Tunnel,
    node: u8,
) -> Verdict {
    let bytes = packet.len();
    core.state.emit.after = 0;
    core.state.counters.receive(bytes);
    core.state.counters.rx.packets += 1;
    let sent = match tunnel.outer(node, packet.realm) {
        Some(outer) if packet.offload == Offload::default() => {
            enclose(&mut core.state.emit, packet, &outer, tunnel.inner_mtu())
        }
        Some(outer) => one_by_one(core, packet, &outer, tunnel.inner_mtu()),
        None => Err(DropReason::ShardNowhere.into()),
    };
    match sent {
        Ok(pieces) => {
            // The network between the nodes is that of realm 0.
            packet.realm = 0;
            core.state.counters.fragments_made += pieces;
            core.state.counters.add_redirected(node, bytes);
            Verdict::Redirect
        }
        Err(refusal) => refuse_any(core, now, packet, bytes, refusal),
    }
}

/// Takes the outer headers off a packet that another node has redirected.
///
/// # Errors
/// Returns the verdict on a packet that no node of the cluster has sent.
pub(crate) fn receive(core: &mut Core, packet: &mut Packet<'_>, tunnel: &Tunnel) -> Result<(), Verdict> {
    let bytes = packet.len();
    match tunnel.take_out(packet, core.rules.realm_max) {
        Ok(realm) => {
            packet.realm = realm;
            Ok(())
        }
        Err(reason) => Err(drop_silently(core, bytes, packet, reason)),
    }
}

impl Core {
    /// Returns the shard whose state a packet needs: 0 without a cluster. `None` if it needs no state.
    pub(crate) fn shard_of(&self, packet: &Packet<'_>) -> Option<u8> {
        let owner = flow::owner(&self.rules, packet.bytes(), packet.realm)?;
        match (&self.state.tables.sharding, owner) {
            (Some(sharding), owner) => owner.part(sharding).map(|shard| shard as u8),
            (None, FlowOwner::Address(address)) => self.state.tables.locate(address).map(|_| 0),
            (None, FlowOwner::Subscriber(_)) => Some(0),
        }
    }
}

/// Returns the number of packets before the first one of a shard that may not be translated any more
/// ([`Fence`](crate::standby::Fence)).
#[cold]
pub(crate) fn before_fenced(core: &Core, now: Instant, burst: &[Packet<'_>]) -> usize {
    let standby = &core.state.tables.standby;
    let is_fenced = |packet| core.shard_of(packet).is_some_and(|shard| standby.is_fenced(shard, now));
    burst.iter().position(is_fenced).unwrap_or(burst.len())
}

/// Drops a received packet without an answer.
#[cold]
pub(crate) fn drop_silently(
    core: &mut Core,
    bytes: usize,
    packet: &Packet<'_>,
    reason: DropReason,
) -> Verdict {
    let direction = core.classifier().direction(packet);
    let counters = &mut core.state.counters;
    counters.receive(bytes);
    counters.rx.packets += 1;
    counters.dropped.add(bytes);
    core.state.count_drop(Account::Nobody, direction, reason, bytes);
    Verdict::Drop(reason)
}

#[cold]
fn refuse_any(
    core: &mut Core,
    now: Instant,
    packet: &mut Packet<'_>,
    bytes: usize,
    refusal: Refusal,
) -> Verdict {
    let direction: Direction = core.classifier().direction(packet);
    refuse(core, now, packet, Received { direction, bytes, attribution: Attribution::NONE }, refusal)
}

/// Puts outer headers before a packet without work left for a device. Returns the number of further
/// fragments, which are emitted.
#[inline]
fn enclose(emit: &mut Emit, packet: &mut Packet<'_>, outer: &Outer, mtu: u32) -> Result<u64, Refusal> {
    let bytes = packet.bytes();
    let (inner, total_len, hops, may_be_cut) = match bytes.first().map(|b| b >> 4) {
        Some(4) => {
            let view = Ipv4View::parse(bytes)?;
            (Inner::of4(bytes, &view), view.total_len, view.ttl, !view.dont_fragment)
        }
        _ => {
            let view = Ipv6View::parse_fixed(bytes)?;
            (Inner::of6(bytes, &view), view.total_len, view.hop_limit, false)
        }
    };
    if hops <= 1 {
        return Err(DropReason::TtlExceeded.into());
    }
    if total_len > mtu && !may_be_cut {
        let reason = if inner.is_v6 { DropReason::TooBig6 } else { DropReason::TooBig4 };
        return Err(Refusal::too_big(reason, mtu));
    }
    packet.truncate(total_len as usize);
    let before = packet.len();
    if total_len > mtu {
        return Ok(cut(emit, packet, (outer, &inner), mtu)?);
    }
    debug_assert!(before <= mtu as usize);
    outer.encapsulate(packet, &inner)?;
    vxlan::take_hop(packet.bytes_mut().get_mut(outer.headers_len()..).unwrap_or_default(), inner.is_v6);
    Ok(0)
}

/// Cuts an IPv4 packet for the tunnel. The first fragment stays in `packet`.
#[cold]
fn cut(
    emit: &mut Emit,
    packet: &mut Packet<'_>,
    (outer, inner): (&Outer, &Inner),
    mtu: u32,
) -> Result<u64, DropReason> {
    let (len, mut pieces) = (outer.headers_len(), 0);
    fragment::split4(packet, mtu, |head, tail| {
        let mut headers = [0; vxlan::HEADERS_MAX + HEADER4_MAX];
        let headers = headers.get_mut(..len + head.len()).ok_or(DropReason::NoHeadroom)?;
        let (before, copy) = headers.split_at_mut(len);
        copy.copy_from_slice(head);
        vxlan::take_hop(copy, false);
        outer.write(inner, head.len() + tail.len(), before)?;
        pieces += 1;
        emit.push(0, headers, tail)
    })?;
    outer.encapsulate(packet, inner)?;
    vxlan::take_hop(packet.bytes_mut().get_mut(len..).unwrap_or_default(), false);
    Ok(pieces)
}

/// Largest IPv4 header.
const HEADER4_MAX: usize = 60;
const _: () = assert!(HEADER4_MAX == 3 * ipv4::LEN);

/// Does a device's work on a packet first, because no device does it inside a tunnel. The first packet of a
/// super-packet replaces it, and the others are emitted.
#[cold]
fn one_by_one(core: &mut Core, packet: &mut Packet<'_>, outer: &Outer, mtu: u32) -> Result<u64, Refusal> {
    let mut scratch = core::mem::replace(&mut core.scratch, Scratch::none());
    let sent = each(&mut core.state.emit, packet, (outer, mtu), &mut scratch);
    core.scratch = scratch;
    sent
}

fn each(
    emit: &mut Emit,
    packet: &mut Packet<'_>,
    (outer, mtu): (&Outer, u32),
    scratch: &mut Scratch,
) -> Result<u64, Refusal> {
    let Scratch { datagram, first } = scratch;
    let (mut first_len, mut pieces) = (0, 0);
    for index in 0..segment::count(packet) {
        let len = segment::write(packet, index, datagram.get_mut(HEADROOM..).unwrap_or_default())?;
        let mut one = Packet::new(datagram, HEADROOM, len).ok_or(DropReason::NoHeadroom)?;
        match enclose(emit, &mut one, outer, mtu) {
            Ok(more) => pieces += more,
            Err(refusal) if index == 0 => return Err(refusal),
            // It has the size of the first one, or less.
            Err(_) => break,
        }
        match index {
            0 => {
                first_len = one.len();
                let place = first.get_mut(..first_len).ok_or(DropReason::NoHeadroom)?;
                place.copy_from_slice(one.bytes());
            }
            _ if emit.push(0, one.bytes(), &[]).is_err() => break,
            _ => {}
        }
    }
    packet.replace(first.get(..first_len).unwrap_or_default())?;
    Ok(pieces)
}
