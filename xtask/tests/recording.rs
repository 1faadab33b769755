//! `scripts/record-tests` does not count a test as passed if it lacked something or did not end.

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

/// Record of a stand-in for a test program; true if the recorder succeeded.
fn recorded(name: &str, script: &str) -> (String, bool) {
    let folder = Folder(std::env::temp_dir().join(format!("gatun-record-{name}-{}", std::process::id())));
    fs::create_dir_all(&folder.0).unwrap();
    let (program, ran) = (folder.0.join("daemon-0123456789abcdef"), folder.0.join("ran"));
    // The last argument is the log's name, after `--logfile`.
    fs::write(&program, format!("#!/bin/bash\nlog=${{@: -1}}\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(&ran, "").unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut recorder = Command::new(root.join("scripts/record-tests"));
    recorder.arg(&program).env("GATUN_RAN", &ran).env("CARGO_MANIFEST_DIR", root.join("crates/gatun"));
    let status = recorder.status().unwrap();
    (fs::read_to_string(ran).unwrap(), status.success())
}

#[test]
fn a_test_that_passed_is_recorded_with_its_package_and_program() {
    let (lines, good) = recorded("passed", "printf 'ok a::b\\nignored c\\n' >\"$log\"");
    assert!(good);
    assert_eq!(lines, "ok\tcrates/gatun\tdaemon\ta::b\t\nignored\tcrates/gatun\tdaemon\tc\t\n");
}

#[test]
fn a_test_that_lacked_something_is_skipped_or_failed() {
    let lacking = "printf 'a\\tno root\\nb\\tno root\\n' >>\"$GATUN_LACKING\"";
    let (lines, good) =
        recorded("lacking", &format!("{lacking}; printf 'ok a\\nfailed b\\n' >\"$log\"; exit 101"));
    assert!(!good);
    assert_eq!(
        lines,
        "skipped\tcrates/gatun\tdaemon\ta\tno root\nfailed\tcrates/gatun\tdaemon\tb\tno root\n"
    );
}

#[test]
fn a_lack_without_a_tests_name_fails_the_run() {
    let (lines, _) =
        recorded("unnamed", "printf 'main\\tno root\\n' >>\"$GATUN_LACKING\"; echo 'ok a' >\"$log\"");
    assert!(lines.contains("failed\tcrates/gatun\tdaemon\tmain\t"), "{lines}");
}

/// Stand-in whose tests fail together, and of which those given pass alone.
fn failing(tests: &[&str], alone: &[&str]) -> String {
    let passes =
        alone.iter().map(|test| format!("[ \"$1\" = {test} ] && echo \"ok {test}\" >\"$log\" && exit 0\n"));
    let fails = tests.iter().map(|test| format!("echo 'failed {test}' >>\"$log\"\n"));
    passes.chain(fails).chain(["exit 101".to_owned()]).collect()
}

#[test]
fn a_test_that_failed_among_others_and_passes_alone_is_unstable() {
    let (lines, good) = recorded("unstable", &failing(&["a"], &["a"]));
    assert!(good);
    assert_eq!(lines, "ok\tcrates/gatun\tdaemon\ta\tfailed among others, passed alone\n");
}

#[test]
fn a_test_that_fails_twice_has_failed() {
    let (lines, good) = recorded("twice", &failing(&["a", "b"], &["a"]));
    assert!(!good);
    assert!(lines.ends_with("failed\tcrates/gatun\tdaemon\tb\t\n"), "{lines}");
}

#[test]
fn no_test_runs_again_if_many_failed() {
    let tests = ["a", "b", "c", "d"];
    let (lines, good) = recorded("many", &failing(&tests, &tests));
    assert!(!good);
    assert_eq!(lines.matches("failed\t").count(), 4, "{lines}");
}

#[test]
fn a_program_that_dies_has_failed() {
    let (lines, good) = recorded("died", "echo 'ok a' >\"$log\"; kill -SEGV $$");
    assert!(!good);
    assert!(
        lines.contains("failed\tcrates/gatun\tdaemon\t(the whole program)\tended with status 139"),
        "{lines}"
    );
}
