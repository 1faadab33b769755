//! Replay of messages that fuzzing found; some made by hand check the harness itself.

#[path = "support/any_answer.rs"]
mod any_answer;
#[path = "../../p4-server/tests/support/replay.rs"]
mod replay;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/regressions/p4_answer");

#[test]
fn fuzzing_findings_in_messages_stay_fixed() {
    replay::replay(FOLDER, any_answer::run);
}

#[test]
fn changed_messages_are_executed_or_refused() {
    replay::run_changed(FOLDER, any_answer::run);
}
