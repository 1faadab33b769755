//! Sessions that outlive their process: their file, and their takeover by the next process.

pub use super::take_over::Spent;
pub use crate::tables::inheritance::{Finder, Found, Legacy, Mine, Progress};
pub use crate::tables::kept::*;
pub use crate::tables::not_restored::NotRestored;
