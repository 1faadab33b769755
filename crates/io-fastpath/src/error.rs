//! Errors of the kernel fast path, in words.

use std::fmt;
use std::io;

/// Reason why the kernel fast path cannot be used. The engine translates in every case.
#[derive(Debug)]
pub enum FastPathError {
    /// A step failed.
    Step {
        /// Name of the step.
        step: &'static str,
        /// Error of the kernel.
        error: io::Error,
    },
    /// The verifier or the loader refused the program.
    Program(String),
    /// The kernel refused to attach the program.
    Attach(String),
    /// Another Gatun runs on the device.
    SecondInstance(String),
    /// A map differs from those of this version.
    Map {
        /// Name of the map.
        name: &'static str,
        /// Difference.
        why: String,
    },
}

impl fmt::Display for FastPathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FastPathError::Step { step, error } if error.kind() == io::ErrorKind::PermissionDenied => {
                write!(
                    f,
                    "{step}: {error}; the kernel fast path needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
                )
            }
            FastPathError::Step { step, error } => write!(f, "{step}: {error}"),
            FastPathError::Program(why) => write!(f, "the kernel refuses the program: {why}"),
            FastPathError::Attach(why) => write!(f, "attaching the program: {why}"),
            FastPathError::SecondInstance(device) => {
                write!(f, "another Gatun runs the kernel fast path on {device}")
            }
            FastPathError::Map { name, why } => write!(f, "map {name}: {why}"),
        }
    }
}

impl std::error::Error for FastPathError {}

/// Converts the error of a step.
pub(crate) fn step(step: &'static str) -> impl FnOnce(io::Error) -> FastPathError {
    move |error| FastPathError::Step { step, error }
}
