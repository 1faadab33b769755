//! Whatever text: a configuration or a report that can be printed, never a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(report) = gatun_config::load_str(text, "fuzz.toml") {
        let _ = report.to_string();
    }
});
