//! The first passes over a burst: they prefetch the memory that each packet's look-up will need, so that the
//! cache misses of a burst overlap. They read fixed places of plain TCP and UDP packets only. The result
//! about state is a hint. The owner of an address does not change within a burst.

mod session_opens;

use super::rules::Rules;
use super::rules::nat44::{self, Nat44};
use super::siit::{MappingLookups, NeedsSlowPath, SiitState};
use super::state::Core;
use crate::base::plan::Transport;
use crate::tables::bib::{PoolAddress, Tables};
use crate::tables::prefixes::PrefixOwner;
use crate::tables::session::{Endpoint4, Flow, Inside, NONE, RecordId};
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::Packet;
use gatun_wire::hdr::{ipv4, ipv6};
use gatun_wire::proto::{TCP, UDP};
pub(crate) use session_opens::{SessionOpens, session_opens};

/// Likely place of a packet's state, with the facts read from its first bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hint {
    None,
    Session(SessionHint),
    Session44(SessionHint),
    Binding(BindingHint),
    Stateless6(StatelessHint),
    Stateless4(StatelessHint),
}

/// Hint for a packet from inside: an IPv6 one to a translation prefix, or an IPv4 one of a NAT44 instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionHint {
    /// Hash of its session.
    pub(crate) hash: u64,
    pub(crate) flow: Flow,
    /// The record that is most likely that of its session.
    pub(crate) record: RecordId,
    pub(crate) transport: Transport,
    /// Its instance, and the one of the instance's prefixes that contains its destination.
    pub(crate) owner: PrefixOwner,
}

/// Hint for a packet to a pool address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BindingHint {
    pub(crate) at: PoolAddress,
    pub(crate) port: u16,
    pub(crate) transport: Transport,
    /// The record that is most likely that of its session.
    pub(crate) record: RecordId,
}

/// Hint for a packet to a stateless instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatelessHint {
    pub(crate) instance: u8,
    pub(crate) looks: MappingLookups,
}

/// Number of packets that are read together. A prefetch ends only when its page is known, and the processor
/// looks for several pages at once only if the prefetches are within some hundred instructions. So a group
/// issues its prefetches together, without reading packets in between. No more than about twenty lines can be
/// on their way; further prefetches are lost. So groups are small, and one group is read while the lines of
/// the other one arrive (decision 0033).
const GROUP: usize = 16;

/// Finds the likely state of each packet of a burst and prefetches it. Returns whether a packet may open a
/// session.
///
/// Each pass over a group is a function of its own. In a single function, the variables of the passes would
/// not fit into the registers.
pub(crate) fn look(core: &Core, burst: &[Packet<'_>], hints: &mut [Hint]) -> bool {
    let tables = &core.state.tables;
    let mut opens = false;
    // Counters of few subscribers stay in the cache.
    let counted = tables.has_many_subscribers();
    let (mut before, mut earlier): (&mut [Hint], &mut [Hint]) = (&mut [], &mut []);
    for (packets, group) in burst.chunks(GROUP).zip(hints.chunks_mut(GROUP)) {
        match core.rules.ruled {
            false => read::<false>(core, packets, group),
            true => read::<true>(core, packets, group),
        }
        lines(tables, group);
        if counted {
            accounts(tables, earlier);
        }
        opens |= candidates(tables, before);
        records(tables, before);
        earlier = core::mem::replace(&mut before, group);
    }
    opens |= candidates(tables, before);
    records(tables, before);
    if counted {
        accounts(tables, earlier);
        accounts(tables, before);
    }
    opens
}

/// Reads the packets. Hints are written in place: a copied hint is written in parts and read as a whole, and
/// the processor waits for that. `RULED` is true if realms or sources choose instances. It is a constant, so
/// that other plans pay nothing for it.
#[inline(never)]
fn read<const RULED: bool>(core: &Core, burst: &[Packet<'_>], hints: &mut [Hint]) {
    for (hint, packet) in hints.iter_mut().zip(burst) {
        let bytes = packet.bytes();
        *hint = Hint::None;
        let _: Option<()> = match bytes.first().map(|b| b >> 4) {
            Some(6) => six::<RULED>(bytes, packet.realm, core, hint),
            Some(4) => four::<RULED>(bytes, packet.realm, core, hint),
            _ => None,
        };
    }
}

/// Prefetches the first line of each look-up.
#[inline(never)]
fn lines(tables: &Tables, hints: &[Hint]) {
    for hint in hints {
        match hint {
            Hint::Session(hint) | Hint::Session44(hint) => tables.prefetch(hint.hash),
            Hint::Binding(hint) => tables.prefetch_binding(hint.at, hint.transport, hint.port),
            Hint::None | Hint::Stateless6(_) | Hint::Stateless4(_) => {}
        }
    }
}

/// Finds the record through that line. Returns whether a packet may open a session.
#[inline(never)]
fn candidates(tables: &Tables, hints: &mut [Hint]) -> bool {
    let mut opens = false;
    for hint in hints {
        match hint {
            Hint::Session(hint) | Hint::Session44(hint) => {
                hint.record = tables.candidate(hint.hash);
                opens |= hint.record == NONE;
            }
            Hint::Binding(hint) => {
                hint.record = tables.binding_at(hint.at, hint.transport, hint.port).unwrap_or(NONE);
            }
            Hint::None | Hint::Stateless6(_) | Hint::Stateless4(_) => {}
        }
    }
    opens
}

/// Prefetches the records.
#[inline(never)]
fn records(tables: &Tables, hints: &[Hint]) {
    for hint in hints {
        match hint {
            Hint::Session(SessionHint { record, .. })
            | Hint::Session44(SessionHint { record, .. })
            | Hint::Binding(BindingHint { record, .. }) => tables.prefetch_record(*record),
            Hint::None | Hint::Stateless6(_) | Hint::Stateless4(_) => {}
        }
    }
}

/// Prefetches the counters of the records' subscribers.
#[inline(never)]
fn accounts(tables: &Tables, hints: &[Hint]) {
    for hint in hints {
        match hint {
            Hint::Session(SessionHint { record, .. })
            | Hint::Session44(SessionHint { record, .. })
            | Hint::Binding(BindingHint { record, .. }) => tables.prefetch_accounts(*record),
            Hint::None | Hint::Stateless6(_) | Hint::Stateless4(_) => {}
        }
    }
}

impl SessionHint {
    /// Creates the hint for a packet of `inside` to `remote`.
    #[inline(always)]
    fn new(tables: &Tables, inside: &Inside, remote: Endpoint4, pool6: u8) -> SessionHint {
        let hash = tables.session_hash(inside, remote);
        SessionHint {
            hash,
            flow: Flow::new(inside.port, remote),
            record: NONE,
            transport: inside.transport,
            owner: PrefixOwner { instance: inside.instance, pool6 },
        }
    }

    /// Returns the inside transport address of the packet that this hint was made from.
    #[inline]
    pub(crate) fn inside(&self, packet: &[u8]) -> Option<Inside> {
        // Reads a number: bytes from either place would be combined one by one.
        let addr = match packet.first()? >> 4 {
            6 => u128::from_be_bytes(*packet.get(ipv6::ADDRESSES..)?.first_chunk::<16>()?),
            _ => {
                0xffff << 32 | u128::from(u32::from_be_bytes(*packet.get(ipv4::ADDRESSES..)?.first_chunk()?))
            }
        };
        let port = self.flow.inside_port();
        let addr = Ipv6Addr::from(addr);
        Some(Inside { addr, port, transport: self.transport, instance: self.owner.instance })
    }
}

#[inline]
fn transport(proto: u8) -> Option<Transport> {
    match proto {
        TCP => Some(Transport::Tcp),
        UDP => Some(Transport::Udp),
        _ => None,
    }
}

#[inline(always)]
fn six<const RULED: bool>(bytes: &[u8], realm: u8, core: &Core, hint: &mut Hint) -> Option<()> {
    let h = bytes.first_chunk::<44>()?;
    let transport = transport(h[6])?;
    let src = Ipv6Addr::from(*h.get(8..)?.first_chunk::<16>()?);
    let dst = Ipv6Addr::from(*h.get(24..)?.first_chunk::<16>()?);
    let owned =
        if RULED { core.rules.prefixes.of_packet(src, dst, realm) } else { core.rules.prefixes.of(dst) };
    let Some((prefix, owner)) = owned else {
        return stateless6(core, src, dst, hint);
    };
    let port = be16(h[40], h[41]);
    let remote = (prefix.extract_unchecked(dst), be16(h[42], h[43]));
    // A nonzero suffix is ignored (RFC 6052 2.2), but the checksum covers it. So the packet is not a plain
    // one.
    if prefix.len() != 96 && prefix.embed(remote.0) != dst {
        return None;
    }
    let inside = Inside { addr: src, port, transport, instance: owner.instance };
    *hint = Hint::Session(SessionHint::new(&core.state.tables, &inside, remote, owner.pool6));
    Some(())
}

#[inline(always)]
fn four<const RULED: bool>(bytes: &[u8], realm: u8, core: &Core, hint: &mut Hint) -> Option<()> {
    let h = bytes.first_chunk::<24>()?;
    let src = Ipv4Addr::new(h[12], h[13], h[14], h[15]);
    let dst = Ipv4Addr::new(h[16], h[17], h[18], h[19]);
    let tables = &core.state.tables;
    if let Some(nat) = if RULED { core.rules.inside44(src, realm) } else { core.rules.first44(src) } {
        return outbound44(core, nat, h, (src, dst), hint);
    }
    let Some(at) = tables.locate(dst) else {
        return stateless4(core, src, dst, hint);
    };
    if h[0] != 0x45 {
        return None;
    }
    let (transport, port) = (transport(h[9])?, be16(h[22], h[23]));
    *hint = Hint::Binding(BindingHint { at, port, transport, record: NONE });
    Some(())
}

/// Finds the first stateless instance that the packet is for.
#[inline(always)]
fn stateless(
    rules: &Rules,
    look: impl Fn(&SiitState) -> Result<Option<MappingLookups>, NeedsSlowPath>,
) -> Option<StatelessHint> {
    for (instance, siit) in (0u8..).zip(rules.siit.iter()) {
        if let Some(looks) = look(siit).ok()? {
            return Some(StatelessHint { instance, looks });
        }
    }
    None
}

/// Makes the hint for a packet from the inside of a NAT44 instance.
#[inline(always)]
fn outbound44(
    core: &Core,
    nat: &Nat44,
    h: &[u8; 24],
    (src, dst): (Ipv4Addr, Ipv4Addr),
    hint: &mut Hint,
) -> Option<()> {
    let (port, remote) = (be16(h[20], h[21]), (dst, be16(h[22], h[23])));
    let transport = transport(h[9]).filter(|_| h[0] == 0x45)?;
    if nat.is_exempt(dst, h[9], Some(remote.1)) {
        return None;
    }
    let inside = nat44::inside_of(nat, src, port, transport);
    *hint = Hint::Session44(SessionHint::new(&core.state.tables, &inside, remote, 0));
    Some(())
}

#[inline(never)]
fn stateless6(core: &Core, src: Ipv6Addr, dst: Ipv6Addr, hint: &mut Hint) -> Option<()> {
    *hint = Hint::Stateless6(stateless(&core.rules, |siit| siit.look6(src, dst))?);
    Some(())
}

#[inline(never)]
fn stateless4(core: &Core, src: Ipv4Addr, dst: Ipv4Addr, hint: &mut Hint) -> Option<()> {
    *hint = Hint::Stateless4(stateless(&core.rules, |siit| siit.look4(src, dst))?);
    Some(())
}

#[inline]
fn be16(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low])
}
