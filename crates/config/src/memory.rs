//! How much memory a plan's tables will take, as an estimate.

use gatun_nat::Plan;
use std::fmt;

// Bytes of one entry, with its share of the index that finds it.
const SESSION_BYTES: u64 = 96;
const SUBSCRIBER_BYTES: u64 = 64;
const POOL_PORT_BYTES: u64 = 4;
const EAM_BYTES: u64 = 96;
const SYN_BYTES: u64 = 256;
const FRAGMENT_ENTRY_BYTES: u64 = 96;

/// What the tables take, in bytes: an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Sessions, bindings and their indexes.
    pub sessions: u64,
    /// Subscribers.
    pub subscribers: u64,
    /// One entry for each port of each pool and protocol.
    pub pools: u64,
    /// Explicit address mappings.
    pub mappings: u64,
    /// Held connection attempts and fragments.
    pub held: u64,
}

impl Memory {
    pub(crate) fn of(plan: &Plan) -> Self {
        let limits = &plan.limits;
        let stateful = u64::from(!plan.nat64.is_empty());
        let ports: u64 = plan.pools.iter().map(pool_ports).sum();
        let mappings: usize = plan.siit.iter().map(|instance| instance.eamt.len()).sum();
        Memory {
            sessions: stateful * u64::from(limits.sessions_max) * SESSION_BYTES,
            subscribers: stateful * u64::from(limits.subscribers_max) * SUBSCRIBER_BYTES,
            pools: ports * POOL_PORT_BYTES,
            mappings: mappings as u64 * EAM_BYTES,
            held: stateful * u64::from(limits.syn_store_max) * SYN_BYTES
                + u64::from(limits.fragment_entries_max) * FRAGMENT_ENTRY_BYTES
                + u64::from(limits.fragment_bytes_max),
        }
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.sessions + self.subscribers + self.pools + self.mappings + self.held
    }
}

/// Ports of a pool, each protocol for itself.
pub(crate) fn pool_ports(pool: &gatun_nat::plan::Pool4) -> u64 {
    pool.ranges
        .iter()
        .map(|range| {
            let addresses = u64::from(u32::from(range.last)) - u64::from(u32::from(range.first)) + 1;
            let ports = u64::from(range.ports.1) - u64::from(range.ports.0) + 1;
            addresses * ports * range.transports.iter().filter(|on| **on).count() as u64
        })
        .sum()
}

/// Bytes as people write them: "24.0 MiB".
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
