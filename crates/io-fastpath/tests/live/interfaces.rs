//! The program at network interfaces (XDP), between the same hosts.

use super::*;
use gatun_io_fastpath::FastPathConfig;

const SIIT_SERVER: &str = "2001:db8:46::c633:6402";
/// Each way, with the row of its counters: a stateful instance, or the stateless one.
const WAYS: [(&str, Option<u8>); 3] = [(NAT64_SERVER, Some(0)), (SERVER, Some(1)), (SIIT_SERVER, None)];

/// Returns a datagram's TTL as it arrived.
const SERVE_HOPS: &str = r#"
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 7002)); s.setsockopt(0, 12, 1)
while True:
    b, c, _, a = s.recvmsg(100, 100)
    s.sendto(b'%d' % int.from_bytes(c[0][2], 'little'), a)
"#;

/// Sends datagrams, and prints the hop limits with which they and their answers arrived, each once.
const ARRIVING_HOPS: &str = r#"
import socket, sys, time
six = ':' in sys.argv[1]
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], 7002)); s.settimeout(10); s.setsockopt(*((41, 51) if six else (0, 12)), 1)
seen = set()
for i in range(300):
    s.send(b'hops'); b, c, _, _ = s.recvmsg(100, 100); time.sleep(0.001)
    seen.add('%s %d' % (b.decode(), int.from_bytes(c[0][2], 'little')))
print(', '.join(sorted(seen)))
"#;

fn with_xdp(pins: Option<std::path::PathBuf>) -> FastPathConfig {
    FastPathConfig { xdp: vec!["in0".into(), "out0".into()], ..config(None, pins) }
}

/// Lets the hosts finish checksums themselves, and take frames that a program sends.
fn prepare(net: &Net) {
    for host in [&net.client, &net.server] {
        host.run("ethtool -K eth0 tx off tso off gso off gro on").unwrap();
    }
}

fn xdp_packets(middle: &Middle, row: Option<u8>, reason: Reason) -> u64 {
    let read = |table: &gatun_io_fastpath::Table| match row {
        Some(_) => table.xdp_counters(row),
        None => table.xdp_stateless_counters(0),
    };
    middle.read(read).unwrap().of(reason)
}

#[test]
fn streams_and_datagrams_pass_both_ways_before_the_network_stack() {
    in_lab("interfaces::streams_and_datagrams_pass_both_ways_before_the_network_stack", || {
        let net = Net::new(ClientLink::Plain);
        let _server = serve(&net);
        prepare(&net);
        let middle = Middle::start_with(&with_xdp(None));
        assert_eq!(middle.xdp(), [("in0".into(), None), ("out0".into(), None)]);
        for (to, row) in WAYS {
            let hits = || xdp_packets(&middle, row, Reason::Hit);
            let before = hits();
            stream(&net, to, 4_000_000);
            assert!(hits() - before > 3000, "{to}: {} hits", hits() - before);
            let before = hits();
            assert_eq!(numbered(&net, to, 500, 1000).0, 500, "{to}");
            assert!(hits() - before > 900, "{to}: {} hits", hits() - before);
            ping(&net, to);
            assert_eq!(xdp_packets(&middle, row, Reason::Dropped), 0);
        }
        // Packets of no session go up: echoes, ARP, neighbour discovery.
        assert!(middle.read(|table| table.xdp_counters(None)).unwrap().of(Reason::NotPlain) > 0);
        let (fast, _device) = middle.stop();
        drop(fast);
        wait_for_xdp(0);
    });
}

#[test]
fn packets_whose_checksum_a_device_is_to_complete_go_through_the_stack() {
    in_lab("interfaces::packets_whose_checksum_a_device_is_to_complete_go_through_the_stack", || {
        let net = Net::new(ClientLink::Plain);
        let _server = serve(&net);
        let middle = Middle::start_with(&with_xdp(None));
        for (to, row) in WAYS {
            stream(&net, to, 2_000_000);
            let hits = xdp_packets(&middle, row, Reason::Hit);
            assert!(hits < 10, "{to}: {hits} hits");
        }
        assert!(middle.packets_of(Some(0), Reason::Hit) > 100, "{:?}", middle.counters());
    });
}

#[test]
fn hop_limits_are_those_of_the_way_through_the_device() {
    in_lab("interfaces::hop_limits_are_those_of_the_way_through_the_device", || {
        let net = Net::new(ClientLink::Plain);
        let _server = serve(&net);
        let _hops = Process::start(&mut python(&net.server, SERVE_HOPS, &[])).unwrap();
        let listens = || net.server.run("ss -Hlnu").is_ok_and(|sockets| sockets.contains(":7002 "));
        gatun_testkit::wait_until("the server", Duration::from_secs(60), listens).unwrap();
        prepare(&net);
        let middle = Middle::start_with(&with_xdp(None));
        for (to, row) in WAYS {
            let before = xdp_packets(&middle, row, Reason::Hit);
            let said = run(&mut python(&net.client, ARRIVING_HOPS, &[to])).unwrap();
            assert_eq!(said.trim(), "61 61", "{to}");
            let hits = xdp_packets(&middle, row, Reason::Hit) - before;
            // The first packets, and one a second, take the other way.
            assert!((500..600).contains(&hits), "{to}: {hits} hits");
        }
    });
}

#[test]
fn the_program_at_interfaces_outlives_the_process_and_is_taken_over() {
    in_lab("interfaces::the_program_at_interfaces_outlives_the_process_and_is_taken_over", || {
        let net = Net::new(ClientLink::Plain);
        let _server = serve(&net);
        prepare(&net);
        let pins = middle::bpffs();
        let middle = Middle::start_with(&with_xdp(Some(pins.clone())));
        let mut command = python(&net.client, NUMBERED, &[NAT64_SERVER, "3000", "1000", "1"]);
        let flow = Process::start(command.stdout(std::process::Stdio::piped())).unwrap();
        let moved = || xdp_packets(&middle, Some(0), Reason::Hit) > 200;
        gatun_testkit::wait_until("translation at the interfaces", Duration::from_secs(5), moved).unwrap();
        let device = middle.stop_engine();
        std::thread::sleep(Duration::from_secs(1));
        let again = FastPath::open(&with_xdp(Some(pins.clone()))).unwrap();
        assert!(matches!(again.adoption, Adoption::Adopted(1..)), "{:?}", again.adoption);
        assert!(again.attachment.places.xdp.iter().all(|interface| interface.is_attached()));
        let hits = again.table.xdp_counters(Some(0)).unwrap().of(Reason::Hit);
        assert!(hits > 1000, "{hits}");
        let (status, said) = flow.output(Duration::from_secs(10)).unwrap();
        assert!(status.success());
        assert!(said.starts_with("3000 "), "no packet lost: {said}");
        assert_eq!(xdp_programs(), 2);
        // Without one of the interfaces, and then without all.
        drop(again);
        let one = FastPathConfig { xdp: vec!["out0".into()], ..with_xdp(Some(pins.clone())) };
        let again = FastPath::open(&one).unwrap();
        wait_for_xdp(1);
        drop(again);
        gatun_io_fastpath::detach("gatun0", Some(&pins)).unwrap();
        wait_for_xdp(0);
        assert!(!pins.exists());
        drop(device);
    });
}

#[test]
fn an_interface_that_cannot_have_the_program_is_refused_and_the_device_translates() {
    in_lab(
        "interfaces::an_interface_that_cannot_have_the_program_is_refused_and_the_device_translates",
        || {
            let net = Net::new(ClientLink::Plain);
            let _server = serve(&net);
            // Another program: a kernel without it would leave the interface to Gatun.
            let mut other = aya::Ebpf::load(aya::include_bytes_aligned!("../../bpf/fastpath.o")).unwrap();
            let other: &mut aya::programs::Xdp = other.program_mut("gatun_xdp").unwrap().try_into().unwrap();
            other.load().unwrap();
            other.attach("in0", aya::programs::xdp::XdpMode::Driver).unwrap();
            let names = ["in0", "out0", "lo", "nowhere"];
            let config = FastPathConfig { xdp: names.map(String::from).to_vec(), ..config(None, None) };
            let middle = Middle::start_with(&config);
            let reasons = ["another XDP program is there", "", "no Ethernet interface", "no such interface"];
            for ((name, why), (expected, part)) in middle.xdp().iter().zip(names.iter().zip(reasons)) {
                assert_eq!(name, expected);
                assert_eq!(why.is_none(), part.is_empty(), "{name}: {why:?}");
                assert!(why.as_deref().unwrap_or_default().contains(part), "{name}: {why:?}");
            }
            stream(&net, NAT64_SERVER, 1_000_000);
            assert!(middle.packets_of(Some(0), Reason::Hit) > 20, "{:?}", middle.counters());
        },
    );
}

/// Number of interfaces with an XDP program.
fn xdp_programs() -> usize {
    run(Command::new("ip").args(["-d", "link", "show"])).unwrap().matches("prog/xdp").count()
}

/// The kernel detaches a link some time after its last file and pin are gone.
fn wait_for_xdp(count: usize) {
    let what = format!("{count} interfaces with a program");
    gatun_testkit::wait_until(&what, Duration::from_secs(5), || xdp_programs() == count).unwrap();
}
