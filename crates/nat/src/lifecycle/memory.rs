//! Memory of an engine's tables.
//!
//! The sum is known before an engine is built, so that Gatun sets up nothing if there is not enough memory.

use crate::base::plan::Plan;
use crate::path::rewrite::DatagramRewrite;
use crate::tables::bib::Tables;
use crate::tables::event::Events;
use crate::tables::fragment::Fragments;
use crate::tables::icmp_limit::IcmpLimit;
use crate::tables::path_mtu::Paths;
use crate::tables::pool4::{Pool4State, PoolError};
use crate::tables::sizes::holds;
use crate::tables::subscriber::Subscribers;
use crate::tables::syn_store::SynStore;
use crate::tables::traffic::AddressTraffic;
use alloc::vec::Vec;
use gatun_mem::Footprint;

/// Bytes by table, in whole pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableBytes {
    /// Records of sessions and bindings, which may be in a file.
    pub records: u64,
    /// Indexes of the records.
    pub indexes: u64,
    /// Subscribers.
    pub subscribers: u64,
    /// Each pool's outside table and ports.
    pub pools: Vec<u64>,
    /// Held SYNs.
    pub syns: u64,
    /// Paths with a small MTU.
    pub paths: u64,
    /// Rates of ICMP errors by source.
    pub icmp_rates: u64,
    /// Fragmented packets and held fragments.
    pub fragments: u64,
    /// Events that wait to be read.
    pub events: u64,
    /// Number of huge pages for all tables except the records.
    pub huge_pages: u64,
    /// Number of huge pages for the records if they are not in a file.
    pub record_huge_pages: u64,
}

impl TableBytes {
    /// Memory of one engine for `plan`, without stateless mappings, which engines share.
    ///
    /// # Errors
    /// Returns an error if a pool contradicts itself.
    pub fn of(plan: &Plan) -> Result<TableBytes, PoolError> {
        let limits = &plan.limits;
        let mut all = TableBytes::default();
        let mut count = |footprint: Footprint| {
            all.huge_pages += footprint.huge_pages;
            footprint.bytes
        };
        let events = Footprint::of_bytes(Events::bytes(&plan.events));
        let (events, paths) = (count(events), count(Paths::footprint(limits.path_mtus_max)));
        let icmp_rates = count(IcmpLimit::footprint());
        if !plan.is_stateful() {
            return Ok(TableBytes { events, paths, icmp_rates, ..all });
        }
        let indexes = count(Tables::index_footprint(plan));
        let subscribers = count(Subscribers::footprint(limits.subscribers_max));
        let syns = count(SynStore::footprint(limits.syn_store_max));
        let fragments = count(Fragments::<DatagramRewrite>::footprint(limits));
        let mut pools = Vec::new();
        for (at, pool) in plan.pools.iter().enumerate() {
            pools.push(count(Pool4State::footprint(pool, holds(plan, at))?));
        }
        // This is for all pools together, and counted with the first pool's tables.
        let rooms: Vec<u32> = plan.pools.iter().map(Pool4State::room_of).collect::<Result<_, _>>()?;
        let traffic = count(AddressTraffic::footprint(&rooms));
        pools.iter_mut().take(1).for_each(|bytes| *bytes += traffic);
        let Footprint { bytes: records, huge_pages: record_huge_pages } = Tables::record_footprint(plan);
        Ok(TableBytes {
            records,
            indexes,
            subscribers,
            pools,
            syns,
            paths,
            icmp_rates,
            fragments,
            events,
            record_huge_pages,
            ..all
        })
    }

    /// Bytes of sessions and bindings, including their indexes.
    pub fn sessions(&self) -> u64 {
        self.records + self.indexes
    }

    /// Sum of all tables.
    pub fn total(&self) -> u64 {
        let pools: u64 = self.pools.iter().sum();
        let small = self.syns + self.paths + self.icmp_rates + self.fragments;
        self.sessions() + self.subscribers + pools + small + self.events
    }
}
