//! Findings of `gatun doctor` at a box of a pair and at a node of a cluster: routes, BIRD, BFD, tunnel, etcd.

use crate::cluster::{NAMES, NODES, Nodes, client, cluster, config, is_whole, network, until};
use crate::harness::{Daemon, program};
use crate::pair::{Numbered, STANDBY, certificates, kill, lab, start, until_synced};
use crate::pair_tools::at;
use gatun_api::types::{Binding, ClusterState, Page, Pool, Status};
use gatun_testkit::pair::SERVER;
use gatun_testkit::{PairNetwork, echo, run, wait_until};
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::time::Duration;

/// Longest wait for a finding: the machine may be busy.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Place at which `gatun doctor` asks BIRD.
const CONTROL: &str = "/run/bird/bird.ctl";

/// Notes and problems that the doctor finds at a box, without those about the kernel's settings.
fn findings(net: &PairNetwork, number: usize) -> String {
    at(net, number, "doctor --quiet").1
}

/// Waits until the doctor of a box says something, or no longer.
fn until_said(net: &PairNetwork, number: usize, what: &str, is_said: bool) {
    let waited = wait_until(what, WAIT_MAX, || findings(net, number).contains(what) == is_said);
    assert!(
        waited.is_ok(),
        "'{what}' is {} said: {}",
        if is_said { "not" } else { "" },
        findings(net, number)
    );
}

/// Has the doctor ask the BIRD of a box.
fn ask_bird_of(net: &PairNetwork, number: usize) {
    let _ = fs::remove_file(CONTROL);
    symlink(format!("/run/bird/{}.ctl", net.boxes[number].name()), CONTROL).unwrap();
}

fn birdc(control: &str, command: &str) {
    let mut birdc = std::process::Command::new("birdc");
    run(birdc.args(["-s", control]).args(command.split(' '))).unwrap();
}

/// Changes the settings of a box's BIRD. Without changes, they are as before.
fn configure(net: &PairNetwork, number: usize, changes: &[(&str, &str)]) {
    let name = net.boxes[number].name();
    let settings = fs::read_to_string(format!("/run/bird/{name}.conf")).unwrap();
    let changed = changes.iter().fold(settings, |settings, (from, to)| {
        assert!(settings.contains(from), "{from}");
        settings.replace(from, to)
    });
    let file = format!("/run/bird/{name}-changed.conf");
    fs::write(&file, changed).unwrap();
    birdc(&format!("/run/bird/{name}.ctl"), &format!("configure \"{file}\""));
}

#[test]
fn faults_of_the_routes_of_a_pair_are_reported() {
    lab("doctor_boxes::faults_of_the_routes_of_a_pair_are_reported", || {
        certificates(STANDBY.pki);
        let net = PairNetwork::new().unwrap();
        let _server = echo(&net.server).unwrap();
        let _boxes = [0, 1].map(|number| start(&net, number, STANDBY));
        until_synced();
        ask_bird_of(&net, 1);
        let faults = [
            "BIRD has",
            "BGP",
            "BFD",
            "announces no route",
            "no BIRD answers",
            "asymmetric",
            "WRONG announce",
        ];
        let is_well = || {
            let (_, said) = at(&net, 1, "doctor");
            said.contains("BIRD has learnt routes to gatun-routes")
                && !faults[1..].iter().any(|fault| said.contains(fault))
        };
        let well = || {
            wait_until("all is well", WAIT_MAX, is_well)
                .unwrap_or_else(|_| panic!("{}", at(&net, 1, "doctor").1))
        };
        well();

        // The standby box has two routes: the peer of the pair would have no way to the pool through it.
        configure(&net, 1, &[("kernel table 187", "kernel table 1187")]);
        until_said(&net, 1, "BIRD has not learnt the routes of table 187", true);
        configure(
            &net,
            1,
            &[("protocol kernel backup4 { kernel table 187", "protocol kernel backup4 { kernel table 1187")],
        );
        until_said(&net, 1, "BIRD has learnt 1 of 2 routes of table 187", true);
        configure(&net, 1, &[]);
        well();

        // Without BFD, and with one neighbour that has none.
        configure(&net, 1, &[("    bfd on;\n", "")]);
        until_said(
            &net,
            1,
            "no BFD beside the BGP of BIRD with outer (neighbour 10.0.2.1), inner (neighbour",
            true,
        );
        // Sessions that are down for a moment have another repair.
        until_said(&net, 1, "fix: `bfd on` in `protocol bgp`, on both sides", true);
        configure(&net, 1, &[]);
        well();
        birdc("/run/bird/outside.ctl", "disable bfd1");
        until_said(&net, 1, "no BFD beside the BGP of BIRD with outer (neighbour 10.0.2.1): if", true);
        birdc("/run/bird/outside.ctl", "enable bfd1");
        well();

        configure(
            &net,
            1,
            &[(
                "export filter announced; next hop self; }; }\nprotocol bgp inner",
                "export none; next hop self; }; }\nprotocol bgp inner",
            )],
        );
        until_said(&net, 1, "BIRD announces no route by BGP session outer: neighbour 10.0.2.1", true);
        configure(&net, 1, &[]);
        well();
        birdc("/run/bird/inside.ctl", "disable box_b");
        until_said(&net, 1, "WRONG announce: BGP session inner of BIRD is not established", true);
        birdc("/run/bird/inside.ctl", "enable box_b");
        well();

        routes_that_take_another_box_back(&net);
    });
}

/// Packets from inside take the second box, and the answers the first one.
fn routes_that_take_another_box_back(net: &PairNetwork) {
    let one_way = "asymmetric routes: ";
    // Many packets have taken the same box both ways.
    net.wait_until_used(0, "192.0.2.1").unwrap();
    let both_ways = Numbered::start(net, 21_000);
    let packets = || {
        let pools: Vec<Pool> = crate::pair::client(0).get("/v1/pools").unwrap();
        (pools[0].outbound.packets, pools[0].inbound.packets)
    };
    wait_until("packets pass both ways", WAIT_MAX, || packets().0.min(packets().1) > 5_000).unwrap();
    for number in 0..2 {
        assert!(!findings(net, number).contains(one_way));
    }
    both_ways.end();
    net.inside.ip("-6 route add 2001:db8:64::/96 via 2001:db8:20::2 metric 1").unwrap();
    net.outside.ip("route add 192.0.2.0/30 via 10.0.1.2").unwrap();
    // Whatever BGP does on a busy machine.
    assert_eq!([net.used(&net.inside, SERVER), net.used(&net.outside, "192.0.2.1")], [Some(1), Some(0)]);
    let flow = Numbered::start(net, 22_000);
    until_said(net, 1, one_way, true);
    until_said(net, 0, one_way, true);
    for (number, words) in [(0, ["0 packets", "went out here"]), (1, ["packets", "and 0 came in"])] {
        let said = findings(net, number);
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
        assert!(said.contains("fix: announce prefix and pool from the same box"), "{said}");
    }
    // Repaired routes are not reported any more.
    net.inside.ip("-6 route del 2001:db8:64::/96 via 2001:db8:20::2 metric 1").unwrap();
    net.outside.ip("route del 192.0.2.0/30 via 10.0.1.2").unwrap();
    (0..2).for_each(|number| until_said(net, number, one_way, false));
    flow.end();
}

/// Starts a node that knows its name by an argument only, with a larger MTU between the nodes than they have.
fn start_node(net: &PairNetwork, number: usize, text: &str) -> Daemon {
    let name = NAMES[number];
    let own = config(number, text).replace(&format!("node = \"{name}\"\n"), "");
    Daemon::start_by(net.boxes[number].command(program()), &own, &["--node", name])
}

#[test]
fn faults_of_a_cluster_are_reported_with_their_repair() {
    lab("doctor_boxes::faults_of_a_cluster_are_reported_with_their_repair", || {
        let net = network();
        let mut nodes = Nodes::start_by(&net, &|number| start_node(&net, number, "tunnel_mtu = 1_600\n"));
        ask_bird_of(&net, 0);
        let lines = [
            "ok    cluster: this node is registered, and has",
            "ok    cluster: the certificate is valid for",
            "ok    announce: BIRD has learnt routes to gatun-routes",
            "note  announce: only the routers notice a link that has a carrier",
            "WRONG mtu: peer, by which packets go to the tunnel address of node b, has MTU 1500, but \
             [cluster] has tunnel_mtu = 1600",
            "WRONG mtu: nat64, by which packets go to the tunnel address of node a, has MTU 1500",
            "fix: `mtu = 1600` in the [[port]] of nat64",
        ];
        let are_said = || {
            let said = at(&net, 0, "doctor").1;
            lines.iter().all(|line| said.contains(line))
        };
        let waited = wait_until("first findings", WAIT_MAX, are_said);
        assert!(waited.is_ok(), "not all of {lines:#?} are said: {}", at(&net, 0, "doctor").1);
        the_tunnel_is_checked(&net);
        a_route_past_the_owner_is_noted(&net);

        // A node dies.
        kill(&mut nodes.daemons[2]);
        until_said(&net, 0, "WRONG cluster: node c is away\n        fix: start it", true);
        until_said(
            &net,
            0,
            "without a backup that has all sessions\n        fix: gatun cluster shards",
            true,
        );
        nodes.daemons[2] = start_node(&net, 2, "tunnel_mtu = 1_600\n");
        until(0, "it is here again", |cluster| is_whole(cluster, &[]) && cluster.away().next().is_none());
        until_said(&net, 0, "cluster: node c is away", false);
        // Nodes do not reach each other.
        net.boxes[1].ip("link set peer down").unwrap();
        until_said(&net, 0, "cluster: node b is away", true);
        net.boxes[1].ip("link set peer up").unwrap();
        for other in [1, 3] {
            net.boxes[1].ip(&format!("route replace 10.0.8.{other}/32 via 10.0.9.{other}")).unwrap();
        }
        until_said(&net, 0, "WRONG cluster", false);

        nodes.stop_etcd();
        until_said(
            &net,
            0,
            "WRONG cluster: this node goes on without etcd: nothing moves, and nobody joins",
            true,
        );
        until_said(&net, 0, "WRONG cluster: etcd has failed for ", true);
        nodes.start_etcd();
        until(0, "it is registered again", |cluster| cluster.state == ClusterState::Registered);
        until_said(&net, 0, "WRONG cluster", false);
        assert_eq!(cluster(0).nodes.len(), NODES);
    });
}

/// Public address of the host with this port, which a binding of any node has.
fn public_of(port: u16) -> Ipv4Addr {
    let found = (0..NODES).find_map(|number| {
        let page: Page<Binding> = client(number).get("/v1/bindings?limit=10000").unwrap();
        page.items.into_iter().find(|binding| binding.inside_port == port)
    });
    found.unwrap().outside
}

/// Number of the node that is neither owner nor backup of a public address.
fn without(public: Ipv4Addr) -> usize {
    let has = |range: &String| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let [first, last] = [first, last].map(|address| address.parse::<Ipv4Addr>().unwrap());
        (first..=last).contains(&public)
    };
    let shards = cluster(0).shards;
    let shard = shards.iter().find(|shard| shard.addresses.iter().any(has)).unwrap();
    let holders = [shard.owner.as_deref(), shard.backup.as_deref()];
    NAMES.iter().position(|name| !holders.contains(&Some(*name))).unwrap()
}

/// Answers to a public address take a node that has to send them to the owner, and no longer.
fn a_route_past_the_owner_is_noted(net: &PairNetwork) {
    let past = "note  cluster: routes lead packets past the owner of their address: of ";
    let flow = Numbered::start(net, 22_000);
    let public = public_of(22_000);
    let wrong = without(public);
    let route = format!("{public}/32 via 10.0.{}.2", wrong + 1);
    // Packets from inside are redirected by design.
    let inside = format!("2001:db8:64::/96 via 2001:db8:{}0::2 metric 1", wrong + 1);
    net.inside.ip(&format!("-6 route add {inside}")).unwrap();
    let redirected = || client(wrong).get::<Status>("/v1/status").unwrap().redirected.packets;
    wait_until("packets from inside are redirected", WAIT_MAX, || redirected() > 500).unwrap();
    assert!((0..NODES).all(|number| !findings(net, number).contains(past)));
    net.outside.ip(&format!("route add {route}")).unwrap();
    until_said(net, wrong, past, true);
    let mut others = (0..NODES).filter(|number| *number != wrong);
    assert!(others.all(|number| !findings(net, number).contains(past)));
    net.outside.ip(&format!("route del {route}")).unwrap();
    until_said(net, wrong, past, false);
    let (sent, lost) = flow.end();
    assert!(sent > 100 && lost == 0, "{lost} of {sent} datagrams lost");
    net.inside.ip(&format!("-6 route del {inside}")).unwrap();
}

/// Routes to tunnel addresses, and MTUs of the interfaces that lead there.
fn the_tunnel_is_checked(net: &PairNetwork) {
    let host = &net.boxes[0];
    host.ip("link set peer mtu 1600").unwrap();
    let said = findings(net, 0);
    assert!(!said.contains("mtu: peer") && said.contains("mtu: nat64, by which"), "{said}");

    host.ip("route del 10.0.8.2/32").unwrap();
    let said = findings(net, 0);
    let fix = "WRONG cluster: no route to 10.0.8.2, the tunnel address of node b\n        \
               fix: ip route add 10.0.8.2 via 10.0.9.2\n";
    assert!(said.contains(fix), "{said}");
    // The suggested command repairs it.
    host.run("ip route add 10.0.8.2 via 10.0.9.2").unwrap();
    assert!(!findings(net, 0).contains("no route to"));

    // The own tunnel address leads to the own device.
    let own = "WRONG routes: traffic to 10.0.8.1/32 goes to peer, not to nat64";
    assert!(!findings(net, 0).contains("routes: traffic to 10.0.8.1/32"));
    host.ip("route replace 10.0.8.1/32 via 10.0.9.2").unwrap();
    assert!(findings(net, 0).contains(own), "{}", findings(net, 0));
    host.ip("route replace 10.0.8.1/32 dev nat64").unwrap();
    assert!(!findings(net, 0).contains(own));
}
