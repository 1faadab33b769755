//! Shards of a cluster: sets of their numbers (decision 0108).

use core::fmt;

/// Largest number of shards: their numbers are bytes.
pub const SHARDS_MAX: usize = 256;

const WORDS: usize = SHARDS_MAX / 64;

/// Set of shards.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ShardSet([u64; WORDS]);

impl ShardSet {
    /// No shard.
    pub const NONE: ShardSet = ShardSet([0; WORDS]);
    /// All shards.
    pub const ALL: ShardSet = ShardSet([u64::MAX; WORDS]);

    /// Returns whether a shard is in the set.
    #[inline]
    pub fn contains(self, shard: u8) -> bool {
        let word = self.0.get(usize::from(shard / 64));
        word.is_some_and(|word| word >> (shard % 64) & 1 != 0)
    }

    /// Adds a shard.
    pub fn insert(&mut self, shard: u8) {
        if let Some(word) = self.0.get_mut(usize::from(shard / 64)) {
            *word |= 1 << (shard % 64);
        }
    }

    /// Takes a shard out.
    pub fn remove(&mut self, shard: u8) {
        if let Some(word) = self.0.get_mut(usize::from(shard / 64)) {
            *word &= !(1 << (shard % 64));
        }
    }

    fn zip(self, other: ShardSet, with: impl Fn(u64, u64) -> u64) -> ShardSet {
        let mut both = self;
        both.0.iter_mut().zip(other.0).for_each(|(a, b)| *a = with(*a, b));
        both
    }

    /// Shards that are in one of two sets.
    #[must_use]
    pub fn union(self, other: ShardSet) -> ShardSet {
        self.zip(other, |a, b| a | b)
    }

    /// Shards that are in both sets.
    #[must_use]
    pub fn intersection(self, other: ShardSet) -> ShardSet {
        self.zip(other, |a, b| a & b)
    }

    /// Shards that are not in another set.
    #[must_use]
    pub fn minus(self, other: ShardSet) -> ShardSet {
        self.zip(other, |a, b| a & !b)
    }

    /// Returns whether the set has no shard.
    pub fn is_empty(self) -> bool {
        self == ShardSet::NONE
    }

    /// Number of shards.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Iterates over the shards in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(move |shard| self.contains(*shard))
    }
}

impl FromIterator<u8> for ShardSet {
    fn from_iter<I: IntoIterator<Item = u8>>(shards: I) -> Self {
        let mut set = ShardSet::NONE;
        shards.into_iter().for_each(|shard| set.insert(shard));
        set
    }
}

impl fmt::Debug for ShardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ShardSet::ALL => f.write_str("all"),
            some => f.debug_set().entries(some.iter()).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn a_set_of_shards_is_a_set(a: BTreeSet<u8>, b: BTreeSet<u8>) {
            let set = |from: &BTreeSet<u8>| from.iter().copied().collect::<ShardSet>();
            let list = |of: ShardSet| of.iter().collect::<Vec<_>>();
            let (x, y) = (set(&a), set(&b));
            prop_assert_eq!(list(x), a.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(list(x.union(y)), a.union(&b).copied().collect::<Vec<_>>());
            prop_assert_eq!(list(x.intersection(y)), a.intersection(&b).copied().collect::<Vec<_>>());
            prop_assert_eq!(list(x.minus(y)), a.difference(&b).copied().collect::<Vec<_>>());
            prop_assert_eq!((x.len(), x.is_empty()), (a.len(), a.is_empty()));
            prop_assert_eq!(ShardSet::ALL.minus(x).len(), SHARDS_MAX - a.len());
            let mut rest = x;
            b.iter().for_each(|shard| rest.remove(*shard));
            prop_assert_eq!(rest, x.minus(y));
        }
    }
}
