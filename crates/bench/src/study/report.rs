//! Figures of the study as tables, CSV and a drawing.

use super::run::Sample;
use crate::measure::{Clock, round};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Table};
use gatun_testkit::plot::{Axes, Chart, Panel, Series, count};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Time budget of a whole packet in the study of 2015.
const BUDGET_NS: f64 = 180.0;

/// Results of a structure at one size, with one thread.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    structure: &'static str,
    entries: u32,
    create_cycles: f64,
    create_ns: f64,
    look_up_cycles: f64,
    look_up_ns: f64,
    bytes_per_entry: f64,
}

impl Point {
    pub(super) fn new(
        structure: &'static str,
        entries: u32,
        sample: Sample,
        bytes_per_entry: f64,
        clock: Clock,
    ) -> Point {
        Point {
            structure,
            entries,
            create_cycles: round(sample.create),
            create_ns: round(sample.create / clock.ghz()),
            look_up_cycles: round(sample.look_up),
            look_up_ns: round(sample.look_up / clock.ghz()),
            bytes_per_entry: round(bytes_per_entry),
        }
    }
}

/// Look-ups of a structure with several threads.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ParallelPoint {
    structure: &'static str,
    threads: u64,
    entries_per_thread: u32,
    millions_per_second: f64,
}

impl ParallelPoint {
    pub(super) fn new(structure: &'static str, threads: u64, entries: u32, millions: f64) -> ParallelPoint {
        ParallelPoint {
            structure,
            threads,
            entries_per_thread: entries,
            millions_per_second: round(millions),
        }
    }
}

/// All results.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) cpu: String,
    /// Frequency of the clock that counts cycles.
    pub(super) ghz: f64,
    pub(super) points: Vec<Point>,
    pub(super) together: Vec<ParallelPoint>,
    pub(super) left_out: BTreeSet<String>,
}

/// Removes duplicates and keeps the order.
fn once<T: PartialEq + Copy>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    all.for_each(|one| {
        if !seen.contains(&one) {
            seen.push(one);
        }
    });
    seen
}

fn number(value: f64) -> Cell {
    let text = if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") };
    Cell::new(text).set_alignment(CellAlignment::Right)
}

impl Report {
    fn structures(&self) -> Vec<&'static str> {
        once(self.points.iter().map(|p| p.structure))
    }

    fn point(&self, structure: &str, entries: u32) -> Option<&Point> {
        self.points.iter().find(|p| p.structure == structure && p.entries == entries)
    }

    pub(super) fn print(&self) {
        println!("{}, cycles of {:.2} GHz; one thread", self.cpu, self.ghz);
        println!("\nCycles of a further packet, by number of translations in the table:");
        println!("{}", self.by_size(|p| p.look_up_cycles));
        println!("\nCycles of a translation's first packet, while the table is filled up to this number:");
        println!("{}", self.by_size(|p| p.create_cycles));
        if let Some(first) = self.together.first() {
            println!(
                "\nMillions of further packets per second, {} translations per thread:",
                first.entries_per_thread
            );
            println!("{}", self.by_threads());
        }
        self.left_out.iter().for_each(|why| println!("left out: {why}"));
    }

    fn by_size(&self, of: fn(&Point) -> f64) -> Table {
        let sizes = once(self.points.iter().map(|p| p.entries));
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        let mut head = vec![Cell::new("structure")];
        head.extend(
            sizes.iter().map(|&n| Cell::new(count(f64::from(n))).set_alignment(CellAlignment::Right)),
        );
        head.push(Cell::new("bytes each"));
        table.set_header(head);
        for structure in self.structures() {
            let mut row = vec![Cell::new(structure)];
            let cells =
                sizes.iter().map(|&n| self.point(structure, n).map_or(Cell::new(""), |p| number(of(p))));
            row.extend(cells);
            // From the largest table: in small ones the fixed part dominates.
            let last = self.points.iter().rfind(|p| p.structure == structure);
            row.push(last.map_or(Cell::new(""), |p| number(p.bytes_per_entry)));
            table.add_row(row);
        }
        table
    }

    fn by_threads(&self) -> Table {
        let counts = once(self.together.iter().map(|t| t.threads));
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        let mut head = vec![Cell::new("structure")];
        let threads = |n: u64| if n == 1 { "1 thread".into() } else { format!("{n} threads") };
        head.extend(counts.iter().map(|&n| Cell::new(threads(n)).set_alignment(CellAlignment::Right)));
        head.push(Cell::new("times"));
        table.set_header(head);
        for structure in once(self.together.iter().map(|t| t.structure)) {
            let of = |n: u64| self.together.iter().find(|t| t.structure == structure && t.threads == n);
            let rates: Vec<f64> =
                counts.iter().filter_map(|&n| of(n)).map(|t| t.millions_per_second).collect();
            let mut row = vec![Cell::new(structure)];
            row.extend(rates.iter().map(|&rate| number(rate)));
            if let (Some(first), Some(last)) = (rates.first(), rates.last()) {
                row.push(Cell::new(format!("{:.2}", last / first)).set_alignment(CellAlignment::Right));
            }
            table.add_row(row);
        }
        table
    }

    /// CSV: one line per figure, sizes first, then threads, which have no creations.
    pub(super) fn csv(&self) -> String {
        let mut out = String::from(
            "structure,threads,entries_per_thread,create_cycles,create_ns,look_up_cycles,look_up_ns,\
             look_ups_per_second,bytes_per_entry\n",
        );
        for p in &self.points {
            let _ = writeln!(
                out,
                "\"{}\",1,{},{},{},{},{},{:.0},{}",
                p.structure,
                p.entries,
                p.create_cycles,
                p.create_ns,
                p.look_up_cycles,
                p.look_up_ns,
                1e9 / p.look_up_ns,
                p.bytes_per_entry
            );
        }
        for t in &self.together {
            let rate = t.millions_per_second * 1e6;
            let _ =
                writeln!(out, "\"{}\",{},{},,,,,{rate:.0},", t.structure, t.threads, t.entries_per_thread);
        }
        out
    }

    pub(super) fn svg(&self) -> String {
        let series = |of: fn(&Point) -> f64| -> Vec<Series> {
            let line = |structure: &'static str| {
                let mine = self.points.iter().filter(|p| p.structure == structure);
                line(structure, mine.map(|p| (f64::from(p.entries), of(p))).collect())
            };
            self.structures().into_iter().map(line).collect()
        };
        let panel = |title: &str, of: fn(&Point) -> f64| Panel {
            title: title.into(),
            axes: Axes::Logarithmic,
            x: "translations in the table".into(),
            y: format!("cycles per packet ({:.2} GHz)", self.ghz),
            stages: Vec::new(),
            series: series(of),
            mark: Some((BUDGET_NS * self.ghz, format!("{BUDGET_NS} ns: budget of a whole packet in 2015"))),
        };
        let mut panels = vec![
            panel("further packet", |p| p.look_up_cycles),
            panel("first packet of a translation", |p| p.create_cycles),
        ];
        panels.extend(self.threads_panel());
        let chart = Chart {
            title: "Cost of finding a packet's translation".into(),
            notes: vec![
                format!("{}, one thread, random order, every answer checked. gatun-bench study", self.cpu),
                "Bursts: the memory of 64 packets is prefetched before the first look-up.".into(),
            ],
            panels,
        };
        chart.svg()
    }

    /// Panel of look-ups by several threads. `None` if there is only one number of threads.
    fn threads_panel(&self) -> Option<Panel> {
        let first = self.together.first()?;
        if self.together.iter().all(|t| t.threads == first.threads) {
            return None;
        }
        let of = |structure: &'static str| {
            let mine = self.together.iter().filter(|t| t.structure == structure);
            line(structure, mine.map(|t| (t.threads as f64, t.millions_per_second)).collect())
        };
        let entries = count(first.entries_per_thread.into());
        Some(Panel {
            title: "further packets, with several threads".into(),
            axes: Axes::Logarithmic,
            x: format!("threads, each with {entries} translations of its own"),
            y: "millions per second, all threads".into(),
            series: once(self.together.iter().map(|t| t.structure)).into_iter().map(of).collect(),
            mark: None,
            stages: Vec::new(),
        })
    }
}

/// Line of a structure; dashed in the structure's colour for bursts.
fn line(structure: &'static str, points: Vec<(f64, f64)>) -> Series {
    let family = structure.strip_suffix(", bursts").unwrap_or(structure);
    Series::new(structure, points).like(family).dashed(family != structure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let point = |structure, entries, cycles| Point {
            structure,
            entries,
            create_cycles: cycles * 2.0,
            create_ns: cycles,
            look_up_cycles: cycles,
            look_up_ns: cycles / 2.0,
            bytes_per_entry: 20.0,
        };
        Report {
            cpu: "a <processor> & more".into(),
            ghz: 2.0,
            points: vec![point("tree", 16, 20.0), point("tree", 64, 40.0), point("tree, bursts", 16, 10.0)],
            together: vec![ParallelPoint::new("tree", 1, 64, 10.0), ParallelPoint::new("tree", 2, 64, 19.0)],
            left_out: BTreeSet::new(),
        }
    }

    #[test]
    fn each_csv_line_has_the_same_number_of_fields() {
        let csv = report().csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 1 + 3 + 2);
        assert_eq!(lines[1], "\"tree\",1,16,40,20,20,10,100000000,20");
        let fields = |line: &str| line.replace(", bursts", "").matches(',').count();
        assert!(lines.iter().all(|line| fields(line) == 8), "{csv}");
    }

    #[test]
    fn a_missing_size_is_an_empty_cell() {
        let table = report().by_size(|p| p.look_up_cycles).to_string();
        let row = table.lines().find(|line| line.contains("bursts")).unwrap();
        assert!(row.contains("10.0") && !row.contains("40.0"), "{table}");
    }

    #[test]
    fn the_drawing_is_complete_and_names_each_structure() {
        let svg = report().svg();
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains(">tree</text>") && svg.contains(">tree, bursts</text>"));
        assert!(svg.contains("a &lt;processor&gt; &amp; more"));
    }
}
