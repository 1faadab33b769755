//! Keys of a cluster.

use super::forms::{DAEMON, ENDPOINT, ETCD_ENDPOINT, FOLDER, IP_ADDRESS, NAME, NODE_NAME, PATH};
use super::kind::{Key, Kind, key};
use gatun_nat::redirect::Tunnel;

/// `[cluster]`
pub(crate) const CLUSTER: &[Key] = &[
    key("name", NAME, "\"edge\"", "Name of the cluster. Its keys in etcd begin with `/gatun/NAME/`, so several clusters can use one etcd.").default("\"gatun\""),
    key("node", NODE_NAME, "\"a\"", "Name of this node, one of `[[cluster.nodes]]`. `gatun run --node NAME` has precedence.").default("the host's name, up to its first dot"),
    key("etcd", Kind::List(&ETCD_ENDPOINT), "[\"http://192.0.2.21:2379\", \"http://192.0.2.22:2379\"]", "Endpoints of etcd 3.4 or later: addresses, because names are not looked up. Requests go to one of them, and after a failure to the next one.").required(),
    key("etcd_user", NAME, "\"gatun\"", "User of etcd, if it demands one. Needs `etcd_password_file`."),
    key("etcd_password_file", PATH, "\"/etc/gatun/etcd-password\"", "File with the password of `etcd_user`, in its first line. A change needs a restart."),
    key("etcd_directory", FOLDER, "\"/etc/gatun/etcd\"", "Directory with `ca.pem`, the authority of etcd's certificates, and `certificate.pem` and `key.pem` if etcd demands a certificate. For endpoints with `https`. A change of the files needs a restart."),
    key("directory", FOLDER, "\"/etc/gatun/cluster\"", "Directory with `ca.pem`, `certificate.pem` and `key.pem` of this node, as `gatun cluster init` makes them. Gatun reads them again at each reload.").default("\"/etc/gatun/cluster\""),
    key("shards", Kind::Integer { min: 1, max: 256 }, "16", "Number of shards: a power of two, at most the number of addresses of each pool. All nodes have the same number for the life of the cluster.").default("the largest power of two up to 64 for which each pool has an address for each shard"),
    key("lease", Kind::Duration, "\"5s\"", "Time after which a silent node loses its shards to their backups; at least 1 s. Meanwhile the backups translate the node's sessions, and assign own ports.").default("\"5s\""),
    key("hold", Kind::Duration, "\"5m\"", "Time for which a node goes on without etcd and without the other holder of a shard; at least four leases. After it, the node may be replaced.").default("\"5m\""),
    key("vni", Kind::Integer { min: 0, max: Tunnel::VNI_MAX }, "4_096", "VXLAN network identifier of packets between the nodes. Further realms of ports use the identifiers after it.").default("4_096"),
    key("port", Kind::Integer { min: 1, max: 65_535 }, "4_789", "UDP port of packets between the nodes.").default("4_789"),
    key("tunnel_mtu", Kind::Integer { min: 0, max: 65_535 }, "1_600", "Largest packet that the network between the nodes carries, with the outer headers of 50 (IPv4) or 70 (IPv6) bytes; at least 1,350. A larger packet that has to go to another node gets Packet Too Big, or is fragmented.").default("1_500"),
    key("own_ports", Kind::Integer { min: 0, max: 32_000 }, "4_096", "Number of ports at each end of each public address that only one holder of its shard ever assigns. A backup assigns these only. At most half of the address's ports. All nodes have the same number. A change needs a restart of all nodes.").default("4_096"),
    key("packets", Kind::Integer { min: 1, max: 128 }, "3", "Number of packets, both directions together, after which the backup gets a UDP session or an ICMP query. Shorter sessions do not outlive their node. The backup gets a TCP session with the second SYN.").default("3"),
    key("dead_after", Kind::Duration, "\"1s\"", "Time without a byte of another node after which the connection to it is closed; 200 ms to 1 min. Packets go past a silent node earlier.").default("\"1s\""),
    key("away_after", Kind::Duration, "\"10s\"", "Time without a connection after which the lifetimes of another node's sessions begin here.").default("\"10s\""),
    key("nodes", Kind::Tables(NODES), "[{ name = \"a\", peer = \"192.0.2.11:7465\", tunnel = \"198.51.100.1\" }]", "Nodes: all of them, in the configuration of each. At least one."),
];

/// `[[cluster.nodes]]`
const NODES: &[Key] = &[
    key("name", NODE_NAME, "\"a\"", "Name of the node, which its certificate has, too.").required(),
    key("peer", ENDPOINT, "\"192.0.2.11:7465\"", "Address and TCP port of the node, at which the other nodes connect.").required(),
    key("tunnel", IP_ADDRESS, "\"198.51.100.1\"", "Tunnel address of the node: other nodes send packets of its shards there. It is an address of the translator, not of the host, as `own4`: `routes = \"auto\"` leads it to the device, and `[announce]` announces it. The tunnel addresses of all nodes are of one family.").required(),
    key("api", DAEMON, "\"https://a.example.net:8443\"", "Address of the node's API, as its `[api]` `listen_tls`; `gatun who` at any node asks all nodes there. A Unix socket for a node on the same host.").default("none"),
    key("weight", Kind::Integer { min: 0, max: 1_000 }, "1", "Relative number of shards that the node gets. 0: it gets none, and redirects all packets.").default("1"),
];
