//! Histories: made from a seed, played, and shortened.

use super::setup::Setup;
use super::step::Op;
use super::switch::SwitchFault;
use super::world::World;
use crate::drive::rng::Rng;

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Number of the step.
    pub step: usize,
    /// Description.
    pub what: String,
}

const SYN: u8 = 2;
const ACK: u8 = 0x10;

/// The history of a seed.
pub fn history(seed: u64, steps: usize) -> Vec<Op> {
    let mut rng = Rng::new(seed ^ 0x0ff1_0ad0);
    let kills = !seed.is_multiple_of(3);
    (0..steps).map(|_| op(&mut rng, kills)).collect()
}

fn flags(rng: &mut Rng) -> u8 {
    match rng.below(12) {
        0 => ACK | 1,
        1 => 4,
        2..6 => SYN,
        _ => ACK,
    }
}

fn op(rng: &mut Rng, kills: bool) -> Op {
    let shard = rng.small(2);
    match rng.below(112) {
        0..26 => {
            let is_udp = rng.one_in(2);
            let is_six = rng.one_in(2);
            let six = rng.small(2);
            Op::Out {
                shard,
                host: rng.small(3),
                port: rng.small(3),
                server: rng.small(2),
                flags: (!is_udp).then(|| flags(rng)),
                six: is_six.then_some(six),
            }
        }
        26..42 => {
            let flags = if rng.one_in(2) { SYN | ACK } else { flags(rng) };
            Op::Back { shard, session: rng.small(12), flags }
        }
        42..46 => {
            let is_udp = rng.one_in(2);
            let flags = (!is_udp).then(|| flags(rng));
            Op::In { shard, server: rng.small(2), port: rng.small(8), flags }
        }
        46..54 => Op::Busy { packets: 1 + rng.small(5) },
        54..58 => {
            let most = rng.of(&[3, 1_500, 12_000, 400_000, 7_500_000]);
            Op::Pass { ms: rng.below(most) as u32 }
        }
        58..62 => Op::Sweep,
        62..65 => {
            let port = if rng.one_in(2) { Some(rng.small(3)) } else { None };
            Op::Clear { shard, port, bindings: rng.one_in(2) }
        }
        65..67 => Op::Reload,
        67..80 => Op::Turn,
        80..93 => Op::Work { shard, commands: 1 + rng.small(12) },
        93..95 => Op::Restore { shard },
        95..99 => Op::Settle,
        99 if kills => Op::KillManager { stray: rng.one_in(2) },
        100 if kills => Op::KillAll { stray: rng.one_in(2) },
        101 => Op::Refuse { flows: rng.small(4) },
        102..104 => Op::Room { shard, batches: rng.of(&[0, 1, 100]) },
        104..106 => Op::Enable(!rng.one_in(3)),
        106 => Op::Instance { number: rng.small(2), offloaded: !rng.one_in(3) },
        107 => Op::Limit(rng.of(&[0, 2, 6, 200])),
        108 => Op::Epoch(rng.small(3)),
        109 => Op::Storm { shard },
        _ => Op::Turn,
    }
}

/// The history of a seed with switches.
pub fn switch_history(seed: u64, steps: usize, switches: u8) -> Vec<Op> {
    let mut rng = Rng::new(seed ^ 0x5717_c4e5);
    let faults = !seed.is_multiple_of(4);
    let mut step = |op: Op| {
        let switch = rng.small(switches);
        match rng.below(20) {
            0..7 => Op::Serve { switch, requests: 1 + rng.small(3) },
            7 if faults => Op::Fault { switch, fault: fault(&mut rng) },
            8 => Op::Fault { switch, fault: SwitchFault::Refuse(rng.small(4)) },
            _ => op,
        }
    };
    let ops = history(seed, steps).into_iter().map(&mut step);
    // Beside the other steps, which stay the same.
    let mut of_port = Rng::new(seed ^ 0xecc0_ecc0);
    ops.flat_map(|op| with_port(op, &mut of_port, switches)).collect()
}

/// Adds what the port towards the engine does after a step. A switch that has executed requests may have new
/// entries: their flows move if packets come before and after those that the engine gives back.
fn with_port(op: Op, rng: &mut Rng, switches: u8) -> Vec<Op> {
    let loses = rng.one_in(4);
    let give_back = |switch, frames| Op::GiveBack { switch, frames, loses };
    match op {
        Op::Serve { switch, .. } if rng.one_in(3) => {
            let busy = Op::Busy { packets: 1 + rng.small(3) };
            vec![op, busy, give_back(switch, 10 * rng.small(6)), busy]
        }
        _ if rng.one_in(3) => vec![op, give_back(rng.small(switches), 1 + rng.small(6))],
        _ => vec![op],
    }
}

fn fault(rng: &mut Rng) -> SwitchFault {
    match rng.below(12) {
        0..4 => SwitchFault::Cut,
        4..9 => SwitchFault::Heal,
        9 => SwitchFault::Restart,
        10 => SwitchFault::Reboot,
        _ => SwitchFault::Meddle,
    }
}

/// Plays a history, and lets everything end. Returns the numbers of its world.
///
/// # Errors
/// Returns the first broken promise.
pub fn run(seed: u64, ops: &[Op], setup: impl Into<Setup>) -> Result<World, Failure> {
    let mut world = World::new(seed, setup.into());
    for (step, op) in ops.iter().enumerate() {
        world.play(op).map_err(|what| Failure { step, what })?;
    }
    world.end().map_err(|what| Failure { step: ops.len(), what })?;
    Ok(world)
}

/// Returns the shortest history found that still fails, and its failure.
pub fn shrink(seed: u64, ops: &[Op], setup: impl Into<Setup>) -> Option<(Vec<Op>, Failure)> {
    let setup = setup.into();
    let mut failure = run(seed, ops, setup).err()?;
    let mut ops = ops[..ops.len().min(failure.step + 1)].to_vec();
    let mut size = ops.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < ops.len() {
            let end = (at + size).min(ops.len());
            let candidate = [&ops[..at], &ops[end..]].concat();
            match run(seed, &candidate, setup) {
                Err(other) => {
                    ops = candidate[..candidate.len().min(other.step + 1)].to_vec();
                    failure = other;
                }
                Ok(_) => at += size,
            }
        }
        size /= 2;
    }
    Some((ops, failure))
}
