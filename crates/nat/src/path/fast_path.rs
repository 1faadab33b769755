//! The fast path: plain packets of live sessions for which the packet changes only the expiry time. Nearly
//! all packets are of this kind, and go from their record to the wire through registers. Any other packet
//! takes the slow path unchanged. So the fast path only adds speed, and a test compares the two.
//!
//! [`session_open`] is the fast path of a session's first packet.

mod session_open;

pub(crate) use session_open::{SessionOpen, open4, open6};

use super::look_ahead::{BindingHint, SessionHint, StatelessHint};
use super::policy::Policy;
use super::rules::nat44;
use super::rules::nat64::{inbound_of, outbound_of};
use super::state::{Core, EngineState};
use crate::base::attribution::Party;
use crate::base::plan::Transport;
use crate::base::tcp_fsm::Side;
use crate::base::time::{Instant, Tick};
use crate::tables::session::{Endpoint4, Session};
use crate::tables::traffic::Accounts;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::Packet;
use gatun_wire::hdr::{ipv4, ipv6, tcp};
use gatun_wire::plain::Plain;
use gatun_wire::rfc3022::Rewrite;

/// Translates an IPv6 packet from inside. Returns `false` if it has to take the slow path.
#[inline(always)]
pub(crate) fn outbound6<const FED: bool>(
    core: &mut Core,
    now: Instant,
    packet: &mut Packet<'_>,
    hint: &SessionHint,
) -> bool {
    let Some(plain) = Plain::six(packet) else { return false };
    let Some(nat) = core.rules.nat64(hint.owner.instance) else { return false };
    let state = &mut core.state;
    let remote = hint.flow.remote();
    // A packet to a pool address is a hairpin.
    if !plain.fits4(&nat.settings)
        || state.tables.locate(remote.0).is_some()
        || state.paths.is_too_large(now, remote.0, plain.len4())
    {
        return false;
    }
    let (session, mut accounts) = state.tables.with_accounts(hint.record);
    if !session.is_of(packet.bytes(), hint.flow, hint.transport, hint.owner)
        || !goes_on::<FED>(&nat.policy, (session, &mut accounts), &plain, (Side::V6, hint.transport), now)
    {
        return false;
    }
    let party = Party { instance: hint.owner.instance, ..session.party() };
    accounts.count_outbound(party, packet.len());
    let to = outbound_of(session, hint.transport);
    let ports = (session.inside_port(), remote.1);
    let id = state.idents.next(hint.hash);
    plain.write4(packet, ports, &to, id, &nat.settings);
    true
}

/// Translates a packet to a pool address. Returns the number of its instance; `None` if it has to take the
/// slow path.
#[inline(always)]
pub(crate) fn inbound<const FED: bool>(
    core: &mut Core,
    now: Instant,
    packet: &mut Packet<'_>,
    hint: &BindingHint,
) -> Option<u8> {
    let plain = Plain::four(packet)?;
    let (remote, outside) = endpoints(packet.bytes())?;
    let (session, mut accounts) = core.state.tables.with_accounts(hint.record);
    let instance = session.instance;
    let Some(nat) = core.rules.nat64(instance) else {
        let done = inbound4::<FED>(core, now, packet, &plain, hint, (remote, outside));
        return done.then_some(instance);
    };
    if !session.is_at(outside, remote, hint.transport)
        || !plain.fits6(packet, &nat.settings)
        || !goes_on::<FED>(&nat.policy, (session, &mut accounts), &plain, (Side::V4, hint.transport), now)
    {
        return None;
    }
    accounts.count_inbound(session.party(), packet.len());
    let to = inbound_of(session, hint.transport, nat.prefix(session.pool6));
    plain.write6(packet, (remote.1, outside.1), &to, &nat.settings);
    Some(instance)
}

/// Same as [`inbound`], if the binding belongs to a NAT44 instance.
#[inline(always)]
fn inbound4<const FED: bool>(
    core: &mut Core,
    now: Instant,
    packet: &mut Packet<'_>,
    plain: &Plain,
    hint: &BindingHint,
    (remote, outside): (Endpoint4, Endpoint4),
) -> bool {
    let (session, mut accounts) = core.state.tables.with_accounts(hint.record);
    let Some(nat) = core.rules.nat44(session.instance) else { return false };
    if !session.is_at(outside, remote, hint.transport)
        || !plain.fits44(nat.link.mtu)
        || !goes_on::<FED>(&nat.policy, (session, &mut accounts), plain, (Side::V4, hint.transport), now)
    {
        return false;
    }
    accounts.count_inbound(session.party(), packet.len());
    let to = nat44::inbound_of(session, hint.transport);
    plain.write44(packet, (remote.1, outside.1), &to);
    true
}

/// Translates an IPv4 packet from inside. Returns `false` if it has to take the slow path.
#[inline(always)]
pub(crate) fn outbound4<const FED: bool>(
    core: &mut Core,
    now: Instant,
    packet: &mut Packet<'_>,
    hint: &SessionHint,
) -> bool {
    let Some(plain) = Plain::four(packet) else { return false };
    let Some(nat) = core.rules.nat44(hint.owner.instance) else { return false };
    let state = &mut core.state;
    let remote = hint.flow.remote();
    if !plain.fits44(nat.link.mtu) || state.tables.locate(remote.0).is_some() {
        return false;
    }
    let (session, mut accounts) = state.tables.with_accounts(hint.record);
    if !session.is_of44(packet.bytes(), hint.flow, hint.transport, hint.owner)
        || !goes_on::<FED>(&nat.policy, (session, &mut accounts), &plain, (Side::V6, hint.transport), now)
    {
        return false;
    }
    let party = Party { instance: hint.owner.instance, ..session.party() };
    accounts.count_outbound(party, packet.len());
    let to = nat44::outbound_of(session, hint.transport);
    let ports = (session.inside_port(), remote.1);
    write_outbound4(state, packet, &plain, ports, to, hint.transport);
    true
}

/// Translates an IPv6 packet to a stateless instance. Returns `false` if it has to take the slow path.
#[inline(never)]
pub(crate) fn stateless6(
    core: &mut Core,
    now: Instant,
    packet: &mut Packet<'_>,
    hint: &StatelessHint,
) -> bool {
    let Some(plain) = Plain::six(packet) else { return false };
    let Some(siit) = core.rules.siit.get(usize::from(hint.instance)) else { return false };
    let Some((src, dst)) = addresses6(packet.bytes()) else { return false };
    // The segment size that a SYN announces may have to be lowered.
    if plain.is_syn() || !plain.fits4(siit.settings()) {
        return false;
    }
    let Some(to) = siit.plain6(src, dst, &hint.looks) else { return false };
    if core.state.paths.is_too_large(now, to.dst, plain.len4()) {
        return false;
    }
    let id = core.state.idents.next_between(src, dst);
    plain.write4(packet, UNCHANGED, &to, id, siit.settings());
    true
}

/// Translates an IPv4 packet to a stateless instance. Returns `false` if it has to take the slow path.
#[inline(never)]
pub(crate) fn stateless4(core: &mut Core, packet: &mut Packet<'_>, hint: &StatelessHint) -> bool {
    let Some(plain) = Plain::four(packet) else { return false };
    let Some(siit) = core.rules.siit.get(usize::from(hint.instance)) else { return false };
    let Some((src, dst)) = endpoints(packet.bytes()) else { return false };
    if plain.is_syn() || !plain.fits6(packet, siit.settings()) {
        return false;
    }
    let Some(to) = siit.plain4(src.0, dst.0, &hint.looks) else { return false };
    plain.write6(packet, UNCHANGED, &to, siit.settings());
    true
}

/// Returns whether a session is alive and stays in its state. If so, updates its expiry time for the packet,
/// and counts it if the state feed waits for more of them.
#[inline(always)]
fn goes_on<const FED: bool>(
    policy: &Policy,
    (session, accounts): (&mut Session, &mut Accounts<'_>),
    plain: &Plain,
    (side, transport): (Side, Transport),
    now: Instant,
) -> bool {
    const CHANGES: u8 = tcp::SYN | tcp::FIN | tcp::RST;
    // Datagrams have no flags.
    if session.expires().has_come(Tick::at(now))
        || plain.flags & CHANGES != 0
        || !(session.is_established() || FED && session.is_counting())
    {
        return false;
    }
    if FED && session.count_packet() {
        accounts.established();
    }
    if policy.refreshes(side) {
        session.live_until(Tick::after(now, policy.established_ms(transport)));
    }
    true
}

/// Writes an outbound IPv4 packet with a new identification, because the identifications of many hosts become
/// those of one address (RFC 6864 5.3.1). Those of atomic datagrams have no meaning.
#[inline(always)]
fn write_outbound4(
    state: &mut EngineState,
    packet: &mut Packet<'_>,
    plain: &Plain,
    ports: (u16, u16),
    to: Rewrite,
    transport: Transport,
) {
    let hash = plain.may_be_cut().then(|| state.tables.pair_hash(to.src, to.dst, transport));
    let id = hash.map(|hash| state.idents.next(hash));
    plain.write44(packet, ports, &Rewrite { id, ..to });
}

/// Placeholder for ports that stay unchanged.
const UNCHANGED: (u16, u16) = (0, 0);

/// Returns source and destination of an IPv6 packet.
#[inline(always)]
fn addresses6(packet: &[u8]) -> Option<(Ipv6Addr, Ipv6Addr)> {
    let h = packet.get(ipv6::ADDRESSES..)?.first_chunk::<32>()?;
    let address = |at: usize| h.get(at..)?.first_chunk::<16>().map(|b| Ipv6Addr::from(*b));
    Some((address(0)?, address(16)?))
}

/// Returns source and destination of an IPv4 packet without options.
#[inline(always)]
fn endpoints(packet: &[u8]) -> Option<(Endpoint4, Endpoint4)> {
    let h = packet.get(ipv4::ADDRESSES..)?.first_chunk::<12>()?;
    let address = |at: usize| h.get(at..)?.first_chunk().map(|b| Ipv4Addr::from(*b));
    let port = |at: usize| h.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b));
    Some(((address(0)?, port(8)?), (address(4)?, port(10)?)))
}
