//! Shards of a cluster: all nodes divide subscribers and addresses alike.

use super::*;
use std::string::String;

const SEED: [u64; 4] = [3, 1, 4, 1];

fn of(plan: &Plan, shards: u16) -> Plan {
    Plan { shards: Some(shards), ..plan.clone() }
}

fn sharded(plan: &Plan, workers: usize, shards: u16) -> Shares {
    Shares::new(&of(plan, shards), workers, SEED).unwrap()
}

/// Single addresses, by their last byte.
fn ranges(of: &std::collections::BTreeSet<u8>) -> Vec<PoolRange> {
    of.iter().map(|&n| range([192, 0, 2, n], [192, 0, 2, n], (1024, 2000))).collect()
}

proptest! {
    #[test]
    fn nodes_with_any_number_of_workers_divide_alike(
        addresses in prop::collection::btree_set(0u8..200, 16..60), log2 in 0u32..5, workers in 1usize..9,
    ) {
        let shards = 1u16 << log2;
        let workers = workers.min(shards.into());
        let plan = plan(ranges(&addresses));
        let (one, node) = (sharded(&plan, 1, shards), sharded(&plan, workers, shards));
        prop_assert_eq!(node.steering.shards(), usize::from(shards));
        for (n, &last) in addresses.iter().enumerate() {
            let address = Ipv4Addr::new(192, 0, 2, last);
            let shard = n * usize::from(shards) / addresses.len();
            let worker = shard * workers / usize::from(shards);
            prop_assert_eq!(one.steering.shard_of_address(address), Some(shard as u8));
            prop_assert_eq!(node.steering.shard_of_address(address), Some(shard as u8));
            prop_assert_eq!(node.steering.owner_of_address(address), Some(worker));
            for (number, share) in node.plans.iter().enumerate() {
                let has = share.pools[0].ranges.iter().any(|r| r.first <= address && address <= r.last);
                prop_assert_eq!(has, number == worker);
            }
        }
        for host in 0..300u128 {
            let inside = Ipv6Addr::from(0x2001_0db8 << 96 | host << 64 | 1);
            let shard = one.steering.shard_of_subscriber(0, inside);
            prop_assert_eq!(node.steering.shard_of_subscriber(0, inside), shard);
            let packet = udp6(inside, "64:ff9b::cb00:7107".parse().unwrap());
            let shard = usize::from(shard.unwrap());
            prop_assert!(shard < shards.into());
            prop_assert_eq!(node.steering.part_of(&packet, 0), Some(shard));
            prop_assert_eq!(node.steering.owner(&packet, 0), Some(shard * workers / usize::from(shards)));
        }
    }

    #[test]
    fn addresses_that_stay_keep_their_shards_in_a_reload_and_at_another_node(
        before in prop::collection::btree_set(0u8..60, 8..30),
        more in prop::collection::btree_set(60u8..120, 0..30),
    ) {
        let all: std::collections::BTreeSet<u8> = before.union(&more).copied().collect();
        let running = sharded(&plan(ranges(&before)), 2, 8).steering;
        let grown = of(&plan(ranges(&all)), 8);
        let reloaded = Shares::after(&running, &grown).unwrap().steering;
        let shares = running.address_shares();
        let joining = Shares::as_before(&grown, 3, SEED, &shares).unwrap().steering;
        prop_assert_eq!(reloaded.address_shares(), joining.address_shares());
        for last in before {
            let address = Ipv4Addr::new(192, 0, 2, last);
            prop_assert_eq!(reloaded.shard_of_address(address), running.shard_of_address(address));
        }
    }
}

#[test]
fn subscribers_are_spread_over_all_shards() {
    let steering =
        sharded(&plan(vec![range([192, 0, 0, 0], [192, 0, 0, 255], (1024, 65_535))]), 2, 256).steering;
    let mut each = [0u32; 256];
    for host in 0..25_600u128 {
        let inside = Ipv6Addr::from(0x2001_0db8 << 96 | host << 64 | 1);
        each[usize::from(steering.shard_of_subscriber(0, inside).unwrap())] += 1;
    }
    // 100 each on average; 5 standard deviations are 50.
    assert!(each.iter().all(|n| (50..150).contains(n)), "{each:?}");
}

#[test]
fn an_engine_without_a_cluster_has_one_shard() {
    let plan = plan(vec![range([192, 0, 2, 0], [192, 0, 2, 7], (1024, 65_535))]);
    let steering = Shares::new(&plan, 4, [3; 4]).unwrap().steering;
    assert_eq!((steering.shards(), steering.is_sharded()), (1, false));
    assert_eq!(steering.shard_of_address([192, 0, 2, 7].into()), Some(0));
    assert_eq!(steering.shard_of_address([192, 0, 2, 8].into()), None);
    assert_eq!(steering.shard_of_subscriber(0, "2001:db8::1".parse().unwrap()), Some(0));
}

#[test]
fn plans_that_cannot_be_divided_among_shards_are_refused_with_advice() {
    let refused =
        |plan: &Plan, workers, shards| Shares::new(&of(plan, shards), workers, SEED).err().unwrap().0;
    let mut eight = plan(vec![range([192, 0, 2, 0], [192, 0, 2, 7], (1024, 65_535))]);
    assert_eq!(refused(&eight, 1, 3), "3 shards: expected a power of two from 1 to 256");
    assert_eq!(refused(&eight, 1, 512), "512 shards: expected a power of two from 1 to 256");
    assert_eq!(refused(&eight, 9, 8), "9 workers: expected 1 to 8");
    assert_eq!(
        refused(&eight, 1, 16),
        "pool \"p\" has 8 addresses for 16 shards, and each needs its own: add addresses to the pool, or use \
         fewer shards"
    );
    eight.nat64 = vec![nat64(vec![
        binding("2001:db8:1::1", [192, 0, 2, 1], 80),
        binding("2001:db8:2::1", [192, 0, 2, 2], 80),
        binding("2001:db8:1::1", [192, 0, 2, 2], 81),
    ])];
    let why = refused(&eight, 1, 8);
    assert!(why.contains("static binding 3") && why.contains("are on another shard"), "{why}");
    eight.nat64 = vec![nat64(vec![
        binding("2001:db8:1::1", [192, 0, 2, 1], 80),
        binding("2001:db8:1::1", [192, 0, 2, 2], 81),
    ])];
    let why = refused(&eight, 1, 8);
    assert!(why.contains("shard 2 of 8 has no address"), "{why}");
    eight.nat64 = vec![nat64(vec![])];
    eight.pools[0].allocation = Allocation::Deterministic(crate::base::plan::Deterministic {
        inside: vec![Net6 { addr: "2001:db8::".parse().unwrap(), len: 56 }],
        subscriber_len: 56,
        overflow_per_address: 0,
        blocks: crate::base::plan::Blocks::default(),
    });
    assert!(refused(&eight, 1, 8).contains("use port blocks"));
}

#[test]
fn shards_of_a_running_cluster_keep_their_addresses_and_their_number() {
    let wide = plan(vec![range([192, 0, 2, 0], [192, 0, 2, 7], (1024, 65_535))]);
    let running = sharded(&wide, 2, 8).steering;
    let Err(Refused::Restart(why)) = Shares::after(&running, &of(&wide, 4)) else { panic!("accepted") };
    assert_eq!(why, ["the number of shards changes"]);
    let Err(Refused::Restart(why)) = Shares::after(&running, &wide) else { panic!("accepted") };
    assert_eq!(why, ["the number of shards changes"]);
    // Other nodes have the addresses of the present shards, so a new process does not divide them anew.
    let few = of(&plan(vec![range([192, 0, 2, 0], [192, 0, 2, 6], (1024, 65_535))]), 8);
    let why = Shares::as_before(&few, 2, SEED, &running.address_shares()).err().unwrap().0;
    assert!(why.contains("shard 7 of 8 would have no address"), "{why}");
    assert_eq!(running.addresses_of_shard(7), [([192, 0, 2, 7].into(), [192, 0, 2, 7].into())]);
}

#[test]
fn a_static_binding_pins_its_subscriber_to_the_shard_of_its_address() {
    let mut bound = plan(vec![range([192, 0, 2, 0], [192, 0, 2, 7], (1024, 65_535))]);
    let hosts: Vec<String> = (1..=8).map(|n| std::format!("2001:db8:{n}::1")).collect();
    let of = |n: u8, host: &String| binding(host, [192, 0, 2, n], 8000);
    bound.nat64 = vec![nat64((0..).zip(&hosts).map(|(n, host)| of(n, host)).collect())];
    let steering = sharded(&bound, 1, 8).steering;
    for (n, host) in (0u8..).zip(&hosts) {
        assert_eq!(steering.shard_of_subscriber(0, host.parse().unwrap()), Some(n));
        assert_eq!(steering.owner_of_session(0, host.parse().unwrap(), [192, 0, 2, n].into()), Some(0));
        let other = [192, 0, 2, (n + 1) % 8].into();
        assert_eq!(steering.owner_of_session(0, host.parse().unwrap(), other), None, "another shard's");
    }
}

#[test]
fn packets_to_own_and_exempt_addresses_belong_to_no_shard() {
    let own4 = Ipv4Addr::new(192, 0, 2, 254);
    let own6: Ipv6Addr = "2001:db8:ffff::1".parse().unwrap();
    let mut plan = plan(vec![range([192, 0, 2, 0], [192, 0, 2, 7], (1024, 65_535))]);
    (plan.own4, plan.own6) = (Some(own4), Some(own6));
    let net = |address: [u8; 4]| Net4 { addr: address.into(), len: 24 };
    let exempt = |address, transport, ports| Exemption { net: net(address), transport, ports };
    plan.nat44[0].exempt = vec![
        exempt([203, 0, 113, 0], None, None),
        exempt([198, 51, 100, 0], Some(Transport::Udp), Some((53, 53))),
    ];
    plan.nat64[0].pool6.push(Prefix64::new("2001:db8:ffff::".parse().unwrap(), 96).unwrap());
    let steering = sharded(&plan, 1, 8).steering;
    let host = Ipv4Addr::new(100, 64, 0, 1);
    let mine = steering.shard_of_subscriber(1, host.to_ipv6_mapped()).map(usize::from);
    let part = |packet: &[u8]| steering.part_of(packet, 0);
    let udp = |dst: [u8; 4], port| V4::new(host, dst.into()).packet(&Message::udp(1, port, b"x"));
    let error = |dst: [u8; 4]| {
        let quoted = V4::new(dst.into(), host).packet(&Message::udp(1, 2, b"x"));
        V4::new(host, dst.into()).packet(&Message::icmp((3, 3, 0), &quoted))
    };
    assert!(mine.is_some() && part(&udp([8; 4], 53)) == mine && part(&error([8; 4])) == mine);
    assert_eq!((part(&udp(own4.octets(), 53)), part(&error(own4.octets()))), (None, None));
    assert_eq!((part(&udp([203, 0, 113, 9], 1)), part(&error([203, 0, 113, 9]))), (None, None));
    assert_eq!(part(&udp([100, 64, 9, 9], 1)), None, "from an inside host to another one");
    // Only a packet to the port is exempt. The later fragments of a datagram have none.
    assert_eq!((part(&udp([198, 51, 100, 9], 53)), part(&udp([198, 51, 100, 9], 54))), (None, mine));
    let piece = V4 { df: false, mf: true, ..V4::new(host, [198, 51, 100, 9].into()) };
    assert_eq!(part(&piece.packet(&Message::udp(1, 53, b"12345678"))), mine);
    let six = |dst| part(&udp6("2001:db8:1::5".parse().unwrap(), dst));
    let embedded = |address| Prefix64::WELL_KNOWN.embed(address);
    assert!(six(embedded([8; 4].into())).is_some());
    assert_eq!((six(embedded(own4)), six(own6)), (None, None));
    // If the own address is also a pool's, its bindings come first.
    plan.own4 = Some([192, 0, 2, 7].into());
    let steering = sharded(&plan, 1, 8).steering;
    assert_eq!(steering.part_of(&udp([192, 0, 2, 7], 53), 0), mine);
}
