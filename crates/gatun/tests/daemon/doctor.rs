//! Findings of `gatun doctor` on the host of a daemon, and those that `gatun run` logs at start.

use crate::harness::{CREATE, Daemon, NAT64, in_lab, in_lab_with, network, ping};
use crate::nat44::{self, private, steer};
use crate::operate::doctor;
use gatun_testkit::topology::SERVER;
use gatun_testkit::{Process, Topology};
use rustix::process::Signal;
use std::fs;
use std::process::Command;
use std::time::Duration;

const BIN: &str = env!("CARGO_BIN_EXE_gatun");

fn no_nft() -> Option<String> {
    gatun_testkit::missing(&[("nft", "nftables")])
}

/// Replaces the rules in the translator's namespace.
fn rules(net: &Topology, rules: &str) {
    let mut command = net.translator.command("nft");
    gatun_testkit::run(command.arg(format!("flush ruleset; {rules}"))).unwrap();
}

/// Chain of forwarded packets with the policy `drop`.
const DROPS: &str = "add table inet f; add chain inet f other; \
                     add chain inet f forward { type filter hook forward priority 0; policy drop; };";

/// Rule for packets of known connections, which are dropped without it.
const KNOWN: &str = "add rule inet f forward ct state established,related accept;";
const ONE: &str = "add rule inet f forward iifname nat64 accept;";
const BOTH: &str =
    "add rule inet f forward iifname nat64 accept; add rule inet f forward oifname nat64 accept;";
const JUMP: &str = "add rule inet f forward jump other; add rule inet f other ip daddr 192.0.2.0/24 return;";
const NO_POLICY: &str = "add table inet f; add chain inet f other; \
                         add chain inet f forward { type filter hook forward priority 0; };";

/// Rulesets that pass no connection.
fn dropping() -> Vec<String> {
    let map =
        "add rule inet f forward ct state vmap { established : accept, related : accept, invalid : drop };";
    let filter = "add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; };";
    vec![
        DROPS.to_owned(),
        format!("{DROPS}{KNOWN}"),
        format!("{DROPS}{map}{JUMP}"),
        format!("{NO_POLICY}{KNOWN}add rule inet f forward reject;"),
        format!("{NO_POLICY}add rule inet f forward oifname nat64 drop;"),
        format!("{DROPS}{KNOWN}{ONE}"),
        format!("{DROPS}{KNOWN}add rule inet f forward iifname docker0 accept;"),
        filter.to_owned(),
    ]
}

/// Rulesets that pass connections. `index` is the device's interface index.
fn accepting(index: &str) -> Vec<String> {
    let wild = BOTH.replace("nat64", "\"nat*\"");
    let by_index =
        BOTH.replace("iifname nat64", "iif nat64").replace("oifname nat64", &format!("oif {index}"));
    let other = BOTH.replace("nat64", "docker0");
    let accepts = "add rule inet f other meta nfproto { ipv4, ipv6 } accept;";
    vec![
        format!("{DROPS}{KNOWN}{BOTH}"),
        format!("{DROPS}{KNOWN}{wild}"),
        format!("{DROPS}{KNOWN}{by_index}"),
        format!("{DROPS}{KNOWN}{other}{JUMP}{accepts}"),
        format!("{NO_POLICY}{KNOWN}{BOTH}add rule inet f forward reject;"),
        NO_POLICY.to_owned(),
    ]
}

#[test]
fn only_rules_that_drop_forwarded_packets_are_reported() {
    in_lab_with("doctor::only_rules_that_drop_forwarded_packets_are_reported", no_nft, || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}"));
        let link = net.translator.run("ip -oneline link show nat64").unwrap();
        let index = link.split(':').next().unwrap();
        for set in dropping() {
            rules(&net, &set);
            assert!(!ping(&net.client, 1, SERVER, "-W 1"), "{set}");
            let (wrong, code) = doctor(&net, "");
            assert!(code == 1 && wrong.len() == 1, "{set}: {wrong:#?}");
            assert!(wrong[0].contains("firewall: the kernel drops forwarded packets"), "{wrong:#?}");
            let output = gatun_testkit::output(net.translator.command(BIN).args(["doctor", "-q"])).unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let fix = text.lines().find_map(|line| line.trim().strip_prefix("fix: ")).unwrap().to_owned();
            if fix.contains("nft insert") {
                // The suggested command repairs it.
                gatun_testkit::run(net.translator.command("nft").arg(fix.replace("nft insert", "insert")))
                    .unwrap();
                assert_eq!(doctor(&net, ""), (vec![], 0), "{fix}");
                let back = "insert rule inet f forward ct state established accept";
                gatun_testkit::run(net.translator.command("nft").arg(back)).unwrap();
                assert!(ping(&net.client, 1, SERVER, ""), "{set}: {fix}");
            } else {
                assert_eq!(
                    fix,
                    "iptables -I FORWARD -i nat64 -j ACCEPT; iptables -I FORWARD -o nat64 -j ACCEPT"
                );
            }
        }
        for set in accepting(index) {
            rules(&net, &set);
            assert!(ping(&net.client, 1, SERVER, ""), "{set}");
            assert_eq!(doctor(&net, ""), (vec![], 0), "{set}");
        }
        rules(&net, DROPS);
        daemon.stop(Signal::TERM);
        // A daemon that starts there logs the finding.
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}"));
        let said = daemon.stderr();
        assert!(
            said.contains("doctor: firewall: the kernel drops forwarded packets from and to nat64"),
            "{said}"
        );
        assert!(said.contains("fix: nft insert rule inet f forward iifname nat64 accept"), "{said}");
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn untranslated_private_addresses_are_reported() {
    in_lab("doctor::untranslated_private_addresses_are_reported", || {
        let (net, _) = private();
        let daemon = Daemon::start(&net, &format!("{CREATE}{}", nat44::NAT44));
        assert!(daemon.stderr().contains("doctor: steering: "), "{}", daemon.stderr());
        for device in ["all", "nat64"] {
            net.translator.sysctl(&format!("net.ipv4.conf.{device}.rp_filter"), "0").unwrap();
        }
        net.translator.ip("route add default via 198.51.100.2").unwrap();
        let (wrong, code) = doctor(&net, "");
        assert!(code == 1 && wrong.len() == 2, "one for each interface: {wrong:#?}");
        for (line, from) in wrong.iter().zip(["inside", "inside2"]) {
            let says =
                format!("traffic of 100.64.0.0/10 ('lab') from {from} leaves by outside, untranslated");
            assert!(line.contains(&says), "{says} in {wrong:#?}");
        }
        steer(&net);
        assert_eq!(doctor(&net, ""), (vec![], 0));
        net.translator.ip("rule del priority 101").unwrap();
        net.translator.ip("rule add priority 101 iif inside lookup 4464").unwrap();
        let (wrong, _) = doctor(&net, "");
        assert!(wrong.len() == 1 && wrong[0].contains("from inside2 leaves by outside"), "{wrong:#?}");
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn interfaces_with_a_smaller_mtu_are_reported() {
    in_lab("doctor::interfaces_with_a_smaller_mtu_are_reported", || {
        let net = network();
        net.translator.ip("route add default via 198.51.100.2").unwrap();
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}"));
        assert_eq!(doctor(&net, ""), (vec![], 0));
        net.translator.ip("link set outside mtu 1492").unwrap();
        let says = "outside, the interface to the IPv4 Internet, has MTU 1492, but 'lab' has mtu4 = 1500";
        let (wrong, _) = doctor(&net, "");
        assert!(wrong.len() == 1 && wrong[0].contains(says), "{wrong:#?}");
        net.translator.ip("link set inside mtu 1400").unwrap();
        let says = "inside, an interface to IPv6 hosts, has MTU 1400, but 'lab' has mtu6 = 1500";
        let (wrong, _) = doctor(&net, "");
        assert!(wrong.len() == 2 && wrong[1].contains(says), "{wrong:#?}");
        daemon.stop(Signal::TERM);
        let config = format!("{CREATE}mtu = 1500\n{NAT64}mtu4 = 1492\nmtu6 = 1400\n");
        let daemon = Daemon::start(&net, &config);
        assert!(!daemon.stderr().contains("doctor"), "{}", daemon.stderr());
        assert_eq!(doctor(&net, ""), (vec![], 0));
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_different_network_namespace_is_reported() {
    in_lab("doctor::a_different_network_namespace_is_reported", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}"));
        assert_eq!(doctor(&net, ""), (vec![], 0));
        let output = gatun_testkit::output(net.client.command(BIN).args(["doctor", "-q"])).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("WRONG namespace: the daemon is in another network namespace"), "{text}");
        let fix = format!("nsenter --net=/proc/{}/ns/net gatun doctor", daemon.process.id());
        assert!(text.contains(&fix), "{text}");
        // The suggested command works.
        let (_, arguments) = fix.split_once(' ').unwrap();
        let arguments = arguments.replace("gatun", BIN);
        let output =
            gatun_testkit::output(Command::new("nsenter").args(arguments.split_whitespace())).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_full_disk_and_a_dead_collector_are_reported() {
    in_lab("doctor::a_full_disk_and_a_dead_collector_are_reported", || {
        let net = network();
        fs::create_dir_all("/run/log").unwrap();
        gatun_testkit::run(
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=48m", "tmpfs", "/run/log"]),
        )
        .unwrap();
        let more = "[log]\ndirectory = \"/run/log/gatun\"\n[[export]]\nname = \"court\"\nto = \"tcp:198.51.100.2:4739\"\n";
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}{more}"));
        assert!(!daemon.stderr().contains("disk: "), "{}", daemon.stderr());
        let (wrong, _) = doctor(&net, "");
        let down = "export: collector 'court' at tcp:198.51.100.2:4739 is down";
        assert!(wrong.len() == 1 && wrong[0].contains(down), "{wrong:#?}; {}", daemon.stderr());
        let listen = "socat -u TCP4-LISTEN:4739,fork,reuseaddr OPEN:/dev/null";
        let _collector =
            Process::start(net.server.command("socat").args(listen.split_whitespace().skip(1))).unwrap();
        let is_well = || {
            ping(&net.client, 1, SERVER, "");
            doctor(&net, "").0.is_empty()
        };
        gatun_testkit::wait_until("the collector to be well", Duration::from_secs(30), is_well).unwrap();
        let _ =
            Command::new("dd").args(["if=/dev/zero", "of=/run/log/full", "bs=64k", "status=none"]).status();
        assert!(ping(&net.client, 1, SERVER, ""));
        let (wrong, _) = doctor(&net, "");
        assert!(wrong.iter().any(|l| l.contains("disk: the log in /run/log/gatun has ")), "{wrong:#?}");
        fs::remove_file("/run/log/full").unwrap();
        daemon.process.signal(Signal::KILL).unwrap();
    });
}

#[test]
fn the_doctor_never_deletes_the_only_address_of_an_interface() {
    in_lab("doctor::the_doctor_never_deletes_the_only_address_of_an_interface", || {
        let net = network();
        let file = "/run/only.toml";
        fs::write(file, format!("{CREATE}{}", NAT64.replace("192.0.2.1", "198.51.100.1"))).unwrap();
        let said = || {
            let output =
                gatun_testkit::output(net.translator.command(BIN).args(["doctor", "-q", file])).unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let text = said();
        assert!(
            text.contains("WRONG pool: 198.51.100.1 of pool 'pool1' is an address of this host"),
            "{text}"
        );
        assert!(
            text.contains("outside has no other IPv4 address") && !text.contains("address del"),
            "{text}"
        );
        net.translator.address("outside", "198.51.100.9/24").unwrap();
        assert!(said().contains("or: ip address del 198.51.100.1/24 dev outside"), "{}", said());
    });
}
