//! Tests of a run and their outcomes: the list that `scripts/record-tests` writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Outcome of a test. A test that ran in several programs counts as the worst of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Passed,
    /// It lacked something, and skipping was allowed.
    Skipped,
    Ignored,
    Failed,
}

/// A test program's test: `RESULT<TAB>FOLDER<TAB>TARGET<TAB>TEST<TAB>REASON`.
struct Line {
    outcome: Outcome,
    folder: String,
    target: String,
    test: String,
}

/// All tests of one run.
pub(crate) struct RecordedTests {
    /// Lines by the package's folder and the function's name.
    lines: BTreeMap<(String, String), Vec<Line>>,
}

impl RecordedTests {
    pub(crate) fn read(file: &Path) -> Result<RecordedTests, String> {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        RecordedTests::parse(&text)
            .map_err(|line| format!("{}: expected RESULT, FOLDER, TARGET, TEST: {line}", file.display()))
    }

    fn parse(text: &str) -> Result<RecordedTests, String> {
        let mut lines: BTreeMap<(String, String), Vec<Line>> = BTreeMap::new();
        for text in text.lines() {
            let line = Line::parse(text).ok_or(text)?;
            let function = line.test.rsplit("::").next().unwrap_or_default().to_owned();
            lines.entry((line.folder.clone(), function)).or_default().push(line);
        }
        Ok(RecordedTests { lines })
    }

    /// Outcome of a cited test, `path/to/file.rs::function`; `None` if it did not run.
    pub(crate) fn outcome(&self, root: &Path, cited: &str) -> Option<Outcome> {
        let (file, function) = cited.split_once("::")?;
        let folder = package_of(root, file)?;
        let inside = file.strip_prefix(&folder)?.trim_start_matches('/');
        let lines = self.lines.get(&(folder, function.to_owned()))?;
        lines.iter().filter(|line| line.stands_in(inside)).map(|line| line.outcome).max()
    }
}

impl Line {
    fn parse(text: &str) -> Option<Line> {
        let mut fields = text.split('\t');
        let outcome = match fields.next()? {
            "ok" => Outcome::Passed,
            "failed" => Outcome::Failed,
            "ignored" => Outcome::Ignored,
            "skipped" => Outcome::Skipped,
            _ => return None,
        };
        let [folder, target, test] = [fields.next()?, fields.next()?, fields.next()?].map(str::to_owned);
        Some(Line { outcome, folder, target, test })
    }

    /// Returns true if the test is in `file`, relative to the package: its modules are files or lie in one.
    fn stands_in(&self, file: &str) -> bool {
        let path = file.rsplit_once('.').map_or(file, |(path, _)| path);
        let mut parts: Vec<&str> = path.split('/').collect();
        // tests/daemon/xdp.rs belongs to the target `daemon`, src/a/b.rs to the library or a program.
        let target = match parts.as_slice() {
            ["src", ..] => None,
            ["tests", target, ..] => Some(*target),
            [name] => Some(*name),
            _ => return false,
        };
        parts.drain(..if target.is_some() { 2.min(parts.len()) } else { 1 });
        if matches!(parts.last(), Some(&("main" | "lib" | "mod"))) {
            parts.pop();
        }
        let modules: Vec<&str> = self.test.split("::").collect();
        target.is_none_or(|target| target == self.target) && modules.starts_with(&parts)
    }
}

/// The folder of a file's package; for a Python test, the file's own folder.
fn package_of(root: &Path, file: &str) -> Option<String> {
    let mut folders = Path::new(file).ancestors().skip(1);
    let own = folders.clone().next()?;
    let package = match file.ends_with(".py") {
        true => own,
        false => folders.find(|folder| root.join(folder).join("Cargo.toml").is_file())?,
    };
    Some(package.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAN: &str = "ok\tcrates/wire\tgatun_wire\trfc6052::tests::vectors\t\n\
        skipped\ttestkit\tdaemon\txdp::it_holds\tAF_XDP needs root\n\
        ok\ttestkit\tother\txdp::it_holds\t\n\
        failed\ttestkit\tdaemon\tat_the_root\t\n\
        ignored\ttestkit\tgatun_testkit\ta::b::tests::deep\t\n\
        ok\ttests/oracle\tcompare\ttest_it\t\n";

    #[test]
    fn a_cited_test_is_found_by_its_file_with_its_outcome() {
        // The packages must exist, so the test uses this repository's tree.
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let ran = RecordedTests::parse(RAN).unwrap();
        for (cited, outcome) in [
            ("crates/wire/src/rfc6052.rs::vectors", Some(Outcome::Passed)),
            ("crates/wire/src/rfc7915.rs::vectors", None),
            ("crates/wire/tests/rfc6052.rs::vectors", None),
            ("testkit/tests/daemon/xdp.rs::it_holds", Some(Outcome::Skipped)),
            ("testkit/tests/other/xdp.rs::it_holds", Some(Outcome::Passed)),
            ("testkit/tests/daemon/main.rs::at_the_root", Some(Outcome::Failed)),
            ("testkit/tests/daemon.rs::at_the_root", Some(Outcome::Failed)),
            ("testkit/src/a/b.rs::deep", Some(Outcome::Ignored)),
            ("testkit/src/a/b/tests.rs::deep", Some(Outcome::Ignored)),
            ("testkit/src/a/b/mod.rs::deep", Some(Outcome::Ignored)),
            ("testkit/src/a/c.rs::deep", None),
            ("tests/oracle/compare.py::test_it", Some(Outcome::Passed)),
            ("tests/oracle/compare.py::test_other", None),
        ] {
            assert_eq!(ran.outcome(root, cited), outcome, "{cited}");
        }
    }

    #[test]
    fn a_malformed_line_is_refused() {
        for line in ["passed\ta\tb\tc", "ok\ta\tb", ""] {
            assert_eq!(RecordedTests::parse(&format!("{line}\n")).err().as_deref(), Some(line));
        }
    }
}
