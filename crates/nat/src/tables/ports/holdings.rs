//! Ports and blocks that subscribers have in a pool, and requests for more.

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
    /// Ports given to bindings, including static ones. For single ports, held ones are included.
    pub used: u64,
    /// Total number.
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
    /// Total number, including subscribers' own blocks by formula.
    pub total: u64,
    /// Given to subscribers.
    pub owned: u64,
    /// Part of `owned`: blocks without a port in use.
    pub lingering: u64,
    /// Blocks returned and held down.
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

/// Consecutive ports that a subscriber got or returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortBlock {
    /// The number of the public address.
    pub address_ix: u32,
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
    /// Transports of the block.
    pub transports: [bool; 3],
    /// Time at which it was given or returned.
    pub at: Instant,
}

/// Ports and blocks of a subscriber in a pool. The subscriber's record contains it; the pool changes it.
#[derive(Clone, Copy, Debug, zerocopy::FromZeros)]
#[repr(C)]
pub struct Holdings {
    /// Address that the subscriber is paired with.
    paired: u32,
    /// First block and number of blocks, by group.
    pub(crate) blocks: [u32; 3],
    pub(crate) counts: [u16; 3],
    _spare: u16,
}

impl Holdings {
    /// No address and no blocks.
    pub const NONE: Holdings =
        Holdings { paired: NO_ADDRESS, blocks: [NO_BLOCK; 3], counts: [0; 3], _spare: 0 };

    /// Returns the number of the paired outside address (RFC 4787 REQ-2), if there is one.
    #[inline]
    pub fn paired(&self) -> Option<u32> {
        (self.paired != NO_ADDRESS).then_some(self.paired)
    }

    /// Unpairs the subscriber from its outside address.
    pub(crate) fn unpair(&mut self) {
        self.paired = NO_ADDRESS;
    }

    /// Pairs the subscriber with an outside address.
    pub fn pair(&mut self, address_ix: u32) {
        self.paired = address_ix;
    }

    /// Returns the first block of a group; the others follow in a list.
    #[inline]
    pub(crate) fn first_block(&self, group: usize) -> u32 {
        self.blocks.get(group).copied().unwrap_or(NO_BLOCK)
    }

    pub(crate) fn set_first_block(&mut self, group: usize, block: u32) {
        if let Some(first) = self.blocks.get_mut(group) {
            *first = block;
        }
    }

    /// Returns the number of blocks of a group.
    pub(crate) fn block_count(&self, group: usize) -> u16 {
        self.counts.get(group).copied().unwrap_or(u16::MAX)
    }

    pub(crate) fn set_block_count(&mut self, group: usize, count: u16) {
        if let Some(n) = self.counts.get_mut(group) {
            *n = count;
        }
    }

    /// Numbers of port blocks by transport. If all transports share them, only the first number is used.
    pub fn blocks(&self) -> [u16; 3] {
        self.counts
    }
}

/// Request for a port.
#[derive(Clone, Copy, Debug)]
pub struct PortRequest {
    /// Transport of the port.
    pub transport: Transport,
    /// Inside port of the binding.
    pub inside_port: u16,
    /// Hash of the subscriber, which selects the address of a new one.
    pub spread: u64,
    /// Number of the subscriber, which owns new blocks.
    pub subscriber: u32,
    /// Prefix of the subscriber, which the formula uses.
    pub prefix: u128,
    /// Shard of the subscriber, whose addresses it may have; 0 without a cluster.
    pub shard: u8,
    /// Random numbers that choose the ports to try first.
    pub draws: [u32; 2],
}

/// Source of a new port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSource {
    /// Any free port of the address.
    Address,
    /// The subscriber's own block by formula.
    OwnBlock,
    /// A block that the subscriber has been given.
    Block,
    /// A new block for the subscriber, chosen at random among those of the address.
    NewBlock,
    /// The port to which a held SYN from the remote host was sent.
    HeldSyn,
}
