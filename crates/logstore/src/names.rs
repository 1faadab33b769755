//! File names: kind and number.

use crate::disk::Disk;
use crate::error::{LogError, Result};

pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:012}.segment")
}

pub(crate) fn journal_name(number: u64) -> String {
    format!("{number:012}.journal")
}

pub(crate) fn carried_name(number: u64) -> String {
    format!("{number:012}.carried")
}

/// File name.
pub(crate) const RECEIPTS: &str = "acknowledged";

/// Suffix of a damaged file's name, followed by the time of detection.
pub(crate) const DAMAGED: &str = ".damaged-";

/// Temporary name of a file.
pub(crate) fn tmp_name(name: &str) -> String {
    format!("{name}.tmp")
}

/// Files of a store, by number.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) segments: Vec<(u64, String)>,
    pub(crate) journals: Vec<(u64, String)>,
    pub(crate) carried: Vec<(u64, String)>,
    /// Temporary files.
    pub(crate) unfinished: Vec<String>,
    /// Damaged segments and journals, kept under another name.
    pub(crate) damaged: Vec<(u64, String)>,
    /// Other damaged files.
    pub(crate) damaged_receipts: Vec<String>,
    /// Unknown files.
    pub(crate) strays: Vec<String>,
    /// Highest number of files other than journals, including damaged ones.
    highest: u64,
}

impl Names {
    pub(crate) fn of(disk: &dyn Disk) -> Result<Names> {
        let mut names = Names::default();
        for name in disk.names().map_err(LogError::io("the directory"))? {
            let mut parts = name.split('.');
            let number = parts.next().filter(|digits| digits.len() == 12);
            let Some(number) = number.and_then(|digits| digits.parse().ok()) else {
                match name.strip_prefix(RECEIPTS) {
                    Some("") => {}
                    Some(".tmp") => names.unfinished.push(name),
                    Some(more) if more.starts_with(DAMAGED) => names.damaged_receipts.push(name),
                    _ => names.strays.push(name),
                }
                continue;
            };
            let list = match (parts.next(), parts.next()) {
                (Some("segment"), None) => &mut names.segments,
                (Some("journal"), None) => &mut names.journals,
                (Some("carried"), None) => &mut names.carried,
                (_, Some("tmp")) => {
                    names.unfinished.push(name);
                    continue;
                }
                (Some("segment" | "journal" | "carried"), Some(more)) if more.starts_with(&DAMAGED[1..]) => {
                    names.highest = names.highest.max(number);
                    names.damaged.push((number, name));
                    continue;
                }
                _ => {
                    names.strays.push(name);
                    continue;
                }
            };
            names.highest = names.highest.max(match () {
                () if name.ends_with("journal") => 0,
                // A carried-over file has the number of the first segment kept.
                () if name.ends_with("carried") => number.saturating_sub(1),
                () => number,
            });
            list.push((number, name));
        }
        let lists = [&mut names.segments, &mut names.journals, &mut names.carried, &mut names.damaged];
        lists.into_iter().for_each(|list| list.sort_unstable());
        Ok(names)
    }

    /// Highest number of any present, removed or damaged segment; 0 without one. The journal has the next
    /// number.
    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }
}
