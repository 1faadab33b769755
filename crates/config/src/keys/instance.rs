//! Keys of instances: NAT64, NAT44 and SIIT.

use super::forms::{ENDPOINT4, ENDPOINT6, FILE, NAME, NET4, NET6, POOL6, PROTOCOL_KIND};
use super::kind::{Key, Kind, key};
use super::limits::TIMEOUTS;
use super::translator::{ERROR4_MAX, LOWEST_MTU6, MSS_MAX, MTU4, MTU6, TOS, TRAFFIC_CLASS, ZERO_UDP};
use super::words::{ERROR_SOURCE, FILTERING, HAIRPIN, POOL_MODE, SUBSCRIBER, SUBSCRIBER4, words};

/// Keys of several kinds of instances.
const POOL_NAME: Key = key("pool", NAME, "\"res\"", "Name of the `[[pool]]` with the public addresses.")
    .default("the only pool");
const ICMP_QUERIES: Key = key("icmp_queries", Kind::Flag, "true", "Translates ping.").default("true");
const FASTPATH: Key = key(
    "fastpath",
    Kind::Flag,
    "true",
    "Lets the kernel translate established sessions of this instance, if `[fastpath]` is on.",
)
.default("true");
const OFFLOAD: Key = key(
    "offload",
    Kind::Flag,
    "true",
    "Lets P4 switches translate established sessions of this instance, if there is an `[[offload]]`.",
)
.default("true");
const WKP_NON_GLOBAL: Key = key(
    "wkp_non_global",
    Kind::Flag,
    "false",
    "Allows `64:ff9b::/96` to embed private IPv4 addresses, against RFC 6052 3.1.",
)
.default("false");
const INSTANCE_TIMEOUTS: Key = key(
    "timeouts",
    Kind::Table(TIMEOUTS),
    "{ udp = \"2m\" }",
    "Timeouts of this instance; keys as in `[timeouts]`.",
)
.default("those of `[timeouts]`");

const NAME_HELP: &str = "Name of the instance.";
const SUBSCRIBER_HELP: &str =
    "Prefix length of one subscriber. Pairing and the limits per subscriber apply to each.";
const STATIC_HELP: &str = "Static bindings. Their outside ports need not be among the pool's `ports`.";

/// `[[nat64]]`
pub(crate) const NAT64: &[Key] = &[
    key("name", NAME, "\"default\"", NAME_HELP).default("\"nat64-1\", \"nat64-2\", ..."),
    key("pool6", Kind::List(&POOL6), "\"64:ff9b::/96\"", "Translation prefixes (RFC 6052) of length 32, 40, 48, 56, 64 or 96. IPv6 hosts reach IPv4 addresses embedded in them.").required(),
    POOL_NAME,
    key("sources", Kind::List(&NET6), "[\"2001:db8::/32\"]", "IPv6 prefixes that are served. Packets from other sources are dropped. Instances with the same `pool6` and ports need different `sources`.").default("all"),
    key("ports", Kind::List(&NAME), "[\"customer-a\"]", "`xdp`, `dpdk`: names of the `[[port]]`s (interfaces and VLANs) of its IPv6 hosts. The instance translates packets from these ports only. Hosts behind ports of different instances may have the same addresses, and the instances the same `pool6`. Addresses and IPv6 routes of such a port are used by its instances only.").default("all ports that no other `[[nat64]]` names"),
    key("subscriber", Kind::Words(|| words(SUBSCRIBER)), "\"/64\"", SUBSCRIBER_HELP).default("\"/64\""),
    key("filtering", Kind::Words(|| words(FILTERING)), "\"endpoint-independent\"", "Filter for packets from outside to a binding (RFC 4787 5): accept all, only from addresses that the inside host has sent to, or only from those addresses and ports.").default("\"endpoint-independent\""),
    key("external_tcp", Kind::Flag, "true", "Allows outside hosts to open TCP connections to a binding.").default("true"),
    key("static", Kind::Tables(STATIC), "[{ protocol = \"tcp\", inside = \"[2001:db8::1]:80\", outside = \"192.0.2.1:80\" }]", STATIC_HELP),
    key("icmp_error_source", Kind::Words(|| words(ERROR_SOURCE)), "\"router\"", "Source address of a translated ICMPv4 error: the `router` that sent it, so that traceroute shows the path, or the `inner-destination` (the letter of RFC 6146 3.6.1).").default("\"router\""),
    key("inbound_refresh", Kind::Flag, "true", "Lets packets from outside keep a session alive (RFC 6146 3.5.1; RFC 7857 7 recommends `false`).").default("true"),
    key("rst_during_fin", Kind::Flag, "false", "Lets a RST after one side's FIN shorten the lifetime of the session (not in RFC 6146).").default("false"),
    ICMP_QUERIES,
    FASTPATH,
    OFFLOAD,
    WKP_NON_GLOBAL,
    INSTANCE_TIMEOUTS,
    MTU4, MTU6, LOWEST_MTU6, MSS_MAX, TOS, TRAFFIC_CLASS, ZERO_UDP, ERROR4_MAX,
];

/// `[[nat44]]`
pub(crate) const NAT44: &[Key] = &[
    key("name", NAME, "\"cgn\"", NAME_HELP).default("\"nat44-1\", \"nat44-2\", ..."),
    key("inside", Kind::List(&NET4), "[\"100.64.0.0/10\"]", "Private networks whose packets are translated. Networks of two instances must not overlap unless the instances have different `ports`. None may overlap a pool.").required(),
    key("ports", Kind::List(&NAME), "[\"customer-a\"]", "`xdp`, `dpdk`: names of the `[[port]]`s (interfaces and VLANs) of its hosts. The instance translates packets from these ports only. Hosts behind ports of different instances may have the same addresses. Addresses and IPv4 routes of such a port are used by its instances only.").default("all ports that no other `[[nat44]]` names"),
    POOL_NAME,
    key("exempt", Kind::Tables(EXEMPT), "[{ prefixes = [\"10.0.0.0/8\"] }]", "Destinations to which packets pass untranslated (RFC 6888 REQ-6). Destinations in `inside` are always exempt."),
    key("subscriber", Kind::Words(|| words(SUBSCRIBER4)), "\"/32\"", SUBSCRIBER_HELP).default("\"/32\""),
    key("filtering", Kind::Words(|| words(FILTERING)), "\"endpoint-independent\"", "As in `[[nat64]]`.").default("\"endpoint-independent\""),
    key("external_tcp", Kind::Flag, "true", "As in `[[nat64]]`.").default("true"),
    key("static", Kind::Tables(STATIC4), "[{ protocol = \"tcp\", inside = \"100.64.0.2:80\", outside = \"192.0.2.1:80\" }]", STATIC_HELP),
    key("inbound_refresh", Kind::Flag, "false", "Lets packets from outside keep a session alive (allowed by RFC 4787 REQ-6; RFC 7857 7 recommends `false`).").default("false"),
    ICMP_QUERIES,
    FASTPATH,
    OFFLOAD,
    INSTANCE_TIMEOUTS,
    MTU4, MSS_MAX,
];

/// `exempt` in `[[nat44]]`
pub(crate) const EXEMPT: &[Key] = &[
    key("prefixes", Kind::List(&NET4), "[\"10.0.0.0/8\"]", "Destination networks.").required(),
    key("protocol", PROTOCOL_KIND, "\"udp\"", "Protocol.").default("all"),
    key("ports", Kind::List(&Kind::Ports), "\"53\"", "Destination ports.")
        .default("all, and packets without ports"),
];

const STATIC_PROTOCOL: Key = key("protocol", PROTOCOL_KIND, "\"tcp\"", "Protocol.").required();

const STATIC_OUTSIDE: Key = key(
    "outside",
    ENDPOINT4,
    "\"192.0.2.1:80\"",
    "Outside address and port, or a range of as many ports as `inside`. The address must be one of the pool. A port block that contains one of these ports is not assigned to subscribers.",
)
.required();

/// `static` in `[[nat44]]`
pub(crate) const STATIC4: &[Key] = &[
    STATIC_PROTOCOL,
    key(
        "inside",
        ENDPOINT4,
        "\"100.64.0.2:80\"",
        "Inside address and port (for icmp: identifier), or a range of ports: `\"100.64.0.2:8000-8010\"`.",
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
        "Inside address and port (for icmp: identifier), or a range of ports: `\"[2001:db8::1]:8000-8010\"`.",
    )
    .required(),
    STATIC_OUTSIDE,
];

/// `[[siit]]`
pub(crate) const SIIT: &[Key] = &[
    key("name", NAME, "\"servers\"", NAME_HELP).default("\"siit-1\", \"siit-2\", ..."),
    key("pool6", Kind::List(&POOL6), "\"2001:db8:46::/96\"", "Translation prefixes (RFC 6052). IPv4 addresses without a mapping are embedded in the first one.").default("none: only mapped addresses are translated"),
    key("eam", Kind::Tables(EAM), "[{ v4 = \"203.0.113.5\", v6 = \"2001:db8::5\" }]", "Explicit address mappings (RFC 7757). The longest match wins, on each side separately. Write more than some thousand to a file (`eam_file`): it loads many times faster."),
    key("eam_file", Kind::List(&FILE), "\"mappings.txt\"", "Files with further mappings: one IPv4 and one IPv6 prefix per line; `#` begins a comment. A relative path starts at the directory of the configuration file. `gatun map` and the API change the file."),
    key("allow_overlap", Kind::Flag, "false", "Allows a mapping inside another one (RFC 7757 3.1). Then different mappings may translate a packet and its answer.").default("false"),
    key("hairpin", Kind::Words(|| words(HAIRPIN)), "\"intrinsic\"", "Path between mapped hosts that use their IPv4 addresses (RFC 7757 4): inside Gatun (`intrinsic`), through a router behind it (`simple`), or none (`off`).").default("\"intrinsic\""),
    key("denylist4", Kind::List(&NET4), "[\"192.0.2.0/24\"]", "IPv4 addresses that are never translated. Takes precedence over `eam` and `pool6`.").default("[]"),
    key("denylist6", Kind::List(&NET6), "[\"2001:db8:1::/48\"]", "IPv6 addresses that are never translated. Takes precedence over `eam` and `pool6`.").default("[]"),
    key("icmp_pool4", Kind::List(&NET4), "[\"198.51.100.0/28\"]", "Source addresses of ICMPv4 errors whose IPv6 source has no IPv4 address (RFC 6791).").default("`own4`"),
    key("icmp_pool4_mode", Kind::Words(|| words(POOL_MODE)), "\"hash\"", "Choice of an address in `icmp_pool4`: by a `hash` of the router's address, or by its `hop-limit`.").default("\"hash\""),
    key("icmp_pool6", Kind::List(&NET6), "[\"2001:db8:6791::/64\"]", "Source addresses of ICMPv6 errors whose IPv4 source has no IPv6 address.").default("`own6`"),
    key("fastpath", Kind::Flag, "true", "Lets the kernel translate packets of this instance, if `[fastpath]` is on.").default("true"),
    key("offload", Kind::Flag, "true", "Lets P4 switches translate packets of this instance, if there is an `[[offload]]`.").default("true"),
    WKP_NON_GLOBAL,
    MTU4, MTU6, LOWEST_MTU6, MSS_MAX, TOS, TRAFFIC_CLASS, ZERO_UDP, ERROR4_MAX,
];

/// `eam` in `[[siit]]`
pub(crate) const EAM: &[Key] = &[
    key("v4", NET4, "\"203.0.113.5\"", "IPv4 prefix or address.").required(),
    key("v6", NET6, "\"2001:db8::5\"", "IPv6 prefix or address, with at least as many host bits as `v4`.")
        .required(),
];
