//! Ports of one public address and one transport: those that exist, and those in use.
//!
//! A [`Layout`] has the existing ports and is shared by all addresses with the same rule. A [`PortSet`] has
//! the used ports. All zeroes means "none used", so the sets of unused addresses cost no memory. Both count
//! by group of 1,024 ports and by parity, so that the choice of a free port looks at a bounded number of
//! words at any fill level; see [`random`]. Group 0 has the well-known ports, which is enough for port
//! classes (RFC 4787 REQ-3).

pub(crate) mod address_map;
pub(crate) mod blocks;
pub(crate) mod chunk;
pub(crate) mod deterministic;
pub(crate) mod holdings;
pub(crate) mod random;
pub(crate) mod reserved;
pub(crate) mod rights;
pub(crate) mod single;

use alloc::vec;
use alloc::vec::Vec;
use gatun_mem::prefetch_read;

const WORDS: usize = 65_536 / 64;
const GROUPS: usize = WORDS / WORDS_IN_GROUP;
const WORDS_IN_GROUP: usize = PORTS_IN_GROUP / 64;
const PORTS_IN_GROUP: usize = 1_024;

/// Bits of a word that stand for even ports.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// Counts of ports: even and odd.
type ByParity<T> = [T; 2];

#[inline]
fn place(port: u16) -> (usize, u64) {
    (usize::from(port) / 64, 1 << (port % 64))
}

#[inline]
fn group_of(port: u16) -> usize {
    usize::from(port) / PORTS_IN_GROUP
}

/// Returns the class of a group: 0 for the well-known ports, 1 for all others.
#[inline]
fn class_of(group: usize) -> usize {
    usize::from(group > 0)
}

/// Wanted class of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// 0-1023.
    WellKnown,
    /// 1024-65535.
    Other,
    Any,
}

/// Wanted parity of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parity {
    Even,
    Odd,
    Any,
}

/// Wanted class and parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) class: Class,
    pub(crate) parity: Parity,
}

impl Wanted {
    pub(crate) const ANY: Wanted = Wanted { class: Class::Any, parity: Parity::Any };

    /// Wants ports that keep the class or the parity of an inside port, as requested.
    pub(crate) fn like(port: u16, keep_class: bool, keep_parity: bool) -> Wanted {
        let class = match (keep_class, group_of(port)) {
            (false, _) => Class::Any,
            (true, 0) => Class::WellKnown,
            (true, _) => Class::Other,
        };
        let parity = match (keep_parity, port % 2) {
            (false, _) => Parity::Any,
            (true, 0) => Parity::Even,
            (true, _) => Parity::Odd,
        };
        Wanted { class, parity }
    }

    fn groups(self) -> core::ops::Range<usize> {
        match self.class {
            Class::WellKnown => 0..1,
            Class::Other => 1..GROUPS,
            Class::Any => 0..GROUPS,
        }
    }

    fn classes(self) -> core::ops::Range<usize> {
        match self.class {
            Class::WellKnown => 0..1,
            Class::Other => 1..2,
            Class::Any => 0..2,
        }
    }

    fn mask(self) -> u64 {
        match self.parity {
            Parity::Even => EVEN,
            Parity::Odd => !EVEN,
            Parity::Any => u64::MAX,
        }
    }

    #[inline(always)]
    fn sum(self, [even, odd]: ByParity<u32>) -> u32 {
        match self.parity {
            Parity::Even => even,
            Parity::Odd => odd,
            Parity::Any => even + odd,
        }
    }
}

/// Existing ports.
#[derive(Debug)]
pub(crate) struct Layout {
    words: Vec<u64>,
    in_group: [ByParity<u16>; GROUPS],
    in_class: [ByParity<u32>; 2],
    /// First and last port if there is no gap between them. This holds for most layouts, and then the check
    /// for a port does not read the words.
    in_a_row: Option<(u16, u16)>,
}

impl Layout {
    /// Creates a layout with the ports of some intervals, both ends included.
    pub(crate) fn new(intervals: &[(u16, u16)]) -> Self {
        let mut layout = Layout { words: vec![0; WORDS], ..Layout::none() };
        for port in intervals.iter().flat_map(|&(first, last)| first..=last) {
            let (word, bit) = place(port);
            match layout.words.get_mut(word) {
                Some(w) if *w & bit == 0 => *w |= bit,
                _ => continue,
            }
            count(&mut layout.in_group, &mut layout.in_class, port, |n| n + 1, |n| n + 1);
        }
        let ends = intervals.iter().map(|i| i.0).min().zip(intervals.iter().map(|i| i.1).max());
        layout.in_a_row = ends.filter(|(first, last)| layout.total() == u32::from(last - first) + 1);
        layout
    }

    /// Layout without ports.
    pub(crate) fn none() -> Self {
        Layout { words: Vec::new(), in_group: [[0; 2]; GROUPS], in_class: [[0; 2]; 2], in_a_row: None }
    }

    /// Number of ports.
    pub(crate) fn total(&self) -> u32 {
        self.in_class.iter().flatten().sum()
    }

    /// Returns whether both layouts have the same ports.
    pub(crate) fn same(&self, other: &Layout) -> bool {
        self.words == other.words
    }

    /// Returns whether a port exists.
    #[inline]
    pub(crate) fn has(&self, port: u16) -> bool {
        if let Some((first, last)) = self.in_a_row {
            return first <= port && port <= last;
        }
        let (word, bit) = place(port);
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }
}

/// Changes the counts that a port belongs to.
#[inline]
fn count(
    in_group: &mut [ByParity<u16>; GROUPS],
    in_class: &mut [ByParity<u32>; 2],
    port: u16,
    group: impl Fn(u16) -> u16,
    class: impl Fn(u32) -> u32,
) {
    let (g, parity) = (group_of(port), usize::from(port % 2));
    if let Some(n) = in_group.get_mut(g).and_then(|n| n.get_mut(parity)) {
        *n = group(*n);
    }
    if let Some(n) = in_class.get_mut(class_of(g)).and_then(|n| n.get_mut(parity)) {
        *n = class(*n);
    }
}

/// Used ports. Only ports of the layout are counted. Other ports (a static binding's) can be marked as used
/// too.
#[derive(Clone, Copy, zerocopy::FromZeros)]
#[repr(C, align(64))]
pub(crate) struct PortSet {
    in_group: [ByParity<u16>; GROUPS],
    in_class: [ByParity<u32>; 2],
    words: [u64; WORDS],
}

impl PortSet {
    /// Number of used ports of the layout.
    #[inline]
    pub(crate) fn used(&self) -> u32 {
        self.in_class.iter().flatten().sum()
    }

    /// Returns whether a port is used.
    pub(crate) fn has(&self, port: u16) -> bool {
        let (word, bit) = place(port);
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }

    /// Marks a port as used. Returns `false` if it is used already.
    #[inline]
    pub(crate) fn take(&mut self, layout: &Layout, port: u16) -> bool {
        let (word, bit) = place(port);
        match self.words.get_mut(word) {
            Some(w) if *w & bit == 0 => *w |= bit,
            _ => return false,
        }
        if layout.has(port) {
            count(&mut self.in_group, &mut self.in_class, port, |n| n + 1, |n| n + 1);
        }
        true
    }

    /// Marks a port as free. Returns `false` if it is free already.
    pub(crate) fn give_back(&mut self, layout: &Layout, port: u16) -> bool {
        let (word, bit) = place(port);
        match self.words.get_mut(word) {
            Some(w) if *w & bit != 0 => *w &= !bit,
            _ => return false,
        }
        if layout.has(port) {
            count(
                &mut self.in_group,
                &mut self.in_class,
                port,
                |n| n.saturating_sub(1),
                |n| n.saturating_sub(1),
            );
        }
        true
    }

    /// Returns the first used port from `from` on, in the layout or not.
    pub(crate) fn next_used(&self, from: u16) -> Option<u16> {
        let (first, bit) = place(from);
        let mut mask = !(bit - 1);
        for (n, word) in self.words.iter().enumerate().skip(first) {
            let used = word & mask;
            mask = u64::MAX;
            if used != 0 {
                return u16::try_from(n * 64 + used.trailing_zeros() as usize).ok();
            }
        }
        None
    }

    /// Counts the used ports again for another layout.
    pub(crate) fn count_for(&mut self, layout: &Layout) {
        self.in_class = [[0; 2]; 2];
        self.in_group = [[0; 2]; GROUPS];
        let groups = self.words.chunks(WORDS_IN_GROUP).zip(layout.words.chunks(WORDS_IN_GROUP));
        for (g, ((used, exist), counts)) in groups.zip(&mut self.in_group).enumerate() {
            let of =
                |mask: u64| -> u32 { used.iter().zip(exist).map(|(u, e)| (u & e & mask).count_ones()).sum() };
            let both = [of(EVEN), of(!EVEN)];
            // A group has 1,024 ports.
            *counts = both.map(|n| n as u16);
            if let Some(class) = self.in_class.get_mut(class_of(g)) {
                class.iter_mut().zip(both).for_each(|(sum, n)| *sum += n);
            }
        }
    }

    /// Number of wanted ports that are free.
    fn free(&self, layout: &Layout, wanted: Wanted) -> u32 {
        let classes = layout.in_class.iter().zip(&self.in_class);
        let few = wanted.classes();
        classes
            .skip(few.start)
            .take(few.len())
            .map(|(&all, &used)| wanted.sum(all).saturating_sub(wanted.sum(used)))
            .sum()
    }

    /// Returns whether a port exists and is free.
    #[inline]
    pub(crate) fn is_free(&self, layout: &Layout, port: u16) -> bool {
        layout.has(port) && !self.has(port)
    }

    /// Prefetches the word with a port's mark, and the counts that include it.
    #[inline]
    pub(crate) fn prefetch(&self, port: u16) {
        prefetch_read(&self.words, place(port).0);
        prefetch_read(&self.in_group, group_of(port));
        prefetch_read(&self.in_class, class_of(group_of(port)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use gatun_mem::HugeVec;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    const ALL: [(u16, u16); 1] = [(0, 65_535)];

    proptest! {
        #[test]
        fn a_layout_has_the_ports_of_its_intervals_and_no_others(
            intervals in prop::collection::vec((any::<u16>(), 0u16..2_000), 0..4),
            adjoining in any::<bool>(),
        ) {
            let ends = intervals.into_iter().map(|(a, n)| (a, a.saturating_add(n)));
            let mut intervals: Vec<_> = ends.collect();
            if adjoining {
                intervals.push((1_024, 2_047));
                intervals.push((2_048, 4_095));
            }
            let layout = Layout::new(&intervals);
            let mut total = 0;
            for port in 0..=u16::MAX {
                let exists = intervals.iter().any(|(first, last)| (first..=last).contains(&&port));
                prop_assert_eq!(layout.has(port), exists, "{}", port);
                total += u32::from(exists);
            }
            prop_assert_eq!(layout.total(), total);
            prop_assert_eq!(Layout::new(&[(1_024, 2_047), (2_048, 4_095)]).in_a_row, Some((1_024, 4_095)));
        }
    }

    fn set() -> HugeVec<PortSet> {
        HugeVec::new(1).unwrap()
    }

    fn wanted() -> impl Strategy<Value = Wanted> {
        let class = prop_oneof![Just(Class::WellKnown), Just(Class::Other), Just(Class::Any)];
        let parity = prop_oneof![Just(Parity::Even), Just(Parity::Odd), Just(Parity::Any)];
        (class, parity).prop_map(|(class, parity)| Wanted { class, parity })
    }

    fn fits(wanted: Wanted, port: u16) -> bool {
        let class = match wanted.class {
            Class::WellKnown => port < 1024,
            Class::Other => port >= 1024,
            Class::Any => true,
        };
        let parity = match wanted.parity {
            Parity::Even => port.is_multiple_of(2),
            Parity::Odd => port % 2 == 1,
            Parity::Any => true,
        };
        class && parity
    }

    /// Chi-square of drawing `draws` times (without taking) among the free ports, and the number of these.
    fn chi_square(set: &PortSet, layout: &Layout, wanted: Wanted, draws: u32) -> (f64, f64) {
        let mut rng = Rng::new([11; 4]);
        let mut seen = std::vec![0u32; 65_536];
        for _ in 0..draws {
            seen[usize::from(set.random_free(layout, wanted, &mut rng).unwrap())] += 1;
        }
        let n = f64::from(set.free(layout, wanted));
        let mean = f64::from(draws) / n;
        // Ports that were never drawn count too: `mean` each.
        let drawn = seen.iter().filter(|&&s| s > 0);
        let (cells, sum) =
            drawn.fold((0.0, 0.0), |(c, sum), &s| (c + 1.0, sum + (f64::from(s) - mean).powi(2) / mean));
        (sum + (n - cells) * mean, n)
    }

    // proves: R68-15, R78-10
    #[test]
    fn every_free_port_is_equally_likely_at_any_fill() {
        let layout = Layout::new(&[(1024, 65_535)]);
        let mut sets = set();
        let set = &mut sets[0];
        let mut rng = Rng::new([5; 4]);
        let mut used = 0;
        for fill in [0, 10_000, 40_000, 60_000, 64_000, 64_502] {
            while used < fill {
                let port = set.random_free(&layout, Wanted::ANY, &mut rng).unwrap();
                assert!(set.take(&layout, port));
                used += 1;
            }
            for parity in [Parity::Any, Parity::Even] {
                let wanted = Wanted { class: Class::Other, parity };
                let (chi2, n) = chi_square(set, &layout, wanted, 400_000);
                let freedom = n - 1.0;
                let deviation = (chi2 - freedom) / (2.0 * freedom).sqrt();
                assert!(deviation.abs() < 5.0, "fill {fill} {parity:?}: {deviation}");
            }
        }
    }

    // proves: R68-15
    #[test]
    fn consecutive_allocations_are_not_related() {
        let layout = Layout::new(&[(1024, 65_535)]);
        let mut sets = set();
        let mut rng = Rng::new([6; 4]);
        let ports: Vec<f64> = (0..20_000)
            .map(|_| {
                let port = sets[0].random_free(&layout, Wanted::ANY, &mut rng).unwrap();
                sets[0].take(&layout, port);
                f64::from(port)
            })
            .collect();
        let mean = ports.iter().sum::<f64>() / ports.len() as f64;
        let with_lag = |lag: usize| -> f64 {
            ports.iter().zip(&ports[lag..]).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>()
        };
        for lag in 1..5 {
            assert!((with_lag(lag) / with_lag(0)).abs() < 0.04, "lag {lag}");
        }
    }

    #[test]
    fn the_last_free_port_is_found_wherever_it_is() {
        let layout = Layout::new(&ALL);
        let mut sets = set();
        (0..=65_535).for_each(|port| assert!(sets[0].take(&layout, port)));
        let mut rng = Rng::new([7; 4]);
        for port in (0..=65_535).step_by(61) {
            assert_eq!(sets[0].random_free(&layout, Wanted::ANY, &mut rng), None);
            assert!(sets[0].give_back(&layout, port));
            assert_eq!(sets[0].random_free(&layout, Wanted::like(port, true, true), &mut rng), Some(port));
            assert_eq!(sets[0].random_free(&layout, Wanted::ANY, &mut rng), Some(port));
            assert!(sets[0].take(&layout, port));
        }
    }

    #[test]
    fn ports_outside_the_layout_may_be_taken_but_do_not_count() {
        let layout = Layout::new(&[(2000, 2001)]);
        let mut sets = set();
        assert_eq!(layout.total(), 2);
        assert!(sets[0].take(&layout, 80));
        assert!(!sets[0].take(&layout, 80));
        assert_eq!(sets[0].used(), 0);
        assert!(sets[0].take(&layout, 2000));
        assert_eq!(sets[0].used(), 1);
        assert!(sets[0].give_back(&layout, 80));
        assert!(!sets[0].give_back(&layout, 80));
        assert_eq!(sets[0].used(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn port_set_agrees_with_a_set(
            cuts in prop::collection::btree_set(any::<u16>(), 2..8),
            steps in prop::collection::vec((wanted(), 0..40u8, any::<u16>()), 1..40),
            seed in any::<u64>(),
        ) {
            let cuts: Vec<u16> = cuts.into_iter().collect();
            let intervals: Vec<(u16, u16)> = cuts.chunks_exact(2).map(|c| (c[0], c[1])).collect();
            let layout = Layout::new(&intervals);
            let exist: Vec<u16> = intervals.iter().flat_map(|&(a, b)| a..=b).collect();
            let exists = |port| intervals.iter().any(|&(a, b)| (a..=b).contains(&port));
            prop_assert_eq!(layout.total() as usize, exist.len());
            let mut sets = set();
            let mut rng = Rng::new([seed; 4]);
            let mut used = BTreeSet::new();
            for (wanted, times, other) in steps {
                for _ in 0..times {
                    match sets[0].random_free(&layout, wanted, &mut rng) {
                        Some(port) => {
                            prop_assert!(exists(port) && fits(wanted, port));
                            prop_assert!(used.insert(port) && sets[0].take(&layout, port));
                        }
                        None => prop_assert!(exist.iter().all(|p| used.contains(p) || !fits(wanted, *p))),
                    }
                }
                if let Some(&port) = used.range(other..).next() {
                    used.remove(&port);
                    prop_assert!(sets[0].give_back(&layout, port));
                }
                prop_assert_eq!(sets[0].used() as usize, used.len());
            }
        }
    }
}
