//! Explicit address mappings (RFC 7757), from the configuration or from files. A million of them load from a
//! file in about a second: each takes 48 bytes, and the checks are one sort per side.

use crate::files::Files;
use crate::problem::Problems;
use crate::reader::Table;
use crate::value::{self, Invalid};
use gatun_nat::plan::{Eam, Net4, Net6};
use std::ops::Range;
use std::sync::Arc;
use toml::Spanned;

/// A mapping and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawEam {
    pub(crate) eam: Eam,
    pub(crate) file: u32,
    start: u32,
    len: u32,
}

impl RawEam {
    pub(crate) fn span(&self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// `eam = [{ v4 = "...", v6 = "..." }, ...]`
pub(crate) fn read_inline(table: &Table<'_>, problems: &mut Problems) -> Vec<RawEam> {
    let mut eamt = Vec::new();
    for entry in table.tables("eam", "`eam`", problems) {
        let v4 = entry.require("v4", problems, value::net4);
        let v6 = entry.require("v6", problems, value::net6);
        if let (Some(v4), Some(v6)) = (v4, v6) {
            push(&mut eamt, Eam { v4, v6 }, 0, entry.span.clone(), problems);
        }
    }
    eamt
}

/// Reads a file with one pair per line.
pub(crate) fn read_file(
    name: &Spanned<String>,
    files: &Files<'_>,
    eamt: &mut Vec<RawEam>,
    problems: &mut Problems,
) {
    let path = files.path(name.get_ref());
    let shown = path.display().to_string();
    let text: Arc<str> = match files.read(&path) {
        Ok(text) => text.into(),
        Err(error) => {
            let what = format!("`eam_file`: {} cannot be read: {error}", value::shorten(&shown));
            let instead = "write the path of a file with an IPv4 and an IPv6 prefix per line";
            problems.error(name.span(), what, instead);
            return;
        }
    };
    let file = problems.add_source(&shown, Arc::clone(&text));
    eamt.reserve(text.len() / 32);
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        read_line(line, file, start, eamt, problems);
        start += line.len();
    }
}

/// Fields of a line, without the comment.
pub(crate) fn line_fields(line: &str) -> impl Iterator<Item = &str> {
    line.split('#').next().unwrap_or_default().split_ascii_whitespace()
}

fn read_line(line: &str, file: usize, start: usize, eamt: &mut Vec<RawEam>, problems: &mut Problems) {
    let mut fields = line_fields(line);
    let Some(first) = fields.next() else { return };
    let at = |field: &str| {
        let offset = start + (field.as_ptr() as usize - line.as_ptr() as usize);
        offset..offset + field.len()
    };
    const WANTED: &str = "write an IPv4 and an IPv6 prefix, for example `203.0.113.5 2001:db8::5`";
    let Some(second) = fields.next() else {
        problems.error_in(file, at(first), "the line has one field, not two", WANTED);
        return;
    };
    if let Some(third) = fields.next() {
        problems.error_in(file, at(third), "the line has more than two fields", WANTED);
        return;
    }
    let mut refuse = |field, wrong: Invalid| {
        problems.error_in(file, at(field), wrong.what, wrong.instead.unwrap_or_else(|| WANTED.to_owned()));
    };
    match (value::parse_net4(first), value::parse_net6(second)) {
        (Ok(v4), Ok(v6)) => {
            let span = at(first).start..at(second).end;
            push(eamt, Eam { v4, v6 }, file, span, problems);
        }
        (v4, v6) => {
            v4.err().into_iter().for_each(|wrong| refuse(first, wrong));
            v6.err().into_iter().for_each(|wrong| refuse(second, wrong));
        }
    }
}

/// Adds a mapping if RFC 7757 3.2 allows it: the IPv6 suffix must have room for the IPv4 one.
fn push(eamt: &mut Vec<RawEam>, eam: Eam, file: usize, span: Range<usize>, problems: &mut Problems) {
    let (suffix4, suffix6) = (32 - eam.v4.len, 128 - eam.v6.len);
    if suffix6 < suffix4 {
        let what = format!(
            "the IPv6 prefix leaves {suffix6} bits free and the IPv4 prefix {suffix4} (RFC 7757 3.2)"
        );
        let instead = format!("write an IPv6 prefix of at most /{}, or a longer IPv4 prefix", 128 - suffix4);
        problems.error_in(file, span, what, instead);
        return;
    }
    let (start, len) = (span.start as u32, (span.end - span.start) as u32);
    eamt.push(RawEam { eam, file: file as u32, start, len });
}

/// Refuses equal prefixes, and nested ones unless `allow_overlap`.
pub(crate) fn check_overlaps(eamt: &mut [RawEam], allow_overlap: bool, problems: &mut Problems) {
    eamt.sort_unstable_by_key(|e| (e.eam.v6, e.file, e.start));
    check_side(eamt, allow_overlap, problems, |e| e.eam.v6, |outer, inner: Net6| outer.contains(inner.addr));
    eamt.sort_unstable_by_key(|e| (e.eam.v4, e.file, e.start));
    check_side(eamt, allow_overlap, problems, |e| e.eam.v4, |outer, inner: Net4| outer.contains(inner.addr));
}

/// `eamt` is sorted by `net`, so a prefix follows the ones that contain it: it suffices to check against the
/// last one that was not itself inside another. Of two equal ones, the later in the file is refused.
fn check_side<N: Copy + PartialEq + std::fmt::Debug + Side>(
    eamt: &[RawEam],
    allow_overlap: bool,
    problems: &mut Problems,
    net: impl Fn(&RawEam) -> N,
    contains: impl Fn(N, N) -> bool,
) {
    let mut outer: Option<N> = None;
    let mut previous: Option<N> = None;
    for entry in eamt {
        let this = net(entry);
        let inside = outer.filter(|outer| contains(*outer, this));
        if previous == Some(this) {
            let what = format!("{} is mapped already", this.show());
            problems.error_in(entry.file as usize, entry.span(), what, "remove one of the two mappings");
        } else if let Some(outer) = inside.filter(|_| !allow_overlap) {
            let what = format!("{} lies inside {}, which is mapped too", this.show(), outer.show());
            let instead = "remove one of the two, or write `allow_overlap = true` (RFC 7757 3.1)";
            problems.error_in(entry.file as usize, entry.span(), what, instead);
        }
        if inside.is_none() {
            outer = Some(this);
        }
        previous = Some(this);
    }
}

/// Formatting of a prefix of either family for messages.
trait Side {
    fn show(&self) -> String;
}

impl Side for Net4 {
    fn show(&self) -> String {
        format!("{}/{}", self.addr, self.len)
    }
}

impl Side for Net6 {
    fn show(&self) -> String {
        format!("{}/{}", self.addr, self.len)
    }
}
