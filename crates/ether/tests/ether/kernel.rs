//! The kernel's own stack as the neighbour: a veth pair whose other end is a packet socket with an `Ether`
//! and a host that echoes every UDP datagram.
//!
//! Each test runs itself again inside a sandbox of `gatun_testkit`.

use crate::common::*;
use crate::veth::{self, Cable, in_lab};
use gatun_ether::{Answer, Count as _, EtherEvent, Mac, NeighbourState, Tag};
use std::time::Duration;

// proves: HM-1, HM-10, HM-15
#[test]
fn the_kernel_pings_us_with_both_families() {
    in_lab("kernel::the_kernel_pings_us_with_both_families", || {
        let cable = Cable::new(&settings());
        cable.peer.run("ping -c 3 -i 0.05 -W 2 198.51.100.1").unwrap();
        cable.peer.run("ping -c 3 -i 0.05 -W 2 -s 1400 198.51.100.1").unwrap();
        cable.peer.run("ping -c 3 -i 0.05 -W 2 2001:db8:1::1").unwrap();
        cable.peer.run("ping -c 3 -i 0.05 -W 2 fe80::ff:fe00:1%eth0").unwrap();
        for address in ["198.51.100.1", "2001:db8:1::1"] {
            let entry = cable.peer.run(&format!("ip neighbour show {address} dev eth0")).unwrap();
            assert!(entry.contains(&OUR_MAC.to_string()), "{entry}");
        }
        let stats = cable.unplug().host().stats();
        assert_eq!((stats.answers.of(Answer::Echo4), stats.answers.of(Answer::Echo6)), (6, 6));
    });
}

// proves: HM-1, HM-12, HM-19
#[test]
fn udp_goes_through_to_pool_addresses_and_back() {
    in_lab("kernel::udp_goes_through_to_pool_addresses_and_back", || {
        let cable = Cable::new(&settings());
        // On the kernel's link: the kernel resolves the pool's addresses directly.
        cable.peer.ip("route add 203.0.113.0/28 dev eth0").unwrap();
        cable.peer.ip("route add 2001:db8:64::/96 dev eth0").unwrap();
        for to in [POOL4.into(), POOL6.into()] {
            cable.echo(to, "hello");
        }
        // Through us as a router.
        cable.peer.ip("route add 192.0.2.0/24 via 198.51.100.1").unwrap();
        cable.peer.ip("route add 2001:db8:ffff::/48 via 2001:db8:1::1").unwrap();
        for to in [ip("192.0.2.77"), FAR6.into()] {
            cable.echo(to, "hello");
        }
        let stats = cable.unplug().host().stats();
        assert_eq!((stats.packets, stats.sent + stats.released), (4, 4));
    });
}

// proves: HM-6, HM-7
#[test]
fn the_kernel_is_resolved_and_pending_packets_arrive() {
    in_lab("kernel::the_kernel_is_resolved_and_pending_packets_arrive", || {
        let mut cable = Cable::unplugged(&settings());
        for (to, packet) in [
            ("UDP4-RECVFROM:2000", udp4(FAR4, PEER4, b"first\n")),
            ("UDP6-RECVFROM:2000,ipv6only", udp6(FAR6, PEER6, b"first\n")),
        ] {
            let listener = cable.listen(to);
            cable.end().send(&packet);
            assert_eq!(cable.host().stats().waiting, 1);
            cable.run_until(|host| host.stats().waiting == 0);
            assert_eq!(listener.output(PATIENCE).unwrap().1, "first\n");
        }
        let host = cable.host();
        let states: Vec<_> = host.neighbours().filter(|n| n.mac.is_some()).map(|n| n.state).collect();
        assert_eq!(states, [NeighbourState::Reachable; 2]);
        assert_eq!(host.stats().released, 2);
        // A host that does not exist.
        cable.end().send(&udp4(FAR4, "198.51.100.99".parse().unwrap(), b"x"));
        cable.run_until(|host| host.stats().events.of(EtherEvent::NeighbourFailed) == 1);
        assert_eq!(cable.host().stats().events.of(EtherEvent::ArpRequest), 4);
    });
}

// proves: HM-5
#[test]
fn the_kernel_follows_a_take_over() {
    in_lab("kernel::the_kernel_follows_a_take_over", || {
        let cable = Cable::new(&settings());
        cable.peer.run("ping -c 1 -W 2 198.51.100.1").unwrap();
        cable.peer.run("ping -c 1 -W 2 2001:db8:1::1").unwrap();
        // Another box has the same addresses and takes over.
        let mut other = settings();
        other.ports[0].mac = OTHER_MAC;
        let mut cable = Cable::again(&other, cable.unplug());
        let now_ms = cable.end().now_ms();
        cable.end().ether.announce(now_ms);
        let all = 4 + 16; // own addresses and the pool's; the prefix is too large
        cable.run_until(|host| host.stats().events.of(EtherEvent::Announcement) == 2 * all);
        for address in ["198.51.100.1", "2001:db8:1::1"] {
            let entry = cable.peer.run(&format!("ip neighbour show {address} dev eth0")).unwrap();
            assert!(entry.contains(&OTHER_MAC.to_string()), "{entry}");
        }
    });
}

// proves: HM-4, HM-14
#[test]
fn the_kernel_gives_up_our_address_and_the_conflict_is_reported() {
    in_lab("kernel::the_kernel_gives_up_our_address_and_the_conflict_is_reported", || {
        let cable = Cable::new(&settings());
        cable.peer.sysctl("net.ipv6.conf.eth0.accept_dad", "1").unwrap();
        cable.peer.ip("address add 2001:db8:1::1/64 dev eth0").unwrap();
        cable.wait_for("ip -6 address show dev eth0", "dadfailed");
        let conflict = cable.unplug().host().conflict().expect("a conflict");
        assert_eq!((conflict.address, conflict.mac), (OUR6.into(), veth::KERNEL_MAC));
    });
}

// proves: HM-16
#[test]
fn a_snooping_switch_learns_our_groups_and_forwards_solicitations() {
    in_lab("kernel::a_snooping_switch_learns_our_groups_and_forwards_solicitations", || {
        let mut cable = Cable::unplugged(&settings());
        let peer = &cable.peer;
        // The veth ends in a bridge with another host behind it.
        peer.ip("link add br0 type bridge mcast_snooping 1 mcast_querier 1").unwrap();
        // In hundredths of a second. The first query, of a bridge without an address yet, is not sent.
        let soon =
            "mcast_startup_query_interval 100 mcast_startup_query_count 9 mcast_query_response_interval 20";
        peer.ip(&format!("link set br0 type bridge {soon}")).unwrap();
        peer.ip("address flush dev eth0").unwrap();
        peer.ip("link set eth0 master br0").unwrap();
        let host = gatun_testkit::Namespace::new("host").unwrap();
        peer.connect("port", &host, "eth0").unwrap();
        peer.ip("link set port master br0").unwrap();
        peer.run("ethtool -K port tx off").unwrap();
        host.run("ethtool -K eth0 tx off").unwrap();
        host.address("eth0", "2001:db8:1::77/64").unwrap();
        peer.ip("link set br0 up").unwrap();
        cable = cable.plug();
        cable.wait_for("bridge mdb show dev br0", "port eth0 grp ff02::1:ff00:1 ");
        host.run("ping -c 2 -i 0.05 -W 2 2001:db8:1::1").unwrap();
        let cable = cable.unplug();
        assert!(cable.host().stats().consumed.of(gatun_ether::Consumed::MulticastQuery) > 0);
        assert!(cable.host().stats().events.of(EtherEvent::GroupReport) > 0);
    });
}

// proves: HM-17
#[test]
fn the_same_through_one_tag_and_two() {
    in_lab("kernel::the_same_through_one_tag_and_two", || {
        // The kernel of a test machine may lack VLAN devices, so the veth code acts as a switch that tags
        // frames from its untagged end.
        let tags = [vec![Tag::customer(100)], vec![Tag::service(7), Tag::customer(4094)]];
        let mut cable = Cable::unplugged(&settings());
        for tags in &tags {
            cable = Cable::again(&with_tags(tags), cable).plug();
            cable.peer.run("ping -c 2 -i 0.05 -W 2 198.51.100.1").unwrap();
            cable.peer.run("ping -c 2 -i 0.05 -W 2 2001:db8:1::1").unwrap();
            cable.peer.ip("route replace 203.0.113.0/28 dev eth0").unwrap();
            cable.echo(POOL4.into(), "tagged");
            cable = cable.unplug();
            let macs: Vec<Mac> = cable.host().neighbours().filter_map(|n| n.mac).collect();
            assert!(macs.contains(&veth::KERNEL_MAC), "{macs:?}");
        }
    });
}

/// Time limit of every step.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
