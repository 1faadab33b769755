//! `scripts/run-queue` runs each noted program once, as cargo would. Programs of its list only compute.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// A name of a folder of this test.
fn folder(name: &str) -> Folder {
    let folder = Folder(std::env::temp_dir().join(format!("gatun-lanes-{name}-{}", std::process::id())));
    fs::create_dir_all(folder.0.join("queue")).unwrap();
    folder
}

/// Notes a stand-in for a test program of `crates/nat`.
fn note(folder: &Folder, target: &str, script: &str) {
    let program = folder.0.join(format!("{target}-0123456789abcdef"));
    fs::write(&program, format!("#!/bin/bash\nlog=${{@: -1}}\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut noting = Command::new(root().join("scripts/queue-tests"));
    noting.arg(&program).args(["an argument", "*"]).current_dir(&folder.0);
    // What is noted holds for the run, too: a run of all tests has a record of its own.
    noting.env("GATUN_RAN", folder.0.join("ran"));
    noting.env("GATUN_QUEUE", folder.0.join("queue")).env("CARGO_MANIFEST_DIR", root().join("crates/nat"));
    assert!(noting.env("OF_CARGO", "it's\n$HOME").status().unwrap().success());
}

/// Runs the noted programs. Returns the sorted record, the output, and true if all succeeded.
fn run(folder: &Folder) -> (Vec<String>, String, bool) {
    let ran = folder.0.join("ran");
    fs::write(&ran, "").unwrap();
    let mut command = Command::new(root().join("scripts/run-queue"));
    let output = command.env("GATUN_QUEUE", folder.0.join("queue")).env("GATUN_RAN", &ran).output().unwrap();
    let mut lines: Vec<String> = fs::read_to_string(ran).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    (lines, String::from_utf8(output.stdout).unwrap(), output.status.success())
}

#[test]
fn each_program_of_either_lane_runs_once_as_cargo_would_run_it() {
    let folder = folder("once");
    let script = "[ \"$OF_CARGO\" = $'it\\'s\\n$HOME' ] && [ \"$1|$2\" = 'an argument|*' ] && \
                  [ -d queue ] && echo \"ok $(chrt -p $$ | grep -c IDLE)\" >\"$log\"; echo printed by $0";
    for target in ["waits", "nat64", "waits_too"] {
        note(&folder, target, script);
    }
    let (lines, output, good) = run(&folder);
    assert!(good, "{output}");
    // The one that only computes runs at idle times, the others as this test does.
    let idle = |command: &str| {
        let shell = Command::new("sh").args(["-c", command]).output().unwrap();
        u8::from(String::from_utf8(shell.stdout).unwrap().contains("IDLE"))
    };
    let (own, at_idle) = (idle("chrt -p $$"), idle("chrt -i 0 sh -c 'chrt -p $$'"));
    let line = |target: &str, idle: u8| format!("ok\tcrates/nat\t{target}\t{idle}\t");
    assert_eq!(lines, [line("nat64", at_idle), line("waits", own), line("waits_too", own)], "{output}");
    assert_eq!(output.matches("printed by").count(), 3, "{output}");
}

#[test]
fn a_failure_in_either_lane_fails_the_run_and_the_others_run() {
    for failing in ["nat64", "waits"] {
        let folder = folder(failing);
        for target in ["waits", "nat64", "nat44", "waits_too"] {
            let result = if target == failing { "exit 3" } else { "echo 'ok a' >\"$log\"" };
            note(&folder, target, result);
        }
        let (lines, output, good) = run(&folder);
        assert!(!good && lines.len() == 4, "{output}");
        let failed: Vec<&String> = lines.iter().filter(|line| line.starts_with("failed\t")).collect();
        assert!(failed.len() == 1 && failed[0].contains(failing), "{lines:?}");
    }
}

/// Sources of a package's target: of its test program, or of its library.
fn sources(package: &str, target: &str) -> Vec<PathBuf> {
    let folder = root().join(package);
    let name = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let name = name.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).unwrap();
    let library = (name.replace('-', "_") == target).then(|| folder.join("src"));
    let program = ["", ".rs"].map(|ending| folder.join("tests").join(format!("{target}{ending}")));
    library.into_iter().chain(program).filter(|path| path.exists()).collect()
}

fn has_clock(path: &Path) -> bool {
    const CLOCKS: [&str; 6] =
        ["Instant::now", "SystemTime::now", "sleep(", "recv_timeout(", "wait_until(", "run_test("];
    match fs::read_dir(path) {
        Ok(mut inside) => inside.any(|entry| has_clock(&entry.unwrap().path())),
        Err(_) => fs::read_to_string(path).is_ok_and(|text| CLOCKS.iter().any(|clock| text.contains(clock))),
    }
}

#[test]
fn programs_that_only_compute_exist_and_read_no_clock() {
    let script = fs::read_to_string(root().join("scripts/run-queue")).unwrap();
    let list = script.split_once("\ncomputing=(\n").unwrap().1.split_once("\n)\n").unwrap().0;
    for line in list.lines() {
        let (package, target) = line.trim().trim_matches('\'').split_once(' ').unwrap();
        let sources = sources(package, target);
        assert!(!sources.is_empty(), "{line}: no such program");
        assert!(!sources.iter().any(|path| has_clock(path)), "{line}: reads a clock");
    }
    // The check finds clocks.
    assert!(sources("crates/gatun", "daemon").iter().any(|path| has_clock(path)));
}
