//! Number of table entries of each source.

use crate::base::index::Index;
use alloc::vec;
use alloc::vec::Vec;
use gatun_mem::{Footprint, OutOfMemory};

/// An address, with IPv4 addresses in the last 32 bits, and true if it is IPv6.
pub(super) type Address = (u128, bool);

/// Sources with entries in the table.
pub(super) struct Sources {
    index: Index,
    records: Vec<Source>,
    free: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Source {
    address: Address,
    hash: u64,
    /// Datagrams followed and packets held.
    units: u32,
}

impl Sources {
    /// Creates room for `n` sources. There are never more sources than datagrams.
    pub(super) fn new(n: u32) -> Result<Sources, OutOfMemory> {
        Ok(Sources {
            index: Index::with_capacity(n)?,
            records: vec![Source { address: (0, false), hash: 0, units: 0 }; n as usize],
            free: (0..n).rev().collect(),
        })
    }

    /// Memory use of [`Sources::new`] in bytes.
    pub(super) fn footprint(n: u32) -> Footprint {
        let beside = u64::from(n) * (size_of::<Source>() + size_of::<u32>()) as u64;
        Index::footprint(n) + Footprint::of_bytes(beside)
    }

    /// Adds one unit to a source. Returns its record, or `None` if it has `max` already or no record is free.
    pub(super) fn add(&mut self, address: Address, hash: u64, max: u32) -> Option<u32> {
        if let Some(id) = self.index.find(hash, |id| self.is(id, address)) {
            return self.add_to(id, max).then_some(id);
        }
        let id = *self.free.last().filter(|_| max > 0)?;
        self.index.insert(hash, id).ok()?;
        self.free.pop();
        *self.records.get_mut(id as usize)? = Source { address, hash, units: 1 };
        Some(id)
    }

    /// Adds one unit to a record. Returns `false` if it has `max` already.
    pub(super) fn add_to(&mut self, id: u32, max: u32) -> bool {
        match self.records.get_mut(id as usize) {
            Some(s) if s.units < max => {
                s.units += 1;
                true
            }
            _ => false,
        }
    }

    /// Removes units. A source without units is removed.
    pub(super) fn remove(&mut self, id: u32, units: u32) {
        let Some(s) = self.records.get_mut(id as usize) else { return };
        s.units = s.units.saturating_sub(units);
        if s.units == 0 && self.index.remove(s.hash, id) {
            self.free.push(id);
        }
    }

    /// Number of sources.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    fn is(&self, id: u32, address: Address) -> bool {
        self.records.get(id as usize).is_some_and(|s| s.address == address)
    }
}
