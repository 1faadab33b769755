//! Replay of texts that fuzzing found: whole, and every prefix of each.

use std::path::Path;

#[test]
fn no_text_or_prefix_of_one_causes_a_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions/config");
    let mut replayed = 0;
    for entry in std::fs::read_dir(&folder).expect("the folder is part of the repository") {
        let file = entry.expect("the folder can be read").path();
        let text = std::fs::read_to_string(&file).expect("the file can be read");
        for (end, _) in text.char_indices().chain([(text.len(), ' ')]) {
            if let Err(report) = gatun_config::load_str(&text[..end], "fuzz.toml") {
                assert!(!report.to_string().is_empty(), "{}: an empty report", file.display());
            }
        }
        replayed += 1;
    }
    assert!(replayed > 0);
}
