//! Layout of keys and of action data, as the pipeline's look-up reads them.

use crate::error::SwitchError;
use crate::sys::{self, Counts, Field, Pipeline, RawAction, RawArgument, RawArray, RawTable};
use std::ffi::c_int;

/// Action of the program.
#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) arguments: Vec<Argument>,
}

/// Argument of an action.
#[derive(Clone, Debug)]
pub(crate) struct Argument {
    pub(crate) name: String,
    bytes: usize,
    is_network_order: bool,
}

/// Layout of a table.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) size: u32,
    pub(crate) is_exact: bool,
    pub(crate) actions: Vec<Action>,
    fields: Vec<Field>,
    /// Offset of the key in its structure, bytes.
    pub(crate) key_offset: usize,
    pub(crate) key_len: usize,
    /// Length of the longest action's data, bytes.
    pub(crate) data_len: usize,
}

/// Description of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableInfo {
    /// Name.
    pub name: String,
    /// Entries that it can hold.
    pub size: u32,
    /// The key has no masks.
    pub is_exact: bool,
    /// Bits of each field of the key.
    pub fields: Vec<u32>,
    /// Name of each action, with the names and bits of its arguments.
    pub actions: Vec<(String, Vec<(String, u32)>)>,
}

/// Description of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Tables.
    pub tables: Vec<TableInfo>,
    /// Name and size of each register array, which a counter is, too.
    pub arrays: Vec<(String, u32)>,
    /// Name and size of each array of meters.
    pub meters: Vec<(String, u32)>,
}

/// Objects of a program.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) tables: Vec<Layout>,
    /// Name and size of each register array.
    pub(crate) arrays: Vec<(String, u32)>,
    /// Name and size of each array of meters.
    pub(crate) meters: Vec<(String, u32)>,
}

/// Reads the objects of a pipeline. The host's own code reads all arguments in the processor's order.
///
/// # Safety
/// The pipeline is alive.
pub(crate) unsafe fn read(p: *mut Pipeline, has_own_code: bool) -> Result<Objects, SwitchError> {
    let mut counts = Counts::default();
    // SAFETY: guaranteed by the caller; as everywhere here, the result has its type's layout.
    check("pipeline", "reading its size", unsafe { sys::counts(p, &mut counts) })?;
    // SAFETY: guaranteed by the caller.
    let actions = (0..counts.actions).map(|number| unsafe { action(p, number, has_own_code) });
    let actions = actions.collect::<Result<Vec<_>, _>>()?;
    // SAFETY: guaranteed by the caller.
    let tables = (0..counts.tables).map(|number| unsafe { table(p, number, &actions) });
    Ok(Objects {
        tables: tables.collect::<Result<_, _>>()?,
        // SAFETY: guaranteed by the caller.
        arrays: arrays(counts.arrays, |number, raw| unsafe { sys::array(p, number, raw) })?,
        // SAFETY: guaranteed by the caller.
        meters: arrays(counts.meters, |number, raw| unsafe { sys::meter(p, number, raw) })?,
    })
}

/// Reads the names and sizes of arrays.
fn arrays(count: u32, read: impl Fn(u32, &mut RawArray) -> c_int) -> Result<Vec<(String, u32)>, SwitchError> {
    let one = |number| {
        let mut raw = RawArray::default();
        check("array", "reading it", read(number, &mut raw))?;
        Ok((raw.text(), raw.size))
    };
    (0..count).map(one).collect()
}

/// # Safety
/// The pipeline is alive.
unsafe fn action(p: *mut Pipeline, number: u32, has_own_code: bool) -> Result<Action, SwitchError> {
    let mut raw = RawAction::default();
    // SAFETY: guaranteed by the caller.
    check("action", "reading it", unsafe { sys::action(p, number, &mut raw) })?;
    let argument = |at| {
        let mut raw = RawArgument::default();
        // SAFETY: guaranteed by the caller.
        check("action", "reading an argument", unsafe { sys::argument(p, number, at, &mut raw) })?;
        let is_network_order = raw.is_network_order != 0 && !has_own_code;
        Ok(Argument { name: raw.text(), bytes: raw.bits as usize / 8, is_network_order })
    };
    let arguments = (0..raw.arguments).map(argument).collect::<Result<_, SwitchError>>()?;
    Ok(Action { number, name: raw.text(), arguments })
}

/// # Safety
/// The pipeline is alive.
unsafe fn table(p: *mut Pipeline, number: u32, all: &[Action]) -> Result<Layout, SwitchError> {
    let mut raw = RawTable::default();
    // SAFETY: guaranteed by the caller.
    check("table", "reading it", unsafe { sys::table(p, number, &mut raw) })?;
    let name = raw.text();
    let mut fields = vec![Field::default(); raw.fields as usize];
    for (at, field) in fields.iter_mut().enumerate() {
        // SAFETY: guaranteed by the caller.
        check(&name, "reading a key", unsafe { sys::field(p, number, at as u32, field) })?;
    }
    let mut actions = Vec::new();
    for at in 0..raw.actions {
        let mut action = 0;
        // SAFETY: guaranteed by the caller.
        check(&name, "reading its actions", unsafe { sys::table_action(p, number, at, &mut action) })?;
        actions.extend(all.iter().find(|a| a.number == action).cloned());
    }
    let first = fields.iter().map(|f| f.offset).min().unwrap_or(0);
    let end = fields.iter().map(|f| f.offset + f.bits).max().unwrap_or(0);
    let data_len = |action: &Action| action.arguments.iter().map(|a| a.bytes).sum();
    Ok(Layout {
        number,
        name,
        size: raw.size,
        is_exact: fields.iter().all(|f| f.is_exact != 0),
        data_len: actions.iter().map(data_len).max().unwrap_or(0),
        actions,
        fields,
        key_offset: first as usize / 8,
        key_len: (end - first) as usize / 8,
    })
}

pub(crate) fn check(name: &str, step: &'static str, status: i32) -> Result<(), SwitchError> {
    if status == 0 { Ok(()) } else { Err(SwitchError::step(name, step, status)) }
}

impl Layout {
    /// Description for a controller.
    pub(crate) fn describe(&self) -> TableInfo {
        let arguments = |a: &Argument| (a.name.clone(), 8 * a.bytes as u32);
        let action = |a: &Action| (a.name.clone(), a.arguments.iter().map(arguments).collect());
        TableInfo {
            name: self.name.clone(),
            size: self.size,
            is_exact: self.is_exact,
            fields: self.fields.iter().map(|field| field.bits).collect(),
            actions: self.actions.iter().map(action).collect(),
        }
    }

    /// Number of the key's fields.
    pub(crate) fn width(&self) -> usize {
        self.fields.len()
    }

    /// Largest value of each field of the key.
    pub(crate) fn largest(&self) -> impl Iterator<Item = u64> {
        self.fields.iter().map(|field| u64::MAX.checked_shr(64 - field.bits).unwrap_or(0))
    }

    /// Bytes of a key. Bytes between the fields are zero.
    pub(crate) fn key(&self, values: &[u64]) -> Result<Vec<u8>, SwitchError> {
        if values.len() != self.fields.len() {
            return Err(self.fault("an entry needs a value for each field of the key"));
        }
        let mut key = vec![0; self.key_len];
        for (field, value) in self.fields.iter().zip(values) {
            let at = field.offset as usize / 8 - self.key_offset;
            let Some(place) = key.get_mut(at..at + field.bits as usize / 8) else {
                return Err(self.fault("the key has an impossible layout"));
            };
            self.put(place, *value, field.is_header != 0)?;
        }
        Ok(key)
    }

    /// Bits of the key's structure that belong to fields.
    pub(crate) fn key_mask(&self) -> Vec<u8> {
        let mut mask = vec![0; self.key_len];
        for field in &self.fields {
            let at = field.offset as usize / 8 - self.key_offset;
            mask[at..at + field.bits as usize / 8].fill(0xff);
        }
        mask
    }

    /// Place of an action among the table's.
    pub(crate) fn place(&self, action: &str) -> Result<usize, SwitchError> {
        let found = self.actions.iter().position(|a| a.name == action);
        found.ok_or_else(|| SwitchError::Missing { kind: "action of the table", name: action.to_owned() })
    }

    /// Number of the action at this place and the bytes of its data, filled up to the length of the longest.
    pub(crate) fn data(&self, place: usize, values: &[u64]) -> Result<(u64, Vec<u8>), SwitchError> {
        let action = self.actions.get(place).ok_or_else(|| self.fault("it has no such action"))?;
        if values.len() != action.arguments.len() {
            return Err(self.fault("an entry needs a value for each argument of its action"));
        }
        let mut data = vec![0; self.data_len];
        let mut at = 0;
        for (argument, value) in action.arguments.iter().zip(values) {
            let place = data.get_mut(at..at + argument.bytes).unwrap_or_default();
            self.put(place, *value, argument.is_network_order)?;
            at += argument.bytes;
        }
        Ok((action.number.into(), data))
    }

    fn put(&self, place: &mut [u8], value: u64, is_network_order: bool) -> Result<(), SwitchError> {
        let len = place.len();
        if len > 8 || len < 8 && value >> (8 * len) != 0 {
            return Err(self.fault("a value does not fit its field"));
        }
        match is_network_order {
            true => place.copy_from_slice(&value.to_be_bytes()[8 - len..]),
            false => place.copy_from_slice(&value.to_le_bytes()[..len]),
        }
        Ok(())
    }

    pub(crate) fn fault(&self, fault: &'static str) -> SwitchError {
        SwitchError::Entry { table: self.name.clone(), fault }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        let field = |offset, bits, is_header| Field { is_exact: 1, is_header, bits, offset };
        let argument = |bytes, is_network_order| Argument { name: "x".into(), bytes, is_network_order };
        let actions = vec![
            Action { number: 3, name: "short".into(), arguments: vec![argument(2, true)] },
            Action { number: 4, name: "long".into(), arguments: vec![argument(2, false), argument(4, true)] },
        ];
        Layout {
            number: 0,
            name: "t".into(),
            size: 4,
            is_exact: true,
            actions,
            fields: vec![field(64, 32, 1), field(48, 16, 0)],
            key_offset: 6,
            key_len: 6,
            data_len: 6,
        }
    }

    #[test]
    fn headers_are_in_network_order_and_metadata_in_the_hosts() {
        assert_eq!(layout().key(&[0x0102_0304, 0x0506]).unwrap(), [6, 5, 1, 2, 3, 4]);
        assert_eq!(layout().data(1, &[0x0102, 0x0304_0506]).unwrap(), (4, vec![2, 1, 3, 4, 5, 6]));
    }

    #[test]
    fn data_are_as_long_as_those_of_the_longest_action() {
        assert_eq!(layout().data(0, &[0x0102]).unwrap(), (3, vec![1, 2, 0, 0, 0, 0]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (key, fault) in [(&[1][..], "each field"), (&[1, 1 << 16], "does not fit")] {
            assert!(layout().key(key).unwrap_err().to_string().contains(fault));
        }
        assert!(layout().place("none").unwrap_err().to_string().contains("no action of the table `none`"));
        assert!(layout().data(0, &[]).unwrap_err().to_string().contains("each argument"));
    }
}
