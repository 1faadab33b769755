//! The demo on the terminal. It uses colours and progress lines only if standard output is a terminal.

use super::report::{Check, Outcome, Report};
use std::io::{IsTerminal as _, Write as _, stdout};

pub(super) struct Screen {
    pub(super) colours: bool,
}

const GREEN: &str = "32";
const RED: &str = "1;31";
const YELLOW: &str = "33";
const BOLD: &str = "1";

impl Screen {
    pub(super) fn new() -> Self {
        // https://no-color.org
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        Screen { colours: wanted && stdout().is_terminal() }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(super) fn title(&self, text: &str) {
        self.line(&format!("\n{}", self.paint(BOLD, text)));
    }

    pub(super) fn line(&self, text: &str) {
        self.write(&format!("{text}\n"));
    }

    /// Shows a check and adds it to the report.
    pub(super) fn record(&self, check: Check, report: &mut Report) {
        self.show(&check);
        report.checks.push(check);
    }

    fn show(&self, check: &Check) {
        let mark = match check.outcome {
            Outcome::Ok => self.paint(GREEN, "ok      "),
            Outcome::Failed => self.paint(RED, "FAILED  "),
            Outcome::NotRun => self.paint(YELLOW, "not run "),
        };
        self.clear();
        self.line(&format!("  {mark}  {:<46} {}", check.name, check.detail));
    }

    /// Shows a line that the next one overwrites.
    pub(super) fn progress(&self, text: &str) {
        if self.colours {
            self.write(&format!("\r\x1b[2K  ...   {text}"));
        }
    }

    pub(super) fn clear(&self) {
        if self.colours {
            self.write("\r\x1b[2K");
        }
    }

    pub(super) fn table(&self, table: &comfy_table::Table) {
        self.clear();
        self.line(&table.to_string());
    }

    fn write(&self, text: &str) {
        // The demo continues if standard output is closed: its report is a file.
        let _ = stdout().write_all(text.as_bytes()).and_then(|()| stdout().flush());
    }
}
