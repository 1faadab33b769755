//! Path MTUs: the segment size that a SYN announces (RFC 9293 3.7.1), and paths to IPv4 hosts with an MTU
//! below the minimum of IPv6 hosts (RFC 8200 5).

mod common;

use common::*;
use gatun_nat::plan::{Eam, Nat44, Net4, Net6, Plan, Siit};
use gatun_nat::{Instant, Verdict};
use gatun_wire::segment;
use gatun_wire::{Checksum, Offload, Segmentation};

const POOL6: &str = "2001:db8:64::/96";
const SERVER6: &str = "2001:db8:64::c633:6407";
const OTHER6: &str = "2001:db8:64::c633:6409";
const T: &str = "192.0.2.1";
const ROUTER: &str = "203.0.113.254";
/// Address that is mapped to an IPv6 host.
const MAPPED: &str = "192.0.2.99";
const MAPPED6: &str = "2001:db8:5::1";
const STATELESS6: &str = "2001:db8:46::/96";
const PRIVATE: &str = "100.64.0.5";

/// Plan with all kinds of instances, with links for segments of 1400 bytes.
fn plan() -> Plan {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].settings.mss_max = 1400;
    let inside = vec![Net4::new(v4("100.64.0.0"), 10).unwrap()];
    plan.nat44 = vec![Nat44 { name: "private".into(), inside, mss_max: 1400, ..Nat44::default() }];
    let eam = Eam { v4: Net4::new(v4(MAPPED), 32).unwrap(), v6: Net6::new(v6(MAPPED6), 128).unwrap() };
    let siit = Siit {
        name: "mapped".into(),
        pool6: vec![prefix(STATELESS6)],
        eamt: vec![eam],
        settings: plan.nat64[0].settings,
        ..Siit::default()
    };
    Plan { siit: vec![siit], ..plan }
}

/// Makes a segment with an MSS as its only option and a correct checksum.
fn announcing(mss: u16, segment: Vec<u8>) -> Vec<u8> {
    let parsed = etherparse::PacketHeaders::from_ip_slice(&segment).unwrap();
    let Some(etherparse::TransportHeader::Tcp(mut tcp)) = parsed.transport else { panic!("no segment") };
    tcp.set_options(&[etherparse::TcpOptionElement::MaximumSegmentSize(mss)]).unwrap();
    let builder = match parsed.net.unwrap() {
        etherparse::NetHeaders::Ipv4(ip, _) => {
            etherparse::PacketBuilder::ip(etherparse::IpHeaders::Ipv4(ip, Default::default()))
        }
        etherparse::NetHeaders::Ipv6(ip, _) => {
            etherparse::PacketBuilder::ip(etherparse::IpHeaders::Ipv6(ip, Default::default()))
        }
        etherparse::NetHeaders::Arp(_) => panic!("no IP"),
    };
    let mut out = Vec::new();
    builder.tcp_header(tcp).write(&mut out, b"").unwrap();
    out
}

/// Returns the MSS that a segment announces.
fn announced(packet: &[u8]) -> u16 {
    let parsed = etherparse::PacketHeaders::from_ip_slice(packet).unwrap();
    let Some(etherparse::TransportHeader::Tcp(tcp)) = parsed.transport else { panic!("no segment") };
    let mut options = tcp.options_iterator().map(Result::unwrap);
    let Some(etherparse::TcpOptionElement::MaximumSegmentSize(mss)) = options.next() else {
        panic!("no MSS")
    };
    mss
}

/// Makes a segment from inside to the server, for each kind of instance.
fn syn(kind: &str, flags: &str, mss: u16) -> Vec<u8> {
    announcing(
        mss,
        match kind {
            "nat64" => tcp6(CLIENT, 5000, SERVER6, 80, flags, b""),
            "nat44" => tcp4(PRIVATE, 5000, SERVER, 80, flags, b""),
            _ => tcp6(MAPPED6, 5000, &behind(STATELESS6, SERVER), 80, flags, b""),
        },
    )
}

fn syn_back(outside: &Ends, mss: u16) -> Vec<u8> {
    announcing(mss, tcp4(SERVER, 80, &outside.src.to_string(), outside.sport, "SA", b""))
}

#[test]
fn the_mss_of_a_syn_is_lowered_to_the_link_mtu_on_every_path() {
    for kind in ["nat64", "nat44", "siit"] {
        for (mss, expected) in [(1460, 1400), (1401, 1400), (1400, 1400), (536, 536), (0, 0)] {
            let mut bed = Bed::new(&plan());
            let out = bed.send(&syn(kind, "S", mss));
            assert_eq!(announced(out.forwarded()), expected, "{kind}, out");
            let back = bed.send(&syn_back(&ends(out.forwarded()), mss));
            assert_eq!(announced(back.forwarded()), expected, "{kind}, back");
            // Only in SYNs: in other segments the option has no meaning.
            let ack = bed.send(&syn(kind, "A", mss));
            assert_eq!(announced(ack.forwarded()), mss, "{kind}");
        }
    }
}

#[test]
fn a_segment_whose_checksum_the_device_completes_is_lowered_too() {
    let mut bed = Bed::new(&plan());
    let mut syn = syn("nat64", "S", 1460);
    // The kernel leaves the sum of the pseudo-header to a device.
    let pseudo = gatun_wire::checksum::pseudo(&syn[8..40], 24, 6);
    syn[56..58].copy_from_slice(&pseudo.to_be_bytes());
    let mut offload = Offload { checksum: Checksum::Partial { start: 40, offset: 16 }, ..Offload::default() };
    let mut buffer = vec![0; gatun_wire::HEADROOM + syn.len()];
    buffer[gatun_wire::HEADROOM..].copy_from_slice(&syn);
    let mut burst =
        [gatun_wire::Packet::with_offload(&mut buffer, gatun_wire::HEADROOM, syn.len(), offload).unwrap()];
    assert_eq!(bed.nat.process(bed.now, &mut burst, &mut [Verdict::Pass]), 1);
    offload = burst[0].offload;
    assert_eq!(offload.checksum, Checksum::Partial { start: 20, offset: 16 });
    burst[0].complete_checksum();
    check(burst[0].bytes());
    assert_eq!(announced(burst[0].bytes()), 1400);
}

/// Makes a datagram from inside of `len` bytes as an IPv6 packet, for the stateful or the stateless instance.
fn datagram(stateless: bool, len: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..len - 48).map(|i| i as u8).collect();
    match stateless {
        true => udp6(MAPPED6, 5000, &behind(STATELESS6, SERVER), 53, &payload),
        false => udp6(CLIENT, 5000, SERVER6, 53, &payload),
    }
}

/// Returns a test bed that has learnt a path MTU from a router's error.
fn told(stateless: bool, mtu: u32) -> Bed {
    let mut bed = Bed::new(&plan());
    let sent = bed.send(&datagram(stateless, 1280)).forwarded().to_vec();
    let from = ends(&sent).src.to_string();
    let told = bed.send(&error4(ROUTER, &from, (3, 4, mtu), &sent[..28]));
    assert_eq!(icmp_type(told.forwarded()), (2, 0));
    assert_eq!(told.forwarded()[44..48], 1280u32.to_be_bytes(), "RFC 7915 4.2: never less");
    bed
}

/// Reassembles the payload of a fragmented packet, each fragment of at most `max` bytes and without DF.
fn joined(first: &[u8], others: &[Vec<u8>], max: usize) -> Vec<u8> {
    let mut data = Vec::new();
    let pieces: Vec<&[u8]> = std::iter::once(first).chain(others.iter().map(Vec::as_slice)).collect();
    for (at, piece) in pieces.iter().enumerate() {
        let ip = etherparse::Ipv4HeaderSlice::from_slice(piece).unwrap();
        assert!(piece.len() <= max && !ip.dont_fragment(), "{} bytes", piece.len());
        assert_eq!(usize::from(ip.fragments_offset().value()) * 8, data.len());
        assert_eq!(ip.more_fragments(), at + 1 < pieces.len());
        data.extend_from_slice(&piece[20..]);
    }
    data
}

// proves: A79-52
#[test]
fn packets_to_a_host_with_a_small_path_mtu_are_fragmented_to_it() {
    for stateless in [false, true] {
        let mut bed = told(stateless, 905);
        for len in [1280, 926, 925] {
            let whole = Bed::new(&plan()).send(&datagram(stateless, len)).forwarded().to_vec();
            let out = bed.send(&datagram(stateless, len));
            assert_eq!(out.emitted.len(), usize::from(len > 925), "{len} bytes");
            assert_eq!(joined(out.forwarded(), &out.emitted, 905).len(), whole.len() - 20);
            // The datagram is unchanged, except for its random port.
            assert_eq!(joined(out.forwarded(), &out.emitted, 905)[8..], whole[28..]);
        }
        // A sender of large packets gets an error from the router.
        let large = bed.send(&datagram(stateless, 1400));
        assert!(large.emitted.is_empty() && large.forwarded()[6] & 0x40 != 0);
        let counters = bed.nat.counters();
        assert_eq!((counters.path_mtus_learnt, counters.path_mtus_evicted), (1, 0));
    }
}

#[test]
fn packets_to_other_hosts_are_not_cut_and_after_ten_minutes_none_are() {
    let mut bed = told(false, 905);
    let to_other = udp6(CLIENT, 5000, OTHER6, 53, &[1; 1200]);
    assert!(bed.send(&to_other).emitted.is_empty());
    bed.now = bed.now.plus_ms(600_000 - 1);
    assert_eq!(bed.send(&datagram(false, 1280)).emitted.len(), 1);
    bed.now = bed.now.plus_ms(1);
    assert!(bed.send(&datagram(false, 1280)).emitted.is_empty());
}

#[test]
fn connections_to_a_host_with_a_small_path_mtu_get_a_lower_mss() {
    for (stateless, kind) in [(false, "nat64"), (true, "siit")] {
        let mut bed = told(stateless, 905);
        let out = bed.send(&syn(kind, "S", 1440));
        assert_eq!(announced(out.forwarded()), 865, "{kind}, out");
        let back = bed.send(&syn_back(&ends(out.forwarded()), 1460));
        assert_eq!(announced(back.forwarded()), 865, "{kind}, back");
    }
}

#[test]
fn a_super_packet_is_made_one_of_smaller_segments() {
    let mut bed = told(false, 905);
    bed.send(&tcp6(CLIENT, 5001, SERVER6, 80, "S", b""));
    let segments = tcp6(CLIENT, 5001, SERVER6, 80, "A", &[7; 10_000]);
    let offload = Offload {
        checksum: Checksum::Partial { start: 40, offset: 16 },
        segmentation: Segmentation::Tcp { size: 1220, ecn: false },
    };
    let mut buffer = vec![0; gatun_wire::HEADROOM + segments.len()];
    buffer[gatun_wire::HEADROOM..].copy_from_slice(&segments);
    let mut burst =
        [gatun_wire::Packet::with_offload(&mut buffer, gatun_wire::HEADROOM, segments.len(), offload)
            .unwrap()];
    assert_eq!(bed.nat.process(bed.now, &mut burst, &mut [Verdict::Pass]), 1);
    assert!(matches!(burst[0].offload.segmentation, Segmentation::Tcp { size: 865, .. }));
    assert_eq!(segment::count(&burst[0]), 10_000usize.div_ceil(865));
}

#[test]
fn no_path_mtu_is_learnt_from_errors_about_unknown_packets_or_without_news() {
    let mut bed = Bed::new(&plan());
    let sent = bed.send(&datagram(false, 1280)).forwarded().to_vec();
    let mut other_port = sent.clone();
    other_port[20] ^= 1;
    let messages = [
        error4(ROUTER, T, (3, 4, 905), &other_port[..28]), // no session
        error4(ROUTER, T, (3, 4, 1260), &sent[..28]),      // wide enough
        error4(ROUTER, T, (3, 4, 1259), &{
            let mut small = sent[..28].to_vec();
            small[2..4].copy_from_slice(&600u16.to_be_bytes()); // it would have fit
            small
        }),
        error4(ROUTER, T, (3, 1, 905), &sent[..28]), // another error
    ];
    for message in &messages {
        bed.send(message);
    }
    assert_eq!(bed.nat.counters().path_mtus_learnt, 0);
    assert!(bed.send(&datagram(false, 1280)).emitted.is_empty());
}

#[test]
fn forged_messages_cause_no_tiny_fragments_and_evictions_are_counted() {
    let mut plan = plan();
    plan.limits.path_mtus_max = 4;
    let mut bed = Bed::new(&plan);
    for host in 0..32u16 {
        bed.now = Instant(bed.now.0 + 1);
        let remote = behind(POOL6, &format!("198.51.100.{}", host + 1));
        let packet = udp6(CLIENT, 5000, &remote, 53, &[1; 1200]);
        let sent = bed.send(&packet).forwarded().to_vec();
        bed.send(&error4(ROUTER, T, (3, 4, 68), &sent[..28]));
        let out = bed.send(&packet);
        assert_eq!(joined(out.forwarded(), &out.emitted, 552).len(), 1208);
        assert_eq!(out.emitted.len(), 2);
    }
    let counters = bed.nat.counters();
    assert_eq!((counters.path_mtus_learnt, counters.path_mtus_evicted), (32, 28));
}
