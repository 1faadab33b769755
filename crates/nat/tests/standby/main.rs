//! Sessions of the other member of a pair: two engines, whose members hand their records over by hand.

#[path = "../common/mod.rs"]
mod common;
mod redirect;
mod shards;

use common::*;
use gatun_nat::feed::{FeedPolicy, FeedReader, Record, SessionChange, SessionRecord, SessionScope, channel};
use gatun_nat::plan::{self, Allocation, Blocks, EventPlan, Net4, Net6, Plan, Transport};
use gatun_nat::pool4::DeterministicMap;
use gatun_nat::standby::{
    ClosedFlow, OutsideFlow, PeerAction, PeerCommand, PeerLink, PeerOutcome, PeerRefusal, PeerSession,
    PortRight,
};
use gatun_nat::{EventKind, EventKinds, FeedCursor, Reply, ShardSet, Verdict};
use gatun_wire::DropReason;
use std::net::Ipv4Addr;

const T: &str = "192.0.2.1";
const A: &str = "10.0.0.1";
const B: &str = "10.0.0.2";
const POLICY: FeedPolicy = FeedPolicy {
    sessions: SessionScope::Established,
    bindings: false,
    blocks: false,
    paths: false,
    packets: 2,
    tcp_packets: 0,
};

/// A NAT44 instance, with every allowed port of one address.
fn nat44_plan() -> Plan {
    let nat44 = plan::Nat44 {
        name: "home".into(),
        inside: vec![Net4::new(v4("10.0.0.0"), 8).unwrap()],
        ..plan::Nat44::default()
    };
    Plan {
        nat64: Vec::new(),
        nat44: vec![nat44],
        pools: vec![pool(T, T, (1024, 65_535))],
        ..plan_with("2001:db8:64::/96")
    }
}

struct Member {
    bed: Bed,
    reader: FeedReader,
}

fn public() -> Ipv4Addr {
    T.parse().unwrap()
}

impl Member {
    /// Creates a member that may assign some ports of the public address.
    fn new(plan: &Plan, ports: (u16, u16)) -> Member {
        let mut bed = Bed::new(plan);
        bed.nat.begin_standby();
        let (feed, reader) = channel(POLICY, 1000, 1);
        assert!(bed.nat.attach_peer_feed(Some(Box::new(feed))).is_none());
        let mut member = Member { bed, reader };
        member.right(ports);
        assert_eq!(member.order(PeerAction::Link(ShardSet::ALL, PeerLink::Live)), PeerOutcome::Done);
        member
    }

    fn right(&mut self, (first, last): (u16, u16)) {
        let right = PortRight { first, last, is_owner: first == 1024 };
        assert_eq!(self.order(PeerAction::Right(public(), public(), right)), PeerOutcome::Done);
    }

    fn order(&mut self, action: PeerAction) -> PeerOutcome {
        let mut commands = [PeerCommand::new(action)];
        self.bed.nat.standby(self.bed.now, &mut commands);
        commands[0].outcome
    }

    fn told(&mut self) -> Vec<SessionRecord> {
        let records = std::iter::from_fn(|| self.reader.next());
        let session = |(_, record)| match record {
            Record::Session(session) => session,
            other => panic!("unexpected {other:?}"),
        };
        records.map(session).collect()
    }

    /// Sessions that have ended, among what is told.
    fn ends(&mut self) -> Vec<SessionRecord> {
        self.told().into_iter().filter(|record| record.change == SessionChange::Ended).collect()
    }

    fn connect(&mut self, host: &str, port: u16) -> u16 {
        let out = self.bed.through(&tcp4(host, port, SERVER, 80, "S", b""));
        self.bed.through(&tcp4(SERVER, 80, &out.src.to_string(), out.sport, "SA", b""));
        out.sport
    }

    fn sweep(&mut self, ms: u64) {
        self.bed.pass_ms(ms);
    }

    /// Its only session ends four minutes after the other member has gone: it is not established.
    fn outlives_the_other_for_minutes(&mut self) {
        self.order(PeerAction::Link(ShardSet::ALL, PeerLink::Away));
        self.sweep(230_000);
        assert_eq!(self.bed.nat.occupancy().sessions, 1);
        self.sweep(20_000);
        assert_eq!(self.bed.nat.occupancy().sessions, 0);
    }
}

fn begin(record: &SessionRecord) -> PeerAction {
    let session = PeerSession { flow: record.id.flow, tcp: record.tcp, pool6: record.pool6, epoch: 1 };
    PeerAction::Begin { session, ended: None }
}

fn end(record: &SessionRecord) -> PeerAction {
    let flow = record.id.flow;
    PeerAction::End(OutsideFlow { transport: flow.transport, outside: flow.outside, remote: flow.remote })
}

/// An owner and its backup.
fn pair(plan: &Plan) -> (Member, Member) {
    (Member::new(plan, (1024, 60_000)), Member::new(plan, (64_512, 65_535)))
}

#[test]
fn an_established_connection_of_one_member_passes_at_the_other_one_at_once() {
    let (mut one, mut two) = pair(&nat44_plan());
    let port = one.connect(A, 4000);
    let records = one.told();
    assert_eq!(records.len(), 1);
    assert_eq!(two.order(begin(&records[0])), PeerOutcome::Done);
    assert_eq!(two.bed.nat.occupancy().sessions, 1);
    let out = tcp4(A, 4000, SERVER, 80, "A", b"data");
    let back = tcp4(SERVER, 80, T, port, "A", b"answer");
    assert_eq!(two.bed.send(&back).forwarded(), one.bed.send(&back).forwarded());
    assert_eq!(two.bed.send(&out).forwarded(), one.bed.send(&out).forwarded());
    assert!(two.told().is_empty(), "the other member knows it");
}

#[test]
fn sessions_of_the_other_member_wait_for_the_reader_of_events() {
    let (mut one, _) = pair(&nat44_plan());
    for n in 0..100 {
        one.connect(A, 4000 + n);
    }
    let mut told = one.told().into_iter();
    let kinds = EventKinds::NONE.with(EventKind::BindingKept);
    let events = EventPlan { kinds, state_ring_len: 64, ..EventPlan::default() };
    let mut two = Member::new(&Plan { events, ..nat44_plan() }, (64_512, 65_535));
    let mut reader = two.bed.nat.take_events().unwrap();
    let mut fill = |two: &mut Member| {
        let mut begun = 0;
        while two.bed.nat.standby_budget(two.bed.now, 1) > 0
            && let Some(record) = told.next()
        {
            assert_eq!(two.order(begin(&record)), PeerOutcome::Done);
            begun += 1;
        }
        begun
    };
    let first = fill(&mut two);
    assert!((8..64).contains(&first), "{first}");
    assert_eq!(std::iter::from_fn(|| reader.next()).count(), first);
    assert!(fill(&mut two) >= 8);
    // A reader that stands still does not stop them for ever.
    two.bed.now.0 += 1_001;
    assert!(two.bed.nat.standby_budget(two.bed.now, 1) > 0);
    assert_eq!(two.bed.nat.events_lost(), 0);
}

#[test]
fn a_standby_session_does_not_expire_before_the_other_member_is_away() {
    let (mut one, mut two) = pair(&nat44_plan());
    one.connect(A, 4000);
    let record = one.told()[0];
    two.order(begin(&record));
    two.sweep(40_000_000);
    assert_eq!(two.bed.nat.occupancy().sessions, 1);
    two.order(PeerAction::Link(ShardSet::ALL, PeerLink::Away));
    two.sweep(7_000_000);
    assert_eq!(two.bed.nat.occupancy().sessions, 1, "a normal lifetime has begun");
    two.sweep(2_000_000);
    assert_eq!(two.bed.nat.occupancy().sessions, 0);
    // The other member may live, so it is told, and the port waits.
    assert_eq!((two.told()[0].change, two.bed.nat.occupancy().quarantined), (SessionChange::Ended, 1));
    two.order(PeerAction::Link(ShardSet::ALL, PeerLink::None));
    two.sweep(8_000);
    assert_eq!(two.bed.nat.occupancy().quarantined, 0);
}

#[test]
fn a_port_that_the_other_member_never_heard_of_is_free_at_once() {
    let mut plan = nat44_plan();
    plan.pools = vec![pool(T, T, (2000, 2000))];
    let mut one = Member::new(&plan, (1024, 60_000));
    one.order(PeerAction::Link(ShardSet::ALL, PeerLink::Away));
    for port in 4000..4004 {
        one.connect(A, port);
        assert!(one.told().is_empty(), "it is away: a walk follows");
        one.bed.send(&tcp4(A, port, SERVER, 80, "R", b""));
        one.sweep(400_000);
        assert_eq!((one.bed.nat.occupancy().sessions, one.bed.nat.occupancy().quarantined), (0, 0));
    }
    one.connect(A, 4000);
    one.order(PeerAction::Link(ShardSet::ALL, PeerLink::Live));
    let (mut at, mut found) = (FeedCursor::default(), Vec::with_capacity(8));
    one.bed.nat.walk_standby(one.bed.now, ShardSet::ALL, &mut at, 1000, &mut found);
    assert_eq!(found.len(), 1);
}

#[test]
fn a_port_stays_unused_until_the_end_is_acknowledged() {
    let mut plan = nat44_plan();
    plan.pools = vec![pool(T, T, (2000, 2000))];
    let (mut one, mut two) = (Member::new(&plan, (1024, 60_000)), Member::new(&plan, (64_512, 65_535)));
    let port = one.connect(A, 4000);
    let record = one.told()[0];
    two.order(begin(&record));
    one.bed.send(&tcp4(A, 4000, SERVER, 80, "R", b""));
    one.sweep(400_000);
    let ended = one.ends();
    assert_eq!((ended.len(), ended[0].change), (1, SessionChange::Ended));
    let refused = one.bed.send(&tcp4(B, 4000, SERVER, 80, "S", b"")).verdict;
    assert_eq!(refused, Verdict::Reply(Reply::Error(DropReason::PortsExhausted)));
    // The session is a standby one there: it ends, and nobody waits.
    assert_eq!(two.order(end(&ended[0])), PeerOutcome::Done);
    assert_eq!((two.bed.nat.occupancy().sessions, two.bed.nat.occupancy().quarantined), (0, 0));
    assert_eq!(one.order(PeerAction::Released(ended[0].id)), PeerOutcome::Done);
    assert_eq!(one.connect(B, 4000), port);
    assert_eq!(two.order(begin(&one.told()[0])), PeerOutcome::Done, "for another host");
}

#[test]
fn a_member_with_packets_keeps_a_session_that_the_other_one_ends() {
    let (mut one, mut two) = pair(&nat44_plan());
    one.connect(A, 4000);
    let record = one.told()[0];
    two.order(begin(&record));
    two.bed.through(&tcp4(A, 4000, SERVER, 80, "A", b"data"));
    assert_eq!(two.order(end(&record)), PeerOutcome::Kept);
    let again = two.told();
    assert_eq!((again.len(), again[0].id.flow), (1, record.id.flow));
    // The first one has ended it meanwhile, and takes it back.
    one.bed.send(&tcp4(A, 4000, SERVER, 80, "R", b""));
    one.sweep(400_000);
    let ended = one.ends()[0];
    assert_eq!(one.order(begin(&again[0])), PeerOutcome::Refused(PeerRefusal::Ending));
    let PeerAction::Begin { session, .. } = begin(&again[0]) else { panic!() };
    let again = PeerAction::Begin { session, ended: Some(ended.id.record) };
    assert_eq!(one.order(again), PeerOutcome::Done);
    assert_eq!((one.bed.nat.occupancy().sessions, one.bed.nat.occupancy().quarantined), (1, 0));
}

/// Closes a connection from both sides.
fn close(member: &mut Member, host: &str, port: u16, public: u16) {
    member.bed.through(&tcp4(host, port, SERVER, 80, "FA", b""));
    member.bed.through(&tcp4(SERVER, 80, T, public, "FA", b""));
}

fn closed(record: &SessionRecord) -> PeerAction {
    PeerAction::Closed(ClosedFlow::of(&record.id.flow))
}

#[test]
fn a_connection_that_has_ended_at_one_member_ends_at_the_other_one_too() {
    let (mut one, mut two) = pair(&nat44_plan());
    let ports = [4000, 4001, 4002].map(|port| (port, one.connect(A, port)));
    let records = one.told();
    assert!(records.iter().all(|record| two.order(begin(record)) == PeerOutcome::Done));
    // Packets of two of them took the other way for a while.
    for (port, _) in &ports[..2] {
        two.bed.through(&tcp4(A, *port, SERVER, 80, "A", b"data"));
    }
    one.bed.through(&tcp4(A, 4000, SERVER, 80, "FA", b""));
    assert!(one.told().is_empty(), "half of it goes on");
    one.bed.through(&tcp4(SERVER, 80, T, ports[0].1, "FA", b""));
    one.bed.through(&tcp4(A, 4001, SERVER, 80, "R", b""));
    close(&mut one, A, 4002, ports[2].1);
    let told = one.told();
    assert_eq!(told.len(), 3);
    for (record, of) in told.iter().zip(&records) {
        assert_eq!((record.change, record.id.flow), (SessionChange::Closing, of.id.flow));
        assert_eq!(two.order(closed(record)), PeerOutcome::Done);
    }
    assert!(two.told().is_empty(), "the first one knows it");
    // The ports of the two ended sessions wait for the first member, the standby session for its end.
    two.sweep(230_000);
    assert_eq!(two.bed.nat.occupancy().sessions, 3);
    two.sweep(20_000);
    assert_eq!((two.bed.nat.occupancy().sessions, two.bed.nat.occupancy().quarantined), (1, 2));
    // When the first one is away, a closed connection does not get the lifetime of an established one.
    two.outlives_the_other_for_minutes();
}

#[test]
fn a_late_word_of_an_end_harms_no_connection_that_goes_on() {
    let (mut one, mut two) = pair(&nat44_plan());
    let port = one.connect(A, 4000);
    let record = one.told()[0];
    two.order(begin(&record));
    close(&mut one, A, 4000, port);
    let late = one.told()[0];
    // The client opens the connection again, through the other member.
    two.bed.through(&tcp4(A, 4000, SERVER, 80, "S", b""));
    two.bed.through(&tcp4(SERVER, 80, T, port, "SA", b""));
    assert_eq!(two.order(closed(&late)), PeerOutcome::Done);
    two.bed.through(&tcp4(A, 4000, SERVER, 80, "A", b"data"));
    two.sweep(7_000_000);
    assert_eq!(two.bed.nat.occupancy().sessions, 1);
    // A connection of which nothing is known here has not ended.
    let other = ClosedFlow { remote: (9, 80), ..ClosedFlow::of(&late.id.flow) };
    assert_eq!(two.order(PeerAction::Closed(other)), PeerOutcome::Gone);
    // Two that could be meant: neither has ended for sure.
    for server in ["198.51.101.7", "198.51.102.7"] {
        two.bed.through(&tcp4(A, 4000, server, 80, "S", b""));
    }
    let either = ClosedFlow { remote: (7, 80), ..other };
    assert_eq!(two.order(PeerAction::Closed(either)), PeerOutcome::Gone);
}

#[test]
fn a_connection_that_is_opened_again_through_the_other_member_goes_on_at_both() {
    let (mut one, mut two) = pair(&nat44_plan());
    let port = one.connect(A, 4000);
    two.order(begin(&one.told()[0]));
    // Packets took the other way for a while. Then the client closes it, and opens it again.
    two.bed.through(&tcp4(A, 4000, SERVER, 80, "A", b"data"));
    close(&mut one, A, 4000, port);
    assert_eq!(two.order(closed(&one.told()[0])), PeerOutcome::Done);
    two.sweep(60_000);
    assert_eq!(one.connect(A, 4000), port);
    assert_eq!(two.order(begin(&one.told()[0])), PeerOutcome::Done);
    two.sweep(7_000_000);
    assert_eq!(two.bed.nat.occupancy().sessions, 1);
    two.bed.through(&tcp4(SERVER, 80, T, port, "A", b"data"));
}

#[test]
fn an_opening_connection_does_not_get_the_lifetime_of_an_established_one() {
    let (mut one, mut two) = pair(&nat44_plan());
    one.bed.through(&tcp4(A, 4000, SERVER, 80, "S", b""));
    let (mut at, mut found) = (FeedCursor::default(), Vec::with_capacity(8));
    one.bed.nat.walk_standby(one.bed.now, ShardSet::ALL, &mut at, 1000, &mut found);
    assert_eq!(two.order(begin(&found[0])), PeerOutcome::Done);
    two.outlives_the_other_for_minutes();
}

#[test]
fn sessions_that_a_member_has_opened_through_an_ended_binding_are_told() {
    let (mut one, mut two) = pair(&nat44_plan());
    let port = one.connect(A, 4000);
    let record = one.told()[0];
    two.order(begin(&record));
    // A connection to another server through the same binding, that is not established.
    let out = two.bed.through(&tcp4(A, 4000, "198.51.100.77", 80, "S", b""));
    assert_eq!(out.sport, port);
    assert!(two.told().is_empty());
    assert_eq!(two.order(end(&record)), PeerOutcome::Kept);
    assert_eq!(two.told().len(), 1);
    assert_eq!(two.bed.nat.occupancy().sessions, 1);
}

#[test]
fn each_member_assigns_only_the_ports_that_it_has_a_right_to() {
    let blocks = |size| {
        let mut plan = nat44_plan();
        plan.pools = vec![pool(T, T, (1024, 65_535))];
        plan.pools[0].allocation =
            Allocation::Blocks(Blocks { size, per_subscriber: 9, ..Blocks::default() });
        plan
    };
    for plan in [nat44_plan(), blocks(128)] {
        let (mut one, mut two) = pair(&plan);
        for n in 0..500 {
            // The range of the second member has eight blocks.
            let (host, port) = (format!("10.0.{}.1", n % 7), 2000 + n);
            let mine = one.bed.through(&udp4(&host, port, SERVER, 53, b"x")).sport;
            assert!((1024..=60_000).contains(&mine), "{mine}");
            let its = two.bed.through(&udp4(&host, port, SERVER, 53, b"x")).sport;
            assert!(its >= 64_512, "{its}");
        }
        two.right((1, 0));
        let none = two.bed.send(&udp4("10.0.9.9", 1, SERVER, 53, b"x")).verdict;
        assert_eq!(none, Verdict::Reply(Reply::Error(DropReason::PortRightNone)));
    }
}

#[test]
fn both_members_assign_the_ports_that_a_formula_gives_a_subscriber() {
    let mut plan = nat44_plan();
    plan.pools[0].allocation = Allocation::Deterministic(plan::Deterministic {
        inside: vec![Net6::new(v6("::ffff:10.0.0.0"), 96 + 26).unwrap()],
        subscriber_len: 128,
        overflow_per_address: 2,
        blocks: Blocks { size: 64, ..Blocks::default() },
    });
    let formula = DeterministicMap::new(&plan.pools[0]).unwrap().unwrap();
    let (mut one, mut two) = pair(&plan);
    let (_, (first, last)) = formula.forward(v6(&format!("::ffff:{A}"))).unwrap();
    assert!(last < 64_512, "a block outside of the second member's range");
    for port in 4000..4030 {
        let its = two.connect(A, 1000 + port);
        assert!((first..=last).contains(&one.connect(A, port)) && (first..=last).contains(&its));
    }
    // The same public port may have two inside ends then, always those of one subscriber.
    let (of_one, of_two) = (one.told(), two.told());
    let of = |records: &[SessionRecord], port: u16| {
        records.iter().filter(|record| record.id.flow.outside.1 == port).count()
    };
    let twice = |record: &&SessionRecord| of(&of_two, record.id.flow.outside.1) > 0;
    let twice = of_one.iter().filter(twice).count();
    assert!(twice > 0);
    let outcomes = of_one.iter().map(|record| two.order(begin(record)));
    let refused = PeerOutcome::Refused(PeerRefusal::Conflict);
    assert_eq!(outcomes.filter(|outcome| *outcome == refused).count(), twice);
    assert_eq!(two.bed.nat.occupancy().sessions, 60 - twice);
}

#[test]
fn a_walk_ends_what_the_other_member_does_not_have() {
    let (mut one, mut two) = pair(&nat44_plan());
    for host in [A, B, "10.0.0.3"] {
        one.connect(host, 4000);
    }
    let records = one.told();
    records.iter().for_each(|record| assert_eq!(two.order(begin(record)), PeerOutcome::Done));
    // The second one has packets of one of them, and the walk has one more.
    two.bed.through(&tcp4(B, 4000, SERVER, 80, "A", b"data"));
    two.order(PeerAction::WalkBegins(ShardSet::ALL));
    two.order(begin(&records[2]));
    let mut at = FeedCursor::default();
    while !at.is_done() {
        two.bed.nat.end_unwalked(two.bed.now, ShardSet::ALL, &mut at, 10);
    }
    assert_eq!(two.bed.nat.occupancy().sessions, 2);
    let told = two.told();
    let told: Vec<_> = told.iter().map(|record| (record.change, record.id.flow)).collect();
    // This member's own walk may have told the first one meanwhile.
    let expected =
        [(SessionChange::Ended, records[0].id.flow), (SessionChange::Established, records[1].id.flow)];
    assert_eq!(told, expected);
    let (mut at, mut found) = (FeedCursor::default(), Vec::with_capacity(100));
    two.bed.nat.walk_standby(two.bed.now, ShardSet::ALL, &mut at, 1000, &mut found);
    assert_eq!((found.len(), two.bed.nat.occupancy().quarantined), (3, 1));
}

#[test]
fn a_session_that_contradicts_a_binding_keeps_its_port_unused() {
    let mut plan = nat44_plan();
    plan.pools = vec![pool(T, T, (2000, 2001))];
    let (mut one, mut two) = (Member::new(&plan, (2000, 2000)), Member::new(&plan, (2001, 2001)));
    assert_eq!((one.connect(A, 4000), two.connect(A, 4000)), (2000, 2001));
    let record = one.told()[0];
    assert_eq!(two.order(begin(&record)), PeerOutcome::Refused(PeerRefusal::Conflict));
    assert_eq!(two.order(begin(&record)), PeerOutcome::Refused(PeerRefusal::Conflict));
    assert_eq!(two.bed.nat.occupancy().quarantined, 1);
    // The other member gives the right away, and has its session.
    two.right((2000, 2001));
    let refused = Verdict::Reply(Reply::Error(DropReason::PortsExhausted));
    assert_eq!(two.bed.send(&tcp4(B, 4000, SERVER, 80, "S", b"")).verdict, refused);
    two.order(end(&record));
    assert_eq!(two.connect(B, 4000), 2000);
}

#[test]
fn a_binding_whose_told_session_ends_is_told_by_another_one() {
    let (mut one, mut two) = pair(&nat44_plan());
    let port = one.connect(A, 4000);
    two.order(begin(&one.told()[0]));
    // The packets come to the backup, which opens another session that is not established.
    two.bed.through(&tcp4(A, 4000, SERVER, 80, "R", b""));
    two.bed.through(&tcp4(A, 4000, "198.51.100.77", 80, "S", b""));
    two.sweep(239_000);
    two.bed.through(&tcp4(A, 4000, "198.51.100.77", 80, "S", b""));
    two.sweep(20_000);
    let told: Vec<_> = two.told().iter().map(|one| (one.change, one.id.flow.outside.1)).collect();
    let of = |change| (change, port);
    assert_eq!(told, [of(SessionChange::Closing), of(SessionChange::Established), of(SessionChange::Ended)]);
}

#[test]
fn contradictory_sessions_are_refused_with_a_reason() {
    let (mut one, mut two) = pair(&nat44_plan());
    one.connect(A, 4000);
    let record = one.told()[0];
    let with = |change: &dyn Fn(&mut PeerSession)| {
        let PeerAction::Begin { mut session, .. } = begin(&record) else { panic!() };
        change(&mut session);
        PeerAction::Begin { session, ended: None }
    };
    let refused = |two: &mut Member, change: &dyn Fn(&mut PeerSession)| match two.order(with(change)) {
        PeerOutcome::Refused(why) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&mut two, &|s| s.flow.instance = 9), PeerRefusal::NotServed);
    assert_eq!(
        refused(&mut two, &|s| s.flow.inside.0 = "2001:db8::1".parse().unwrap()),
        PeerRefusal::NotServed
    );
    assert_eq!(refused(&mut two, &|s| s.flow.outside.0 = [9, 9, 9, 9].into()), PeerRefusal::NotInPool);
    assert_eq!(refused(&mut two, &|s| s.flow.outside.1 = 1), PeerRefusal::NotInPool);
    two.order(begin(&record));
    let other: std::net::Ipv4Addr = "10.0.0.9".parse().unwrap();
    let taken = refused(&mut two, &|s| s.flow.inside.0 = other.to_ipv6_mapped());
    assert_eq!(taken, PeerRefusal::Conflict, "another host has the port");
    assert_eq!(refused(&mut two, &|s| s.flow.outside.1 += 1), PeerRefusal::Conflict);
    assert_eq!(two.bed.nat.occupancy().sessions, 1);
}

#[test]
fn an_unused_block_of_another_subscriber_makes_way() {
    let mut plan = nat44_plan();
    plan.pools = vec![pool(T, T, (1024, 65_535))];
    plan.pools[0].allocation =
        Allocation::Blocks(Blocks { size: 128, linger_ms: 600_000, ..Blocks::default() });
    let (mut one, mut two) = pair(&plan);
    one.connect(A, 4000);
    let mut record = one.told()[0];
    assert_eq!(two.order(begin(&record)), PeerOutcome::Done);
    assert_eq!(two.order(end(&record)), PeerOutcome::Done);
    let other: Ipv4Addr = "10.0.0.99".parse().unwrap();
    record.id.flow.inside.0 = other.to_ipv6_mapped();
    assert_eq!(two.order(begin(&record)), PeerOutcome::Done);
    assert_eq!(record.id.flow.transport, Transport::Tcp);
}
