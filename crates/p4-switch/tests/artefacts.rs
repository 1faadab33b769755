//! The compiled P4 program belongs to the sources beside it. `make p4` compiles them and compares.

use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const RESULTS: [&str; 4] = ["gatun.spec", "gatun.json", "psa.p4info.txt", "v1model.p4info.txt"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../p4")
}

fn hash(file: &str) -> String {
    let bytes = std::fs::read(folder().join(file)).unwrap();
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

#[test]
fn the_compiled_program_is_of_these_sources() {
    let manifest = std::fs::read_to_string(folder().join("MANIFEST")).unwrap();
    assert!(manifest.starts_with("p4c 1."), "{manifest}");
    let listed: Vec<&str> =
        manifest.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    let mut expected: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".p4"))
        .collect();
    expected.sort();
    expected.push("build.sh".into());
    expected.extend(RESULTS.map(str::to_owned));
    assert_eq!(listed, expected);
    for file in listed {
        let line = format!("{}  {file}", hash(file));
        assert!(manifest.contains(&line), "{file} has changed: run p4/build.sh");
    }
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
