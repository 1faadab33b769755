//! The first pass: parse a packet, find whose it is, and ask for the memory that it will need.

use crate::bib::Tables;
use crate::counters::Direction;
use crate::nat64::four_to_six::From4;
use crate::nat64::six_to_four::endpoints;
use crate::nat64::{From6, Nat64, Query, icmp};
use crate::siit::SiitState;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::{DropReason, Ipv4View, Ipv6View, L4, Packet};

/// What the first pass found out about a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slot {
    Empty,
    /// To be dropped.
    Bad {
        direction: Direction,
        reason: DropReason,
    },
    /// A query from inside, and its session's hash.
    Query6 {
        from: From6,
        query: Query,
        hash: u64,
    },
    /// A query from outside.
    Query4 {
        from: From4,
        query: Query,
    },
    Error6 {
        from: From6,
    },
    Error4 {
        from: From4,
    },
    Fragment6 {
        from: From6,
    },
    Fragment4 {
        from: From4,
    },
    Siit6 {
        instance: u8,
        view: Ipv6View,
        l4: L4,
    },
    Siit4 {
        instance: u8,
        view: Ipv4View,
        l4: L4,
    },
    /// An echo request to the translator itself.
    Ping6 {
        view: Ipv6View,
    },
    Ping4 {
        view: Ipv4View,
    },
}

impl Slot {
    #[inline]
    pub(crate) fn direction(&self) -> Direction {
        match self {
            Slot::Bad { direction, .. } => *direction,
            Slot::Query4 { .. } | Slot::Error4 { .. } | Slot::Fragment4 { .. } | Slot::Siit4 { .. } => {
                Direction::FourToSix
            }
            Slot::Ping4 { .. } => Direction::FourToSix,
            _ => Direction::SixToFour,
        }
    }

    /// The second pass: asks for the session's record.
    #[inline]
    pub(crate) fn prefetch_record(&self, tables: &Tables) {
        match self {
            Slot::Query6 { hash, .. } => tables.prefetch_record_of(*hash),
            Slot::Query4 { from, query } => {
                if let Some(id) = tables.binding_at(from.place, query.transport, query.dst_port) {
                    tables.prefetch_record(id);
                }
            }
            _ => {}
        }
    }
}

/// Whose addresses are whose.
pub(crate) struct Router {
    own4: Option<Ipv4Addr>,
    own6: Option<Ipv6Addr>,
}

impl Router {
    pub(crate) fn new(own4: Option<Ipv4Addr>, own6: Option<Ipv6Addr>) -> Self {
        Router { own4, own6 }
    }

    /// Parses a packet into `slot`. The slot is filled in place: it is large, and every copy shows.
    #[inline]
    pub(crate) fn classify(
        &self,
        packet: &Packet<'_>,
        nat64: &[Nat64],
        siit: &[SiitState],
        tables: &Tables,
        slot: &mut Slot,
    ) {
        let bytes = packet.bytes();
        let (direction, result) = match bytes.first().map(|b| b >> 4) {
            Some(6) => (Direction::SixToFour, self.six(bytes, nat64, siit, tables, slot)),
            Some(4) => (Direction::FourToSix, self.four(bytes, siit, tables, slot)),
            Some(_) => (Direction::SixToFour, Err(DropReason::BadVersion)),
            None => (Direction::SixToFour, Err(DropReason::ShortL3)),
        };
        if let Err(reason) = result {
            *slot = Slot::Bad { direction, reason };
        }
    }

    #[inline]
    fn six(
        &self,
        bytes: &[u8],
        nat64: &[Nat64],
        siit: &[SiitState],
        tables: &Tables,
        slot: &mut Slot,
    ) -> Result<(), DropReason> {
        let view = Ipv6View::parse(bytes)?;
        let l4 = view.l4(bytes)?;
        if is_ping(l4) && self.own6 == Some(view.dst) {
            *slot = Slot::Ping6 { view };
            return Ok(());
        }
        if let Some((nat, pool6)) = longest(nat64, view.dst) {
            let from = From6 { view, l4, instance: nat.index, pool6 };
            if is_ping(l4) && self.own4 == Some(nat.prefix(pool6).extract_unchecked(view.dst)) {
                *slot = Slot::Ping6 { view };
                return Ok(());
            }
            return stateful6(nat, tables, from, slot);
        }
        match siit.iter().position(|s| s.claims6(view.dst)) {
            Some(i) => {
                *slot = Slot::Siit6 { instance: i as u8, view, l4 };
                Ok(())
            }
            None => Err(DropReason::DestinationNotPool6),
        }
    }

    #[inline]
    fn four(
        &self,
        bytes: &[u8],
        siit: &[SiitState],
        tables: &Tables,
        slot: &mut Slot,
    ) -> Result<(), DropReason> {
        let view = Ipv4View::parse(bytes)?;
        let l4 = view.l4(bytes)?;
        if is_ping(l4) && self.own4 == Some(view.dst) {
            *slot = Slot::Ping4 { view };
            return Ok(());
        }
        if let Some(place) = tables.locate(view.dst) {
            return stateful4(tables, From4 { view, l4, place }, slot);
        }
        match siit.iter().position(|s| s.claims4(view.dst)) {
            Some(i) => {
                *slot = Slot::Siit4 { instance: i as u8, view, l4 };
                Ok(())
            }
            None => Err(DropReason::NotInPool),
        }
    }
}

fn is_ping(l4: L4) -> bool {
    matches!(l4, L4::Echo { request: true, .. })
}

/// The stateful instance whose prefix covers an address, and which of its prefixes; the longest wins.
#[inline]
fn longest(nat64: &[Nat64], dst: Ipv6Addr) -> Option<(&Nat64, u8)> {
    let mut best: Option<(&Nat64, u8)> = None;
    for nat in nat64 {
        if let Some(pool6) = nat.prefix_of(dst)
            && best.is_none_or(|(b, p)| nat.prefix(pool6).len() > b.prefix(p).len())
        {
            best = Some((nat, pool6));
        }
    }
    best
}

#[inline]
fn stateful6(nat: &Nat64, tables: &Tables, from: From6, slot: &mut Slot) -> Result<(), DropReason> {
    if from.view.fragment.is_some_and(|f| !f.is_atomic()) {
        *slot = Slot::Fragment6 { from };
        return Ok(());
    }
    if let Some(query) = Query::of(from.l4, true) {
        let (inside, remote) = endpoints(nat, &from, &query);
        let hash = tables.session_hash(&inside, remote);
        tables.prefetch(hash);
        *slot = Slot::Query6 { from, query, hash };
        return Ok(());
    }
    match from.l4 {
        L4::IcmpError { .. } => *slot = Slot::Error6 { from },
        l4 => return Err(icmp::unusable(l4)),
    }
    Ok(())
}

#[inline]
fn stateful4(tables: &Tables, from: From4, slot: &mut Slot) -> Result<(), DropReason> {
    if from.view.fragment.is_some() {
        *slot = Slot::Fragment4 { from };
        return Ok(());
    }
    if let Some(query) = Query::of(from.l4, false) {
        tables.prefetch_binding(from.place, query.transport, query.dst_port);
        *slot = Slot::Query4 { from, query };
        return Ok(());
    }
    match from.l4 {
        L4::IcmpError { .. } => *slot = Slot::Error4 { from },
        l4 => return Err(icmp::unusable(l4)),
    }
    Ok(())
}
