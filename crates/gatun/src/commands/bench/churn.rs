//! What it costs that sessions are ended at random and open again, beside the same traffic without it: rounds of both
//! kinds in turn, in one run, so that a machine that becomes slower does so for both.

use super::driver::Driver;
use super::measure::{median, round};
use serde::Serialize;
use std::collections::VecDeque;

/// Rounds that an ended session stays away: by then nothing of it is in a cache any more.
const AWAY_ROUNDS: usize = 8;

/// What came out. Times are nanoseconds a packet, both directions alike.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    kills_per_second: u64,
    killed: u64,
    reopened: u64,
    ns_without: f64,
    ns_with: f64,
    /// Packets fewer in the same time, of a hundred: by the median of each pair of rounds' ratios.
    throughput_cost_percent: f64,
}

/// Which flows have no session at the moment.
struct Away {
    is_away: Vec<bool>,
    rounds: VecDeque<Vec<u64>>,
    /// Less than one session that is still to be ended.
    owed: f64,
    killed: u64,
    reopened: u64,
}

impl Away {
    fn new(flows: u64) -> anyhow::Result<Self> {
        let is_away = vec![false; usize::try_from(flows)?];
        let rounds = (0..AWAY_ROUNDS).map(|_| Vec::new()).collect();
        Ok(Away { is_away, rounds, owed: 0.0, killed: 0, reopened: 0 })
    }

    /// A flow with a session.
    fn any_here(&self, driver: &mut Driver) -> u64 {
        loop {
            let flow = driver.any();
            if !self.is_away[flow as usize] {
                return flow;
            }
        }
    }

    /// Flows with a session, as many as `choose` gives.
    fn choose(&self, driver: &mut Driver) -> Vec<u64> {
        let mut chosen = driver.choose();
        for flow in &mut chosen {
            if self.is_away[*flow as usize] {
                *flow = self.any_here(driver);
            }
        }
        chosen
    }

    /// Flows whose sessions are to be ended now, `kills` on average.
    fn send_away(&mut self, driver: &mut Driver, kills: f64) -> anyhow::Result<Vec<u64>> {
        self.owed += kills;
        let count = self.owed as u64;
        self.owed -= count as f64;
        let away = self.killed - self.reopened + count;
        anyhow::ensure!(
            away <= driver.flows().count / 2,
            "too few sessions for so many to be ended a second"
        );
        let mut gone = Vec::new();
        for _ in 0..count {
            let flow = self.any_here(driver);
            self.is_away[flow as usize] = true;
            gone.push(flow);
        }
        self.killed += count;
        Ok(gone)
    }
}

/// Pairs of rounds with and without, `rounds` of them.
///
/// # Errors
/// Where a packet does not come out as it must.
pub(super) fn measure(driver: &mut Driver, kills_per_second: u64, rounds: u64) -> anyhow::Result<Report> {
    let mut away = Away::new(driver.flows().count)?;
    let first = plain(driver, &away)?;
    let mut seconds = first.0 * first.1 / 1e9;
    // The first returns come after some rounds; those are no figure.
    for _ in 0..AWAY_ROUNDS {
        let (ns, packets) = churned(driver, &mut away, kills_per_second as f64 * seconds)?;
        seconds = ns * packets / 1e9;
    }
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for turn in 0..rounds {
        let kills = kills_per_second as f64 * seconds;
        let mut pair = [0.0; 2];
        // First one, then the other begins.
        for which in if turn % 2 == 0 { [0, 1] } else { [1, 0] } {
            let (ns, packets) = match which {
                0 => plain(driver, &away)?,
                _ => churned(driver, &mut away, kills)?,
            };
            pair[which] = ns;
            if which == 1 {
                seconds = ns * packets / 1e9;
            }
        }
        without.push(pair[0]);
        with.push(pair[1]);
    }
    let ratio = median(without.iter().zip(&with).map(|(without, with)| without / with).collect());
    Ok(Report {
        kills_per_second,
        killed: away.killed,
        reopened: away.reopened,
        ns_without: round(median(without)),
        ns_with: round(median(with)),
        throughput_cost_percent: round((1.0 - ratio) * 100.0),
    })
}

/// A round in both directions: nanoseconds a packet, and how many there were.
fn plain(driver: &mut Driver, away: &Away) -> anyhow::Result<(f64, f64)> {
    driver.now = driver.now.plus_ms(1);
    let chosen = away.choose(driver);
    let mut time = driver.outbound(&chosen, &[])?;
    let back = away.choose(driver);
    time += driver.inbound(&back, &[])?;
    let packets = (chosen.len() + back.len()) as f64;
    Ok((time.as_nanos() as f64 / packets, packets))
}

/// The same, while `kills` sessions are ended, and as many that were ended some rounds ago open again.
fn churned(driver: &mut Driver, away: &mut Away, kills: f64) -> anyhow::Result<(f64, f64)> {
    driver.now = driver.now.plus_ms(1);
    let mut gone = away.send_away(driver, kills / 2.0)?;
    let mut chosen = away.choose(driver);
    let back_now = away.rounds.pop_front().unwrap_or_default();
    anyhow::ensure!(back_now.len() <= chosen.len(), "more sessions are ended than packets sent");
    let spread = chosen.len() / back_now.len().max(1);
    for (place, &flow) in chosen.iter_mut().step_by(spread.max(1)).zip(&back_now) {
        *place = flow;
    }
    let mut time = driver.outbound(&chosen, &gone)?;
    back_now.iter().for_each(|&flow| away.is_away[flow as usize] = false);
    away.reopened += back_now.len() as u64;
    let gone_too = away.send_away(driver, kills / 2.0)?;
    let back = away.choose(driver);
    time += driver.inbound(&back, &gone_too)?;
    gone.extend(gone_too);
    away.rounds.push_back(gone);
    let packets = (chosen.len() + back.len()) as f64;
    Ok((time.as_nanos() as f64 / packets, packets))
}

impl Report {
    pub(super) fn print(&self) {
        println!(
            "  {} sessions ended a second ({} in all, {} opened again):",
            self.kills_per_second, self.killed, self.reopened
        );
        println!("    without              {:>10.1} ns/packet, both directions", self.ns_without);
        println!("    with                 {:>10.1} ns/packet", self.ns_with);
        println!("    cost                 {:>10.1} % of the packets", self.throughput_cost_percent);
    }
}
