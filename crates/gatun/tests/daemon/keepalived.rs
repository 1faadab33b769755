//! A pair in a segment with keepalived: VRRP leads packets to the owner of the public addresses.

use crate::harness::{Daemon, in_lab_with, program};
use crate::pair::{self, STANDBY, Talk, kill, socket, until_synced};
use gatun_testkit::pair::BOXES;
use gatun_testkit::{Namespace, Process, echo, missing, wait_until};
use std::time::Duration;

const WAIT_MAX: Duration = Duration::from_secs(30);
/// Addresses that VRRP moves, by interface.
const SHARED: [(&str, &str); 2] = [("eth0", "2001:db8:1::fe"), ("eth1", "198.51.100.254")];

/// ```text
///   client --- inside: a switch --- a, b --- outside: a switch --- server
/// ```
struct Segments {
    client: Namespace,
    server: Namespace,
    boxes: [Namespace; 2],
    _switches: [Namespace; 2],
}

fn switch(name: &str, hosts: &[(&Namespace, &str)]) -> Namespace {
    let switch = Namespace::new(name).unwrap();
    switch.ip("link add bridge type bridge").unwrap();
    switch.ip("link set bridge up").unwrap();
    for (host, interface) in hosts {
        host.connect(interface, &switch, host.name()).unwrap();
        switch.ip(&format!("link set {} master bridge", host.name())).unwrap();
    }
    switch
}

impl Segments {
    fn new() -> Segments {
        let [client, server, a, b] =
            ["client", "server", "box-a", "box-b"].map(|name| Namespace::new(name).unwrap());
        let inside = switch("inside", &[(&client, "eth0"), (&a, "eth0"), (&b, "eth0")]);
        let outside = switch("outside", &[(&server, "eth0"), (&a, "eth1"), (&b, "eth1")]);
        a.connect("peer", &b, "peer").unwrap();
        client.address("eth0", "2001:db8:1::2/64").unwrap();
        client.ip("-6 route add default via 2001:db8:1::fe").unwrap();
        server.address("eth0", "198.51.100.2/24").unwrap();
        server.ip("route add 192.0.2.0/24 via 198.51.100.254").unwrap();
        for (one, n) in [&a, &b].into_iter().zip(1..) {
            one.forward().unwrap();
            // The shared address may leave while a packet is on its way.
            for of in ["all", "default"] {
                one.sysctl(&format!("net.ipv4.conf.{of}.rp_filter"), "0").unwrap();
            }
            one.address("eth0", &format!("2001:db8:1::b{n}/64")).unwrap();
            one.address("eth1", &format!("198.51.100.1{n}/24")).unwrap();
            one.address("peer", &format!("{}/30", BOXES[n - 1])).unwrap();
        }
        Segments { client, server, boxes: [a, b], _switches: [inside, outside] }
    }

    /// Returns whether a box has the shared addresses: all, or none. `None`: some.
    fn has_addresses(&self, number: usize) -> Option<bool> {
        let has = SHARED.map(|(interface, address)| {
            let listed = self.boxes[number].run(&format!("ip address show dev {interface}")).unwrap();
            listed.contains(&format!("{address}/"))
        });
        (has[0] == has[1]).then_some(has[0])
    }

    fn until_used(&self, number: usize) {
        let what = format!("box {number} has the shared addresses alone");
        wait_until(&what, WAIT_MAX, || {
            self.has_addresses(number) == Some(true) && self.has_addresses(1 - number) == Some(false)
        })
        .unwrap();
    }
}

/// keepalived with the documented settings.
fn keepalived(host: &Namespace, number: usize) -> Process {
    let page = include_str!("../../../../docs/how-to/announce.md");
    let (_, text) = page.split_once("# keepalived-gatun.conf\n").unwrap();
    let (text, _) = text.split_once("```").unwrap();
    // Both boxes have the same /run here.
    let command = format!("{} health --socket {}", program(), socket(number));
    assert_eq!(text.matches("/usr/bin/env gatun health").count(), 2, "{text}");
    let [file, pid, vrrp] = ["conf", "pid", "vrrp.pid"].map(|end| format!("/run/keepalived-{number}.{end}"));
    std::fs::write(&file, text.replace("/usr/bin/env gatun health", &command)).unwrap();
    let arguments = ["--dont-fork", "--vrrp", "-f", &file, "-p", &pid, "-r", &vrrp];
    Process::start(host.command("keepalived").args(arguments)).unwrap()
}

#[test]
fn keepalived_leads_packets_to_the_owner_and_past_a_killed_daemon() {
    let has = || missing(&[("keepalived", "keepalived")]);
    in_lab_with("keepalived::keepalived_leads_packets_to_the_owner_and_past_a_killed_daemon", has, || {
        pair::certificates(STANDBY.pki);
        let net = Segments::new();
        let _server = echo(&net.server).unwrap();
        let start = |number| {
            let config = pair::config(number, STANDBY);
            let (before, after) = config.split_once("[announce]").unwrap();
            let (_, peer) = after.split_once("[peer]").unwrap();
            Daemon::start_in(&net.boxes[number], &format!("{before}[peer]{peer}"))
        };
        let [_first, mut second] = [0, 1].map(start);
        until_synced();
        let _vrrp = [0, 1].map(|number| keepalived(&net.boxes[number], number));
        net.until_used(0);
        let talk = Talk::start_at(&net.client, 20, 20_000, &[]);

        let released = crate::harness::gatun(["peer", "release", "--socket", &socket(0)]);
        assert!(released.status.success(), "{}", String::from_utf8_lossy(&released.stderr));
        net.until_used(1);
        let later = Talk::start_at(&net.client, 10, 21_000, &[]);
        let owner = ["health", "--owner", "--quiet", "--socket"];
        let is_owner =
            |number| crate::harness::gatun(owner.iter().copied().chain([&*socket(number)])).status.success();
        assert_eq!([is_owner(0), is_owner(1)], [false, true]);

        kill(&mut second);
        net.until_used(0);
        let last = Talk::start_at(&net.client, 10, 22_000, &[]);
        [talk, later, last].into_iter().for_each(Talk::end);
    });
}
