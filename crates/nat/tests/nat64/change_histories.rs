//! Seeded histories of packets, time and changes of the configuration. Events report every binding, so that a
//! test can keep a map of them beside the engine. No outside port has two bindings. No binding is made
//! against the current rules. Bindings that a change does not concern exist after it. Every port returns.

use super::POOL6;
use super::common::*;
use gatun_nat::plan::{
    Allocation, Blocks, Deterministic, EventPlan, HoldDown, Net6, Pool4, PoolRange, StaticBinding, Transport,
};
use gatun_nat::reconfigure::Change;
use gatun_nat::{Event, EventKind, EventKinds, EventReader, Plan, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

/// A small generator. The seed alone reproduces a failure.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::Udp, Transport::Icmp];
const BLOCK: u16 = 64;

/// Allocation of ports, with its changeable settings.
fn allocation(kind: u64, dice: &mut Dice) -> Allocation {
    let hold =
        HoldDown { ms: [0, 30_000][dice.below(2) as usize], ports_max: [16, 1000][dice.below(2) as usize] };
    let blocks = Blocks {
        size: BLOCK,
        per_subscriber: 1 + dice.below(3) as u16,
        linger_ms: [0, 20_000][dice.below(2) as usize],
        hold,
        protocols: Default::default(),
    };
    match kind {
        0 => Allocation::Random(hold),
        1 => Allocation::Blocks(blocks),
        _ => {
            let all = [("2001:db8:1:4::", 62), ("2001:db8:1::", 62), ("2001:db8:1:8::", 61)];
            let overflow_per_address = dice.below(3) as u16;
            let chosen = all.iter().filter(|_| !dice.one_in(3));
            let inside = chosen.map(|(a, len)| Net6::new(v6(a), *len).unwrap()).collect();
            Allocation::Deterministic(Deterministic {
                inside,
                subscriber_len: 64,
                overflow_per_address,
                blocks,
            })
        }
    }
}

/// Chooses some of eight addresses, each with some ports.
fn ranges(kind: u64, dice: &mut Dice) -> Vec<PoolRange> {
    let mut ranges = Vec::new();
    for n in 0..8u32 {
        if dice.one_in(2) {
            continue;
        }
        let address = Ipv4Addr::from(u32::from(v4("192.0.2.0")) + n);
        let ports = [(1024, 1535), (1024, 1279), (1280, 1791), (1030, 1400)][dice.below(4) as usize];
        let transports =
            [[true; 3], [true; 3], [false, true, true]][dice.below(if kind == 0 { 3 } else { 1 }) as usize];
        ranges.push(PoolRange { first: address, last: address, ports, transports });
    }
    if ranges.is_empty() {
        let only = v4("192.0.2.8");
        ranges.push(PoolRange { first: only, last: only, ports: (1024, 2047), transports: [true; 3] });
    }
    ranges
}

fn statics(ranges: &[PoolRange], dice: &mut Dice) -> Vec<StaticBinding> {
    let mut all: BTreeMap<(Transport, Ipv4Addr, u16), StaticBinding> = BTreeMap::new();
    for n in 0..dice.below(4) as u16 {
        let outside = (ranges[dice.below(ranges.len() as u64) as usize].first, 1020 + dice.below(600) as u16);
        let transport = TRANSPORTS[dice.below(2) as usize];
        let inside = (v6(&client(dice.below(12))), 3000 + n);
        all.insert((transport, outside.0, outside.1), StaticBinding { transport, inside, outside });
    }
    let mut seen = BTreeSet::new();
    all.into_values().filter(|b| seen.insert((b.transport, b.inside))).collect()
}

fn client(n: u64) -> String {
    format!("2001:db8:1:{n:x}::1")
}

fn plan(kind: u64, dice: &mut Dice) -> Plan {
    let mut plan = plan_with(POOL6);
    let (ranges, allocation) = (ranges(kind, dice), allocation(kind, dice));
    plan.nat64[0].subscriber_len = 64;
    plan.nat64[0].static_bindings = statics(&ranges, dice);
    let port_parity = dice.one_in(2);
    plan.pools = vec![Pool4 { name: "pool".into(), ranges, allocation, port_parity, ..Pool4::default() }];
    plan.limits.sessions_max = 300;
    plan.limits.subscribers_max = 12;
    plan.limits.sessions_per_subscriber = [20, 100][dice.below(2) as usize];
    plan.limits.ports_per_subscriber = [10, 100][dice.below(2) as usize];
    let kinds = EventKind::ALL.iter().fold(EventKinds::NONE, |kinds, &kind| kinds.with(kind));
    plan.events = EventPlan { kinds, ..EventPlan::default() };
    plan
}

type Outside = (usize, Ipv4Addr, u16);

fn covers(plan: &Plan, (t, address, port): Outside) -> bool {
    plan.pools[0].ranges.iter().any(|r| {
        r.transports[t] && r.first <= address && address <= r.last && (r.ports.0..=r.ports.1).contains(&port)
    })
}

fn is_static(plan: &Plan, (t, address, port): Outside) -> bool {
    plan.nat64[0].static_bindings.iter().any(|b| b.transport as usize == t && b.outside == (address, port))
}

struct World {
    bed: Bed,
    plan: Plan,
    events: EventReader,
    bindings: BTreeMap<Outside, (Ipv6Addr, u16)>,
    seed: u64,
}

impl World {
    /// Applies the engine's events to the map.
    fn follow(&mut self) {
        while let Some(e) = self.events.next() {
            let e: Event = e;
            let t = e.transports().iter().position(|t| *t).unwrap_or(3);
            let outside = (t, e.outside(), e.outside_port);
            let seed = self.seed;
            match e.kind {
                EventKind::BindingCreated => {
                    let before = self.bindings.insert(outside, (e.inside(), e.inside_port));
                    assert_eq!(before, None, "seed {seed}: {outside:?} is given twice");
                    assert!(covers(&self.plan, outside), "seed {seed}: {outside:?} is not in the pool");
                }
                EventKind::BindingDeleted => {
                    let known = self.bindings.remove(&outside);
                    assert!(known.is_some(), "seed {seed}: {outside:?} ends and never began");
                }
                _ => {}
            }
        }
    }

    fn packet(&mut self, dice: &mut Dice) {
        let (src, dst) = (client(dice.below(14)), behind(POOL6, SERVER));
        let port = 3000 + dice.below(24) as u16;
        let packet = match dice.below(6) {
            0 => tcp6(&src, port, &dst, 80, "S", b""),
            1 => echo6(&src, &dst, true, port, b"x"),
            2 | 3 => udp6(&src, port, &dst, 50 + dice.below(3) as u16, b"x"),
            _ => {
                let address = format!("192.0.2.{}", dice.below(9));
                let known: Vec<Outside> = self.bindings.keys().copied().collect();
                let (address, to) = match known.is_empty() || dice.one_in(4) {
                    true => (address, 1024 + dice.below(600) as u16),
                    false => {
                        let (_, address, port) = known[dice.below(known.len() as u64) as usize];
                        (address.to_string(), port)
                    }
                };
                udp4(SERVER, 50 + dice.below(6) as u16, &address, to, b"y")
            }
        };
        let outcome = self.bed.send(&packet);
        self.follow();
        let outward = packet[0] >> 4 == 6 && outcome.verdict == Verdict::Forward;
        if outward && !self.bed.nat.is_settling() {
            let ends = ends(&outcome.bytes);
            let std::net::IpAddr::V4(address) = ends.src else { panic!("{ends:?}") };
            let t = match outcome.bytes[9] {
                6 => 0,
                17 => 1,
                _ => 2,
            };
            let outside = (t, address, ends.sport);
            let fine = covers(&self.plan, outside) || is_static(&self.plan, outside);
            assert!(fine, "seed {}: {outside:?} is used and not in the pool", self.seed);
        }
    }

    fn reconfigure(&mut self, kind: u64, dice: &mut Dice) {
        let new = plan(kind, dice);
        let prepared = Change::prepare(&self.bed.nat.outline(), &self.plan, &new);
        let mut change = match prepared {
            Ok(change) => change,
            // There may be more subscribers than blocks.
            Err(_) if kind == 2 => return,
            Err(e) => panic!("seed {}: {e:?}", self.seed),
        };
        let before = self.bindings.clone();
        let old = std::mem::replace(&mut self.plan, new);
        let said = forecast(&change, &self.bed.nat, 100);
        let is_quiet = dice.one_in(2);
        self.bed.nat.apply(self.bed.now, &mut change).unwrap();
        drop(change);
        while self.bed.nat.is_settling() {
            self.bed.nat.expire(self.bed.now, 1 + dice.below(40) as usize);
            self.follow();
            if !is_quiet && dice.one_in(3) {
                self.packet(dice);
            }
        }
        self.follow();
        if is_quiet {
            assert_eq!(said.0, self.bed.nat.settled().sessions, "seed {}: said and done", self.seed);
        }
        assert_eq!(self.bed.nat.settled().static_bindings_refused, 0, "seed {}", self.seed);
        for outside in before.keys().filter(|o| self.untouched(&old, **o, &before)) {
            assert!(self.bindings.contains_key(outside), "seed {}: {outside:?} was let go", self.seed);
        }
        for &outside in self.bindings.keys() {
            assert!(covers(&self.plan, outside), "seed {}: {outside:?} should have ended", self.seed);
        }
        self.bed.nat.expire(self.bed.now, usize::MAX);
        self.check_usage(false);
    }

    /// Returns whether a change does not concern a binding. For a formula, only its own test can tell.
    fn untouched(
        &self,
        old: &Plan,
        (t, address, port): Outside,
        before: &BTreeMap<Outside, (Ipv6Addr, u16)>,
    ) -> bool {
        let block = port / BLOCK * BLOCK..=port / BLOCK * BLOCK + (BLOCK - 1);
        let all = |ports: std::ops::RangeInclusive<u16>| {
            let mut of_all = (0..3).flat_map(|t| ports.clone().map(move |port| (t, port)));
            of_all.all(|(t, port)| {
                let place = (t, address, port);
                // A protocol that the address does not have does not matter.
                let absent = |plan: &Plan| !(0..=u16::MAX).step_by(2).any(|p| covers(plan, (t, address, p)));
                let in_both =
                    (absent(old) && absent(&self.plan)) || (covers(old, place) && covers(&self.plan, place));
                in_both && is_static(old, place) == is_static(&self.plan, place)
            })
        };
        let inside = before[&(t, address, port)];
        let claims = |b: &StaticBinding| b.transport as usize == t && b.inside == inside;
        let bound =
            old.nat64[0].static_bindings.iter().chain(&self.plan.nat64[0].static_bindings).any(claims);
        match self.plan.pools[0].allocation {
            Allocation::Random(_) => {
                let place = (t, address, port);
                !bound && covers(&self.plan, place) && !is_static(&self.plan, place)
            }
            Allocation::Blocks(_) => !bound && all(block),
            Allocation::Deterministic(_) => false,
        }
    }

    fn check_usage(&mut self, at_the_end: bool) {
        let pool = &self.bed.nat.pools()[0];
        for (t, transport) in TRANSPORTS.into_iter().enumerate() {
            let usage = pool.usage(transport);
            let bound = self.bindings.keys().filter(|(of, _, _)| *of == t).count() as u64;
            let statics = self.plan.nat64[0].static_bindings.len() as u64;
            let seed = self.seed;
            assert!(
                usage.used <= bound + statics + pool.ports_held(),
                "seed {seed}: {usage:?}, {bound} bound"
            );
            assert!(usage.used <= usage.total, "seed {seed}: {usage:?}");
            if at_the_end {
                assert_eq!(usage.used, 0, "seed {seed}: {transport:?}");
                let blocks = matches!(self.plan.pools[0].allocation, Allocation::Random(_));
                let exist = (0..=u16::MAX).flat_map(|port| (0..9).map(move |n| (port, n)));
                let exist =
                    exist.filter(|&(port, n)| covers(&self.plan, (t, Ipv4Addr::new(192, 0, 2, n), port)));
                if blocks {
                    assert_eq!(usage.total, exist.count() as u64, "seed {seed}: {transport:?}");
                }
            }
        }
    }

    /// Lets everything expire, and checks that all ports are free.
    fn end(&mut self) {
        let mut bare = self.plan.clone();
        bare.nat64[0].static_bindings.clear();
        let mut change = Change::prepare(&self.bed.nat.outline(), &self.plan, &bare).unwrap();
        self.bed.nat.apply(self.bed.now, &mut change).unwrap();
        self.plan = bare;
        self.bed.pass_ms(8_000_000);
        self.follow();
        assert!(self.bindings.is_empty(), "seed {}: {:?}", self.seed, self.bindings);
        let occupancy = self.bed.nat.occupancy();
        assert_eq!(
            (occupancy.sessions, occupancy.bindings, occupancy.subscribers),
            (0, 0, 0),
            "seed {}",
            self.seed
        );
        self.check_usage(true);
        assert!(self.bed.nat.conserved_by_instance(), "seed {}", self.seed);
        let pool = &self.bed.nat.pools()[0];
        let made = Pool4::clone(&self.plan.pools[0]);
        let fresh = gatun_nat::pool4::Pool4State::new(&made, true).unwrap();
        let seed = self.seed;
        assert_eq!(pool.ports_held(), 0, "seed {seed}");
        for transport in TRANSPORTS {
            assert_eq!(pool.usage(transport), fresh.usage(transport), "seed {seed}: as a new one");
        }
        assert_eq!(pool.block_usage(), fresh.block_usage(), "seed {seed}: as a new one");
        let counters = pool.counters();
        assert_eq!(counters.blocks_allocated, counters.blocks_released, "seed {seed}");
    }
}

fn history(kind: u64, seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ kind);
    let start = loop {
        let plan = plan(kind, &mut dice);
        if gatun_nat::Nat::new(&plan, [1; 4]).is_ok() {
            break plan;
        }
    };
    let mut bed = Bed::new(&start);
    let events = bed.nat.take_events().unwrap();
    let mut world = World { bed, plan: start, events, bindings: BTreeMap::new(), seed };
    for _ in 0..8 {
        for _ in 0..dice.below(80) {
            world.packet(&mut dice);
        }
        if dice.one_in(2) {
            world.bed.pass_ms(dice.below(100_000));
            world.follow();
        }
        world.reconfigure(kind, &mut dice);
    }
    world.end();
}

#[test]
fn changes_share_or_lose_no_port_with_single_ports() {
    (0..24).for_each(|seed| history(0, seed));
}

#[test]
fn changes_share_or_lose_no_port_with_blocks() {
    (0..24).for_each(|seed| history(1, seed));
}

#[test]
fn changes_share_or_lose_no_port_with_a_formula() {
    (0..24).for_each(|seed| history(2, seed));
}
