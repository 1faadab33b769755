//! Node with as many shards as there can be.

use crate::boxes::{Slots, TIMING, name, plan};
use crate::engines::Workers;
use crate::server::{Client, Server};
use gatun_cluster::ClusterRules;
use gatun_cluster::coordination::CoordinationSettings;
use gatun_cluster::node::{Node, NodeSettings};
use gatun_cluster::target::Candidate;
use gatun_nat::plan::PoolRange;
use gatun_nat::{Instant, ShardSet};
use gatun_peer::member::AddressRange;
use std::cell::RefCell;
use std::rc::Rc;

const SHARDS: u16 = 256;
const PORTS: (u16, u16) = (1024, 1047);

#[test]
fn a_node_owns_and_translates_all_of_256_shards() {
    let mut plan = plan();
    plan.shards = Some(SHARDS);
    let (first, last) = ([192, 0, 2, 0].into(), [192, 0, 2, 255].into());
    plan.pools[0].ranges = vec![PoolRange { first, last, ports: PORTS, transports: [true; 3] }];
    let workers = Workers::new(&plan, (1, 1), (1, 512), 8);
    let range = |shard: u8, (first, last)| AddressRange { first, last, ports: PORTS, shard: shard.into() };
    let of_shard = |shard: u8| {
        let all = workers.steering.addresses_of_shard(shard);
        all.into_iter().map(move |ends| range(shard, ends))
    };
    let addresses = (0..=u8::MAX).flat_map(of_shard).collect();
    let coordination = CoordinationSettings {
        cluster: "c".to_owned(),
        me: name(0),
        nodes: vec![Candidate { node: name(0), name: name(0).to_string(), weight: 1 }],
        instance: "i".to_owned(),
        shards: SHARDS,
        timing: TIMING,
        moves_max: 2,
        rules: ClusterRules::default(),
    };
    let settings = NodeSettings { coordination, addresses, own_ports: 5, away_ms: 300, again_ms: 20 };
    let server = Rc::new(RefCell::new(Server::default()));
    let mut client = Client::new(&server);
    let mut node = Node::new(settings, vec![], None, 0);
    let mut slots = Slots { workers, places: None };
    for now_ms in (1_000..9_000).step_by(10) {
        server.borrow_mut().turn(now_ms);
        client.turn(now_ms);
        node.turn(now_ms, &mut slots, &mut client);
        slots.workers.work(0, Instant(now_ms), 1_000);
        node.take_unsaved();
        node.note_saved();
    }
    assert_eq!(slots.places.map(|places| places.owned), Some(ShardSet::ALL));
    assert!(node.status(9_000).shards.iter().all(|shard| shard.may_assign));
}
