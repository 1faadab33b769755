//! Every section and key of the configuration file, once: the reader refuses what is not listed here, and
//! the schema and the reference page are made from it.

use crate::sections::dpdk::HugePages;
use crate::sections::export::ExportFormat;
use gatun_nat::EventKind;
use gatun_nat::plan::{
    BlockProtocols, Blocks, Filtering, Hairpin, IcmpErrorSource, IcmpPoolMode, Pairing, Transport,
};
use gatun_wire::rfc7915::ZeroChecksum;

/// A key of a table.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) required: bool,
    /// What holds where the key is not written, in TOML or in words.
    pub(crate) default: &'static str,
    /// A right value, in TOML.
    pub(crate) example: &'static str,
    /// Markdown.
    pub(crate) doc: &'static str,
}

/// What a key holds.
#[derive(Debug)]
pub(crate) enum Kind {
    /// true or false.
    Flag,
    /// A string in a form that the documentation and a regular expression describe.
    Text { form: &'static str, pattern: &'static str },
    /// A whole number.
    Integer { min: u32, max: u32 },
    /// A whole number of bytes, or a string with a unit.
    Bytes { min: u32, max: u32 },
    /// A time span.
    Duration,
    /// One of some words.
    Words(fn() -> Vec<&'static str>),
    /// "copy", or a whole number.
    CopyOr { min: u32, max: u32 },
    /// A list of such values, or one of them.
    List(&'static Kind),
    /// "auto", false, or a list of such values.
    AutoOr(&'static Kind),
    /// A port, or a range of ports.
    Ports,
    /// A port of a remote host, with a protocol or without.
    RemotePort,
    /// A table.
    Table(&'static [Key]),
    /// A list of tables.
    Tables(&'static [Key]),
    /// A word, or a table with that word as its `kind`, and these keys.
    WordOrTable(&'static [Key]),
}

impl Key {
    /// `key = example`, or a header where the key is a table.
    pub(crate) fn example_line(&self) -> String {
        format!("{} = {}", self.name, self.example)
    }
}

/// The key of that name.
pub(crate) fn find<'k>(keys: &'k [Key], name: &str) -> Option<&'k Key> {
    keys.iter().find(|key| key.name == name)
}

/// Keys of the design that this version does not read yet, and what to do meanwhile.
pub(crate) const LATER: &[(&str, &str)] = &[("pcp", "take the section out; `static` bindings open ports")];

// The words of the keys that have words, beside what they mean.
pub(crate) const BACKEND: &[(&str, Backend)] =
    &[("tun", Backend::Tun), ("xdp", Backend::Xdp), ("dpdk", Backend::Dpdk), ("pcap", Backend::Pcap)];
pub(crate) const MODE: &[(&str, Mode)] = &[
    ("create", Mode::Create),
    ("attach", Mode::Attach),
    ("auto", Mode::Auto),
    ("native", Mode::Native),
    ("skb", Mode::Skb),
];
pub(crate) const HUGE_PAGES: &[(&str, HugePages)] =
    &[("auto", HugePages::Auto), ("always", HugePages::Always), ("never", HugePages::Never)];
pub(crate) const EXPORT_FORMAT: &[(&str, ExportFormat)] =
    &[("ipfix", ExportFormat::Ipfix), ("syslog", ExportFormat::Syslog), ("json", ExportFormat::Json)];
pub(crate) const PROTOCOL: &[(&str, Transport)] =
    &[named(Transport::Tcp), named(Transport::Udp), named(Transport::Icmp)];
const fn named(transport: Transport) -> (&'static str, Transport) {
    (transport.name(), transport)
}
pub(crate) const PAIRING: &[(&str, Pairing)] = &[("soft", Pairing::Soft), ("hard", Pairing::Hard)];
pub(crate) const ALLOCATION: &[(&str, Allocation)] = &[
    ("random", Allocation::Random),
    ("blocks", Allocation::Blocks),
    ("deterministic", Allocation::Deterministic),
];
pub(crate) const BLOCK_PROTOCOLS: &[(&str, BlockProtocols)] =
    &[("shared", BlockProtocols::Shared), ("split", BlockProtocols::Split)];
pub(crate) const SUBSCRIBER: &[(&str, u8)] = &[("/128", 128), ("/64", 64), ("/56", 56), ("/48", 48)];
pub(crate) const SUBSCRIBER4: &[(&str, u8)] = &[
    ("/32", 32),
    ("/31", 31),
    ("/30", 30),
    ("/29", 29),
    ("/28", 28),
    ("/27", 27),
    ("/26", 26),
    ("/25", 25),
    ("/24", 24),
];
pub(crate) const FILTERING: &[(&str, Filtering)] = &[
    ("endpoint-independent", Filtering::EndpointIndependent),
    ("address-dependent", Filtering::AddressDependent),
    ("address-and-port-dependent", Filtering::AddressAndPortDependent),
];
pub(crate) const ERROR_SOURCE: &[(&str, IcmpErrorSource)] =
    &[("router", IcmpErrorSource::Router), ("inner-destination", IcmpErrorSource::InnerDestination)];
pub(crate) const HAIRPIN: &[(&str, Hairpin)] =
    &[("intrinsic", Hairpin::Intrinsic), ("simple", Hairpin::Simple), ("off", Hairpin::Off)];
pub(crate) const POOL_MODE: &[(&str, IcmpPoolMode)] =
    &[("hash", IcmpPoolMode::Hash), ("hop-limit", IcmpPoolMode::HopLimit)];
pub(crate) const ZERO_CHECKSUM: &[(&str, ZeroChecksum)] =
    &[("compute", ZeroChecksum::Compute), ("drop", ZeroChecksum::Drop), ("forward", ZeroChecksum::Forward)];

/// What a port's packets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Tun,
    Xdp,
    Dpdk,
    Pcap,
}

/// How a TUN device comes to be, or where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Create,
    Attach,
    Auto,
    Native,
    Skb,
}

/// How ports are given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    Random,
    Blocks,
    Deterministic,
}

fn words<T>(list: &[(&'static str, T)]) -> Vec<&'static str> {
    list.iter().map(|(word, _)| *word).collect()
}

const fn key(name: &'static str, kind: Kind, example: &'static str, doc: &'static str) -> Key {
    Key { name, kind, required: false, default: "", example, doc }
}

impl Key {
    const fn default(mut self, default: &'static str) -> Key {
        self.default = default;
        self
    }

    const fn required(mut self) -> Key {
        self.required = true;
        self
    }
}

const NAME: Kind = Kind::Text { form: "name", pattern: "^[A-Za-z0-9._-]{1,63}$" };
const DEVICE: Kind = Kind::Text {
    form: "device name",
    pattern: "^([A-Za-z0-9._@-]{1,15}|[0-9A-Fa-f:.]{7,12}|(net|eth)_[!-~]{1,251})$",
};
const ARGUMENT: Kind = Kind::Text { form: "argument", pattern: "^-[!-~]+$" };
const FILE: Kind = Kind::Text { form: "file name", pattern: "^.+$" };
const FOLDER: Kind = Kind::Text { form: "directory, a path from / on", pattern: "^/.*$" };
const COLLECTOR: Kind =
    Kind::Text { form: "udp:ADDRESS:PORT, tcp:ADDRESS:PORT or unix:PATH", pattern: "^(udp|tcp|unix):.+$" };
const SIZE: Kind = Kind::Text { form: "size, as 50GiB", pattern: "^[0-9]+ *(MiB|GiB|TiB)$" };
const ADDRESS4: Kind = Kind::Text { form: "IPv4 address", pattern: "^[0-9.]+$" };
const ADDRESS6: Kind = Kind::Text { form: "IPv6 address", pattern: "^[0-9A-Fa-f:.]+$" };
const ADDRESS: Kind = Kind::Text { form: "address/length", pattern: "^[0-9A-Fa-f:.]+(/[0-9]+)?$" };
const ROUTE: Kind = Kind::Text {
    form: "prefix, or prefix via next hop",
    pattern: "^[0-9A-Fa-f:.]+(/[0-9]+)?( via [0-9A-Fa-f:.]+)?$",
};
const NEIGHBOUR: Kind =
    Kind::Text { form: "address at MAC", pattern: "^[0-9A-Fa-f:.]+ at [0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$" };
const NET4: Kind = Kind::Text { form: "IPv4 prefix", pattern: "^[0-9.]+(/[0-9]+)?$" };
const NET6: Kind = Kind::Text { form: "IPv6 prefix", pattern: "^[0-9A-Fa-f:.]+(/[0-9]+)?$" };
const NET: Kind = Kind::Text { form: "IPv6 or IPv4 prefix", pattern: "^[0-9A-Fa-f:.]+(/[0-9]+)?$" };
const RANGE4: Kind = Kind::Text { form: "IPv4 prefix or range", pattern: "^[0-9.]+(/[0-9]+| *- *[0-9.]+)?$" };
const POOL6: Kind = Kind::Text { form: "IPv6 prefix", pattern: "^[0-9A-Fa-f:.]+/(32|40|48|56|64|96)$" };
const ENDPOINT4: Kind = Kind::Text { form: "IPv4 address:port", pattern: "^[0-9.]+:[0-9]+( *- *[0-9]+)?$" };
const LISTEN: Kind = Kind::Text { form: "unix:PATH, or \"off\"", pattern: "^(unix:/.*[^/]|off)$" };
const PATH: Kind = Kind::Text { form: "file, a path from / on", pattern: "^/.*[^/]$" };
const DIRECTORY: Kind = Kind::Text { form: "directory, or \"off\"", pattern: "^(/.*[^/].*|off)$" };
const GROUP: Kind = Kind::Text { form: "group", pattern: "^[A-Za-z0-9_.$-]{1,32}$" };
const ENDPOINT: Kind =
    Kind::Text { form: "address:port", pattern: "^([0-9.]+|\\[[0-9A-Fa-f:.]+\\]):[0-9]+$" };
const ENDPOINT6: Kind =
    Kind::Text { form: "[IPv6 address]:port", pattern: "^\\[[0-9A-Fa-f:.]+\\]:[0-9]+( *- *[0-9]+)?$" };
const EVENT_KIND: Kind = Kind::Words(|| EventKind::ALL.iter().map(|kind| kind.name()).collect());
const PROTOCOL_KIND: Kind = Kind::Words(|| words(PROTOCOL));
const REASON: Kind = Kind::Words(|| gatun_wire::DropReason::ALL.iter().map(|r| r.name()).collect());

/// The sections of the file.
pub(crate) const FILE_KEYS: &[Key] = &[
    key(
        "port",
        Kind::Tables(PORT),
        "[{ backend = \"tun\" }]",
        "Where packets come from and go to. Without any, one TUN device `gatun0` with the defaults below is made.",
    ),
    key(
        "workers",
        Kind::Table(WORKERS),
        "{ cores = [2, 3] }",
        "The threads that packets are translated on: one for each of a port's `queues`.",
    ),
    key(
        "dpdk",
        Kind::Table(DPDK),
        "{ huge_pages = \"always\" }",
        "DPDK's environment, where ports have `backend = \"dpdk\"`. What is not written here follows from the machine.",
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
        "Stateful NAT64 (RFC 6146): many IPv6 hosts share the addresses of a pool. One section an instance.",
    ),
    key(
        "nat44",
        Kind::Tables(NAT44),
        "[{ inside = [\"100.64.0.0/10\"] }]",
        "NAT44 for many subscribers (RFC 6888): private IPv4 hosts share the addresses of a pool. One section an instance; a pool may serve NAT64 and NAT44 instances at once.",
    ),
    key(
        "siit",
        Kind::Tables(SIIT),
        "[{ pool6 = \"2001:db8:46::/96\" }]",
        "Stateless translation (RFC 7915), with explicit address mappings (RFC 7757) where wanted. One section an instance.",
    ),
    key(
        "translator",
        Kind::Table(TRANSLATOR),
        "{ mtu4 = 1500 }",
        "Own addresses, and how headers are translated. What is set here holds for every instance; `mtu4` and the keys after it can also stand in a `[[nat64]]` or `[[siit]]` section (in `[[nat44]]`, `mtu4` and `tcp_mss_max`), for that instance alone.",
    ),
    key(
        "limits",
        Kind::Table(LIMITS),
        "{ sessions_max = 1_000_000 }",
        "Sizes of tables. All memory is taken at start; reaching a limit drops what is new, is counted, and harms nobody who has a session already.",
    ),
    key(
        "timeouts",
        Kind::Table(TIMEOUTS),
        "{ udp = \"5m\" }",
        "Lifetimes without traffic. What is set here holds for every stateful instance; its own `timeouts` come before it.",
    ),
    key("icmp", Kind::Table(ICMP), "{ rate = 1000 }", "ICMP errors that Gatun itself makes."),
    key(
        "events",
        Kind::Table(EVENTS),
        "{ file = \"stdout\" }",
        "What happens to sessions, port blocks and limits, one JSON object a line. Without this section nothing is told.",
    ),
    key(
        "export",
        Kind::Tables(EXPORT),
        "[{ to = \"udp:192.0.2.10:4739\" }]",
        "Collectors of events: IPFIX, syslog or JSON (see docs/how-to/logging.md). None of them is waited for.",
    ),
    key(
        "log",
        Kind::Table(LOG),
        "{ directory = \"/var/lib/gatun/log\" }",
        "A log on disk of who had which public port when, which `gatun who ADDRESS:PORT --at TIME` searches (see docs/how-to/logging.md). Without this section nothing is kept.",
    ),
    key(
        "api",
        Kind::Table(API),
        "{ listen = \"unix:/run/gatun/api.sock\" }",
        "Where the daemon is asked: by `gatun show` and other commands, and by programs, in HTTP (see docs/reference/api.md). Nothing listens on TCP unless `listen_tls` says so.",
    ),
    key(
        "metrics",
        Kind::Table(METRICS),
        "{ listen = \"[::1]:9464\" }",
        "Metrics for Prometheus on TCP, for all who reach it; without this section at the API's socket alone (see docs/reference/metrics.md).",
    ),
    key(
        "state",
        Kind::Table(STATE),
        "{ directory = \"/run/gatun/state\" }",
        "Where sessions are kept for the next process: one that begins where another was stopped or killed goes on with them (see docs/how-to/restart.md).",
    ),
];

/// `[[port]]`
pub(crate) const PORT: &[Key] = &[
    key("name", NAME, "\"wan\"", "For operators.").default("the device's name"),
    key("backend", Kind::Words(|| words(BACKEND)), "\"tun\"", "What is behind it. `tun` is a TUN device of the Linux kernel, `xdp` a network interface through AF_XDP (see docs/how-to/xdp.md), `dpdk` a device of DPDK (see docs/how-to/dpdk.md). All ports have the same.").default("\"tun\""),
    key("device", DEVICE, "\"gatun0\"", "The device's name in the system, at most 15 bytes. `xdp`: the interface; `dpdk`: a card's address on its bus, or a driver's name with a number and its arguments, as in `net_memif0,role=client,socket=/run/memif.sock`. Several ports on one device differ in `vlan`.").default("\"gatun0\", \"gatun1\", ...; none for `xdp` and `dpdk`"),
    key("mode", Kind::Words(|| words(MODE)), "\"create\"", "`tun`: `create` makes the device and takes it away again at the end; `attach` uses a persistent one that exists (`ip tuntap add mode tun ...`), which needs no privilege where the device belongs to the user (`user NAME`), is up, and has the MTU, the addresses and the routes already. `xdp`: `native` runs the XDP program in the driver, `skb` before the kernel's stack, `auto` in the driver where that can.").default("\"create\"; \"auto\" for `xdp`"),
    key("queues", Kind::Integer { min: 1, max: 256 }, "2", "Queues of the device, each served by one worker. With `[[nat64]]` or `[[nat44]]` each worker has public addresses of its own, at least one of each pool; packets go to the worker that has their session. `xdp`: as many as the interface has. `dpdk`: as many as wanted, up to what the device has.").default("one a processor; one where there is state, and for `xdp` and `dpdk`"),
    key("addresses", Kind::List(&ADDRESS), "[\"192.0.2.1/24\", \"2001:db8::1/64\"]", "`tun`: addresses that the kernel gets on the device. They are the kernel's, not the translator's: see `own4` and `own6`. `xdp`, `dpdk`: the translator's addresses on the link, which answer ARP, neighbour discovery and pings; the kernel keeps its own.").default("[]"),
    key("routes", Kind::AutoOr(&ROUTE), "\"auto\"", "`tun`: routes to the device. `\"auto\"` adds those to each `pool6`, each prefix of a `pool`, the IPv4 side of each mapping and the own addresses, neighbours joined; a list adds those in the list; `false` adds none. `xdp`, `dpdk`: where the translator sends what is not on the link, for example `\"0.0.0.0/0 via 198.51.100.1\"`; without `via` the prefix is on the link.").default("\"auto\"; none for `xdp` and `dpdk`"),
    key("precede_routes", Kind::Flag, "true", "`tun`, `mode = \"create\"`: whether the device gets its routes even where the host has a route to the same network, as to a LAN whose whole prefix is a pool's. `false`: `gatun run` refuses to start and names the host's route; a reload leaves that route as it is. `true`: packets go to the device, and the log names the host's route, which stays in the table behind the device's and holds again as soon as the device is gone. Gatun's end takes the device away; where a stateful translator was killed, the device stays for the next start, or until `ip link delete`.").default("false"),
    key("mtu", Kind::Integer { min: 1280, max: 65_535 }, "1500", "`tun`: MTU of the device in bytes. `xdp`: the largest IP packet that is sent. `dpdk`: also what the device is set to, where it can be.").default("the larger of `mtu4` and `mtu6`; the device's for `xdp` and `dpdk`"),
    key("offload", Kind::Flag, "true", "`tun`: whether segments of up to 64 KB pass as one packet (TSO, USO). Off is many times slower, and for finding faults only.").default("true"),
    key("udp_gro", Kind::Flag, "false", "`tun`: whether UDP datagrams of one flow that come one after another go back to the kernel together, which takes them through its stack as one (generic receive offload): up to twice as many packets a second of one flow. Needs Linux 6.2. Each datagram leaves the host as it came, but some kernels spoil what they have to cut: `gatun doctor` knows those of Linux 7.0 to 7.1.4. See decisions/0013-udp-together.md for what is not joined.").default("false"),
    key("vlan", Kind::List(&Kind::Integer { min: 1, max: 4094 }), "7", "`xdp`, `dpdk`: the VLAN of the port's frames (802.1Q), or two of them, the outer one (802.1ad) first.").default("none"),
    key("neighbours", Kind::List(&NEIGHBOUR), "[\"198.51.100.1 at 02:00:00:00:00:01\"]", "`xdp`, `dpdk`: neighbours, next hops among them, that are neither asked for by ARP or neighbour discovery nor believed when they speak of themselves: for links on which nobody answers, or not everybody is trusted. All others are asked for.").default("[]"),
    key("answers", Kind::AutoOr(&ADDRESS), "\"auto\"", "`xdp`, `dpdk`: what else ARP and neighbour discovery answer for. `\"auto\"`: what of pools, prefixes, mappings and own addresses lies in a network of `addresses`, as nobody routes there.").default("\"auto\""),
];

/// `[workers]`
pub(crate) const WORKERS: &[Key] = &[
    key("cores", Kind::List(&Kind::Integer { min: 0, max: 1023 }), "[2, 3]", "Processors of the workers, one for each, by the system's numbers: a worker stays on its own one, and whatever else the daemon does is done on others, where there are any. Changing it needs a restart.").default("`dpdk`: the last ones that the process may use; else where the system puts them"),
];

/// `[dpdk]`
pub(crate) const DPDK: &[Key] = &[
    key("huge_pages", Kind::Words(|| words(HUGE_PAGES)), "\"always\"", "What packet buffers lie on: `auto`, huge pages where enough are free; `always`, or it does not start; `never`. Without them packets cost more, and network cards may not work.").default("\"auto\""),
    key("eal", Kind::List(&ARGUMENT), "[\"--log-level=pmd:debug\"]", "Further arguments of DPDK's environment, passed on as they are, behind Gatun's own.").default("[]"),
];

/// `[[pool]]`
pub(crate) const POOL: &[Key] = &[
    key("name", NAME, "\"res\"", "For operators, and for `pool` in `[[nat64]]` and `[[nat44]]`.").default("\"pool1\", \"pool2\", ..."),
    key("prefixes", Kind::List(&RANGE4), "[\"192.0.2.0/28\", \"198.51.100.7-198.51.100.9\"]", "Its addresses: prefixes, single addresses, or ranges. All of them are used, the first and the last of a prefix too. Each takes 768 KB of memory, of every worker."),
    key("ports", Kind::List(&Kind::Ports), "\"1024-65535\"", "Ports (for ICMP: identifiers) of these addresses.").default("\"1024-65535\""),
    key("protocols", Kind::List(&PROTOCOL_KIND), "[\"tcp\", \"udp\", \"icmp\"]", "Protocols that these ports are for.").default("all three"),
    key("ranges", Kind::Tables(RANGE), "[{ prefixes = \"192.0.2.7\", ports = \"80-443\", protocols = \"tcp\" }]", "More addresses with ports and protocols of their own, where one set does not fit all."),
    key("pairing", Kind::Words(|| words(PAIRING)), "\"soft\"", "A subscriber keeps one public address. Where it has no port left: `soft` takes another address and counts it, `hard` drops (RFC 7857 4).").default("\"soft\""),
    key("port_parity", Kind::Flag, "true", "Whether an even port is given for an even one and an odd for an odd, where one is free (RFC 4787 REQ-4; RFC 7857 8 allows `false`).").default("true"),
    key("port_class", Kind::Flag, "true", "Whether a port below 1024 is given for one below 1024, and one from 1024 on for others, where one is free (RFC 4787 REQ-3). Blocks have no class.").default("true"),
    key("allocation", Kind::WordOrTable(ALLOCATION_KEYS), "{ kind = \"blocks\", size = 256 }", "How ports are given out: `random`, one by one over the whole address; in `blocks`, so that one log record tells of many ports; or `deterministic`, by a formula that needs no log (RFC 7422). A word, or a table with that word as `kind`.").default("\"random\""),
    key("overload", Kind::List(&Kind::RemotePort), "[443, \"udp/123\"]", "Remote ports, of TCP and UDP or of the protocol in front: flows to these share public ports with others of their subscriber, as long as no two go to the same remote address and port. Saves ports; such a flow is reached by nobody else, and no binding is made for it. Who sees one flow knows the port of others: leave `53` out where inside hosts resolve names by themselves (RFC 5452).").default("[]"),
];

/// `allocation` in `[[pool]]`
pub(crate) const ALLOCATION_KEYS: &[Key] = &[
    key("kind", Kind::Words(|| words(ALLOCATION)), "\"blocks\"", "As above.").required(),
    key("size", Kind::Integer { min: Blocks::SIZE_MIN as u32, max: Blocks::SIZE_MAX as u32 }, "256", "Blocks: ports of each, a power of two. A block begins at a multiple of its size; ports that fill no block are not given out.").default("256"),
    key("blocks_per_subscriber", Kind::Integer { min: 1, max: 1024 }, "4", "Blocks: how many a subscriber may have at a time; the next one is given when the last one is full. Deterministic: so many from the overflow, beside its own.").default("4"),
    key("protocols", Kind::Words(|| words(BLOCK_PROTOCOLS)), "\"shared\"", "Blocks: whether a block is for TCP, UDP and ICMP together, or each has its own.").default("\"shared\""),
    key("linger", Kind::Duration, "\"2m\"", "Blocks: how long a block that has become empty is kept for its subscriber.").default("\"2m\""),
    key("hold", Kind::Duration, "\"120s\"", "How long what was given back is given to nobody else (RFC 6888 REQ-8); `\"0s\"` for not at all. Ports of TCP alone and of instances that filter by address are exempt.").default("\"120s\""),
    key("hold_max", Kind::Integer { min: 0, max: 1 << 28 }, "16_384", "Ports that are held so at a time; where there are more, the one held longest is free again.").default("16_384 for `random`, no bound for blocks"),
    key("inside", Kind::List(&NET), "[\"2001:db8::/48\"]", "Deterministic: the subscribers that have a block of their own, in order; each is as long as the instance's `subscriber` says (an IPv4 subscriber is an address)."),
    key("overflow", Kind::Integer { min: 0, max: 2047 }, "8", "Deterministic: how many blocks of each address, its last ones, are for those who need more than their own.").default("0"),
];

/// `ranges` in `[[pool]]`
pub(crate) const RANGE: &[Key] = &[
    key("prefixes", Kind::List(&RANGE4), "\"192.0.2.7\"", "As in `[[pool]]`.").required(),
    key("ports", Kind::List(&Kind::Ports), "\"80-443\"", "As in `[[pool]]`.").default("\"1024-65535\""),
    key("protocols", Kind::List(&PROTOCOL_KIND), "\"tcp\"", "As in `[[pool]]`.").default("all three"),
];

/// `[[nat64]]`
pub(crate) const NAT64: &[Key] = &[
    key("name", NAME, "\"default\"", "For operators.").default("\"nat64-1\", \"nat64-2\", ..."),
    key("pool6", Kind::List(&POOL6), "\"64:ff9b::/96\"", "Translation prefixes (RFC 6052), of length 32, 40, 48, 56, 64 or 96: IPv6 hosts reach IPv4 addresses inside them.").required(),
    key("pool", NAME, "\"res\"", "The `[[pool]]` that gives public addresses.").default("the pool, where there is only one"),
    key("sources", Kind::List(&NET6), "[\"2001:db8::/32\"]", "IPv6 prefixes that are served; packets from others are dropped. Instances that share a `pool6` and their ports are told apart by these.").default("all"),
    key("ports", Kind::List(&NAME), "[\"customer-a\"]", "`xdp`, `dpdk`: names of the `[[port]]`s, and so interfaces and VLANs, that its IPv6 hosts are behind: packets of others are not its. Hosts behind the ports of two instances may have the same addresses, and these the same `pool6`. Addresses and IPv6 routes of such a port are for its instances alone.").default("all that no other `[[nat64]]` names"),
    key("subscriber", Kind::Words(|| words(SUBSCRIBER)), "\"/64\"", "What one subscriber is: the unit of pairing and of the limits per subscriber.").default("\"/64\""),
    key("filtering", Kind::Words(|| words(FILTERING)), "\"endpoint-independent\"", "Who may send to a binding from outside: anybody, only addresses that the inside host has sent to, or only those addresses and ports (RFC 4787 5).").default("\"endpoint-independent\""),
    key("external_tcp", Kind::Flag, "true", "Whether TCP connections may be opened from outside to a binding.").default("true"),
    key("static", Kind::Tables(STATIC), "[{ protocol = \"tcp\", inside = \"[2001:db8::1]:80\", outside = \"192.0.2.1:80\" }]", "Bindings that always exist. Their outside ports need not be among the pool's `ports`."),
    key("icmp_error_source", Kind::Words(|| words(ERROR_SOURCE)), "\"router\"", "Source of a translated ICMPv4 error: the `router` that sent it, so that traceroute shows the path, or the `inner-destination` (RFC 6146 3.6.1 to the letter).").default("\"router\""),
    key("inbound_refresh", Kind::Flag, "true", "Whether packets from outside keep a session alive (RFC 6146 3.5.1; RFC 7857 7 would have `false`).").default("true"),
    key("rst_during_fin", Kind::Flag, "false", "Whether a reset after one side's FIN shortens the session's life (not in RFC 6146).").default("false"),
    key("icmp_queries", Kind::Flag, "true", "Whether ping is translated.").default("true"),
    key("wkp_non_global", Kind::Flag, "false", "Whether `64:ff9b::/96` may stand for private IPv4 addresses, against RFC 6052 3.1.").default("false"),
    key("timeouts", Kind::Table(TIMEOUTS), "{ udp = \"2m\" }", "As `[timeouts]`, for this instance.").default("those of `[timeouts]`"),
    MTU4, MTU6, LOWEST_MTU6, MSS_MAX, TOS, TRAFFIC_CLASS, ZERO_UDP, ERROR4_MAX,
];

/// `[[nat44]]`
pub(crate) const NAT44: &[Key] = &[
    key("name", NAME, "\"cgn\"", "For operators.").default("\"nat44-1\", \"nat44-2\", ..."),
    key("inside", Kind::List(&NET4), "[\"100.64.0.0/10\"]", "Private networks: packets from them are translated. No two instances share one, unless they name other `ports`, and none lies in a pool.").required(),
    key("ports", Kind::List(&NAME), "[\"customer-a\"]", "`xdp`, `dpdk`: names of the `[[port]]`s, and so interfaces and VLANs, that its hosts are behind: packets of others are not its. Hosts behind the ports of two instances may have the same addresses. Addresses and IPv4 routes of such a port are for its instances alone.").default("all that no other `[[nat44]]` names"),
    key("pool", NAME, "\"res\"", "The `[[pool]]` that gives public addresses.").default("the pool, where there is only one"),
    key("exempt", Kind::Tables(EXEMPT), "[{ prefixes = [\"10.0.0.0/8\"] }]", "Destinations to which packets pass untranslated (RFC 6888 REQ-6). Those in `inside` are exempt always."),
    key("subscriber", Kind::Words(|| words(SUBSCRIBER4)), "\"/32\"", "What one subscriber is: the unit of pairing and of the limits per subscriber.").default("\"/32\""),
    key("filtering", Kind::Words(|| words(FILTERING)), "\"endpoint-independent\"", "As in `[[nat64]]`.").default("\"endpoint-independent\""),
    key("external_tcp", Kind::Flag, "true", "As in `[[nat64]]`.").default("true"),
    key("static", Kind::Tables(STATIC4), "[{ protocol = \"tcp\", inside = \"100.64.0.2:80\", outside = \"192.0.2.1:80\" }]", "Bindings that always exist. Their outside ports need not be among the pool's `ports`."),
    key("inbound_refresh", Kind::Flag, "false", "Whether packets from outside keep a session alive (RFC 4787 REQ-6 allows it, RFC 7857 7 advises against it).").default("false"),
    key("icmp_queries", Kind::Flag, "true", "Whether ping is translated.").default("true"),
    key("timeouts", Kind::Table(TIMEOUTS), "{ udp = \"2m\" }", "As `[timeouts]`, for this instance.").default("those of `[timeouts]`"),
    MTU4, MSS_MAX,
];

/// `exempt` in `[[nat44]]`
pub(crate) const EXEMPT: &[Key] = &[
    key("prefixes", Kind::List(&NET4), "[\"10.0.0.0/8\"]", "Destinations.").required(),
    key("protocol", PROTOCOL_KIND, "\"udp\"", "Only this protocol.").default("all"),
    key("ports", Kind::List(&Kind::Ports), "\"53\"", "Only these destination ports.")
        .default("all, and packets without ports"),
];

const STATIC_PROTOCOL: Key = key("protocol", PROTOCOL_KIND, "\"tcp\"", "Its protocol.").required();

const STATIC_OUTSIDE: Key = key(
    "outside",
    ENDPOINT4,
    "\"192.0.2.1:80\"",
    "Outside address and port, or as many in a row as inside; the address is one of the pool's. A port block that one of them lies in is given to no subscriber.",
)
.required();

/// `static` in `[[nat44]]`
pub(crate) const STATIC4: &[Key] = &[
    STATIC_PROTOCOL,
    key(
        "inside",
        ENDPOINT4,
        "\"100.64.0.2:80\"",
        "Inside address and port (for icmp: identifier), or several in a row: `\"100.64.0.2:8000-8010\"`.",
    )
    .required(),
    STATIC_OUTSIDE,
];

/// `static` in `[[nat64]]`
pub(crate) const STATIC: &[Key] = &[
    STATIC_PROTOCOL,
    key(
        "inside",
        ENDPOINT6,
        "\"[2001:db8::1]:80\"",
        "Inside address and port (for icmp: identifier), or several in a row: `\"[2001:db8::1]:8000-8010\"`.",
    )
    .required(),
    STATIC_OUTSIDE,
];

/// `[[siit]]`
pub(crate) const SIIT: &[Key] = &[
    key("name", NAME, "\"servers\"", "For operators.").default("\"siit-1\", \"siit-2\", ..."),
    key("pool6", Kind::List(&POOL6), "\"2001:db8:46::/96\"", "Translation prefixes (RFC 6052). IPv4 addresses without mapping get an IPv6 address in the first one.").default("none: only mapped addresses are translated"),
    key("eam", Kind::Tables(EAM), "[{ v4 = \"203.0.113.5\", v6 = \"2001:db8::5\" }]", "Explicit address mappings (RFC 7757). The longest match wins, on each side by itself. A list whose entries all look like the example may be of any length; of anything else, a file holds 8 MiB at most."),
    key("eam_file", Kind::List(&FILE), "\"mappings.txt\"", "Files with more mappings: an IPv4 and an IPv6 prefix a line, `#` begins a comment. A path that does not begin with `/` starts at the configuration file's directory."),
    key("allow_overlap", Kind::Flag, "false", "Whether a mapping may lie inside another one (RFC 7757 3.1). A packet and its answer can then be translated by different mappings.").default("false"),
    key("hairpin", Kind::Words(|| words(HAIRPIN)), "\"intrinsic\"", "How mapped hosts reach each other by their IPv4 addresses (RFC 7757 4): inside Gatun, by a router behind it (`simple`), or not at all.").default("\"intrinsic\""),
    key("denylist4", Kind::List(&NET4), "[\"192.0.2.0/24\"]", "IPv4 addresses that are never translated, mapped or not: it beats `eam` and `pool6`.").default("[]"),
    key("denylist6", Kind::List(&NET6), "[\"2001:db8:1::/48\"]", "IPv6 addresses that are never translated, mapped or not: it beats `eam` and `pool6`.").default("[]"),
    key("icmp_pool4", Kind::List(&NET4), "[\"198.51.100.0/28\"]", "Sources for ICMPv4 errors whose IPv6 source has no IPv4 address (RFC 6791).").default("`own4`"),
    key("icmp_pool4_mode", Kind::Words(|| words(POOL_MODE)), "\"hash\"", "How one of them is chosen: by a hash of the router's address, or by its distance.").default("\"hash\""),
    key("icmp_pool6", Kind::List(&NET6), "[\"2001:db8:6791::/64\"]", "Sources for ICMPv6 errors whose IPv4 source has no IPv6 address.").default("`own6`"),
    key("wkp_non_global", Kind::Flag, "false", "Whether `64:ff9b::/96` may stand for private IPv4 addresses, against RFC 6052 3.1.").default("false"),
    MTU4, MTU6, LOWEST_MTU6, MSS_MAX, TOS, TRAFFIC_CLASS, ZERO_UDP, ERROR4_MAX,
];

/// `eam` in `[[siit]]`
pub(crate) const EAM: &[Key] = &[
    key("v4", NET4, "\"203.0.113.5\"", "IPv4 side: a prefix or an address.").required(),
    key(
        "v6",
        NET6,
        "\"2001:db8::5\"",
        "IPv6 side: a prefix that leaves at least as many bits free as the IPv4 one.",
    )
    .required(),
];

const MTU4: Key = key(
    "mtu4",
    Kind::Integer { min: 68, max: 65_535 },
    "1500",
    "MTU of the next hop on the IPv4 side, bytes.",
)
.default("1500");
const MTU6: Key = key(
    "mtu6",
    Kind::Integer { min: 1280, max: 65_535 },
    "1500",
    "MTU of the next hop on the IPv6 side, bytes.",
)
.default("1500");
const MSS_MAX: Key = key("tcp_mss_max", Kind::Integer { min: 536, max: 65_535 }, "1360", "The largest TCP segment size that a SYN may announce, bytes, in either direction: larger ones are lowered to it, so that no segment has to be cut or refused on its way. `65535` leaves them alone.").default("what both MTUs carry");
const LOWEST_MTU6: Key = key("lowest_ipv6_mtu", Kind::Integer { min: 1280, max: 65_535 }, "1280", "The smallest MTU on the IPv6 side: IPv4 packets that may be fragmented become IPv6 packets of at most so many bytes (RFC 7915 4).").default("1280");
const TOS: Key = key(
    "tos",
    Kind::CopyOr { min: 0, max: 255 },
    "\"copy\"",
    "The TOS byte of IPv4 packets: a copy of the traffic class (RFC 7915 5.1), or a constant.",
)
.default("\"copy\"");
const TRAFFIC_CLASS: Key = key(
    "traffic_class",
    Kind::CopyOr { min: 0, max: 255 },
    "\"copy\"",
    "The traffic class of IPv6 packets: a copy of the TOS byte (RFC 7915 4.1), or a constant.",
)
.default("\"copy\"");
const ZERO_UDP: Key = key("udp_zero_checksum", Kind::Words(|| words(ZERO_CHECKSUM)), "\"compute\"", "IPv4 UDP packets without checksum: `compute` one, `drop` them, or `forward` them without (RFC 6935: only between tunnel ends that agreed on it).").default("\"compute\"");
const ERROR4_MAX: Key = key(
    "icmp4_error_max",
    Kind::Integer { min: 68, max: 1500 },
    "576",
    "Longest ICMPv4 error made, bytes (RFC 1812 4.3.2.3).",
)
.default("576");

/// `[translator]`
pub(crate) const TRANSLATOR: &[Key] = &[
    key("own4", ADDRESS4, "\"192.0.2.1\"", "The translator's IPv4 address: source of the ICMPv4 errors it makes. It answers pings; UDP to it gets Port Unreachable, TCP is dropped, and nothing to it is translated (`own_udp`, `own_proto`, `own_other`). It may lie in a pool, whose ports and `static` bindings come first.").default("the second address of the first pool"),
    key("own6", ADDRESS6, "\"64:ff9b::192.0.2.1\"", "The translator's IPv6 address: source of the ICMPv6 errors it makes, and as `own4` for the rest. It may lie in a `pool6`.").default("`own4` inside the first `pool6`"),
    MTU4, MTU6, LOWEST_MTU6, MSS_MAX, TOS, TRAFFIC_CLASS, ZERO_UDP, ERROR4_MAX,
];

/// `[limits]`
pub(crate) const LIMITS: &[Key] = &[
    key("sessions_max", Kind::Integer { min: 1, max: 268_435_456 }, "1_000_000", "Sessions.")
        .default("262_144"),
    key("sessions_reserved", Kind::Integer { min: 0, max: 90 }, "25", "Last part of `sessions_max`, in percent, reserved for subscribers with few sessions. 0 reserves none: then a few greedy subscribers lock out all others.").default("25"),
    key("sessions_reserved_below", Kind::Integer { min: 1, max: 268_435_456 }, "64", "Subscribers with fewer sessions may use the reserve. `gatun check` says how many greedy subscribers fill the table.").default("a 1024th of the reserve, 4 to 64"),
    key("subscribers_max", Kind::Integer { min: 1, max: 268_435_456 }, "65_536", "Subscribers with state.")
        .default("65_536"),
    key(
        "sessions_per_subscriber",
        Kind::Integer { min: 1, max: 268_435_456 },
        "4000",
        "Sessions of one subscriber.",
    )
    .default("16_384"),
    key(
        "ports_per_subscriber",
        Kind::Integer { min: 1, max: 196_608 },
        "1024",
        "Ports of one subscriber, all protocols together (RFC 6888 REQ-4).",
    )
    .default("4_096"),
    key("tcp_ports_per_subscriber", Kind::Integer { min: 0, max: 65_535 }, "1024", "Of these, for TCP.")
        .default("65_535"),
    key("udp_ports_per_subscriber", Kind::Integer { min: 0, max: 65_535 }, "1024", "Of these, for UDP.")
        .default("65_535"),
    key(
        "icmp_ports_per_subscriber",
        Kind::Integer { min: 0, max: 65_535 },
        "64",
        "Of these, identifiers of ICMP.",
    )
    .default("65_535"),
    key(
        "session_rate_per_subscriber",
        Kind::Integer { min: 0, max: 10_000_000 },
        "500",
        "New sessions a second of one subscriber (RFC 6888 REQ-4, REQ-5); 0 is no limit.",
    )
    .default("0"),
    key(
        "session_burst_per_subscriber",
        Kind::Integer { min: 1, max: 10_000_000 },
        "2000",
        "New sessions at once of one subscriber, where there is a rate.",
    )
    .default("1_000"),
    key(
        "syn_store_max",
        Kind::Integer { min: 1, max: 1_048_576 },
        "1024",
        "Connection attempts from outside that are held for six seconds (RFC 5382 REQ-4).",
    )
    .default("1_024"),
    key(
        "path_mtus_max",
        Kind::Integer { min: 0, max: 1_048_576 },
        "4096",
        "IPv4 hosts behind a path of less than 1260 bytes that are remembered, for ten minutes each: packets to them are cut to what the path carries. `0` remembers none.",
    )
    .default("4_096"),
    key(
        "fragment_entries_max",
        Kind::Integer { min: 1, max: 1_048_576 },
        "2048",
        "Fragmented packets followed at a time.",
    )
    .default("2_048"),
    key(
        "fragment_bytes_max",
        Kind::Bytes { min: 65_536, max: 1 << 30 },
        "\"4MiB\"",
        "Memory for fragments that wait for their first one: bytes, or with a unit (KiB, MiB, GiB).",
    )
    .default("\"4MiB\""),
    key(
        "fragments_per_source",
        Kind::Integer { min: 1, max: 65_536 },
        "128",
        "Fragments that wait and fragmented packets followed, of one subscriber, or of one outside address.",
    )
    .default("128"),
];

/// `[timeouts]`
pub(crate) const TIMEOUTS: &[Key] = &[
    key("udp", Kind::Duration, "\"5m\"", "UDP sessions; RFC 4787 REQ-5 wants at least `2m`.").default("\"5m\""),
    key("tcp_established", Kind::Duration, "\"2h4m\"", "Open TCP connections; RFC 5382 REQ-5 wants at least `2h4m`.").default("\"2h4m\""),
    key("tcp_transitory", Kind::Duration, "\"4m\"", "TCP connections that open, close or were reset; RFC 5382 REQ-5 wants at least `4m`.").default("\"4m\""),
    key("tcp_partial_open", Kind::Duration, "\"4m\"", "TCP connections that open (RFC 7857 2.1).").default("as `tcp_transitory`"),
    key("tcp_closing", Kind::Duration, "\"4m\"", "TCP connections that both sides have closed (RFC 7857 2.1).").default("as `tcp_transitory`"),
    key("tcp_incoming_syn", Kind::Duration, "\"6s\"", "How long an unsolicited connection attempt from outside waits for the inside host's own; RFC 5382 REQ-4 wants at least `6s`.").default("\"6s\""),
    key("icmp", Kind::Duration, "\"60s\"", "Ping sessions; RFC 5508 REQ-2 wants at least `60s`.").default("\"60s\""),
    key("fragment", Kind::Duration, "\"2s\"", "How long fragments wait for their first one; RFC 6146 3.4 wants at least `2s`.").default("\"2s\""),
];

/// `[icmp]`
pub(crate) const ICMP: &[Key] = &[
    key("rate", Kind::Integer { min: 0, max: 1_000_000 }, "1000", "Errors a second; 0 sends none.")
        .default("1000"),
    key("burst", Kind::Integer { min: 1, max: 1_000_000 }, "200", "Errors at once. The last quarter is reserved for Packet Too Big and Fragmentation Needed.").default("200"),
    key("rate_per_source", Kind::Integer { min: 0, max: 1_000_000 }, "100", "Errors a second to one receiver: a subscriber, or else a /64 or an IPv4 address. 0 sets no limit per receiver.").default("a tenth of `rate`, at least 1"),
    key("burst_per_source", Kind::Integer { min: 1, max: 1_000_000 }, "50", "Errors at once to one receiver. The last quarter is reserved as in `burst`.").default("a quarter of `burst`, at least 1"),
    key(
        "suppress",
        Kind::List(&REASON),
        "[\"no_bib\"]",
        "Reasons for a drop, by name, that are not answered with an error, in either direction. All others are, where RFC 7915 4.4 and 5.4 or another RFC want it: `wkp_nonglobal`, `dst_not_pref64` and `udp_zero_csum` too.",
    )
    .default("[]"),
    key("quota_code6", Kind::Integer { min: 0, max: 6 }, "1", "Code of the ICMPv6 Destination Unreachable that tells a host that a limit of its subscriber is reached: 1 is \"administratively prohibited\".").default("1"),
    key("quota_code4", Kind::Integer { min: 0, max: 15 }, "1", "The same of ICMPv4: 1 is \"host unreachable\" (RFC 6888 REQ-11), 13 \"administratively prohibited\".").default("1"),
];

/// `[events]`
pub(crate) const EVENTS: &[Key] = &[
    key("file", FILE, "\"/var/log/gatun/events.json\"", "Where they go: a file, to which lines are added, and which is begun anew where it was moved away (log rotation), or `\"stdout\"`.").required(),
    key("kinds", Kind::List(&EVENT_KIND), "[\"block_assigned\", \"block_released\"]", "Which are told. That events were lost is always told.").default("blocks, quotas, exhausted pools and thresholds"),
    key("destinations", Kind::Flag, "false", "Whether the events of sessions tell the remote address and port (RFC 6888 REQ-12: not unless it has to be).").default("false"),
    key("ring", Kind::Integer { min: 64, max: 1 << 24 }, "65_536", "Events that wait to be written, for each worker; packets never wait for them. More are lost, and how many is told.").default("65_536"),
    key("threshold", Kind::Integer { min: 11, max: 100 }, "90", "How full a pool's ports, the sessions or the subscribers are, of a hundred, when it is told; and again when they are ten below.").default("90"),
];

/// `[log]`
pub(crate) const LOG: &[Key] = &[
    key("directory", FOLDER, "\"/var/lib/gatun/log\"", "The directory of its files; it is made where there is none. One daemon writes to it.").default("\"/var/lib/gatun/log\""),
    key("retention", Kind::Duration, "\"180d\"", "How long it is kept: whole files are taken away once all in them is older. What is open then is kept on.").default("for ever"),
    key("size_max", SIZE, "\"50GiB\"", "How much it may be; the oldest files go first.").default("no bound"),
    key("bindings", Kind::Flag, "true", "Whether each binding is logged. Blocks of ports are logged in any case, and tell as much in far fewer records.").default("true where a pool gives out ports one by one"),
];

/// `[[export]]`
pub(crate) const EXPORT: &[Key] = &[
    key("name", NAME, "\"collector\"", "For operators, in metrics, and of the spool's files.").default("\"export1\", \"export2\", ..."),
    key("to", COLLECTOR, "\"tcp:192.0.2.10:4739\"", "Where it is: `udp:ADDRESS:PORT`, `tcp:ADDRESS:PORT`, or `unix:PATH` of a socket of datagrams such as /dev/log.").required(),
    key("format", Kind::Words(|| words(EXPORT_FORMAT)), "\"ipfix\"", "`ipfix` (RFC 7011, with the events of RFC 8158), `syslog` (RFC 5424; over TCP with octet counts, RFC 6587) or `json`, an object a line.").default("\"ipfix\""),
    key("kinds", Kind::List(&EVENT_KIND), "[\"block_assigned\", \"block_released\"]", "Which events it gets. That events were lost is always told.").default("blocks, quotas, exhausted pools and thresholds"),
    key("destinations", Kind::Flag, "false", "Whether the events of sessions tell the remote address and port (RFC 6888 REQ-12: not unless it has to be).").default("false"),
    key("domain", Kind::Integer { min: 0, max: u32::MAX }, "1", "`ipfix`: the observation domain.").default("1"),
    key("templates", Kind::Duration, "\"5m\"", "`ipfix` over UDP: how often templates are sent again, from one second on; over TCP a connection begins with them.").default("\"5m\""),
    key("queue", Kind::Integer { min: 64, max: 1 << 24 }, "65_536", "Events that wait to be sent; more are lost, counted, and told in the stream.").default("65_536"),
    key("spool", FOLDER, "\"/var/lib/gatun/spool\"", "A directory for events while the collector is away or slow; they are sent once it is back, also after a restart. Not with UDP, which does not tell.").default("none"),
    key("spool_max", SIZE, "\"1GiB\"", "How much is spooled; more is lost, counted, and told in the stream.").default("\"1GiB\""),
];

/// `[api]`
pub(crate) const API: &[Key] = &[
    key("listen", LISTEN, "\"unix:/run/gatun/api.sock\"", "The Unix socket, `unix:` and its path; its directory is made where there is none. `\"off\"`: none. What is not written here is no error where it cannot be made: the log says so.").default("\"unix:/run/gatun/api.sock\", where it can be made"),
    key("group", GROUP, "\"netops\"", "The group whose members may use the socket: a name or a number. Its mode is 0660.").default("the socket's owner alone, and root"),
    key("listen_tls", Kind::List(&ENDPOINT), "\"[::1]:8443\"", "Addresses and ports on TCP where the API is served under TLS, to whoever has a token (see docs/reference/api.md). It needs `certificate`, `key` and `tokens`.").default("[], so none"),
    key("certificate", PATH, "\"/etc/gatun/api.crt\"", "The certificate for `listen_tls`, and those between it and its root, in PEM. `gatun token certificate` makes one."),
    key("key", PATH, "\"/etc/gatun/api.key\"", "Its private key, in PEM."),
    key("tokens", PATH, "\"/etc/gatun/tokens\"", "Who may ask at `listen_tls`: names, roles and hashes, as `gatun token add` writes them. This file, the certificate and the key are read again at each reload."),
];

/// `[metrics]`
pub(crate) const METRICS: &[Key] =
    &[key("listen", ENDPOINT, "\"[::1]:9464\"", "Address and port for `GET /metrics`.").required()];

/// `[state]`
pub(crate) const STATE: &[Key] = &[
    key("directory", DIRECTORY, "\"/run/gatun/state\"", "A directory in memory (tmpfs), each daemon's its own; it is made where there is none, and where gatun may, a file system on huge pages is mounted there. `\"off\"`: none, and a restart ends all sessions. What is not written here is no error where it cannot be had: the log says so.").default("\"/run/gatun/state\", where it can be had"),
];
