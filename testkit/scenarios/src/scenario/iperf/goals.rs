//! Goals of the kernel fast path beside forwarding, masquerading, the TUN device, and a program without an
//! engine (`--beside`).

use super::measure::Part;
use super::results::{Quantity, Results};
use super::translator::{MASQUERADE, PLAIN};
use crate::report::Report;

/// Bound of the median of a row's ratios.
#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

const OF_BESIDE: f64 = 0.95;
/// Points of loss more than forwarding's, of datagrams as fast as possible.
const LOSS_POINTS: f64 = 2.0;

const FAST64: &str = "NAT64: Gatun, fast path";
const FAST44: &str = "NAT44: Gatun, fast path";
const TUN64: &str = "NAT64: Gatun, TUN";
const TUN44: &str = "NAT44: Gatun, TUN";

/// Pairs of rows, and what the first one should reach of the second one.
const GOALS: [((&str, &str), Part, Quantity, Bound); 16] = {
    use Bound::{AtLeast, AtMost};
    use Part::{Carried, Offered, Tcp, Udp};
    use Quantity::{ProcessorTime, Rate};
    [
        ((FAST64, PLAIN), Tcp, Rate, AtLeast(0.75)),
        ((FAST44, MASQUERADE), Tcp, Rate, AtLeast(0.85)),
        ((FAST64, TUN64), Tcp, Rate, AtLeast(1.4)),
        ((FAST44, TUN44), Tcp, Rate, AtLeast(1.4)),
        ((FAST64, PLAIN), Tcp, ProcessorTime, AtMost(1.25)),
        ((FAST44, PLAIN), Tcp, ProcessorTime, AtMost(1.25)),
        ((FAST64, PLAIN), Udp, ProcessorTime, AtMost(1.25)),
        ((FAST44, PLAIN), Udp, ProcessorTime, AtMost(1.25)),
        ((FAST64, PLAIN), Offered, Quantity::Offered, AtLeast(0.65)),
        ((FAST44, PLAIN), Offered, Quantity::Offered, AtLeast(0.65)),
        ((FAST64, TUN64), Offered, Quantity::Offered, AtLeast(1.8)),
        ((FAST44, TUN44), Offered, Quantity::Offered, AtLeast(1.8)),
        ((FAST64, PLAIN), Carried, Quantity::Offered, AtLeast(0.65)),
        ((FAST44, PLAIN), Carried, Quantity::Offered, AtLeast(0.65)),
        ((FAST64, TUN64), Carried, Quantity::Offered, AtLeast(1.8)),
        ((FAST44, TUN44), Carried, Quantity::Offered, AtLeast(1.8)),
    ]
};

/// Adds a check for each goal whose rows were measured.
pub(super) fn check(results: &Results, report: &mut Report) {
    for (pair, part, quantity, bound) in GOALS {
        judge(results, report, (pair, part, quantity), bound);
    }
    for fast in [FAST64, FAST44] {
        for beside in results.beside() {
            for part in [Part::Tcp, Part::Udp] {
                judge(results, report, ((fast, beside), part, Quantity::Rate), Bound::AtLeast(OF_BESIDE));
            }
        }
        loss(results, report, fast);
    }
}

fn judge(
    results: &Results,
    report: &mut Report,
    (pair, part, quantity): ((&str, &str), Part, Quantity),
    bound: Bound,
) {
    let Some(middle) = results.middle(pair, part, quantity) else { return };
    let (is_met, goal) = match bound {
        Bound::AtLeast(least) => (middle >= least, format!("at least {least}")),
        Bound::AtMost(most) => (middle <= most, format!("at most {most}")),
    };
    let what = match quantity {
        Quantity::ProcessorTime => ", processor time",
        _ => "",
    };
    let (row, other) = pair;
    report.check(is_met, format!("{row} / {other}, {}{what}: {middle:.2}, goal {goal}", part.name()));
}

/// Compares losses of datagrams as fast as possible with those of forwarding.
fn loss(results: &Results, report: &mut Report, row: &str) {
    let more = results
        .cells_of(Part::Udp)
        .filter_map(|cell| Some(results.lost_percent(row, cell)? - results.lost_percent(PLAIN, cell)?));
    let Some(most) = more.max_by(f64::total_cmp) else { return };
    report.check(
        most <= LOSS_POINTS,
        format!(
            "{row}, UDP as fast as possible: lost at most {most:.1} points more than forwarding, goal \
             {LOSS_POINTS}"
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::super::measure::{Cell, Measured};
    use super::*;

    const TCP: Cell = Cell { part: Part::Tcp, streams: 1, direction: "upload" };
    const UDP: Cell = Cell { part: Part::Udp, ..TCP };

    fn report(fast_gbit_s: f64, lost_percent: f64) -> Report {
        let rows = [PLAIN, TUN64, FAST64].map(String::from);
        let mut results = Results::new(rows.into(), vec![TCP, UDP]);
        for (row, gbit_s) in [(PLAIN, 10.0), (TUN64, 5.0), (FAST64, fast_gbit_s)] {
            results.add(row, TCP, 1, Measured::of_rate(gbit_s));
        }
        for (row, lost_percent) in [(PLAIN, 1.0), (FAST64, lost_percent)] {
            results.add(row, UDP, 1, Measured { lost_percent: Some(lost_percent), ..Measured::of_rate(1.0) });
        }
        let mut report = Report::new("iperf", "");
        check(&results, &mut report);
        report
    }

    #[test]
    fn a_fast_path_as_slow_as_the_device_or_with_more_loss_misses_its_goals() {
        assert!(report(7.5, 3.0).is_good());
        assert!(!report(7.4, 3.0).is_good());
        assert!(!report(7.5, 3.1).is_good());
        assert!(!report(5.0, 1.0).is_good());
    }
}
