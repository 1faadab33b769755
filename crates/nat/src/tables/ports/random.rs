//! Random free port: each free port has the same probability, at any fill level (RFC 6056 3.2, RFC 6888
//! REQ-15, RFC 7857 9).
//!
//! While many are free, a few draws find one. Otherwise Gatun draws a rank among the free ports, and finds
//! the port by the counts: it looks at 64 groups, 16 words and 64 bits at most. Both methods are uniform, so
//! their combination is too.

use super::{ByParity, Layout, PORTS_IN_GROUP, Parity, PortSet, WORDS_IN_GROUP, Wanted};
use crate::base::rng::Rng;
use core::ops::RangeInclusive;

const DRAWS: usize = 4;

impl PortSet {
    /// Returns a free port among those wanted, or `None` if there is none. It does not mark the port.
    pub(crate) fn random_free(&self, layout: &Layout, wanted: Wanted, rng: &mut Rng) -> Option<u16> {
        let free = self.free(layout, wanted);
        if free == 0 {
            return None;
        }
        let span = (wanted.groups().len() * PORTS_IN_GROUP) as u32;
        if free >= span / 8 {
            for _ in 0..DRAWS {
                let port = wanted.pick(rng.next_u32());
                if self.is_free(layout, port) {
                    return Some(port);
                }
            }
        }
        self.nth_free(layout, wanted, rng.below(free))
    }

    /// Returns a free port of an interval, each with the same probability.
    pub(crate) fn random_within(
        &self,
        layout: &Layout,
        ports: RangeInclusive<u16>,
        wanted: Wanted,
        rng: &mut Rng,
    ) -> Option<u16> {
        let words = usize::from(*ports.start()) / 64..=usize::from(*ports.end()) / 64;
        let free = |word: usize| {
            let bit = |port: u16| port % 64;
            let from = if word == *words.start() { u64::MAX << bit(*ports.start()) } else { u64::MAX };
            let to = if word == *words.end() { u64::MAX >> (63 - bit(*ports.end())) } else { u64::MAX };
            let (exist, used) = (layout.words.get(word)?, self.words.get(word)?);
            Some(exist & !used & from & to & wanted.mask())
        };
        let all = words.clone().filter_map(free).map(u64::count_ones).sum();
        let mut rank = if all == 0 { return None } else { rng.below(all) };
        for word in words.clone() {
            let mut bits = free(word)?;
            if rank >= bits.count_ones() {
                rank -= bits.count_ones();
                continue;
            }
            for _ in 0..rank {
                bits &= bits.wrapping_sub(1);
            }
            return u16::try_from(word * 64 + bits.trailing_zeros() as usize).ok();
        }
        None
    }

    /// Returns the free port with that rank among those wanted.
    fn nth_free(&self, layout: &Layout, wanted: Wanted, mut rank: u32) -> Option<u16> {
        let groups = wanted.groups();
        // Not `map`: on arrays it is a function call, 64 times here.
        let widen = |n: &ByParity<u16>| [u32::from(n[0]), u32::from(n[1])];
        let free_in = |all: &ByParity<u16>, used: &ByParity<u16>| {
            wanted.sum(widen(all)).saturating_sub(wanted.sum(widen(used)))
        };
        let counts = layout.in_group.get(groups.clone())?.iter().zip(self.in_group.get(groups.clone())?);
        let group =
            groups.start + counts.take_while(|(all, used)| !below(&mut rank, free_in(all, used))).count();
        let first = group * WORDS_IN_GROUP;
        let range = first..first + WORDS_IN_GROUP;
        let free = |exist: &u64, used: &u64| exist & !used & wanted.mask();
        let mut words = layout.words.get(range.clone())?.iter().zip(self.words.get(range)?).zip(first..);
        let ((exist, used), word) =
            words.find(|((exist, used), _)| below(&mut rank, free(exist, used).count_ones()))?;
        let mut bits = free(exist, used);
        for _ in 0..rank {
            bits &= bits.wrapping_sub(1);
        }
        u16::try_from(word * 64 + bits.trailing_zeros() as usize).ok()
    }
}

/// Returns whether `rank` lies among the next `n`; otherwise it subtracts them from it.
#[inline(always)]
fn below(rank: &mut u32, n: u32) -> bool {
    let here = *rank < n;
    if !here {
        *rank -= n;
    }
    here
}

impl Wanted {
    /// Returns one of the wanted ports, free or not. `random` selects each of them equally often, except for
    /// one part in 65,536.
    #[inline(always)]
    pub(crate) fn pick(self, random: u32) -> u16 {
        let groups = self.groups();
        let span = (groups.len() * PORTS_IN_GROUP) as u64;
        let below = |n: u64| ((u64::from(random) * n) >> 32) as usize;
        let offset = match self.parity {
            Parity::Any => below(span),
            Parity::Even => below(span / 2) * 2,
            Parity::Odd => below(span / 2) * 2 + 1,
        };
        (groups.start * PORTS_IN_GROUP + offset) as u16
    }
}
