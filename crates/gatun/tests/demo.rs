//! `gatun demo` as a whole is `make demo`; here is what it owes the machine it runs on.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Processes that speak of `needle` on their command line, this one left out.
fn processes_about(needle: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.map(|e| e.file_name().to_string_lossy().into_owned()).filter(|pid| *pid != own);
    pids.filter_map(|pid| fs::read(format!("/proc/{pid}/cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(needle))
        .collect()
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(15);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn even_when_it_is_killed_nothing_of_it_is_left() {
    if let Some(why) = gatun_lab::refusal() {
        return gatun_lab::skip("even_when_it_is_killed_nothing_of_it_is_left", &why);
    }
    let output = std::env::temp_dir().join(format!("gatun-demo-test-{}", std::process::id()));
    let needle = output.to_string_lossy().into_owned();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_gatun"))
        .args(["demo", "--seconds", "0", "--output"])
        .arg(&output)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The daemon inside runs: the network is up.
    wait_until("the demo does not begin", || {
        processes_about(&needle).iter().any(|line| line.contains(" run ") && line.contains("gatun.toml"))
    });
    demo.kill().unwrap();
    demo.wait().unwrap();
    wait_until("something is left", || processes_about(&needle).is_empty());
    fs::remove_dir_all(&output).unwrap();
}
