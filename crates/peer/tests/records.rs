//! Records of two members of a process that share the feeds of its workers.
#![allow(missing_docs, unreachable_pub)]

#[path = "support/engines.rs"]
mod engines;

use engines::Workers;
use gatun_nat::feed::Record;
use gatun_nat::plan::{self, Net4, Plan, PoolRange};
use gatun_nat::standby::{PeerAction, PeerLink, PortRight};
use gatun_nat::{Instant, ShardSet};
use gatun_peer::member::Engines as _;
use gatun_testkit::packet::text::udp4;

/// Records for which the ring of a feed, and the queue of a member, has room.
const RING: usize = 16;

fn plan() -> Plan {
    let inside = vec![Net4::new([10, 0, 0, 0].into(), 8).unwrap()];
    let nat44 = plan::Nat44 { name: "home".into(), inside, ..plan::Nat44::default() };
    let (first, last) = ([192, 0, 2, 0].into(), [192, 0, 2, 1].into());
    let ranges = vec![PoolRange { first, last, ports: (1024, 2047), transports: [true; 3] }];
    let pool = plan::Pool4 { name: "pool".into(), ranges, ..plan::Pool4::default() };
    Plan { shards: Some(2), pools: vec![pool], nat44: vec![nat44], ..Plan::default() }
}

/// Reads what is there for a member. Returns the shards of the sessions, and the number of lost records.
fn read(workers: &mut Workers, member: usize) -> (Vec<u8>, u64) {
    let (mut shards, mut lost) = (vec![], 0);
    while let Some((_, record)) = workers.of(member).next_record(0) {
        match record {
            Record::Session(session) => {
                shards.extend(workers.steering.shard_of_address(session.id.flow.outside.0));
            }
            Record::Lost(number) => lost += number,
            _ => {}
        }
    }
    (shards, lost)
}

#[test]
fn a_member_that_reads_too_late_loses_records_and_the_other_one_none() {
    let mut workers = Workers::new(&plan(), (1, 2), (1, RING), 1);
    let now = Instant(1_000);
    let right = PortRight { first: 1024, last: 2047, is_owner: true };
    workers.order(now, PeerAction::Right([0; 4].into(), [255; 4].into(), right));
    workers.order(now, PeerAction::Link(ShardSet::ALL, PeerLink::Live));
    (0..2).for_each(|shard| workers.assign(shard, Some(usize::from(shard))));
    let (mut of_first, mut told) = (vec![], 0);
    for host in 0..120 {
        told += usize::from(
            workers.packet(now, &udp4(&format!("10.0.{host}.1"), 4000, "198.51.100.1", 53, b"x")).is_some(),
        );
        if host % 4 == 0 {
            let (shards, lost) = read(&mut workers, 0);
            assert_eq!(lost, 0, "the first member reads in time");
            of_first.extend(shards);
        }
    }
    of_first.extend(read(&mut workers, 0).0);
    let (of_second, lost) = read(&mut workers, 1);
    assert!(of_first.iter().all(|shard| *shard == 0) && of_second.iter().all(|shard| *shard == 1));
    assert!(lost > 0 && of_second.len() <= RING, "{lost} {}", of_second.len());
    assert_eq!(of_first.len() + of_second.len() + lost as usize, told);
}
