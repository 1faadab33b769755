//! Tasks of the project.
//!
//! `cargo xtask rfc` prints the requirements with the tests that prove them. `--check` fails if the matrix
//! has a hole. `--check --ran FILE` also fails if a cited test has not passed in the run that wrote FILE
//! (`scripts/record-tests`). `--write` writes `docs/rfc/matrix.md`.
//!
//! `cargo xtask structure` compares the code with `xtask/structure.toml`: layers, cycles, sizes, columns;
//! `--write` draws the map in ARCHITECTURE.md; `--list` prints the violations as entries of that file.
//!
//! `cargo xtask english` counts patterns of unclear English; `--check` compares them with
//! `xtask/english.toml`.
//!
//! `cargo xtask glossary` compares the words in the names of types and metrics with the glossary.

#![forbid(unsafe_code)]

mod citations;
mod english;
mod glossary;
mod matrix;
mod ran;
mod requirements;
mod structure;

use matrix::Matrix;
use ran::RecordedTests;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask rfc [--check [--ran FILE] | --write]
       cargo xtask structure [--write | --list]
       cargo xtask english [--list | --check]
       cargo xtask glossary";

fn main() -> ExitCode {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let root = Path::new(&folder).parent().unwrap_or(Path::new("."));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["rfc"] => Matrix::read(root).map(|matrix| print!("{}", matrix.table())),
        ["rfc", "--check"] => check(root, None),
        ["rfc", "--check", "--ran", file] => {
            RecordedTests::read(Path::new(file)).and_then(|ran| check(root, Some(&ran)))
        }
        ["rfc", "--write"] => write(root),
        ["english"] => english::print(root, false),
        ["english", "--list"] => english::print(root, true),
        ["english", "--check"] => english::check(root),
        ["glossary"] => glossary::check(root),
        ["structure"] => structure::check(root),
        ["structure", "--write"] => structure::write(root),
        ["structure", "--list"] => structure::list(root),
        _ => Err(USAGE.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn check(root: &Path, ran: Option<&RecordedTests>) -> Result<(), String> {
    let mut matrix = Matrix::read(root)?;
    let mut faults = matrix.faults(root);
    let mut unproved = Vec::new();
    if let Some(ran) = ran {
        let (failed, skipped) = matrix.keep_passed(root, ran);
        faults.extend(failed);
        unproved = skipped;
    }
    if faults.is_empty() {
        if !unproved.is_empty() {
            let ids = unproved.join(", ");
            println!(
                "{} requirements are not proved here, because their tests were skipped: {ids}",
                unproved.len()
            );
        }
        println!("{}", matrix.summary());
        return Ok(());
    }
    Err(format!("{}\nxtask rfc: {} faults", faults.join("\n"), faults.len()))
}

fn write(root: &Path) -> Result<(), String> {
    let matrix = Matrix::read(root)?;
    let path = root.join(matrix::PUBLISHED);
    std::fs::write(&path, matrix.markdown()).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{}", matrix.summary());
    Ok(())
}
