//! Objects of a p4info, each with its counterpart in the switch's program.

use crate::target::{Program, ProgramTable};
use gatun_p4runtime::p4::config::v1::action_ref::Scope;
use gatun_p4runtime::p4::config::v1::counter_spec::Unit;
use gatun_p4runtime::p4::config::v1::match_field::{Match, MatchType};
use gatun_p4runtime::p4::config::v1::{self as info, P4Info, Preamble};
use std::collections::HashMap;

/// Longest field, bits.
const BITS_MAX: u32 = 64;

/// Field of a table's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) bits: u32,
    pub(crate) kind: MatchType,
}

/// Parameter of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Param {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) bits: u32,
    /// Place among the arguments of the program's action.
    pub(crate) argument: usize,
}

/// Action of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Place among the actions of the program's table.
    pub(crate) place: usize,
    pub(crate) params: Vec<Param>,
}

/// Table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Place among the program's tables.
    pub(crate) place: usize,
    pub(crate) size: usize,
    pub(crate) is_const: bool,
    /// The switch's table has no masks.
    pub(crate) is_exact: bool,
    /// Entries have a priority.
    pub(crate) has_priority: bool,
    pub(crate) fields: Vec<Field>,
    pub(crate) actions: Vec<Action>,
}

/// Counter: the arrays that count packets and bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) size: u32,
    pub(crate) packets: Option<String>,
    pub(crate) bytes: Option<String>,
}

/// Meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meter {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) size: u32,
    /// Name in the program.
    pub(crate) array: String,
}

/// Header between the switch and its controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PacketHeader {
    /// Number and bits of each field.
    pub(crate) fields: Vec<(u32, u32)>,
}

impl PacketHeader {
    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.fields.iter().map(|(_, bits)| *bits as usize).sum::<usize>() / 8
    }
}

/// Pipeline: a p4info whose objects the program has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pipeline {
    pub(crate) tables: Vec<Table>,
    pub(crate) counters: Vec<Counter>,
    pub(crate) meters: Vec<Meter>,
    pub(crate) packet_in: Option<PacketHeader>,
    pub(crate) packet_out: Option<PacketHeader>,
    places: HashMap<u32, usize>,
}

impl Pipeline {
    /// Joins a p4info with a program.
    ///
    /// # Errors
    /// The program lacks an object, or an object has another form. The text names it.
    pub(crate) fn new(p4info: &P4Info, program: &Program) -> Result<Pipeline, String> {
        refuse_unsupported(p4info)?;
        let mut pipeline = Pipeline::default();
        for table in &p4info.tables {
            pipeline.tables.push(join_table(table, p4info, program)?);
        }
        for counter in &p4info.counters {
            pipeline.counters.push(join_counter(counter, program)?);
        }
        for meter in &p4info.meters {
            pipeline.meters.push(join_meter(meter, program)?);
        }
        for header in &p4info.controller_packet_metadata {
            let fields = header.metadata.iter().map(|m| Ok((m.id, width(m.bitwidth, &m.name)?)));
            let fields = PacketHeader { fields: fields.collect::<Result<_, String>>()? };
            let bits: u32 = fields.fields.iter().map(|(_, bits)| bits).sum();
            if !bits.is_multiple_of(8) {
                return Err(format!("header {}: {bits} bits are no whole bytes", name_of(&header.preamble)));
            }
            match name_of(&header.preamble) {
                "packet_in" => pipeline.packet_in = Some(fields),
                "packet_out" => pipeline.packet_out = Some(fields),
                name => return Err(format!("header {name}: expected packet_in or packet_out")),
            }
        }
        pipeline.number()?;
        Ok(pipeline)
    }

    /// Notes the place of each object by its number, which has to be unique.
    fn number(&mut self) -> Result<(), String> {
        let tables = self.tables.iter().map(|t| t.id).enumerate();
        let counters = self.counters.iter().map(|c| c.id).enumerate();
        let meters = self.meters.iter().map(|m| m.id).enumerate();
        for (place, id) in tables.chain(counters).chain(meters) {
            if id == 0 || self.places.insert(id, place).is_some() {
                return Err(format!("number {id} belongs to no object or to several"));
            }
        }
        Ok(())
    }

    /// Place of the table with this number.
    pub(crate) fn table(&self, id: u32) -> Option<usize> {
        let place = *self.places.get(&id)?;
        (self.tables.get(place)?.id == id).then_some(place)
    }

    /// The counter with this number.
    pub(crate) fn counter(&self, id: u32) -> Option<&Counter> {
        self.counters.get(*self.places.get(&id)?).filter(|counter| counter.id == id)
    }

    /// The meter with this number.
    pub(crate) fn meter(&self, id: u32) -> Option<&Meter> {
        self.meters.get(*self.places.get(&id)?).filter(|meter| meter.id == id)
    }
}

fn refuse_unsupported(p4info: &P4Info) -> Result<(), String> {
    let kinds = [
        ("action profiles", p4info.action_profiles.len()),
        ("direct counters", p4info.direct_counters.len()),
        ("direct meters", p4info.direct_meters.len()),
        ("value sets", p4info.value_sets.len()),
        ("digests", p4info.digests.len()),
        ("externs", p4info.externs.len()),
    ];
    match kinds.iter().find(|(_, count)| *count > 0) {
        Some((kind, _)) => Err(format!("the p4info has {kind}, which this switch does not support")),
        None => Ok(()),
    }
}

fn name_of(preamble: &Option<Preamble>) -> &str {
    preamble.as_ref().map_or("", |preamble| preamble.name.as_str())
}

/// Names that a compiler may give an object: its alias, and the end of its path, as `lookup_flows6` for
/// "Main.lookup.flows6".
fn names(preamble: &Option<Preamble>) -> Vec<String> {
    let Some(preamble) = preamble else { return Vec::new() };
    let path: Vec<&str> = preamble.name.split('.').filter(|part| !part.is_empty()).collect();
    let ends = (0..path.len()).map(|from| path[from..].join("_"));
    ends.chain([preamble.alias.clone()]).filter(|name| !name.is_empty()).collect()
}

/// Place of an object among the program's names. The compiler adds a number to copies of an action.
fn find<'a>(names: &[String], mut all: impl Iterator<Item = &'a String> + Clone) -> Option<usize> {
    let without_number = |name: &'a str| {
        let (start, number) = name.rsplit_once('_')?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then_some(start)
    };
    let is_copy =
        |name: &'a String| without_number(name).is_some_and(|start| names.iter().any(|n| n == start));
    all.clone().position(|name| names.contains(name)).or_else(|| all.position(is_copy))
}

fn width(bits: i32, name: &str) -> Result<u32, String> {
    let bits = u32::try_from(bits).ok().filter(|bits| (1..=BITS_MAX).contains(bits));
    bits.ok_or_else(|| format!("{name}: a field has 1 to {BITS_MAX} bits"))
}

fn join_table(table: &info::Table, p4info: &P4Info, program: &Program) -> Result<Table, String> {
    let name = name_of(&table.preamble);
    let names = names(&table.preamble);
    let place = find(&names, program.tables.iter().map(|t| &t.name));
    let place = place.ok_or_else(|| format!("the program has no table {name}"))?;
    let ours = &program.tables[place];
    let fields = join_fields(table, name, ours)?;
    // The compiler leaves out a default action that the program's tables do not need.
    let for_entries = table.action_refs.iter().filter(|one| one.scope() != Scope::DefaultOnly);
    let actions = for_entries.map(|reference| join_action(reference, name, p4info, ours));
    let size = usize::try_from(table.size).unwrap_or(0).min(ours.size as usize);
    Ok(Table {
        id: table.preamble.as_ref().map_or(0, |p| p.id),
        name: name.to_owned(),
        place,
        size: if table.size <= 0 { ours.size as usize } else { size },
        is_const: table.is_const_table,
        is_exact: ours.is_exact,
        has_priority: fields.iter().any(|f| matches!(f.kind, MatchType::Ternary | MatchType::Optional)),
        fields,
        actions: actions.collect::<Result<_, String>>()?,
    })
}

fn join_fields(table: &info::Table, name: &str, ours: &ProgramTable) -> Result<Vec<Field>, String> {
    if table.match_fields.len() != ours.fields.len() {
        let (theirs, ours) = (table.match_fields.len(), ours.fields.len());
        return Err(format!("table {name} has {theirs} fields in the p4info and {ours} in the program"));
    }
    let join = |(field, bits): (&info::MatchField, &u32)| {
        let what = format!("table {name}, field {}", field.name);
        let kind = match field.r#match {
            Some(Match::MatchType(kind)) => MatchType::try_from(kind).unwrap_or(MatchType::Unspecified),
            _ => MatchType::Unspecified,
        };
        let wide = width(field.bitwidth, &what)?;
        if wide.next_multiple_of(8) != bits.next_multiple_of(8) {
            return Err(format!("{what} has {wide} bits in the p4info and {bits} in the program"));
        }
        match kind {
            MatchType::Unspecified | MatchType::Range => {
                Err(format!("{what}: this switch does not match so"))
            }
            MatchType::Exact => Ok(()),
            _ if ours.is_exact => Err(format!("{what} has masks in the p4info and none in the program")),
            _ => Ok(()),
        }?;
        Ok(Field { id: field.id, name: field.name.clone(), bits: wide, kind })
    };
    table.match_fields.iter().zip(&ours.fields).map(join).collect()
}

fn join_action(
    reference: &info::ActionRef,
    table: &str,
    p4info: &P4Info,
    ours: &ProgramTable,
) -> Result<Action, String> {
    let of = |action: &&info::Action| action.preamble.as_ref().is_some_and(|p| p.id == reference.id);
    let action = p4info.actions.iter().find(of);
    let action = action.ok_or_else(|| format!("table {table}: no action has number {}", reference.id))?;
    let name = name_of(&action.preamble);
    let names = names(&action.preamble);
    let place = find(&names, ours.actions.iter().map(|a| &a.name));
    let place = place.ok_or_else(|| format!("the program's table {table} has no action {name}"))?;
    let arguments = &ours.actions[place].arguments;
    if arguments.len() != action.params.len() {
        let (theirs, ours) = (action.params.len(), arguments.len());
        return Err(format!("action {name} has {theirs} parameters in the p4info and {ours} in the program"));
    }
    let join = |param: &info::action::Param| {
        let what = format!("action {name}, parameter {}", param.name);
        let bits = width(param.bitwidth, &what)?;
        let argument = arguments.iter().position(|(name, _)| *name == param.name);
        let argument = argument.ok_or_else(|| format!("{what}: the program has no such parameter"))?;
        let wide = arguments[argument].1;
        match bits.next_multiple_of(8) == wide.next_multiple_of(8) {
            true => Ok(Param { id: param.id, name: param.name.clone(), bits, argument }),
            false => Err(format!("{what} has {bits} bits in the p4info and {wide} in the program")),
        }
    };
    let params = action.params.iter().map(join).collect::<Result<_, String>>()?;
    Ok(Action { id: reference.id, name: name.to_owned(), place, params })
}

/// Finds an array of the program: name and size.
fn array<'a>(
    kind: &str,
    preamble: &Option<Preamble>,
    suffix: &str,
    all: &'a [(String, u32)],
) -> Result<&'a (String, u32), String> {
    let names = names(preamble);
    let is_named = |(name, _): &&(String, u32)| names.iter().any(|n| format!("{n}{suffix}") == *name);
    all.iter().find(is_named).ok_or_else(|| format!("the program has no {kind} {}", name_of(preamble)))
}

fn join_counter(counter: &info::Counter, program: &Program) -> Result<Counter, String> {
    let find = |suffix| array("counter", &counter.preamble, suffix, &program.arrays);
    let unit = counter.spec.as_ref().map_or(Unit::Unspecified, info::CounterSpec::unit);
    let (packets, bytes) = match unit {
        Unit::Packets => (Some(find("")?), None),
        Unit::Bytes => (None, Some(find("")?)),
        Unit::Both | Unit::Unspecified => (Some(find("_packets")?), Some(find("_bytes")?)),
    };
    let name = name_of(&counter.preamble).to_owned();
    let ours = packets.into_iter().chain(bytes).map(|(_, size)| *size).min().unwrap_or(0);
    let size = u32::try_from(counter.size).ok().filter(|size| *size <= ours);
    let size = size.ok_or_else(|| format!("counter {name}: the program has {ours} cells of it"))?;
    let own = |array: Option<&(String, u32)>| array.map(|(name, _)| name.clone());
    let id = counter.preamble.as_ref().map_or(0, |p| p.id);
    Ok(Counter { id, name, size, packets: own(packets), bytes: own(bytes) })
}

fn join_meter(meter: &info::Meter, program: &Program) -> Result<Meter, String> {
    let (array, ours) = array("meter", &meter.preamble, "", &program.meters)?;
    let name = name_of(&meter.preamble).to_owned();
    let size = u32::try_from(meter.size).ok().filter(|size| size <= ours);
    let size = size.ok_or_else(|| format!("meter {name}: the program has {ours} cells of it"))?;
    let id = meter.preamble.as_ref().map_or(0, |p| p.id);
    Ok(Meter { id, name, size, array: array.clone() })
}
