//! Fragmented datagrams: those that are followed, their seen fragments, and their held fragments, all within
//! bounds (RFC 4787 REQ-14: fragments in any order, bounded memory).

use super::ends::End4;
use super::from_outside::Arrival;
use super::{Model, Result, Way};
use crate::wire::Header;
use gatun_wire::DropReason;
use std::net::IpAddr;

/// Choice: maximum fragments of a datagram.
const PIECES_MAX: usize = 128;
/// Choice: bytes of a unit of memory for held fragments.
const UNIT: usize = 512;
/// Choice: minimum time between two sweeps of datagrams, ms.
const EVERY_MS: u64 = 100;

/// Datagram of a fragment (RFC 6146 3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) ends: (IpAddr, IpAddr),
    pub(super) id: u32,
    pub(super) proto: u8,
    pub(super) table: Table,
    pub(super) way: Way,
}

/// Table of a datagram: of the inside host's instance, or for packets from outside, of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Inside(usize),
    Pool(usize),
}

/// Translation of the first fragment.
#[derive(Clone, Copy, Debug)]
pub(super) enum Memo {
    /// Datagram of an instance's host to this outside end; if hairpinned, with its receiver. The first packet
    /// that leaves shows the datagram's identification.
    Out {
        instance: usize,
        outside: End4,
        turned: Option<Arrival>,
        ident: Option<u16>,
    },
    In(Arrival),
    /// Exempt because of its port.
    Pass,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// The first fragment has not arrived.
    Waiting,
    Known(Memo),
    /// Has no UDP checksum, or is an echo message: held until it is complete (RFC 7915 4.5).
    Collecting(Memo),
    /// All further fragments are dropped.
    Refused(DropReason),
}

impl State {
    /// Returns true if a first fragment was accepted.
    pub(super) fn is_accepted(&self) -> bool {
        matches!(self, State::Known(_) | State::Collecting(_))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Datagram {
    key: Key,
    source: u128,
    deadline: u64,
    pub(super) state: State,
    /// Start and end of each seen fragment, in bytes.
    seen: Vec<(usize, usize)>,
    /// Length of the datagram, once the last fragment has arrived.
    total: Option<usize>,
    /// Held fragments with their offsets, in order of offsets.
    pub(super) held: Vec<(usize, Vec<u8>)>,
}

/// Reason why a fragment does not fit; it is dropped alone, or with its whole datagram.
enum FragmentRefusal {
    Alone(DropReason),
    WithAll(DropReason),
}

impl Datagram {
    pub(super) fn is_complete(&self) -> bool {
        let all: usize = self.seen.iter().map(|(begin, end)| end - begin).sum();
        self.total == Some(all)
    }

    /// Notes a fragment.
    fn fit(&mut self, begin: usize, end: usize, more: bool) -> std::result::Result<(), FragmentRefusal> {
        let overlap = Err(FragmentRefusal::WithAll(DropReason::FragmentOverlap)); // RFC 5722
        if self.seen.contains(&(begin, end)) {
            // RFC 8200 4.5: an exact duplicate from the network does not harm the other fragments.
            let same = (self.total == Some(end)) != more;
            return if same { Err(FragmentRefusal::Alone(DropReason::FragmentOverlap)) } else { overlap };
        }
        let touches = self.seen.iter().any(|&(b, e)| b < end && begin < e);
        let beyond = self.total.is_some_and(|total| !more || end > total);
        let short = !more && self.seen.iter().any(|&(_, e)| e > end);
        if touches || beyond || short {
            return overlap;
        }
        if self.seen.len() == PIECES_MAX {
            return Err(FragmentRefusal::WithAll(DropReason::FragmentTooMany));
        }
        self.seen.push((begin, end));
        if !more {
            self.total = Some(end);
        }
        Ok(())
    }
}

/// The fragment that is handled now.
pub(super) struct Piece<'p> {
    pub(super) packet: &'p [u8],
    pub(super) h: &'p Header<'p>,
    pub(super) key: Key,
    /// Source or subscriber that it counts for.
    pub(super) source: u128,
    /// Time for which fragments wait for each other, ms.
    pub(super) lifetime_ms: u32,
}

/// Followed datagrams. The sweep goes from place to place, so places are modelled.
#[derive(Clone, Debug, Default)]
pub(super) struct Followed {
    places: Vec<Option<Datagram>>,
    /// Free places; the last one is used next.
    free: Vec<usize>,
    cursor: usize,
    looked_at: u64,
}

impl Followed {
    pub(super) fn new(max: usize) -> Self {
        Followed { places: vec![None; max], free: (0..max).rev().collect(), cursor: 0, looked_at: 0 }
    }

    fn all(&self) -> impl Iterator<Item = &Datagram> {
        self.places.iter().flatten()
    }
}

impl Model {
    pub(super) fn datagram(&self, at: usize) -> &Datagram {
        self.followed.places[at].as_ref().unwrap_or_else(|| unreachable!("it was found"))
    }

    pub(super) fn datagram_mut(&mut self, at: usize) -> &mut Datagram {
        self.followed.places[at].as_mut().unwrap_or_else(|| unreachable!("it was found"))
    }

    /// Finds the datagram of a fragment. A datagram whose lifetime is over ends.
    fn find_datagram(&mut self, key: &Key) -> Option<usize> {
        let at = self.followed.places.iter().position(|d| d.as_ref().is_some_and(|d| d.key == *key))?;
        if self.datagram(at).deadline > self.now {
            return Some(at);
        }
        self.drop_held(at, DropReason::FragmentTimeout);
        self.close_datagram(at);
        None
    }

    fn open_datagram(&mut self, p: &Piece<'_>, state: State) -> Result<usize> {
        let limits = self.plan.limits;
        let max = limits.fragment_entries_max as usize;
        let free = *self.followed.free.last().ok_or(DropReason::FragmentMemory)?;
        // Choice: a quarter is reserved for datagrams whose first fragment comes first.
        let unaccepted = self.followed.all().filter(|d| !d.state.is_accepted()).count();
        if !state.is_accepted() && unaccepted >= max - max / 4 {
            return Err(DropReason::FragmentMemory);
        }
        if self.pieces_of(p) >= limits.fragments_per_source as usize {
            return Err(DropReason::FragmentTooMany);
        }
        self.followed.free.pop();
        self.followed.places[free] = Some(Datagram {
            key: p.key.clone(),
            source: p.source,
            deadline: self.now + u64::from(p.lifetime_ms),
            state,
            seen: Vec::new(),
            total: None,
            held: Vec::new(),
        });
        Ok(free)
    }

    /// Number of a source's followed datagrams and held fragments.
    fn pieces_of(&self, p: &Piece<'_>) -> usize {
        let is_six = |way: Way| way == Way::SixToFour;
        let all = self.followed.all();
        let mine = all.filter(|d| d.source == p.source && is_six(d.key.way) == is_six(p.key.way));
        mine.map(|d| 1 + d.held.len()).sum()
    }

    /// Notes a fragment, and accepts its datagram if `state` does. Returns the datagram's place.
    pub(super) fn note(&mut self, p: &Piece<'_>, state: State) -> Result<usize> {
        if p.h.length == 0 {
            return Err(DropReason::BadLength);
        }
        let at = match self.find_datagram(&p.key) {
            Some(at) => at,
            None => self.open_datagram(p, state)?,
        };
        let Some(piece) = p.h.piece else { return Err(DropReason::FragmentOrphan) };
        let d = self.datagram_mut(at);
        if let State::Refused(reason) = d.state {
            return Err(reason);
        }
        match d.fit(piece.offset, piece.offset + p.h.length, piece.more) {
            Ok(()) => {
                if state.is_accepted() && !d.state.is_accepted() {
                    d.state = state;
                }
                Ok(at)
            }
            Err(FragmentRefusal::Alone(reason)) => Err(reason),
            Err(FragmentRefusal::WithAll(reason)) => {
                self.poison(at, reason);
                Err(reason)
            }
        }
    }

    /// Holds a fragment if there is room. Otherwise its datagram is refused.
    pub(super) fn hold(&mut self, at: usize, p: &Piece<'_>) -> Result<()> {
        let units = |len: usize| len.div_ceil(UNIT);
        let limits = self.plan.limits;
        let all = self.followed.all().flat_map(|d| &d.held);
        let used: usize = all.map(|(_, packet)| units(packet.len())).sum();
        let reason = if self.pieces_of(p) >= limits.fragments_per_source as usize {
            DropReason::FragmentTooMany
        } else if used + units(p.packet.len()) > limits.fragment_bytes_max as usize / UNIT {
            DropReason::FragmentMemory
        } else {
            let offset = p.h.piece.map_or(0, |piece| piece.offset);
            let held = &mut self.datagram_mut(at).held;
            held.push((offset, p.packet.to_vec()));
            held.sort_by_key(|(offset, _)| *offset);
            self.counters.held += 1;
            return Ok(());
        };
        self.poison(at, reason);
        Err(reason)
    }

    /// Refuses a datagram whose first fragment was dropped: its held and further fragments are useless.
    pub(super) fn refuse(&mut self, p: &Piece<'_>) {
        match self.find_datagram(&p.key) {
            Some(at) => self.poison(at, DropReason::FragmentOrphan),
            // If there is no room, other fragments wait until they expire.
            None => drop(self.open_datagram(p, State::Refused(DropReason::FragmentOrphan))),
        }
    }

    fn poison(&mut self, at: usize, reason: DropReason) {
        self.drop_held(at, reason);
        self.datagram_mut(at).state = State::Refused(reason);
    }

    fn drop_held(&mut self, at: usize, reason: DropReason) {
        let d = self.datagram_mut(at);
        let (way, held) = (d.key.way, std::mem::take(&mut d.held));
        for (_, packet) in held {
            self.counters.held -= 1;
            self.count_dropped(way, reason, packet.len());
        }
    }

    pub(super) fn close_datagram(&mut self, at: usize) {
        self.followed.places[at] = None;
        self.followed.free.push(at);
    }

    /// Ends datagrams whose lifetime is over. Visits `budget` places from where the last sweep stopped.
    pub(super) fn expire_datagrams(&mut self, budget: usize) {
        if self.followed.all().next().is_none() || self.now - self.followed.looked_at < EVERY_MS {
            return;
        }
        self.followed.looked_at = self.now;
        let places = self.followed.places.len();
        for _ in 0..budget.min(places) {
            self.followed.cursor = (self.followed.cursor + 1) % places;
            let at = self.followed.cursor;
            if self.followed.places[at].as_ref().is_some_and(|d| d.deadline <= self.now) {
                self.drop_held(at, DropReason::FragmentTimeout);
                self.close_datagram(at);
            }
        }
    }
}
