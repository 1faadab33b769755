//! Cost of sessions that end at random and are opened again. Rounds with and without churn take turns in one
//! run, so that a change in the machine's speed affects both.

use super::driver::Driver;
use super::measure::{median, round};
use serde::Serialize;
use std::collections::VecDeque;

/// Number of rounds that an ended session stays away: no cache contains any of it then.
const AWAY_ROUNDS: usize = 8;

/// Result. Times are nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    kills_per_second: u64,
    killed: u64,
    reopened: u64,
    /// Time of a packet, over both directions.
    ns_without: f64,
    ns_with: f64,
    /// Reduction of packets in the same time by churn, percent: median over the pairs of rounds.
    throughput_cost_percent: f64,
    /// Additional time of a round per ended session, among packets from outside: median.
    ns_per_end: f64,
    /// Additional time of a round per reopened session, among packets from inside: median.
    ns_per_reopening: f64,
}

/// One round: packets of each direction and churn.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    packets: f64,
    outbound_ns: f64,
    inbound_ns: f64,
    reopened: f64,
    ended: f64,
}

impl Round {
    fn seconds(&self) -> f64 {
        (self.outbound_ns + self.inbound_ns) / 1e9
    }

    fn ns_per_packet(&self) -> f64 {
        (self.outbound_ns + self.inbound_ns) / self.packets
    }
}

/// Flows that have no session at present.
struct EndedFlows {
    is_away: Vec<bool>,
    rounds: VecDeque<Vec<u64>>,
    /// Fraction of a session that is still to be ended.
    owed: f64,
    killed: u64,
    reopened: u64,
}

impl EndedFlows {
    fn new(flows: u64) -> anyhow::Result<Self> {
        let is_away = vec![false; usize::try_from(flows)?];
        let rounds = (0..AWAY_ROUNDS).map(|_| Vec::new()).collect();
        Ok(EndedFlows { is_away, rounds, owed: 0.0, killed: 0, reopened: 0 })
    }

    /// Random flow with a session.
    fn any_here(&self, driver: &mut Driver) -> u64 {
        loop {
            let flow = driver.any();
            if !self.is_away[flow as usize] {
                return flow;
            }
        }
    }

    /// Random flows with a session, a full set of buffers.
    fn choose(&self, driver: &mut Driver) -> Vec<u64> {
        let mut chosen = driver.choose();
        for flow in &mut chosen {
            if self.is_away[*flow as usize] {
                *flow = self.any_here(driver);
            }
        }
        chosen
    }

    /// Chooses flows whose sessions end now, `kills` on average.
    fn send_away(&mut self, driver: &mut Driver, kills: f64) -> anyhow::Result<Vec<u64>> {
        self.owed += kills;
        let count = self.owed as u64;
        self.owed -= count as f64;
        let away = self.killed - self.reopened + count;
        anyhow::ensure!(away <= driver.flows().count / 2, "too few sessions to end so many per second");
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

/// Measures `rounds` pairs of rounds, with and without churn.
///
/// # Errors
/// Returns an error if a translated packet is wrong.
pub(super) fn measure(driver: &mut Driver, kills_per_second: u64, rounds: u64) -> anyhow::Result<Report> {
    let mut away = EndedFlows::new(driver.flows().count)?;
    let rate = kills_per_second as f64;
    let mut last = churned(driver, &mut away, 0.0)?;
    // In the first rounds no session returns, so they are not measured.
    for _ in 0..AWAY_ROUNDS {
        last = churned(driver, &mut away, rate * last.seconds())?;
    }
    let mut pairs = Vec::new();
    for turn in 0..rounds {
        let kills = rate * last.seconds();
        let without_first = turn % 2 == 0;
        let mut without = Round::default();
        if without_first {
            without = plain(driver, &away)?;
        }
        last = churned(driver, &mut away, kills)?;
        if !without_first {
            without = plain(driver, &away)?;
        }
        pairs.push((without, last));
    }
    let of = |figure: fn(&(Round, Round)) -> f64| median(pairs.iter().map(figure).collect());
    let ratio = of(|(without, with)| without.ns_per_packet() / with.ns_per_packet());
    Ok(Report {
        kills_per_second,
        killed: away.killed,
        reopened: away.reopened,
        ns_without: round(of(|pair| pair.0.ns_per_packet())),
        ns_with: round(of(|pair| pair.1.ns_per_packet())),
        throughput_cost_percent: round((1.0 - ratio) * 100.0),
        ns_per_end: round(of(|(without, with)| (with.inbound_ns - without.inbound_ns) / with.ended.max(1.0))),
        ns_per_reopening: round(of(|(without, with)| {
            (with.outbound_ns - without.outbound_ns) / with.reopened.max(1.0)
        })),
    })
}

/// Runs a round in both directions.
fn plain(driver: &mut Driver, away: &EndedFlows) -> anyhow::Result<Round> {
    driver.now = driver.now.plus_ms(1);
    let chosen = away.choose(driver);
    let outbound_ns = driver.outbound(&chosen, &[])?.as_nanos() as f64;
    let back = away.choose(driver);
    let inbound_ns = driver.inbound(&back, &[])?.as_nanos() as f64;
    let packets = (chosen.len() + back.len()) as f64;
    Ok(Round { packets, outbound_ns, inbound_ns, ..Round::default() })
}

/// Runs a round with churn: `kills` sessions end between packets from outside, and as many that ended some
/// rounds ago open again among packets from inside.
fn churned(driver: &mut Driver, away: &mut EndedFlows, kills: f64) -> anyhow::Result<Round> {
    driver.now = driver.now.plus_ms(1);
    let mut chosen = away.choose(driver);
    let back_now = away.rounds.pop_front().unwrap_or_default();
    anyhow::ensure!(back_now.len() <= chosen.len(), "more sessions end than packets are sent");
    let spread = chosen.len() / back_now.len().max(1);
    for (place, &flow) in chosen.iter_mut().step_by(spread.max(1)).zip(&back_now) {
        *place = flow;
    }
    let outbound_ns = driver.outbound(&chosen, &[])?.as_nanos() as f64;
    back_now.iter().for_each(|&flow| away.is_away[flow as usize] = false);
    let (reopened, packets) = (back_now.len() as f64, chosen.len() as f64);
    away.reopened += back_now.len() as u64;
    let gone = away.send_away(driver, kills)?;
    let back = away.choose(driver);
    let inbound_ns = driver.inbound(&back, &gone)?.as_nanos() as f64;
    let (packets, ended) = (packets + back.len() as f64, gone.len() as f64);
    away.rounds.push_back(gone);
    Ok(Round { packets, outbound_ns, inbound_ns, reopened, ended })
}

impl Report {
    pub(super) fn print(&self) {
        println!(
            "  {} sessions ended per second ({} in total, {} opened again):",
            self.kills_per_second, self.killed, self.reopened
        );
        println!("    without churn        {:>10.1} ns/packet, both directions", self.ns_without);
        println!("    with churn           {:>10.1} ns/packet", self.ns_with);
        println!("    cost                 {:>10.1} % of the packets", self.throughput_cost_percent);
        println!("    end of a session     {:>10.1} ns more", self.ns_per_end);
        println!("    reopened session     {:>10.1} ns more than another packet", self.ns_per_reopening);
    }
}
