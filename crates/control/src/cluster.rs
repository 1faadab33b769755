//! Requests about the nodes of a cluster.

use crate::Control;
use crate::config_requests::{confirm_seconds, text_of};
use crate::configure::{RefusalKind, Refused};
use crate::query::Query;
use crate::response::{Answer, ApiRequest, Refusal, json};
use gatun_api::paths::ClusterOperation;
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

/// Word of an operator about the cluster's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterConfigOrder {
    /// A new revision: its text, and the time within which it will be confirmed, s.
    Apply(String, Option<u32>),
    /// The revision on trial stays.
    Confirm,
    /// All nodes return from it.
    RollBack,
}

/// Request about the cluster's configuration by a client; the error is a sentence. It may take seconds.
pub type ClusterConfigRequest = Box<dyn Fn(ClusterConfigOrder, &str) -> Result<(), String> + Send + Sync>;

/// Revisions that are kept, with their texts; the error is a sentence.
pub type RevisionList = Box<dyn Fn() -> Result<Vec<(types::ClusterRevision, String)>, String> + Send + Sync>;

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
    /// Takes the word of an operator about the configuration.
    pub configure: ClusterConfigRequest,
    /// Configuration revisions.
    pub revisions: RevisionList,
}

/// Daemon without `[cluster]`.
impl Default for ClusterControl {
    fn default() -> Self {
        ClusterControl {
            state: Box::new(types::Cluster::default),
            events: Box::new(types::ClusterEvents::default),
            order: Box::new(|_, _| Err(NO_CLUSTER.to_owned())),
            configure: Box::new(|_, _| Err(NO_CLUSTER.to_owned())),
            revisions: Box::new(|| Ok(Vec::new())),
        }
    }
}

impl Control {
    /// Answers a request about the cluster.
    pub(crate) async fn cluster_answer(
        self: &Arc<Self>,
        what: ClusterOperation,
        query: &Query,
        body: &[u8],
        asked: &ApiRequest<'_>,
    ) -> Result<Answer, Refusal> {
        let node = |order| self.cluster_request(order, query, asked);
        let configure = |order| self.cluster_configure(order, asked);
        Ok(match what {
            ClusterOperation::State => json(&(self.setup.cluster.state)()),
            ClusterOperation::Events => json(&(self.setup.cluster.events)()),
            ClusterOperation::Drain => json(&node(NodeOrder::Drain).await?),
            ClusterOperation::Undrain => json(&node(NodeOrder::Undrain).await?),
            ClusterOperation::Gone => json(&node(NodeOrder::Gone).await?),
            ClusterOperation::Apply => {
                let order = ClusterConfigOrder::Apply(text_of(body)?, confirm_seconds(query)?);
                json(&configure(order).await?)
            }
            ClusterOperation::Confirm => json(&configure(ClusterConfigOrder::Confirm).await?),
            ClusterOperation::RollBack => json(&configure(ClusterConfigOrder::RollBack).await?),
            ClusterOperation::Revisions => {
                let kept = self.cluster_revisions().await?;
                json(&kept.into_iter().map(|(revision, _)| revision).collect::<Vec<_>>())
            }
            ClusterOperation::RevisionText => json(&self.cluster_revision(query).await?),
        })
    }

    /// Takes the word of an operator about a node, and returns the state afterwards.
    async fn cluster_request(
        self: &Arc<Self>,
        order: NodeOrder,
        query: &Query,
        asked: &ApiRequest<'_>,
    ) -> Result<types::Cluster, Refusal> {
        let node = query.get("node").map(str::to_owned);
        let (control, named) = (Arc::clone(self), node.clone());
        let done =
            tokio::task::spawn_blocking(move || (control.setup.cluster.order)(order, named.as_deref()));
        let done = done.await.unwrap_or_else(|error| Err(error.to_string()));
        done.map_err(conflict)?;
        let node = node.map_or_else(|| "this node".to_owned(), |name| format!("node {name}"));
        let what = match order {
            NodeOrder::Drain => format!("has {node} give its shards away"),
            NodeOrder::Undrain => format!("has {node} get shards again"),
            NodeOrder::Gone => format!("declares {node} gone"),
        };
        (self.setup.log)(&format!("api: {} {what}", asked.who));
        Ok((self.setup.cluster.state)())
    }

    /// Takes the word of an operator about the configuration, and returns the state afterwards.
    async fn cluster_configure(
        self: &Arc<Self>,
        order: ClusterConfigOrder,
        asked: &ApiRequest<'_>,
    ) -> Result<types::Cluster, Refusal> {
        let what = match &order {
            ClusterConfigOrder::Apply(..) => "applies a configuration at all nodes",
            ClusterConfigOrder::Confirm => "confirms the configuration of all nodes",
            ClusterConfigOrder::RollBack => "has all nodes return to the previous configuration",
        };
        let (control, who) = (Arc::clone(self), asked.who.to_owned());
        let done = tokio::task::spawn_blocking(move || (control.setup.cluster.configure)(order, &who));
        done.await.unwrap_or_else(|error| Err(error.to_string())).map_err(conflict)?;
        (self.setup.log)(&format!("api: {} {what}", asked.who));
        Ok((self.setup.cluster.state)())
    }

    /// Returns the configuration revisions.
    async fn cluster_revisions(self: &Arc<Self>) -> Result<Vec<(types::ClusterRevision, String)>, Refusal> {
        let control = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || (control.setup.cluster.revisions)());
        done.await.unwrap_or_else(|error| Err(error.to_string())).map_err(conflict)
    }

    /// Returns the text of a configuration revision.
    async fn cluster_revision(self: &Arc<Self>, query: &Query) -> Result<types::ConfigText, Refusal> {
        let number = query.parse::<u64>("number", "a number of a revision")?.unwrap_or(0);
        let kept = self.cluster_revisions().await?;
        match kept.into_iter().find(|(revision, _)| revision.number == number) {
            Some((_, text)) => Ok(types::ConfigText { text }),
            None => Err(Refusal::Configure(Refused::new(
                RefusalKind::Unknown,
                format!("etcd has no configuration revision {number}"),
                "`gatun cluster revisions` lists them",
            ))),
        }
    }
}

fn conflict(error: String) -> Refusal {
    Refusal::Configure(Refused::new(RefusalKind::Conflict, error, "see `gatun cluster status`"))
}
