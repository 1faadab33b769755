//! The whole demo, and its clean-up.

use gatun_testkit::{missing, processes_about, wait_until};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time limit of each wait.
const PATIENCE: Duration = Duration::from_secs(15);

const PROGRAMS: [(&str, &str); 9] = [
    ("ping", "iputils-ping"),
    ("traceroute", "traceroute"),
    ("curl", "curl"),
    ("python3", "python3"),
    ("ethtool", "ethtool"),
    ("tcpdump", "tcpdump"),
    ("tshark", "tshark"),
    ("iperf3", "iperf3"),
    ("tayga", "tayga"),
];

/// Reason why the demo cannot run.
fn refusal() -> Option<String> {
    let gatun = Path::new(env!("CARGO_BIN_EXE_gatun-scenarios")).with_file_name("gatun");
    let built = || format!("{} is missing: cargo build --package gatun", gatun.display());
    gatun_testkit::refusal().or_else(|| missing(&PROGRAMS)).or_else(|| (!gatun.is_file()).then(built))
}

/// A folder that is removed with the test.
struct Output(PathBuf);

impl Output {
    fn new(name: &str) -> Output {
        let output = Output(std::env::temp_dir().join(format!("gatun-demo-{name}-{}", std::process::id())));
        fs::create_dir_all(&output.0).unwrap();
        output
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn demo(output: &Output, seconds: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatun-scenarios"));
    command.args(["demo", "--seconds", seconds, "--output"]).arg(&output.0);
    command
}

/// Runs it; returns the report, the output, and true if it succeeded.
fn run(mut command: Command, output: &Output) -> (Value, String, bool) {
    let done = command.output().unwrap();
    let said = [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    let report = fs::read(output.0.join("report.json")).unwrap_or_else(|e| panic!("no report: {e}: {said}"));
    (serde_json::from_slice(&report).unwrap(), said, done.status.success())
}

/// Names of the checks with an outcome.
fn names(report: &Value, outcome: &str) -> Vec<String> {
    let all = report["checks"].as_array().unwrap().iter();
    all.filter(|check| check["outcome"] == outcome)
        .map(|check| check["name"].as_str().unwrap().to_owned())
        .collect()
}

/// A PATH that begins with a folder that holds a script of that name.
fn in_front(output: &Output, name: &str, script: &str) -> String {
    let folder = output.0.join("programs");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

#[test]
fn every_check_of_the_whole_demo_passes_throughput_included() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    let output = Output::new("whole");
    let (report, said, good) = run(demo(&output, "1"), &output);
    assert!(good, "{said}");
    // Ten checks on the wire, two captures, four with offloads, twelve measurements.
    assert_eq!(names(&report, "ok").len(), 28, "{said}");
    assert_eq!((names(&report, "failed").len(), names(&report, "not_run").len()), (0, 0), "{said}");
    let measured = report["iperf"].as_array().unwrap();
    assert_eq!(measured.len(), 12, "{said}");
    assert!(measured.iter().all(|row| row["gbit_s"].as_f64().unwrap() > 0.0), "{said}");
    assert!(said.contains("28 of 28 checks passed"), "{said}");
}

#[test]
fn a_failing_iperf3_keeps_the_other_results_and_fails_the_demo() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    let output = Output::new("fails");
    let path = in_front(&output, "iperf3", "echo '{ \"error\": \"out of order\" }'; exit 1");
    let mut command = demo(&output, "1");
    command.env("PATH", path);
    let (report, said, good) = run(command, &output);
    assert!(!good, "{said}");
    assert_eq!(names(&report, "ok").len(), 16, "{said}");
    assert_eq!(names(&report, "failed").len(), 12, "{said}");
    assert!(said.contains("FAILED") && said.contains("12 of 28 checks FAILED"), "{said}");
}

#[test]
fn a_check_that_was_not_run_does_not_count_as_passed() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    let output = Output::new("not-made");
    // All programs of PATH except tshark.
    let folder = output.0.join("programs");
    fs::create_dir_all(&folder).unwrap();
    for place in std::env::split_paths(&std::env::var_os("PATH").unwrap()) {
        for program in fs::read_dir(place).into_iter().flatten().flatten() {
            let link = folder.join(program.file_name());
            if program.file_name() != "tshark" && !link.exists() {
                let _ = std::os::unix::fs::symlink(program.path(), link);
            }
        }
    }
    let mut command = demo(&output, "0");
    command.env("PATH", &folder);
    let (report, said, good) = run(command, &output);
    assert!(good, "{said}");
    assert_eq!(names(&report, "ok").len(), 14, "{said}");
    assert_eq!(
        names(&report, "not_run"),
        ["tshark: no fault in client.pcap", "tshark: no fault in server.pcap"]
    );
    assert!(said.contains("14 of 16 checks passed, 2 not run"), "{said}");
}

#[test]
fn a_killed_demo_leaves_no_process_running() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    let output = Output::new("killed");
    let needle = output.0.to_string_lossy().into_owned();
    let mut demo = demo(&output, "0").stdout(Stdio::null()).spawn().unwrap();
    // The daemon in the sandbox runs: the network is up.
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
}
