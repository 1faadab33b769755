//! Valid files and the exact plans made from them.

use gatun_config::{
    Api, ApiSocket, ApiTls, Config, DeviceMode, EventSink, FastPath, Network, Offload, OffloadMtus,
    P4Program, P4ProgramSource, P4Switch, P4Tls, Routes, StateDir, load_str,
};
use gatun_nat::plan::*;
use gatun_nat::{EventKind, EventKinds};
use gatun_wire::{DropReason, Prefix64, rfc7915::ZeroChecksum};

fn load(text: &str) -> (Config, String) {
    match load_str(text, "test.toml") {
        Ok((config, warnings)) => (config, warnings.to_string()),
        Err(report) => panic!("refused:\n{report}"),
    }
}

#[test]
fn four_lines_are_a_nat64() {
    let (config, warnings) = load(
        r#"
[[pool]]
prefixes = ["192.0.2.0/28"]
[[nat64]]
pool6 = "64:ff9b::/96"
"#,
    );
    assert_eq!(warnings, "");
    let plan = config.plan;
    assert_eq!(plan.pools.len(), 1);
    let range = PoolRange {
        first: "192.0.2.0".parse().unwrap(),
        last: "192.0.2.15".parse().unwrap(),
        ports: (1024, 65_535),
        transports: [true; 3],
    };
    assert_eq!(plan.pools[0].ranges, [range]);
    assert_eq!(plan.pools[0].pairing, Pairing::Soft);
    assert_eq!(plan.nat64[0].pool6, [Prefix64::WELL_KNOWN]);
    assert_eq!(plan.nat64[0].pool, 0);
    assert_eq!(plan.nat64[0].timeouts, Timeouts::default());
    assert_eq!(plan.nat64[0].subscriber_len, 64);
    assert_eq!(plan.own4, Some("192.0.2.1".parse().unwrap()));
    assert_eq!(plan.own6, Some("64:ff9b::192.0.2.1".parse().unwrap()));
    assert_eq!(plan.limits, Limits::default());
    assert_eq!(config.ports.len(), 1);
    let port = &config.ports[0];
    assert_eq!((port.device.as_str(), port.name.as_str(), port.mtu), ("gatun0", "gatun0", 1500));
    assert_eq!((port.mode, &port.routes, port.offload), (DeviceMode::Create, &Routes::Auto, true));
    assert!(!port.udp_gro);
}

#[test]
fn a_plan_has_one_route_per_prefix_pool_and_mapping() {
    let (config, _) = load(
        r#"
[[pool]]
prefixes = ["192.0.2.7-192.0.2.9"]
ports = ["2000-2999", "4000-4999"]
[[nat64]]
pool6 = ["2001:db8:64::/96", "64:ff9b::/96"]
[[siit]]
pool6 = "2001:db8:46::/64"
allow_overlap = true
eam = [
    { v4 = "203.0.113.0/24", v6 = "2001:db8:1::/64" },
    { v4 = "203.0.113.5", v6 = "2001:db8::5" },
]
"#,
    );
    let routes: Vec<String> = config.routes().iter().map(Network::to_string).collect();
    let expected = [
        "64:ff9b::/96",
        "2001:db8:46::/64",
        "2001:db8:64::/96",
        "192.0.2.7/32",
        "192.0.2.8/31",
        "203.0.113.0/24",
    ];
    assert_eq!(routes, expected);
}

const EVERY_KEY: &str = r#"
[[port]]
name = "wan"
backend = "tun"
device = "tun64"
mode = "attach"
queues = 2
addresses = ["198.18.0.1/24", "2001:db8:ff::1/64"]
routes = ["192.0.2.0/28", "2001:db8:64::/96"]
mtu = 9000
offload = false

[[pool]]
name = "res"
prefixes = ["192.0.2.0/28", "192.0.2.32-192.0.2.33"]
ports = "1024-65535"
protocols = ["tcp", "udp"]
ranges = [{ prefixes = "192.0.2.0", ports = ["1-99"], protocols = "icmp" }]
pairing = "hard"
port_parity = false
port_class = false
overload = [443, "udp/123"]
allocation = { kind = "blocks", size = 512, blocks_per_subscriber = 3, linger = "30s", hold = "2m", hold_max = 4096, protocols = "split" }

[[nat64]]
name = "default"
pool6 = ["2001:db8:64::/96"]
pool = "res"
sources = ["2001:db8::/32"]
subscriber = "/56"
filtering = "address-dependent"
external_tcp = false
static = [{ protocol = "tcp", inside = "[2001:db8::1]:80", outside = "192.0.2.1:80" }]
icmp_error_source = "inner-destination"
inbound_refresh = false
rst_during_fin = true
icmp_queries = false
timeouts = { udp = "3m", icmp = "1m 1s 1ms" }
mtu4 = 1400

[[siit]]
name = "servers"
pool6 = "64:ff9b::/96"
eam = [{ v4 = "203.0.113.0/24", v6 = "2001:db8:5::/72" }]
hairpin = "simple"
denylist4 = ["10.0.0.0/8"]
denylist6 = ["2001:db8:9::/48"]
icmp_pool4 = ["198.51.100.0/28"]
icmp_pool4_mode = "hop-limit"
icmp_pool6 = ["2001:db8:6791::/64"]
wkp_non_global = true
udp_zero_checksum = "drop"

[translator]
own4 = "192.0.2.2"
own6 = "2001:db8:64::2"
mtu4 = 1480
mtu6 = 1600
lowest_ipv6_mtu = 1300
tos = 0
traffic_class = 8
udp_zero_checksum = "forward"
icmp4_error_max = 1000

[limits]
sessions_max = 1_000
sessions_reserved = 10
sessions_reserved_below = 7
subscribers_max = 100
sessions_per_subscriber = 50
ports_per_subscriber = 40
tcp_ports_per_subscriber = 30
udp_ports_per_subscriber = 20
icmp_ports_per_subscriber = 10
session_rate_per_subscriber = 500
session_burst_per_subscriber = 2000
syn_store_max = 30
fragment_entries_max = 20
fragment_bytes_max = "1MiB"
fragments_per_source = 10

[timeouts]
udp = "5m"
tcp_established = "3h"
tcp_transitory = "5m"
tcp_incoming_syn = "7s"
icmp = "70s"
fragment = "2500ms"

[icmp]
rate = 10
burst = 5
rate_per_source = 4
burst_per_source = 3
suppress = ["no_bib", "ttl", "no_bib"]
quota_code6 = 3
quota_code4 = 13

[events]
file = "/tmp/events.json"
kinds = ["session_created", "quota_hit"]
destinations = true
ring = 4096
threshold = 80

[state]
directory = "/tmp/state"
[api]
listen = "unix:/tmp/api.sock"
group = "netops"
listen_tls = ["[::1]:8443", "192.0.2.9:443"]
certificate = "/etc/gatun/api.crt"
key = "/etc/gatun/api.key"
tokens = "/etc/gatun/tokens"

[metrics]
listen = "[::1]:9464"
"#;

// proves: A79-16, R68-3, R78-9
#[test]
fn every_key_reaches_the_plan() {
    let (config, _) = load(EVERY_KEY);
    let port = &config.ports[0];
    assert_eq!((port.name.as_str(), port.device.as_str(), port.mode), ("wan", "tun64", DeviceMode::Attach));
    assert_eq!((port.queues, port.mtu, port.offload), (Some(2), 9000, false));
    assert_eq!(
        port.addresses,
        [("198.18.0.1".parse().unwrap(), 24), ("2001:db8:ff::1".parse().unwrap(), 64)]
    );
    let Routes::List(routes) = &port.routes else { panic!("a list was written") };
    let routes: Vec<String> = routes.iter().map(Network::to_string).collect();
    assert_eq!(routes, ["192.0.2.0/28", "2001:db8:64::/96"]);

    let plan = &config.plan;
    assert_eq!((plan.own4, plan.own6), ("192.0.2.2".parse().ok(), "2001:db8:64::2".parse().ok()));
    let range = |first: &str, last: &str, ports, transports| PoolRange {
        first: first.parse().unwrap(),
        last: last.parse().unwrap(),
        ports,
        transports,
    };
    let pool = &plan.pools[0];
    assert_eq!((pool.name.as_str(), pool.pairing, pool.port_parity), ("res", Pairing::Hard, false));
    let expected = [
        range("192.0.2.0", "192.0.2.15", (1024, 65_535), [true, true, false]),
        range("192.0.2.32", "192.0.2.33", (1024, 65_535), [true, true, false]),
        range("192.0.2.0", "192.0.2.0", (1, 99), [false, false, true]),
        range("192.0.2.1", "192.0.2.1", (80, 80), [true, false, false]), // of the static binding
    ];
    assert_eq!(pool.ranges, expected);
    assert!(!pool.port_class);
    assert_eq!(pool.overload, [(Transport::Tcp, 443), (Transport::Udp, 443), (Transport::Udp, 123)]);
    let blocks = Blocks {
        size: 512,
        per_subscriber: 3,
        linger_ms: 30_000,
        hold: HoldDown { ms: 120_000, ports_max: 4096 },
        protocols: BlockProtocols::Split,
    };
    assert_eq!(pool.allocation, Allocation::Blocks(blocks));
    assert_eq!(
        plan.limits,
        Limits {
            sessions_max: 1_000,
            sessions_reserved: 10,
            sessions_reserved_below: 7,
            subscribers_max: 100,
            sessions_per_subscriber: 50,
            ports_per_subscriber: 40,
            ports_per_subscriber_by: [30, 20, 10],
            session_rate_per_subscriber: 500,
            session_burst_per_subscriber: 2_000,
            path_mtus_max: 4_096,
            syn_store_max: 30,
            fragment_entries_max: 20,
            fragment_bytes_max: 1 << 20,
            fragments_per_source: 10,
        }
    );
    assert_eq!((plan.icmp.rate, plan.icmp.burst), (10, 5));
    assert_eq!((plan.icmp.rate_per_source, plan.icmp.burst_per_source), (4, 3));
    assert_eq!((plan.icmp.quota_code6, plan.icmp.quota_code4), (3, 13));
    let kinds = EventKinds::NONE.with(EventKind::SessionCreated).with(EventKind::QuotaHit);
    assert_eq!(
        plan.events,
        EventPlan { kinds, ring_len: 4096, state_ring_len: 65_536, destinations: true, threshold: 80 }
    );
    assert_eq!(config.events, Some(EventSink::File("/tmp/events.json".into())));
    let socket = ApiSocket::Path("/tmp/api.sock".into());
    let tls = ApiTls {
        listen: vec!["[::1]:8443".parse().unwrap(), "192.0.2.9:443".parse().unwrap()],
        certificate: "/etc/gatun/api.crt".into(),
        key: "/etc/gatun/api.key".into(),
        tokens: "/etc/gatun/tokens".into(),
    };
    assert_eq!(config.api, Api { socket, group: Some("netops".into()), tls: Some(tls) });
    assert_eq!(config.metrics, Some("[::1]:9464".parse().unwrap()));
    assert_eq!(config.state, StateDir::Path("/tmp/state".into()));
    assert_eq!(config.text, EVERY_KEY);
    assert_eq!(plan.icmp.suppressed, [DropReason::NoBib, DropReason::TtlExceeded]);
}

#[test]
fn every_key_reaches_the_instances() {
    let (config, _) = load(EVERY_KEY);
    let n = &config.plan.nat64[0];
    assert_eq!((n.name.as_str(), n.pool, n.subscriber_len), ("default", 0, 56));
    assert_eq!(n.pool6[0].to_string(), "2001:db8:64::/96");
    assert_eq!(n.sources, [Net6::new("2001:db8::".parse().unwrap(), 32).unwrap()]);
    assert_eq!(n.filtering, Filtering::AddressDependent);
    assert_eq!(
        (n.external_tcp, n.inbound_refresh, n.rst_during_fin, n.icmp_queries),
        (false, false, true, false)
    );
    assert_eq!((n.icmp_error_source, n.wkp_non_global), (IcmpErrorSource::InnerDestination, false));
    let binding = StaticBinding {
        transport: Transport::Tcp,
        inside: ("2001:db8::1".parse().unwrap(), 80),
        outside: ("192.0.2.1".parse().unwrap(), 80),
    };
    assert_eq!(n.static_bindings, [binding]);
    let timeouts = Timeouts {
        udp_ms: 180_000,
        tcp_established_ms: 10_800_000,
        tcp_transitory_ms: 300_000,
        tcp_partial_open_ms: 300_000,
        tcp_closing_ms: 300_000,
        tcp_incoming_syn_ms: 7_000,
        icmp_ms: 61_001,
        fragment_ms: 2_500,
    };
    assert_eq!(n.timeouts, timeouts);
    let settings = gatun_wire::Settings {
        tos_6to4: Some(0),
        traffic_class_4to6: Some(8),
        mtu4: 1400,
        mtu6: 1600,
        lowest_ipv6_mtu: 1300,
        mss_max: 1360,
        udp_zero_checksum: ZeroChecksum::Forward,
        icmp4_error_max: 1000,
    };
    assert_eq!(n.settings, settings);

    let s = &config.plan.siit[0];
    assert_eq!((s.name.as_str(), s.hairpin, s.wkp_non_global), ("servers", Hairpin::Simple, true));
    let net4 = |a: &str, len| Net4::new(a.parse().unwrap(), len).unwrap();
    let net6 = |a: &str, len| Net6::new(a.parse().unwrap(), len).unwrap();
    assert_eq!(s.eamt, [Eam { v4: net4("203.0.113.0", 24), v6: net6("2001:db8:5::", 72) }]);
    assert_eq!(
        (&s.denylist4[..], &s.denylist6[..]),
        (&[net4("10.0.0.0", 8)][..], &[net6("2001:db8:9::", 48)][..])
    );
    assert_eq!(
        (&s.icmp_pool4[..], s.icmp_pool4_mode),
        (&[net4("198.51.100.0", 28)][..], IcmpPoolMode::HopLimit)
    );
    assert_eq!(s.icmp_pool6, [net6("2001:db8:6791::", 64)]);
    assert_eq!(
        s.settings,
        gatun_wire::Settings { mtu4: 1480, mss_max: 1440, udp_zero_checksum: ZeroChecksum::Drop, ..settings }
    );
}

#[test]
fn every_example_is_accepted_without_a_warning() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "toml") {
            let (_, warnings) = gatun_config::load_file(&path).unwrap_or_else(|report| panic!("{report}"));
            assert!(warnings.is_empty(), "{warnings}");
            seen += 1;
        }
    }
    assert!(seen >= 3, "{seen} examples");
}

#[test]
fn adjacent_routes_are_joined_exactly() {
    let text = r#"
[[siit]]
pool6 = "2001:db8:46::/96"
eam = [
    { v4 = "198.51.100.2", v6 = "2001:db8::2" },
    { v4 = "198.51.100.1", v6 = "2001:db8::1" },
    { v4 = "198.51.100.3", v6 = "2001:db8::3" },
    { v4 = "198.51.100.4/30", v6 = "2001:db8::4/126" },
    { v4 = "198.51.100.6", v6 = "2001:db8:1::6" },
    { v4 = "198.51.100.9", v6 = "2001:db8::9" },
    { v4 = "255.255.255.255", v6 = "2001:db8::f" },
]
allow_overlap = true
"#;
    let (config, _) = gatun_config::load_str(text, "neighbours.toml").unwrap();
    let routes: Vec<String> = config.routes().iter().map(Network::to_string).collect();
    let expected = [
        "2001:db8:46::/96",
        "198.51.100.1/32",
        "198.51.100.2/31",
        "198.51.100.4/30",
        "198.51.100.9/32",
        "255.255.255.255/32",
    ];
    assert_eq!(routes, expected);
}

#[test]
fn own_addresses_outside_pools_and_prefixes_get_routes() {
    let text = r#"
[translator]
own4 = "198.51.100.14"
own6 = "2001:db8:ffff::1"
[[pool]]
prefixes = "192.0.2.1"
[[nat64]]
pool6 = "2001:db8:64::/96"
"#;
    let (config, _) = gatun_config::load_str(text, "own.toml").unwrap();
    let routes: Vec<String> = config.routes().iter().map(Network::to_string).collect();
    assert_eq!(routes, ["2001:db8:64::/96", "2001:db8:ffff::1/128", "192.0.2.1/32", "198.51.100.14/32"]);
}

// proves: R74-1
#[test]
fn a_formula_takes_the_subscriber_length_from_the_instance() {
    let (config, _) = load(
        r#"
[[pool]]
prefixes = "192.0.2.0/28"
allocation = { kind = "deterministic", size = 1024, inside = ["2001:db8::/48", "100.64.0.0/28"], overflow = 2 }
[[nat64]]
pool6 = "64:ff9b::/96"
subscriber = "/56"
"#,
    );
    let inside = [
        Net6::new("2001:db8::".parse().unwrap(), 48).unwrap(),
        Net6::new("::ffff:100.64.0.0".parse().unwrap(), 124).unwrap(),
    ];
    let Allocation::Deterministic(d) = &config.plan.pools[0].allocation else { panic!("another allocation") };
    assert_eq!((&d.inside[..], d.overflow_per_address, d.blocks.size), (&inside[..], 2, 1024));
    assert_eq!(d.subscriber_len, 56);
}

#[test]
fn an_allocation_may_be_one_word() {
    let of = |word: &str| {
        let text = format!(
            "[[pool]]\nprefixes = \"192.0.2.0/28\"\nallocation = \"{word}\"\n[[nat64]]\npool6 = \"64:ff9b::/96\"\n"
        );
        load(&text).0.plan.pools[0].allocation.clone()
    };
    assert_eq!(of("blocks"), Allocation::Blocks(Blocks::default()));
    assert_eq!(of("random"), Allocation::Random(HoldDown { ms: 120_000, ports_max: 16_384 }));
}

#[test]
fn a_static_binding_may_have_consecutive_ports() {
    let (config, _) = load(
        r#"
[[pool]]
prefixes = "192.0.2.0/28"
[[nat64]]
pool6 = "64:ff9b::/96"
static = [{ protocol = "udp", inside = "[2001:db8::1]:8000-8002", outside = "192.0.2.1:500 - 502" }]
"#,
    );
    let inside: std::net::Ipv6Addr = "2001:db8::1".parse().unwrap();
    let outside: std::net::Ipv4Addr = "192.0.2.1".parse().unwrap();
    let expected = [(8000, 500), (8001, 501), (8002, 502)].map(|(i, o)| StaticBinding {
        transport: Transport::Udp,
        inside: (inside, i),
        outside: (outside, o),
    });
    assert_eq!(config.plan.nat64[0].static_bindings, expected);
}

// proves: R68-3, R68-6, R78-1
#[test]
fn a_nat44_instance_shares_a_pool_with_a_nat64_one() {
    let (config, warnings) = load(
        r#"
[[pool]]
name = "res"
prefixes = ["192.0.2.0/28", "198.51.100.9-198.51.100.11"]
[[nat64]]
pool6 = "64:ff9b::/96"
pool = "res"
[[nat44]]
inside = ["100.64.0.0/10", "10.0.0.0/8"]
pool = "res"
subscriber = "/28"
filtering = "address-and-port-dependent"
external_tcp = false
inbound_refresh = true
icmp_queries = false
mtu4 = 1492
exempt = [
    { prefixes = ["172.16.0.0/12"] },
    { prefixes = ["203.0.113.1", "203.0.113.2"], protocol = "udp", ports = ["53", "123"] },
]
static = [{ protocol = "tcp", inside = "100.64.0.2:80", outside = "192.0.2.1:80" }]
[nat44.timeouts]
tcp_partial_open = "5m"
tcp_closing = "6m"
"#,
    );
    assert_eq!(warnings, "");
    let [n] = &config.plan.nat44[..] else { panic!("{:?}", config.plan.nat44) };
    assert_eq!((&n.name[..], n.pool, config.plan.nat64[0].pool), ("nat44-1", 0, 0));
    let nets: Vec<String> = n.inside.iter().map(|net| format!("{}/{}", net.addr, net.len)).collect();
    assert_eq!(nets, ["100.64.0.0/10", "10.0.0.0/8"]);
    assert_eq!((n.subscriber_len, n.filtering, n.mtu), (28, Filtering::AddressAndPortDependent, 1492));
    assert_eq!((n.external_tcp, n.inbound_refresh, n.icmp_queries), (false, true, false));
    assert_eq!(n.exempt.len(), 5);
    assert_eq!((n.exempt[0].transport, n.exempt[0].ports), (None, None));
    assert_eq!((n.exempt[4].transport, n.exempt[4].ports), (Some(Transport::Udp), Some((123, 123))));
    let inside: std::net::Ipv4Addr = "100.64.0.2".parse().unwrap();
    assert_eq!(n.static_bindings[0].inside, (inside.to_ipv6_mapped(), 80));
    let times = (n.timeouts.tcp_transitory_ms, n.timeouts.tcp_partial_open_ms, n.timeouts.tcp_closing_ms);
    assert_eq!(times, (240_000, 300_000, 360_000));
}

/// Two customers in VLANs of one interface, with the same addresses.
const CUSTOMERS: &str = r#"
[[port]]
name = "outside"
backend = "xdp"
device = "eth1"
addresses = ["198.51.100.64/24"]
[[port]]
name = "customer-a"
backend = "xdp"
device = "eth0"
vlan = 101
addresses = ["10.0.0.1/8", "fd00::1/64"]
[[port]]
name = "customer-b"
backend = "xdp"
device = "eth0"
vlan = 102
addresses = ["10.0.0.1/8", "fd00:b::1/64"]
[[pool]]
name = "a"
prefixes = "192.0.2.1"
[[pool]]
name = "b"
prefixes = "192.0.2.2"
[[nat44]]
name = "a"
inside = "10.0.0.0/8"
ports = "customer-a"
pool = "a"
[[nat44]]
name = "b"
inside = "10.0.0.0/8"
ports = ["customer-b"]
pool = "b"
[[nat44]]
name = "b-too"
inside = "100.64.0.0/10"
ports = ["customer-b"]
pool = "a"
[[nat64]]
pool6 = "64:ff9b::/96"
pool = "a"
"#;

#[test]
fn ports_named_together_form_a_realm() {
    let (config, warnings) = load(CUSTOMERS);
    assert_eq!(warnings, "");
    let realms: Vec<_> = config.plan.nat44.iter().map(|n| n.realm).collect();
    assert_eq!((realms, config.plan.nat64[0].realm), (vec![1, 2, 2], 0));
    let of_ports: Vec<_> = config.ports.iter().map(|port| port.ethernet.as_ref().unwrap().realms).collect();
    assert_eq!(of_ports, [[0, 0], [1, 0], [2, 0]]);
    let device = |_: &gatun_config::Port| gatun_config::Device {
        number: 0,
        mac: gatun_ether::Mac([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
    };
    let host = gatun_config::host(&config.ports, &config.routes(), device, 1, 0);
    assert_eq!(host.ports.iter().map(|port| port.realms).collect::<Vec<_>>(), of_ports);
}

#[test]
fn instances_may_share_a_prefix_if_ports_or_sources_differ() {
    let six = |keys: &str| format!("[[nat64]]\npool6 = \"64:ff9b::/96\"\npool = \"a\"\n{keys}\n");
    let by_sources = six("sources = \"2001:db8:a::/48\"") + &six("sources = \"2001:db8:b::/48\"");
    let (text, _) = CUSTOMERS.rsplit_once("[[nat64]]").unwrap();
    let (config, _) = load(&(text.to_owned() + &by_sources + &six("ports = \"customer-a\"")));
    assert_eq!(config.plan.nat64.iter().map(|n| n.realm).collect::<Vec<_>>(), [0, 0, 1]);
    assert_eq!(config.ports[1].ethernet.as_ref().unwrap().realms, [1, 1]);
    assert!(config.plan.is_ruled());
}

const TWO_POOLS: &str = "[[pool]]\nname = \"b\"\nprefixes = \"192.0.2.0/28\"\nallocation = \"blocks\"\n\
                         [[nat64]]\npool6 = \"64:ff9b::/96\"\npool = \"b\"\n";

#[test]
fn the_engine_makes_events_for_the_log_and_for_sinks() {
    use gatun_nat::{EventKind::*, EventKinds};
    let kinds =
        |kinds: &[gatun_nat::EventKind]| kinds.iter().fold(EventKinds::NONE, |all, kind| all.with(*kind));
    let load = |text: &str| gatun_config::load_str(&format!("{TWO_POOLS}{text}"), "x").unwrap();
    let (config, _) = load("[log]\n");
    let log = config.log.unwrap();
    assert_eq!((log.directory.to_str(), log.bindings), (Some(gatun_config::LOG_DIRECTORY), false));
    assert_eq!(
        (config.plan.events.kinds, config.json_kinds),
        (kinds(&[BlockAssigned, BlockReleased, BlockKept]), EventKinds::NONE)
    );
    let (config, _) = load(
        "[events]\nfile = \"stdout\"\nkinds = [\"quota_hit\"]\n[log]\nretention = \"180d\"\nsize_max = \"2TiB\"\n",
    );
    let log = config.log.unwrap();
    assert_eq!((log.retention_ms, log.size_max), (Some(180 * 86_400_000), Some(2 << 40)));
    assert_eq!(config.json_kinds, kinds(&[QuotaHit]));
    assert_eq!(config.plan.events.kinds, kinds(&[QuotaHit, BlockAssigned, BlockReleased, BlockKept]));
    // Ports allocated one by one are known only by their bindings.
    let random = "[[pool]]\nname = \"r\"\nprefixes = \"198.51.100.0/28\"\n[[nat44]]\ninside = \"10.0.0.0/8\"\npool = \"r\"\n";
    let (config, warnings) = load(&format!("{random}[log]\n"));
    assert!(config.log.unwrap().bindings && warnings.iter().count() == 0);
    assert_eq!(
        config.plan.events.kinds,
        kinds(&[BlockAssigned, BlockReleased, BlockKept, BindingCreated, BindingDeleted, BindingKept])
    );
    let (config, warnings) = load(&format!("{random}[log]\nbindings = false\n"));
    assert!(!config.log.unwrap().bindings);
    assert!(warnings.to_string().contains("pool \"r\" allocates single ports"), "{warnings}");
}

#[test]
fn collectors_have_names_and_their_kinds_of_events() {
    use gatun_config::{ExportFormat, ExportTarget};
    use gatun_nat::EventKind::*;
    let text = format!(
        "{TWO_POOLS}[[export]]\nto = \"udp:192.0.2.10:4739\"\ndomain = 9\ntemplates = \"30s\"\n\
         [[export]]\nname = \"siem\"\nto = \"tcp:[2001:db8::5]:601\"\nformat = \"syslog\"\nkinds = [\"session_created\"]\n\
         destinations = true\nspool = \"/var/spool/gatun\"\nspool_max = \"5GiB\"\nqueue = 100\n"
    );
    let (config, _) = gatun_config::load_str(&text, "x").unwrap();
    let [first, second] = &config.exports[..] else { panic!("{:?}", config.exports) };
    assert_eq!(
        (first.name.as_str(), first.format, first.domain, first.templates_ms),
        ("export1", ExportFormat::Ipfix, 9, 30_000)
    );
    assert_eq!(first.target, ExportTarget::Udp("192.0.2.10:4739".parse().unwrap()));
    assert!(!first.destinations && first.spool.is_none());
    assert_eq!((second.name.as_str(), second.format, second.queue_max), ("siem", ExportFormat::Syslog, 100));
    assert_eq!(second.spool, Some(("/var/spool/gatun".into(), 5 << 30)));
    assert!(config.plan.events.destinations && !config.json_destinations);
    assert!(config.plan.events.kinds.has(SessionCreated) && config.plan.events.kinds.has(BlockAssigned));
    let udp = text.replace("tcp:[2001:db8::5]:601", "udp:[2001:db8::5]:601");
    let report = gatun_config::load_str(&udp, "x").unwrap_err().to_string();
    assert!(report.contains("UDP does not report"), "{report}");
    for wrong in
        ["", "udp:", "udp:192.0.2.1", "udp:192.0.2.1:0", "sctp:192.0.2.1:1", "unix:log", "tcp:collector:1"]
    {
        let report = gatun_config::load_str(&text.replace("tcp:[2001:db8::5]:601", wrong), "x")
            .unwrap_err()
            .to_string();
        assert!(report.contains("is not udp:ADDRESS:PORT, tcp:ADDRESS:PORT or unix:PATH"), "{report}");
    }
}

#[test]
fn static_neighbours_reach_the_host_and_wrong_ones_are_refused() {
    let text = |neighbour: &str| {
        format!(
            "[[port]]\nbackend = \"xdp\"\ndevice = \"eth0\"\naddresses = \"198.51.100.64/24\"\n\
             neighbours = \"{neighbour}\"\n[[pool]]\nprefixes = \"192.0.2.0/28\"\n[[nat44]]\ninside = \"100.64.0.0/10\"\n"
        )
    };
    let (config, _) = load(&text("198.51.100.1 at 02:00:00:00:00:0A"));
    let device = |_: &gatun_config::Port| gatun_config::Device {
        number: 0,
        mac: gatun_ether::Mac([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
    };
    let host = gatun_config::host(&config.ports, &config.routes(), device, 1, 0);
    let [neighbour] = host.ports[0].neighbours[..] else { panic!("{:?}", host.ports) };
    assert_eq!((neighbour.addr.to_string(), neighbour.mac.0), ("198.51.100.1".into(), [2, 0, 0, 0, 0, 10]));
    for wrong in [
        "198.51.100.1",
        "198.51.100.1 at 2:0:0:0:0:1",
        "who at 02:00:00:00:00:01",
        "203.0.113.1 at 02:00:00:00:00:01",
    ] {
        let refused = gatun_config::load_str(&text(wrong), "x").err().unwrap();
        assert!(refused.to_string().contains("neighbour"), "{wrong}");
    }
}

#[test]
fn hosts_behind_a_clat_are_the_joined_mappings_beside_a_prefix() {
    let eam = r#"eam = [
  { v4 = "100.64.0.0/11", v6 = "2001:db8:46::/107" },
  { v4 = "100.96.0.0/11", v6 = "2001:db8:47::/107" },
  { v4 = "192.0.2.1", v6 = "2001:db8::1" },
]"#;
    let own = "[translator]\nown4 = \"192.0.2.14\"\nown6 = \"2001:db8:ffff::1\"\n";
    let hosts = |instance: &str| -> Vec<String> {
        let (config, _) = load(&format!("{own}[[siit]]\n{instance}"));
        config.mapped_hosts().iter().map(|net| format!("{}/{}", net.addr, net.len)).collect()
    };
    assert_eq!(hosts(&format!("pool6 = \"2001:db8:64::/96\"\n{eam}")), ["100.64.0.0/10", "192.0.2.1/32"]);
    assert!(hosts(eam).is_empty(), "without a prefix they speak to mapped addresses alone");
}

#[test]
fn the_fast_path_is_off_by_default_and_its_keys_are_read() {
    let text = r#"
[[pool]]
prefixes = ["192.0.2.0/28"]
[[nat64]]
pool6 = "64:ff9b::/96"
[[nat64]]
pool6 = "2001:db8:64::/96"
fastpath = false
[[nat44]]
inside = "100.64.0.0/10"
fastpath = false
"#;
    let (config, _) = load(text);
    assert!(!config.fastpath.kernel && config.fastpath.session_bytes() == 0);
    let section = r#"
[fastpath]
kernel = "auto"
xdp = ["eth0", "eth1"]
directory = "/run/other"
sessions_max = 1000
udp_packets = 7
tcp_packets = 0
lease = "3s"
on_stop = "keep"
"#;
    let created = "`on_stop = \"keep\"`: Gatun creates gatun0, and a stop by SIGTERM removes it";
    let (config, warnings) = load(&format!("{text}{section}"));
    assert!(warnings.contains(created), "{warnings}");
    let attached = "[[port]]\ndevice = \"nat64\"\nmode = \"attach\"\n";
    assert_eq!(load(&format!("{text}{section}{attached}")).1, "");
    assert_eq!(load(&format!("{text}{}", section.replace("\"keep\"", "\"detach\""))).1, "");
    let expected = FastPath {
        kernel: true,
        xdp: vec!["eth0".into(), "eth1".into()],
        directory: "/run/other".into(),
        sessions_max: 1000,
        udp_packets: 7,
        tcp_packets: 0,
        lease_ms: 3000,
        keeps_at_stop: true,
        excluded: vec![1, 2],
        excluded_siit: Vec::new(),
    };
    assert_eq!(config.fastpath, expected);
    assert_eq!(config.fastpath.session_bytes(), 384_000 + (384 << 10));
}

#[test]
fn a_fast_path_without_a_use_is_off_with_a_warning() {
    let siit = r#"
[fastpath]
kernel = "auto"
[[port]]
device = "a"
routes = false
[[port]]
device = "b"
routes = false
[[siit]]
pool6 = "2001:db8:46::/96"
fastpath = false
[translator]
own4 = "192.0.2.14"
own6 = "2001:db8:ffff::1"
"#;
    let (config, warnings) = load(siit);
    assert!(!config.fastpath.kernel && config.fastpath.excluded_siit == [0]);
    assert!(
        warnings.contains("[fastpath] has no effect: the kernel translates at one device only"),
        "{warnings}"
    );
}

#[test]
fn an_interface_of_a_port_is_refused_for_xdp() {
    let text = r#"
[fastpath]
kernel = "auto"
xdp = ["eth0", "nat0", "eth1", "eth1"]
[[port]]
device = "nat0"
[[port]]
backend = "xdp"
device = "eth0"
addresses = "198.51.100.64/24"
[[pool]]
prefixes = ["192.0.2.0/28"]
[[nat64]]
pool6 = "64:ff9b::/96"
"#;
    let problems = load_str(text, "test.toml").unwrap_err().to_string();
    let expected = [
        "`xdp`: eth0 is a port of Gatun, which has an XDP program of its own",
        "`xdp`: nat0 is the TUN device",
        "`xdp`: eth1 is listed twice",
    ];
    for line in expected {
        assert!(problems.contains(line), "{problems}");
    }
}

const SWITCH_PORTS: &str = r#"
[[port]]
name = "inside"
backend = "dpdk"
device = "net_memif0"
switch_port = 1
addresses = ["2001:db8:1::1/64"]
[[port]]
name = "outside"
backend = "dpdk"
device = "net_memif0"
switch_port = 2
addresses = ["198.51.100.1/24"]
[[pool]]
prefixes = ["192.0.2.0/28"]
[[nat64]]
pool6 = "64:ff9b::/96"
mtu4 = 1400
[[nat64]]
pool6 = "2001:db8:64::/96"
offload = false
[[nat44]]
inside = "100.64.0.0/10"
mtu4 = 1300
"#;

#[test]
fn p4_switches_are_read_with_their_ports_and_instances() {
    let (config, _) = load(SWITCH_PORTS);
    assert_eq!(config.offload, None, "the ports alone: somebody else controls the switch");
    let (config, warnings) = load(&format!(
        "{SWITCH_PORTS}[[offload]]\nkind = \"p4runtime\"\nswitches = \"edge at [::1]:9559 device 7\"\n"
    ));
    assert_eq!(warnings, "");
    let offload = config.offload.unwrap();
    let edge = P4Switch { name: "edge".into(), address: "[::1]:9559".parse().unwrap(), device_id: 7 };
    let expected = Offload {
        name: "p4".into(),
        switches: vec![edge],
        program: P4ProgramSource::Own(P4Program::Dpdk),
        replaces_program: false,
        election: 1,
        tls: None,
        timeout_ms: 5_000,
        sessions_max: 1_048_576,
        udp_packets: 10,
        tcp_packets: 10,
        keeps_at_stop: false,
        excluded: vec![1],
        excluded_siit: Vec::new(),
        controller_rate: Some(500_000),
        tos: vec![[None; 2]; 2],
        mtus: OffloadMtus { mtu4: 1300, mtu6: 1500, mtu6_without_df: 1280 },
    };
    assert_eq!(offload, expected);
    let section = r#"
[[offload]]
name = "core"
kind = "p4runtime"
switches = ["edge at 127.0.0.1:9559"]
p4info = "/etc/gatun/p4info.txt"
program_file = "/etc/gatun/gatun.spec"
certificates = "/etc/gatun/p4"
server_name = "edge.example"
replace_program = true
election = 9
timeout = "1s"
sessions_max = 1000
udp_packets = 3
tcp_packets = 0
controller_rate = 0
on_stop = "keep"
[[siit]]
name = "first"
eam = [{ v4 = "203.0.113.1", v6 = "2001:db8:a::1" }]
[[siit]]
name = "second"
eam = [{ v4 = "203.0.113.2", v6 = "2001:db8:a::2" }]
offload = false
"#;
    let (config, _) = load(&format!("{SWITCH_PORTS}{section}"));
    let other = config.offload.unwrap();
    let program = P4ProgramSource::Files {
        p4info: "/etc/gatun/p4info.txt".into(),
        program: "/etc/gatun/gatun.spec".into(),
    };
    assert_eq!((&other.name[..], &other.program, other.replaces_program), ("core", &program, true));
    let tls = P4Tls { directory: "/etc/gatun/p4".into(), server_name: Some("edge.example".into()) };
    assert_eq!(other.tls, Some(tls));
    assert_eq!((other.election, other.timeout_ms, other.sessions_max), (9, 1000, 1000));
    assert_eq!((other.udp_packets, other.tcp_packets, other.keeps_at_stop), (3, 0, true));
    assert_eq!((&other.excluded_siit[..], other.controller_rate), (&[1][..], None));
    let lives = Offload { sessions_max: 5, keeps_at_stop: false, excluded: Vec::new(), ..other.clone() };
    assert_eq!(lives.fixed(), other.fixed());
    assert_ne!(offload.fixed(), other.fixed());
}

#[test]
fn switches_without_ports_and_ports_without_switches_are_refused() {
    let refused = |ports: &str, section: &str| {
        let text = format!("{ports}[[offload]]\nkind = \"p4runtime\"\n{section}");
        load_str(&text, "test.toml").unwrap_err().to_string()
    };
    let two = "switches = [\"left at 127.0.0.1:1\", \"right at 127.0.0.1:2\"]\n";
    let one = "switches = \"left at 127.0.0.1:1\"\n";
    let named =
        |name: &str| SWITCH_PORTS.replace("switch_port = ", &format!("switch = \"{name}\"\nswitch_port = "));
    let without =
        SWITCH_PORTS.replace("switch_port = 1\n", "vlan = 1\n").replace("switch_port = 2\n", "vlan = 2\n");
    for (ports, section, what) in [
        (SWITCH_PORTS.to_owned(), two, "this port does not say which of the switches it belongs to"),
        (named("left"), two, "no [[port]] is a port of the switch \"right\""),
        (named("other"), one, "[[offload]] has no switch \"other\""),
        (without, one, "no [[port]] is a port of the switch \"left\""),
        (SWITCH_PORTS.to_owned(), "switches = \"left 127.0.0.1:1\"\n", "is not NAME at ADDRESS:PORT"),
        (SWITCH_PORTS.to_owned(), "switches = []\n", "`switches`"),
        (
            named("a"),
            "switches = [\"a at 127.0.0.1:1\", \"a at 127.0.0.1:2\"]\n",
            "the name \"a\" is taken already",
        ),
        (
            named("a"),
            "switches = [\"a at 127.0.0.1:1\", \"b at 127.0.0.1:1\"]\n",
            "\"b\" is the device of another switch",
        ),
        (SWITCH_PORTS.to_owned(), &format!("{one}{one}"), "duplicate key"),
        (
            SWITCH_PORTS.to_owned(),
            &format!("{one}[[offload]]\nkind = \"p4runtime\"\n{one}"),
            "more than one [[offload]]",
        ),
        (
            SWITCH_PORTS.to_owned(),
            &format!("{one}server_name = \"edge.example\"\n"),
            "`server_name` needs `certificates`",
        ),
        (
            SWITCH_PORTS.to_owned(),
            &format!("{one}certificates = \"/c\"\nserver_name = \"-edge\"\n"),
            "\"-edge\" is no name of a host",
        ),
        (SWITCH_PORTS.to_owned(), &format!("{one}p4info = \"/a\"\n"), "`p4info` needs `program_file`, too"),
        (
            SWITCH_PORTS.to_owned(),
            &format!("{one}program = \"bmv2\"\np4info = \"/a\"\nprogram_file = \"/b\"\n"),
            "`program` names Gatun's own program",
        ),
        (
            SWITCH_PORTS.to_owned(),
            &format!("{one}program = \"installed\"\nreplace_program = true\n"),
            "`replace_program` needs a program",
        ),
        (
            SWITCH_PORTS.replace("switch_port = 1\n", "switch_port = 1\nvlan = [1, 2]\n"),
            one,
            "a P4 switch knows one VLAN tag",
        ),
        (
            SWITCH_PORTS.replace("switch_port = 1\n", "switch = \"left\"\n"),
            one,
            "`switch` needs `switch_port`",
        ),
    ] {
        let problems = refused(&ports, section);
        assert!(problems.contains(what), "no '{what}' in\n{problems}");
    }
    let tos = SWITCH_PORTS.replace("mtu4 = 1400", "tos = 0");
    let (config, warnings) = load(&format!("{tos}[[offload]]\nkind = \"p4runtime\"\n{one}"));
    let offload = config.offload.unwrap();
    assert_eq!((&offload.excluded[..], &offload.tos[..1]), (&[1][..], &[[Some(0), None]][..]), "{warnings}");
}

const PEER: &str =
    "[[pool]]\nprefixes = [\"192.0.2.0/30\"]\n[[nat64]]\npool6 = \"64:ff9b::/96\"\n[peer]\nmember = \"b\"\n";

#[test]
fn a_pair_has_defaults_and_every_key() {
    let load = |more: &str| load_str(&format!("{PEER}{more}"), "f").unwrap().0.peer.unwrap();
    let peer = load("connect = \"192.0.2.12:7464\"\n");
    let expected = gatun_config::Peer {
        member: gatun_config::PeerMember::B,
        mode: gatun_config::PairMode::ActiveStandby,
        listen: None,
        connect: Some("192.0.2.12:7464".parse().unwrap()),
        api: None,
        directory: gatun_config::PEER_DIRECTORY.into(),
        own_ports: 4_096,
        packets: 3,
        dead_after_ms: 1_000,
        away_after_ms: 10_000,
    };
    assert_eq!(peer, expected);
    let peer = load(
        "listen = \"[::]:7464\"\nmode = \"active-active\"\ndirectory = \"/etc/pair\"\nown_ports = 0\n\
         packets = 128\ndead_after = \"200ms\"\naway_after = \"1m\"\n",
    );
    let expected = gatun_config::Peer {
        mode: gatun_config::PairMode::ActiveActive,
        listen: Some("[::]:7464".parse().unwrap()),
        connect: None,
        directory: "/etc/pair".into(),
        own_ports: 0,
        packets: 128,
        dead_after_ms: 200,
        away_after_ms: 60_000,
        ..expected
    };
    assert_eq!(peer, expected);
}
