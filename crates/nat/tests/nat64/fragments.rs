//! Fragmented datagrams through stateful NAT64 (RFC 6146 3.4), compared byte by byte with the original
//! datagram.

use super::common::*;
use etherparse::{Ipv4HeaderSlice, Ipv6FragmentHeaderSlice, Ipv6HeaderSlice};
use gatun_nat::Verdict;
use gatun_nat::plan::Transport;
use gatun_wire::{Checksum, DropReason, HEADROOM, Offload, Packet, Segmentation};

const POOL6: &str = "2001:db8:64::/96";
const SERVER6: &str = "2001:db8:64::c633:6407";
const ID: u32 = 0xbeef;

/// Cuts an IPv6 packet into fragments with payloads of `sizes` bytes. The last fragment takes the rest.
fn cut6(packet: &[u8], sizes: &[usize]) -> Vec<Vec<u8>> {
    let (head, mut rest) = packet.split_at(40);
    let mut offset = 0u16;
    let mut out = Vec::new();
    for (i, &size) in sizes.iter().chain([&usize::MAX]).enumerate() {
        let size = size.min(rest.len());
        let more = i < sizes.len();
        let mut p = head.to_vec();
        p[4..6].copy_from_slice(&((size + 8) as u16).to_be_bytes());
        p[6] = 44;
        p.extend([head[6], 0]);
        p.extend((offset | u16::from(more)).to_be_bytes());
        p.extend(ID.to_be_bytes());
        p.extend(&rest[..size]);
        out.push(p);
        rest = &rest[size..];
        offset += size as u16;
    }
    out
}

/// Same as [`cut6`], for IPv4.
fn cut4(packet: &[u8], sizes: &[usize]) -> Vec<Vec<u8>> {
    let (head, mut rest) = packet.split_at(20);
    let mut offset = 0u16;
    let mut out = Vec::new();
    for (i, &size) in sizes.iter().chain([&usize::MAX]).enumerate() {
        let size = size.min(rest.len());
        let more = i < sizes.len();
        let mut p = head.to_vec();
        p[2..4].copy_from_slice(&((size + 20) as u16).to_be_bytes());
        p[4..6].copy_from_slice(&(ID as u16).to_be_bytes());
        p[6..8].copy_from_slice(&(offset >> 3 | u16::from(more) << 13).to_be_bytes());
        let sum = Ipv4HeaderSlice::from_slice(&p).unwrap().to_header().calc_header_checksum();
        p[10..12].copy_from_slice(&sum.to_be_bytes());
        p.extend(&rest[..size]);
        out.push(p);
        rest = &rest[size..];
        offset += size as u16;
    }
    out
}

/// Reassembles IPv4 fragments. The IPv4 header is that of the first fragment, without fragment fields.
fn join4(fragments: &[Vec<u8>]) -> Vec<u8> {
    let mut parts: Vec<_> = fragments
        .iter()
        .map(|f| {
            let h = Ipv4HeaderSlice::from_slice(f).unwrap();
            assert_eq!((h.ihl(), h.identification(), h.dont_fragment()), (5, ID as u16, false));
            (h.fragments_offset().byte_offset(), h.more_fragments(), &f[20..])
        })
        .collect();
    parts.sort();
    let mut whole = fragments.iter().find(|f| f[6] & 0x1f == 0 && f[7] == 0).unwrap()[..20].to_vec();
    for (i, &(offset, more, part)) in parts.iter().enumerate() {
        assert_eq!(usize::from(offset), whole.len() - 20, "no gap, no overlap");
        assert_eq!(more, i + 1 < parts.len());
        whole.extend(part);
    }
    let len = whole.len() as u16;
    whole[2..4].copy_from_slice(&len.to_be_bytes());
    whole[6..8].fill(0);
    let sum = Ipv4HeaderSlice::from_slice(&whole).unwrap().to_header().calc_header_checksum();
    whole[10..12].copy_from_slice(&sum.to_be_bytes());
    whole
}

/// Reassembles IPv6 fragments.
fn join6(fragments: &[Vec<u8>]) -> Vec<u8> {
    let mut parts: Vec<_> = fragments
        .iter()
        .map(|f| {
            assert_eq!(Ipv6HeaderSlice::from_slice(f).unwrap().next_header().0, 44);
            let h = Ipv6FragmentHeaderSlice::from_slice(&f[40..]).unwrap();
            assert_eq!(h.identification(), u32::from(ID as u16));
            (h.fragment_offset().byte_offset(), h.more_fragments(), &f[48..])
        })
        .collect();
    parts.sort();
    let mut whole = fragments[0][..40].to_vec();
    whole[6] = fragments[0][40];
    for (i, &(offset, more, part)) in parts.iter().enumerate() {
        assert_eq!(usize::from(offset), whole.len() - 40, "no gap, no overlap");
        assert_eq!(more, i + 1 < parts.len());
        whole.extend(part);
    }
    let len = (whole.len() - 40) as u16;
    whole[4..6].copy_from_slice(&len.to_be_bytes());
    whole
}

/// Sends fragments in the given order and collects all packets that leave.
fn send_all(bed: &mut Bed, fragments: &[Vec<u8>], order: &[usize]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for &i in order {
        let o = bed.send(&fragments[i]);
        match o.verdict {
            Verdict::Forward => out.push(o.bytes.clone()),
            Verdict::Held => {}
            other => panic!("fragment {i} in {order:?}: {other:?}"),
        }
        out.extend(o.emitted);
    }
    out
}

fn orders() -> Vec<[usize; 3]> {
    vec![[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]
}

fn payload() -> Vec<u8> {
    (0..3001u32).map(|i| (i * 7) as u8).collect()
}

// proves: A61-6, A61-7, R47-14, A79-13, A79-54
#[test]
fn datagrams_in_pieces_go_out_and_come_back_in_any_order() {
    for order in orders() {
        let mut bed = Bed::nat64(POOL6);
        let out = udp6(CLIENT, 5000, SERVER6, 7777, &payload());
        let sent = send_all(&mut bed, &cut6(&out, &[1232, 1232]), &order);
        assert_eq!(sent.len(), 3);
        let whole = join4(&sent);
        check(&whole);
        let e = ends(&whole);
        assert_eq!((e.dst, e.dport), (v4(SERVER).into(), 7777));
        assert_eq!(whole[28..], payload());

        let back = udp4(SERVER, 7777, "192.0.2.1", e.sport, &payload());
        let sent = send_all(&mut bed, &cut4(&back, &[1200, 1000]), &order);
        let whole = join6(&sent);
        check(&whole);
        assert_eq!(ends(&whole).dport, 5000);
        assert_eq!(whole[48..], payload());
        assert_eq!(bed.nat.counters().held, 0);
        assert_eq!(bed.nat.counters().forwarded.packets, 6);
    }
}

// proves: A61-6
#[test]
fn fragments_that_come_in_order_leave_at_once() {
    let mut bed = Bed::nat64(POOL6);
    for f in cut6(&udp6(CLIENT, 5000, SERVER6, 7777, &payload()), &[1232, 1232]) {
        let o = bed.send(&f);
        assert_eq!((o.verdict, o.emitted.len()), (Verdict::Forward, 0));
    }
}

// proves: A61-6
#[test]
fn a_fragment_without_its_first_one_waits_two_seconds_and_is_counted() {
    let mut bed = Bed::nat64(POOL6);
    let pieces = cut6(&udp6(CLIENT, 5000, SERVER6, 7777, &payload()), &[1232, 1232]);
    assert_eq!(bed.send(&pieces[1]).verdict, Verdict::Held);
    assert_eq!(bed.nat.counters().held, 1);
    bed.pass_ms(1_900);
    assert_eq!(bed.nat.counters().held, 1);
    bed.pass_ms(1_000);
    let c = bed.nat.counters();
    assert_eq!((c.held, c.drops[0][DropReason::FragmentTimeout as usize].packets), (0, 1));
    assert_eq!(bed.nat.occupancy().sessions, 0, "a later fragment makes no state");
}

// proves: A61-8
#[test]
fn a_datagram_without_udp_checksum_is_put_together_to_get_one() {
    for order in orders() {
        let mut bed = Bed::nat64(POOL6);
        let e = ends(bed.send(&udp6(CLIENT, 5000, SERVER6, 7777, b"open")).forwarded());
        let mut back = udp4(SERVER, 7777, "192.0.2.1", e.sport, &payload());
        back[26..28].fill(0);
        let sent = send_all(&mut bed, &cut4(&back, &[1200, 1000]), &order);
        let whole = join6(&sent);
        check(&whole);
        assert_eq!(whole[48..], payload());
        assert_eq!(bed.nat.counters().held, 0);
    }
}

// proves: A61-8
#[test]
fn a_datagram_without_udp_checksum_that_stays_incomplete_is_dropped_silently() {
    let mut bed = Bed::nat64(POOL6);
    let e = ends(bed.send(&udp6(CLIENT, 5000, SERVER6, 7777, b"open")).forwarded());
    let mut back = udp4(SERVER, 7777, "192.0.2.1", e.sport, &payload());
    back[26..28].fill(0);
    let pieces = cut4(&back, &[1200, 1000]);
    assert_eq!(bed.send(&pieces[0]).verdict, Verdict::Held);
    assert_eq!(bed.send(&pieces[1]).verdict, Verdict::Held);
    assert_eq!(bed.pass_ms(3_000).len(), 0);
    let c = bed.nat.counters();
    assert_eq!((c.held, c.drops[1][DropReason::FragmentTimeout as usize].packets), (0, 2));
}

// proves: A61-9
#[test]
fn overlapping_fragments_end_their_datagram() {
    let mut bed = Bed::nat64(POOL6);
    let packet = udp6(CLIENT, 5000, SERVER6, 7777, &payload());
    let pieces = cut6(&packet, &[1232, 1232]);
    let mut evil = pieces[1].clone();
    let offset = u16::from_be_bytes([evil[42], evil[43]]) - 8;
    evil[42..44].copy_from_slice(&offset.to_be_bytes());
    assert_eq!(bed.send(&pieces[0]).verdict, Verdict::Forward);
    assert_eq!(bed.send(&evil).verdict, Verdict::Drop(DropReason::FragmentOverlap));
    assert_eq!(bed.send(&pieces[2]).verdict, Verdict::Drop(DropReason::FragmentOverlap));
}

// proves: A61-62
#[test]
fn fragments_are_hairpinned() {
    for order in orders() {
        let mut plan = plan_with(POOL6);
        plan.nat64[0].static_bindings =
            vec![static_binding(Transport::Udp, ("2001:db8:1::b", 2222), ("192.0.2.1", 2222))];
        let mut bed = Bed::new(&plan);
        let t6 = "2001:db8:64::c000:201";
        let packet = udp6(CLIENT, 5000, t6, 2222, &payload());
        let sent = send_all(&mut bed, &cut6(&packet, &[1232, 1232]), &order);
        let whole = join6(&sent);
        check(&whole);
        let e = ends(&whole);
        assert_eq!((e.src, e.dst, e.dport), (v6(t6).into(), v6("2001:db8:1::b").into(), 2222));
        assert_eq!(whole[48..], payload());
        assert_eq!(bed.nat.counters().hairpinned.packets, 3);
    }
}

// proves: A79-11, A79-14
#[test]
fn a_large_packet_without_df_leaves_as_fragments_that_fit_1280_bytes() {
    let mut bed = Bed::nat64(POOL6);
    let e = ends(bed.send(&udp6(CLIENT, 5000, SERVER6, 7777, b"open")).forwarded());
    let mut back = udp4(SERVER, 7777, "192.0.2.1", e.sport, &payload()[..1400]);
    back[4..6].copy_from_slice(&(ID as u16).to_be_bytes());
    back[6..8].fill(0);
    back[10..12].fill(0);
    let sum = Ipv4HeaderSlice::from_slice(&back).unwrap().to_header().calc_header_checksum();
    back[10..12].copy_from_slice(&sum.to_be_bytes());
    let o = bed.send(&back);
    let mut all = vec![o.forwarded().to_vec()];
    all.extend(o.emitted.clone());
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|p| p.len() <= 1280));
    let whole = join6(&all);
    check(&whole);
    assert_eq!(whole[48..], payload()[..1400]);
    assert_eq!(bed.nat.counters().fragments_made, 1);
}

// proves: R47-14, A61-6
#[test]
fn a_flood_of_fragments_is_bounded_and_does_not_affect_other_hosts() {
    let mut bed = Bed::nat64(POOL6);
    let packet = udp6("2001:db8:bad::1", 1, SERVER6, 1, &payload());
    for id in 0..20_000u32 {
        let mut f = cut6(&packet, &[1232, 1232]).swap_remove(1);
        f[44..48].copy_from_slice(&id.to_be_bytes());
        bed.send(&f);
    }
    assert!(bed.nat.counters().held <= 128, "one source's share");
    bed.send(&udp6(CLIENT, 5000, SERVER6, 53, b"as ever")).forwarded();
    let pieces = cut6(&udp6(CLIENT, 5000, SERVER6, 7777, &payload()), &[1232, 1232]);
    let sent = send_all(&mut bed, &pieces, &[2, 1, 0]);
    assert_eq!(sent.len(), 3, "fragments of others still find room");
    bed.pass_ms(5_000);
    assert_eq!(bed.nat.counters().held, 0);
}

// proves: A79-11
#[test]
fn a_udp_super_packet_without_df_is_cut_into_datagrams_and_those_into_fragments() {
    let mut bed = Bed::nat64(POOL6);
    let e = ends(bed.send(&udp6(CLIENT, 5000, SERVER6, 7777, b"open")).forwarded());
    let data: Vec<u8> = (0..3 * 1400u32).map(|i| (i * 13) as u8).collect();
    let mut packet = udp4(SERVER, 7777, "192.0.2.1", e.sport, &data);
    packet[4..6].copy_from_slice(&(ID as u16).to_be_bytes());
    packet[6..8].fill(0);
    packet[10..12].fill(0);
    let sum = Ipv4HeaderSlice::from_slice(&packet).unwrap().to_header().calc_header_checksum();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let offload = Offload { segmentation: Segmentation::Udp { size: 1400 }, checksum: Checksum::Complete };
    let o = bed.send_offloaded(&packet, offload);
    let mut all = vec![o.forwarded().to_vec()];
    all.extend(o.emitted.clone());
    assert_eq!(all.len(), 6, "three datagrams of two fragments");
    for (i, pair) in all.chunks(2).enumerate() {
        assert!(pair.iter().all(|p| p.len() <= 1280));
        let ids: Vec<_> = pair.iter().map(|p| u32::from_be_bytes([p[44], p[45], p[46], p[47]])).collect();
        assert_eq!(ids, [ID + i as u32; 2], "identifications count up");
        let mut pair = pair.to_vec();
        pair.iter_mut().for_each(|p| p[44..48].copy_from_slice(&ID.to_be_bytes()));
        let whole = join6(&pair);
        check(&whole);
        assert_eq!(whole[48..], data[i * 1400..(i + 1) * 1400]);
    }
    assert_eq!(bed.nat.counters().forwarded.packets, 2, "one fate for one packet received");
}

// proves: A79-53
#[test]
fn a_packet_after_a_super_packet_of_its_session_has_a_new_identification() {
    let mut bed = Bed::nat64(POOL6);
    let id = |o: &Outcome| u16::from_be_bytes(o.forwarded()[4..6].try_into().unwrap());
    let first = id(&bed.send(&udp6(CLIENT, 5000, SERVER6, 7777, b"open")));
    let offload = Offload { segmentation: Segmentation::Udp { size: 500 }, checksum: Checksum::Complete };
    let several = bed.send_offloaded(&udp6(CLIENT, 5000, SERVER6, 7777, &[7; 2400]), offload);
    assert_eq!(several.forwarded()[6] & 0x40, 0, "each of the packets may be fragmented");
    let next = id(&bed.send(&udp6(CLIENT, 5000, SERVER6, 7777, b"next")));
    assert_eq!((id(&several).wrapping_sub(first), next.wrapping_sub(first)), (1, 6));
}

/// Sends packets as one burst, and returns those that leave in the order in which a worker sends them.
fn send_burst(bed: &mut Bed, packets: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut buffers: Vec<Vec<u8>> =
        packets.iter().map(|p| [&[0xa5; HEADROOM], *p, &[0xa5; 64]].concat()).collect();
    let lengths = packets.iter().map(|p| p.len());
    let mut burst: Vec<Packet<'_>> =
        buffers.iter_mut().zip(lengths).map(|(b, len)| Packet::new(b, HEADROOM, len).unwrap()).collect();
    let mut verdicts = vec![Verdict::Pass; packets.len()];
    assert_eq!(bed.nat.process(bed.now, &mut burst, &mut verdicts), packets.len());
    let mut made: Vec<(usize, Vec<u8>)> = Vec::new();
    bed.nat.drain_emitted(|e| made.push((e.after, e.packet.bytes().to_vec())));
    let mut out = Vec::new();
    for (i, (packet, verdict)) in burst.iter().zip(&verdicts).enumerate() {
        if *verdict == Verdict::Forward {
            out.push(packet.bytes().to_vec());
        }
        out.extend(made.iter().filter(|(after, _)| *after == i).map(|(_, bytes)| bytes.clone()));
    }
    out
}

// proves: A79-23
#[test]
fn a_flow_keeps_its_order_with_held_fragments() {
    let mut bed = Bed::nat64(POOL6);
    let before = udp6(CLIENT, 5000, SERVER6, 7777, b"before");
    let pieces = cut6(&udp6(CLIENT, 5000, SERVER6, 7777, &payload()), &[1232, 1232]);
    let after = udp6(CLIENT, 5000, SERVER6, 7777, b"after");
    let out = send_burst(&mut bed, &[&before, &pieces[2], &pieces[1], &pieces[0], &after]);
    assert_eq!(out.len(), 5);
    assert_eq!(out[0][28..], *b"before");
    let offsets: Vec<_> = out[1..4]
        .iter()
        .map(|p| Ipv4HeaderSlice::from_slice(p).unwrap().fragments_offset().byte_offset())
        .collect();
    assert_eq!(offsets, [0, 1232, 2464], "the first fragment, then the held ones");
    assert_eq!(out[4][28..], *b"after");
}

// proves: R68-5, A61-6
#[test]
fn a_subscriber_with_many_addresses_has_one_share_of_the_fragments() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].subscriber_len = 64;
    plan.limits.fragments_per_source = 4;
    let mut bed = Bed::new(&plan);
    let later = |subnet: u32, host: u32| {
        let src = format!("2001:db8:{subnet:x}::{host:x}");
        cut6(&udp6(&src, 4000, SERVER6, 53, &[7; 400]), &[200]).remove(1)
    };
    // A followed datagram and a held packet are two units: two hosts fill the shared quota.
    let verdicts: Vec<Verdict> = (1..20).map(|host| bed.send(&later(1, host)).verdict).collect();
    let held = verdicts.iter().filter(|v| **v == Verdict::Held).count();
    assert_eq!(held, 2, "{verdicts:?}");
    assert_eq!(bed.drops(DropReason::FragmentTooMany), 17);
    assert_eq!(bed.send(&later(2, 1)).verdict, Verdict::Held, "the neighbour has its own share");
}

/// Makes a ping in IPv6: 3001 bytes of data, and an identifier that differs on each side.
fn ping6(src: &str, dst: &str, request: bool, id: u16) -> Vec<u8> {
    echo6(src, dst, request, id, &payload())
}

/// ICMPv6's checksum covers the length of the whole message, so no fragment leaves before the last one has
/// come.
// proves: A61-6, A61-7
#[test]
fn pings_in_pieces_go_out_and_come_back_in_any_order() {
    for order in orders() {
        let mut bed = Bed::nat64(POOL6);
        let request = ping6(CLIENT, SERVER6, true, 77);
        let sent = send_all(&mut bed, &cut6(&request, &[1232, 1232]), &order);
        assert_eq!((sent.len(), bed.nat.counters().held), (3, 0), "{order:?}");
        let whole = join4(&sent);
        check(&whole);
        let id = ends(&whole).sport;
        let wanted = echo4("192.0.2.1", SERVER, true, id, &payload());
        assert_eq!((&whole[12..], whole[8]), (&wanted[12..], 63));

        // Fragments as large as an Ethernet permits. The lowest MTU of the IPv6 side cuts two of them again.
        let reply = echo4(SERVER, "192.0.2.1", false, id, &payload());
        let sent = send_all(&mut bed, &cut4(&reply, &[1480, 1480]), &order);
        assert_eq!((sent.len(), bed.nat.counters().held), (5, 0), "{order:?}");
        let whole = join6(&sent);
        check(&whole);
        let wanted = ping6(SERVER6, CLIENT, false, 77);
        assert_eq!((&whole[8..], whole[7]), (&wanted[8..], 63));
        assert_eq!(bed.nat.counters().forwarded.packets, 6);
        assert_eq!((bed.nat.occupancy().sessions, bed.nat.counters().icmp_errors_sent), (1, 0));
    }
}

/// A wrong checksum stays equally wrong: it is updated, not computed.
#[test]
fn the_wrong_checksum_of_a_ping_in_pieces_stays_wrong() {
    let right = ping6(CLIENT, SERVER6, true, 77);
    let mut wrong = right.clone();
    wrong[42] ^= 0x40;
    let [right, wrong] = [right, wrong].map(|request| {
        let mut bed = Bed::nat64(POOL6);
        join4(&send_all(&mut bed, &cut6(&request, &[1232, 1232]), &[1, 0, 2]))
    });
    check(&right);
    let field = |packet: &[u8]| i32::from(u16::from_be_bytes([packet[22], packet[23]]));
    // It is as far off as before, in ones' complement.
    assert_eq!((field(&wrong) - field(&right)).rem_euclid(0xffff) % 0x4000, 0);
    assert_ne!(field(&wrong), field(&right));
    assert_eq!((&wrong[..22], &wrong[24..]), (&right[..22], &right[24..]));
}

/// A ping to the host's own public end: both translations at once, each with the length of the whole message.
#[test]
fn a_fragmented_ping_is_hairpinned() {
    for order in orders() {
        let mut bed = Bed::nat64(POOL6);
        let own = behind(POOL6, "192.0.2.1");
        let pieces = cut6(&ping6(CLIENT, &own, true, 77), &[1232, 1232]);
        let sent = send_all(&mut bed, &pieces, &order);
        let whole = join6(&sent);
        check(&whole);
        assert_eq!((&whole[8..], whole[7]), (&ping6(&own, CLIENT, true, 77)[8..], 62), "{order:?}");
        assert_eq!((bed.nat.counters().hairpinned.packets, bed.nat.counters().held), (3, 0));
    }
}

#[test]
fn a_ping_that_stays_incomplete_is_dropped_when_its_time_is_up() {
    let mut bed = Bed::nat64(POOL6);
    let pieces = cut6(&ping6(CLIENT, SERVER6, true, 77), &[1232, 1232]);
    for piece in &pieces[..2] {
        assert_eq!(bed.send(piece).verdict, Verdict::Held);
    }
    assert_eq!(bed.pass_ms(3_000).len(), 0);
    let c = bed.nat.counters();
    assert_eq!(
        (c.held, c.dropped.packets, c.drops[0][DropReason::FragmentTimeout as usize].packets),
        (0, 2, 2)
    );
    // A fragment that comes too late waits until it times out.
    assert_eq!(bed.send(&pieces[2]).verdict, Verdict::Held);
    bed.pass_ms(3_000);
    assert_eq!(bed.nat.counters().dropped.packets, 3);
}

/// Incomplete pings fill the share of their source, and no more. Complete ones still pass.
#[test]
fn pings_in_pieces_hold_no_more_than_their_sources_share() {
    let mut plan = plan_with(POOL6);
    plan.limits.fragments_per_source = 8;
    let mut bed = Bed::new(&plan);
    for n in 0..100u16 {
        let mut pieces = cut6(&ping6(CLIENT, SERVER6, true, n), &[1232, 1232]);
        pieces[0][46..48].copy_from_slice(&n.to_be_bytes());
        let _ = bed.send(&pieces[0]);
        assert!(bed.nat.counters().held <= 4, "a datagram and its piece count as two");
    }
    assert!(bed.drops(DropReason::FragmentTooMany) >= 90);
    bed.through(&echo6(CLIENT, SERVER6, true, 7, b"whole"));
    bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"whole"));
    // An overlap drops the whole message.
    let mut bed = Bed::nat64(POOL6);
    let mut pieces = cut6(&ping6(CLIENT, SERVER6, true, 77), &[1232, 1232]);
    pieces[1][42..44].copy_from_slice(&(1224u16 | 1).to_be_bytes());
    let _ = bed.send(&pieces[0]);
    assert_eq!(bed.send(&pieces[1]).verdict, Verdict::Drop(DropReason::FragmentOverlap));
    assert_eq!(bed.drops(DropReason::FragmentOverlap), 2);
    assert_eq!(bed.nat.counters().held, 0);
}

#[test]
fn fragmented_icmp_messages_except_pings_are_dropped_and_counted() {
    let mut bed = Bed::nat64(POOL6);
    let about = udp4(SERVER, 53, "192.0.2.1", 5000, &payload());
    for piece in cut4(&error4(SERVER, "192.0.2.1", (3, 3, 0), &about), &[1200, 1000]) {
        assert!(matches!(bed.send(&piece).verdict, Verdict::Drop(_)));
    }
    let about = udp6(SERVER6, 53, CLIENT, 5000, &payload());
    for piece in cut6(&error6(CLIENT, SERVER6, (1, 4, 0), &about), &[1232, 1232]) {
        assert!(matches!(bed.send(&piece).verdict, Verdict::Drop(_)));
    }
    assert_eq!((bed.drops(DropReason::FragmentIcmp), bed.drops(DropReason::FragmentOrphan)), (2, 4));
    // The other family's ICMP counts as any other protocol that is not translated.
    for piece in cut6(&other6(CLIENT, SERVER6, 1), &[8]) {
        assert!(!matches!(bed.send(&piece).verdict, Verdict::Forward | Verdict::Held));
    }
    assert_eq!(bed.drops(DropReason::UnsupportedProtocol), 2);
}
