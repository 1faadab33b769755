//! The first pass over a burst: asks for the memory that each packet's look-up will need, so that the
//! misses of a burst overlap. It looks at fixed places of plain TCP and UDP packets only; whatever it
//! says is a hint, and the second pass reads the packet anew.

use crate::bib::{Place, Tables};
use crate::nat64::{Nat64, longest};
use crate::plan::Transport;
use crate::session::Inside;
use crate::siit::SiitState;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::proto::{TCP, UDP};

/// Where a packet's state most likely is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hint {
    None,
    /// The hash of its session.
    Session(u64),
    /// Its outside transport address.
    Binding {
        place: Place,
        transport: Transport,
        port: u16,
    },
}

impl Hint {
    /// Looks at a packet and asks for the line that its look-up begins with.
    #[inline]
    pub(crate) fn of(bytes: &[u8], nat64: &[Nat64], siit: &[SiitState], tables: &Tables) -> Hint {
        match bytes.first().map(|b| b >> 4) {
            Some(6) => six(bytes, nat64, siit, tables),
            Some(4) => four(bytes, siit, tables),
            _ => None,
        }
        .unwrap_or(Hint::None)
    }

    /// Asks for the record behind that line.
    #[inline]
    pub(crate) fn prefetch_record(&self, tables: &Tables) {
        match *self {
            Hint::Session(hash) => tables.prefetch_record_of(hash),
            Hint::Binding { place, transport, port } => {
                if let Some(id) = tables.binding_at(place, transport, port) {
                    tables.prefetch_record(id);
                }
            }
            Hint::None => {}
        }
    }

    /// The session's hash, if it is known.
    #[inline]
    pub(crate) fn session_hash(&self) -> Option<u64> {
        match *self {
            Hint::Session(hash) => Some(hash),
            _ => None,
        }
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

#[inline]
fn six(bytes: &[u8], nat64: &[Nat64], siit: &[SiitState], tables: &Tables) -> Option<Hint> {
    let h = bytes.first_chunk::<44>()?;
    let transport = transport(h[6])?;
    let src = Ipv6Addr::from(*h.get(8..)?.first_chunk::<16>()?);
    let dst = Ipv6Addr::from(*h.get(24..)?.first_chunk::<16>()?);
    let Some((nat, pool6)) = longest(nat64, dst) else {
        for s in siit {
            s.prefetch6(src, dst);
        }
        return None;
    };
    let inside = Inside { addr: src, port: be16(h[40], h[41]), transport, instance: nat.index };
    let remote = (nat.prefix(pool6).extract_unchecked(dst), be16(h[42], h[43]));
    let hash = tables.session_hash(&inside, remote);
    tables.prefetch(hash);
    Some(Hint::Session(hash))
}

#[inline]
fn four(bytes: &[u8], siit: &[SiitState], tables: &Tables) -> Option<Hint> {
    let h = bytes.first_chunk::<24>()?;
    let dst = Ipv4Addr::new(h[16], h[17], h[18], h[19]);
    let Some(place) = tables.locate(dst) else {
        let src = Ipv4Addr::new(h[12], h[13], h[14], h[15]);
        for s in siit {
            s.prefetch4(src, dst);
        }
        return None;
    };
    if h[0] != 0x45 {
        return None;
    }
    let (transport, port) = (transport(h[9])?, be16(h[22], h[23]));
    tables.prefetch_binding(place, transport, port);
    Some(Hint::Binding { place, transport, port })
}

#[inline]
fn be16(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low])
}
