//! Ways of packets while nodes fail: routers and nodes choose them by [`Places`].

use crate::boxes::{Life, SHARDS, TIMING, Variant};
use crate::world::World;
use gatun_cluster::ClusterRules;
use gatun_cluster::node::Places;
use gatun_nat::redirect::Place;

/// Time after which a silent node is noticed, and what the boxes' clocks and steps add to it, ms.
const NOTICED_MS: u64 = 180;

fn whole(nodes: usize) -> World {
    let rules = ClusterRules::default();
    let mut world = World::new(
        7,
        Variant { nodes, rules, packets: 1, log_max: 64, ring: 512, is_clock_suspended: false },
    );
    world.heal().unwrap();
    world
}

fn shards() -> std::ops::Range<u8> {
    0..SHARDS as u8
}

/// Shards of which a node says that nobody else may own them.
fn own(places: &Places) -> Vec<u8> {
    shards().filter(|shard| places.owned.contains(*shard) && !places.lapsed.contains(*shard)).collect()
}

/// Routers prefer nodes that are not cut off. Packets of each shard that arrive there reach a holder.
fn arrive(world: &World, nodes: &[usize]) {
    for at in nodes {
        let places = world.places(*at);
        assert!(!places.is_cut, "{at}");
        for shard in shards() {
            let to = match places.translated[usize::from(shard)] {
                Place::Here => *at,
                Place::Node(to) => to.into(),
                Place::Nowhere => panic!("{at}: shard {shard} is nowhere"),
            };
            let there = world.places(to);
            assert!(nodes.contains(&to), "{at}: shard {shard} is at {to}");
            assert!(there.owned.union(there.backed).contains(shard), "{to} has no shard {shard}");
        }
    }
}

/// At most one node announces a shard as its own.
fn one_owner(world: &World, nodes: usize) {
    let all: Vec<u8> = (0..nodes).flat_map(|number| own(&world.places(number))).collect();
    shards().for_each(|shard| assert!(all.iter().filter(|one| **one == shard).count() <= 1, "{all:?}"));
}

#[test]
fn a_silent_node_gets_no_packets_long_before_its_lease_ends() {
    let mut world = whole(3);
    arrive(&world, &[0, 1, 2]);
    // Connections stay open: nothing tells that it is gone.
    world.stop(0);
    world.wait(NOTICED_MS).unwrap();
    assert!(matches!(world.machines[0].life, Life::Stopped));
    arrive(&world, &[1, 2]);
    assert!(u64::from(TIMING.timing.lease_ms) > NOTICED_MS);
}

#[test]
fn a_node_that_is_cut_off_says_so_and_keeps_no_shard_that_another_one_gets() {
    let mut world = whole(3);
    let owned = own(&world.places(0));
    assert!(!owned.is_empty());
    world.cut(0, true);
    world.wait(NOTICED_MS).unwrap();
    assert!(world.places(0).is_cut);
    arrive(&world, &[1, 2]);
    assert_eq!(own(&world.places(0)), owned, "its lease goes on");
    let hold_ms = u64::from(TIMING.hold_ms);
    for _ in 0..hold_ms / 10 {
        world.wait(10).unwrap();
        one_owner(&world, 3);
        arrive(&world, &[1, 2]);
    }
    assert_eq!(own(&world.places(0)), [0; 0]);
    assert!(shards().all(|shard| [1, 2].iter().any(|number| own(&world.places(*number)).contains(&shard))));
    world.heal().unwrap();
    arrive(&world, &[0, 1, 2]);
}

#[test]
fn a_node_that_reaches_the_coordinator_alone_says_that_it_is_cut_off() {
    let mut world = whole(3);
    world.cut(0, false);
    world.wait(NOTICED_MS).unwrap();
    assert!(world.places(0).is_cut);
    arrive(&world, &[1, 2]);
}

#[test]
fn nobody_gives_way_while_nobody_is_better() {
    let mut world = whole(3);
    let before: Vec<_> = (0..3).map(|number| own(&world.places(number))).collect();
    world.coordinator_away(true);
    for _ in 0..20 {
        world.wait(u64::from(TIMING.hold_ms / 10)).unwrap();
        arrive(&world, &[0, 1, 2]);
        assert_eq!((0..3).map(|number| own(&world.places(number))).collect::<Vec<_>>(), before);
    }
    // Of two nodes, each has all shards.
    let mut world = whole(2);
    world.cut(0, true);
    world.wait(u64::from(TIMING.hold_ms / 2)).unwrap();
    assert!((0..2).all(|number| !world.places(number).is_cut));
}

#[test]
fn packets_avoid_a_broken_node_at_once_and_its_shards_leave_it_later() {
    let mut world = whole(3);
    let mine = own(&world.places(0));
    let avoid = |world: &World| {
        for at in [1, 2] {
            let to = |shard: &u8| world.places(at).translated[usize::from(*shard)];
            assert!(shards().all(|shard| to(&shard) != Place::Node(0)), "{at}");
        }
    };
    world.set_broken(0, true);
    world.wait(50).unwrap();
    avoid(&world);
    arrive(&world, &[1, 2]);
    assert_eq!(own(&world.places(0)), mine);
    // It was a short fault.
    world.set_broken(0, false);
    world.wait(1_000).unwrap();
    assert_eq!(own(&world.places(0)), mine);
    arrive(&world, &[0, 1, 2]);

    world.set_broken(0, true);
    for _ in 0..60 {
        world.wait(50).unwrap();
        avoid(&world);
        arrive(&world, &[1, 2]);
    }
    let places = world.places(0);
    assert!(places.owned.union(places.backed).is_empty(), "{places:?}");
    world.settle().unwrap();
    // Without a node that is better, nothing moves.
    [1, 2].into_iter().for_each(|number| world.set_broken(number, true));
    let before = [1, 2].map(|number| own(&world.places(number)));
    world.wait(2_000).unwrap();
    assert_eq!([1, 2].map(|number| own(&world.places(number))), before);
    (0..3).for_each(|number| world.set_broken(number, false));
    world.wait(3_000).unwrap();
    world.settle().unwrap();
    assert!(!own(&world.places(0)).is_empty());
}
