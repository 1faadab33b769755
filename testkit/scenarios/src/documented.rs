//! Check of the `lab/run` commands in the documents' code blocks against the grammar.

use crate::{Args, demo, scenario};
use clap::Parser as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Words of a command, without comments and further commands.
fn words(line: &str) -> Option<Vec<&str>> {
    let line = line.trim_start();
    let end = [" && ", " | ", " >", " #", "  "].iter().filter_map(|end| line.find(end)).min();
    let line = &line[..end.unwrap_or(line.len())];
    line.starts_with("lab/run ").then(|| line.split_whitespace().collect())
}

/// Pages with commands.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["tutorials", "how-to", "reference", "explanation"];
    let entries = folders.iter().flat_map(|folder| fs::read_dir(root.join("docs").join(folder)).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = paths.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    pages.extend(["README.md", "testkit/README.md"].map(|page| root.join(page)));
    pages
}

fn check(words: &[&str]) -> Result<(), String> {
    match words {
        [_, "--help"] => Ok(()),
        [_, "demo", ..] => {
            demo::command::Args::try_parse_from(&words[1..]).map(|_| ()).map_err(|error| error.to_string())
        }
        _ => {
            let args = Args::try_parse_from(words).map_err(|error| error.to_string())?;
            let is_known = scenario::ALL.iter().any(|known| known.name == args.scenario);
            is_known.then_some(()).ok_or_else(|| format!("unknown scenario `{}`", args.scenario))
        }
    }
}

#[test]
fn every_documented_command_is_accepted() {
    let mut count = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for words in text.lines().filter_map(words) {
            assert_eq!(check(&words), Ok(()), "{}: {}", page.display(), words.join(" "));
            count += 1;
        }
    }
    assert!(count > 8, "{count} commands");
}

#[test]
fn unknown_scenarios_and_options_are_refused() {
    assert!(check(&["lab/run", "desk"]).is_err());
    assert!(check(&["lab/run", "demo", "--streams", "1"]).is_err());
    assert!(check(&["lab/run", "carrier", "--stream", "1"]).is_err());
}

#[test]
fn the_help_names_each_scenario_in_a_line() {
    let help = scenario::list();
    for known in scenario::ALL {
        assert!(help.lines().any(|line| line.split_whitespace().next() == Some(known.name)), "{help}");
    }
}
