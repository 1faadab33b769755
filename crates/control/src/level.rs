//! How much the daemon logs, for whoever logs and for whoever says how much.

use gatun_api::types::LogLevel;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// A level that can be changed at any time. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Level(Arc<AtomicU8>);

impl Default for Level {
    fn default() -> Self {
        Level(Arc::new(AtomicU8::new(LogLevel::Info as u8)))
    }
}

impl Level {
    /// The one that holds.
    pub fn get(&self) -> LogLevel {
        let number = self.0.load(Ordering::Relaxed);
        LogLevel::ALL.iter().copied().find(|level| *level as u8 == number).unwrap_or(LogLevel::Info)
    }

    /// Another one from now on.
    pub fn set(&self, level: LogLevel) {
        self.0.store(level as u8, Ordering::Relaxed);
    }

    /// Whether lines of this level are written.
    pub fn has(&self, level: LogLevel) -> bool {
        level as u8 <= self.0.load(Ordering::Relaxed)
    }
}
