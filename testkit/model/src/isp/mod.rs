//! Simulation of a provider: subscribers who read, play and share, routers that restart, attackers, and
//! outside hosts, all through one engine with NAT44 and NAT64 side by side. Time is an argument, so hours
//! pass in minutes. Invariants are checked all the time.

#![allow(missing_docs)] // field names say it

mod chance;
mod ledger;
pub(crate) mod packets;
mod people;
mod plan;
mod report;
mod world;

pub use ledger::Invariant;
pub use report::Report;
pub use world::World;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct Options {
    pub subscribers: u32,
    /// Number of attackers among the subscribers.
    pub attackers: u32,
    /// Subscribers for one public address.
    pub per_address: u32,
    pub simulated_ms: u64,
    /// Hour of day at which the run begins.
    pub start_hour: u32,
    /// Seconds between two pages of a subscriber at the busiest time.
    pub page_every_s: f64,
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            subscribers: 10_000,
            attackers: 8,
            per_address: 64,
            simulated_ms: 2 * 3_600_000,
            start_hour: 20,
            page_every_s: 90.0,
            seed: 1,
        }
    }
}
