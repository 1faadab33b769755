//! Medians over the runs, their tables, and ratios between translators.

use super::measure::{Cell, Measured, Part};
use super::translator::{MASQUERADE, PLAIN, PLAIN6, TAYGA};
use crate::report::{Table, Throughput, median};

/// All measurements of a scenario.
#[derive(Default)]
pub(super) struct Results {
    /// Names of the rows, in the order of the tables.
    rows: Vec<String>,
    cells: Vec<Cell>,
    measured: Vec<(String, Cell, u32, Measured)>,
}

/// Quantity of a table.
#[derive(Clone, Copy)]
pub(super) enum Quantity {
    Rate,
    /// Offered rate.
    Offered,
    ProcessorTime,
    PacketKb,
    /// Loss that is not the receiver's socket's.
    LostBeforeSocket,
}

impl Quantity {
    fn of(self, measured: &Measured) -> Option<f64> {
        match self {
            Quantity::Rate => Some(measured.gbit_s),
            Quantity::Offered => Some(measured.offered_gbit_s),
            Quantity::ProcessorTime => measured.processor_ms_per_gbit,
            Quantity::PacketKb => measured.bytes_per_packet.map(|bytes| bytes / 1e3),
            Quantity::LostBeforeSocket => measured.lost_before_socket_percent(),
        }
    }
}

impl Results {
    pub(super) fn new(rows: Vec<String>, cells: Vec<Cell>) -> Results {
        Results { rows, cells, measured: Vec::new() }
    }

    pub(super) fn add(&mut self, row: &str, cell: Cell, run: u32, measured: Measured) {
        self.measured.push((row.to_owned(), cell, run, measured));
    }

    /// Medians, and the rate of each run.
    pub(super) fn throughput(&self) -> Vec<Throughput> {
        let cells = self.rows.iter().flat_map(|row| self.cells.iter().map(move |cell| (row, *cell)));
        let result = |(row, cell): (&String, Cell)| {
            let quantity = if cell.part.is_search() { Quantity::Offered } else { Quantity::Rate };
            let runs_gbit_s: Vec<f64> =
                self.of(row, cell).filter_map(|(_, measured)| quantity.of(measured)).collect();
            let lost = self.of(row, cell).filter_map(|(_, measured)| measured.lost_percent).collect();
            Some(Throughput {
                path: row.clone(),
                protocol: cell.part.name(),
                streams: cell.streams,
                direction: cell.direction,
                gbit_s: median(runs_gbit_s.clone())?,
                lost_percent: median(lost),
                processor_ms_per_gbit: self.median(row, cell, Quantity::ProcessorTime),
                runs_gbit_s,
            })
        };
        cells.filter_map(result).collect()
    }

    /// Tables of rates, of processor times and of ratios.
    pub(super) fn tables(&self) -> Vec<Table> {
        let mut tables = vec![
            self.rates(Part::Tcp, "TCP, Gbit/s at the receiver"),
            self.rates(Part::Udp, "UDP as fast as possible, Gbit/s at the receiver (lost, %)"),
            self.rates(Part::Offered, "UDP, highest offered Gbit/s with at most 0.1 % lost"),
            self.rates(
                Part::Carried,
                "UDP, highest offered Gbit/s with at most 0.1 % lost before the receiver's socket",
            ),
            self.medians(
                Part::Udp,
                Quantity::LostBeforeSocket,
                "UDP as fast as possible, lost before the receiver's socket, %",
            ),
            self.medians(Part::Tcp, Quantity::PacketKb, "TCP, KB of a received packet"),
            self.processor_times(Part::Tcp),
            self.processor_times(Part::Paced),
            self.processor_times(Part::Udp),
        ];
        let quantities = [
            (Part::Tcp, Quantity::Rate, "Ratios, TCP"),
            (Part::Udp, Quantity::Rate, "Ratios, UDP as fast as possible"),
            (Part::Offered, Quantity::Offered, "Ratios, UDP with at most 0.1 % lost"),
            (Part::Carried, Quantity::Offered, "Ratios, UDP with at most 0.1 % lost before the socket"),
            (Part::Tcp, Quantity::ProcessorTime, "Ratios, processor time, TCP"),
            (Part::Paced, Quantity::ProcessorTime, "Ratios, processor time, TCP at 4 Gbit/s"),
            (Part::Udp, Quantity::ProcessorTime, "Ratios, processor time, UDP as fast as possible"),
        ];
        tables.extend(quantities.map(|(part, quantity, title)| self.ratios(part, quantity, title)));
        tables.retain(|table| !table.rows.is_empty());
        tables
    }

    fn rates(&self, part: Part, title: &str) -> Table {
        let quantity = if part.is_search() { Quantity::Offered } else { Quantity::Rate };
        self.table(part, title, &|row, cell| {
            let rate = self.median(row, cell, quantity)?;
            Some(match self.lost_percent(row, cell).filter(|_| part == Part::Udp) {
                Some(lost) => format!("{rate:.2} ({lost:.1})"),
                None => format!("{rate:.2}"),
            })
        })
    }

    fn processor_times(&self, part: Part) -> Table {
        let title = format!("{}, ms of processor time of the whole machine for a received Gbit", part.name());
        self.medians(part, Quantity::ProcessorTime, &title)
    }

    fn medians(&self, part: Part, quantity: Quantity, title: &str) -> Table {
        self.table(part, title, &|row, cell| {
            self.median(row, cell, quantity).map(|value| format!("{value:.1}"))
        })
    }

    /// A table of all rows with values; cells without one have a dash.
    fn table(&self, part: Part, title: &str, value: &dyn Fn(&str, Cell) -> Option<String>) -> Table {
        let cells: Vec<Cell> = self.cells_of(part).collect();
        let row = |row: &String| {
            let values: Vec<Option<String>> = cells.iter().map(|cell| value(row, *cell)).collect();
            let texts = values.iter().map(|value| value.clone().unwrap_or("-".into()));
            values
                .iter()
                .any(Option::is_some)
                .then(|| std::iter::once(row.clone()).chain(texts).collect::<Vec<_>>())
        };
        Table {
            title: title.into(),
            header: header(&cells),
            rows: self.rows.iter().filter_map(row).collect(),
        }
    }

    /// Medians of the ratios of each run, with the median of a row's cells at its end.
    fn ratios(&self, part: Part, quantity: Quantity, title: &str) -> Table {
        let cells: Vec<Cell> = self.cells_of(part).collect();
        let mut rows = Vec::new();
        for (row, reference) in self.pairs() {
            let ratios: Vec<Option<f64>> =
                cells.iter().map(|cell| self.ratio((row, reference), *cell, quantity)).collect();
            let Some(middle) = self.middle((row, reference), part, quantity) else { continue };
            let texts = ratios.into_iter().chain([Some(middle)]);
            let texts = texts.map(|ratio| ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")));
            rows.push(std::iter::once(format!("{row} / {reference}")).chain(texts).collect());
        }
        let mut header = header(&cells);
        header.push("median".into());
        Table { title: title.into(), header, rows }
    }

    /// Median of the ratios of all cells.
    pub(super) fn middle(&self, pair: (&str, &str), part: Part, quantity: Quantity) -> Option<f64> {
        median(self.cells_of(part).filter_map(|cell| self.ratio(pair, cell, quantity)).collect())
    }

    /// Rows of `--beside`.
    pub(super) fn beside(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(String::as_str).filter(|row| is_beside(row))
    }

    /// Lost datagrams of a row, percent.
    pub(super) fn lost_percent(&self, row: &str, cell: Cell) -> Option<f64> {
        median(self.of(row, cell).filter_map(|(_, measured)| measured.lost_percent).collect())
    }

    /// Rows to compare: each with plain forwarding, and Gatun's with the other translators of its service.
    fn pairs(&self) -> Vec<(&str, &str)> {
        let mut pairs = Vec::new();
        for row in &self.rows {
            let is_reference = |other: &&String| {
                let tun = row.replace("fast path", "TUN");
                let is_tun = row.contains("fast path") && **other == tun;
                let is_masquerade = row.starts_with("NAT44: Gatun") && *other == MASQUERADE;
                let is_of_nat64 = row.starts_with("NAT64") && [PLAIN6, TAYGA].contains(&other.as_str());
                let is_beside = row.contains("Gatun") && is_beside(other) && !is_beside(row);
                row != *other && (*other == PLAIN || is_tun || is_masquerade || is_of_nat64 || is_beside)
            };
            pairs.extend(self.rows.iter().filter(is_reference).map(|other| (row.as_str(), other.as_str())));
        }
        pairs
    }

    fn ratio(&self, (row, reference): (&str, &str), cell: Cell, quantity: Quantity) -> Option<f64> {
        let of_run = |(run, measured): (u32, &Measured)| {
            let (_, other) = self.of(reference, cell).find(|(other, _)| *other == run)?;
            let other = quantity.of(other).filter(|other| *other > 0.0)?;
            Some(quantity.of(measured)? / other)
        };
        median(self.of(row, cell).filter_map(of_run).collect())
    }

    fn median(&self, row: &str, cell: Cell, quantity: Quantity) -> Option<f64> {
        median(self.of(row, cell).filter_map(|(_, measured)| quantity.of(measured)).collect())
    }

    fn of<'a>(&'a self, row: &'a str, cell: Cell) -> impl Iterator<Item = (u32, &'a Measured)> {
        let found = self.measured.iter().filter(move |(name, at, ..)| name == row && *at == cell);
        found.map(|(_, _, run, measured)| (*run, measured))
    }

    pub(super) fn cells_of(&self, part: Part) -> impl Iterator<Item = Cell> {
        self.cells.iter().copied().filter(move |cell| cell.part == part)
    }
}

/// Returns true for a row of `--beside`: its name is none of this scenario's.
fn is_beside(row: &str) -> bool {
    !row.contains("Gatun, ") && ![PLAIN, PLAIN6, MASQUERADE, TAYGA].contains(&row)
}

fn header(cells: &[Cell]) -> Vec<String> {
    let name = |cell: &Cell| {
        let direction = if cell.direction == "upload" { "up" } else { "down" };
        format!("{} {direction}", cell.streams)
    };
    std::iter::once(String::new()).chain(cells.iter().map(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: Cell = Cell { part: Part::Tcp, streams: 1, direction: "upload" };

    fn rate(gbit_s: f64) -> Measured {
        Measured { processor_ms_per_gbit: Some(1e3), ..Measured::of_rate(gbit_s) }
    }

    fn results() -> Results {
        let rows = [
            PLAIN,
            "NAT64: Gatun, TUN",
            "NAT64: Gatun, fast path",
            "NAT44: Gatun, fast path",
            "bare",
            PLAIN6,
        ];
        let mut results = Results::new(rows.map(String::from).into(), vec![TCP]);
        for (run, speed) in [(1, 10.0), (2, 2.0), (3, 6.0)] {
            for (row, share) in rows.iter().zip([1.0, 0.25, 0.5, 0.75, 2.0, 0.8]) {
                results.add(row, TCP, run, rate(speed * share));
            }
        }
        results
    }

    #[test]
    fn cells_are_medians_and_keep_their_runs() {
        let all = results().throughput();
        assert_eq!(all.len(), 6);
        assert_eq!((all[0].gbit_s, all[0].runs_gbit_s.as_slice()), (6.0, [10.0, 2.0, 6.0].as_slice()));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }

    #[test]
    fn ratios_compare_what_ran_beside_each_other() {
        let tables = results().tables();
        let ratios = tables.iter().find(|table| table.title == "Ratios, TCP").unwrap();
        let of = |pair: &str| {
            let row = ratios.rows.iter().find(|row| row[0] == pair);
            row.unwrap_or_else(|| panic!("no {pair} in {ratios:?}"))[1].clone()
        };
        assert_eq!(of("NAT64: Gatun, fast path / kernel, untranslated"), "0.50");
        assert_eq!(of("NAT64: Gatun, fast path / NAT64: Gatun, TUN"), "2.00");
        assert_eq!(of("NAT44: Gatun, fast path / bare"), "0.38");
        assert_eq!(of("bare / kernel, untranslated"), "2.00");
        assert_eq!(of("NAT64: Gatun, fast path / kernel, untranslated, IPv6"), "0.62");
        assert!(ratios.rows.iter().all(|row| !row[0].starts_with("NAT44") || !row[0].ends_with("IPv6")));
        assert_eq!(ratios.rows.len(), 11, "{ratios:?}");
        assert!(ratios.header.ends_with(&["median".to_owned()]));
        // Nothing was measured by UDP.
        assert!(tables.iter().all(|table| !table.title.contains("UDP")));
    }
}
