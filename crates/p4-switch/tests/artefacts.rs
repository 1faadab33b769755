//! The compiled P4 program belongs to the sources beside it. `make p4` compiles them and compares.

use gatun_testkit::Manifest;
use std::path::{Path, PathBuf};

const RESULTS: [&str; 4] = ["gatun.spec", "gatun.json", "psa.p4info.txt", "v1model.p4info.txt"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../p4")
}

#[test]
fn the_compiled_program_is_of_these_sources() {
    let manifest = Manifest::read(&folder());
    assert!(manifest.compiler().starts_with("p4c 1."), "{manifest:?}");
    let mut files: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".p4"))
        .collect();
    files.sort();
    let files = files.iter().map(String::as_str).chain(["build.sh"]).chain(RESULTS);
    manifest.check(&files.collect::<Vec<_>>(), "p4/build.sh");
}

/// Both targets have the same tables, actions and numbers, so a controller needs one program for both.
#[test]
fn both_targets_have_the_same_objects() {
    let objects = |file: &str| -> Vec<String> {
        let text = std::fs::read_to_string(folder().join(file)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let pairs = lines.windows(2).filter(|pair| pair[0].trim_start().starts_with("id: "));
        let named = pairs.filter(|pair| pair[1].contains("\"Main.") || pair[1].contains("\"packet_"));
        let mut objects: Vec<String> = named.map(|pair| pair.concat()).collect();
        objects.sort();
        objects
    };
    let psa = objects("psa.p4info.txt");
    assert!(psa.len() > 30, "{psa:?}");
    assert_eq!(psa, objects("v1model.p4info.txt"));
}
