//! From inside to inside through outside addresses (RFC 6146 3.8, RFC 4787 REQ-9): both translations
//! at once, filtered as if the packet had come from IPv4. The hop limit falls by two, as it would at a
//! translator and a router behind it.

use super::filter::{self, Refused};
use super::{From6, Nat64, Query};
use crate::bib::Place;
use crate::plan::Transport;
use crate::shared::Shared;
use crate::step::Step;
use crate::time::Instant;
use gatun_wire::rfc7915::{four_to_six, six_to_four};
use gatun_wire::{DropReason, Ipv4View, Packet, Ports, Settings, To4, To6, Whole};

/// Turns a query round whose outgoing destination is a pool address. `to` is its IPv4 form.
#[cold]
#[allow(clippy::too_many_arguments)]
pub(crate) fn query(
    nats: &[Nat64],
    sh: &mut Shared,
    now: Instant,
    packet: &mut Packet<'_>,
    from: From6,
    query: Query,
    to: To4,
    place: Place,
) -> Result<Step, DropReason> {
    let back = decide(nats, sh, now, &from, &query, &to, place)?;
    turn(nats, packet, &from, &to, &back)
}

/// The IPv6 form of the packet at its receiver.
pub(crate) fn decide(
    nats: &[Nat64],
    sh: &mut Shared,
    now: Instant,
    from: &From6,
    query: &Query,
    to: &To4,
    place: Place,
) -> Result<To6, DropReason> {
    if from.view.hop_limit <= 2 {
        return Err(DropReason::TtlExceeded);
    }
    let (src_port, dst_port) = match to.ports {
        Ports::Set { src, dst } => (src, dst),
        Ports::EchoId(id) => (0, id),
        Ports::Keep => (query.src_port, query.dst_port),
    };
    let inward = Query { src_port, dst_port, ..*query };
    let remote = (to.src, if query.transport == Transport::Icmp { 0 } else { src_port });
    match filter::admit(nats, sh, now, place, &inward, remote) {
        Ok((_, back)) => Ok(back),
        Err(Refused::Drop(reason) | Refused::Hold(reason)) => Err(reason),
    }
}

/// Both translations of one packet. It never is on an IPv4 link, so only the IPv6 MTU counts.
pub(crate) fn turn(
    nats: &[Nat64],
    packet: &mut Packet<'_>,
    from: &From6,
    to: &To4,
    back: &To6,
) -> Result<Step, DropReason> {
    let nat = nats.get(usize::from(from.instance)).ok_or(DropReason::NoSession)?;
    let settings = inner_settings(&nat.settings);
    let id = from.view.fragment.map_or(0, |f| f.id as u16);
    let _ = six_to_four::translate(packet, &from.view, from.l4, to, id, &settings)?;
    // The bytes have changed: what goes wrong from here on can't be answered.
    Ok(match turn_back(packet, back, &settings) {
        Ok(whole) => Step::Forward { whole, hairpinned: true },
        Err(reason) => Step::Lost(reason),
    })
}

fn turn_back(packet: &mut Packet<'_>, back: &To6, settings: &Settings) -> Result<Whole, DropReason> {
    let view = Ipv4View::parse(packet.bytes())?;
    let l4 = view.l4(packet.bytes())?;
    four_to_six::translate(packet, &view, l4, back, settings)
}

/// Settings for a packet that is IPv4 only between two lines of code.
pub(crate) fn inner_settings(settings: &Settings) -> Settings {
    Settings {
        mtu4: u32::from(u16::MAX),
        mtu6: u32::from(u16::MAX),
        lowest_ipv6_mtu: u32::from(u16::MAX),
        icmp4_error_max: u16::MAX,
        ..*settings
    }
}
