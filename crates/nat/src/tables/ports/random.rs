//! Random free port: each free port has the same probability, at any fill level (RFC 6056 3.2, RFC 6888
//! REQ-15, RFC 7857 9).
//!
//! While many are free, a few draws find one. Otherwise Gatun draws a rank among the free ports, and finds
//! the port by the counts: it looks at 64 groups, 16 words and 64 bits at most. Both methods are uniform, so
//! their combination is too.

use super::{ByParity, Layout, PORTS_IN_GROUP, Parity, PortSet, WORDS_IN_GROUP, Wanted, place};
use crate::base::rng::Rng;
use core::ops::RangeInclusive;

const DRAWS: usize = 4;
/// The same for an interval. Its free ports are not counted before, so more draws are worth trying.
const DRAWS_WITHIN: usize = 16;

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
        let groups = wanted.groups();
        let first = usize::from(*ports.start()).max(groups.start * PORTS_IN_GROUP);
        let last = usize::from(*ports.end()).min(groups.end * PORTS_IN_GROUP - 1);
        let span = (last + 1).saturating_sub(first) as u64;
        if span == 0 {
            return None;
        }
        // Counting a short interval takes no longer.
        let draws = if span > PORTS_IN_GROUP as u64 { DRAWS_WITHIN } else { 0 };
        for _ in 0..draws {
            let port = (first + ((u64::from(rng.next_u32()) * span) >> 32) as usize) as u16;
            if wanted.mask() & place(port).1 != 0 && self.is_free(layout, port) {
                return Some(port);
            }
        }
        self.counted_within(layout, (first, last), wanted, rng)
    }

    /// Does the same by counting.
    #[cold]
    fn counted_within(
        &self,
        layout: &Layout,
        (first, last): (usize, usize),
        wanted: Wanted,
        rng: &mut Rng,
    ) -> Option<u16> {
        let free = |word: usize| Some(self.free_in_word(layout, (first, last), word)? & wanted.mask());
        let words = |group: usize| {
            let begin = group * WORDS_IN_GROUP;
            begin.max(first / 64)..=(begin + WORDS_IN_GROUP - 1).min(last / 64)
        };
        let free_in = |group: usize| {
            let begin = group * PORTS_IN_GROUP;
            if begin < first || begin + PORTS_IN_GROUP - 1 > last {
                return words(group).filter_map(free).map(u64::count_ones).sum();
            }
            let counts = layout.in_group.get(group).zip(self.in_group.get(group));
            counts.map_or(0, |(all, used)| wanted.free(all, used))
        };
        let mut groups = first / PORTS_IN_GROUP..=last / PORTS_IN_GROUP;
        let all: u32 = groups.clone().map(free_in).sum();
        let mut rank = if all == 0 { return None } else { rng.below(all) };
        let group = groups.find(|group| below(&mut rank, free_in(*group)))?;
        let word = words(group).find(|word| below(&mut rank, free(*word).map_or(0, u64::count_ones)))?;
        nth_port(word, free(word)?, rank)
    }

    /// Returns the free ports of a word and an interval.
    fn free_in_word(&self, layout: &Layout, (first, last): (usize, usize), word: usize) -> Option<u64> {
        let from = if word == first / 64 { u64::MAX << (first % 64) } else { u64::MAX };
        let to = if word == last / 64 { u64::MAX >> (63 - last % 64) } else { u64::MAX };
        let (exist, used) = (layout.words.get(word)?, self.words.get(word)?);
        Some(exist & !used & from & to)
    }

    /// Number of free ports of an interval.
    pub(crate) fn free_within(&self, layout: &Layout, ports: RangeInclusive<u16>) -> u32 {
        let ends = (usize::from(*ports.start()), usize::from(*ports.end()));
        let words = ends.0 / 64..=ends.1 / 64;
        let free = words.filter_map(|word| self.free_in_word(layout, ends, word));
        if ports.is_empty() { 0 } else { free.map(u64::count_ones).sum() }
    }

    /// Returns the free port with that rank among those wanted.
    fn nth_free(&self, layout: &Layout, wanted: Wanted, mut rank: u32) -> Option<u16> {
        let groups = wanted.groups();
        let counts = layout.in_group.get(groups.clone())?.iter().zip(self.in_group.get(groups.clone())?);
        let group =
            groups.start + counts.take_while(|(all, used)| !below(&mut rank, wanted.free(all, used))).count();
        let first = group * WORDS_IN_GROUP;
        let range = first..first + WORDS_IN_GROUP;
        let free = |exist: &u64, used: &u64| exist & !used & wanted.mask();
        let mut words = layout.words.get(range.clone())?.iter().zip(self.words.get(range)?).zip(first..);
        let ((exist, used), word) =
            words.find(|((exist, used), _)| below(&mut rank, free(exist, used).count_ones()))?;
        nth_port(word, free(exist, used), rank)
    }
}

/// Returns the port of the bit with that rank among those of a word.
fn nth_port(word: usize, mut bits: u64, rank: u32) -> Option<u16> {
    for _ in 0..rank {
        bits &= bits.wrapping_sub(1);
    }
    u16::try_from(word * 64 + bits.trailing_zeros() as usize).ok()
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
    /// Number of wanted ports that are free.
    #[inline(always)]
    fn free(self, all: &ByParity<u16>, used: &ByParity<u16>) -> u32 {
        // Not `map`: on arrays it is a function call, 64 times for a choice.
        let widen = |n: &ByParity<u16>| [u32::from(n[0]), u32::from(n[1])];
        self.sum(widen(all)).saturating_sub(self.sum(widen(used)))
    }

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

#[cfg(test)]
mod tests {
    use super::super::Class;
    use super::*;
    use alloc::collections::BTreeMap;
    use zerocopy::FromZeros as _;

    /// Draws ports of an interval. Returns how often each came.
    fn drawn(set: &PortSet, layout: &Layout, wanted: Wanted, counts: bool) -> BTreeMap<u16, u32> {
        let mut rng = Rng::new([1, 2, 3, 4]);
        let mut drawn = BTreeMap::new();
        for _ in 0..20_000 {
            let port = match counts {
                true => set.counted_within(layout, (2_000, 5_100), wanted, &mut rng),
                false => set.random_within(layout, 2_000..=5_100, wanted, &mut rng),
            };
            *drawn.entry(port.unwrap()).or_default() += 1;
        }
        drawn
    }

    #[test]
    fn each_free_port_of_an_interval_is_as_likely_as_another() {
        let layout = Layout::new(&[(1_024, 65_535)]);
        let free = [2_000, 2_001, 2_047, 2_048, 3_071, 3_072, 3_500, 4_095, 5_099, 5_100];
        let mut set = PortSet::new_zeroed();
        let used = (1_024..=6_000).filter(|port| !free.contains(port));
        used.for_each(|port| assert!(set.take(&layout, port)));
        for (parity, remainders) in
            [(Parity::Any, &[0, 1][..]), (Parity::Even, &[0][..]), (Parity::Odd, &[1][..])]
        {
            let wanted = Wanted { class: Class::Any, parity };
            let expected = free.iter().filter(|port| remainders.contains(&(*port % 2)));
            let each = 20_000 / expected.clone().count() as u32;
            for counts in [true, false] {
                let drawn = drawn(&set, &layout, wanted, counts);
                assert!(drawn.keys().eq(expected.clone()), "{drawn:?}");
                assert!(drawn.values().all(|n| n.abs_diff(each) < each / 5), "{drawn:?}");
            }
        }
    }

    #[test]
    fn an_interval_without_a_free_port_of_the_wanted_class_has_none() {
        let layout = Layout::new(&[(512, 65_535)]);
        let mut set = PortSet::new_zeroed();
        let mut rng = Rng::new([1, 2, 3, 4]);
        let mut draw = |set: &PortSet, ports, class| {
            set.random_within(&layout, ports, Wanted { class, parity: Parity::Any }, &mut rng)
        };
        assert_eq!(draw(&set, 2_000..=3_000, Class::WellKnown), None);
        assert!(draw(&set, 512..=3_000, Class::WellKnown).is_some_and(|port| port < 1_024));
        (2_000..=3_000).for_each(|port| assert!(set.take(&layout, port)));
        assert_eq!(draw(&set, 2_000..=3_000, Class::Other), None);
        assert_eq!(draw(&set, 2_000..=3_001, Class::Any), Some(3_001));
    }
}
