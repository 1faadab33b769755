//! Sessions that move into the switch and out of it by reloads, while numbered packets pass.

use crate::bed::Bed;
use crate::ends::{Load, StageResult};
use crate::middle::Gatun;
use crate::report::{Report, group};
use crate::run::Middle;
use crate::scenario::RunOptions;
use crate::scenario::carrier::{begin, build_up, config_with_room};
use crate::scenario::moves::{RATE, check};
use crate::switch::{CONTROLLER, state, wait_until_used};
use gatun_testkit::traffic::{Protocols, Sizes, Spec, Traffic};
use std::time::{Duration, Instant};

/// Time limit for all sessions to move.
const MOVED_MAX: Duration = Duration::from_secs(60);
const FLOWS_PER_SUBSCRIBER: u32 = 16;
/// Moves for each packet that may be reordered: a session without a gap moves after a second (decision 0111).
const MOVES_PER_REORDERED: u64 = 1000;

/// Traffic of UDP: the generator's TCP repeats its SYN, which always passes the engine, so later segments
/// could overtake it.
fn traffic(options: &RunOptions) -> Traffic {
    Traffic::new(Spec {
        family: options.family,
        subscribers: if options.brief { 16 } else { 64 },
        flows_per_subscriber: FLOWS_PER_SUBSCRIBER,
        protocols: Protocols::Udp,
        sizes: Sizes::Fixed(128),
        seed: 0x6d6f_7665,
    })
}

/// Plays the stage with a Gatun and a switch of its own, and adds its checks to the report.
pub(super) fn run(bed: &Bed, options: &RunOptions, report: &mut Report) -> anyhow::Result<StageResult> {
    let traffic = traffic(options);
    let flows = u64::from(traffic.flows());
    let without = config_with_room(bed, &traffic, 2 * flows);
    let with = format!("{without}\n{CONTROLLER}");
    let mut run = begin(bed, options, Middle::Switch(&with, flows), &traffic)?;
    build_up(&mut run, Load::Rate(RATE), flows);
    let reload = |gatun: &Gatun, config: &str| gatun.reload(&options.programs, "gatun", config);
    let switches = if options.brief { 2 } else { 25 };
    let (mut before, mut after) = (0, 0);
    let changed = run.stage_during("moves by reloads", Load::Rate(RATE), |gatun| {
        wait_until(|sessions| sessions >= flows)?;
        before = moves()?;
        for _ in 0..switches {
            reload(gatun, &without)?;
            wait_until(|sessions| sessions == 0)?;
            reload(gatun, &with)?;
            wait_until_used()?;
            wait_until(|sessions| sessions >= flows)?;
        }
        after = moves()?;
        Ok(())
    })?;
    let (accounts, _) = run.finish()?;
    report.account_with_moves(&accounts);
    let lost = changed.stage.lost().saturating_sub(changed.queue_drops);
    let moves = after.saturating_sub(before);
    check(report, moves, 2 * flows * switches, lost);
    let (reordered, most) = (changed.reordered, moves.div_ceil(MOVES_PER_REORDERED));
    let what =
        format!("{} moves reorder at most {} packets: {}", group(moves), group(most), group(reordered));
    report.check(reordered <= most, what);
    Ok(changed.stage)
}

/// Sessions that Gatun has moved so far, in both directions.
fn moves() -> anyhow::Result<u64> {
    let offload = state()?;
    Ok(offload.installed + offload.removed)
}

/// Waits until the switch has such a number of sessions.
fn wait_until(is_reached: impl Fn(u64) -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + MOVED_MAX;
    loop {
        let sessions = state()?.sessions;
        if is_reached(sessions) {
            return Ok(());
        }
        anyhow::ensure!(
            Instant::now() < deadline,
            "a reload did not move the sessions: the switch has {sessions}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
