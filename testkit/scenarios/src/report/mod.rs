//! The report of a run: JSON for programs, Markdown for a terminal or a ticket, and a page with charts.

mod html;
mod markdown;

use crate::ends::{Latency, Sample};
use crate::run::Accounts;
use anyhow::Context as _;
use gatun_testkit::plot::Chart;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// A table of one scenario.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) header: Vec<String>,
    /// The first cell of a row is its name.
    pub(crate) rows: Vec<Vec<String>>,
}

/// Medians of the runs of iperf3 through one translator.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Throughput {
    /// The translator.
    pub(crate) path: String,
    /// `TCP`, `UDP`, or `UDP offered` for the highest offered rate with at most 0.1 % of loss.
    pub(crate) protocol: &'static str,
    pub(crate) streams: u32,
    pub(crate) direction: &'static str,
    /// Rate at the receiver; the offered rate for `UDP offered`.
    pub(crate) gbit_s: f64,
    /// Lost datagrams in per cent; `None` for TCP.
    pub(crate) lost_percent: Option<f64>,
    /// Time of all processors of the machine for a received Gbit, ms.
    pub(crate) processor_ms_per_gbit: Option<f64>,
    /// Rate of each run.
    pub(crate) runs_gbit_s: Vec<f64>,
}

/// A condition that a good run meets.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) what: String,
    pub(crate) ok: bool,
}

/// The whole report. Values that a scenario does not measure are null, never zero.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) scenario: String,
    /// A description in a sentence or two.
    pub(crate) about: String,
    pub(crate) machine: Vec<(String, String)>,
    /// Packets that the generator sent, and packets that returned.
    pub(crate) tx: Option<u64>,
    pub(crate) rx: Option<u64>,
    pub(crate) lost: Option<u64>,
    /// The sum of `explained_by`.
    pub(crate) explained: Option<u64>,
    /// Packets that ended on the way, by counter.
    pub(crate) explained_by: BTreeMap<String, u64>,
    pub(crate) reordered: Option<u64>,
    pub(crate) duplicates: Option<u64>,
    pub(crate) corrupted: Option<u64>,
    /// Packets a second, both directions together: through the translator, and through the plain forwarder
    /// in its place.
    pub(crate) pps: Option<f64>,
    pub(crate) reference_pps: Option<f64>,
    /// Processor time per packet of the translator and of the plain forwarder, ns. Only with memif, where
    /// both poll without a pause.
    pub(crate) core_ns: Option<f64>,
    pub(crate) reference_core_ns: Option<f64>,
    /// Share of the time in which the translator had packets.
    pub(crate) core_share: Option<f64>,
    /// Share of the time in which more packets waited for the generator than one burst: if it is high, the
    /// generator is the limit.
    pub(crate) generator_behind: Option<f64>,
    /// Additional time of a packet that is handed over to another worker, ns.
    pub(crate) handover_ns: Option<f64>,
    pub(crate) sessions: Option<u64>,
    pub(crate) kills_per_s: Option<f64>,
    /// Round trip, twice through the translator.
    pub(crate) latency_us: Option<Latency>,
    pub(crate) reference_latency_us: Option<Latency>,
    /// Measurements by iperf3.
    pub(crate) throughput: Vec<Throughput>,
    pub(crate) tables: Vec<Table>,
    /// Charts of the page.
    #[serde(skip)]
    pub(crate) charts: Vec<Chart>,
    pub(crate) checks: Vec<Check>,
    /// Measurements that are left to a further run.
    pub(crate) left: usize,
    /// Parts that could not run here, with the reason.
    pub(crate) not_run: Vec<String>,
    pub(crate) notes: Vec<String>,
    pub(crate) samples: Vec<Sample>,
}

impl Report {
    pub(crate) fn new(scenario: &str, about: &str) -> Report {
        Report { scenario: scenario.into(), about: about.into(), machine: machine(), ..Report::default() }
    }

    /// Adds the packets of a run, and checks that all are accounted for and none was damaged.
    pub(crate) fn account(&mut self, accounts: &Accounts) {
        self.add(accounts);
        self.check_once(accounts.tally.damaged() == 0, "nothing was corrupted, repeated or reordered");
    }

    /// Like [`account`](Self::account), for sessions that move between two translators: that can reorder
    /// their packets.
    #[cfg(feature = "dpdk")]
    pub(crate) fn account_with_moves(&mut self, accounts: &Accounts) {
        self.add(accounts);
        let is_damaged = accounts.tally.duplicates + accounts.tally.corrupted > 0;
        self.check_once(!is_damaged, "nothing was corrupted or repeated");
    }

    fn add(&mut self, accounts: &Accounts) {
        let add = |sum: &mut Option<u64>, n: u64| *sum = Some(sum.unwrap_or(0) + n);
        add(&mut self.tx, accounts.tx);
        add(&mut self.rx, accounts.tally.received);
        add(&mut self.lost, accounts.lost());
        add(&mut self.explained, accounts.explained());
        add(&mut self.reordered, accounts.tally.reordered);
        add(&mut self.duplicates, accounts.tally.duplicates);
        add(&mut self.corrupted, accounts.tally.corrupted);
        for (name, count) in &accounts.explained_by {
            *self.explained_by.entry(name.clone()).or_default() += count;
        }
        if !accounts.balance() {
            let by: Vec<String> =
                accounts.explained_by.iter().map(|(name, n)| format!("{name} {}", group(*n))).collect();
            let (lost, tx) = (group(accounts.lost()), group(accounts.tx));
            self.notes.push(format!("A run of {tx} packets lost {lost}; counters: {}.", by.join(", ")));
        }
        self.check_once(accounts.balance(), "the lost packets equal the packets counted where they ended");
    }

    /// Adds a check that several runs of a scenario share: it passes if all of them do.
    pub(crate) fn check_once(&mut self, ok: bool, what: &str) {
        match self.checks.iter_mut().find(|check| check.what == what) {
            Some(check) => check.ok &= ok,
            None => self.check(ok, what.into()),
        }
    }

    /// The machine's load average when the report was made.
    pub(crate) fn load_average(&self) -> &str {
        let found = self.machine.iter().find(|(name, _)| name == LOAD_AVERAGE);
        found.map_or("unknown", |(_, value)| value)
    }

    pub(crate) fn check(&mut self, ok: bool, what: String) {
        self.checks.push(Check { what, ok });
    }

    /// Returns true if all checks passed.
    pub(crate) fn is_good(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }

    pub(crate) fn markdown(&self) -> String {
        markdown::page(self)
    }

    /// Writes the tables, the notes and the machine into a page, between `<!-- NAME: begin -->` and
    /// `<!-- NAME: end -->`.
    pub(crate) fn write_tables(&self, page: &Path) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(page).with_context(|| page.display().to_string())?;
        let marks = ["begin", "end"].map(|mark| format!("<!-- {}: {mark} -->", self.scenario));
        let begin = text.find(&marks[0]).map(|at| at + marks[0].len());
        let (begin, end) = begin
            .zip(text.find(&marks[1]))
            .filter(|(begin, end)| begin <= end)
            .with_context(|| format!("{} lacks the lines {} and {}", page.display(), marks[0], marks[1]))?;
        let machine: Vec<String> =
            self.machine.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let (tables, notes) = (markdown::tables(self), markdown::notes(self));
        let notes = if notes.is_empty() { notes } else { notes + "\n" };
        let new = format!("\n{tables}\n{notes}Measured on: {}.\n\n", machine.join("; "));
        std::fs::write(page, format!("{}{new}{}", &text[..begin], &text[end..]))
            .with_context(|| page.display().to_string())
    }

    /// Writes `NAME.md`, `NAME.html` and `NAME.json` into a folder, and the JSON into another file if one is
    /// given.
    pub(crate) fn write(&self, folder: &Path, json: Option<&Path>) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        let file = |ending: &str| folder.join(format!("{}.{ending}", self.scenario));
        let html = html::page(self);
        let files = [(file("md"), &self.markdown()), (file("html"), &html), (file("json"), &text)];
        for (file, text) in
            files.iter().map(|(file, text)| (file.as_path(), *text)).chain(json.map(|file| (file, &text)))
        {
            std::fs::write(file, text).with_context(|| file.display().to_string())?;
        }
        Ok(())
    }
}

/// Name of the load average among the properties of the machine.
pub(crate) const LOAD_AVERAGE: &str = "load average at the beginning";

/// Properties of the machine that affect the figures.
fn machine() -> Vec<(String, String)> {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
    let meminfo = read("/proc/meminfo");
    let memory = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let gib = memory
        .and_then(|kib| kib.trim().parse::<f64>().ok())
        .map(|kib| format!("{:.0} GiB", kib / 1048576.0));
    let load = read("/proc/loadavg");
    let others = load.split(' ').next().unwrap_or("?");
    let row = |name: &str, value: &str| (name.to_owned(), value.trim().to_owned());
    vec![
        row("processor", model.unwrap_or("unknown")),
        row("usable processors", &crate::processors::processors_count().to_string()),
        row("memory", gib.as_deref().unwrap_or("unknown")),
        row("kernel", &read("/proc/sys/kernel/osrelease")),
        row(LOAD_AVERAGE, others),
    ]
}

/// Formats a count in groups of three digits.
pub(crate) fn group(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Beginning of a cell whose figure misses its goal.
const MISSED: &str = "NO: ";

/// Returns a cell whose figure misses its goal: the formats show it in red, or bold.
pub(crate) fn missed(cell: &str) -> String {
    format!("{MISSED}{cell}")
}

/// Median; of an even number of values, the mean of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    match values.len() % 2 {
        1 => Some(upper),
        _ => Some((values[middle - 1] + upper) / 2.0),
    }
}

/// Key figures of a report, with their names.
fn figures(report: &Report) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    let mut row = |name, value: Option<String>| rows.extend(value.map(|value| (name, value)));
    let rate = |pps: f64| format!("{} a second", group(pps.round() as u64));
    row("packets sent", report.tx.map(group));
    row("returned", report.rx.map(group));
    row("lost", report.lost.map(group));
    row("lost, explained by counters", report.explained.map(group));
    row("reordered within a flow", report.reordered.map(group));
    row("duplicates", report.duplicates.map(group));
    row("corrupted", report.corrupted.map(group));
    row("packets through Gatun, both directions", report.pps.map(rate));
    row("packets through the plain forwarder", report.reference_pps.map(rate));
    let ratio =
        report.pps.zip(report.reference_pps.filter(|pps| *pps > 0.0)).map(|(a, b)| format!("{:.2}", a / b));
    row("Gatun / plain forwarder", ratio);
    let ns = |ns: f64| format!("{ns:.1} ns: {} a second", group((1e9 / ns) as u64));
    row("processor time per packet, Gatun", report.core_ns.map(ns));
    row("processor time per packet, plain forwarder", report.reference_core_ns.map(ns));
    let ratio = report.reference_core_ns.zip(report.core_ns).map(|(a, b)| format!("{:.2}", a / b));
    row("plain forwarder / Gatun, processor time per packet", ratio);
    row("Gatun busy", report.core_share.map(|share| format!("{:.0} % of the time", 100.0 * share)));
    row(
        "generator behind",
        report.generator_behind.map(|share| format!("{:.0} % of the time", 100.0 * share)),
    );
    row("additional time of a packet handed over", report.handover_ns.map(|ns| format!("{ns:.1} ns")));
    row("sessions", report.sessions.map(group));
    row("sessions ended on request", report.kills_per_s.map(rate));
    let latency = |l: Latency| format!("{:.0} / {:.0} / {:.0} µs", l.p50, l.p99, l.p999);
    row("round trip, p50 / p99 / p99.9", report.latency_us.map(latency));
    row("round trip through the plain forwarder", report.reference_latency_us.map(latency));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let sample = |at_s| Sample {
            at_s,
            stage: "steady",
            tx_pps: 1000.0,
            rx_pps: 990.0,
            lost_pps: 10.0,
            latency_us: Some(Latency { p50: 10.0, p99: 20.0, p999: 30.0, max: 40.0 }),
            sessions: Some(1 << 21),
            kills_per_s: 0.0,
        };
        let mut report = Report::new("carrier", "A test <of> reports.");
        report.tx = Some(2_097_152);
        report.samples = vec![sample(0.5), sample(1.0)];
        report.tables.push(Table {
            title: "A table".into(),
            header: vec!["what".into(), "n".into()],
            rows: vec![vec!["a & b".into(), "1".into()], vec!["c".into(), missed("2")]],
        });
        report.not_run.push("Nothing over memif".into());
        report.notes.push("3 runs of 2 s.".into());
        report.check(true, "holds".into());
        report
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1000, 2_097_152].map(group), ["0", "999", "1,000", "2,097,152"]);
    }

    #[test]
    fn every_format_has_the_figures_and_the_parts_not_run() {
        let mut report = report();
        for text in [report.markdown(), html::page(&report)] {
            assert!(
                text.contains("2,097,152") && text.contains("Nothing over memif") && text.contains("A table")
            );
            assert!(!text.contains("NaN") && !text.contains("inf"));
        }
        assert!(html::page(&report).contains("A test &lt;of&gt; reports."));
        let is_red = |text: &str| html::page(&report).contains(&format!("<td class=\"no\">{text}</td>"));
        assert!(is_red("NO: 2") && !is_red("1"));
        assert!(report.markdown().contains("| **NO: 2** |"), "{}", report.markdown());
        let json: serde_json::Value = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        assert_eq!((&json["tx"], &json["rx"]), (&serde_json::json!(2_097_152), &serde_json::Value::Null));
        assert_eq!(json["samples"][0]["latency_us"]["p99"], 20.0);
        assert!(report.is_good());
        report.check(false, "does not".into());
        assert!(!report.is_good() && report.markdown().contains("does not"));
    }

    #[test]
    fn tables_are_written_between_the_marks_of_their_scenario() {
        let page = std::env::temp_dir().join(format!("gatun-report-{}.md", std::process::id()));
        std::fs::write(&page, "before\n<!-- carrier: begin -->\nold\n<!-- carrier: end -->\nafter\n")
            .unwrap();
        report().write_tables(&page).unwrap();
        let text = std::fs::read_to_string(&page).unwrap();
        std::fs::write(&page, "no marks").unwrap();
        assert!(report().write_tables(&page).is_err());
        std::fs::remove_file(&page).unwrap();
        assert!(
            text.starts_with("before\n<!-- carrier: begin -->\n") && text.ends_with("-->\nafter\n"),
            "{text}"
        );
        assert!(text.contains("a & b") && !text.contains("old"), "{text}");
        assert!(text.contains("- 3 runs of 2 s.\n\nMeasured on: "), "{text}");
    }

    #[test]
    fn the_page_loads_no_external_resource() {
        let page = html::page(&report());
        let foreign = page.match_indices("://").filter(|(at, _)| !page[..*at].ends_with("http")).count();
        assert_eq!(foreign, 0, "only SVG's namespace looks like a link");
        assert!(page.matches("http://").count() == page.matches("http://www.w3.org/2000/svg").count());
        assert!(!page.contains("<script") && page.contains("prefers-color-scheme: dark"));
    }
}
