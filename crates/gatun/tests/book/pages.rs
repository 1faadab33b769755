//! Tests that run the command blocks of all pages except the tutorials, which `tutorials.rs` follows.
//!
//! A page with commands names its scene, a script in `scenes/` that makes namespaces and starts a daemon:
//! `<!-- scene: NAME -->`. `steps.rs` describes the other comments. A block that no test can run has the
//! reason above it. The number of such blocks is limited here.

use crate::shell::Shell;
use crate::steps::{self, Mark, Step};
use crate::{read, root};
use std::path::Path;

/// Number of blocks that are not run. It rises only with a reason in the page.
const NOT_RUN_MAX: usize = 20;

/// Generated pages; their generators check the commands.
const GENERATED: [&str; 2] = ["docs/reference/cli.md", "docs/reference/configuration.md"];

fn follow(test: &str, programs: &[&str], body: fn()) {
    let missing = || {
        let missing = programs.iter().find(|program| gatun_testkit::find_program(program).is_none())?;
        Some(format!("the program `{missing}` is missing"))
    };
    let refusal = || gatun_testkit::refusal_but_to_root("a page").or_else(missing);
    gatun_testkit::run_test(&format!("pages::{test}"), refusal, body);
}

/// Runs all blocks of a page.
fn run(document: &str) {
    let mut shell = Shell::new().unwrap();
    for step in steps::steps(&read(document)) {
        match step {
            Step::Scene(name) => {
                let script = read(&format!("crates/gatun/tests/book/scenes/{name}.sh"));
                let shown = shell.step(&script).unwrap();
                assert!(shown.failed.is_empty(), "{name}: failed: {}\n{}", shown.failed, shown.text);
            }
            Step::Hidden(block) => {
                let shown = shell.step(&block.text).unwrap();
                assert!(
                    shown.failed.is_empty(),
                    "{document}:{}: {}\n{}",
                    block.line,
                    shown.failed,
                    shown.text
                );
            }
            Step::Block(block, mark) => steps::take(&mut shell, document, &block, mark.as_ref()),
        }
    }
}

macro_rules! pages {
    ($($test:ident: $document:literal, $programs:expr;)*) => {
        const PAGES: &[&str] = &[$($document),*];
        $(
            #[test]
            fn $test() {
                follow(stringify!($test), &$programs, || run($document));
            }
        )*
    };
}

pages! {
    the_readme_shows_what_happens: "README.md", ["ping"];
    operations_go_as_the_page_says: "docs/how-to/operations.md", ["ping"];
    a_reload_goes_as_the_page_says: "docs/how-to/reload.md", ["ping"];
    a_restart_goes_as_the_page_says: "docs/how-to/restart.md", ["ping"];
    the_fast_path_works_as_the_page_says: "docs/how-to/fastpath.md", ["ping"];
    the_log_answers_as_the_page_says: "docs/how-to/logging.md", ["ping"];
    the_service_is_bound_as_the_page_says: "docs/how-to/service.md", ["ping"];
    the_web_page_starts_as_the_page_says: "docs/how-to/web.md", ["ping"];
    routes_are_announced_as_the_page_says: "docs/how-to/announce.md", ["ip"];
    certificates_of_switches_are_made_as_the_page_says: "docs/how-to/p4.md", ["openssl"];
    a_pair_is_operated_as_the_page_says: "docs/how-to/pair.md", ["ip"];
    interfaces_are_used_as_the_page_says: "docs/how-to/xdp.md", ["ip"];
    the_api_answers_as_the_page_says: "docs/reference/api.md", ["ping", "curl", "openssl"];
    a_kernel_is_checked_as_the_page_says: "docs/reference/kernels.md", ["ping"];
}

/// All documents with their blocks of commands and marks.
fn documents() -> Vec<(String, Vec<Step>)> {
    let mut names = vec!["README.md".to_owned()];
    for folder in ["how-to", "reference", "explanation"] {
        let entries = std::fs::read_dir(root().join("docs").join(folder)).expect("the folder is there");
        let files = entries.map(|entry| entry.expect("the folder can be read").file_name());
        let files = files.map(|file| format!("docs/{folder}/{}", file.to_string_lossy()));
        names.extend(files.filter(|file| Path::new(file).extension().is_some_and(|e| e == "md")));
    }
    names.retain(|name| !GENERATED.contains(&name.as_str()));
    names.into_iter().map(|name| (name.clone(), steps::steps(&read(&name)))).collect()
}

fn is_run(step: &Step) -> bool {
    matches!(step, Step::Block(block, mark) if steps::has_commands(block) && !matches!(mark, Some(Mark::NotRun(_))))
}

#[test]
fn pages_with_commands_are_run() {
    let documents = documents();
    assert!(documents.len() > 15, "{} documents", documents.len());
    for (name, steps) in &documents {
        let has_commands = steps.iter().any(is_run);
        let is_listed = PAGES.contains(&name.as_str());
        assert_eq!(
            has_commands, is_listed,
            "{name}: commands: {has_commands}, in the list of pages: {is_listed}"
        );
    }
}

#[test]
fn blocks_that_are_not_run_are_few_and_have_a_reason() {
    let documents = documents();
    let reasons: Vec<_> = documents
        .iter()
        .flat_map(|(name, steps)| steps.iter().map(move |step| (name, step)))
        .filter_map(|(name, step)| match step {
            Step::Block(_, Some(Mark::NotRun(reason))) => Some((name, reason)),
            _ => None,
        })
        .collect();
    assert!(reasons.len() <= NOT_RUN_MAX, "{} blocks are not run: {reasons:#?}", reasons.len());
    let run: usize =
        documents.iter().map(|(_, steps)| steps.iter().filter(|step| is_run(step)).count()).sum();
    assert!(run > 30, "{run} blocks are run");
    let brief: Vec<_> = reasons.iter().filter(|(_, reason)| reason.len() < 15).collect();
    assert!(brief.is_empty(), "no reason: {brief:?}");
}

#[test]
fn commands_are_in_fenced_blocks() {
    for (name, _) in documents() {
        let text = read(&name);
        let indented = text
            .lines()
            .zip(text.lines().skip(1))
            .find(|(before, line)| before.is_empty() && line.starts_with("    "));
        assert!(indented.is_none(), "{name}: an indented block: {indented:?}");
    }
}
