//! What binary trees have in common: their nodes, and the way down.

use super::table::{Key, Outside, Record};
use zerocopy::FromZeros;

/// No node. Nodes count from 1.
pub(super) const NONE: u32 = 0;

/// Half a cache line.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(32))]
pub(super) struct Node<Up> {
    pub(super) record: Record,
    /// Smaller keys, larger keys.
    pub(super) child: [u32; 2],
    /// The parent, where a tree has to know it.
    pub(super) up: Up,
}

const _: () = assert!(size_of::<Node<()>>() == 32 && size_of::<Node<u32>>() == 32);

/// Where a key is, or would be.
pub(super) enum Place {
    /// There it is.
    Here,
    /// As this child of that node; of [`NONE`], as the root.
    Below(u32, usize),
}

/// The place of a key.
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

/// What a key is translated to; notes the time.
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
