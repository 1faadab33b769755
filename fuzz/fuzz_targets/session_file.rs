//! Arbitrary bytes in the memory file that a previous process left, header and records: each session is
//! restored unchanged or refused, never a panic.
#![no_main]

#[path = "../../crates/nat/tests/support/any_sessions.rs"]
mod any_sessions;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    any_sessions::run(input);
});
