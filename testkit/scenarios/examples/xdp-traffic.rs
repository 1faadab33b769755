//! Traffic generator over AF_XDP, and the baseline for measurements of a translator (`scripts/bench-xdp`).
//!
//!   xdp-traffic send IFACE SECONDS DST_MAC           sends UDP over IPv6 to 2001:db8:64::203.0.113.9 at full
//!   speed
//!   xdp-traffic forward IFACE IFACE SECONDS [skb]    forwards between both: the backend without an engine
//!   xdp-traffic sink IFACE SECONDS                   counts and drops packets to 203.0.113.0/24 and all IPv6
//!   packets

use gatun_io_ether::{FrameSink as _, Frames as _};
use gatun_io_xdp::{Mode, Owner, PortConfig, Ports, PrefixRule, Xdp, XdpConfig};
use gatun_testkit::packet::text;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

type Any = Box<dyn std::error::Error>;

fn main() -> Result<(), Any> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["send", interface, seconds, mac] => send(interface, seconds.parse()?, mac),
        ["forward", a, b, seconds] => forward(a, b, seconds.parse()?, Mode::Auto),
        ["forward", a, b, seconds, "skb"] => forward(a, b, seconds.parse()?, Mode::Skb),
        ["sink", interface, seconds] => sink(interface, seconds.parse()?),
        _ => Err("usage: see the beginning of xdp-traffic.rs".into()),
    }
}

/// Opens the interfaces for one worker, with a program that takes the packets of `entries`.
fn open(interfaces: &[&str], mode: Mode, entries: &[PrefixRule]) -> Result<Xdp, Any> {
    let ports = interfaces.iter().map(|name| PortConfig { interface: (*name).to_owned(), mode });
    let entries = entries.iter().map(|entry| (*entry, Owner::Gatun)).collect();
    Ok(Xdp::open(&XdpConfig { ports: ports.collect(), queues: 1, entries })?)
}

fn ports(xdp: &mut Xdp) -> Result<Ports, Any> {
    Ok(xdp.workers.pop().ok_or("no worker")?)
}

/// All IPv6 packets.
const ALL6: PrefixRule = PrefixRule::To6(Ipv6Addr::UNSPECIFIED, 0);
/// Number of flows that the sender uses in turn.
const FLOWS: u16 = 256;
/// Frame size in bytes.
const FRAME_LEN: usize = 128;
const PAYLOAD_LEN: usize = FRAME_LEN - 14 - 40 - 8;

/// UDP over IPv6 from one of a few ports, with a right checksum.
fn packet(flow: u16, dst_mac: [u8; 6], src_mac: [u8; 6]) -> Vec<u8> {
    let payload: Vec<u8> = (0..PAYLOAD_LEN).map(|i| i as u8).collect();
    let packet = text::udp6("2001:db8:1::2", 10_000 + flow, "2001:db8:64::203.0.113.9", 9, &payload);
    [&dst_mac[..], &src_mac, &[0x86, 0xdd], &packet].concat()
}

fn send(interface: &str, seconds: f64, mac: &str) -> Result<(), Any> {
    let mut xdp = open(&[interface], Mode::Auto, &[])?;
    let mut dst = [0; 6];
    for (to, text) in dst.iter_mut().zip(mac.split(':')) {
        *to = u8::from_str_radix(text, 16)?;
    }
    let src = xdp.opened[0].interface.mac;
    let flows: Vec<Vec<u8>> = (0..FLOWS).map(|flow| packet(flow, dst, src)).collect();
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
    let mut xdp = open(&[a, b], mode, &[ALL6, PrefixRule::To4(Ipv4Addr::UNSPECIFIED, 0)])?;
    for opened in &xdp.opened {
        let how = |yes, words: [&'static str; 2]| if yes { words[0] } else { words[1] };
        let (native, copy) =
            (how(opened.native, ["native", "skb"]), how(opened.zero_copy, ["zero copy", "copy"]));
        eprintln!("{}: {native}, {copy}", opened.interface.name);
    }
    let mut ports = ports(&mut xdp)?;
    let begin = Instant::now();
    gatun_io_ether::forward(&mut ports, |_| begin.elapsed().as_secs_f64() < seconds)?;
    let stats = ports.stats();
    println!(
        "forwarded {} of {}; {:?} {:?}",
        stats.tx_packets, stats.rx_packets, stats.rx_errors, stats.tx_errors
    );
    Ok(())
}

/// Counts received packets. Nobody reads the ring: the kernel counts and drops packets that do not fit, which
/// costs least.
fn sink(interface: &str, seconds: f64) -> Result<(), Any> {
    let mut xdp =
        open(&[interface], Mode::Auto, &[ALL6, PrefixRule::To4(Ipv4Addr::new(203, 0, 113, 0), 24)])?;
    let mut ports = ports(&mut xdp)?;
    std::thread::sleep(Duration::from_secs_f64(seconds));
    while ports.receive(|_, _, _| false, |_, _| ()) > 0 {}
    let stats = ports.stats();
    println!("received {}", stats.rx_packets + stats.rx_errors.iter().sum::<u64>());
    Ok(())
}
