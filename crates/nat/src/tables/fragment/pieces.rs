//! Parts of a datagram that have arrived.

/// Maximum number of fragments per datagram: 65,535 bytes over a path of 576 bytes are 119.
pub(super) const PIECES_MAX: usize = 128;

/// Fit of a fragment among those seen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The fragment is new, and is recorded.
    New,
    /// A fragment with the same bounds has arrived before: the network duplicated it.
    Duplicate,
    /// The fragment overlaps another one or contradicts the datagram's length.
    Overlap,
    /// The datagram already has the maximum number of fragments.
    TooMany,
}

/// The fragments seen of one datagram, disjoint, in the order of their offsets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    list: [Piece; PIECES_MAX],
    count: u8,
    /// Bytes of all of them.
    seen: u32,
    /// The datagram's length; 0 until the last fragment has come.
    total: u32,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Start in units of 8 bytes.
    start: u16,
    /// Length in bytes.
    len: u16,
}

impl Piece {
    fn begin(self) -> u32 {
        u32::from(self.start) * 8
    }

    fn end(self) -> u32 {
        self.begin() + u32::from(self.len)
    }
}

impl Pieces {
    pub(super) const NONE: Pieces =
        Pieces { list: [Piece { start: 0, len: 0 }; PIECES_MAX], count: 0, seen: 0, total: 0 };

    /// Records the fragment of `len` bytes at `offset`, which is a multiple of 8. `more` is true if others
    /// follow.
    pub(super) fn insert(&mut self, offset: u16, len: u16, more: bool) -> Fit {
        let new = Piece { start: offset / 8, len };
        let seen = self.list.get(..usize::from(self.count)).unwrap_or_default();
        let at = seen.partition_point(|p| p.start < new.start);
        if let Some(same) = seen.get(at).filter(|p| p.start == new.start && p.len == new.len) {
            let is_last = same.end() == self.total;
            return if is_last != more { Fit::Duplicate } else { Fit::Overlap };
        }
        let before = at.checked_sub(1).and_then(|i| seen.get(i));
        let beyond = seen.last().is_some_and(|p| p.end() > new.end());
        if before.is_some_and(|p| p.end() > new.begin())
            || seen.get(at).is_some_and(|p| p.begin() < new.end())
            || (self.total != 0 && (!more || new.end() > self.total))
            || (!more && beyond)
        {
            return Fit::Overlap;
        }
        let Some(room) = self.list.get_mut(at..=usize::from(self.count)) else { return Fit::TooMany };
        room.rotate_right(1);
        if let Some(place) = room.first_mut() {
            *place = new;
        }
        self.count += 1;
        self.seen += u32::from(len);
        if !more {
            self.total = new.end();
        }
        Fit::New
    }

    /// Returns whether the datagram is complete.
    pub(super) fn complete(&self) -> bool {
        self.total != 0 && self.seen == self.total
    }

    /// Length of the datagram in bytes, 0 if it is not known yet.
    pub(super) fn total(&self) -> u32 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        // proves: A61-9
        #[test]
        fn overlaps_agree_with_a_map_of_bytes(
            given in proptest::collection::vec((0u16..40, 1u16..12, any::<bool>()), 1..40),
        ) {
            let mut pieces = Pieces::NONE;
            let mut bytes = [false; 600];
            let mut kept: Vec<(u16, u16, bool)> = Vec::new();
            for (start, len, more) in given {
                // All fragments except the last one are whole units.
                let (offset, len) = (start * 8, if more { len * 8 } else { len * 8 - 3 });
                let range = usize::from(offset)..usize::from(offset + len);
                let total = kept.iter().find(|k| !k.2).map(|k| usize::from(k.0 + k.1));
                let last_seen = bytes.iter().rposition(|b| *b).map_or(0, |i| i + 1);
                let clash = bytes[range.clone()].iter().any(|b| *b)
                    || total.is_some_and(|t| range.end > t || !more)
                    || (!more && last_seen > range.end);
                let expected = match (kept.contains(&(offset, len, more)), clash) {
                    (true, _) => Fit::Duplicate,
                    (false, true) => Fit::Overlap,
                    (false, false) => Fit::New,
                };
                prop_assert_eq!(pieces.insert(offset, len, more), expected);
                if expected == Fit::New {
                    bytes[range].fill(true);
                    kept.push((offset, len, more));
                }
                let total = kept.iter().find(|k| !k.2).map(|k| usize::from(k.0 + k.1));
                prop_assert_eq!(pieces.complete(), total.is_some_and(|t| bytes[..t].iter().all(|b| *b)));
            }
        }
    }

    #[test]
    fn one_fragment_too_many_is_reported() {
        let mut pieces = Pieces::NONE;
        for i in 0..PIECES_MAX as u16 {
            assert_eq!(pieces.insert(i * 16, 8, true), Fit::New);
        }
        assert_eq!(pieces.insert(8, 8, true), Fit::TooMany);
        assert_eq!(pieces.insert(16, 8, true), Fit::Duplicate);
        assert_eq!(pieces.insert(16, 16, true), Fit::Overlap);
    }

    #[test]
    fn the_longest_datagram_of_the_smallest_path_fits() {
        let mut pieces = Pieces::NONE;
        let (mut offset, step) = (0u32, 552);
        while offset + step < 65_515 {
            assert_eq!(pieces.insert(offset as u16, step as u16, true), Fit::New);
            offset += step;
        }
        assert_eq!(pieces.insert(offset as u16, (65_515 - offset) as u16, false), Fit::New);
        assert!(pieces.complete());
        assert_eq!(pieces.total(), 65_515);
    }
}
