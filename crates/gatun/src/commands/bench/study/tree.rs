//! What binary trees have in common: the way down.

use super::table::{Key, Outside, Record};

/// No node. Nodes count from 1.
pub(super) const NONE: u32 = 0;

/// A node of a tree.
pub(super) trait Node {
    fn record(&mut self) -> &mut Record;

    fn key(&self) -> Key;

    /// The nodes of smaller and of larger keys.
    fn child(&self) -> [u32; 2];
}

/// Where a key is, or would be.
pub(super) enum Place {
    /// There it is.
    Here,
    /// As this child of that node; of [`NONE`], as the root.
    Below(u32, usize),
}

/// The place of a key.
#[inline]
pub(super) fn place_of<N: Node>(nodes: &[N], root: u32, key: Key) -> Place {
    let (mut parent, mut side, mut at) = (NONE, 0, root);
    while at != NONE {
        let node = &nodes[at as usize];
        let here = node.key();
        if here == key {
            return Place::Here;
        }
        side = usize::from(key > here);
        (parent, at) = (at, node.child()[side]);
    }
    Place::Below(parent, side)
}

/// What a key is translated to; notes the time.
#[inline]
pub(super) fn look_up<N: Node>(nodes: &mut [N], root: u32, key: Key, now: u32) -> Option<Outside> {
    let mut at = root;
    while at != NONE {
        let node = &mut nodes[at as usize];
        let here = node.key();
        if here == key {
            return Some(node.record().seen(now));
        }
        at = node.child()[usize::from(key > here)];
    }
    None
}
