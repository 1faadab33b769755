//! Other boxes that have sessions of this one: the peer of a pair, or the nodes of a cluster.

use crate::cluster::{self, ClusterManager, ClusterOrders, OpenedCluster, PreparedCluster};
use crate::health::HealthControl;
use crate::peer::{self, OpenedPeer, PeerManager, PeerOrders, PreparedPeer, SharedFence};
use crate::sandbox::Sandbox;
use crate::takeover::SessionStore;
use crate::{Event, Settings};
use anyhow::{Context as _, anyhow};
use gatun_control::{ClusterControl, PeerControl};
use gatun_nat::workers::Steering;
use gatun_worker::{Clock, Handle};
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// State of the previous process.
#[derive(Default)]
pub(crate) struct PreparedBoxes {
    peer: Option<PreparedPeer>,
    cluster: Option<PreparedCluster>,
}

impl PreparedBoxes {
    /// Reads what the previous process has left. `shared` is the steering of several workers, and of a
    /// cluster.
    ///
    /// # Errors
    /// Returns an error if a file cannot be used.
    pub(crate) fn new(
        settings: &Settings,
        shared: Option<&Arc<Steering>>,
        store: Option<&SessionStore>,
    ) -> anyhow::Result<PreparedBoxes> {
        let peer = peer::prepare(settings, shared, store)?;
        let cluster = cluster::prepare(settings, shared, store)?;
        Ok(PreparedBoxes { peer, cluster })
    }
}

/// Open sockets.
#[derive(Default)]
pub(crate) struct OpenedBoxes {
    link: OpenedPeer,
    cluster: OpenedCluster,
}

impl OpenedBoxes {
    /// Opens sockets, and reads certificates.
    ///
    /// # Errors
    /// Names the unusable file, or the address that is in use.
    pub(crate) fn new(settings: &Settings) -> anyhow::Result<OpenedBoxes> {
        let link = peer::open(settings.peer.as_ref())?;
        let cluster = cluster::open(settings.cluster.as_ref()).context("[cluster]")?;
        Ok(OpenedBoxes { link, cluster })
    }

    /// Reads the certificates again: a reload reads them with the rights of this moment, so that is better
    /// refused now than then.
    ///
    /// # Errors
    /// Names the unusable file.
    pub(crate) fn reread(&mut self) -> anyhow::Result<()> {
        if let Some(link) = &mut self.link {
            link.reread().map_err(|why| anyhow!("[peer] {why}"))?;
        }
        if let Some(cluster) = &mut self.cluster {
            cluster.reread().map_err(|why| anyhow!("[cluster] {why}"))?;
        }
        Ok(())
    }
}

/// The threads.
#[derive(Clone)]
pub(crate) struct Boxes {
    peer: PeerManager,
    cluster: ClusterManager,
}

impl Boxes {
    /// Starts the threads, which enter their own sandboxes and wait for the workers.
    ///
    /// # Errors
    /// Returns an error if a thread cannot start.
    pub(crate) fn start(
        prepared: PreparedBoxes,
        opened: OpenedBoxes,
        settings: &Settings,
        (health, clock): (&HealthControl, Clock),
        fence: &SharedFence,
        means: (&Sandbox, &Sender<Event>),
    ) -> anyhow::Result<Boxes> {
        let pair = (prepared.peer, opened.link);
        let peer = PeerManager::start(pair, settings, (health.clone(), clock, fence.clone()), means)?;
        let node = (prepared.cluster, opened.cluster);
        let cluster = ClusterManager::start(node, settings, (health.clone(), clock), means)?;
        Ok(Boxes { peer, cluster })
    }

    /// The next process finds the sessions of this one from now on.
    pub(crate) fn sessions_are_named(&self) {
        self.peer.sessions_are_named();
    }

    /// Passes the running workers to the threads, once they have the sessions of the previous process.
    /// `has_all` is false if some of these are lost.
    pub(crate) fn begin(&self, workers: Vec<Handle>, has_all: bool) {
        self.peer.begin(workers.clone(), has_all);
        self.cluster.begin(workers, has_all);
    }

    /// State and requests for the API.
    pub(crate) fn controls(&self) -> (PeerControl, ClusterControl) {
        (self.peer.control(), self.cluster.control())
    }

    /// Orders for a reload.
    pub(crate) fn orders(&self) -> BoxOrders {
        BoxOrders { peer: self.peer.orders(), cluster: self.cluster.orders() }
    }
}

/// Orders to the threads. `None` without the section.
pub(crate) struct BoxOrders {
    pub(crate) peer: Option<PeerOrders>,
    pub(crate) cluster: Option<ClusterOrders>,
}

impl BoxOrders {
    /// Has the certificates read again, for the next connections.
    pub(crate) fn reread(&self) {
        self.peer.iter().for_each(PeerOrders::reread);
        self.cluster.iter().for_each(ClusterOrders::reread);
    }
}
