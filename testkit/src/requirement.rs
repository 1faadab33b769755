//! Programs, rights and namespaces that a test needs.
//!
//! A test that lacks one of them fails. With `GATUN_ALLOW_SKIP=1` in the environment it is skipped instead:
//! it ends at once, prints why, and appends a line to the file that `GATUN_LACKING` names.
//! `scripts/run-tests` sets that variable and counts such a test as skipped, never as passed.

use std::env;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Variable that allows tests to be skipped if it is `1`.
const ALLOW: &str = "GATUN_ALLOW_SKIP";
/// Variable with the sandbox's name, set inside a sandbox.
pub(crate) const INSIDE: &str = "GATUN_LAB";
/// Path of the file that gets a line `TEST<TAB>REASON` for each test that lacks something.
const RECORD: &str = "GATUN_LACKING";

/// Ends a test that lacks something; call it as `return skip(why)`.
///
/// # Panics
/// Always panics, unless `GATUN_ALLOW_SKIP=1`: a test that proves nothing has not passed.
pub fn skip(why: &str) {
    let test = current_test();
    record(&test, why);
    assert!(
        env::var_os(ALLOW).is_some_and(|value| value == "1"),
        "{test} cannot run on this machine: {why}\n\
         Install what tests need with scripts/setup (as root), or set {ALLOW}=1 to skip such tests."
    );
    eprintln!("\n!!! SKIPPED, NOTHING PROVED: {test}: {why}\n");
}

/// Reason why a test cannot run if one of its programs is not installed. Each program has its Debian package
/// beside it.
pub fn missing(programs: &[(&str, &str)]) -> Option<String> {
    let (program, package) = programs.iter().find(|(program, _)| find_program(program).is_none())?;
    Some(format!("the program `{program}` is missing (Debian: {package})"))
}

/// Path of a program: in PATH, in the sbin folders that are not in every user's PATH, or in `target/tools`,
/// where scripts/setup puts downloaded tools.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools");
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into(), tools]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Major and minor version of the running kernel.
pub fn linux() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Name of the calling test: libtest names the thread after it, and the sandbox passes it to its processes.
pub(crate) fn current_test() -> String {
    let inside = env::var(INSIDE).ok();
    inside.or_else(|| std::thread::current().name().map(str::to_owned)).unwrap_or_default()
}

fn record(test: &str, why: &str) {
    let Some(path) = env::var_os(RECORD) else { return };
    let written = File::options()
        .append(true)
        .open(&path)
        .and_then(|mut file| writeln!(file, "{test}\t{}", why.replace(['\n', '\t'], " ")));
    // A test that is skipped and not recorded would count as passed.
    written.unwrap_or_else(|e| panic!("{RECORD}: {}: {e}", Path::new(&path).display()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Output};

    /// Set in a child process whose test reports that it lacks something.
    const LACKS: &str = "GATUN_TEST_LACKS";

    /// Does nothing, except in a child of the tests below.
    #[test]
    fn a_test_that_lacks_something() {
        if env::var_os(LACKS).is_some() {
            skip("the program `nothing` is missing");
        }
    }

    fn child(allow: Option<&str>, name: &str) -> (Output, String) {
        let file = env::temp_dir().join(format!("gatun-lacking-{name}-{}", std::process::id()));
        std::fs::write(&file, "").unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "requirement::tests::a_test_that_lacks_something", "--nocapture"]);
        command.args(["--test-threads", "2"]).env(LACKS, "1").env(RECORD, &file);
        command.env_remove(ALLOW).env_remove(INSIDE);
        command.envs(allow.map(|value| (ALLOW, value)));
        let output = command.output().unwrap();
        let lines = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(file).unwrap();
        (output, lines)
    }

    const RECORDED: &str =
        "requirement::tests::a_test_that_lacks_something\tthe program `nothing` is missing\n";

    #[test]
    fn a_test_that_lacks_something_fails_and_says_what_to_do() {
        for (allow, name) in [(None, "unset"), (Some("0"), "zero"), (Some(""), "empty")] {
            let (output, lines) = child(allow, name);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success(), "{allow:?}: {output:?}");
            assert!(said.contains("the program `nothing` is missing"), "{said}");
            assert!(said.contains("scripts/setup") && said.contains("GATUN_ALLOW_SKIP=1"), "{said}");
            assert_eq!(lines, RECORDED);
        }
    }

    #[test]
    fn a_lacking_test_is_skipped_and_recorded_only_if_skipping_is_allowed() {
        let (output, lines) = child(Some("1"), "allowed");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{output:?}");
        assert!(said.contains("SKIPPED, NOTHING PROVED: requirement::tests::a_test_that_lacks"), "{said}");
        assert_eq!(lines, RECORDED);
    }

    #[test]
    fn a_missing_program_is_reported_with_its_package() {
        assert!(find_program("sh").is_some());
        assert_eq!(missing(&[("sh", "dash")]), None);
        let why = missing(&[("sh", "dash"), ("gatun-no-such-program", "none")]).unwrap();
        assert_eq!(why, "the program `gatun-no-such-program` is missing (Debian: none)");
    }
}
