//! Cost per packet of the host functions, without a device: frames in RAM, bursts of 64.
//!
//! ```text
//! cargo run --release -p gatun-ether --example frames                    # nanoseconds, all cases
//! cargo run --release -p gatun-ether --example frames -- receive4 1000   # one case, number of bursts
//! ```
//! `scripts/instructions` counts the same.
#![forbid(unsafe_code)]

use gatun_ether::{Ether, Limits, Mac, PortSettings, Prefix, Received, Route, Sent, Settings};
use gatun_wire::{HEADROOM, Packet};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::time::Instant;

const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 9]);
/// Neighbours on the link.
const NEIGHBOURS: u16 = 1000;
const BURST: usize = 64;
const BURSTS: usize = 100_000;
const PACKET_LEN: usize = 114;
/// Buffer layout of devices.
const STRIDE: usize = 2304;

/// Measured cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Receive4,
    Receive6,
    /// Through a default route.
    Route4,
    Route6,
    /// Packets to IPv6 neighbours, each to another one.
    Link6,
}

const WAYS: [(&str, Way); 5] = [
    ("receive4", Way::Receive4),
    ("receive6", Way::Receive6),
    ("route4", Way::Route4),
    ("route6", Way::Route6),
    ("link6", Way::Link6),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (wanted, bursts) = match &args[..] {
        [] => (None, Some(BURSTS)),
        [way] => (Some(way), Some(BURSTS)),
        [way, bursts, ..] => (Some(way), bursts.parse().ok()),
    };
    let ways: Vec<_> = WAYS.iter().filter(|(name, _)| wanted.is_none_or(|w| w == name)).collect();
    let (false, Some(bursts)) = (ways.is_empty(), bursts) else {
        eprintln!("frames [receive4|receive6|route4|route6|link6] [BURSTS]");
        return ExitCode::from(2);
    };
    for (name, way) in ways {
        let (mut ether, mut memory) = (acquainted(), frames(*way));
        let begun = Instant::now();
        let done = timed(&mut ether, &mut memory, *way, bursts);
        let ns = begun.elapsed().as_secs_f64() * 1e9 / (bursts * BURST) as f64;
        assert_eq!(done, bursts * BURST, "every packet takes the fast path");
        println!("{name:<10} {ns:6.1} ns/packet");
    }
    ExitCode::SUCCESS
}

/// Code that is timed and counted.
#[inline(never)]
fn timed(ether: &mut Ether, memory: &mut [u8], way: Way, bursts: usize) -> usize {
    let mut done = 0;
    let receives = matches!(way, Way::Receive4 | Way::Receive6);
    for _ in 0..bursts {
        for buffer in memory.chunks_exact_mut(STRIDE) {
            let start = if receives { HEADROOM - 14 } else { HEADROOM };
            let Some(mut packet) = Packet::new(buffer, start, HEADROOM + PACKET_LEN - start) else {
                continue;
            };
            done += usize::from(match receives {
                true => ether.receive(1, 0, black_box(&mut packet)) == Received::Packet,
                false => matches!(ether.transmit(1, black_box(&mut packet)), Sent::Frame { .. }),
            });
        }
    }
    done
}

fn prefix(addr: &str, len: u8) -> Prefix {
    Prefix { addr: addr.parse().expect("an address"), len }
}

fn neighbour(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 1, n)
}

/// Host with a default route per family, whose next hops and neighbours are known.
fn acquainted() -> Ether {
    let via = |to, addr: &str| Route { to, via: addr.parse().ok() };
    let port = PortSettings {
        name: "port".into(),
        device: 0,
        mac: OURS,
        tags: vec![],
        mtu: 1500,
        addresses: vec![prefix("198.51.100.1", 24), prefix("2001:db8:1::1", 64)],
        answers: vec![prefix("203.0.113.0", 28), prefix("2001:db8:64::", 96)],
        routes: vec![
            via(prefix("0.0.0.0", 0), "198.51.100.254"),
            via(prefix("10.0.0.0", 8), "198.51.100.253"),
            via(prefix("::", 0), "2001:db8:1::fe"),
            via(prefix("2001:db8:8000::", 33), "2001:db8:1::fd"),
        ],
        neighbours: vec![],
        realms: [0; 2],
    };
    let settings =
        Settings { engine: port.answers.clone(), ports: vec![port], announces: false, shares: false };
    let mut ether = Ether::new(&settings, &Limits::default(), [1, 2, 3, 4]).expect("the settings are right");
    let hops =
        [Ipv4Addr::new(198, 51, 100, 254).into(), Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0xfe).into()];
    for hop in hops.into_iter().chain((0..NEIGHBOURS).map(|n| IpAddr::V6(neighbour(n)))) {
        introduce(&mut ether, hop);
    }
    ether
}

/// Makes a neighbour known by letting it solicit our address.
fn introduce(ether: &mut Ether, who: IpAddr) {
    let mut frame = [&[0xff; 6][..], &PEER.0].concat();
    match who {
        IpAddr::V4(addr) => {
            frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
            frame.extend(PEER.0.iter().chain(&addr.octets()).chain(&[0; 6]).chain(&[198, 51, 100, 1]));
        }
        IpAddr::V6(addr) => {
            frame[..6].copy_from_slice(&OURS.0);
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255]);
            let ours = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1).octets();
            frame.extend(addr.octets().iter().chain(&ours));
            frame.extend([135, 0, 0, 0, 0, 0, 0, 0].iter().chain(&ours).chain(&[1, 1]).chain(&PEER.0));
            gatun_wire::hdr::icmpv6::set_checksum(&mut frame[14..], 40);
        }
    }
    let len = frame.len();
    let answered = ether.receive(0, 0, &mut Packet::new(&mut frame, 0, len).expect("it fits"));
    assert!(matches!(answered, Received::Reply(_)), "{answered:?}");
}

/// A burst of frames, or of packets to send.
fn frames(way: Way) -> Vec<u8> {
    let mut memory = vec![0; STRIDE * BURST];
    for (buffer, n) in memory.chunks_exact_mut(STRIDE).zip(0u16..) {
        let (header, packet) = buffer.split_at_mut(HEADROOM);
        let four = matches!(way, Way::Receive4 | Way::Route4);
        let header = &mut header[HEADROOM - 14..];
        header[..6].copy_from_slice(&OURS.0);
        header[6..12].copy_from_slice(&PEER.0);
        header[12..].copy_from_slice(if four { &[8, 0] } else { &[0x86, 0xdd] });
        packet[0] = if four { 0x45 } else { 0x60 };
        (packet[6], packet[9]) = (6, 6);
        let far = n.wrapping_mul(0x9e37);
        let dst: IpAddr = match way {
            Way::Receive4 => Ipv4Addr::new(203, 0, 113, (n & 15) as u8).into(),
            Way::Receive6 => Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0x808, n).into(),
            Way::Route4 => Ipv4Addr::new(20 + (far >> 9) as u8, far as u8, 1, 1).into(),
            Way::Route6 => Ipv6Addr::new(0x2001, 0xdb8, 0x7000 | far >> 4, 0, 0, 0, 0, n).into(),
            Way::Link6 => neighbour(far % NEIGHBOURS).into(),
        };
        match dst {
            IpAddr::V4(dst) => packet[16..20].copy_from_slice(&dst.octets()),
            IpAddr::V6(dst) => packet[24..40].copy_from_slice(&dst.octets()),
        }
    }
    memory
}
