//! Log lines about cleared sessions and bindings.
//!
//! The first request is logged at once. Requests within the next second are summed up in one line per client.
//! A client that sends thousands of requests a second therefore causes one line a second, and every ended
//! session is counted. At `debug`, each request has its line.

use gatun_api::types::Cleared;
use gatun_wire::text::counted;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time over which requests are summed up.
pub(crate) const SUMMED_UP_FOR: Duration = Duration::from_secs(1);
/// Clients with a line of their own; all others share one.
const CLIENTS_MAX: usize = 16;

/// Clearings that are not logged yet.
#[derive(Default)]
pub(crate) struct ClearedLog(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// True if a line was written within the last second.
    is_recent: bool,
    sums: Vec<Sum>,
}

struct Sum {
    who: String,
    requests: u64,
    first: String,
    last: String,
    cleared: Cleared,
}

/// Treatment of a request in the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LogTreatment {
    /// Write this line.
    Line(String),
    /// Write this line, and those of [`ClearedLog::sums`] a second later, repeatedly until there are none.
    LineAndMore(String),
    /// Write nothing now: the request is part of the next sums.
    Summed,
}

impl ClearedLog {
    /// Records that `who` ended `what`. With `each`, every request has a line.
    pub(crate) fn note(&self, who: &str, what: &str, cleared: &Cleared, each: bool) -> LogTreatment {
        if each {
            return LogTreatment::Line(line(who, what, cleared));
        }
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.is_recent {
            waiting.is_recent = true;
            return LogTreatment::LineAndMore(line(who, what, cleared));
        }
        waiting.add(who, what, cleared);
        LogTreatment::Summed
    }

    /// The lines about the last second. If there are none, the next request is logged at once.
    pub(crate) fn sums(&self) -> Vec<String> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sums = std::mem::take(&mut waiting.sums);
        waiting.is_recent = !sums.is_empty();
        sums.iter().map(Sum::line).collect()
    }
}

impl Waiting {
    fn add(&mut self, who: &str, what: &str, cleared: &Cleared) {
        let is_known = self.sums.iter().any(|sum| sum.who == who);
        let who = if is_known || self.sums.len() < CLIENTS_MAX { who } else { "others" };
        if let Some(sum) = self.sums.iter_mut().find(|sum| sum.who == who) {
            sum.requests += 1;
            sum.last = what.to_owned();
            sum.cleared.sessions += cleared.sessions;
            sum.cleared.bindings += cleared.bindings;
            return;
        }
        self.sums.push(Sum {
            who: who.to_owned(),
            requests: 1,
            first: what.to_owned(),
            last: what.to_owned(),
            cleared: cleared.clone(),
        });
    }
}

impl Sum {
    fn line(&self) -> String {
        let Sum { who, requests, first, last, cleared } = self;
        match requests {
            1 => line(who, first, cleared),
            _ => line(who, &format!("by {}, {first} to {last}", counted(*requests, "request")), cleared),
        }
    }
}

fn line(who: &str, what: &str, Cleared { sessions, bindings }: &Cleared) -> String {
    let (sessions, bindings) = (counted(*sessions, "session"), counted(*bindings, "binding"));
    format!("api: {who} cleared {what}: {sessions}, {bindings}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Cleared {
        Cleared { sessions: 2, bindings: 1 }
    }

    #[test]
    fn requests_within_a_second_are_summed_up_per_client() {
        let log = ClearedLog::default();
        let note = |who: &str, what: &str| log.note(who, what, &one(), false);
        assert_eq!(
            note("uid 0", "a"),
            LogTreatment::LineAndMore("api: uid 0 cleared a: 2 sessions, 1 binding".into())
        );
        for what in ["b", "c", "d"] {
            assert_eq!(note("uid 0", what), LogTreatment::Summed);
        }
        assert_eq!(note("uid 7", "e"), LogTreatment::Summed);
        assert_eq!(
            log.sums(),
            [
                "api: uid 0 cleared by 3 requests, b to d: 6 sessions, 3 bindings",
                "api: uid 7 cleared e: 2 sessions, 1 binding"
            ]
        );
        // Requests after those lines are summed up too; after a second without any, a request is logged at
        // once.
        assert_eq!(note("uid 7", "f"), LogTreatment::Summed);
        assert_eq!(log.sums().len(), 1);
        assert_eq!(log.sums(), [""; 0]);
        assert!(matches!(note("uid 7", "g"), LogTreatment::LineAndMore(_)));
    }

    #[test]
    fn lines_are_bounded_and_sums_complete_for_any_number_of_clients() {
        let log = ClearedLog::default();
        for n in 0..=1000 {
            log.note(&format!("token{n}"), "a", &one(), false);
        }
        let lines = log.sums();
        assert_eq!(lines.len(), CLIENTS_MAX + 1);
        assert_eq!(
            lines[CLIENTS_MAX],
            "api: others cleared by 984 requests, a to a: 1,968 sessions, 984 bindings"
        );
    }

    #[test]
    fn each_request_has_its_line_if_asked_for() {
        let log = ClearedLog::default();
        for _ in 0..3 {
            let line = "api: uid 0 cleared a: 2 sessions, 1 binding".to_owned();
            assert_eq!(log.note("uid 0", "a", &one(), true), LogTreatment::Line(line));
        }
        assert_eq!(log.sums(), [""; 0]);
    }
}
