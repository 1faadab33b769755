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
    redirection(settings, &Places::NONE)
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

/// Roles of the node for the announced networks. `is_cut`: packets of some shard end at this node, so that
/// routers should send others' packets to it only if no other node is better.
pub(super) fn roles(
    settings: &ClusterSettings,
    steering: &Steering,
    (places, is_cut): (&Places, bool),
) -> Roles {
    let mut roles = Roles { is_worse: is_cut, ..Roles::default() };
    for shard in (0..settings.cluster.shards).filter_map(|shard| u8::try_from(shard).ok()) {
        let list = match () {
            () if places.lapsed.contains(shard) => &mut roles.backup,
            () if places.owned.contains(shard) => &mut roles.own,
            () if places.backed.contains(shard) => &mut roles.backup,
            () => &mut roles.absent,
        };
        let runs = steering.addresses_of_shard(shard).into_iter();
        let networks = runs.flat_map(|(first, last)| Net4::covering(first, last));
        list.extend(networks.map(|net| Prefix { addr: net.addr.into(), len: net.len }));
    }
    // Nobody else has it.
    let addr = settings.tunnel.own();
    roles.own.push(Prefix { addr, len: if addr.is_ipv4() { 32 } else { 128 } });
    roles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::settings;
    use gatun_nat::Plan;
    use gatun_nat::plan::{Nat44, Pool4, PoolRange};
    use gatun_nat::workers::Shares;
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
        let mut places = Places { backed: [2].into_iter().collect(), ..Places::NONE };
        assert!(has_work(&node, &places));
        places.owned = [0].into_iter().collect();
        places.translated[0] = Place::Here;
        places.translated[1] = Place::Node(1);
        let net = |n: u8| Prefix { addr: address(n).into(), len: 30 };
        let tunnel = Prefix { addr: "198.51.100.1".parse().unwrap(), len: 32 };
        let (own, backup, absent) = (vec![net(0), tunnel], vec![net(8)], vec![net(4), net(12)]);
        let mut expected = Roles { own, backup, absent, is_worse: false };
        assert_eq!(roles(&node, &steering, (&places, false)), expected);
        expected.is_worse = true;
        assert_eq!(roles(&node, &steering, (&places, true)), expected);
        // Another node may own it soon.
        places.lapsed = [0].into_iter().collect();
        expected = Roles { own: vec![tunnel], backup: vec![net(0), net(8)], ..expected };
        assert_eq!(roles(&node, &steering, (&places, true)), expected);
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
        let places = Places { translated, ..Places::NONE };
        assert!(!has_work(&node, &places));
        node.cluster.nodes[0].weight = 0;
        assert!(has_work(&node, &places));
    }
}
