//! AF_XDP on veth pairs, without a translator.
//!
//! ```text
//!   far0 ------ near0 [ the backend, in this process ] near1 ------ far1      all in one sandbox
//! ```
//! Each test runs itself again inside a sandbox of `gatun_testkit`.

use gatun_io::{RxError, Stats, TxError, Waker};
use gatun_io_ether::{FrameSink as _, Frames as _};
use gatun_io_xdp::{
    InterfaceEvent, Mode, Owner, PortConfig, Ports, PrefixRule, Watch, Xdp, XdpConfig, XdpError,
};
use gatun_testkit::packet::text;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

fn in_lab(test: &str, body: fn()) {
    gatun_testkit::run_test(test, || gatun_testkit::refusal_but_to_root("AF_XDP"), body);
}

fn ip(line: &str) {
    gatun_testkit::run(Command::new("ip").args(line.split_whitespace())).unwrap();
}

/// veth pair whose ends are up and silent.
fn cable(near: &str, far: &str) {
    ip(&format!("link add {near} type veth peer name {far}"));
    for end in [near, far] {
        gatun_testkit::run(
            Command::new("sysctl").args(["-qw", &format!("net.ipv6.conf.{end}.disable_ipv6=1")]),
        )
        .unwrap();
        ip(&format!("link set {end} up"));
    }
}

fn config(interfaces: &[&str], mode: Mode) -> XdpConfig {
    let ports = interfaces.iter().map(|name| PortConfig { interface: (*name).to_owned(), mode });
    let everything = [PrefixRule::To6(Ipv6Addr::UNSPECIFIED, 0), PrefixRule::To4(Ipv4Addr::UNSPECIFIED, 0)];
    XdpConfig { ports: ports.collect(), queues: 1, entries: everything.map(|e| (e, Owner::Gatun)).to_vec() }
}

/// Ports of one worker, and the watch over the interfaces.
fn open(interfaces: &[&str], mode: Mode) -> (Ports, Watch) {
    let mut xdp = Xdp::open(&config(interfaces, mode)).unwrap_or_else(|e| panic!("{e}"));
    (xdp.workers.pop().unwrap(), xdp.watch)
}

/// IPv4 frame of `len` bytes that contains its number.
fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|i| (i as u32 + number) as u8).collect();
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Forwards waiting frames, each to the other port. Returns their number.
fn forward(ports: &mut Ports) -> usize {
    let mut index = 0;
    let mut from = [0; 64];
    let admit = |port, _: &mut gatun_wire::Packet<'_>, _: &mut gatun_io_xdp::XdpTransmit| {
        from[index] = port;
        index += 1;
        true
    };
    let mut burst_from = Vec::new();
    let received = ports.receive(admit, |burst, out| {
        for (i, packet) in burst.iter().enumerate() {
            burst_from.push(packet.len());
            // There are two ports, and in these tests every frame comes from the first one.
            out.forward(i, 1, packet);
        }
    });
    assert!(from[..received].iter().all(|port| *port == 0), "{from:?}");
    assert_eq!(burst_from.len(), received);
    received
}

/// Receives frames until none arrives for a while.
fn drain(ports: &mut Ports, frames: &mut Vec<Vec<u8>>) {
    let waker = Waker::new().unwrap();
    let mut quiet = 0;
    while quiet < 3 {
        let take = |_, frame: &mut gatun_wire::Packet<'_>, _: &mut gatun_io_xdp::XdpTransmit| {
            frames.push(frame.bytes().to_vec());
            false
        };
        if ports.receive(take, |_, _| unreachable!("nothing was admitted")) > 0 {
            quiet = 0;
        } else {
            quiet += 1;
            ports.wait(&waker, Some(Duration::from_millis(20))).unwrap();
        }
    }
}

fn rx_errors(stats: &Stats) -> u64 {
    stats.rx_errors.iter().sum()
}

fn cross(mode: Mode) {
    cable("near0", "far0");
    cable("near1", "far1");
    let (mut middle, _watch) = open(&["near0", "near1"], mode);
    let (mut ends, _watch_ends) = open(&["far0", "far1"], Mode::Auto);
    let mut sent = Vec::new();
    let mut arrived = Vec::new();
    // Several bursts with all sizes, long enough that both rings wrap more than once.
    for number in 0..20_000u32 {
        let frame = frame(number, 60 + number as usize % 1455);
        ends.outbox().send(0, &frame);
        sent.push(frame);
        if number % 100 == 99 {
            ends.receive(|_, _, _| panic!("a frame too early"), |_, _| ());
            while forward(&mut middle) > 0 {}
            drain_now(&mut ends, &mut arrived);
        }
    }
    drain(&mut ends, &mut arrived);
    assert_eq!(arrived.len(), sent.len());
    assert!(arrived == sent, "frames changed, or their order did");
    let stats = middle.stats();
    assert_eq!((stats.rx_packets, stats.tx_packets), (20_000, 20_000));
    assert_eq!((stats.rx_bytes, rx_errors(&stats)), (stats.tx_bytes, 0));
}

/// Takes the frames that have arrived so far.
fn drain_now(ports: &mut Ports, frames: &mut Vec<Vec<u8>>) {
    let mut take = |_, frame: &mut gatun_wire::Packet<'_>, _: &mut gatun_io_xdp::XdpTransmit| {
        frames.push(frame.bytes().to_vec());
        false
    };
    while ports.receive(&mut take, |_, _| ()) > 0 {}
}

#[test]
fn native_mode_forwards_frames_unchanged_and_in_order() {
    in_lab("native_mode_forwards_frames_unchanged_and_in_order", || cross(Mode::Native));
}

#[test]
fn skb_mode_forwards_frames_unchanged_and_in_order() {
    in_lab("skb_mode_forwards_frames_unchanged_and_in_order", || cross(Mode::Skb));
}

#[test]
fn every_frame_without_room_is_counted_by_its_reason() {
    in_lab("every_frame_without_room_is_counted_by_its_reason", || {
        cable("near0", "far0");
        cable("near1", "far1");
        let (mut middle, _watch) = open(&["near0", "near1"], Mode::Auto);
        let (mut ends, _watch_ends) = open(&["far0", "far1"], Mode::Auto);
        // Nobody reads the near end: first its frames are used up, then packets are lost.
        for number in 0..5_000 {
            ends.outbox().send(0, &frame(number, 100));
            if number % 50 == 49 {
                ends.receive(|_, _, _| false, |_, _| ());
            }
        }
        let sent = ends.stats();
        assert_eq!((sent.tx_packets, sent.tx_attempts()), (5_000, 5_000));
        while forward(&mut middle) > 0 {}
        let stats = middle.stats();
        assert_eq!(stats.rx_packets + rx_errors(&stats), 5_000, "{stats:?}");
        assert_eq!(stats.rx_errors[RxError::NoFrame as usize], 5_000 - stats.rx_packets, "{stats:?}");
        assert!((2048..5_000).contains(&stats.rx_packets), "{stats:?}");
        // It recovers by itself.
        let mut arrived = Vec::new();
        drain(&mut ends, &mut arrived);
        arrived.clear();
        for number in 0..64 {
            ends.outbox().send(0, &frame(number, 100));
        }
        ends.receive(|_, _, _| false, |_, _| ());
        while forward(&mut middle) > 0 {}
        drain(&mut ends, &mut arrived);
        assert_eq!(arrived.len(), 64);

        // More frames than the ring holds: the rest is refused and counted.
        let before = ends.stats();
        for number in 0..3_000 {
            ends.outbox().send(0, &frame(number, 100));
        }
        let after = ends.stats();
        let refused = after.tx_errors[TxError::Full as usize] - before.tx_errors[TxError::Full as usize];
        assert_eq!((refused, after.tx_packets - before.tx_packets), (952, 2048));
        // Own frames too, but counted separately.
        (0..10).for_each(|_| ends.outbox().send_own(0, &frame(1, 100)));
        assert_eq!((ends.stats().tx_own_refused, ends.stats().tx_attempts()), (10, after.tx_attempts()));
        ends.outbox().send(0, &[0; 1800]);
        assert_eq!(ends.stats().tx_errors[TxError::TooLong as usize], 1);
    });
}

fn watched(mut watch: Watch) -> Receiver<InterfaceEvent> {
    let (sender, events) = channel();
    std::thread::spawn(move || {
        while let Ok(event) = watch.wait() {
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    events
}

fn next(events: &Receiver<InterfaceEvent>) -> InterfaceEvent {
    events.recv_timeout(Duration::from_secs(5)).expect("an event")
}

/// Sends some frames across and returns how many arrived.
fn probe(ends: &mut Ports, middle: &mut Ports) -> usize {
    for number in 0..10 {
        ends.outbox().send(0, &frame(number, 100));
    }
    ends.receive(|_, _, _| false, |_, _| ());
    while forward(middle) > 0 {}
    let mut arrived = Vec::new();
    drain(ends, &mut arrived);
    arrived.len()
}

#[test]
fn an_interface_that_returns_is_used_again_and_lost_frames_are_counted() {
    in_lab("an_interface_that_returns_is_used_again_and_lost_frames_are_counted", || {
        cable("near0", "far0");
        cable("near1", "far1");
        let (mut middle, watch) = open(&["near0", "near1"], Mode::Auto);
        let events = watched(watch);
        let (mut ends, watch_ends) = open(&["far0", "far1"], Mode::Auto);
        assert_eq!(probe(&mut ends, &mut middle), 10);

        ip("link set near1 down");
        assert!(matches!(next(&events), InterfaceEvent::Down(name) if name == "near1"));
        assert_eq!(probe(&mut ends, &mut middle), 0);
        assert_eq!(middle.stats().tx_errors[TxError::Down as usize], 10);
        ip("link set near1 up");
        assert!(matches!(next(&events), InterfaceEvent::Up(name) if name == "near1"));
        assert_eq!(probe(&mut ends, &mut middle), 10);

        drop(watch_ends);
        for round in 1..=6 {
            ip("link del near1");
            loop {
                match next(&events) {
                    InterfaceEvent::Gone(name) if name == "near1" => break,
                    // The kernel sets the interface down first. The event may be from the round before: the
                    // interface came back with another MAC.
                    InterfaceEvent::Up(name) | InterfaceEvent::Down(name) if name == "near1" => {}
                    InterfaceEvent::Address(name, _) if name == "near1" && round > 1 => {}
                    other => panic!("{other:?}"),
                }
            }
            drop(ends);
            (ends, _) = open(&["far0"], Mode::Auto);
            assert_eq!(probe(&mut ends, &mut middle), 0);
            assert_eq!(middle.stats().tx_errors[TxError::Gone as usize], 10 * round);
            drop(ends);
            cable("near1", "far1");
            let opened = loop {
                match next(&events) {
                    InterfaceEvent::Back(opened) => break opened,
                    InterfaceEvent::Up(_) | InterfaceEvent::Down(_) => {}
                    other => panic!("{other:?}"),
                }
            };
            assert!(opened.native);
            let watch_ends;
            (ends, watch_ends) = open(&["far0", "far1"], Mode::Auto);
            let deadline = Instant::now() + Duration::from_secs(5);
            while probe(&mut ends, &mut middle) != 10 {
                assert!(Instant::now() < deadline, "{:?}", middle.stats());
            }
            drop(watch_ends);
        }
        // An idle worker sleeps.
        let (waker, begin) = (Waker::new().unwrap(), Instant::now());
        middle.wait(&waker, Some(Duration::from_millis(1))).unwrap();
        middle.receive(|_, _, _| false, |_, _| ());
        middle.wait(&waker, Some(Duration::from_millis(30))).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(20), "{:?}", begin.elapsed());
    });
}

#[test]
fn open_errors_say_what_to_do() {
    in_lab("open_errors_say_what_to_do", || {
        cable("near0", "far0");
        let refused = |interfaces: &[&str]| match Xdp::open(&config(interfaces, Mode::Auto)) {
            Ok(_) => panic!("{interfaces:?} can be opened"),
            Err(error) => error,
        };
        assert!(matches!(refused(&["nothing"]), XdpError::Missing(_)));
        assert!(matches!(refused(&["lo"]), XdpError::NotEthernet(_)));
        let first = open(&["near0"], Mode::Auto);
        assert!(matches!(refused(&["near0"]), XdpError::SecondInstance(_)));
        drop(first);
        ip("link set near0 mtu 9000");
        assert!(matches!(refused(&["near0"]), XdpError::Mtu { mtu: 9000, .. }));
        ip("link set near0 mtu 1500");
        drop(open(&["near0"], Mode::Skb));
        ip("link add many numrxqueues 4 numtxqueues 4 type veth peer name few");
        assert!(matches!(refused(&["many"]), XdpError::Queues { has: 4, served: 1, .. }));
    });
}

#[test]
fn vlan_tags_are_removed_and_added_and_other_vlans_are_ignored() {
    in_lab("vlan_tags_are_removed_and_added_and_other_vlans_are_ignored", || {
        cable("near0", "far0");
        let mut xdp = Xdp::open(&config(&["near0"], Mode::Auto)).unwrap_or_else(|e| panic!("{e}"));
        let address = |addr: &str, len| gatun_ether::Prefix { addr: addr.parse().unwrap(), len };
        let settings = gatun_ether::Settings {
            ports: vec![gatun_ether::PortSettings {
                name: "near".into(),
                device: 0,
                mac: gatun_ether::Mac(xdp.opened[0].interface.mac),
                tags: vec![gatun_ether::Tag::service(7), gatun_ether::Tag::customer(8)],
                mtu: 1500,
                addresses: vec![address("198.51.100.64", 24)],
                answers: Vec::new(),
                routes: Vec::new(),
                neighbours: vec![],
                realms: [0; 2],
            }],
            announces: true,
            ..Default::default()
        };
        let ether = gatun_ether::Ether::new(&settings, &Default::default(), [1; 4]).unwrap();
        let workers = std::mem::take(&mut xdp.workers);
        let devices = [xdp.opened[0].device()];
        let mut backend = gatun_io_ether::backends(workers, &devices, &[], vec![ether]).unwrap().remove(0);
        let (mut far, _watch) = open(&["far0"], Mode::Auto);

        let frame = |inner: u8, rest: &[u8]| {
            let mut frame = vec![0xff; 6];
            frame.extend([2, 0, 0, 0, 0, 9]);
            frame.extend([0x88, 0xa8, 0, 7, 0x81, 0, 0, inner]);
            frame.extend(rest);
            frame
        };
        let mut request = vec![0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9, 198, 51, 100, 2];
        request.extend([0, 0, 0, 0, 0, 0, 198, 51, 100, 64]);
        let mut exchange = |far: &mut Ports, frame: &[u8], packets: usize| {
            far.outbox().send(0, frame);
            far.receive(|_, _, _| false, |_, _| ());
            let mut handed = Vec::new();
            gatun_io::Backend::receive(&mut backend, &mut |burst, tx| {
                for (i, packet) in burst.iter_mut().enumerate() {
                    handed.push(packet.bytes().to_vec());
                    tx.forward(i, packet);
                }
            })
            .unwrap();
            assert_eq!(handed.len(), packets, "{handed:02x?}");
            let mut arrived = Vec::new();
            drain(far, &mut arrived);
            (handed, arrived)
        };
        let (_, arrived) = exchange(&mut far, &frame(8, &request), 0);
        let reply = arrived.iter().find(|f| f[..6] == [2, 0, 0, 0, 0, 9]).expect("an ARP reply");
        assert_eq!(reply[12..22], [0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 0x08, 0x06]);
        assert_eq!(reply[28..30], [0, 2]);
        let (_, arrived) = exchange(&mut far, &frame(9, &request), 0);
        assert!(!arrived.iter().any(|f| f[..6] == [2, 0, 0, 0, 0, 9]), "a reply to another VLAN");

        // An IP packet to the router's MAC, which returns to its sender: the sender's address is known.
        let packet = text::udp4("203.0.113.1", 0, "198.51.100.2", 0, &[]);
        let mut tagged = frame(8, &[0x08, 0x00]);
        tagged[..6].copy_from_slice(&xdp.opened[0].interface.mac);
        tagged.extend(&packet);
        let (handed, arrived) = exchange(&mut far, &tagged, 1);
        assert_eq!(handed[0][..28], packet);
        let back = arrived.iter().find(|f| f[..6] == [2, 0, 0, 0, 0, 9]).expect("the returned packet");
        assert_eq!(back[12..22], [0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 0x08, 0x00]);
        assert_eq!(back[22..50], packet);
    });
}
