//! Whatever comes from an Ethernet, and whatever is to be sent: no panic, one fate for each, answers that hold together.
#![no_main]

#[path = "../../crates/ether/tests/support/hostile.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    hostile::run(input);
});
