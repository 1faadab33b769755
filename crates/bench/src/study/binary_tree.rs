//! Binary tree without balancing: its depth depends on the order of insertion.

use super::table::{Full, Key, Outside, Record, Table};
use super::tree::Tree;
use gatun_mem::OutOfMemory;
use gatun_mem::hash::Hasher64;

pub(super) struct BinaryTree(Tree<()>);

impl Table for BinaryTree {
    fn new(n: u32, _: Hasher64) -> Result<Self, OutOfMemory> {
        Tree::new(n).map(BinaryTree)
    }

    fn bytes(n: u32) -> u64 {
        Tree::<()>::bytes(n)
    }

    fn create(&mut self, key: Key, to: Outside, now: u32) -> Result<bool, Full> {
        Ok(self.0.create(Record::new(key, to, now), |_| ())?.is_some())
    }

    fn look_up(&mut self, key: Key, now: u32) -> Option<Outside> {
        self.0.look_up(key, now)
    }
}
