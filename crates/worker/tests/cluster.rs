//! Three nodes of a cluster with two workers each: packets arrive anywhere, and one node translates each.

use gatun_io::{Memory, memory::MemoryPeer};
use gatun_nat::plan::{Nat64, Plan, Pool4, PoolRange};
use gatun_nat::redirect::{Place, Redirection, Tunnel, TunnelNode};
use gatun_nat::standby::{Fence, PeerAction, PeerCommand, PortRight};
use gatun_nat::workers::{Shares, Steering};
use gatun_nat::{Nat, ShardSet, Verdict};
use gatun_testkit::packet::{Message, V4, V6};
use gatun_wire::{DropReason, Prefix64, vxlan};
use gatun_worker::exchange::exchange;
use gatun_worker::trace::{TraceDelivery, TraceFilter, TraceRequest};
use gatun_worker::{Clock, Handle, Snapshot, Worker};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const NODES: usize = 3;
const NAMES: [&str; NODES] = ["a", "b", "c"];
const WORKERS: usize = 2;
const SHARDS: u16 = 8;
const HOSTS: u16 = 120;
const ALL_PORTS: PortRight = PortRight { first: 1024, last: 65_535, is_owner: true };
const REMOTE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);

fn plan() -> Plan {
    let (first, last) = ([198, 51, 100, 0].into(), [198, 51, 100, 7].into());
    let range = PoolRange { first, last, ports: (1024, 65_535), transports: [true; 3] };
    let pool6 = vec![Prefix64::WELL_KNOWN];
    Plan {
        shards: Some(SHARDS),
        pools: vec![Pool4 { name: "p".into(), ranges: vec![range], ..Pool4::default() }],
        nat64: vec![Nat64 { name: "n".into(), pool6, wkp_non_global: true, ..Nat64::default() }],
        ..Plan::default()
    }
}

fn tunnel_of(node: usize) -> IpAddr {
    Ipv6Addr::from((0x2001_0db8_ffff << 80) + node as u128 + 1).into()
}

/// Places at a node: shard `n` is that of node `owner(n)`.
fn places(me: usize, owner: impl Fn(u8) -> usize) -> Redirection {
    let place = |shard| if owner(shard) == me { Place::Here } else { Place::Node(owner(shard) as u8) };
    let held = (0..SHARDS as u8).filter(|shard| owner(*shard) == me).collect();
    let name = |node: usize| NAMES[node].into();
    let nodes = (0..NODES).map(|node| TunnelNode { name: name(node), address: tunnel_of(node) }).collect();
    let tunnel = Tunnel::new(me, nodes, vxlan::PORT, 7, 1500).unwrap();
    Redirection { places: std::array::from_fn(|shard| place(shard as u8)), held, tunnel }
}

fn owner(shard: u8) -> usize {
    usize::from(shard) % NODES
}

struct Node {
    peers: Vec<MemoryPeer>,
    handles: Vec<Handle>,
    threads: Vec<JoinHandle<(Snapshot, Option<std::io::Error>)>>,
}

struct Cluster {
    steering: Arc<Steering>,
    nodes: Vec<Node>,
    clock: Clock,
    /// Device that the next packet arrives at.
    next: usize,
}

impl Cluster {
    fn start() -> Cluster {
        let clock = Clock::new();
        let mut all = Vec::new();
        let steering = Arc::new(Shares::new(&plan(), WORKERS, [9; 4]).unwrap().steering);
        for me in 0..NODES {
            let shares = Shares::new(&plan(), WORKERS, [9; 4]).unwrap();
            let mut node = Node { peers: vec![], handles: vec![], threads: vec![] };
            let parts = exchange(WORKERS, &Arc::new(shares.steering)).unwrap();
            for (plan, mut exchange) in shares.plans.iter().zip(parts) {
                let (memory, peer) = Memory::new("m").unwrap();
                let mut nat = Nat::new(plan, [1, 2, 3, me as u64]).unwrap();
                nat.begin_standby();
                exchange.redirect_by(&mut Some(Arc::new(places(me, owner))));
                let (worker, handle) = Worker::sharing(nat, Box::new(memory), clock, exchange);
                node.threads.push(std::thread::spawn(move || worker.run()));
                node.peers.push(peer);
                node.handles.push(handle);
            }
            all.push(node);
        }
        let cluster = Cluster { steering, nodes: all, clock, next: 0 };
        (0..NODES).for_each(|node| cluster.right(node));
        cluster
    }

    /// Gives a node the right to all ports: only the places say who uses them.
    fn right(&self, node: usize) {
        self.order(node, PeerAction::Right([0; 4].into(), [255; 4].into(), ALL_PORTS));
    }

    fn order(&self, node: usize, action: PeerAction) {
        self.nodes[node].handles.iter().for_each(|handle| order(handle, action));
    }

    fn redirect(&self, node: usize, redirection: Redirection) {
        let redirection = Arc::new(redirection);
        for handle in &self.nodes[node].handles {
            assert!(handle.redirect(Some(Arc::clone(&redirection)), SECOND).unwrap().is_some());
        }
    }

    /// Lets a packet arrive at a device of a node.
    fn push_at(&mut self, node: usize, packet: Vec<u8>) {
        self.next += 1;
        self.nodes[node].peers[self.next % WORKERS].push(packet);
    }

    fn push(&mut self, packet: Vec<u8>) {
        self.push_at(self.next % NODES, packet);
    }

    /// Carries packets between the nodes until this many have left for hosts.
    fn sent(&mut self, count: usize) -> Vec<Vec<u8>> {
        let deadline = Instant::now() + 20 * SECOND;
        let mut all = Vec::new();
        while all.len() < count {
            assert!(Instant::now() < deadline, "{} of {count} packets", all.len());
            self.carry(&mut all);
            std::thread::sleep(Duration::from_millis(1));
        }
        all
    }

    fn carry(&mut self, left: &mut Vec<Vec<u8>>) {
        let peers = self.nodes.iter().flat_map(|node| &node.peers);
        let frames: Vec<_> = peers.flat_map(MemoryPeer::take_sent).map(|frame| frame.bytes).collect();
        for bytes in frames {
            match (0..NODES).find(|node| vxlan::is_to(&bytes, tunnel_of(*node), vxlan::PORT)) {
                Some(node) => self.push_at(node, bytes),
                None => left.push(bytes),
            }
        }
    }

    fn stop(self) -> Vec<Snapshot> {
        self.nodes.iter().flat_map(|node| &node.handles).for_each(Handle::stop);
        let threads = self.nodes.into_iter().flat_map(|node| node.threads);
        threads.map(|thread| thread.join().unwrap().0).collect()
    }
}

fn order(handle: &Handle, action: PeerAction) {
    let (sender, done) = std::sync::mpsc::channel();
    let commands = vec![PeerCommand::new(action)];
    handle.standby(commands, move |commands| sender.send(commands).unwrap()).unwrap();
    done.recv_timeout(10 * SECOND).unwrap();
}

/// Ends the translation of all shards.
fn fence(clock: Clock) -> PeerAction {
    PeerAction::Until(ShardSet::ALL, Fence { assign: None, translate: Some(clock.now()) })
}

fn inside(host: u16) -> Ipv6Addr {
    Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(host) << 64 | 5)
}

fn six(src: Ipv6Addr, dst: Ipv4Addr, ports: (u16, u16)) -> Vec<u8> {
    let dst = Prefix64::WELL_KNOWN.embed(dst);
    V6::new(src, dst).packet(&Message::udp(ports.0, ports.1, b"over there"))
}

fn drops(snapshots: &[Snapshot], reason: DropReason) -> u64 {
    let of = |one: &Snapshot| one.unattributed.drops[reason as usize].packets;
    snapshots.iter().map(of).sum()
}

fn outside(packet: &[u8]) -> (Ipv4Addr, u16) {
    let ends = gatun_testkit::packet::endpoints(packet);
    let IpAddr::V4(address) = ends.src else { panic!("not IPv4") };
    (address, ends.sport)
}

#[test]
fn one_node_translates_a_flow_wherever_its_packets_arrive() {
    let mut cluster = Cluster::start();
    let mut ends = BTreeMap::new();
    for round in 0..3 {
        for host in 0..HOSTS {
            cluster.push(six(inside(host), REMOTE, (5000, 7000 + host)));
        }
        for packet in cluster.sent(HOSTS.into()) {
            let end = outside(&packet);
            let host = gatun_testkit::packet::endpoints(&packet).dport - 7000;
            let shard = cluster.steering.shard_of_subscriber(0, inside(host));
            assert_eq!(cluster.steering.shard_of_address(end.0), shard);
            assert_eq!(*ends.entry(host).or_insert(end), end, "round {round}");
        }
    }
    // Answers arrive anywhere, too.
    for (host, (address, port)) in &ends {
        cluster.push(V4::new(REMOTE, *address).packet(&Message::udp(7000 + host, *port, b"and back")));
    }
    for packet in cluster.sent(HOSTS.into()) {
        let ends = gatun_testkit::packet::endpoints(&packet);
        assert_eq!((ends.dst, ends.dport), (inside(ends.sport - 7000).into(), 5000));
    }
    // A hairpin between hosts of two nodes: the packet leaves as one to a remote host, and routes bring it
    // back.
    let other = |node: usize| {
        (0..HOSTS).find(|host| owner(cluster.steering.shard_of_subscriber(0, inside(*host)).unwrap()) == node)
    };
    let (one, two) = (other(0).unwrap(), other(1).unwrap());
    cluster.push(six(inside(one), ends[&two].0, (5000, ends[&two].1)));
    let left = cluster.sent(1).remove(0);
    assert_eq!((outside(&left), left[0] >> 4), (ends[&one], 4));
    cluster.push(left);
    let arrived = gatun_testkit::packet::endpoints(&cluster.sent(1)[0]);
    assert_eq!(arrived.dst, IpAddr::from(inside(two)));
    let snapshots = cluster.stop();
    let sum = |of: fn(&Snapshot) -> u64| snapshots.iter().map(of).sum::<u64>();
    for snapshot in &snapshots {
        assert!(snapshot.conserved() && snapshot.engine.redirected.packets > 0, "{snapshot:?}");
        assert_eq!(snapshot.engine.dropped.packets, 0);
        let to_nodes: u64 = snapshot.redirected.iter().map(|(_, count)| count.packets).sum();
        assert_eq!(to_nodes, snapshot.engine.redirected.packets);
        assert_eq!(snapshot.worker.redirect, to_nodes);
    }
    // Nobody sends to itself.
    let mut of_node = Snapshot::default();
    snapshots[..WORKERS].iter().for_each(|snapshot| of_node += snapshot);
    let [a, b, c] = &of_node.redirected[..] else { panic!("{:?}", of_node.redirected) };
    assert_eq!([&*a.0, &*b.0, &*c.0], NAMES);
    assert!(a.1.packets == 0 && b.1.packets > 0 && c.1.packets > 0, "{:?}", of_node.redirected);
    // Each packet is translated once, and two of three arrive at another node.
    let sent = u64::from(4 * HOSTS) + 3;
    assert_eq!(sum(|one| one.engine.forwarded.packets), sent - 1);
    let redirected = sum(|one| one.engine.redirected.packets);
    assert!((sent / 2..sent * 5 / 6).contains(&redirected), "{redirected} of {sent}");
}

#[test]
fn only_redirected_packets_from_outside_count_as_such() {
    let mut cluster = Cluster::start();
    let is_of = |node: usize, host: u16, cluster: &Cluster| {
        owner(cluster.steering.shard_of_subscriber(0, inside(host)).unwrap()) == node
    };
    // Packets from inside of each node's hosts, all at node 0.
    (0..HOSTS).for_each(|host| cluster.push_at(0, six(inside(host), REMOTE, (5000, 7000 + host))));
    let mut ends = BTreeMap::new();
    for packet in cluster.sent(HOSTS.into()) {
        ends.insert(gatun_testkit::packet::endpoints(&packet).dport - 7000, outside(&packet));
    }
    // Answers at node 1: those of its own hosts have arrived.
    let own = (0..HOSTS).filter(|host| is_of(1, *host, &cluster)).count() as u64;
    for (host, (address, port)) in &ends {
        cluster.push_at(1, V4::new(REMOTE, *address).packet(&Message::udp(7000 + host, *port, b"back")));
    }
    assert_eq!(cluster.sent(HOSTS.into()).len(), usize::from(HOSTS));
    // A packet that is refused is not redirected.
    let foreign = (0..HOSTS).find(|host| !is_of(1, *host, &cluster)).unwrap();
    let (address, port) = ends[&foreign];
    let last_hop = V4 { ttl: 1, ..V4::new(REMOTE, address) };
    cluster.push_at(1, last_hop.packet(&Message::udp(7000, port, b"late")));
    let deadline = Instant::now() + 20 * SECOND;
    let refused = |handle: &Handle| handle.snapshot(SECOND).unwrap().engine.refused().packets;
    while cluster.nodes[1].handles.iter().map(refused).sum::<u64>() == 0 {
        assert!(Instant::now() < deadline, "nothing is refused");
    }
    let mut of_node = [(); NODES].map(|()| Snapshot::default());
    for (n, snapshot) in cluster.stop().iter().enumerate() {
        of_node[n / WORKERS] += snapshot;
    }
    let counts = of_node.map(|sum| (sum.worker.redirect, sum.worker.redirect_outside));
    let foreign_hosts = u64::from(HOSTS) - own;
    assert!(counts[0].0 > 0 && counts[0].1 == 0, "{counts:?}");
    assert_eq!(counts[1..], [(foreign_hosts, foreign_hosts), (0, 0)]);
}

#[test]
fn places_change_between_two_bursts_and_a_packet_is_redirected_once() {
    let mut cluster = Cluster::start();
    // Node 1 and node 2 each believe that the other one has everything.
    for (node, other) in [(1, 2), (2, 1)] {
        cluster.redirect(node, places(node, |_| other));
    }
    (0..20).for_each(|host| cluster.push_at(1, six(inside(host), REMOTE, (5000, 7000))));
    let deadline = Instant::now() + 20 * SECOND;
    let looped = |cluster: &Cluster| {
        let all = cluster.nodes.iter().flat_map(|node| &node.handles);
        let all: Vec<_> = all.map(|handle| handle.snapshot(SECOND).unwrap()).collect();
        drops(&all, DropReason::RedirectLoop)
    };
    while looped(&cluster) < 20 {
        assert!(Instant::now() < deadline, "{} of 20", looped(&cluster));
        let mut left = Vec::new();
        cluster.carry(&mut left);
        assert!(left.is_empty());
    }
    // Node 0 has everything, and it is the same at all of them.
    (0..NODES).for_each(|node| cluster.redirect(node, places(node, |_| 0)));
    (0..HOSTS).for_each(|host| cluster.push(six(inside(host), REMOTE, (5000, 7000))));
    assert_eq!(cluster.sent(HOSTS.into()).len(), usize::from(HOSTS));
    let nowhere = Redirection { places: [Place::Nowhere; 256], ..places(2, |_| 0) };
    cluster.redirect(2, nowhere);
    (0..10).for_each(|host| cluster.push_at(2, six(inside(host), REMOTE, (5000, 7000))));
    std::thread::sleep(SECOND / 2);
    let snapshots = cluster.stop();
    assert!(snapshots.iter().all(Snapshot::conserved), "{snapshots:?}");
    let reasons = [DropReason::RedirectLoop, DropReason::ShardNowhere];
    assert_eq!(reasons.map(|reason| drops(&snapshots, reason)), [20, 10]);
    let of_node = |node: usize| {
        snapshots[2 * node..2 * node + 2].iter().map(|s| s.engine.forwarded.packets).sum::<u64>()
    };
    assert_eq!([0, 1, 2].map(of_node), [u64::from(HOSTS), 0, 0]);
}

#[test]
fn a_packet_that_another_worker_has_handed_over_is_not_translated_past_a_fence() {
    let mut cluster = Cluster::start();
    (0..NODES).for_each(|node| cluster.redirect(node, places(node, |_| 0)));
    // Only the engine of the second worker knows of the fence: shards 4 to 7.
    order(&cluster.nodes[0].handles[1], fence(cluster.clock));
    let second = |host: &u16| cluster.steering.shard_of_subscriber(0, inside(*host)).unwrap() >= 4;
    let hosts = (0..HOSTS).filter(second).count() as u64;
    for host in 0..HOSTS {
        cluster.nodes[0].peers[0].push(six(inside(host), REMOTE, (5000, 7000)));
    }
    cluster.sent(usize::from(HOSTS) - hosts as usize);
    let deadline = Instant::now() + 20 * SECOND;
    let fenced = |worker: usize| {
        let snapshot = cluster.nodes[0].handles[worker].snapshot(SECOND).unwrap();
        (drops(std::slice::from_ref(&snapshot), DropReason::ShardFenced), snapshot.worker.handed.taken)
    };
    while fenced(1).0 < hosts && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((fenced(0).0, fenced(1)), (0, (hosts, hosts)));
    assert!(cluster.stop().iter().all(Snapshot::conserved));
}

#[test]
fn a_fence_holds_for_a_worker_that_nobody_has_told_places() {
    let clock = Clock::new();
    let shares = Shares::new(&plan(), 1, [9; 4]).unwrap();
    for is_sharing in [true, false] {
        let (memory, peer) = Memory::new("m").unwrap();
        let mut nat = Nat::new(&shares.plans[0], [1, 2, 3, 4]).unwrap();
        nat.begin_standby();
        let (worker, handle) = match is_sharing {
            true => {
                let steering = Arc::new(Shares::new(&plan(), 1, [9; 4]).unwrap().steering);
                let exchange = exchange(1, &steering).unwrap().remove(0);
                Worker::sharing(nat, Box::new(memory), clock, exchange)
            }
            false => Worker::new(nat, Box::new(memory), clock).unwrap(),
        };
        let thread = std::thread::spawn(move || worker.run());
        order(&handle, PeerAction::Right([0; 4].into(), [255; 4].into(), ALL_PORTS));
        let deadline = Instant::now() + 20 * SECOND;
        let has = |count: usize, of: &dyn Fn() -> usize| {
            while of() < count && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(of(), count);
        };
        (0..10).for_each(|host| peer.push(six(inside(host), REMOTE, (5000, 7000))));
        let (count, sent) = (std::cell::Cell::new(0), || peer.take_sent().len());
        has(10, &|| {
            count.set(count.get() + sent());
            count.get()
        });
        order(&handle, fence(clock));
        (0..10).for_each(|host| peer.push(six(inside(host), REMOTE, (5000, 7000))));
        let fenced = || drops(&[handle.snapshot(SECOND).unwrap()], DropReason::ShardFenced);
        has(10, &|| fenced() as usize);
        assert_eq!(sent(), 0);
        // Only a worker with an exchange redirects packets.
        assert_eq!(handle.redirect(Some(Arc::new(places(0, |_| 1))), SECOND).is_some(), is_sharing);
        (0..10).for_each(|host| peer.push(six(inside(host), REMOTE, (5000, 7000))));
        if is_sharing {
            has(20, &|| {
                count.set(count.get() + sent());
                count.get()
            });
        } else {
            has(20, &|| fenced() as usize);
        }
        handle.stop();
        assert!(thread.join().unwrap().0.conserved());
    }
}

#[test]
fn a_redirected_packet_is_traced_and_its_owner_is_named() {
    let mut cluster = Cluster::start();
    let owner_of = |host| owner(cluster.steering.shard_of_subscriber(0, inside(host)).unwrap());
    let host_of = |node| (0..HOSTS).find(|host| owner_of(*host) == node).unwrap();
    let (mine, theirs) = (host_of(0), host_of(2));
    let handle = cluster.nodes[0].handles[0].clone();
    let ask = |packet: Vec<u8>| {
        let (sender, answer) = std::sync::mpsc::channel();
        handle.request_owner(packet, 0, move |owner| sender.send(owner).unwrap());
        let owner = answer.recv_timeout(10 * SECOND).unwrap();
        (owner.worker.is_some(), owner.place, owner.node.map(|name| name.to_string()))
    };
    let of = |host| six(inside(host), REMOTE, (5000, 7000));
    let (to_mine, to_theirs) = (of(mine), of(theirs));
    assert_eq!(ask(to_mine.clone()), (true, Place::Here, None));
    assert_eq!(ask(to_theirs.clone()), (true, Place::Node(2), Some("c".to_owned())));
    let none = six(inside(1), Ipv4Addr::new(0, 0, 0, 1), (1, 2));
    let other = V6::new(inside(1), inside(2)).packet(&Message::udp(1, 2, b"x"));
    assert!(ask(none).0 && ask(other) == (false, Place::Here, None));
    let (sink, traced) = std::sync::mpsc::channel();
    let request = TraceRequest {
        which: TraceFilter::default(),
        one_in: 1,
        count: 2,
        until: Instant::now() + 20 * SECOND,
        bytes_max: 100,
    };
    let (sender, begun) = std::sync::mpsc::channel();
    let deliver = move |packet| {
        sink.send(packet).unwrap();
        TraceDelivery::Accepted
    };
    let _guard = handle.trace(request, Box::new(deliver), move |is_free| sender.send(is_free).unwrap());
    assert!(begun.recv_timeout(10 * SECOND).unwrap());
    // The first device of the node, and a flow of its first worker's shards.
    for packet in [to_theirs.clone(), to_mine] {
        cluster.nodes[0].peers[0].push(packet);
    }
    let first = traced.recv_timeout(10 * SECOND).unwrap();
    let shard = cluster.steering.shard_of_subscriber(0, inside(theirs));
    assert_eq!(
        (first.verdict, first.node.as_deref(), first.before),
        (Verdict::Redirect, Some("c"), to_theirs)
    );
    assert_eq!(first.explanation.shard, shard);
    cluster.sent(2);
    cluster.stop();
}
