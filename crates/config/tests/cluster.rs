//! `[cluster]`: its defaults, and what is refused.

use gatun_config::{Cluster, ClusterNode, Config, load_str};

/// A cluster of two nodes. Changes replace a text by another one.
const FILE: &str = r#"[translator]
own4 = "198.51.100.9"
[[pool]]
name = "res"
prefixes = ["192.0.2.0/28"]
[[nat64]]
pool6 = "2001:db8:64::/96"
[cluster]
etcd = ["http://192.0.2.21:2379", "http://[2001:db8::22]:2379"]
[[cluster.nodes]]
name = "a"
peer = "10.0.0.1:7465"
tunnel = "198.51.100.1"
[[cluster.nodes]]
name = "b"
peer = "10.0.0.2:7465"
tunnel = "198.51.100.2"
weight = 3
"#;

fn load(text: &str) -> Config {
    load_str(text, "gatun.toml").unwrap_or_else(|report| panic!("refused:\n{report}")).0
}

fn cluster(more: &str) -> Cluster {
    load(&FILE.replace("[cluster]\n", &format!("[cluster]\n{more}\n"))).cluster.unwrap()
}

/// Report about a file with one change.
fn report(from: &str, to: &str) -> String {
    assert!(FILE.contains(from), "{from}");
    match load_str(&FILE.replacen(from, to, 1), "gatun.toml") {
        Err(report) => report.to_string(),
        Ok(_) => panic!("accepted: {to}"),
    }
}

/// Report about a file with further keys in `[cluster]`.
fn with(keys: &str) -> String {
    report("[cluster]\n", &format!("[cluster]\n{keys}\n"))
}

#[test]
fn a_cluster_has_defaults_and_every_key() {
    let node = |name: &str, number: u8, weight| ClusterNode {
        name: name.to_owned(),
        peer: ([10, 0, 0, number], 7465).into(),
        tunnel: [198, 51, 100, number].into(),
        weight,
        api: None,
    };
    let defaults = Cluster {
        name: "gatun".to_owned(),
        node: None,
        etcd: vec!["http://192.0.2.21:2379".to_owned(), "http://[2001:db8::22]:2379".to_owned()],
        etcd_user: None,
        etcd_directory: None,
        directory: gatun_config::CLUSTER_DIRECTORY.into(),
        shards: 16,
        lease_ms: 5_000,
        hold_ms: 300_000,
        vni: 4_096,
        port: 4_789,
        tunnel_mtu: 1_500,
        own_ports: 4_096,
        packets: 3,
        dead_after_ms: 1_000,
        away_after_ms: 10_000,
        nodes: vec![node("a", 1, 1), node("b", 2, 3)],
    };
    assert_eq!(cluster(""), defaults);
    assert_eq!(load(FILE).plan.shards, Some(16));
    let other = cluster(
        "name = \"edge\"\nnode = \"b\"\netcd_user = \"gatun\"\netcd_password_file = \"/etc/gatun/password\"\n\
         directory = \"/etc/edge\"\nshards = 4\nlease = \"2s\"\nhold = \"8s\"\nvni = 7\nport = 4790\n\
         tunnel_mtu = 9000\nown_ports = 0\npackets = 128\ndead_after = \"200ms\"\naway_after = \"1m\"",
    );
    let expected = Cluster {
        name: "edge".to_owned(),
        node: Some("b".to_owned()),
        etcd_user: Some(("gatun".to_owned(), "/etc/gatun/password".into())),
        directory: "/etc/edge".into(),
        shards: 4,
        lease_ms: 2_000,
        hold_ms: 8_000,
        vni: 7,
        port: 4_790,
        tunnel_mtu: 9_000,
        own_ports: 0,
        packets: 128,
        dead_after_ms: 200,
        away_after_ms: 60_000,
        ..defaults
    };
    assert_eq!(other, expected);
}

#[test]
fn a_node_has_its_name_from_the_command_the_file_or_the_host() {
    let chosen = |more: &str, given, host| {
        let mut config = load(&FILE.replace("[cluster]\n", &format!("[announce]\n[cluster]\n{more}\n")));
        let before = config.routes().len();
        config.choose_node(given, host).map(|()| {
            let has_tunnel = config.routes().len() > before || !more.is_empty();
            assert!(
                has_tunnel
                    && config.announce.unwrap().networks.len() == before + usize::from(more.is_empty())
            );
            config.cluster.unwrap().own_number().unwrap()
        })
    };
    assert_eq!(chosen("", None, "A.example.net"), Ok(0));
    assert_eq!(chosen("", Some("b"), "a"), Ok(1));
    assert_eq!(chosen("node = \"b\"", None, "a"), Ok(1));
    assert_eq!(chosen("node = \"b\"", Some("a"), "x"), Ok(0));
    let why = chosen("", None, "router").unwrap_err();
    assert!(why.contains("no node \"router\"") && why.contains("a, b"), "{why}");
    let why = load("[[siit]]\npool6 = \"2001:db8:46::/96\"\n").choose_node(Some("a"), "a").unwrap_err();
    assert!(why.contains("--node a: the configuration has no [cluster]"), "{why}");
}

#[test]
fn nodes_that_contradict_each_other_are_refused() {
    assert!(report("\"b\"", "\"a\"").contains("`name`: another node has the name \"a\", too"));
    assert!(report("10.0.0.2", "10.0.0.1").contains("`peer`: another node has the address 10.0.0.1:7465"));
    let tunnel = report("\"198.51.100.2\"", "\"198.51.100.1\"");
    assert!(
        tunnel.contains("gatun.toml:17:10: error: `tunnel`: another node has the tunnel address"),
        "{tunnel}"
    );
    assert!(report("\"198.51.100.2\"", "\"2001:db8::2\"").contains("are of two families"));
    assert!(report("\"198.51.100.2\"", "\"224.0.0.1\"").contains("not the address of a host"));
    assert!(report("\"b\"", "\"B\"").contains("invalid name of a node"));
    let api = |one: &str, other: &str| {
        let file = FILE.replacen("[[cluster.nodes]]\n", &format!("[[cluster.nodes]]\napi = \"{one}\"\n"), 1);
        let (first, second) = file.rsplit_once("[[cluster.nodes]]\n").unwrap();
        load_str(&format!("{first}[[cluster.nodes]]\napi = \"{other}\"\n{second}"), "f")
    };
    let nodes = api("https://a.example.net:8443", "/run/b.sock").unwrap().0.cluster.unwrap().nodes;
    assert_eq!(nodes[0].api.as_deref(), Some("https://a.example.net:8443"));
    assert_eq!(nodes[1].api.as_deref(), Some("/run/b.sock"));
    let why = api("/run/b.sock", "/run/b.sock").unwrap_err().to_string();
    assert!(why.contains("`api`: another node has the same address, too"), "{why}");
    for wrong in ["http://a.example.net", "https://", "https://user@a.example.net", "b.sock", "/run/"] {
        let why = api(wrong, "/run/b.sock").unwrap_err().to_string();
        assert!(why.contains("neither https://HOST:PORT nor an absolute path"), "{wrong}: {why}");
    }
    assert!(report("10.0.0.2:7465", "0.0.0.0:7465").contains("`peer` is the address of no host"));
    let none = with("node = \"c\"");
    assert!(none.contains("has no node \"c\"") && none.contains("the nodes are: a, b"), "{none}");
    let idle = FILE
        .replace("weight = 3", "weight = 0")
        .replace("tunnel = \"198.51.100.1\"", "tunnel = \"198.51.100.1\"\nweight = 0");
    assert!(load_str(&idle, "f").unwrap_err().to_string().contains("all nodes have the weight 0"));
    let nobody = FILE.split("[[cluster.nodes]]").next().unwrap();
    assert!(load_str(nobody, "f").unwrap_err().to_string().contains("[cluster] has no `nodes`"));
}

#[test]
fn unusable_settings_of_etcd_are_refused_without_showing_a_password() {
    let secret = report("http://192.0.2.21", "http://root:hunter2@192.0.2.21");
    assert!(secret.contains("no user and no password"), "{secret}");
    let places = load_str(&FILE.replace("http://192.0.2.21", "http://u:hunter2@192.0.2.21"), "f");
    let places = places.unwrap_err().iter().map(|one| one.what.to_owned()).collect::<String>();
    assert!(!places.contains("hunter2"), "{places}");
    assert!(report("192.0.2.21:2379", "etcd.example:2379").contains("names are not looked up"));
    assert!(report("http://192.0.2.21:2379", "192.0.2.21:2379").contains("is not http://ADDRESS:PORT"));
    assert!(report("[2001:db8::22]", "192.0.2.21").contains("`etcd` has http://192.0.2.21:2379 twice"));
    assert!(report("http://192", "https://192").contains("needs the certificate of etcd's authority"));
    assert!(with("etcd_user = \"gatun\"").contains("`etcd_user` needs `etcd_password_file`"));
    let empty = report("[\"http://192.0.2.21:2379\", \"http://[2001:db8::22]:2379\"]", "[]");
    assert!(empty.contains("`etcd` lists no endpoint"), "{empty}");
    let unused = FILE.replace("[cluster]\n", "[cluster]\netcd_directory = \"/etc/etcd\"\n");
    assert!(load_str(&unused, "f").unwrap().1.to_string().contains("`etcd_directory` has no effect"));
}

#[test]
fn pools_and_addresses_that_cannot_be_divided_are_refused() {
    let few = with("shards = 32");
    assert!(few.contains("`shards` is 32, and the pool \"res\" has 16 addresses"), "{few}");
    assert!(few.contains("gatun.toml:9:10: error") && few.contains("write `shards = 16` or less"), "{few}");
    assert!(with("shards = 12").contains("no power of two"));
    let det = report(
        "prefixes = [\"192.0.2.0/28\"]",
        "prefixes = [\"192.0.2.0/28\"]\nallocation = { kind = \"deterministic\", ports = 128, inside = [\"2001:db8:1::/56\"] }",
    );
    assert!(det.contains("deterministic allocation"), "{det}");
    let workers = format!("[[port]]\nqueues = 4\n{}", FILE.replace("[cluster]\n", "[cluster]\nshards = 2\n"));
    let workers = load_str(&workers, "f").unwrap_err().to_string();
    assert!(workers.contains("2 shards for 4 workers"), "{workers}");
    let own = report("own4 = \"198.51.100.9\"", "own4 = \"192.0.2.9\"");
    assert!(own.contains("gatun.toml:2:8: error: `own4` is in the pool \"res\""), "{own}");
    let none = report("own4 = \"198.51.100.9\"", "");
    assert!(none.contains("[translator] has no `own4`, so it would be 192.0.2.1"), "{none}");
    let own6 = report("own4 = ", "own6 = \"2001:db8:64::c000:205\"\nown4 = ");
    assert!(own6.contains("has 192.0.2.5 of the pool \"res\" in it"), "{own6}");
    assert!(report("\"198.51.100.2\"", "\"192.0.2.2\"").contains("192.0.2.2 is in the pool \"res\""));
    assert!(report("\"198.51.100.2\"", "\"198.51.100.9\"").contains("198.51.100.9 is an own address"));
}

#[test]
fn what_does_not_go_with_a_cluster_is_refused() {
    let pair = format!("{FILE}[peer]\nmember = \"a\"\nlisten = \"[::]:7464\"\n");
    assert!(load_str(&pair, "f").unwrap_err().to_string().contains("[cluster] and [peer]"));
    let kernel = format!("{FILE}[fastpath]\nkernel = \"auto\"\n");
    assert!(load_str(&kernel, "f").unwrap_err().to_string().contains("[cluster] and [fastpath]"));
    let shared = report("[\"192.0.2.0/28\"]\n", "[\"192.0.2.0/28\"]\noverload = [443]\n");
    assert!(shared.contains("[cluster] and `overload` in pool"), "{shared}");
    assert!(with("tunnel_mtu = 1349").contains("write `tunnel_mtu = 1350` or more"));
    assert!(with("lease = \"900ms\"").contains("`lease` is below 1 s"));
    let hold = with("lease = \"5s\"\nhold = \"19s\"");
    assert!(hold.contains("`hold` is below 4 leases") && hold.contains("write `hold = \"20s\"`"), "{hold}");
    assert!(with("dead_after = \"199ms\"").contains("`dead_after` is below 200 ms"));
    let late = with("dead_after = \"61s\"");
    assert!(
        late.contains("`dead_after` is above 1 min") && late.contains("write `dead_after = \"1m\"` or less")
    );
    load(&FILE.replace("[cluster]\n", "[cluster]\ndead_after = \"1m\"\n"));
    let stateless = "[[siit]]\npool6 = \"2001:db8:46::/96\"\n[cluster]\netcd = \"http://[::1]:2379\"\n\
                     [[cluster.nodes]]\nname = \"a\"\npeer = \"[::1]:1\"\ntunnel = \"198.51.100.1\"\n";
    let (config, warnings) = load_str(stateless, "f").unwrap();
    assert!(config.cluster.is_none() && warnings.to_string().contains("[cluster] has no effect"));
}

#[test]
fn a_password_for_etcd_needs_tls_at_all_endpoints() {
    let user = "etcd_user = \"gatun\"\netcd_password_file = \"/etc/gatun/etcd-password\"";
    let (_, warnings) = load_str(&FILE.replace("[cluster]\n", &format!("[cluster]\n{user}\n")), "f").unwrap();
    let warnings = warnings.to_string();
    assert!(warnings.contains("everybody on the way reads the password"), "{warnings}");
    assert!(warnings.contains("`https://` and `etcd_directory`"), "{warnings}");
    let mixed = FILE.replace("http://192.0.2.21", "https://192.0.2.21");
    let mixed = mixed.replace("[cluster]\n", "[cluster]\netcd_directory = \"/etc/gatun/etcd\"\n");
    let why = load_str(&mixed, "f").unwrap_err().to_string();
    assert!(why.contains("http://[2001:db8::22]:2379 is without TLS"), "{why}");
    let secure = mixed.replace("http://[", "https://[");
    let secure = secure.replace("[cluster]\n", &format!("[cluster]\n{user}\n"));
    let (_, warnings) = load_str(&secure, "f").unwrap();
    assert_eq!(warnings.to_string(), "");
}

#[test]
fn announced_links_are_names_of_interfaces() {
    let announce = |more: &str| load_str(&format!("{FILE}[announce]\n{more}\n"), "f");
    let links = |more: &str| announce(more).unwrap().0.announce.unwrap().links;
    assert_eq!(links(""), [""; 0]);
    assert_eq!(links("links = [\"eth0\", \"eth1\"]"), ["eth0", "eth1"]);
    assert!(announce("links = [\"a/b\"]").is_err());
}

#[test]
fn tracked_routes_are_few_networks() {
    let announce =
        |networks: &str| load_str(&format!("{FILE}[announce]\ntracked_routes = [{networks}]\n"), "f");
    let tracked = |networks: &str| announce(networks).unwrap().0.announce.unwrap().tracked_routes;
    let text =
        tracked("\"0.0.0.0/0\", \"2001:db8::/32\"").iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(text, ["0.0.0.0/0", "2001:db8::/32"]);
    let why = announce("\"198.51.100.1/24\"").unwrap_err().to_string();
    assert!(why.contains("198.51.100.0/24"), "{why}");
    let many =
        |count: usize| (0..count).map(|n| format!("\"192.0.2.{n}/32\"")).collect::<Vec<_>>().join(", ");
    assert_eq!(tracked(&many(32)).len(), 32);
    let why = announce(&many(33)).unwrap_err().to_string();
    assert!(why.contains("`tracked_routes` has 33 networks") && why.contains("write at most 32"), "{why}");
}
