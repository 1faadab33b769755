//! Two shards of two members: the walk of one does not stop the acknowledgements of the other.
#![allow(missing_docs, unreachable_pub)]

#[path = "support/engines.rs"]
mod engines;

use engines::Workers;
use gatun_nat::plan::{self, Net4, Plan, PoolRange};
use gatun_nat::standby::{PeerAction, PeerLink, PortRight};
use gatun_nat::tcp_fsm::TcpState;
use gatun_nat::{Instant, ShardSet};
use gatun_peer::member::{AddressRange, Member, SharedSettings, SharedShard};
use gatun_peer::ownership::{Member as Side, Rules};
use gatun_peer::wire::{Exchange, Settings, ShardSeats};
use gatun_testkit::packet::endpoints;
use gatun_testkit::packet::text::{tcp4, udp4};

const PORTS: (u16, u16) = (1024, 4095);
const SEATS: Option<ShardSeats> = Some(ShardSeats { first: 1, second: 2 });
/// Lifetime of a session, ms.
const LIFETIME_MS: u32 = 3_000;

struct Machine {
    member: Member,
    workers: Workers,
}

impl Machine {
    fn new(me: Side, layout: u16) -> Machine {
        let nat44 = plan::Nat44 {
            name: "home".into(),
            inside: vec![Net4::new([10, 0, 0, 0].into(), 8).unwrap()],
            timeouts: plan::Timeouts { udp_ms: LIFETIME_MS, ..plan::Timeouts::default() },
            ..plan::Nat44::default()
        };
        let (first, last) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let ranges = vec![PoolRange { first, last, ports: PORTS, transports: [true; 3] }];
        let pool = plan::Pool4 { name: "pool".into(), ranges, ..plan::Pool4::default() };
        let mut plan = Plan { shards: Some(2), pools: vec![pool], nat44: vec![nat44], ..Plan::default() };
        plan.limits.sessions_max = 8_000;
        plan.limits.subscribers_max = 64;
        let mut workers = Workers::new(&plan, (1, 1), (1, 8_192), 1 + me as u64);
        (0..2).for_each(|shard| workers.assign(shard, Some(0)));
        let right = PortRight { first: PORTS.0, last: PORTS.1, is_owner: me == Side::First };
        if me == Side::First {
            workers.order(Instant(0), PeerAction::Right(first, last, right));
        }
        workers.order(Instant(0), PeerAction::Link(ShardSet::ALL, PeerLink::Live));
        let addresses = (0..2u8)
            .map(|shard| {
                let at = [192, 0, 2, 1 + shard].into();
                assert_eq!(workers.steering.shard_of_address(at), Some(shard));
                AddressRange { first: at, last: at, ports: PORTS, shard: shard.into() }
            })
            .collect();
        let settings = SharedSettings { me, addresses, again_ms: 20, rules: Rules::default() };
        let usual = Settings::of_node(me, "box", 7 + me as u64, vec![]);
        let layouts = (usual.layouts.0, layout);
        let exchange = Exchange::new(Settings { layouts, ..usual });
        Machine { member: Member::of_node(settings, exchange), workers }
    }

    /// Hosts of a shard send packets to some servers. Returns the number of sessions.
    fn send(&mut self, now_ms: u64, shard: u8, servers: u8) -> usize {
        let mut sessions = 0;
        for host in 1..=8 {
            for server in 1..=servers {
                let packet =
                    udp4(&format!("10.0.0.{host}"), 4_000, &format!("198.51.100.{server}"), 53, b"x");
                if self.workers.steering.part_of(&packet, 0) == Some(shard.into()) {
                    self.workers.packet(Instant(now_ms), &packet).unwrap();
                    sessions += 1;
                }
            }
        }
        assert!(sessions > 0);
        sessions
    }

    fn shared(&self, shard: u8) -> SharedShard {
        self.member.shared(shard)
    }

    fn waiting(&self) -> usize {
        self.member.counters().ends_waiting
    }
}

struct World {
    boxes: [Machine; 2],
    now_ms: u64,
}

impl World {
    /// Two boxes that know the layouts up to these, with a common shard, which both have.
    fn new(layouts: [u16; 2]) -> World {
        let boxes = [Machine::new(Side::First, layouts[0]), Machine::new(Side::Second, layouts[1])];
        let mut world = World { boxes, now_ms: 1_000 };
        for Machine { member, .. } in &mut world.boxes {
            let is_settled = member.is_settled();
            member.exchange.open(1_000, is_settled);
        }
        world.relate(0);
        world.run(200);
        world.set_live(0, true);
        world.run(400);
        assert!(world.boxes.iter().all(|one| one.shared(0).is_synced));
        world
    }

    fn relate(&mut self, shard: u8) {
        self.boxes.iter_mut().for_each(|one| one.member.set_relation(self.now_ms, shard, SEATS, true));
    }

    fn set_live(&mut self, shard: u8, is_live: bool) {
        self.boxes.iter_mut().for_each(|one| one.member.set_live(shard, is_live));
    }

    /// Lets all sessions end, and the box tell it.
    fn run_until_ended(&mut self) {
        let end_ms = self.now_ms + 20 * u64::from(LIFETIME_MS);
        while !self.boxes[0].workers.sessions().is_empty() {
            self.run(100);
            assert!(self.now_ms < end_ms, "{} sessions", self.boxes[0].workers.sessions().len());
        }
        self.run(500);
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms / 5 {
            self.now_ms += 5;
            for Machine { member, workers } in &mut self.boxes {
                member.turn(self.now_ms, workers.of(0));
                workers.work(0, Instant(self.now_ms), 10_000);
            }
            for (from, to) in [(0, 1), (1, 0)] {
                let mut bytes = vec![];
                self.boxes[from].member.exchange.take_output(&mut bytes);
                let Member { exchange, inbox, .. } = &mut self.boxes[to].member;
                exchange.receive(self.now_ms, &bytes, inbox).unwrap();
            }
        }
    }
}

#[test]
fn a_shard_whose_walk_waits_stops_no_acknowledgement_of_another_shard() {
    let mut world = World::new([4, 4]);
    // The second shard is joined, and no walk of it can begin yet.
    world.relate(1);
    world.run(100);
    assert!(world.boxes.iter().all(|one| one.shared(1).is_joined && !one.shared(1).is_received));
    for round in 0..3 {
        let now_ms = world.now_ms;
        let told = world.boxes[0].send(now_ms, 0, 20);
        let others = world.boxes[0].send(now_ms, 1, 20);
        world.run_until_ended();
        // Of the ends, those of the first shard are acknowledged, and those of the second one wait.
        let first = &world.boxes[0];
        assert!(first.member.counters().ends_told as usize >= (round + 1) * told);
        let waiting = first.waiting();
        assert!(waiting > 0 && waiting <= (round + 1) * others, "{waiting} ends wait, {others} of the shard");
        let of_first = first.member.unacknowledged(ShardSet::from_iter([0])).len();
        assert_eq!(of_first, 0, "sessions of the first shard");
    }
    world.set_live(1, true);
    world.run(1_000);
    assert!(world.boxes.iter().all(|one| one.shared(1).is_synced && one.waiting() == 0));
    assert_eq!(world.boxes[0].workers.quarantined(), 0);
}

#[test]
fn a_node_of_the_former_layout_gets_no_acknowledgement_before_the_walk() {
    for layouts in [[3, 4], [4, 3]] {
        let mut world = World::new(layouts);
        world.relate(1);
        world.run(100);
        let now_ms = world.now_ms;
        let told = world.boxes[0].send(now_ms, 0, 20);
        world.run_until_ended();
        assert_eq!(world.boxes[0].waiting(), told);
        world.set_live(1, true);
        world.run(1_000);
        assert!(world.boxes.iter().all(|one| one.shared(1).is_synced && one.waiting() == 0));
    }
}

/// Packets of a connection of the first box: its opening, or its end from both sides.
fn pass(one: &mut Machine, now_ms: u64, flags: [&str; 2]) {
    let out = tcp4("10.0.0.1", 4_000, "198.51.100.1", 443, flags[0], b"");
    let out = one.workers.packet(Instant(now_ms), &out).unwrap();
    let public = endpoints(&out);
    let back = tcp4("198.51.100.1", 443, &public.src.to_string(), public.sport, flags[1], b"");
    one.workers.packet(Instant(now_ms), &back).unwrap();
}

#[test]
fn a_connection_that_has_closed_is_told_if_the_other_member_knows_the_layout() {
    for (layouts, expected) in [([5, 5], TcpState::Trans), ([5, 4], TcpState::Established)] {
        let mut world = World::new(layouts);
        world.relate(1);
        world.run(100);
        world.set_live(1, true);
        world.run(1_000);
        let state = |world: &World| {
            let [session] = world.boxes[1].workers.sessions().try_into().unwrap();
            session.tcp.unwrap()
        };
        pass(&mut world.boxes[0], world.now_ms, ["S", "SA"]);
        world.run(100);
        assert_eq!(state(&world), TcpState::Established, "{layouts:?}");
        pass(&mut world.boxes[0], world.now_ms, ["FA", "FA"]);
        world.run(100);
        assert_eq!(state(&world), expected, "{layouts:?}");
        assert_eq!(world.boxes[0].member.counters().ends_told, 0, "the session has not ended yet");
    }
}
