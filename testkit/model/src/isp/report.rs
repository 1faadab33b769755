//! Report of a run: a table for people, JSON for programs.

use super::Options;
use super::ledger::{Invariant, Ledger};
use gatun_nat::pool4::BlockUsage;
use gatun_nat::{EventKind, Occupancy};
use std::fmt::{self, Write};

/// Approximate bytes of a line of the daemon's JSON log, as measured for one kind of record.
const LINE_BYTES: u64 = 220;

/// The results.
#[derive(Debug, Default)]
pub struct Report {
    pub options: Options,
    pub packets: u64,
    pub flows: u64,
    pub restarts: u64,
    pub real_s: f64,
    /// Maxima, sampled once a minute.
    pub peak: Maxima,
    pub sessions_end: usize,
    pub events: [u64; EventKind::ALL.len()],
    /// Refused packets: sender, reason, number.
    pub refused: Vec<(&'static str, &'static str, u64)>,
    /// Ports of subscribers with ports in the busiest minute: median, 99th percentile, maximum.
    pub ports_each: [u32; 3],
    pub invariants: Vec<(&'static str, Invariant)>,
}

/// Maxima of the gauges.
#[derive(Clone, Copy, Debug, Default)]
pub struct Maxima {
    pub sessions: usize,
    pub ports: usize,
    pub blocks: u64,
    pub blocks_total: u64,
    pub subscribers: usize,
    pub at_ms: u64,
}

impl Report {
    /// Samples the gauges of a minute.
    pub(super) fn look(&mut self, now_ms: u64, there: Occupancy, blocks: BlockUsage, ledger: &Ledger) {
        let peak = &mut self.peak;
        if there.sessions > peak.sessions {
            (peak.sessions, peak.at_ms) = (there.sessions, now_ms);
            let all = ledger.ports_of_subscribers();
            let at = |percent: usize| all.get((all.len().max(1) - 1) * percent / 100).copied().unwrap_or(0);
            self.ports_each = [at(50), at(99), at(100)];
        }
        peak.ports = peak.ports.max(there.bindings);
        peak.blocks = peak.blocks.max(blocks.owned);
        peak.blocks_total = blocks.total;
        peak.subscribers = peak.subscribers.max(there.subscribers);
    }

    /// Adds an invariant with its result.
    pub(super) fn invariant(&mut self, what: &'static str, invariant: Invariant) {
        self.invariants.push((what, invariant));
    }

    /// Returns true if all invariants were checked and hold.
    pub fn is_good(&self) -> bool {
        self.invariants.iter().all(|(_, p)| p.broken == 0 && p.checks > 0)
    }

    /// Records of these kinds in a day of simulated time.
    fn records_a_day(&self, kinds: &[EventKind]) -> u64 {
        let records: u64 = kinds.iter().map(|&k| self.events[k as usize]).sum();
        (records as f64 * 86_400_000.0 / self.options.simulated_ms.max(1) as f64) as u64
    }

    fn logs(&self) -> [(&'static str, u64); 3] {
        use EventKind::*;
        [
            ("blocks", self.records_a_day(&[BlockAssigned, BlockReleased])),
            ("bindings", self.records_a_day(&[BindingCreated, BindingDeleted])),
            ("sessions", self.records_a_day(&[SessionCreated, SessionDeleted])),
        ]
    }

    /// The report as one JSON object.
    pub fn json(&self) -> String {
        let o = &self.options;
        let mut out = String::from("{");
        let p = &self.peak;
        let numbers = [
            ("seed", o.seed as f64),
            ("subscribers", o.subscribers.into()),
            ("attackers", o.attackers.into()),
            ("subscribers_per_address", o.per_address.into()),
            ("simulated_s", o.simulated_ms as f64 / 1e3),
            ("real_s", self.real_s),
            ("packets", self.packets as f64),
            ("flows", self.flows as f64),
            ("restarts", self.restarts as f64),
            ("peak_sessions", p.sessions as f64),
            ("peak_ports", p.ports as f64),
            ("peak_blocks", p.blocks as f64),
            ("blocks_total", p.blocks_total as f64),
            ("peak_subscribers", p.subscribers as f64),
            ("ports_per_subscriber_p50", self.ports_each[0].into()),
            ("ports_per_subscriber_p99", self.ports_each[1].into()),
            ("ports_per_subscriber_max", self.ports_each[2].into()),
        ];
        for (name, n) in numbers {
            let _ = write!(out, "\"{name}\":{n},");
        }
        out += "\"log_records_a_day\":{";
        out += &self.logs().map(|(name, n)| format!("\"{name}\":{n}")).join(",");
        out += "},\"log_bytes_a_day\":{";
        out += &self.logs().map(|(name, n)| format!("\"{name}\":{}", n * LINE_BYTES)).join(",");
        out += "},\"refused\":[";
        let refused = self.refused.iter();
        let refused =
            refused.map(|(w, r, n)| format!("{{\"whose\":\"{w}\",\"reason\":\"{r}\",\"packets\":{n}}}"));
        out += &refused.collect::<Vec<_>>().join(",");
        out += "],\"invariants\":[";
        let invariants = self.invariants.iter();
        let invariants = invariants
            .map(|(w, p)| format!("{{\"what\":\"{w}\",\"checks\":{},\"broken\":{}}}", p.checks, p.broken));
        out += &invariants.collect::<Vec<_>>().join(",");
        let _ = write!(out, "],\"ok\":{}}}", self.is_good());
        out
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (o, p) = (&self.options, &self.peak);
        let hours = o.simulated_ms as f64 / 3_600_000.0;
        writeln!(f, "{} subscribers, {} of them attackers, seed {}", o.subscribers, o.attackers, o.seed)?;
        writeln!(f, "{hours:.2} h from {}:00 on, in {:.1} s\n", o.start_hour, self.real_s)?;
        let of_blocks = 100.0 * p.blocks as f64 / p.blocks_total.max(1) as f64;
        let rows = [
            ("packets", self.packets.to_string()),
            ("flows", self.flows.to_string()),
            ("restarts of routers", self.restarts.to_string()),
            ("most sessions", format!("{} at {:02}:{:02}", p.sessions, hour(p.at_ms), p.at_ms / 60_000 % 60)),
            ("most ports in use", p.ports.to_string()),
            ("most blocks given out", format!("{} of {} ({of_blocks:.1} %)", p.blocks, p.blocks_total)),
            ("most subscribers with state", p.subscribers.to_string()),
            (
                "ports of a subscriber",
                format!(
                    "median {}, 99 % {}, maximum {}",
                    self.ports_each[0], self.ports_each[1], self.ports_each[2]
                ),
            ),
        ];
        for (name, value) in rows {
            writeln!(f, "  {name:<28} {value}")?;
        }
        writeln!(f, "\nLog, a day at this rate, as JSON lines of {LINE_BYTES} bytes")?;
        for (name, n) in self.logs() {
            writeln!(f, "  {name:<28} {n:>12} records {:>12} KB", n * LINE_BYTES / 1000)?;
        }
        writeln!(f, "\nPackets refused")?;
        for (whose, why, n) in &self.refused {
            writeln!(f, "  {whose:<12} {why:<22} {n:>12}")?;
        }
        writeln!(f, "\nPromises")?;
        for (what, p) in &self.invariants {
            let verdict = if p.broken == 0 && p.checks > 0 { "kept" } else { "BROKEN" };
            writeln!(f, "  {verdict:<7}{what:<55} {:>12} checks", p.checks)?;
            if let Some(first) = &p.first {
                writeln!(f, "         {} times; first: {first}", p.broken)?;
            }
        }
        Ok(())
    }
}

fn hour(ms: u64) -> u64 {
    ms / 3_600_000 % 24
}
