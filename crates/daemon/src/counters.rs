//! Table of all counters, printed on SIGUSR1 and at the end.

use super::by_instance;
use crate::tables::{Table, group, table};
use gatun_io::{RxError, TxError};
use gatun_nat::counters::{Count, Direction};
use gatun_wire::DropReason;
use gatun_worker::{ExchangeCounters, Snapshot};

/// The most important counters in one line.
pub(super) fn short(snapshot: &Snapshot) -> String {
    let engine = &snapshot.engine;
    format!(
        "received {}, forwarded {}, echo replies {}, not for the translator {}, dropped {}, held {}",
        engine.rx.packets,
        engine.forwarded.packets,
        engine.echoes().packets,
        engine.passed.packets,
        engine.refused().packets,
        engine.held
    )
}

/// All counters as tables.
pub(super) fn render(title: &str, snapshot: &Snapshot) -> String {
    let mut text = format!("\n{title}, device {}\n{}\n", snapshot.backend_name, packets(snapshot));
    let drops = drops(snapshot);
    if drops.row_count() > 0 {
        text += &format!("\ndropped packets by reason\n{drops}\n");
    }
    let more = named(snapshot);
    if more.row_count() > 0 {
        text += &format!("\ncounters of the ports\n{more}\n");
    }
    text += &by_instance::render(snapshot);
    text += match snapshot.conserved() {
        true => "\nevery packet received is accounted for\n",
        false => "\nTHE COUNTERS DO NOT ADD UP: this is a defect, please report it with the tables above\n",
    };
    text
}

fn packets(snapshot: &Snapshot) -> Table {
    let engine = &snapshot.engine;
    let device = &snapshot.backend;
    let mut table = table(["", "packets", "bytes"]);
    let mut row = |name: &str, count: Count| {
        table.add_row([name.to_owned(), group(count.packets), group(count.bytes)]);
    };
    row("received", engine.rx);
    row("forwarded, IPv6 to IPv4", engine.translated[Direction::SixToFour as usize]);
    row("forwarded, IPv4 to IPv6", engine.translated[Direction::FourToSix as usize]);
    row("forwarded, IPv4 to IPv4", engine.translated[Direction::FourToFour as usize]);
    row("of these hairpinned", engine.hairpinned);
    row("echo replies", engine.echoes());
    row("not for the translator", engine.passed);
    row("dropped", engine.refused());
    row("of these with an ICMP error", engine.rejected());
    row("of these silently", engine.dropped);
    if engine.redirected != Count::default() {
        row("redirected to other nodes", engine.redirected);
    }
    let mut plain = |name: &str, n: u64| {
        table.add_row([name.to_owned(), group(n), String::new()]);
    };
    plain("held at this moment", engine.held);
    plain("fragments created", engine.fragments_made);
    plain("path MTUs below 1,260 bytes reported", engine.path_mtus_learnt);
    plain("hosts with a small path MTU evicted", engine.path_mtus_evicted);
    plain("ICMP errors sent", engine.icmp_errors_sent);
    plain("ICMP errors over the rate of all", engine.icmp_errors_limited);
    plain("ICMP errors over the rate of one source", engine.icmp_errors_limited_per_source);
    plain("super-packets received (TSO, USO)", device.rx_super_packets);
    plain("super-packets sent", device.tx_super_packets);
    let handed = &snapshot.worker.handed;
    if handed != &ExchangeCounters::default() {
        plain("handed to another worker, as received", handed.before);
        plain("handed to another worker, translated", handed.after);
    }
    table
}

fn drops(snapshot: &Snapshot) -> Table {
    let mut table = table(["reason", "v6>v4", "v4>v6", "v4>v4", "what it means"]);
    for &reason in DropReason::ALL {
        let packets = snapshot.engine.drops.each_ref().map(|by_reason| by_reason[reason as usize].packets);
        if packets.iter().any(|n| *n > 0) {
            let [six, four, private] = packets.map(group);
            table.add_row([reason.name(), &six, &four, &private, reason.help()]);
        }
    }
    let device = &snapshot.backend;
    let mut plain = |name: &str, n: u64, help: &str| {
        if n > 0 {
            table.add_row([name, &group(n), "", "", help]);
        }
    };
    for &reason in RxError::ALL {
        plain(reason.name(), device.rx_errors[reason as usize], reason.help());
    }
    for &reason in TxError::ALL {
        plain(reason.name(), device.tx_errors[reason as usize], reason.help());
    }
    if let Some(errno) = device.tx_last_os_error {
        plain("tx_other, the last", 1, &std::io::Error::from_raw_os_error(errno).to_string());
    }
    plain(
        "handover_full",
        snapshot.worker.handed.before_lost + snapshot.worker.handed.after_lost,
        "The worker that has the session was too slow for the packets handed over to it.",
    );
    plain(
        "stalled",
        snapshot.worker.stalled,
        "The engine did not process packets although it had room: a defect.",
    );
    table
}

/// Additional counters of this kind of backend, without zeros.
fn named(snapshot: &Snapshot) -> Table {
    let mut table = table(["", "count", "what it means"]);
    let device = &snapshot.backend;
    if !device.named.is_empty() {
        table.add_row(["sent", &group(device.tx_packets), "Packets that the devices accepted."]);
    }
    for named in device.named.iter().filter(|named| named.count > 0) {
        table.add_row([named.name, &group(named.count), named.help]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_shown_with_help_and_a_wrong_sum_is_reported() {
        let mut snapshot = Snapshot { backend_name: "nat64".into(), ..Default::default() };
        let quiet = render("counters", &snapshot);
        assert!(quiet.contains("accounted for") && !quiet.contains("why packets"), "{quiet}");
        snapshot.engine.rx.packets = 1;
        snapshot.engine.dropped.packets = 1;
        snapshot.engine.drops[Direction::FourToSix as usize][DropReason::NoBib as usize].packets = 1;
        snapshot.backend.tx_errors[TxError::Down as usize] = 2;
        let text = render("counters", &snapshot);
        for wanted in ["no_bib", "without a binding", "tx_down", "set its link up", "DO NOT ADD UP"] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
    }
}
