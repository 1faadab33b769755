//! Arbitrary requests to the API: raw bytes, or a query and a body for each path. The API answers or
//! refuses, never panics, and serves the next client.
#![no_main]

#[path = "../../crates/control/tests/support/any_request.rs"]
mod any_request;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    any_request::run(input);
});
