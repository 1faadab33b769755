//! Tests skip themselves only with `gatun_testkit::skip`, which counts them.

use std::fs;
use std::path::{Path, PathBuf};

/// Texts of tests that end early and pass, or are left out, uncounted.
const OTHER_WAYS: [&str; 7] =
    ["SKIPPED", "NOT RUN:", "NOT TESTED", "NOTHING PROVED", "#[ignore", "GATUN_REQUIRE", "unittest.skip"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().unwrap() != "target" {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs" || e == "py") {
            found.push(path);
        }
    }
}

#[test]
fn tests_skip_themselves_only_with_gatun_testkit_skip() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    ["crates", "testkit", "tests", "fuzz"].iter().for_each(|folder| sources(&root.join(folder), &mut files));
    assert!(files.len() > 200, "{}", files.len());
    for file in files {
        let name = file.strip_prefix(root).unwrap().display().to_string();
        let text = fs::read_to_string(&file).unwrap();
        for way in OTHER_WAYS {
            let is_its_home = name == "testkit/src/requirement.rs";
            assert!(is_its_home || !text.contains(way), "{name}: {way}: use gatun_testkit::skip");
        }
    }
}
