//! A fault while numbered packets pass.

use super::faults::Fault;
use super::lab::{Lab, PATIENCE, Redirected};
use super::nodes;
use crate::scenario::probe::{self, Probe, QUIET};
use crate::scenario::upgrade::Builds;
use anyhow::Context as _;
use gatun_testkit::wait_until;
use std::time::{Duration, Instant};

/// Result of a fault.
pub(super) struct Outcome {
    pub(super) probe: probe::Outcome,
    /// Shares of the packets that were redirected before the fault.
    pub(super) redirected: Redirected,
    /// Time until the shards of the node had other owners.
    pub(super) claimed: Option<Duration>,
    /// Time from the end of the fault until each shard had an owner and a ready backup.
    pub(super) whole: Duration,
}

/// Sends packets before a fault, while it lasts, and after it.
pub(super) fn play(
    lab: &mut Lab<'_>,
    fault: &Fault,
    hold: Duration,
    builds: Option<&Builds>,
) -> anyhow::Result<Outcome> {
    let builds = builds.filter(|_| fault.from_former);
    if let Some(builds) = builds {
        lab.start_former().and_then(|()| builds.all_former(&lab.sockets())).with_context(|| fault.name)?;
    }
    let outcome = during(lab, fault, hold).with_context(|| fault.name)?;
    builds.map_or(Ok(()), |builds| builds.all_new(&lab.sockets())).with_context(|| fault.name)?;
    Ok(outcome)
}

fn during(lab: &mut Lab<'_>, fault: &Fault, hold: Duration) -> anyhow::Result<Outcome> {
    let mut probe = Probe::start(lab.net, &lab.load)?;
    let redirected = lab.redirected()?;
    probe.next()?;
    let begun = Instant::now();
    (fault.begin)(lab)?;
    if fault.is_avoided {
        lab.wait_until_avoided(0)?;
    }
    let mut claimed = None;
    if fault.is_claimed {
        let others = || (1..lab.count()).all(|other| nodes::owns_nothing(0, other));
        wait_until("the node's shards have other owners", PATIENCE, others)?;
        claimed = Some(begun.elapsed());
    }
    std::thread::sleep(hold);
    if fault.has_new_connections {
        lab.open().context("while the fault lasts")?;
    }
    probe.next()?;
    let ended = Instant::now();
    (fault.end)(lab)?;
    lab.settle()?;
    let whole = ended.elapsed();
    std::thread::sleep(QUIET);
    Ok(Outcome { probe: probe.end()?, redirected, claimed, whole })
}
