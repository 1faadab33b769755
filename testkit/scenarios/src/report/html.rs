//! The report as a self-contained page: no script, no external resource, light or dark as the reader
//! prefers.

use super::{MISSED, Report, Table, figures, group};
use crate::ends::{Latency, Sample};
use gatun_testkit::plot::{Axes, Chart, Panel, Series};
use std::fmt::Write as _;

const STYLE: &str = "\
:root { color-scheme: light dark; --text: #1d2228; --soft: #5a636e; --page: #fff; --grid: #e3e6ea; --bad: #c01818 }
@media (prefers-color-scheme: dark) { :root { --text: #e8ecf0; --soft: #a5aeb8; --page: #14181d; --grid: #2a3038;
  --bad: #ff6b6b } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; display: block; overflow-x: auto }
td, th { padding: .15rem .9rem .15rem 0; border-bottom: 1px solid var(--grid); text-align: right; font-weight: 400 }
td:first-child, th:first-child { text-align: left } th { color: var(--soft) }
.no { color: var(--bad); font-weight: 600 } svg { width: 100%; height: auto; margin: .6rem 0 }
";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

pub(super) fn page(report: &Report) -> String {
    let title = escape(&report.scenario);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n<h1>{title}</h1>\n<p>{}</p>\n",
        escape(&report.about)
    );
    for why in &report.not_run {
        let _ = writeln!(out, "<p class=\"no\">NOT RUN HERE: {}</p>", escape(why));
    }
    let rows = figures(report).into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    table(&mut out, &[], rows);
    charts(&report.samples).iter().chain(&report.charts).for_each(|chart| out.push_str(&chart.svg()));
    if !report.explained_by.is_empty() {
        out.push_str("<h2>Lost packets</h2>\n");
        let rows = report.explained_by.iter().map(|(name, n)| vec![name.clone(), group(*n)]).collect();
        table(&mut out, &["counter", "packets"].map(String::from), rows);
    }
    for Table { title, header, rows } in &report.tables {
        let _ = writeln!(out, "<h2>{}</h2>", escape(title));
        table(&mut out, header, rows.clone());
    }
    list(&mut out, "Checks", report.checks.iter().map(|check| (check.ok, check.what.as_str())));
    list(&mut out, "Notes", report.notes.iter().map(|note| (true, note.as_str())));
    out.push_str("<h2>Machine</h2>\n");
    table(
        &mut out,
        &[],
        report.machine.iter().map(|(name, value)| vec![name.clone(), value.clone()]).collect(),
    );
    out.push_str("</html>\n");
    out
}

fn list<'a>(out: &mut String, title: &str, items: impl Iterator<Item = (bool, &'a str)>) {
    let mut items = items.peekable();
    if items.peek().is_none() {
        return;
    }
    let _ = writeln!(out, "<h2>{title}</h2>\n<ul>");
    for (ok, item) in items {
        let (class, word) = if ok { ("", "") } else { (" class=\"no\"", "NO: ") };
        let _ = writeln!(out, "<li{class}>{word}{}</li>", escape(item));
    }
    out.push_str("</ul>\n");
}

fn table(out: &mut String, header: &[String], rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    out.push_str("<table>\n");
    let mut line = |tag: &str, cells: &[String]| {
        let class = |cell: &str| if cell.starts_with(MISSED) { " class=\"no\"" } else { "" };
        let cells: String =
            cells.iter().map(|cell| format!("<{tag}{}>{}</{tag}>", class(cell), escape(cell))).collect();
        let _ = writeln!(out, "<tr>{cells}</tr>");
    };
    if !header.is_empty() {
        line("th", header);
    }
    rows.iter().for_each(|row| line("td", row));
    out.push_str("</table>\n");
}

/// Charts of the sampled quantities.
fn charts(samples: &[Sample]) -> Vec<Chart> {
    let mut stages: Vec<(f64, String)> = Vec::new();
    let mut last_end = 0.0;
    for sample in samples {
        if stages.last().is_none_or(|(_, name)| *name != sample.stage) {
            stages.push((last_end, sample.stage.to_owned()));
        }
        last_end = sample.at_s;
    }
    let line = |name, value: &dyn Fn(&Sample) -> Option<f64>| {
        let points = samples.iter().filter_map(|sample| Some((sample.at_s, value(sample)?)));
        Series::new(name, points.collect())
    };
    let latency = |of: fn(&Latency) -> f64| move |sample: &Sample| sample.latency_us.as_ref().map(of);
    let chart = |title: &str, series: Vec<Series>| {
        let panel = Panel {
            title: String::new(),
            axes: Axes::OverTime,
            x: "seconds".into(),
            y: title.into(),
            series,
            mark: None,
            stages: stages.clone(),
        };
        Chart { title: title.into(), notes: Vec::new(), panels: vec![panel] }
    };
    let all = [
        ("Packets a second", vec![line("sent", &|s| Some(s.tx_pps)), line("returned", &|s| Some(s.rx_pps))]),
        ("Lost packets a second", vec![line("lost", &|s| Some(s.lost_pps))]),
        ("Sessions", vec![line("sessions", &|s| s.sessions.map(|n| n as f64))]),
        ("Sessions ended on request, a second", vec![line("ended", &|s| Some(s.kills_per_s))]),
        (
            "Round trip, µs",
            vec![
                line("p50", &latency(|l| l.p50)),
                line("p99", &latency(|l| l.p99)),
                line("p99.9", &latency(|l| l.p999)),
            ],
        ),
    ];
    let drawn = all.into_iter().filter(|(_, series)| series.iter().any(|series| series.len() > 1));
    drawn.map(|(title, series)| chart(title, series)).collect()
}
