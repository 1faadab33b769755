//! Red-black tree (Bayer 1972, Guibas and Sedgewick 1978): a binary tree that is kept roughly balanced.
//!
//! The root is black, no red node has a red child, and all paths from the root to a leaf have the same number
//! of black nodes. So no path is more than twice as long as another.

use super::table::{Full, Key, Outside, Record, Table};
use super::tree::{self, NONE, Tree};
use gatun_mem::OutOfMemory;
use gatun_mem::hash::Hasher64;

/// Flag of a record whose node is red.
const RED: u16 = 1;

type Node = tree::Node<u32>;

pub(super) struct RedBlackTree(Tree<u32>);

impl RedBlackTree {
    fn node(&mut self, at: u32) -> &mut Node {
        &mut self.0.nodes[at as usize]
    }

    fn is_red(&self, at: u32) -> bool {
        self.0.nodes[at as usize].record.flags & RED != 0
    }

    fn paint(&mut self, at: u32, red: bool) {
        self.node(at).record.flags = if red { RED } else { 0 };
    }

    /// Index of a node among its parent's children.
    fn side(&self, at: u32) -> usize {
        let parent = self.0.nodes[at as usize].up;
        usize::from(self.0.nodes[parent as usize].child[1] == at)
    }

    /// Rotates: the child of `top` on the other side takes its place, and `top` becomes that node's child on
    /// `side`.
    fn rotate(&mut self, top: u32, side: usize) {
        let Node { child, up: parent, .. } = *self.node(top);
        let riser = child[1 - side];
        let between = self.node(riser).child[side];
        match parent {
            NONE => self.0.root = riser,
            _ => {
                let place = self.side(top);
                self.node(parent).child[place] = riser;
            }
        }
        self.node(top).child[1 - side] = between;
        if between != NONE {
            self.node(between).up = top;
        }
        self.node(riser).child[side] = top;
        self.node(riser).up = parent;
        self.node(top).up = riser;
    }

    /// Restores the rules above a new red node.
    fn balance(&mut self, mut at: u32) {
        loop {
            let parent = self.node(at).up;
            if parent == NONE || !self.is_red(parent) {
                break;
            }
            // A red node is not the root, so it has a grandparent.
            let grandparent = self.node(parent).up;
            let side = self.side(parent);
            let uncle = self.node(grandparent).child[1 - side];
            if self.is_red(uncle) {
                self.paint(parent, false);
                self.paint(uncle, false);
                self.paint(grandparent, true);
                at = grandparent;
                continue;
            }
            let upper = if self.side(at) == side {
                parent
            } else {
                self.rotate(parent, side);
                at
            };
            self.paint(upper, false);
            self.paint(grandparent, true);
            self.rotate(grandparent, 1 - side);
            break;
        }
        let root = self.0.root;
        self.paint(root, false);
    }
}

impl Table for RedBlackTree {
    fn new(n: u32, _: Hasher64) -> Result<Self, OutOfMemory> {
        Tree::new(n).map(RedBlackTree)
    }

    fn bytes(n: u32) -> u64 {
        Tree::<u32>::bytes(n)
    }

    fn create(&mut self, key: Key, to: Outside, now: u32) -> Result<bool, Full> {
        let record = Record::new(key, to, now);
        let Some(new) = self.0.create(record, |parent| parent)? else { return Ok(false) };
        self.paint(new, true);
        self.balance(new);
        Ok(true)
    }

    fn look_up(&mut self, key: Key, now: u32) -> Option<Outside> {
        self.0.look_up(key, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl RedBlackTree {
        /// Checks the rules below a node. Returns the number of black nodes on each path.
        fn black_height(&self, at: u32) -> usize {
            if at == NONE {
                return 1;
            }
            let node = &self.0.nodes[at as usize];
            for (side, &child) in node.child.iter().enumerate().filter(|&(_, &child)| child != NONE) {
                assert!(!(self.is_red(at) && self.is_red(child)), "a red node has a red child");
                assert_eq!(self.0.nodes[child as usize].up, at);
                assert_eq!(usize::from(self.0.nodes[child as usize].record.key() > node.record.key()), side);
            }
            let [left, right] = node.child.map(|child| self.black_height(child));
            assert_eq!(left, right, "paths with different numbers of black nodes");
            left + usize::from(!self.is_red(at))
        }
    }

    #[test]
    fn the_rules_hold_after_every_insertion_in_any_order() {
        let orders: [fn(u32) -> u32; 4] = [|i| i, |i| 999 - i, |i| i * 619 % 1000, |i| (i % 2) * 500 + i / 2];
        for order in orders {
            let mut tree = RedBlackTree::new(1000, Hasher64::new([1; 4])).unwrap();
            for i in 0..1000 {
                let key = Key::new(1 + order(i), 7, 17);
                assert_eq!(tree.create(key, Outside { address: 1, port: 1 }, 0), Ok(true));
                if i % 50 == 0 || i > 990 {
                    assert!(!tree.is_red(tree.0.root) && !tree.is_red(NONE));
                    assert!(tree.black_height(tree.0.root) <= 11);
                }
            }
        }
    }
}
