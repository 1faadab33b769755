//! List of all sections and keys of the configuration file. The reader refuses keys that are not in it; the
//! schema and the reference page are generated from it.
//!
//! ```text
//!   kind <- forms, words <- port, pool, translator, limits, instance, cluster, daemon <- FILE_KEYS
//! ```

mod cluster;
mod daemon;
mod forms;
mod instance;
mod kind;
mod limits;
mod pool;
mod port;
mod translator;
mod words;

use cluster::CLUSTER;
use daemon::{ANNOUNCE, API, EVENTS, EXPORT, FASTPATH, LOG, METRICS, OFFLOAD, PEER, STATE};
use instance::{NAT44, NAT64, SIIT};
use kind::key;
use limits::{ICMP, LIMITS};
use pool::POOL;
use port::{DPDK, PORT, WORKERS};
use translator::TRANSLATOR;

pub(crate) use kind::{Key, Kind, find};
pub(crate) use limits::TIMEOUTS;
pub(crate) use words::{
    ALLOCATION, Allocation, BACKEND, BLOCK_PROTOCOLS, Backend, ERROR_SOURCE, EXPORT_FORMAT, FILTERING,
    HAIRPIN, HUGE_PAGES, KERNEL, MODE, Mode, OFFLOAD_KIND, OFFLOAD_ON_STOP, ON_STOP, P4_PROGRAM, PAIR_MODE,
    PAIRING, PEER_MEMBER, POOL_MODE, PROTOCOL, SUBSCRIBER, SUBSCRIBER4, ZERO_CHECKSUM,
};
pub use words::{ExportFormat, HugePages, P4Program, PairMode, PeerMember};

/// Keys that a later version will read, and the present alternative.
pub(crate) const LATER: &[(&str, &str)] = &[("pcp", "remove the section; `static` bindings open ports")];

/// The sections of the file.
pub(crate) const FILE_KEYS: &[Key] = &[
    key(
        "port",
        Kind::Tables(PORT),
        "[{ backend = \"tun\" }]",
        "Devices that packets are received from and sent to. Without this section, Gatun makes one TUN device `gatun0` with the defaults below.",
    ),
    key(
        "workers",
        Kind::Table(WORKERS),
        "{ cores = [2, 3] }",
        "Threads that translate packets: one for each of a port's `queues`.",
    ),
    key(
        "dpdk",
        Kind::Table(DPDK),
        "{ huge_pages = \"always\" }",
        "DPDK's environment, for ports with `backend = \"dpdk\"`. Defaults depend on the machine.",
    ),
    key(
        "pool",
        Kind::Tables(POOL),
        "[{ prefixes = [\"192.0.2.0/28\"] }]",
        "Public IPv4 addresses and ports for stateful translation (pool4).",
    ),
    key(
        "nat64",
        Kind::Tables(NAT64),
        "[{ pool6 = \"64:ff9b::/96\" }]",
        "Stateful NAT64 (RFC 6146): many IPv6 hosts share the addresses of a pool. One section per instance.",
    ),
    key(
        "nat44",
        Kind::Tables(NAT44),
        "[{ inside = [\"100.64.0.0/10\"] }]",
        "NAT44 for many subscribers (RFC 6888): private IPv4 hosts share the addresses of a pool. One section per instance; a pool may serve NAT64 and NAT44 instances at once.",
    ),
    key(
        "siit",
        Kind::Tables(SIIT),
        "[{ pool6 = \"2001:db8:46::/96\" }]",
        "Stateless translation (RFC 7915), optionally with explicit address mappings (RFC 7757). One section per instance.",
    ),
    key(
        "translator",
        Kind::Table(TRANSLATOR),
        "{ mtu4 = 1500 }",
        "Addresses of the translator, and header translation for all instances. `mtu4` and the keys after it may also be set in a `[[nat64]]` or `[[siit]]` section (in `[[nat44]]`: `mtu4` and `tcp_mss_max`), for that instance only.",
    ),
    key(
        "limits",
        Kind::Table(LIMITS),
        "{ sessions_max = 1_000_000 }",
        "Sizes of tables. Gatun takes all memory at its start. When a limit is reached, new state is refused and counted; existing sessions continue.",
    ),
    key(
        "timeouts",
        Kind::Table(TIMEOUTS),
        "{ udp = \"5m\" }",
        "Idle times of all stateful instances. `timeouts` of an instance take precedence.",
    ),
    key("icmp", Kind::Table(ICMP), "{ rate = 1000 }", "ICMP errors that Gatun sends."),
    key(
        "events",
        Kind::Table(EVENTS),
        "{ file = \"stdout\" }",
        "Events of sessions, port blocks and limits, one JSON object per line. Without this section none are written.",
    ),
    key(
        "export",
        Kind::Tables(EXPORT),
        "[{ to = \"udp:192.0.2.10:4739\" }]",
        "Collectors of events: IPFIX, syslog or JSON (see docs/how-to/logging.md). Packets never wait for a collector.",
    ),
    key(
        "log",
        Kind::Table(LOG),
        "{ directory = \"/var/lib/gatun/log\" }",
        "Log on disk of the owners of public ports, for `gatun who ADDRESS:PORT --at TIME` (see docs/how-to/logging.md). Without this section no log is kept.",
    ),
    key(
        "api",
        Kind::Table(API),
        "{ listen = \"unix:/run/gatun/api.sock\" }",
        "HTTP API, used by `gatun show` and other commands and by programs (see docs/reference/api.md). Nothing listens on TCP unless `listen_tls` is set.",
    ),
    key(
        "metrics",
        Kind::Table(METRICS),
        "{ listen = \"[::1]:9464\" }",
        "Metrics for Prometheus on TCP, without authentication. Without this section they are at the API's socket only (see docs/reference/metrics.md).",
    ),
    key(
        "state",
        Kind::Table(STATE),
        "{ directory = \"/run/gatun/state\" }",
        "Sessions that outlive the process: after a stop or a kill, the next process continues them (see docs/how-to/restart.md).",
    ),
    key(
        "fastpath",
        Kind::Table(FASTPATH),
        "{ kernel = \"auto\" }",
        "Translation of established sessions, and of stateless instances, in the kernel, for a TUN device (see docs/how-to/fastpath.md).",
    ),
    key(
        "offload",
        Kind::Tables(OFFLOAD),
        "[{ kind = \"p4runtime\", switches = [\"edge at 192.0.2.7:9559\"] }]",
        "Translation of established sessions in P4 switches, which Gatun controls over P4Runtime (see docs/how-to/p4.md). At most one section.",
    ),
    key(
        "announce",
        Kind::Table(ANNOUNCE),
        "{ table = 186 }",
        "Routes to the translated networks in tables of their own, for a routing daemon on this host to announce while Gatun is healthy (see docs/how-to/announce.md). They vanish with the daemon, even after `kill -9`. A change of this section needs a restart.",
    ),
    key(
        "peer",
        Kind::Table(PEER),
        "{ member = \"a\", connect = \"192.0.2.13:7464\" }",
        "Another box with the same configuration: each has the sessions of both, so one goes on with the other's connections (see docs/how-to/pair.md). Both need the same instances, pools, limits and number of workers; the log and `gatun peer status` name the keys that differ. Not with `[[offload]]`. A change of this section needs a restart.",
    ),
    key(
        "cluster",
        Kind::Table(CLUSTER),
        "{ etcd = \"http://192.0.2.21:2379\" }",
        "Up to 64 boxes with the same configuration, coordinated by etcd: each shard of the public addresses has an owner and a backup among them, and any of them can fail (see docs/how-to/cluster.md). Needs `own4` outside of the pools. Not with `[peer]`, `[[offload]]`, and the kernel fast path. A change of this section needs a restart.",
    ),
];
