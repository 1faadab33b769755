//! `[workers]`: processors of the workers.

use crate::problem::Problems;
use crate::reader::Table;
use crate::value;
use std::ops::Range;

/// The section.
pub(crate) struct RawWorkers {
    pub(crate) cores: Vec<u16>,
    pub(crate) span: Range<usize>,
}

/// Largest processor number.
const CORE_MAX: u32 = 1023;

pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> RawWorkers {
    let cores = table.list("cores", problems, |v| value::integer(v, 0, CORE_MAX));
    let mut read = RawWorkers { cores: Vec::new(), span: table.span.clone() };
    for core in cores {
        let (span, core) = (core.span(), core.into_inner() as u16);
        if read.cores.contains(&core) {
            let what = format!("`cores` lists {core} twice: two workers would share it");
            problems.error(span, what, "write another one, or fewer `queues` in [[port]]");
            continue;
        }
        read.cores.push(core);
    }
    read
}
