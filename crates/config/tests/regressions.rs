//! What fuzzing the configuration found, replayed: texts that once did harm, and each text cut short.

use std::path::Path;

#[test]
fn no_text_and_no_beginning_of_one_makes_it_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions/config");
    let mut replayed = 0;
    for entry in std::fs::read_dir(&folder).expect("the folder is part of the repository") {
        let file = entry.expect("the folder can be read").path();
        let text = std::fs::read_to_string(&file).expect("the file can be read");
        for (end, _) in text.char_indices().chain([(text.len(), ' ')]) {
            if let Err(report) = gatun_config::load_str(&text[..end], "fuzz.toml") {
                assert!(!report.to_string().is_empty(), "{}: an error without a word", file.display());
            }
        }
        replayed += 1;
    }
    assert!(replayed > 0);
}
