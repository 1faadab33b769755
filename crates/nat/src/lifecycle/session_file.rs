//! Sessions that outlive their process: their file, and their takeover by the next process.

pub use super::take_over::FinishedInheritance;
pub use crate::tables::inheritance::{
    FoundSessions, InheritedSessions, RestoreProgress, SessionFilter, SessionFinder,
};
pub use crate::tables::restore_error::RestoreError;
pub use crate::tables::session_file::*;
