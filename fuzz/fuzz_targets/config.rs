//! Arbitrary text as a configuration file: it is accepted or reported, never a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(report) = gatun_config::load_str(text, "fuzz.toml") {
        let _ = report.to_string();
    }
});
