//! Figures of a fault in several runs: their medians, and the goals for them.

use super::probe::Outcome;
use crate::report::{Report, group, median, missed};

/// Goals of a fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goals {
    /// Longest gap after the beginning of the fault, ms: the most for the median of the runs.
    pub(super) gap_max_ms: Option<f64>,
    /// True if no run may lose a packet, at the beginning of the fault and at its end.
    pub(super) is_lossless: bool,
    /// True if no way leads through any box during the fault.
    pub(super) is_dark: bool,
}

impl Goals {
    pub(super) const NONE: Goals = Goals { gap_max_ms: None, is_lossless: false, is_dark: false };
    /// A process is killed.
    pub(super) const KILLED: Goals = Goals { gap_max_ms: Some(100.0), ..Goals::NONE };
    /// A box loses its power, or nobody hears it.
    pub(super) const SILENT: Goals = Goals { gap_max_ms: Some(300.0), ..Goals::NONE };
    /// The operator moves packets to another box.
    pub(super) const PLANNED: Goals = Goals { is_lossless: true, ..Goals::NONE };
    /// Nothing can pass before the end of the fault.
    pub(super) const DARK: Goals = Goals { is_dark: true, ..Goals::NONE };
}

/// Values of a figure, one of each run.
#[derive(Clone, Debug)]
pub(super) struct Series(Vec<f64>);

impl Series {
    pub(super) fn new(values: impl IntoIterator<Item = f64>) -> Series {
        Series(values.into_iter().collect())
    }

    pub(super) fn median(&self) -> f64 {
        median(self.0.clone()).unwrap_or(0.0)
    }

    fn range(&self) -> [f64; 2] {
        let least = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        [least, self.0.iter().copied().fold(0.0, f64::max)]
    }

    /// Median, and the least and the greatest value if they differ.
    pub(super) fn shown(&self, decimals: usize) -> String {
        let one = |value: f64| match decimals {
            0 => group(value.round() as u64),
            _ => format!("{value:.decimals$}"),
        };
        let (middle, [least, most]) = (one(self.median()), self.range().map(one));
        if least == most { middle } else { format!("{middle} ({least}-{most})") }
    }
}

/// Number of runs in words, for a note.
pub(super) fn runs_of(runs: u32) -> String {
    if runs == 1 { "One run.".into() } else { format!("Medians of {runs} runs in turn.") }
}

/// Returns the longest gaps of a fault and of its return, ms.
pub(super) type Gaps = fn(&Outcome) -> [f64; 2];

/// Runs of a fault.
pub(super) struct Runs<'r> {
    /// Kind of boxes, for a report about several kinds.
    pub(super) what: &'r str,
    pub(super) fault: &'r str,
    pub(super) goals: Goals,
    pub(super) outcomes: Vec<&'r Outcome>,
    pub(super) gaps: Gaps,
}

impl Runs<'_> {
    fn series(&self, of: impl Fn(&Outcome) -> f64) -> Series {
        Series::new(self.outcomes.iter().map(|outcome| of(outcome)))
    }

    /// Adds the checks of the fault to the report, and returns its cells: its name, sent packets; lost ones
    /// and the longest gap, of the fault and of the return; and ended connections. A brief run judges no
    /// gap: a busy machine delays BIRD and the daemons.
    pub(super) fn judge(&self, report: &mut Report, is_brief: bool) -> Vec<String> {
        let counts = |of: fn(&Outcome) -> u64| self.series(|outcome| of(outcome) as f64);
        let (sent, ended) = (counts(Outcome::sent), counts(|outcome| outcome.ended));
        let (lost, lost_on_return) = (counts(Outcome::lost), counts(Outcome::lost_on_return));
        let [gap, gap_on_return] = [0, 1].map(|n| self.series(|outcome| (self.gaps)(outcome)[n]));
        for outcome in &self.outcomes {
            let [passed, passed_later] = outcome.goes_on();
            match self.goals.is_dark {
                true => report.check_once(passed_later, "packets passed after a fault that left no way"),
                false => {
                    report.check_once(passed && passed_later, "packets passed during each fault and after it")
                }
            }
            report.check_once(outcome.ended == 0, "no TCP connection ended");
            report.check_once(outcome.strange == 0, "no answer reached another flow or connection");
            if outcome.ended > 0 {
                let why = outcome.why.join(", ");
                report.notes.push(format!("{}: {} connections ended: {why}", self.name(), outcome.ended));
            }
        }
        let goals = self.goals;
        let is_lost = goals.is_lossless && self.outcomes.iter().any(|o| o.lost() + o.lost_on_return() > 0);
        if goals.is_lossless {
            let both = format!("{} at its beginning, {} at its end", lost.shown(0), lost_on_return.shown(0));
            report.check(!is_lost, format!("{}: no packet was lost: {both}", self.name()));
        }
        let gap_max_ms = goals.gap_max_ms.filter(|_| !is_brief);
        let is_long = gap_max_ms.is_some_and(|most| gap.median() > most);
        if let Some(most) = gap_max_ms {
            let what = format!("{}: gap of {most} ms at most: {} ms", self.name(), gap.shown(0));
            report.check(!is_long, what);
        }
        let judged = |is_missed: bool, cell: String| if is_missed { missed(&cell) } else { cell };
        vec![
            self.fault.to_owned(),
            sent.shown(0),
            judged(is_lost && lost.range()[1] > 0.0, lost.shown(0)),
            judged(is_long, gap.shown(0)),
            judged(is_lost && lost_on_return.range()[1] > 0.0, lost_on_return.shown(0)),
            gap_on_return.shown(0),
            judged(ended.range()[1] > 0.0, ended.shown(0)),
        ]
    }

    /// Name of the fault in checks and notes.
    fn name(&self) -> String {
        if self.what.is_empty() { self.fault.to_owned() } else { format!("{}, {}", self.what, self.fault) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(gap_ms: f64, lost: [u64; 2], ended: u64) -> Outcome {
        let phase = |gap_ms: f64, lost: u64| serde_json::json!({"sent": 1000, "lost": lost, "gap_ms": gap_ms, "flow_gap_ms": gap_ms, "received": 900});
        let phases = [phase(1.0, 0), phase(gap_ms, lost[0]), phase(2.0, lost[1])];
        serde_json::from_value(serde_json::json!({"phases": phases, "ended": ended, "strange": 0, "why": []}))
            .unwrap()
    }

    fn judge(goals: Goals, outcomes: &[Outcome], is_brief: bool) -> (Report, Vec<String>) {
        let mut report = Report::new("pair", "A test.");
        let outcomes = outcomes.iter().collect();
        let runs = Runs { what: "SIIT", fault: "kill -9", goals, outcomes, gaps: Outcome::gaps_ms };
        let row = runs.judge(&mut report, is_brief);
        (report, row)
    }

    #[test]
    fn the_median_of_the_gaps_is_judged() {
        let outcomes = [12.0, 99.0, 400.0].map(|gap| outcome(gap, [3, 0], 0));
        let (report, row) = judge(Goals::KILLED, &outcomes, false);
        assert!(report.is_good());
        assert_eq!(row, ["kill -9", "3,000", "3", "99 (12-400)", "0", "2", "0"]);
        let what = "SIIT, kill -9: gap of 100 ms at most: 99 (12-400) ms";
        assert!(report.checks.iter().any(|check| check.what == what), "{:?}", report.checks);
        let outcomes = [12.0, 101.0, 400.0].map(|gap| outcome(gap, [3, 0], 0));
        let (report, row) = judge(Goals::KILLED, &outcomes, false);
        assert!(!report.is_good());
        assert_eq!(row[3], missed("101 (12-400)"));
        // A brief run has other checks.
        assert!(judge(Goals::KILLED, &outcomes, true).0.is_good());
    }

    #[test]
    fn each_run_of_a_planned_move_loses_nothing() {
        let good = [outcome(1.0, [0, 0], 0), outcome(1.0, [0, 0], 0), outcome(1.0, [0, 0], 0)];
        assert!(judge(Goals::PLANNED, &good, true).0.is_good());
        let bad = [outcome(1.0, [0, 0], 0), outcome(1.0, [0, 2], 0), outcome(1.0, [0, 0], 0)];
        let (report, row) = judge(Goals::PLANNED, &bad, true);
        assert!(!report.is_good());
        assert_eq!((&*row[2], row[4].clone()), ("0", missed("0 (0-2)")));
    }

    #[test]
    fn an_ended_connection_of_any_run_is_a_fault() {
        let outcomes = [outcome(1.0, [0, 0], 0), outcome(1.0, [0, 0], 1), outcome(1.0, [0, 0], 0)];
        let (report, row) = judge(Goals::NONE, &outcomes, true);
        assert!(!report.is_good());
        assert_eq!(row[6], missed("0 (0-1)"));
    }
}
