//! All sessions of a box to an empty one, while packets go on.

use super::Args;
use super::boxes::{PairedHost, Workers, until};
use super::source::{Orders, Traffic, UNLIMITED};
use crate::measure::{progress, round};
use anyhow::ensure;
use gatun_peer::ownership::Member;
use serde::Serialize;
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Results. Times of processors are those of threads.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    sessions: u64,
    /// Time from the beginning of the connection until the empty box has all sessions.
    seconds: f64,
    sessions_per_second: f64,
    /// Bytes from the first box to the empty one at the socket, for a session.
    bytes_per_session: f64,
    /// Processor time for a session, ns: of the first box's member, and of both threads of the empty box.
    ns_member: f64,
    ns_empty_member: f64,
    ns_empty_worker: f64,
    /// Processor time of the first box's worker for a packet: without a synchronisation, and during it.
    ns_packet: f64,
    ns_packet_during: f64,
    /// Difference, as a part of the worker's time.
    packet_cost_percent: f64,
    /// Difference for a session.
    ns_worker: f64,
    packets_per_second: f64,
}

/// Packets and processor time of workers.
#[derive(Clone, Copy, Default)]
struct Use {
    packets: u64,
    ns: u64,
}

impl Use {
    fn now(workers: &Workers) -> anyhow::Result<Use> {
        Ok(Use { packets: packets(workers), ns: workers.ns()? })
    }

    fn since(self, before: Use) -> Use {
        Use { packets: self.packets - before.packets, ns: self.ns - before.ns }
    }

    fn and(self, other: Use) -> Use {
        Use { packets: self.packets + other.packets, ns: self.ns + other.ns }
    }

    fn ns_packet(self) -> f64 {
        self.ns as f64 / self.packets.max(1) as f64
    }
}

pub(super) fn packets(workers: &Workers) -> u64 {
    workers.sum(|orders| orders.packets.load(Ordering::Acquire))
}

fn during(workers: &Workers, seconds: f64) -> anyhow::Result<Use> {
    let before = Use::now(workers)?;
    std::thread::sleep(Duration::from_secs_f64(seconds));
    Ok(Use::now(workers)?.since(before))
}

/// Opens all sessions, shared evenly among the workers.
pub(super) fn open(workers: &Workers, sessions: u64) -> anyhow::Result<()> {
    let each = sessions.div_ceil(workers.orders.len() as u64);
    workers.orders.iter().for_each(|orders| orders.limit(each));
    workers.order(Traffic::New, UNLIMITED)?;
    let bar = progress(sessions, "sessions");
    let all = each * workers.orders.len() as u64;
    until("opening sessions", || {
        let open = workers.sum(|orders: &Orders| orders.sessions.load(Ordering::Acquire));
        bar.set_position(open);
        Ok(open >= all)
    })?;
    bar.finish_and_clear();
    let (open, _) = workers.count()?;
    ensure!(open == all, "{open} of {all} sessions are open");
    Ok(())
}

pub(super) fn measure(args: &Args) -> anyhow::Result<Report> {
    let common = args.common(args.sessions, None)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let first = PairedHost::start(&common, Member::First, Ok(listener), true)?;
    let empty = PairedHost::prepare(&common, Member::Second, Err(address), false)?;
    until("the right to ports", || Ok(first.state()?.0.is_settled))?;
    open(&first.workers, args.sessions)?;
    let (sessions, _) = first.workers.count()?;
    let rate = if args.packets == 0 { UNLIMITED } else { args.packets };
    first.workers.order(Traffic::Existing, rate)?;
    std::thread::sleep(Duration::from_millis(500));
    let before = during(&first.workers, args.packets_s)?;
    let threads = || Ok::<_, anyhow::Error>([first.member.ns()?, empty.member.ns()?, empty.workers.ns()?]);
    let (began, of_first, of_threads) = (Instant::now(), Use::now(&first.workers)?, threads()?);
    empty.go();
    until("the synchronisation", || Ok(empty.state()?.0.counters.walks_received > 0))?;
    let seconds = began.elapsed().as_secs_f64();
    let while_syncing = Use::now(&first.workers)?.since(of_first);
    let after_threads = threads()?;
    let (found, _) = empty.workers.count()?;
    ensure!(found == sessions, "the empty box has {found} of {sessions} sessions");
    // The state with the whole walk has all its bytes. That of the first box may be older.
    let arrived = empty.state()?.1.bytes_received;
    let after = during(&first.workers, args.packets_s)?;
    first.workers.order(Traffic::Off, 0)?;
    let given = packets(&first.workers);
    until("the last packets", || {
        Ok(first.workers.sum(|orders| orders.sent.load(Ordering::Acquire)) == given)
    })?;
    first.stop()?;
    empty.stop()?;
    let alone = before.and(after);
    let each = |n: usize| round((after_threads[n] - of_threads[n]) as f64 / sessions as f64);
    let more_ns = while_syncing.ns as f64 - alone.ns_packet() * while_syncing.packets as f64;
    Ok(Report {
        sessions,
        seconds: round(seconds),
        sessions_per_second: round(sessions as f64 / seconds),
        bytes_per_session: round(arrived as f64 / sessions as f64),
        ns_member: each(0),
        ns_empty_member: each(1),
        ns_empty_worker: each(2),
        ns_packet: round(alone.ns_packet()),
        ns_packet_during: round(while_syncing.ns_packet()),
        packet_cost_percent: round(more_ns / while_syncing.ns as f64 * 100.0),
        ns_worker: round(more_ns / sessions as f64),
        packets_per_second: round(while_syncing.packets as f64 / seconds),
    })
}
