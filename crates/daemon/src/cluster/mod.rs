//! The other nodes of a cluster: each shard of the public addresses is at two of them.
//!
//! ```text
//!   opening    at start: socket, certificates, settings of etcd
//!   manager    the thread: etcd, links, node and engines; orders of a reload and of the API
//!   division   what all nodes must have in common, for etcd
//!   places     which node translates each shard: for the workers, and for announced routes
//!   standing   state of the node that outlives the process, beside its sessions
//!   revisions  configuration of the cluster, as orders of a reload
//!   settings   settings of the node and of its exchanges
//!   status     state for the API, and lines in the log
//! ```
//! The rules are in `gatun_cluster`. Decision 0110 has the reasons of this module.

mod division;
mod manager;
mod opening;
mod places;
mod revisions;
mod settings;
mod standing;
mod status;

pub(crate) use manager::{ClusterManager, ClusterOrders, PreparedCluster, prepare};
pub(crate) use opening::{OpenedCluster, open};
pub(crate) use places::closed;
pub(crate) use revisions::ConfigAccess;
pub(crate) use settings::memory_bytes;

use gatun_config::{Cluster, ClusterNode};
use gatun_nat::redirect::{Tunnel, TunnelNode};

/// Cluster, and this node of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    pub(crate) cluster: Cluster,
    /// Number of this node.
    pub(crate) me: usize,
    /// Tunnel between the nodes.
    tunnel: Tunnel,
}

impl ClusterSettings {
    /// Settings of a cluster whose node is chosen.
    ///
    /// # Errors
    /// No node is chosen, or a tunnel between the nodes is impossible.
    pub fn new(cluster: Cluster) -> Result<ClusterSettings, String> {
        let me = cluster.own_number().ok_or("[cluster]: this box has no name of a node")?;
        let node = |node: &ClusterNode| TunnelNode { name: node.name[..].into(), address: node.tunnel };
        let nodes = cluster.nodes.iter().map(node).collect();
        let tunnel = Tunnel::new(me, nodes, cluster.port, cluster.vni, cluster.tunnel_mtu);
        let tunnel = tunnel.map_err(|error| format!("[cluster] {error}"))?;
        Ok(ClusterSettings { cluster, me, tunnel })
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// This node.
    pub(crate) fn own(&self) -> &ClusterNode {
        &self.cluster.nodes[self.me]
    }

    /// The other nodes.
    pub(crate) fn others(&self) -> impl Iterator<Item = &ClusterNode> {
        let others = self.cluster.nodes.iter().enumerate().filter(|(number, _)| *number != self.me);
        others.map(|(_, node)| node)
    }
}

/// Lists differences between two configurations that need a restart.
pub fn restarts(old: Option<&ClusterSettings>, new: Option<&ClusterSettings>) -> Vec<String> {
    match old == new {
        true => Vec::new(),
        false => vec!["[cluster]".to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings of a node of a cluster with two nodes.
    pub(super) fn settings(node: &str, shards: u16) -> ClusterSettings {
        let text = format!(
            "[translator]\nown4 = \"198.51.100.9\"\n[[pool]]\nprefixes = [\"192.0.2.0/24\"]\n[[nat44]]\n\
             inside = [\"10.0.0.0/8\"]\n[cluster]\nnode = \"{node}\"\netcd = \"http://127.0.0.1:2379\"\n\
             shards = {shards}\n[[cluster.nodes]]\nname = \"a\"\npeer = \"10.0.0.1:7465\"\n\
             tunnel = \"198.51.100.1\"\n[[cluster.nodes]]\nname = \"b\"\npeer = \"10.0.0.2:7465\"\n\
             tunnel = \"198.51.100.2\"\n"
        );
        let config = gatun_config::load_str(&text, "f").unwrap_or_else(|report| panic!("{report}")).0;
        ClusterSettings::new(config.cluster.unwrap()).unwrap()
    }

    #[test]
    fn a_node_knows_itself_and_the_others() {
        let node = settings("b", 4);
        assert_eq!(node.own().name, "b");
        assert_eq!(node.others().map(|other| &other.name[..]).collect::<Vec<_>>(), ["a"]);
        assert_eq!(restarts(Some(&node), Some(&node)), [""; 0]);
        assert_eq!(restarts(Some(&node), Some(&settings("b", 8))), ["[cluster]"]);
        assert_eq!(restarts(Some(&node), None), ["[cluster]"]);
    }
}
