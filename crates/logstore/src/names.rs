//! Names of files: what each is, and its number.

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

/// The name of a file while it is made.
pub(crate) fn tmp_name(name: &str) -> String {
    format!("{name}.tmp")
}

/// All files of a store, by number.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) segments: Vec<(u64, String)>,
    pub(crate) journals: Vec<(u64, String)>,
    pub(crate) carried: Vec<(u64, String)>,
    /// That were being made.
    pub(crate) unfinished: Vec<String>,
    /// The highest number of what is no journal, files put aside too.
    highest: u64,
}

impl Names {
    pub(crate) fn of(disk: &dyn Disk) -> Result<Names> {
        let mut names = Names::default();
        for name in disk.names().map_err(LogError::io("the directory"))? {
            let mut parts = name.split('.');
            let number = parts.next().filter(|digits| digits.len() == 12);
            let Some(number) = number.and_then(|digits| digits.parse().ok()) else { continue };
            let list = match (parts.next(), parts.next()) {
                (Some("segment"), None) => &mut names.segments,
                (Some("journal"), None) => &mut names.journals,
                (Some("carried"), None) => &mut names.carried,
                (_, Some("tmp")) => {
                    names.unfinished.push(name);
                    continue;
                }
                _ => {
                    names.highest = names.highest.max(number);
                    continue;
                }
            };
            names.highest = names.highest.max(match () {
                () if name.ends_with("journal") => 0,
                // What was carried over has the number of the segment after those that are gone.
                () if name.ends_with("carried") => number.saturating_sub(1),
                () => number,
            });
            list.push((number, name));
        }
        let lists = [&mut names.segments, &mut names.journals, &mut names.carried];
        lists.into_iter().for_each(|list| list.sort_unstable());
        Ok(names)
    }

    /// The highest number of any segment that there is or was, or that was put aside; 0 where there is none. The journal
    /// has the next.
    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }
}
