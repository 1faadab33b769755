//! Code of a program, in C: one function that takes a packet from its reception to its sending, with
//! metadata and headers in variables (`shim/packet.h` has the rest). Before it, a packet goes through another
//! one, the probe, that finds which entry of a large table it will need, and changes nothing.
//!
//! DPDK makes a function of the instructions between two look-ups. It executes them by 16 packets in turn,
//! and keeps everything in memory meanwhile. A compiler that sees all of the program leaves out most of its
//! moves.

use crate::names::{Names, Place, variable};
use crate::program::{Field, Line, Program, Table, number};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Field of a key: place, offset in the key, bits.
type KeyField = (Place, u32, u32);

/// Longest key that the tables have, bytes.
const KEY_MAX: u32 = 256;
/// Bytes before a received packet: new headers have room there.
const HEADROOM: u32 = 128;
/// Headers of a program.
const HEADERS_MAX: usize = 64;

/// Code of a program.
#[derive(Debug)]
pub(crate) struct Code {
    /// Definitions that come before `shim/packet.h`.
    pub(crate) definitions: String,
    /// The functions, which come behind it.
    pub(crate) functions: String,
    /// Tables that are not DPDK's.
    pub(crate) exact_tables: Vec<String>,
}

enum Operand {
    Place(Place),
    /// Offset in the data of the entry, and bits.
    Argument(u32, u32),
    Number(u64),
}

/// Lines that are executed one after the other, with the names that they have.
struct Scope<'a> {
    /// Prefix of labels: an action is copied to each table.
    prefix: String,
    arguments: &'a [Field],
    /// Label behind an action.
    end: Option<String>,
}

/// Makes the code. `None`: the program has an instruction that is not known here.
pub(crate) fn generate(program: &Program) -> Option<Code> {
    let names = Names::new(program);
    let written = written(program, &names);
    let mut writer = Writer { names, written, out: String::new(), is_probe: true };
    writer.check()?;
    let probe = writer.function("probe")?;
    writer.is_probe = false;
    let functions = probe + &writer.function("packet")?;
    Some(Code { definitions: writer.definitions()?, functions, exact_tables: exact_tables(program) })
}

/// Places that some instruction writes, except by the reception of a header.
fn written(program: &Program, names: &Names<'_>) -> BTreeSet<Place> {
    let code = program.actions.iter().flat_map(|action| &action.code).chain(&program.apply);
    let place = |line: &Line| match line.words.first()?.as_str() {
        "meter" => names.place(line.words.last()?),
        name if name.starts_with("jmp") || name.starts_with("reg") && name != "regrd" => None,
        _ => names.place(line.words.get(1)?),
    };
    code.filter_map(place).collect()
}

fn exact_tables(program: &Program) -> Vec<String> {
    let tables = program.tables.iter().filter(|table| table.is_exact && !table.key.is_empty());
    tables.map(|table| table.name.clone()).collect()
}

struct Writer<'p> {
    names: Names<'p>,
    written: BTreeSet<Place>,
    out: String,
    /// Whether the function only finds the entry that a packet will need: it changes nothing.
    is_probe: bool,
}

impl Writer<'_> {
    fn check(&self) -> Option<()> {
        let program = self.names.program;
        let is_new = |header: &usize| {
            let name = format!("h.{}", program.headers[*header].name);
            let code = program.actions.iter().flat_map(|action| &action.code).chain(&program.apply);
            code.into_iter().any(|line| line.words[0] == "validate" && line.words.get(1) == Some(&name))
        };
        let new: u32 =
            (0..program.headers.len()).filter(is_new).map(|header| program.headers[header].len).sum();
        let first = &program.apply.first()?.words;
        let is_known = first[0] == "rx"
            && program.apply[1..].iter().all(|line| line.words[0] != "rx")
            && program.headers.len() <= HEADERS_MAX
            && new <= HEADROOM;
        is_known.then_some(())
    }

    fn operand(&self, word: &str, scope: &Scope<'_>) -> Option<Operand> {
        if let Some(place) = self.names.place(word) {
            return Some(Operand::Place(place));
        }
        if let Some(name) = word.strip_prefix("t.") {
            let field = scope.arguments.iter().find(|field| field.name == name)?;
            return Some(Operand::Argument(field.at, field.bits));
        }
        number(word).map(Operand::Number)
    }

    /// Value of an operand, in the order of the processor.
    fn value(&self, word: &str, scope: &Scope<'_>) -> Option<String> {
        Some(match self.operand(word, scope)? {
            Operand::Place(place) => variable(place),
            Operand::Argument(at, bits) => format!("gatun_load(data + {at}, {bits})"),
            Operand::Number(number) => format!("{number:#x}ull"),
        })
    }

    fn set(&mut self, word: &str, value: &str) -> Option<()> {
        let place = self.names.place(word)?;
        let mask = u64::MAX >> (64 - self.names.field(place).bits);
        let _ = writeln!(self.out, "\t{} = ({value}) & {mask:#x}ull;", variable(place));
        Some(())
    }

    fn line(&mut self, text: &str) {
        self.out.push('\t');
        self.out += text;
        self.out.push('\n');
    }

    fn apply(&mut self) -> Option<()> {
        let program = self.names.program;
        let scope = Scope { prefix: "L_".to_owned(), arguments: &[], end: None };
        let mut at = 0;
        while let Some(line) = program.apply.get(at) {
            self.label(line, &scope);
            at += match line.words[0].as_str() {
                "emit" | "tx" => self.send(&program.apply[at..], &scope)?,
                "table" => {
                    self.table(at, line.words.get(1)?)?;
                    1
                }
                _ => {
                    self.instruction(line, &scope)?;
                    1
                }
            };
        }
        Some(())
    }

    fn label(&mut self, line: &Line, scope: &Scope<'_>) {
        if let Some(label) = &line.label {
            let _ = writeln!(self.out, "{}{label}:;", scope.prefix);
        }
    }

    fn instruction(&mut self, line: &Line, scope: &Scope<'_>) -> Option<()> {
        let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["rx", port] => self.set(port, "f->port"),
            ["mov", to, from] => self.set(to, &self.value(from, scope)?),
            [name @ ("add" | "sub" | "and" | "or" | "xor" | "shl" | "shr"), to, from] => {
                let (to_value, value) = (variable(self.names.place(to)?), self.value(from, scope)?);
                let value = match *name {
                    "add" => format!("{to_value} + {value}"),
                    "sub" => format!("{to_value} - {value}"),
                    "and" => format!("{to_value} & {value}"),
                    "or" => format!("{to_value} | {value}"),
                    "xor" => format!("{to_value} ^ {value}"),
                    // As the processor shifts.
                    "shl" => format!("{to_value} << ({value} & 63)"),
                    _ => format!("{to_value} >> ({value} & 63)"),
                };
                self.set(to, &value)
            }
            ["ckadd", to, from] => self.checksum(to, from),
            ["extract", header] => self.extract(self.names.header(header)?),
            ["validate", header] => {
                let header = self.names.header(header)?;
                self.line(&format!("valid |= 1ull << {header};"));
                Some(())
            }
            ["invalidate", header] => {
                let header = self.names.header(header)?;
                self.line(&format!("valid &= ~(1ull << {header});"));
                Some(())
            }
            ["drop"] => {
                self.line(if self.is_probe { "return;" } else { "gatun_drop(p, f); return;" });
                Some(())
            }
            ["return"] => {
                self.line(&format!("goto {};", scope.end.as_ref()?));
                Some(())
            }
            [name, ..] if name.starts_with("jmp") => self.jump(&words, scope),
            // Nothing in the program can depend on a counter.
            ["regadd", array, ..] if self.is_probe && !self.is_read(array) => Some(()),
            ["regwr" | "regadd" | "meter", ..] if self.is_probe => {
                self.line("return;");
                Some(())
            }
            [name, ..] if name.starts_with("reg") || *name == "meter" => self.memory(&words, scope),
            _ => None,
        }
    }

    fn jump(&mut self, words: &[&str], scope: &Scope<'_>) -> Option<()> {
        let (label, condition) = match words {
            ["jmp", label] => (label, "1".to_owned()),
            ["jmpv", label, header] => (label, format!("valid >> {} & 1", self.names.header(header)?)),
            ["jmpnv", label, header] => (label, format!("!(valid >> {} & 1)", self.names.header(header)?)),
            ["jmph", label] => (label, "hit".to_owned()),
            ["jmpnh", label] => (label, "!hit".to_owned()),
            ["jmpa", label, action] => (label, format!("action == {}", self.names.action(action)?.0)),
            ["jmpna", label, action] => (label, format!("action != {}", self.names.action(action)?.0)),
            [name @ ("jmpeq" | "jmpneq" | "jmplt" | "jmpgt"), label, a, b] => {
                let operator = match *name {
                    "jmpeq" => "==",
                    "jmpneq" => "!=",
                    "jmplt" => "<",
                    _ => ">",
                };
                (label, format!("{} {operator} {}", self.value(a, scope)?, self.value(b, scope)?))
            }
            _ => return None,
        };
        self.line(&format!("if ({condition}) goto {}{label};", scope.prefix));
        Some(())
    }

    /// Whether the program reads or writes an array's values: it is no counter.
    fn is_read(&self, array: &str) -> bool {
        let program = self.names.program;
        let code = program.actions.iter().flat_map(|action| &action.code).chain(&program.apply);
        code.into_iter().any(|line| {
            ["regrd", "regwr"].contains(&line.words[0].as_str())
                && line.words.iter().any(|word| word == array)
        })
    }

    /// Counters, registers and meters.
    fn memory(&mut self, words: &[&str], scope: &Scope<'_>) -> Option<()> {
        let program = self.names.program;
        let find = |all: &[String], name: &str| all.iter().position(|other| other == name);
        let cell = |array: &str, index: &str| {
            Some(format!("gatun_cell(p, {}, {})", find(&program.arrays, array)?, self.value(index, scope)?))
        };
        match words {
            ["regprefetch", array, index] => {
                self.line(&format!("rte_prefetch0({});", cell(array, index)?));
            }
            ["regrd", to, array, index] => self.set(to, &format!("*{}", cell(array, index)?))?,
            ["regwr", array, index, from] => {
                self.line(&format!("*{} = {};", cell(array, index)?, self.value(from, scope)?));
            }
            ["regadd", array, index, from] => {
                let can_wait = u8::from(!self.is_read(array));
                let (cell, value) = (cell(array, index)?, self.value(from, scope)?);
                self.line(&format!("gatun_count(f, {cell}, {value}, {can_wait});"));
            }
            ["meter", array, index, len, color, to] => {
                let array = find(&program.meters, array)?;
                let values = [index, len, color].map(|word| self.value(word, scope));
                let [Some(index), Some(len), Some(color)] = values else { return None };
                self.set(to, &format!("gatun_meter(p, {array}, {index}, {len}, {color})"))?;
            }
            _ => return None,
        }
        Some(())
    }

    /// `ckadd`: adds a field or a header to a checksum. A sum of 16-bit words is the same in each order of
    /// bytes.
    fn checksum(&mut self, to: &str, from: &str) -> Option<()> {
        let Place::Header(header, at) = self.names.place(to)? else { return None };
        if self.names.field(Place::Header(header, at)).bits != 16 {
            return None;
        }
        let (fields, len): (Vec<Place>, u32) = match self.names.header(from) {
            Some(header) => (self.names.fields(header).collect(), self.names.program.headers[header].len),
            None => (vec![self.names.place(from).filter(|place| matches!(place, Place::Header(..)))?], 0),
        };
        // DPDK leaves out the rest of other lengths.
        if len % 4 != 0 {
            return None;
        }
        let mut sum = format!("(~{} & 0xffff)", variable(Place::Header(header, at)));
        for place in fields {
            let (field, variable) = (self.names.field(place), variable(place));
            let begin = if len == 0 { 0 } else { field.at };
            let shift = (2 - (begin + field.bits / 8) % 2) % 2 * 8;
            match field.bits {
                64 if shift == 0 => {
                    let _ = write!(sum, " + ({variable} >> 32) + ({variable} & 0xffffffff)");
                }
                bits if bits <= 32 => {
                    let _ = write!(sum, " + ({variable} << {shift})");
                }
                _ => return None,
            }
        }
        self.set(to, &format!("gatun_checksum({sum})"))
    }

    fn extract(&mut self, header: usize) -> Option<()> {
        self.line(&format!("at{header} = ptr;"));
        for place in self.names.fields(header) {
            self.load(place);
        }
        let len = self.names.program.headers[header].len;
        self.line(&format!("valid |= 1ull << {header};"));
        self.line(&format!("ptr += {len};"));
        Some(())
    }

    /// Reads a field from the packet.
    fn load(&mut self, place: Place) {
        let Place::Header(header, _) = place else { return };
        let Field { bits, at, .. } = *self.names.field(place);
        let value = format!("gatun_swap(gatun_load(at{header} + {at}, {bits}), {bits})");
        self.line(&format!("{} = {value};", variable(place)));
    }

    /// Emissions of headers and the sending behind them. Returns the number of lines.
    fn send(&mut self, lines: &[Line], scope: &Scope<'_>) -> Option<usize> {
        let emitted = lines.iter().take_while(|line| line.words[0] == "emit").count();
        let line = lines.get(emitted).filter(|line| line.words[0] == "tx")?;
        if lines[1..=emitted].iter().any(|line| line.label.is_some()) {
            return None;
        }
        let port = self.value(line.words.get(1)?, scope)?;
        if self.is_probe {
            self.line("return;");
            return Some(emitted + 1);
        }
        self.line("{");
        self.line("uint8_t *o = ptr;");
        for line in lines[..emitted].iter().rev() {
            let header = self.names.header(line.words.get(1)?)?;
            let len = self.names.program.headers[header].len;
            self.line(&format!("if (valid >> {header} & 1) {{ o -= {len}; if (o == at{header}) {{"));
            let fields: Vec<Place> = self.names.fields(header).collect();
            for place in &fields {
                if self.written.contains(place) {
                    self.store(*place);
                }
            }
            self.line("} else {");
            fields.iter().for_each(|place| self.store(*place));
            self.line("} }");
        }
        self.line(&format!("gatun_send(p, f, o, {port});"));
        self.line("return; }");
        Some(emitted + 1)
    }

    fn store(&mut self, place: Place) {
        let Field { bits, at, .. } = *self.names.field(place);
        self.line(&format!("gatun_store(o + {at}, {bits}, gatun_swap({}, {bits}));", variable(place)));
    }

    /// A look-up and the actions of the table. `at` is its line.
    fn table(&mut self, at: usize, name: &str) -> Option<()> {
        let (number, table) = self.names.table(name)?;
        let default = self.names.action(&table.default)?.0;
        self.line("{");
        self.line(&format!("/* {name} */"));
        self.line("const uint8_t *data = gatun_nothing;");
        match (table.key.is_empty(), table.is_exact) {
            (true, _) => self.line("hit = 0;"),
            (false, true) => self.look_up(number, table)?,
            (false, false) if self.is_probe => self.line("return;"),
            (false, false) => self.look_up_with_masks(number, table)?,
        }
        self.line(&format!("if (!hit) action = {default};"));
        self.line("switch (action) {");
        for name in table.actions.iter().chain([&table.default]).collect::<BTreeSet<_>>() {
            let (number, action) = self.names.action(name)?;
            self.line(&format!("case {number}: {{"));
            let prefix = format!("A{at}_{number}_");
            let end = format!("{prefix}END");
            let scope = Scope { prefix, arguments: &action.arguments, end: Some(end.clone()) };
            for line in &action.code {
                self.label(line, &scope);
                self.instruction(line, &scope)?;
            }
            let _ = writeln!(self.out, "{end}:;");
            self.line("break; }");
        }
        self.line("} }");
        Some(())
    }

    /// Fields of a table's key, and the offset of the key in its structure.
    fn key(&self, table: &Table) -> Option<(Vec<KeyField>, u32)> {
        let places = table.key.iter().map(|word| self.names.place(word)).collect::<Option<Vec<_>>>()?;
        let first = places.iter().map(|place| self.names.field(*place).at).min()?;
        let part = |place: &Place| {
            let field = self.names.field(*place);
            (*place, field.at - first, field.bits)
        };
        Some((places.iter().map(part).collect(), first))
    }

    /// Value of a field as the key has it: a header's in network order.
    fn key_value(place: Place, bits: u32) -> String {
        match place {
            Place::Metadata(_) => variable(place),
            Place::Header(..) => format!("gatun_swap({}, {bits})", variable(place)),
        }
    }

    fn look_up(&mut self, number: usize, table: &Table) -> Option<()> {
        let (key, _) = self.key(table)?;
        let len = key.iter().map(|(_, at, bits)| at + bits / 8).max()?;
        if len > KEY_MAX {
            return None;
        }
        let count = len.div_ceil(8);
        let mut words = vec![String::from("0"); count as usize];
        for (place, offset, bits) in &key {
            let (value, shift) = (Self::key_value(*place, *bits), 8 * (offset % 8));
            let word = *offset as usize / 8;
            let _ = write!(words[word], " | {value} << {shift}");
            if shift + bits > 64 {
                let _ = write!(words[word + 1], " | {value} >> {}", 64 - shift);
            }
        }
        self.line(&format!("const struct gatun_table *table = p->table_state[{number}].obj;"));
        self.line(&format!("const uint64_t key[] = {{{}}};", words.join(", ")));
        self.line(&format!("const uint64_t hash = gatun_hash(table, key, {count});"));
        if self.is_probe {
            self.line("if (table->is_large) { gatun_seek(f, table, hash); return; }");
        }
        self.line(&format!("const uint8_t *entry = gatun_find(table, hash, key, {count});"));
        self.line("hit = entry != NULL;");
        self.line(&format!(
            "if (hit) {{ action = gatun_load(entry + {}, 64); data = entry + {}; }}",
            8 * count,
            8 * count + 8
        ));
        Some(())
    }

    fn look_up_with_masks(&mut self, number: usize, table: &Table) -> Option<()> {
        let (key, first) = self.key(table)?;
        let end = key.iter().map(|(_, at, bits)| first + at + bits / 8).max()?;
        // The table reads words of four bytes.
        self.line(&format!("uint8_t key[{}] = {{0}};", end + 8));
        for (place, offset, bits) in key {
            let value = Self::key_value(place, bits);
            self.line(&format!("gatun_store(key + {}, {bits}, {value});", first + offset));
        }
        self.line(&format!("hit = gatun_match(p, {number}, key, &action, &data);"));
        Some(())
    }

    /// The function `gatun_NAME`.
    fn function(&mut self, name: &str) -> Option<String> {
        self.out.clear();
        self.apply()?;
        let program = self.names.program;
        let places = (0..program.metadata.len()).map(Place::Metadata);
        let places = places.chain((0..program.headers.len()).flat_map(|header| self.names.fields(header)));
        let mut text = format!(
            "static void gatun_{name}(struct rte_swx_pipeline *p, struct gatun_frame *f)\n\
            {{\n\tuint8_t *ptr = f->pkt.pkt + f->pkt.offset;\n\
            \tuint64_t valid = 0, action = 0;\n\tint hit = 0;\n"
        );
        for header in 0..program.headers.len() {
            let _ = writeln!(text, "\tuint8_t *at{header} = (uint8_t *)gatun_nothing;");
        }
        for place in places {
            // Without a value, as in P4: a compiler would have to write zeroes wherever ways of packets meet.
            let _ = writeln!(text, "\tuint64_t {};", variable(place));
        }
        let end = if self.is_probe { "" } else { "\tgatun_drop(p, f);\n" };
        Some(text + &self.out + end + "}\n")
    }

    fn definitions(&self) -> Option<String> {
        let program = self.names.program;
        let list = |names: &mut dyn Iterator<Item = &String>| {
            names.map(|name| format!("\"{name}\", ")).collect::<String>()
        };
        let mut shapes = String::new();
        for (number, table) in program.tables.iter().enumerate() {
            if !table.is_exact || table.key.is_empty() {
                continue;
            }
            let (key, _) = self.key(table)?;
            let key_len = key.iter().map(|(_, at, bits)| at + bits / 8).max()?;
            let mut data_len = 0;
            for name in &table.actions {
                let len: u32 = self.names.action(name)?.1.arguments.iter().map(|field| field.bits / 8).sum();
                data_len = data_len.max(len);
            }
            let _ = write!(shapes, "{{{number}, {key_len}, {data_len}, {}}}, ", table.size);
        }
        let mut text = format!("#define GATUN_SHAPES {shapes}\n");
        for (name, names) in [
            ("ACTIONS", list(&mut program.actions.iter().map(|action| &action.name))),
            ("TABLES", list(&mut program.tables.iter().map(|table| &table.name))),
            ("ARRAYS", list(&mut program.arrays.iter())),
            ("METERS", list(&mut program.meters.iter())),
        ] {
            let _ = writeln!(text, "#define GATUN_{name} {names}");
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::read;

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
\tbit<32> key
\tbit<32> unread
\tbit<32> later
}
header e instanceof e_t
metadata instanceof m_t
action a args instanceof a_t {
\tmov m.port t.port
\treturn
}
table t {
\tkey {
\t\tm.key exact
\t}
\tactions {
\t\ta
\t}
\tdefault_action b args none
\tsize 0x40
}
action b args none {
\tmov m.port 3
\treturn
}
apply {
\trx m.port
\textract h.e
\tmov m.key h.e.dst
\tmov m.unread h.e.dst
\tmov m.later h.e.dst
\ttable t
\tmov h.e.type m.later
\temit h.e
\ttx m.port
}
";

    /// The probe and the function that follows it, with other lines before the look-up.
    fn functions(lines: &str) -> [String; 2] {
        let text = TEXT.replace("\ttable t\n", &format!("{lines}\ttable t\n"));
        let text = text.replace("apply {", "regarray c size 16 initval 0\nmetarray l size 16\napply {");
        let code = generate(&read(&text).unwrap()).unwrap();
        let (probe, packet) = code.functions.split_once("static void gatun_packet").unwrap();
        [probe, packet].map(str::to_owned)
    }

    #[test]
    fn a_probe_changes_nothing() {
        let [probe, packet] =
            functions("\tregadd c m.key 1\n\tjmpeq OUT m.key 1\n\tdrop\n\tOUT : mov m.port 1\n");
        for effect in ["gatun_count(", "gatun_drop(", "gatun_send(", "gatun_store(", "*gatun_cell("] {
            assert!(!probe.contains(effect), "{effect}\n{probe}");
        }
        assert!(["gatun_count(", "gatun_drop(", "gatun_send("].iter().all(|effect| packet.contains(effect)));
    }

    #[test]
    fn a_probe_seeks_the_entry_that_the_packet_finds() {
        let [probe, packet] = functions("");
        let key = |text: &str| text.lines().filter(|line| line.contains("key")).map(str::to_owned).collect();
        let [first, second]: [Vec<String>; 2] = [&probe, &packet].map(|text| key(text));
        assert_eq!(first, second);
        assert!(first.len() > 1 && probe.contains("gatun_seek(") && !packet.contains("gatun_seek("));
    }

    #[test]
    fn a_probe_ends_before_what_it_cannot_foresee() {
        let is_ended = |lines: &str| {
            let [probe, _] = functions(lines);
            probe.find("\treturn;\n") < probe.find("gatun_seek(") && probe.contains("\treturn;\n")
        };
        assert!(is_ended("\tregwr c m.key 1\n") && is_ended("\tmeter l m.key m.later 0 m.unread\n"));
        assert!(is_ended("\tregadd c m.key 1\n\tregrd m.unread c m.key\n"));
        assert!(!is_ended("\tregadd c m.key 1\n") && !is_ended("\tregrd m.unread c m.key\n"));
    }

    #[test]
    fn instructions_that_are_not_known_leave_the_program_to_dpdk() {
        for (line, other) in [
            ("extract h.e", "lookahead h.e"),
            ("emit h.e\n", "emit h.e\n\tmov m.port 1\n"),
            ("tx m.port", "EARLY : tx m.port"),
        ] {
            assert!(generate(&read(&TEXT.replace(line, other)).unwrap()).is_none(), "{other}");
        }
    }
}
