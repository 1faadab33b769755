//! `[state]`: where sessions are kept for the next process.

use crate::problem::Problems;
use crate::reader::Table;
use crate::value::{self, Invalid, Read};
use std::path::PathBuf;
use toml::de::DeValue;

/// Directory of sessions that outlive the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StateDir {
    /// At the usual place, where that can be; else nowhere.
    #[default]
    Usual,
    /// In this directory.
    Path(PathBuf),
    /// Nowhere.
    Off,
}

pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> StateDir {
    table.get("directory", problems, directory).unwrap_or_default()
}

fn directory(v: &DeValue<'_>) -> Read<StateDir> {
    let text = value::text(v)?;
    if text == "off" {
        return Ok(StateDir::Off);
    }
    if !text.starts_with('/') || text.trim_end_matches('/').is_empty() || text.contains('\0') {
        let what =
            format!("\"{}\" is neither a directory's path from / on nor \"off\"", value::shorten(text));
        return Err(Invalid::new(what));
    }
    Ok(StateDir::Path(text.into()))
}
