//! Histories of the operator's word.

use crate::node::{KERNEL_MS, Variant, WORKERS};
use crate::world::{Faults, World};
use gatun_peer::ownership::Rules;
use gatun_testkit::packet::text::udp4;

/// Boxes that agree. A UDP session is told after some packets.
fn world(rules: Rules, packets: u8) -> World {
    let variant = Variant {
        rules,
        packets,
        blocks: None,
        is_active_active: false,
        log_max: 64,
        ring: 512,
        fence_ms: 0,
    };
    let faults = Faults { kills: false, power: false, breaks: false, releases: false };
    let mut world = World::new(0, variant, faults);
    world.heal().unwrap();
    world
}

/// Opens UDP sessions of hosts at a box. Returns the number of those that it forwarded.
fn open(world: &mut World, side: usize, hosts: std::ops::Range<u8>) -> usize {
    let packet = |host| udp4(&format!("10.0.{host}.1"), 4000, "198.51.100.1", 53, b"x");
    hosts.filter(|&host| world.send(side, &packet(host))).count()
}

/// Lets one box run, and time pass.
fn pass(world: &mut World, side: usize, ms: u64) {
    world.now = world.now.plus_ms(ms);
    (0..WORKERS).for_each(|worker| world.work(side, worker, 1_000));
    world.turn(side);
}

fn power_off(world: &mut World, side: usize) {
    world.kill(side, false);
    world.close(1 - side);
}

/// Sessions end, the other box loses its power, the operator says so. The box is back before the sweep has
/// found all ports that wait for it.
#[test]
fn ports_that_waited_before_the_operators_word_are_acknowledged_by_the_next_process() {
    // Walks and received records take turns, so both may be first.
    for turns in 0..2 {
        let mut world = world(Rules::default(), 1);
        assert_eq!(open(&mut world, 0, 0..9), 9);
        world.heal().unwrap();
        assert_eq!(world.all(1).len(), 9);

        power_off(&mut world, 1);
        pass(&mut world, 0, 6_000);
        pass(&mut world, 0, 6_000);
        world.word(0);
        pass(&mut world, 0, u64::from(KERNEL_MS) + 100);
        (0..5 + turns).for_each(|_| pass(&mut world, 0, 1));
        let waiting = world.nodes[0].process.as_ref().map_or(0, |process| process.workers.quarantined());
        assert!(waiting > 0, "ended sessions wait");
        // The boxes agree only when no port waits any more.
        world.heal().unwrap();
    }
}

/// The first box has sessions that the other one does not know, and loses its power. Its kernel goes on. The
/// operator says so at once, and the other box has packets of other hosts.
fn take_over_at_once(rules: Rules) -> Result<usize, String> {
    let mut world = world(rules, 2);
    assert!(open(&mut world, 0, 0..30) > 20);
    power_off(&mut world, 0);
    world.word(1);
    (0..9).for_each(|_| pass(&mut world, 1, 1));
    let before = open(&mut world, 1, 100..200);
    world.check()?;
    pass(&mut world, 1, u64::from(KERNEL_MS) + 100);
    (0..9).for_each(|_| pass(&mut world, 1, 1));
    let after = open(&mut world, 1, 100..200);
    world.check()?;
    Ok(after - before)
}

#[test]
fn the_operators_word_waits_for_the_lease_of_the_other_kernel() {
    let more = take_over_at_once(Rules::default()).unwrap();
    assert!(more > 0, "the shared range is assigned afterwards");
    let broken = take_over_at_once(Rules::without("wait_for_kernel").unwrap()).unwrap_err();
    assert!(broken.contains(" has "), "{broken}");
}

/// The first box is killed, the operator declares it gone, and it comes back with its sessions.
#[test]
fn a_box_that_was_declared_gone_assigns_nothing_while_it_has_its_sessions() {
    let mut world = world(Rules::default(), 1);
    assert_eq!(open(&mut world, 0, 0..5), 5);
    world.heal().unwrap();
    world.kill(0, true);
    world.close(1);
    let now = world.now.0;
    world.nodes[1].process.as_mut().unwrap().member.take_over(now).unwrap();
    pass(&mut world, 1, u64::from(KERNEL_MS) + 100);
    (0..9).for_each(|_| pass(&mut world, 1, 1));
    world.come_back(0);
    for round in 0..200 {
        if round % 50 == 0 {
            world.connect();
        }
        world.everything().unwrap();
    }
    let status = world.nodes[0].process.as_ref().unwrap().member.status(world.now.0);
    assert!(!status.is_settled && !status.is_open, "{status:?}");
    assert_eq!(open(&mut world, 0, 100..120), 0, "new sessions");
    assert_eq!(open(&mut world, 0, 0..5), 5, "sessions from before");
    assert!(open(&mut world, 1, 100..120) > 0);
    world.check().unwrap();
    // The other box loses its state, and with it the operator's word.
    power_off(&mut world, 1);
    world.heal().unwrap();
    assert!(open(&mut world, 0, 120..140) > 0, "new sessions");
}
