//! The files of a virtual machine: an archive that the kernel unpacks for the first process, cpio, "newc"
//! (Documentation/driver-api/early-userspace/buffer-format).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// File or directory that everybody may read and execute.
const FILE: u32 = 0o100_755;
const DIRECTORY: u32 = 0o040_755;

/// Files of a virtual machine.
#[derive(Debug)]
pub struct Initramfs {
    bytes: Vec<u8>,
    entries: u32,
    directories: BTreeSet<String>,
    /// Shared libraries of the programs.
    libraries: BTreeSet<String>,
}

impl Initramfs {
    /// Files with this first process.
    #[must_use]
    pub fn new(init: &[u8]) -> Initramfs {
        let (directories, libraries) = (BTreeSet::new(), BTreeSet::new());
        let mut files = Initramfs { bytes: Vec::new(), entries: 0, directories, libraries };
        files.add("init", init);
        files
    }

    /// Adds a program without its debug symbols, which may be two thirds of it. Names begin without a slash.
    ///
    /// # Panics
    /// If the program cannot be read.
    pub fn add_program(&mut self, name: &str, program: &Path) {
        let stripped = temporary("stripped");
        super::run(Command::new("objcopy").arg("--strip-debug").arg(program).arg(&stripped)).unwrap();
        self.add(name, &fs::read(&stripped).unwrap());
        fs::remove_file(stripped).unwrap();
        self.libraries.extend(libraries(program));
    }

    /// Adds a file, and the directories above it.
    fn add(&mut self, name: &str, content: &[u8]) {
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

    /// The archive, with the programs' libraries and the modules of a directory.
    pub(super) fn finish(mut self, modules: &Path) -> Vec<u8> {
        for library in std::mem::take(&mut self.libraries) {
            self.add(library.trim_start_matches('/'), &fs::read(&library).unwrap());
        }
        for module in fs::read_dir(modules).unwrap() {
            let module = module.unwrap();
            let name = format!("modules/{}", module.file_name().to_string_lossy());
            self.add(&name, &fs::read(module.path()).unwrap());
        }
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

/// Path that nobody else uses; in memory, if there is room.
pub(super) fn temporary(name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("gatun-{name}-{}-{number}", std::process::id()))
}

/// Shared libraries of a program and its loader, by path.
fn libraries(program: &Path) -> BTreeSet<String> {
    // ldd fails for a statically linked program.
    let output = super::output(Command::new("ldd").arg(program)).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(|word| word.trim_end_matches(':').to_owned())
        .collect()
}
