//! Shards of two members, step by step: relations, walks that are cut off, and records that are lost.
#![allow(missing_docs, unreachable_pub)]

#[path = "support/engines.rs"]
mod engines;

use engines::Workers;
use gatun_nat::plan::{self, Net4, Plan, PoolRange};
use gatun_nat::standby::{PeerAction, PeerLink, PortRight};
use gatun_nat::{Instant, ShardSet};
use gatun_peer::member::{AddressRange, Engines, Member, SharedSettings, SharedShard};
use gatun_peer::ownership::{Member as Side, Rules};
use gatun_peer::wire::{Exchange, Settings, ShardSeats};
use gatun_testkit::packet::text::udp4;

const PORTS: (u16, u16) = (1024, 2047);
const SEATS: Option<ShardSeats> = Some(ShardSeats { first: 1, second: 2 });
const SHARD: u8 = 0;
const RING: usize = 32;

struct Machine {
    member: Member,
    workers: Workers,
}

impl Machine {
    fn new(me: Side) -> Machine {
        let nat44 = plan::Nat44 {
            name: "home".into(),
            inside: vec![Net4::new([10, 0, 0, 0].into(), 8).unwrap()],
            ..plan::Nat44::default()
        };
        let (first, last) = ([192, 0, 2, 1].into(), [192, 0, 2, 1].into());
        let ranges = vec![PoolRange { first, last, ports: PORTS, transports: [true; 3] }];
        let pool = plan::Pool4 { name: "pool".into(), ranges, ..plan::Pool4::default() };
        let mut plan = Plan { shards: Some(1), pools: vec![pool], nat44: vec![nat44], ..Plan::default() };
        plan.limits.sessions_max = 400;
        plan.limits.subscribers_max = 64;
        // Slot 0 is the member's, slot 1 the box's.
        let mut workers = Workers::new(&plan, (1, 2), (1, RING), 1 + me as u64);
        workers.assign(SHARD, Some(0));
        let right = PortRight { first: PORTS.0, last: PORTS.1, is_owner: true };
        workers.order(Instant(0), PeerAction::Right(first, last, right));
        workers.order(Instant(0), PeerAction::Link(ShardSet::ALL, PeerLink::Live));
        let addresses = vec![AddressRange { first, last, ports: PORTS, shard: SHARD.into() }];
        let settings = SharedSettings { me, addresses, again_ms: 20, rules: Rules::default() };
        let exchange = Exchange::new(Settings::of_node(me, "box", 7 + me as u64, vec![]));
        Machine { member: Member::of_node(settings, exchange), workers }
    }

    fn relate(&mut self, now_ms: u64, seats: Option<ShardSeats>, has_state: bool) {
        self.member.set_relation(now_ms, SHARD, seats, has_state);
    }

    fn shared(&self) -> SharedShard {
        self.member.shared(SHARD)
    }

    /// A host sends packets to some servers.
    fn send(&mut self, now_ms: u64, servers: u8) {
        for server in 1..=servers {
            let packet = udp4("10.0.0.1", 4_000, &format!("198.51.100.{server}"), 53, b"x");
            self.workers.packet(Instant(now_ms), &packet).unwrap();
        }
    }

    fn turn(&mut self, now_ms: u64) {
        self.member.turn(now_ms, self.workers.of(0));
    }
}

struct World {
    boxes: [Machine; 2],
    now_ms: u64,
}

impl World {
    /// Two connected boxes with a common shard. Only the first one has its state.
    fn new() -> World {
        let mut world =
            World { boxes: [Machine::new(Side::First), Machine::new(Side::Second)], now_ms: 1_000 };
        world.connect();
        world.boxes[0].relate(1_000, SEATS, true);
        world.boxes[1].relate(1_000, SEATS, false);
        world.run(200);
        assert!(world.boxes.iter().all(|one| one.shared().is_joined && one.shared().joins == 1));
        world
    }

    fn connect(&mut self) {
        for Machine { member, .. } in &mut self.boxes {
            let is_settled = member.is_settled();
            member.exchange.open(self.now_ms, is_settled);
        }
    }

    fn close(&mut self) {
        self.boxes.iter_mut().for_each(|one| one.member.exchange.close(self.now_ms));
    }

    /// Carries what the boxes have sent.
    fn carry(&mut self) {
        for (from, to) in [(0, 1), (1, 0)] {
            let mut bytes = vec![];
            self.boxes[from].member.exchange.take_output(&mut bytes);
            let Member { exchange, inbox, .. } = &mut self.boxes[to].member;
            exchange.receive(self.now_ms, &bytes, inbox).unwrap();
        }
    }

    fn step(&mut self) {
        self.now_ms += 5;
        for one in &mut self.boxes {
            one.turn(self.now_ms);
            one.workers.work(0, Instant(self.now_ms), 1_000);
        }
        self.carry();
    }

    fn run(&mut self, ms: u64) {
        (0..ms / 5).for_each(|_| self.step());
    }

    fn set_live(&mut self, is_live: bool) {
        self.boxes.iter_mut().for_each(|one| one.member.set_live(SHARD, is_live));
    }

    /// Both boxes get each other's whole state.
    fn sync(&mut self) {
        self.set_live(true);
        self.run(200);
        self.boxes[1].relate(self.now_ms, SEATS, true);
        self.run(200);
        assert!(self.boxes.iter().all(|one| one.shared().is_synced));
    }
}

#[test]
fn a_walk_that_is_cut_off_is_not_the_whole_state() {
    let mut world = World::new();
    world.boxes[0].send(world.now_ms, 9);
    world.boxes[0].member.set_live(SHARD, true);
    // A page is out.
    let (now_ms, first) = (world.now_ms + 5, &mut world.boxes[0]);
    first.turn(now_ms);
    first.member.set_live(SHARD, false);
    world.run(500);
    assert!(!world.boxes[1].shared().is_received);
    world.boxes[0].member.set_live(SHARD, true);
    world.run(500);
    assert!(world.boxes[1].shared().is_received);
    assert_eq!(world.boxes[1].workers.sessions().len(), 9);
}

#[test]
fn a_walk_waits_until_the_engines_wait_for_the_joined_node() {
    let mut world = World::new();
    world.sync();
    let now_ms = world.now_ms;
    world.boxes[1].relate(now_ms, None, false);
    world.boxes[1].relate(now_ms, SEATS, false);
    world.run(500);
    assert_eq!(world.boxes[0].shared().joins, 2);
    assert!(!world.boxes[1].shared().is_received);
    world.boxes[0].member.set_live(SHARD, true);
    world.run(500);
    assert!(world.boxes[1].shared().is_received);
}

#[test]
fn a_relation_that_begins_again_is_another_one_although_no_record_said_that_it_ended() {
    let mut world = World::new();
    world.sync();
    world.close();
    let now_ms = world.now_ms;
    world.boxes[0].relate(now_ms, None, false);
    world.boxes[0].relate(now_ms, SEATS, true);
    // The records are lost.
    world.boxes[0].member.exchange.restart();
    world.connect();
    world.run(500);
    assert!(world.boxes.iter().all(|one| one.shared().is_joined && !one.shared().is_synced));
    assert_eq!(world.boxes[1].shared().joins, 2);
    world.set_live(true);
    world.run(500);
    assert!(world.boxes.iter().all(|one| one.shared().is_synced));
}

#[test]
fn nothing_is_synced_between_the_loss_of_records_and_the_next_walk() {
    let mut world = World::new();
    world.sync();
    world.boxes[0].member.exchange.restart();
    assert!(!world.boxes[0].shared().is_synced);
    world.run(500);
    assert!(world.boxes[0].shared().is_synced);
}

#[test]
fn after_a_loss_of_records_nobody_knows_the_unknown_sessions_by_name() {
    let mut world = World::new();
    world.sync();
    assert!(!world.boxes[0].member.unsure().contains(SHARD));
    // The other slot reads the feed, and the member does not read its queue.
    let (now_ms, first) = (world.now_ms, &mut world.boxes[0]);
    for server in 1..=2 * RING {
        let packet = udp4("10.0.0.1", 4_001, &format!("198.51.101.{server}"), 53, b"x");
        first.workers.packet(Instant(now_ms), &packet).unwrap();
        while first.workers.of(1).next_record(0).is_some() {}
    }
    first.turn(now_ms + 5);
    assert!(first.member.counters().lost > 0);
    assert!(world.boxes[0].member.unsure().contains(SHARD));
    world.run(500);
    assert!(!world.boxes[0].member.unsure().contains(SHARD));
    assert!(world.boxes[0].shared().is_synced);
}
