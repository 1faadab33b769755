//! Reason why an engine cannot be built.

use alloc::format;
use alloc::string::String;
use gatun_mem::OutOfMemory;

/// Reason why an engine cannot be built from a plan.
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

/// Reason why a binding of the configuration cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaticBindingError {
    /// The port is in use, or the inside host has another port.
    Taken,
    /// The address is in no pool of the instance.
    NotInPool,
    /// A table is full.
    Full,
}

impl StaticBindingError {
    /// One sentence for an operator.
    pub const fn help(self) -> &'static str {
        match self {
            StaticBindingError::Taken => {
                "The port belongs to another static binding, or the inside end has one already."
            }
            StaticBindingError::NotInPool => "The outside address is not in the instance's pool.",
            StaticBindingError::Full => "The table of sessions has no room for it.",
        }
    }
}
