//! Tables in the form of the thesis, with its own figures in rows of their own, and charts.

use super::super::iperf::measure::{Cell, Measured, Part};
use super::{Column, OpeningSide, STREAMS};
use crate::report::{Table, Throughput, median};
use gatun_testkit::plot::{Axes, Chart, Panel, Series};

/// Figures of the thesis' tables for 1, 10, 20 and 50 streams.
struct ThesisTable {
    part: Part,
    /// The IPv6 side opens the connections and sends.
    from_ipv6: bool,
    rows: [(&'static str, [&'static str; 4]); 3],
}

/// Tables "NAT64 Benchmark" of "High speed NAT64 with P4", 2019.
const PUBLISHED: [ThesisTable; 4] = [
    ThesisTable {
        part: Part::Tcp,
        from_ipv6: true,
        rows: [
            (
                "2019: tayga",
                ["2.79 / 3.20 / 3.43", "3.34 / 3.36 / 3.38", "2.57 / 3.02 / 3.27", "2.35 / 2.91 / 3.20"],
            ),
            (
                "2019: Jool",
                ["8.22 / 8.22 / 8.22", "8.21 / 8.21 / 8.22", "8.21 / 8.23 / 8.25", "8.21 / 8.23 / 8.25"],
            ),
            (
                "2019: P4, NetFPGA",
                ["9.28 / 9.28 / 9.29", "9.28 / 9.28 / 9.29", "9.28 / 9.28 / 9.29", "9.28 / 9.28 / 9.29"],
            ),
        ],
    },
    ThesisTable {
        part: Part::Tcp,
        from_ipv6: false,
        rows: [
            (
                "2019: tayga",
                ["2.90 / 3.15 / 3.34", "2.87 / 3.01 / 3.22", "2.68 / 2.85 / 3.09", "2.60 / 2.78 / 2.88"],
            ),
            (
                "2019: Jool",
                ["7.18 / 7.56 / 8.24", "7.97 / 8.05 / 8.09", "8.05 / 8.08 / 8.10", "8.10 / 8.12 / 8.13"],
            ),
            (
                "2019: P4, NetFPGA",
                ["8.51 / 8.53 / 8.55", "9.28 / 9.28 / 9.29", "9.29 / 9.29 / 9.29", "9.28 / 9.28 / 9.29"],
            ),
        ],
    },
    ThesisTable {
        part: Part::Udp,
        from_ipv6: true,
        rows: [
            (
                "2019: tayga",
                ["8.02 / 70 % / 2.43", "9.39 / 79 % / 1.97", "15.43 / 86 % / 2.11", "19.27 / 91 % / 1.73"],
            ),
            (
                "2019: Jool",
                ["6.44 / 0 % / 6.41", "6.37 / 2 % / 6.25", "16.13 / 64 % / 5.75", "20.83 / 71 % / 6.04"],
            ),
            (
                "2019: P4, NetFPGA",
                ["8.28 / 0 % / 8.28", "9.26 / 0 % / 9.26", "16.15 / 0 % / 16.15", "15.8 / 0 % / 15.8"],
            ),
        ],
    },
    ThesisTable {
        part: Part::Udp,
        from_ipv6: false,
        rows: [
            (
                "2019: tayga",
                ["6.78 / 84 % / 1.06", "9.58 / 90 % / 0.96", "15.67 / 91 % / 1.41", "20.77 / 95 % / 1.04"],
            ),
            (
                "2019: Jool",
                ["4.53 / 0 % / 4.53", "4.49 / 0 % / 4.49", "13.26 / 0 % / 13.26", "22.57 / 0 % / 22.57"],
            ),
            (
                "2019: P4, NetFPGA",
                ["7.04 / 0 % / 7.04", "9.58 / 0 % / 9.58", "9.78 / 0 % / 9.78", "14.37 / 0 % / 14.37"],
            ),
        ],
    },
];

/// A table without its streams: protocol, opening, and direction of the data.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Group {
    part: Part,
    opening: OpeningSide,
    direction: &'static str,
}

/// All measurements.
pub(super) struct Results {
    /// Names of the rows, in the order of the tables.
    rows: Vec<String>,
    measured: Vec<(String, Column, Measured)>,
}

impl Results {
    pub(super) fn new(rows: Vec<String>) -> Results {
        Results { rows, measured: Vec::new() }
    }

    pub(super) fn add(&mut self, row: &str, column: Column, measured: Measured) {
        self.measured.push((row.to_owned(), column, measured));
    }

    /// Rates, followed by the load of the processors.
    pub(super) fn tables(&self) -> Vec<Table> {
        let groups = self.groups();
        let rates = groups.iter().map(|group| self.rates(*group));
        rates.chain(groups.iter().map(|group| self.loads(*group))).collect()
    }

    pub(super) fn throughput(&self) -> Vec<Throughput> {
        let mut all = Vec::new();
        for row in &self.rows {
            for column in self.columns(|_| true) {
                all.extend(self.throughput_of(row, column));
            }
        }
        all
    }

    fn throughput_of(&self, row: &str, column: Column) -> Option<Throughput> {
        let of = self.of(row, column);
        let values =
            |value: fn(&Measured) -> Option<f64>| median(of.iter().filter_map(|m| value(m)).collect());
        Some(Throughput {
            path: format!("{row}, opened from {}", side(column.opening == OpeningSide::Ipv6)),
            protocol: column.cell.part.name(),
            streams: column.cell.streams,
            direction: column.cell.direction,
            gbit_s: values(|measured| Some(measured.gbit_s))?,
            lost_percent: values(|measured| measured.lost_percent),
            processor_ms_per_gbit: values(|measured| measured.processor_ms_per_gbit),
            runs_gbit_s: of.iter().map(|measured| measured.gbit_s).collect(),
        })
    }

    /// Rates over the number of streams, a panel for each way of the data.
    pub(super) fn charts(&self) -> Vec<Chart> {
        let parts = [(Part::Tcp, "TCP"), (Part::Udp, "UDP, at the receiver")];
        let chart = |(part, title): (Part, &str)| {
            let groups = self.groups().into_iter().filter(|group| group.part == part);
            let panels: Vec<Panel> = groups.map(|group| self.panel(group)).collect();
            Chart { title: title.into(), notes: Vec::new(), panels }
        };
        let has_lines = |chart: &Chart| {
            chart.panels.iter().flat_map(|panel| &panel.series).any(|series| series.len() > 1)
        };
        parts.map(chart).into_iter().filter(has_lines).collect()
    }

    fn panel(&self, group: Group) -> Panel {
        let line = |row: &String| {
            let points = self.columns(|column| group.has(column)).into_iter().filter_map(|column| {
                let average = mean(self.of(row, column).iter().map(|measured| measured.gbit_s).collect())?;
                Some((f64::from(column.cell.streams), average))
            });
            Series::new(row, points.collect())
        };
        Panel {
            title: group.way(),
            axes: Axes::Logarithmic,
            x: "parallel streams".into(),
            y: "Gbit/s".into(),
            series: self.rows.iter().map(line).collect(),
            mark: None,
            stages: Vec::new(),
        }
    }

    fn rates(&self, group: Group) -> Table {
        let columns = self.columns(|column| group.has(column));
        let value = |row: &str, column: Column| {
            let of = self.of(row, column);
            let values =
                |value: fn(&Measured) -> f64| of.iter().map(|measured| value(measured)).collect::<Vec<_>>();
            let received = values(|measured| measured.gbit_s);
            let average = mean(received.clone())?;
            Some(match group.part {
                Part::Tcp => {
                    let low = received.iter().copied().fold(f64::INFINITY, f64::min);
                    let high = received.iter().copied().fold(0.0, f64::max);
                    format!("{low:.2} / {average:.2} / {high:.2}")
                }
                _ => {
                    let offered = mean(values(|measured| measured.offered_gbit_s))?;
                    let lost = mean(values(|measured| measured.lost_percent.unwrap_or(0.0)))?;
                    format!("{offered:.2} / {lost:.0} % / {average:.2}")
                }
            })
        };
        let mut table = self.table(group, &columns, group.unit(), &value);
        table.rows.extend(published(group, &columns));
        table
    }

    fn loads(&self, group: Group) -> Table {
        let columns = self.columns(|column| group.has(column));
        let value = |row: &str, column: Column| {
            let shares = self.of(row, column).iter().filter_map(|measured| measured.busy_share).collect();
            mean(shares).map(|share| format!("{:.0}", 100.0 * share))
        };
        self.table(group, &columns, "load of all processors, %", &value)
    }

    fn table(
        &self,
        group: Group,
        columns: &[Column],
        unit: &str,
        value: &dyn Fn(&str, Column) -> Option<String>,
    ) -> Table {
        let row = |row: &String| {
            let values = columns.iter().map(|column| value(row, *column).unwrap_or("-".into()));
            std::iter::once(row.clone()).chain(values).collect()
        };
        let streams = columns.iter().map(|column| column.cell.streams.to_string());
        Table {
            title: format!("{}, {}: {unit}", group.part.name(), group.way()),
            header: std::iter::once("parallel streams".to_owned()).chain(streams).collect(),
            rows: self.rows.iter().map(row).collect(),
        }
    }

    fn of(&self, row: &str, column: Column) -> Vec<&Measured> {
        let found = self.measured.iter().filter(|(name, at, _)| name == row && *at == column);
        found.map(|(_, _, measured)| measured).collect()
    }

    /// The measured columns, in order of their measurement.
    fn columns(&self, wanted: impl Fn(Column) -> bool) -> Vec<Column> {
        let mut columns = Vec::new();
        for (_, column, _) in &self.measured {
            if wanted(*column) && !columns.contains(column) {
                columns.push(*column);
            }
        }
        columns
    }

    fn groups(&self) -> Vec<Group> {
        let mut groups = Vec::new();
        for Column { opening, cell: Cell { part, direction, .. } } in self.columns(|_| true) {
            let group = Group { part, opening, direction };
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups
    }
}

impl Group {
    fn has(self, column: Column) -> bool {
        let Column { opening, cell: Cell { part, direction, .. } } = column;
        self == Group { part, opening, direction }
    }

    fn is_from_ipv6(self) -> bool {
        let cell = Cell { part: self.part, streams: 1, direction: self.direction };
        Column { opening: self.opening, cell }.is_from_ipv6()
    }

    /// The way of the data, and the opener of the connections.
    fn way(self) -> String {
        let (from, to) = (side(self.is_from_ipv6()), side(!self.is_from_ipv6()));
        format!("{from} to {to}, opened from {}", side(self.opening == OpeningSide::Ipv6))
    }

    fn unit(self) -> &'static str {
        match self.part {
            Part::Tcp => "min / average / max, Gbit/s",
            _ => "sent Gbit/s / lost / received Gbit/s, averages",
        }
    }
}

fn side(is_ipv6: bool) -> &'static str {
    if is_ipv6 { "IPv6" } else { "IPv4" }
}

/// Rows of the thesis. There, the opener of the connections sends the data.
fn published(group: Group, columns: &[Column]) -> Vec<Vec<String>> {
    let from_ipv6 = group.is_from_ipv6();
    if group.direction != "upload" {
        return Vec::new();
    }
    let table = PUBLISHED.iter().find(|of| of.part == group.part && of.from_ipv6 == from_ipv6);
    let row = |(name, values): &(&str, [&str; 4])| {
        let value = |column: &Column| {
            let at = STREAMS.iter().position(|streams| *streams == column.cell.streams);
            at.map_or("-", |at| values[at]).to_owned()
        };
        std::iter::once((*name).to_owned()).chain(columns.iter().map(value)).collect()
    };
    table.map(|table| table.rows.iter().map(row).collect()).unwrap_or_default()
}

fn mean(values: Vec<f64>) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let mut results = Results::new(vec!["Gatun".into()]);
        for (part, opening, direction) in [
            (Part::Tcp, OpeningSide::Ipv6, "upload"),
            (Part::Tcp, OpeningSide::Ipv6, "download"),
            (Part::Udp, OpeningSide::Ipv4, "upload"),
        ] {
            for streams in [1, 10] {
                let column = Column { opening, cell: Cell { part, streams, direction } };
                for gbit_s in [2.0, 4.0, 9.0] {
                    let lost_percent = (part == Part::Udp).then_some(50.0);
                    let measured = Measured {
                        offered_gbit_s: 2.0 * gbit_s,
                        lost_percent,
                        processor_ms_per_gbit: Some(1.0),
                        busy_share: Some(0.75),
                        ..Measured::of_rate(gbit_s)
                    };
                    results.add("Gatun", column, measured);
                }
            }
        }
        results
    }

    #[test]
    fn tables_have_the_thesis_form_and_its_figures_where_it_measured_the_same() {
        let tables = results().tables();
        let find = |title: &str| {
            let found = tables.iter().find(|table| table.title.starts_with(title));
            found.unwrap_or_else(|| panic!("no {title} in {tables:?}"))
        };
        let tcp = find("TCP, IPv6 to IPv4, opened from IPv6: min");
        assert_eq!(tcp.header, ["parallel streams", "1", "10"]);
        assert_eq!(tcp.rows[0], ["Gatun", "2.00 / 5.00 / 9.00", "2.00 / 5.00 / 9.00"]);
        assert_eq!(tcp.rows[1], ["2019: tayga", "2.79 / 3.20 / 3.43", "3.34 / 3.36 / 3.38"]);
        assert_eq!(find("TCP, IPv4 to IPv6, opened from IPv6: min").rows.len(), 1);
        let udp = find("UDP, IPv4 to IPv6, opened from IPv4: sent");
        assert_eq!(udp.rows[0][1], "10.00 / 50 % / 5.00");
        assert_eq!(udp.rows[2], ["2019: Jool", "4.53 / 0 % / 4.53", "4.49 / 0 % / 4.49"]);
        let load = find("TCP, IPv6 to IPv4, opened from IPv6: load");
        assert_eq!(load.rows, [["Gatun", "75", "75"]]);
    }

    #[test]
    fn charts_draw_rates_over_streams() {
        let charts = results().charts();
        assert_eq!(charts.len(), 2);
        assert_eq!(charts[0].panels.len(), 2);
        assert!(charts[0].svg().contains("IPv6 to IPv4, opened from IPv6"));
    }
}
