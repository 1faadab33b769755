//! `[log]`: the log on disk of who had which public port when.

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
    /// The directory of its files.
    pub directory: PathBuf,
    /// Retention time, milliseconds; `None`: unlimited.
    pub retention_ms: Option<u64>,
    /// Bytes of it, at most; `None` is without bound.
    pub size_max: Option<u64>,
    /// Whether each binding is logged.
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

/// A path from / on.
pub(crate) fn directory(v: &DeValue<'_>) -> Read<PathBuf> {
    let name = value::text(v)?;
    match name.starts_with('/') && !name.contains('\0') {
        true => Ok(name.into()),
        false => Err(Invalid::new(format!("\"{}\" is not a path from / on", value::shorten(name)))),
    }
}
