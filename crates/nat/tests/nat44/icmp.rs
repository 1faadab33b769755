//! ICMP: RFC 5508, RFC 4787 REQ-12 and REQ-13.

use super::common::*;
use super::{A, B, OTHER, ROUTER, SERVER, T, plan44};
use gatun_nat::Verdict;
use gatun_wire::DropReason;

/// Packets of each protocol from A, as sent and as translated.
fn left(bed: &mut Bed) -> Vec<(Vec<u8>, Vec<u8>)> {
    let sent = [
        udp4(A, 5000, SERVER, 53, b"question"),
        tcp4(A, 5000, SERVER, 80, "S", b""),
        echo4(A, SERVER, true, 77, b"x"),
    ];
    sent.map(|packet| (packet.clone(), bed.send(&packet).forwarded().to_vec())).to_vec()
}

// proves: R55-4, R47-12, R53-9, R55-10
#[test]
fn an_error_from_any_router_reaches_the_host_whose_packet_it_is_about() {
    let mut bed = Bed::new(&plan44());
    for (sent, out) in left(&mut bed) {
        for kind in [(3, 1, 0), (3, 3, 0), (3, 4, 1400), (3, 13, 0), (11, 0, 0), (12, 0, 0x0800_0000)] {
            let was = with_hops(sent.clone(), 63);
            for len in [28, out.len()] {
                let got = bed.send(&error4(ROUTER, T, kind, &out[..len]));
                assert_eq!(got.forwarded(), with_hops(error4(ROUTER, A, kind, &was[..len]), 63));
            }
        }
    }
}

// proves: R55-4, R47-13
#[test]
fn a_router_with_an_inside_address_may_report_a_packet_that_has_left() {
    let mut bed = Bed::new(&plan44());
    for (sent, out) in left(&mut bed) {
        let got = bed.send(&error4("100.64.0.1", T, (3, 4, 1400), &out));
        let was = with_hops(sent, 63);
        assert_eq!(got.forwarded(), with_hops(error4("100.64.0.1", A, (3, 4, 1400), &was), 63));
    }
}

// proves: R55-4
#[test]
fn an_error_about_an_unknown_packet_is_dropped() {
    let mut bed = Bed::new(&plan44());
    let (_, out) = left(&mut bed).swap_remove(0);
    let e = ends(&out);
    let other_port = udp4(T, e.sport ^ 1, SERVER, 53, b"x");
    let verdict = bed.send(&error4(ROUTER, T, (3, 3, 0), &other_port)).verdict;
    assert_eq!(verdict, Verdict::Drop(DropReason::IcmpErrorNoState));
    let from_elsewhere = udp4(OTHER, e.sport, SERVER, 53, b"x");
    let verdict = bed.send(&error4(ROUTER, T, (3, 3, 0), &from_elsewhere)).verdict;
    assert_eq!(verdict, Verdict::Drop(DropReason::IcmpErrorNoState));
}

// proves: R55-6, R47-12, R53-10, R78-8
#[test]
fn errors_in_either_direction_neither_end_a_session_nor_extend_it() {
    let mut bed = Bed::new(&plan44());
    let (_, out) = left(&mut bed).swap_remove(0);
    let port = ends(&out).sport;
    let before = bed.nat.occupancy();
    for _ in 0..14 {
        bed.send(&error4(ROUTER, T, (3, 3, 0), &out)).forwarded();
        bed.send(&error4(A, SERVER, (3, 3, 0), &udp4(SERVER, 53, A, 5000, b"x"))).forwarded();
        if bed.nat.occupancy().sessions == before.sessions {
            bed.through(&udp4(SERVER, 53, T, port, b"x"));
        }
        bed.pass_ms(20_000);
    }
    bed.pass_ms(30_000);
    assert_eq!(bed.nat.occupancy().bindings, 0);
}

// proves: R55-5
#[test]
fn an_error_from_inside_leaves_from_the_public_address_of_the_host_it_is_about() {
    let mut bed = Bed::new(&plan44());
    for (_, out) in left(&mut bed) {
        let e = ends(&out);
        let (answer, seen) = match out[9] {
            17 => (udp4(SERVER, 53, T, e.sport, b"y"), udp4(SERVER, 53, A, 5000, b"y")),
            6 => (tcp4(SERVER, 80, T, e.sport, "SA", b""), tcp4(SERVER, 80, A, 5000, "SA", b"")),
            _ => (echo4(SERVER, T, false, e.sport, b"y"), echo4(SERVER, A, false, 77, b"y")),
        };
        let delivered = bed.send(&answer).forwarded().to_vec();
        assert_eq!(delivered, with_hops(seen, 63));
        // The error comes from the host itself, and from a router on the path to it.
        for (source, kind) in [(A, (3, 3, 0)), ("100.64.9.9", (11, 0, 0))] {
            let got = bed.send(&error4(source, SERVER, kind, &delivered));
            let mut wanted = with_hops(error4(T, SERVER, kind, &with_hops(answer.clone(), 63)), 63);
            wanted[4..6].copy_from_slice(&got.forwarded()[4..6]);
            wanted[10..12].copy_from_slice(&got.forwarded()[10..12]);
            assert_eq!(got.forwarded(), wanted);
        }
    }
    let stranger = error4(B, SERVER, (3, 3, 0), &udp4(SERVER, 53, B, 5000, b"x"));
    assert_eq!(bed.send(&stranger).verdict, Verdict::Drop(DropReason::IcmpErrorNoState));
    let lying = error4(A, OTHER, (3, 3, 0), &udp4(SERVER, 53, A, 5000, b"x"));
    assert_eq!(bed.send(&lying).verdict, Verdict::Drop(DropReason::IcmpErrorNoState));
}

// proves: R55-3
#[test]
fn wrong_checksums_are_dropped_except_that_of_the_quoted_transport() {
    let mut bed = Bed::new(&plan44());
    let (_, out) = left(&mut bed).swap_remove(0);
    let good = error4(ROUTER, T, (3, 3, 0), &out);
    let mut outer = good.clone();
    outer[22] ^= 1;
    assert_eq!(bed.send(&outer).verdict, Verdict::Drop(DropReason::BadL4Checksum));
    let mut header = out.clone();
    header[10] ^= 1;
    let packet = error4(ROUTER, T, (3, 3, 0), &header);
    assert_eq!(bed.send(&packet).verdict, Verdict::Drop(DropReason::BadL3Checksum));
    let mut transport = out;
    transport[27] ^= 1;
    bed.send(&error4(ROUTER, T, (3, 3, 0), &transport)).forwarded();
    // Options of the quoted packet are skipped.
    let mut options = transport[..20].to_vec();
    options[0] = 0x46;
    options.extend([1, 1, 1, 0]);
    options.extend(&transport[20..]);
    let total = (options.len() as u16).to_be_bytes();
    options[2..4].copy_from_slice(&total);
    options[10..12].fill(0);
    let sum = etherparse::Ipv4Header::from_slice(&options).unwrap().0.calc_header_checksum();
    options[10..12].copy_from_slice(&sum.to_be_bytes());
    let got = bed.send(&error4(ROUTER, T, (3, 3, 0), &options));
    let inner = quote(got.forwarded());
    assert_eq!((&inner[12..16], &inner[24..26]), (&v4(A).octets()[..], &5000u16.to_be_bytes()[..]));
}

// proves: R55-11, R55-10
#[test]
fn other_icmp_is_never_leaked() {
    let mut bed = Bed::new(&plan44());
    let id = bed.through(&echo4(A, SERVER, true, 77, b"x")).sport;
    for kind in (1..=255u8).filter(|k| ![3, 4, 5, 8, 11, 12].contains(k)) {
        let word = u32::from(id) << 16;
        let out = bed.send(&error4(A, SERVER, (kind, 0, word), &[0; 12]));
        assert!(!matches!(out.verdict, Verdict::Forward | Verdict::Pass), "type {kind} from inside");
        let out = bed.send(&error4(SERVER, T, (kind, 0, word), &[0; 12]));
        assert!(!matches!(out.verdict, Verdict::Forward | Verdict::Pass), "type {kind} from outside");
    }
    // A redirect and a source quench quote a packet, but they are not for the other side.
    for kind in [4, 5] {
        let about = udp4(SERVER, 53, A, 77, b"x");
        let out = bed.send(&error4(A, SERVER, (kind, 0, 0), &about));
        assert!(matches!(out.verdict, Verdict::Drop(_)));
    }
}

// proves: R55-8, R55-9, R68-11
#[test]
fn a_query_that_can_have_no_state_is_answered_with_host_unreachable_unless_policy_is_silent() {
    let mut plan = plan44();
    plan.limits.sessions_max = 1;
    let mut bed = Bed::new(&plan);
    bed.through(&echo4(A, SERVER, true, 1, b"x"));
    let out = bed.send(&echo4(A, SERVER, true, 2, b"x"));
    assert_eq!(icmp_type(&out.bytes), (3, 1));
    plan.icmp.suppressed = vec![DropReason::SessionTableFull];
    let mut bed = Bed::new(&plan);
    bed.through(&echo4(A, SERVER, true, 1, b"x"));
    let out = bed.send(&echo4(A, SERVER, true, 2, b"x"));
    assert_eq!(out.verdict, Verdict::Drop(DropReason::SessionTableFull));
}

// proves: R47-13
#[test]
fn a_packet_too_large_for_the_link_is_answered_with_df_and_fragmented_without() {
    let mut plan = plan44();
    plan.nat44[0].mtu = 1400;
    let mut bed = Bed::new(&plan);
    let big = udp4(A, 5000, SERVER, 53, &[7; 1472]);
    let out = bed.send(&with_flags4(big.clone(), 0x4000));
    assert_eq!((icmp_type(&out.bytes), ends(&out.bytes).dst), ((3, 4), v4(A).into()));
    assert_eq!(u16::from_be_bytes([out.bytes[26], out.bytes[27]]), 1400);
    let out = bed.send(&with_flags4(big, 0));
    assert_eq!(out.verdict, Verdict::Forward);
    let pieces = [vec![out.bytes.clone()], out.emitted.clone()].concat();
    assert_eq!(pieces.len(), 2);
    let mut whole = Vec::new();
    for (i, piece) in pieces.iter().enumerate() {
        let flags = u16::from_be_bytes([piece[6], piece[7]]);
        assert_eq!((usize::from(flags & 0x1fff) * 8, flags & 0x2000 != 0), (whole.len(), i == 0));
        assert!(piece.len() <= 1400 && piece[4..6] == pieces[0][4..6]);
        whole.extend(&piece[20..]);
    }
    let port = u16::from_be_bytes([whole[0], whole[1]]);
    assert_eq!(whole, udp4(T, port, SERVER, 53, &[7; 1472])[20..]);
}

// proves: R55-4
#[test]
fn an_error_to_another_address_than_the_quoted_source_is_dropped() {
    let mut plan = super::both_kinds();
    plan.pools[0] = pool(T, "192.0.2.2", (1024, 65_535));
    let mut bed = Bed::new(&plan);
    for out in [udp4(A, 1000, SERVER, 9, b"x"), udp6(CLIENT, 1000, &behind(super::POOL6, SERVER), 9, b"x")] {
        let sent = bed.send(&out).forwarded().to_vec();
        let sender = ends(&sent).src.to_string();
        let other = if sender == T { "192.0.2.2" } else { T };
        let refused = bed.send(&error4(ROUTER, other, (3, 1, 0), &sent)).verdict;
        assert_eq!(refused, Verdict::Drop(DropReason::IcmpErrorNoState));
        let _ = bed.send(&error4(ROUTER, &sender, (3, 1, 0), &sent)).forwarded();
    }
}

#[test]
fn an_error_about_a_packet_to_an_inside_host_without_state_is_dropped() {
    let mut bed = Bed::new(&plan44());
    let port = bed.through(&udp4(A, 5000, SERVER, 53, b"x")).sport;
    // This is the packet that B would have received from A; B has no binding.
    let quoted = udp4(T, port, B, 6000, b"hello");
    let error = bed.send(&error4("100.64.0.99", T, (3, 1, 0), &quoted));
    assert_eq!(error.verdict, Verdict::Drop(DropReason::IcmpErrorNoState));
}
