//! Streams and datagrams through the program between hosts in namespaces. This machine runs the test over a
//! veth pair, the virtual machines of [`kernel_tests`](crate::kernel_tests) over a VLAN on a bond.

#[path = "../tests/live/middle.rs"]
#[expect(dead_code, reason = "the live tests use the rest")]
mod middle;

use crate::{Hook, Reason};
use gatun_testkit::{Namespace, refusal_but_to_root, run_test};
use middle::{ClientLink, Middle, Net};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::thread::JoinHandle;
use std::time::Duration;

/// Names the client's link, in the virtual machines.
pub(crate) const LINK: &str = "GATUN_CLIENT_LINK";
pub(crate) const VLAN_ON_BOND: &str = "vlan-on-bond";

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

/// Reads a stream of one content, and sends another one back; then echoes datagrams until the client says
/// that it has enough.
fn serve(listener: &TcpListener, datagrams: &UdpSocket) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(WAIT).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert!(received == content(1), "{} bytes from the client", received.len());
    stream.write_all(&content(2)).unwrap();
    drop(stream);
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
    let mut stream = TcpStream::connect((server, 7000)).unwrap();
    stream.set_read_timeout(WAIT).unwrap();
    stream.write_all(&content(1)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert!(received == content(2), "{} bytes from the server", received.len());
    let any = if server.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect((server, 7000)).unwrap();
    socket.set_read_timeout(WAIT).unwrap();
    let mut buffer = [0; 100];
    let numbers = (0..DATAGRAMS).map(|number| number.to_be_bytes().to_vec());
    for sent in numbers.chain([b"enough".to_vec()]) {
        socket.send(&sent).unwrap();
        let len = socket.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..len], sent);
    }
}

/// True: this kernel has tcx.
fn has_tcx() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|word| word.parse::<u32>().ok());
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (6, 6)
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
            assert_eq!(middle.hook(), if has_tcx() { Hook::Tcx } else { Hook::Clsact });
            for (instance, server) in [(0, "2001:db8:64::c633:6402"), (1, "198.51.100.2")] {
                let serving = at(&net.server, || {
                    let listener = TcpListener::bind("0.0.0.0:7000").unwrap();
                    let datagrams = UdpSocket::bind("0.0.0.0:7000").unwrap();
                    datagrams.set_read_timeout(WAIT).unwrap();
                    serve(&listener, &datagrams);
                });
                let listens = || net.server.run("cat /proc/net/udp").is_ok_and(|all| all.contains(":1B58 "));
                gatun_testkit::wait_until("the server", Duration::from_secs(30), listens).unwrap();
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
