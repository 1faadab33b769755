//! Coordination of nodes over real members of etcd.

use crate::processes::Etcd;
use gatun_cluster::coordination::{Coordination, CoordinationSettings, Holdings, RelationFacts};
use gatun_cluster::etcd::{EtcdSettings, EtcdStore};
use gatun_cluster::record::{NodeName, Part, Phase};
use gatun_cluster::target::Candidate;
use gatun_cluster::{ClusterRules, ClusterTiming};
use gatun_peer::ownership::Timing;
use std::time::{Duration, Instant};

const SHARDS: u16 = 8;
const TIMING: ClusterTiming =
    ClusterTiming { timing: Timing { lease_ms: 2_000, kernel_ms: 100, drift_ms: 100 }, hold_ms: 20_000 };

/// Two nodes that are connected as long as both run, and have each other's state at once.
struct Connected(bool);

impl Holdings for Connected {
    fn relation(&self, _shard: u8, _other: &NodeName) -> RelationFacts {
        let Connected(is_connected) = *self;
        let (is_synced, is_told) = (is_connected, is_connected);
        RelationFacts { is_connected, is_away: !is_connected, is_synced, is_told }
    }

    fn has_state(&self, _shard: u8) -> bool {
        true
    }

    fn has_dropped(&self, _shard: u8) -> bool {
        true
    }
}

struct Node {
    coordination: Coordination,
    store: EtcdStore,
}

struct Cluster {
    nodes: Vec<Node>,
    begin: Instant,
}

impl Cluster {
    fn start(etcd: &Etcd) -> Cluster {
        let node = |name: &str| {
            let one = |name: &str| Candidate { node: name.into(), name: name.to_owned(), weight: 1 };
            let settings = CoordinationSettings {
                cluster: "test".to_owned(),
                me: name.into(),
                nodes: vec![one("a"), one("b")],
                instance: format!("instance-{name}"),
                shards: SHARDS,
                timing: TIMING,
                moves_max: 4,
                rules: ClusterRules::default(),
            };
            let of_etcd =
                EtcdSettings { endpoints: etcd.endpoints(), tls: None, user: None, timeout_ms: 1_000 };
            let store = EtcdStore::start(of_etcd, || ()).unwrap();
            Node { coordination: Coordination::new(settings, 0, &[]), store }
        };
        Cluster { nodes: vec![node("a"), node("b")], begin: Instant::now() }
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }

    fn turn(&mut self) {
        let (now_ms, connected) = (self.now(), Connected(self.nodes.len() > 1));
        for Node { coordination, store } in &mut self.nodes {
            coordination.turn(now_ms, store, &connected);
            coordination.take_events().iter().for_each(|event| println!("{now_ms} {}", event.text));
        }
        std::thread::sleep(Duration::from_millis(3));
    }

    /// Runs until something is so. Returns the time that it took.
    fn until(&mut self, what: &str, is_so: impl Fn(&Cluster) -> bool) -> u64 {
        let begin = self.now();
        while !is_so(self) {
            assert!(self.now() < begin + 30_000, "not within 30 s: {what}");
            self.turn();
        }
        self.now() - begin
    }

    fn owned(&self, node: usize) -> usize {
        let rights = |shard| self.nodes[node].coordination.rights(shard);
        let owns =
            |shard: &u8| rights(*shard).part == Part::Owner && rights(*shard).assign_until > self.now();
        (0..SHARDS as u8).filter(owns).count()
    }

    fn all_ready(&self) -> bool {
        (0..SHARDS as u8).all(|shard| {
            let record = self.nodes[0].coordination.shard(shard).record;
            record.is_some_and(|record| record.phase() == Some(Phase::Ready))
        })
    }
}

#[test]
fn nodes_share_shards_and_one_takes_over_all_while_etcd_changes_its_leader() {
    let mut etcd = Etcd::start(3);
    let mut cluster = Cluster::start(&etcd);
    let ms = cluster.until("both own shards", |cluster| {
        cluster.all_ready() && cluster.owned(0) + cluster.owned(1) == SHARDS.into()
    });
    println!(
        "{ms} ms until all shards have an owner and a backup: {} and {}",
        cluster.owned(0),
        cluster.owned(1)
    );
    assert!(cluster.owned(0) > 0 && cluster.owned(1) > 0);
    etcd.kill(etcd.leader());
    cluster.nodes.truncate(1);
    let ms = cluster.until("the survivor owns all", |cluster| cluster.owned(0) == SHARDS.into());
    println!("{ms} ms until the survivor owns all shards, without one of three members of etcd");
    // The other one has renewed its lease half a second ago at most, and the margin follows the lease.
    assert!(ms >= 1_500, "{ms} ms: the other node had a right");
}

#[test]
fn without_etcd_a_node_keeps_its_shards_for_the_hold() {
    let etcd = Etcd::start(1);
    let mut cluster = Cluster::start(&etcd);
    cluster.until("all shards are ready", Cluster::all_ready);
    etcd.pause(0);
    let begin = cluster.now();
    cluster.until("the lease is over", |cluster| cluster.owned(0) == 0);
    while cluster.now() < begin + 5_000 {
        cluster.turn();
        let rights = cluster.nodes[0].coordination.rights(0);
        assert!(rights.translate_until > cluster.now() + 10_000, "{rights:?}");
    }
    assert!(cluster.nodes[0].coordination.error().is_some());
    etcd.go_on(0);
    cluster.until("both have leases again", |cluster| {
        cluster.owned(0) + cluster.owned(1) == SHARDS.into()
            && cluster.nodes[0].coordination.error().is_none()
    });
}
