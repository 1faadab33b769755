//! Ports and blocks that subscribers have of a pool, and requests for more.

use crate::base::plan::Transport;
use crate::base::time::Instant;
use core::ops::AddAssign;

/// No block.
pub(crate) const NO_BLOCK: u32 = u32::MAX;
/// No address.
const NO_ADDRESS: u32 = u32::MAX;

/// Ports of an address, or of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Given to bindings, static ones too; and those held down, where ports are given one by one.
    pub used: u64,
    /// All there are.
    pub total: u64,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.used += other.used;
        self.total += other.total;
    }
}

/// Port blocks of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockUsage {
    /// All there are, subscribers' own by formula too.
    pub total: u64,
    /// Given to subscribers.
    pub owned: u64,
    /// Of those, without a port in use.
    pub lingering: u64,
    /// Given back, and not to be given to another subscriber yet.
    pub held: u64,
}

impl AddAssign for BlockUsage {
    fn add_assign(&mut self, other: BlockUsage) {
        self.total += other.total;
        self.owned += other.owned;
        self.lingering += other.lingering;
        self.held += other.held;
    }
}

/// Some ports in a row that a subscriber was given, or has no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortBlock {
    /// The number of the public address.
    pub address_ix: u32,
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
    /// For which transports.
    pub transports: [bool; 3],
    /// When it was given or given back.
    pub at: Instant,
}

/// What a subscriber has of a pool. Kept in its record, changed by the pool.
#[derive(Clone, Copy, Debug, zerocopy::FromZeros)]
#[repr(C)]
pub struct Holdings {
    /// The address that it is paired with.
    paired: u32,
    /// By group: its first block, and how many there are.
    pub(crate) blocks: [u32; 3],
    pub(crate) counts: [u16; 3],
    _spare: u16,
}

impl Holdings {
    /// Nothing.
    pub const NONE: Holdings =
        Holdings { paired: NO_ADDRESS, blocks: [NO_BLOCK; 3], counts: [0; 3], _spare: 0 };

    /// The number of the outside address that it is paired with (RFC 4787 REQ-2), if it is already.
    #[inline]
    pub fn paired(&self) -> Option<u32> {
        (self.paired != NO_ADDRESS).then_some(self.paired)
    }

    /// Parts it from the outside address that it is paired with.
    pub(crate) fn unpair(&mut self) {
        self.paired = NO_ADDRESS;
    }

    /// Pairs it with an outside address.
    pub fn pair(&mut self, address_ix: u32) {
        self.paired = address_ix;
    }

    /// Its first block of a group; the others follow in a list.
    #[inline]
    pub(crate) fn first_block(&self, group: usize) -> u32 {
        self.blocks.get(group).copied().unwrap_or(NO_BLOCK)
    }

    pub(crate) fn set_first_block(&mut self, group: usize, block: u32) {
        if let Some(first) = self.blocks.get_mut(group) {
            *first = block;
        }
    }

    /// How many blocks of a group it has.
    pub(crate) fn block_count(&self, group: usize) -> u16 {
        self.counts.get(group).copied().unwrap_or(u16::MAX)
    }

    pub(crate) fn set_block_count(&mut self, group: usize, count: u16) {
        if let Some(n) = self.counts.get_mut(group) {
            *n = count;
        }
    }

    /// Port blocks that it has: by transport, or the first number for all of them together.
    pub fn blocks(&self) -> [u16; 3] {
        self.counts
    }
}

/// A port that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct PortRequest {
    /// Of which transport.
    pub transport: Transport,
    /// What the binding's inside port is.
    pub inside_port: u16,
    /// A hash of the subscriber, from which a new one's address comes.
    pub spread: u64,
    /// The subscriber's number: the owner of new blocks.
    pub subscriber: u32,
    /// The subscriber's prefix, by which a formula knows it.
    pub prefix: u128,
    /// Random numbers: which ports are tried first.
    pub draws: [u32; 2],
}

/// Where a new port would come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSource {
    /// Any free port of the address.
    Address,
    /// The subscriber's own block, which a formula gives it.
    OwnBlock,
    /// A block that the subscriber has been given.
    Block,
    /// A block that it would be given: which one of the address, chance decides.
    NewBlock,
    /// The port that a SYN from the remote host, which waits, was sent to.
    HeldSyn,
}
