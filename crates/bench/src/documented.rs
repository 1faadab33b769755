//! Check of the `gatun-bench` commands in the documents' code blocks against the grammar.

use super::Cli;
use clap::Parser as _;
use std::fs;
use std::path::Path;

/// Words of a command, without prompt and redirections.
fn words(line: &str) -> Option<Vec<&str>> {
    let line = line.trim_start().trim_start_matches(['$', '#']).trim_start();
    let line = line.strip_prefix("sudo ").unwrap_or(line);
    let line = line.strip_prefix("target/release/").unwrap_or(line);
    let end = [" && ", " | ", " >", " # ", "  "].iter().filter_map(|end| line.find(end)).min();
    let line = &line[..end.unwrap_or(line.len())];
    line.starts_with("gatun-bench ").then(|| line.split_whitespace().collect())
}

#[test]
fn every_documented_command_is_accepted() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let folders = ["tutorials", "how-to", "reference", "explanation"].map(|folder| docs.join(folder));
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    files.push(docs.join("../README.md"));
    let mut count = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for words in text.lines().filter_map(words) {
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{}: {}\n{error}", file.display(), words.join(" "));
            }
            count += 1;
        }
    }
    assert!(count > 3, "{count} commands");
}
