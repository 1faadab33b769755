//! The program between real stacks: client and server in namespaces, a TUN device with an engine between
//! them.
//!
//! ```text
//!   client ---- in0 [ routes, gatun0, engine: this process ] out0 ---- server        all in one sandbox
//! ```

mod interfaces;
mod middle;
mod stacks;

use gatun_io_fastpath::{Adoption, Attachment, FastPath, FastPathError, Hook, KernelTime, Reason};
use gatun_testkit::{Namespace, Process, find_program, missing, refusal_but_to_root, run, run_test};
use middle::{ClientLink, Middle, Net, config};
use std::process::Command;
use std::time::Duration;

const NAT64_SERVER: &str = "2001:db8:64::c633:6402";
const SERVER: &str = "198.51.100.2";

fn in_lab(test: &str, body: fn()) {
    let refusal = || {
        let programs =
            [("python3", "python3"), ("ethtool", "ethtool"), ("tc", "iproute2"), ("ping", "iputils-ping")];
        missing(&programs).or_else(|| refusal_but_to_root("an eBPF program"))
    };
    run_test(test, refusal, body);
}

/// Echoes each stream's first bytes by their hash, and sends as many back; echoes every datagram.
const SERVE: &str = r#"
import hashlib, socket, threading
def stream(c):
    with c:
        n = int(c.recv(16, socket.MSG_WAITALL)); h = hashlib.sha256(); left = n
        while left:
            b = c.recv(min(left, 1 << 16))
            if not b: return
            h.update(b); left -= len(b)
        c.sendall(h.hexdigest().encode() + bytes(i * 7 & 255 for i in range(n)))
        c.recv(1)
def streams():
    s = socket.create_server(('', 7000))
    while True: threading.Thread(target=stream, args=(s.accept()[0],), daemon=True).start()
threading.Thread(target=streams, daemon=True).start()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('', 7000))
print('ready', flush=True)
while True:
    b, a = u.recvfrom(2048); u.sendto(b, a)
"#;

/// Sends a stream, and checks its hash and what comes back.
const STREAM: &str = r#"
import hashlib, os, socket, sys
n = int(sys.argv[2]); data = os.urandom(n)
c = socket.create_connection((sys.argv[1], 7000), 10); c.settimeout(20)
c.sendall(b'%16d' % n + data)
def read(n):
    b = bytearray()
    while len(b) < n:
        p = c.recv(n - len(b))
        assert p, 'the stream ended after %d bytes' % len(b)
        b += p
    return bytes(b)
assert read(64).decode() == hashlib.sha256(data).hexdigest(), 'other bytes arrived'
assert read(n) == bytes(i * 7 & 255 for i in range(n)), 'other bytes came back'
"#;

/// Sends numbered datagrams at a rate, by one flow after the other, and prints how many came back, and how
/// many of them behind a later one.
const NUMBERED: &str = r#"
import socket, struct, sys, threading, time
n, rate, flows = [int(word) for word in sys.argv[2:]]
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
back = behind = 0
for flow in range(flows):
    s = socket.socket(family, socket.SOCK_DGRAM); s.connect((sys.argv[1], 7000)); s.settimeout(1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    got = []
    def read():
        try:
            while len(got) < n: got.append(struct.unpack('!I', s.recv(2048)[:4])[0])
        except TimeoutError: pass
    t = threading.Thread(target=read); t.start()
    begin = time.monotonic()
    for i in range(n):
        s.send(struct.pack('!I', i) + bytes(100))
        time.sleep(max(0, begin + (i + 1) / rate - time.monotonic()))
    t.join()
    back += len(set(got)); behind += sum(a > b for a, b in zip(got, got[1:]))
print(back, behind)
"#;

fn python(host: &Namespace, script: &str, arguments: &[&str]) -> Command {
    let mut command = host.command(find_program("python3").unwrap());
    command.args(["-c", script]).args(arguments);
    command
}

fn serve(net: &Net) -> Process {
    let server = Process::start(&mut python(&net.server, SERVE, &[])).unwrap();
    let listens = || net.server.run("ss -Hlnu").is_ok_and(|sockets| sockets.contains(":7000 "));
    gatun_testkit::wait_until("the server", Duration::from_secs(60), listens).unwrap();
    server
}

fn stream(net: &Net, to: &str, bytes: usize) {
    run(&mut python(&net.client, STREAM, &[to, &bytes.to_string()])).unwrap();
}

/// Datagrams that came back, and those that came behind a later one.
fn numbered(net: &Net, to: &str, count: u32, rate: u32) -> (u32, u32) {
    numbered_flows(net, to, [count, rate, 1])
}

/// The same of several flows: number of datagrams and rate of each, number of flows.
fn numbered_flows(net: &Net, to: &str, numbers: [u32; 3]) -> (u32, u32) {
    let [count, rate, flows] = numbers.map(|number| number.to_string());
    let said = run(&mut python(&net.client, NUMBERED, &[to, &count, &rate, &flows])).unwrap();
    let mut numbers = said.split_whitespace().map(|word| word.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

fn ping(net: &Net, to: &str) {
    net.client.run(&format!("ping -c 2 -i 0.2 -W 2 {to}")).unwrap();
}

/// Streams and datagrams both ways through both kinds of instances.
fn traffic(net: &Net, middle: &Middle) {
    for (instance, to) in [(0, NAT64_SERVER), (1, SERVER)] {
        let before = middle.packets_of(Some(instance), Reason::Hit);
        let slow = middle.rx();
        stream(net, to, 4_000_000);
        let hits = middle.packets_of(Some(instance), Reason::Hit) - before;
        let slow = middle.rx() - slow;
        assert!(
            hits > 100 && hits > 4 * slow,
            "{to}: {hits} hits, {slow} through the engine; {:?}",
            middle.counters()
        );
        let before = middle.packets_of(Some(instance), Reason::Hit);
        let (back, behind) = numbered(net, to, 500, 1000);
        assert_eq!((back, behind), (500, 0), "{to}");
        let hits = middle.packets_of(Some(instance), Reason::Hit) - before;
        assert!(hits > 800, "{to}: {hits} of 1000 packets; {:?}", middle.counters());
        let before = middle.packets_of(Some(instance), Reason::Hit);
        ping(net, to);
        assert_eq!(middle.packets_of(Some(instance), Reason::Hit), before, "echo is the engine's");
    }
    assert_eq!(middle.packets_of(None, Reason::Dropped) + middle.packets_of(Some(0), Reason::Refused), 0);
}

fn both_hooks(hook: Hook) {
    let net = Net::new(ClientLink::Plain);
    let _server = serve(&net);
    let middle = Middle::start(Some(hook), None);
    assert_eq!(middle.hook(), hook);
    // Super-packets and checksums that a device would finish go through as they are.
    traffic(&net, &middle);
    // The kernel finishes both behind the program, and the receivers check it.
    for device in ["in0", "out0"] {
        run(Command::new("ethtool").args(["-K", device, "tx", "off", "tso", "off", "gso", "off"])).unwrap();
    }
    traffic(&net, &middle);
    // Checksums are finished by the senders.
    for host in [&net.client, &net.server] {
        host.run("ethtool -K eth0 tx off tso off gso off").unwrap();
    }
    traffic(&net, &middle);
    let (fast, _device) = middle.stop();
    fast.attachment.detach().unwrap();
    let filters = run(Command::new("tc").args(["filter", "show", "dev", "gatun0", "egress"])).unwrap();
    assert!(!filters.contains("gatun_fastpath"), "{filters}");
}

#[test]
fn streams_and_datagrams_pass_by_tcx() {
    in_lab("streams_and_datagrams_pass_by_tcx", || both_hooks(Hook::Tcx));
}

#[test]
fn streams_and_datagrams_pass_by_clsact() {
    in_lab("streams_and_datagrams_pass_by_clsact", || both_hooks(Hook::Clsact));
}

#[test]
fn without_a_lease_or_with_another_epoch_the_engine_has_every_packet() {
    in_lab("without_a_lease_or_with_another_epoch_the_engine_has_every_packet", || {
        let net = Net::new(ClientLink::Plain);
        let _server = serve(&net);
        let middle = Middle::start(None, None);
        let hits = || middle.packets_of(Some(0), Reason::Hit);
        // A session moves when the engine's thread has had its turn.
        let moves = || {
            let before = hits();
            (0..20).any(|_| numbered(&net, NAT64_SERVER, 100, 1000).0 > 0 && hits() > before)
        };
        assert!(moves());
        middle.control().set_lease(KernelTime(0));
        let before = hits();
        assert_eq!(numbered(&net, NAT64_SERVER, 100, 1000), (100, 0));
        assert_eq!(hits(), before);
        assert!(middle.packets_of(None, Reason::LeaseOver) >= 200);
        middle.control().renew_lease(Duration::from_secs(60));
        middle.control().set_epoch(1);
        assert_eq!(numbered(&net, NAT64_SERVER, 100, 1000), (100, 0));
        assert_eq!(hits(), before);
        assert!(middle.packets_of(Some(0), Reason::OtherEpoch) > 0);
        middle.control().set_epoch(0);
        assert!(moves());
    });
}

#[test]
fn established_flows_outlive_the_process_and_are_taken_over() {
    in_lab("established_flows_outlive_the_process_and_are_taken_over", || {
        // On two processors, the kernel's queues let a packet overtake another when a host's thread changes its
        // processor on a busy machine.
        gatun_io::Processors::divide(&[], 1).unwrap().workers[0].pin_thread().unwrap();
        let net = Net::new(ClientLink::Plain);
        let _server = serve(&net);
        for hook in [Hook::Tcx, Hook::Clsact] {
            let pins = middle::bpffs();
            let middle = Middle::start(Some(hook), Some(pins.clone()));
            let arguments = [NAT64_SERVER, "3000", "1000", "1"];
            let flow = Process::start(
                python(&net.client, NUMBERED, &arguments).stdout(std::process::Stdio::piped()),
            )
            .unwrap();
            let moved = || middle.packets_of(Some(0), Reason::Hit) > 200;
            gatun_testkit::wait_until("translation in the kernel", Duration::from_secs(5), moved).unwrap();
            let second = FastPath::open(&config(Some(hook), Some(pins.clone())));
            assert!(matches!(second, Err(FastPathError::SecondInstance(_))));
            // The engine stops, and everything of the process but the pins is closed, as by a kill.
            let device = middle.stop_engine();
            std::thread::sleep(Duration::from_secs(1));
            let again = FastPath::open(&config(Some(hook), Some(pins.clone()))).unwrap();
            assert!(matches!(again.adoption, Adoption::Adopted(1..)), "{:?}", again.adoption);
            let used: Vec<_> = again.table.iter().map(|(id, _)| again.table.peek(id).unwrap()).collect();
            assert!(used.iter().any(|used| used.outbound.packets > 1000), "{used:?}");
            let (status, said) = flow.output(Duration::from_secs(10)).unwrap();
            assert!(status.success());
            assert_eq!(said.trim(), "3000 0", "no packet lost or out of order: {hook:?}");
            // Another size: nothing can be taken over.
            drop(again);
            let mut other = config(Some(hook), Some(pins.clone()));
            other.capacity += 1;
            let other = FastPath::open(&other).unwrap();
            assert!(matches!(&other.adoption, Adoption::Replaced(why) if why.contains("sessions")));
            assert!(other.table.is_empty());
            other.attachment.detach().unwrap();
            assert!(!pins.exists());
            drop(device);
        }
    });
}

#[test]
fn at_most_one_of_a_thousand_moves_reorders() {
    in_lab("at_most_one_of_a_thousand_moves_reorders", || {
        let net = Net::new(ClientLink::Plain);
        let _server = serve(&net);
        let middle = Middle::start(None, None);
        let hits = || middle.packets_of(Some(0), Reason::Hit);
        let (back, behind) = numbered_flows(&net, NAT64_SERVER, [40, 10_000, 500]);
        // Each direction moves by itself.
        assert!(back == 20_000 && behind <= 1, "{back} datagrams came back, {behind} behind a later one");
        assert!(hits() > 10_000, "{:?}", middle.counters());
    });
}

#[test]
fn connection_tracking_finds_no_packet_invalid() {
    in_lab("connection_tracking_finds_no_packet_invalid", || {
        let net = Net::new(ClientLink::Plain);
        let _server = serve(&net);
        let middle = Middle::start(None, None);
        let rules = "add table inet t
            add chain inet t f { type filter hook forward priority 0; }
            add rule inet t f ct state invalid counter drop
            add rule inet t f ct state established,related accept";
        if run(Command::new("nft").arg(rules)).is_err() {
            return gatun_testkit::skip("this kernel has no nftables with connection tracking");
        }
        traffic(&net, &middle);
        let listed = run(Command::new("nft").args(["list", "chain", "inet", "t", "f"])).unwrap();
        assert!(listed.contains("invalid counter packets 0 "), "{listed}");
    });
}

#[test]
fn a_program_behind_sees_what_is_not_translated() {
    in_lab("a_program_behind_sees_what_is_not_translated", || {
        let net = Net::new(ClientLink::Plain);
        let _server = serve(&net);
        let middle = Middle::start(Some(Hook::Clsact), None);
        numbered(&net, NAT64_SERVER, 100, 1000);
        let arguments = [NAT64_SERVER, "2000", "1000", "1"];
        let mut command = python(&net.client, NUMBERED, &arguments);
        let flow = Process::start(command.stdout(std::process::Stdio::piped())).unwrap();
        let before = middle.packets_of(Some(0), Reason::Hit);
        let moved = || middle.packets_of(Some(0), Reason::Hit) > before + 100;
        gatun_testkit::wait_until("translation in the kernel", Duration::from_secs(5), moved).unwrap();
        // A program of one instruction: it returns TC_ACT_SHOT.
        let filter = "filter add dev gatun0 egress pref 60000 bpf da bytecode";
        run(Command::new("tc").args(filter.split_whitespace()).arg("1,6 0 0 2")).unwrap();
        // Established flows do not meet the filter, new ones do.
        assert_eq!(numbered(&net, NAT64_SERVER, 20, 1000).0, 0);
        let (_, said) = flow.output(Duration::from_secs(10)).unwrap();
        assert_eq!(said.trim(), "2000 0");
    });
}

#[test]
fn a_device_that_comes_back_has_the_program_again() {
    in_lab("a_device_that_comes_back_has_the_program_again", || {
        for hook in [Hook::Tcx, Hook::Clsact] {
            let (pins, device) = (middle::bpffs(), || {
                run(Command::new("ip").args("tuntap add gatun0 mode tun".split_whitespace())).unwrap();
            });
            device();
            let mut fast = FastPath::open(&config(Some(hook), Some(pins.clone()))).unwrap();
            assert_eq!(fast.adoption, Adoption::Fresh);
            assert_eq!(programs(), 1);
            again(&mut fast).unwrap();
            assert_eq!(programs(), 1, "in its own place");
            run(Command::new("ip").args("link del gatun0".split_whitespace())).unwrap();
            let missing = again(&mut fast);
            assert!(missing.is_err());
            device();
            assert_eq!(programs(), 0);
            again(&mut fast).unwrap();
            assert_eq!(programs(), 1);
            // The other hook takes over, and leaves nothing of the first.
            drop(fast);
            let other = if hook == Hook::Tcx { Hook::Clsact } else { Hook::Tcx };
            let fast = FastPath::open(&config(Some(other), Some(pins.clone()))).unwrap();
            assert_eq!((fast.attachment.places.hook, &fast.adoption), (other, &Adoption::Adopted(0)));
            wait_for_programs(1);
            drop(fast);
            // As `gatun fastpath detach` does, with no process left.
            gatun_io_fastpath::detach("gatun0", Some(&pins)).unwrap();
            wait_for_programs(0);
            assert!(!pins.exists());
            run(Command::new("ip").args("link del gatun0".split_whitespace())).unwrap();
        }
    });
}

/// Attaches the programs again, as a helper of a daemon does.
fn again(fast: &mut FastPath) -> Result<(), FastPathError> {
    let Attachment { programs, places, .. } = &mut fast.attachment;
    programs.attach_again(places, false)
}

/// The kernel detaches a link of tcx some time after its last file and pin are gone.
fn wait_for_programs(count: usize) {
    let what = format!("{count} programs");
    gatun_testkit::wait_until(&what, Duration::from_secs(5), || programs() == count).unwrap();
}

/// Number of Gatun's programs at the egress of the device.
fn programs() -> usize {
    use aya::programs::{SchedClassifier, TcAttachType};
    let (_, links) = SchedClassifier::query_tcx("gatun0", TcAttachType::Egress).unwrap();
    let links = links.iter().filter(|program| program.name_as_str() == Some("gatun_fastpath")).count();
    let filters = run(Command::new("tc").args(["filter", "show", "dev", "gatun0", "egress"])).unwrap();
    links + filters.matches("handle 0x1 gatun_fastpath").count()
}
