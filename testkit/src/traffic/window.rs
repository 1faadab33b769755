//! Window of the latest numbers that have arrived.

/// Bits of the window: at ten million packets a second, the last six seconds.
const BITS: u64 = 1 << 26;

/// State of a number on arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    First,
    Again,
    /// The number is too old to tell if it came before.
    TooLate,
}

/// A bit for each of the latest numbers.
pub(crate) struct Window {
    bits: Vec<u64>,
    /// One more than the highest number that has arrived.
    end: u64,
}

impl Window {
    pub(crate) fn new() -> Window {
        Window { bits: vec![0; (BITS / 64) as usize], end: 0 }
    }

    pub(crate) fn arrives(&mut self, number: u64) -> Arrival {
        if number + BITS < self.end {
            return Arrival::TooLate;
        }
        if number >= self.end {
            self.advance(number);
        }
        let (word, bit) = (&mut self.bits[(number % BITS / 64) as usize], 1 << (number % 64));
        let known = *word & bit != 0;
        *word |= bit;
        if known { Arrival::Again } else { Arrival::First }
    }

    /// Returns true if a number has arrived; the number must lie within the window.
    pub(crate) fn has(&self, number: u64) -> bool {
        number < self.end && self.bits[(number % BITS / 64) as usize] & 1 << (number % 64) != 0
    }

    /// One more than the highest number that has arrived.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Clears the bits that the numbers up to this one reuse.
    fn advance(&mut self, number: u64) {
        let mut next = self.end.max((number + 1).saturating_sub(BITS));
        while next <= number {
            let word = &mut self.bits[(next % BITS / 64) as usize];
            if next.is_multiple_of(64) && next + 63 <= number {
                *word = 0;
                next += 64;
            } else {
                *word &= !(1 << (next % 64));
                next += 1;
            }
        }
        self.end = number + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_known_as_long_as_the_window_reaches_back() {
        let mut window = Window::new();
        assert_eq!(window.arrives(5), Arrival::First);
        assert_eq!(window.arrives(3), Arrival::First);
        assert_eq!(window.arrives(5), Arrival::Again);
        // The bit that 5 used, one window later.
        assert_eq!(window.arrives(BITS + 4), Arrival::First);
        assert_eq!(window.arrives(5), Arrival::Again);
        assert_eq!(window.arrives(4), Arrival::First.min_known(BITS + 5 - 4));
        assert_eq!(window.arrives(BITS + 5), Arrival::First);
        assert_eq!(window.arrives(5), Arrival::TooLate);
        assert_eq!(window.arrives(6), Arrival::First);
        // A leap over more than the whole window.
        assert_eq!(window.arrives(9 * BITS + 77), Arrival::First);
        assert_eq!(window.arrives(8 * BITS + 78), Arrival::First);
        assert_eq!(window.arrives(8 * BITS + 78), Arrival::Again);
        assert_eq!(window.arrives(8 * BITS + 77), Arrival::TooLate);
    }

    impl Arrival {
        /// Expected state of a number so far behind the end.
        fn min_known(self, behind: u64) -> Arrival {
            if behind > BITS { Arrival::TooLate } else { self }
        }
    }

    #[test]
    fn every_number_in_a_long_run_is_new_once() {
        let mut window = Window::new();
        let firsts =
            (0..3 * BITS / 2).map(|n| n ^ 1).filter(|n| window.arrives(*n) == Arrival::First).count();
        assert_eq!(firsts as u64, 3 * BITS / 2);
    }
}
