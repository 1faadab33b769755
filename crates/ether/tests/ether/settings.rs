//! Settings that cannot be are refused, all at once, with what to write instead.

use crate::common::*;
use gatun_ether::{Ether, Limits, Mac, Port, Settings, Tag};

/// The problems of the usual settings after a change, as an operator reads them.
fn problems(change: impl FnOnce(&mut Settings)) -> Vec<String> {
    let mut settings = settings();
    change(&mut settings);
    match Ether::new(&settings, &Limits::default(), [0; 4]) {
        Ok(_) => vec![],
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

fn of_port(change: impl FnOnce(&mut Port)) -> Vec<String> {
    problems(|s| change(&mut s.ports[0]))
}

#[test]
fn each_problem_names_the_port_and_says_what_to_write() {
    assert_eq!(problems(|_| ()), [""; 0]);
    let cases = [
        (problems(|s| s.ports.clear()), "0 ports: give between 1 and 255"),
        (
            of_port(|p| p.mac = Mac([1; 6])),
            "no device has the address 01:01:01:01:01:01: write the device's own",
        ),
        (of_port(|p| p.mac = Mac([0; 6])), "no device has the address 00:00:00:00:00:00"),
        (of_port(|p| p.mtu = 1279), "an MTU of 1279: write 1280 to 65535 (IPv6 needs 1280, RFC 8200 5)"),
        (of_port(|p| p.mtu = 65_536), "an MTU of 65536: write 1280 to 65535"),
        (of_port(|p| p.tags = vec![Tag::customer(0)]), "there is no VLAN 0: write 1 to 4094"),
        (of_port(|p| p.tags = vec![Tag::customer(4095)]), "there is no VLAN 4095"),
        (of_port(|p| p.tags = vec![Tag { kind: 0x9100, vlan: 1 }]), "0x9100 is no kind of VLAN tag"),
        (of_port(|p| p.tags = vec![Tag::service(1); 3]), "3 VLAN tags: write at most two"),
        (
            of_port(|p| p.addresses.push(prefix("10.0.0.1/33"))),
            "10.0.0.1/33 has no such prefix length: write 10.0.0.1/32 or less",
        ),
        (of_port(|p| p.answers.push(prefix("::1/129"))), "::1/129 has no such prefix length"),
        (problems(|s| s.engine.push(prefix("::1/200"))), "::1/200 has no such prefix length"),
        (of_port(|p| p.addresses.push(prefix("10.0.0.0/24"))), "10.0.0.0/24 cannot be a host's address"),
        (of_port(|p| p.addresses.push(prefix("10.0.0.255/24"))), "10.0.0.255/24 cannot be a host's address"),
        (of_port(|p| p.addresses.push(prefix("224.0.0.1/32"))), "224.0.0.1/32 cannot be a host's address"),
        (of_port(|p| p.addresses.push(prefix("ff02::1/128"))), "ff02::1/128 cannot be a host's address"),
        (
            of_port(|p| p.addresses.push(prefix("::ffff:1.2.3.4/128"))),
            "::ffff:1.2.3.4/128 cannot be a host's address",
        ),
        (
            of_port(|p| p.addresses.push(prefix("198.51.100.1/24"))),
            "198.51.100.1 twice: leave one of them out",
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
            "a route to 10.0.0.0/8 by fe80::1: write a next hop of the same family",
        ),
        (of_port(|p| p.routes.push(route("10.0.0.0/40", ""))), "10.0.0.0/40 has no such prefix length"),
        (
            of_port(|p| p.routes.push(route("0.0.0.0/0", "198.51.100.3"))),
            "two routes to 0.0.0.0/0: leave one of them out",
        ),
        (
            of_port(|p| p.answers.push(prefix("198.51.100.128/25"))),
            "the next hop 198.51.100.254 is in 198.51.100.128/25, which this port answers for",
        ),
        (
            of_port(|p| p.addresses.retain(|a| a.addr.is_ipv6())),
            "a route to 0.0.0.0/0 on a port without an IPv4 address: give the port one",
        ),
    ];
    for (found, expected) in cases {
        let text = found.join("\n");
        assert!(text.contains(expected), "'{expected}' is not in: {text}");
    }
    assert!(of_port(|p| p.mtu = 0)[0].starts_with("port \"lan\": "));
}

#[test]
fn what_is_answered_for_must_leave_room_for_neighbours() {
    for whole in ["198.51.100.0/24", "198.51.0.0/16", "2001:db8:1::/64", "::/0"] {
        let found = of_port(|p| {
            p.answers = vec![prefix(whole)];
            p.routes.clear();
        });
        assert!(found.join("\n").contains("and with it every neighbour of"), "{whole}: {found:?}");
    }
    for part in ["198.51.100.64/26", "198.51.100.2/32", "2001:db8:1:0:64::/96"] {
        assert_eq!(of_port(|p| p.answers = vec![prefix(part)]), [""; 0], "{part}");
    }
}

#[test]
fn addresses_at_the_edge_are_hosts_where_a_link_has_no_edge() {
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
fn ports_must_not_be_in_each_others_way() {
    let twice = |change: fn(&mut Port)| {
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
        "198.51.100.1 is port \"lan\"'s address, too: give each port its own",
        "198.51.100.1/24 is reached by port \"lan\", too",
        "0.0.0.0/0 is reached by port \"lan\", too: leave it to one of them",
    ] {
        assert!(same.contains(part), "{part}: {same}");
    }
    let macs = twice(|p| (p.tags, p.mac) = (vec![Tag::customer(1)], OTHER_MAC));
    assert!(
        macs.contains("another MAC than port \"lan\" on the same device: write 02:00:00:00:00:01"),
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
fn limits_that_leave_no_room_are_refused() {
    let with = |limits| match Ether::new(&settings(), &limits, [0; 4]) {
        Ok(_) => String::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    };
    let limits = Limits::default();
    assert_eq!(
        with(Limits { neighbours_max: 2, ..limits }),
        "room for 2 neighbours: with these routes, give between 3 and 1048576"
    );
    assert_eq!(with(Limits { neighbours_max: 3, ..limits }), "");
    assert!(with(Limits { unresolved_max: 0, ..limits }).contains("let unresolved_max be at least 1"));
    assert!(
        with(Limits { waiting_max: 3, ..limits })
            .contains("let waiting_per_neighbour_max be at most waiting_max")
    );
    assert_eq!(with(Limits { waiting_max: 0, waiting_per_neighbour_max: 0, ..limits }), "");
}
