//! Arbitrary messages of a controller to the P4Runtime server, and p4info in text form. The server executes
//! or refuses them, never panics, and executes the next one.
#![no_main]

#[path = "../../crates/p4-server/tests/support/any_message.rs"]
mod any_message;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    any_message::run(input);
});
