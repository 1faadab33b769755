//! Replay of inputs that fuzzing found, and of changed ones.

use std::path::PathBuf;

const MUTATIONS: u32 = 3_000;

fn inputs(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder is part of the repository");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// Runs each input of a folder.
pub(crate) fn replay(folder: &str, run: fn(&[u8])) {
    for file in inputs(folder) {
        println!("{}", file.display());
        run(&std::fs::read(&file).expect("the file can be read"));
    }
}

/// Changes single bytes and lengths of each input, always the same ones.
pub(crate) fn run_changed(folder: &str, run: fn(&[u8])) {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for file in inputs(folder) {
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
            run(&changed);
        }
    }
}
