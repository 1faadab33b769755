//! Whatever bytes in the file in memory that a process has left, its header and its records: sessions that are put back as they
//! were or refused, never a panic.
#![no_main]

#[path = "../../crates/nat/tests/support/any_sessions.rs"]
mod any_sessions;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    any_sessions::run(input);
});
