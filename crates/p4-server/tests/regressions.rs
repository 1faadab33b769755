//! Replay of messages that fuzzing found; some made by hand check the harness itself.

#[path = "support/any_message.rs"]
mod any_message;

use std::path::PathBuf;

const MUTATIONS: u32 = 3_000;

fn inputs() -> Vec<PathBuf> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/regressions/p4_message");
    let entries = std::fs::read_dir(path).expect("the folder is part of the repository");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

#[test]
fn fuzzing_findings_in_messages_stay_fixed() {
    for file in inputs() {
        println!("{}", file.display());
        any_message::run(&std::fs::read(&file).expect("the file can be read"));
    }
}

/// Changes single bytes and lengths of each input, always the same ones.
#[test]
fn changed_messages_are_executed_or_refused() {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for file in inputs() {
        let whole = std::fs::read(&file).expect("the file can be read");
        for _ in 0..MUTATIONS {
            let mut changed = whole.clone();
            for _ in 0..=random(4) {
                let at = random(changed.len());
                match random(4) {
                    0 => changed[at] = random(256) as u8,
                    1 => changed[at] ^= 1 << random(8),
                    2 => drop(changed.remove(at)),
                    _ => changed.insert(at, random(256) as u8),
                }
            }
            any_message::run(&changed);
        }
    }
}
