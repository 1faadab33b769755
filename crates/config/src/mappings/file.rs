//! Files of address mappings: one IPv4 and one IPv6 prefix per line. A replaced table has mapping N in line
//! N.

use super::{BatchCheck, EditError, Key, not};
use crate::files::read_text;
use crate::sections::eam::line_fields;
use crate::value;
use gatun_nat::plan::Eam;
use std::fmt::Write as _;
use std::path::Path;

/// Bytes of a typical line.
const LINE_LEN: usize = 40;

/// Formats a table.
pub(super) fn written(keys: &[Key]) -> String {
    let mut text = String::with_capacity(keys.len() * LINE_LEN);
    keys.iter().for_each(|key| push(&mut text, key));
    text
}

/// Returns the text of a file without some mappings, and with others at its end.
pub(super) fn edited(path: &Path, add: &[Key], remove: &[Key]) -> Result<String, EditError> {
    let place = path.display().to_string();
    let before = read_text(path)
        .map_err(|error| not(format!("{place} cannot be read: {error}"), "correct the file, then reload"))?;
    let mut check = BatchCheck::new(add, remove, &place);
    let mut text = String::with_capacity(before.len() + add.len() * LINE_LEN);
    for line in before.split_inclusive('\n') {
        if !mapping_of(line).is_some_and(|key| check.removes(&key)) {
            text.push_str(line);
        }
    }
    check.finish()?;
    if !(text.is_empty() || text.ends_with('\n')) {
        text.push('\n');
    }
    add.iter().for_each(|key| push(&mut text, key));
    Ok(text)
}

fn push(text: &mut String, key: &Key) {
    // Writing to a String does not fail.
    let _ = writeln!(text, "{} {}", key.outside(), key.inside());
}

fn mapping_of(line: &str) -> Option<Key> {
    let mut fields = line_fields(line);
    let (v4, v6) = (fields.next()?, fields.next()?);
    Some(Key::Eam(Eam { v4: value::parse_net4(v4).ok()?, v6: value::parse_net6(v6).ok()? }))
}
