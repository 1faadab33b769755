//! Plans of the bench: like an operator's, with the size that the flows need.

use super::packets::{Flows, INSIDE_FIRST, POOL6, subscriber_address};
use gatun_nat::feed::{FeedPolicy, SessionScope};
use gatun_nat::plan::{
    Allocation, Blocks, Eam, EventPlan, Hairpin, Limits, Nat44, Nat64, Net4, Net6, Pool4, PoolRange, Siit,
};
use gatun_nat::{EventKind, EventKinds, Plan};
use gatun_wire::Prefix64;
use serde::Serialize;
use std::net::Ipv4Addr;

/// First address of the pool: 198.18.0.0/16.
const POOL_FIRST: u32 = 0xc612_0000;
/// Ports of an address: 1024 to 65,535.
pub(super) const PORTS_PER_ADDRESS: u64 = 64_512;
/// First mapped address: 10.0.0.0/8.
const EAM_FIRST: u32 = 0x0a00_0000;

fn pool6() -> anyhow::Result<Prefix64> {
    Prefix64::new(POOL6, 96).map_err(|error| anyhow::anyhow!("{error:?}"))
}

/// Size of the pool and allocation of its ports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    /// Ports of a block. `None` allocates single random ports over the whole address.
    pub(super) block_size: Option<u16>,
    /// Used ports at the end, percent. With blocks, the pool has as many addresses as the subscribers'
    /// blocks need.
    pub(super) fill_percent: u64,
}

/// Single ports, half of them free at the end.
impl Default for Ports {
    fn default() -> Self {
        Ports { block_size: None, fill_percent: 50 }
    }
}

/// Plan of a stateful translator for `flows`, with as many public addresses as they need.
pub(super) fn nat64(flows: Flows, ports: Ports) -> anyhow::Result<Plan> {
    let each = u32::try_from(flows.count.div_ceil(flows.subscribers))?;
    let (addresses, allocation) = match ports.block_size {
        None => {
            let used = PORTS_PER_ADDRESS * ports.fill_percent.clamp(1, 100);
            ((flows.count * 100).div_ceil(used), Allocation::default())
        }
        Some(size) => {
            let per_subscriber = each.div_ceil(size.into());
            let blocks = Blocks { size, per_subscriber: u16::try_from(per_subscriber)?, ..Blocks::default() };
            let per_address = PORTS_PER_ADDRESS / u64::from(size);
            let all = flows.subscribers * u64::from(per_subscriber);
            (all.div_ceil(per_address), Allocation::Blocks(blocks))
        }
    };
    let addresses = u32::try_from(addresses)?;
    anyhow::ensure!(addresses <= 1 << 16, "so many sessions need more than 65,536 public addresses");
    let range = PoolRange {
        first: Ipv4Addr::from(POOL_FIRST),
        last: Ipv4Addr::from(POOL_FIRST + addresses - 1),
        ports: (1024, 65_535),
        transports: [true; 3],
    };
    Ok(Plan {
        pools: vec![Pool4 { name: "bench".into(), ranges: vec![range], allocation, ..Pool4::default() }],
        nat64: vec![Nat64 { name: "bench".into(), pool6: vec![pool6()?], ..Nat64::default() }],
        limits: Limits {
            sessions_max: u32::try_from(flows.count)?,
            sessions_reserved: 0,
            subscribers_max: u32::try_from(flows.subscribers)?,
            sessions_per_subscriber: each,
            ports_per_subscriber: each,
            ..Limits::default()
        },
        ..Plan::default()
    })
}

/// Like [`nat64`], for private IPv4 hosts.
pub(super) fn nat44(flows: Flows, ports: Ports) -> anyhow::Result<Plan> {
    anyhow::ensure!(flows.subscribers <= 1 << 22, "100.64.0.0/10 has 4,194,304 addresses");
    let plan = nat64(flows, ports)?;
    let instance = Nat44 {
        name: "bench".into(),
        inside: vec![Net4 { addr: Ipv4Addr::from(INSIDE_FIRST), len: 10 }],
        ..Nat44::default()
    };
    Ok(Plan { nat64: Vec::new(), nat44: vec![instance], ..plan })
}

/// Sessions on the state feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum FeedScope {
    /// No consumer
    None,
    /// Established sessions: what a fast path needs
    Established,
    /// All sessions, from their first packet to their end
    All,
}

impl FeedScope {
    pub(super) fn policy(self, packets: u8) -> Option<FeedPolicy> {
        let sessions = match self {
            FeedScope::None => return None,
            FeedScope::Established => SessionScope::Established,
            FeedScope::All => SessionScope::All,
        };
        Some(FeedPolicy { sessions, packets, ..FeedPolicy::default() })
    }
}

/// Events that the engine logs to its ring and the bench reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Logged {
    /// None
    None,
    /// Events of a configuration with `[log]`: blocks, and bindings if single ports are allocated
    Log,
    /// Every kind, sessions included
    All,
}

impl Logged {
    fn kinds(self, ports: Ports) -> EventKinds {
        use EventKind::*;
        let with = |kinds: &[EventKind]| kinds.iter().fold(EventKinds::NONE, |all, &kind| all.with(kind));
        match self {
            Logged::None => EventKinds::NONE,
            Logged::Log if ports.block_size.is_some() => with(&[BlockAssigned, BlockReleased, BlockKept]),
            Logged::Log => {
                with(&[BlockAssigned, BlockReleased, BlockKept, BindingCreated, BindingDeleted, BindingKept])
            }
            Logged::All => with(EventKind::ALL),
        }
    }
}

/// Makes the engine log to a ring that holds the events of `packets` packets.
pub(super) fn log(plan: &mut Plan, logged: Logged, ports: Ports, packets: u64) -> anyhow::Result<()> {
    let kinds = logged.kinds(ports);
    // A session, a binding and a block per packet, and some more.
    let ring_len = u32::try_from(packets * 4 + 65_536)?;
    plan.events = EventPlan { kinds, ring_len, state_ring_len: ring_len, ..EventPlan::default() };
    Ok(())
}

/// Plan of a stateless translator: the first host of each subscriber has a mapping, servers are in the
/// prefix.
pub(super) fn siit(subscribers: u64) -> anyhow::Result<Plan> {
    anyhow::ensure!(subscribers <= 1 << 24, "at most 16,777,216 mappings");
    let eamt = (0..subscribers).map(|s| {
        let v4 = Ipv4Addr::from(EAM_FIRST + s as u32);
        Eam { v4: Net4 { addr: v4, len: 32 }, v6: Net6 { addr: subscriber_address(s, 1), len: 128 } }
    });
    Ok(Plan {
        siit: vec![Siit {
            name: "bench".into(),
            pool6: vec![pool6()?],
            eamt: eamt.collect(),
            hairpin: Hairpin::Intrinsic,
            ..Siit::default()
        }],
        ..Plan::default()
    })
}
