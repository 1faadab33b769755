//! Members that share some shards of a cluster only: each shard has its own other member.

use super::*;
use gatun_nat::standby::StandbySweep;
use gatun_nat::workers::{Shares, Steering};

const SHARDS: u16 = 4;

/// A plan with one public address for each shard.
pub(super) fn sharded(allocation: Allocation, ports: (u16, u16)) -> Plan {
    let mut plan = nat44_plan();
    plan.pools = vec![pool("192.0.2.0", "192.0.2.3", ports)];
    plan.pools[0].allocation = allocation;
    plan.shards = Some(SHARDS);
    plan
}

/// A member of a cluster.
pub(super) struct Node {
    pub(super) member: Member,
    pub(super) steering: Steering,
}

impl Node {
    pub(super) fn new() -> Node {
        Node::of(&sharded(Allocation::default(), (1024, 65_535)))
    }

    /// The only node of a cluster with this plan.
    pub(super) fn of(plan: &Plan) -> Node {
        let Shares { plans, steering, .. } = Shares::new(plan, 1, [7; 4]).unwrap();
        let mut node = Node { member: Member::new(&plans[0], (1, 0)), steering };
        node.right((1024, 65_535));
        node
    }

    /// Sets the right to ports of all addresses.
    pub(super) fn right(&mut self, (first, last): (u16, u16)) {
        let right = PortRight { first, last, is_owner: true };
        let all = PeerAction::Right([192, 0, 2, 0].into(), [192, 0, 2, 3].into(), right);
        assert_eq!(self.member.order(all), PeerOutcome::Done);
    }

    pub(super) fn order(&mut self, action: PeerAction) -> PeerOutcome {
        self.member.order(action)
    }

    pub(super) fn pass(&mut self, pass: StandbySweep, shards: ShardSet) {
        let (mut at, bed) = (FeedCursor::default(), &mut self.member.bed);
        while !at.is_done() {
            bed.nat.pass_standby(bed.now, (pass, shards), &mut at, 7);
        }
    }

    fn walk(&mut self, shards: ShardSet) -> Vec<SessionRecord> {
        let (mut at, bed, mut found) = (FeedCursor::default(), &mut self.member.bed, Vec::with_capacity(100));
        while !at.is_done() {
            bed.nat.walk_standby(bed.now, shards, &mut at, 7, &mut found);
        }
        found
    }

    fn shard(&self, record: &SessionRecord) -> u8 {
        self.steering.shard_of_address(record.id.flow.outside.0).unwrap()
    }

    /// Opens connections of two hosts of each shard. Returns their records by shard.
    pub(super) fn connect(&mut self) -> Vec<Vec<SessionRecord>> {
        let mut records = vec![Vec::new(); SHARDS.into()];
        for host in 0..200 {
            let host = format!("10.0.0.{host}");
            let inside = v4(&host).to_ipv6_mapped();
            let shard = usize::from(self.steering.shard_of_subscriber(0, inside).unwrap());
            if records[shard].len() < 2 {
                self.member.connect(&host, 4000);
                records[shard].extend(self.member.told());
            }
        }
        assert!(records.iter().all(|of| of.len() == 2));
        records
    }

    /// Returns the outcomes of requests about records.
    fn orders(
        &mut self,
        records: &[SessionRecord],
        of: fn(&SessionRecord) -> PeerAction,
    ) -> Vec<PeerOutcome> {
        records.iter().map(|record| self.order(of(record))).collect()
    }

    fn occupancy(&self) -> (usize, usize) {
        let occupancy = self.member.bed.nat.occupancy();
        (occupancy.sessions, occupancy.quarantined)
    }
}

pub(super) fn set(shards: &[u8]) -> ShardSet {
    shards.iter().copied().collect()
}

#[test]
fn a_subscriber_has_ports_of_its_shard_alone() {
    let blocks = Blocks { size: 64, per_subscriber: 2, ..Blocks::default() };
    for allocation in [Allocation::default(), Allocation::Blocks(blocks)] {
        let mut node = Node::of(&sharded(allocation, (1024, 2047)));
        let mut used = vec![0; SHARDS.into()];
        for n in 0..6_000u32 {
            let host = format!("10.1.{}.{}", n % 1_500 / 256, n % 256);
            let shard = node.steering.shard_of_subscriber(0, v4(&host).to_ipv6_mapped()).unwrap();
            let outcome = node.member.bed.send(&udp4(&host, 2000 + (n / 1_500) as u16, SERVER, 53, b"x"));
            match outcome.verdict {
                Verdict::Forward => {
                    let address = Ipv4Addr::from(*outcome.forwarded()[12..].first_chunk::<4>().unwrap());
                    assert_eq!(node.steering.shard_of_address(address), Some(shard), "{host}");
                    used[usize::from(shard)] += 1;
                }
                // The ports of a shard are used up while others have some left.
                Verdict::Reply(Reply::Error(reason)) | Verdict::Drop(reason) => {
                    assert!(
                        [DropReason::PortsExhausted, DropReason::BlockNone].contains(&reason),
                        "{reason:?}"
                    );
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(used.iter().all(|n| (16..=1024).contains(n)), "{used:?}");
    }
}

#[test]
fn a_walk_a_pass_and_the_knowledge_about_a_member_concern_its_shards_alone() {
    let (mut one, mut two) = (Node::new(), Node::new());
    let records = one.connect();
    records.iter().for_each(|of| assert!(two.orders(of, begin).iter().all(|o| *o == PeerOutcome::Done)));
    // A walk over two shards has their sessions, and ends nothing of the others.
    let found = one.walk(set(&[1, 3]));
    assert!(found.len() == 4 && found.iter().all(|record| [1, 3].contains(&one.shard(record))));
    two.order(PeerAction::WalkBegins(set(&[1, 3])));
    two.order(begin(&records[1][0]));
    two.pass(StandbySweep::EndUnwalked, set(&[1, 3]));
    let told: Vec<_> = two.member.told().iter().map(|r| (r.change, two.shard(r))).collect();
    assert_eq!(told, [1, 3, 3].map(|shard| (SessionChange::Ended, shard)));
    assert_eq!(two.occupancy(), (5, 3));
    // The next walk over another shard has the other parity: this one's marks are not its.
    two.order(PeerAction::WalkBegins(set(&[0])));
    two.order(begin(&records[0][0]));
    two.pass(StandbySweep::EndUnwalked, set(&[0, 1]));
    assert_eq!(two.occupancy(), (4, 4), "the confirmed session of shard 1 stays");
    let told: Vec<_> = two.member.told().iter().map(|record| two.shard(record)).collect();
    assert_eq!(told, [0]);
    // The member of shard 2 is away: its sessions have lifetimes now.
    two.order(PeerAction::Link(set(&[2]), PeerLink::Away));
    two.member.sweep(20_000_000);
    assert_eq!(two.occupancy(), (2, 6));
    // It is gone: nobody waits for its ends.
    two.order(PeerAction::Link(set(&[2]), PeerLink::None));
    two.member.sweep(20_000);
    assert_eq!(two.occupancy(), (2, 4));
}

#[test]
fn a_broken_walk_is_forgotten_for_its_shards() {
    let mut two = Node::new();
    let records = Node::new().connect();
    records.iter().for_each(|of| drop(two.orders(of, begin)));
    two.order(PeerAction::WalkBegins(set(&[0, 1])));
    two.pass(StandbySweep::ForgetWalk, set(&[0]));
    two.pass(StandbySweep::EndUnwalked, set(&[0]));
    assert_eq!(two.occupancy(), (8, 0), "all are confirmed");
    two.pass(StandbySweep::EndUnwalked, set(&[1]));
    assert_eq!(two.occupancy(), (6, 2));
}

#[test]
fn sessions_of_a_member_that_is_away_are_told_by_a_pass_over_its_shards() {
    let mut one = Node::new();
    one.order(PeerAction::Link(set(&[0, 2]), PeerLink::Away));
    for host in 0..60 {
        one.member.connect(&format!("10.0.0.{host}"), 4000);
    }
    let told = one.member.told();
    assert!(!told.is_empty() && told.iter().all(|record| [1, 3].contains(&one.shard(record))));
    one.order(PeerAction::Link(set(&[0, 2]), PeerLink::Live));
    one.pass(StandbySweep::TellAll, set(&[2, 3]));
    let more = one.member.told();
    assert!(!more.is_empty() && more.iter().all(|record| one.shard(record) == 2));
    one.pass(StandbySweep::TellAll, ShardSet::ALL);
    let rest = one.member.told();
    assert!(rest.iter().all(|record| one.shard(record) == 0));
    assert_eq!(told.len() + more.len() + rest.len(), 60);
}

#[test]
fn a_node_that_has_a_shard_no_more_drops_its_sessions_silently() {
    let (mut one, mut two) = (Node::new(), Node::new());
    let records = one.connect();
    records.iter().for_each(|of| drop(two.orders(of, begin)));
    // One of its sessions has had packets, and one has ended and waits.
    let flow = records[2][0].id.flow;
    let host = flow.inside.0.to_ipv4_mapped().unwrap().to_string();
    two.member.bed.through(&tcp4(&host, 4000, SERVER, 80, "A", b"data"));
    two.order(PeerAction::WalkBegins(set(&[2])));
    two.pass(StandbySweep::EndUnwalked, set(&[2]));
    two.member.told();
    assert_eq!(two.occupancy(), (7, 1));
    two.pass(StandbySweep::Drop, set(&[2]));
    assert_eq!(two.occupancy(), (6, 0));
    assert!(two.member.told().is_empty());
    // The other shards' sessions pass, and the shard can come back.
    let flow = records[3][0].id.flow;
    let host = flow.inside.0.to_ipv4_mapped().unwrap().to_string();
    two.member.bed.through(&tcp4(&host, 4000, SERVER, 80, "A", b"data"));
    assert_eq!(two.orders(&records[2], begin), [PeerOutcome::Done; 2]);
}

#[test]
fn what_a_member_knew_that_has_a_shard_no_more_is_forgotten() {
    let mut one = Node::new();
    let records = one.connect();
    // Another session of each shard ends, and its port waits for the other member.
    for of in &records {
        let host = of[1].id.flow.inside.0.to_ipv4_mapped().unwrap().to_string();
        one.member.bed.send(&tcp4(&host, 4000, SERVER, 80, "R", b""));
    }
    one.member.sweep(400_000);
    one.member.told();
    assert_eq!(one.occupancy(), (4, 4));
    let mut theirs = records[1][1];
    (theirs.id.flow.inside.1, theirs.id.flow.outside.1) = (4001, theirs.id.flow.outside.1 ^ 1);
    assert_eq!(one.order(begin(&theirs)), PeerOutcome::Done);
    one.order(PeerAction::Link(set(&[1]), PeerLink::None));
    one.pass(StandbySweep::ForgetPeer, set(&[1]));
    assert_eq!(one.occupancy(), (5, 3));
    // The standby session is this node's now, with a lifetime, and no record tells its end.
    one.member.sweep(20_000_000);
    let told: ShardSet = one.member.told().iter().map(|record| one.shard(record)).collect();
    assert_eq!((one.occupancy(), told), ((0, 6), set(&[0, 2, 3])));
}
