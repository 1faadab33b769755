//! Text of a compiled program (`.spec` of p4c-dpdk), as far as the host's own code generator knows it.

use std::collections::BTreeMap;

/// Field of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) bits: u32,
    /// Offset in its structure, bytes.
    pub(crate) at: u32,
}

/// Header that the program can extract or make.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) name: String,
    pub(crate) fields: Vec<Field>,
    /// Length, bytes.
    pub(crate) len: u32,
}

/// Line of code.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) label: Option<String>,
    pub(crate) words: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Action {
    pub(crate) name: String,
    pub(crate) arguments: Vec<Field>,
    pub(crate) code: Vec<Line>,
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    /// Names of the fields.
    pub(crate) key: Vec<String>,
    pub(crate) is_exact: bool,
    /// Names of the actions.
    pub(crate) actions: Vec<String>,
    pub(crate) default: String,
    pub(crate) size: u32,
}

/// A program of which every statement is known.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) metadata: Vec<Field>,
    pub(crate) headers: Vec<Header>,
    pub(crate) arrays: Vec<String>,
    pub(crate) meters: Vec<String>,
    pub(crate) actions: Vec<Action>,
    pub(crate) tables: Vec<Table>,
    pub(crate) apply: Vec<Line>,
}

/// Words of a line, without its comment.
fn words(line: &str) -> Vec<&str> {
    line.split(';').next().unwrap_or_default().split_whitespace().collect()
}

/// Number in the program's text.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Lines of the block that a line ending with `{` has opened.
fn block<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Vec<Vec<&'a str>> {
    let mut block = Vec::new();
    for line in lines {
        match words(line).as_slice() {
            ["}"] => break,
            [] => {}
            words => block.push(words.to_vec()),
        }
    }
    block
}

/// Reads a program. `None`: it has a statement that is not known here.
pub(crate) fn read(text: &str) -> Option<Program> {
    let mut program = Program::default();
    let mut structures: BTreeMap<&str, Vec<Field>> = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        match words(line).as_slice() {
            [] => {}
            ["struct", name, "{"] => drop(structures.insert(name, fields(&block(&mut lines))?)),
            ["header", name, "instanceof", structure] => {
                let fields = structures.get(structure)?.clone();
                let len = fields.iter().map(|field| field.bits / 8).sum();
                program.headers.push(Header { name: (*name).to_owned(), fields, len });
            }
            ["metadata", "instanceof", structure] => program.metadata = structures.get(structure)?.clone(),
            ["regarray", name, "size", _, "initval", _] => program.arrays.push((*name).to_owned()),
            ["metarray", name, "size", _] => program.meters.push((*name).to_owned()),
            ["action", name, "args", arguments @ .., "{"] => {
                let arguments = match arguments {
                    ["none"] => Vec::new(),
                    ["instanceof", structure] => structures.get(structure)?.clone(),
                    _ => return None,
                };
                let code = code(&block(&mut lines));
                program.actions.push(Action { name: (*name).to_owned(), arguments, code });
            }
            ["table", name, "{"] => program.tables.push(table(name, &mut lines)?),
            ["apply", "{"] => program.apply = code(&block(&mut lines)),
            _ => return None,
        }
    }
    Some(program)
}

fn fields(block: &[Vec<&str>]) -> Option<Vec<Field>> {
    let mut at = 0;
    let mut fields = Vec::new();
    for line in block {
        let [kind, name] = line.as_slice() else { return None };
        let bits: u32 = kind.strip_prefix("bit<")?.strip_suffix('>')?.parse().ok()?;
        if bits == 0 || !bits.is_multiple_of(8) || bits > 64 {
            return None;
        }
        fields.push(Field { name: (*name).to_owned(), bits, at });
        at += bits / 8;
    }
    Some(fields)
}

fn code(block: &[Vec<&str>]) -> Vec<Line> {
    let line = |words: &Vec<&str>| {
        let (label, words) = match words.as_slice() {
            [label, ":", words @ ..] => (Some((*label).to_owned()), words),
            words => (None, words),
        };
        Line { label, words: words.iter().map(|word| (*word).to_owned()).collect() }
    };
    block.iter().map(line).collect()
}

fn table<'a>(name: &str, lines: &mut impl Iterator<Item = &'a str>) -> Option<Table> {
    let mut table = Table {
        name: name.to_owned(),
        key: Vec::new(),
        is_exact: true,
        actions: Vec::new(),
        default: String::new(),
        size: 0,
    };
    while let Some(line) = lines.next() {
        match words(line).as_slice() {
            [] => {}
            ["}"] => return Some(table),
            ["key", "{"] => {
                for field in block(lines) {
                    let [field, kind] = field.as_slice() else { return None };
                    table.is_exact &= *kind == "exact";
                    table.key.push((*field).to_owned());
                }
            }
            ["actions", "{"] => {
                table.actions = block(lines).iter().map(|words| words[0].to_owned()).collect();
            }
            ["default_action", action, "args", "none", ..] => table.default = (*action).to_owned(),
            ["size", size] => table.size = number(size)?.try_into().ok()?,
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
struct e_t {
\tbit<48> dst
\tbit<16> type
}
struct a_t {
\tbit<32> port
}
struct m_t {
\tbit<32> port
}
header e instanceof e_t
metadata instanceof m_t
regarray r size 0x10 initval 0
action a args instanceof a_t {
\tmov m.port t.port
\treturn
}
table t {
\tkey {
\t\th.e.dst exact
\t}
\tactions {
\t\ta @tableonly
\t}
\tdefault_action a args none const
\tsize 0x40
}
apply {
\trx m.port
\tEND : tx m.port ; comment
}
";

    #[test]
    fn a_program_is_read_with_its_offsets_and_labels() {
        let program = read(TEXT).unwrap();
        assert_eq!((program.headers[0].len, program.headers[0].fields[1].at), (8, 6));
        assert_eq!(program.tables[0].key, ["h.e.dst"]);
        assert_eq!((program.tables[0].actions[0].as_str(), program.tables[0].size), ("a", 64));
        assert_eq!(program.apply[1].label.as_deref(), Some("END"));
        assert_eq!(program.apply[1].words, ["tx", "m.port"]);
    }

    #[test]
    fn a_program_with_an_unknown_statement_is_not_read() {
        assert!(read(&TEXT.replace("regarray", "learner")).is_none());
        assert!(read(&TEXT.replace("bit<48>", "varbit<48>")).is_none());
        assert!(read(&TEXT.replace("args none const", "args port 0x1")).is_none());
    }
}
