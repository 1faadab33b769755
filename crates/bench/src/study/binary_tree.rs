//! Binary tree without balancing: its depth depends on the order of insertion.

use super::table::{Full, Key, Outside, Record, Table, touched};
use super::tree::{self, NONE, Place};
use gatun_mem::hash::Hasher64;
use gatun_mem::{HugeVec, OutOfMemory};

type Node = tree::Node<()>;

pub(super) struct BinaryTree {
    nodes: HugeVec<Node>,
    root: u32,
    used: u32,
}

impl Table for BinaryTree {
    fn new(n: u32, _: Hasher64) -> Result<Self, OutOfMemory> {
        Ok(BinaryTree { nodes: touched(n as usize + 1)?, root: NONE, used: 0 })
    }

    fn bytes(n: u32) -> u64 {
        u64::from(n) * size_of::<Node>() as u64
    }

    fn create(&mut self, key: Key, to: Outside, now: u32) -> Result<bool, Full> {
        let Place::Below(parent, side) = tree::place_of(&self.nodes, self.root, key) else {
            return Ok(false);
        };
        let new = self.used + 1;
        let node = self.nodes.get_mut(new as usize).ok_or(Full)?;
        *node = Node { record: Record::new(key, to, now), child: [NONE; 2], up: () };
        self.used = new;
        match parent {
            NONE => self.root = new,
            _ => self.nodes[parent as usize].child[side] = new,
        }
        Ok(true)
    }

    fn look_up(&mut self, key: Key, now: u32) -> Option<Outside> {
        tree::look_up(&mut self.nodes, self.root, key, now)
    }
}
