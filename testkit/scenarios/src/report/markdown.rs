//! The report as Markdown.

use super::{MISSED, Report, Table, figures};
use std::fmt::Write as _;

pub(super) fn page(report: &Report) -> String {
    let mut out = format!("# {}\n\n{}\n", report.scenario, report.about);
    for why in &report.not_run {
        let _ = writeln!(out, "\n> **NOT RUN HERE:** {why}");
    }
    let figures = figures(report);
    if !figures.is_empty() {
        let rows = figures.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
        table(&mut out, &["", ""].map(String::from), rows);
    }
    if !report.explained_by.is_empty() {
        out.push_str("\n## Lost packets\n");
        let rows = report.explained_by.iter().map(|(name, n)| vec![name.clone(), super::group(*n)]).collect();
        table(&mut out, &["counter", "packets"].map(String::from), rows);
    }
    for Table { title, header, rows } in &report.tables {
        let _ = writeln!(out, "\n## {title}");
        table(&mut out, header, rows.clone());
    }
    if !report.checks.is_empty() {
        out.push_str("\n## Checks\n\n");
        for check in &report.checks {
            let _ = writeln!(out, "- {} {}", if check.ok { "yes:" } else { "**NO:**" }, check.what);
        }
    }
    if !report.notes.is_empty() {
        out.push_str("\n## Notes\n\n");
        out.push_str(&notes(report));
    }
    out.push_str("\n## Machine\n");
    let rows = report.machine.iter().map(|(name, value)| vec![name.clone(), value.clone()]).collect();
    table(&mut out, &["", ""].map(String::from), rows);
    out
}

/// The notes alone, as a list.
pub(super) fn notes(report: &Report) -> String {
    report.notes.iter().map(|note| format!("- {note}\n")).collect()
}

/// The tables alone, with their titles as paragraphs.
pub(super) fn tables(report: &Report) -> String {
    let mut out = String::new();
    for Table { title, header, rows } in &report.tables {
        let _ = writeln!(out, "\n{title}:");
        table(&mut out, header, rows.clone());
    }
    out
}

/// A table whose columns also line up in plain text.
fn table(out: &mut String, header: &[String], mut rows: Vec<Vec<String>>) {
    for cell in rows.iter_mut().flatten().filter(|cell| cell.starts_with(MISSED)) {
        *cell = format!("**{cell}**");
    }
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).chain(header.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(3)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    out.push('\n');
    let mut line = |cells: &[String]| {
        out.push('|');
        for (column, width) in widths.iter().enumerate() {
            let cell = cells.get(column).map_or("", |cell| cell);
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            let _ = match column {
                0 => write!(out, " {cell}{pad} |"),
                _ => write!(out, " {pad}{cell} |"),
            };
        }
        out.push('\n');
    };
    line(header);
    let rule = |column: usize, width: &usize| match column {
        0 => "-".repeat(*width),
        _ => "-".repeat(width - 1) + ":",
    };
    let rules: Vec<String> = widths.iter().enumerate().map(|(column, width)| rule(column, width)).collect();
    line(&rules);
    rows.iter().for_each(|row| line(row));
}
