//! Time from the start to the first translated packet, with a small and a large configuration.

use crate::harness::{CREATE, Daemon, NAT64, SIIT, in_lab, network};
use gatun_testkit::{Process, topology::SERVER};
use rustix::process::Signal;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Stdio;
use std::time::Duration;

/// Sends a datagram per millisecond and prints the arrival time of the first translated one, by the kernel's
/// clock, which both ends share.
const SENDER: &str = "
import socket, sys, time
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
end = time.monotonic() + 39
while time.monotonic() < end:
    try: s.sendto(str(time.monotonic()).encode(), (sys.argv[1], 5004))
    except OSError: pass
    time.sleep(0.001)
";
const RECEIVER: &str = "
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', 5004)); s.settimeout(39)
print('up', flush=True)
s.recv(100)
print(time.monotonic(), flush=True)
";

/// Prints the figure; `scripts/bench-start` measures release builds. The goal is 50 ms. A busy test
/// machine does not measure it reliably, so the test only requires that the packet arrives.
#[test]
fn the_first_packet_is_translated_after_start() {
    in_lab("start::the_first_packet_is_translated_after_start", || {
        let figures = start_to_first_packet(SIIT);
        println!("start to first translated packet: {figures}");
    });
}

/// A stateful start has the same goal with tables of the default limits, which are allocated before the first
/// packet.
#[test]
fn the_first_packet_is_translated_after_a_stateful_start() {
    in_lab("start::the_first_packet_is_translated_after_a_stateful_start", || {
        let figures = start_to_first_packet(NAT64);
        println!("start to first translated packet, NAT64: {figures}");
    });
}

/// The goal with a million mappings is two seconds.
#[test]
fn a_million_mappings_are_read_and_the_first_packet_translated() {
    in_lab("start::a_million_mappings_are_read_and_the_first_packet_translated", || {
        const MAPPINGS: u32 = 1_000_000;
        let file = "/run/eam.txt";
        let mut lines = String::from("192.0.2.1 2001:db8:1::2\n");
        for n in 1..MAPPINGS {
            // Random order: multiplication by an odd number permutes the low 24 bits.
            let mixed = n.wrapping_mul(0x9e_3779) & 0xff_ffff;
            let v6 = 0x2001_0db8_0002_0000_0000_0000_0000_0000_u128 | u128::from(mixed) << 16;
            let _ = writeln!(lines, "{} {}", Ipv4Addr::from(0x0b00_0000 | mixed), Ipv6Addr::from(v6));
        }
        std::fs::write(file, lines).unwrap();
        let inline = SIIT.lines().filter(|line| !line.starts_with("eam ="));
        let config = inline.chain([&*format!("eam_file = \"{file}\"")]).collect::<Vec<_>>().join("\n");
        let figures = start_to_first_packet(&config);
        println!("start to first translated packet, 1,000,000 mappings: {figures}");
    });
}

/// Time from the daemon's start to the first packet at the server. Also the time that its main thread, which
/// starts the others, ran and waited for a processor: on a busy machine most of the time is waiting.
fn start_to_first_packet(config: &str) -> String {
    let net = network();
    net.translator.ip("tuntap add dev nat64 mode tun").unwrap();
    net.translator.ip("link set nat64 up").unwrap();
    let receiver =
        Process::start(net.server.command("python3").args(["-uc", RECEIVER]).stdout(Stdio::piped())).unwrap();
    let _sender = Process::start(net.client.command("python3").args(["-c", SENDER, SERVER])).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    let start = monotonic();
    // Neighbouring mappings share routes; a million single routes would take the kernel too long.
    let port = "mode = \"attach\"\nqueues = 1\nroutes = [\"2001:db8:64::/96\", \"192.0.2.0/24\"]\n";
    let daemon = Daemon::spawn(&net, &format!("{CREATE}{port}{config}"), &[]);
    let (status, text) = receiver.output(Duration::from_secs(40)).unwrap();
    assert!(status.success(), "no packet came: {}", daemon.stderr());
    let first: f64 = text.lines().nth(1).unwrap().parse().unwrap();
    let id = daemon.process.id();
    let schedstat = std::fs::read_to_string(format!("/proc/{id}/task/{id}/schedstat")).unwrap_or_default();
    let mut ns = schedstat.split_whitespace().map_while(|number| number.parse::<f64>().ok());
    let [ran, waited] = std::array::from_fn(|_| ns.next().unwrap_or(0.0) / 1e6);
    daemon.stop(Signal::TERM);
    assert!(first > start, "a packet came before the daemon");
    let ms = (first - start) * 1e3;
    format!("{ms:.1} ms (processor time {ran:.1} ms, waited for a processor {waited:.1} ms)")
}

/// CLOCK_MONOTONIC in seconds, like Python's `time.monotonic`.
fn monotonic() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}
