//! Set of numbers that finds its next member in a few steps, even if it has few members.

use alloc::vec;
use alloc::vec::Vec;

/// Set of numbers below a fixed bound. Level 0 has a bit for each number. Every further level has a bit for
/// each non-empty word of the level below.
#[derive(Clone, Debug)]
pub(crate) struct BitTree {
    levels: Vec<Vec<u64>>,
}

impl BitTree {
    /// Creates an empty set for numbers below `bound`.
    pub(crate) fn new(bound: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = bound.div_ceil(64).max(1);
        loop {
            levels.push(vec![0; words]);
            if words == 1 {
                return BitTree { levels };
            }
            words = words.div_ceil(64);
        }
    }

    /// Adds a number. A number past the bound is ignored.
    pub(crate) fn insert(&mut self, mut i: usize) {
        for level in &mut self.levels {
            let Some(word) = level.get_mut(i / 64) else { return };
            let was_empty = *word == 0;
            *word |= 1 << (i % 64);
            if !was_empty {
                return;
            }
            i /= 64;
        }
    }

    /// Removes a number.
    pub(crate) fn remove(&mut self, mut i: usize) {
        for level in &mut self.levels {
            let Some(word) = level.get_mut(i / 64) else { return };
            *word &= !(1 << (i % 64));
            if *word != 0 {
                return;
            }
            i /= 64;
        }
    }

    /// Returns whether a number is a member.
    pub(crate) fn has(&self, i: usize) -> bool {
        let word = self.levels.first().and_then(|words| words.get(i / 64));
        word.is_some_and(|word| word & (1 << (i % 64)) != 0)
    }

    /// Returns the least member from `from` on. After the last member it wraps to the least one.
    pub(crate) fn next_cyclic(&self, from: usize) -> Option<usize> {
        self.next(from).or_else(|| self.next(0))
    }

    fn next(&self, from: usize) -> Option<usize> {
        let mut i = from;
        for (level, words) in self.levels.iter().enumerate() {
            let rest = words.get(i / 64)? >> (i % 64);
            if rest != 0 {
                return self.least_below(level, i + rest.trailing_zeros() as usize);
            }
            i = i / 64 + 1;
        }
        None
    }

    /// Returns the least member under bit `i` of a level.
    fn least_below(&self, level: usize, i: usize) -> Option<usize> {
        self.levels.get(..level)?.iter().rev().try_fold(i, |i, words| {
            let word = words.get(i)?;
            Some(i * 64 + word.trailing_zeros() as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::Index;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn bit_tree_agrees_with_a_set(
            bound in prop_oneof![1..70usize, 4000..4200usize, 300_000..300_001usize],
            steps in prop::collection::vec((any::<bool>(), any::<Index>(), any::<Index>()), 0..200),
        ) {
            let mut tree = BitTree::new(bound);
            let mut model = BTreeSet::new();
            for (insert, i, from) in steps {
                let (i, from) = (i.index(bound), from.index(bound + 1));
                if insert {
                    tree.insert(i);
                    model.insert(i);
                } else {
                    // Most draws pick a member.
                    let i = model.range(i..).next().copied().unwrap_or(i);
                    tree.remove(i);
                    model.remove(&i);
                }
                let next = model.range(from..).next().or(model.first()).copied();
                prop_assert_eq!(tree.next_cyclic(from), next);
            }
        }
    }

    #[test]
    fn numbers_past_the_bound_are_ignored() {
        let mut tree = BitTree::new(10);
        tree.insert(64);
        tree.remove(1000);
        assert_eq!(tree.next_cyclic(usize::MAX), None);
        assert_eq!(BitTree::new(0).next_cyclic(0), None);
    }
}
