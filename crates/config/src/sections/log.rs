//! `[log]`: log on disk of public port owners.

use crate::problem::Problems;
use crate::reader::Table;
use crate::value::{self, Invalid, Read};
use std::ops::Range;
use std::path::PathBuf;
use toml::de::DeValue;

/// Default directory of the log.
pub const LOG_DIRECTORY: &str = "/var/lib/gatun/log";

/// Directory, retention and contents of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Directory of the log's files.
    pub directory: PathBuf,
    /// Retention time, milliseconds; `None`: unlimited.
    pub retention_ms: Option<u64>,
    /// Size limit, bytes; `None`: unlimited.
    pub size_max: Option<u64>,
    /// True if each binding is logged.
    pub bindings: bool,
}

/// The section.
pub(crate) struct RawLog {
    pub(crate) directory: PathBuf,
    pub(crate) retention_ms: Option<u64>,
    pub(crate) size_max: Option<u64>,
    pub(crate) bindings: Option<bool>,
    pub(crate) bindings_span: Range<usize>,
}

pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> RawLog {
    let retention_ms = table.get("retention", problems, value::long_duration_ms);
    if retention_ms == Some(0) {
        let what = "`retention` cannot be zero: nothing would be kept";
        problems.error(table.span_of("retention"), what, table.example("retention"));
    }
    RawLog {
        directory: table.get("directory", problems, directory).unwrap_or_else(|| LOG_DIRECTORY.into()),
        retention_ms,
        size_max: table.get("size_max", problems, value::size),
        bindings: table.flag("bindings", problems),
        bindings_span: table.span_of("bindings"),
    }
}

/// An absolute path.
pub(crate) fn directory(v: &DeValue<'_>) -> Read<PathBuf> {
    let name = value::text(v)?;
    match name.starts_with('/') && !name.contains('\0') {
        true => Ok(name.into()),
        false => Err(Invalid::new(format!("\"{}\" is not an absolute path", value::shorten(name)))),
    }
}
