//! A device that the operator has created for an ordinary user, and a daemon without capabilities.

use crate::harness::{Daemon, NAT64, SIIT, has_users, in_lab, network, ping, status_line};
use gatun_testkit::Topology;
use gatun_testkit::topology::{PUBLIC, SERVER};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// nobody and nogroup, without capabilities in any set.
const AS_NOBODY: [&str; 6] =
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"];
const ATTACH: &str = "[[port]]\ndevice = \"nat64\"\nmode = \"attach\"\nqueues = 1\n";

fn start(net: &Topology, config: &str) -> Daemon {
    let mut daemon = Daemon::spawn_under(net, &AS_NOBODY, config);
    let deadline = Instant::now() + Duration::from_secs(10);
    while !daemon.stderr().contains("translating with") {
        assert!(daemon.process.ended().is_none() && Instant::now() < deadline, "{}", daemon.stderr());
        std::thread::sleep(Duration::from_millis(5));
    }
    daemon
}

#[test]
fn an_ordinary_user_translates_on_its_own_device() {
    in_lab("attach::an_ordinary_user_translates_on_its_own_device", || {
        if !has_users() {
            return gatun_testkit::skip("a user namespace with one user cannot switch: run it as root");
        }
        let net = network();
        for line in [
            "tuntap add dev nat64 mode tun user 65534",
            "address add 192.0.2.77/32 dev nat64",
            "link set nat64 mtu 1480 up",
            "-6 route add 2001:db8:64::/96 dev nat64",
            "route add 192.0.2.1/32 dev nat64",
        ] {
            net.translator.ip(line).unwrap();
        }
        let auto = format!("{ATTACH}mtu = 1480\naddresses = [\"192.0.2.77/32\"]\n{NAT64}");
        let unrouted = format!("{ATTACH}mtu = 1480\nroutes = false\n{}", SIIT.replace("own", "# own"));
        for config in [auto, unrouted] {
            let daemon = start(&net, &config);
            let pid = daemon.process.id();
            assert_eq!(status_line(pid, "Uid"), "65534\t65534\t65534\t65534");
            assert_eq!(status_line(pid, "CapPrm"), "0000000000000000");
            assert!(ping(&net.client, 3, SERVER, ""), "{}", daemon.stderr());
            assert!(!config.contains("siit") || ping(&net.server, 1, PUBLIC, ""));
            daemon.stop(Signal::TERM);
            let left = net.translator.run("ip link show nat64").unwrap();
            assert!(left.contains("mtu 1480"), "{left}");
        }
    });
}

#[test]
fn an_ordinary_user_is_told_the_commands_for_root() {
    in_lab("attach::an_ordinary_user_is_told_the_commands_for_root", || {
        if !has_users() {
            return gatun_testkit::skip("a user namespace with one user cannot switch: run it as root");
        }
        let net = network();
        let config = format!(
            "{ATTACH}mtu = 1480\nroutes = [\"2001:db8:64::/96\", \"192.0.2.1/32\"]\naddresses = [\"192.0.2.77/32\"]\n{SIIT}"
        );
        let mut advised = Vec::new();
        net.translator.ip("tuntap add dev nat64 mode tun user 65534").unwrap();
        // Follows the advice until nothing is missing.
        let said = loop {
            let mut daemon = Daemon::spawn_under(&net, &AS_NOBODY, &config);
            let deadline = Instant::now() + Duration::from_secs(10);
            while daemon.process.ended().is_none() && !daemon.stderr().contains("translating with") {
                assert!(Instant::now() < deadline, "{}", daemon.stderr());
                std::thread::sleep(Duration::from_millis(5));
            }
            if daemon.process.ended().is_none() {
                assert!(ping(&net.client, 1, SERVER, ""), "{advised:#?}; {}", daemon.stderr());
                break daemon.stop(Signal::TERM).stderr;
            }
            let said = daemon.stderr();
            let ip = said.split("let root run `ip ").nth(1).unwrap_or_else(|| panic!("no advice: {said}"));
            let line = ip.split('`').next().unwrap().to_owned();
            net.translator.ip(&line).unwrap();
            assert!(!advised.contains(&line), "{said}");
            advised.push(line);
        };
        assert_eq!(advised.len(), 5, "MTU, address, link and two routes: {advised:#?}; {said}");
    });
}
