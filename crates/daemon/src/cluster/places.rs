//! Places of the shards: where the workers send packets, and which networks this node announces.

use super::ClusterSettings;
use crate::health::Roles;
use gatun_cluster::node::Places;
use gatun_io_tun::Prefix;
use gatun_nat::plan::Net4;
use gatun_nat::redirect::{Place, Redirection};
use gatun_nat::workers::Steering;
use std::sync::Arc;

/// Places before the node knows any: nobody translates anything, because a former process's sessions may be
/// at another node.
pub(crate) fn closed(settings: &ClusterSettings) -> Arc<Redirection> {
    let (translated, owned, backed) = ([Place::Nowhere; 256], Default::default(), Default::default());
    redirection(settings, &Places { translated, owned, backed })
}

/// Places for the workers.
pub(super) fn redirection(settings: &ClusterSettings, places: &Places) -> Arc<Redirection> {
    let held = places.owned.union(places.backed);
    Arc::new(Redirection { places: places.translated, held, tunnel: settings.tunnel.clone() })
}

/// Returns whether a node has something to announce: a shard, or the way to other nodes if it never has one.
pub(super) fn has_work(settings: &ClusterSettings, places: &Places) -> bool {
    let redirects = settings.own().weight == 0;
    let is_known = |place: &Place| matches!(place, Place::Node(_));
    let has_none = places.owned.union(places.backed).is_empty();
    !has_none || redirects && places.translated.iter().any(is_known)
}

/// Roles of the node for the announced networks.
pub(super) fn roles(settings: &ClusterSettings, steering: &Steering, places: &Places) -> Roles {
    let mut roles = Roles::default();
    for shard in (0..settings.cluster.shards).filter_map(|shard| u8::try_from(shard).ok()) {
        let list = match () {
            () if places.owned.contains(shard) => continue,
            () if places.backed.contains(shard) => &mut roles.backup,
            () => &mut roles.absent,
        };
        let runs = steering.addresses_of_shard(shard).into_iter();
        let networks = runs.flat_map(|(first, last)| Net4::covering(first, last));
        list.extend(networks.map(|net| Prefix { addr: net.addr.into(), len: net.len }));
    }
    roles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::settings;
    use gatun_nat::plan::{Nat44, Pool4, PoolRange};
    use gatun_nat::workers::Shares;
    use gatun_nat::{Plan, ShardSet};
    use std::net::Ipv4Addr;

    #[test]
    fn a_node_announces_its_shards_only() {
        let node = settings("a", 4);
        let address = |n| Ipv4Addr::new(192, 0, 2, n);
        let range =
            PoolRange { first: address(0), last: address(15), ports: (1024, 65_535), transports: [true; 3] };
        let pool = Pool4 { name: "p".into(), ranges: vec![range], ..Pool4::default() };
        let plan =
            Plan { shards: Some(4), pools: vec![pool], nat44: vec![Nat44::default()], ..Plan::default() };
        let steering = Shares::new(&plan, 1, [1; 4]).unwrap().steering;
        let mut places = Places {
            translated: [Place::Nowhere; 256],
            owned: ShardSet::NONE,
            backed: [2].into_iter().collect(),
        };
        assert!(has_work(&node, &places));
        places.owned = [0].into_iter().collect();
        places.translated[0] = Place::Here;
        places.translated[1] = Place::Node(1);
        let net = |n: u8| Prefix { addr: address(n).into(), len: 30 };
        let expected = Roles { backup: vec![net(8)], absent: vec![net(4), net(12)] };
        assert_eq!(roles(&node, &steering, &places), expected);
        let redirection = redirection(&node, &places);
        assert_eq!(redirection.held.iter().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(redirection.place(1), Place::Node(1));
        assert_eq!(redirection.tunnel.nodes().len(), 2);
        assert_eq!(closed(&node).place(0), Place::Nowhere);
    }

    #[test]
    fn a_node_without_shards_has_nothing_to_announce_unless_it_never_gets_any() {
        let mut node = settings("a", 4);
        let mut translated = [Place::Nowhere; 256];
        translated[3] = Place::Node(1);
        let places = Places { translated, owned: ShardSet::NONE, backed: ShardSet::NONE };
        assert!(!has_work(&node, &places));
        node.cluster.nodes[0].weight = 0;
        assert!(has_work(&node, &places));
    }
}
