//! Plan of the provider's translator: NAT44 and NAT64 side by side, one pool for both, ports in blocks.

use gatun_nat::event::EventKinds;
use gatun_nat::plan::*;
use gatun_nat::{EventKind, Plan};
use gatun_wire::Prefix64;
use std::net::{Ipv4Addr, Ipv6Addr};

/// First address of the pool.
pub(super) const POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 112, 0);
/// Source of the translator's own errors.
pub(super) const OWN4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OWN6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);
/// Ports of a block.
pub(super) const BLOCK: u16 = 256;
/// Blocks of a subscriber.
pub(super) const BLOCKS_EACH: u16 = 4;
/// Maximum number of sessions of a subscriber.
pub(super) const SESSIONS_EACH: u32 = 4_000;
/// Maximum number of ports of a subscriber.
pub(super) const PORTS_EACH: u32 = 2_000;
/// Hold-down of released blocks, ms.
pub(super) const HOLD_MS: u32 = 120_000;

/// Number of public addresses for so many subscribers, `per_address` of them on each.
pub(super) fn addresses(subscribers: u32, per_address: u32) -> u32 {
    subscribers.div_ceil(per_address).max(2)
}

/// The plan.
pub(super) fn plan(subscribers: u32, per_address: u32) -> Plan {
    let all = addresses(subscribers, per_address);
    let blocks = Blocks {
        size: BLOCK,
        per_subscriber: BLOCKS_EACH,
        linger_ms: 120_000,
        hold: HoldDown { ms: HOLD_MS, ports_max: u32::MAX },
        protocols: BlockProtocols::Shared,
    };
    let pool = Pool4 {
        name: "public".into(),
        ranges: vec![PoolRange {
            first: POOL,
            last: Ipv4Addr::from(u32::from(POOL) + all - 1),
            ports: (1024, 65_535),
            transports: [true; 3],
        }],
        // Strict, so that the run can check that a subscriber has one address.
        pairing: Pairing::Hard,
        port_parity: true,
        allocation: Allocation::Blocks(blocks),
        ..Pool4::default()
    };
    Plan {
        own4: Some(OWN4),
        own6: Some(OWN6),
        pools: vec![pool],
        nat64: vec![nat64()],
        nat44: vec![nat44()],
        limits: Limits {
            sessions_max: subscribers * 150 + 100_000,
            subscribers_max: subscribers + 1_000,
            sessions_per_subscriber: SESSIONS_EACH,
            ports_per_subscriber: PORTS_EACH,
            session_rate_per_subscriber: 200,
            session_burst_per_subscriber: 2_000,
            ..Limits::default()
        },
        events: EventPlan {
            kinds: EventKind::ALL.iter().fold(EventKinds::NONE, |all, &kind| all.with(kind)),
            ..EventPlan::default()
        },
        ..Plan::default()
    }
}

fn nat64() -> Nat64 {
    Nat64 {
        name: "mobile".into(),
        pool6: vec![Prefix64::WELL_KNOWN],
        rst_during_fin: true,
        ..Nat64::default()
    }
}

fn nat44() -> Nat44 {
    Nat44 {
        name: "fixed".into(),
        inside: Net4::new(Ipv4Addr::new(100, 64, 0, 0), 10).into_iter().collect(),
        inbound_refresh: true,
        ..Nat44::default()
    }
}
