//! Messages between the account of a switch and the connection to it.

use crate::flow::{Direction, Key};
use gatun_nat::counters::Count;
use gatun_offload::OffloadedFlow;

/// Entry for a direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEntry {
    /// Number of the flow, and of its counters.
    pub slot: u32,
    /// Direction.
    pub direction: Direction,
    /// The flow.
    pub flow: OffloadedFlow,
    /// Generation of a pending entry. 0: it translates every packet.
    pub pending: u8,
}

/// A change of the switch's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Insert an entry.
    Insert(FlowEntry),
    /// Replace an entry by its present form.
    Modify(FlowEntry),
    /// Delete an entry.
    Delete(Key),
}

/// Request to a switch. At most one of each kind is in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Change the tables in this order. Answered by [`Event::Written`].
    Write(Vec<Write>),
    /// Read the counters of flows, by number. Answered by [`Event::Counted`].
    Count(Vec<u32>),
    /// Close the connection, and open another one.
    Reconnect(String),
}

/// Reason why a switch has not made a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// There is an entry with this key.
    Exists,
    /// There is no entry with this key.
    Missing,
    /// The table is full.
    Full,
    /// Any other reason, which concerns this change only.
    Other(String),
}

/// Entry that a switch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its key.
    pub key: Key,
    /// The entry, if Gatun has written it.
    pub entry: Option<FlowEntry>,
}

/// Counters of a flow in a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Number of the flow.
    pub slot: u32,
    /// Direction.
    pub direction: Direction,
    /// Packets, and bytes from the IP header on, since the switch has its program.
    pub count: Count,
}

/// Packets that the program itself counts, by reason, since the switch has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramCounts {
    /// Packets that the controller got.
    pub to_controller: Vec<u64>,
    /// Packets for the controller that its limit dropped.
    pub over_limit: Vec<u64>,
    /// Packets dropped for another reason.
    pub dropped: Vec<u64>,
}

/// Message from a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection is open, Gatun is the primary controller, and the switch has the program.
    /// [`Event::Found`] follows with all entries that it has, and then [`Event::AllFound`].
    Connected {
        /// Number of the connection.
        connection: u64,
        /// True if the switch got the program now, so that it has no entries, and counters are zero.
        is_empty: bool,
        /// Number of flows that its tables have room for.
        capacity: u32,
    },
    /// Entries.
    Found(Vec<Found>),
    /// All entries have been read.
    AllFound,
    /// Results of a request, in its order.
    Written(Vec<Result<(), WriteError>>),
    /// Counters. `is_last` ends the answer to a request.
    Counted {
        /// The counters.
        counters: Vec<Counted>,
        /// True if no further part of the answer follows.
        is_last: bool,
    },
    /// Packets that the program counts, every second.
    ProgramCounted(ProgramCounts),
    /// A connection is open, and another controller is the primary one, for this reason.
    Standby(String),
    /// The connection has ended. Requests without an answer may have been executed.
    Down(String),
}

/// Connection to a switch. No method blocks.
pub trait Link {
    /// Sends a request on a connection. It is lost if that connection is down, which an [`Event::Down`]
    /// tells.
    fn send(&mut self, connection: u64, request: Request);

    /// Returns the next message.
    fn receive(&mut self) -> Option<Event>;
}
