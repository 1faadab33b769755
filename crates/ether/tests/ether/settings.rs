//! Invalid settings are refused, all at once, with corrections.

use crate::common::*;
use gatun_ether::{Ether, Limits, Mac, PortSettings, Settings, Tag};

/// Problems of the usual settings after a change, as an operator reads them.
fn problems(change: impl FnOnce(&mut Settings)) -> Vec<String> {
    let mut settings = settings();
    change(&mut settings);
    match Ether::new(&settings, &Limits::default(), [0; 4]) {
        Ok(_) => vec![],
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

fn of_port(change: impl FnOnce(&mut PortSettings)) -> Vec<String> {
    problems(|s| change(&mut s.ports[0]))
}

#[test]
fn each_problem_names_the_port_and_a_correction() {
    assert_eq!(problems(|_| ()), [""; 0]);
    let cases = [
        (problems(|s| s.ports.clear()), "0 ports: configure 1 to 255 ports"),
        (
            of_port(|p| p.mac = Mac([1; 6])),
            "01:01:01:01:01:01 is not the MAC address of a device: write the device's own",
        ),
        (of_port(|p| p.mac = Mac([0; 6])), "00:00:00:00:00:00 is not the MAC address of a device"),
        (of_port(|p| p.mtu = 1279), "invalid MTU 1279: write 1280 to 65535 (IPv6 needs 1280, RFC 8200 5)"),
        (of_port(|p| p.mtu = 65_536), "invalid MTU 65536: write 1280 to 65535"),
        (of_port(|p| p.tags = vec![Tag::customer(0)]), "invalid VLAN 0: write 1 to 4094"),
        (of_port(|p| p.tags = vec![Tag::customer(4095)]), "invalid VLAN 4095"),
        (of_port(|p| p.tags = vec![Tag { kind: 0x9100, vlan: 1 }]), "unknown VLAN tag type 0x9100"),
        (of_port(|p| p.tags = vec![Tag::service(1); 3]), "3 VLAN tags: write at most two"),
        (
            of_port(|p| p.addresses.push(prefix("10.0.0.1/33"))),
            "invalid prefix length in 10.0.0.1/33: write 10.0.0.1/32 or less",
        ),
        (of_port(|p| p.answers.push(prefix("::1/129"))), "invalid prefix length in ::1/129"),
        (problems(|s| s.engine.push(prefix("::1/200"))), "invalid prefix length in ::1/200"),
        (of_port(|p| p.addresses.push(prefix("10.0.0.0/24"))), "10.0.0.0/24 is not a valid host address"),
        (of_port(|p| p.addresses.push(prefix("10.0.0.255/24"))), "10.0.0.255/24 is not a valid host address"),
        (of_port(|p| p.addresses.push(prefix("224.0.0.1/32"))), "224.0.0.1/32 is not a valid host address"),
        (of_port(|p| p.addresses.push(prefix("ff02::1/128"))), "ff02::1/128 is not a valid host address"),
        (
            of_port(|p| p.addresses.push(prefix("::ffff:1.2.3.4/128"))),
            "::ffff:1.2.3.4/128 is not a valid host address",
        ),
        (
            of_port(|p| p.addresses.push(prefix("198.51.100.1/24"))),
            "198.51.100.1 is listed twice: remove one of them",
        ),
        (
            of_port(|p| p.routes.push(route("10.0.0.0/8", "10.0.0.1"))),
            "the next hop 10.0.0.1 is not on this port's link: give the port an address whose prefix contains it",
        ),
        (
            of_port(|p| p.routes.push(route("10.0.0.0/8", "198.51.100.1"))),
            "198.51.100.1 is this port's own address: write the router's",
        ),
        (
            of_port(|p| p.routes.push(route("10.0.0.0/8", "fe80::1"))),
            "the route to 10.0.0.0/8 has the next hop fe80::1 of another family: write a next hop of the same family",
        ),
        (of_port(|p| p.routes.push(route("10.0.0.0/40", ""))), "invalid prefix length in 10.0.0.0/40"),
        (
            of_port(|p| p.routes.push(route("0.0.0.0/0", "198.51.100.3"))),
            "two routes to 0.0.0.0/0: remove one of them",
        ),
        (
            of_port(|p| p.answers.push(prefix("198.51.100.128/25"))),
            "the next hop 198.51.100.254 is in 198.51.100.128/25, which this port answers for",
        ),
        (
            of_port(|p| p.addresses.retain(|a| a.addr.is_ipv6())),
            "a route to 0.0.0.0/0 on a port without an IPv4 address: give the port an IPv4 address",
        ),
    ];
    for (found, expected) in cases {
        let text = found.join("\n");
        assert!(text.contains(expected), "'{expected}' is not in: {text}");
    }
    assert!(of_port(|p| p.mtu = 0)[0].starts_with("port \"lan\": "));
}

#[test]
fn answers_must_not_cover_all_neighbours() {
    for whole in ["198.51.100.0/24", "198.51.0.0/16", "2001:db8:1::/64", "::/0"] {
        let found = of_port(|p| {
            p.answers = vec![prefix(whole)];
            p.routes.clear();
        });
        assert!(found.join("\n").contains("in `answers` covers all neighbours of"), "{whole}: {found:?}");
    }
    for part in ["198.51.100.64/26", "198.51.100.2/32", "2001:db8:1:0:64::/96"] {
        assert_eq!(of_port(|p| p.answers = vec![prefix(part)]), [""; 0], "{part}");
    }
}

#[test]
fn edge_addresses_are_hosts_on_links_without_edges() {
    // RFC 3021.
    for address in ["10.0.0.0/31", "10.0.0.1/31", "10.0.0.0/32"] {
        assert_eq!(of_port(|p| p.addresses.push(prefix(address))), [""; 0], "{address}");
    }
    let only_v4 = of_port(|p| {
        p.mtu = 576;
        p.addresses.retain(|a| a.addr.is_ipv4());
        p.answers.clear();
        p.routes.truncate(1);
    });
    assert_eq!(only_v4, [""; 0]);
}

#[test]
fn ports_must_not_conflict() {
    let twice = |change: fn(&mut PortSettings)| {
        problems(|s| {
            let mut other = s.ports[0].clone();
            other.name = "other".into();
            change(&mut other);
            s.ports.push(other);
        })
        .join("\n")
    };
    let same = twice(|_| ());
    for part in [
        "port \"other\": the same device and VLAN as port \"lan\": write another `vlan`",
        "198.51.100.1 is also an address of port \"lan\": give each port its own",
        "198.51.100.1/24 is also reached by port \"lan\"",
        "0.0.0.0/0 is also reached by port \"lan\": remove it from one of the ports",
    ] {
        assert!(same.contains(part), "{part}: {same}");
    }
    let macs = twice(|p| (p.tags, p.mac) = (vec![Tag::customer(1)], OTHER_MAC));
    assert!(
        macs.contains(
            "the MAC differs from that of port \"lan\" on the same device: write 02:00:00:00:00:01"
        ),
        "{macs}"
    );
    let fine = twice(|p| {
        p.tags = vec![Tag::customer(1)];
        p.addresses = vec![prefix("10.0.0.1/24")];
        p.routes.clear();
    });
    assert_eq!(fine, "");
}

#[test]
fn limits_that_are_too_small_are_refused() {
    let with = |limits| match Ether::new(&settings(), &limits, [0; 4]) {
        Ok(_) => String::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    };
    let limits = Limits::default();
    assert_eq!(
        with(Limits { neighbours_max: 2, ..limits }),
        "neighbours_max is 2: with these routes, write 3 to 1048576"
    );
    assert_eq!(with(Limits { neighbours_max: 3, ..limits }), "");
    assert!(
        with(Limits { unresolved_max: 0, ..limits })
            .contains("unresolved_max is 0, so no neighbour can be resolved: write at least 1")
    );
    assert!(
        with(Limits { waiting_max: 3, ..limits })
            .contains("lower waiting_per_neighbour_max to at most waiting_max")
    );
    assert_eq!(with(Limits { waiting_max: 0, waiting_per_neighbour_max: 0, ..limits }), "");
}
