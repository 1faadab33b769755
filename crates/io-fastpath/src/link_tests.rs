//! Streams and datagrams through the program between hosts in namespaces. This machine runs the test over a
//! veth pair, the virtual machines of [`kernel_tests`](crate::kernel_tests) over a VLAN on a bond.

#[path = "../tests/live/middle.rs"]
#[expect(dead_code, reason = "the live tests use the rest")]
mod middle;

use crate::{Hook, KernelTime, Reason};
use gatun_testkit::{Namespace, missing, refusal_but_to_root, run, run_test};
use middle::{ClientLink, Middle, Net};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

/// Names the client's link, in the virtual machines.
pub(crate) const LINK: &str = "GATUN_CLIENT_LINK";
pub(crate) const VLAN_ON_BOND: &str = "vlan-on-bond";

const SERVERS: [(u8, &str); 2] = [(0, "2001:db8:64::c633:6402"), (1, "198.51.100.2")];
const STREAM_BYTES: usize = 1_000_000;
const DATAGRAMS: u32 = 300;
const WAIT: Option<Duration> = Some(Duration::from_secs(60));

/// Runs `work` in a thread of a host.
fn at<T: Send + 'static>(host: &Namespace, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let namespace = File::open(format!("/run/netns/{}", host.name())).unwrap();
    std::thread::spawn(move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        work()
    })
}

fn content(seed: u8) -> Vec<u8> {
    (0..STREAM_BYTES).map(|i| (i / 251) as u8 ^ i as u8 ^ seed).collect()
}

/// Reads a stream of one content, and sends another one back.
fn serve_stream(listener: &TcpListener) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(WAIT).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert!(received == content(1), "{} bytes from the client", received.len());
    stream.write_all(&content(2)).unwrap();
}

/// The other end of [`serve_stream`].
fn talk_in_stream(server: &str) {
    let mut stream = TcpStream::connect((server, 7000)).unwrap();
    stream.set_read_timeout(WAIT).unwrap();
    stream.write_all(&content(1)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert!(received == content(2), "{} bytes from the server", received.len());
}

/// A client's socket for datagrams.
fn connected(server: &str) -> UdpSocket {
    let any = if server.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect((server, 7000)).unwrap();
    socket.set_read_timeout(WAIT).unwrap();
    socket
}

/// Serves a stream, and then echoes datagrams until the client says that it has enough.
fn serve(listener: &TcpListener, datagrams: &UdpSocket) {
    serve_stream(listener);
    let mut buffer = [0; 100];
    loop {
        let (len, from) = datagrams.recv_from(&mut buffer).unwrap();
        datagrams.send_to(&buffer[..len], from).unwrap();
        if buffer[..len] == *b"enough" {
            return;
        }
    }
}

/// The other end of [`serve`].
fn talk(server: &str) {
    talk_in_stream(server);
    let socket = connected(server);
    let mut buffer = [0; 100];
    let numbers = (0..DATAGRAMS).map(|number| number.to_be_bytes().to_vec());
    for sent in numbers.chain([b"enough".to_vec()]) {
        socket.send(&sent).unwrap();
        let len = socket.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..len], sent);
    }
}

/// Runs `work` with the sockets of a server, in a thread that listens when this returns.
fn at_server(net: &Net, work: fn(&TcpListener, &UdpSocket)) -> JoinHandle<()> {
    let serving = at(&net.server, move || {
        let listener = TcpListener::bind("0.0.0.0:7000").unwrap();
        let datagrams = UdpSocket::bind("0.0.0.0:7000").unwrap();
        datagrams.set_read_timeout(WAIT).unwrap();
        work(&listener, &datagrams);
    });
    let listens = || net.server.run("cat /proc/net/udp").is_ok_and(|all| all.contains(":1B58 "));
    gatun_testkit::wait_until("the server", Duration::from_secs(30), listens).unwrap();
    serving
}

/// Datagrams that a host sends at once, their bytes, and how often.
const BURST: usize = 32;
const DATAGRAM_BYTES: usize = 200;
const BURSTS: usize = 30;

/// Segments that may be sent again on a busy machine: far fewer than those of all lists but their first ones.
const FEW: u64 = 100;

/// Lets the kernel cut what is sent into datagrams.
fn set_segments(socket: &UdpSocket) {
    const SOL_UDP: libc::c_int = 17;
    const UDP_SEGMENT: libc::c_int = 103;
    let size = DATAGRAM_BYTES as libc::c_int;
    let (at, len) = (std::ptr::from_ref(&size).cast(), size_of_val(&size) as libc::socklen_t);
    // SAFETY: `at` are the `len` bytes of a number that outlives the call.
    assert_eq!(unsafe { libc::setsockopt(socket.as_raw_fd(), SOL_UDP, UDP_SEGMENT, at, len) }, 0);
}

fn burst(number: usize) -> Vec<u8> {
    (0..BURST * DATAGRAM_BYTES).map(|at| (number ^ at ^ (at / DATAGRAM_BYTES)) as u8).collect()
}

/// Receives all datagrams of a burst, in any order: the program translates what arrives alone at once, while
/// lists wait for the engine. Returns their sender.
fn receive(socket: &UdpSocket, number: usize) -> std::net::SocketAddr {
    let mut from = None;
    let mut received = Vec::new();
    while received.len() < BURST {
        let mut buffer = [0; 2 * DATAGRAM_BYTES];
        let got = socket.recv_from(&mut buffer);
        let (len, sender) = got.unwrap_or_else(|e| panic!("burst {number}, {}: {e}", received.len()));
        received.push(buffer[..len].to_vec());
        from = Some(sender);
    }
    received.sort();
    let burst = burst(number);
    let mut sent: Vec<&[u8]> = burst.chunks(DATAGRAM_BYTES).collect();
    sent.sort();
    assert!(received == sent, "burst {number}: another datagram");
    from.unwrap()
}

/// Takes streams and bursts, and returns both.
fn serve_bursts(listener: &TcpListener, datagrams: &UdpSocket) {
    set_segments(datagrams);
    for number in 0..BURSTS {
        let from = receive(datagrams, number);
        datagrams.send_to(&burst(number), from).unwrap();
    }
    serve_stream(listener);
}

/// The other end of [`serve_bursts`].
fn talk_in_bursts(server: &str) {
    let socket = connected(server);
    set_segments(&socket);
    for number in 0..BURSTS {
        socket.send(&burst(number)).unwrap();
        receive(&socket, number);
    }
    talk_in_stream(server);
}

/// Counters of TCP of a host: sent again, and arrived with a wrong checksum.
fn tcp_faults(host: &Namespace) -> [u64; 2] {
    let text = host.run("cat /proc/net/snmp").unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let value = |wanted| names.split(' ').zip(values.split(' ')).find(|(name, _)| *name == wanted);
    ["RetransSegs", "InCsumErrors"].map(|name| value(name).unwrap().1.parse().unwrap())
}

#[test]
fn streams_and_datagrams_pass_that_devices_have_joined_as_lists() {
    run_test(
        "link_tests::streams_and_datagrams_pass_that_devices_have_joined_as_lists",
        || missing(&[("ethtool", "ethtool")]).or_else(|| refusal_but_to_root("an eBPF program")),
        || {
            let net = Net::new(ClientLink::Plain);
            for host in [&net.client, &net.server] {
                host.run("ethtool -K eth0 tso off gso off tx-udp-segmentation off").unwrap();
            }
            for device in ["in0", "out0"] {
                // As most cards, these do not send lists: the kernel cuts them.
                let features = "gro on rx-gro-list on tx-gso-list off";
                run(Command::new("ethtool").args(["-K", device]).args(features.split(' '))).unwrap();
            }
            let middle = Middle::start(None, None);
            let exchange = |server: &'static str| {
                let serving = at_server(&net, serve_bursts);
                at(&net.client, move || talk_in_bursts(server)).join().unwrap();
                serving.join().unwrap();
            };
            for (instance, server) in SERVERS {
                let of = |row, reason| middle.packets_of(row, reason);
                let before = (of(Some(instance), Reason::Hit), of(None, Reason::SuperDatagram));
                exchange(server);
                let hits = of(Some(instance), Reason::Hit) - before.0;
                let joined = of(None, Reason::SuperDatagram) - before.1;
                let faults = [&net.client, &net.server].map(tcp_faults);
                println!(
                    "{server}: {hits} hits, {joined} joined datagrams, {faults:?}; {:?}",
                    middle.counters()
                );
                // Each burst is a list, or a few of them. The stream is translated in the kernel.
                assert!((1..(2 * BURSTS * BURST) as u64 / 4).contains(&joined), "{joined} joined datagrams");
                assert!(hits > 20, "{server}: {hits} hits; {:?}", middle.counters());
                let is_right = |[again, wrong]: [u64; 2]| again < FEW && wrong == 0;
                assert!(faults.into_iter().all(is_right), "{server}: {faults:?}");
            }
            // The TUN device takes no lists, so the engine gets the segments of TCP one by one, as far as the
            // kernel makes lists of them (Linux 6.10).
            middle.control().set_lease(KernelTime(0));
            let before = middle.rx();
            exchange(SERVERS[0].1);
            let received = (middle.rx() - before) as usize;
            println!("without the program: {received} packets");
            let pieces = 2 * (STREAM_BYTES / 1428 + BURSTS * BURST);
            assert_eq!(received > pieces, gatun_testkit::linux() >= (6, 10), "{received} packets");
        },
    );
}

#[test]
fn streams_and_datagrams_pass_over_the_links_that_hosts_have() {
    run_test(
        "link_tests::streams_and_datagrams_pass_over_the_links_that_hosts_have",
        || refusal_but_to_root("an eBPF program"),
        || {
            let link = match std::env::var(LINK).as_deref() {
                Ok(VLAN_ON_BOND) => ClientLink::VlanOnBond,
                _ => ClientLink::Plain,
            };
            let net = Net::new(link);
            let middle = Middle::start(None, None);
            assert_eq!(
                middle.hook(),
                if gatun_testkit::linux() >= (6, 6) { Hook::Tcx } else { Hook::Clsact }
            );
            for (instance, server) in SERVERS {
                let serving = at_server(&net, serve);
                at(&net.client, move || talk(server)).join().unwrap();
                serving.join().unwrap();
                let hits = middle.packets_of(Some(instance), Reason::Hit);
                assert!(hits > u64::from(DATAGRAMS), "{server}: {hits} hits; {:?}", middle.counters());
            }
            println!("{link:?}, {:?}: {:?}", middle.hook(), middle.counters());
            let (fast, _device) = middle.stop();
            fast.attachment.detach().unwrap();
        },
    );
}
