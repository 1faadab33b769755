//! Entries as the controller wrote them, for reads, for duplicates, and to build tables with masks anew.
//!
//! An entry's key and data are packed into bytes: each value in its width, rounded up to bytes. A key of a
//! table with masks has a mask behind each value, and the priority at the end.

use crate::pipeline::{Action, Field, Table};
use crate::refusal::Refusal;
use crate::target::{Call, MaskedEntry};
use crate::values::{bytes, largest, number, prefix_mask};
use gatun_p4runtime::p4::config::v1::match_field::MatchType;
use gatun_p4runtime::p4::v1::field_match::{Exact, FieldMatchType, Lpm, Optional, Ternary};
use gatun_p4runtime::p4::v1::table_action::Type as ActionType;
use gatun_p4runtime::p4::v1::{self as proto, FieldMatch, TableAction, TableEntry};
use std::collections::HashMap;
use std::sync::Arc;

/// Longest metadata of an entry, bytes.
const METADATA_MAX: usize = 256;

/// Packed key.
pub(crate) type Key = Arc<[u8]>;

/// Action and metadata of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Place among the table's actions.
    pub(crate) action: u16,
    pub(crate) data: Box<[u8]>,
    pub(crate) metadata: Box<[u8]>,
    pub(crate) controller_metadata: u64,
}

/// Entries of a table.
pub(crate) type Store = HashMap<Key, Stored>;

/// Entries that a store has room for from the beginning.
const ROOM_MAX: usize = 1 << 21;

/// Store of a table with this size. It has its room at once: a batch that made a store of a million entries
/// grow would wait for all of them.
pub(crate) fn with_room(size: usize) -> Store {
    let mut store = Store::default();
    // Without the memory, it grows as far as it can.
    let _ = store.try_reserve(size.min(ROOM_MAX));
    store
}

fn len(bits: u32) -> usize {
    bits.div_ceil(8) as usize
}

fn push(out: &mut Vec<u8>, value: u64, bits: u32) {
    out.extend_from_slice(value.to_be_bytes().get(8 - len(bits)..).unwrap_or_default());
}

/// Takes the next value from packed bytes.
fn take(from: &mut &[u8], bits: u32) -> u64 {
    let (value, rest) = from.split_at(len(bits).min(from.len()));
    *from = rest;
    value.iter().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// Packs the key of an entry.
pub(crate) fn pack_key(table: &Table, entry: &TableEntry) -> Result<Key, Refusal> {
    let mut key = Vec::with_capacity(table.fields.iter().map(|field| 2 * len(field.bits)).sum());
    let mut used = 0;
    for field in &table.fields {
        let mut given = entry.r#match.iter().filter(|one| one.field_id == field.id);
        let first = given.next();
        used += usize::from(first.is_some());
        let (value, mask) = value_and_mask(field, first.and_then(|one| one.field_match_type.as_ref()), first)
            .map_err(|fault| {
                Refusal::invalid(format!("table {}, field {}: {fault}", table.name, field.name))
            })?;
        push(&mut key, value, field.bits);
        if !table.is_exact {
            push(&mut key, mask, field.bits);
        }
    }
    if used != entry.r#match.len() {
        let message = format!("table {}: a field is not in the p4info, or given twice", table.name);
        return Err(Refusal::invalid(message));
    }
    match (table.has_priority, entry.priority) {
        (true, 1..) | (false, 0) => {}
        (true, _) => {
            return Err(Refusal::invalid(format!(
                "table {}: a priority of 1 or more is missing",
                table.name
            )));
        }
        (false, _) => {
            return Err(Refusal::invalid(format!("table {}: entries have no priority", table.name)));
        }
    }
    if !table.is_exact {
        key.extend_from_slice(&entry.priority.to_be_bytes());
    }
    Ok(key.into())
}

fn value_and_mask(
    field: &Field,
    given: Option<&FieldMatchType>,
    one: Option<&FieldMatch>,
) -> Result<(u64, u64), &'static str> {
    const UNFIT: &str = "the value does not fit";
    let fit = |value: &[u8]| number(value, field.bits).ok_or(UNFIT);
    match (field.kind, given) {
        (MatchType::Exact, Some(FieldMatchType::Exact(exact))) => {
            Ok((fit(&exact.value)?, largest(field.bits)))
        }
        (MatchType::Exact, None) => Err("the value is missing"),
        (_, None) if one.is_none() => Ok((0, 0)),
        (MatchType::Optional, Some(FieldMatchType::Optional(exact))) => {
            Ok((fit(&exact.value)?, largest(field.bits)))
        }
        (MatchType::Ternary, Some(FieldMatchType::Ternary(ternary))) => {
            match (fit(&ternary.value)?, fit(&ternary.mask)?) {
                (_, 0) => Err("a field with a mask of zero has to be left out"),
                (value, mask) if value & !mask != 0 => Err("the value has bits outside its mask"),
                pair => Ok(pair),
            }
        }
        (MatchType::Lpm, Some(FieldMatchType::Lpm(lpm))) => {
            let prefix =
                u32::try_from(lpm.prefix_len).ok().filter(|prefix| (1..=field.bits).contains(prefix));
            let prefix =
                prefix.ok_or("a prefix has 1 bit to the field's width, otherwise the field is left out")?;
            match (fit(&lpm.value)?, prefix_mask(prefix, field.bits)) {
                (value, mask) if value & !mask != 0 => Err("the value has bits outside its prefix"),
                pair => Ok(pair),
            }
        }
        _ => Err("the kind of match is another in the p4info"),
    }
}

/// Values of a key without masks.
pub(crate) fn exact_key(table: &Table, mut key: &[u8]) -> Vec<u64> {
    table.fields.iter().map(|field| take(&mut key, field.bits)).collect()
}

/// Entry for the switch, of a table with masks.
pub(crate) fn masked_entry(table: &Table, mut key: &[u8], stored: &Stored) -> MaskedEntry {
    let mut prefixes = 0;
    let mut pair = |field: &Field| {
        let pair = (take(&mut key, field.bits), take(&mut key, field.bits));
        prefixes += if field.kind == MatchType::Lpm { pair.1.count_ones() } else { 0 };
        pair
    };
    let pairs = table.fields.iter().map(&mut pair).collect();
    // The longest prefix wins in a table without priorities.
    let priority = if table.has_priority { take(&mut key, 32) as u32 } else { prefixes };
    MaskedEntry { key: pairs, priority, call: call(table, stored) }
}

/// Action for the switch.
pub(crate) fn call(table: &Table, stored: &Stored) -> Call {
    let action = &table.actions[usize::from(stored.action)];
    let mut data = vec![0; action.params.len()];
    let mut packed = &stored.data[..];
    for param in &action.params {
        data[param.argument] = take(&mut packed, param.bits);
    }
    Call { action: action.place, data }
}

/// Packs the action and the metadata of an entry.
pub(crate) fn pack_action(table: &Table, entry: &TableEntry) -> Result<Stored, Refusal> {
    let action = match entry.action.as_ref().and_then(|action| action.r#type.as_ref()) {
        Some(ActionType::Action(action)) => action,
        Some(_) => {
            return Err(Refusal::unimplemented(format!(
                "table {}: there are no action profiles",
                table.name
            )));
        }
        None => return Err(Refusal::invalid(format!("table {}: the action is missing", table.name))),
    };
    let found = table.actions.iter().enumerate().find(|(_, own)| own.id == action.action_id);
    let (place, own) = found.ok_or_else(|| {
        Refusal::invalid(format!("table {} has no action {}", table.name, action.action_id))
    })?;
    if entry.metadata.len() > METADATA_MAX {
        return Err(Refusal::invalid(format!("an entry's metadata have at most {METADATA_MAX} bytes")));
    }
    #[allow(deprecated)]
    let controller_metadata = entry.controller_metadata;
    Ok(Stored {
        action: place as u16,
        data: pack_params(own, action)?.into(),
        metadata: entry.metadata.as_slice().into(),
        controller_metadata,
    })
}

fn pack_params(own: &Action, action: &proto::Action) -> Result<Vec<u8>, Refusal> {
    let mut data = Vec::with_capacity(own.params.iter().map(|param| len(param.bits)).sum());
    for param in &own.params {
        let fault =
            |fault| Refusal::invalid(format!("action {}, parameter {}: {fault}", own.name, param.name));
        let given = action.params.iter().find(|one| one.param_id == param.id);
        let given = given.ok_or_else(|| fault("it is missing"))?;
        push(
            &mut data,
            number(&given.value, param.bits).ok_or_else(|| fault("the value does not fit"))?,
            param.bits,
        );
    }
    match action.params.len() == own.params.len() {
        true => Ok(data),
        false => Err(Refusal::invalid(format!("action {} has {} parameters", own.name, own.params.len()))),
    }
}

/// Entry for the controller.
pub(crate) fn unpack(table: &Table, mut key: &[u8], stored: &Stored) -> TableEntry {
    let mut fields = Vec::with_capacity(table.fields.len());
    for field in &table.fields {
        let value = take(&mut key, field.bits);
        let mask = if table.is_exact { largest(field.bits) } else { take(&mut key, field.bits) };
        if field.kind != MatchType::Exact && mask == 0 {
            continue;
        }
        let value = bytes(value);
        let kind = match field.kind {
            MatchType::Ternary => FieldMatchType::Ternary(Ternary { value, mask: bytes(mask) }),
            MatchType::Lpm => FieldMatchType::Lpm(Lpm { value, prefix_len: mask.count_ones() as i32 }),
            MatchType::Optional => FieldMatchType::Optional(Optional { value }),
            _ => FieldMatchType::Exact(Exact { value }),
        };
        fields.push(FieldMatch { field_id: field.id, field_match_type: Some(kind) });
    }
    let priority = if table.is_exact { 0 } else { take(&mut key, 32) as i32 };
    let action = &table.actions[usize::from(stored.action)];
    let mut data = &stored.data[..];
    let params = action
        .params
        .iter()
        .map(|param| proto::action::Param { param_id: param.id, value: bytes(take(&mut data, param.bits)) });
    let action = proto::Action { action_id: action.id, params: params.collect() };
    #[allow(deprecated)]
    TableEntry {
        table_id: table.id,
        r#match: fields,
        action: Some(TableAction { r#type: Some(ActionType::Action(action)) }),
        priority,
        controller_metadata: stored.controller_metadata,
        metadata: stored.metadata.to_vec(),
        ..TableEntry::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_room_for_its_table_and_impossible_sizes_are_no_fault() {
        assert!(with_room(1_000_000).capacity() >= 1_000_000);
        assert!((ROOM_MAX..=2 * ROOM_MAX).contains(&with_room(usize::MAX).capacity()));
    }
}
