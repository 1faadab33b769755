//! Metadata of a program within the reach of DPDK's instructions, for a program that the host makes no code
//! of.
//!
//! An instruction has one byte for a field's offset, and DPDK 22.11 does not check it: a field beyond 255 is
//! another field for the instruction. The compiler gives each intermediate result a field of its own. So
//! intermediate results share fields here, unused fields are left out, and a program that still has too many
//! is refused.
//!
//! An intermediate result is written first, and read behind that in the same block. Programs jump forward.

use crate::error::SwitchError;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// Offsets that an instruction can name, bytes.
const REACH: u32 = 256;

/// Rewrites the metadata of a program's text.
///
/// # Errors
/// The metadata do not fit.
pub(crate) fn fit(text: &str) -> Result<String, SwitchError> {
    let lines: Vec<&str> = text.lines().collect();
    let Some(structure) = structure(&lines) else { return Ok(text.to_owned()) };
    let (uses, blocks) = uses(&lines);
    let mut shares = Shares::default();
    let mut kept = Vec::new();
    let mut results: BTreeMap<u32, Vec<Interval<'_>>> = BTreeMap::new();
    for field in structure.fields {
        let Some(of) = uses.get(field.name) else { continue };
        match interval(field, of, &lines).filter(|interval| !blocks.jumping_back.contains(&interval.block)) {
            Some(interval) => results.entry(interval.block).or_default().push(interval),
            None => kept.push((field.name.to_owned(), field.bits)),
        }
    }
    for (block, intervals) in &mut results {
        intervals.sort_by_key(|interval| *interval.lines.start());
        let is_action = lines[*block as usize].starts_with("action ");
        shares.assign(intervals, is_action);
    }
    kept.extend(shares.fields());
    check(&kept)?;
    Ok(write(&lines, &structure.lines, &kept, &shares.names))
}

/// Structure of the metadata: its lines between the braces.
struct Structure<'a> {
    lines: RangeInclusive<usize>,
    fields: Vec<Field<'a>>,
}

#[derive(Clone, Copy)]
struct Field<'a> {
    name: &'a str,
    bits: u32,
}

fn structure<'a>(lines: &[&'a str]) -> Option<Structure<'a>> {
    let name = lines.iter().find_map(|line| line.strip_prefix("metadata instanceof "))?.trim();
    let open = lines.iter().position(|line| line.trim_end() == format!("struct {name} {{"))?;
    let len = lines[open..].iter().position(|line| line.trim() == "}")?;
    let field = |line: &&'a str| {
        let (kind, name) = line.trim().split_once(' ')?;
        let bits = kind.strip_prefix("bit<")?.strip_suffix('>')?.parse().ok()?;
        Some(Field { name: name.trim(), bits })
    };
    let fields = lines[open + 1..open + len].iter().filter_map(field).collect();
    Some(Structure { lines: open + 1..=open + len - 1, fields })
}

/// Place where a field is named: line, and the first line of its block.
type Place = (usize, u32);

#[derive(Default)]
struct Blocks {
    /// Blocks with a jump to an earlier line.
    jumping_back: BTreeSet<u32>,
}

/// Fields of metadata that a line names.
fn fields(line: &str) -> impl Iterator<Item = &str> {
    line.split_whitespace().filter_map(|word| word.strip_prefix("m."))
}

fn uses<'a>(lines: &[&'a str]) -> (BTreeMap<&'a str, Vec<Place>>, Blocks) {
    let mut uses: BTreeMap<&str, Vec<Place>> = BTreeMap::new();
    let mut blocks = Blocks::default();
    let (mut block, mut labels) = (0, BTreeSet::new());
    for (at, line) in lines.iter().enumerate() {
        if line.ends_with('{') && !line.starts_with(char::is_whitespace) {
            (block, labels) = (at as u32, BTreeSet::new());
        }
        if let Some((label, _)) = line.split_once(" :") {
            labels.insert(label.trim());
        }
        let mut words = instruction(line).split_whitespace();
        let is_jump = words.next().is_some_and(|word| word.starts_with("jmp"));
        if is_jump && words.next().is_some_and(|label| labels.contains(label)) {
            blocks.jumping_back.insert(block);
        }
        fields(line).for_each(|name| uses.entry(name).or_default().push((at, block)));
    }
    (uses, blocks)
}

/// The line without its label.
fn instruction(line: &str) -> &str {
    line.split_once(" :").map_or(line, |(_, rest)| rest).trim()
}

/// Lines in which a shared field holds an intermediate result.
struct Interval<'a> {
    field: Field<'a>,
    block: u32,
    lines: RangeInclusive<usize>,
}

/// The interval of a field that is an intermediate result of one block.
fn interval<'a>(field: Field<'a>, places: &[Place], lines: &[&str]) -> Option<Interval<'a>> {
    let ((first, block), (last, _)) = (*places.first()?, *places.last()?);
    let name = field.name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_');
    let is_code = lines[block as usize].starts_with("action ") || lines[block as usize] == "apply {";
    let is_one_block = places.iter().all(|(_, of)| *of == block);
    let mut words = instruction(lines[first]).split_whitespace();
    let is_write = words.next().is_some_and(|word| ["mov", "regrd"].contains(&word))
        && words.next().and_then(|word| word.strip_prefix("m.")) == Some(field.name)
        && words.all(|word| word.strip_prefix("m.") != Some(field.name));
    let is_result = name.ends_with("_tmp") && is_code && is_one_block && is_write;
    is_result.then_some(Interval { field, block, lines: first..=last })
}

/// Fields that intermediate results share.
#[derive(Default)]
struct Shares {
    /// New names of fields.
    names: BTreeMap<String, String>,
    /// Number of fields for each width; an action's are others than those of the program that executes it.
    widest: BTreeMap<(bool, u32), usize>,
}

impl Shares {
    fn assign(&mut self, intervals: &[Interval<'_>], is_action: bool) {
        // Last line of each field's occupant.
        let mut ends: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for Interval { field, lines, .. } in intervals {
            let ends = ends.entry(field.bits).or_default();
            let free = ends.iter().position(|end| end < lines.start());
            let number = free.unwrap_or(ends.len());
            match free {
                Some(number) => ends[number] = *lines.end(),
                None => ends.push(*lines.end()),
            }
            let widest = self.widest.entry((is_action, field.bits)).or_default();
            *widest = ends.len().max(*widest);
            self.names.insert(field.name.to_owned(), share(is_action, field.bits, number));
        }
    }

    fn fields(&self) -> impl Iterator<Item = (String, u32)> {
        let all = self.widest.iter().rev();
        all.flat_map(|((is_action, bits), count)| {
            (0..*count).map(|number| (share(*is_action, *bits, number), *bits))
        })
    }
}

fn share(is_action: bool, bits: u32, number: usize) -> String {
    format!("shared_{}{bits}_{number}", if is_action { "action_" } else { "" })
}

fn check(kept: &[(String, u32)]) -> Result<(), SwitchError> {
    let bytes: u32 = kept.iter().map(|(_, bits)| bits / 8).sum();
    let last = kept.last().map_or(0, |(_, bits)| bits / 8);
    if bytes - last < REACH { Ok(()) } else { Err(SwitchError::Metadata { bytes, reach: REACH }) }
}

fn write(
    lines: &[&str],
    structure: &RangeInclusive<usize>,
    kept: &[(String, u32)],
    names: &BTreeMap<String, String>,
) -> String {
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        if at == *structure.start() {
            kept.iter().for_each(|(name, bits)| text += &format!("\tbit<{bits}> {name}\n"));
        }
        if structure.contains(&at) {
            continue;
        }
        for word in line.split_inclusive(char::is_whitespace) {
            let name = word.trim_end();
            match name.strip_prefix("m.").and_then(|name| names.get(name)) {
                Some(new) => text = text + "m." + new + &word[name.len()..],
                None => text += word,
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
struct meta_t {
\tbit<32> port
\tbit<8> unused
\tbit<64> Main_tmp
\tbit<64> Main_tmp_0
\tbit<64> Main_tmp_1
\tbit<32> Main_tmp_2
\tbit<64> Main_tmp_3
}
metadata instanceof meta_t
action a args none {
\tmov m.Main_tmp_3 m.port
\tmov m.port m.Main_tmp_3
\treturn
}
apply {
\trx m.port
\tmov m.Main_tmp h.e.dst
\tmov m.Main_tmp_0 h.e.src
\tadd m.Main_tmp_0 m.Main_tmp
\tjmpeq X m.Main_tmp_0 0
\tX :\tmov m.Main_tmp_1 m.port
\tadd m.Main_tmp_2 m.Main_tmp_1
\ttx m.port
}
";

    #[test]
    fn results_share_fields_and_others_stay() {
        let text = fit(TEXT).unwrap();
        // The first use of number 2 is no write.
        let fields = "struct meta_t {\n\tbit<32> port\n\tbit<32> Main_tmp_2\n\tbit<64> shared_action_64_0\n\
                      \tbit<64> shared_64_1\n\tbit<64> shared_64_0\n}\n";
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let (head, body) = text.split_at(text.find("metadata").unwrap());
        assert_eq!(sorted(head), sorted(fields));
        assert!(
            body.contains("mov m.shared_action_64_0 m.port\n\tmov m.port m.shared_action_64_0\n"),
            "{body}"
        );
        assert!(body.contains("mov m.shared_64_0 h.e.dst\n\tmov m.shared_64_1 h.e.src\n"), "{body}");
        assert!(
            body.contains("\tX :\tmov m.shared_64_0 m.port\n\tadd m.Main_tmp_2 m.shared_64_0\n"),
            "{body}"
        );
    }

    #[test]
    fn nothing_is_shared_where_a_program_jumps_back() {
        let back = TEXT.replace("jmpeq X m.Main_tmp_0 0\n", "").replace("\ttx m.port\n", "\tjmp X\n");
        let text = fit(&back).unwrap();
        assert!(text.contains("mov m.Main_tmp h.e.dst") && text.contains("m.shared_action_64_0"), "{text}");
    }

    #[test]
    fn more_fields_than_instructions_reach_are_refused() {
        let many: String = (0..33).map(|n| format!("\tmov m.f{n} 0\n")).collect();
        let fields: String = (0..33).map(|n| format!("\tbit<64> f{n}\n")).collect();
        let text = format!("struct m_t {{\n{fields}}}\nmetadata instanceof m_t\napply {{\n{many}}}\n");
        let error = fit(&text).unwrap_err().to_string();
        assert!(error.contains("264 bytes"), "{error}");
        assert!(fit(&text.replace("\tmov m.f3 0\n", "")).is_ok());
    }
}
