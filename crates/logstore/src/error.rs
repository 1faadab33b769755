//! Errors of a store.

use std::{fmt, io};

/// Reason why a file of the store cannot be used.
#[derive(Debug)]
pub enum LogError {
    /// Error of the system.
    Io {
        /// The file.
        file: String,
        /// Cause.
        error: io::Error,
    },
    /// Changed or damaged file.
    Damaged {
        /// The file.
        file: String,
        /// Damage.
        what: String,
    },
}

impl LogError {
    pub(crate) fn io(file: &str) -> impl FnOnce(io::Error) -> LogError + '_ {
        move |error| LogError::Io { file: file.to_owned(), error }
    }

    pub(crate) fn damaged(file: &str, what: impl Into<String>) -> LogError {
        LogError::Damaged { file: file.to_owned(), what: what.into() }
    }

    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, LogError::Io { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::Io { file, error } => write!(f, "{file}: {error}"),
            LogError::Damaged { file, what } => write!(f, "{file}: {what}"),
        }
    }
}

impl std::error::Error for LogError {}

/// Result of an operation of the store.
pub type Result<T> = std::result::Result<T, LogError>;
