//! Changes of the plan of a running engine: new ports, ended sessions, and sessions that are not affected.

use super::common::*;
use super::{POOL6, SERVER6, T};
use gatun_nat::plan::{Allocation, Blocks, Deterministic, EventPlan, HoldDown, Net6, PoolRange, Transport};
use gatun_nat::pool4::DeterministicMap;
use gatun_nat::reconfigure::{ApplyError, Change, Refused};
use gatun_nat::{Event, EventKind, EventKinds, EventReader, Plan, Reply, Verdict};
use gatun_wire::DropReason;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The second address of the pool, in most tests.
const T2: &str = "192.0.2.2";

fn client(n: u32) -> String {
    format!("2001:db8:1:{n:x}::1")
}

fn refused(reason: DropReason) -> Verdict {
    Verdict::Reply(Reply::Error(reason))
}

/// Plan with a pool of these addresses. A subscriber is a /64, and all events are reported.
fn plan(last: &str, ports: (u16, u16)) -> Plan {
    let mut plan = plan_with(POOL6);
    plan.pools = vec![pool(T, last, ports)];
    plan.nat64[0].subscriber_len = 64;
    let kinds = EventKind::ALL.iter().fold(EventKinds::NONE, |kinds, &kind| kinds.with(kind));
    plan.events = EventPlan { kinds, ..EventPlan::default() };
    plan
}

fn range(first: &str, last: &str, ports: (u16, u16)) -> PoolRange {
    PoolRange { first: v4(first), last: v4(last), ports, transports: [true; 3] }
}

fn blocks() -> Blocks {
    Blocks { size: 64, per_subscriber: 2, linger_ms: 60_000, ..Blocks::default() }
}

/// An engine, its current plan, and its events.
struct Live {
    bed: Bed,
    plan: Plan,
    events: EventReader,
    /// Forecast of the last change: sessions to be ended, and their subscribers.
    forecast: (u64, u64),
}

impl Live {
    fn new(plan: Plan) -> Self {
        let mut bed = Bed::new(&plan);
        let events = bed.nat.take_events().expect("events are wanted");
        Live { bed, plan, events, forecast: (0, 0) }
    }

    fn prepare(&self, plan: &Plan) -> Change {
        Change::prepare(&self.bed.nat.outline(), &self.plan, plan).unwrap()
    }

    /// Applies a plan, without the work that follows.
    fn apply(&mut self, plan: Plan) {
        let mut change = self.prepare(&plan);
        self.forecast = forecast(&change, &self.bed.nat, 7);
        self.bed.nat.apply(self.bed.now, &mut change).unwrap();
        self.plan = plan;
    }

    /// Applies a plan and completes its work, without any time passing.
    fn change(&mut self, plan: Plan) {
        self.apply(plan);
        while self.bed.nat.is_settling() {
            let leave_alone_ms = self.bed.nat.expire(self.bed.now, 16);
            assert!(leave_alone_ms == 0 || !self.bed.nat.is_settling(), "the engine has to be called again");
        }
        assert!(self.bed.nat.counters().conserved() && self.bed.nat.conserved_by_instance());
        assert_eq!(
            self.forecast.0,
            self.bed.nat.settled().sessions,
            "the number of ended sessions differs from the forecast"
        );
    }

    fn changed(&mut self, change: impl FnOnce(&mut Plan)) {
        let mut plan = self.plan.clone();
        change(&mut plan);
        self.change(plan);
    }

    fn told(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.events.next()).collect()
    }

    /// Returns the public endpoint of a datagram from this inside port.
    fn out(&mut self, n: u32, port: u16) -> Ends {
        self.bed.through(&udp6(&client(n), port, SERVER6, 53, b"x"))
    }

    fn back(&mut self, to: &Ends) -> Verdict {
        let IpAddr::V4(address) = to.src else { panic!("{to:?}") };
        self.bed.send(&udp4(SERVER, 53, &address.to_string(), to.sport, b"y")).verdict
    }
}

fn of(events: &[Event], kind: EventKind) -> usize {
    events.iter().filter(|e| e.kind == kind).count()
}

#[test]
fn an_exhausted_pool_gives_ports_from_the_packet_on_that_follows_an_added_address() {
    for allocation in [Allocation::default(), Allocation::Blocks(blocks())] {
        let mut start = plan(T, (1024, 1151));
        start.pools[0].allocation = allocation;
        let mut live = Live::new(start);
        let flows: Vec<Ends> = (0..128).map(|n| live.out(n % 2, 3000 + n as u16)).collect();
        let more = udp6(&client(9), 3000, SERVER6, 53, b"x");
        assert!(matches!(live.bed.send(&more).verdict, Verdict::Reply(Reply::Error(_))));
        live.told();
        let mut plan = live.plan.clone();
        plan.pools[0].ranges =
            vec![range(T, T, (1024, 1151)), range("198.51.100.0", "198.51.100.1", (1024, 1151))];
        live.apply(plan);
        assert!(live.bed.through(&more).src.to_string().starts_with("198.51.100."));
        live.changed(|_| {});
        assert_eq!(of(&live.told(), EventKind::SessionDeleted), 0, "no other session ends");
        for (n, flow) in flows.iter().enumerate() {
            assert_eq!(live.out(n as u32 % 2, 3000 + n as u16), *flow);
            assert_eq!(live.back(flow), Verdict::Forward);
        }
        assert_eq!(live.bed.nat.pools()[0].usage(Transport::Udp).total, 3 * 128);
    }
}

#[test]
fn sessions_of_a_removed_address_end_with_their_events_and_all_others_go_on() {
    for allocation in [Allocation::default(), Allocation::Blocks(blocks())] {
        let mut start = plan(T2, (1024, 65_535));
        start.pools[0].allocation = allocation.clone();
        let mut live = Live::new(start);
        let flows: Vec<Ends> = (0..40).map(|n| live.out(n, 3000)).collect();
        let on = |address: &str| {
            let of_address = |n: &u32| flows[*n as usize].src == IpAddr::V4(v4(address));
            (0..40).filter(of_address).collect::<Vec<u32>>()
        };
        let (stay, go) = (on(T), on(T2));
        assert!(stay.len() > 5 && go.len() > 5);
        live.told();
        live.changed(|plan| plan.pools[0].ranges = vec![range(T, T, (1024, 65_535))]);
        let events = live.told();
        let settled = live.bed.nat.settled();
        assert_eq!((settled.sessions, settled.bindings), (go.len() as u64, go.len() as u64));
        for kind in [EventKind::SessionDeleted, EventKind::BindingDeleted] {
            let told: Vec<&Event> = events.iter().filter(|e| e.kind == kind).collect();
            assert!(told.iter().all(|e| e.outside() == v4(T2)));
            assert_eq!(told.len(), go.len());
        }
        let with_blocks = matches!(allocation, Allocation::Blocks(_));
        let released = events.iter().filter(|e| e.kind == EventKind::BlockReleased);
        let released: Vec<_> = released.map(|e| e.outside()).collect();
        assert_eq!(released, vec![v4(T2); if with_blocks { go.len() } else { 0 }]);
        // Sessions that stay are unchanged. Moved ones have a new address, and a packet to the old one finds
        // no binding.
        for n in stay {
            assert_eq!(live.out(n, 3000), flows[n as usize]);
            assert_eq!(live.back(&flows[n as usize]), Verdict::Forward);
        }
        for n in go {
            assert_eq!(live.back(&flows[n as usize]), Verdict::Drop(DropReason::NotInPool));
            let (first, second) = (live.out(n, 3000), live.out(n, 3001));
            assert_eq!((first.src, second.src), (IpAddr::V4(v4(T)), IpAddr::V4(v4(T))));
        }
        assert_eq!(live.bed.nat.pools()[0].addresses(), 1);
    }
}

#[test]
fn a_reload_of_every_pool_loses_no_event_with_a_slow_reader() {
    const SUBSCRIBERS: u32 = 2_024;
    let mut start = plan("192.0.2.4", (1024, 65_535));
    start.pools[0].allocation = Allocation::Blocks(blocks());
    (start.events.ring_len, start.events.state_ring_len) = (512, 512);
    let mut live = Live::new(start);
    for n in 0..SUBSCRIBERS {
        live.out(n, 3000);
        live.told();
    }
    let mut other = live.plan.clone();
    other.pools[0].ranges = vec![range("198.51.100.0", "198.51.100.3", (1024, 65_535))];
    live.apply(other);
    let mut events = Vec::new();
    while live.bed.nat.is_settling() {
        // Asks for more at once than the rings hold.
        live.bed.nat.expire(live.bed.now, 1 << 16);
        events.extend(std::iter::from_fn(|| live.events.next()).take(100));
    }
    events.extend(live.told());
    for kind in [EventKind::SessionDeleted, EventKind::BindingDeleted, EventKind::BlockReleased] {
        assert_eq!(of(&events, kind), SUBSCRIBERS as usize, "{kind:?}");
    }
    assert_eq!((of(&events, EventKind::EventsLost), live.bed.nat.events_lost()), (0, 0));
}

#[test]
fn the_last_port_that_was_given_on_a_removed_address_was_given_before() {
    let mut live = Live::new(plan(T2, (1024, 65_535)));
    let flows: Vec<Ends> = (0..600).map(|n| live.out(n, 3000)).collect();
    let mut plan = live.plan.clone();
    plan.pools[0].ranges = vec![range(T, T, (1024, 65_535))];
    live.apply(plan);
    assert!(live.bed.nat.is_settling(), "one call does not end all sessions");
    // A part of the work at a time, with packets in between.
    let mut before = live.bed.nat.occupancy().sessions;
    for n in 0.. {
        if !live.bed.nat.is_settling() {
            break;
        }
        live.bed.nat.expire(live.bed.now, 8);
        let after = live.bed.nat.occupancy().sessions;
        assert!(before - after <= 8, "{before} {after}");
        assert_eq!(live.out(1000 + n, 3000).src, IpAddr::V4(v4(T)));
        // A new session of a binding that is about to end creates nothing that outlives the binding.
        let last = flows.len() as u32 - 1;
        live.bed.send(&udp6(&client(last - n % 100), 3000, SERVER6, 54, b"x"));
        before = live.bed.nat.occupancy().sessions;
    }
    for n in 0..600 {
        assert_eq!(live.out(n, 3000).src, IpAddr::V4(v4(T)));
    }
    assert!(live.bed.nat.subscribers().len() >= 600);
}

#[test]
fn an_address_that_was_drained_and_removed_drains_none_that_comes_after_it() {
    for allocation in [Allocation::default(), Allocation::Blocks(blocks())] {
        let mut plan = plan(T2, (1024, 65_535));
        plan.pools[0].allocation = allocation;
        let mut live = Live::new(plan);
        assert!(live.bed.nat.drain(v4(T2)));
        let before = live.out(1, 5000);
        assert_eq!(before.src, v4(T));
        // Another address in its place, and then the first one again.
        for new in ["192.0.2.77", T2] {
            let both = vec![range(T, T, (1024, 65_535)), range(new, new, (1024, 65_535))];
            live.changed(|plan| plan.pools[0].ranges = both);
            assert_eq!(live.bed.nat.pools()[0].drained().count(), 0);
            let sources: BTreeSet<_> = (10..40).map(|n| live.out(n, 5000).src).collect();
            assert!(sources.contains(&IpAddr::from(v4(new))), "{new}: {sources:?}");
        }
        assert_eq!(live.out(1, 5000), before);
    }
}

#[test]
fn changed_ports_of_an_address_end_only_bindings_outside_them() {
    for allocation in [Allocation::default(), Allocation::Blocks(Blocks { per_subscriber: 4, ..blocks() })] {
        let mut start = plan(T, (1024, 2047));
        start.pools[0].allocation = allocation;
        let mut live = Live::new(start);
        let flows: Vec<Ends> = (0..400).map(|n| live.out(n % 8, 3000 + n as u16)).collect();
        live.told();
        live.changed(|plan| plan.pools[0].ranges = vec![range(T, T, (1536, 4095))]);
        assert_eq!(live.bed.nat.pools()[0].usage(Transport::Udp).total, 2560);
        let gone = flows.iter().filter(|f| f.sport < 1536).count();
        assert!(gone > 50 && gone < 350, "{gone}");
        assert_eq!(of(&live.told(), EventKind::BindingDeleted), gone);
        assert_eq!(live.bed.nat.pools()[0].usage(Transport::Udp).used, 400 - gone as u64);
        for (n, flow) in flows.iter().enumerate() {
            let again = live.out(n as u32 % 8, 3000 + n as u16);
            match flow.sport {
                1536.. => assert_eq!(again, *flow),
                _ => assert!((1536..=4095).contains(&again.sport)),
            }
        }
        // All existing ports can be given out, and no others.
        let mut ports: BTreeSet<u16> = (0..400).map(|n| live.out(n % 8, 3000 + n as u16).sport).collect();
        for n in 8..2700 {
            let out = live.bed.send(&udp6(&client(n), 3000, SERVER6, 53, b"x"));
            if out.verdict == Verdict::Forward {
                assert!(ports.insert(ends(&out.bytes).sport), "{n} twice");
            }
        }
        assert!(ports.iter().all(|p| (1536..=4095).contains(p)));
        if matches!(live.plan.pools[0].allocation, Allocation::Random(_)) {
            assert_eq!(ports.len(), 2560);
        }
    }
}

#[test]
fn limits_below_the_usage_refuse_new_sessions_and_evict_none() {
    let mut live = Live::new(plan(T, (1024, 65_535)));
    let flows: Vec<Ends> = (0..20).map(|n| live.out(1, 3000 + n)).collect();
    for n in 2..5 {
        live.out(n, 3000);
    }
    live.changed(|plan| {
        plan.limits.sessions_per_subscriber = 10;
        plan.limits.subscribers_max = 2;
    });
    assert_eq!(live.bed.nat.settled().sessions, 0);
    let one_more = udp6(&client(1), 4000, SERVER6, 53, b"x");
    assert_eq!(live.bed.send(&one_more).verdict, refused(DropReason::SubscriberSessionQuota));
    let new = udp6(&client(7), 3000, SERVER6, 53, b"x");
    assert_eq!(live.bed.send(&new).verdict, refused(DropReason::SubscriberTableFull));
    flows.iter().enumerate().for_each(|(n, flow)| assert_eq!(live.out(1, 3000 + n as u16), *flow));
    live.changed(|plan| plan.limits.sessions_max = 5);
    let other = udp6(&client(2), 4000, SERVER6, 53, b"x");
    assert_eq!(live.bed.send(&other).verdict, refused(DropReason::SessionTableFull));
    assert_eq!(live.bed.nat.occupancy().sessions, 23);
    live.changed(|plan| {
        plan.limits.sessions_max = 1000;
        plan.limits.sessions_per_subscriber = 21;
        plan.limits.subscribers_max = 5;
    });
    live.out(1, 4000);
    live.out(7, 3000);
    live.changed(|plan| plan.limits.ports_per_subscriber_by[1] = 1);
    assert_eq!(
        live.bed.send(&udp6(&client(2), 5, SERVER6, 53, b"")).verdict,
        refused(DropReason::SubscriberPortQuota)
    );
}

#[test]
fn only_subscribers_with_another_block_lose_their_sessions() {
    let inside = |nets: &[(&str, u8)]| nets.iter().map(|(a, len)| Net6::new(v6(a), *len).unwrap()).collect();
    let formula = |inside, overflow_per_address| {
        Allocation::Deterministic(Deterministic {
            inside,
            subscriber_len: 64,
            overflow_per_address,
            blocks: blocks(),
        })
    };
    let mut start = plan(T, (1024, 2047));
    start.pools[0].allocation = formula(inside(&[("2001:db8:1::", 61)]), 4);
    let mut live = Live::new(start);
    // The first eight subscribers use the formula, two more the overflow; TCP uses ports of the same block.
    let flows: Vec<Ends> = (0..10).map(|n| live.out(n, 3000)).collect();
    live.told();
    // The next eight subscribers now have their blocks, four of which were overflow blocks.
    live.changed(|plan| plan.pools[0].allocation = formula(inside(&[("2001:db8:1::", 60)]), 0));
    let map = DeterministicMap::new(&live.plan.pools[0]).unwrap().unwrap();
    let mut ended = 0;
    for (n, flow) in (0..).zip(&flows) {
        let (_, (first, last)) = map.forward(v6(&client(n))).unwrap();
        let stays = (first..=last).contains(&flow.sport);
        assert_eq!(stays, n < 8, "{n}: {flow:?} {first}-{last}");
        ended += u64::from(!stays);
        let now = live.out(n, 3000);
        assert!((first..=last).contains(&now.sport));
        assert_eq!(now == *flow, stays);
    }
    assert_eq!(live.bed.nat.settled().sessions, ended);
    assert_eq!((live.bed.nat.settled().blocks, of(&live.told(), EventKind::BlockReleased)), (2, 2));
    assert_eq!(live.bed.nat.pools()[0].block_usage().unwrap().owned, 0);
    // Another order: all subscribers have another block.
    live.changed(|plan| {
        let nets = [("2001:db8:1:8::", 61), ("2001:db8:1::", 61)];
        plan.pools[0].allocation = formula(inside(&nets), 0);
    });
    assert_eq!(live.bed.nat.occupancy().sessions, 0);
    let map = DeterministicMap::new(&live.plan.pools[0]).unwrap().unwrap();
    for n in 0..16 {
        let (_, (first, last)) = map.forward(v6(&client(n))).unwrap();
        assert!((first..=last).contains(&live.out(n, 3000).sport));
    }
    // Back to an overflow, with blocks that had owners by formula.
    live.changed(|plan| plan.pools[0].allocation = formula(inside(&[("2001:db8:1::", 61)]), 8));
    let usage = live.bed.nat.pools()[0].block_usage().unwrap();
    assert_eq!((usage.total, usage.owned), (16, 0));
    let outside: BTreeSet<u16> = (8..16).map(|n| live.out(n, 3000).sport / 64).collect();
    assert_eq!(outside.len(), 8, "all eight are given");
    assert_eq!(live.bed.nat.pools()[0].usage(Transport::Udp).total, 1024);
}

#[test]
fn a_prefix_that_goes_takes_its_sessions_and_one_that_stays_keeps_its_own() {
    const NEW6: &str = "2001:db8:65::/96";
    let mut start = plan(T, (1024, 65_535));
    start.nat64[0].pool6.push(prefix(NEW6));
    let mut live = Live::new(start);
    let first = live.out(1, 3000);
    let by_second = udp6(&client(2), 3000, &behind(NEW6, SERVER), 53, b"x");
    let second = live.bed.through(&by_second);
    live.changed(|plan| plan.nat64[0].pool6 = vec![prefix("2001:db8:66::/96"), prefix(NEW6)]);
    assert_eq!(live.bed.nat.settled().sessions, 1);
    let gone = udp6(&client(1), 3000, SERVER6, 53, b"x");
    assert_eq!(live.bed.send(&gone).verdict, Verdict::Reply(Reply::Error(DropReason::DestinationNotPool6)));
    assert_eq!(live.back(&first), Verdict::Drop(DropReason::NoBib));
    assert_eq!(live.bed.through(&by_second), second);
    let back = live.bed.through(&udp4(SERVER, 53, T, second.sport, b"y"));
    assert_eq!(back.src.to_string(), behind(NEW6, SERVER));
    // Remote hosts without a session are represented by the first prefix of the file.
    let stranger = live.bed.through(&udp4("198.51.100.99", 9, T, second.sport, b"y"));
    assert_eq!(stranger.src.to_string(), behind(NEW6, "198.51.100.99"));
    live.bed.through(&udp6(&client(1), 3000, &behind("2001:db8:66::/96", SERVER), 53, b"x"));
    // A prefix that returns has the same number again.
    live.changed(|plan| plan.nat64[0].pool6 = vec![prefix(POOL6)]);
    assert_eq!(live.bed.nat.occupancy().sessions, 0);
    live.out(1, 3000);
}

#[test]
fn hosts_that_are_no_longer_served_lose_their_sessions() {
    let mut live = Live::new(plan(T, (1024, 65_535)));
    let flows: Vec<Ends> = (0..8).map(|n| live.out(n, 3000)).collect();
    live.changed(|plan| plan.nat64[0].sources = vec![Net6::new(v6("2001:db8:1::"), 62).unwrap()]);
    assert_eq!(live.bed.nat.settled().sessions, 4);
    (0..4).for_each(|n| assert_eq!(live.out(n, 3000), flows[n as usize]));
    let other = udp6(&client(5), 3000, SERVER6, 53, b"x");
    assert!(!matches!(live.bed.send(&other).verdict, Verdict::Forward));
    assert_eq!(live.back(&flows[5]), Verdict::Drop(DropReason::NoBib));
}

#[test]
fn a_new_static_binding_takes_its_port_and_a_removed_one_returns_it() {
    let hold = HoldDown { ms: 120_000, ports_max: 1000 };
    for allocation in [Allocation::Random(hold), Allocation::Blocks(blocks())] {
        let mut start = plan(T, (1024, 1535));
        start.pools[0].allocation = allocation;
        let mut live = Live::new(start);
        let flows: Vec<Ends> = (0..4).map(|n| live.out(n, 3000)).collect();
        live.told();
        // The first takes client 0's port, the second a port in client 1's block; the third is for client 2,
        // which has another port now.
        let near = flows[1].sport ^ 1;
        let statics = vec![
            static_binding(Transport::Udp, ("2001:db8:9::1", 80), (T, flows[0].sport)),
            static_binding(Transport::Tcp, ("2001:db8:9::1", 80), (T, near)),
            static_binding(Transport::Udp, (&client(2), 3000), (T, 80)),
        ];
        live.changed(|plan| plan.nat64[0].static_bindings = statics.clone());
        assert_eq!(live.bed.nat.settled().static_bindings_refused, 0);
        let to = |live: &mut Live, port| live.bed.through(&udp4(SERVER, 7, T, port, b"y")).dst.to_string();
        assert_eq!(to(&mut live, flows[0].sport), "2001:db8:9::1");
        assert_eq!(to(&mut live, 80), client(2));
        let syn = live.bed.through(&tcp4(SERVER, 7, T, near, "S", b"")).dst.to_string();
        assert_eq!(syn, "2001:db8:9::1");
        assert_eq!(live.out(2, 3000).sport, 80);
        assert_ne!(live.out(0, 3000).sport, flows[0].sport);
        assert_eq!(live.out(3, 3000), flows[3], "the flow is not affected");
        // A port that is held down is available too.
        live.changed(|plan| plan.nat64[0].static_bindings.clear());
        assert_eq!(live.bed.nat.occupancy().bindings, live.bed.nat.occupancy().sessions);
        assert_eq!(live.back(&flows[0]), Verdict::Drop(DropReason::NoBib));
        live.changed(|plan| plan.nat64[0].static_bindings = statics.clone());
        assert_eq!(live.bed.nat.settled().static_bindings_refused, 0);
        assert_eq!(to(&mut live, flows[0].sport), "2001:db8:9::1");
        // In the end, all ports are free again.
        live.changed(|plan| plan.nat64[0].static_bindings.clear());
        live.bed.pass_ms(600_000);
        let pool = &live.bed.nat.pools()[0];
        assert_eq!((pool.usage(Transport::Udp).used, pool.usage(Transport::Udp).total), (0, 512));
        assert_eq!((pool.usage(Transport::Tcp).used, pool.usage(Transport::Tcp).total), (0, 512));
        assert_eq!(live.bed.nat.occupancy().subscribers, 0);
    }
}

// Found by the model: ports held at a removed address were held at the next address with its number.
#[test]
fn ports_held_at_a_removed_address_are_free_at_a_new_one() {
    let hold = HoldDown { ms: 120_000, ports_max: 1000 };
    let held = Blocks { size: 64, linger_ms: 0, hold, ..blocks() };
    for allocation in [Allocation::Random(hold), Allocation::Blocks(held)] {
        let ports = (1024, 1151);
        let mut start = plan(T, ports);
        start.pools[0].ranges.push(range(T2, T2, ports));
        start.pools[0].allocation = allocation;
        let mut live = Live::new(start);
        let flows: Vec<Ends> = (0..256).map(|n| live.out(n / 64, 3000 + n as u16)).collect();
        let at =
            |flows: &[Ends], address| flows.iter().filter(|flow| flow.src == IpAddr::V4(v4(address))).count();
        assert_eq!((at(&flows, T), at(&flows, T2)), (128, 128));
        live.changed(|plan| plan.pools[0].ranges = vec![range(T, T, ports)]);
        let more = |n: u32| udp6(&client(n / 64), 5000 + n as u16, SERVER6, 53, b"x");
        assert!(!matches!(live.bed.send(&more(640)).verdict, Verdict::Forward), "there are none left");
        for (first, next) in [(640, "198.51.100.9"), (1280, T2)] {
            live.changed(|plan| plan.pools[0].ranges = vec![range(T, T, ports), range(next, next, ports)]);
            let flows: Vec<Ends> = (first..first + 128).map(|n| live.bed.through(&more(n))).collect();
            assert_eq!(at(&flows, next), 128);
            live.changed(|plan| plan.pools[0].ranges = vec![range(T, T, ports)]);
        }
        // Ports held at an address that stays keep their hold-down.
        live.bed.pass_ms(600_000);
        let pool = &live.bed.nat.pools()[0];
        assert_eq!((pool.usage(Transport::Udp).used, pool.usage(Transport::Udp).total), (0, 128));
    }
}

#[test]
fn static_bindings_of_two_protocols_at_one_port_leave_their_blocks_apart() {
    let bindings = [Transport::Tcp, Transport::Udp].map(|t| static_binding(t, (CLIENT, 80), (T, 1030)));
    let split = Blocks { protocols: gatun_nat::plan::BlockProtocols::Split, ..blocks() };
    let mut start = plan(T2, (1024, 1151));
    start.pools[0].allocation = Allocation::Blocks(split);
    start.nat64[0].static_bindings = bindings.into();
    let mut live = Live::new(start);
    live.out(1, 3000);
    assert_eq!(live.bed.nat.pools()[0].usage(Transport::Udp).used, 1);
    live.changed(|plan| plan.nat64[0].static_bindings.clear());
    let usage = live.bed.nat.pools()[0].usage(Transport::Udp);
    assert_eq!((usage.used, usage.total), (1, 256), "the datagram's port, and all blocks are back");
}

#[test]
fn a_block_for_two_new_static_bindings_is_released_after_its_sessions() {
    let mut start = plan(T, (1024, 1151));
    start.pools[0].allocation = Allocation::Blocks(blocks());
    let mut live = Live::new(start);
    let port = live.out(1, 3000).sport;
    live.told();
    live.changed(|plan| {
        let both = [Transport::Tcp, Transport::Udp].map(|t| static_binding(t, (CLIENT, 80), (T, port)));
        plan.nat64[0].static_bindings = both.into();
    });
    let kinds: Vec<EventKind> = live.told().iter().map(|e| e.kind).collect();
    let expected = [EventKind::SessionDeleted, EventKind::BindingDeleted, EventKind::BlockReleased];
    assert_eq!(kinds, expected);
    let usage = live.bed.nat.pools()[0].usage(Transport::Udp);
    assert_eq!((usage.used, usage.total), (0, 64), "the other block, with no port in use");
}

#[test]
fn a_connection_gets_no_port_that_left_the_pool_after_a_syn_to_it_was_held() {
    let mut live = Live::new(plan(T, (1024, 1151)));
    assert_eq!(live.bed.send(&tcp4(SERVER, 80, T, 1030, "S", b"")).verdict, Verdict::Held);
    live.changed(|plan| plan.pools[0].ranges = vec![range(T, T, (1040, 1151))]);
    let out = live.bed.through(&tcp6(&client(1), 3000, SERVER6, 80, "S", b""));
    assert!(out.sport >= 1040, "{out:?}");
}

#[test]
fn changes_that_need_a_restart_are_refused_as_a_whole_and_named() {
    let live = Live::new(plan(T2, (1024, 65_535)));
    let refuse = |change: &dyn Fn(&mut Plan), named: &str| {
        let mut plan = live.plan.clone();
        plan.limits.sessions_per_subscriber = 1;
        change(&mut plan);
        let refused = Change::prepare(&live.bed.nat.outline(), &live.plan, &plan).err();
        let Some(Refused::Restart(reasons)) = refused else { panic!("{named}: {refused:?}") };
        assert!(reasons.iter().any(|r| r.contains(named)), "{named} in {reasons:?}");
    };
    refuse(&|p| p.limits.sessions_max += 1, "sessions_max");
    refuse(&|p| p.limits.subscribers_max += 1, "subscribers_max");
    refuse(&|p| p.limits.syn_store_max += 1, "syn_store_max");
    refuse(&|p| p.limits.fragment_bytes_max += 1, "fragment_bytes_max");
    refuse(&|p| p.events.ring_len += 1, "events: ring");
    refuse(&|p| p.nat64[0].subscriber_len = 56, "subscriber /64 -> /56");
    refuse(&|p| p.nat64[0].name = "other".into(), "nat64 \"other\" replaces nat64 \"default\"");
    refuse(&|p| p.nat64.clear(), "the last stateful instance");
    refuse(&|p| p.pools[0].allocation = Allocation::Blocks(blocks()), "kind of allocation");
    refuse(&|p| p.nat64[0].filtering = gatun_nat::plan::Filtering::AddressDependent, "filtering");
    refuse(
        &|p| {
            p.pools.push(pool("203.0.113.0", "203.0.113.0", (1, 9)));
            p.pools[1].name = "second".into();
            p.nat64[0].pool = 1;
        },
        "pool \"pool\" -> \"second\"",
    );
    refuse(
        &|p| {
            p.pools[0].ranges[0].last = v4(T);
            p.pools.push(pool(T2, T2, (1, 9)));
            p.pools[1].name = "second".into();
        },
        "address 192.0.2.2 moves from pool \"pool\" to pool \"second\"",
    );
    let mut wrong = live.plan.clone();
    wrong.pools[0].ranges[0].first = v4("192.0.2.9");
    let refused = Change::prepare(&live.bed.nat.outline(), &live.plan, &wrong).err();
    assert!(matches!(refused, Some(Refused::Build(_))), "{refused:?}");
    let mut vast = live.plan.clone();
    vast.pools[0].ranges = vec![range("192.0.0.0", "192.0.255.255", (1024, 65_535))];
    let refused = Change::prepare(&live.bed.nat.outline(), &live.plan, &vast).err();
    let Some(Refused::Build(error)) = refused else { panic!("{refused:?}") };
    assert!(error.0.contains("room for 4,096 addresses"), "{error}");
}

#[test]
fn only_one_current_change_is_applied_at_a_time() {
    let mut live = Live::new(plan(T2, (1024, 65_535)));
    for n in 0..2000 {
        live.out(n, 3000);
    }
    let mut plan = live.plan.clone();
    plan.pools[0].ranges = vec![range(T, T, (1024, 65_535))];
    let (mut first, mut late) = (live.prepare(&plan), live.prepare(&plan));
    live.bed.nat.apply(live.bed.now, &mut first).unwrap();
    assert_eq!(live.bed.nat.apply(live.bed.now, &mut late), Err(ApplyError::Settling));
    while live.bed.nat.is_settling() {
        live.bed.nat.expire(live.bed.now, 100);
    }
    assert_eq!(live.bed.nat.apply(live.bed.now, &mut late), Err(ApplyError::Outdated));
    // The address returns as a new one.
    live.plan = plan;
    live.changed(|plan| plan.pools[0].ranges = vec![range(T, T2, (1024, 65_535))]);
    let on_second = (3000..3100).filter(|&n| live.out(n, 3000).src == IpAddr::V4(v4(T2))).count();
    assert!(on_second > 20, "{on_second}");
}

#[test]
fn new_instances_and_pools_serve_at_once_and_unused_pools_can_be_removed() {
    let mut live = Live::new(plan(T, (1024, 65_535)));
    let flow = live.out(1, 3000);
    const NEW6: &str = "2001:db8:65::/96";
    live.changed(|plan| {
        let mut second = pool("203.0.113.0", "203.0.113.0", (1024, 2047));
        second.name = "second".into();
        // Before the pool that is in use: pools are identified by their names.
        plan.pools.insert(0, second);
        plan.nat64[0].pool = 1;
        let mut instance = nat64(NEW6);
        instance.name = "second".into();
        plan.nat64.push(instance);
    });
    assert_eq!(live.out(1, 3000), flow);
    assert_eq!(live.back(&flow), Verdict::Forward);
    let other = live.bed.through(&udp6(&client(1), 3000, &behind(NEW6, SERVER), 53, b"x"));
    assert_eq!(other.src.to_string(), "203.0.113.0");
    assert_eq!(live.back(&other), Verdict::Forward);
    live.changed(|plan| {
        let mut third = pool("203.0.113.9", "203.0.113.9", (1024, 2047));
        third.name = "third".into();
        plan.pools.push(third);
    });
    live.changed(|plan| drop(plan.pools.pop()));
    assert_eq!((live.out(1, 3000), live.bed.nat.pools().len()), (flow, 2));
}

#[test]
fn new_timers_filters_and_own_addresses_apply_from_the_next_packet() {
    let mut live = Live::new(plan(T, (1024, 65_535)));
    let flow = live.out(1, 3000);
    live.changed(|plan| {
        plan.own4 = Some(v4("203.0.113.254"));
        plan.nat64[0].filtering = gatun_nat::plan::Filtering::AddressAndPortDependent;
        plan.nat64[0].timeouts.udp_ms = 10_000;
        plan.icmp.suppressed.clear();
    });
    let ping = echo4(SERVER, "203.0.113.254", true, 7, b"x");
    assert_eq!(live.bed.send(&ping).verdict, Verdict::Reply(Reply::Echo));
    let stranger = udp4("198.51.100.99", 9, T, flow.sport, b"y");
    assert_eq!(live.bed.send(&stranger).verdict, refused(DropReason::AddressPortDependentFilter));
    live.bed.pass_ms(60_000);
    assert_eq!(live.bed.nat.occupancy().sessions, 1, "the session has the new lifetime");
    assert_eq!(live.out(1, 3000), flow);
    live.bed.pass_ms(20_000);
    assert_eq!(live.bed.nat.occupancy().sessions, 0);
}
