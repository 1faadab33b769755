//! Manifest of compiled files that are committed beside their sources.

use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// `MANIFEST` of a folder: the compiler's version, then a line with hash and name for each source and result.
#[derive(Clone, Debug)]
pub struct Manifest {
    folder: PathBuf,
    text: String,
}

impl Manifest {
    /// Reads the manifest of a folder.
    ///
    /// # Panics
    /// Panics if there is none.
    #[must_use]
    pub fn read(folder: &Path) -> Manifest {
        let text = std::fs::read_to_string(folder.join("MANIFEST")).unwrap();
        Manifest { folder: folder.to_owned(), text }
    }

    /// The whole text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Version of the compiler.
    #[must_use]
    pub fn compiler(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }

    /// Checks that exactly these files are listed, in this order, and that none has changed.
    ///
    /// # Panics
    /// Panics otherwise; the message names the script that compiles.
    pub fn check(&self, files: &[&str], script: &str) {
        let rows = self.text.lines().skip(1).map(|row| row.split_once("  ").expect("a hash and a name"));
        let rows: Vec<(&str, &str)> = rows.collect();
        let listed: Vec<&str> = rows.iter().map(|row| row.1).collect();
        assert_eq!(listed, files);
        for (hash, file) in rows {
            let bytes = std::fs::read(self.folder.join(file)).unwrap();
            let found = Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            assert!(found == hash, "{file} has changed: run {script}");
        }
    }
}
