//! Orders of the operator, as keys of the cluster that all nodes see.

use super::{Coordination, Purpose};
use crate::record::NodeName;
use crate::store::{Answer, Call, Put, Store, StoreError, Write};
use std::fmt;

/// Orders that wait for the map, and results that wait for the caller.
const ORDERED_MAX: usize = 64;
const AWAY: &str = "etcd cannot be reached: try again";

/// Order of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterOrder {
    /// A node gives its shards away.
    Drain(NodeName),
    /// It takes part again.
    Undrain(NodeName),
    /// A node is off and has lost its state: nobody waits for the end of its hold.
    Gone(NodeName),
}

impl ClusterOrder {
    fn node(&self) -> &NodeName {
        match self {
            ClusterOrder::Drain(node) | ClusterOrder::Undrain(node) | ClusterOrder::Gone(node) => node,
        }
    }
}

impl fmt::Display for ClusterOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterOrder::Drain(node) => write!(f, "drain {node}"),
            ClusterOrder::Undrain(node) => write!(f, "undrain {node}"),
            ClusterOrder::Gone(node) => write!(f, "gone {node}"),
        }
    }
}

impl Coordination {
    /// Passes an order to all nodes. Returns its number: [`take_ordered`](Self::take_ordered) has its result.
    /// While the node reads the map again, as after its registration, the order waits.
    ///
    /// # Errors
    /// Says why it cannot be given now.
    pub fn order(&mut self, now_ms: u64, store: &mut dyn Store, order: &ClusterOrder) -> Result<u64, String> {
        let node = order.node();
        if !self.knows(node) && !self.map.names().any(|one| one == node) {
            return Err(format!("{node:?} is no node of this cluster"));
        }
        if self.map.is_live {
            let write = self.order_write(order)?;
            return Ok(self.submit(now_ms, store, Purpose::Order(order.to_string()), Call::Write(write)));
        }
        if self.errors.first().is_some() || self.orders.len() >= ORDERED_MAX {
            return Err(AWAY.to_owned());
        }
        self.next_id += 1;
        self.orders.push_back((self.next_id, order.clone()));
        Ok(self.next_id)
    }

    /// Passes the orders that wait for the map, or ends them if it cannot be read.
    pub(super) fn keep_orders(&mut self, now_ms: u64, store: &mut dyn Store) {
        if !self.map.is_live && self.errors.first().is_none() {
            return;
        }
        while let Some((id, order)) = self.orders.pop_front() {
            let write = if self.map.is_live { self.order_write(&order) } else { Err(AWAY.to_owned()) };
            match write {
                Ok(write) => {
                    self.submit_as(now_ms, store, id, Purpose::Order(order.to_string()), Call::Write(write));
                }
                Err(why) => self.end_order(id, Err(why)),
            }
        }
    }

    /// Write of an order, by the map as it is now.
    fn order_write(&self, order: &ClusterOrder) -> Result<Write, String> {
        let node = order.node();
        let (_, _, _, number) = self.map.registration(node);
        let put = |key: String, value: String| Put { key, value, lease: 0 };
        match order {
            ClusterOrder::Drain(_) => {
                Ok(Write { puts: vec![put(self.key("drains", node), "1".to_owned())], ..Write::default() })
            }
            ClusterOrder::Undrain(_) => {
                Ok(Write { deletes: vec![self.key("drains", node)], ..Write::default() })
            }
            ClusterOrder::Gone(node) if *node == self.settings.me => {
                Err(format!("{node:?} is this node, so it is not off"))
            }
            ClusterOrder::Gone(_) if self.map.is_registered(node) => {
                Err(format!("{node:?} is registered, so it is not off"))
            }
            ClusterOrder::Gone(_) => Ok(Write {
                // It may have registered meanwhile.
                compares: vec![(self.key("nodes", node), 0)],
                puts: vec![put(self.key("gone", node), format!("number={number}"))],
                deletes: vec![],
            }),
        }
    }

    /// Takes the results of orders, by their numbers.
    pub fn take_ordered(&mut self) -> Vec<(u64, Result<(), String>)> {
        self.ordered.drain(..).collect()
    }

    pub(super) fn ordered(&mut self, now_ms: u64, id: u64, text: &str, answer: Result<Answer, StoreError>) {
        let result = match answer {
            Ok(Answer::Written(true, _)) => Ok(()),
            Ok(_) => Err("not done: the node is registered again".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        self.note(now_ms, format!("{text}: {}", result.as_ref().err().map_or("done", String::as_str)));
        self.end_order(id, result);
    }

    /// Keeps the result of an order for the caller.
    pub(super) fn end_order(&mut self, id: u64, result: Result<(), String>) {
        if self.ordered.len() >= ORDERED_MAX {
            self.ordered.pop_front();
        }
        self.ordered.push_back((id, result));
    }
}
