//! Whatever a client of the API sends: bytes as they are, or a query and a body for each of its paths. An answer or none, never
//! a panic, and the next client is served.
#![no_main]

#[path = "../../crates/control/tests/support/any_request.rs"]
mod any_request;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    any_request::run(input);
});
