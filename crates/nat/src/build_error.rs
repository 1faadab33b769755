//! Why an engine cannot be built.

use alloc::format;
use alloc::string::String;
use gatun_mem::OutOfMemory;

/// Why an engine cannot be built from a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError(pub String);

impl core::fmt::Display for BuildError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for BuildError {}

impl From<OutOfMemory> for BuildError {
    fn from(e: OutOfMemory) -> Self {
        BuildError(format!("{e}: lower the limits"))
    }
}
