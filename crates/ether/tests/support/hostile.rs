//! Arbitrary frames and packets at arbitrary times, sent to one `Ether` with all functions enabled.
//! The fuzz target and plain tests share this file.
//!
//! The input is a sequence of frames, each after four bytes:
//!
//! ```text
//!   0  flags: 1 to be sent, not received; 2 right MACs; 4 right tags; 8 right checksums; 16 right addresses;
//!      32 poll after it; 64 the other device; 128 another worker applies this one's updates
//!   1  milliseconds since the previous frame, as a power of two (0: none)
//!   2  length of the frame, 16 bits
//! ```

use gatun_ether::{
    Ether, HEADER_MAX, Limits, Mac, PortSettings, Prefix, Received, Route, Sent, Settings, Stats, Tag,
};
use gatun_wire::{HEADROOM, Packet, checksum, hdr};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const OUR_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER_MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);
const TAGS: [Tag; 2] = [Tag::service(7), Tag::customer(8)];
const MTU: u32 = 1500;

fn v4(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, last))
}

fn v6(net: u16, last: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, last))
}

/// Two devices, one of them with two tags. The limits are so small that each is reached.
fn host() -> [Ether; 2] {
    let prefix = |addr, len| Prefix { addr, len };
    let pool = prefix(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 0)), 28);
    let lan = PortSettings {
        name: "lan".into(),
        device: 0,
        mac: OUR_MAC,
        tags: Vec::new(),
        mtu: MTU,
        addresses: vec![prefix(v4(1), 24), prefix(v6(1, 1), 64)],
        answers: vec![pool, prefix(v6(0x64, 0), 96)],
        routes: vec![Route { to: prefix(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0), via: Some(v6(1, 2)) }],
        neighbours: vec![],
        realms: [0; 2],
    };
    let wan = PortSettings {
        name: "wan".into(),
        device: 1,
        tags: TAGS.to_vec(),
        addresses: vec![prefix(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 30)],
        answers: Vec::new(),
        routes: vec![Route {
            to: prefix(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            via: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))),
        }],
        ..lan.clone()
    };
    let limits =
        Limits { neighbours_max: 8, unresolved_max: 4, waiting_max: 4, waiting_per_neighbour_max: 2 };
    let settings = Settings { ports: vec![lan, wan], engine: vec![pool], announces: true, shares: true };
    [&settings, &Settings { announces: false, ..settings.clone() }]
        .map(|s| Ether::new(s, &limits, [1, 2, 3, 4]).expect("the settings are right"))
}

/// Feeds the input's frames to a host and checks all output. Returns the counters.
pub(crate) fn run(input: &[u8]) -> Stats {
    let [mut ether, mut other] = host();
    let mut now_ms = 1_000_000;
    let mut rest = input;
    while let [what, step, high, low, after @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high, *low]) % 2048).min(after.len());
        let (bytes, following) = after.split_at(len);
        rest = following;
        now_ms += (1u64 << (step % 24)) >> 1;
        let device = u8::from(what & 64 != 0);
        if what & 1 == 0 {
            receive(&mut ether, now_ms, device, &mended(*what, device, bytes));
        } else {
            transmit(&mut ether, now_ms, &mended_packet(*what, bytes));
        }
        if what & 128 != 0 {
            while let Some(update) = ether.next_update() {
                other.apply_update(now_ms, update);
            }
        }
        if what & 32 != 0 {
            poll(&mut ether, now_ms);
            poll(&mut other, now_ms);
        }
        assert!(ether.stats().add_up(), "{:?}", ether.stats());
        assert!(
            ether.stats().waiting <= 4 && ether.neighbours().count() <= 8 && other.neighbours().count() <= 8
        );
    }
    // At the end, no packet waits.
    for _ in 0..200 {
        now_ms = ether.due_ms().clamp(now_ms + 100, now_ms + 1_000_000);
        poll(&mut ether, now_ms);
    }
    assert_eq!(ether.stats().waiting, 0, "{:?}", ether.stats());
    ether.stats()
}

fn receive(ether: &mut Ether, now_ms: u64, device: u8, bytes: &[u8]) {
    let mut buffer = vec![0xa5; HEADROOM + bytes.len() + gatun_ether::ANSWER_ROOM];
    buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
    let mut frame = Packet::new(&mut buffer, HEADROOM, bytes.len()).expect("it fits");
    match ether.receive(now_ms, device, &mut frame) {
        Received::Packet => assert!(bytes.ends_with(frame.bytes()), "packets are not changed"),
        Received::Foreign(_) => assert_eq!(frame.bytes(), bytes, "foreign frames are not changed"),
        Received::Reply(_) => check(device, frame.bytes()),
        Received::Consumed(_) | Received::Drop(_) => {}
    }
}

fn transmit(ether: &mut Ether, now_ms: u64, bytes: &[u8]) {
    let mut buffer = vec![0xa5; HEADER_MAX + bytes.len()];
    buffer[HEADER_MAX..].copy_from_slice(bytes);
    let mut packet = Packet::new(&mut buffer, HEADER_MAX, bytes.len()).expect("it fits");
    match ether.transmit(now_ms, &mut packet) {
        Sent::Frame { device } => {
            check_header(device, packet.bytes());
            assert!(packet.bytes().ends_with(bytes));
        }
        Sent::Held | Sent::Drop(_) => assert_eq!(packet.bytes(), bytes),
    }
}

fn poll(ether: &mut Ether, now_ms: u64) {
    let mut frames = 0;
    ether.poll(now_ms, &mut |device, frame, _| {
        check_header(device, frame);
        frames += 1;
    });
    assert!(frames <= 100, "{frames} frames at a time");
    assert!(ether.due_ms() > now_ms, "all due work is done at once");
}

/// Checks that a frame has our MAC and its port's tags and goes to another MAC.
fn check_header(device: u8, frame: &[u8]) {
    assert_eq!(frame[6..12], OUR_MAC.0);
    assert_ne!(frame[..6], OUR_MAC.0);
    if device == 1 {
        assert_eq!(frame[12..20], [0x88, 0xa8, 0, 7, 0x81, 0, 0, 8]);
    } else {
        assert!([0x0800u16, 0x0806, 0x86dd].iter().any(|k| k.to_be_bytes() == frame[12..14]), "{frame:02x?}");
    }
}

/// Checks the checksums of a reply.
fn check(device: u8, frame: &[u8]) {
    assert_eq!(frame[6..12], OUR_MAC.0);
    let tags = frame[12..].chunks(4).take_while(|t| t[..2] == [0x81, 0] || t[..2] == [0x88, 0xa8]).count();
    assert!(device == 0 || tags >= 2);
    let at = 14 + 4 * tags.min(2);
    let packet = &frame[at..];
    match frame[at - 2..at] {
        [0x08, 0x06] => assert_eq!(packet[..8], [0, 1, 8, 0, 6, 4, 0, 2]),
        [0x08, 0x00] => {
            let len = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            assert_eq!(checksum::sum(&packet[..20]), 0xffff);
            assert_eq!((packet[20], checksum::sum(&packet[20..len])), (0, 0xffff));
        }
        _ => {
            let len = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
            let pseudo = checksum::pseudo(&packet[8..40], len as u32, 58);
            assert_eq!(checksum::add(pseudo, checksum::sum(&packet[40..40 + len])), 0xffff);
            assert!(matches!(packet[40], 129 | 136));
        }
    }
}

/// The input frame: raw bytes, or bytes with some fields corrected.
fn mended(what: u8, device: u8, bytes: &[u8]) -> Vec<u8> {
    let mut frame = bytes.to_vec();
    if frame.len() < 14 {
        return frame;
    }
    if what & 2 != 0 {
        // To us, or to a group unchanged.
        if frame[0] & 1 == 0 {
            frame[..6].copy_from_slice(&OUR_MAC.0);
        }
        frame[6..12].copy_from_slice(&PEER_MAC.0);
        frame[11] ^= bytes[11] & 3;
    }
    let kinds = [[0x08, 0x00], [0x08, 0x06], [0x86, 0xdd]];
    if what & 4 != 0 {
        if !kinds.iter().any(|k| frame[12..14] == *k) {
            frame[12..14].copy_from_slice(&kinds[usize::from(bytes[12]) % 3]);
        }
        if device == 1 {
            frame.splice(12..12, [0x88, 0xa8, 0, 7, 0x81, 0, 0, 8]);
        }
    }
    let at = if what & 4 != 0 && device == 1 { 22 } else { 14 };
    match frame[at - 2..at] {
        [0x08, 0x06] => mend_arp(what, &mut frame[at..]),
        [0x08, 0x00] => mend4(what, &mut frame[at..]),
        [0x86, 0xdd] => mend6(what, &mut frame[at..]),
        _ => {}
    }
    frame
}

fn mended_packet(what: u8, bytes: &[u8]) -> Vec<u8> {
    let mut packet = bytes.to_vec();
    if what & 2 != 0 && !packet.is_empty() {
        packet[0] = if what & 4 != 0 { 0x45 } else { 0x60 };
    }
    match packet.first() {
        Some(0x45) => mend4(what, &mut packet),
        Some(0x60) => mend6(what, &mut packet),
        _ => {}
    }
    packet
}

fn mend_arp(what: u8, arp: &mut [u8]) {
    if what & 16 == 0 || arp.len() < 28 {
        return;
    }
    arp[..6].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
    (arp[6], arp[7]) = (0, arp[7] % 3);
    arp[8] &= 0xfe;
    for at in [14, 24] {
        arp[at..at + 3].copy_from_slice(&[198, 51, 100]);
        arp[at + 3] %= 16;
    }
}

fn mend4(what: u8, packet: &mut [u8]) {
    if packet.len() < 28 {
        return;
    }
    if what & 16 != 0 {
        packet[12..15].copy_from_slice(&[198, 51, 100]);
        packet[16..19].copy_from_slice(&[198, 51, 100]);
        packet[19] %= 16;
    }
    if what & 8 != 0 {
        packet[0] = 0x45;
        packet[6..8].copy_from_slice(&[0, 0]);
        packet[9] = 1;
        (packet[20], packet[21]) = (8, 0);
        let len = packet.len() as u16;
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        hdr::ipv4::set_checksum(&mut packet[..20]);
        hdr::icmpv4::set_checksum(packet, 20);
    }
}

fn mend6(what: u8, packet: &mut [u8]) {
    if packet.len() < 48 {
        return;
    }
    if what & 16 != 0 {
        let IpAddr::V6(net) = v6(1, 0) else { return };
        for at in [8, 24] {
            if packet[at] != 0xff {
                packet[at..at + 14].copy_from_slice(&net.octets()[..14]);
                (packet[at + 14], packet[at + 15]) = (0, packet[at + 15] % 16);
            }
        }
        if packet.len() >= 64 {
            packet[48..62].copy_from_slice(&net.octets()[..14]);
            (packet[62], packet[63]) = (0, packet[63] % 16);
        }
    }
    if what & 8 != 0 {
        packet[0] = 0x60;
        let len = packet.len() as u16 - 40;
        packet[4..6].copy_from_slice(&len.to_be_bytes());
        (packet[6], packet[7]) = (58, 255);
        (packet[40], packet[41]) = ([135, 136, 128][usize::from(packet[40] % 3)], 0);
        hdr::icmpv6::set_checksum(packet, 40);
    }
}
