//! Requests about the nodes of a cluster.

use crate::Control;
use crate::configure::{RefusalKind, Refused};
use crate::query::Query;
use crate::response::{ApiRequest, Refusal};
use gatun_api::paths::Operation;
use gatun_api::types;
use std::sync::Arc;

/// Error of a request to a daemon without `[cluster]`.
const NO_CLUSTER: &str = "there is no [cluster] in the configuration";

/// Word of an operator about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeOrder {
    /// It gives its shards away.
    Drain,
    /// It gets shards again.
    Undrain,
    /// It is off, and has lost its sessions.
    Gone,
}

/// Request about a node by its name, or about this one; the error is a sentence. It may take seconds.
pub type NodeRequest = Box<dyn Fn(NodeOrder, Option<&str>) -> Result<(), String> + Send + Sync>;

/// Daemon's side of a cluster.
pub struct ClusterControl {
    /// State of this node, and the cluster as it knows it.
    pub state: Box<dyn Fn() -> types::Cluster + Send + Sync>,
    /// Latest events.
    pub events: Box<dyn Fn() -> types::ClusterEvents + Send + Sync>,
    /// Takes the word of an operator.
    pub order: NodeRequest,
}

/// Daemon without `[cluster]`.
impl Default for ClusterControl {
    fn default() -> Self {
        ClusterControl {
            state: Box::new(types::Cluster::default),
            events: Box::new(types::ClusterEvents::default),
            order: Box::new(|_, _| Err(NO_CLUSTER.to_owned())),
        }
    }
}

impl Control {
    /// Takes the word of an operator about a node, and returns the state afterwards.
    pub(crate) async fn cluster_request(
        self: &Arc<Self>,
        what: Operation,
        query: &Query,
        asked: &ApiRequest<'_>,
    ) -> Result<types::Cluster, Refusal> {
        let order = match what {
            Operation::ClusterDrain => NodeOrder::Drain,
            Operation::ClusterUndrain => NodeOrder::Undrain,
            _ => NodeOrder::Gone,
        };
        let node = query.get("node").map(str::to_owned);
        let (control, named) = (Arc::clone(self), node.clone());
        let done =
            tokio::task::spawn_blocking(move || (control.setup.cluster.order)(order, named.as_deref()));
        let conflict = |error| Refused {
            why: RefusalKind::Conflict,
            error,
            hint: "see `gatun cluster status`".to_owned(),
        };
        let done = done.await.unwrap_or_else(|error| Err(error.to_string()));
        done.map_err(|error| Refusal::Configure(conflict(error)))?;
        let node = node.map_or_else(|| "this node".to_owned(), |name| format!("node {name}"));
        let what = match order {
            NodeOrder::Drain => format!("has {node} give its shards away"),
            NodeOrder::Undrain => format!("has {node} get shards again"),
            NodeOrder::Gone => format!("declares {node} gone"),
        };
        (self.setup.log)(&format!("api: {} {what}", asked.who));
        Ok((self.setup.cluster.state)())
    }
}
