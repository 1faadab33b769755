//! Pins of links and maps in a bpffs.

use crate::error::FastPathError;
use std::path::Path;

/// Removes a pin, if it exists.
pub(crate) fn unpin(pin: &Path) -> Result<(), FastPathError> {
    match std::fs::remove_file(pin) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(FastPathError::Step { step: "removing a pin", error })
        }
        _ => Ok(()),
    }
}
