//! Two workers that share a stateful translator, each with its own device.

use gatun_io::{Memory, memory::MemoryPeer};
use gatun_nat::Nat;
use gatun_nat::plan::{Nat64, Plan, Pool4, PoolRange, StaticBinding, Transport};
use gatun_nat::reconfigure::Change;
use gatun_nat::workers::{Shares, Steering};
use gatun_testkit::packet::{Message, V4, V6};
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
    steering: Arc<Steering>,
    peers: Vec<MemoryPeer>,
    handles: Vec<Handle>,
    threads: Vec<JoinHandle<(Snapshot, Option<std::io::Error>)>>,
}

impl Bed {
    fn start() -> Bed {
        let shares = Shares::new(&plan(), 2, [9; 4]).unwrap();
        let steering = Arc::new(shares.steering);
        let (peers, handles, threads) = (vec![], vec![], vec![]);
        let mut bed = Bed { steering: Arc::clone(&steering), peers, handles, threads };
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

    /// Packets sent by both devices, once there are this many.
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

    /// Final counters of each worker.
    fn stop(self) -> Vec<Snapshot> {
        self.handles.iter().for_each(Handle::stop);
        let ended = self.threads.into_iter().map(|thread| thread.join().unwrap());
        ended.map(|(snapshot, error)| (error.is_none().then_some(snapshot)).unwrap()).collect()
    }
}

fn inside(subscriber: usize) -> Ipv6Addr {
    Ipv6Addr::from(0x2001_0db8_u128 << 96 | (subscriber as u128) << 64 | 5)
}

fn six(src: Ipv6Addr, dst: Ipv6Addr, ports: (u16, u16)) -> Vec<u8> {
    V6::new(src, dst).packet(&Message::udp(ports.0, ports.1, b"over there"))
}

fn four(src: Ipv4Addr, dst: Ipv4Addr, ports: (u16, u16)) -> Vec<u8> {
    V4::new(src, dst).packet(&Message::udp(ports.0, ports.1, b"and back"))
}

fn embed(address: Ipv4Addr) -> Ipv6Addr {
    Prefix64::WELL_KNOWN.embed(address)
}

/// Source, destination and ports. Checksums are verified.
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

/// Sends packets to devices of both workers: returns the outside endpoint of each subscriber's port 5000, by
/// inside address. Mappings must not depend on the device that received a packet.
fn open_all(bed: &Bed) -> BTreeMap<Ipv6Addr, (Ipv4Addr, u16)> {
    for n in 0..2 * SUBSCRIBERS {
        // The second round arrives at the other device and goes to another remote port.
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
    // Replies, through either device, show the owner of each endpoint.
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
    // One more packet of each subscriber, alone, shows its endpoint.
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
fn mappings_do_not_depend_on_the_receiving_device() {
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
    let sessions: u64 = total.instances[0].entries.sessions.iter().map(|count| count.now()).sum();
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

/// Another plan for the running workers: prepared as a whole, then applied by each.
fn reload(bed: &mut Bed, old: &[Plan], new: &Plan) -> (Vec<Plan>, u64) {
    let shares = Shares::after(&bed.steering, new).unwrap();
    let changes: Vec<_> = (bed.handles.iter().zip(old).zip(shares.plans.iter().zip(shares.moved)))
        .map(|((handle, old), (new, moved))| {
            let mut change = Change::prepare(&handle.outline(SECOND).unwrap(), old, new).unwrap();
            change.end_moved(moved);
            Box::new(change)
        })
        .collect();
    bed.steering = Arc::new(shares.steering);
    for (handle, change) in bed.handles.iter().zip(changes) {
        let applied = handle.apply(change, Some(Arc::clone(&bed.steering)), SECOND).unwrap();
        assert_eq!(applied.result, Ok(()));
    }
    let mut ended = 0;
    for handle in &bed.handles {
        let deadline = Instant::now() + 10 * SECOND;
        while handle.settling(SECOND).unwrap().goes_on {
            assert!(Instant::now() < deadline);
        }
        ended += handle.settling(SECOND).unwrap().ended.sessions;
    }
    (shares.plans, ended)
}

/// Present outside endpoint of a subscriber's port.
fn endpoint(bed: &Bed, device: usize, subscriber: usize) -> (Ipv4Addr, u16) {
    bed.peers[device].push(six(inside(subscriber), embed(REMOTE), (5000, 7000)));
    let (address, _, port, _) = endpoints4(&bed.sent(1)[0]);
    (address, port)
}

#[test]
fn a_new_plan_for_sharing_workers_ends_only_affected_sessions() {
    let mut bed = Bed::start();
    let map = open_all(&bed);
    let plans = Shares::new(&plan(), 2, [9; 4]).unwrap().plans;
    let of = |address| (0..SUBSCRIBERS).find(|s| map[&inside(*s)].0 == address).unwrap();
    let (first, second) = (of(POOL[0]), of(POOL[1]));

    // Two more addresses at the front: each worker gets one, and no session moves.
    let mut wider = plan();
    let added = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
    let range = PoolRange { first: added[0], last: added[1], ..wider.pools[0].ranges[0] };
    wider.pools[0].ranges.insert(0, range);
    let (plans, ended) = reload(&mut bed, &plans, &wider);
    assert_eq!(ended, 0);
    for subscriber in 0..SUBSCRIBERS {
        assert_eq!(endpoint(&bed, subscriber % 2, subscriber), map[&inside(subscriber)]);
    }
    let seen: Vec<_> = (SUBSCRIBERS..SUBSCRIBERS + 60).map(|s| endpoint(&bed, s % 2, s).0).collect();
    assert!(added.iter().chain(&POOL).all(|address| seen.contains(address)), "{seen:?}");

    // A binding of a subscriber at the other worker's address: only this subscriber moves there.
    let mut bound = wider.clone();
    let outside = (POOL[1], 80);
    let (transport, inside_end) = (Transport::Udp, (inside(first), 80));
    bound.nat64[0].static_bindings = vec![StaticBinding { transport, inside: inside_end, outside }];
    let (plans, ended) = reload(&mut bed, &plans, &bound);
    assert_eq!(ended, 2, "the moved subscriber's");
    bed.peers[0].push(four(REMOTE, POOL[1], (7000, 80)));
    assert_eq!(endpoints6(&bed.sent(1)[0]).1, inside(first));
    assert_eq!(endpoint(&bed, 0, second), map[&inside(second)]);
    assert!([POOL[1], added[1]].contains(&endpoint(&bed, 0, first).0), "a subscriber has one worker");

    // The first address is removed: its subscribers get another one of the same worker, and all other
    // sessions stay.
    let mut narrower = bound.clone();
    narrower.pools[0].ranges[1].first = POOL[1];
    let (_, ended) = reload(&mut bed, &plans, &narrower);
    assert!(ended > 0);
    for subscriber in (0..SUBSCRIBERS).filter(|s| *s != first) {
        let (now, before) = (endpoint(&bed, 1, subscriber), map[&inside(subscriber)]);
        match before.0 == POOL[0] {
            true => assert_eq!(now.0, added[0]),
            false => assert_eq!(now, before),
        }
    }
    let mut total = Snapshot::default();
    for snapshot in bed.stop() {
        assert!(snapshot.conserved(), "{snapshot:?}");
        total += &snapshot;
    }
    assert_eq!((total.engine.dropped.packets, total.worker.handed.before_lost), (0, 0));
}
