//! Packets on their way to and from other nodes of a cluster.

use super::shards::{Node, set, sharded};
use super::*;
use gatun_nat::Instant;
use gatun_nat::redirect::{Place, Redirection, Tunnel, TunnelNode};
use gatun_nat::standby::Fence;
use gatun_wire::{Checksum, HEADROOM, Offload, Packet, Segmentation, vxlan};
use std::net::IpAddr;

const OWN: &str = "198.18.0.1";
const PEER: &str = "198.18.0.2";

fn tunnel() -> Tunnel {
    tunnel_of(&[OWN, PEER], 100, 1500).unwrap()
}

fn tunnel_of(nodes: &[&str], vni: u32, mtu: u32) -> Result<Tunnel, String> {
    let node = |address: &&str| TunnelNode { name: "a".into(), address: address.parse().unwrap() };
    let nodes = nodes.iter().map(node).collect();
    Tunnel::new(0, nodes, vxlan::PORT, vni, mtu).map_err(|error| error.0)
}

/// Result of a packet that the caller has found to be another node's, or another node to have sent.
struct Sent {
    verdict: Verdict,
    bytes: Vec<u8>,
    realm: u8,
    emitted: Vec<Vec<u8>>,
}

fn through(
    node: &mut Node,
    bytes: &[u8],
    (offload, realm): (Offload, u8),
    run: impl FnOnce(&mut gatun_nat::Nat, Instant, &mut Packet<'_>) -> Verdict,
) -> Sent {
    let bed = &mut node.member.bed;
    let mut buffer = vec![0; HEADROOM];
    buffer.extend_from_slice(bytes);
    buffer.resize(buffer.len() + gatun_wire::TAILROOM, 0);
    let mut packet = Packet::with_offload(&mut buffer, HEADROOM, bytes.len(), offload).unwrap();
    packet.realm = realm;
    let verdict = run(&mut bed.nat, bed.now, &mut packet);
    let (bytes, realm) = (packet.bytes().to_vec(), packet.realm);
    let mut emitted = Vec::new();
    bed.nat.drain_emitted(|one| emitted.push(one.packet.bytes().to_vec()));
    assert!(bed.nat.counters().conserved() && bed.nat.conserved_by_instance(), "{:?}", bed.nat.counters());
    Sent { verdict, bytes, realm, emitted }
}

fn redirect(node: &mut Node, bytes: &[u8]) -> Sent {
    through(node, bytes, Default::default(), |nat, now, packet| nat.redirect(now, packet, &tunnel(), 1))
}

/// Takes a packet out of the tunnel. `Pass` stands for success.
fn receive(node: &mut Node, bytes: &[u8]) -> Sent {
    through(node, bytes, Default::default(), |nat, now, packet| {
        nat.receive_redirected(now, packet, &tunnel()).err().unwrap_or(Verdict::Pass)
    })
}

/// The tunnel's packet as if the other node had sent it.
fn turned(sent: &[u8]) -> Vec<u8> {
    let mut bytes = sent.to_vec();
    let (from, to) = (sent[12..16].to_vec(), sent[16..20].to_vec());
    bytes[12..16].copy_from_slice(&to);
    bytes[16..20].copy_from_slice(&from);
    bytes
}

fn count(node: &Node) -> (u64, u64) {
    let counters = node.member.bed.nat.counters();
    (counters.redirected.packets, counters.rx.packets)
}

#[test]
fn a_redirected_packet_is_the_same_with_one_hop_less() {
    let mut node = Node::new();
    let original = with_hops(udp4(A, 4000, SERVER, 53, b"hello"), 9);
    let sent = redirect(&mut node, &original);
    assert_eq!((sent.verdict, count(&node)), (Verdict::Redirect, (1, 1)));
    assert_eq!(node.member.bed.nat.counters().redirected.bytes, original.len() as u64);
    assert_eq!((&sent.bytes[12..16], &sent.bytes[16..20]), (&[198, 18, 0, 1][..], &[198, 18, 0, 2][..]));
    let received = receive(&mut node, &turned(&sent.bytes));
    assert_eq!(received.verdict, Verdict::Pass);
    assert_eq!(received.bytes, with_hops(udp4(A, 4000, SERVER, 53, b"hello"), 8));
    assert_eq!(count(&node), (1, 1), "its engine counts it");
    // Padding of a short frame does not travel.
    let padded = [&original[..], &[0; 9]].concat();
    assert_eq!(redirect(&mut node, &padded).bytes, sent.bytes);
}

#[test]
fn a_packet_keeps_its_realm_by_the_network_identifier() {
    let mut plan = sharded(Allocation::default(), (1024, 65_535));
    plan.nat44.push(plan::Nat44 { name: "customer".into(), realm: 3, ..plan.nat44[0].clone() });
    let mut node = Node::of(&plan);
    let sent =
        through(&mut node, &udp4(A, 1, SERVER, 2, b"x"), (Offload::default(), 3), |nat, now, packet| {
            nat.redirect(now, packet, &tunnel(), 1)
        });
    assert_eq!((sent.verdict, sent.realm, &sent.bytes[32..35]), (Verdict::Redirect, 0, &[0, 0, 103][..]));
    let received = receive(&mut node, &turned(&sent.bytes));
    assert_eq!((received.verdict, received.realm), (Verdict::Pass, 3));
    let mut other = turned(&sent.bytes);
    for unknown in [99, 104] {
        other[34] = unknown;
        assert_eq!(receive(&mut node, &other).verdict, Verdict::Drop(DropReason::TunnelVni));
    }
    other[33] = 9;
    assert_eq!(receive(&mut node, &other).verdict, Verdict::Drop(DropReason::TunnelVni));
}

#[test]
fn packets_of_no_node_are_dropped_and_counted() {
    let mut node = Node::new();
    let good = turned(&redirect(&mut node, &udp4(A, 1, SERVER, 2, b"x")).bytes);
    let inner = &good[28..];
    let from = |address: &str, payload: &[u8]| udp4(address, 50_000, OWN, vxlan::PORT, payload);
    let mut verdict = |bytes: &[u8]| receive(&mut node, bytes).verdict;
    assert_eq!(verdict(&from("198.18.0.3", inner)), Verdict::Drop(DropReason::TunnelSource));
    assert_eq!(verdict(&from(OWN, inner)), Verdict::Drop(DropReason::TunnelSource), "a forged own address");
    // The sender counts before anything else is read.
    assert_eq!(verdict(&from("198.18.0.3", &inner[..21])), Verdict::Drop(DropReason::TunnelSource));
    assert_eq!(verdict(&from(PEER, &inner[..21])), Verdict::Drop(DropReason::TunnelHeader));
    assert_eq!(verdict(&from(PEER, inner)), Verdict::Pass);
    // Whatever is inside, the engine's parser decides.
    assert_eq!(verdict(&from(PEER, &inner[..30])), Verdict::Pass);
    assert_eq!(count(&node), (1, 5));
    let drops = [DropReason::TunnelSource, DropReason::TunnelHeader].map(|why| node.member.bed.drops(why));
    assert_eq!(drops, [3, 1]);
}

#[test]
fn a_hop_limit_ends_at_the_node_that_redirects() {
    let mut node = Node::new();
    let sent = redirect(&mut node, &with_hops(udp4(A, 4000, SERVER, 53, b"hello"), 1));
    assert_eq!(sent.verdict, Verdict::Reply(Reply::Error(DropReason::TtlExceeded)));
    assert_eq!((icmp_type(&sent.bytes), &sent.bytes[16..20]), ((11, 0), &[10, 0, 0, 1][..]));
    assert_eq!(count(&node), (0, 1));
}

#[test]
fn packets_that_do_not_fit_the_tunnel_are_refused_or_cut() {
    let mut node = Node::new();
    let df = |payload: &[u8]| with_flags4(udp4(A, 4000, SERVER, 53, payload), 0x4000);
    assert_eq!(redirect(&mut node, &df(&[7; 1422])).verdict, Verdict::Redirect);
    let big = redirect(&mut node, &df(&[7; 1423]));
    assert_eq!(big.verdict, Verdict::Reply(Reply::Error(DropReason::TooBig4)));
    assert_eq!((icmp_type(&big.bytes), &big.bytes[26..28]), ((3, 4), &1450u16.to_be_bytes()[..]));
    // Without DF, the packet leaves as fragments, each in a datagram of its own.
    let whole = with_flags4(udp4(A, 4000, SERVER, 53, &[7; 4000]), 0);
    let cut = redirect(&mut node, &whole);
    assert_eq!((cut.verdict, cut.emitted.len()), (Verdict::Redirect, 2));
    assert_eq!((count(&node), node.member.bed.nat.counters().fragments_made), ((2, 3), 2));
    let mut payload = Vec::new();
    for piece in std::iter::once(&cut.bytes).chain(&cut.emitted) {
        assert!(piece.len() <= 1500);
        let received = receive(&mut node, &turned(piece));
        assert_eq!((received.verdict, received.bytes[8]), (Verdict::Pass, whole[8] - 1));
        let offset = usize::from(u16::from_be_bytes([received.bytes[6], received.bytes[7]]) & 0x1fff) * 8;
        assert_eq!(offset, payload.len());
        payload.extend_from_slice(&received.bytes[20..]);
    }
    assert_eq!(payload, whole[20..]);
    // An IPv6 packet is never cut.
    let six = redirect(&mut node, &udp6("2001:db8:1::2", 1, "64:ff9b::1", 2, &[7; 1403]));
    assert_eq!(six.verdict, Verdict::Reply(Reply::Error(DropReason::TooBig6)));
    assert_eq!((icmp_type(&six.bytes), &six.bytes[44..48]), ((2, 0), &1450u32.to_be_bytes()[..]));
}

#[test]
fn a_device_has_no_work_left_inside_the_tunnel() {
    let mut node = Node::new();
    let mut partial = tcp4(A, 4000, SERVER, 80, "A", b"data");
    let complete = partial.clone();
    let pseudo = gatun_wire::checksum::pseudo(&partial[12..20], 24, 6);
    partial[36..38].copy_from_slice(&pseudo.to_be_bytes());
    let redirected = |node: &mut Node, bytes: &[u8], offload| {
        through(node, bytes, (offload, 0), |nat, now, packet| nat.redirect(now, packet, &tunnel(), 1))
    };
    let offload = Offload { checksum: Checksum::Partial { start: 20, offset: 16 }, ..Offload::default() };
    let sent = redirected(&mut node, &partial, offload);
    let received = receive(&mut node, &turned(&sent.bytes)).bytes;
    assert_eq!(&received[20..], &complete[20..]);
    // A super-packet leaves as its segments.
    let segmentation = Segmentation::Tcp { size: 1000, ecn: false };
    let offload = Offload { checksum: Checksum::Partial { start: 20, offset: 16 }, segmentation };
    let sent = redirected(&mut node, &tcp4(A, 4000, SERVER, 80, "A", &[9; 2500]), offload);
    assert_eq!((sent.verdict, sent.emitted.len()), (Verdict::Redirect, 2));
    let segments: Vec<_> = std::iter::once(&sent.bytes).chain(&sent.emitted).collect();
    let lens: Vec<_> = segments.iter().map(|segment| segment.len() - 50 - 40).collect();
    assert_eq!((lens, count(&node)), (vec![1000, 1000, 500], (2, 2)));
    for segment in segments {
        let received = receive(&mut node, &turned(segment)).bytes;
        check(&received);
    }
}

#[test]
fn places_name_the_shards_that_are_elsewhere() {
    let mut places = [Place::Here; 256];
    (places[1], places[3]) = (Place::Node(1), Place::Nowhere);
    let redirection = Redirection { places, held: set(&[0, 1]), tunnel: tunnel() };
    assert_eq!(redirection.elsewhere(), set(&[1, 3]));
    let is_by_tunnel = |port, realm| {
        let mut bytes = udp4(PEER, 5, OWN, port, b"");
        let len = bytes.len();
        let mut packet = Packet::new(&mut bytes, 0, len).unwrap();
        packet.realm = realm;
        redirection.is_by_tunnel(&packet)
    };
    assert!(is_by_tunnel(vxlan::PORT, 0) && !is_by_tunnel(53, 0));
    assert!(!is_by_tunnel(vxlan::PORT, 1), "a customer's network is not that between the nodes");
}

#[test]
fn a_tunnel_has_room_for_every_ipv6_packet_and_an_identifier_for_every_realm() {
    assert_eq!((tunnel().overhead(), tunnel().inner_mtu()), (50, 1450));
    let six = ["2001:db8::1", "2001:db8::2"];
    let of = |vni, mtu| tunnel_of(&six, vni, mtu);
    assert_eq!(of(Tunnel::VNI_MAX, Tunnel::MTU_MIN).unwrap().inner_mtu(), 1280);
    assert_eq!(of(0, 1349).unwrap_err(), "MTU 1349 of the tunnel: expected 1350 to 65535");
    assert!(of(0, 65_536).is_err());
    assert_eq!(of(0xff_ff01, 1500).unwrap_err(), "network identifier 16776961: expected 0 to 16776960");
    let refused = |nodes: &[&str]| tunnel_of(nodes, 0, 1500).unwrap_err();
    assert_eq!(refused(&[]), "node 0 of 0: a cluster has at most 64 nodes");
    assert_eq!(refused(&[six[0], six[0]]), "two nodes have the tunnel address 2001:db8::1");
    let mixed = refused(&[six[0], PEER]);
    assert_eq!(mixed, "the tunnel addresses 2001:db8::1 and 198.18.0.2 are of two families");
    assert_eq!(refused(&[six[0]; 65]), "node 0 of 65: a cluster has at most 64 nodes");
}

/// An inside host of a shard.
fn host(node: &Node, shard: u8) -> String {
    let of = |host: &String| node.steering.shard_of_subscriber(0, v4(host).to_ipv6_mapped());
    (0..200).map(|n| format!("10.0.0.{n}")).find(|host| of(host) == Some(shard)).unwrap()
}

#[test]
fn a_packet_to_an_address_of_another_nodes_shard_leaves() {
    let mut node = Node::new();
    let (mine, theirs) = (host(&node, 0), host(&node, 1));
    let out = node.member.bed.through(&udp4(&theirs, 4000, SERVER, 53, b"x"));
    let to = udp4(&mine, 5000, &out.src.to_string(), out.sport, b"hairpin");
    let hairpinned = |node: &Node| node.member.bed.nat.counters().hairpinned.packets;
    node.member.bed.through(&to);
    assert_eq!(hairpinned(&node), 1);
    node.member.bed.nat.set_elsewhere(set(&[1]));
    let left = node.member.bed.through(&to);
    assert_eq!((left.dst, left.dport, hairpinned(&node)), (out.src, out.sport, 1), "to the other node");
    node.member.bed.nat.set_elsewhere(set(&[]));
    node.member.bed.through(&to);
    assert_eq!(hairpinned(&node), 2);
    // A fence has the same effect.
    let fence = Fence { translate: Some(node.member.bed.now), assign: None };
    node.order(PeerAction::Until(set(&[1]), fence));
    node.member.bed.through(&to);
    assert_eq!(hairpinned(&node), 2);
}

#[test]
fn no_port_is_assigned_past_a_fence_and_translation_ends_at_its_time() {
    let mut node = Node::new();
    let (mine, other) = (host(&node, 0), host(&node, 1));
    let now = node.member.bed.now;
    let until = |ms| Some(Instant(now.0 + ms));
    let fence = Fence { assign: until(1_000), translate: until(5_000) };
    assert_eq!(node.order(PeerAction::Until(set(&[0, 2]), fence)), PeerOutcome::Done);
    let open =
        |node: &mut Node, host: &str, port| node.member.bed.send(&udp4(host, port, SERVER, 53, b"x")).verdict;
    assert_eq!(open(&mut node, &mine, 1), Verdict::Forward);
    node.member.bed.now = Instant(now.0 + 999);
    assert_eq!(open(&mut node, &mine, 2), Verdict::Forward);
    node.member.bed.now = Instant(now.0 + 1_000);
    let refused = Verdict::Reply(Reply::Error(DropReason::PortRightNone));
    assert_eq!(open(&mut node, &mine, 3), refused);
    assert_eq!((open(&mut node, &mine, 1), open(&mut node, &other, 3)), (Verdict::Forward, Verdict::Forward));
    let fenced = Verdict::Drop(DropReason::ShardFenced);
    node.member.bed.now = Instant(now.0 + 4_999);
    assert_eq!(open(&mut node, &mine, 1), Verdict::Forward);
    node.member.bed.now = Instant(now.0 + 5_000);
    assert_eq!((open(&mut node, &mine, 1), open(&mut node, &other, 3)), (fenced, Verdict::Forward));
    // Another word, of one shard.
    node.order(PeerAction::Until(set(&[0]), Fence::default()));
    let third = host(&node, 2);
    assert_eq!((open(&mut node, &mine, 3), open(&mut node, &third, 1)), (Verdict::Forward, fenced));
    assert_eq!(node.member.bed.drops(DropReason::ShardFenced), 2);
}

#[test]
fn a_burst_stops_before_a_fenced_packet_and_its_other_packets_are_translated() {
    let mut node = Node::new();
    let (mine, other) = (host(&node, 0), host(&node, 1));
    let back = node.member.bed.through(&udp4(&mine, 1, SERVER, 53, b"x"));
    let fence = Fence { translate: Some(node.member.bed.now), assign: None };
    node.order(PeerAction::Until(set(&[0]), fence));
    let from = |host: &str| udp4(host, 1, SERVER, 53, b"x");
    let answer = udp4(SERVER, 53, &back.src.to_string(), back.sport, b"x");
    // No shard has the last one.
    let of_nobody = udp4("203.0.113.9", 1, "203.0.113.8", 2, b"x");
    let all = [from(&other), from(&mine), answer, from(&other), from(&mine), of_nobody];
    let mut buffers: Vec<Vec<u8>> = all.iter().map(|bytes| [&[0; HEADROOM][..], bytes].concat()).collect();
    let buffers = buffers.iter_mut().zip(&all);
    let mut burst: Vec<_> = buffers.map(|(b, of)| Packet::new(b, HEADROOM, of.len()).unwrap()).collect();
    let mut verdicts = [Verdict::Pass; 6];
    let (mut done, mut calls) = (0, Vec::new());
    while done < all.len() {
        let bed = &mut node.member.bed;
        let taken = bed.nat.process(bed.now, &mut burst[done..], &mut verdicts[done..]);
        calls.push(taken);
        done += taken;
    }
    let fenced = Verdict::Drop(DropReason::ShardFenced);
    let nobody = Verdict::Drop(DropReason::NotInPool);
    assert_eq!(verdicts, [Verdict::Forward, fenced, fenced, Verdict::Forward, fenced, nobody]);
    assert_eq!(calls, [1; 6]);
    let nat = &node.member.bed.nat;
    assert!(nat.counters().conserved() && nat.conserved_by_instance());
}

#[test]
fn an_owner_without_a_right_revokes_what_the_other_member_does_not_know() {
    let mut node = Node::new();
    let records = node.connect();
    for host in 100..140 {
        // Untold: not established.
        node.member.bed.through(&tcp4(&format!("10.0.1.{host}"), 4000, SERVER, 80, "S", b""));
    }
    let all = node.member.bed.nat.occupancy().sessions;
    node.right((1024, 40_000));
    node.pass(gatun_nat::standby::StandbySweep::Revoke, set(&[0, 1]));
    let ended = all - node.member.bed.nat.occupancy().sessions;
    assert!((3..20).contains(&ended), "{ended} of about eight");
    node.pass(gatun_nat::standby::StandbySweep::Revoke, set(&[0, 1]));
    assert_eq!(all - node.member.bed.nat.occupancy().sessions, ended);
    assert!(node.member.told().is_empty() && node.member.bed.nat.occupancy().quarantined == 0);
    // A told one ends as any other.
    let gatun_nat::feed::Flow { transport, outside, remote, .. } = records[0][0].id.flow;
    let flow = OutsideFlow { transport, outside, remote };
    assert_eq!(node.order(PeerAction::Revoke(flow)), PeerOutcome::Done);
    assert_eq!(node.order(PeerAction::Revoke(flow)), PeerOutcome::Gone);
    assert_eq!(
        (node.member.told()[0].change, node.member.bed.nat.occupancy().quarantined),
        (SessionChange::Ended, 1)
    );
}

/// ICMP errors, each with the shard that has the session of the packet that it quotes.
fn errors(node: &mut Node, family: u8, hosts: &[(String, u8)]) -> Vec<(Vec<u8>, u8)> {
    let of = |node: &mut Node, packet: &[u8]| node.member.bed.send(packet).forwarded().to_vec();
    let behind = |address: &str| match family {
        4 => address.to_owned(),
        _ => prefix("2001:db8:64::/96").embed(v4(address)).to_string(),
    };
    let udp = |src: &str, sport, dst: &str, dport| match family {
        4 => udp4(src, sport, dst, dport, b"over there"),
        _ => udp6(src, sport, dst, dport, b"over there"),
    };
    let inside_error = |src: &str, dst: &str, quote: &[u8]| match family {
        4 => error4(src, dst, (3, 1, 0), quote),
        _ => error6(src, dst, (1, 0, 0), quote),
    };
    let router = if family == 4 { "10.255.0.1" } else { "2001:db8:ffff::9" };
    let mut found = Vec::new();
    let mut before: Option<(String, u16, String, u8)> = None;
    for (host, shard) in hosts {
        let out = of(node, &udp(host, 4000, &behind(SERVER), 53));
        let (public, port) = (ends(&out).src.to_string(), ends(&out).sport);
        for sender in ["203.0.113.1", "10.255.0.1"] {
            found.push((error4(sender, &public, (11, 0, 0), &out), *shard));
        }
        let back = of(node, &udp4(SERVER, 53, &public, port, b"back"));
        for sender in [&host[..], router] {
            found.push((inside_error(sender, &behind(SERVER), &back), *shard));
        }
        if let Some((other, their_port, theirs, their_shard)) = &before {
            // A hairpin, here and as it leaves for another node.
            let arrived = of(node, &udp(host, 4000, &behind(other), *their_port));
            assert_eq!(ends(&arrived).dst.to_string(), *theirs);
            found.push((inside_error(theirs, &behind(&public), &arrived), *their_shard));
            let left = udp4(&public, port, other, *their_port, b"over there");
            found.push((error4("203.0.113.1", &public, (11, 0, 0), &left), *shard));
        }
        before = Some((public, port, host.clone(), *shard));
    }
    found
}

#[test]
fn an_error_belongs_to_the_shard_of_the_packet_that_it_quotes() {
    let mut plan = sharded(Allocation::default(), (1024, 65_535));
    plan.nat64.push(nat64("2001:db8:64::/96"));
    let mut node = Node::of(&plan);
    for family in [6, 4] {
        let host = |n: u16| if family == 4 { format!("10.0.0.{n}") } else { format!("2001:db8:1::{n:x}") };
        let instance = u8::from(family == 4);
        let inside = |host: &str| match family {
            4 => v4(host).to_ipv6_mapped(),
            _ => v6(host),
        };
        let shard = |host: &str| node.steering.shard_of_subscriber(instance, inside(host)).unwrap();
        let hosts: Vec<(String, u8)> = (1..30).map(host).map(|host| (host.clone(), shard(&host))).collect();
        let found = errors(&mut node, family, &hosts);
        assert!(found.len() > 170 && (0..4).all(|shard| hosts.iter().any(|host| host.1 == shard)));
        for (error, shard) in found {
            let of = node.steering.part_of(&error, 0);
            assert_eq!(of, Some(shard.into()), "{:?} of family {family}", ends_of(&error));
            node.member.bed.now.0 += 100;
            assert_eq!(node.member.bed.send(&error).verdict, Verdict::Forward, "{:?}", ends_of(&error));
        }
    }
}

fn ends_of(packet: &[u8]) -> (IpAddr, IpAddr) {
    let ends = ends(packet);
    (ends.src, ends.dst)
}

#[test]
fn an_explanation_knows_shards_rights_and_fences() {
    use gatun_nat::explain::{Fate, Opening};
    let blocks = Blocks { size: 64, per_subscriber: 2, ..Blocks::default() };
    for allocation in [Allocation::default(), Allocation::Blocks(blocks)] {
        let mut node = Node::of(&sharded(allocation, (1024, 65_535)));
        node.right((40_000, 50_000));
        let explain = |node: &mut Node, bytes: &[u8]| {
            let mut buffer = [&[0; HEADROOM][..], bytes].concat();
            node.member.bed.nat.explain(&mut Packet::new(&mut buffer, HEADROOM, bytes.len()).unwrap())
        };
        for host in (0..40).map(|n| format!("10.0.0.{n}")) {
            let packet = udp4(&host, 4000, SERVER, 53, b"x");
            let shard = node.steering.shard_of_subscriber(0, v4(&host).to_ipv6_mapped());
            let e = explain(&mut node, &packet);
            let Some(Opening::Port(port)) = e.opening else { panic!("{e:?}") };
            let out = node.member.bed.through(&packet);
            assert_eq!((e.shard, out.src), (shard, port.address.into()));
            // Free ports, or free blocks, of the right.
            assert!((1..=10_001).contains(&port.free), "{port:?}");
        }
        let other = host(&node, 1);
        // A host without ports.
        let is_of = |host: &String, steering: &gatun_nat::workers::Steering| {
            steering.shard_of_subscriber(0, v4(host).to_ipv6_mapped()) == Some(0)
        };
        let mut hosts = (0..200).map(|n| format!("10.0.200.{n}"));
        let new = hosts.find(|host| is_of(host, &node.steering)).unwrap();
        let packet = udp4(&new, 4001, SERVER, 53, b"x");
        let has_none = |fate| matches!(fate, Fate::Drop(DropReason::PortRightNone, Some(_)));
        node.right((1, 0));
        assert!(has_none(explain(&mut node, &packet).fate));
        node.right((1024, 65_535));
        let now = node.member.bed.now;
        node.order(PeerAction::Until(set(&[0]), Fence { assign: Some(now), translate: None }));
        assert!(has_none(explain(&mut node, &packet).fate));
        let refused = Verdict::Reply(Reply::Error(DropReason::PortRightNone));
        assert_eq!(node.member.bed.send(&packet).verdict, refused);
        node.order(PeerAction::Until(set(&[0]), Fence { assign: Some(now), translate: Some(now) }));
        assert_eq!(explain(&mut node, &packet).fate, Fate::Drop(DropReason::ShardFenced, None));
        let packet = udp4(&other, 4001, SERVER, 53, b"x");
        assert!(matches!(explain(&mut node, &packet).fate, Fate::Forward { .. }));
    }
}
