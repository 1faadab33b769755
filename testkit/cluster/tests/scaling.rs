//! The figures of docs/explanation/scaling.md.
#![allow(missing_docs)]

use gatun_cluster_model::scaling::{SESSION_BYTES, table};

#[test]
fn the_page_about_scaling_has_the_figures_of_the_command() {
    let page = include_str!("../../../docs/explanation/scaling.md");
    for line in table() {
        assert!(page.lines().any(|of_page| of_page == line.trim_end()), "missing: {line}");
    }
}

#[test]
fn sessions_take_the_bytes_that_the_benchmark_has_measured() {
    let page = include_str!("../../../docs/explanation/benchmarks.md");
    let begin = "| `steady`, bytes of a session and its end |";
    let row = page.lines().find(|line| line.starts_with(begin)).unwrap();
    let latest = row.trim_end_matches(['|', ' ']).rsplit('|').next().unwrap().trim();
    assert_eq!(latest.parse(), Ok(SESSION_BYTES), "{row}");
    let page = include_str!("../../../docs/explanation/scaling.md");
    assert!(page.contains(&format!("take {SESSION_BYTES} bytes with their ends")));
}
