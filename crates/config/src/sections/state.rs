//! `[state]`: directory of sessions for the next process.

use crate::problem::Problems;
use crate::reader::Table;
use crate::value::{self, Invalid, Read};
use std::path::PathBuf;
use toml::de::DeValue;

/// Directory of sessions that outlive the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StateDir {
    /// The default directory if possible, else none.
    #[default]
    Usual,
    /// Directory at this path.
    Path(PathBuf),
    /// No directory.
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
            format!("\"{}\" is neither an absolute path of a directory nor \"off\"", value::shorten(text));
        return Err(Invalid::new(what));
    }
    Ok(StateDir::Path(text.into()))
}
