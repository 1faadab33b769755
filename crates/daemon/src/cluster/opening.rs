//! Socket and certificates of the node, and the settings of etcd, while the process has the rights for them.

use super::ClusterSettings;
use super::division::fingerprint;
use crate::peer::{authority_of_nodes, bind, files};
use anyhow::{Context as _, anyhow};
use gatun_cluster::etcd::{EtcdSettings, EtcdTls};
use gatun_cluster::node::side;
use gatun_config::{Cluster, ClusterNode, node_certificate_name};
use gatun_peer::link::{Acceptor, Link, LinkSettings};
use std::fs;
use std::path::Path;

/// Shares of a lease that an endpoint of etcd has for an answer: others must have time for theirs.
const ANSWER_SHARES: u64 = 5;
/// Shortest time for an answer of etcd, ms.
const ANSWER_MIN_MS: u64 = 500;

/// Node that is not connected yet.
pub(crate) struct OpenedNode {
    pub(super) acceptor: Acceptor,
    /// Links to the other nodes, in their order.
    pub(super) links: Vec<Link>,
    pub(super) etcd: EtcdSettings,
    /// Fingerprint of the authority's certificate.
    pub(super) authority: String,
}

/// `None` without a cluster.
pub(crate) type OpenedCluster = Option<OpenedNode>;

impl OpenedNode {
    /// Reads the certificates again, for the next connections.
    ///
    /// # Errors
    /// Names the unusable file.
    pub(crate) fn reread(&mut self) -> Result<(), String> {
        self.acceptor.reread()?;
        self.links.iter_mut().try_for_each(Link::reread)
    }
}

/// Opens the socket and reads the certificates, if the configuration has `[cluster]`.
///
/// # Errors
/// Names the unusable file, or the address that is in use.
pub(crate) fn open(settings: Option<&ClusterSettings>) -> anyhow::Result<OpenedCluster> {
    let Some(settings) = settings else { return Ok(None) };
    let (own, cluster) = (settings.own(), &settings.cluster);
    let listener = bind(own.peer).with_context(|| format!("`peer` of node {}", own.name))?;
    let files = files(&cluster.directory);
    let others = settings.others().count();
    let acceptor = Acceptor::new(listener, files.clone(), others).map_err(|why| anyhow!(why))?;
    let link = |other: &ClusterNode| {
        Link::new(LinkSettings {
            member: side(&own.name[..].into(), &other.name[..].into()),
            listen: None,
            connect: Some(other.peer),
            files: files.clone(),
            name: node_certificate_name(&other.name)?,
            dead_after_ms: cluster.dead_after_ms.into(),
        })
    };
    let links = settings.others().map(link).collect::<Result<Vec<_>, _>>().map_err(|why| anyhow!(why))?;
    let authority = fingerprint(&authority_of_nodes(&cluster.directory)?);
    Ok(Some(OpenedNode { acceptor, links, etcd: etcd(cluster)?, authority }))
}

/// Settings of the client of etcd, with the contents of their files.
fn etcd(cluster: &Cluster) -> anyhow::Result<EtcdSettings> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let tls = |directory: &Path| -> anyhow::Result<EtcdTls> {
        let [authority, certificate, key] =
            ["ca.pem", "certificate.pem", "key.pem"].map(|name| directory.join(name));
        let has = |path: &Path| path.try_exists().with_context(|| format!("cannot read {}", path.display()));
        let identity = match has(&certificate)? || has(&key)? {
            true => Some((read(&certificate)?, read(&key)?)),
            false => None,
        };
        Ok(EtcdTls { authority: read(&authority)?, identity })
    };
    let user = |(name, file): &(String, std::path::PathBuf)| -> anyhow::Result<(String, String)> {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let password = text.lines().next().unwrap_or_default();
        anyhow::ensure!(!password.is_empty(), "the first line of {} has no password", file.display());
        Ok((name.clone(), password.to_owned()))
    };
    Ok(EtcdSettings {
        endpoints: cluster.etcd.clone(),
        tls: cluster.etcd_directory.as_deref().map(tls).transpose().context("etcd_directory")?,
        user: cluster.etcd_user.as_ref().map(user).transpose().context("etcd_password_file")?,
        timeout_ms: (u64::from(cluster.lease_ms) / ANSWER_SHARES).max(ANSWER_MIN_MS),
    })
}
