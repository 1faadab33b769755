//! Paths with a small MTU ([`crate::tables::path_mtu`]): learning from packets, and packets that have to fit
//! such a path.

use super::state::EngineState;
use crate::base::step::Step;
use crate::base::time::Instant;
use crate::tables::feed::PathRecord;
use crate::tables::path_mtu::{LIFETIME_MS, Paths};
use core::net::Ipv4Addr;
use gatun_wire::hdr::tcp;
use gatun_wire::rfc7915::mtu;
use gatun_wire::{Ipv4View, L4, Packet, Whole, mss, proto};

/// Bytes of IPv4 and TCP header before a segment.
const HEADERS: u16 = 40;

/// A packet's note for its path, taken before it is translated.
pub(crate) enum PathNote {
    /// No action is needed.
    Nothing,
    /// An IPv6 packet, if any small path MTU is known.
    Six,
    /// A SYN from this IPv4 host.
    SynFrom(Ipv4Addr),
    /// The path to this host has this MTU, bytes.
    Mtu(Ipv4Addr, u16),
}

impl PathNote {
    /// Makes the note of a packet as received.
    #[inline]
    pub(crate) fn of(packet: &Packet<'_>, paths: &Paths) -> PathNote {
        match packet.bytes().first().map(|b| b >> 4) {
            Some(4) => Self::of4(packet.bytes(), paths).unwrap_or(PathNote::Nothing),
            Some(6) if !paths.is_empty() => PathNote::Six,
            _ => PathNote::Nothing,
        }
    }

    fn of4(packet: &[u8], paths: &Paths) -> Option<PathNote> {
        // Most packets end here without further reads.
        match *packet.get(9)? {
            proto::ICMP => {}
            proto::TCP if !paths.is_empty() => {}
            _ => return None,
        }
        let view = Ipv4View::parse(packet).ok()?;
        match view.l4(packet).ok()? {
            L4::Tcp { flags, .. } if flags & tcp::SYN != 0 => Some(PathNote::SynFrom(view.src)),
            L4::IcmpError { kind: 3, code: 4 } => advertised(packet.get(view.l4_offset.into()..)?),
            _ => None,
        }
    }
}

/// Returns the path MTU that a Fragmentation Needed (RFC 792, RFC 1191 4) advertises, if IPv6 hosts cannot
/// send packets that small.
fn advertised(message: &[u8]) -> Option<PathNote> {
    let quoted = message.get(8..)?;
    let total_len = u32::from(u16::from_be_bytes(*quoted.get(2..)?.first_chunk()?));
    let remote = Ipv4Addr::from(*quoted.get(16..)?.first_chunk::<4>()?);
    let advertised = u16::from_be_bytes(*message.get(6..)?.first_chunk()?);
    let mtu = mtu::path_mtu(advertised, total_len);
    // Routers do not refuse packets that fit.
    if mtu >= mtu::DF_CLEAR_MAX || total_len <= mtu {
        return None;
    }
    Some(PathNote::Mtu(remote, mtu as u16))
}

/// Applies the note of a packet after its translation: fragments it for its path, learns an MTU, or lowers a
/// segment size.
#[inline]
pub(crate) fn apply(
    state: &mut EngineState,
    now: Instant,
    packet: &mut Packet<'_>,
    note: PathNote,
    step: Step,
) -> Step {
    match (step, note) {
        (Step::Forward { whole: Whole::Yes, hairpinned: false }, PathNote::Six) => {
            Step::Forward { whole: cut_to_path(state, now, packet), hairpinned: false }
        }
        (Step::Forward { .. }, PathNote::Mtu(remote, mtu)) if is_ipv6(packet) => {
            learn(state, now, remote, mtu);
            step
        }
        (Step::Forward { .. }, PathNote::SynFrom(remote)) if is_ipv6(packet) => {
            if let Some(mtu) = state.paths.of(now, remote) {
                mss::lower(packet, mtu - HEADERS);
            }
            step
        }
        _ => step,
    }
}

/// Returns whether a packet is IPv6. Packets of NAT44 stay IPv4, and their hosts can send packets as small as
/// requested.
fn is_ipv6(packet: &Packet<'_>) -> bool {
    packet.bytes().first().is_some_and(|b| b >> 4 == 6)
}

#[cold]
fn learn(state: &mut EngineState, now: Instant, remote: Ipv4Addr, mtu: u16) {
    state.counters.path_mtus_learnt += 1;
    state.counters.path_mtus_evicted += u64::from(state.paths.learn(now, remote, mtu));
    if let Some(mtu) = state.paths.of(now, remote) {
        state.tables.feed_path(&PathRecord { remote, mtu, expires_ms: LIFETIME_MS });
    }
}

/// Returns how a packet that was IPv6 and is IPv4 now leaves. If necessary, lowers its segment size, or the
/// one that it announces.
#[cold]
fn cut_to_path(state: &mut EngineState, now: Instant, packet: &mut Packet<'_>) -> Whole {
    let Ok(view) = Ipv4View::parse(packet.bytes()) else { return Whole::Yes };
    let Some(path) = state.paths.of(now, view.dst) else { return Whole::Yes };
    mss::lower(packet, path - HEADERS);
    mtu::narrow(packet, &view, path.into())
}
