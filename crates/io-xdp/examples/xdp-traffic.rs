//! Traffic over AF_XDP, and the floor to measure a translator against (`scripts/bench-xdp`).
//!
//!   xdp-traffic send IFACE SECONDS nat64|plain DST_MAC    sends as fast as it can, and says how many packets
//!   xdp-traffic forward IFACE IFACE SECONDS [skb]         copies across: the backend without an engine
//!   xdp-traffic count IFACE SECONDS                       receives, and says how many packets

use gatun_io::Waker;
use gatun_io_xdp::{Entry, Mode, PortConfig, Ports, Whose, Xdp, XdpConfig};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

type Any = Box<dyn std::error::Error>;

fn main() -> Result<(), Any> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["send", interface, seconds, what, mac] => send(interface, seconds.parse()?, what == "nat64", mac),
        ["forward", a, b, seconds] => forward(a, b, seconds.parse()?, Mode::Auto),
        ["forward", a, b, seconds, "skb"] => forward(a, b, seconds.parse()?, Mode::Skb),
        ["count", interface, seconds] => count(interface, seconds.parse()?),
        _ => Err("see the beginning of xdp-traffic.rs".into()),
    }
}

/// The only worker's ports, taking everything that is IP where `all` is set.
fn open(interfaces: &[&str], mode: Mode, all: bool) -> Result<Xdp, Any> {
    let ports = interfaces.iter().map(|name| PortConfig { interface: (*name).to_owned(), mode });
    let everything = [Entry::To6(Ipv6Addr::UNSPECIFIED, 0), Entry::To4(Ipv4Addr::UNSPECIFIED, 0)]
        .map(|e| (e, Whose::Ours));
    let entries = if all { everything.to_vec() } else { Vec::new() };
    Ok(Xdp::open(&XdpConfig { ports: ports.collect(), queues: 1, entries })?)
}

fn ports(xdp: &mut Xdp) -> Result<Ports, Any> {
    Ok(xdp.workers.pop().ok_or("no worker")?)
}

/// Flows that the sender sends of in turn.
const FLOWS: u16 = 256;
/// Bytes of a frame.
const FRAME_LEN: usize = 128;
const PAYLOAD_LEN: usize = FRAME_LEN - 14 - 40 - 8;

/// UDP over IPv6 to 64:ff9b::198.51.100.2 from a few ports, with a right checksum.
fn packet(flow: u16, nat64: bool, dst_mac: [u8; 6], src_mac: [u8; 6]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(FRAME_LEN);
    frame.extend(dst_mac);
    frame.extend(src_mac);
    frame.extend([0x86, 0xdd]);
    let udp_len = (8 + PAYLOAD_LEN) as u16;
    frame.extend([0x60, 0, 0, 0, (udp_len >> 8) as u8, udp_len as u8, 17, 64]);
    let to = if nat64 { "64:ff9b::198.51.100.2" } else { "2001:db8:2::2" };
    frame.extend("2001:db8:1::2".parse::<Ipv6Addr>().expect("an address").octets());
    frame.extend(to.parse::<Ipv6Addr>().expect("an address").octets());
    frame.extend((10_000 + flow).to_be_bytes());
    frame.extend(9u16.to_be_bytes());
    frame.extend(udp_len.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend((0..PAYLOAD_LEN).map(|i| i as u8));
    // The pseudo-header: addresses, length, next header (RFC 8200 8.1).
    let sum: u32 =
        frame[22..].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0))).sum();
    let sum = sum + u32::from(udp_len) + 17;
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    frame[60..62].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn send(interface: &str, seconds: f64, nat64: bool, mac: &str) -> Result<(), Any> {
    let mut xdp = open(&[interface], Mode::Auto, false)?;
    let mut dst = [0; 6];
    for (to, text) in dst.iter_mut().zip(mac.split(':')) {
        *to = u8::from_str_radix(text, 16)?;
    }
    let src = xdp.opened[0].interface.mac;
    let flows: Vec<Vec<u8>> = (0..FLOWS).map(|flow| packet(flow, nat64, dst, src)).collect();
    let mut ports = ports(&mut xdp)?;
    let begin = Instant::now();
    let mut flow = flows.iter().cycle();
    while begin.elapsed().as_secs_f64() < seconds {
        for _ in 0..64 {
            ports.outbox().send(0, flow.next().ok_or("no flow")?);
        }
        ports.receive(|_, _, _| false, |_, _| ());
    }
    let stats = ports.stats();
    println!(
        "sent {} Mpps {:.3}",
        stats.tx_packets,
        stats.tx_packets as f64 / begin.elapsed().as_micros() as f64
    );
    Ok(())
}

fn forward(a: &str, b: &str, seconds: f64, mode: Mode) -> Result<(), Any> {
    let mut xdp = open(&[a, b], mode, true)?;
    for opened in &xdp.opened {
        let how = |yes, words: [&'static str; 2]| if yes { words[0] } else { words[1] };
        let (native, copy) =
            (how(opened.native, ["native", "skb"]), how(opened.zero_copy, ["zero copy", "copy"]));
        eprintln!("{}: {native}, {copy}", opened.interface.name);
    }
    let mut ports = ports(&mut xdp)?;
    let waker = Waker::new()?;
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < seconds {
        let received = ports.receive(
            |port, frame, out| {
                let bytes = frame.bytes_mut();
                if let Some((to, from)) = bytes.get_mut(..12).map(|macs| macs.split_at_mut(6)) {
                    to.swap_with_slice(from);
                }
                out.answer(1 - port, frame);
                false
            },
            |_, _| (),
        );
        if received == 0 {
            ports.wait(&waker, Some(Duration::from_millis(10)))?;
        }
    }
    let stats = ports.stats();
    println!(
        "forwarded {} of {}; {:?} {:?}",
        stats.tx_packets, stats.rx_packets, stats.rx_errors, stats.tx_errors
    );
    Ok(())
}

fn count(interface: &str, seconds: f64) -> Result<(), Any> {
    let mut xdp = open(&[interface], Mode::Auto, true)?;
    let mut ports = ports(&mut xdp)?;
    let waker = Waker::new()?;
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < seconds {
        if ports.receive(|_, _, _| false, |_, _| ()) == 0 {
            ports.wait(&waker, Some(Duration::from_millis(10)))?;
        }
    }
    let stats = ports.stats();
    println!(
        "received {} Mpps {:.3}",
        stats.rx_packets,
        stats.rx_packets as f64 / begin.elapsed().as_micros() as f64
    );
    Ok(())
}
