//! Gatun's counters, as it prints them on SIGUSR1 and at its end.

use gatun_ether::{Dropped, Unsent};
use gatun_io::TxError;
use std::collections::BTreeMap;

/// Counters of one report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Packets that the engine received.
    pub(crate) received: u64,
    /// Packets that it forwarded, and the device accepted.
    pub(crate) sent: u64,
    /// Packets that were not forwarded, or not sent, by reason.
    pub(crate) drops: BTreeMap<String, u64>,
    /// Packets of `drops` that waited for something at that time.
    pub(crate) held: u64,
    /// Sessions of all instances at that time.
    pub(crate) sessions: u64,
}

/// A report's last line.
const END: &str = "every packet received is accounted for";

impl Counters {
    /// Reads a report; `None` if the text lacks its last line.
    pub(crate) fn read(text: &str) -> Option<Counters> {
        let end = text.rfind(END)?;
        let mut counters = Counters::default();
        let (mut title, mut unsent) = ("", 0);
        for line in text.get(..end)?.lines() {
            let cells: Vec<&str> = line.split(['│', '┆']).map(str::trim).collect();
            if cells.len() < 3 {
                if line.chars().any(|c| c.is_alphanumeric()) {
                    title = line.trim();
                }
                continue;
            }
            counters.row(title, &cells[1..cells.len() - 1]);
        }
        for (name, count) in &counters.drops {
            unsent += if is_unsent(name) { *count } else { 0 };
        }
        counters.sent = counters.sent.saturating_sub(unsent);
        Some(counters)
    }

    /// Counters of two instances in series, prefixed with their names; sessions are the second one's.
    pub(crate) fn of_both(both: [(&str, Counters); 2]) -> Counters {
        let mut all = Counters::default();
        for (name, counters) in both {
            all.received += counters.received;
            all.sent += counters.sent;
            all.held += counters.held;
            all.sessions = counters.sessions;
            all.drops.extend(counters.drops.into_iter().map(|(reason, n)| (format!("{name} {reason}"), n)));
        }
        all
    }

    fn row(&mut self, title: &str, cells: &[&str]) {
        let Some((&name, rest)) = cells.split_first() else { return };
        let number = |cell: &str| cell.replace(',', "").parse::<u64>().ok();
        let first = || rest.first().and_then(|cell| number(cell));
        match title {
            "dropped packets by reason" if !name.is_empty() && !name.contains("the last") => {
                // Three directions; the last column is a description.
                let sum: u64 = rest.iter().take(3).filter_map(|cell| number(cell)).sum();
                self.add(name, sum);
            }
            "counters of the ports" if is_drop(name) => self.add(name, first().unwrap_or(0)),
            "state by instance" => self.sessions += first().unwrap_or(0),
            _ if name.starts_with("forwarded, ") || name == "echo replies" => {
                self.sent += first().unwrap_or(0);
            }
            _ if name == "received" => self.received = first().unwrap_or(0),
            _ if name == "held at this moment" => self.held = first().unwrap_or(0),
            _ => {}
        }
    }

    fn add(&mut self, name: &str, count: u64) {
        if count > 0 {
            *self.drops.entry(name.to_owned()).or_default() += count;
        }
    }
}

/// Returns true if a port's counter counts packets that ended there.
fn is_drop(name: &str) -> bool {
    Dropped::ALL.iter().any(|kind| kind.name() == name) || Unsent::ALL.iter().any(|kind| kind.name() == name)
}

/// Returns true if a counter has packets that the engine forwarded and no device accepted.
fn is_unsent(name: &str) -> bool {
    TxError::ALL.iter().any(|kind| kind.name() == name) || Unsent::ALL.iter().any(|kind| kind.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
counters, device a0 b0
┌───────────────┬───────────┬───────────┐
│               ┆   packets ┆     bytes │
╞═══════════════╪═══════════╪═══════════╡
│ received      ┆ 4,194,304 ┆ 1,000,000 │
│ dropped       ┆        12 ┆           │
│ held at this moment ┆   4 ┆           │
└───────────────┴───────────┴───────────┘

dropped packets by reason
┌──────────────┬──────┬──────┬──────┬──────────────────┐
│ reason       ┆ v6>v4 ┆ v4>v6 ┆ v4>v4 ┆ what it means    │
╞══════════════╪══════╪══════╪══════╪══════════════════╡
│ no_mapping   ┆    3 ┆ 100 ┆    0 ┆ Nothing like     │
│ rx_ring_full ┆    9 ┆      ┆      ┆ The ring was 4.  │
│ tx_other, the last ┆ 1 ┆   ┆      ┆ A name.          │
└──────────────┴──────┴──────┴──────┴──────────────────┘

counters of the ports
┌──────────────────┬───────┬───────────────┐
│ waiting_overflow ┆     5 ┆ Was kept.     │
│ arp_reply        ┆     6 ┆ Was answered. │
└──────────────────┴───────┴───────────────┘

state by instance
┌───────────────┬──────────┬───────────────────┐
│ instance      ┆ sessions ┆ sessions created  │
│ nat64 nat64-1 ┆  131,072 ┆           131,073 │
│ nat44 nat44-1 ┆        1 ┆                 1 │
└───────────────┴──────────┴───────────────────┘

every packet received is accounted for
";

    #[test]
    fn a_report_is_read_row_by_row_and_notes_are_no_drops() {
        let counters = Counters::read(TEXT).unwrap();
        let drops: Vec<_> = counters.drops.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        assert_eq!(drops, [("no_mapping", 103), ("rx_ring_full", 9), ("waiting_overflow", 5)]);
        assert_eq!((counters.received, counters.held, counters.sessions), (4_194_304, 4, 131_073));
    }

    #[test]
    fn an_incomplete_report_is_rejected() {
        assert_eq!(Counters::read(&TEXT[..TEXT.len() - 10]), None);
    }
}
