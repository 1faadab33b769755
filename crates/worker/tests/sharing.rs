//! Two workers that share a stateful translator, each with a device of its own.

use gatun_io::{Memory, memory::MemoryPeer};
use gatun_nat::Nat;
use gatun_nat::plan::{Nat64, Plan, Pool4, PoolRange};
use gatun_nat::workers::Shares;
use gatun_wire::Prefix64;
use gatun_worker::exchange::exchange;
use gatun_worker::{Clock, Handle, Snapshot, Worker};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const SUBSCRIBERS: usize = 200;
const REMOTE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const POOL: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 51, 100, 1), Ipv4Addr::new(198, 51, 100, 2)];

fn plan() -> Plan {
    let [first, last] = POOL;
    let range = PoolRange { first, last, ports: (1024, 65_535), transports: [true; 3] };
    Plan {
        pools: vec![Pool4 { name: "p".into(), ranges: vec![range], ..Pool4::default() }],
        nat64: vec![Nat64 {
            name: "n".into(),
            pool6: vec![Prefix64::WELL_KNOWN],
            wkp_non_global: true,
            ..Nat64::default()
        }],
        ..Plan::default()
    }
}

struct Bed {
    peers: Vec<MemoryPeer>,
    handles: Vec<Handle>,
    threads: Vec<JoinHandle<(Snapshot, Option<std::io::Error>)>>,
}

impl Bed {
    fn start() -> Bed {
        let shares = Shares::new(&plan(), 2, [9; 4]).unwrap();
        let steering = Arc::new(shares.steering);
        let mut bed = Bed { peers: vec![], handles: vec![], threads: vec![] };
        let clock = Clock::new();
        for (plan, exchange) in shares.plans.iter().zip(exchange(2, &steering).unwrap()) {
            let (memory, peer) = Memory::new("m").unwrap();
            let nat = Nat::new(plan, [1, 2, 3, 4]).unwrap();
            let (worker, handle) = Worker::sharing(nat, Box::new(memory), clock, exchange);
            bed.threads.push(std::thread::spawn(move || worker.run()));
            bed.peers.push(peer);
            bed.handles.push(handle);
        }
        bed
    }

    /// What both devices have sent, once there are so many packets.
    fn sent(&self, count: usize) -> Vec<Vec<u8>> {
        let deadline = Instant::now() + 10 * SECOND;
        let mut all = Vec::new();
        while all.len() < count {
            assert!(Instant::now() < deadline, "{} of {count} packets", all.len());
            all.extend(self.peers.iter().flat_map(MemoryPeer::take_sent).map(|frame| frame.bytes));
            std::thread::sleep(Duration::from_millis(1));
        }
        all
    }

    /// The final counters of each worker.
    fn stop(self) -> Vec<Snapshot> {
        self.handles.iter().for_each(Handle::stop);
        let ended = self.threads.into_iter().map(|thread| thread.join().unwrap());
        ended.map(|(snapshot, error)| (error.is_none().then_some(snapshot)).unwrap()).collect()
    }
}

fn inside(subscriber: usize) -> Ipv6Addr {
    Ipv6Addr::from(0x2001_0db8_u128 << 96 | (subscriber as u128) << 64 | 5)
}

/// An IPv6 UDP datagram with its checksum.
fn six(src: Ipv6Addr, dst: Ipv6Addr, ports: (u16, u16)) -> Vec<u8> {
    let builder = etherparse::PacketBuilder::ipv6(src.octets(), dst.octets(), 64).udp(ports.0, ports.1);
    let mut bytes = Vec::new();
    builder.write(&mut bytes, b"over there").unwrap();
    bytes
}

fn four(src: Ipv4Addr, dst: Ipv4Addr, ports: (u16, u16)) -> Vec<u8> {
    let builder = etherparse::PacketBuilder::ipv4(src.octets(), dst.octets(), 64).udp(ports.0, ports.1);
    let mut bytes = Vec::new();
    builder.write(&mut bytes, b"and back").unwrap();
    bytes
}

fn embed(address: Ipv4Addr) -> Ipv6Addr {
    Prefix64::WELL_KNOWN.embed(address)
}

/// Source, destination, ports; checksums are verified.
fn endpoints4(packet: &[u8]) -> (Ipv4Addr, Ipv4Addr, u16, u16) {
    let (header, payload) = etherparse::Ipv4Header::from_slice(packet).unwrap();
    let (udp, data) = etherparse::UdpHeader::from_slice(payload).unwrap();
    assert_eq!(header.header_checksum, header.calc_header_checksum());
    assert_eq!(udp.checksum, udp.calc_checksum_ipv4(&header, data).unwrap());
    (header.source.into(), header.destination.into(), udp.source_port, udp.destination_port)
}

fn endpoints6(packet: &[u8]) -> (Ipv6Addr, Ipv6Addr, u16, u16) {
    let (header, payload) = etherparse::Ipv6Header::from_slice(packet).unwrap();
    let (udp, data) = etherparse::UdpHeader::from_slice(payload).unwrap();
    assert_eq!(udp.checksum, udp.calc_checksum_ipv6(&header, data).unwrap());
    (header.source.into(), header.destination.into(), udp.source_port, udp.destination_port)
}

/// Every packet to a device that is not its owner's: the outside endpoint of each subscriber's port 5000, by
/// inside address. Mappings must not depend on the device that a packet comes in by.
fn open_all(bed: &Bed) -> BTreeMap<Ipv6Addr, (Ipv4Addr, u16)> {
    for n in 0..2 * SUBSCRIBERS {
        // The second round comes in by the other device, and to another remote port.
        let (subscriber, device) = (n % SUBSCRIBERS, (n + n / SUBSCRIBERS) % 2);
        let port = 7000 + (n / SUBSCRIBERS) as u16;
        bed.peers[device].push(six(inside(subscriber), embed(REMOTE), (5000, port)));
    }
    let mut of_port = [BTreeMap::new(), BTreeMap::new()];
    for packet in bed.sent(2 * SUBSCRIBERS) {
        let (src, dst, src_port, dst_port) = endpoints4(&packet);
        assert_eq!(dst, REMOTE);
        *of_port[usize::from(dst_port - 7000)].entry((src, src_port)).or_insert(0) += 1;
    }
    assert_eq!(of_port[0], of_port[1], "endpoint-independent: both rounds left by the same endpoints");
    assert!(of_port[0].len() == SUBSCRIBERS && of_port[0].values().all(|n| *n == 1));
    // Back, by either device: tells whose each endpoint is.
    let mut outside = BTreeMap::new();
    for (n, &(address, port)) in of_port[0].keys().enumerate() {
        bed.peers[n % 2].push(four(REMOTE, address, (7000, port)));
    }
    let back: Vec<_> = bed.sent(SUBSCRIBERS).iter().map(|p| endpoints6(p)).collect();
    for (src, dst, src_port, dst_port) in back {
        assert_eq!((src, src_port, dst_port), (embed(REMOTE), 7000, 5000));
        assert!(outside.insert(dst, ()).is_none(), "one answer each");
    }
    assert!((0..SUBSCRIBERS).all(|s| outside.contains_key(&inside(s))));
    // Which endpoint is whose: one more packet of each, alone.
    let mut map = BTreeMap::new();
    for subscriber in 0..SUBSCRIBERS {
        bed.peers[0].push(six(inside(subscriber), embed(REMOTE), (5000, 7000)));
        let (address, _, port, _) = endpoints4(&bed.sent(1)[0]);
        map.insert(inside(subscriber), (address, port));
    }
    map
}

// proves: R47-1
#[test]
fn mappings_are_the_same_whatever_device_a_packet_comes_in_by() {
    let bed = Bed::start();
    let map = open_all(&bed);
    let of_first = map.values().filter(|(address, _)| *address == POOL[0]).count();
    assert!(
        of_first > SUBSCRIBERS / 4 && of_first < SUBSCRIBERS * 3 / 4,
        "{of_first}: both workers have some"
    );
    let snapshots = bed.stop();
    let mut total = Snapshot::default();
    for snapshot in &snapshots {
        assert!(snapshot.conserved(), "{snapshot:?}");
        assert!(snapshot.worker.handed.before > 0 && snapshot.worker.handed.taken > 0);
        total += snapshot;
    }
    let handed = total.worker.handed;
    assert_eq!((handed.before + handed.after, handed.before_lost), (handed.taken, 0));
    assert_eq!(total.engine.rx.packets as usize, 4 * SUBSCRIBERS);
    assert_eq!(total.engine.dropped.packets, 0);
    assert_eq!(total.pools[0].addresses, 2, "one of each worker");
    let sessions: u64 = total.instances[0].lives.sessions.iter().map(|lived| lived.now()).sum();
    assert_eq!(sessions, 2 * SUBSCRIBERS as u64);
}

// proves: A61-62, A61-64
#[test]
fn a_hairpin_goes_from_one_worker_to_the_other_and_back() {
    let bed = Bed::start();
    let map = open_all(&bed);
    let of = |address| map.iter().find(|(_, outside)| outside.0 == address).unwrap();
    let ((host, host_outside), (peer, peer_outside)) = (of(POOL[0]), of(POOL[1]));
    for device in 0..2 {
        bed.peers[device].push(six(*host, embed(peer_outside.0), (5000, peer_outside.1)));
        let (src, dst, src_port, dst_port) = endpoints6(&bed.sent(1)[0]);
        assert_eq!((src, src_port), (embed(host_outside.0), host_outside.1), "from its external endpoint");
        assert_eq!((dst, dst_port), (*peer, 5000));
        bed.peers[device].push(six(*peer, src, (5000, src_port)));
        let (src, dst, ..) = endpoints6(&bed.sent(1)[0]);
        assert_eq!((src, dst), (embed(peer_outside.0), *host));
    }
    for snapshot in bed.stop() {
        assert!(snapshot.conserved() && snapshot.worker.handed.after >= 2, "{snapshot:?}");
    }
}
