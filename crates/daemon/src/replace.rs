//! Atomic replacement of a file: the new file is written next to it and synced, renamed, and the directory is
//! synced. However the process or the machine ends, either the old or the new file exists.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Writes the content of a new file to disk.
///
/// # Errors
/// Returns an error if it cannot be written. The file may then have a part of it.
pub fn fill(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()
}

/// Renames a written file to its final name, on disk.
///
/// # Errors
/// Returns an error if it cannot be renamed, or the directory cannot be synced: after a power failure, the
/// old file may be back.
pub fn take_place(new: &Path, place: &Path) -> io::Result<()> {
    fs::rename(new, place)?;
    sync_directory_of(place)
}

/// Syncs the directory that contains a file.
///
/// # Errors
/// Returns an error if the directory cannot be synced.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_replaces_the_old_one_and_leaves_no_other() {
        let directory = std::env::temp_dir().join(format!("gatun-replace-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (place, new) = (directory.join("file"), directory.join("file.new"));
        fs::write(&place, "the old one, which is longer").unwrap();
        fill(&File::create(&new).unwrap(), b"the new one").unwrap();
        take_place(&new, &place).unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), "the new one");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        assert!(take_place(&new, &place).is_err());
        assert_eq!(fs::read_to_string(&place).unwrap(), "the new one");
        // A name without a directory is in the current directory.
        sync_directory_of(Path::new("file")).unwrap();
        fs::remove_dir_all(&directory).unwrap();
        assert!(sync_directory_of(&place).is_err());
    }
}
