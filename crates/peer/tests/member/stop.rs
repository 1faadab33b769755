//! Histories of a box that is stopped, and goes on after the operator has declared it gone.

use crate::node::{DRIFT_MS, KERNEL_MS, Life, Variant, WORKERS};
use crate::world::{Faults, World};
use gatun_nat::rng::Rng;
use gatun_peer::ownership::Rules;
use gatun_testkit::packet::text::udp4;

/// Time without a byte after which a box closes a connection.
const DEAD_MS: u64 = 200;
/// The other member has no more before that.
const FENCE_MS: u32 = DEAD_MS as u32 + KERNEL_MS + DRIFT_MS;
/// A member that nobody answers goes on after this time.
const ASK_MS: u64 = 2_000;

fn world(seed: u64, fence_ms: u32) -> World {
    let variant = Variant {
        rules: Rules::default(),
        packets: 1 + (seed % 2) as u8,
        blocks: None,
        is_active_active: seed % 4 > 1,
        log_max: 64,
        ring: 512,
        fence_ms,
    };
    let faults = Faults { kills: false, power: false, breaks: false, releases: false };
    let mut world = World::new(seed, variant, faults);
    world.heal().unwrap();
    world
}

/// Gives a box packets of some of the hosts. Returns the number of those that it forwarded.
fn packets(world: &mut World, side: usize, hosts: std::ops::Range<u8>) -> usize {
    let packet = |host| udp4(&format!("10.0.{host}.1"), 4000, "198.51.100.1", 53, b"x");
    hosts.filter(|&host| world.send(side, &packet(host))).count()
}

/// Lets the boxes that run work, and time pass.
fn pass(world: &mut World, ms: u64) -> Result<(), String> {
    for _ in 0..ms.div_ceil(5) {
        world.now = world.now.plus_ms(5);
        for side in 0..2 {
            (0..WORKERS).for_each(|worker| world.work(side, worker, 1_000));
            world.turn(side);
            world.carry(side, usize::MAX);
        }
        world.check()?;
    }
    Ok(())
}

fn take_over(world: &mut World, side: usize) {
    let now = world.now.0;
    world.nodes[side].process.as_mut().unwrap().member.take_over(now).unwrap();
}

/// The owner is stopped, its peer declares it gone and assigns its ports, and it goes on with packets at
/// once. Returns the packets of its own sessions, and of new ones, that it forwarded afterwards.
fn stopped(seed: u64, fence_ms: u32) -> Result<(usize, usize), String> {
    let mut world = world(seed, fence_ms);
    let mut rng = Rng::new([seed, 5, 6, 7]);
    packets(&mut world, 0, 0..9);
    pass(&mut world, u64::from(rng.below(100)))?;
    // Some of the last ones have not been told.
    packets(&mut world, 0, 10..16);
    world.nodes[0].life = Life::Stopped;
    pass(&mut world, DEAD_MS)?;
    world.close(1);
    take_over(&mut world, 1);
    // All former sessions of the survivor end meanwhile, or few of them.
    pass(&mut world, u64::from(KERNEL_MS + DRIFT_MS) + 10 + u64::from(rng.below(2)) * 8_000)?;
    for n in 0..8 {
        packets(&mut world, 1, 100 + 10 * n..110 + 10 * n);
        pass(&mut world, 10)?;
    }
    world.come_back(0);
    // Its workers are faster than its member.
    packets(&mut world, 0, 20..40);
    world.check()?;
    pass(&mut world, u64::from(rng.below(300)))?;
    packets(&mut world, 0, 40..60);
    world.check()?;
    // The connection to its peer ended while it was stopped.
    world.close(0);
    world.connect();
    pass(&mut world, ASK_MS + 100)?;
    let own = packets(&mut world, 0, 0..16);
    world.check()?;
    Ok((own, packets(&mut world, 0, 60..90)))
}

#[test]
fn a_stopped_box_does_not_go_on_with_what_its_peer_has_got() {
    for seed in 0..40 {
        let forwarded = stopped(seed, FENCE_MS).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_eq!(forwarded, (0, 0), "seed {seed}");
    }
    let broken = (0..40).filter(|seed| stopped(*seed, 0).is_err()).count();
    assert!(broken > 20, "without the fence, ports have two hosts: {broken}");
}

/// Without the operator's word, a stopped box goes on as soon as its peer has greeted.
#[test]
fn a_stopped_box_goes_on_when_its_peer_has_answered() {
    let mut world = world(0, FENCE_MS);
    assert_eq!(packets(&mut world, 0, 0..5), 5);
    pass(&mut world, 50).unwrap();
    world.nodes[0].life = Life::Stopped;
    pass(&mut world, 5_000).unwrap();
    world.close(1);
    world.come_back(0);
    assert_eq!(packets(&mut world, 0, 0..5), 0, "before its member had a turn");
    pass(&mut world, 100).unwrap();
    assert_eq!(packets(&mut world, 0, 0..5), 0, "before the greeting");
    world.connect();
    pass(&mut world, 20).unwrap();
    assert_eq!(packets(&mut world, 0, 0..5), 5);
    assert!(packets(&mut world, 0, 20..30) > 5);
    world.heal().unwrap();
}

/// A peer that is off cannot answer.
#[test]
fn a_stopped_box_without_a_living_peer_goes_on_after_a_while() {
    let mut world = world(0, FENCE_MS);
    world.kill(1, false);
    world.close(0);
    pass(&mut world, 3_500).unwrap();
    assert_eq!(packets(&mut world, 0, 0..5), 5);
    world.nodes[0].life = Life::Stopped;
    pass(&mut world, 1_000).unwrap();
    world.come_back(0);
    pass(&mut world, ASK_MS - 100).unwrap();
    assert_eq!(packets(&mut world, 0, 0..5), 0, "it waits for an answer");
    pass(&mut world, 200).unwrap();
    assert_eq!(packets(&mut world, 0, 0..5), 5);
}

/// A short pause, and a box that has declared its peer gone, ask nobody.
#[test]
fn a_box_asks_nobody_after_a_short_pause_or_as_the_only_one() {
    let mut world = world(0, FENCE_MS);
    assert_eq!(packets(&mut world, 0, 0..5), 5);
    pass(&mut world, 50).unwrap();
    world.nodes[0].life = Life::Stopped;
    pass(&mut world, u64::from(FENCE_MS) - 20).unwrap();
    world.come_back(0);
    pass(&mut world, 10).unwrap();
    assert_eq!(packets(&mut world, 0, 0..5), 5, "a short pause");

    world.kill(1, false);
    world.close(0);
    take_over(&mut world, 0);
    pass(&mut world, u64::from(KERNEL_MS + DRIFT_MS) + 20).unwrap();
    world.nodes[0].life = Life::Stopped;
    pass(&mut world, 3_000).unwrap();
    world.come_back(0);
    assert_eq!(packets(&mut world, 0, 0..5), 5, "the only box");
}
