//! Checks of sessions that move between two translators by reloads, while numbered packets pass.

use crate::report::{Report, group};

/// Packets each second of the numbered flows.
pub(super) const RATE: f64 = 10_000.0;

/// Checks that sessions moved at least as often as the reloads cause, and that no packet was lost but those
/// that full queues dropped.
pub(super) fn check(report: &mut Report, moves: u64, wanted: u64, lost: u64) {
    report.check(moves >= wanted, format!("reloads moved all sessions: {} moves", group(moves)));
    report.check(lost == 0, format!("{} moves lose no packet: lost {}", group(moves), group(lost)));
}
