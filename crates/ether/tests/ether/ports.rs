//! VLAN tags, several ports, a single port, MTUs, headroom.

use crate::common::*;
use gatun_ether::{
    Answer, Count as _, Ether, Foreign, HEADER_MAX, Limits, Received, Sent, Settings, Tag, Unsent,
};
use gatun_wire::{Checksum, HEADROOM, Offload, Packet, Segmentation};

// proves: HM-17
#[test]
fn frames_are_received_and_sent_with_the_ports_tags() {
    for tags in [vec![Tag::customer(100)], vec![Tag::service(7), Tag::customer(4094)]] {
        let mut host = Host::new(&with_tags(&tags));
        let ids: Vec<u16> = tags.iter().map(|t| t.vlan).collect();
        let packet = udp4(PEER4, POOL4, b"x");
        let tagged = frame(OUR_MAC, PEER_MAC, &tags, 0x0800, &packet);
        assert_eq!(host.receive(&tagged), (Received::Packet, packet.clone()));

        let body = arp_body(1, PEER_MAC, PEER4, gatun_ether::Mac([0; 6]), OUR4);
        let (fate, reply) = host.receive(&frame(gatun_ether::Mac::BROADCAST, PEER_MAC, &tags, 0x0806, &body));
        assert_eq!((fate, vlans(&reply)), (Received::Reply(Answer::Arp), ids.clone()));
        assert_eq!((macs(&reply), parse_arp(&reply).target_mac), ((PEER_MAC, OUR_MAC), PEER_MAC.0));

        let back = udp4(POOL4, PEER4, b"y");
        let (fate, sent) = host.send(&back);
        assert_eq!(fate, Sent::Frame { device: DEVICE });
        assert_eq!(sent, frame(PEER_MAC, OUR_MAC, &tags, 0x0800, &back));
        assert_eq!(vlans(&sent), ids);

        assert_eq!(host.send(&udp6(POOL6, PEER6, b"x")).0, Sent::Held);
        assert!(host.poll().iter().all(|f| vlans(f) == ids));

        let other = [vec![], vec![Tag::customer(101)], vec![Tag::service(100)], vec![tags[0], tags[0]]];
        for wrong in other {
            let strange = frame(OUR_MAC, PEER_MAC, &wrong, 0x0800, &packet);
            assert_eq!(host.receive(&strange), (Received::Foreign(Foreign::OtherVlan), strange));
        }
        let three = [&tags[..], &[Tag::customer(1), Tag::customer(2)]].concat();
        let strange = frame(OUR_MAC, PEER_MAC, &three, 0x0800, &packet);
        assert!(matches!(host.receive(&strange).0, Received::Foreign(_)));
    }
}

// proves: HM-17
#[test]
fn a_priority_tag_changes_nothing() {
    // IEEE 802.1Q 6.9.1.
    let mut host = Host::new(&settings());
    let priority = [Tag { kind: Tag::CUSTOMER, vlan: 0xe000 }];
    let packet = ping4(PEER4, OUR4, b"x");
    let (fate, reply) = host.receive(&frame(OUR_MAC, PEER_MAC, &priority, 0x0800, &packet));
    assert_eq!((fate, vlans(&reply)), (Received::Reply(Answer::Echo4), vec![0]));
}

/// Two ports on one device with two VLANs: a router on a stick.
fn on_a_stick() -> Settings {
    let mut settings = settings();
    let mut inside = settings.ports[0].clone();
    settings.ports[0].tags = vec![Tag::customer(20)];
    settings.ports[0].answers = vec![prefix("203.0.113.0/28")];
    settings.ports[0].addresses = vec![prefix("198.51.100.1/24")];
    settings.ports[0].routes.truncate(1);
    inside.name = "inside".into();
    inside.tags = vec![Tag::customer(10)];
    inside.addresses = vec![prefix("2001:db8:1::1/64")];
    inside.answers = vec![prefix("2001:db8:64::/96")];
    inside.routes = vec![route("2001:db8::/32", "2001:db8:1::9")];
    inside.mtu = 1400;
    settings.ports.push(inside);
    settings
}

// proves: HM-17
#[test]
fn two_ports_on_one_device_differ_by_their_tags() {
    let mut host = Host::new(&on_a_stick());
    assert_eq!(host.send(&udp4(POOL4, PEER4, b"x")).0, Sent::Held);
    assert_eq!(host.send(&udp6(POOL6, FAR6, b"x")).0, Sent::Held);
    let asked: Vec<_> = host.poll().iter().map(|f| vlans(f)).collect();
    assert_eq!(asked, [[20], [10]]);
    // Each port answers only for its own addresses.
    let ask = |vlan, target| {
        let body = arp_body(1, PEER_MAC, PEER4, gatun_ether::Mac([0; 6]), target);
        frame(gatun_ether::Mac::BROADCAST, PEER_MAC, &[Tag::customer(vlan)], 0x0806, &body)
    };
    assert_eq!(host.receive(&ask(20, POOL4)).0, Received::Reply(Answer::Arp));
    assert_eq!(host.receive(&ask(10, POOL4)).0, Received::Foreign(Foreign::ArpOther));
    // An answer on the other VLAN belongs to another neighbour.
    let forged = arp_body(2, OTHER_MAC, PEER4, OUR_MAC, OUR4);
    let _ = host.receive(&frame(OUR_MAC, OTHER_MAC, &[Tag::customer(10)], 0x0806, &forged));
    assert!(host.ether.neighbours().all(|n| n.mac != Some(OTHER_MAC)));
}

// proves: HM-20
#[test]
fn each_port_has_its_mtu() {
    let mut host = Host::new(&on_a_stick());
    let payload = |len: usize, headers| vec![0; len - headers];
    assert_eq!(host.send(&udp4(POOL4, PEER4, &payload(1500, 28))).0, Sent::Held);
    assert_eq!(host.send(&udp4(POOL4, PEER4, &payload(1501, 28))).0, Sent::Drop(Unsent::TooLarge));
    assert_eq!(host.send(&udp6(POOL6, FAR6, &payload(1400, 48))).0, Sent::Held);
    assert_eq!(host.send(&udp6(POOL6, FAR6, &payload(1401, 48))).0, Sent::Drop(Unsent::TooLarge));
}

#[test]
fn ports_of_two_devices_differ_by_the_device() {
    let mut settings = on_a_stick();
    for (port, device) in settings.ports.iter_mut().zip([3, 4]) {
        port.tags.clear();
        port.device = device;
    }
    let mut ether = Ether::new(&settings, &Limits::default(), [1, 2, 3, 4]).unwrap();
    let mut receive = |device, bytes: &[u8]| {
        let mut buffer = bytes.to_vec();
        let len = buffer.len();
        ether.receive(0, device, &mut Packet::new(&mut buffer, 0, len).unwrap())
    };
    let request = arp_request(PEER_MAC, PEER4, POOL4);
    assert_eq!(receive(3, &request), Received::Reply(Answer::Arp));
    assert_eq!(receive(4, &request), Received::Foreign(Foreign::ArpOther));
    assert_eq!(receive(5, &request), Received::Foreign(Foreign::OtherVlan));
    let mut sent_by = |bytes: &[u8]| {
        let mut buffer = [&[0; HEADER_MAX], bytes].concat();
        ether.transmit(0, &mut Packet::new(&mut buffer, HEADER_MAX, bytes.len()).unwrap())
    };
    assert_eq!(sent_by(&udp4(POOL4, PEER4, b"x")), Sent::Frame { device: 3 });
    assert_eq!(sent_by(&udp6(POOL6, PEER6, b"x")), Sent::Held);
    let mut asked = vec![];
    ether.poll(0, &mut |device, _, _| asked.push(device));
    assert_eq!(asked, [4]);
}

#[test]
fn one_armed_packets_leave_by_their_port() {
    let mut host = Host::new(&settings());
    let _ = host.receive(&arp_request(PEER_MAC, PEER4, POOL4));
    let (fate, packet) = host.receive(&frame(OUR_MAC, PEER_MAC, &[], 0x0800, &udp4(PEER4, POOL4, b"x")));
    assert_eq!(fate, Received::Packet);
    // The engine turns it into a packet to a host on the same link.
    assert_eq!(packet, udp4(PEER4, POOL4, b"x"));
    assert_eq!(host.send(&udp4(POOL4, PEER4, b"x")).0, Sent::Frame { device: DEVICE });
}

#[test]
fn a_packet_without_headroom_is_dropped_unchanged_but_may_wait() {
    let mut host = Host::new(&settings());
    let bytes = udp4(POOL4, PEER4, b"x");
    let transmit = |host: &mut Host, room: usize| {
        let mut buffer = [&vec![0xa5; room][..], &bytes].concat();
        let mut packet = Packet::new(&mut buffer, room, bytes.len()).unwrap();
        let fate = host.ether.transmit(host.now_ms, &mut packet);
        (fate, packet.bytes() == bytes)
    };
    assert_eq!(transmit(&mut host, 0), (Sent::Held, true));
    let _ = host.poll();
    let _ = host.receive(&arp_reply(PEER_MAC, PEER4));
    assert_eq!(host.poll().len(), 1);
    assert_eq!(transmit(&mut host, 13), (Sent::Drop(Unsent::NoHeadroom), true));
    assert_eq!(transmit(&mut host, 14), (Sent::Frame { device: DEVICE }, false));
}

#[test]
fn offloaded_checksums_are_completed_before_a_packet_waits() {
    let mut host = Host::new(&settings());
    let whole = udp4(POOL4, PEER4, b"some payload");
    // As a device with checksum offload receives it: only the pseudo-header's sum.
    let mut partial = whole.clone();
    let pseudo = gatun_wire::checksum::pseudo(&whole[12..20], whole.len() as u32 - 20, 17);
    partial[26..28].copy_from_slice(&pseudo.to_be_bytes());
    let transmit = |host: &mut Host, offload: Offload| {
        let mut buffer = [&[0; HEADROOM], &partial[..]].concat();
        let mut packet = Packet::with_offload(&mut buffer, HEADROOM, partial.len(), offload).unwrap();
        host.ether.transmit(host.now_ms, &mut packet)
    };
    let checksum = Checksum::Partial { start: 20, offset: 6 };
    let segmentation = Segmentation::Udp { size: 4 };
    let super_packet = Offload { checksum, segmentation };
    assert_eq!(transmit(&mut host, Offload { checksum, ..Offload::default() }), Sent::Held);
    assert_eq!(transmit(&mut host, super_packet), Sent::Drop(Unsent::Unholdable));
    let _ = host.poll();
    let _ = host.receive(&arp_reply(PEER_MAC, PEER4));
    assert_eq!(host.poll(), [frame(PEER_MAC, OUR_MAC, &[], 0x0800, &whole)]);
    assert_eq!(transmit(&mut host, super_packet), Sent::Frame { device: DEVICE });
    assert_eq!(host.ether.stats().unsent.of(Unsent::Unholdable), 1);
}

// proves: HM-19
#[test]
fn the_longest_prefix_wins_and_a_route_may_be_on_link() {
    let mut settings = settings();
    let routes = &mut settings.ports[0].routes;
    routes.push(route("192.0.2.0/24", "198.51.100.7"));
    routes.push(route("192.0.2.128/25", ""));
    let mut host = Host::new(&settings);
    let mut asked_for = |dst: &str| {
        let _ = host.send(&udp4(POOL4, dst.parse().unwrap(), b"x"));
        host.poll().first().map(|f| parse_arp(f).target_ipv4)
    };
    assert_eq!(asked_for("192.0.2.1"), Some([198, 51, 100, 7]));
    assert_eq!(asked_for("192.0.2.129"), Some([192, 0, 2, 129]));
    assert_eq!(asked_for("192.0.3.1"), Some(GATEWAY4.octets()));
    assert_eq!(asked_for("198.51.100.77"), Some([198, 51, 100, 77]));
}

/// Two links on VLANs 1 and 2 with the same addresses, each in a realm, and one link without a realm.
fn with_realms() -> Settings {
    let mut settings = settings();
    let outside = settings.ports.remove(0);
    let customer = |vlan: u16| gatun_ether::PortSettings {
        name: format!("customer-{vlan}"),
        tags: vec![Tag::customer(vlan)],
        addresses: vec![prefix("10.0.0.1/8"), prefix("2001:db8:7::1/64")],
        answers: vec![],
        routes: vec![route("172.16.0.0/12", "10.0.0.2")],
        realms: [vlan as u8, 0],
        ..outside.clone()
    };
    let mut customers = [1, 2].map(customer);
    customers[1].addresses[1] = prefix("2001:db8:8::1/64");
    settings.ports.push(outside);
    settings.ports.extend(customers);
    settings
}

#[test]
fn links_of_two_realms_may_have_the_same_addresses() {
    use core::net::Ipv4Addr;
    let mut host = Host::new(&with_realms());
    let (near, far) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(172, 16, 0, 5));
    for vlan in [1, 2] {
        let tags = [Tag::customer(vlan)];
        let mac = gatun_ether::Mac([4, 0, 0, 0, 0, vlan as u8]);
        // The peer asks for the address that both links have, and becomes known.
        let asked = arp_body(1, mac, near, gatun_ether::Mac([0; 6]), Ipv4Addr::new(10, 0, 0, 1));
        let asked = frame(gatun_ether::Mac::BROADCAST, mac, &tags, 0x0806, &asked);
        let (fate, reply) = host.receive(&asked);
        assert_eq!((fate, vlans(&reply)), (Received::Reply(Answer::Arp), vec![vlan]));
    }
    for vlan in [1, 2, 1] {
        let (tags, mac) = ([Tag::customer(vlan)], gatun_ether::Mac([4, 0, 0, 0, 0, vlan as u8]));
        let four = udp4(near, FAR4, b"x");
        assert_eq!(host.receive_from(&frame(OUR_MAC, mac, &tags, 0x0800, &four)), (vlan as u8, four));
        // IPv6 of the same ports has no realm.
        let six = udp6(PEER6, FAR6, b"x");
        assert_eq!(host.receive_from(&frame(OUR_MAC, mac, &tags, 0x86dd, &six)), (0, six));
        // On the link, and through the router.
        for to in [near, far] {
            let back = udp4(FAR4, to, b"y");
            assert_eq!(
                host.send_to(vlan as u8, &back),
                (Sent::Frame { device: DEVICE }, frame(mac, OUR_MAC, &tags, 0x0800, &back))
            );
        }
    }
    let four = udp4(PEER4, FAR4, b"x");
    assert_eq!(host.receive_from(&frame(OUR_MAC, PEER_MAC, &[], 0x0800, &four)), (0, four));
    // Without a realm, 10.0.0.2 is behind the default route. The realm has no default route.
    assert_eq!(host.send(&udp4(FAR4, near, b"y")).0, Sent::Held);
    assert_eq!(host.send_to(1, &udp4(POOL4, FAR4, b"y")).0, Sent::Drop(Unsent::NoRoute));
    assert_eq!(host.send_to(9, &udp4(FAR4, near, b"y")).0, Sent::Drop(Unsent::NoRoute));
}
