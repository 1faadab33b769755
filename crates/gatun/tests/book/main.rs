//! Tests of the documents: links, examples, and every block of commands.

mod container;
mod features;
mod findings;
mod links;
mod markdown;
mod pages;
mod screen;
mod shell;
mod snippets;
mod steps;
mod tutorials;

use std::path::{Path, PathBuf};

/// Folder of the repository.
pub(crate) fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository's folder is there")
}

/// Text of a file of the repository.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
