//! Keys of events, exports, the log, the API, metrics, state, the fast path, announced routes and the peer.

use super::forms::{
    COLLECTOR, DAEMON, DIRECTORY, ENDPOINT, EVENT_KIND, FILE, FOLDER, GROUP, HOST_NAME, INTERFACE, LISTEN,
    NAME, NET, PATH, SIZE, SWITCH,
};
use super::kind::{Key, Kind, key};
use super::words::{
    EXPORT_FORMAT, KERNEL, OFFLOAD_KIND, OFFLOAD_ON_STOP, ON_STOP, P4_PROGRAM, PAIR_MODE, PEER_MEMBER, words,
};

/// `[events]`
pub(crate) const EVENTS: &[Key] = &[
    key("file", FILE, "\"/var/log/gatun/events.json\"", "Destination: a file, to which lines are appended and which is created again after it was moved away (log rotation), or `\"stdout\"`.").required(),
    key("kinds", Kind::List(&EVENT_KIND), "[\"block_assigned\", \"block_released\"]", "Kinds of events to write. Lost events are always reported.").default("blocks, quotas, exhausted pools and thresholds"),
    key("destinations", Kind::Flag, "false", "Includes the remote address and port in session events (RFC 6888 REQ-12 advises against it).").default("false"),
    key("ring", Kind::Integer { min: 64, max: 1 << 24 }, "65_536", "Maximum number of events that wait to be written, per worker. Further events are lost, and their number is reported. Packets never wait for events.").default("65_536"),
    key("threshold", Kind::Integer { min: 11, max: 100 }, "90", "Usage of a pool's ports, of sessions or of subscribers that raises a threshold event, percent. The event is cleared ten percent below.").default("90"),
];

/// `[log]`
pub(crate) const LOG: &[Key] = &[
    key("directory", FOLDER, "\"/var/lib/gatun/log\"", "Directory of the log. Gatun creates it. Only one daemon may write to it.").default("\"/var/lib/gatun/log\""),
    key("retention", Kind::Duration, "\"180d\"", "Retention time. Gatun removes a file once all its records are older. Records of open port blocks and bindings are kept.").default("unlimited"),
    key("size_max", SIZE, "\"50GiB\"", "Maximum size of the log. The oldest files are removed first.").default("unlimited"),
    key("bindings", Kind::Flag, "true", "Logs each binding. Port blocks are always logged and carry the same information in far fewer records.").default("true if a pool allocates single ports"),
];

/// `[[export]]`
pub(crate) const EXPORT: &[Key] = &[
    key("name", NAME, "\"collector\"", "Name of the collector, used in metrics and for the files of the spool.").default("\"export1\", \"export2\", ..."),
    key("to", COLLECTOR, "\"tcp:192.0.2.10:4739\"", "Address: `udp:ADDRESS:PORT`, `tcp:ADDRESS:PORT`, or `unix:PATH` for a datagram socket such as /dev/log.").required(),
    key("format", Kind::Words(|| words(EXPORT_FORMAT)), "\"ipfix\"", "Format: `ipfix` (RFC 7011, with the events of RFC 8158), `syslog` (RFC 5424; over TCP with octet counting, RFC 6587), or `json`, one object per line.").default("\"ipfix\""),
    key("kinds", Kind::List(&EVENT_KIND), "[\"block_assigned\", \"block_released\"]", "Kinds of events to export. Lost events are always reported.").default("blocks, quotas, exhausted pools and thresholds"),
    key("destinations", Kind::Flag, "false", "Includes the remote address and port in session events (RFC 6888 REQ-12 advises against it).").default("false"),
    key("domain", Kind::Integer { min: 0, max: u32::MAX }, "1", "`ipfix`: observation domain.").default("1"),
    key("templates", Kind::Duration, "\"5m\"", "`ipfix` over UDP: interval between templates, at least one second. Over TCP, templates are sent once per connection.").default("\"5m\""),
    key("queue", Kind::Integer { min: 64, max: 1 << 24 }, "65_536", "Maximum number of events that wait to be sent. Further events are lost, counted and reported in the stream.").default("65_536"),
    key("spool", FOLDER, "\"/var/lib/gatun/spool\"", "Directory for events while the collector is unreachable or slow. They are sent later, after a restart too. Not with UDP, which does not report losses.").default("none"),
    key("spool_max", SIZE, "\"1GiB\"", "Maximum size of the spool. Further events are lost, counted and reported in the stream.").default("\"1GiB\""),
];

/// `[api]`
pub(crate) const API: &[Key] = &[
    key("listen", LISTEN, "\"unix:/run/gatun/api.sock\"", "Unix socket: `unix:` and its path. Gatun creates the directory. `\"off\"` disables it. If the default socket cannot be created, Gatun logs that and runs without.").default("\"unix:/run/gatun/api.sock\", if it can be created"),
    key("group", GROUP, "\"netops\"", "Group whose members may use the socket: a name or a number. The mode of the socket is 0660.").default("none: the owner of the socket and root only"),
    key("listen_tls", Kind::List(&ENDPOINT), "\"[::1]:8443\"", "Addresses and TCP ports of the API under TLS, for clients with a token (see docs/reference/api.md). Needs `certificate`, `key` and `tokens`.").default("[]"),
    key("certificate", PATH, "\"/etc/gatun/api.crt\"", "Certificate chain for `listen_tls`, PEM. `gatun token certificate` makes a certificate."),
    key("key", PATH, "\"/etc/gatun/api.key\"", "Private key of the certificate, PEM."),
    key("tokens", PATH, "\"/etc/gatun/tokens\"", "Tokens for `listen_tls`: names, roles and hashes, as `gatun token add` writes them. Gatun reads this file, the certificate and the key again at each reload."),
];

/// `[metrics]`
pub(crate) const METRICS: &[Key] =
    &[key("listen", ENDPOINT, "\"[::1]:9464\"", "Address and port for `GET /metrics`.").required()];

/// `[state]`
pub(crate) const STATE: &[Key] = &[
    key("directory", DIRECTORY, "\"/run/gatun/state\"", "Directory in memory (tmpfs), one for each daemon. Gatun creates it and, if permitted, mounts a file system with huge pages there. `\"off\"` disables it: a restart ends all sessions. If the default directory cannot be used, Gatun logs that and runs without.").default("\"/run/gatun/state\", if it can be used"),
];

/// `[announce]`
pub(crate) const ANNOUNCE: &[Key] = &[
    key("table", Kind::Integer { min: 1, max: u32::MAX }, "186", "Table of routes to the networks that Gatun translates: each `pool6`, each prefix of a `pool`, the IPv4 side of each mapping and the own addresses, as `routes = \"auto\"` of a port. Without a rule for this table, the kernel does not forward by it.").default("186"),
    key("backup_table", Kind::Integer { min: 1, max: u32::MAX }, "187", "Table of the networks that another box owns and this one backs, in a pair or a cluster.").default("187"),
    key("device", INTERFACE, "\"gatun-routes\"", "Name of the device that the routes lead to. It carries no packets. Gatun creates it, and the kernel deletes it when the daemon ends in any way.").default("\"gatun-routes\""),
    key("stall", Kind::Duration, "\"1s\"", "Time without an answer of a worker, or without a sign of life of the whole daemon, after which the routes are withdrawn; at least 200 ms.").default("\"1s\""),
    key("return_after", Kind::Duration, "\"3s\"", "Time for which Gatun must be healthy before withdrawn routes come back.").default("\"3s\""),
    key("links", Kind::List(&INTERFACE), "[\"eth0\", \"eth1\"]", "Interfaces of the kernel that lead to the clients and servers, if they are no ports of Gatun. The routes are withdrawn while one of them has no link, and a node of a cluster gives its shards away.").default("[]"),
    key("tracked_routes", Kind::List(&NET), "[\"0.0.0.0/0\", \"2001:db8::/32\"]", "Destinations to which the kernel's main table must have a route, as the routing daemon has learnt them from the routers; at most 32. While one has none, packets get lost here: the routes are withdrawn, and a node of a cluster gives its shards away. So BFD's verdict about a link that has a carrier and carries nothing counts for both directions.").default("[]"),
    key("withdraw_exhausted", Kind::Flag, "true", "Withdraws the routes while a pool has no free port. Existing sessions then lose their path, unless another box has them: use it only if others announce the same networks and have ports of their own.").default("false"),
];

/// `[peer]`
pub(crate) const PEER: &[Key] = &[
    key("member", Kind::Words(|| words(PEER_MEMBER)), "\"a\"", "Member of the pair that this box is. The other box is the other one.").required(),
    key("mode", Kind::Words(|| words(PAIR_MODE)), "\"active-active\"", "`active-standby`: when the pair begins, `a` owns all public addresses, and `b` backs them. `active-active`: `a` owns the first half of each worker's addresses of a pool, and `b` the second half; each backs the other half.").default("\"active-standby\""),
    key("listen", ENDPOINT, "\"192.0.2.12:7464\"", "Address and TCP port at which the peer connects. At least one of `listen` and `connect`.").default("none"),
    key("connect", ENDPOINT, "\"192.0.2.13:7464\"", "Address and TCP port of the peer. With both keys, both boxes try, and one connection is used.").default("none"),
    key("api", DAEMON, "\"https://b.example.net:8443\"", "Address of the other box's API, as its `[api]` `listen_tls`; `gatun who` asks both boxes. A Unix socket for a box on the same host.").default("none"),
    key("directory", FOLDER, "\"/etc/gatun/peer\"", "Directory with `ca.pem`, `certificate.pem` and `key.pem`, as `gatun peer init` makes them. Gatun reads them again at each reload.").default("\"/etc/gatun/peer\""),
    key("own_ports", Kind::Integer { min: 0, max: 32_000 }, "4_096", "Number of ports at each end of each public address that only one of the boxes ever assigns: `a` those at the lower end, `b` those at the upper end. A box that backs an address assigns these only, also while the boxes have lost each other. At most half of the address's ports. A change needs a restart of both boxes.").default("4_096"),
    key("packets", Kind::Integer { min: 1, max: 128 }, "3", "Number of packets, both directions together, after which the peer gets a UDP session or an ICMP query. Shorter sessions do not outlive their box. The peer gets a TCP session with the second SYN.").default("3"),
    key("dead_after", Kind::Duration, "\"1s\"", "Time without a byte of the peer after which the connection is closed; at least 200 ms.").default("\"1s\""),
    key("away_after", Kind::Duration, "\"10s\"", "Time without a connection after which the lifetimes of the peer's sessions begin here.").default("\"10s\""),
];

/// `[fastpath]`
pub(crate) const FASTPATH: &[Key] = &[
    key("kernel", Kind::Words(|| words(KERNEL)), "\"auto\"", "`auto`: a program in the kernel translates packets of established TCP and UDP sessions, if the kernel supports it; otherwise the log and `gatun doctor` give the reason, and Gatun translates all packets itself. `off`: Gatun translates all packets itself. A reload switches it off, and on again if it was on at the start.").default("\"off\""),
    key("xdp", Kind::List(&INTERFACE), "[\"eth0\", \"eth1\"]", "Network interfaces at which packets of sessions in the kernel are translated before the network stack, for routers that forward many small packets between cards. Such packets skip netfilter, connection tracking and the reverse-path filter (see docs/how-to/fastpath.md). The driver must support XDP. Not for interfaces of AF_XDP ports. A change needs a restart.").default("[]"),
    key("directory", FOLDER, "\"/run/gatun/fastpath\"", "Directory of the kernel's tables, one for each daemon. Gatun creates it and, if permitted, mounts a bpffs there. The tables outlive the process: the sessions of a killed daemon continue.").default("\"/run/gatun/fastpath\""),
    key("sessions_max", Kind::Integer { min: 16, max: 1 << 24 }, "65_536", "Number of sessions that the kernel has room for, each about 400 bytes of kernel memory. Gatun translates further sessions itself.").default("65_536"),
    key("udp_packets", Kind::Integer { min: 1, max: 128 }, "10", "Number of packets, both directions together, after which a UDP session is given to the kernel.").default("10"),
    key("tcp_packets", Kind::Integer { min: 0, max: 128 }, "10", "The same for a TCP session, after both sides have sent a SYN. 0: at once. Gatun translates short connections itself, which costs less.").default("10"),
    key("lease", Kind::Duration, "\"10s\"", "Time for which the kernel translates without the daemon, at least one second. A running daemon renews it. After it, the program passes all packets to the device.").default("\"10s\""),
    key("on_stop", Kind::Words(|| words(ON_STOP)), "\"detach\"", "When the daemon is stopped by SIGTERM: `detach` removes all sessions from the kernel, and the program. `keep` leaves them for the next daemon. With `mode = \"attach\"`, the kernel translates them meanwhile, until the lease ends. A device that Gatun created goes at the stop: nothing is translated until the next daemon has one, and finds the sessions.").default("\"detach\""),
];

/// `[[offload]]`
pub(crate) const OFFLOAD: &[Key] = &[
    key("name", NAME, "\"edge\"", "Name for operators.").default("\"p4\""),
    key("kind", Kind::Words(|| words(OFFLOAD_KIND)), "\"p4runtime\"", "Kind: `p4runtime`, switches with Gatun's P4 program (`p4/`).").required(),
    key("switches", Kind::List(&SWITCH), "[\"edge at 192.0.2.7:9559\"]", "Switches, at most four: name, address of the P4Runtime server, and `device NUMBER` if it is not device 1. All of them have the same sessions, so any of them can fail. A port of the daemon with `switch_port` is connected to each switch's port for its controller. A change needs a restart.").required(),
    key("certificates", FOLDER, "\"/etc/gatun/p4\"", "Directory with `ca.pem`, the authority of the switches' certificates, and `certificate.pem` and `key.pem`, which a switch may ask Gatun for. Connections use TLS 1.3 then. Gatun reads the files again for each connection. Without the key there is no TLS: use a loopback address or a network of your own. A change needs a restart.").default("none"),
    key("server_name", HOST_NAME, "\"edge.example\"", "Name or address in the certificates of the switches. Default: the address of each switch. A change needs a restart."),
    key("program", Kind::Words(|| words(P4_PROGRAM)), "\"dpdk\"", "Program for a switch that has none: Gatun's for `dpdk` (`gatun p4 switch`) or for `bmv2` (`simple_switch_grpc`). `installed`: the switch has Gatun's program already. An earlier version of Gatun's program is replaced. A change needs a restart.").default("\"dpdk\""),
    key("p4info", PATH, "\"/etc/gatun/gatun.p4info.txt\"", "Instead of `program`: description of the program, as p4c writes it. Needs `program_file`. A change needs a restart."),
    key("program_file", PATH, "\"/etc/gatun/gatun.spec\"", "Instead of `program`: the program in the form of the switch. Needs `p4info`. A change needs a restart."),
    key("replace_program", Kind::Flag, "false", "Replaces a program of somebody else in the switch, and removes all its entries. `false`: such a switch gets no sessions, and `gatun show offload` says why. A change needs a restart.").default("false"),
    key("election", Kind::Integer { min: 1, max: u32::MAX }, "1", "Rank among controllers of the switches: the one with the highest number is the primary. Of two with the same number, the one that was started later is. A change needs a restart.").default("1"),
    key("timeout", Kind::Duration, "\"5s\"", "Time for an answer of a switch, at least 100 ms. After it, Gatun connects again and reads all that the switch has. A change needs a restart.").default("\"5s\""),
    key("sessions_max", Kind::Integer { min: 16, max: 1 << 24 }, "1_048_576", "Maximum number of sessions in the switches; the size of their tables is another limit. Gatun translates further sessions itself.").default("1_048_576"),
    key("udp_packets", Kind::Integer { min: 1, max: 128 }, "10", "Number of packets, both directions together, after which a UDP session or a ping is given to the switches. A change needs a restart.").default("10"),
    key("tcp_packets", Kind::Integer { min: 0, max: 128 }, "10", "The same for a TCP session, after both sides have sent a SYN. 0: at once. Gatun translates short connections itself, which costs less. A change needs a restart.").default("10"),
    key("controller_rate", Kind::Integer { min: 0, max: 100_000_000 }, "500_000", "Maximum number of packets per second that a switch gives to Gatun for each reason, so that a flood of one kind leaves room for the others. The switch drops further ones, and counts them (`over_limit` in `gatun show offload`). A tenth of them may come at once. 0: no limit. A change needs a restart.").default("500_000"),
    key("on_stop", Kind::Words(|| words(OFFLOAD_ON_STOP)), "\"remove\"", "When the daemon is stopped by SIGTERM: `remove` removes all sessions from the switches. `keep` leaves them for the next daemon. A switch has no lease: it translates them until a daemon comes.").default("\"remove\""),
];
