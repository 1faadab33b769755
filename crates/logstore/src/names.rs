//! Names of files: what each is, and its number.

use crate::disk::Disk;
use crate::error::{LogError, Result};
use crate::receipt::RECEIPTS;

pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:012}.segment")
}

pub(crate) fn journal_name(number: u64) -> String {
    format!("{number:012}.journal")
}

pub(crate) fn carried_name(number: u64) -> String {
    format!("{number:012}.carried")
}

/// Follows the name of a file that was found damaged, before the time of that.
pub(crate) const DAMAGED: &str = ".damaged-";

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
    /// Segments and journals that were found damaged, kept under another name.
    pub(crate) damaged: Vec<(u64, String)>,
    /// Other damaged files.
    pub(crate) damaged_receipts: Vec<String>,
    /// That are no file of a log.
    pub(crate) strays: Vec<String>,
    /// The highest number of what is no journal, files put aside too.
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
                // What was carried over has the number of the segment after those that are gone.
                () if name.ends_with("carried") => number.saturating_sub(1),
                () => number,
            });
            list.push((number, name));
        }
        let lists = [&mut names.segments, &mut names.journals, &mut names.carried, &mut names.damaged];
        lists.into_iter().for_each(|list| list.sort_unstable());
        Ok(names)
    }

    /// The highest number of any segment that there is or was, or that was put aside; 0 where there is none. The journal
    /// has the next.
    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }
}
