//! Ownership of the ports goes to the box that has had the sessions as a backup: planned, and after the owner
//! has gone.

use super::Args;
use super::boxes::{Order, PairedHost, until};
use super::source::{Traffic, UNLIMITED};
use super::sync::{open, packets};
use crate::measure::round;
use anyhow::{Context as _, ensure};
use gatun_peer::ownership::Member;
use serde::Serialize;
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// New sessions for which the tables have room beside those of the other box.
const NEW: u64 = 65_536;
/// Packets a second from the command on: half of them of the other box's sessions, half of new ones.
const PER_SECOND: u64 = 200_000;
/// Time of these packets after the command.
const DURING: Duration = Duration::from_millis(100);
/// Packets of random sessions whose processor time is measured.
const MEASURED: u64 = 65_536;

/// Results. Times are those from the command on.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    sessions: u64,
    /// Planned: until the other box owns the ports, in which time nobody assigns shared ones. The owner has
    /// no packets, or as many as its worker takes.
    release_ms: f64,
    release_busy_ms: f64,
    /// The owner is off: until the backup owns the ports, which changes its routes.
    owner_us: f64,
    /// Until it has sent the first packet of the other box's sessions.
    first_packet_us: f64,
    /// Until it has sent the first packet of a new session, at a port that only the owner assigns.
    owner_port_us: f64,
    /// Packets of both kinds, and those that were not translated.
    packets: u64,
    untranslated: u64,
    /// Processor time of packets of random sessions: their first and their second packet.
    first_ns: f64,
    next_ns: f64,
}

/// Has a box give its ports away. Returns the time until the other one owns them, ms.
fn release(from: &PairedHost, to: &PairedHost) -> anyhow::Result<f64> {
    let synced = |host: &PairedHost| anyhow::Ok(host.state()?.0.is_synced);
    until("both states", || Ok(synced(from)? && synced(to)?))?;
    let mut began = Instant::now();
    let at = to.owner_after(|| {
        began = Instant::now();
        from.order(Order::Release);
    })?;
    Ok(at.saturating_duration_since(began).as_secs_f64() * 1e3)
}

/// Processor time of a packet, ns, of packets up to a number since the present order.
fn ns_packet(backup: &PairedHost, given: u64, until_number: u64) -> anyhow::Result<f64> {
    let (ns, before) = (backup.workers.ns()?, packets(&backup.workers));
    backup.workers.orders.iter().for_each(|orders| orders.limit_packets(until_number));
    let all = given + until_number * backup.workers.orders.len() as u64;
    until("packets", || Ok(packets(&backup.workers) >= all))?;
    Ok((backup.workers.ns()? - ns) as f64 / (packets(&backup.workers) - before) as f64)
}

pub(super) fn measure(args: &Args, sessions: u64) -> anyhow::Result<Report> {
    let common = args.common(sessions + NEW, None)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let first = PairedHost::start(&common, Member::First, Ok(listener), true)?;
    let backup = PairedHost::start(&common, Member::Second, Err(address), false)?;
    until("the right to ports", || Ok(first.state()?.0.is_settled && backup.state()?.0.is_settled))?;
    open(&first.workers, sessions)?;
    let (sessions, _) = first.workers.count()?;
    until("the backup's sessions", || Ok(backup.workers.count()?.0 == sessions))?;
    let each = sessions / backup.workers.orders.len() as u64;
    backup.workers.orders.iter().for_each(|orders| orders.sessions.store(each, Ordering::Release));
    first.workers.order(Traffic::Existing, UNLIMITED)?;
    let release_busy_ms = release(&first, &backup)?;
    first.workers.order(Traffic::Off, 0)?;
    release(&backup, &first)?;
    let release_ms = release(&first, &backup)?;
    release(&backup, &first)?;
    first.stop()?;
    until("the end of the connection", || Ok(!backup.state()?.0.is_open))?;
    let report = take_over(&backup, (sessions, each), [release_ms, release_busy_ms])?;
    backup.stop()?;
    Ok(report)
}

/// The backup takes over, and has packets of the other box's sessions and of new ones from then on.
fn take_over(
    backup: &PairedHost,
    (sessions, each): (u64, u64),
    [release_ms, release_busy_ms]: [f64; 2],
) -> anyhow::Result<Report> {
    let workers = &backup.workers;
    let sent = || workers.sum(|orders| orders.sent.load(Ordering::Acquire));
    // The packets are prepared before the command.
    workers.order(Traffic::Mixed, 0)?;
    let (given_before, sent_before, mut began) = (packets(workers), sent(), Instant::now());
    let mut ordered = Ok(());
    let owner = backup.owner_after(|| {
        began = Instant::now();
        backup.order(Order::TakeOver);
        ordered = workers.order(Traffic::Mixed, PER_SECOND / workers.orders.len() as u64);
    })?;
    ordered?;
    std::thread::sleep(DURING);
    let times = workers.orders[0].times();
    workers.order(Traffic::Off, 0)?;
    let given = packets(workers) - given_before;
    until("the last packets", || Ok(packets(workers) == given_before + given))?;
    let (known, _) = workers.count()?;
    ensure!(known >= sessions, "{known} of {sessions} sessions are left");
    let untranslated = given - (sent() - sent_before);
    let us = |at: Instant| round(at.saturating_duration_since(began).as_secs_f64() * 1e6);
    workers.orders.iter().for_each(|orders| orders.sessions.store(each, Ordering::Release));
    workers.orders.iter().for_each(|orders| orders.limit_packets(1));
    let begin = packets(workers);
    workers.order(Traffic::Existing, UNLIMITED)?;
    Ok(Report {
        sessions,
        release_ms: round(release_ms),
        release_busy_ms: round(release_busy_ms),
        owner_us: us(owner),
        first_packet_us: us(times.sent.context("no packet was translated")?),
        owner_port_us: us(times.sent_as_owner.context("no new session has a shared port")?),
        packets: given,
        untranslated,
        first_ns: round(ns_packet(backup, begin, MEASURED)?),
        next_ns: round(ns_packet(backup, begin, 2 * MEASURED)?),
    })
}
