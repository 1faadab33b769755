//! Memory of a table, computed before it is created.

use super::{HUGE_PAGE, PAGE};
use core::iter::Sum;
use core::ops::{Add, AddAssign, Mul};

/// Memory of one or several tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Size in bytes, in whole pages.
    pub bytes: u64,
    /// Number of huge pages to reserve (`vm.nr_hugepages`) so that all eligible tables get them.
    pub huge_pages: u64,
}

impl Footprint {
    /// Footprint of a table of this size that may use reserved huge pages.
    pub(super) fn of_table(bytes: usize) -> Footprint {
        let huge_pages = if bytes > HUGE_PAGE - PAGE { bytes.div_ceil(HUGE_PAGE) as u64 } else { 0 };
        Footprint { huge_pages, ..Footprint::of_bytes(bytes as u64) }
    }

    /// Footprint of memory that never uses reserved huge pages.
    pub fn of_bytes(bytes: u64) -> Footprint {
        Footprint { bytes: bytes.div_ceil(PAGE as u64).saturating_mul(PAGE as u64), huge_pages: 0 }
    }
}

impl Add for Footprint {
    type Output = Footprint;

    fn add(self, other: Footprint) -> Footprint {
        Footprint {
            bytes: self.bytes.saturating_add(other.bytes),
            huge_pages: self.huge_pages.saturating_add(other.huge_pages),
        }
    }
}

impl AddAssign for Footprint {
    fn add_assign(&mut self, other: Footprint) {
        *self = *self + other;
    }
}

impl Mul<u64> for Footprint {
    type Output = Footprint;

    fn mul(self, n: u64) -> Footprint {
        Footprint { bytes: self.bytes.saturating_mul(n), huge_pages: self.huge_pages.saturating_mul(n) }
    }
}

impl Sum for Footprint {
    fn sum<I: Iterator<Item = Footprint>>(all: I) -> Footprint {
        all.fold(Footprint::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_count_in_whole_pages_and_small_ones_need_no_huge_page() {
        let of = |bytes| {
            let footprint = Footprint::of_table(bytes);
            (footprint.bytes, footprint.huge_pages)
        };
        assert_eq!(of(0), (0, 0));
        assert_eq!(of(1), (4096, 0));
        assert_eq!(of(HUGE_PAGE - PAGE), ((HUGE_PAGE - PAGE) as u64, 0));
        assert_eq!(of(HUGE_PAGE - PAGE + 1), (HUGE_PAGE as u64, 1));
        assert_eq!(of(2 * HUGE_PAGE + 1), ((2 * HUGE_PAGE + PAGE) as u64, 3));
        let two = Footprint::of_table(3 << 20) + Footprint::of_bytes(5000) * 2;
        assert_eq!(two, Footprint { bytes: (3 << 20) + 16384, huge_pages: 2 });
        assert_eq!([two, two].into_iter().sum::<Footprint>(), two * 2);
    }
}
