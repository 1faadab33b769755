//! The ports of one public address and one transport: which exist, which are used.
//!
//! A [`Layout`] says which ports exist and is shared by all addresses with the same rule; a [`PortSet`] says
//! which are used. All zeroes is "none used", so the sets of addresses that nobody uses cost no memory.
//! Both count by group of 1,024 ports and by parity, so that choosing a free port looks at a bounded
//! number of words however full the set is; see [`random`]. Group 0 is the well-known ports, which is all
//! that port classes (RFC 4787 REQ-3) need.

pub(crate) mod random;

use alloc::vec;
use alloc::vec::Vec;

const WORDS: usize = 65_536 / 64;
const GROUPS: usize = WORDS / WORDS_IN_GROUP;
const WORDS_IN_GROUP: usize = PORTS_IN_GROUP / 64;
const PORTS_IN_GROUP: usize = 1_024;

/// Bits of a word that stand for even ports.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// Ports, counted: even and odd.
type ByParity<T> = [T; 2];

#[inline]
fn place(port: u16) -> (usize, u64) {
    (usize::from(port) / 64, 1 << (port % 64))
}

#[inline]
fn group_of(port: u16) -> usize {
    usize::from(port) / PORTS_IN_GROUP
}

/// The class of a group: 0 for the well-known ports, 1 for all others.
#[inline]
fn class_of(group: usize) -> usize {
    usize::from(group > 0)
}

/// Which ports are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// 0-1023.
    WellKnown,
    /// 1024-65535.
    Other,
    Any,
}

/// Which ports are wanted, further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parity {
    Even,
    Odd,
    Any,
}

/// A class and a parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) class: Class,
    pub(crate) parity: Parity,
}

impl Wanted {
    pub(crate) const ANY: Wanted = Wanted { class: Class::Any, parity: Parity::Any };

    /// What keeps the class, and if asked to the parity, of an inside port.
    pub(crate) fn like(port: u16, keep_parity: bool) -> Wanted {
        let class = if group_of(port) == 0 { Class::WellKnown } else { Class::Other };
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

    fn sum(self, [even, odd]: ByParity<u32>) -> u32 {
        match self.parity {
            Parity::Even => even,
            Parity::Odd => odd,
            Parity::Any => even + odd,
        }
    }
}

/// Which ports exist.
#[derive(Debug)]
pub(crate) struct Layout {
    words: Vec<u64>,
    in_group: [ByParity<u16>; GROUPS],
    in_class: [ByParity<u32>; 2],
}

impl Layout {
    /// The ports of some intervals, both ends included.
    pub(crate) fn new(intervals: &[(u16, u16)]) -> Self {
        let mut layout = Layout { words: vec![0; WORDS], in_group: [[0; 2]; GROUPS], in_class: [[0; 2]; 2] };
        for port in intervals.iter().flat_map(|&(first, last)| first..=last) {
            let (word, bit) = place(port);
            match layout.words.get_mut(word) {
                Some(w) if *w & bit == 0 => *w |= bit,
                _ => continue,
            }
            count(&mut layout.in_group, &mut layout.in_class, port, |n| n + 1, |n| n + 1);
        }
        layout
    }

    /// How many there are.
    pub(crate) fn total(&self) -> u32 {
        self.in_class.iter().flatten().sum()
    }

    /// Whether a port exists.
    #[inline]
    pub(crate) fn has(&self, port: u16) -> bool {
        let (word, bit) = place(port);
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }
}

/// Changes the counts that a port belongs to.
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

/// Which ports are used. Only ports of the layout are counted; others may be marked too (a static
/// binding's), and are then used and nothing else.
#[derive(Clone, Copy, zerocopy::FromZeros)]
#[repr(C, align(64))]
pub(crate) struct PortSet {
    in_group: [ByParity<u16>; GROUPS],
    in_class: [ByParity<u32>; 2],
    words: [u64; WORDS],
}

impl PortSet {
    /// How many of the layout are used.
    pub(crate) fn used(&self) -> u32 {
        self.in_class.iter().flatten().sum()
    }

    /// Marks a port as used; `false` where it is already.
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

    /// Marks a port as free; `false` where it is already.
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

    /// How many of the wanted ports are free.
    fn free(&self, layout: &Layout, wanted: Wanted) -> u32 {
        let classes = layout.in_class.iter().zip(&self.in_class);
        let few = wanted.classes();
        classes
            .skip(few.start)
            .take(few.len())
            .map(|(&all, &used)| wanted.sum(all).saturating_sub(wanted.sum(used)))
            .sum()
    }

    /// How many of the wanted ports of a group are free.
    fn free_in_group(&self, layout: &Layout, group: usize, wanted: Wanted) -> u32 {
        let sum =
            |groups: &[ByParity<u16>; GROUPS]| groups.get(group).map_or(0, |n| wanted.sum(n.map(u32::from)));
        sum(&layout.in_group).saturating_sub(sum(&self.in_group))
    }

    /// The free ports of a word.
    fn free_in_word(&self, layout: &Layout, word: usize, wanted: Wanted) -> u64 {
        let exist = layout.words.get(word).copied().unwrap_or(0);
        exist & !self.words.get(word).copied().unwrap_or(u64::MAX) & wanted.mask()
    }
}
