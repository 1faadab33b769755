//! Memory of a plan's tables.

use gatun_nat::Plan;
use gatun_nat::memory::TableBytes;
use gatun_nat::plan::{Pool4, PoolRange};
use std::fmt;
use std::net::Ipv4Addr;

/// Bytes of a mapping with its share of the search trees of both sides.
const EAM_BYTES: u64 = 96;

/// Bytes of the tables of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Tables with state.
    pub tables: TableBytes,
    /// Explicit address mappings, an estimate; all workers share them.
    pub mappings: u64,
}

impl Memory {
    /// Memory of one worker's plan.
    pub fn of(plan: &Plan) -> Self {
        let mappings: usize = plan.siit.iter().map(|instance| instance.eamt.len()).sum();
        Memory {
            // An inconsistent plan is not loaded.
            tables: TableBytes::of(plan).unwrap_or_default(),
            mappings: mappings as u64 * EAM_BYTES,
        }
    }

    /// Total of one worker.
    pub fn total(&self) -> u64 {
        self.tables.total().saturating_add(self.mappings)
    }

    /// Total of all workers: each has a plan, and they share the mappings.
    pub fn of_workers(plans: &[&Plan]) -> u64 {
        let each: Vec<Memory> = plans.iter().copied().map(Self::of).collect();
        let mappings = each.first().map_or(0, |memory| memory.mappings);
        each.iter().fold(mappings, |sum, memory| sum.saturating_add(memory.tables.total()))
    }
}

/// Size of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// Addresses, each counted once.
    pub addresses: u64,
    /// Ports of all addresses, counted for each protocol.
    pub ports: u64,
}

impl PoolSize {
    /// The size of `pool`.
    pub fn of(pool: &Pool4) -> Self {
        let mut spans: Vec<(u64, u64)> =
            pool.ranges.iter().map(|r| (number(r.first), number(r.last))).collect();
        spans.sort_unstable();
        let (mut addresses, mut counted_to) = (0, 0);
        for (first, last) in spans {
            addresses += (last + 1).saturating_sub(first.max(counted_to));
            counted_to = counted_to.max(last + 1);
        }
        PoolSize { addresses, ports: pool.ranges.iter().map(range_ports).sum() }
    }
}

fn range_ports(range: &PoolRange) -> u64 {
    let addresses = number(range.last) - number(range.first) + 1;
    let ports = u64::from(range.ports.1) - u64::from(range.ports.0) + 1;
    addresses * ports * range.transports.iter().filter(|on| **on).count() as u64
}

fn number(address: Ipv4Addr) -> u64 {
    u64::from(u32::from(address))
}

/// Formats bytes with a unit: "24.0 MiB".
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0 as f64;
        match self.0 {
            0..1_024 => write!(f, "{} B", self.0),
            1_024..1_048_576 => write!(f, "{:.1} KiB", n / 1024.0),
            1_048_576..1_073_741_824 => write!(f, "{:.1} MiB", n / 1_048_576.0),
            _ => write!(f, "{:.1} GiB", n / 1_073_741_824.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_two_ranges_is_counted_once_and_its_ports_twice() {
        let range = |first, last, ports, transports| PoolRange {
            first: Ipv4Addr::from(first),
            last: Ipv4Addr::from(last),
            ports,
            transports,
        };
        let ranges = vec![
            range(5, 9, (1, 10), [true, true, false]),
            range(0, 5, (11, 11), [true, false, false]),
            range(u32::MAX, u32::MAX, (80, 80), [true; 3]),
        ];
        let pool = Pool4 { ranges, ..Pool4::default() };
        assert_eq!(PoolSize::of(&pool), PoolSize { addresses: 11, ports: 100 + 6 + 3 });
    }

    #[test]
    fn bytes_are_shown_in_the_largest_unit_that_fits() {
        let shown = [0, 1023, 1024, 25_165_824, 5 << 30].map(|n| Bytes(n).to_string());
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "24.0 MiB", "5.0 GiB"]);
    }
}
