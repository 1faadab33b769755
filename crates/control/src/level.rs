//! Log level, shared by the logger and those who change it.

use gatun_api::types::LogLevel;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Log level that can be changed at any time. Clones share it.
#[derive(Clone, Debug)]
pub struct Level(Arc<AtomicU8>);

impl Default for Level {
    fn default() -> Self {
        Level(Arc::new(AtomicU8::new(LogLevel::Info as u8)))
    }
}

impl Level {
    /// Returns the current level.
    pub fn get(&self) -> LogLevel {
        let number = self.0.load(Ordering::Relaxed);
        LogLevel::ALL.iter().copied().find(|level| *level as u8 == number).unwrap_or(LogLevel::Info)
    }

    /// Sets the level.
    pub fn set(&self, level: LogLevel) {
        self.0.store(level as u8, Ordering::Relaxed);
    }

    /// Returns true if lines of this level are written.
    pub fn has(&self, level: LogLevel) -> bool {
        level as u8 <= self.0.load(Ordering::Relaxed)
    }
}
