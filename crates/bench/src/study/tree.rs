//! Common parts of binary trees: nodes and search.

use super::table::{Full, Key, Outside, Record, touched};
use gatun_mem::{HugeVec, OutOfMemory};
use zerocopy::FromZeros;

/// No node. Nodes count from 1.
pub(super) const NONE: u32 = 0;

/// Node of half a cache line.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(32))]
pub(super) struct Node<Up> {
    pub(super) record: Record,
    /// Children with smaller and larger keys.
    pub(super) child: [u32; 2],
    /// Parent, if the tree needs it.
    pub(super) up: Up,
}

const _: () = assert!(size_of::<Node<()>>() == 32 && size_of::<Node<u32>>() == 32);

/// Position of a key, or of its insertion.
enum Place {
    /// The key is in the tree.
    Here,
    /// The key belongs below this node, as this child; [`NONE`] means as the root.
    Below(u32, usize),
}

/// Nodes of a tree of fixed size.
pub(super) struct Tree<Up> {
    pub(super) nodes: HugeVec<Node<Up>>,
    pub(super) root: u32,
    used: u32,
}

impl<Up: FromZeros + Copy> Tree<Up> {
    /// Tree for `n` keys.
    pub(super) fn new(n: u32) -> Result<Self, OutOfMemory> {
        Ok(Tree { nodes: touched(n as usize + 1)?, root: NONE, used: 0 })
    }

    /// Bytes of a tree for `n` keys.
    pub(super) fn bytes(n: u32) -> u64 {
        u64::from(n) * size_of::<Node<Up>>() as u64
    }

    /// Searches a key.
    #[inline]
    fn place_of(&self, key: Key) -> Place {
        let (mut parent, mut side, mut at) = (NONE, 0, self.root);
        while at != NONE {
            let node = &self.nodes[at as usize];
            let here = node.record.key();
            if here == key {
                return Place::Here;
            }
            side = usize::from(key > here);
            (parent, at) = (at, node.child[side]);
        }
        Place::Below(parent, side)
    }

    /// Adds a key as a leaf. `up` makes the field [`Node::up`] from the number of the parent. Returns the
    /// leaf's number, or `None` if the key exists.
    #[inline]
    pub(super) fn create(&mut self, record: Record, up: impl FnOnce(u32) -> Up) -> Result<Option<u32>, Full> {
        let Place::Below(parent, side) = self.place_of(record.key()) else { return Ok(None) };
        let new = self.used + 1;
        let node = self.nodes.get_mut(new as usize).ok_or(Full)?;
        *node = Node { record, child: [NONE; 2], up: up(parent) };
        self.used = new;
        match parent {
            NONE => self.root = new,
            _ => self.nodes[parent as usize].child[side] = new,
        }
        Ok(Some(new))
    }

    /// Finds the translation of a key and notes the time.
    #[inline]
    pub(super) fn look_up(&mut self, key: Key, now: u32) -> Option<Outside> {
        let mut at = self.root;
        while at != NONE {
            let node = &mut self.nodes[at as usize];
            let here = node.record.key();
            if here == key {
                return Some(node.record.seen(now));
            }
            at = node.child[usize::from(key > here)];
        }
        None
    }
}
