//! Sessions that begin and end at a rate, in a pair and in a box without one at the same time.

use super::Args;
use super::boxes::{PairedHost, Workers, until};
use super::source::Traffic;
use crate::measure::round;
use anyhow::{Context as _, ensure};
use gatun_peer::ownership::Member;
use gatun_worker::Clock;
use serde::Serialize;
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest time in which the sweep finds an expired session, seconds.
const SWEEP_S: f64 = 4.0;
/// Longest time until an end is acknowledged, seconds.
const ACKNOWLEDGED_S: f64 = 4.0;

/// Results. Processor times are those of threads, in percent of one processor.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// New sessions, and ends, per second.
    per_second: f64,
    ends_per_second: f64,
    seconds: f64,
    sessions: u64,
    /// Bytes at the sockets for a session and its end: from the owner, and acknowledgements.
    bytes_per_session: f64,
    bytes_back_per_session: f64,
    /// Worker of a box without a pair.
    alone_worker_percent: f64,
    owner_worker_percent: f64,
    owner_member_percent: f64,
    backup_worker_percent: f64,
    backup_member_percent: f64,
    /// Cost of the pair at each side: the member, and the difference of the workers.
    owner_percent: f64,
    backup_percent: f64,
    /// Time from a session's first packet until the backup has the session, ms.
    lag_p50_ms: f64,
    lag_p99_ms: f64,
}

struct Counts {
    at: Instant,
    ns: [u64; 5],
    told: u64,
    ends: u64,
    bytes: [u64; 2],
    opened: u64,
}

/// Seconds of sessions whose lag is measured, after the processor times.
const LAG_S: f64 = 2.0;
/// Time between two looks at the number of opened sessions.
const LAG_EVERY: Duration = Duration::from_micros(500);

struct Hosts {
    owner: PairedHost,
    backup: PairedHost,
    alone: Workers,
}

impl Hosts {
    fn counts(&self) -> anyhow::Result<Counts> {
        let Hosts { owner, backup, alone } = self;
        let (status, link) = owner.state()?;
        let ns =
            [alone.ns()?, owner.workers.ns()?, owner.member.ns()?, backup.workers.ns()?, backup.member.ns()?];
        Ok(Counts {
            at: Instant::now(),
            ns,
            told: status.counters.sessions_told,
            ends: status.counters.ends_told,
            bytes: [link.bytes_sent, link.bytes_received],
            opened: self.opened(),
        })
    }

    fn opened(&self) -> u64 {
        self.owner.workers.sum(|orders| orders.sessions.load(Ordering::Acquire))
    }

    /// Median and 99th percentile of the lag of sessions, ms.
    fn lag(&self) -> anyhow::Result<[f64; 2]> {
        let (end, mut opened) = (Instant::now() + Duration::from_secs_f64(LAG_S), Vec::new());
        let received = self.backup.trace(|| {
            while Instant::now() < end {
                opened.push((Instant::now(), self.opened()));
                std::thread::sleep(LAG_EVERY);
            }
        });
        lag(&opened, &received).context("no session was told while the lag was measured")
    }

    /// Begins sessions at both owners.
    fn begin(&self, per_second: u64) -> anyhow::Result<()> {
        let traffic = if per_second == 0 { Traffic::Off } else { Traffic::New };
        for workers in [&self.owner.workers, &self.alone] {
            workers.orders.iter().for_each(|orders| orders.limit(u64::MAX));
            workers.order(traffic, per_second / workers.orders.len() as u64)?;
        }
        Ok(())
    }
}

pub(super) fn measure(args: &Args) -> anyhow::Result<Report> {
    let room_s = args.lifetime_s + SWEEP_S + ACKNOWLEDGED_S;
    let room = (args.per_second as f64 * room_s) as u64;
    let common = args.common(room, Some(args.lifetime_s))?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let owner = PairedHost::start(&common, Member::First, Ok(listener), true)?;
    let backup = PairedHost::start(&common, Member::Second, Err(address), false)?;
    let boxes = Hosts { owner, backup, alone: Workers::start(&common, Clock::new(), false)? };
    until("the boxes agree", || Ok(boxes.owner.state()?.0.is_synced && boxes.backup.state()?.0.is_synced))?;
    boxes.begin(args.per_second)?;
    std::thread::sleep(Duration::from_secs_f64(args.lifetime_s + SWEEP_S));
    let before = boxes.counts()?;
    std::thread::sleep(Duration::from_secs_f64(args.seconds));
    let after = boxes.counts()?;
    let (sessions, _) = boxes.backup.workers.count()?;
    let [lag_p50_ms, lag_p99_ms] = boxes.lag()?.map(round);
    boxes.begin(0)?;
    check(&boxes)?;
    let seconds = (after.at - before.at).as_secs_f64();
    let percent = |n: usize| round((after.ns[n] - before.ns[n]) as f64 / seconds / 1e7);
    let told = (after.told - before.told) as f64;
    let bytes = |n: usize| round((after.bytes[n] - before.bytes[n]) as f64 / told.max(1.0));
    let [alone, owner_worker, owner_member, backup_worker, backup_member] = [0, 1, 2, 3, 4].map(percent);
    let report = Report {
        per_second: round((after.opened - before.opened) as f64 / seconds),
        ends_per_second: round((after.ends - before.ends) as f64 / seconds),
        seconds: round(seconds),
        sessions,
        bytes_per_session: bytes(0),
        bytes_back_per_session: bytes(1),
        alone_worker_percent: alone,
        owner_worker_percent: owner_worker,
        owner_member_percent: owner_member,
        backup_worker_percent: backup_worker,
        backup_member_percent: backup_member,
        owner_percent: round(owner_worker - alone + owner_member),
        backup_percent: round(backup_worker + backup_member),
        lag_p50_ms,
        lag_p99_ms,
    };
    let Hosts { owner, backup, alone } = boxes;
    owner.stop()?;
    backup.stop()?;
    alone.stop()?;
    Ok(report)
}

/// Median and 99th percentile of the lag, ms. Both lists have times, and the number of sessions opened or
/// received until then.
fn lag(opened: &[(Instant, u64)], received: &[(Instant, u64)]) -> Option<[f64; 2]> {
    // Lag of the last session of each group, with the number of its sessions.
    let mut lags = Vec::new();
    for (before, (at, number)) in received.iter().zip(received.iter().skip(1)) {
        // The first look that has the session: it was opened in the half of a ms before.
        let seen = opened.partition_point(|(_, opened)| opened < number);
        if let Some((then, _)) = opened.get(seen).filter(|_| seen > 0) {
            lags.push((at.saturating_duration_since(*then).as_secs_f64() * 1e3, number - before.1));
        }
    }
    lags.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: u64 = lags.iter().map(|(_, sessions)| sessions).sum();
    let quantile = |share: f64| {
        let (mut seen, wanted) = (0, (total as f64 * share).ceil() as u64);
        lags.iter().find_map(|(lag, sessions)| {
            seen += sessions;
            (seen >= wanted.max(1)).then_some(*lag)
        })
    };
    Some([quantile(0.5)?, quantile(0.99)?])
}

/// Waits until all sessions have ended at both boxes, and checks that nothing was lost.
fn check(boxes: &Hosts) -> anyhow::Result<()> {
    until("the end of all sessions", || {
        let counts = [boxes.owner.workers.count()?, boxes.backup.workers.count()?];
        Ok(counts == [(0, 0); 2])
    })?;
    let of_owner = boxes.owner.state()?.0.counters;
    let of_backup = boxes.backup.state()?.0.counters;
    let opened = boxes.opened();
    ensure!(of_owner.lost == 0, "the ring lost records: {of_owner:?}");
    ensure!(
        of_owner.sessions_told == opened && of_backup.sessions_received == opened,
        "{opened} sessions were opened: {of_owner:?}, {of_backup:?}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_is_the_time_from_opened_to_received() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let opened: Vec<_> = (0..=100).map(|ms| (at(ms), 10 * ms)).collect();
        // 98 groups of ten after 3 ms, and two that wait.
        let mut received: Vec<_> = (0..=98).map(|ms| (at(ms + 3), 10 * ms)).collect();
        received.push((at(130), 1_000));
        assert_eq!(lag(&opened, &received), Some([3.0, 30.0]));
        assert_eq!(lag(&opened, &received[..1]), None);
    }
}
