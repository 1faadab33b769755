//! Common parts of binary trees: nodes and search.

use super::table::{Key, Outside, Record};
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
pub(super) enum Place {
    /// The key is in the tree.
    Here,
    /// The key belongs below this node, as this child; [`NONE`] means as the root.
    Below(u32, usize),
}

/// Searches a key.
#[inline]
pub(super) fn place_of<Up>(nodes: &[Node<Up>], root: u32, key: Key) -> Place {
    let (mut parent, mut side, mut at) = (NONE, 0, root);
    while at != NONE {
        let node = &nodes[at as usize];
        let here = node.record.key();
        if here == key {
            return Place::Here;
        }
        side = usize::from(key > here);
        (parent, at) = (at, node.child[side]);
    }
    Place::Below(parent, side)
}

/// Finds the translation of a key and notes the time.
#[inline]
pub(super) fn look_up<Up>(nodes: &mut [Node<Up>], root: u32, key: Key, now: u32) -> Option<Outside> {
    let mut at = root;
    while at != NONE {
        let node = &mut nodes[at as usize];
        let here = node.record.key();
        if here == key {
            return Some(node.record.seen(now));
        }
        at = node.child[usize::from(key > here)];
    }
    None
}
