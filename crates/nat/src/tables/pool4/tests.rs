//! Tests of pools with single ports; those with blocks are in `ports/blocks/tests.rs`.

use super::*;
use crate::base::plan::{Pairing, PoolRange};
use crate::base::rng::Rng;
use proptest::prelude::*;
use std::collections::BTreeMap as Model;
use std::collections::BTreeSet as Set;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

const NOW: Instant = Instant(0);
const ALL: [bool; 3] = [true; 3];

fn range(first: &str, last: &str, ports: (u16, u16), transports: [bool; 3]) -> PoolRange {
    PoolRange { first: first.parse().unwrap(), last: last.parse().unwrap(), ports, transports }
}

fn plan(ranges: &[PoolRange], pairing: Pairing, port_parity: bool) -> Pool4 {
    Pool4 { name: "test".to_string(), ranges: ranges.to_vec(), pairing, port_parity, ..Pool4::default() }
}

fn pool(ranges: &[PoolRange]) -> Pool4State {
    Pool4State::new(&plan(ranges, Pairing::Soft, false), true).unwrap()
}

/// Allocates one port for a subscriber that is paired with `preferred`.
fn allocate(
    pool: &mut Pool4State,
    rng: &mut Rng,
    transport: Transport,
    preferred: Option<u32>,
    spread: u64,
    inside_port: u16,
) -> Result<(u32, u16), DropReason> {
    let mut holdings = Holdings::NONE;
    preferred.into_iter().for_each(|ix| holdings.pair(ix));
    let wanted = PortRequest {
        transport,
        inside_port,
        spread,
        subscriber: 0,
        prefix: 0,
        shard: 0,
        draws: [rng.next_u32(), rng.next_u32()],
    };
    pool.allocate(rng, NOW, &wanted, &mut holdings).map(|grant| (grant.address_ix, grant.port))
}

fn free(pool: &mut Pool4State, transport: Transport, ix: u32, port: u16) -> bool {
    pool.release(NOW, transport, ix, port, None).is_some()
}

fn rng() -> Rng {
    Rng::new([1, 2, 3, 4])
}

#[test]
fn addresses_are_numbered_in_order_without_gaps() {
    let ranges = [
        range("203.0.113.7", "203.0.113.7", (1, 2), ALL),
        range("192.0.2.0", "192.0.2.9", (1024, 2000), ALL),
        range("192.0.2.5", "192.0.2.14", (2001, 3000), ALL),
        range("255.255.255.255", "255.255.255.255", (1, 1), ALL),
        range("0.0.0.0", "0.0.0.0", (1, 1), ALL),
    ];
    let pool = pool(&ranges);
    assert_eq!(pool.addresses(), 18);
    let mut ix = 0;
    for a in 0..=255 {
        for high in [0, 0xc000_0200, 0xcb00_7100, 0xffff_ff00u32] {
            let a = Ipv4Addr::from(high | a);
            if ranges.iter().any(|r| r.first <= a && a <= r.last) {
                assert_eq!(pool.address_ix(a).map(|ix| pool.address(ix)), Some(a));
                ix += 1;
            } else {
                assert_eq!(pool.address_ix(a), None, "{a}");
            }
        }
    }
    assert_eq!(ix, 18);
    let in_order: Vec<Ipv4Addr> = (0..18).map(|ix| pool.address(ix)).collect();
    assert!(in_order.is_sorted());
    assert_eq!(pool.address(18), Ipv4Addr::UNSPECIFIED);
    assert_eq!(pool.address(u32::MAX), Ipv4Addr::UNSPECIFIED);
}

#[test]
fn ranges_may_share_addresses_but_not_their_ports() {
    let one = range("192.0.2.0", "192.0.2.9", (1024, 2000), ALL);
    let touching = range("192.0.2.5", "192.0.2.20", (2000, 3000), [true, false, false]);
    let error = Pool4State::new(&plan(&[touching, one], Pairing::Soft, false), true).err().unwrap();
    let address = "192.0.2.5".parse().unwrap();
    assert_eq!(error, PoolError::Overlap { address, transport: Transport::Tcp, port: 2000 });
    assert_eq!(error.to_string(), "two ranges hold tcp port 2000 of 192.0.2.5");
    let udp_only = PoolRange { transports: [false, true, false], ..one };
    pool(&[touching, udp_only]);
    let backwards = PoolRange { ports: (5, 4), ..one };
    let error = Pool4State::new(&plan(&[backwards], Pairing::Soft, false), true).err().unwrap();
    assert_eq!(error, PoolError::Backwards(backwards));
}

#[test]
fn a_pool_of_all_addresses_is_refused_without_harm() {
    let all = range("0.0.0.0", "255.255.255.255", (1, 65_535), ALL);
    let error = Pool4State::new(&plan(&[all], Pairing::Soft, false), true).err().unwrap();
    assert!(matches!(error, PoolError::OutOfMemory(_)));
}

// proves: R68-13, R47-3, R53-7
#[test]
fn every_port_of_a_pool_is_given_once_before_the_first_failure() {
    let mut pool = pool(&[
        range("192.0.2.0", "192.0.2.1", (1000, 5000), ALL),
        range("192.0.2.1", "192.0.2.2", (0, 500), [false, true, true]),
    ]);
    let mut rng = rng();
    for (transport, total) in [
        (Transport::Tcp, 2 * 4001),
        (Transport::Udp, 2 * 4001 + 2 * 500),
        (Transport::Icmp, 2 * 4001 + 2 * 501),
    ] {
        assert_eq!(pool.usage(transport), Usage { used: 0, total });
        let mut given = Set::new();
        for n in 0..total {
            let outside = allocate(&mut pool, &mut rng, transport, None, n << 40 | n, 40_000).unwrap();
            assert!(given.insert(outside), "{outside:?} twice");
            assert!(pool.covers(transport, outside.0, outside.1));
        }
        assert_eq!(pool.usage(transport), Usage { used: total, total });
        let next = allocate(&mut pool, &mut rng, transport, None, 0, 40_000);
        assert_eq!(next, Err(DropReason::PortsExhausted));
        for &(ix, port) in &given {
            assert!(free(&mut pool, transport, ix, port));
            assert!(!free(&mut pool, transport, ix, port));
        }
        assert_eq!(pool.usage(transport), Usage { used: 0, total });
    }
    assert_eq!(pool.counters().pairing_broken, 0, "no subscriber was paired");
}

#[test]
fn a_pool_without_a_transport_reports_pool_empty() {
    let mut pool = pool(&[range("192.0.2.0", "192.0.2.1", (0, 0), ALL)]);
    assert_eq!(allocate(&mut pool, &mut rng(), Transport::Tcp, None, 0, 5), Err(DropReason::PoolEmpty));
    assert_eq!(allocate(&mut pool, &mut rng(), Transport::Icmp, None, 0, 5), Ok((0, 0)));
}

// proves: A61-25, R47-3
#[test]
fn the_port_class_is_kept_while_it_lasts_and_then_any_port_does() {
    let mut pool = pool(&[range("192.0.2.0", "192.0.2.0", (1000, 1099), ALL)]);
    let mut rng = rng();
    for n in 0..100 {
        let (_, port) = allocate(&mut pool, &mut rng, Transport::Udp, Some(0), 0, 53).unwrap();
        assert_eq!(port < 1024, n < 24, "the {n}th is {port}");
    }
    assert!(allocate(&mut pool, &mut rng, Transport::Udp, Some(0), 0, 53).is_err());
}

// proves: A61-25, R47-4
#[test]
fn parity_is_kept_while_it_lasts_then_the_class() {
    let ranges = [range("192.0.2.0", "192.0.2.0", (1020, 1033), ALL)];
    let mut pool = Pool4State::new(&plan(&ranges, Pairing::Soft, true), true).unwrap();
    let mut rng = rng();
    let ports: Vec<u16> =
        (0..14).map(|_| allocate(&mut pool, &mut rng, Transport::Tcp, Some(0), 0, 4001).unwrap().1).collect();
    let (odd, rest) = ports.split_at(5);
    assert!(odd.iter().all(|p| p % 2 == 1 && *p >= 1024), "{ports:?}");
    let (even, low) = rest.split_at(5);
    assert!(even.iter().all(|p| p % 2 == 0 && *p >= 1024), "{ports:?}");
    assert!(low.iter().all(|p| *p < 1024), "{ports:?}");
}

// proves: A61-25
#[test]
fn a_paired_subscriber_keeps_its_address_over_ports_and_transports() {
    let mut pool = pool(&[range("192.0.2.0", "192.0.2.15", (1024, 65_535), ALL)]);
    let mut rng = rng();
    for n in 0..3000u16 {
        let transport = Transport::ALL[usize::from(n) % 3];
        assert_eq!(allocate(&mut pool, &mut rng, transport, Some(11), 0, n).unwrap().0, 11);
    }
    assert_eq!(pool.counters().pairing_broken, 0);
}

#[test]
fn soft_pairing_goes_on_to_the_next_address_and_hard_pairing_does_not() {
    let ranges = [range("192.0.2.0", "192.0.2.3", (2000, 2009), ALL)];
    let mut rng = rng();
    let mut hard = Pool4State::new(&plan(&ranges, Pairing::Hard, false), true).unwrap();
    let mut soft = Pool4State::new(&plan(&ranges, Pairing::Soft, false), true).unwrap();
    let mut used = vec![];
    for n in 0..41 {
        let at = allocate(&mut soft, &mut rng, Transport::Tcp, Some(2), 0, 4000).map(|(ix, _)| ix);
        used.extend(at.ok());
        let at = allocate(&mut hard, &mut rng, Transport::Tcp, Some(2), 0, 4000).map(|(ix, _)| ix);
        assert_eq!(at, if n < 10 { Ok(2) } else { Err(DropReason::PortsExhausted) });
    }
    let expected: Vec<u32> = [2, 3, 0, 1].into_iter().flat_map(|ix| [ix; 10]).collect();
    assert_eq!(used, expected, "no port is left after 40");
    assert_eq!((soft.counters().pairing_broken, hard.counters().pairing_broken), (30, 0));
    let both_2 = 2 << 62 | 2 << 30;
    let first = allocate(&mut hard, &mut rng, Transport::Tcp, None, both_2, 4000).unwrap();
    assert_eq!(first.0, 3, "a new subscriber is not bound to a full address");
}

#[test]
fn first_addresses_spread_evenly_and_come_back() {
    let mut pool = pool(&[range("192.0.2.0", "192.0.2.99", (1024, 65_535), ALL)]);
    let mut rng = rng();
    let mut seen = vec![0u32; 100];
    for _ in 0..10_000 {
        let spread = u64::from(rng.next_u32()) << 32 | u64::from(rng.next_u32());
        let (ix, port) = allocate(&mut pool, &mut rng, Transport::Udp, None, spread, 4000).unwrap();
        seen[ix as usize] += 1;
        let again = allocate(&mut pool, &mut rng, Transport::Udp, None, spread, 4000).unwrap();
        assert_eq!(again.0, ix);
        free(&mut pool, Transport::Udp, ix, port);
    }
    assert!(seen.iter().all(|s| (50..150).contains(s)), "{seen:?}");
}

#[test]
fn a_subscriber_starts_at_another_address_if_its_own_is_nearly_full() {
    let mut pool = pool(&[range("192.0.2.0", "192.0.2.1", (2000, 2099), ALL)]);
    let mut rng = rng();
    let to_0_else_1 = 1 << 31;
    for n in 0..100 {
        let (ix, _) = allocate(&mut pool, &mut rng, Transport::Tcp, None, to_0_else_1, 4000).unwrap();
        assert_eq!(ix, u32::from(n >= 75), "the {n}th");
    }
}

#[test]
fn reserved_ports_are_not_allocated() {
    let mut pool = pool(&[range("192.0.2.1", "192.0.2.1", (2000, 2003), ALL)]);
    let address = "192.0.2.1".parse().unwrap();
    pool.reserve(Transport::Tcp, address, 2001).unwrap();
    pool.reserve(Transport::Tcp, address, 443).unwrap();
    assert!(!pool.covers(Transport::Tcp, 0, 443));
    assert_eq!(pool.usage(Transport::Tcp), Usage { used: 1, total: 4 });
    assert_eq!(pool.reserve(Transport::Tcp, address, 443), Err(StaticBindingError::Taken));
    let elsewhere = "192.0.2.2".parse().unwrap();
    assert_eq!(pool.reserve(Transport::Tcp, elsewhere, 443), Err(StaticBindingError::NotInPool));
    let mut rng = rng();
    let given: Set<u16> =
        (0..3).map(|_| allocate(&mut pool, &mut rng, Transport::Tcp, None, 0, 443).unwrap().1).collect();
    assert_eq!(given, Set::from([2000, 2002, 2003]));
    assert!(allocate(&mut pool, &mut rng, Transport::Tcp, None, 0, 443).is_err());
    assert!(free(&mut pool, Transport::Tcp, 0, 443));
    assert!(allocate(&mut pool, &mut rng, Transport::Tcp, None, 0, 443).is_err(), "443 is not in the range");
    assert!(pool.claim(Transport::Udp, 0, 2001), "the other transport has another binding");
}

#[test]
fn a_member_of_a_pair_takes_the_port_that_the_look_ahead_has_requested_if_it_may() {
    use crate::tables::ports::rights::PortRight;
    let address = "192.0.2.0".parse().unwrap();
    let mut pool = pool(&[range("192.0.2.0", "192.0.2.0", (1024, 65_535), ALL)]);
    let (first, last) = (1024, 40_000);
    pool.set_rights(address, address, PortRight { first, last, is_owner: true }, |_| Some(0));
    let (mut rng, mut foretold) = (rng(), 0);
    for _ in 0..1_000 {
        let mut holdings = Holdings::NONE;
        holdings.pair(0);
        let draws = [rng.next_u32(), rng.next_u32()];
        let Ports::Single(single) = &pool.ports else { panic!("single ports") };
        let port = single.foretell(Transport::Udp, 0, 5000, draws);
        let wanted = PortRequest {
            transport: Transport::Udp,
            inside_port: 5000,
            spread: 0,
            subscriber: 0,
            prefix: 0,
            shard: 0,
            draws,
        };
        let given = pool.allocate(&mut rng, NOW, &wanted, &mut holdings).unwrap().port;
        assert!((first..=last).contains(&given), "{given}");
        assert!(given == port || !(first..=last).contains(&port), "{given} instead of {port}");
        foretold += usize::from(given == port);
    }
    // Three fifths of the ports are this member's.
    assert!(foretold > 500, "{foretold}");
}

#[test]
fn bindings_are_found_by_address_and_port() {
    let mut pool = pool(&[range("192.0.2.0", "192.0.2.9", (0, 65_535), ALL)]);
    for (n, port) in [(1, 0), (2, 1), (3, 65_535)] {
        for ix in [0, 9] {
            for transport in Transport::ALL {
                let record = n << 8 | ix << 4 | transport as u32;
                assert_eq!(pool.binding(transport, ix, port), 0);
                pool.set_binding(transport, ix, port, record);
                pool.prefetch_binding(transport, ix, port);
                assert_eq!(pool.binding(transport, ix, port), record);
            }
        }
    }
    assert!(pool.claim(Transport::Udp, 9, 65_535));
    assert!(free(&mut pool, Transport::Udp, 9, 65_535));
    assert_eq!(pool.binding(Transport::Udp, 9, 65_535), 0, "the binding ends with its port");
    assert_eq!(pool.binding(Transport::Udp, 10, 5), 0);
    pool.set_binding(Transport::Udp, u32::MAX, 5, 1);
    assert_eq!(pool.binding(Transport::Udp, u32::MAX, 5), 0);
    assert!(!free(&mut pool, Transport::Udp, u32::MAX, 5) && !pool.claim(Transport::Udp, 10, 5));
}

#[derive(Clone, Debug)]
enum Op {
    Allocate { transport: Transport, preferred: Option<u32>, spread: u64, inside_port: u16 },
    Release(prop::sample::Index),
    Claim { transport: Transport, ix: u32, port: u16 },
}

fn op() -> impl Strategy<Value = Op> {
    let transport = || prop_oneof![Just(Transport::Tcp), Just(Transport::Udp), Just(Transport::Icmp)];
    let allocate = (transport(), prop::option::of(0..6u32), any::<u64>(), any::<u16>()).prop_map(
        |(transport, preferred, spread, inside_port)| Op::Allocate {
            transport,
            preferred,
            spread,
            inside_port,
        },
    );
    let claim = (transport(), 0..7u32, 1010..1040u16).prop_map(|(transport, ix, port)| Op::Claim {
        transport,
        ix,
        port,
    });
    prop_oneof![5 => allocate, 3 => any::<prop::sample::Index>().prop_map(Op::Release), 1 => claim]
}

/// Existing ports, derived from the plan alone.
fn exist(ranges: &[PoolRange]) -> Set<(Transport, Ipv4Addr, u16)> {
    let one = |r: &PoolRange| {
        let (first, last) = (u32::from(r.first), u32::from(r.last));
        let (ports, transports) = (r.ports, r.transports);
        Transport::ALL.into_iter().filter(move |&t| transports[t as usize]).flat_map(move |t| {
            (first..=last).flat_map(move |a| (ports.0..=ports.1).map(move |p| (t, Ipv4Addr::from(a), p)))
        })
    };
    ranges.iter().flat_map(one).collect()
}

proptest! {
    #[test]
    fn pool_agrees_with_a_set_of_ports(
        ops in prop::collection::vec(op(), 1..400),
        hard in any::<bool>(),
        parity in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let ranges = [
            range("192.0.2.1", "192.0.2.3", (1015, 1030), ALL),
            range("192.0.2.2", "192.0.2.2", (1031, 1033), [true, false, true]),
            range("198.51.100.1", "198.51.100.3", (5000, 5009), [false, true, true]),
        ];
        let pairing = if hard { Pairing::Hard } else { Pairing::Soft };
        let mut pool = Pool4State::new(&plan(&ranges, pairing, parity), true).unwrap();
        let mut rng = Rng::new([seed; 4]);
        let exist = exist(&ranges);
        let mut used: Model<(Transport, Ipv4Addr, u16), u32> = Model::new();
        for op in ops {
            match op {
                Op::Allocate { transport, preferred, spread, inside_port } => {
                    let free = |a: Option<Ipv4Addr>| exist.iter().any(|k| {
                        k.0 == transport && a.is_none_or(|a| a == k.1) && !used.contains_key(k)
                    });
                    let paired = preferred.map(|ix| pool.address(ix));
                    let own_free = paired.is_some_and(|a| free(Some(a)));
                    let may_have = free(paired.filter(|_| hard));
                    match allocate(&mut pool, &mut rng, transport, preferred, spread, inside_port) {
                        Ok((ix, port)) => {
                            let key = (transport, pool.address(ix), port);
                            prop_assert!(exist.contains(&key));
                            prop_assert!(used.insert(key, ix).is_none());
                            if own_free {
                                prop_assert_eq!(Some(ix), preferred);
                            }
                        }
                        Err(e) => {
                            prop_assert_eq!(e, DropReason::PortsExhausted);
                            prop_assert!(!may_have);
                        }
                    }
                }
                Op::Release(which) if !used.is_empty() => {
                    let (&key, &ix) = used.iter().nth(which.index(used.len())).unwrap();
                    used.remove(&key);
                    prop_assert!(free(&mut pool, key.0, ix, key.2));
                }
                Op::Release(_) => {}
                Op::Claim { transport, ix, port } => {
                    let key = (transport, pool.address(ix), port);
                    let expected = ix < 6 && !used.contains_key(&key);
                    prop_assert_eq!(pool.claim(transport, ix, port), expected);
                    if expected {
                        used.insert(key, ix);
                    }
                }
            }
            for transport in Transport::ALL {
                let count = used.keys().filter(|k| k.0 == transport && exist.contains(k)).count();
                prop_assert_eq!(pool.usage(transport).used, count as u64);
                let by_address: u64 = (0..6).map(|ix| pool.address_usage(transport, ix).used).sum();
                prop_assert_eq!(by_address, count as u64);
            }
        }
    }
}

proptest! {
    #[test]
    fn the_addresses_between_two_are_found_in_a_new_and_in_a_changed_pool(
        before in prop::collection::btree_set(0u8..40, 1..20),
        after in prop::collection::btree_set(0u8..40, 1..20),
        first in 0u8..40, last in 0u8..40,
    ) {
        let at = |n: u8| Ipv4Addr::new(192, 0, 2, n);
        let ranges = |set: &Set<u8>| -> Vec<PoolRange> {
            set.iter().map(|&n| range(&at(n).to_string(), &at(n).to_string(), (1024, 2000), ALL)).collect()
        };
        let new = AddressMap::new(&ranges(&before)).unwrap();
        let changed = new.after(&ranges(&after), 100).unwrap();
        for (map, set) in [(&new, &before), (&changed, &after)] {
            let found: Vec<_> = map.between(at(first), at(last)).collect();
            let expected = set.iter().filter(|n| (first..=last).contains(*n));
            let expected: Vec<_> = expected.map(|&n| (map.address_ix(at(n)).unwrap(), at(n))).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
