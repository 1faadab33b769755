//! Arbitrary answers of a P4 switch: entries, counters, results and p4info. The controller reads or
//! refuses them, and never panics.
#![no_main]

#[path = "../../crates/p4-controller/tests/support/any_answer.rs"]
mod any_answer;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    any_answer::run(input);
});
