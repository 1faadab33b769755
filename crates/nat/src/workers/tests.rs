mod shards;

use super::*;
use crate::base::plan::{Eam, Exemption, Nat44, Nat64, Net4, Net6, Pool4, PoolRange, Transport};
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_testkit::packet::{Message, V4, V6};
use gatun_wire::Prefix64;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::string::ToString;
use std::vec;

fn range(first: [u8; 4], last: [u8; 4], ports: (u16, u16)) -> PoolRange {
    PoolRange { first: first.into(), last: last.into(), ports, transports: [true; 3] }
}

fn nat64(static_bindings: Vec<StaticBinding>) -> Nat64 {
    Nat64 {
        name: "six".into(),
        pool6: vec![Prefix64::WELL_KNOWN],
        wkp_non_global: true,
        static_bindings,
        ..Nat64::default()
    }
}

fn nat44() -> Nat44 {
    Nat44 {
        name: "four".into(),
        inside: vec![Net4 { addr: Ipv4Addr::new(100, 64, 0, 0), len: 10 }],
        ..Nat44::default()
    }
}

fn plan(ranges: Vec<PoolRange>) -> Plan {
    Plan {
        pools: vec![Pool4 { name: "p".into(), ranges, ..Pool4::default() }],
        nat64: vec![nat64(vec![])],
        nat44: vec![nat44()],
        ..Plan::default()
    }
}

fn binding(inside: &str, outside: [u8; 4], port: u16) -> StaticBinding {
    StaticBinding {
        transport: Transport::Tcp,
        inside: (inside.parse().unwrap(), port),
        outside: (outside.into(), port),
    }
}

fn udp6(src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
    V6::new(src, dst).packet(&Message::udp(0, 0, &[]))
}

fn ip4(src: Ipv4Addr, dst: Ipv4Addr, proto: u8, payload: &[u8]) -> Vec<u8> {
    V4 { df: false, ..V4::new(src, dst) }.raw(proto, payload)
}

proptest! {
    #[test]
    fn every_address_of_a_pool_has_exactly_one_worker(
        rows in prop::collection::vec((0u32..300, 0u32..40), 1..8), workers in 1usize..9,
    ) {
        let at = |n: u32| Ipv4Addr::from(0xc633_6400 + n);
        let ranges: Vec<PoolRange> = rows.iter().enumerate().map(|(i, &(first, more))| PoolRange {
            first: at(first), last: at(first + more),
            // Ranges may share addresses, but not their ports.
            ports: (1024 + i as u16 * 100, 1123 + i as u16 * 100), transports: [true; 3],
        }).collect();
        let all: std::collections::BTreeSet<u32> = rows.iter().flat_map(|&(a, n)| a..=a + n).collect();
        let shares = Shares::new(&plan(ranges.clone()), workers, [1; 4]);
        if all.len() < workers {
            prop_assert!(shares.is_err());
            return Ok(());
        }
        let shares = shares.map_err(|e| TestCaseError::fail(e.0))?;
        let mut each = vec![0usize; workers];
        for n in 0..345 {
            let owner = shares.steering.owner_after(&ip4([8, 8, 8, 8].into(), at(n), 17, &[0; 8]));
            prop_assert_eq!(owner.is_some(), all.contains(&n));
            if let Some(owner) = owner { each[owner] += 1; }
            // A worker's plan has the address with the same ports as the whole plan.
            for (worker, share) in shares.plans.iter().enumerate() {
                let ports = |pool: &Pool4| {
                    let mut ports: Vec<_> = pool.ranges.iter()
                        .filter(|r| r.first <= at(n) && at(n) <= r.last).map(|r| r.ports).collect();
                    ports.sort_unstable();
                    ports
                };
                let whole = Pool4 { ranges: ranges.clone(), ..Pool4::default() };
                let expected = if owner == Some(worker) { ports(&whole) } else { vec![] };
                prop_assert_eq!(ports(&share.pools[0]), expected);
            }
        }
        let (least, most) = (each.iter().min().unwrap(), each.iter().max().unwrap());
        prop_assert!(most - least <= 1, "{:?}", each);
    }
}

#[test]
fn all_packets_of_a_subscriber_go_to_one_worker_and_subscribers_are_spread() {
    let shares =
        Shares::new(&plan(vec![range([192, 0, 2, 0], [192, 0, 2, 7], (1024, 65_535))]), 4, [3; 4]).unwrap();
    let mut each = BTreeMap::<usize, usize>::new();
    let remote: Ipv6Addr = "64:ff9b::cb00:7107".parse().unwrap();
    for subscriber in 0..4000u128 {
        let net = 0x2001_0db8 << 96 | subscriber << 64;
        let owner = |host: u128, dst| shares.steering.owner(&udp6((net | host).into(), dst), 0).unwrap();
        let worker = owner(1, remote);
        assert_eq!(worker, owner(0xffff_ffff_ffff_ffff, "64:ff9b::808:808".parse().unwrap()));
        *each.entry(worker).or_default() += 1;
    }
    // 1,000 each on average; 5 standard deviations are 137.
    assert!(each.len() == 4 && each.values().all(|n| (863..1137).contains(n)), "{each:?}");
    assert_eq!(
        shares.steering.owner(&udp6("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap()), 0),
        None
    );
    let other = ip4([203, 0, 113, 1].into(), [203, 0, 113, 9].into(), 17, &[0; 8]);
    assert_eq!(shares.steering.owner(&other, 0), None);
    assert_eq!(shares.steering.owner(&[], 0), None);
}

#[test]
fn an_error_from_inside_goes_to_the_worker_of_the_quoted_session() {
    let shares =
        Shares::new(&plan(vec![range([192, 0, 2, 0], [192, 0, 2, 7], (1024, 65_535))]), 4, [3; 4]).unwrap();
    let steering = &shares.steering;
    for host in 0..200u128 {
        let inside = Ipv6Addr::from(0x2001_0db8 << 96 | host << 64 | 1);
        let remote: Ipv6Addr = "64:ff9b::cb00:7107".parse().unwrap();
        let router: Ipv6Addr = "2001:db8:ffff::1".parse().unwrap();
        // Time Exceeded that quotes a packet to the inside host.
        let mut error = udp6(router, remote);
        error.truncate(40);
        error.extend_from_slice(&[3, 0, 0, 0, 0, 0, 0, 0]);
        error.extend_from_slice(&udp6(remote, inside));
        (error[5], error[6]) = ((error.len() - 40) as u8, 58);
        assert_eq!(steering.owner(&error, 0), steering.owner(&udp6(inside, remote), 0));
        let inside = Ipv4Addr::from(0x6440_0000 + host as u32);
        let remote = Ipv4Addr::new(203, 0, 113, 7);
        let quoted = ip4(remote, inside, 17, &[0; 8]);
        let error =
            ip4([100, 127, 0, 1].into(), remote, 1, &[&[11, 0, 0, 0, 0, 0, 0, 0], &quoted[..]].concat());
        assert_eq!(steering.owner(&error, 0), steering.owner(&ip4(inside, remote, 17, &[0; 8]), 0));
    }
}

#[test]
fn a_subscriber_with_static_bindings_goes_to_the_worker_of_their_addresses() {
    let mut plan = plan(vec![range([192, 0, 2, 0], [192, 0, 2, 7], (1024, 65_535))]);
    let own = ["2001:db8:1::1", "2001:db8:1::2"];
    plan.nat64 = vec![nat64(vec![
        binding(own[0], [192, 0, 2, 0], 8000),
        binding(own[1], [192, 0, 2, 7], 8000),
        binding("2001:db8:2::1", [192, 0, 2, 3], 8000),
    ])];
    let shares = Shares::new(&plan, 4, [3; 4]).unwrap();
    let owner = |inside: &str| {
        let dst = "64:ff9b::cb00:7107".parse().unwrap();
        shares.steering.owner(&udp6(inside.parse().unwrap(), dst), 0).unwrap()
    };
    let outside =
        |last: u8| shares.steering.owner(&ip4([8; 4].into(), [192, 0, 2, last].into(), 6, &[0; 20]), 0);
    assert_eq!((owner(own[0]), owner(own[1])), (0, 0));
    assert_eq!((outside(0), outside(7), outside(6)), (Some(0), Some(0), Some(3)));
    assert_eq!(Some(owner("2001:db8:2::1")), outside(3));
    let counts: Vec<usize> = shares.plans.iter().map(|p| p.nat64[0].static_bindings.len()).collect();
    assert_eq!(counts, [2, 1, 0, 0]);
    for share in &shares.plans {
        crate::Nat::new(share, [1, 2, 3, 4]).unwrap();
    }
}

#[test]
fn plans_that_cannot_be_shared_are_refused_with_advice() {
    let refused = |plan: &Plan, workers| Shares::new(plan, workers, [1; 4]).err().unwrap().0;
    let one = plan(vec![range([192, 0, 2, 1], [192, 0, 2, 1], (1024, 65_535))]);
    assert_eq!(
        refused(&one, 2),
        "pool \"p\" has 1 address for 2 workers, and each needs its own: add addresses to the pool, or use \
         fewer queues"
    );
    assert!(Shares::new(&one, 1, [1; 4]).is_ok());
    assert!(refused(&one, 0).starts_with("0 workers") && refused(&one, 257).starts_with("257 workers"));
    let mut two = plan(vec![range([192, 0, 2, 1], [192, 0, 2, 2], (1024, 65_535))]);
    two.nat64 = vec![nat64(vec![
        binding("2001:db8:1::1", [192, 0, 2, 1], 80),
        binding("2001:db8:2::1", [192, 0, 2, 2], 80),
        binding("2001:db8:1::1", [192, 0, 2, 2], 81),
    ])];
    assert!(refused(&two, 2).contains("static binding 3"), "{}", refused(&two, 2));
    two.nat64 = vec![nat64(vec![
        binding("2001:db8:1::1", [192, 0, 2, 1], 80),
        binding("2001:db8:1::1", [192, 0, 2, 2], 81),
    ])];
    assert!(refused(&two, 2).contains("worker 1 of 2 has no address"), "{}", refused(&two, 2));
    two.pools[0].allocation = Allocation::Deterministic(crate::base::plan::Deterministic {
        inside: vec![Net6 { addr: "2001:db8::".parse().unwrap(), len: 56 }],
        subscriber_len: 56,
        overflow_per_address: 0,
        blocks: crate::base::plan::Blocks::default(),
    });
    assert!(refused(&two, 2).contains("deterministic"));
}

#[test]
fn stateless_instances_are_shared_whole() {
    let eam = Eam {
        v4: Net4 { addr: Ipv4Addr::new(198, 51, 100, 1), len: 32 },
        v6: Net6 { addr: "2001:db8::1".parse().unwrap(), len: 128 },
    };
    let siit = crate::base::plan::Siit {
        name: "s".to_string(),
        eamt: vec![eam],
        ..crate::base::plan::Siit::default()
    };
    let plan = Plan { siit: vec![siit], ..Plan::default() };
    let shares = Shares::new(&plan, 8, [1; 4]).unwrap();
    assert!(shares.plans.iter().all(|p| p.siit.len() == 1));
    let packet = ip4([8; 4].into(), [198, 51, 100, 1].into(), 17, &[0; 8]);
    assert_eq!(shares.steering.owner(&packet, 0), None);
}

#[test]
fn hosts_of_two_realms_with_one_address_are_two_subscribers() {
    let mut plan = plan(vec![range([192, 0, 2, 0], [192, 0, 2, 7], (1024, 65_535))]);
    plan.nat44.push(Nat44 { name: "customer".into(), realm: 1, ..nat44() });
    plan.nat64.push(Nat64 { name: "theirs".into(), realm: 1, ..nat64(vec![]) });
    let steering = Shares::new(&plan, 4, [3; 4]).unwrap().steering;
    let (mut apart, mut apart6) = (0, 0);
    for host in 0..200u8 {
        let packet = ip4([100, 64, 0, host].into(), [8; 4].into(), 17, &[0; 8]);
        apart += u32::from(steering.owner(&packet, 0) != steering.owner(&packet, 1));
        assert_eq!(steering.owner(&packet, 2), None, "no owner, so any worker may process it");
        let net = 0x2001_0db8 << 96 | u128::from(host) << 64;
        let packet = udp6(net.into(), "64:ff9b::808:808".parse().unwrap());
        apart6 += u32::from(steering.owner(&packet, 0) != steering.owner(&packet, 1));
    }
    // The average is three in four.
    assert!((120..180).contains(&apart) && (120..180).contains(&apart6), "{apart} {apart6}");
}

/// Addresses of a pool's ranges, each with its worker.
fn owners(shares: &Shares, ranges: &[PoolRange]) -> BTreeMap<u32, usize> {
    let addresses = ranges.iter().flat_map(|r| u32::from(r.first)..=u32::from(r.last));
    addresses.map(|a| (a, shares.steering.owner_of_address(a.into()).unwrap())).collect()
}

proptest! {
    #[test]
    fn addresses_that_stay_keep_their_workers_and_new_ones_go_to_those_with_the_fewest(
        workers in 2usize..6,
        before in prop::collection::btree_set(0u8..60, 6..30),
        after in prop::collection::btree_set(0u8..60, 6..30),
    ) {
        let ranges = |set: &std::collections::BTreeSet<u8>| -> Vec<PoolRange> {
            set.iter().map(|&n| range([192, 0, 2, n], [192, 0, 2, n], (1024, 2000))).collect()
        };
        let (old, new) = (ranges(&before), ranges(&after));
        let running = Shares::new(&plan(old.clone()), workers, [3; 4]).unwrap();
        let had = owners(&running, &old);
        let kept = |worker| new.iter().filter(|r| had.get(&u32::from(r.first)) == Some(&worker)).count();
        let changed = Shares::after(&running.steering, &plan(new.clone()));
        let (added, kept): (usize, Vec<usize>) =
            (after.difference(&before).count(), (0..workers).map(kept).collect());
        let without = kept.iter().filter(|n| **n == 0).count();
        prop_assert_eq!(changed.is_ok(), without <= added, "{:?} and {} more", kept, added);
        let Ok(changed) = changed else { return Ok(()) };
        let has = owners(&changed, &new);
        for (address, worker) in &has {
            prop_assert!(had.get(address).is_none_or(|before| before == worker));
        }
        let counts: Vec<usize> = (0..workers).map(|w| has.values().filter(|o| **o == w).count()).collect();
        let least = *counts.iter().min().unwrap();
        // A worker that got an address has at most one more than the worker with the fewest.
        prop_assert!(counts.iter().zip(&kept).all(|(now, kept)| now == kept || *now <= least + 1), "{:?} {:?}", kept, counts);
        for (worker, share) in changed.plans.iter().enumerate() {
            let mine: usize = share.pools[0].ranges.iter().map(|r| (u32::from(r.last) - u32::from(r.first) + 1) as usize).sum();
            prop_assert_eq!(mine, counts[worker]);
        }
        prop_assert_eq!(changed.moved.iter().map(Vec::len).sum::<usize>(), 0);
    }
}

#[test]
fn subscribers_keep_their_workers_unless_new_bindings_pin_them() {
    let wide = vec![range([192, 0, 2, 0], [192, 0, 2, 7], (1024, 65_535))];
    let running = Shares::new(&plan(wide.clone()), 4, [3; 4]).unwrap();
    let dst = "64:ff9b::cb00:7107".parse().unwrap();
    let owner = |shares: &Shares, host: u128| {
        let packet = udp6((0x2001_0db8 << 96 | host << 64 | 1).into(), dst);
        shares.steering.owner(&packet, 0).unwrap()
    };
    // A host whose worker does not have 192.0.2.7.
    let host = (0..).find(|&host| owner(&running, host) != 3).unwrap();
    let inside = Ipv6Addr::from(0x2001_0db8 << 96 | host << 64 | 1).to_string();
    let mut bound = plan(wide.clone());
    bound.nat64[0].static_bindings = vec![binding(&inside, [192, 0, 2, 7], 80)];
    let changed = Shares::after(&running.steering, &bound).unwrap();
    assert_eq!(owner(&changed, host), 3);
    assert_eq!(changed.moved[owner(&running, host)].len(), 1);
    assert_eq!(changed.moved.iter().map(Vec::len).sum::<usize>(), 1);
    assert!((0..500).filter(|h| *h != host).all(|h| owner(&running, h) == owner(&changed, h)));
    // The subscriber moves back when the binding is removed.
    let back = Shares::after(&changed.steering, &plan(wide)).unwrap();
    assert_eq!((owner(&back, host), back.moved[3].len()), (owner(&running, host), 1));
    // A subscriber cannot have addresses of two running workers.
    bound.nat64[0].static_bindings.push(binding(&inside, [192, 0, 2, 0], 80));
    let Err(Refused::Restart(why)) = Shares::after(&running.steering, &bound) else { panic!("accepted") };
    assert!(why[0].contains("are on another worker"), "{why:?}");
}

#[test]
fn a_new_process_keeps_the_distribution_of_addresses_if_possible() {
    let old = vec![range([192, 0, 2, 8], [192, 0, 2, 15], (1024, 2000))];
    let first = Shares::new(&plan(old.clone()), 2, [3; 4]).unwrap();
    let had = owners(&first, &old);
    let new = vec![range([192, 0, 2, 0], [192, 0, 2, 31], (1024, 2000))];
    let alike = |before: &BTreeMap<u32, usize>, now: &Shares, ranges: &[PoolRange]| {
        let has = owners(now, ranges);
        before.iter().filter(|(address, worker)| has.get(address) == Some(worker)).count()
    };
    assert!(
        alike(&had, &Shares::new(&plan(new.clone()), 2, [3; 4]).unwrap(), &new) < 8,
        "address_shares out anew"
    );
    let address_shares = first.steering.address_shares();
    let second = Shares::as_before(&plan(new.clone()), 2, [3; 4], &address_shares).unwrap();
    assert_eq!(alike(&had, &second, &new), 8);
    assert_eq!(alike(&owners(&second, &new), &second, &new), 32);
    // Only addresses of one worker are left: the other would have none.
    let few: Vec<PoolRange> =
        old.iter().map(|r| PoolRange { last: Ipv4Addr::new(192, 0, 2, 9), ..*r }).collect();
    assert!(Shares::after(&first.steering, &plan(few.clone())).is_err());
    let anew = Shares::as_before(&plan(few.clone()), 2, [3; 4], &address_shares).unwrap();
    assert_eq!(owners(&anew, &few).values().collect::<Vec<_>>(), [&0, &1]);
    // Invalid entries of the distribution are ignored.
    let a = |n| Ipv4Addr::new(192, 0, 2, n);
    let wild = [(a(9), a(8), 0), (a(10), a(12), 7), (a(8), a(12), 1), (a(10), a(15), 0)];
    let has = owners(&Shares::as_before(&plan(old.clone()), 2, [3; 4], &wild).unwrap(), &old);
    assert_eq!(has.values().copied().collect::<Vec<_>>(), [1, 1, 1, 1, 1, 0, 0, 0]);
}

/// By default, an own address belongs to a pool. A host whose worker does not have that address reaches the
/// binding there. Any worker answers a ping.
#[test]
fn a_binding_of_an_own_address_is_reached_by_other_workers_hosts() {
    use crate::Instant;
    use crate::Nat;
    use crate::Reply;
    use crate::Verdict;
    let own4 = Ipv4Addr::new(192, 0, 2, 1);
    let udp = StaticBinding { transport: Transport::Udp, ..binding("2001:db8::1", own4.octets(), 53) };
    let whole = Plan {
        own4: Some(own4),
        nat64: vec![nat64(vec![udp])],
        ..plan(vec![range([192, 0, 2, 0], [192, 0, 2, 1], (1024, 65_535))])
    };
    let shares = Shares::new(&whole, 2, [5; 4]).unwrap();
    let mut workers: Vec<Nat> = shares.plans.iter().map(|plan| Nat::new(plan, [5; 4]).unwrap()).collect();
    let mut run = |worker: usize, packet: &[u8]| {
        let mut buffer = vec![0; gatun_wire::HEADROOM];
        buffer.extend(packet);
        buffer.extend([0; gatun_wire::TAILROOM]);
        let mut burst = [gatun_wire::Packet::new(&mut buffer, gatun_wire::HEADROOM, packet.len()).unwrap()];
        let mut verdicts = [Verdict::Pass];
        assert_eq!(workers[worker].process(Instant(1_000), &mut burst, &mut verdicts), 1);
        (verdicts[0], burst[0].bytes().to_vec())
    };
    let behind = Prefix64::WELL_KNOWN.embed(own4);
    let of_own4 = shares.steering.owner_after(&ip4([8, 8, 8, 8].into(), own4, 17, &[0; 8])).unwrap();
    let others = |host: &u128| shares.steering.owner(&udp6((*host).into(), behind), 0) == Some(1 - of_own4);
    let host = (1..100).map(|n: u128| 0x2001_0db8 << 96 | n << 64 | 7).find(others).unwrap();
    let mut to_port = |port: u16| {
        let mut packet = udp6(host.into(), behind);
        packet[40..44].copy_from_slice(&[0x20, 0, (port >> 8) as u8, port as u8]);
        packet[46] = 1; // some checksum
        let (left, bytes) = run(1 - of_own4, &packet);
        assert_eq!((left, shares.steering.owner_after(&bytes)), (Verdict::Forward, Some(of_own4)));
        run(of_own4, &bytes)
    };
    let (verdict, arrived) = to_port(53);
    assert_eq!((verdict, &arrived[24..40]), (Verdict::Forward, &udp.inside.0.octets()[..]));
    // Nothing is bound at these: a port of the pool, and one outside the pool.
    assert_eq!(to_port(5000).0, Verdict::Drop(gatun_wire::DropReason::NoBib));
    assert_eq!(to_port(80).0, Verdict::Reply(Reply::Error(gatun_wire::DropReason::OwnUdp)));
}
