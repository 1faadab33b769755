//! Pins of links and maps in a bpffs.

use std::io;
use std::path::Path;

/// Removes a pin, if it exists.
pub(crate) fn unpin(pin: &Path) -> io::Result<()> {
    match std::fs::remove_file(pin) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
