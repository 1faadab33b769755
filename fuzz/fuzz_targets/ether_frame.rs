//! Arbitrary Ethernet frames, received and sent: no panic, one fate for each frame, consistent answers.
#![no_main]

#[path = "../../crates/ether/tests/support/hostile.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    hostile::run(input);
});
