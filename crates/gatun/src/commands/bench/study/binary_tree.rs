//! A binary tree that nobody balances: as deep as the order of arrival makes it.

use super::table::{Full, Key, Outside, Record, Table, touched};
use gatun_mem::hash::Hasher64;
use gatun_mem::{HugeVec, OutOfMemory};
use zerocopy::FromZeros;

/// No node. Nodes count from 1.
const NONE: u32 = 0;

/// Half a cache line.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(32))]
struct Node {
    record: Record,
    /// Smaller keys, larger keys.
    child: [u32; 2],
}

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
        let (mut parent, mut side, mut at) = (NONE, 0, self.root);
        while at != NONE {
            let node = &self.nodes[at as usize];
            let here = node.record.key();
            if here == key {
                return Ok(false);
            }
            side = usize::from(key > here);
            (parent, at) = (at, node.child[side]);
        }
        let new = self.used + 1;
        let node = self.nodes.get_mut(new as usize).ok_or(Full)?;
        *node = Node { record: Record::new(key, to, now), child: [NONE; 2] };
        self.used = new;
        match parent {
            NONE => self.root = new,
            _ => self.nodes[parent as usize].child[side] = new,
        }
        Ok(true)
    }

    fn look_up(&mut self, key: Key, now: u32) -> Option<Outside> {
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
