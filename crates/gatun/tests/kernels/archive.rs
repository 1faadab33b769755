//! An archive as the kernel unpacks it for the first process: cpio, "newc"
//! (Documentation/driver-api/early-userspace/buffer-format).

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// File or directory that everybody may read and execute.
const FILE: u32 = 0o100_755;
const DIRECTORY: u32 = 0o040_755;

#[derive(Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    directories: BTreeSet<String>,
}

impl Archive {
    /// Adds a file, and the directories above it. Names begin without a slash.
    pub(crate) fn add(&mut self, name: &str, content: &[u8]) {
        for (at, _) in name.match_indices('/') {
            let directory = &name[..at];
            if self.directories.insert(directory.to_owned()) {
                self.entry(directory, DIRECTORY, &[]);
            }
        }
        self.entry(name, FILE, content);
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let (name_len, len) = (name.len() as u32 + 1, content.len() as u32);
        // Inode, mode, owner, group, links, time, length, four device numbers, length of the name, checksum.
        let fields = [self.entries, mode, 0, 0, 1, 0, len, 0, 0, 0, 0, name_len, 0];
        self.bytes.extend(b"070701");
        self.bytes.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
        self.bytes.extend(name.bytes().chain([0]));
        self.align();
        self.bytes.extend(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

/// Shared libraries of a program and its loader, by path.
pub(crate) fn libraries(program: &Path) -> BTreeSet<String> {
    // ldd fails for a statically linked program.
    let output = gatun_testkit::output(Command::new("ldd").arg(program)).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(|word| word.trim_end_matches(':').to_owned())
        .collect()
}
