//! Tests of error reports.

use gatun_config::load_str;
use std::fmt::Write as _;

/// The report of a file, as text.
fn report(text: &str) -> String {
    let report = load_str(text, "gatun.toml").err().unwrap_or_else(|| panic!("accepted:\n{text}"));
    report.to_string()
}

fn warnings(text: &str) -> String {
    load_str(text, "gatun.toml").unwrap_or_else(|report| panic!("refused:\n{report}")).1.to_string()
}

#[test]
fn all_errors_are_reported_at_once_with_place_and_correction() {
    let text = r#"
[[pool]]
name = "res"
prefixs = ["192.0.2.0/28"]
ports = "70000"
[[nat64]]
pool6 = "64:ff9b::/95"
pool = "rse"
filtering = "address"
external_tcp = "false"
[timeouts]
udp = 300
tcp_established = "2 hours"
[limits]
sessions_max = 0
[icmp]
suppress = ["no_bibb"]
[pcp]
listen = "[::1]:9464"
"#;
    insta::assert_snapshot!(report(text));
    insta::assert_snapshot!("pretty", load_str(text, "gatun.toml").unwrap_err().pretty(false));
}

#[test]
fn a_syntax_error_is_reported_with_its_place() {
    insta::assert_snapshot!(report("[[pool]\nprefixes = \"192.0.2.0/28\"\nports = \"1024-65535\n"));
}

#[test]
fn a_duplicate_key_is_an_error() {
    insta::assert_snapshot!(report("[translator]\nmtu4 = 1500\nmtu4 = 1400\n"));
}

#[test]
fn an_empty_file_is_refused_with_the_missing_sections() {
    insta::assert_snapshot!(report(""));
}

// proves: A52-1
#[test]
fn a_prefix_length_unknown_to_rfc_6052_is_refused() {
    let mut all = String::new();
    for prefix in
        ["64:ff9b::/97", "2001:db8::/33", "2001:db8::1/96", "2001:db8:0:0:100::/96", "64:ff9b::", "::/0"]
    {
        let text = format!("[[siit]]\npool6 = \"{prefix}\"\n");
        let _ = write!(all, "{}", report(&text));
    }
    insta::assert_snapshot!(all);
    for len in 0..=128_u8 {
        let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
        let address = std::net::Ipv6Addr::from(0x2001_0db8_0102_0304_00ff_ffff_ffff_ffff_u128 & mask);
        let loaded = load_str(&format!("[[siit]]\npool6 = \"{address}/{len}\"\n"), "gatun.toml");
        assert_eq!(loaded.is_ok(), [32, 40, 48, 56, 64, 96].contains(&len), "/{len}");
    }
}

// proves: A52-8
#[test]
fn addresses_that_two_parts_claim_are_refused() {
    let text = r#"
[[pool]]
name = "a"
prefixes = ["192.0.2.0/28", "192.0.2.8-192.0.2.9"]
[[pool]]
name = "b"
prefixes = ["192.0.2.4"]
ports = "65535"
protocols = "udp"
[[pool]]
name = "c"
prefixes = "192.0.2.4"
ports = "1-1023"
protocols = "udp"
[[nat64]]
name = "one"
pool6 = ["64:ff9b::/96", "2001:db8::/32"]
pool = "a"
[[nat64]]
name = "one"
pool6 = "2001:db8:64::/96"
pool = "a"
[[siit]]
pool6 = "2001:db8:46::/96"
eam = [{ v4 = "192.0.2.0/24", v6 = "2001:db8:1::/64" }]
[[siit]]
eam = [{ v4 = "192.0.2.7", v6 = "2001:db8:2::7" }]
"#;
    insta::assert_snapshot!(report(text));
}

#[test]
fn an_address_belongs_to_one_pool_even_if_ports_differ() {
    let text = r#"
pool = [
    { name = "low", prefixes = "192.0.2.1", ports = "1024-29999" },
    { name = "high", prefixes = "192.0.2.1", ports = "30000-65535" },
]
nat64 = [
    { pool6 = "64:ff9b::/96", pool = "low" },
    { pool6 = "2001:db8:64::/96", pool = "high" },
]
"#;
    assert!(report(text).contains("an address belongs to one"), "{}", report(text));
}

// proves: A77-3
#[test]
fn a_mapping_with_a_shorter_ipv6_suffix_is_refused() {
    let text = r#"
[[siit]]
eam = [
    { v4 = "192.0.2.0/24", v6 = "2001:db8::/121" },
    { v4 = "198.51.100.0/26", v6 = "2001:db8:1::/64" },
    { v4 = "203.0.113.7", v6 = "2001:db8:2::7" },
    { v4 = "203.0.113.8/31", v6 = "2001:db8:2::8" },
    { v4 = "203.0.113.7/24", v6 = "2001:db8:3::7/64" },
]
"#;
    insta::assert_snapshot!(report(text));
}

// proves: A77-5
#[test]
fn overlapping_mappings_need_the_flag_and_equal_ones_are_always_refused() {
    let eam = r#"eam = [
    { v4 = "192.0.2.0/24", v6 = "2001:db8::/120" },
    { v4 = "192.0.2.8/32", v6 = "2001:db8:1::8" },
    { v4 = "198.51.100.8/32", v6 = "2001:db8::9" },
]"#;
    insta::assert_snapshot!(report(&format!("[[siit]]\n{eam}\n")));
    assert!(load_str(&format!("[[siit]]\nallow_overlap = true\n{eam}\n"), "gatun.toml").is_ok());
    let equal = r#"eam = [
    { v4 = "192.0.2.8", v6 = "2001:db8:1::8" },
    { v4 = "192.0.2.8/32", v6 = "2001:db8:1::9" },
    { v4 = "192.0.2.9/32", v6 = "2001:db8:1::8" },
]"#;
    insta::assert_snapshot!("equal", report(&format!("[[siit]]\nallow_overlap = true\n{equal}\n")));
}

#[test]
fn invalid_static_bindings_are_refused() {
    let text = r#"
[[pool]]
prefixes = "192.0.2.1"
[[nat64]]
pool6 = "64:ff9b::/96"
static = [
    { protocol = "tcp", inside = "[2001:db8::1]:80", outside = "192.0.2.1:80" },
    { protocol = "udp", inside = "[2001:db8::1]:80", outside = "192.0.2.1:80" },
    { protocol = "tcp", inside = "[2001:db8::2]:80", outside = "192.0.2.1:80" },
    { protocol = "tcp", inside = "[2001:db8::1]:80", outside = "192.0.2.1:81" },
    { protocol = "tcp", inside = "[2001:db8::3]:80", outside = "192.0.2.2:80" },
    { protocol = "tcp", inside = "[2001:db8::4]:0", outside = "192.0.2.1:82" },
    { protocol = "tcp", inside = "2001:db8::5:80", outside = "192.0.2.1" },
    { protocol = "tcp", inside = "[2001:db8::5]:80" },
]
"#;
    insta::assert_snapshot!(report(text));
}

#[test]
fn keys_of_later_versions_are_reported_as_unsupported() {
    let text = r#"
[[port]]
backend = "dpdk"
[[pool]]
prefixes = "192.0.2.0/28"
[[nat44]]
inside = ["100.64.0.0/10"]
[pcp]
listen = "unix:/run/gatun/api.sock"
"#;
    insta::assert_snapshot!(report(text));
}

#[test]
fn udp_gro_needs_offload() {
    let text = "[[port]]\noffload = false\nudp_gro = true\n[[siit]]\npool6 = \"2001:db8::/96\"\n";
    insta::assert_snapshot!(report(text));
}

#[test]
fn invalid_ethernet_ports_are_refused() {
    let text = r#"
[[port]]
backend = "xdp"
mode = "attach"
addresses = ["198.51.100.64/24"]
routes = ["0.0.0.0/0 via 203.0.113.1", "::/0 via nobody", "auto"]
offload = true
udp_gro = true
vlan = [1, 4095]
[[port]]
backend = "xdp"
device = "eth0"
queues = 2
routes = "auto"
[[port]]
backend = "xdp"
device = "eth1"
answers = 5
mtu = 100
[[pool]]
prefixes = "192.0.2.0/28"
[[nat44]]
inside = ["100.64.0.0/10"]
"#;
    let tun = "[[port]]\nvlan = 7\nswitch_port = 1\nmode = \"skb\"\nroutes = [\"0.0.0.0/0 via 192.0.2.1\"]\n";
    let mixed =
        "[[port]]\nbackend = \"xdp\"\ndevice = \"a\"\n[[port]]\n[[siit]]\npool6 = \"2001:db8::/96\"\n";
    let same =
        "[[port]]\nbackend = \"xdp\"\ndevice = \"a\"\n".repeat(2) + "[[siit]]\npool6 = \"2001:db8::/96\"\n";
    insta::assert_snapshot!([text, tun, mixed, &same].map(report).join("\n"));
}

#[test]
fn instances_with_overlapping_claims_or_unknown_ports_are_refused() {
    let port = |name: &str, vlan: u16| {
        format!("[[port]]\nname = \"{name}\"\nbackend = \"xdp\"\ndevice = \"eth0\"\nvlan = {vlan}\n")
    };
    let four =
        |name: &str, keys: &str| format!("[[nat44]]\nname = \"{name}\"\ninside = \"10.0.0.0/8\"\n{keys}\n");
    let six = |keys: &str| format!("[[nat64]]\npool6 = \"64:ff9b::/96\"\n{keys}\n");
    let pool = "[[pool]]\nprefixes = \"192.0.2.1\"\n";
    let ports = pool.to_owned() + &port("outside", 1) + &port("customer-a", 2) + &port("customer-b", 3);
    let (a, b) = ("ports = [\"customer-a\"]", "ports = [\"customer-b\"]");
    let both = "ports = [\"customer-a\", \"customer-b\"]";
    let exempt = "ports = [\"customer-b\"]\nexempt = [{ prefixes = \"198.51.100.0/24\" }]";
    let by_formula = |inside: &str| {
        let pool = format!(
            "[[pool]]\nprefixes = \"192.0.2.0/24\"\n\
             allocation = {{ kind = \"deterministic\", inside = [\"{inside}\"] }}\n"
        );
        pool + &port("outside", 1) + &port("customer-a", 2) + &port("customer-b", 3)
    };
    let texts = [
        // An unknown port; a port of a TUN device; every port is an inside port.
        ports.clone() + &four("x", "ports = [\"costumer-a\"]"),
        pool.to_owned() + "[[port]]\nname = \"tun\"\n" + &four("x", "ports = [\"tun\"]"),
        pool.to_owned() + &port("customer-a", 2) + &four("x", a),
        // A port in two sets; a network twice behind the same port, and without ports.
        ports.clone() + &four("x", a) + &four("y", both),
        ports.clone() + &four("x", a) + &four("y", a),
        ports.clone() + &four("x", "") + &four("y", ""),
        // An untranslated answer that matches two instances.
        ports.clone() + &four("x", a) + &four("y", exempt),
        // A prefix twice with overlapping sources, and with a stateless instance.
        ports.clone() + &six("sources = \"2001:db8::/32\"") + &six("sources = \"2001:db8:1::/48\""),
        ports.clone() + &six("sources = \"2001:db8::/32\"") + &six(""),
        ports.clone() + &six(b) + &six(b),
        ports.clone() + &six(b) + "[[siit]]\npool6 = \"64:ff9b::/96\"\n",
        // A formula by address, for hosts that may have the same addresses.
        by_formula("10.0.0.0/24") + &four("x", a) + &four("y", b),
        by_formula("2001:db8::/56") + &six(a) + &six(b),
    ];
    insta::assert_snapshot!(texts.map(|text| report(&text)).join("\n"));
}

#[test]
fn invalid_dpdk_devices_are_refused() {
    let text = r#"
[dpdk]
huge_pages = true
cores = [1]
eal = [""]
[workers]
cores = [1, 1024, 1]
[[port]]
backend = "dpdk"
mode = "auto"
offload = true
[[port]]
backend = "dpdk"
device = "eth0"
[[port]]
backend = "dpdk"
device = "net_memif,role=client"
[[port]]
backend = "dpdk"
device = "0000:01:00.8"
[[siit]]
pool6 = "2001:db8::/96"
"#;
    let siit = "[[siit]]\npool6 = \"2001:db8::/96\"\n";
    let port = |backend: &str, device: &str| {
        format!("[[port]]\nbackend = \"{backend}\"\ndevice = \"{device}\"\naddresses = [\"192.0.2.1/24\"]\n")
    };
    let mixed = port("dpdk", "01:00.0") + &port("xdp", "eth0") + siit;
    let nobody = "[dpdk]\nhuge_pages = \"never\"\n".to_owned() + &port("xdp", "eth0") + siit;
    let cores = "[workers]\ncores = [1, 2]\n".to_owned() + &port("dpdk", "net_null0") + siit;
    insta::assert_snapshot!([text, &mixed, &nobody, &cores].map(report).join("\n"));
}

// proves: R74-2
#[test]
fn invalid_allocations_are_refused_and_waste_gives_a_warning() {
    let text = r#"
[[pool]]
name = "waste"
prefixes = "192.0.2.0"
ports = "1024-5000"
allocation = { kind = "blocks", size = 2048 }
[[pool]]
name = "none"
prefixes = "192.0.2.1"
ports = "1025-1300"
allocation = { kind = "blocks" }
[[pool]]
name = "odd"
prefixes = "192.0.2.2"
allocation = { kind = "blocks", size = 1000, overflow = 3, linger = "soon" }
[[pool]]
name = "random"
prefixes = "192.0.2.3"
allocation = { kind = "random", size = 256, protocols = "split" }
[[pool]]
name = "formula"
prefixes = "192.0.2.4"
allocation = { kind = "deterministic", inside = ["2001:db8::/48"] }
[[pool]]
name = "formula2"
prefixes = "192.0.2.5"
allocation = "deterministic"
[[pool]]
name = "list"
prefixes = "192.0.2.6"
allocation = ["blocks"]
[[nat64]]
pool6 = "64:ff9b::/96"
pool = "formula"
"#;
    insta::assert_snapshot!(report(text));
}

#[test]
fn invalid_ranges_of_static_ports_are_refused() {
    let text = r#"
[[pool]]
prefixes = "192.0.2.0/28"
[[nat64]]
pool6 = "64:ff9b::/96"
static = [
    { protocol = "tcp", inside = "[2001:db8::1]:80-90", outside = "192.0.2.1:80" },
    { protocol = "tcp", inside = "[2001:db8::1]:90-80", outside = "192.0.2.1:80-x" },
    { protocol = "tcp", inside = "[2001:db8::1]:1-2000", outside = "192.0.2.1:1-2000" },
    { protocol = "udp", inside = "[2001:db8::1]:0-1", outside = "192.0.2.1:0-1" },
]
"#;
    insta::assert_snapshot!(report(text));
}

#[test]
fn own_addresses_that_cannot_be_a_source_are_refused() {
    insta::assert_snapshot!(report("[translator]\nown4 = \"224.0.0.1\"\nown6 = \"fe80::1\"\n"));
}

// proves: R47-5, R53-5, R55-2
#[test]
fn doubtful_settings_are_accepted_with_a_warning() {
    let text = r#"
[[port]]
addresses = ["192.0.2.3/24"]
[[pool]]
name = "used"
prefixes = "192.0.2.0/28"
ports = "1-65535"
[[pool]]
name = "unused"
prefixes = "192.0.2.16"
[[nat64]]
pool6 = "64:ff9b::/96"
pool = "used"
wkp_non_global = true
timeouts = { icmp = "30s" }
[[siit]]
pool6 = "2001:db8:46::/96"
wkp_non_global = true
[translator]
mtu4 = 1000
mtu6 = 1400
lowest_ipv6_mtu = 1500
icmp4_error_max = 100
[timeouts]
udp = "30s"
tcp_established = "1h"
tcp_transitory = "1m"
tcp_incoming_syn = "1s"
fragment = "1ms"
"#;
    insta::assert_snapshot!(warnings(text));
    let (config, _) = load_str(text, "gatun.toml").unwrap();
    assert_eq!(config.plan.nat64[0].timeouts.udp_ms, 30_000);
    assert_eq!(config.plan.nat64[0].timeouts.icmp_ms, 30_000);
}

#[test]
fn a_stateless_instance_without_own_addresses_gives_a_warning() {
    insta::assert_snapshot!(warnings("[[siit]]\neam = [{ v4 = \"192.0.2.1\", v6 = \"2001:db8::1\" }]\n"));
}

#[test]
fn a_thousand_errors_are_cut_short_and_counted() {
    let mut text = String::from("[[siit]]\neam = [\n");
    for _ in 0..1_000 {
        text.push_str("  { v4 = \"x\", v6 = \"2001:db8::1\" },\n");
    }
    text.push_str("]\n");
    let report = report(&text);
    assert!(report.ends_with("... and 900 more errors\n"), "{report}");
    assert_eq!(report.matches("error:").count(), 100);
}

#[test]
fn errors_in_a_file_of_mappings_name_that_file_and_line() {
    let dir = std::env::temp_dir().join(format!("gatun-eam-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(
        dir.join("eam.txt"),
        "# mappings\n192.0.2.1 2001:db8::1 # one\n\n192.0.2.x\t2001:db8::2\n192.0.2.3\n  192.0.2.4 2001:db8::4 5\n192.0.2.1 2001:db8::6\r\n",
    )
    .unwrap();
    let config = dir.join("gatun.toml");
    std::fs::write(&config, "[[siit]]\neam_file = [\"eam.txt\", \"missing.txt\"]\n").unwrap();
    let report = gatun_config::load_file(&config).unwrap_err().to_string();
    std::fs::remove_dir_all(&dir).unwrap();
    insta::assert_snapshot!(report.replace(&format!("{}/", dir.display()), ""));
}

#[test]
fn missing_and_binary_files_are_reported_like_other_errors() {
    let missing = gatun_config::load_file("/nonexistent/gatun.toml".as_ref()).unwrap_err().to_string();
    insta::assert_snapshot!(missing);
    let path = std::env::temp_dir().join(format!("gatun-latin1-{}.toml", std::process::id()));
    std::fs::write(&path, b"# caf\xe9\n").unwrap();
    let latin1 = gatun_config::load_file(&path).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    let first = latin1.iter().next().unwrap();
    assert_eq!((first.line, first.column, first.what), (1, 6, "this byte is not UTF-8"));
}

#[test]
fn only_the_first_error_of_a_long_invalid_text_is_reported() {
    let text = "x = 1\n".repeat(200_000);
    let report = load_str(&text, "gatun.toml").unwrap_err();
    assert_eq!(report.errors(), 1);
    assert!(report.to_string().starts_with("gatun.toml:2:1: error: duplicate key"), "{report}");
}

/// A list of mappings, with `more` in its middle.
fn long_list(mappings: u32, more: &str) -> String {
    let mut text = String::from("[[siit]]\neam = [\n");
    for n in 0..mappings {
        if n == mappings / 2 {
            text.push_str(more);
        }
        let (v4, v6) = (std::net::Ipv4Addr::from(0x0b00_0000 | n), n);
        let _ = writeln!(
            text,
            "  {{ v4 = \"{v4}\", v6 = \"2001:db8::{:x}:{:x}\" }}, # a host",
            v6 >> 16,
            v6 & 0xffff
        );
    }
    text + "]\n"
}

#[test]
fn an_error_in_a_long_list_has_its_place_and_an_endless_text_is_refused() {
    assert!(load_str(&long_list(200_000, ""), "gatun.toml").is_ok(), "a long list with comments is valid");
    let wrong = "  { v4 = \"10.0.0.300\", v6 = \"2001:db8::5\" },\n";
    let said = report(&long_list(200_000, wrong));
    assert!(
        said.starts_with("gatun.toml:100003:10: error: `v4`: \"10.0.0.300\" is not an IPv4 prefix"),
        "{said}"
    );
    let said = report(&"x = 1\n".repeat(18 << 20));
    assert!(said.contains("gatun.toml:1:1: error: the file has more than 96.0 MiB"), "{said}");
    assert!(said.contains("eam_file"), "{said}");
}

#[test]
fn an_endless_mapping_file_is_refused() {
    let text = "[[siit]]\neam_file = \"/dev/zero\"\n";
    let said = report(text);
    assert!(
        said.contains("gatun.toml:2:12: error: `eam_file`: /dev/zero cannot be read: it is longer than"),
        "{said}"
    );
}

// proves: R47-7
#[test]
fn inside_networks_that_are_public_or_duplicate_are_refused() {
    insta::assert_snapshot!(report(
        r#"
[translator]
own4 = "10.9.9.9"
[[pool]]
prefixes = ["192.0.2.0/28", "100.64.9.0/30"]
[[nat44]]
inside = ["100.64.0.0/10", "10.0.0.0/8", "127.0.0.0/8"]
[[nat44]]
inside = ["10.1.0.0/16", "203.0.113.0/25"]
[[siit]]
pool6 = "2001:db8:46::/96"
eam = [{ v4 = "203.0.113.5", v6 = "2001:db8::5" }]
"#
    ));
}

#[test]
fn overload_accepts_each_tcp_and_udp_port_once() {
    let pool = |overload: &str| {
        format!(
            "[[pool]]\nprefixes = \"192.0.2.1\"\noverload = {overload}\n[[nat64]]\npool6 = \"64:ff9b::/96\"\n"
        )
    };
    for (overload, wanted) in [
        ("[0]", "0 is not between 1 and 65535"),
        ("[\"icmp/8\"]", "\"icmp\" has no ports to share"),
        ("[\"443\"]", "\"443\" is not a protocol and a port"),
        ("[\"udp/0\"]", "\"0\" is not a port"),
        ("[443, \"tcp/443\"]", "duplicate port 443 for one protocol"),
        ("[true]", "expected a whole number"),
    ] {
        let text = report(&pool(overload));
        assert!(text.contains(wanted), "{overload}: {text}");
    }
    let many: Vec<u16> = (1000..1033).collect();
    assert!(report(&pool(&format!("{many:?}"))).contains("write at most 64"));
    assert!(warnings(&pool("[\"udp/53\"]")).contains("RFC 5452"));
    assert_eq!(warnings(&pool("[\"tcp/53\", 443, \"udp/123\"]")), "");
}

#[test]
fn invalid_api_and_metrics_sockets_are_refused() {
    let with = |lines: &str| report(&format!("[[siit]]\npool6 = \"2001:db8:46::/96\"\n{lines}"));
    let long = "x".repeat(100);
    let wrong = [
        "[api]\nlisten = \"/run/gatun/api.sock\"",
        "[api]\nlisten = \"unix:api.sock\"",
        &format!("[api]\nlisten = \"unix:/{long}\""),
        "[api]\nlisten = false",
        "[api]\ngroup = \"net ops\"",
        "[api]\nlisten_tls = \"[::1]:8443\"",
        "[api]\nlisten_tls = [\"::1\", \"[::1]:1\", \"[::1]:1\"]\ncertificate = \"/c\"\nkey = \"k\"\ntokens = \"/t/\"",
        "[metrics]",
        "[metrics]\nlisten = \"localhost:9464\"",
        "[metrics]\nlisten = \"[::1]:0\"",
    ];
    insta::assert_snapshot!(wrong.map(with).join("\n"));
    let alone = "[[siit]]\npool6 = \"2001:db8:46::/96\"\n[api]\nkey = \"/etc/gatun/api.key\"";
    assert!(warnings(alone).contains("`key` has no effect without `listen_tls`"));
}

#[test]
fn precede_routes_is_refused_for_persistent_devices() {
    let text = "[[port]]\ndevice = \"nat64\"\nmode = \"attach\"\nprecede_routes = true\n[[siit]]\npool6 = \"2001:db8::/96\"\n\
                eam = [{ v4 = \"192.0.2.1\", v6 = \"2001:db8:1::1\" }]\n";
    let report = report(text);
    assert!(
        report.contains(
            "gatun.toml:4:18: error: `precede_routes` needs a device that gatun removes at its end"
        ),
        "{report}"
    );
}

#[test]
fn a_pair_that_could_not_work_is_refused() {
    let stateful = "[[pool]]\nprefixes = [\"192.0.2.1\"]\n[[nat64]]\npool6 = \"64:ff9b::/96\"\n";
    let of = |peer: &str| report(&format!("{stateful}[peer]\n{peer}"));
    assert!(of("connect = \"192.0.2.9:7464\"\n").contains("`member` is missing"));
    assert!(of("member = \"a\"\n").contains("neither `listen` nor `connect`"));
    assert!(of("member = \"a\"\nconnect = \"[::]:7464\"\n").contains("`connect` is the address of no host"));
    let own = of("member = \"a\"\nlisten = \"192.0.2.9:7464\"\nconnect = \"192.0.2.9:7464\"\n");
    assert!(own.contains("`connect` is the address of `listen`"), "{own}");
    let short = of("member = \"a\"\nlisten = \"[::]:7464\"\ndead_after = \"199ms\"\n");
    assert!(short.contains("`dead_after` is below 200 ms"), "{short}");
    let both = of("member = \"a\"\nlisten = \"[::]:7464\"\nmode = \"active-active\"\n");
    assert!(both.contains("fewer than 2 addresses"), "{both}");
    let switches = "[[offload]]\nkind = \"p4runtime\"\nswitches = [\"edge at [::1]:9559\"]\n";
    let both = of(&format!("member = \"a\"\nlisten = \"[::]:7464\"\n{switches}"));
    assert!(both.contains("[peer] and [[offload]]"), "{both}");
    let shared = stateful.replace("[\"192.0.2.1\"]", "[\"192.0.2.1\"]\noverload = [443]");
    let said = report(&format!("{shared}[peer]\nmember = \"a\"\nlisten = \"[::]:7464\"\n"));
    assert!(said.contains("[peer] and `overload` in pool"), "{said}");
    let stateless = "[[siit]]\npool6 = \"2001:db8:46::/96\"\n[[port]]\nroutes = [\"2001:db8:46::/96\"]\n";
    let said = warnings(&format!("{stateless}[peer]\nmember = \"a\"\nlisten = \"[::]:7464\"\n"));
    assert!(said.contains("[peer] has no effect"), "{said}");
}
