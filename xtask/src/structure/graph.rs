//! Directed graphs of names.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    arrows: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    pub(crate) fn add(&mut self, from: &str, to: &str) {
        if from != to {
            self.arrows.entry(from.into()).or_default().insert(to.into());
        }
    }

    pub(crate) fn arrows(&self) -> impl Iterator<Item = (&str, &str)> {
        self.arrows.iter().flat_map(|(from, all)| all.iter().map(|to| (from.as_str(), to.as_str())))
    }

    /// Nodes that can be reached from a node by at least one arrow.
    fn reached(&self, from: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(node) = open.pop() {
            for next in self.arrows.get(node).into_iter().flatten() {
                if reached.insert(next.as_str()) {
                    open.push(next);
                }
            }
        }
        reached
    }

    /// Sets of nodes that reach each other: strongly connected components of two nodes or more.
    pub(crate) fn cycles(&self) -> Vec<BTreeSet<String>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.arrows.keys().map(|node| (node.as_str(), self.reached(node))).collect();
        let mut cycles: BTreeSet<BTreeSet<String>> = BTreeSet::new();
        for (node, all) in reached.iter().filter(|(node, all)| all.contains(*node)) {
            let back = |other: &&&str| reached.get(**other).is_some_and(|others| others.contains(node));
            cycles.insert(all.iter().filter(back).map(|other| (*other).to_owned()).collect());
        }
        cycles.into_iter().collect()
    }

    /// The arrows without those that a longer path implies.
    pub(crate) fn reduced(&self) -> Graph {
        let mut reduced = Graph::default();
        for (from, to) in self.arrows() {
            let others = self.arrows.get(from).into_iter().flatten().filter(|other| *other != to);
            if !others.into_iter().any(|other| self.reached(other).contains(to)) {
                reduced.add(from, to);
            }
        }
        reduced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(arrows: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::default();
        arrows.iter().for_each(|(from, to)| graph.add(from, to));
        graph
    }

    #[test]
    fn a_cycle_is_the_set_of_nodes_that_reach_each_other() {
        let graph = graph(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("x", "x")]);
        let cycles = graph.cycles();
        assert_eq!(cycles, [["b", "c"].map(String::from).into()]);
    }

    #[test]
    fn an_arrow_that_a_longer_path_implies_is_left_out() {
        let graph = graph(&[("a", "b"), ("b", "c"), ("a", "c")]).reduced();
        assert_eq!(graph.arrows().collect::<Vec<_>>(), [("a", "b"), ("b", "c")]);
    }
}
