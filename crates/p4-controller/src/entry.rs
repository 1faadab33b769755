//! Entries of tables other than those of flows, by name.

/// Name of an argument that counts from the first counter of stateless instances.
pub(crate) const COUNTER: &str = "counter_index";
/// Number of counters of stateless instances: two for each.
pub(crate) const COUNTERS: u64 = 512;

/// Field of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyField {
    /// The field is equal.
    Exact(u64),
    /// The bits of the mask are equal.
    Ternary {
        /// Bits.
        value: u64,
        /// Mask.
        mask: u64,
    },
}

/// Entry of a table, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticEntry {
    /// Name of the table.
    pub table: &'static str,
    /// Fields of the key.
    pub key: Vec<(&'static str, KeyField)>,
    /// Priority among entries with masks, the highest first.
    pub priority: i32,
    /// Name of the action.
    pub action: &'static str,
    /// Arguments of the action. A counter of a table of stateless instances counts from their first one.
    pub arguments: Vec<(&'static str, u64)>,
}

impl StaticEntry {
    /// Table, key and priority: no other entry has the same ones.
    pub(crate) fn place(&self) -> (&'static str, &[(&'static str, KeyField)], i32) {
        (self.table, &self.key, self.priority)
    }
}
