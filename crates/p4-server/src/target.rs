//! Interface of a switch to the server: a program, entries, counters, meters, frames.

use std::fmt;

/// Objects of a program, as the switch knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Tables. A [`Change`] names a table by its place here.
    pub tables: Vec<ProgramTable>,
    /// Name and size of each register array. A counter is one, or two: `NAME_packets` and `NAME_bytes`.
    pub arrays: Vec<(String, u32)>,
    /// Name and size of each array of meters.
    pub meters: Vec<(String, u32)>,
}

/// Table of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramTable {
    /// Name.
    pub name: String,
    /// Entries that it can hold.
    pub size: u32,
    /// The key has no masks.
    pub is_exact: bool,
    /// Bits of each field of the key.
    pub fields: Vec<u32>,
    /// Actions.
    pub actions: Vec<ProgramAction>,
}

/// Action of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramAction {
    /// Name.
    pub name: String,
    /// Name and bits of each argument.
    pub arguments: Vec<(String, u32)>,
}

/// Action with the values of its arguments, in the program's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Place of the action in [`ProgramTable::actions`].
    pub action: usize,
    /// Values of the arguments.
    pub data: Vec<u64>,
}

/// Entry of a table with masks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaskedEntry {
    /// Value and mask of each field.
    pub key: Vec<(u64, u64)>,
    /// The highest one wins.
    pub priority: u32,
    /// Action.
    pub call: Call,
}

/// Rates of a meter: units for each second, and units at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Committed rate.
    pub cir: u64,
    /// Committed burst.
    pub cburst: u64,
    /// Peak rate.
    pub pir: u64,
    /// Peak burst.
    pub pburst: u64,
}

/// Change of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds an entry to an exact table.
    Insert {
        /// Place of the table in [`Program::tables`].
        table: usize,
        /// Value of each field.
        key: Vec<u64>,
        /// Action.
        call: Call,
    },
    /// Replaces the action of an entry in an exact table.
    Modify {
        /// As above.
        table: usize,
        /// Value of each field.
        key: Vec<u64>,
        /// Place of the present action.
        before: usize,
        /// Action.
        call: Call,
    },
    /// Removes an entry from an exact table.
    Remove {
        /// As above.
        table: usize,
        /// Value of each field.
        key: Vec<u64>,
    },
    /// Replaces all entries of a table with masks.
    Fill {
        /// As above.
        table: usize,
        /// Entries.
        entries: Vec<MaskedEntry>,
    },
}

/// Reason why a switch cannot do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetError {
    /// The table, or a queue of the switch, has no room.
    Full(String),
    /// The program has no such object, or the object does not accept the value.
    Invalid(String),
    /// The switch has a fault.
    Fault(String),
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetError::Full(text) | TargetError::Invalid(text) | TargetError::Fault(text) => {
                f.write_str(text)
            }
        }
    }
}

impl std::error::Error for TargetError {}

/// A switch. Its calls may take milliseconds, and a new program seconds.
pub trait Target: Send + 'static {
    /// Compiles a program and returns its objects. The running program stays. An empty program is the running
    /// one.
    ///
    /// # Errors
    /// The program is wrong.
    fn check(&mut self, program: &[u8]) -> Result<Program, TargetError>;

    /// Replaces the running program by the last one that was checked, or clears the running one. Afterwards
    /// all tables are empty and all counters zero.
    ///
    /// # Errors
    /// The switch lacks memory. The running program stays.
    fn load(&mut self) -> Result<(), TargetError>;

    /// Applies changes, each of another entry, in any order. When it returns, no packet uses a removed entry.
    fn change(&mut self, changes: Vec<Change>) -> Vec<Result<(), TargetError>>;

    /// Values of cells of a register array, which a counter is, too.
    ///
    /// # Errors
    /// The program has no such array, or the array no such cell.
    fn cells(&mut self, array: &str, indexes: &[u32]) -> Result<Vec<u64>, TargetError>;

    /// Sets a cell of a register array.
    ///
    /// # Errors
    /// As of [`Target::cells`].
    fn set_cell(&mut self, array: &str, index: u32, value: u64) -> Result<(), TargetError>;

    /// Sets a cell of an array of meters. `None`: no limit.
    ///
    /// # Errors
    /// The program has no such meter, or the rates are impossible.
    fn set_meter(&mut self, meter: &str, index: u32, rates: Option<Rates>) -> Result<(), TargetError>;

    /// Gives a frame of the controller to the program.
    ///
    /// # Errors
    /// The queue is full, or the frame too long.
    fn send(&mut self, frame: Vec<u8>) -> Result<(), TargetError>;
}
