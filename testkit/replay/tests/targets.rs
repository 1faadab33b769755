//! Each fuzz target is built, linked, and run over the inputs of the regression tests and of fuzz/corpus, if
//! that exists.
// Targets of packets share hostile packets.
#![allow(clippy::duplicate_mod)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A module, and a test with its name, for each target.
macro_rules! targets {
    ($($name:ident $path:literal)*) => {
        $(
            #[path = $path]
            #[allow(dead_code, unused_attributes)]
            mod $name;
        )*
        const TARGETS: &[&str] = &[$(stringify!($name)),*];
        mod replayed {
            $(
                #[test]
                fn $name() {
                    super::replay(stringify!($name), super::$name::fuzz);
                }
            )*
        }
    };
}

targets! {
    api_request "../../../fuzz/fuzz_targets/api_request.rs"
    config "../../../fuzz/fuzz_targets/config.rs"
    ether_frame "../../../fuzz/fuzz_targets/ether_frame.rs"
    session_file "../../../fuzz/fuzz_targets/session_file.rs"
    log_reader "../../../fuzz/fuzz_targets/log_reader.rs"
    p4_answer "../../../fuzz/fuzz_targets/p4_answer.rs"
    p4_message "../../../fuzz/fuzz_targets/p4_message.rs"
    peer_frame "../../../fuzz/fuzz_targets/peer_frame.rs"
    packet_4to6 "../../../fuzz/fuzz_targets/packet_4to6.rs"
    packet_6to4 "../../../fuzz/fuzz_targets/packet_6to4.rs"
    tunnel "../../../fuzz/fuzz_targets/tunnel.rs"
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

fn replay(target: &str, fuzz: fn(&[u8])) {
    let crates = entries(&root().join("crates"));
    let found: Vec<PathBuf> =
        crates.iter().flat_map(|one| entries(&one.join("tests/regressions").join(target))).collect();
    assert!(!found.is_empty(), "{target} has no input: crates/*/tests/regressions/{target}");
    fuzz(b"");
    for file in found.into_iter().chain(entries(&root().join("fuzz/corpus").join(target))) {
        println!("{}", file.display());
        fuzz(&fs::read(file).unwrap());
    }
}

/// Names in the lines of a section, as far as `of` finds one.
fn names<'t>(text: &'t str, section: &str, of: fn(&str) -> Option<&str>) -> BTreeSet<&'t str> {
    let (_, rest) = text.split_once(&format!("\n{section}\n")).unwrap();
    let lines = rest.lines().take_while(|line| !line.starts_with('[') || *line == section);
    lines.filter_map(of).collect()
}

#[test]
fn the_fuzzer_has_the_same_targets_and_dependencies() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let (fuzzer, own) = (read("fuzz/Cargo.toml"), read("testkit/replay/Cargo.toml"));
    let targets: BTreeSet<&str> = TARGETS.iter().copied().collect();
    let files = entries(&root().join("fuzz/fuzz_targets"));
    let files: BTreeSet<&str> =
        files.iter().map(|file| file.file_stem().unwrap().to_str().unwrap()).collect();
    assert_eq!(files, targets);
    let programs = names(&fuzzer, "[[bin]]", |line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    assert_eq!(programs, targets);
    fn package(line: &str) -> Option<&str> {
        Some(line.split_once(" = ")?.0)
    }
    let mut wanted = names(&fuzzer, "[dependencies]", package);
    assert!(wanted.remove("libfuzzer-sys"));
    assert_eq!(names(&own, "[dev-dependencies]", package), wanted);
}
