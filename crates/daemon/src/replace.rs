//! A file replaced as a whole or not at all: written beside it, synced, renamed, the directory synced. Whatever ends the
//! process or the machine, the old one or the new one is there.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Writes all of a new file, onto the disk.
///
/// # Errors
/// If it cannot be written; it may have some of it then.
pub fn fill(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()
}

/// Gives a filled file another's place, on the disk.
///
/// # Errors
/// If it cannot have it, or the directory cannot be synced: then it may have it or not, behind a power cut.
pub fn take_place(new: &Path, place: &Path) -> io::Result<()> {
    fs::rename(new, place)?;
    sync_directory_of(place)
}

/// Writes to the disk which names there are beside a file.
///
/// # Errors
/// If that cannot be.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_file_takes_the_old_ones_place_and_leaves_no_other() {
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
        // A name without a directory is one of where the process is.
        sync_directory_of(Path::new("file")).unwrap();
        fs::remove_dir_all(&directory).unwrap();
        assert!(sync_directory_of(&place).is_err());
    }
}
