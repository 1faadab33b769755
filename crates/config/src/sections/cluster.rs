//! `[cluster]`: nodes of a cluster, and etcd.

use super::{api, log};
use crate::problem::Problems;
use crate::reader::Table;
use crate::value::{self, Invalid, Read};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;
use toml::Spanned;
use toml::de::DeValue;

/// Default directory of the nodes' certificates.
pub const CLUSTER_DIRECTORY: &str = "/etc/gatun/cluster";

/// Maximum number of nodes.
const NODES_MAX: usize = 64;
/// Shortest lease, ms: etcd counts seconds.
const LEASE_MIN_MS: u32 = 1_000;
/// Shortest hold, leases: renewals must have some time before it ends.
const HOLD_MIN_LEASES: u32 = 4;
/// Shortest time, ms, after which a silent node counts as dead: it gives a sign of life each 50 ms.
const DEAD_MIN_MS: u32 = 200;
/// Longest one: a dead connection keeps its place until then.
const DEAD_MAX_MS: u32 = 60_000;
/// Default of `vni`.
const VNI: u32 = 4_096;

/// Returns the name in the certificate of a node.
///
/// # Errors
/// It cannot be the name of a node.
pub fn node_certificate_name(node: &str) -> Result<String, String> {
    match is_node_name(node) {
        true => Ok(format!("{node}.node.gatun.internal")),
        false => Err(format!("invalid name of a node \"{}\": {NODE_NAME}", value::shorten(node))),
    }
}

const NODE_NAME: &str =
    "write 1 to 63 lower-case letters, digits or `-`, which begin and end with a letter or digit";

/// Node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNode {
    /// Name.
    pub name: String,
    /// Address at which other nodes connect.
    pub peer: SocketAddr,
    /// Tunnel address.
    pub tunnel: IpAddr,
    /// Relative number of shards.
    pub weight: u32,
    /// Address of its API: `https://HOST:PORT`, or the absolute path of a Unix socket.
    pub api: Option<String>,
}

/// Cluster, as one of its nodes knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Name of the cluster.
    pub name: String,
    /// Name of this node, if the file has it or it was chosen.
    pub node: Option<String>,
    /// Endpoints of etcd.
    pub etcd: Vec<String>,
    /// User of etcd, and the file with the password.
    pub etcd_user: Option<(String, PathBuf)>,
    /// Directory of the certificates for etcd.
    pub etcd_directory: Option<PathBuf>,
    /// Directory of this node's certificates.
    pub directory: PathBuf,
    /// Number of shards.
    pub shards: u16,
    /// Lease of a node's registration, ms.
    pub lease_ms: u32,
    /// Time for which a node goes on without any sign of others, ms.
    pub hold_ms: u32,
    /// VXLAN network identifier of realm 0.
    pub vni: u32,
    /// UDP port of the tunnel.
    pub port: u16,
    /// Largest packet of the network between the nodes.
    pub tunnel_mtu: u32,
    /// Ports at each end of each address that only one holder ever assigns.
    pub own_ports: u16,
    /// Packets after which a backup gets a UDP session.
    pub packets: u8,
    /// Time in ms without a byte of a node after which the connection is closed.
    pub dead_after_ms: u32,
    /// Time in ms without a connection after which the lifetimes of another node's sessions begin.
    pub away_after_ms: u32,
    /// All nodes.
    pub nodes: Vec<ClusterNode>,
}

impl Cluster {
    /// Number of this node. `None` if it is not chosen yet.
    pub fn own_number(&self) -> Option<usize> {
        let name = self.node.as_ref()?;
        self.nodes.iter().position(|node| node.name == *name)
    }

    /// This node.
    pub fn own(&self) -> Option<&ClusterNode> {
        self.nodes.get(self.own_number()?)
    }

    /// Chooses this node, as [`Config::choose_node`](crate::Config::choose_node).
    pub(crate) fn choose_own(&mut self, given: Option<&str>, host: &str) -> Result<(), String> {
        let host = host.split('.').next().unwrap_or_default().to_ascii_lowercase();
        let name = given.or(self.node.as_deref()).unwrap_or(&host).to_owned();
        if !self.nodes.iter().any(|node| node.name == name) {
            let names: Vec<_> = self.nodes.iter().map(|node| &node.name[..]).collect();
            return Err(format!(
                "[cluster] has no node \"{}\": write `node` in [cluster], or `gatun run --node NAME`, with one \
                 of: {}",
                value::shorten(&name),
                names.join(", ")
            ));
        }
        self.node = Some(name);
        Ok(())
    }
}

/// The section, with places for messages.
pub(crate) struct RawCluster {
    pub(crate) cluster: Cluster,
    /// Number of shards, if the file has it.
    pub(crate) shards: Option<u32>,
    pub(crate) span: Range<usize>,
    pub(crate) shards_span: Range<usize>,
    pub(crate) mtu_span: Range<usize>,
    /// Place of each node's tunnel address.
    pub(crate) tunnel_spans: Vec<Range<usize>>,
}

/// Reads the section.
pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> RawCluster {
    let read = table.tables("nodes", "[[cluster.nodes]]", problems);
    let nodes: Vec<_> = read.iter().filter_map(|table| Some((node(table, problems)?, table))).collect();
    check_nodes(&nodes, table, read.len(), problems);
    let named = table.get("node", problems, node_name);
    if let Some(name) = &named
        && !nodes.is_empty()
        && nodes.len() == read.len()
        && !nodes.iter().any(|(node, _)| node.name == *name)
    {
        let names: Vec<_> = nodes.iter().map(|(node, _)| &node.name[..]).collect();
        let what = format!("`node`: [[cluster.nodes]] has no node \"{name}\"");
        problems.error(table.span_of("node"), what, format!("the nodes are: {}", names.join(", ")));
    }
    let (lease_ms, hold_ms) = times(table, problems);
    let shards = table.integer("shards", problems);
    if shards.is_some_and(|shards| !shards.is_power_of_two()) {
        let what = "`shards` is no power of two";
        problems.error(table.span_of("shards"), what, "write 1, 2, 4, 8, 16, 32, 64, 128 or 256");
    }
    let of_time = |name, default, problems: &mut Problems| {
        table.get(name, problems, value::duration_ms).unwrap_or(default)
    };
    let dead_after_ms = of_time("dead_after", 1_000, problems);
    if dead_after_ms < DEAD_MIN_MS {
        let what = format!("`dead_after` is below {DEAD_MIN_MS} ms");
        problems.error(table.span_of("dead_after"), what, "write `dead_after = \"200ms\"` or more");
    } else if dead_after_ms > DEAD_MAX_MS {
        let what = "`dead_after` is above 1 min: nodes would wait for a dead one";
        problems.error(table.span_of("dead_after"), what, "write `dead_after = \"1m\"` or less");
    }
    let (etcd, etcd_user, etcd_directory) = etcd(table, problems);
    let default = CLUSTER_DIRECTORY;
    let cluster = Cluster {
        name: table.get("name", problems, value::name).unwrap_or_else(|| "gatun".to_owned()),
        node: named,
        etcd,
        etcd_user,
        etcd_directory,
        directory: table.get("directory", problems, log::directory).unwrap_or_else(|| default.into()),
        shards: 0,
        lease_ms,
        hold_ms,
        vni: table.integer("vni", problems).unwrap_or(VNI),
        port: table.integer("port", problems).map_or(gatun_wire::vxlan::PORT, |n| n as u16),
        tunnel_mtu: table.integer("tunnel_mtu", problems).unwrap_or(1_500),
        own_ports: table.integer("own_ports", problems).map_or(4_096, |n| n as u16),
        packets: table.integer("packets", problems).map_or(3, |n| n as u8),
        dead_after_ms,
        away_after_ms: of_time("away_after", 10_000, problems),
        nodes: nodes.iter().map(|(node, _)| node.clone()).collect(),
    };
    RawCluster {
        cluster,
        shards,
        span: table.span.clone(),
        shards_span: table.span_of("shards"),
        mtu_span: table.span_of("tunnel_mtu"),
        tunnel_spans: nodes.iter().map(|(_, table)| table.span_of("tunnel")).collect(),
    }
}

/// Reads the lease and the hold.
fn times(table: &Table<'_>, problems: &mut Problems) -> (u32, u32) {
    let lease_ms = table.get("lease", problems, value::duration_ms).unwrap_or(5_000);
    if lease_ms < LEASE_MIN_MS {
        let what = "`lease` is below 1 s";
        problems.error(table.span_of("lease"), what, "write `lease = \"1s\"` or more");
    }
    let hold_ms = table.get("hold", problems, value::duration_ms).unwrap_or(300_000);
    let min_ms = lease_ms.saturating_mul(HOLD_MIN_LEASES);
    if hold_ms < min_ms {
        let min = value::show_duration(min_ms);
        let what = format!("`hold` is below {HOLD_MIN_LEASES} leases");
        problems.error(table.span_of("hold"), what, format!("write `hold = \"{min}\"` or more"));
    }
    (lease_ms, hold_ms)
}

type Etcd = (Vec<String>, Option<(String, PathBuf)>, Option<PathBuf>);

/// Reads the keys about etcd.
fn etcd(table: &Table<'_>, problems: &mut Problems) -> Etcd {
    if table.node("etcd").is_none() {
        problems.error(table.span.clone(), "`etcd` is missing", table.example("etcd"));
    }
    let endpoints = table.list("etcd", problems, endpoint);
    if table.node("etcd").is_some() && endpoints.is_empty() && problems.errors() == 0 {
        problems.error(table.span_of("etcd"), "`etcd` lists no endpoint", table.example("etcd"));
    }
    for (place, one) in endpoints.iter().enumerate() {
        if endpoints[..place].iter().any(|other| other.get_ref() == one.get_ref()) {
            let what = format!("`etcd` has {} twice", one.get_ref());
            problems.error(one.span(), what, "write it once");
        }
    }
    let user = table.get("etcd_user", problems, value::name);
    let password = table.get("etcd_password_file", problems, api::path);
    for (one, other) in [("etcd_user", "etcd_password_file"), ("etcd_password_file", "etcd_user")] {
        if table.node(one).is_some() && table.node(other).is_none() {
            problems.error(table.span_of(one), format!("`{one}` needs `{other}`"), table.example(other));
        }
    }
    let directory = table.get("etcd_directory", problems, log::directory);
    let secure = endpoints.iter().find(|one| one.get_ref().starts_with("https"));
    let plain = endpoints.iter().find(|one| !one.get_ref().starts_with("https"));
    match plain {
        Some(plain) if secure.is_some() => {
            let what =
                format!("{} is without TLS, and other endpoints of `etcd` are with it", plain.get_ref());
            problems.error(plain.span(), what, "write all endpoints with `https://`, or all with `http://`");
        }
        Some(plain) if password.is_some() => {
            let what = format!("{} is without TLS: everybody on the way reads the password", plain.get_ref());
            problems.warn(plain.span(), what, "write `https://` and `etcd_directory`");
        }
        _ => {}
    }
    match (secure, table.node("etcd_directory")) {
        (Some(endpoint), None) => {
            let what = format!("{} needs the certificate of etcd's authority", endpoint.get_ref());
            problems.error(endpoint.span(), what, table.example("etcd_directory"));
        }
        (None, Some(node)) if !endpoints.is_empty() => {
            let what = "`etcd_directory` has no effect: no endpoint begins with https";
            problems.warn(node.span(), what, "write `https://` in `etcd`, or remove the key");
        }
        _ => {}
    }
    let endpoints = endpoints.into_iter().map(Spanned::into_inner).collect();
    (endpoints, user.zip(password), directory)
}

/// Reads a node. `None` if a required key is missing or wrong.
fn node(table: &Table<'_>, problems: &mut Problems) -> Option<ClusterNode> {
    let name = table.require("name", problems, node_name);
    let peer = table.require("peer", problems, api::endpoint);
    if peer.is_some_and(|address| address.ip().is_unspecified()) {
        let what = "`peer` is the address of no host";
        problems.error(table.span_of("peer"), what, table.example("peer"));
    }
    let tunnel = table.require("tunnel", problems, host_address);
    let weight = table.integer("weight", problems).unwrap_or(1);
    let api = table.get("api", problems, api::other);
    Some(ClusterNode { name: name?, peer: peer?, tunnel: tunnel?, weight, api })
}

/// Checks the nodes against each other.
fn check_nodes(
    nodes: &[(ClusterNode, &Table<'_>)],
    section: &Table<'_>,
    count: usize,
    problems: &mut Problems,
) {
    if count == 0 && section.node("nodes").is_none() {
        let instead = "write `[[cluster.nodes]]` with `name`, `peer` and `tunnel`, once for each node";
        problems.error(section.span.clone(), "[cluster] has no `nodes`", instead);
    }
    if count > NODES_MAX {
        let what = format!("{count} nodes: a cluster has at most {NODES_MAX}");
        problems.error(section.span.clone(), what, "make two clusters, each with its own pools");
    }
    if !nodes.is_empty() && nodes.len() == count && nodes.iter().all(|(node, _)| node.weight == 0) {
        let what = "all nodes have the weight 0: nobody would own a shard";
        problems.error(section.span.clone(), what, "write `weight = 1`, or no `weight`");
    }
    for (place, (node, table)) in nodes.iter().enumerate() {
        for (other, _) in &nodes[..place] {
            let twice = [
                ("name", node.name == other.name, format!("the name \"{}\"", node.name)),
                ("peer", node.peer == other.peer, format!("the address {}", node.peer)),
                ("tunnel", node.tunnel == other.tunnel, format!("the tunnel address {}", node.tunnel)),
                ("api", node.api.is_some() && node.api == other.api, "the same address".to_owned()),
            ];
            for (key, _, what) in twice.iter().filter(|(_, is_same, _)| *is_same) {
                let what = format!("`{key}`: another node has {what}, too");
                problems.error(table.span_of(key), what, "each node has its own");
            }
        }
        if nodes[0].0.tunnel.is_ipv4() != node.tunnel.is_ipv4() {
            let what = format!("`tunnel`: {} and {} are of two families", nodes[0].0.tunnel, node.tunnel);
            problems.error(table.span_of("tunnel"), what, "write IPv4 addresses, or IPv6 addresses");
        }
    }
}

/// Name of a node: a label of a host name, because certificates have it.
fn node_name(v: &DeValue<'_>) -> Read<String> {
    let text = value::text(v)?;
    match is_node_name(text) {
        true => Ok(text.to_owned()),
        false => {
            Err(Invalid::with(format!("invalid name of a node \"{}\"", value::shorten(text)), NODE_NAME))
        }
    }
}

fn is_node_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_name = (1..=63).contains(&text.len()) && text.chars().all(is_part);
    is_name && !text.starts_with('-') && !text.ends_with('-')
}

/// Address of a host.
fn host_address(v: &DeValue<'_>) -> Read<IpAddr> {
    let text = value::text(v)?;
    let address: Option<IpAddr> = text.parse().ok();
    let is_host = |address: &IpAddr| {
        let is_linked = matches!(address, IpAddr::V6(six) if six.is_unicast_link_local());
        !address.is_unspecified() && !address.is_multicast() && !address.is_loopback() && !is_linked
    };
    let broadcast = IpAddr::from([255; 4]);
    address
        .filter(is_host)
        .filter(|address| *address != broadcast)
        .ok_or_else(|| Invalid::new(format!("\"{}\" is not the address of a host", value::shorten(text))))
}

/// Endpoint of etcd.
fn endpoint(v: &DeValue<'_>) -> Read<String> {
    let text = value::text(v)?;
    if text.contains('@') {
        // It is not shown: it may have a password.
        return Err(Invalid::with(
            "an endpoint has no user and no password",
            "write `etcd_user` and `etcd_password_file`",
        ));
    }
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let address = rest.and_then(|rest| rest.parse().ok()).filter(|address: &SocketAddr| address.port() > 0);
    match address {
        Some(_) => Ok(text.to_owned()),
        None => Err(Invalid::new(format!(
            "\"{}\" is not http://ADDRESS:PORT or https://ADDRESS:PORT (names are not looked up)",
            value::shorten(text)
        ))),
    }
}
