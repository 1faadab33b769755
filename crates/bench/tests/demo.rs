//! `gatun-bench demo` as a whole is `make demo`; here is what it owes the machine it runs on.

use gatun_lab::{processes_about, wait_until};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long what is waited for may take.
const PATIENCE: Duration = Duration::from_secs(15);

#[test]
fn even_when_it_is_killed_nothing_of_it_is_left() {
    if let Some(why) = gatun_lab::refusal() {
        return gatun_lab::skip(&why);
    }
    let gatun = Path::new(env!("CARGO_BIN_EXE_gatun-bench")).with_file_name("gatun");
    if !gatun.is_file() {
        let why = format!("there is no {}: cargo build --package gatun", gatun.display());
        return gatun_lab::skip("even_when_it_is_killed_nothing_of_it_is_left", &why);
    }
    let output = std::env::temp_dir().join(format!("gatun-demo-test-{}", std::process::id()));
    let needle = output.to_string_lossy().into_owned();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_gatun-bench"))
        .args(["demo", "--seconds", "0", "--output"])
        .arg(&output)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The daemon inside runs: the network is up.
    wait_until("the demo begins", PATIENCE, || {
        processes_about(&needle)
            .unwrap()
            .iter()
            .any(|line| line.contains(" run ") && line.contains("gatun.toml"))
    })
    .unwrap();
    demo.kill().unwrap();
    demo.wait().unwrap();
    wait_until("nothing is left", PATIENCE, || processes_about(&needle).unwrap().is_empty()).unwrap();
    fs::remove_dir_all(&output).unwrap();
}
