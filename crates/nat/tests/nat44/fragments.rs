//! Fragments: RFC 4787 REQ-14, RFC 6864.

use super::common::*;
use super::{A, B, SERVER, T, plan44};
use gatun_nat::Verdict;
use gatun_nat::plan::{Exemption, Transport};
use gatun_wire::DropReason;

/// Cuts a packet into three fragments, first to last.
pub(crate) fn pieces(packet: &[u8], id: u16) -> Vec<Vec<u8>> {
    let (header, payload) = packet.split_at(20);
    let cuts = [0, 40, 88, payload.len()];
    cuts.windows(2)
        .map(|w| {
            let mut p = [header, &payload[w[0]..w[1]]].concat();
            let total = (p.len() as u16).to_be_bytes();
            p[2..4].copy_from_slice(&total);
            p[4..6].copy_from_slice(&id.to_be_bytes());
            let more = if w[1] < payload.len() { 0x2000 } else { 0 };
            with_flags4(p, more | (w[0] / 8) as u16)
        })
        .collect()
}

/// Reassembles the packets that left, in any order. All fragments must have the same identification.
fn together(mut out: Vec<Vec<u8>>) -> (Vec<u8>, [u8; 2]) {
    out.sort_by_key(|p| u16::from_be_bytes([p[6], p[7]]) & 0x1fff);
    let id = [out[0][4], out[0][5]];
    let mut whole = out[0][..20].to_vec();
    for p in &out {
        assert_eq!([p[4], p[5]], id);
        assert_eq!(usize::from(u16::from_be_bytes([p[6], p[7]]) & 0x1fff) * 8, whole.len() - 20);
        whole.extend(&p[20..]);
    }
    (whole, id)
}

fn send_all(bed: &mut Bed, pieces: &[Vec<u8>], order: &[usize]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for &i in order {
        let sent = bed.send(&pieces[i]);
        if sent.verdict == Verdict::Forward {
            out.push(sent.bytes.clone());
        }
        out.extend(sent.emitted);
    }
    out
}

// proves: R53-4
#[test]
fn a_syn_in_pieces_is_answered_after_six_seconds_and_not_before() {
    for from_inside in [false, true] {
        let mut plan = plan44();
        plan.nat44[0].filtering = gatun_nat::plan::Filtering::AddressDependent;
        plan.icmp.suppressed.clear();
        let mut bed = Bed::new(&plan);
        let port = bed.through(&tcp4(A, 5000, SERVER, 80, "S", b"")).sport;
        let from = if from_inside { B } else { "203.0.113.9" };
        let syn = pieces(&tcp4(from, 4000, T, port, "S", &[9; 150]), 77);
        assert_eq!(bed.send(&syn[0]).verdict, Verdict::Held);
        assert_eq!(bed.send(&syn[1]).verdict, Verdict::Drop(DropReason::FragmentOrphan));
        assert_eq!(bed.pass_ms(5_999), Vec::<Vec<u8>>::new());
        let sent = bed.pass_ms(1);
        assert_eq!(sent.len(), 1);
        assert_eq!((icmp_type(&sent[0]), quote(&sent[0])), ((3, 3), &syn[0][..]));
    }
}

// proves: R47-14, R78-11
#[test]
fn datagrams_in_pieces_go_both_ways_in_any_order_with_one_new_identification() {
    let data = [9u8; 150];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2]] {
        let mut bed = Bed::new(&plan44());
        let port = bed.through(&udp4(A, 5000, SERVER, 53, b"x")).sport;
        let id = bed.through(&echo4(A, SERVER, true, 77, b"x")).sport;
        let outbound = [
            (udp4(A, 5000, SERVER, 53, &data), udp4(T, port, SERVER, 53, &data)),
            (echo4(A, SERVER, true, 77, &data), echo4(T, SERVER, true, id, &data)),
        ];
        let mut ids = Vec::new();
        for (sent, wanted) in &outbound {
            let out = send_all(&mut bed, &pieces(sent, 1), &order);
            assert_eq!(out.len(), 3, "{order:?}");
            let (whole, id) = together(out);
            assert_eq!(whole[20..], wanted[20..]);
            assert_eq!(whole[12..20], wanted[12..20]);
            ids.push(id);
        }
        assert_ne!(ids[0], [0, 1], "the inside host's own identification");
        for (sent, wanted) in [
            (udp4(SERVER, 53, T, port, &data), udp4(SERVER, 53, A, 5000, &data)),
            (echo4(SERVER, T, false, id, &data), echo4(SERVER, A, false, 77, &data)),
        ] {
            let (whole, id) = together(send_all(&mut bed, &pieces(&sent, 700), &order));
            assert_eq!((&whole[20..], id), (&wanted[20..], 700u16.to_be_bytes()));
        }
        assert_eq!(bed.nat.counters().held, 0);
    }
}

// proves: R47-14
#[test]
fn two_hosts_datagrams_of_one_identification_stay_apart() {
    let mut bed = Bed::new(&plan44());
    let (one, two) = ([1u8; 150], [2u8; 150]);
    let a = pieces(&udp4(A, 5000, SERVER, 53, &one), 1);
    let b = pieces(&udp4(B, 5000, SERVER, 53, &two), 1);
    let (mut from_a, mut from_b) = (Vec::new(), Vec::new());
    for i in [0, 2, 1] {
        from_a.extend(send_all(&mut bed, &a, &[i]));
        from_b.extend(send_all(&mut bed, &b, &[i]));
    }
    let ((a, id_a), (b, id_b)) = (together(from_a), together(from_b));
    assert_ne!(id_a, id_b);
    assert!(a[28..].iter().all(|x| *x == 1) && b[28..].iter().all(|x| *x == 2));
}

// proves: R47-14
#[test]
fn datagrams_without_checksum_stay_without_and_hairpins_pass_in_pieces() {
    let mut bed = Bed::new(&plan44());
    let b = bed.through(&udp4(B, 2222, SERVER, 53, b"x")).sport;
    let mut packet = udp4(A, 5000, T, b, &[3; 150]);
    packet[26..28].fill(0);
    for order in [[0, 1, 2], [2, 0, 1]] {
        let out = send_all(&mut bed, &pieces(&packet, 9), &order);
        let (whole, _) = together(out);
        assert_eq!((&whole[16..20], &whole[26..28]), (&v4(B).octets()[..], &[0u8, 0][..]));
        assert_eq!(u16::from_be_bytes([whole[22], whole[23]]), 2222);
        assert_eq!(whole[8], 62);
    }
}

// proves: R68-6
#[test]
fn a_datagram_in_pieces_that_is_exempt_by_its_port_passes_whole() {
    let mut plan = plan44();
    let net = super::net(SERVER, 32);
    plan.nat44[0].exempt = vec![Exemption { net, transport: Some(Transport::Udp), ports: Some((53, 53)) }];
    for order in [[0, 1, 2], [2, 1, 0]] {
        let mut bed = Bed::new(&plan);
        let sent = pieces(&udp4(A, 5000, SERVER, 53, &[3; 150]), 9);
        let mut out = Vec::new();
        for &i in &order {
            let one = bed.send(&sent[i]);
            out.extend((one.verdict == Verdict::Pass).then(|| one.bytes.clone()));
            out.extend(one.emitted);
        }
        out.sort_by_key(|p| u16::from_be_bytes([p[6], p[7]]) & 0x1fff);
        assert_eq!(out, sent);
        assert_eq!((bed.nat.counters().passed.packets, bed.nat.counters().held), (3, 0));
    }
}

#[test]
fn pieces_of_an_exempt_datagram_that_waited_in_vain_are_counted_with_the_one_that_ended_it() {
    let mut plan = plan44();
    let net = super::net(SERVER, 32);
    plan.nat44[0].exempt = vec![Exemption { net, transport: Some(Transport::Udp), ports: Some((53, 53)) }];
    let mut bed = Bed::new(&plan);
    let mut sent = pieces(&udp4(A, 5000, SERVER, 53, &[3; 150]), 9);
    sent[1] = with_flags4(sent[1].clone(), 0x2000 | 4); // it begins eight bytes early
    for i in [1, 2, 0] {
        let _ = bed.send(&sent[i]);
    }
    let dropped = bed.nat.counters().dropped.packets;
    assert_eq!((dropped, bed.drops(DropReason::FragmentOverlap), bed.nat.counters().held), (3, 3, 0));
}

// proves: R47-14
#[test]
fn a_flood_of_pieces_from_one_host_costs_that_host_alone() {
    let mut plan = plan44();
    plan.limits.fragments_per_source = 8;
    let mut bed = Bed::new(&plan);
    for id in 0..2000 {
        let _ = bed.send(&pieces(&udp4(A, 5000, SERVER, 53, &[0; 150]), id)[1]);
    }
    let mut out = Vec::new();
    for piece in pieces(&udp4(B, 5000, SERVER, 53, &[5; 150]), 1) {
        out.push(bed.send(&piece).forwarded().to_vec());
    }
    assert_eq!(together(out).0.len(), 20 + 8 + 150);
    bed.through(&udp4(A, 5000, SERVER, 53, b"whole"));
    bed.pass_ms(10_000);
    assert_eq!(bed.nat.counters().held, 0);
}

/// RFC 7915 4.5: a fragmented datagram without checksum cannot become IPv6, so its other fragments would be
/// useless.
#[test]
fn a_hairpin_that_drops_the_first_fragment_drops_the_others() {
    for order in [[0, 1, 2], [2, 1, 0]] {
        let mut bed = Bed::new(&super::both_kinds());
        let port = bed.through(&udp6(CLIENT, 2222, &behind(super::POOL6, SERVER), 53, b"x")).sport;
        let mut packet = udp4(A, 5000, T, port, &[3; 150]);
        packet[26..28].fill(0);
        let sent = pieces(&packet, 9);
        for &i in &order {
            let one = bed.send_any(&sent[i]);
            assert!(matches!(one.verdict, Verdict::Drop(_) | Verdict::Held) && one.emitted.is_empty());
        }
        let counted = |reason| bed.drops(reason);
        assert_eq!(counted(DropReason::FragmentZeroChecksum), 1);
        assert_eq!((counted(DropReason::FragmentOrphan), bed.nat.counters().held), (2, 0), "{order:?}");
    }
}

// proves: R78-11
#[test]
fn a_packet_after_a_super_packet_between_its_addresses_has_a_new_identification() {
    use gatun_wire::{Checksum, Offload, Segmentation};
    let mut bed = Bed::new(&plan44());
    let udp = |sport, payload: &[u8]| with_flags4(udp4(A, sport, SERVER, 7777, payload), 0);
    let id = |o: &Outcome| u16::from_be_bytes(o.forwarded()[4..6].try_into().unwrap());
    let first = id(&bed.send(&udp(5000, b"open")));
    let offload = Offload { segmentation: Segmentation::Udp { size: 500 }, checksum: Checksum::Complete };
    let several = id(&bed.send_offloaded(&udp(5000, &[7; 2400]), offload));
    let next = id(&bed.send(&udp(5001, b"next")));
    assert_eq!((several.wrapping_sub(first), next.wrapping_sub(first)), (1, 6));
}
