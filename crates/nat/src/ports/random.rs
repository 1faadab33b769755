//! A random free port: each free one as likely as every other, at any fill (RFC 6056 3.2, RFC 6888 REQ-15,
//! RFC 7857 9).
//!
//! While many are free, a few draws find one. Else a rank among the free ones is drawn, and found by the
//! counts: at most 64 groups, 16 words and 64 bits are looked at. Both ways are uniform, so their
//! combination is.

use super::{GROUPS, Layout, PORTS_IN_GROUP, Parity, PortSet, WORDS_IN_GROUP, Wanted};
use crate::rng::Rng;

const DRAWS: usize = 4;

impl PortSet {
    /// A free port of those wanted, or `None` where there is none. It is not yet marked.
    pub(crate) fn random_free(&self, layout: &Layout, wanted: Wanted, rng: &mut Rng) -> Option<u16> {
        let free = self.free(layout, wanted);
        if free == 0 {
            return None;
        }
        let span = (wanted.groups().len() * PORTS_IN_GROUP) as u32;
        if free >= span / 8 {
            for _ in 0..DRAWS {
                let port = draw(wanted, span, rng);
                if self.free_in_word(layout, usize::from(port) / 64, wanted) & (1 << (port % 64)) != 0 {
                    return Some(port);
                }
            }
        }
        self.nth_free(layout, wanted, rng.below(free))
    }

    /// The free port of that rank among those wanted.
    fn nth_free(&self, layout: &Layout, wanted: Wanted, mut rank: u32) -> Option<u16> {
        let group = wanted.groups().find(|&g| below(&mut rank, self.free_in_group(layout, g, wanted)))?;
        let first = group * WORDS_IN_GROUP;
        let word = (first..first + WORDS_IN_GROUP)
            .find(|&w| below(&mut rank, self.free_in_word(layout, w, wanted).count_ones()))?;
        let mut bits = self.free_in_word(layout, word, wanted);
        for _ in 0..rank {
            bits &= bits.wrapping_sub(1);
        }
        u16::try_from(word * 64 + bits.trailing_zeros() as usize).ok()
    }
}

/// Whether `rank` lies among the next `n`; where it does not, they are taken off it.
fn below(rank: &mut u32, n: u32) -> bool {
    let here = *rank < n;
    if !here {
        *rank -= n;
    }
    here
}

/// Any of the wanted ports, free or not.
fn draw(wanted: Wanted, span: u32, rng: &mut Rng) -> u16 {
    let first = (wanted.groups().start.min(GROUPS) * PORTS_IN_GROUP) as u32;
    let offset = match wanted.parity {
        Parity::Any => rng.below(span),
        Parity::Even => rng.below(span / 2) * 2,
        Parity::Odd => rng.below(span / 2) * 2 + 1,
    };
    (first + offset) as u16
}
