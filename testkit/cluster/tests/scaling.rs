//! The figures of docs/explanation/scaling.md.
#![allow(missing_docs)]

use gatun_cluster_model::scaling::table;

#[test]
fn the_page_about_scaling_has_the_figures_of_the_command() {
    let page = include_str!("../../../docs/explanation/scaling.md");
    for line in table() {
        assert!(page.lines().any(|of_page| of_page == line.trim_end()), "missing: {line}");
    }
}
