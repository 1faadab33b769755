//! The matrix: every requirement with the tests that prove it, or with the reason why none does.

use crate::citations;
use crate::ran::{Outcome, RecordedTests};
use crate::requirements::{self, List, REASONS, Requirement, State};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// Published matrix, relative to the project's folder.
pub(crate) const PUBLISHED: &str = "docs/rfc/matrix.md";

/// Folders whose tests may cite a requirement.
const SEARCHED: [&str; 3] = ["crates", "testkit", "tests"];

/// The requirements, their tests and their reasons.
pub(crate) struct Matrix {
    list: List,
    reasons: BTreeMap<String, String>,
    /// Tests by the id of a requirement.
    tests: BTreeMap<String, BTreeSet<String>>,
    /// Faults found while reading: cited ids that do not exist, comments without a test.
    bad_citations: Vec<String>,
}

impl Matrix {
    /// Reads the list, the reasons and the comments of all tests.
    pub(crate) fn read(root: &Path) -> Result<Matrix, String> {
        let list = List::read(root)?;
        let reasons = requirements::reasons(root)?;
        let (citations, mut bad_citations) = citations::collect(root, &SEARCHED)?;
        let mut tests: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for citation in citations {
            match list.resolve(&citation.id) {
                Some(id) => {
                    tests.entry(id.to_owned()).or_default().insert(citation.test);
                }
                None => bad_citations
                    .push(format!("{} proves {}, which is not in the list", citation.test, citation.id)),
            }
        }
        Ok(Matrix { list, reasons, tests, bad_citations })
    }

    /// All faults of the matrix, one line each.
    pub(crate) fn faults(&self, root: &Path) -> Vec<String> {
        let mut faults = self.bad_citations.clone();
        faults.extend(self.list.duplicates().iter().map(|id| format!("{id} is in the list twice")));
        for id in self.reasons.keys() {
            if !self.list.requirements().any(|r| r.id == *id) {
                faults.push(format!("{REASONS}: {id} is not in the list"));
            }
        }
        faults.extend(self.list.requirements().filter_map(|r| self.fault_of(r)));
        if std::fs::read_to_string(root.join(PUBLISHED)).ok() != Some(self.markdown()) {
            faults.push(format!("{PUBLISHED} is out of date: run `cargo xtask rfc --write`"));
        }
        faults
    }

    /// Removes each cited test that has not passed. Returns the faults, and the ids without a passed test.
    pub(crate) fn keep_passed(&mut self, root: &Path, ran: &RecordedTests) -> (Vec<String>, Vec<String>) {
        let mut faults = BTreeSet::new();
        for test in self.tests.values().flatten() {
            let how = match ran.outcome(root, test) {
                Some(Outcome::Passed | Outcome::Skipped) => continue,
                Some(Outcome::Failed) => "failed",
                Some(Outcome::Ignored) => "was ignored",
                None => "did not run",
            };
            faults.insert(format!("{test} is cited as a proof, but {how}"));
        }
        for tests in self.tests.values_mut() {
            tests.retain(|test| ran.outcome(root, test) == Some(Outcome::Passed));
        }
        let unproved =
            self.tests.iter().filter(|(_, tests)| tests.is_empty()).map(|(id, _)| id.clone()).collect();
        self.tests.retain(|_, tests| !tests.is_empty());
        (faults.into_iter().collect(), unproved)
    }

    /// Fault of a row: it has neither test nor reason, or its state contradicts them.
    fn fault_of(&self, r: &Requirement) -> Option<String> {
        let (tested, reasoned) = (self.tests.contains_key(&r.id), self.reasons.contains_key(&r.id));
        let fault = match (r.state, tested, reasoned) {
            (_, false, false) => "has neither a test nor a reason",
            (State::Later, true, _) => "is marked as later, but a test proves it",
            (State::Partly, false, true) => "is marked as partly, but no test proves any of it",
            (State::Partly, true, false) => "is marked as partly, but no reason names the rest",
            (State::Offered, true, true) => "has a test and a reason: mark it as partly, or drop the reason",
            _ => return None,
        };
        Some(format!("{} {fault}: {}", r.id, r.text))
    }

    /// A line with the totals.
    pub(crate) fn summary(&self) -> String {
        let ids = self.list.requirements().count();
        let tested = self.list.requirements().filter(|r| self.tests.contains_key(&r.id)).count();
        let later = self.list.requirements().filter(|r| r.state == State::Later).count();
        let tests: BTreeSet<&String> = self.tests.values().flatten().collect();
        format!("{ids} requirements: {tested} proved by {} tests, {later} for a later version", tests.len())
    }

    /// The matrix for a terminal.
    pub(crate) fn table(&self) -> String {
        let mut out = String::new();
        for group in &self.list.groups {
            let _ = writeln!(out, "\n{}\n", group.title);
            for r in &group.requirements {
                let _ = writeln!(out, "{:<14} {:<20} {}", r.id, r.section, r.text);
                for line in self.evidence(r) {
                    let _ = writeln!(out, "{:<14} {line}", "");
                }
            }
        }
        let _ = writeln!(out, "\n{}", self.summary());
        out
    }

    /// The matrix as published.
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::from(
            "# Requirements and their tests\n\n\
             Made by `cargo xtask rfc --write` from `requirements.toml`, `reasons.toml` and the comments\n\
             above the tests; `make test` fails if it is out of date, has a hole, or cites a test that has not passed.\n\n",
        );
        let _ = writeln!(out, "{}.", self.summary());
        for group in &self.list.groups {
            let _ = writeln!(
                out,
                "\n## {}\n\n| id | section | requirement | proved by |\n|---|---|---|---|",
                group.title
            );
            for r in &group.requirements {
                let trap = r.trap.as_ref().map(|t| format!(" *{t}*")).unwrap_or_default();
                let evidence = self.evidence(r).join("<br>");
                let cells = [&r.id, &r.section, &format!("{}{trap}", r.text), &evidence]
                    .map(|c| c.replace('|', "\\|"));
                let _ = writeln!(out, "| {} |", cells.join(" | "));
            }
        }
        out
    }

    fn evidence(&self, r: &Requirement) -> Vec<String> {
        let mut lines: Vec<String> = self.tests.get(&r.id).into_iter().flatten().cloned().collect();
        lines.extend(self.reasons.get(&r.id).map(|reason| match r.state {
            State::Offered => format!("no test: {reason}"),
            State::Partly => format!("in part: {reason}"),
            State::Later => format!("later: {reason}"),
        }));
        if lines.is_empty() {
            lines.push("NOTHING".into());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A tree with the given files, removed at the end.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, list: &str, reasons: &str, source: &str) -> Tree {
            let root = std::env::temp_dir().join(format!("gatun-xtask-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            for folder in ["docs/rfc", "crates/a/src"] {
                fs::create_dir_all(root.join(folder)).expect("a folder for the test");
            }
            let list = format!("[[group]]\ntitle = \"T\"\nrequirements = [{list}]\n");
            for (path, text) in
                [(requirements::LIST, list.as_str()), (REASONS, reasons), ("crates/a/src/lib.rs", source)]
            {
                fs::write(root.join(path), text).expect("a file for the test");
            }
            Tree(root)
        }

        /// The faults after the matrix has been published.
        fn faults(&self) -> Vec<String> {
            let matrix = Matrix::read(&self.0).expect("the tree can be read");
            fs::write(self.0.join(PUBLISHED), matrix.markdown()).expect("the matrix can be written");
            matrix.faults(&self.0)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const TESTED: &str = "// proves: A1-1\n#[test]\nfn it_holds() {}\n";
    const ROW_1: &str = r#"{ id = "A1-1", section = "RFC 1 1", text = "One." },"#;
    const NO_REASONS: &str = "reason = []";

    #[test]
    fn a_complete_matrix_has_no_fault() {
        let list =
            format!(r#"{ROW_1} {{ id = "A1-2", section = "RFC 1 2", text = "Two.", state = "later" }}"#);
        let tree = Tree::new("whole", &list, "[[reason]]\nids = [\"A1-2\"]\nreason = \"not in 0.1\"", TESTED);
        assert_eq!(tree.faults(), [""; 0]);
    }

    #[test]
    fn an_id_with_neither_test_nor_reason_is_a_hole() {
        let list = format!(r#"{ROW_1} {{ id = "A1-2", section = "RFC 1 2", text = "Two." }}"#);
        let tree = Tree::new("hole", &list, NO_REASONS, TESTED);
        assert_eq!(tree.faults(), ["A1-2 has neither a test nor a reason: Two."]);
    }

    #[test]
    fn a_cited_id_that_does_not_exist_is_a_fault() {
        let tree =
            Tree::new("cited", ROW_1, NO_REASONS, "// proves: A1-1, A9-9\n#[test]\nfn it_holds() {}\n");
        assert_eq!(tree.faults(), ["crates/a/src/lib.rs::it_holds proves A9-9, which is not in the list"]);
    }

    #[test]
    fn a_reason_beside_a_test_or_for_no_id_is_a_fault() {
        let reasons = "[[reason]]\nids = [\"A1-1\", \"A9-9\"]\nreason = \"r\"";
        let tree = Tree::new("reason", ROW_1, reasons, TESTED);
        assert_eq!(
            tree.faults(),
            [
                "docs/rfc/reasons.toml: A9-9 is not in the list",
                "A1-1 has a test and a reason: mark it as partly, or drop the reason: One.",
            ]
        );
    }

    #[test]
    fn a_test_of_a_later_requirement_is_a_fault() {
        let list = r#"{ id = "A1-1", section = "s", text = "One.", state = "later" }"#;
        let tree = Tree::new("later", list, "[[reason]]\nids = [\"A1-1\"]\nreason = \"r\"", TESTED);
        assert_eq!(tree.faults(), ["A1-1 is marked as later, but a test proves it: One."]);
    }

    #[test]
    fn a_test_that_did_not_run_or_pass_proves_nothing() {
        let tree = Tree::new("ran", ROW_1, NO_REASONS, TESTED);
        fs::write(tree.0.join("crates/a/Cargo.toml"), "").unwrap();
        let list = tree.0.join("ran");
        let test = "crates/a/src/lib.rs::it_holds is cited as a proof, but";
        for (line, faults, unproved) in [
            ("ok\tcrates/a\ta\tit_holds\t", vec![], vec![]),
            ("skipped\tcrates/a\ta\tit_holds\tno root", vec![], vec!["A1-1"]),
            ("failed\tcrates/a\ta\tit_holds\t", vec![format!("{test} failed")], vec!["A1-1"]),
            ("ignored\tcrates/a\ta\tit_holds\t", vec![format!("{test} was ignored")], vec!["A1-1"]),
            ("ok\tcrates/a\ta\tother\t", vec![format!("{test} did not run")], vec!["A1-1"]),
        ] {
            fs::write(&list, format!("{line}\n")).unwrap();
            let mut matrix = Matrix::read(&tree.0).unwrap();
            let (found, without) = matrix.keep_passed(&tree.0, &RecordedTests::read(&list).unwrap());
            assert_eq!(
                (found, without),
                (faults, unproved.iter().map(|&id| id.to_owned()).collect()),
                "{line}"
            );
            let proved = if unproved.is_empty() { 1 } else { 0 };
            assert!(matrix.summary().starts_with(&format!("1 requirements: {proved} proved")), "{line}");
        }
    }

    #[test]
    fn a_stale_published_matrix_is_a_fault() {
        let tree = Tree::new("stale", ROW_1, NO_REASONS, TESTED);
        assert_eq!(tree.faults(), [""; 0]);
        fs::write(tree.0.join("crates/a/src/lib.rs"), TESTED.replace("it_holds", "renamed"))
            .expect("a write");
        let matrix = Matrix::read(&tree.0).expect("the tree can be read");
        assert_eq!(
            matrix.faults(&tree.0),
            ["docs/rfc/matrix.md is out of date: run `cargo xtask rfc --write`"]
        );
    }
}
