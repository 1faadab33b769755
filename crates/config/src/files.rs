//! Reading the configuration and the files that it names.

use crate::memory::Bytes;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Longest file that is read, bytes: some millions of mappings. Devices such as /dev/zero have no end.
const FILE_LEN_MAX: u64 = 512 << 20;

/// Files that a configuration names.
pub(crate) struct Files<'a> {
    pub(crate) directory: &'a Path,
    /// Text that replaces the contents of a file.
    pub(crate) replaced: Option<(&'a Path, &'a str)>,
}

impl Files<'_> {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn read(&self, path: &Path) -> io::Result<String> {
        match self.replaced {
            Some((replaced, text)) if replaced == path => Ok(text.to_owned()),
            _ => read_text(path),
        }
    }
}

/// Reads the bytes of a file, up to the size limit.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_LEN_MAX {
        return Err(io::Error::other(format!("it is longer than {}", Bytes(FILE_LEN_MAX))));
    }
    Ok(bytes)
}

/// Reads the text of a file, up to the size limit.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let not_utf8 = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    String::from_utf8(read(path)?).map_err(not_utf8)
}
