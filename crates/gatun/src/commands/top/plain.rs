//! Plain-text snapshot of `gatun top`, for files and simple terminals.

use super::{Sample, all, ports, refused, traffic};
use gatun_api::types::{Count, FastPathPlace, OffloadSwitch};
use gatun_config::Bytes;
use gatun_daemon::tables::{counted, group, table};
use std::fmt::Write as _;

/// Longest table, so that all tables fit.
const ROWS_MAX: usize = 8;

/// Rate of counters between two samples.
pub(super) struct Rate(pub(super) f64);

impl Rate {
    pub(super) fn between(before: &Sample, now: &Sample) -> Rate {
        Rate(now.at.duration_since(before.at).as_secs_f64().max(0.001))
    }

    pub(super) fn of(&self, now: u64, before: u64) -> String {
        // Counters of a restarted daemon begin at zero.
        group((now.saturating_sub(before) as f64 / self.0).round() as u64)
    }

    fn count(&self, now: &Count, before: &Count) -> String {
        let bits = (now.bytes.saturating_sub(before.bytes) * 8) as f64 / self.0;
        let since = counted(now.packets, "packet");
        format!(
            "{} packets/s, {:.1} Mbit/s, {since} since the start",
            self.of(now.packets, before.packets),
            bits / 1e6
        )
    }
}

/// Place of a fast path in words.
pub(super) fn place(place: FastPathPlace) -> &'static str {
    match place {
        FastPathPlace::Switches => "in the switches",
        _ => "in the kernel",
    }
}

/// Line about a switch.
pub(super) fn describe(switch: &OffloadSwitch) -> String {
    let unknown = match switch.unknown {
        0 => String::new(),
        n => format!(", {} unknown", group(n)),
    };
    format!("switch {}  {}, {}{unknown}", switch.name, switch.phase, counted(switch.sessions, "session"))
}

pub(super) fn percent(used: u64, total: u64) -> String {
    match total {
        0 => "-".to_owned(),
        total => format!("{:.1} %", used as f64 * 100.0 / total as f64),
    }
}

pub(super) fn picture(before: &Sample, now: &Sample) -> anyhow::Result<String> {
    let rate = Rate::between(before, now);
    let (s, b) = (&now.status, &before.status);
    let mut out = String::new();
    let up = s.uptime_seconds;
    let (days, hours, minutes) = (up / 86_400, up / 3600 % 24, up / 60 % 60);
    writeln!(out, "gatun {}, process {}, up {days} d {hours:02}:{minutes:02}", s.version, s.pid)?;
    writeln!(
        out,
        "sessions {}   bindings {}   subscribers {}   {}",
        group(s.sessions),
        group(s.bindings),
        group(s.subscribers),
        if s.packets_accounted { "every packet is accounted for" } else { "PACKETS ARE MISSING" }
    )?;
    for (name, now, before) in [
        ("received", &s.received, &b.received),
        ("forwarded", &s.forwarded, &b.forwarded),
        (place(s.fast_path), &s.offloaded, &b.offloaded),
        ("dropped", &s.dropped, &b.dropped),
        ("with an ICMP error", &s.rejected, &b.rejected),
        ("silently", &s.dropped_silently, &b.dropped_silently),
    ] {
        writeln!(out, "{name:>18}  {}", rate.count(now, before))?;
    }
    for switch in &now.switches {
        writeln!(out, "{}", describe(switch))?;
    }
    if let Some(boxes) = &now.boxes {
        writeln!(out, "{boxes}")?;
    }
    for trouble in &s.troubles {
        writeln!(out, "NEEDS ATTENTION: {}", trouble.what)?;
    }
    writeln!(out, "{}\n{}", workers(&rate, before, now), pools(now))?;
    writeln!(out, "{}\n{}", drops(&rate, before, now), subscribers(now))?;
    Ok(out)
}

fn workers(rate: &Rate, before: &Sample, now: &Sample) -> gatun_daemon::tables::Table {
    let mut table =
        table(["worker", "device", "received/s", "forwarded/s", "dropped/s", "handed over/s", "sessions"]);
    for (w, b) in now.workers.iter().zip(&before.workers).take(ROWS_MAX) {
        table.add_row([
            w.number.to_string(),
            w.device.clone(),
            rate.of(w.received.packets, b.received.packets),
            rate.of(w.forwarded.packets, b.forwarded.packets),
            rate.of(w.dropped.packets, b.dropped.packets),
            rate.of(w.handed_before + w.handed_after, b.handed_before + b.handed_after),
            group(w.sessions),
        ]);
    }
    table
}

fn pools(now: &Sample) -> gatun_daemon::tables::Table {
    let mut table = table(["pool", "TCP ports", "UDP ports", "ICMP ids", "blocks", "subscribers", "refused"]);
    for pool in now.pools.iter().take(ROWS_MAX) {
        table.add_row([
            pool.name.to_string(),
            percent(pool.tcp.used, pool.tcp.total),
            percent(pool.udp.used, pool.udp.total),
            percent(pool.icmp.used, pool.icmp.total),
            pool.blocks
                .as_ref()
                .map_or_else(|| "-".into(), |blocks| percent(blocks.owned + blocks.held, blocks.total)),
            group(pool.subscribers),
            group(pool.refused),
        ]);
    }
    table
}

fn drops(rate: &Rate, before: &Sample, now: &Sample) -> gatun_daemon::tables::Table {
    let mut table = table(["reason", "dropped/s", "total", "meaning"]);
    for (drop, before) in super::drops(now, Some(before)).into_iter().take(ROWS_MAX) {
        table.add_row([
            drop.reason.clone(),
            rate.of(all(drop), before.unwrap_or(0)),
            group(all(drop)),
            drop.help.clone(),
        ]);
    }
    table
}

fn subscribers(now: &Sample) -> gatun_daemon::tables::Table {
    let mut table = table([
        "subscriber",
        "instance",
        "public address",
        "sessions",
        "ports",
        "blocks",
        "refused",
        "traffic",
    ]);
    for s in &now.top {
        table.add_row([
            s.subscriber.clone(),
            s.instance.to_string(),
            s.address.map_or_else(|| "-".to_owned(), |address| address.to_string()),
            group(s.sessions.into()),
            group(ports(s)),
            group(s.blocks.into()),
            group(refused(s)),
            Bytes(traffic(s)).to_string(),
        ]);
    }
    table
}
