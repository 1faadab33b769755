//! IPv4 identifications for packets that leave without DF (RFC 7915 5.1, RFC 6864).
//!
//! A few thousand counters, one of them chosen by the flow's keyed hash and begun at a random value:
//! within a flow no identification returns before 65,536 packets, and nobody outside can guess another
//! flow's.

use crate::rng::Rng;
use alloc::boxed::Box;

const COUNTERS: usize = 2048;

pub(crate) struct Idents {
    next: Box<[u16; COUNTERS]>,
}

impl Idents {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let mut next = Box::new([0u16; COUNTERS]);
        for n in next.iter_mut() {
            *n = rng.next_u32() as u16;
        }
        Idents { next }
    }

    /// The next identification of the flow with this hash.
    #[inline]
    pub(crate) fn next(&mut self, hash: u64) -> u16 {
        // The upper bits: tables use the lower ones.
        let n = &mut self.next[(hash >> 48) as usize % COUNTERS];
        *n = n.wrapping_add(1);
        *n
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    // proves: A79-53
    #[test]
    fn a_flow_uses_every_identification_before_one_returns() {
        let mut idents = Idents::new(&mut Rng::new([7; 4]));
        let seen: BTreeSet<u16> = (0..65_536).map(|_| idents.next(0xdead_beef_0000_0000)).collect();
        assert_eq!(seen.len(), 65_536);
    }
}
