//! The features of the P4 program, each with the tests that show it, in `docs/explanation/p4.md`.

use crate::{read, root};

const DOCUMENT: &str = "docs/explanation/p4.md";
/// Heading of the table.
const HEADING: &str = "## Features of 2019";
/// Features in the tables of "High speed NAT64 with P4": P4/BMV2 and P4/NetFPGA have the same.
const FEATURES: [&str; 12] = [
    "Switch to controller",
    "Controller to switch",
    "NDP",
    "ARP",
    "ICMP6",
    "ICMP",
    "NAT64: TCP",
    "NAT64: UDP",
    "NAT64: ICMP/ICMP6",
    "NAT64: sessions",
    "Delta checksum",
    "Payload checksum",
];

/// Cells of the table's rows.
fn rows() -> Vec<Vec<String>> {
    let text = read(DOCUMENT);
    let (_, section) = text.split_once(HEADING).expect("the heading is there");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// Texts between backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Fault of `FILE::TEST`, if there is no such test. Functions in a block of `proptest!` have `#[test]`, too.
fn fault(test: &str) -> Option<String> {
    let Some((file, name)) = test.split_once("::") else { return Some(format!("{test}: write FILE::TEST")) };
    let Ok(text) = std::fs::read_to_string(root().join(file)) else {
        return Some(format!("{test}: no such file"));
    };
    let before = text.split(&format!("fn {name}(")).next().filter(|before| before.len() < text.len());
    let marked = before.and_then(|before| before.trim_end().lines().last()).map(str::trim);
    (marked != Some("#[test]")).then(|| format!("{test}: no such test"))
}

#[test]
fn each_feature_of_the_thesis_names_tests_that_exist() {
    let rows = rows();
    let features: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(features, FEATURES);
    for row in &rows {
        assert_eq!(row.len(), 5, "{row:?}");
        let tests = quoted(&row[4]);
        assert!(!tests.is_empty(), "no test: {row:?}");
        let faults: Vec<String> = tests.into_iter().filter_map(fault).collect();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}

#[test]
fn a_test_that_does_not_exist_is_detected() {
    let this = "crates/gatun/tests/book/features.rs";
    assert_eq!(fault(&format!("{this}::a_test_that_does_not_exist_is_detected")), None);
    assert!(fault(&format!("{this}::fault")).is_some());
    assert!(fault(&format!("{this}::another")).is_some());
    assert!(fault("crates/none.rs::another").is_some());
    assert!(fault("another").is_some());
}
