//! Arbitrary packets from the IPv4 side: no panic, counters that add up, consistent output.
#![no_main]

#[path = "../../crates/nat/tests/support/hostile.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    hostile::run(hostile::Way::FourToSix, input);
});
